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
 *	rings.c   rings on CPUs
 *	events.c  the events of a CPU by their ids
 *	attach.c  the ops table; finding the threads to be sampled
 *	open.c    events on threads: opened, replaced, closed
 *	threads.c whose events count for which thread
 *	adapt.c   how much stack each thread's events copy (stack_size.c), and what that takes
 *	drain.c   rings -> records in time order
 *	decode.c  record -> session calls
 *	jitter.c  the next period
 *	off_cpu.c threads leaving and entering CPUs
 *	copies.c  how many of their stacks are copied
 *	cycles.c  how long a cycle is
 *	early.c   the stack beyond the copy, read at the moment of the sample
 *	python.c  Python's frames, copied at the moment of the sample
 */
#ifndef SONDE_SAMPLE_PERF_PRIV_H
#define SONDE_SAMPLE_PERF_PRIV_H

#include <pthread.h>
#include <sys/resource.h>

#include "base/cursor.h"
#include "base/histogram.h"
#include "base/table.h"
#include "base/vec.h"
#include "os/perf_event.h"
#include "sample/blocked.h"
#include "sample/off_cpu.h"
#include "sample/perf/early.h"
#include "sample/perf/early_store.h"
#include "sample/perf/stack_size.h"
#include "sample/sampler.h"
#include "sample/throttling.h"

/* Registers in a sample, and the place of the stack pointer among them; see event.c. */
#if defined(__x86_64__)
#define PERF_REG_COUNT 17u
#define PERF_REG_SP 7u
#define PERF_REG_FP 6u
#else
#define PERF_REG_COUNT 33u
#define PERF_REG_SP 31u
#define PERF_REG_FP 29u
#endif

/* One event: one thread (or every thread, in system-wide mode) on one CPU. */
struct watched_event {
	struct table_node node; /* its key is the id of the event */
	int fd;    /* -1: closed, and its last records may still come */
	pid_t tid; /* -1: all */
	bool off_cpu; /* copies stacks of threads that leave their CPU */
	bool inherit;
	uint32_t stack_bytes;
	size_t ring;                   /* index of its CPU's */
	struct watched_event *sibling; /* of the same thread on another CPU */
	/* for jitter.c; of one of off_cpu, for copies.c */
	uint64_t samples;    /* since its period was drawn, or since that was tried; since the last look */
	uint64_t sampled_ns; /* time of the last of them */
	uint64_t drawn_ns;   /* when a period was last drawn */
	int64_t set_ns;      /* the period in force, 0: the mean */
	int64_t debt_ns;     /* what periods were short of the mean, in all */
};

struct perf_chains;

struct cpu_ring {
	int cpu;
	bool copies; /* only of stacks of threads that leave the CPU */
	int fd; /* the dummy event that owns the ring: it outlives every thread */
	struct perf_ring ring;
	const struct perf_event_header *next; /* its oldest record; NULL: none, or not looked */
	uint64_t next_ns;                     /* time of that */
	uint64_t handled_ns;                  /* time of the one before; 0: none yet */

	pthread_mutex_t lock;      /* over what both the drain and the ring's thread use: */
	struct table events;       /* that write to it, by id; changed by the drain's thread alone */
	VEC(uint64_t) sampled;     /* ids of those that wait for a new period */
	uint64_t random;

	/* early.c */
	struct perf_sampler *sampler;
	bool has_thread;
	pthread_t thread;
	uint64_t seen; /* position in the ring up to which the thread has looked */
	struct early_store early;

	/* python.c */
	int chains_fd; /* the event that its chains come from; -1: none */
	uint64_t chains_id;
	struct perf_chains *chains; /* of the sample that comes next; NULL: none are copied */
};

/* How an event is to be opened; all-zero: on the thread alone, now, with what s->attr says. */
struct event_wish {
	pid_t tid; /* -1: all */
	bool off_cpu, inherit, on_exec, disabled;
	uint32_t stack_bytes; /* 0: as in the attribute */
};

/* A closed event that records in the ring may still name. */
struct retired_event {
	size_t ring;
	uint64_t id, closed_ns;
};

