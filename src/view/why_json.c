/* SPDX-License-Identifier: BSD-2-Clause */
/* The answer for scripts (docs/JSON.md) and for Graphviz. */
#include "view/why_priv.h"

#include <inttypes.h>
#include <stdio.h>

static void trouble(const struct wait *w, struct buf *out)
{
	static const char *const names[] = {
		[WAIT_NO_TROUBLE] = "", [WAIT_DEAD_OWNER] = "dead_owner", [WAIT_FORK_INHERITED] = "fork_inherited",
		[WAIT_OWN_PIPE] = "own_pipe", [WAIT_REMOTE] = "remote", [WAIT_NOBODY] = "nobody",
		[WAIT_FROZEN] = "frozen", [WAIT_TRACED] = "traced",
		[WAIT_TASK_CIRCLE] = "task_circle"};

	if (w->trouble == WAIT_NO_TROUBLE)
		return;
	buf_char(out, ',');
	json_text(out, "trouble", names[w->trouble]);
	if (w->trouble_tid)
		buf_printf(out, ",\"trouble_tid\":%d", (int)w->trouble_tid);
}

static void wait_object(const struct wait_node *n, struct buf *out)
{
	const struct wait *w = &n->wait;
	static const char *const natures[] = {
		[WAIT_LOCK] = "lock", [WAIT_PEER] = "peer", [WAIT_EVENT] = "event", [WAIT_TIME] = "time",
		[WAIT_DEVICE] = "device", [WAIT_STOPPED] = "stopped"};

	if (!n->waits) {
		buf_str(out, "\"wait\":null");
		return;
	}
	buf_str(out, "\"wait\":{");
	json_text(out, "kind", w->kind);
	buf_char(out, ',');
	json_text(out, "object", w->object);
	buf_char(out, ',');
	json_text(out, "name", w->name);
	if (w->declared[0]) {
		buf_char(out, ',');
		json_text(out, "declared", w->declared);
	}
	if (n->thread->look.idle_ns != LOOK_UNKNOWN)
		buf_printf(out, ",\"since_ns\":%" PRIu64, n->thread->look.idle_ns);
	if (w->timeout_ns != LOOK_UNKNOWN)
		buf_printf(out, ",\"timeout_ns\":%" PRIu64, w->timeout_ns);
	buf_char(out, ',');
	json_text(out, "grade", wait_grade_name(w->grade));
	buf_char(out, ',');
	json_text(out, "nature", natures[w->nature]);
	buf_char(out, ',');
	json_text(out, "what", w->what);
	if (w->detail[0]) {
		buf_char(out, ',');
		json_text(out, "detail", w->detail);
	}
	trouble(w, out);
	buf_char(out, '}');
}

