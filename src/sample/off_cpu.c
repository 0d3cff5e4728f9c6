/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A timeline stands at `at_ns`: all before is accounted for, in times.ns or as not known. Each event of
 * the thread first brings it up to the event (catch_up), with the state it was in, and then changes
 * the state.
 *
 * An event that does not follow from the state (it left the CPU twice) says that records are missing.
 * What is then known: the state up to where the loss began, and, because the event says so, the state
 * since where the loss ended.
 */
#include "sample/off_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/vec.h"
#include "sample/blocked.h"
#include "sample/thinning.h"

#define BUCKETS 1024u
#define HELD_IPS 64u
/* A thread that sleeps that long gets its stack unwound, kept or not: younger ones may be back before
 * we have looked. */
#define SETTLE_NS (200 * NS_PER_US)
/* How old the times in a recording that is cut short may be: of threads that do something, and of
 * those that do not. */
#define TELL_NS NS_PER_S
#define TELL_QUIET_NS (16 * NS_PER_S)
#define LONG_QUEUE_NS (5 * NS_PER_MS) /* worth asking whether the thread was throttled */
/* A longer interval was looked at while it lasted. */
#define LEFT_OUT_NS (10 * THINNING_BRIEF_NS)
/* Intervals kept of all threads together, in a thinning window. */
#define KEPT_IN_ALL 400u

static const struct stored_stack no_stack = {.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS};

enum place {
	AWAKE, /* on the CPU or queued: the next event tells */
	ON,
	OFF,
};

/* What was copied of a thread that has left the CPU. */
struct held {
	struct raw_stack raw; /* points into here */
	uint64_t time_ns;
	uint64_t ips[HELD_IPS];
	uint8_t bytes[OFF_CPU_HELD_BYTES];
};

struct timeline {
	pid_t pid, tid;
	enum place place;
	uint64_t at_ns;
	uint64_t told_ns; /* up to when its times were told */
	struct thread_times times;
	/* of brief intervals, where stacks are left out: blocked in what is not known, and in what is */
	uint64_t unsorted_ns, sorted_ns[STATE_COUNT];
	uint64_t lost_from_ns, lost_until_ns; /* records were lost in between, since at_ns; 0, 0: none */

	/* announced for the next out */
	bool announced;
	uint64_t announced_ns;
	struct off_cpu_reason reason;

	/* OFF; `held` and `stack` from the announcement on */
	uint64_t left_ns, woken_ns; /* woken 0: not known */
	uint16_t cpu;
	bool was_open, preempted, in_pending;
	bool placeless; /* it was not seen leaving because it was not running yet */
	bool ignored;   /* all the time */
	struct held *held; /* NULL: nothing, or unwound already */
	struct stored_stack stack;
	struct off_cpu_waker waker;
	/* what /proc said at live_ns; 0: it was not asked. Of this interval, if that was not over yet */
	uint64_t live_ns;
	struct off_cpu_reason live_reason;
	bool has_live_stack;
	struct stored_stack live_stack;

	struct thinning thinning;
	uint64_t busy_ns; /* the window of struct off_cpu that it was counted in */
	struct timeline *next; /* hash chain */
};

/* Threads that have ended lately. The last time that one leaves its CPU comes after the word of its
 * end, and is not the beginning of a wait. */
#define ENDED_THREADS 256
#define LAST_STEPS_NS NS_PER_S
struct ended {
	pid_t tid;
	uint64_t time_ns;
};

struct off_cpu {
	struct session *session;
	struct off_cpu_options options;
	struct ended ended[ENDED_THREADS];
	unsigned next_ended;
	struct timeline *buckets[BUCKETS];
	size_t count;
	struct blocked_thread *asleep; /* room to look at one; NULL: none may be */
	VEC(pid_t) pending;         /* threads with something to settle, and some that have not any more */
	VEC(struct held *) free_held;
	uint64_t random, told_ns;
	bool leaves_out;            /* stacks, of brief intervals */
	uint64_t window_ns;         /* for the share of each thread in what is kept */
	uint32_t busy, most;        /* threads with intervals in the window; what each may keep */
};

static const struct session_keeper_ops keeper_ops;