/* A thread that is sampled, or was and has left events to others. */
struct perf_thread {
	struct table_node node;
	pid_t tid;
	/* The thread whose events count for it (itself, where it has some), 0: not known; and which
	 * that was before. */
	pid_t source, before;
	uint64_t since_ns;
	size_t inheritors;            /* other threads whose source it is */
	struct watched_event *events; /* its own */
	uint64_t born_ns;
	uint64_t replaced_ns; /* when an event of its own was opened last, after it was attached */
	unsigned strays;      /* samples in a row that come from another's events */
	bool sampled, gone;
	bool unsettled; /* others have copies of its events and do not need them */
	uint8_t level;  /* of the stack in its last sample */
	struct stack_size size;
};

/* A thread that was attached, and that nothing was asked about yet. */
struct fresh_thread {
	pid_t pid, tid;
};

struct event_ref {
	size_t ring; /* index */
	uint64_t id;
};

/* For copies.c. */
struct copies {
	bool made;              /* there are events that make them */
	bool own_rings;         /* not those of all else */
	uint64_t count;         /* since the last look, at since_ns */
	uint64_t since_ns;
	uint64_t resume_ns;     /* when those that are paused go on */
	uint64_t random;
	VEC(struct event_ref) seen, paused;
};

struct perf_sampler {
	struct sampler sampler;
	struct session *session;
	struct sampler_options options;
	/* Of the events that sample threads on CPUs, or none, and tell of all else; and of those that copy
	 * stacks of threads that leave them. */
	struct perf_event_attr attr, off_attr;
	const char *event_name;
	bool kernel;
	int epoll_fd;
	bool tracks_known; /* sees the whole machine, and tells of what the session knows */
	int cgroup_fd; /* borrowed: whose threads "all" are; -1: the machine's */
	VEC(struct cpu_ring) rings;
	struct table threads; /* by tid */
	struct perf_thread everything; /* who has the events that sample all threads */
	size_t attached;               /* that have events of their own */
	size_t missed_threads;
	rlim_t max_fd; /* events stay below, so that /proc and object files can still be opened */
	uint64_t period_ns;
	uint64_t cycle_ps; /* picoseconds of a cycle, when cycles are counted; 0: not known */
	uint64_t ring_bytes_read;
	struct histogram delays; /* of samples, from their time to when we came to them */
	int timer_fd, stop_fd;   /* early.c: has the drain called; ends the threads */
	bool kicked;             /* the timer runs */
	uint64_t round_ns;       /* when the drain last looked at the rings */
	struct early_wants wants;

	/* for open.c and adapt.c */
	bool adaptive; /* each thread has its own size of stack */
	VEC(struct retired_event) retired;
	size_t unsettled; /* threads that are */
	unsigned settle_looks;
	uint64_t settle_after_ns, paused_until_ns;
	uint64_t rate_ns, rate_bytes; /* when the rate was taken last, and of what */
	enum stack_room room;
	size_t sizes_of_gone[STACK_SIZE_COUNT]; /* threads that have ended, by their level */

	struct python_program *python; /* for python.c; NULL: chains are read while their threads run on */
	uint64_t lost_chains;          /* of it, that were counted */

	/* for off_cpu.c */
	struct off_cpu *off_cpu;       /* NULL: not asked for */
	struct kernel_roles *roles;    /* NULL: kernel addresses are hidden */
	struct blocked_thread *asleep; /* room to look at one */
	struct throttling *throttling;
	struct copies copies;
	VEC(struct fresh_thread) fresh;
	bool new_threads;              /* those that threads start are seen as well */
	uint64_t stopped_ns;
	uint64_t active_ns, looked_bytes; /* when there was something in the rings last */
};

static inline struct perf_sampler *perf_of(struct sampler *s)
{
	return (struct perf_sampler *)s;
}

/* event.c: attr, and the choice of the event */
int perf_choose_event(struct perf_sampler *s, struct err *err);
struct perf_event_attr perf_dummy_attr(void);

/* What has nothing to do with what is sampled: the address spaces and names of what runs. */
void perf_set_tracking(struct perf_event_attr *attr);

