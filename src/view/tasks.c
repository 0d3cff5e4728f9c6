/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks in lines: a tree for each loop. */
#include "view/tasks_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many names are told; the others are counted. */
#define MOST_NAMES 6u
/* Tasks that are deeper begin a tree of their own. */
#define MOST_DEPTH 100u
#define MOST_INDENT 40u

struct tree {
	const struct tasks_view *v;
	struct buf *out;
	bool *shown; /* by index of the task */
	bool failed;
};

/* Tasks to be shown at one place of the tree, by index. */
VEC_TYPE(siblings, uint32_t);

/* ---- shared with JSON ---- */

const struct task_thread *task_thread(const struct tasks_view *v, uint64_t state)
{
	vec_each(v->threads, t)
		if (t->state == state && state)
			return t;
	return NULL;
}

bool task_is_shown(const struct tasks_view *v, const struct python_task *task)
{
	return !v->loops || (task->loop != PYTHON_NO_LOOP && v->loops[task->loop]);
}

bool task_left_ns(const struct tasks_view *v, const struct python_task *task, uint64_t *ret)
{
	if (!task->wait.until_ns || !v->now_ns || task->state != PYTHON_TASK_WAITS)
		return false;
	*ret = task->wait.until_ns > v->now_ns ? task->wait.until_ns - v->now_ns : 0;
	return true;
}

const char *task_hole(const struct python_task *task)
{
	switch (task->torn) {
	case PYTHON_TORN:
	case PYTHON_UNREADABLE:
		return task->state == PYTHON_TASK_RUNS ? "[it ran while it was looked at]"
						       : "[it changed while it was looked at]";
	case PYTHON_CUT:
		return "[the chain goes on]";
	case PYTHON_WHOLE:
		break;
	}
	return NULL;
}

/* ---- which are the same ---- */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_lists(const struct python_task_numbers *a, const struct python_task_numbers *b)
{
	int order = compare_numbers(a->len, b->len);

	for (size_t i = 0; i < a->len && !order; i++)
		order = compare_numbers(a->data[i], b->data[i]);
	return order;
}

int task_compare_frames(const struct python_frame *a, size_t a_count, const struct python_frame *b, size_t b_count)
{
	int order = compare_numbers(a_count, b_count);

	for (size_t i = 0; i < a_count && !order; i++) {
		order = compare_numbers(a[i].code->serial, b[i].code->serial);
		order = order ? order : compare_numbers(a[i].position.line, b[i].position.line);
	}
	return order;
}

static int compare_frames(const struct python_tasks *t, const struct python_task *a, const struct python_task *b)
{
	return task_compare_frames(t->frames.data + a->first_frame, a->frame_count, t->frames.data + b->first_frame,
		b->frame_count);
}

/* Which object it is counts where it is known who has it. */
static uint64_t held_object(const struct python_tasks *t, const struct python_task *task)
{
	size_t count;

	return task->wait.object && python_tasks_holds(t, task->wait.object, &count) ? task->wait.object : 0;
}

/* Words and foreign types are interned. */
static int compare_places(const struct python_tasks *t, const struct python_task *a, const struct python_task *b)
{
	int order = compare_numbers(a->state, b->state);

	order = order ? order : compare_numbers((uintptr_t)a->wait.words, (uintptr_t)b->wait.words);
	order = order ? order : compare_numbers((uintptr_t)a->foreign, (uintptr_t)b->foreign);
	order = order ? order : compare_numbers(a->torn, b->torn);
	order = order ? order : compare_numbers(a->wait.thread, b->wait.thread);
	order = order ? order : compare_numbers(held_object(t, a), held_object(t, b));
	order = order ? order : compare_frames(t, a, b);
	return order ? order : compare_lists(&a->waits_for, &b->waits_for);
}

static int compare_names(const struct python_task *a, const struct python_task *b)
{
	int order = strverscmp(a->name, b->name);

	return order ? order : compare_numbers(a->address, b->address);
}

static int by_place(const void *a, const void *b, void *ctx)
{
	const struct python_tasks *t = (const struct python_tasks *)ctx;
	const struct python_task *x = &t->tasks.data[*(const uint32_t *)a];
	const struct python_task *y = &t->tasks.data[*(const uint32_t *)b];
	int order = compare_places(t, x, y);

	return order ? order : compare_names(x, y);
}

