/* SPDX-License-Identifier: BSD-2-Clause */
/* What looks add up to: by thread, by what it waited for, and by who was in the way. */
#include "wait/over_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wait/answer.h"
#include "wait/locks.h"
#include "wait/verdict.h"

/* Chains longer than this are taken for circles. */
#define MOST_STEPS 64u

#define MOST_LOCKS 1024u
#define MOST_CAUSES 256u /* of a thread */
#define MOST_ROOTS 64u   /* of a cause or a lock; others are counted as nobody known */
#define NAME_TRIES 8u    /* a waiter that has gone on has no stack to tell by */

/* A thread that runs is interrupted for its stack not more often than this. */
#define SAMPLE_NS (200 * NS_PER_MS)

/* The function that was seen in most of the looks, if one was in more than half of them. */
static void vote(char *function, size_t size, uint32_t *votes, const char *seen)
{
	if (!*seen)
		return;
	if (!strcmp(function, seen)) {
		++*votes;
	} else if (!*votes) {
		wait_say(function, size, "%s", seen);
		*votes = 1;
	} else {
		--*votes;
	}
}

/* ---- threads ---- */

struct over_thread *over_find(const struct over_time *o, pid_t tid)
{
	struct table_node *node = table_find(&o->by_tid, (uint64_t)tid);

	return node ? (struct over_thread *)node : NULL;
}

static struct over_thread *thread_of(struct over_time *o, const struct wait_node *n)
{
	const struct thread_look *look = &n->thread->look;
	struct over_thread *th = over_find(o, look->tid);

	if (th)
		return th;
	th = calloc(1, sizeof(*th));
	if (!th || vec_push(&o->threads, th)) {
		free(th);
		return NULL;
	}
	th->pid = n->thread->process->pid;
	th->tid = look->tid;
	if (table_add(&o->by_tid, &th->by_tid, (uint64_t)look->tid)) {
		o->threads.len--;
		free(th);
		return NULL;
	}
	return th;
}

static void say_thread(char *to, size_t size, const struct wait_node *n, const struct wait_node *about)
{
	struct buf words = {0};

	wait_thread_words(n, about, &words);
	wait_say(to, size, "%s", words.data ? words.data : "");
	buf_release(&words);
}

