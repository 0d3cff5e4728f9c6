/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One timeline a thread: on the CPU, in the run queue, blocked. What samplers see of threads leaving
 * and entering CPUs becomes exact times by state, and intervals off the CPU for the session.
 *
 *	begin ── stack, out ── [woken] ── in ── stack, out ── ... ── exit
 *
 * Calls come in time order (as the sampler knows it). What happened before a thread's `begin` is
 * ignored; a thread that was never begun begins with its first `out` or `in`.
 *
 * Times are exact: the sum over all states is until_ns - since_ns. Time of which nothing is known,
 * because records were lost, is in no state; since_ns is moved up by that much. (One thing is estimated: what
 * a thread was blocked in during brief intervals of which a sampler leaves out the stack.)
 *
 * Stacks: what is copied at `stack` is held until it is known that the interval is kept, or until the
 * end of the batch of records (off_cpu_settle), when the thread still sleeps and the part that was
 * not copied can still be read. Short intervals are never unwound when they are not kept. What was not
 * told of a thread that still sleeps then (its stack, or what it waits in) is read from /proc.
 */
#ifndef SONDE_SAMPLE_OFF_CPU_H
#define SONDE_SAMPLE_OFF_CPU_H

#include "sample/session.h"
#include "sample/state.h"

struct off_cpu;

struct off_cpu_options {
	uint64_t min_block_ns; /* shorter intervals only count in the times */
	/* Whether threads of `pid` that could run were held back all of [from, to) because their cgroup
	 * had used up its bandwidth; asked for long waits only. NULL: never. */
	bool (*throttled)(void *ctx, pid_t pid, uint64_t from_ns, uint64_t to_ns);
	void *ctx;
	/* Threads that sleep and of which not all was told may be looked at: sample/blocked.h. */
	bool live;
};

/* The session is borrowed. */
int off_cpu_new(struct session *session, const struct off_cpu_options *options,
	struct off_cpu **ret, struct err *err);
void off_cpu_free(struct off_cpu *o);

enum off_cpu_begin {
	BEGIN_AWAKE,   /* it runs or waits for a CPU: its next step tells which */
	BEGIN_CREATED, /* it can run, and has not yet */
	BEGIN_BLOCKED, /* `reason` and `stack` are known */
	BEGIN_IGNORED, /* nothing of it is told: a thread of the kernel */
};

/* All-zero but for pid, tid and time: awake. */
struct off_cpu_start {
	uint64_t time_ns;
	pid_t pid, tid;
	enum off_cpu_begin how;
	struct off_cpu_reason reason;
	struct stored_stack stack; /* BEGIN_BLOCKED; leaf CAPTURE_NONE: could not be had */
};

/* A thread that is known is left as it is. */
void off_cpu_begin(struct off_cpu *o, const struct off_cpu_start *start);
bool off_cpu_knows(const struct off_cpu *o, pid_t tid);

/* What the thread looks like as it leaves, just before it does; all of it is copied, but for stack
 * bytes beyond OFF_CPU_HELD_BYTES. */
#define OFF_CPU_HELD_BYTES 8192u
void off_cpu_stack(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns,
	struct off_cpu_reason reason, const struct raw_stack *raw);

/* It left; `preempted`: it could run on. */
void off_cpu_out(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns, uint16_t cpu,
	bool preempted);

/* It can run again; `leaf` is what the waker was doing, CAPTURE_NONE when that is not known. */
struct off_cpu_waker {
	enum waker_kind kind;
	pid_t pid, tid;
	uint32_t leaf;
};
void off_cpu_woken(
	struct off_cpu *o, pid_t tid, uint64_t time_ns, const struct off_cpu_waker *waker);

void off_cpu_in(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns, uint16_t cpu);

/* The thread is no more. Before session_exited(). */
void off_cpu_exit(struct off_cpu *o, pid_t tid, uint64_t time_ns);

/* `pid` runs a new program: its other threads are no more, and the one that called exec goes on under
 * the number of the first. */
void off_cpu_exec(struct off_cpu *o, pid_t pid, uint64_t time_ns);

/* Records between the two times were lost, of whatever threads. */
void off_cpu_lost(struct off_cpu *o, uint64_t from_ns, uint64_t to_ns);

/* From now on the sampler does not copy the stack of every thread that leaves: brief intervals without one
 * are no loss, but stand behind others. */
void off_cpu_leaves_out(struct off_cpu *o);

/* The end of a batch: all records up to now were handed over. Unwinds what still sleeps, and tells
 * times from time to time. After how many ns to call again at the latest. */
uint64_t off_cpu_settle(struct off_cpu *o, uint64_t now_ns);

/* The end: tells what is still open, and all times. */
void off_cpu_finish(struct off_cpu *o, uint64_t now_ns);

#endif