static void blockers(const struct wait_node *n, struct buf *out)
{
	buf_str(out, "\"blocked_by\":[");
	vec_each(&n->edges, e) {
		buf_printf(out, "%s{\"pid\":%d,\"tid\":%d,", e == n->edges.data ? "" : ",",
			(int)e->to->thread->look.pid, (int)e->to->thread->look.tid);
		json_text(out, "grade", wait_grade_name(e->grade));
		buf_char(out, ',');
		json_text(out, "how", e->how);
		if (e->taken[0]) {
			buf_char(out, ',');
			json_text(out, "taken", e->taken);
		}
		if (e->whole_process)
			buf_str(out, ",\"process\":true");
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

static void thread_object(struct snapshot *s, struct wait_node *n, struct buf *out)
{
	const struct thread_look *look = &n->thread->look;
	char state[2] = {look->wait.state, '\0'};

	snapshot_stack(s, n->thread);
	buf_printf(out, "{\"pid\":%d,\"tid\":%d,", (int)look->pid, (int)look->tid);
	json_text(out, "name", look->name);
	buf_char(out, ',');
	json_text(out, "state", state);
	buf_char(out, ',');
	wait_object(n, out);
	buf_char(out, ',');
	blockers(n, out);
	buf_printf(out, ",\"waiting_behind\":%zu,\"moved\":%s,", n->behind,
		n->progresses ? "true" : "false");
	stack_json(s, n->thread, false, out);
	buf_char(out, '}');
}

static void verdict_object(const struct wait_verdict *v, struct buf *out)
{
	struct buf sentence = {0};

	wait_sentence(v, &sentence);
	buf_str(out, "\"verdict\":{");
	json_text(out, "kind", verdict_kind_name(v->kind));
	buf_char(out, ',');
	json_text(out, "sentence", sentence.data ? sentence.data : "");
	buf_char(out, ',');
	json_text(out, "grade", wait_grade_name(v->grade));
	buf_printf(out, ",\"focus\":%d,\"root\":%d,\"chain\":[", (int)v->focus->thread->look.tid,
		(int)v->root->thread->look.tid);
	vec_each(&v->chain, n)
		buf_printf(out, "%s%d", n == v->chain.data ? "" : ",", (int)(*n)->thread->look.tid);
	buf_str(out, "]}");
	out->failed |= sentence.failed;
	buf_release(&sentence);
}

static void cycles_array(const struct wait_graph *g, struct buf *out)
{
	buf_str(out, "\"cycles\":[");
	vec_each(&g->cycles, c) {
		buf_str(out, c == g->cycles.data ? "[" : ",[");
		vec_each(c, n)
			buf_printf(out, "%s%d", n == c->data ? "" : ",", (int)(*n)->thread->look.tid);
		buf_char(out, ']');
	}
	buf_char(out, ']');
}

/* Threads of other processes are told when somebody asked for waits for them. */
static bool is_told(const struct wait_node *n)
{
	return n->asked || n->behind;
}

int view_why_json(
	const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err)
{
	struct snapshot_cost cost;
	bool any = false;
	char gaps[192];

	buf_str(out, "{");
	if (snapshot_core(a->snapshot)) {
		core_json(snapshot_core(a->snapshot), out);
		buf_str(out, ",\n");
	}
	verdict_object(&a->verdict, out);
	buf_str(out, ",\n\"threads\":[");
	vec_each(&a->graph->nodes, n) {
		if (!o->all && !is_told(*n))
			continue;
		buf_str(out, any ? ",\n" : "\n");
		thread_object(a->snapshot, *n, out);
		any = true;
	}
	buf_str(out, "],\n");
	cycles_array(a->graph, out);
	cost = snapshot_cost(a->snapshot);
	buf_printf(out, ",\n\"pause_ns\":%" PRIu64 ",\"looks\":%d,\"cut\":%s,", cost.pause_ns,
		1 + a->second_look, a->graph->cut ? "true" : "false");
	wait_world_gaps(a->graph->world, gaps, sizeof(gaps));
	json_text(out, "unseen", gaps);
	buf_char(out, ',');
	json_text(out, "method", cost.method);
	buf_str(out, "}\n");
	return out->failed ? err_nomem(err) : 0;
}

/* ---- Graphviz ---- */

/* Words of a label, which are then empty. In DOT only \" and \\ mean what they mean in JSON, so control characters
 * are replaced. */
static void dot_words(struct buf *words, struct buf *out)
{
	struct buf clean = {0}, quoted = {0};

	if (words->data)
		words_text(&clean, words->data);
	buf_json(&quoted, clean.data ? clean.data : "");
	if (!quoted.failed)
		buf_add(out, quoted.data + 1, quoted.len - 2);
	out->failed |= words->failed | clean.failed | quoted.failed;
	buf_release(words);
	buf_release(&clean);
	buf_release(&quoted);
}

static void dot_node(const struct wait_answer *a, const struct wait_node *n, struct buf *out)
{
	bool root = n == a->verdict.root || n->cycle;
	struct buf words = {0};

	buf_printf(out, "  t%d [label=\"", (int)n->thread->look.tid);
	wait_thread_words(n, a->verdict.focus, &words);
	dot_words(&words, out);
	if (n->waits) {
		buf_str(out, "\\n");
		buf_printf(&words, "waits %s%s", n->wait.name[0] ? "for " : "",
			n->wait.name[0] ? n->wait.name : n->wait.what);
		dot_words(&words, out);
	}
	if (n->behind)
		buf_printf(out, "\\n%zu behind it", n->behind);
	buf_char(out, '"');
	if (root)
		buf_str(out, ", color=red, penwidth=2");
	buf_str(out, "];\n");
}

static const char *style_of(enum wait_grade grade)
{
	return grade <= WAIT_OBSERVED ? "solid" : grade == WAIT_INFERRED ? "dashed" : "dotted";
}

int view_why_dot(
	const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err)
{
	buf_str(out, "digraph waits {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
	vec_each(&a->graph->nodes, n)
		if ((*n)->edges.len || (*n)->behind || *n == a->verdict.focus || o->all)
			dot_node(a, *n, out);
	vec_each(&a->graph->nodes, n)
		vec_each(&(*n)->edges, e)
			buf_printf(out, "  t%d -> t%d [style=%s, label=\"%s\"];\n",
				(int)(*n)->thread->look.tid, (int)e->to->thread->look.tid,
				style_of(e->grade), wait_grade_name(e->grade));
	buf_str(out, "}\n");
	return out->failed ? err_nomem(err) : 0;
}
