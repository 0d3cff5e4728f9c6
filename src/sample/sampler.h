/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every sampler is to those who use it: one ops table, one file (or folder) an implementation.
 *
 *	perf    interrupts running threads, and sees them leave and enter CPUs; stops nobody
 *	bpf     sees threads leave and enter CPUs, for less, and who woke them
 *	ptrace  stops one thread at a time for microseconds, where nothing else is allowed
 *
 * A sampler delivers to the session: address space events and samples in time order. The caller owns
 * the loop: it waits until sampler_fd() is readable, or for sampler_drain()'s word, and drains. Two
 * samplers may serve one session: one that is asked for samples on the CPU, one for time off it.
 *
 * Order of calls: open, bind, watch_* (any number), drain..., stop, drain(last), free.
 */
#ifndef SONDE_SAMPLE_SAMPLER_H
#define SONDE_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sample/session.h"

struct sampler_options {
	uint32_t frequency_hz; /* samples a second of CPU time of each thread */
	uint32_t stack_bytes;  /* copied a sample, a multiple of 8; 0: what each thread needs */
	bool on_cpu, off_cpu;  /* what to look at; at least one, but for a sampler that only tracks */
	uint64_t min_block_ns; /* shorter intervals off the CPU only count in the thread's times */
	bool nonblocking;      /* Python's frames are read while their threads run on */
};

#define SAMPLER_STACK_SIZES 4

/* What a sampler is, has done and has cost. Words are static. */
struct sampler_facts {
	const char *event;     /* "cycles", "cpu-clock", "ptrace", ...; what samples are of */
	bool kernel;           /* kernel frames are in the stacks */
	size_t threads;        /* attached one by one */
	size_t missed_threads; /* that could not be attached */
	uint64_t ring_bytes_read;
	/* From a sample to when its stack was read on in the running target; 0: no sample. */
	uint64_t delay_mean_ns, delay_p99_ns;
	const char *python;   /* how Python's frames are read: "copied", "stopped", "live"; NULL: not */
	uint32_t stack_bytes; /* copied a sample; 0: what each thread needs, which is told here: */
	struct sampler_stack_size {
		uint32_t bytes;
		size_t threads; /* that were sampled, and had that size last */
	} stack_sizes[SAMPLER_STACK_SIZES];
	/* How long threads were stopped, by samplers that do; 0: none was. */
	uint64_t stops, pause_p50_ns, pause_p99_ns, pause_max_ns;
	uint64_t late_stops;      /* of them, that took long to come */
	uint64_t restarted_calls; /* system calls of theirs that a stop cut short, and that were made
				     again without their noticing */
};

struct sampler;

struct sampler_ops {
	const char *name;

	/* Finds out what this machine and these rights give. Refusals come with words and the
	 * command that helps. */
	int (*open)(const struct sampler_options *options, struct sampler **ret, struct err *err);
	void (*free)(struct sampler *s);

	/* Where to deliver; borrowed. Before watching anything. */
	void (*bind)(struct sampler *s, struct session *session);

	/* All threads of a running process and what they start; NULL in `ops` of those below:
	 * the sampler cannot. -ESRCH: gone. */
	int (*watch_process)(struct sampler *s, pid_t pid, struct err *err);
	/* One thread alone. */
	int (*watch_thread)(struct sampler *s, pid_t pid, pid_t tid, struct err *err);
	/* A child of ours that has not yet called exec: sampling begins with its exec. */
	int (*watch_child)(struct sampler *s, pid_t pid, struct err *err);
	/* Everything that runs. */
	int (*watch_all)(struct sampler *s, struct err *err);
	/* Everything in a cgroup (v2) and those below it; the descriptor is of its directory. */
	int (*watch_cgroup)(struct sampler *s, int cgroup_fd, struct err *err);

	/* Readable when there is something to drain. */
	int (*fd)(const struct sampler *s);
	/* Hands what there is to the session, all of it if `last`. Returns after how many ns at most
	 * to call again though nothing is readable; UINT64_MAX: no need. */
	uint64_t (*drain)(struct sampler *s, bool last);
	/* Where two samplers serve one session, what they saw is told in one order; these are the parts of
	 * drain(). NULL in samplers that are always alone. When the oldest event was that is not handed
	 * over, UINT64_MAX: there is none; events up to that time; and what is to be done after them. */
	uint64_t (*oldest_ns)(struct sampler *s);
	void (*drain_until)(struct sampler *s, uint64_t time_ns);
	uint64_t (*settle)(struct sampler *s, bool last);
	/* No more samples are taken, and no thread is held any more. */
	void (*stop)(struct sampler *s);
	void (*facts)(const struct sampler *s, struct sampler_facts *ret);
};

/* Embedded first in each implementation's own struct. */
struct sampler {
	const struct sampler_ops *ops;
};

extern const struct sampler_ops sampler_perf, sampler_bpf, sampler_ptrace;

/* The callers' side; -EOPNOTSUPP with words where the sampler has no such thing. NULL may be freed. */
void sampler_free(struct sampler *s);
int sampler_watch_process(struct sampler *s, pid_t pid, struct err *err);
int sampler_watch_thread(struct sampler *s, pid_t pid, pid_t tid, struct err *err);
int sampler_watch_child(struct sampler *s, pid_t pid, struct err *err);
int sampler_watch_all(struct sampler *s, struct err *err);
int sampler_watch_cgroup(struct sampler *s, int cgroup_fd, struct err *err);

/* drain() of all of them, their events in one order. After how many ns to call again. */
uint64_t samplers_drain(struct sampler *const *samplers, size_t count, bool last);

#endif
