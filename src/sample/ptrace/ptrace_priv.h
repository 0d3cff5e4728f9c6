/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ptrace sampler: where perf events are refused, and for samples at the will of others.
 *
 * One thread of ours, the tracer, keeps the targets' threads seized (which stops nobody) and does
 * nothing else, so that whoever stops never waits for anything but it. It copies registers and
 * stack, lets the thread go, and hands the copy through a ring to the thread that has the session.
 * When the tracer ends, the kernel lets go of all targets without a stop; that is the only way out.
 *
 * Only threads that run are stopped. What sleeps is read where it sleeps (sample/blocked.h).
 * docs/PTRACE.md tells users what that does to a target, and how it differs from perf.
 *
 *	sampler.c  the ops table; the side of the session
 *	deliver.c  notes -> session calls
 *	tracer.c   the tracer's life: requests to it, when it wakes
 *	targets.c  the threads and processes it traces
 *	look.c     a tick: who runs, and is to be stopped
 *	waits.c    and who sleeps, since when; sleepers.c what the session is told of that
 *	stops.c    what to do with a thread that has stopped
 *	snapshot.c a sample of all threads, at a signal
 *	ring.c     the queue between the two; dump_size.c how much is copied; pause.c how long it took;
 *	user_stack.c what is copied
 */
#ifndef SONDE_SAMPLE_PTRACE_PRIV_H
#define SONDE_SAMPLE_PTRACE_PRIV_H

#include <pthread.h>
#include <signal.h>

#include "base/vec.h"
#include "os/proc.h"
#include "os/ptrace.h"
#include "sample/blocked.h"
#include "sample/ptrace/dump_size.h"
#include "sample/ptrace/on_signal.h"
#include "sample/ptrace/pause.h"
#include "sample/ptrace/ring.h"
#include "sample/ptrace/user_stack.h"
#include "sample/python/stopped.h"
#include "sample/sampler.h"
#include "sample/state.h"
#include "sample/throttling.h"

/* ---- notes: what the tracer tells the session, in time order ---- */

enum note_kind {
	NOTE_SAMPLE,  /* registers and stack of a thread on the CPU */
	NOTE_SHOWN,   /* the same of a thread in a sample of all; no registers: could not be had */
	NOTE_WHOLE,   /* of the process `pid` all threads were shown */
	NOTE_ASLEEP,  /* registers and stack of a thread that has gone to sleep, and `wait` why */
	NOTE_AWOKE,   /* it is no longer that; `wait` how long it was */
	NOTE_TIMES,   /* of a thread that ends, or is let go: `wait` */
	NOTE_STARTED, /* `other`: who started it */
	NOTE_EXECED,  /* `name`; its process begins anew */
	NOTE_NAMED,   /* `name` */
	NOTE_ENDED,
	NOTE_LOST,    /* for want of room: `count` samples, and `other_tid` other notes */
};

/* Of ASLEEP: what it waits in. Of AWOKE: the ns of this wait, and of those too short to be seen before it.
 * Of TIMES: all of them since it was traced. */
struct note_wait {
	struct off_cpu_reason reason;
	bool open; /* ASLEEP: it was, when we came. AWOKE: it still is */
	uint64_t since_ns, run_ns, blocked_ns, queued_ns;
};

struct note {
	enum note_kind kind;
	pid_t pid, tid;
	pid_t other_pid, other_tid;
	uint64_t time_ns;
	union {
		struct {
			uint64_t period_ns; /* SAMPLE: CPU time it stands for */
			uint64_t queued_ns; /* and time it waited for a CPU */
		};
		struct note_wait wait;
		uint64_t count; /* LOST */
	};
	union {
		struct unwind_regs regs;
		char name[PROC_NAME_BYTES];
	};
	size_t stack_bytes; /* follow */
	size_t chain_bytes; /* of Python's frames, behind them: python/stopped.h */
	uint8_t stack[];
};

/* What a note may hold of a stack. */
#define NOTE_MOST_BYTES (DUMP_MOST_BYTES + 8u + PYTHON_STOPPED_ROOM)

static inline uint8_t *note_chains(const struct note *n)
{
	return (uint8_t *)(uintptr_t)n->stack + ((n->stack_bytes + 7) & ~(size_t)7);
}

static inline size_t note_bytes(const struct note *n)
{
	return (size_t)(note_chains(n) - (const uint8_t *)n) + n->chain_bytes;
}

/* ---- what is traced; the tracer's own ---- */

/* CPU time, time in the run queue, and how often it came on a CPU (proc_pid_schedstat). */
struct run_times {
	uint64_t run_ns, queued_ns, arrivals;
};

