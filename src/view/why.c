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
#define STACK_INDENT 6
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
		return v->root->thread->process->refused ? PAINT_WARN : PAINT_GOOD;
	case VERDICT_DEADLOCK:
	case VERDICT_SELF_DEADLOCK:
	case VERDICT_TASK_DEADLOCK:
	case VERDICT_DEAD_OWNER:
	case VERDICT_FORK_INHERITED:
	case VERDICT_OWN_PIPE:
		return PAINT_BAD;
	default:
		return PAINT_WARN;
	}
}

static void headline(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct buf sentence = {0};

	wait_sentence(&a->verdict, &sentence);
	why_wrapped(sentence.data ? sentence.data : "", colour_of(&a->verdict), t, out);
	out->failed |= sentence.failed;
	buf_release(&sentence);
}

static void facts_words(const struct wait_answer *a, struct buf *out)
{
	struct snapshot_cost cost = snapshot_cost(a->snapshot);
	const struct wait_verdict *v = &a->verdict;

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
}

static void facts(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct buf words = {0};
	char gaps[192];

	facts_words(a, &words);
	why_wrapped(words.data ? words.data : "", PAINT_DIM, t, out);
	if (a->graph->cut)
		why_wrapped("There is more to follow than was followed.", PAINT_WARN, t, out);
	wait_world_gaps(a->graph->world, gaps, sizeof(gaps));
	if (*gaps) {
		buf_clear(&words);
		buf_printf(&words, "Not seen: %s.", gaps);
		why_wrapped(words.data ? words.data : "", PAINT_WARN, t, out);
	}
	out->failed |= words.failed;
	buf_release(&words);
}

/* ---- the chain ---- */

/* What a thread is in; *ret_since: for how long, where that is worth telling. */
static void wait_words(const struct wait_node *n, uint64_t *ret_since, struct buf *out)
{
	const struct wait *w = &n->wait;

	*ret_since = LOOK_UNKNOWN;
	if (n->progresses || !n->waits) {
		thread_state_words(n->thread, out);
		if (n->progresses && n->thread->look.wait.state != 'R')
			buf_str(out, "; it has run since");
		return;
	}
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
	if (!w->polls)
		*ret_since = n->thread->look.idle_ns;
}

/* "  held by holder[812]  waits for a signal  41 s" */
static void link_line(const struct wait_node *n, const struct wait_node *focus, const char *lead,
	const struct term *t, struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = STACK_INDENT};
	struct buf who = {0}, words = {0}, since = {0};
	uint64_t since_ns;

	wait_thread_words(n, focus, &who);
	wait_words(n, &since_ns, &words);
	buf_str(out, lead);
	p.at = term_width(lead);
	paragraph_painted(&p, t, PAINT_TITLE, who.data ? who.data : "");
	buf_char(out, ' ');
	p.at++;
	paragraph_add(&p, words.data ? words.data : "");
	if (since_ns != LOOK_UNKNOWN) {
		wait_duration_words(since_ns, &since);
		if (!t->columns || p.at + 2 + since.len <= t->columns)
			buf_str(out, "  ");
		else
			buf_printf(out, "\n%*s", STACK_INDENT, "");
		paint(out, t, PAINT_DIM, since.data ? since.data : "");
	}
	buf_char(out, '\n');
	out->failed |= who.failed || words.failed || since.failed;
	buf_release(&who);
	buf_release(&words);
	buf_release(&since);
}

/* Why this one, where that is not beyond doubt. */
static void doubt_line(const struct wait_edge *e, const struct term *t, struct buf *out)
{
	struct paragraph p = {
		.out = out, .columns = t->columns, .indent = STACK_INDENT, .at = STACK_INDENT};
	char words[160];

	if (!e || e->grade == WAIT_PROVEN)
		return;
	snprintf(words, sizeof(words), "(%s: %s)", wait_grade_name(e->grade), e->how);
	buf_printf(out, "%*s", STACK_INDENT, "");
	paragraph_painted(&p, t, PAINT_NOTE, words);
	buf_char(out, '\n');
}

/* `by`: the edge that leads to it; NULL. */
static void link_block(const struct wait_answer *a, struct wait_node *n, const struct wait_edge *by,
	const char *lead, const struct term *t, struct buf *out)
{
	struct snapshot_thread *th = n->thread;
	struct wait_own_part part;
	char indent[STACK_INDENT + 1];

	snapshot_stack(a->snapshot, th);
	if (!wait_own_part(a->snapshot, th, &part))
		part = stack_whole(th);
	snprintf(indent, sizeof(indent), "%*s", STACK_INDENT, "");
	link_line(n, a->verdict.focus, lead, t, out);
	doubt_line(by, t, out);
	stack_text(a->snapshot, th, &part, false, STACK_LINES, indent, t, out);
}

