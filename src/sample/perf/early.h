/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading stacks at the moment of their sample.
 *
 * One thread of ours a CPU, bound to it. A sample wakes it there, and so it runs in place of the
 * sampled thread, which stands still meanwhile: what it reads beyond the copied part of the stack
 * belongs to the sample. On another CPU a thread of the same speed comes too late for every third
 * stack of a compiler. It also draws the event's next period, which costs least just then.
 *
 * What was read waits in the ring's early_store for the sampler's drain. Nothing here calls the
 * session. Where no such thread can be had, a ring has none, and the drain reads stacks itself.
 */
#ifndef SONDE_SAMPLE_PERF_EARLY_H
#define SONDE_SAMPLE_PERF_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct perf_sampler;
struct cpu_ring;

/* How much of its stack beyond the copy each thread is found to need: what the unwinding tells the
 * reading. Written by one thread, read by many. Threads that share a slot forget each other. */
#define EARLY_WANTS 4096u

struct early_wants {
	uint64_t slots[EARLY_WANTS]; /* tid << 32 | samples to look for another stack << 20 | bytes */
};

size_t early_wants_get(const struct early_wants *w, pid_t tid);
/* Whether its stack went on in another place lately (signal stacks, coroutines, goroutines). */
bool early_wants_other(const struct early_wants *w, pid_t tid);
/* A walk needed so many bytes beyond its copy; `cut`: even more than could be read. `switched`: they lie on
 * another stack. */
void early_wants_note(
	struct early_wants *w, pid_t tid, size_t bytes, bool cut, bool switched);

/* Starts the threads for all rings, once; those that fail are done without. */
void early_start(struct perf_sampler *s);
/* Ends them: from now on the drain has the rings for itself. */
void early_stop(struct perf_sampler *s);

/* Whether the ring's thread has yet to look at the record at that position. */
bool early_is_due(const struct cpu_ring *r, uint64_t position);

#endif
