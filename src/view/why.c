/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why a process waits, in one screen: the sentence, the chain with what each link is doing, and the rest in a
 * few lines.
 */
#include "view/why_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of each link, so many lines of its stack. */
#define STACK_LINES 6u
#define MOST_LINKS 12u
#define MOST_REST 12u
#define MOST_CANDIDATES 3u

static const char *grade_words(enum wait_grade grade)
{
	static const char *const words[] = {
		"proven: the locks and the kernel say so",
		"observed: the holder was seen letting go before",
		"inferred: it follows from what was read, by rules that can be wrong",
		"a candidate: one of several that may be it",
	};

	return words[grade];
}

static enum paint colour_of(const struct wait_verdict *v)
{
	switch (v->kind) {
	case VERDICT_IDLE:
	case VERDICT_RUNNING:
		return PAINT_GOOD;
	case VERDICT_DEADLOCK:
	case VERDICT_SELF_DEADLOCK:
	case VERDICT_DEAD_OWNER:
	case VERDICT_FORK_INHERITED:
	case VERDICT_OWN_PIPE:
		return PAINT_BAD;
	default:
		return PAINT_WARN;
	}
}

/* Words, broken between them. */
static void wrap(const char *text, size_t columns, struct buf *out)
{
	size_t at = 0;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (columns && at && at + 1 + len > columns) {
			buf_char(out, '\n');
			at = 0;
		} else if (at) {
			buf_char(out, ' ');
			at++;
		}
		buf_add(out, text, len);
		at += len;
		text += len + strspn(text + len, " ");
	}
}

void why_wrapped(const char *text, enum paint how, const struct term *t, struct buf *out)
{
	struct buf clean = {0};

	words_text(&clean, text);
	paint_on(out, t, how);
	if (clean.data)
		wrap(clean.data, t->columns, out);
	paint_off(out, t, how);
	buf_char(out, '\n');
	out->failed |= clean.failed;
	buf_release(&clean);
}

static void headline(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct buf sentence = {0};

	wait_sentence(&a->verdict, &sentence);
	why_wrapped(sentence.data ? sentence.data : "", colour_of(&a->verdict), t, out);
	out->failed |= sentence.failed;
	buf_release(&sentence);
}

static void facts(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct snapshot_cost cost = snapshot_cost(a->snapshot);
	const struct wait_verdict *v = &a->verdict;
	char gaps[192];

	paint_on(out, t, PAINT_DIM);
	if (v->kind != VERDICT_IDLE && v->kind != VERDICT_RUNNING)
		buf_printf(out, "%s; ", grade_words(v->grade));
	if (snapshot_core(a->snapshot))
		buf_str(out, "from memory alone: a core tells nothing of files, sockets and other processes; read in ");
	else
		buf_printf(out, "seen by %s in ", cost.method);
	words_duration(out, cost.elapsed_ns);
	if (cost.stops) {
		buf_printf(out, ", %" PRIu32 " stop%s of ", cost.stops, cost.stops == 1 ? "" : "s");
		words_duration(out, cost.pause_ns);
		buf_str(out, " in all");
	} else if (!snapshot_core(a->snapshot)) {
		buf_str(out, ", nothing was stopped");
	}
	paint_off(out, t, PAINT_DIM);
	buf_char(out, '\n');
	if (a->graph->cut)
		paint(out, t, PAINT_WARN, "There is more to follow than was followed.\n");
	wait_world_gaps(a->graph->world, gaps, sizeof(gaps));
	if (*gaps) {
		paint_on(out, t, PAINT_WARN);
		buf_printf(out, "Not seen: %s.\n", gaps);
		paint_off(out, t, PAINT_WARN);
	}
}

/* ---- the chain ---- */

/* Names come from the target, and what is said of a wait has names in it. */
static void add_clean(struct buf *words, struct buf *out)
{
	if (words->data)
		words_text(out, words->data);
	out->failed |= words->failed;
	buf_release(words);
}