struct task_group {
	size_t first, count; /* in the sorted siblings */
	const struct python_task *task; /* the first of them */
};
VEC_TYPE(task_groups, struct task_group);

static int by_name(const void *a, const void *b)
{
	return compare_names(((const struct task_group *)a)->task, ((const struct task_group *)b)->task);
}

static int group(const struct python_tasks *t, struct siblings *siblings, struct task_groups *ret)
{
	if (!siblings->len)
		return 0;
	qsort_r(siblings->data, siblings->len, sizeof(*siblings->data), by_place, (void *)t);
	for (size_t i = 0; i < siblings->len; i++) {
		const struct python_task *task = &t->tasks.data[siblings->data[i]];

		if (ret->len && !compare_places(t, ret->data[ret->len - 1].task, task))
			ret->data[ret->len - 1].count++;
		else if (vec_push(ret, (struct task_group){i, 1, task}))
			return -ENOMEM;
	}
	qsort(ret->data, ret->len, sizeof(*ret->data), by_name);
	return 0;
}

/* ---- a task ---- */

static const struct python_task *member(const struct tree *tree, const struct siblings *s, size_t index)
{
	return &tree->v->tasks->tasks.data[s->data[index]];
}

static void add_name(const struct tree *tree, struct paragraph *p, const struct python_task *task,
	const char *after)
{
	char words[400];

	if (*task->name)
		snprintf(words, sizeof(words), "%.300s%s", task->name, after);
	else
		snprintf(words, sizeof(words), "<%.200s at 0x%" PRIx64 ">%s", task->type->full_name, task->address,
			after);
	paragraph_painted(p, &tree->v->term, PAINT_TITLE, words);
}

static void names(const struct tree *tree, const struct siblings *s, const struct task_group *g, struct paragraph *p)
{
	size_t shown = g->count > MOST_NAMES + 1 ? MOST_NAMES : g->count;
	char words[64];

	if (g->count > 1) {
		snprintf(words, sizeof(words), "%zu tasks:", g->count);
		paragraph_add(p, words);
	}
	for (size_t i = 0; i < shown; i++)
		add_name(tree, p, member(tree, s, g->first + i), i + 1 < shown ? "," : "");
	if (shown < g->count) {
		snprintf(words, sizeof(words), "and %zu more", g->count - shown);
		paragraph_add(p, words);
	}
}

static void left(const struct tree *tree, const struct siblings *s, const struct task_group *g, struct buf *out)
{
	uint64_t least = UINT64_MAX, most = 0, ns;

	for (size_t i = 0; i < g->count; i++) {
		if (!task_left_ns(tree->v, member(tree, s, g->first + i), &ns))
			return;
		least = ns < least ? ns : least;
		most = ns > most ? ns : most;
	}
	buf_str(out, ", ");
	wait_duration_words(least, out);
	if (most / 2 > least) {
		buf_str(out, " to ");
		wait_duration_words(most, out);
	}
	buf_str(out, " left");
}

/* " by Task-3 and Task-4", behind "held". */
static void held_by(const struct tree *tree, const struct python_task *task, struct buf *out)
{
	size_t count = 0;
	const struct python_hold *h = python_tasks_holds(tree->v->tasks, task->wait.object, &count);

	if (!task->wait.object || !count)
		return;
	buf_str(out, task->wait.kind == PYTHON_WAIT_LOCK ? " by " : ", held by ");
	for (size_t i = 0; i < count && i < MOST_NAMES; i++)
		buf_printf(out, "%s%.200s", i ? ", " : "", tree->v->tasks->tasks.data[h[i].task].name);
	if (count > MOST_NAMES)
		buf_printf(out, " and %zu more", count - MOST_NAMES);
}

static void state_words(const struct tree *tree, const struct siblings *s, const struct task_group *g,
	struct buf *out)
{
	const struct task_thread *worker = task_thread(tree->v, g->task->wait.thread);
	const char *ending = g->count > 1 ? "" : "s";

