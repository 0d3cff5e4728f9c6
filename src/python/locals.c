/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/locals.h"

#include <errno.h>

#include "base/buf.h"
#include "python/object_priv.h"

#define MOST_NAME_CHARACTERS 200u

/* co_flags */
#define HAS_VARARGS 0x4u
#define HAS_KEYWORDS 0x8u

/* Bits of co_localspluskinds, 3.11 and later (pycore_code.h). */
#define KIND_HIDDEN 0x10u
#define KIND_CELL 0x40u
#define KIND_FREE 0x80u

/* From 3.14 on the low bits of a slot say how it is counted (pycore_stackref.h). */
#define SLOT_TAGS 3ULL

struct walk {
	struct python *p;
	const struct python_frame *frame;
	bool (*each)(void *ctx, const struct python_local *local);
	void *ctx;
	uint64_t slots;     /* localsplus */
	uint64_t arguments; /* the first so many are */
	struct buf name;
};

/* What a slot refers to; 0: nothing. */
static uint64_t slot_value(const struct walk *w, uint64_t index)
{
	uint64_t value;

	if (!python_read_u64(w->p, w->slots + index * 8, &value))
		return 0;
	if (w->p->minor >= 14)
		value &= ~SLOT_TAGS;
	return python_pointer_ok(value) ? value : 0;
}

static bool read_name(struct walk *w, uint64_t names, uint64_t index)
{
	uint64_t name;

	buf_clear(&w->name);
	return python_read_u64(w->p, names + index * 8, &name) &&
		python_text(w->p, name, MOST_NAME_CHARACTERS, &w->name, NULL) && w->name.len;
}

/* A variable that inner functions use is in a cell. Up to 3.12 the slot of an argument may still hold the
 * argument itself, before the function has begun. */
static uint64_t through_cell(struct python *p, uint64_t value)
{
	uint64_t contents;

	if (!python_is(p, value, "cell"))
		return value;
	return python_read_u64(p, value + p->layout.cell.contents, &contents) && python_pointer_ok(contents)
		? contents
		: 0;
}

/* True: enough. */
static bool give(struct walk *w, uint64_t names, uint64_t name, uint64_t slot, bool cell)
{
	uint64_t value = slot_value(w, slot);
	struct python_local local = {.argument = slot < w->arguments};

	if (!value || !read_name(w, names, name))
		return false;
	local.value = cell ? through_cell(w->p, value) : value;
	local.name = w->name.data;
	/* What comprehensions iterate over is called ".0". */
	return local.value && local.name[0] != '.' && w->each(w->ctx, &local);
}

/* Names of a tuple of the code object, for slots from `slot` on; *ret_count are used up. True: enough. */
static bool give_tuple(struct walk *w, uint32_t field, uint64_t slot, bool cell, uint64_t *ret_count)
{
	uint64_t names, first, count = 0;
	bool enough = false;

	*ret_count = 0;
	if (field == PYTHON_ABSENT || !python_read_u64(w->p, w->frame->code->address + field, &names) ||
		!python_items(w->p, names, &count, &first))
		return false;
	count = count < PYTHON_MOST_LOCALS ? count : PYTHON_MOST_LOCALS;
	for (uint64_t i = 0; i < count && !enough; i++)
		enough = give(w, first, i, slot + i, cell);
	*ret_count = count;
	return enough;
}

/* Up to 3.10: locals, then cells, then free variables. */
static bool old_locals(struct walk *w)
{
	const struct python_layout *l = &w->p->layout;
	uint64_t locals, cells, free;

	return give_tuple(w, l->code.local_names, 0, false, &locals) ||
		give_tuple(w, l->code.cell_names, locals, true, &cells) ||
		give_tuple(w, l->code.free_names, locals + cells, true, &free);
}

/* From 3.11 on all in one, and a byte for each that says what it is. */
static bool new_locals(struct walk *w)
{
	const struct python_layout *l = &w->p->layout;
	uint64_t names, kinds, first, count;
	uint8_t kind;

	if (!python_read_u64(w->p, w->frame->code->address + l->code.local_names, &names) ||
		!python_read_u64(w->p, w->frame->code->address + l->code.local_kinds, &kinds) ||
		!python_items(w->p, names, &count, &first))
		return false;
	for (uint64_t i = 0; i < count && i < PYTHON_MOST_LOCALS; i++) {
		if (!python_read(w->p, kinds + l->bytes.data + i, &kind, 1))
			return false;
		if (!(kind & KIND_HIDDEN) &&
			give(w, first, i, i, (kind & (KIND_CELL | KIND_FREE)) != 0))
			return true;
	}
	return false;
}

bool python_locals_each(struct python *p, const struct python_frame *frame,
	bool (*each)(void *ctx, const struct python_local *local), void *ctx)
{
	const struct python_code *code = frame->code;
	struct walk w = {
		.p = p,
		.frame = frame,
		.each = each,
		.ctx = ctx,
		.slots = frame->at + p->layout.frame.locals,
		.arguments = (uint64_t)code->arguments + code->keyword_only +
			((code->flags & HAS_VARARGS) != 0) + ((code->flags & HAS_KEYWORDS) != 0),
	};
	bool enough = p->minor >= 11 ? new_locals(&w) : old_locals(&w);

	buf_release(&w.name);
	return enough;
}