int off_cpu_new(struct session *session, const struct off_cpu_options *options,
	struct off_cpu **ret, struct err *err)
{
	struct off_cpu *o = calloc(1, sizeof(*o));

	if (!o)
		return err_nomem(err);
	o->session = session;
	o->options = *options;
	o->random = clock_monotonic_ns();
	o->most = THINNING_MOST;
	o->asleep = options->live ? malloc(sizeof(*o->asleep)) : NULL;
	if (options->live && !o->asleep) {
		free(o);
		return err_nomem(err);
	}
	if (session_keep(session, &keeper_ops, o, err)) {
		free(o->asleep);
		free(o);
		return -ENOMEM;
	}
	*ret = o;
	return 0;
}

void off_cpu_free(struct off_cpu *o)
{
	if (!o)
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i], *next; t; t = next) {
			next = t->next;
			free(t->held);
			free(t);
		}
	vec_each(&o->free_held, held)
		free(*held);
	vec_release(&o->free_held);
	vec_release(&o->pending);
	free(o->asleep);
	free(o);
}

static struct timeline **find(const struct off_cpu *o, pid_t tid)
{
	struct timeline **at =
		(struct timeline **)&o->buckets[hash_u64((uint64_t)tid) % BUCKETS];

	while (*at && (*at)->tid != tid)
		at = &(*at)->next;
	return at;
}

bool off_cpu_knows(const struct off_cpu *o, pid_t tid)
{
	return *find(o, tid) != NULL;
}

static struct timeline *add(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns)
{
	struct timeline **at = find(o, tid), *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->pid = pid;
	t->tid = tid;
	t->at_ns = t->told_ns = t->times.since_ns = t->times.until_ns = time_ns;
	t->stack = t->live_stack = no_stack;
	t->waker.leaf = CAPTURE_NONE;
	t->thinning.window_ns = time_ns;
	*at = t;
	o->count++;
	return t;
}

static struct ended *find_ended(struct off_cpu *o, pid_t tid)
{
	for (unsigned i = 0; i < ENDED_THREADS; i++)
		if (o->ended[i].tid == tid)
			return &o->ended[i];
	return NULL;
}

static void note_end(struct off_cpu *o, pid_t tid, uint64_t time_ns)
{
	struct ended *e = find_ended(o, tid);

	if (!e)
		e = &o->ended[o->next_ended++ % ENDED_THREADS];
	*e = (struct ended){tid, time_ns};
}

static bool is_on_its_way_out(struct off_cpu *o, pid_t tid, uint64_t time_ns)
{
	const struct ended *e = find_ended(o, tid);

	return e && time_ns < e->time_ns + LAST_STEPS_NS;
}

/* ---- stacks ---- */

static void await_settling(struct off_cpu *o, struct timeline *t)
{
	if (!t->in_pending && !vec_push(&o->pending, t->tid))
		t->in_pending = true;
}

static void let_go(struct off_cpu *o, struct timeline *t)
{
	if (t->held && vec_push(&o->free_held, t->held))
		free(t->held);
	t->held = NULL;
}

static void hold(struct off_cpu *o, struct timeline *t, uint64_t time_ns, const struct raw_stack *raw)
{
	struct held *h = t->held;

	if (!h && o->free_held.len)
		h = o->free_held.data[--o->free_held.len];
	if (!h)
		h = malloc(sizeof(*h));
	t->held = h;
	if (!h)
		return;
	h->time_ns = time_ns;
	h->raw = *raw;
	if (h->raw.kernel_count > HELD_IPS) /* the outermost of them, which name the call */
		h->raw.kernel_count = HELD_IPS;
	if (h->raw.kernel_count)
		memcpy(h->ips, raw->kernel_ips + raw->kernel_count - h->raw.kernel_count,
			h->raw.kernel_count * sizeof(h->ips[0]));
	h->raw.kernel_ips = h->ips;
	if (h->raw.dump.size > sizeof(h->bytes))
		h->raw.dump.size = sizeof(h->bytes);
	if (h->raw.dump.size)
		memcpy(h->bytes, raw->dump.bytes, h->raw.dump.size);
	h->raw.dump.bytes = h->raw.dump.size ? h->bytes : NULL;
	await_settling(o, t);
}

