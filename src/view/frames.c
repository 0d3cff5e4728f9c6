/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of a snapshot in lines. */
#include "view/why_priv.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "os/syscalls.h"
#include "symbol/interpreter.h"

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path;
}

struct wait_own_part stack_whole(const struct snapshot_thread *t)
{
	return (struct wait_own_part){.end = t->step_count};
}

/* Whether what is above the step was not called by it but interrupted it: it is where the kernel returns to from
 * a signal handler. */
static bool is_signal(const struct snapshot_thread *t, size_t step)
{
	const struct snapshot_frame *native = t->steps[step].native;
	size_t next = native ? (size_t)(native - t->frames) + 1 : t->frame_count;

	return next < t->frame_count && !t->frames[next].at.is_return;
}

/* Variables of a Python frame; NULL: there are none. */
static const struct snapshot_local *locals_of(
	const struct snapshot_thread *t, const struct placed_frame *python, size_t *ret_count)
{
	const struct snapshot_local *first = NULL;

	*ret_count = 0;
	vec_each(&t->locals, l) {
		if (!python || l->frame != (size_t)(python - t->python))
			continue;
		first = first ? first : l;
		++*ret_count;
	}
	return first;
}

/* Lines of one step from a level on; false: enough. */
static bool step_lines(struct snapshot *s, const struct snapshot_thread *t, size_t step, size_t level,
	const struct stack_ask *ask)
{
	struct live_name name = snapshot_name(s, t->steps[step].id);
	struct stack_line line = {
		.module = name.module,
		.address = name.start,
		.python = name.python,
		.guessed = t->steps[step].native && t->steps[step].native->at.how == UNWIND_SCAN,
	};

	line.locals = locals_of(t, t->steps[step].python, &line.local_count);
	if (name.interpreter && !ask->interpreter)
		return true;
	if (is_signal(t, step)) {
		line.function = "[signal]";
		name.answer.count = 0;
	}
	if (!name.answer.count)
		return ask->each(ask->ctx, &line);
	for (; level < name.answer.count; level++) {
		line.function = name.answer.levels[level].name;
		if (!ask->interpreter && interpreter_hides_inlined(name.role, line.function))
			continue;
		line.path = name.answer.levels[level].file;
		line.file = base_name(line.path);
		line.line = name.answer.levels[level].line;
		line.column = name.answer.levels[level].column;
		line.inlined = level + 1 < name.answer.count;
		if (!ask->each(ask->ctx, &line))
			return false;
	}
	return true;
}

void stack_lines(struct snapshot *s, const struct snapshot_thread *t, const struct wait_own_part *part,
	const struct stack_ask *ask)
{
	for (size_t i = part->step; i < part->end; i++)
		if (!step_lines(s, t, i, i == part->step ? part->level : 0, ask))
			return;
}

/* So much of a function's name comes before where it is. */
#define LEAST_NAME 20u

/* Whether a name has room beside so many columns more, with what separates them. */
static bool fits_beside(size_t columns, const char *function, size_t more)
{
	size_t name = term_width(function);

	return !columns || columns >= (name < LEAST_NAME ? name : LEAST_NAME) + more + 3;
}

void stack_line_words(
	const struct stack_line *line, const struct term *t, size_t columns, struct buf *out)
{
	static const char inlined[] = " (inlined)";
	char where[192] = "", number[192];
	const char *function = line->function;
	size_t room = columns;

	if (line->file && line->line)
		snprintf(where, sizeof(where), "%.120s:%" PRIu32, line->file, line->line);
	else if (line->module && function)
		snprintf(where, sizeof(where), "%.140s", line->module);
	if (!function) {
		snprintf(number, sizeof(number), "%.140s%s0x%" PRIx64, line->module ? line->module : "",
			line->module ? "+" : "", line->address);
		function = number;
	}
	if (line->inlined && fits_beside(columns, function, term_width(where) + sizeof(inlined)))
		snprintf(where + strlen(where), sizeof(where) - strlen(where), "%s", inlined);
	if (!fits_beside(columns, function, term_width(where)))
		where[0] = '\0';
	if (columns && where[0])
		room -= term_width(where) + 2;
	if (columns && line->guessed)
		room--;
	name_fit(out, function, room, t->unicode);
	if (line->guessed)
		buf_char(out, '?');
	if (!where[0])
		return;
	buf_str(out, "  ");
	paint_on(out, t, PAINT_DIM);
	words_text(out, where);
	paint_off(out, t, PAINT_DIM);
}

struct text_ctx {
	const struct term *term;
	const char *indent;
	struct buf *out;
	size_t limit, lines;
};

static bool text_line(void *arg, const struct stack_line *line)
{
	struct text_ctx *c = arg;
	size_t indent = term_width(c->indent);

	if (c->limit && c->lines++ >= c->limit)
		return true;
	buf_str(c->out, c->indent);
	stack_line_words(line, c->term,
		c->term->columns > indent + 20 ? c->term->columns - indent : 0, c->out);
	buf_char(c->out, '\n');
	for (size_t i = 0; i < line->local_count; i++) {
		buf_printf(c->out, "%s    ", c->indent);
		paint_on(c->out, c->term, PAINT_DIM);
		words_text(c->out, line->locals[i].text);
		paint_off(c->out, c->term, PAINT_DIM);
		buf_char(c->out, '\n');
	}
	return true;
}

