/* SPDX-License-Identifier: BSD-2-Clause */
/* The report as one JSON object. Keys are only ever added: docs/JSON.md is the contract. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "view/heap_priv.h"
#include "view/notes_priv.h"
#include "view/view_priv.h"

#define JSON_VERSION 1

/* `"key":` with a comma before it unless it opens the object. */
static void key(struct buf *out, const char *name, bool first)
{
	if (!first)
		buf_char(out, ',');
	buf_json(out, name);
	buf_char(out, ':');
}

static void number(struct buf *out, const char *name, uint64_t value, bool first)
{
	key(out, name, first);
	buf_printf(out, "%" PRIu64, value);
}

static void string(struct buf *out, const char *name, const char *value, bool first)
{
	key(out, name, first);
	buf_json(out, value);
}

static void percent(struct buf *out, const char *name, double value, bool first)
{
	key(out, name, first);
	buf_printf(out, "%.3f", isfinite(value) ? value : 0);
}

static void boolean(struct buf *out, const char *name, bool value)
{
	key(out, name, false);
	buf_str(out, value ? "true" : "false");
}

static void meta_object(const struct profile *p, struct buf *out)
{
	bool first = true;

	key(out, "meta", false);
	buf_char(out, '{');
	for (size_t i = 0; i + 1 < p->meta.len; i += 2) {
		/* A key that was written again counts as it was written last. */
		if (profile_meta(p, p->meta.data[i]) != p->meta.data[i + 1])
			continue;
		string(out, p->meta.data[i], p->meta.data[i + 1], first);
		first = false;
	}
	buf_char(out, '}');
}

static void states_object(struct buf *out, const uint64_t *state_ns)
{
	key(out, "states", false);
	buf_char(out, '{');
	for (enum thread_state s = 0; s < STATE_COUNT; s++)
		number(out, profile_state_name(s), state_ns[s], !s);
	buf_char(out, '}');
}

static void thread_times(const struct profile_thread *t, struct buf *out)
{
	number(out, "off_cpu_ns", t->weight - t->cpu_ns, false);
	number(out, "watched_ns", t->watched_ns, false);
	boolean(out, "measured", t->exact);
	boolean(out, "only_waited", t->idle);
	states_object(out, t->state_ns);
}

static int thread_array(const struct profile *p, struct buf *out, struct err *err)
{
	uint32_t *order;

	if (rank_threads(p, &order, err))
		return -ENOMEM;
	key(out, "threads", false);
	buf_char(out, '[');
	for (size_t i = 0; i < p->threads.len; i++) {
		const struct profile_thread *t = &p->threads.data[order[i]];

		buf_str(out, i ? ",\n  {" : "\n  {");
		number(out, "tid", t->tid, true);
		string(out, "name", t->name, false);
		number(out, "samples", t->samples, false);
		number(out, "pid", t->pid, false);
		string(out, "process", t->process, false);
		number(out, "cpu_ns", t->cpu_ns, false);
		if (p->mode != PROFILE_CPU)
			thread_times(t, out);
		buf_char(out, '}');
	}
	buf_char(out, ']');
	free(order);
	return 0;
}

static void damage_object(const struct profile *p, struct buf *out)
{
	key(out, "damage", false);
	buf_char(out, '{');
	number(out, "bad_blocks", p->damage.bad_blocks, true);
	number(out, "missing_blocks", p->damage.missing_blocks, false);
	number(out, "bad_records", p->damage.bad_records, false);
	number(out, "skipped_bytes", p->damage.skipped_bytes, false);
	boolean(out, "truncated", p->damage.truncated);
	boolean(out, "no_end", p->damage.no_end);
	boolean(out, "bad_header", p->damage.bad_header);
	buf_char(out, '}');
}

