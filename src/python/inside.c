/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/inside.h"

#include <string.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "python/code.h"
#include "python/object_priv.h"
#include "python/text.h"

#define MOST_SLOTS 4096u
#define MOST_TABLE_BYTES (1u << 20)
#define MOST_HANDLERS 64u   /* around one instruction */
#define MOST_BLOCKS 20u     /* CO_MAXBLOCKS */
#define MOST_NAME 64u

/* From 3.14 on the low bits of a slot say how it is counted (pycore_stackref.h). */
#define SLOT_TAGS 3ULL

/* ---- exception tables ---- */

/* Six bits a byte, the most significant first; bit 6: there is more. Bit 7 marks the first of an entry. */
static uint32_t varint(struct cursor *c)
{
	uint32_t value = 0;
	uint8_t byte;

	for (unsigned i = 0; i < 6; i++) {
		byte = cursor_u8(c);
		value = value << 6 | (byte & 0x3f);
		if (!(byte & 0x40))
			return value;
	}
	c->bad = true;
	return 0;
}

/* Units of two bytes, in the table. */
static bool to_bytes(uint32_t start, uint32_t count, uint32_t target, struct python_handler *ret)
{
	uint32_t end;

	if (__builtin_add_overflow(start, count, &end) || end > INT32_MAX / 2 || target > INT32_MAX / 2)
		return false;
	ret->start = start * 2;
	ret->end = end * 2;
	ret->target = target * 2;
	return true;
}

bool python_handler_find(const uint8_t *table, size_t len, uint32_t offset, struct python_handler *ret)
{
	struct cursor c = cursor_over(table, len);

	while (cursor_left(&c)) {
		uint32_t start = varint(&c), count = varint(&c), target = varint(&c), depth = varint(&c);
		struct python_handler h = {.depth = depth >> 1};

		if (c.bad || !to_bytes(start, count, target, &h))
			return false;
		if (offset >= h.start && offset < h.end) {
			*ret = h;
			return true;
		}
	}
	return false;
}

/* ---- bytecode, up to 3.10 ---- */

#define SETUP_WITH 143
#define SETUP_ASYNC_WITH 154
#define EXTENDED_ARG 144

bool python_setup_with_find(const uint8_t *bytecode, size_t len, unsigned units, uint32_t target,
	uint32_t *ret_offset)
{
	uint32_t argument = 0;

	for (size_t i = 0; i + 2 <= len; i += 2) {
		argument = argument << 8 | bytecode[i + 1];
		if (bytecode[i] == EXTENDED_ARG)
			continue;
		if ((bytecode[i] == SETUP_WITH || bytecode[i] == SETUP_ASYNC_WITH) &&
			i + 2 + (uint64_t)argument * units == target) {
			*ret_offset = (uint32_t)i;
			return true;
		}
		argument = 0;
	}
	return false;
}

/* ---- the value stack ---- */

/* One frame. */
struct walk {
	struct python *p;
	const struct python_frame *frame;
	uint64_t stack;      /* its first slot */
	struct buf table;    /* co_exceptiontable, or up to 3.10 co_code */
	struct python_inside *ret;
	size_t count, limit;
};

static uint64_t slot_at(struct python *p, uint64_t at)
{
	uint64_t value;

	if (!python_read_u64(p, at, &value))
		return 0;
	if (p->minor >= 14)
		value &= ~SLOT_TAGS;
	return python_pointer_ok(value) ? value : 0;
}

static bool read_i32(struct python *p, uint64_t at, int32_t *ret)
{
	uint32_t word;

	if (!python_read_u32(p, at, &word))
		return false;
	*ret = (int32_t)word;
	return true;
}

static bool find_stack(struct python *p, const struct python_frame *frame, uint64_t *ret)
{
	const struct python_layout *l = &p->layout;
	int32_t locals;

	if (p->minor <= 10)
		return python_read_u64(p, frame->at + l->frame.value_stack, ret) && python_pointer_ok(*ret);
	if (!read_i32(p, frame->code->address + l->code.local_count, &locals) || locals < 0 ||
		locals > (int32_t)MOST_SLOTS)
		return false;
	*ret = frame->at + l->frame.locals + (uint64_t)locals * 8;
	return true;
}

