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
 *	event.c   which event there is
 *	attach.c  events on threads, rings on CPUs; the ops table
 *	drain.c   rings -> records in time order
 *	decode.c  record -> session calls
 *	jitter.c  the next period
 *	cycles.c  how long a cycle is
 */
#ifndef SONDE_SAMPLE_PERF_PRIV_H
#define SONDE_SAMPLE_PERF_PRIV_H

#include <sys/resource.h>

#include "base/histogram.h"
#include "base/vec.h"
#include "os/perf_event.h"
#include "sample/sampler.h"

/* One event: one thread (or every thread, in system-wide mode) on one CPU. */
struct watched_event {
	int fd;
	pid_t tid; /* -1: all */
	uint64_t id;
	/* for jitter.c */
	uint64_t samples;    /* since its period was drawn, or since that was tried */
	uint64_t sampled_ns; /* time of the last of them */
	uint64_t drawn_ns;   /* when a period was last drawn */
	int64_t set_ns;      /* the period in force, 0: the mean */
	int64_t debt_ns;     /* what periods were short of the mean, in all */
};

struct cpu_ring {
	int cpu;
	int fd; /* the dummy event that owns the ring: it outlives every thread */
	struct perf_ring ring;
	const struct perf_event_header *next; /* its oldest record; NULL: none, or not looked */
	uint64_t next_ns;                     /* time of that */
};

VEC_TYPE(event_vec, struct watched_event);

struct perf_sampler {
	struct sampler sampler;
	struct session *session;
	struct sampler_options options;
	struct perf_event_attr attr; /* of the sampling events */
	const char *event_name;
	bool kernel;
	int epoll_fd;
	int cgroup_fd; /* borrowed: whose threads "all" are; -1: the machine's */
	VEC(struct cpu_ring) rings;
	struct event_vec events;
	uint32_t *id_slots; /* event id -> index in events + 1; open addressing */
	size_t id_slot_count;
	VEC(pid_t) watched; /* threads with events of their own, ascending */
	size_t missed_threads;
	rlim_t max_fd; /* events stay below, so that /proc and object files can still be opened */
	uint64_t period_ns, random;
	uint64_t cycle_ps; /* picoseconds of a cycle, when cycles are counted; 0: not known */
	uint64_t ring_bytes_read;
	struct histogram delays; /* of samples, from their time to when we came to them */
};

static inline struct perf_sampler *perf_of(struct sampler *s)
{
	return (struct perf_sampler *)s;
}

/* event.c: attr, and the choice of the event */
int perf_choose_event(struct perf_sampler *s, struct err *err);
struct perf_event_attr perf_dummy_attr(void);

/* cycles.c: cycle_ps, where the event counts cycles */
void perf_measure_cycle(struct perf_sampler *s);

/* attach.c */
struct watched_event *perf_event_of_id(const struct perf_sampler *s, uint64_t id);
bool perf_watches_thread(const struct perf_sampler *s, pid_t tid);

/* drain.c */
uint64_t perf_drain(struct sampler *sampler, bool last);

/* jitter.c: draws new periods for the events that were just sampled */
void perf_jitter(struct perf_sampler *s);

/* decode.c: hands one record to the session */
void perf_decode(struct perf_sampler *s, const struct perf_event_header *header);
uint64_t perf_record_time(const struct perf_sampler *s, const struct perf_event_header *header);

#endif