static void thread_words(const struct wait_answer *a, const struct wait_node *n, struct buf *out)
{
	struct buf words = {0};

	wait_thread_words(n, a->verdict.focus, &words);
	add_clean(&words, out);
}

static void wait_words(const struct wait *w, struct buf *out)
{
	if (w->nature == WAIT_STOPPED)
		buf_str(out, w->what);
	else if (w->name[0])
		buf_printf(out, "waits for %s", w->name);
	else
		buf_printf(out, "waits %s", w->what);
	if (w->declared[0])
		buf_printf(out, " (%s)", w->declared);
	if (w->nature == WAIT_LOCK && w->address)
		buf_printf(out, " at 0x%" PRIx64, w->address);
	if (w->detail[0])
		buf_printf(out, ", %s", w->detail);
}

static void wait_line(const struct wait_node *n, const struct term *t, struct buf *out)
{
	const struct wait *w = &n->wait;
	struct buf words = {0};

	if (n->progresses || !n->waits) {
		thread_state_words(n->thread, out);
		if (n->progresses && n->thread->look.wait.state != 'R')
			buf_str(out, "; it has run since");
		buf_char(out, '\n');
		return;
	}
	wait_words(w, &words);
	add_clean(&words, out);
	if (n->thread->look.idle_ns != LOOK_UNKNOWN && !w->polls) {
		paint_on(out, t, PAINT_DIM);
		buf_str(out, "  ");
		wait_duration_words(n->thread->look.idle_ns, out);
		paint_off(out, t, PAINT_DIM);
	}
	buf_char(out, '\n');
}

static void link_block(const struct wait_answer *a, struct wait_node *n, const char *lead,
	const struct term *t, struct buf *out)
{
	struct snapshot_thread *th = n->thread;
	struct wait_own_part part;

	snapshot_stack(a->snapshot, th);
	if (!wait_own_part(a->snapshot, th, &part))
		part = stack_whole(th);
	buf_str(out, lead);
	paint_on(out, t, PAINT_TITLE);
	thread_words(a, n, out);
	paint_off(out, t, PAINT_TITLE);
	buf_str(out, "  ");
	wait_line(n, t, out);
	stack_text(a->snapshot, th, &part, STACK_LINES, "      ", t, out);
}

/* Where nobody is known to hold the lock: who may. */
static void candidates_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	const struct wait_node *root = a->verdict.root;

	if (!root->waits || wait_next(root) || root->progresses)
		return;
	for (size_t i = 0; i < root->edges.len && i < MOST_CANDIDATES; i++)
		link_block(a, root->edges.data[i].to,
			root->wait.nature == WAIT_LOCK ? "  held perhaps by " : "  for perhaps ", t, out);
	if (root->edges.len > MOST_CANDIDATES)
		buf_printf(out, "  or one of %zu threads more\n", root->edges.len - MOST_CANDIDATES);
}

static void chain_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	const struct wait_verdict *v = &a->verdict;

	for (size_t i = 0; i < v->chain.len; i++) {
		struct wait_node *n = v->chain.data[i];
		const struct wait_node *before = i ? v->chain.data[i - 1] : NULL;
		const char *lead = !i ? "  "
			: before->wait.nature == WAIT_LOCK ? "  held by "
							   : "  which is up to ";

		if (i == MOST_LINKS && v->chain.len > MOST_LINKS + 1) {
			buf_printf(out, "  ... %zu threads more\n", v->chain.len - 1 - i);
			i = v->chain.len - 1;
			n = v->chain.data[i];
		}
		link_block(a, n, lead, t, out);
	}
	candidates_block(a, t, out);
	if (v->cycle_at < v->chain.len) {
		buf_str(out, "  held by ");
		paint_on(out, t, PAINT_TITLE);
		thread_words(a, v->chain.data[v->cycle_at], out);
		paint_off(out, t, PAINT_TITLE);
		buf_str(out, ": a circle\n");
	}
}

/* ---- the rest ---- */

/* Threads that do the same thing. */
struct rest {
	const struct wait_node *first;
	char what[256];
	size_t count;
	bool idle;
};
VEC_TYPE(rests, struct rest);