static bool is_exit_name(const char *name)
{
	return !strcmp(name, "__exit__") || !strcmp(name, "__aexit__");
}

/* Of a def: its qualified name ends in it. */
static bool is_exit_str(struct python *p, uint64_t str)
{
	struct buf text = {0};
	const char *dot;
	bool is = false;

	if (python_str(p, str, MOST_NAME * 4, &text, NULL) && !text.failed && text.data) {
		dot = strrchr(text.data, '.');
		is = is_exit_name(dot ? dot + 1 : text.data);
	}
	buf_release(&text);
	return is;
}

/* A C string. */
static bool is_exit_text(struct python *p, uint64_t at)
{
	char name[10] = "";

	return (python_read(p, at, name, sizeof(name)) || python_read(p, at, name, 9)) &&
		memchr(name, 0, sizeof(name)) && is_exit_name(name);
}

static bool is_exit_builtin(struct python *p, uint64_t object)
{
	uint64_t definition, name;

	return python_is(p, object, "builtin_function_or_method") &&
		python_read_u64(p, object + p->layout.builtin.definition, &definition) &&
		python_read_u64(p, definition, &name) && is_exit_text(p, name);
}

static bool is_exit_function(struct python *p, uint64_t object)
{
	uint64_t name;

	return python_is(p, object, "function") &&
		python_read_u64(p, object + p->layout.function.qualname, &name) && is_exit_str(p, name);
}

static bool is_exit_descriptor(struct python *p, uint64_t object)
{
	uint64_t name;

	return python_is(p, object, "method_descriptor") &&
		python_read_u64(p, object + p->layout.descriptor.name, &name) && is_exit_str(p, name);
}

uint64_t python_method_self(struct python *p, uint64_t object)
{
	uint64_t self = 0;

	if (python_is(p, object, "builtin_function_or_method"))
		python_read_u64(p, object + p->layout.builtin.self, &self);
	else if (python_is(p, object, "method"))
		python_read_u64(p, object + p->layout.method.self, &self);
	return python_pointer_ok(self) ? self : 0;
}

/* What is to be left by what a slot holds: a bound __exit__, or (3.14) an unbound one with the object in
 * the slot above it. 0: it is no such thing. */
static uint64_t exit_of(struct walk *w, uint64_t slot, uint64_t depth)
{
	struct python *p = w->p;
	uint64_t object = slot_at(p, w->stack + slot * 8), function;

	if (!object)
		return 0;
	if (is_exit_builtin(p, object))
		return python_method_self(p, object);
	if (python_is(p, object, "method"))
		return python_read_u64(p, object + p->layout.method.function, &function) &&
				is_exit_function(p, function)
			? python_method_self(p, object)
			: 0;
	if (p->minor < 14 || slot + 1 >= depth || (!is_exit_function(p, object) && !is_exit_descriptor(p, object)))
		return 0;
	return slot_at(p, w->stack + (slot + 1) * 8);
}

static void add(struct walk *w, uint64_t object, uint32_t line)
{
	if (w->count < w->limit)
		w->ret[w->count++] = (struct python_inside){object, line};
}

static uint32_t line_of(const struct walk *w, uint32_t offset)
{
	return offset <= INT32_MAX ? python_code_position(w->frame->code, (int32_t)offset).line : 0;
}

/* ---- from 3.11 on ---- */

/* The handlers around an instruction, innermost first: each is run where the one before it raises. How many. */
static size_t handlers_around(const struct walk *w, uint32_t offset, struct python_handler *ret)
{
	size_t count = 0;

	while (count < MOST_HANDLERS &&
		python_handler_find((const uint8_t *)w->table.data, w->table.len, offset, &ret[count]))
		offset = ret[count++].target;
	return count;
}

/* Of all handlers that keep as much as the statement's __exit__ and no more, its own is the outermost; that is of
 * the statement's line. */
static uint32_t line_of_with(const struct walk *w, const struct python_handler *handlers, size_t count,
	uint64_t depth)
{
	for (size_t i = count; i-- > 0;)
		if (handlers[i].depth == depth)
			return line_of(w, handlers[i].target);
	return 0;
}