/* Why there is less than a whole stack, or none. */
static const char *hole(const struct snapshot_thread *t)
{
	if (t->process->refused)
		return "[not ours to read]";
	if (t->look.compat)
		return "[32-bit code: its stack is not walked]";
	if (t->faith == SNAPSHOT_MOVED)
		return "[it ran while it was looked at]";
	if (!t->has_stack)
		return strchr("ZX", t->look.wait.state) ? "[ended]" : "[no stack]";
	if (t->python_marks & SAMPLE_PYTHON_CUT)
		return "[there are more Python frames than are read]";
	if (t->python_marks & SAMPLE_PYTHON_TORN)
		return t->process->source->still
			? "[some of its Python frames cannot be read from the core]"
			: "[it ran while its Python frames were read: some are missing, or of another moment]";
	return t->end == UNWIND_ROOT ? NULL : "[the stack goes on, and cannot be walked further]";
}

void stack_text(struct snapshot *s, const struct snapshot_thread *t, const struct wait_own_part *part,
	bool interpreter, size_t limit, const char *indent, const struct term *term, struct buf *out)
{
	struct text_ctx c = {.term = term, .indent = indent, .out = out, .limit = limit};
	const char *why = hole(t);

	stack_lines(s, t, part, &(struct stack_ask){text_line, &c, interpreter});
	if (limit && c.lines > limit) {
		buf_str(out, indent);
		paint_on(out, term, PAINT_DIM);
		buf_printf(out, "and %zu more", c.lines - limit);
		paint_off(out, term, PAINT_DIM);
		buf_char(out, '\n');
	}
	if (why) {
		buf_str(out, indent);
		paint(out, term, PAINT_NOTE, why);
		buf_char(out, '\n');
	}
}

/* ---- JSON ---- */

struct json_ctx {
	struct buf *out;
	bool any;
};

static void comma(struct json_ctx *c)
{
	if (c->any)
		buf_char(c->out, ',');
	c->any = true;
}

static void json_name(struct buf *out, const struct stack_line *line)
{
	char number[256];

	if (line->function) {
		buf_json(out, line->function);
		return;
	}
	snprintf(number, sizeof(number), "%.200s+0x%" PRIx64, line->module ? line->module : "[unmapped]",
		line->address);
	buf_json(out, number);
}

static bool name_item(void *arg, const struct stack_line *line)
{
	struct json_ctx *c = arg;

	comma(c);
	json_name(c->out, line);
	return true;
}

/* "arguments": [...], "locals": [...] */
static void locals_item(struct buf *out, const struct stack_line *line)
{
	for (int argument = 1; argument >= 0; argument--) {
		bool any = false;

		buf_str(out, argument ? ",\"arguments\":[" : ",\"locals\":[");
		for (size_t i = 0; i < line->local_count; i++) {
			if (line->locals[i].argument != (bool)argument)
				continue;
			buf_str(out, any ? "," : "");
			buf_json(out, line->locals[i].text);
			any = true;
		}
		buf_char(out, ']');
	}
}

static bool frame_item(void *arg, const struct stack_line *line)
{
	struct json_ctx *c = arg;

	comma(c);
	buf_str(c->out, "{\"function\":");
	json_name(c->out, line);
	if (line->python)
		buf_str(c->out, ",\"kind\":\"python\"");
	if (line->file) {
		buf_str(c->out, ",\"file\":");
		buf_json(c->out, line->python ? line->path : line->file);
		buf_printf(c->out, ",\"line\":%" PRIu32, line->line);
	}
	if (line->column)
		buf_printf(c->out, ",\"column\":%" PRIu32, line->column);
	if (line->local_count)
		locals_item(c->out, line);
	if (line->module) {
		buf_str(c->out, ",\"module\":");
		buf_json(c->out, line->module);
	}
	if (line->inlined)
		buf_str(c->out, ",\"inlined\":true");
	if (line->guessed)
		buf_str(c->out, ",\"guessed\":true");
	buf_char(c->out, '}');
	return true;
}

void stack_json(struct snapshot *s, const struct snapshot_thread *t, bool interpreter, struct buf *out)
{
	struct json_ctx names = {.out = out}, frames = {.out = out};
	struct wait_own_part all = stack_whole(t);
	const char *why = hole(t);

	buf_str(out, "\"stack\":[");
	stack_lines(s, t, &all, &(struct stack_ask){name_item, &names, interpreter});
	buf_str(out, "],\"frames\":[");
	stack_lines(s, t, &all, &(struct stack_ask){frame_item, &frames, interpreter});
	buf_printf(out, "],\"whole\":%s", t->has_stack && t->end == UNWIND_ROOT ? "true" : "false");
	if (why) {
		buf_str(out, ",\"hole\":");
		buf_json(out, why);
	}
}

void thread_state_words(const struct snapshot_thread *t, struct buf *out)
{
	const char *call = syscall_name(t->reason.syscall);

	if (t->look.killed_by) {
		buf_printf(out, "killed by SIG%s", sigabbrev_np(t->look.killed_by));
		if (t->look.wait.state == 'R')
			return;
		buf_str(out, ", ");
	}
	switch (t->look.wait.state) {
	case 'R':
		buf_str(out, t->process->source->still ? "was running" : "runs, or is ready to");
		return;
	case 'T':
		buf_str(out, "stopped");
		return;
	case 't':
		buf_str(out, "stopped by a tracer");
		return;
	case 'Z':
	case 'X':
		buf_str(out, "ended");
		return;
	default:
		break;
	}
	if (t->reason.state == STATE_STOPPED)
		buf_str(out, "frozen");
	else if (t->reason.state == STATE_PAGE_FAULT)
		buf_str(out, "asleep in a page fault");
	else
		buf_printf(out, "asleep%s%s", call ? " in " : "", call ? call : "");
	if (t->look.wait.state == 'D')
		buf_str(out, ", uninterruptible");
	if (!call && t->look.wait.where[0])
		buf_printf(out, " (%s)", t->look.wait.where);
}