static void quality_object(const struct profile *p, struct buf *out)
{
	const struct profile_quality *q = &p->quality;

	key(out, "quality", false);
	buf_char(out, '{');
	percent(out, "rooted_pct", q->rooted_pct, true);
	percent(out, "truncated_pct", q->truncated_pct, false);
	percent(out, "guessed_frames_pct", q->guessed_frames_pct, false);
	number(out, "lost_samples", q->losses[LOSS_RING], false);
	percent(out, "unresolved_frames_pct", q->unresolved_frames_pct, false);
	percent(out, "fp_frames_pct", q->fp_frames_pct, false);
	percent(out, "prologue_frames_pct", q->prologue_frames_pct, false);
	percent(out, "live_frames_pct", q->live_frames_pct, false);
	number(out, "frames", q->frames, false);
	number(out, "python_stacks", q->python, false);
	number(out, "python_torn", q->python_torn, false);
	number(out, "python_cut", q->python_cut, false);
	if (p->mode != PROFILE_CPU) {
		percent(out, "on_cpu_rooted_pct", q->on_cpu_rooted_pct, false);
		percent(out, "off_cpu_rooted_pct", q->off_cpu_rooted_pct, false);
		number(out, "intervals", q->intervals, false);
		number(out, "intervals_without_stack", q->intervals_without_stack, false);
		number(out, "intervals_thinned", q->intervals_thinned, false);
	}
	key(out, "ends", false);
	buf_char(out, '{');
	for (size_t end = 0; end < UNWIND_END_COUNT; end++)
		number(out, unwind_end_name((enum unwind_end)end), q->ends[end], !end);
	buf_char(out, '}');
	key(out, "losses", false);
	buf_char(out, '{');
	for (size_t kind = 0; kind < LOSS_KIND_COUNT; kind++)
		number(out, loss_name((enum loss_kind)kind), q->losses[kind], !kind);
	buf_char(out, '}');
	damage_object(p, out);
	buf_char(out, '}');
}