static void find_by_table(struct walk *w)
{
	struct python_handler handlers[MOST_HANDLERS];
	size_t count;

	if (w->frame->offset < 0)
		return;
	count = handlers_around(w, (uint32_t)w->frame->offset, handlers);
	if (!count || handlers[0].depth > MOST_SLOTS)
		return;
	for (uint64_t slot = handlers[0].depth; slot-- > 0;) {
		uint64_t object = exit_of(w, slot, handlers[0].depth);
		uint64_t depth = slot + (w->p->minor >= 14 ? 2 : 1);

		if (object)
			add(w, object, line_of_with(w, handlers, count, depth));
	}
}

/* ---- up to 3.10 ---- */

struct block {
	int32_t type, handler, level;
};

static void find_by_block(struct walk *w, const struct block *b)
{
	unsigned units = w->p->minor == 10 ? 2 : 1;
	uint64_t target = (uint64_t)(uint32_t)b->handler * units, object;
	uint32_t offset;

	if (b->level < 1 || b->level > (int32_t)MOST_SLOTS || b->handler < 0 || target > INT32_MAX ||
		!python_setup_with_find((const uint8_t *)w->table.data, w->table.len, units, (uint32_t)target,
			&offset))
		return;
	object = exit_of(w, (uint64_t)b->level - 1, (uint64_t)b->level);
	if (object)
		add(w, object, line_of(w, offset));
}

static void find_by_blocks(struct walk *w)
{
	const struct python_layout *l = &w->p->layout;
	struct block blocks[MOST_BLOCKS];
	int32_t count;

	if (!read_i32(w->p, w->frame->at + l->frame.block_count, &count) || count < 0 ||
		count > (int32_t)MOST_BLOCKS ||
		!python_read(w->p, w->frame->at + l->frame.blocks, blocks, sizeof(blocks)))
		return;
	while (count-- > 0)
		find_by_block(w, &blocks[count]);
}

size_t python_inside(struct python *p, const struct python_frame *frame, struct python_inside *ret, size_t limit)
{
	struct walk w = {.p = p, .frame = frame, .ret = ret, .limit = limit};
	uint32_t field = p->minor <= 10 ? p->layout.code.code : p->layout.code.exceptions;
	uint64_t bytes;

	if (!find_stack(p, frame, &w.stack) || !python_read_u64(p, frame->code->address + field, &bytes) ||
		!python_bytes(p, bytes, MOST_TABLE_BYTES, &w.table) || w.table.failed || !w.table.len)
		goto out;
	if (p->minor <= 10)
		find_by_blocks(&w);
	else
		find_by_table(&w);
out:
	buf_release(&w.table);
	return w.count;
}

/* ---- all slots ---- */

bool python_slots_each(struct python *p, const struct python_frame *frame,
	bool (*each)(void *ctx, uint64_t object), void *ctx)
{
	uint64_t first = frame->at + p->layout.frame.locals, end, object;
	int32_t slots;

	if (!find_stack(p, frame, &end) || end < first ||
		!read_i32(p, frame->code->address + p->layout.code.stack_slots, &slots) || slots < 0 ||
		slots > (int32_t)MOST_SLOTS || end - first > MOST_SLOTS * 8)
		return false;
	/* What is called, and on what, is on top: from there down. */
	for (uint64_t at = end + (uint64_t)slots * 8; at > first; at -= 8) {
		object = slot_at(p, at - 8);
		if (object && each(ctx, object))
			return true;
	}
	return false;
}

bool python_generator_frame(struct python *p, uint64_t generator, struct python_frame *ret)
{
	struct python_link link;
	struct python_chain chain = {.links = &link, .limit = 1};
	struct python_frames frames = {0};
	uint64_t at = generator + p->layout.generator.frame;
	bool found;

	if (!python_is(p, generator, "generator") && !python_is(p, generator, "coroutine") &&
		!python_is(p, generator, "async_generator"))
		return false;
	if (p->minor <= 10 && (!python_read_u64(p, at, &at) || !at))
		return false;
	python_chain_read_from(p, at, &chain);
	found = !python_frames(p, &chain, &frames) && frames.len == 1;
	if (found)
		*ret = frames.data[0];
	vec_release(&frames);
	return found;
}
