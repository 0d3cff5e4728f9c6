/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The BPF sampler: a program in the kernel sees threads leave and enter CPUs, adds up their times, and
 * copies registers and stack bytes where an interval is worth it (bpf/off_cpu.h says when).
 *
 * Of time on the CPU it only knows how much there was. It tells nothing about address spaces: another
 * sampler must (perf, which in that case may have no events but those).
 *
 *	load.c    open, set constants, load, attach; the ops table
 *	ring.c    the ring
 *	decode.c  events in the ring -> intervals for the session
 *	python.c  Python's frames, which come in records of their own
 *	interrupt.c  which interrupts are a thread's own doing
 *	look.c    threads that are asleep: their stacks, read while they are; times; ends
 *
 * Two ways to a stack. What was copied as the thread left the CPU comes with the event at the end of
 * the interval. A thread that sleeps on without a copy (because it was there before us, or goes off
 * and on so often that most copies are left out), or for long, is looked at by the iterator program,
 * which tells its registers; its stack is then read in peace. What was read counts when the thread's
 * counter of switches still is what it was.
 */
#ifndef SONDE_SAMPLE_BPF_PRIV_H
#define SONDE_SAMPLE_BPF_PRIV_H

#include "bpf/off_cpu.h"
#include "base/vec.h"
#include "sample/bpf/ring.h"
#include "sample/python/copier.h"
#include "sample/sampler.h"

struct off_cpu_bpf; /* the skeleton */
struct symbol_source;

/* What we know of the thread in a slot, beyond the slot. */
struct thread_note {
	uint32_t stack_seq; /* of the interval whose stack this is; 0: none */
	struct stored_stack stack;
	uint32_t state; /* as seen by the iterator at stack_seq, enum thread_state */
	int syscall;
	uint32_t waker_seq; /* of the interval that this waker ended */
	enum waker_kind waker;
	pid_t waker_pid, waker_tid;
	uint32_t waker_stack;
	uint32_t told_seq;   /* when its times were last told */
	uint8_t seen_exited; /* scans that found it ended, without its event */
};

/* Python's frames of an interval whose event comes later. */
struct early_chain {
	uint32_t slot, seq;
	size_t bytes;
	void *record;
};
#define MOST_EARLY_CHAINS 64u

struct bpf_sampler {
	struct sampler sampler;
	struct session *session;
	struct sampler_options options;
	struct off_cpu_bpf *skeleton;
	struct bpf_ring ring;
	struct off_cpu_thread *threads; /* shared with the program */
	struct thread_note notes[OFF_CPU_THREADS];
	VEC(struct off_cpu_interval) finished; /* not yet in order */
	struct python_copier *python;
	VEC(struct early_chain) chains; /* oldest first */
	uint64_t room[PYTHON_COPY_WORDS];
	struct raw_chain chain; /* of the interval that is being decoded */
	struct symbol_source *kernel_names; /* NULL: not needed yet, or */
	int kernel_names_refused;
	int epoll_fd;
	bool unkept;      /* the session has no room for what we keep */
	bool told_open;   /* bpf_finish() was here */
	uint64_t keep_ns; /* intervals at least that long are always told */
	uint64_t stop_ns; /* 0: it runs */
	uint64_t scan_ns, tell_ns; /* when the next is due */
	uint64_t scan_wait_ns;
	uint64_t lost_events, lost_threads; /* that were reported */
	uint64_t ring_bytes_read, last_bytes_read;
	uint8_t bytes[OFF_CPU_STACK_BYTES]; /* a stack that was read live */
};

static inline struct bpf_sampler *bpf_of(struct sampler *s)
{
	return (struct bpf_sampler *)s;
}

/* decode.c: one event, 8-byte aligned; what makes no sense is counted. */
void bpf_decode(struct bpf_sampler *s, const void *record, size_t bytes);
/* Hands over what is in the ring, up to that time. How many events. */
size_t bpf_decode_until(struct bpf_sampler *s, uint64_t time_ns);
uint64_t bpf_oldest_ns(struct bpf_sampler *s);
/* Intervals that ended before `time_ns` go to the session, in order. */
void bpf_settle(struct bpf_sampler *s, uint64_t time_ns);
/* Registers as the program copies them. */
void bpf_user_part(struct raw_stack *raw, const uint64_t *regs, uint32_t flags, const void *bytes,
	size_t size);

/* python.c: keeps a record; the chain of an interval, in s->chain, into *raw; what is left. */
void bpf_keep_chain(struct bpf_sampler *s, const struct off_cpu_python *e, size_t bytes);
void bpf_take_chain(struct bpf_sampler *s, uint32_t slot, uint32_t seq, struct raw_stack *raw);
void bpf_release_chains(struct bpf_sampler *s);

/* interrupt.c: whether the frames (leaf first) of an interrupt say that it was caused by the thread that
 * it came upon. */
bool bpf_is_the_threads_own(struct bpf_sampler *s, const uint64_t *ips, size_t count);

/* look.c: one pass over all threads; makes slots for those that were there before. Stacks of threads
 * that have slept since before `before_ns` are read. -errno. */
int bpf_look(struct bpf_sampler *s, uint64_t before_ns, struct err *err);
/* What has to be done from time to time. */
void bpf_scan(struct bpf_sampler *s, uint64_t now_ns);
/* Tells what is still open, and all times, as of that moment; once. */
void bpf_finish(struct bpf_sampler *s, uint64_t now_ns);
void bpf_tell_exit(struct bpf_sampler *s, const struct off_cpu_exit *e);

#endif
