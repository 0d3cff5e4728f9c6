/* SPDX-License-Identifier: BSD-2-Clause */
/* What the views of a snapshot share: frames as lines, threads in words. */
#ifndef SONDE_VIEW_WHY_PRIV_H
#define SONDE_VIEW_WHY_PRIV_H

#include "view/view_priv.h"
#include "view/why.h"

/* One line of a stack: a function, inlined or not. */
struct stack_line {
	const char *function; /* NULL: none known */
	const char *file;     /* base name; NULL */
	const char *path;     /* the whole of it */
	uint32_t line, column; /* 0 unknown */
	const char *module;   /* NULL: none */
	uint64_t address;     /* in the module; of its function where that is all that is known */
	bool inlined, guessed, python;
	const struct snapshot_local *locals; /* of a Python frame */
	size_t local_count;
};

struct stack_ask {
	bool (*each)(void *ctx, const struct stack_line *line);
	void *ctx;
	bool interpreter; /* the interpreter's own frames beside Python's as well */
};

/* Calls ask->each for the lines of a part of a stack, innermost first, until it returns false. */
void stack_lines(struct snapshot *s, const struct snapshot_thread *t, const struct wait_own_part *part,
	const struct stack_ask *ask);

/* "parse_object  json.c:118" or "read  libc.so.6" within so many columns (0: any). */
void stack_line_words(
	const struct stack_line *line, const struct term *t, size_t columns, struct buf *out);

/* At most `limit` lines (0: all) with `indent`, and how many more there are. */
void stack_text(struct snapshot *s, const struct snapshot_thread *t, const struct wait_own_part *part,
	bool interpreter, size_t limit, const char *indent, const struct term *term, struct buf *out);

/* All of it. */
struct wait_own_part stack_whole(const struct snapshot_thread *t);

/* "key":"value" */
static inline void json_text(struct buf *out, const char *key, const char *value)
{
	buf_printf(out, "\"%s\":", key);
	buf_json(out, value);
}

/* "stack": [...] as names, and "frames": [...] in full. */
void stack_json(struct snapshot *s, const struct snapshot_thread *t, bool interpreter, struct buf *out);

/* What a core is of, and what of it could not be read: lines, and "core": {...}. */
void core_text(const struct core *c, const struct term *t, struct buf *out);
void core_json(const struct core *c, struct buf *out);

/* A paragraph as it is printed: where its current line has got to. */
struct paragraph {
	struct buf *out;
	size_t columns; /* of the terminal, 0: any number */
	size_t indent;  /* of all lines but the first */
	size_t at;      /* columns of the current line that are in use */
	bool open;      /* the next word needs a space before it */
};

/* Adds the words of any text, without what would move a cursor. The second also paints them. */
void paragraph_add(struct paragraph *p, const char *text);
void paragraph_painted(struct paragraph *p, const struct term *t, enum paint how, const char *text);

/* A paragraph of one sentence. */
void why_wrapped(const char *text, enum paint how, const struct term *t, struct buf *out);

/* What a thread is in, in a few words: "asleep in futex", "runs", "stopped". */
void thread_state_words(const struct snapshot_thread *t, struct buf *out);

#endif