/* A sample of the user's registers and stack. */
void perf_set_user_stack(struct perf_event_attr *attr, uint32_t stack_bytes);

/* Whether the event can be opened on ourselves; 0 or -errno. */
int perf_try_open(const struct perf_event_attr *attr);

/* The CPU clock, with registers and stacks as `options` has it; no thread inherits it, and it tells of nothing
 * else. Opened on ourselves, as a try. */
int perf_choose_clock(
	const struct sampler_options *options, struct perf_event_attr *ret, struct err *err);

/* cycles.c: cycle_ps, where the event counts cycles */
void perf_measure_cycle(struct perf_sampler *s);

/* rings.c */
int perf_open_rings(struct perf_sampler *s, struct err *err);
void perf_close_rings(struct perf_sampler *s); /* with all events */

/* events.c. Events stay where they are until they are removed, which also closes them. */
struct watched_event *event_table_add(
	struct table *t, const struct watched_event *event, uint64_t id);
struct watched_event *event_table_find(const struct table *t, uint64_t id);
struct watched_event *event_table_next(const struct table *t, const struct watched_event *e);
void event_table_remove(struct table *t, struct watched_event *e);
void event_table_release(struct table *t);
/* The event of that id, NULL when it is none of ours any more; for the drain's thread. */
struct watched_event *perf_event_of(struct cpu_ring *r, uint64_t id);

/* threads.c. They stay where they are until they are removed. */
struct perf_thread *thread_table_find(const struct table *t, pid_t tid);
struct perf_thread *thread_table_add(struct table *t, pid_t tid); /* NULL: no memory */
struct perf_thread *thread_table_next(const struct table *t, const struct perf_thread *th);
void thread_table_remove(struct table *t, struct perf_thread *th);
void thread_table_release(struct table *t);
void thread_table_set_source(
	struct table *t, struct perf_thread *th, pid_t source, uint64_t since_ns);
pid_t thread_source_at(const struct perf_thread *th, uint64_t time_ns);

/* open.c. 0 or -errno, with nothing half done. */
int perf_open_thread(struct perf_sampler *s, struct perf_thread *th, const struct event_wish *how);
void perf_close_thread(struct perf_sampler *s, struct perf_thread *th);
/* Another event takes the place of one of the thread's. */
int perf_replace(struct perf_sampler *s, struct perf_thread *th, struct watched_event *old,
	uint32_t stack_bytes);
/* Closed events whose last records were handled. */
void perf_forget_retired(struct perf_sampler *s);

/* adapt.c */
int perf_attach(struct perf_sampler *s, pid_t tid, const struct event_wish *how);
int perf_attach_all(struct perf_sampler *s);
bool perf_is_attached(const struct perf_sampler *s, pid_t tid);
void perf_thread_forked(struct perf_sampler *s, pid_t ptid, pid_t tid, uint64_t time_ns);
void perf_thread_exited(struct perf_sampler *s, pid_t tid);
/* Whether a record of the thread by this event is a second one of what another event tells. */
bool perf_is_second(
	const struct perf_sampler *s, const struct watched_event *e, pid_t tid, uint64_t time_ns);
/* The thread of a sample, NULL when the sample does not count. */
struct perf_thread *perf_sampled_thread(
	struct perf_sampler *s, const struct watched_event *e, pid_t tid, uint64_t time_ns);
/* After a sample of the thread by that event was unwound. */
void perf_adapt(struct perf_sampler *s, struct perf_thread *th, struct watched_event *e,
	const struct stored_stack *stack);
/* After records were handled. When to look again, in ns from now. */
uint64_t perf_settle_families(struct perf_sampler *s);
void perf_count_sizes(const struct perf_sampler *s, struct sampler_facts *facts);

/* drain.c */
uint64_t perf_drain(struct sampler *sampler, bool last);
uint64_t perf_oldest_ns(struct sampler *sampler);
void perf_drain_until(struct sampler *sampler, uint64_t time_ns);
uint64_t perf_settle(struct sampler *sampler, bool last);

/* off_cpu.c */