static void unwind_held(struct off_cpu *o, struct timeline *t)
{
	if (t->held)
		session_stack(o->session, t->pid, t->tid, t->held->time_ns, &t->held->raw, &t->stack);
}

static bool is_reason_known(struct off_cpu_reason reason)
{
	return reason.state != STATE_BLOCKED && (reason.state != STATE_SYSCALL || reason.syscall >= 0);
}

/* What was copied as it left, with more of its stack as it stands now; the registers of a thread that
 * sleeps where it left are those it left with. */
static const struct raw_stack *with_more(const struct held *h, struct blocked_thread *asleep)
{
	struct raw_stack *now = &asleep->stack;

	if (!h || !h->raw.has_regs || !now->has_regs || now->dump.start != h->raw.dump.start)
		return now;
	now->regs = h->raw.regs;
	now->kernel_ips = h->ips;
	now->kernel_count = h->raw.kernel_count;
	return now;
}

/* Asks /proc for what is missing about a thread that sleeps: its stack, or the reason. */
static void look(struct off_cpu *o, struct timeline *t)
{
	uint64_t now_ns = clock_monotonic_ns();
	bool cut = t->stack.leaf == CAPTURE_NONE || t->stack.end == UNWIND_TRUNCATED ||
		t->stack.end == UNWIND_CHANGED ||
		(!t->stack.has_python && session_runs_python(o->session, t->pid));

	if (!o->asleep || t->preempted || t->live_ns || (!cut && is_reason_known(t->reason)) ||
		blocked_read(t->pid, t->tid, o->asleep, NULL))
		return;
	if (cut && (!o->asleep->stack.has_regs ||
			   !session_stack(o->session, t->pid, t->tid, now_ns,
				   with_more(t->held, o->asleep), &t->live_stack)))
		return;
	if (!blocked_still(t->pid, t->tid, o->asleep))
		return;
	t->live_ns = now_ns;
	t->live_reason = o->asleep->reason;
	t->has_live_stack = cut;
}

/* When we looked, the thread may have been back, and away again. */
static void take_live(struct timeline *t, uint64_t end_ns)
{
	if (!t->live_ns || end_ns < t->live_ns)
		return;
	if (!is_reason_known(t->reason))
		t->reason = t->live_reason;
	if (t->has_live_stack)
		t->stack = t->live_stack;
}

/* ---- accounting ---- */

static void account(struct timeline *t, enum thread_state state, uint64_t until_ns)
{
	if (until_ns <= t->at_ns)
		return;
	t->times.ns[state] += until_ns - t->at_ns;
	t->at_ns = t->times.until_ns = until_ns;
}

/* Time of which nothing is known. */
static void skip_to(struct timeline *t, uint64_t until_ns)
{
	if (until_ns <= t->at_ns)
		return;
	t->times.since_ns += until_ns - t->at_ns;
	t->at_ns = t->times.until_ns = until_ns;
}

static enum thread_state queued_state(
	const struct off_cpu *o, const struct timeline *t, uint64_t from_ns, uint64_t to_ns)
{
	if (o->options.throttled && to_ns - from_ns >= LONG_QUEUE_NS &&
		o->options.throttled(o->options.ctx, t->pid, from_ns, to_ns))
		return STATE_THROTTLED;
	return STATE_RUN_QUEUE;
}

/* ---- intervals ---- */

/* What each thread may keep: as much as there is, by those that had intervals a moment ago. */
static void share_out(struct off_cpu *o, struct timeline *t, uint64_t now_ns)
{
	if (now_ns - o->window_ns >= THINNING_WINDOW_NS) {
		uint32_t most = KEPT_IN_ALL / (o->busy ? o->busy : 1);

		o->most = most > THINNING_MOST ? THINNING_MOST
			: most < THINNING_LEAST ? THINNING_LEAST
						: most;
		o->busy = 0;
		o->window_ns = now_ns;
	}
	o->busy += t->busy_ns != o->window_ns;
	t->busy_ns = o->window_ns;
}

void off_cpu_leaves_out(struct off_cpu *o)
{
	o->leaves_out = true;
}

static bool is_told(const struct off_cpu *o, const struct timeline *t)
{
	return !t->ignored && session_selects(o->session, t->tid);
}

