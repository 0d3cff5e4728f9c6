/* SPDX-License-Identifier: BSD-2-Clause */
/* What the views share: numbers as words, paint, names that fit, shares, the tree in lines. */
#ifndef SONDE_VIEW_VIEW_PRIV_H
#define SONDE_VIEW_VIEW_PRIV_H

#include "view/view.h"

/* ---- numbers (words.c) ---- */

void words_count(struct buf *out, uint64_t n);       /* 1,234,567 */
void words_duration(struct buf *out, uint64_t ns);   /* 350 ms, 9.98 s, 12 min 3 s */
void words_bytes(struct buf *out, uint64_t bytes);   /* 812 bytes, 1.4 MiB */
void words_percent(struct buf *out, double percent); /* five characters and '%': " 12.3%" */

/* A share without padding: "12.3%", "100%", "0%". Never "0.0%" for something that is there. */
void words_share(struct buf *out, double percent);

/* "woken by holder (server)" */
void words_wake(struct buf *out, const struct profile *p, const struct profile_wake *w);

/* ---- paint (words.c) ---- */

enum paint {
	PAINT_NONE,
	PAINT_TITLE,
	PAINT_DIM,
	PAINT_GOOD,
	PAINT_WARN,
	PAINT_BAD,
	PAINT_NOTE, /* what is not code: "[futex]" */
};

/* `text` in that colour where the terminal has colours. */
void paint(struct buf *out, const struct term *t, enum paint how, const char *text);
void paint_on(struct buf *out, const struct term *t, enum paint how);
void paint_off(struct buf *out, const struct term *t, enum paint how);

/* words_percent() coloured by how hot it is. */
void paint_percent(struct buf *out, const struct term *t, double percent);

/* The same for time in a state: who waits for a CPU may want to do something about it. */
void paint_state(
	struct buf *out, const struct term *t, enum thread_state state, double percent);

/* ---- names (name.c) ---- */

/* Appends `name` within `columns` cells: first the insides of <...> and (...) are left out, then
 * leading qualifiers (those of T and Trait in "<T as Trait>::f"), then the end. Control characters become '?'. Returns the cells used; columns
 * 0: no limit. */
size_t name_fit(struct buf *out, const char *name, size_t columns, bool unicode);

/* Any other text from a recording, its control characters and what is no UTF-8 as '?'. */
void words_text(struct buf *out, const char *s);

/* A clean command line in so many columns (0: any number): a long one loses the directory of its first
 * word, then its end, but never a " (pid 12)" there. */
void words_command(struct buf *out, const char *words, size_t columns, bool unicode);

/* ---- shares ---- */

/* What 100 percent are: the time for which threads were watched, where that is known, whatever
 * of it is shown; else (and always for time on the CPU alone) the weight of all samples. Samples on
 * the CPU stand for about the time that was measured, and can add up to a little more. */
static inline uint64_t share_base(const struct profile *p)
{
	return p->watched_ns > p->total_weight ? p->watched_ns : p->total_weight;
}

static inline double percent_of(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* By weight where there are weights. */
static inline double share_of(const struct profile *p, uint64_t samples, uint64_t weight)
{
	uint64_t base = share_base(p);

	return base ? percent_of(weight, base) : percent_of(samples, p->samples.len);
}

/* The same of what is shown, for pictures that fill their frame. */
static inline double part_of(const struct profile *p, uint64_t samples, uint64_t weight)
{
	return p->total_weight ? percent_of(weight, p->total_weight)
			       : percent_of(samples, p->samples.len);
}

static inline const struct profile_module *module_of(
	const struct profile *p, const struct profile_function *f)
{
	return f->module == PROFILE_NONE ? NULL : &p->modules.data[f->module];
}

static inline const char *module_name(const struct profile *p, const struct profile_function *f)
{
	const struct profile_module *m = module_of(p, f);

	return m ? m->name : "";
}

/* Functions with their counts, by self, then total, then name: in weight or in samples. */
enum rank_order {
	RANK_BY_TIME,
	RANK_BY_SAMPLES,
};
struct ranked {
	uint32_t function;
	struct profile_count count;
};
VEC_TYPE(ranking, struct ranked);

/* Leaves out functions nobody sampled, and "[truncated]" where it only gathers cut stacks. */
int rank_functions(const struct profile *p, enum rank_order order, struct ranking *ret,
	struct err *err);
/* Indices of threads by time on the CPU, weight, samples, then tid; malloc'ed, p->threads.len of them. */
int rank_threads(const struct profile *p, uint32_t **ret, struct err *err);

/* ---- facts about the recording (facts.c) ---- */

const char *loss_name(enum loss_kind kind);  /* "ring_samples": a key of the JSON */
const char *loss_words(enum loss_kind kind); /* "samples dropped because the ring was full" */
uint64_t losses_total(const struct profile *p);

/* What the recording is of, in how much of it threads were in which state (nothing for time on the
 * CPU alone), how good the stacks are: a line each. */
void facts_headline(const struct profile *p, const struct term *t, struct buf *out);
void facts_states(const struct profile *p, const struct term *t, struct buf *out);
/* Of a window of a flight recorder: why it was written. The number of lines, 0 or 1. */
size_t facts_trigger(const struct profile *p, const struct term *t, struct buf *out);
void facts_quality(const struct profile *p, const struct term *t, struct buf *out);

/* What the reader can do about poor stacks and names, a sentence each, worst first. */
VEC_TYPE(hints, char *);
int facts_hints(const struct profile *p, struct hints *ret, struct err *err);
void hints_release(struct hints *h);

/* ---- threads by state (threads.c) ---- */

/* Threads as rows of a table, or several that only wait, and in the same place. */
struct thread_row {
	uint32_t first;  /* index of a thread: the first of them */
	uint32_t count;
	uint64_t watched_ns, state_ns[STATE_COUNT];
};
VEC_TYPE(thread_rows, struct thread_row);

/* Who ran most first, those that only wait last. Threads that were not watched have no row. */
int threads_gather(const struct profile *p, struct thread_rows *ret, struct err *err);

/* A title and at most `limit` rows (0: all), then how many threads more there are. */
int threads_table(const struct profile *p, const struct term *t, const struct thread_rows *rows,
	size_t limit, struct buf *out);

/* ---- a path in one line (chain.c) ---- */

struct chain_link {
	const char *name;
	bool inlined, guessed;
	bool aside; /* no code */
};

/* In so many columns (0: any number); links are outermost first. */
void chain_draw(struct buf *out, const struct term *t, const struct chain_link *links,
	size_t count, size_t columns);
void chain_reverse(struct chain_link *links, size_t count);

VEC_TYPE(chain, struct chain_link);

/* The path to a node of a tree of whole stacks, for a reader who asks what a thread was doing: not
 * where all threads start, and of the kernel only what has no user code around it. 0 or -ENOMEM. */
int chain_of_node(const struct profile *p, const struct profile_tree *tree, uint32_t node,
	struct chain *ret);

/* The same of one stack. */
int chain_of_stack(const struct profile *p, uint32_t stack, struct chain *ret);

/* ---- the call tree in lines (branches.c) ---- */

/* The hottest `limit` lines: chains of only children become one line. */
int branches_hottest(const struct profile *p, const struct view_options *o, size_t limit,
	struct buf *out, struct err *err);

/* Every node that holds at least `min_percent`, one line each. */
int branches_all(const struct profile *p, const struct view_options *o, double min_percent,
	struct buf *out, struct err *err);

#endif