/* Chooses off_attr, and what attr has to tell; what is needed for it. Where the kernel refuses to tell of its
 * side no stacks are copied, and it is only told that threads leave and enter. */
int perf_off_cpu_open(struct perf_sampler *s, struct err *err);
void perf_off_cpu_bind(struct perf_sampler *s);
void perf_off_cpu_free(struct perf_sampler *s);

/* A thread was attached. 0 or -ENOMEM. */
int perf_off_cpu_attached(struct perf_sampler *s, pid_t pid, pid_t tid);

/* Before records are handled: looks at threads that were attached. */
void perf_off_cpu_look(struct perf_sampler *s);

/* Records; those that the session has as well, after it. */
void perf_off_cpu_sample(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e,
	const struct raw_sample *raw);
void perf_off_cpu_switch(struct perf_sampler *s, struct cpu_ring *r);
void perf_off_cpu_forked(struct perf_sampler *s, pid_t pid, pid_t tid, uint64_t time_ns);
void perf_off_cpu_exec(struct perf_sampler *s, pid_t pid, uint64_t time_ns);

/* After records were handled. When to look again, in ns from now. */
uint64_t perf_off_cpu_settle(struct perf_sampler *s, bool last);

/* copies.c: counts a copy; pauses and resumes events that make too many. When to call again. */
void perf_copies_count(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e);
uint64_t perf_copies_settle(struct perf_sampler *s, uint64_t now_ns);

/*
 * python.c. Before rings are opened: loads the program, where that may be. Then, for each ring and each event;
 * what cannot be had is done without. At the end, after the session's.
 */
void perf_python_open(struct perf_sampler *s);
void perf_python_open_ring(struct perf_sampler *s, struct cpu_ring *r);
void perf_python_close_ring(struct cpu_ring *r);
void perf_python_set(const struct perf_sampler *s, int event_fd);
void perf_python_bind(struct perf_sampler *s);
void perf_python_free(struct perf_sampler *s);

/* A record: whether it holds a chain; from behind its IDENTIFIER on. A sample: gets those before it. */
bool perf_python_record(struct perf_sampler *s, struct cpu_ring *r, uint64_t id, struct cursor *c);
void perf_python_take(struct perf_sampler *s, struct cpu_ring *r, struct raw_sample *raw);
/* After records were handled: counts chains that were lost. */
void perf_python_settle(struct perf_sampler *s);

/* jitter.c: notes a sample of the event itself (under the lock); draws new periods for
 * such events */
void perf_note_sample(struct cpu_ring *r, struct watched_event *e, uint64_t time_ns);
void perf_jitter(struct perf_sampler *s, struct cpu_ring *r);
/* Whether the sample was taken by a copy of the event that a thread has inherited; for those that
 * sample running threads. */
bool perf_is_copy(const struct perf_sampler *s, const struct watched_event *e, pid_t tid,
	uint64_t period);
/* The first period of such an event, under the lock; and of one that takes the place of another one,
 * with what that one owed. */
void perf_first_period(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e);
void perf_take_over(struct perf_sampler *s, struct cpu_ring *r, const struct watched_event *old,
	struct watched_event *new);

/* decode.c: a sample, from behind its IDENTIFIER on; `ips` has room for PERF_KERNEL_FRAMES. What is
 * copied stays where it is. */
#define PERF_KERNEL_FRAMES 256
void perf_read_sample(struct cursor *c, uint64_t sample_type, uint64_t *ips, struct raw_sample *ret,
	uint64_t *ret_period);

/* Hands the ring's next record to the session. */
void perf_decode(struct perf_sampler *s, struct cpu_ring *r);
uint64_t perf_record_time(const struct perf_sampler *s, const struct perf_event_header *header);

/* What every record but samples ends with (sample_id_all): TID, TIME, CPU, IDENTIFIER. */
struct perf_trailer {
	uint32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, reserved;
	uint64_t id;
};
_Static_assert(sizeof(struct perf_trailer) == 32, "as the kernel writes it");

/* False: the record is too short to have one. */
bool perf_trailer(const struct perf_event_header *header, struct perf_trailer *ret);

#endif