static int function_array(
	const struct profile *p, size_t limit, struct buf *out, struct err *err)
{
	struct ranking ranking = {0};
	int rc = rank_functions(
		p, p->mode == PROFILE_CPU ? RANK_BY_SAMPLES : RANK_BY_TIME, &ranking, err);

	if (rc)
		return rc;
	key(out, "functions", false);
	buf_char(out, '[');
	for (size_t i = 0; i < ranking.len && (!limit || i < limit); i++) {
		const struct ranked *r = &ranking.data[i];
		const struct profile_function *f = &p->functions.data[r->function];

		buf_str(out, i ? ",\n  {" : "\n  {");
		string(out, "name", f->name, true);
		string(out, "module", module_name(p, f), false);
		number(out, "self", r->count.self, false);
		number(out, "total", r->count.total, false);
		number(out, "self_ns", r->count.self_weight, false);
		number(out, "total_ns", r->count.total_weight, false);
		if (f->file)
			string(out, "file", f->file, false);
		if (f->state != STATE_ON_CPU)
			string(out, "state", profile_state_name((enum thread_state)f->state),
				false);
		else if (f->unresolved && r->function != p->truncated_function)
			string(out, "unresolved",
				symbol_reason_text((enum symbol_reason)f->reason), false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
	vec_release(&ranking);
	return 0;
}

/* What tree_object() writes from. */
struct call_tree {
	const struct profile *p;
	struct profile_tree tree;
	struct profile_wakes wakes; /* empty when the tree is inverted */
	VEC(uint32_t) path;
	struct buf *out;
};

/* Outermost first. */
static void path_array(struct call_tree *t, uint32_t node)
{
	const struct tree_node *nodes = t->wakes.paths.nodes.data;

	t->path.len = 0;
	for (uint32_t n = node; n && !t->out->failed; n = nodes[n].parent)
		t->out->failed |= vec_push(&t->path, n) != 0;
	key(t->out, "path", false);
	buf_char(t->out, '[');
	for (size_t i = t->path.len; i-- > 0;) {
		buf_json(t->out, t->p->functions.data[nodes[t->path.data[i]].function].name);
		if (i)
			buf_char(t->out, ',');
	}
	buf_char(t->out, ']');
}

static void waker_object(struct call_tree *t, const struct profile_wake *w)
{
	static const char *const kinds[] = {
		[WAKER_UNKNOWN] = "unknown", [WAKER_THREAD] = "thread", [WAKER_INTERRUPT] = "interrupt"};

	buf_char(t->out, '{');
	string(t->out, "by", w->asleep ? "nobody" : kinds[w->kind], true);
	if (w->waker != PROFILE_NONE) {
		string(t->out, "thread", t->p->wakers.data[w->waker].name, false);
		string(t->out, "process", t->p->wakers.data[w->waker].process, false);
	}
	number(t->out, "waits", w->samples, false);
	number(t->out, "ns", w->weight, false);
	if (w->path != PROFILE_NONE)
		path_array(t, w->path);
	buf_char(t->out, '}');
}

static void waker_array(struct call_tree *t, uint32_t node)
{
	size_t count;
	const struct profile_wake *rows = profile_wakes_of(&t->wakes, node, &count);

	if (!count)
		return;
	key(t->out, "wakers", false);
	buf_char(t->out, '[');
	for (size_t i = 0; i < count; i++) {
		if (i)
			buf_char(t->out, ',');
		waker_object(t, &rows[i]);
	}
	buf_char(t->out, ']');
}

static void tree_open(struct call_tree *t, uint32_t node)
{
	const struct tree_node *n = &t->tree.nodes.data[node];
	const struct profile_function *f =
		n->function == PROFILE_NONE ? NULL : &t->p->functions.data[n->function];

	buf_char(t->out, '{');
	string(t->out, "name", f ? f->name : "all", true);
	number(t->out, "self", n->self, false);
	number(t->out, "total", n->total, false);
	if (t->p->mode != PROFILE_CPU) {
		number(t->out, "self_ns", n->self_weight, false);
		number(t->out, "total_ns", n->total_weight, false);
	}
	if (n->inlined)
		boolean(t->out, "inlined", true);
	if (n->guessed)
		boolean(t->out, "guessed", true);
	if (f && f->state != STATE_ON_CPU)
		string(t->out, "state", profile_state_name((enum thread_state)f->state), false);
	waker_array(t, node);
	key(t->out, "children", false);
	buf_char(t->out, '[');
}

/* Nested objects, written by following first_child / next_sibling / parent: no recursion. */
static void tree_objects(struct call_tree *t)
{
	const struct tree_node *nodes = t->tree.nodes.data;
	uint32_t at = 0;

	key(t->out, "tree", false);
	while (at != PROFILE_NONE) {
		tree_open(t, at);
		if (nodes[at].first_child != PROFILE_NONE) {
			at = nodes[at].first_child;
			continue;
		}
		buf_str(t->out, "]}");
		while (at && nodes[at].next_sibling == PROFILE_NONE) {
			at = nodes[at].parent;
			buf_str(t->out, "]}");
		}
		if (!at)
			break;
		at = nodes[at].next_sibling;
		buf_char(t->out, ',');
	}
}

static int tree_object(const struct profile *p, bool inverted, struct buf *out, struct err *err)
{
	struct call_tree t = {.p = p, .out = out};
	int rc = profile_tree_build(p, inverted, &t.tree, err);

	if (!rc && !inverted)
		rc = profile_wakes_build(p, &t.tree, &t.wakes, err);
	if (!rc)
		tree_objects(&t);
	vec_release(&t.path);
	profile_wakes_release(&t.wakes);
	profile_tree_release(&t.tree);
	return rc;
}

int view_json(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	static const char *const modes[] = {
		[PROFILE_CPU] = "cpu", [PROFILE_WALL] = "wall", [PROFILE_OFF_CPU] = "off-cpu",
		[PROFILE_HEAP] = "heap"};
	/* What there is of time is told, when there is any. */
	enum profile_mode mode = p->heap && !p->samples.len ? PROFILE_HEAP : p->mode;
	int rc;

	buf_str(out, "{\n");
	number(out, "version", JSON_VERSION, true);
	number(out, "samples", p->samples.len, false);
	number(out, "duration_ns", p->end_ns > p->start_ns ? p->end_ns - p->start_ns : 0, false);
	number(out, "cpu_ns", p->cpu_ns, false);
	number(out, "start_realtime_ns", p->start_realtime_ns, false);
	string(out, "mode", modes[mode], false);
	if (p->mode != PROFILE_CPU && p->mode != PROFILE_HEAP) {
		number(out, "off_cpu_ns", p->total_weight - p->cpu_ns, false);
		number(out, "watched_ns", p->watched_ns, false);
		states_object(out, p->state_ns);
	}
	meta_object(p, out);
	buf_char(out, '\n');
	rc = thread_array(p, out, err);
	buf_char(out, '\n');
	quality_object(p, out);
	buf_char(out, '\n');
	if (!rc)
		rc = function_array(p, o->top, out, err);
	buf_char(out, '\n');
	key(out, "cost", false);
	buf_char(out, '{');
	number(out, "sampler_cpu_ns", p->cost.sampler_cpu_ns, true);
	number(out, "bytes_written", p->file_bytes, false);
	number(out, "symbol_cpu_ns", p->cost.symbol_cpu_ns, false);
	number(out, "wakeups", p->cost.wakeups, false);
	number(out, "ring_bytes", p->cost.ring_bytes, false);
	buf_char(out, '}');
	if (!rc && p->heap)
		rc = heap_json(p, o, out, err);
	if (p->notes)
		notes_json(p, out);
	if (!rc && o->tree)
		rc = tree_object(p, o->inverted, out, err);
	buf_str(out, "\n}\n");
	return !rc && out->failed ? err_nomem(err) : rc;
}