/* What becomes of a thread's time off the CPU, from look to look. */
struct traced_waits {
	struct run_times first, last; /* when it was begun, and at the last look */
	uint64_t since_ns, last_ns;   /* when these were */
	bool asleep;                  /* told so */
	uint64_t blocked_ns;          /* of this sleep, not yet told */
	int64_t unseen_ns, queued_ns; /* blocked and queued time that no wait was told with */
};

struct traced {
	pid_t pid, tid;
	char name[PROC_NAME_BYTES];
	bool selected;     /* -t, --main, --tid */
	bool before_exec;  /* a command that is not yet what it is to be */
	bool execed;       /* became another program since it was started */
	bool in_group;     /* stopped by job control */
	bool awake;        /* at the last look: it ran, or waited for a CPU */
	bool sampled;      /* has had a sample */
	bool late;         /* did not stop in time, and is counted */
	bool wanted;       /* for the sample of all that is being taken, when it stops */
	uint64_t asked_ns; /* to stop; 0: it was not */
	struct run_times seen;  /* at the last look */
	uint64_t accounted_ns;  /* of run_ns, by samples */
	uint64_t name_ns, name_wait_ns; /* when to look at its name again, and then again */
	struct traced_waits waits;
	int times_fd, call_fd;  /* its schedstat and syscall files; -1: not kept open */
};

VEC_TYPE(traced_vec, struct traced *);

enum tracer_ask { ASK_PROCESS, ASK_THREAD, ASK_CHILD, ASK_SNAPSHOT };

/* A call of ours that the tracer answers. */
struct tracer_request {
	enum tracer_ask ask;
	pid_t pid, tid;
	int rc;
	struct err err;
};

struct tracer {
	/* Set before the thread starts, and then only read. */
	struct sampler_options options;
	const struct thread_selection *selection;
	uint64_t period_ns; /* 0: no ticks */
	int on_signal;      /* 0: none */
	size_t cpus, most_files;
	int notes_fd; /* an eventfd: there are notes */
	sigset_t waits_for;

	/* Between the tracer and the session. */
	struct python_stopped *python; /* NULL: Python's frames are read while their threads run on */
	struct note_ring ring;
	struct dump_sizes sizes;
	pthread_t thread;
	bool started;
	pid_t tid; /* of the tracer */

	pthread_mutex_t lock; /* over the two below */
	pthread_cond_t answered;
	struct tracer_request *request;
	bool quit;

	/* The tracer's alone, until it has ended. */
	struct traced_vec threads; /* ascending by tid */
	pid_t child;               /* the one of them that is a child of ours, or 0 */
	size_t files;              /* kept open */
	pid_t looked_at;           /* last; the next look is at the one after it */
	size_t awake;              /* threads, at the last tick */
	size_t asked;              /* threads, to stop, that have not yet */
	uint64_t tick_ns, random;  /* when the next tick is due */
	uint64_t began_ns;         /* the last tick */
	pid_t shown;               /* of whose threads a sample is being taken; 0: nobody's */
	pid_t hit;                 /* by the signal: the thread has been shown */
	struct pid_vec to_show;    /* after that */
	size_t wanted;             /* threads that are still to stop for it */
	uint64_t patience_ns;      /* till when it waits for them */
	struct blocked_thread blocked;
	uint64_t quiet_ns;         /* then, no thread stood stopped */
	int own_times_fd;
	bool realtime;             /* we are scheduled before all others */
	uint64_t load_since_ns, load_cpu_ns; /* what that took, since when */
	uint64_t lost, lost_others; /* notes: samples, and others; not yet told */
	struct pauses pauses;
	size_t attached;
	uint64_t late;             /* stops that took longer than TRACER_LATE_NS to come */
	uint64_t restarted;        /* system calls */
};

/* A thread that stops later than this is busy in the kernel, or waits for a CPU. */
#define TRACER_LATE_NS (10 * NS_PER_MS)

/* tracer.c. start: more than once is fine. ask: the tracer does it, and *r has the answer. end: returns
 * when nothing is traced any more, whether anything was or not. */
int tracer_init(struct tracer *t, struct err *err);
void tracer_release(struct tracer *t);
int tracer_start(struct tracer *t, struct err *err);
int tracer_ask(struct tracer *t, struct tracer_request *r, struct err *err);
void tracer_end(struct tracer *t);
/* Room for a note, filled in but for what it tells; NULL: none, and that is counted. */
struct note *tracer_note(struct tracer *t, enum note_kind kind, const struct traced *th, size_t extra);
void tracer_tell(struct tracer *t, struct note *n);