static uint64_t step(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static void count_times(struct over_thread *th, const struct thread_look *look, bool first, uint64_t now_ns)
{
	bool known = look->ran_ns != LOOK_UNKNOWN && look->queued_ns != LOOK_UNKNOWN;

	if (first) {
		th->first_ns = now_ns;
		th->counted = known;
	} else if (known && th->counted) {
		th->ran_step = step(look->ran_ns, th->ran_before);
		th->queued_step = step(look->queued_ns, th->queued_before);
		th->ran_ns += th->ran_step;
		th->queued_ns += th->queued_step;
	}
	th->last_ns = now_ns;
	th->counted &= known;
	th->ran_before = look->ran_ns;
	th->queued_before = look->queued_ns;
}

int over_count(struct over_time *o, struct wait_node *n, uint64_t now_ns, struct err *err)
{
	const struct thread_look *look = &n->thread->look;
	struct over_thread *th = thread_of(o, n);

	if (!th)
		return err_nomem(err);
	if (th->look == o->looks)
		return 0;
	if (n->asked && (strcmp(th->name, look->name) != 0 || !th->words[0]))
		say_thread(th->words, sizeof(th->words), n, n);
	wait_say(th->name, sizeof(th->name), "%s", look->name);
	th->asked |= n->asked;
	th->is_first = th->tid == th->pid;
	count_times(th, look, !th->looks, now_ns);
	th->slept_on = th->looks && look->wait.blocked && th->switches == look->switches;
	th->switches = look->switches;
	th->look = o->looks;
	th->looks++;
	th->running_looks += look->wait.state == 'R';
	return 0;
}

/* ---- who was in the way, and what it did ---- */

static bool runs(const struct wait_node *n)
{
	return !n->waits && n->thread->look.wait.state != 'Z' && n->thread->look.wait.state != 'X';
}

/* Whether it was mostly off the CPU since the last look. That it is off it now may be our own doing: we need a
 * CPU to look. */
static bool is_ready(const struct over_thread *th, const struct wait_node *n)
{
	if (th && th->counted && th->queued_step + th->ran_step)
		return th->queued_step > th->ran_step;
	return n->thread->look.queued;
}

static void find_function(struct over_time *o, struct wait_node *n, bool ready, uint64_t now_ns)
{
	if (n->doing[0])
		return;
	if (runs(n) && !ready) {
		if (now_ns - o->sampled_ns < SAMPLE_NS)
			return;
		o->sampled_ns = now_ns;
		snapshot_running_stack(o->snapshot, n->thread);
	}
	wait_describe(o->snapshot, n);
}

static void say_doing(const struct wait_node *n, bool ready, char *to, size_t size)
{
	struct buf trouble = {0};

	if (runs(n)) {
		wait_say(to, size, ready ? "was ready without a CPU" : "ran");
	} else if (!n->waits) {
		wait_say(to, size, "had ended");
	} else if (n->wait.nature == WAIT_STOPPED) {
		wait_say(to, size, "%s", n->wait.what);
	} else {
		wait_trouble_words(&n->wait, &trouble);
		wait_say(to, size, "waited %s%s%s", n->wait.name[0] ? "for " : "",
			n->wait.name[0] ? n->wait.name : n->wait.what, trouble.data ? trouble.data : "");
	}
	buf_release(&trouble);
}

static struct over_root *root_of(struct over_roots *roots, pid_t tid, const char *doing)
{
	struct over_root added = {.tid = tid};

	vec_each(roots, r)
		if (r->tid == tid && !strcmp(r->doing, doing))
			return r;
	if (roots->len >= MOST_ROOTS) /* the last one is for those there is no room for */
		return &roots->data[MOST_ROOTS - 1];
	if (roots->len == MOST_ROOTS - 1)
		added.tid = 0;
	WAIT_SAY(added.doing, "%s", added.tid == tid ? doing : "others");
	return vec_push(roots, added) ? NULL : &roots->data[roots->len - 1];
}

static int add_root(struct over_time *o, struct over_roots *roots, struct wait_node *n,
	const struct wait_node *about, uint64_t now_ns)
{
	char doing[sizeof(roots->data->doing)];
	const struct over_thread *th;
	struct over_root *r;
	bool ready;

	if (over_count(o, n, now_ns, NULL))
		return -ENOMEM;
	th = over_find(o, n->thread->look.tid);
	ready = runs(n) && is_ready(th, n);
	find_function(o, n, ready, now_ns);
	say_doing(n, ready, doing, sizeof(doing));
	r = root_of(roots, n->thread->look.tid, doing);
	if (!r)
		return -ENOMEM;
	r->looks++;
	if (!r->tid)
		return 0;
	r->pid = n->thread->look.pid;
	say_thread(r->who, sizeof(r->who), n, about);
	vote(r->function, sizeof(r->function), &r->votes, n->doing);
	return 0;
}

static int add_nobody(struct over_roots *roots, const char *doing)
{
	struct over_root *r = root_of(roots, 0, doing);

	if (!r)
		return -ENOMEM;
	r->looks++;
	return 0;
}

/* The way on from here. Who seems to wait for itself has mostly just got what it wanted. */
static struct wait_node *next_of(const struct over_time *o, const struct wait_node *n)
{
	const struct wait_edge *e = n->wait.nature == WAIT_STOPPED ? NULL : wait_next(n);
	const struct over_thread *th = over_find(o, n->thread->look.tid);

	return !e || (e->to == n && !(th && th->slept_on)) ? NULL : e->to;
}

static int blame_root(struct over_time *o, struct over_cause *c, bool lock, struct wait_node *n, uint64_t now_ns)
{
	struct wait_node *root = n, *next;
	struct buf trouble = {0};
	int rc;

	for (size_t i = 0; (next = next_of(o, root)); i++) {
		if (i == MOST_STEPS || next == n)
			return add_nobody(&c->roots, "waited for each other in a circle");
		root = next;
	}
	if (root != n)
		return add_root(o, &c->roots, root, n, now_ns);
	wait_trouble_words(&n->wait, &trouble);
	rc = add_nobody(&c->roots, trouble.len > 2 ? trouble.data + 2
			: lock ? "nothing tells who held it" : "nothing tells for whom");
	buf_release(&trouble);
	return rc;
}

/* ---- what was wanted ---- */

static struct over_lock *lock_by(struct over_time *o, const char *object)
{
	vec_each(&o->locks, l)
		if (!strcmp(l->object, object))
			return l;
	return NULL;
}

/* A lock is one object; peers are many, which come and go, and are told by what is wanted of them. */
static const char *object_of(const struct wait *w)
{
	return w->nature == WAIT_LOCK && w->object[0] ? w->object : w->what;
}

static struct over_lock *lock_of(struct over_time *o, const struct wait *w)
{
	struct over_lock added = {.kind = w->kind, .nature = w->nature, .address = w->address};
	struct over_lock *known;

	WAIT_SAY(added.object, "%s", object_of(w));
	known = lock_by(o, added.object);
	if (known || o->locks.len == MOST_LOCKS)
		return known;
	WAIT_SAY(added.what, "%s", w->what);
	WAIT_SAY(added.name, "%s", w->name);
	WAIT_SAY(added.declared, "%s", w->declared);
	return vec_push(&o->locks, added) ? NULL : &o->locks.data[o->locks.len - 1];
}

static void name_lock(struct over_time *o, struct over_lock *l, struct wait_node *n)
{
	if (l->name[0] || l->nature != WAIT_LOCK || !n->wait.address || l->name_tries == NAME_TRIES)
		return;
	l->name_tries++;
	wait_name_lock(o->common.guards, n);
	WAIT_SAY(l->name, "%s", n->wait.name);
	WAIT_SAY(l->declared, "%s", n->wait.declared);
}

/* One more that waits for it at this look; who has it is counted once. */
static int count_waiter(struct over_time *o, struct over_lock *l, struct wait_node *n, uint64_t now_ns)
{
	struct wait_node *holder = next_of(o, n);
	bool new_look = l->look != o->looks;

	if (new_look)
		l->now = 0;
	l->look = o->looks;
	if (!l->first_counter) {
		l->first_counter = n->wait.counter;
		l->first_ns = now_ns;
	}
	if (n->wait.counter > l->first_counter) {
		l->last_counter = n->wait.counter;
		l->last_ns = now_ns;
	}
	l->waiters++;
	if (++l->now > l->most)
		l->most = l->now;
	name_lock(o, l, n);
	if (!new_look || !holder)
		return 0;
	l->held_looks++;
	return add_root(o, &l->holders, holder, n, now_ns);
}

/* ---- one thread at one look ---- */

static enum over_class class_of(const struct over_time *o, const struct wait_node *n)
{
	const struct wait *w = &n->wait;
	const struct over_lock *known;

	if (w->nature == WAIT_STOPPED)
		return OVER_STOPPED;
	if (w->nature == WAIT_LOCK || w->nature == WAIT_PEER || w->trouble || wait_next(n))
		return OVER_BEHIND;
	if (w->nature == WAIT_DEVICE)
		return OVER_DEVICE;
	/* A lock that was let go between the two looks at it does not look like one. */
	known = w->object[0] ? lock_by((struct over_time *)o, w->object) : NULL;
	return known && known->nature == WAIT_LOCK ? OVER_BEHIND : OVER_IDLE;
}

static struct over_cause *cause_of(
	struct over_thread *th, enum over_class class, size_t lock, const struct wait *w)
{
	struct over_cause added = {.class = class, .lock = lock};

	WAIT_SAY(added.what, "%s", w->what);
	vec_each(&th->causes, c)
		if (c->class == class && c->lock == lock &&
			(lock != OVER_NO_LOCK || !strcmp(c->what, added.what)))
			return c;
	if (th->causes.len == MOST_CAUSES)
		return &th->causes.data[MOST_CAUSES - 1];
	return vec_push(&th->causes, added) ? NULL : &th->causes.data[th->causes.len - 1];
}

/* In which of its own functions: of threads that are likely to be talked about. */
static void find_own_function(struct over_time *o, struct over_cause *c, struct wait_node *n)
{
	const struct thread_look *look = &n->thread->look;

	if (c->class != OVER_DEVICE && look->tid != n->thread->process->pid &&
		look->tid != o->options.focus)
		return;
	if (!n->doing[0])
		wait_describe(o->snapshot, n);
	vote(c->function, sizeof(c->function), &c->votes, n->doing);
}

static struct over_lock *known_lock(struct over_time *o, const struct wait *w)
{
	struct over_lock *known = w->object[0] ? lock_by(o, w->object) : NULL;

	return known ? known : lock_of(o, w);
}

int over_blame(struct over_time *o, struct wait_node *n, uint64_t now_ns, struct err *err)
{
	struct over_thread *th = over_find(o, n->thread->look.tid);
	enum over_class class;
	struct over_lock *lock = NULL;
	struct over_cause *c;
	int rc = 0;

	if (!th || !n->waits)
		return 0;
	class = class_of(o, n);
	if (class == OVER_IDLE)
		over_remember(th, n, now_ns);
	if (class == OVER_BEHIND)
		lock = known_lock(o, &n->wait);
	c = cause_of(th, class, lock ? (size_t)(lock - o->locks.data) : OVER_NO_LOCK, &n->wait);
	if (!c)
		return err_nomem(err);
	th->blocked_looks++;
	c->looks++;
	if (lock)
		rc = count_waiter(o, lock, n, now_ns);
	if (!rc && class == OVER_BEHIND)
		rc = blame_root(o, c, (lock ? lock->nature : n->wait.nature) == WAIT_LOCK, n, now_ns);
	find_own_function(o, c, n);
	return rc ? err_nomem(err) : 0;
}