static bool is_in_chain(const struct wait_verdict *v, const struct wait_node *n)
{
	vec_each(&v->chain, it)
		if (*it == n)
			return true;
	return false;
}

static void rest_words(const struct wait_answer *a, struct wait_node *n, struct rest *ret)
{
	struct buf words = {0};
	const struct wait_edge *next = wait_next(n);

	if (n->waits && !n->progresses) {
		buf_printf(&words, n->wait.nature == WAIT_STOPPED ? "%s%s" : "waits %s%s",
			n->wait.name[0] ? "for " : "", n->wait.name[0] ? n->wait.name : n->wait.what);
		if (next && next->to != n) {
			buf_str(&words, n->wait.nature == WAIT_LOCK ? ", held by " : ", for ");
			wait_thread_words(next->to, a->verdict.focus, &words);
		}
	} else {
		thread_state_words(n->thread, &words);
	}
	WAIT_SAY(ret->what, "%s", words.data ? words.data : "");
	buf_release(&words);
}

static int gather_rest(const struct wait_answer *a, struct rests *ret)
{
	vec_each(&a->graph->nodes, it) {
		struct wait_node *n = *it;
		struct rest r = {.first = n, .count = 1, .idle = wait_is_idle(n)};
		bool known = false;

		if (!n->asked || is_in_chain(&a->verdict, n))
			continue;
		rest_words(a, n, &r);
		vec_each(ret, old)
			if (!known && !strcmp(old->what, r.what)) {
				old->count++;
				known = true;
			}
		if (!known && vec_push(ret, r))
			return -ENOMEM;
	}
	return 0;
}

static int compare_rests(const void *x, const void *y)
{
	const struct rest *a = x, *b = y;

	if (a->idle != b->idle)
		return (a->idle > b->idle) - (a->idle < b->idle);
	return (b->count > a->count) - (b->count < a->count);
}

static int rest_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct rests rests = {0};
	int rc = gather_rest(a, &rests);

	if (!rc && rests.len) {
		qsort(rests.data, rests.len, sizeof(*rests.data), compare_rests);
		buf_str(out, "\nThe other threads\n");
	}
	for (size_t i = 0; !rc && i < rests.len && i < MOST_REST; i++) {
		const struct rest *r = &rests.data[i];

		paint_on(out, t, r->idle ? PAINT_DIM : PAINT_NONE);
		buf_printf(out, "  %4zu  ", r->count);
		thread_words(a, r->first, out);
		buf_printf(out, "%s  ", r->count > 1 ? " and others" : "");
		words_text(out, r->what);
		paint_off(out, t, r->idle ? PAINT_DIM : PAINT_NONE);
		buf_char(out, '\n');
	}
	if (!rc && rests.len > MOST_REST)
		buf_printf(out, "  and %zu kinds more: --all shows them\n", rests.len - MOST_REST);
	vec_release(&rests);
	return rc;
}

static void all_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	vec_each(&a->graph->nodes, n)
		if (((*n)->asked || (*n)->behind) && !is_in_chain(&a->verdict, *n)) {
			buf_char(out, '\n');
			link_block(a, *n, "  ", t, out);
			vec_each(&(*n)->edges, e) {
				buf_str(out, "      behind ");
				thread_words(a, e->to, out);
				buf_printf(out, " (%s: %s)\n", wait_grade_name(e->grade), e->how);
			}
		}
}

int view_why(const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err)
{
	int rc = 0;

	if (snapshot_core(a->snapshot))
		core_text(snapshot_core(a->snapshot), &o->term, out);
	headline(a, &o->term, out);
	facts(a, &o->term, out);
	buf_char(out, '\n');
	chain_block(a, &o->term, out);
	if (a->verdict.root->behind > 1)
		buf_printf(out, "\n%zu threads wait behind this.\n", a->verdict.root->behind);
	if (o->all)
		all_block(a, &o->term, out);
	else
		rc = rest_block(a, &o->term, out);
	return rc || out->failed ? err_nomem(err) : 0;
}