/* The weight of an interval; 0: it only counts in the times. */
static uint64_t weigh(struct off_cpu *o, struct timeline *t, uint64_t end_ns, uint64_t duration_ns,
	bool always)
{
	if (!duration_ns || !is_told(o, t))
		return 0;
	if (always)
		return duration_ns;
	if (duration_ns < o->options.min_block_ns)
		return 0;
	share_out(o, t, end_ns);
	o->random += 0x9e3779b97f4a7c15ULL;
	return thinning_weight(&t->thinning, end_ns, duration_ns, o->most, hash_u64(o->random));
}

/* The part of a weight that belongs to `part` of `whole`. */
static uint64_t share_of(uint64_t weight, uint64_t part, uint64_t whole)
{
	return weight == whole ? part : (uint64_t)((double)weight * ((double)part / (double)whole));
}

/* Nobody has its stack, on purpose. */
static bool is_left_out(const struct off_cpu *o, const struct timeline *t, uint64_t end_ns)
{
	return o->leaves_out && !t->held && t->stack.leaf == CAPTURE_NONE && !t->placeless &&
		!t->was_open && end_ns - t->left_ns < LEFT_OUT_NS;
}

/* Tells the interval that ends at `end_ns`; of it, it was queued from `queued_ns` on. */
static void tell(struct off_cpu *o, struct timeline *t, enum thread_state state, uint64_t queued_ns,
	uint64_t end_ns, bool still_open)
{
	uint64_t duration_ns = end_ns - t->left_ns, weight;

	if (is_left_out(o, t, end_ns)) {
		if (duration_ns >= o->options.min_block_ns)
			thinning_missed(&t->thinning, end_ns, duration_ns);
		return;
	}
	weight = weigh(o, t, end_ns, duration_ns, t->was_open || still_open);
	if (!weight)
		return;
	unwind_held(o, t);
	if (t->placeless)
		t->stack.end = UNWIND_ROOT; /* there is nothing that could be missing */
	else if (t->stack.leaf == CAPTURE_NONE)
		session_lost(o->session, LOSS_OFF_CPU_STACK, 1);

	struct off_cpu_interval interval = {
		.start_ns = t->left_ns,
		.duration_ns = duration_ns,
		.queued_ns = share_of(weight, end_ns - queued_ns, duration_ns),
		.pid = t->pid,
		.tid = t->tid,
		.cpu = t->cpu,
		.state = state,
		.syscall = t->reason.syscall,
		.was_open = t->was_open,
		.still_open = still_open,
		.stack = t->stack,
		.waker = t->waker.kind,
		.waker_pid = t->waker.pid,
		.waker_tid = t->waker.tid,
		.waker_stack = t->waker.leaf,
	};
	interval.blocked_ns = weight - interval.queued_ns;
	session_off_cpu(o->session, &interval);
}

static void forget_interval(struct off_cpu *o, struct timeline *t)
{
	let_go(o, t);
	t->announced = false;
	t->was_open = t->preempted = t->placeless = t->has_live_stack = false;
	t->live_ns = 0;
	t->live_stack = no_stack;
	t->woken_ns = 0;
	t->reason = (struct off_cpu_reason){STATE_BLOCKED, -1};
	t->stack = no_stack;
	t->waker = (struct off_cpu_waker){.leaf = CAPTURE_NONE};
}

/* Since when it could run, at `now_ns`. */
static uint64_t queued_since(const struct timeline *t, uint64_t now_ns)
{
	uint64_t since = t->preempted ? t->left_ns : t->woken_ns ? t->woken_ns : now_ns;

	return since < now_ns ? since : now_ns;
}

/* For sort_out(): a blocked interval that ends now. */
static void sort(const struct off_cpu *o, struct timeline *t, enum thread_state state, uint64_t queued_ns,
	uint64_t end_ns)
{
	if (is_left_out(o, t, end_ns))
		t->unsorted_ns += queued_ns - t->left_ns;
	else if (end_ns - t->left_ns < THINNING_BRIEF_NS)
		t->sorted_ns[state] += queued_ns - t->left_ns;
}

