/* SPDX-License-Identifier: BSD-2-Clause */
/* The report without a screen's limits: every loss, every function, the whole tree. */
#include <inttypes.h>
#include <stdlib.h>

#include "view/heap_priv.h"
#include "view/view_priv.h"

/* Below this a branch of the tree is noise: one sample in a thousand. */
#define MIN_TREE_PERCENT 0.1

static void meta_lines(const struct profile *p, struct buf *out)
{
	for (size_t i = 0; i + 1 < p->meta.len; i += 2) {
		size_t start = out->len;

		buf_str(out, "  ");
		words_text(out, p->meta.data[i]);
		do
			buf_char(out, ' ');
		while (!out->failed && out->len < start + 21);
		words_text(out, p->meta.data[i + 1]);
		buf_char(out, '\n');
	}
	buf_printf(out, "  %-18s ", "sampling cost");
	words_duration(out, p->cost.sampler_cpu_ns);
	buf_str(out, " CPU, naming ");
	words_duration(out, p->cost.symbol_cpu_ns);
	buf_str(out, ", file ");
	words_bytes(out, p->file_bytes);
	buf_char(out, '\n');
}

static void quality_line(struct buf *out, double percent, const char *words)
{
	buf_str(out, "  ");
	words_percent(out, percent);
	buf_printf(out, "  %s\n", words);
}

static void quality_lines(const struct profile *p, struct buf *out)
{
	const struct profile_quality *q = &p->quality;

	buf_str(out, "\nStacks, by how they end\n");
	for (size_t end = 0; end < UNWIND_END_COUNT && q->samples; end++)
		if (q->ends[end])
			quality_line(out, 100.0 * (double)q->ends[end] / (double)q->samples,
				unwind_end_name((enum unwind_end)end));
	if (q->intervals) {
		buf_str(out, "\nTime off the CPU\n");
		quality_line(out, q->off_cpu_rooted_pct, "of waits have a whole stack");
		quality_line(out, percent_of(q->intervals_without_stack, q->intervals),
			"have none at all");
		quality_line(out, percent_of(q->intervals_thinned, q->intervals),
			"stand for shorter ones of their thread, too, of which only some are kept");
	}
	if (q->python || q->python_torn || q->python_cut) {
		buf_str(out, "\nPython\n");
		quality_line(out, percent_of(q->python, q->samples), "of stacks have Python frames");
		quality_line(out, percent_of(q->python_torn, q->samples),
			"changed while they were read: inner ones are missing");
		quality_line(out, percent_of(q->python_cut, q->samples),
			"are too deep: outer ones are missing");
	}
	buf_str(out, "\nFrames\n");
	quality_line(out, q->guessed_frames_pct, "guessed (marked ? in the tree)");
	quality_line(out, q->fp_frames_pct, "found by frame pointer, validated");
	if (q->prologue_frames)
		quality_line(out, q->prologue_frames_pct,
			"found by what the code does, validated");
	quality_line(out, q->live_frames_pct, "beyond the copied stack, read live and checked");
	quality_line(out, q->unresolved_frames_pct, "without a name");
	buf_str(out, "\nLost\n");
	if (!losses_total(p))
		buf_str(out, "  nothing\n");
	for (size_t kind = 0; kind < LOSS_KIND_COUNT; kind++)
		if (q->losses[kind])
			buf_printf(out, "  %" PRIu64 " %s\n", q->losses[kind],
				loss_words((enum loss_kind)kind));
}

static int hint_lines(const struct profile *p, struct buf *out, struct err *err)
{
	struct hints hints = {0};
	int rc = facts_hints(p, &hints, err);

	if (rc)
		return rc;
	if (hints.len)
		buf_str(out, "\nHints\n");
	vec_each(&hints, it)
		buf_printf(out, "  %s\n", *it);
	hints_release(&hints);
	return 0;
}