/* Where nobody is known to hold the lock: who may. */
static void candidates_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	const struct wait_node *root = a->verdict.root;

	if (!root->waits || wait_next(root) || root->progresses)
		return;
	for (size_t i = 0; i < root->edges.len && i < MOST_CANDIDATES; i++)
		link_block(a, root->edges.data[i].to, &root->edges.data[i],
			root->wait.nature == WAIT_LOCK ? "  held perhaps by " : "  perhaps for ", t, out);
	if (root->edges.len > MOST_CANDIDATES)
		buf_printf(out, "  or one of %zu threads more\n", root->edges.len - MOST_CANDIDATES);
}

static const char *lead_after(const struct wait_node *n)
{
	return n->wait.nature == WAIT_LOCK ? "  held by " : "  for ";
}

static void circle_line(const struct wait_verdict *v, const struct term *t, struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = STACK_INDENT};
	struct buf who = {0};

	doubt_line(wait_next(v->root), t, out);
	wait_thread_words(v->chain.data[v->cycle_at], v->focus, &who);
	buf_str(out, lead_after(v->root));
	p.at = term_width(lead_after(v->root));
	paragraph_painted(&p, t, PAINT_TITLE, who.data ? who.data : "");
	buf_str(out, ": a circle\n");
	out->failed |= who.failed;
	buf_release(&who);
}

static void chain_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	const struct wait_verdict *v = &a->verdict;

	for (size_t i = 0; i < v->chain.len; i++) {
		const struct wait_node *before;

		if (i == MOST_LINKS && v->chain.len > MOST_LINKS + 1) {
			buf_printf(out, "  ... %zu threads more\n", v->chain.len - 1 - i);
			i = v->chain.len - 1;
		}
		before = i ? v->chain.data[i - 1] : NULL;
		link_block(a, v->chain.data[i], before ? wait_next(before) : NULL,
			before ? lead_after(before) : "  ", t, out);
	}
	candidates_block(a, t, out);
	if (v->cycle_at < v->chain.len)
		circle_line(v, t, out);
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

static void rest_line(const struct wait_answer *a, const struct rest *r, const struct term *t, struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = 8, .at = 8};
	enum paint how = r->idle ? PAINT_DIM : PAINT_NONE;
	struct buf words = {0};

	wait_thread_words(r->first, a->verdict.focus, &words);
	buf_str(&words, r->count > 1 ? " and others" : "");
	buf_printf(out, "  %4zu  ", r->count);
	paragraph_painted(&p, t, how, words.data ? words.data : "");
	buf_char(out, ' ');
	p.at++;
	paragraph_painted(&p, t, how, r->what);
	buf_char(out, '\n');
	out->failed |= words.failed;
	buf_release(&words);
}

static int rest_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	struct rests rests = {0};
	int rc = gather_rest(a, &rests);

	if (!rc && rests.len) {
		qsort(rests.data, rests.len, sizeof(*rests.data), compare_rests);
		buf_str(out, "\nThe other threads\n");
	}
	for (size_t i = 0; !rc && i < rests.len && i < MOST_REST; i++)
		rest_line(a, &rests.data[i], t, out);
	if (!rc && rests.len > MOST_REST)
		buf_printf(out, "  and %zu kinds more: --all shows them\n", rests.len - MOST_REST);
	vec_release(&rests);
	return rc;
}

static void behind_line(
	const struct wait_answer *a, const struct wait_edge *e, const struct term *t, struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = STACK_INDENT + 2, .at = STACK_INDENT};
	struct buf words = {0};

	buf_str(&words, "behind ");
	wait_thread_words(e->to, a->verdict.focus, &words);
	buf_printf(&words, " (%s: %s)", wait_grade_name(e->grade), e->how);
	buf_printf(out, "%*s", STACK_INDENT, "");
	paragraph_add(&p, words.data ? words.data : "");
	buf_char(out, '\n');
	out->failed |= words.failed;
	buf_release(&words);
}

static void all_block(const struct wait_answer *a, const struct term *t, struct buf *out)
{
	vec_each(&a->graph->nodes, n)
		if (((*n)->asked || (*n)->behind) && !is_in_chain(&a->verdict, *n)) {
			buf_char(out, '\n');
			link_block(a, *n, NULL, "  ", t, out);
			vec_each(&(*n)->edges, e)
				behind_line(a, e, t, out);
		}
}

/* Members of a circle wait behind each other, which has been said. */
static void behind_block(const struct wait_answer *a, struct buf *out)
{
	const struct wait_verdict *v = &a->verdict;
	size_t members = v->chain.len - v->cycle_at, count = v->root->behind;

	if (members)
		count -= count < members ? count : members - 1;
	if (count > 1)
		buf_printf(out, "\n%zu threads wait behind this.\n", count);
	else if (count && members)
		buf_str(out, "\n1 thread waits behind this.\n");
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
	behind_block(a, out);
	if (o->all)
		all_block(a, &o->term, out);
	else
		rc = rest_block(a, &o->term, out);
	return rc || out->failed ? err_nomem(err) : 0;
}