/* The thread is off the CPU, and was until `end_ns`. */
static void close_interval(struct off_cpu *o, struct timeline *t, uint64_t end_ns, bool still_open)
{
	enum thread_state state, queued;
	uint64_t queued_ns;

	if (end_ns < t->at_ns)
		end_ns = t->at_ns;
	take_live(t, end_ns);
	state = t->reason.state;
	queued_ns = queued_since(t, end_ns);
	queued = queued_state(o, t, queued_ns, end_ns);
	if (t->preempted)
		state = queued;
	else
		sort(o, t, state, queued_ns, end_ns);
	account(t, state, queued_ns);
	account(t, queued, end_ns);
	tell(o, t, state, queued_ns, end_ns, still_open);
	forget_interval(o, t);
}

static void leave(struct timeline *t, uint64_t time_ns, uint16_t cpu, bool preempted)
{
	t->place = OFF;
	t->left_ns = time_ns;
	t->cpu = cpu;
	t->preempted = preempted;
	if (preempted)
		t->reason = (struct off_cpu_reason){STATE_RUN_QUEUE, -1};
}

/* ---- losses ---- */

static void forget_loss(struct timeline *t)
{
	t->lost_from_ns = t->lost_until_ns = 0;
}

/* Whether the state since at_ns has lasted until now, when the event that comes now is the one that had
 * to come: nothing was lost since then, or only during the smaller part of the time. */
static bool is_believed(const struct timeline *t, uint64_t now_ns)
{
	uint64_t from = t->lost_from_ns > t->at_ns ? t->lost_from_ns : t->at_ns;

	return t->lost_until_ns <= from || t->lost_until_ns - from < (now_ns - t->at_ns) / 2;
}

/* Up to where the state since at_ns is known, and from where what the event says is known. */
static void known_around(const struct timeline *t, uint64_t now_ns, uint64_t *ret_from, uint64_t *ret_until)
{
	*ret_from = t->lost_from_ns > t->at_ns ? t->lost_from_ns : t->at_ns;
	*ret_until = t->lost_until_ns ? t->lost_until_ns : now_ns;
	if (*ret_until > now_ns)
		*ret_until = now_ns;
	if (*ret_until < t->at_ns)
		*ret_until = t->at_ns;
	if (*ret_from > *ret_until)
		*ret_from = *ret_until;
}

/* Records are missing between at_ns and now; after them the thread is ON, or OFF, as `place` says. */
static void resync(struct off_cpu *o, struct timeline *t, uint64_t now_ns, enum place place)
{
	uint64_t from, until;

	known_around(t, now_ns, &from, &until);
	forget_loss(t);
	if (t->place == OFF)
		close_interval(o, t, from, false);
	else if (t->place == ON)
		account(t, STATE_ON_CPU, from);
	skip_to(t, until);
	t->place = place;
	if (place == OFF)
		leave(t, until, 0, false);
}

void off_cpu_lost(struct off_cpu *o, uint64_t from_ns, uint64_t to_ns)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i]; t; t = t->next) {
			uint64_t from = from_ns > t->at_ns ? from_ns : t->at_ns;

			if (from >= to_ns)
				continue;
			if (!t->lost_until_ns || from < t->lost_from_ns)
				t->lost_from_ns = from;
			if (to_ns > t->lost_until_ns)
				t->lost_until_ns = to_ns;
		}
}

/* ---- events ---- */

void off_cpu_begin(struct off_cpu *o, const struct off_cpu_start *start)
{
	struct ended *ended = find_ended(o, start->tid);
	struct timeline *t;

	/* The number is given to a new thread, or the old one is met once more on its way out. */
	if (ended && start->how == BEGIN_CREATED)
		*ended = (struct ended){0};
	else if (is_on_its_way_out(o, start->tid, start->time_ns))
		return;
	t = *find(o, start->tid) ? NULL : add(o, start->pid, start->tid, start->time_ns);
	if (!t || start->how == BEGIN_AWAKE)
		return;
	t->ignored = start->how == BEGIN_IGNORED;
	if (t->ignored)
		return;
	leave(t, start->time_ns, 0, start->how == BEGIN_CREATED);
	t->placeless = start->how == BEGIN_CREATED;
	t->was_open = start->how == BEGIN_BLOCKED;
	if (t->was_open) {
		t->reason = start->reason;
		t->stack = start->stack;
	}
}