	switch (g->task->state) {
	case PYTHON_TASK_RUNS:
		buf_str(out, tree->v->core ? "was running" : "runs");
		return;
	case PYTHON_TASK_READY:
		buf_str(out, g->task->begun ? "ready to run" : "ready to run, not begun");
		return;
	case PYTHON_TASK_WAITS:
		break;
	}
	buf_printf(out, "wait%s%s %s", ending, *g->task->wait.words ? " for" : "", g->task->wait.words);
	left(tree, s, g, out);
	held_by(tree, g->task, out);
	if (worker)
		buf_printf(out, ", in %s[%d]", worker->name, (int)worker->tid);
}

void task_frames(const struct tasks_view *v, const struct python_frame *frames, size_t count, const char *hole,
	size_t indent, struct buf *out)
{
	const struct term *t = &v->term;
	size_t columns = t->columns > indent + 20 ? t->columns - indent : 0;

	for (size_t i = 0; i < count; i++) {
		const struct python_frame *f = &frames[i];
		const char *slash = strrchr(f->code->file, '/');
		struct stack_line line = {
			.function = f->code->name,
			.file = slash ? slash + 1 : f->code->file,
			.path = f->code->file,
			.line = f->position.line,
			.python = true,
		};

		buf_printf(out, "%*s", (int)indent, "");
		stack_line_words(&line, t, columns, out);
		buf_char(out, '\n');
	}
	if (hole) {
		buf_printf(out, "%*s", (int)indent, "");
		paint(out, t, PAINT_NOTE, hole);
		buf_char(out, '\n');
	}
}

static void foreign(const struct tree *tree, const struct python_task *task, size_t indent)
{
	if (!task->foreign)
		return;
	buf_printf(tree->out, "%*s", (int)indent, "");
	paint_on(tree->out, &tree->v->term, PAINT_NOTE);
	buf_str(tree->out, "[in ");
	words_text(tree->out, task->foreign);
	buf_str(tree->out, ", which is no Python code]");
	paint_off(tree->out, &tree->v->term, PAINT_NOTE);
	buf_char(tree->out, '\n');
}

/* ---- the tree ---- */

static void show_siblings(struct tree *tree, struct siblings *siblings, size_t depth);

static void show_awaited(struct tree *tree, const struct python_task *task, size_t depth)
{
	struct siblings below = {0};

	vec_each(&task->waits_for, index)
		if (vec_push(&below, *index))
			tree->failed = true;
	if (depth < MOST_DEPTH)
		show_siblings(tree, &below, depth + 1);
	vec_release(&below);
}

static void show_group(struct tree *tree, const struct siblings *s, const struct task_group *g, size_t depth)
{
	size_t indent = 2 + 2 * depth < MOST_INDENT ? 2 + 2 * depth : MOST_INDENT;
	struct paragraph p = {
		.out = tree->out, .columns = tree->v->term.columns, .indent = indent + 4, .at = indent};
	struct buf words = {0};

	buf_printf(tree->out, "%*s", (int)indent, "");
	names(tree, s, g, &p);
	for (size_t i = 0; i < g->count; i++)
		tree->shown[s->data[g->first + i]] = true;
	state_words(tree, s, g, &words);
	paragraph_painted(&p, &tree->v->term, PAINT_NOTE, words.data ? words.data : "");
	tree->failed |= words.failed;
	buf_release(&words);
	buf_char(tree->out, '\n');
	foreign(tree, g->task, indent + 4);
	task_frames(tree->v, tree->v->tasks->frames.data + g->task->first_frame, g->task->frame_count,
		task_hole(g->task), indent + 4, tree->out);
	show_awaited(tree, g->task, depth);
}

/* Takes out those that stand further up, or whose tree goes on there, and names them. */
static void refer_above(struct tree *tree, struct siblings *siblings, size_t depth)
{
	size_t indent = 2 + 2 * depth < MOST_INDENT ? 2 + 2 * depth : MOST_INDENT, kept = 0;
	struct siblings above = {0};
	struct paragraph p = {
		.out = tree->out, .columns = tree->v->term.columns, .indent = indent + 4, .at = indent};

	for (size_t i = 0; i < siblings->len; i++) {
		if (!tree->shown[siblings->data[i]])
			siblings->data[kept++] = siblings->data[i];
		else if (vec_push(&above, siblings->data[i]))
			tree->failed = true;
	}
	siblings->len = kept;
	if (above.len) {
		buf_printf(tree->out, "%*s", (int)indent, "");
		names(tree, &above, &(struct task_group){.count = above.len}, &p);
		buf_str(tree->out, ", above\n");
	}
	vec_release(&above);
}