static void thread_line(const struct profile *p, const struct profile_thread *t, struct buf *out)
{
	buf_str(out, "  ");
	words_percent(out, share_of(p, t->samples, t->weight));
	buf_printf(out, " %8" PRIu64 " %8u  ", t->samples, t->tid);
	words_text(out, t->name);
	buf_str(out, " (");
	words_text(out, t->process);
	buf_printf(out, " %u)\n", t->pid);
}

/* Threads with a column a state; then those that were not watched, as far as they have samples. */
static int state_lines(const struct profile *p, const struct term *t, struct buf *out,
	struct err *err)
{
	struct thread_rows rows = {0};
	int rc = threads_gather(p, &rows, err);

	if (rc)
		return rc;
	buf_str(out, p->of_tasks ? "\nTasks, by the thread that their loop runs in\n"
				 : "\nThreads, each in % of the time it was watched\n");
	rc = threads_table(p, t, &rows, 0, out);
	vec_release(&rows);
	return rc;
}

/* A shell script starts hundreds of processes that are gone before their first sample: those are
 * only counted. */
static int thread_lines(const struct profile *p, struct buf *out, struct err *err)
{
	uint32_t *order;
	size_t idle = 0;

	if (rank_threads(p, &order, err))
		return -ENOMEM;
	buf_str(out, "\nThreads\n   share  samples      tid  name (process)\n");
	for (size_t i = 0; i < p->threads.len; i++) {
		const struct profile_thread *t = &p->threads.data[order[i]];

		if (t->samples)
			thread_line(p, t, out);
		else
			idle++;
	}
	free(order);
	if (idle) {
		buf_str(out, "  and ");
		words_count(out, idle);
		buf_str(out, idle == 1 ? " thread without samples\n" : " threads without samples\n");
	}
	return 0;
}

static int function_lines(
	const struct profile *p, size_t limit, struct buf *out, struct err *err)
{
	struct ranking ranking = {0};
	int rc = rank_functions(p, RANK_BY_TIME, &ranking, err);

	if (rc)
		return rc;
	buf_str(out, p->mode == PROFILE_CPU
			     ? "\nFunctions\n    self   total  samples  function (module)\n"
			     : "\nFunctions, and what was waited in\n"
			       "    self   total  samples  function (module)\n");
	for (size_t i = 0; i < ranking.len && (!limit || i < limit); i++) {
		const struct ranked *r = &ranking.data[i];
		const struct profile_function *f = &p->functions.data[r->function];

		buf_str(out, "  ");
		words_percent(out, share_of(p, r->count.self, r->count.self_weight));
		buf_str(out, "  ");
		words_percent(out, share_of(p, r->count.total, r->count.total_weight));
		buf_printf(out, " %8" PRIu64 "  ", r->count.self);
		words_text(out, f->name);
		if (f->module != PROFILE_NONE) {
			buf_str(out, " (");
			words_text(out, module_name(p, f));
			buf_char(out, ')');
		}
		buf_char(out, '\n');
	}
	vec_release(&ranking);
	return 0;
}

int view_tree(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	return branches_all(p, o, MIN_TREE_PERCENT, out, err);
}

int view_text(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	struct view_options plain = *o;
	int rc;

	plain.term.colour = false;
	plain.term.columns = plain.term.rows = 0;
	if (p->heap && !p->samples.len)
		return o->heap_site ? heap_details(p, &plain, out, err) : heap_everything(p, &plain, out, err);
	facts_headline(p, &plain.term, out);
	facts_trigger(p, &plain.term, out);
	facts_states(p, &plain.term, out);
	meta_lines(p, out);
	quality_lines(p, out);
	view_damage(p, out);
	rc = hint_lines(p, out, err);
	if (!rc && p->mode != PROFILE_CPU)
		rc = state_lines(p, &plain.term, out, err);
	else if (!rc)
		rc = thread_lines(p, out, err);
	if (!rc)
		rc = function_lines(p, plain.top, out, err);
	if (rc)
		return rc;
	buf_str(out, plain.inverted ? "\nWho calls what (leaves first)\n" : "\nCall tree\n");
	rc = view_tree(p, &plain, out, err);
	return !rc && out->failed ? err_nomem(err) : rc;
}