/* The thread's timeline, begun if it is new; NULL: this came before it began or after its end, or no
 * memory. */
static struct timeline *at_event(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns)
{
	struct timeline *t = *find(o, tid);

	if (t && t->pid != pid) { /* its number was given to another thread */
		off_cpu_exit(o, tid, t->at_ns);
		t = add(o, pid, tid, time_ns);
	} else if (!t && !is_on_its_way_out(o, tid, time_ns)) {
		t = add(o, pid, tid, time_ns);
	}
	return t && time_ns >= t->times.since_ns ? t : NULL;
}

void off_cpu_stack(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns,
	struct off_cpu_reason reason, const struct raw_stack *raw)
{
	struct timeline *t = at_event(o, pid, tid, time_ns);

	if (!t)
		return;
	/* It was on the CPU, whatever was seen of it last. */
	if (t->place == OFF)
		resync(o, t, time_ns, ON);
	let_go(o, t);
	t->announced = true;
	t->announced_ns = time_ns;
	t->reason = reason;
	if (raw && is_told(o, t))
		hold(o, t, time_ns, raw);
}

void off_cpu_out(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns, uint16_t cpu,
	bool preempted)
{
	struct timeline *t = at_event(o, pid, tid, time_ns);

	if (!t)
		return;
	if (t->place == OFF || !is_believed(t, time_ns))
		resync(o, t, time_ns, ON);
	forget_loss(t);
	account(t, STATE_ON_CPU, time_ns);
	if (!t->announced)
		forget_interval(o, t);
	t->announced = false;
	leave(t, time_ns, cpu, preempted);
	if (!t->held && !preempted && o->asleep && is_told(o, t))
		await_settling(o, t);
}

void off_cpu_woken(
	struct off_cpu *o, pid_t tid, uint64_t time_ns, const struct off_cpu_waker *waker)
{
	struct timeline *t = *find(o, tid);

	if (!t || t->place != OFF || t->preempted || t->woken_ns || time_ns < t->left_ns)
		return;
	t->woken_ns = time_ns;
	t->waker = *waker;
}

void off_cpu_in(struct off_cpu *o, pid_t pid, pid_t tid, uint64_t time_ns, uint16_t cpu)
{
	struct timeline *t = at_event(o, pid, tid, time_ns);

	if (!t)
		return;
	/* The stack came and the record of leaving did not. */
	if (t->place != OFF && t->announced) {
		account(t, STATE_ON_CPU, t->announced_ns);
		leave(t, t->at_ns, cpu, t->reason.state == STATE_RUN_QUEUE);
	}
	if (t->place == AWAKE) {
		leave(t, t->at_ns, cpu, true);
		t->was_open = t->placeless = true;
	} else if (t->place == ON || !is_believed(t, time_ns)) {
		resync(o, t, time_ns, OFF);
	}
	forget_loss(t);
	close_interval(o, t, time_ns, false);
	t->place = ON;
}

/* ---- ends ---- */

/* Brief intervals without a stack are blocked in what those with one are. */
static void sort_out(const struct timeline *t, struct thread_times *times)
{
	uint64_t sum = 0;

	for (int i = 0; i < STATE_COUNT; i++)
		sum += t->sorted_ns[i];
	for (int i = 0; sum && i < STATE_COUNT; i++) {
		uint64_t part = share_of(t->unsorted_ns, t->sorted_ns[i], sum);

		part = part < times->ns[STATE_BLOCKED] ? part : times->ns[STATE_BLOCKED];
		times->ns[STATE_BLOCKED] -= part;
		times->ns[i] += part;
	}
}

static void tell_times(struct off_cpu *o, struct timeline *t)
{
	struct thread_times times = t->times;

	sort_out(t, &times);
	if (times.until_ns > times.since_ns && !t->ignored)
		session_thread_times(o->session, t->pid, t->tid, &times);
	t->told_ns = times.until_ns;
}

