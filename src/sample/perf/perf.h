/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The perf_event sampler: the kernel interrupts running threads and copies registers and stack
 * bytes; we read them out of one ring a CPU and hand them to the session in time order.
 *
 * Nothing is ever stopped. Threads that exist are attached one by one, until a new look at the
 * list finds no more; threads and processes they start later inherit the events. The sampling
 * period is drawn anew around its mean all the time, so that a program whose phases repeat in step
 * with it is not seen always in the same phase.
 *
 * The caller owns the loop: poll perf_sampler_fd(), then perf_sampler_drain().
 */
#ifndef SONDE_SAMPLE_PERF_PERF_H
#define SONDE_SAMPLE_PERF_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sample/session.h"

struct perf_sampler_options {
	uint32_t frequency_hz; /* samples a second of CPU time of each thread */
	uint32_t stack_bytes;  /* a multiple of 8, at most PERF_MAX_STACK_BYTES */
};

struct perf_sampler;

/* Finds out which event this machine and these rights give, and maps the rings. Refusals come with
 * words and the command that helps. */
int perf_sampler_new(
	const struct perf_sampler_options *options, struct perf_sampler **ret, struct err *err);

/* Where to deliver; borrowed. Call before watching anything. */
void perf_sampler_bind(struct perf_sampler *s, struct session *session);
void perf_sampler_free(struct perf_sampler *s);

/* All threads of a running process and what they start. -ESRCH: gone. */
int perf_sampler_watch_process(struct perf_sampler *s, pid_t pid, struct err *err);

/* One thread alone. */
int perf_sampler_watch_thread(struct perf_sampler *s, pid_t pid, pid_t tid, struct err *err);

/* A child of ours that has not yet called exec: sampling begins with its exec. */
int perf_sampler_watch_child(struct perf_sampler *s, pid_t pid, struct err *err);

/* Everything that runs. */
int perf_sampler_watch_all(struct perf_sampler *s, struct err *err);

/* Readable when there is something to drain. */
int perf_sampler_fd(const struct perf_sampler *s);

/* Hands what is in the rings to the session. The youngest records are left for the next time, since
 * older ones of another CPU may still be on their way; true when that is so, and the next drain
 * should come after PERF_SETTLE_NS at the latest. `last`: everything now. */
#define PERF_SETTLE_NS 50000u
bool perf_sampler_drain(struct perf_sampler *s, bool last);

/* No more samples are taken; drain once more after it. */
void perf_sampler_stop(struct perf_sampler *s);

struct perf_sampler_facts {
	const char *event;     /* "cycles" or "cpu-clock" */
	bool kernel;           /* kernel code is sampled and kernel frames are in the stacks */
	size_t ring_bytes;     /* of each CPU */
	size_t cpus;
	size_t threads;        /* attached one by one */
	size_t missed_threads; /* that could not be attached */
	uint64_t ring_bytes_read;
};
void perf_sampler_facts(const struct perf_sampler *s, struct perf_sampler_facts *ret);

#endif
