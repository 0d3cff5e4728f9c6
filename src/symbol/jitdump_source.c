/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and lines of a jitdump's code, read from the file when they are asked for. */
#include <string.h>

#include "base/cleanup.h"
#include "base/cursor.h"
#include "symbol/jitdump_priv.h"

struct line_entry {
	uint64_t address;
	uint32_t line;
	const char *file; /* kept by the source */
};

struct jitdump_source {
	struct symbol_source base;
	struct jitdump *dump;
	/* Lines of the piece that was asked for last; the next question is mostly about it again. */
	const struct jit_piece *piece;
	VEC(struct line_entry) lines;
};

/* One debug entry: address, line, discriminator, name of the file. A name of one byte 0xff stands for
 * the entry's before. False when it makes no sense. */
static bool read_entry(struct jitdump_source *s, struct cursor *c, const struct jit_piece *piece)
{
	struct line_entry e = {.address = cursor_u64(c) - jitdump_line_shift(s->dump)};

	e.line = cursor_u32(c);
	cursor_skip(c, 4);
	const char *file = cursor_cstr(c);
	if (c->bad || e.address - piece->address > piece->size)
		return false;
	if (!strcmp(file, "\xff"))
		e.file = s->lines.len ? s->lines.data[s->lines.len - 1].file : NULL;
	else if (*file)
		e.file = symbol_keep(&s->base, file);
	return !vec_push(&s->lines, e);
}

/* All of the entries or, when one is broken, none: some versions of V8 write names that were freed. */
static void read_lines(struct jitdump_source *s, const struct jit_piece *piece)
{
	autofree uint8_t *bytes = malloc(piece->lines_bytes + 1u);
	struct cursor c = cursor_over(bytes, piece->lines_bytes);

	s->piece = piece;
	s->lines.len = 0;
	if (!bytes || !jitdump_read(s->dump, piece->lines_offset, bytes, piece->lines_bytes))
		return;
	for (uint32_t i = 0; i < piece->lines_count; i++) {
		if (!read_entry(s, &c, piece)) {
			s->lines.len = 0;
			return;
		}
	}
}

/* The entry with the highest address that is not above: they need not be sorted. */
static const struct line_entry *find_line(
	struct jitdump_source *s, const struct jit_piece *piece, uint64_t address)
{
	const struct line_entry *best = NULL;

	if (piece != s->piece)
		read_lines(s, piece);
	vec_each(&s->lines, e)
		if (e->address <= address && (!best || e->address >= best->address))
			best = e;
	return best;
}

static const char *read_name(struct jitdump_source *s, const struct jit_piece *piece)
{
	autofree char *name = malloc(piece->name_bytes + 1u);

	if (!name || !piece->name_bytes ||
		!jitdump_read(s->dump, piece->offset - 1 - piece->name_bytes, name,
			piece->name_bytes))
		return NULL;
	name[piece->name_bytes] = '\0';

	const char *kept = symbol_keep(&s->base, name);

	return kept ? symbol_shown_name_whole(&s->base, kept) : NULL;
}

static size_t jitdump_resolve(struct symbol_source *base, uint64_t offset,
	struct symbol_level *levels, enum symbol_reason *ret_reason)
{
	struct jitdump_source *s = (struct jitdump_source *)base;
	const struct jit_piece *piece = jitdump_piece_at(s->dump, offset);
	const char *name = piece ? read_name(s, piece) : NULL;

	if (!name) {
		*ret_reason = SYMBOL_NO_SYMBOLS;
		return 0;
	}

	const struct line_entry *line =
		find_line(s, piece, piece->address + (offset - piece->offset));

	levels[0] = (struct symbol_level){
		.name = name,
		.file = line ? line->file : NULL,
		.line = line && line->file ? line->line : 0,
	};
	*ret_reason = SYMBOL_OK;
	return 1;
}

static void jitdump_source_free(struct symbol_source *base)
{
	struct jitdump_source *s = (struct jitdump_source *)base;

	symbol_source_release(base);
	vec_release(&s->lines);
	free(s);
}

int symbol_source_jitdump(struct jitdump *d, struct symbol_source **ret, struct err *err)
{
	static const struct symbol_ops ops = {jitdump_resolve, jitdump_source_free};
	struct jitdump_source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_nomem(err);
	s->base.ops = &ops;
	s->dump = d;
	*ret = &s->base;
	return 0;
}