/* The times as they are if nothing happens until now; what may happen is told later. */
static void tell_times_at(struct off_cpu *o, struct timeline *t, uint64_t now_ns)
{
	struct timeline so_far = *t;
	uint64_t queued_ns = queued_since(t, now_ns);

	if (t->place == AWAKE)
		return;
	if (t->place == ON) {
		account(&so_far, STATE_ON_CPU, now_ns);
	} else {
		account(&so_far, t->reason.state, queued_ns);
		account(&so_far, STATE_RUN_QUEUE, now_ns);
	}
	tell_times(o, &so_far);
	t->told_ns = so_far.told_ns;
}

static void tell_times_so_far(struct off_cpu *o, struct timeline *t, uint64_t now_ns)
{
	if (now_ns - t->told_ns < TELL_NS ||
		(t->at_ns < t->told_ns && now_ns - t->told_ns < TELL_QUIET_NS))
		return;
	tell_times_at(o, t, now_ns);
}

static void bring_to(struct off_cpu *o, struct timeline *t, uint64_t now_ns, bool still_open)
{
	if (t->place == OFF)
		close_interval(o, t, now_ns, still_open);
	else
		account(t, STATE_ON_CPU, now_ns);
}

void off_cpu_exit(struct off_cpu *o, pid_t tid, uint64_t time_ns)
{
	struct timeline **at = find(o, tid), *t = *at;

	note_end(o, tid, time_ns);
	if (!t)
		return;
	bring_to(o, t, time_ns, false);
	tell_times(o, t);
	let_go(o, t);
	*at = t->next;
	free(t);
	o->count--;
}

void off_cpu_exec(struct off_cpu *o, pid_t pid, uint64_t time_ns)
{
	struct timeline *first = *find(o, pid);

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i], *next; t; t = next) {
			next = t->next;
			if (t->pid == pid && t->tid != pid)
				off_cpu_exit(o, t->tid, time_ns);
		}
	if (!first)
		return;
	bring_to(o, first, time_ns, false);
	forget_interval(o, first);
	first->place = ON;
}

/* A thread that is not pending any more is taken out of the list. */
static bool settle_one(struct off_cpu *o, struct timeline *t, uint64_t now_ns)
{
	uint64_t age_ns = SETTLE_NS > o->options.min_block_ns / 2 ? SETTLE_NS
								   : o->options.min_block_ns / 2;

	if (!t->held && t->place != OFF)
		return true;
	if (now_ns < (t->held ? t->held->time_ns : t->left_ns) + age_ns)
		return false;
	if (t->place != OFF)
		return false;
	unwind_held(o, t);
	look(o, t);
	let_go(o, t);
	return true;
}

static void tell_all_times(struct off_cpu *o, uint64_t now_ns)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i]; t; t = t->next)
			tell_times_so_far(o, t, now_ns);
	o->told_ns = now_ns;
}

uint64_t off_cpu_settle(struct off_cpu *o, uint64_t now_ns)
{
	size_t kept = 0;

	for (size_t i = 0; i < o->pending.len; i++) {
		struct timeline *t = *find(o, o->pending.data[i]);

		if (t && !settle_one(o, t, now_ns))
			o->pending.data[kept++] = t->tid;
		else if (t)
			t->in_pending = false;
	}
	o->pending.len = kept;
	if (now_ns - o->told_ns >= TELL_NS)
		tell_all_times(o, now_ns);
	return kept ? SETTLE_NS : UINT64_MAX;
}

void off_cpu_finish(struct off_cpu *o, uint64_t now_ns)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i]; t; t = t->next) {
			bring_to(o, t, now_ns, true);
			tell_times(o, t);
		}
}

/* ---- in a rolling window ---- */

static void carry(void *ctx, struct session *session, uint64_t now_ns)
{
	struct off_cpu *o = ctx;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct timeline *t = o->buckets[i]; t; t = t->next) {
			session_kept_stack(session, &t->stack.leaf);
			session_kept_stack(session, &t->live_stack.leaf);
			session_kept_stack(session, &t->waker.leaf);
			tell_times_at(o, t, now_ns);
		}
}

static void tell_open(void *ctx, uint64_t now_ns)
{
	off_cpu_finish(ctx, now_ns);
}

static const struct session_keeper_ops keeper_ops = {
	.carry = carry,
	.tell_open = tell_open,
};
