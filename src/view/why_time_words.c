/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a thread's time went, in one sentence. */
#include "view/why_time_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Smaller shares are left to the table. */
#define LEAST_PERCENT 1.0
#define MOST_PARTS 6u

/* A root that was to blame for less of it was not the only one. */
#define MOSTLY_PERCENT 90.0

struct part {
	double percent;
	const struct over_cause *cause; /* NULL: `words` */
	const char *words;
};

static int compare_parts(const void *x, const void *y)
{
	const struct part *a = x, *b = y;

	return (b->percent > a->percent) - (b->percent < a->percent);
}

void over_lock_words(const struct over_lock *l, struct buf *out)
{
	if (l->name[0]) {
		words_text(out, l->name);
		return;
	}
	if (l->nature != WAIT_LOCK)
		buf_str(out, "waiting ");
	words_text(out, l->nature == WAIT_LOCK && !strncmp(l->what, "for ", 4) ? l->what + 4 : l->what);
	if (l->nature == WAIT_LOCK && l->address)
		buf_printf(out, " at 0x%" PRIx64, l->address);
}

void over_cause_words(const struct over_time *o, const struct over_cause *c, struct buf *out)
{
	const struct over_lock *l = c->lock == OVER_NO_LOCK ? NULL : &o->locks.data[c->lock];

	switch (c->class) {
	case OVER_BEHIND:
		if (l && (l->nature == WAIT_LOCK || l->name[0]))
			buf_str(out, "behind ");
		if (l) {
			over_lock_words(l, out);
			return;
		}
		break;
	case OVER_STOPPED:
		words_text(out, c->what);
		return;
	case OVER_IDLE:
		buf_str(out, "idle, ");
		break;
	default:
		break;
	}
	buf_str(out, "waiting ");
	words_text(out, c->what);
}

static bool is_holder(const struct over_lock *l, pid_t tid)
{
	vec_each(&l->holders, r)
		if (r->tid == tid)
			return true;
	return false;
}

/* " (held by worker-7[815], which ran, in flush (log.c:80))" */
static void blame_words(const struct over_time *o, const struct over_cause *c, struct buf *out)
{
	const struct over_lock *l = c->lock == OVER_NO_LOCK ? NULL : &o->locks.data[c->lock];
	const struct over_root *r = c->roots.data;

	if (c->class != OVER_BEHIND || !c->roots.len)
		return;
	buf_str(out, " (");
	if (r->tid) {
		buf_str(out, percent_of(r->looks, c->looks) < MOSTLY_PERCENT ? "mostly " : "");
		buf_str(out, !l || l->nature != WAIT_LOCK ? "for " : is_holder(l, r->tid) ? "held by " : "held up by ");
		words_text(out, r->who);
		buf_str(out, ", which ");
	}
	words_text(out, r->doing);
	if (r->function[0]) {
		buf_str(out, ", in ");
		words_text(out, r->function);
	}
	buf_char(out, ')');
}

static size_t gather(const struct over_thread *th, struct part *parts, size_t limit)
{
	uint64_t watched_ns = over_watched_ns(th);
	size_t n = 0;

	parts[n++] = (struct part){percent_of(over_ran_ns(th), watched_ns), NULL, "ran"};
	parts[n++] = (struct part){
		percent_of(over_ready_ns(th), watched_ns), NULL, "ready without a CPU"};
	parts[n++] = (struct part){
		percent_of(over_class_ns(th, OVER_IDLE), watched_ns), NULL, "idle"};
	if (!th->blocked_looks)
		parts[n++] = (struct part){percent_of(over_blocked_ns(th), watched_ns), NULL,
			"off the CPU, too short for a look to see in what"};
	vec_each(&th->causes, c)
		if (c->class != OVER_IDLE && n < limit)
			parts[n++] = (struct part){percent_of(over_cause_ns(th, c), watched_ns), c, NULL};
	qsort(parts, n, sizeof(*parts), compare_parts);
	return n;
}

void over_sentence(const struct over_time *o, struct buf *out)
{
	struct part parts[32];
	size_t count = gather(o->focus, parts, 32), told = 0;

	words_text(out, o->focus->words);
	buf_str(out, " in ");
	wait_duration_words(over_watched_ns(o->focus), out);
	buf_char(out, ':');
	for (size_t i = 0; i < count && told < MOST_PARTS; i++) {
		if (parts[i].percent < LEAST_PERCENT && told)
			break;
		buf_printf(out, "%s %.0f %% ", told++ ? "," : "", parts[i].percent);
		if (parts[i].cause) {
			over_cause_words(o, parts[i].cause, out);
			blame_words(o, parts[i].cause, out);
		} else {
			buf_str(out, parts[i].words);
		}
	}
}