static void show_siblings(struct tree *tree, struct siblings *siblings, size_t depth)
{
	struct task_groups groups = {0};

	refer_above(tree, siblings, depth);
	if (group(tree->v->tasks, siblings, &groups))
		tree->failed = true;
	vec_each(&groups, g)
		show_group(tree, siblings, g, depth);
	vec_release(&groups);
}

static void loop_line(const struct tasks_view *v, uint32_t index, size_t count, struct buf *out)
{
	const struct python_loop *loop = index == PYTHON_NO_LOOP ? NULL : &v->tasks->loops.data[index];
	const struct task_thread *thread = loop ? task_thread(v, loop->thread) : NULL;

	paint_on(out, &v->term, PAINT_TITLE);
	if (thread) {
		buf_str(out, "Loop of ");
		words_text(out, thread->name);
		buf_printf(out, "[%d]", (int)thread->tid);
	} else {
		buf_str(out, !loop ? "No loop" : loop->thread ? "Loop" : "Loop that no thread is in");
	}
	paint_off(out, &v->term, PAINT_TITLE);
	if (loop && loop->type)
		buf_printf(out, "  %s", loop->type->full_name);
	buf_printf(out, ", %zu task%s\n", count, count == 1 ? "" : "s");
}

/* First those that nobody awaits, then what is left: circles, and what is too deep. */
static void show_loop(struct tree *tree, uint32_t loop)
{
	const struct python_tasks *t = tree->v->tasks;
	struct siblings roots = {0};
	size_t count = 0;

	for (size_t i = 0; i < t->tasks.len; i++) {
		if (t->tasks.data[i].loop != loop)
			continue;
		count++;
		if (!t->tasks.data[i].awaited_by.len && vec_push(&roots, (uint32_t)i))
			tree->failed = true;
	}
	if (!count)
		return;
	if (tree->out->len)
		buf_char(tree->out, '\n');
	loop_line(tree->v, loop, count, tree->out);
	show_siblings(tree, &roots, 0);
	for (size_t i = 0; i < t->tasks.len; i++) {
		if (t->tasks.data[i].loop != loop || tree->shown[i])
			continue;
		roots.len = 0;
		if (vec_push(&roots, (uint32_t)i))
			tree->failed = true;
		show_siblings(tree, &roots, 0);
	}
	vec_release(&roots);
}

static void losses(const struct tasks_view *v, struct buf *out)
{
	const struct python_tasks *t = v->tasks;
	struct buf words = {0};

	if (t->lost)
		buf_printf(&words, "%" PRIu64 " tasks were gone when they were looked at. ", t->lost);
	if (t->incomplete)
		buf_str(&words, "A list of tasks changed while it was read: some may be missing. ");
	if (t->cut)
		buf_printf(&words, "There are more than %u tasks: the others are left out. ", PYTHON_MOST_TASKS);
	if (words.len) {
		buf_char(out, '\n');
		why_wrapped(words.data, PAINT_WARN, &v->term, out);
	}
	buf_release(&words);
}

int view_tasks(const struct tasks_view *v, struct buf *out, struct err *err)
{
	struct tree tree = {.v = v, .out = out, .shown = calloc(v->tasks->tasks.len + 1, sizeof(bool))};

	if (!tree.shown)
		return err_nomem(err);
	if (v->core)
		core_text(v->core, &v->term, out);
	for (size_t i = 0; i < v->tasks->loops.len; i++)
		if (!v->loops || v->loops[i])
			show_loop(&tree, (uint32_t)i);
	if (!v->loops)
		show_loop(&tree, PYTHON_NO_LOOP);
	tree.failed |= view_greenlets(v, out) != 0;
	losses(v, out);
	free(tree.shown);
	return tree.failed || out->failed ? err_nomem(err) : 0;
}