/* targets.c */
struct traced *traced_find(struct tracer *t, pid_t tid);
/* The one with the next higher id, and after the highest the lowest; NULL: there is none. */
struct traced *traced_after(struct tracer *t, pid_t tid);
struct traced *traced_add(struct tracer *t, pid_t pid, pid_t tid);
void traced_remove(struct tracer *t, struct traced *th);
void traced_remove_others(struct tracer *t, const struct traced *survivor);
void traced_free_all(struct tracer *t);
/* The thread is another program's now, or new: its times begin here. */
void traced_begin(struct tracer *t, struct traced *th);
bool traced_times(struct tracer *t, struct traced *th, struct run_times *ret);
/* Whether it runs or waits for a CPU. */
bool traced_runs(struct tracer *t, struct traced *th);
/* Reads its name; true when it has another one. */
bool traced_name(struct tracer *t, struct traced *th);
void targets_answer(struct tracer *t, struct tracer_request *r);

/* look.c */
void tracer_tick(struct tracer *t);

/* 0, or it is gone; t->asked counts it. */
int tracer_ask_to_stop(struct tracer *t, struct traced *th);
/* Sees to a thread that was asked, and to others, if it stops soon. Later, tracer_events() does. */
void tracer_wait_actively(struct tracer *t, pid_t tid);
void tracer_tell_name(struct tracer *t, const struct traced *th);

/* waits.c: time off the CPU. At a look, with what that has found; the thread ends, or is let go. */
void waits_begin(struct tracer *t, struct traced *th);
void waits_look(struct tracer *t, struct traced *th, bool awake, size_t *budget);
void waits_end(struct tracer *t, struct traced *th, bool gone);
/* What the next sample is to carry of time in the run queue. */
uint64_t waits_take_queued(struct traced *th);

/* snapshot.c: samples of all threads. A thread stands stopped with the signal; one that is wanted has
 * stopped; one is wanted no more. go_on: what is due; until when it can wait. */
void snapshot_signalled(struct tracer *t, struct traced *th, uint64_t since_ns);
void snapshot_stopped(struct tracer *t, struct traced *th, uint64_t since_ns);
void snapshot_forget(struct tracer *t, struct traced *th);
void snapshot_everything(struct tracer *t);
uint64_t snapshot_go_on(struct tracer *t);

/* Python's frames of a thread that stands still, into a note that has its stack. */
void tracer_copy_python(struct tracer *t, const struct traced *th, uint64_t pointer, struct note *n);

/* stops.c: everything that has happened. `since_ns`: then it had not happened. */
void tracer_events(struct tracer *t, uint64_t since_ns);
/* Copies a stopped thread's registers and stack to `n` (NULL: neither) and lets it go without a signal.
 * `slept`: see ptrace_restart(). */
int tracer_copy(struct tracer *t, struct traced *th, struct note *n, bool slept, uint64_t since_ns);
/* One of them, of the thread `tid` or any (-1). Whose it was; 0: there was none, t->quiet_ns is set. */
pid_t tracer_next_event(struct tracer *t, pid_t tid, uint64_t since_ns);

/* ---- the side of the session ---- */

/* A thread's time off the CPU, as told by notes. */
struct sleeper {
	pid_t pid, tid;
	struct off_cpu_reason reason;
	bool was_open;
	struct stored_stack stack;
	uint64_t ns[STATE_COUNT]; /* so far, of its waits */
};

struct ptrace_sampler {
	struct sampler sampler;
	struct session *session;
	VEC(struct sleeper) sleepers; /* ascending by tid */
	struct throttling *throttling;
	struct on_signal_sink sink;
	struct raw_chain chains[PYTHON_STOPPED_CHAINS]; /* of the note that is being delivered, with room */
	uint64_t room[PYTHON_STOPPED_ROOM / sizeof(uint64_t)];
	uint64_t scratch[PYTHON_COPY_WORDS];
	struct tracer tracer;
	uint64_t bytes_read;
};

static inline struct ptrace_sampler *ptrace_of(struct sampler *s)
{
	return (struct ptrace_sampler *)s;
}

/* sleepers.c: the notes ASLEEP, AWOKE and TIMES; and of a sample, its time in the run queue. */
void sleepers_note(struct ptrace_sampler *s, const struct note *n, const struct raw_stack *raw);
void sleepers_queued(
	struct ptrace_sampler *s, const struct note *n, const struct stored_stack *stack);

/* deliver.c. learn: what a stack of the thread took. */
void ptrace_learn(struct ptrace_sampler *s, pid_t tid, const struct stored_stack *stored);
uint64_t ptrace_drain(struct sampler *sampler, bool last);

#endif
