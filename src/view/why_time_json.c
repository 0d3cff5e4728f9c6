/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/why_time_priv.h"

#include <inttypes.h>

static void roots_array(const char *key, const struct over_roots *roots, uint64_t looks, struct buf *out)
{
	buf_printf(out, "\"%s\":[", key);
	vec_each(roots, r) {
		buf_str(out, r == roots->data ? "{" : ",{");
		if (r->tid)
			buf_printf(out, "\"pid\":%d,\"tid\":%d,", (int)r->pid, (int)r->tid);
		json_text(out, "name", r->who);
		buf_char(out, ',');
		json_text(out, "doing", r->doing);
		buf_char(out, ',');
		json_text(out, "function", r->function);
		buf_printf(out, ",\"share\":%.4f}", looks ? (double)r->looks / (double)looks : 0);
	}
	buf_char(out, ']');
}

static void cause_object(const struct over_time *o, const struct over_thread *th,
	const struct over_cause *c, struct buf *out)
{
	const struct over_lock *l = c->lock == OVER_NO_LOCK ? NULL : &o->locks.data[c->lock];

	buf_char(out, '{');
	json_text(out, "class", over_class_name(c->class));
	buf_char(out, ',');
	json_text(out, "what", c->what);
	buf_char(out, ',');
	if (l)
		buf_printf(out, "\"lock\":%zu,", c->lock);
	json_text(out, "name", l ? l->name : "");
	buf_char(out, ',');
	json_text(out, "function", c->function);
	buf_printf(out, ",\"looks\":%" PRIu32 ",\"ns\":%" PRIu64 ",", c->looks, over_cause_ns(th, c));
	roots_array("roots", &c->roots, c->looks, out);
	buf_char(out, '}');
}

static void thread_object(const struct over_time *o, const struct over_thread *th, struct buf *out)
{
	buf_printf(out, "{\"pid\":%d,\"tid\":%d,", (int)th->pid, (int)th->tid);
	json_text(out, "name", th->name);
	buf_printf(out,
		",\"ended\":%s,\"looks\":%" PRIu32 ",\"watched_ns\":%" PRIu64 ",\"ran_ns\":%" PRIu64
		",\"ready_ns\":%" PRIu64 ",\"blocked_ns\":%" PRIu64 ",\"counted\":%s",
		th->ended ? "true" : "false", th->looks, over_watched_ns(th), over_ran_ns(th),
		over_ready_ns(th), over_blocked_ns(th), th->counted ? "true" : "false");
	for (int i = 0; i < OVER_CLASS_COUNT; i++)
		buf_printf(out, ",\"%s_ns\":%" PRIu64, over_class_name((enum over_class)i),
			over_class_ns(th, (enum over_class)i));
	buf_str(out, ",\"causes\":[");
	vec_each(&th->causes, c) {
		buf_str(out, c == th->causes.data ? "" : ",");
		cause_object(o, th, c, out);
	}
	buf_str(out, "]}");
}

static void lock_object(const struct over_time *o, const struct over_lock *l, struct buf *out)
{
	buf_char(out, '{');
	json_text(out, "kind", l->kind);
	buf_char(out, ',');
	json_text(out, "object", l->object);
	buf_char(out, ',');
	json_text(out, "name", l->name);
	buf_char(out, ',');
	json_text(out, "declared", l->declared);
	buf_char(out, ',');
	json_text(out, "what", l->what);
	buf_printf(out, ",\"waiters\":%.4f,\"most_waiters\":%" PRIu32 ",",
		o->looks ? (double)l->waiters / (double)o->looks : 0, l->most);
	if (over_handed_on(l))
		buf_printf(out, "\"handed_on\":%" PRIu64 ",", over_handed_on(l));
	roots_array("holders", &l->holders, l->held_looks, out);
	buf_char(out, '}');
}

static void head(const struct over_time *o, struct buf *out)
{
	struct snapshot_cost cost = snapshot_cost(o->snapshot);
	struct buf sentence = {0};

	over_sentence(o, &sentence);
	buf_char(out, '{');
	json_text(out, "sentence", sentence.data ? sentence.data : "");
	buf_printf(out, ",\"pid\":%d,", (int)o->options.pid);
	json_text(out, "name", o->name);
	buf_printf(out,
		",\"focus\":%d,\"elapsed_ns\":%" PRIu64 ",\"looks\":%" PRIu64 ",\"own_cpu_ns\":%" PRIu64
		",\"pause_ns\":%" PRIu64 ",",
		(int)o->focus->tid, o->ended_ns - o->began_ns, o->looks, o->cpu_ns, cost.pause_ns);
	json_text(out, "method", cost.method);
	buf_printf(out, ",\"cut\":%s,\"ended\":%s", o->cut ? "true" : "false",
		o->target_ended ? "true" : "false");
	out->failed |= sentence.failed;
	buf_release(&sentence);
}

int view_why_time_json(const struct over_time *o, struct buf *out, struct err *err)
{
	bool any = false;

	head(o, out);
	buf_str(out, ",\n\"threads\":[");
	vec_each(&o->threads, th) {
		if (!(*th)->asked)
			continue;
		buf_str(out, any ? ",\n" : "\n");
		thread_object(o, *th, out);
		any = true;
	}
	buf_str(out, "],\n\"locks\":[");
	vec_each(&o->locks, l) {
		buf_str(out, l == o->locks.data ? "\n" : ",\n");
		lock_object(o, l, out);
	}
	buf_str(out, "]}\n");
	return out->failed ? err_nomem(err) : 0;
}
