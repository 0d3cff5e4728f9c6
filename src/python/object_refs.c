/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/object_refs.h"

#include <inttypes.h>
#include <string.h>

#include "python/object_priv.h"

#define MOST_BODY_BYTES (1u << 20)
#define WORDS_AT_ONCE 64u

#define DEQUE_ITEMS 64u
#define DEQUE_MOST_BLOCKS (1u << 20)
/* Behind ob_size; a block is: left one, items, right one (Modules/_collectionsmodule.c, the same from 3.8 on). */
#define DEQUE_LEFT_BLOCK 0u
#define DEQUE_LEFT_INDEX 16u

struct refs {
	struct python *p;
	struct marks *known;
	python_ref_fn *each;
	void *ctx;
	uint64_t object;
	const struct python_type *type;
	enum python_ref_kind kind; /* of pairs */
	bool once;                 /* what is there twice to be read well is told once */
};

static bool tell(const struct refs *r, const struct python_ref *ref)
{
	return python_pointer_ok(ref->to) && r->each(r->ctx, ref);
}

static bool tell_field(const struct refs *r, uint32_t offset, const char *name)
{
	struct python_ref ref = {.kind = PYTHON_REF_FIELD, .name = name};

	return offset != PYTHON_ABSENT && python_read_u64(r->p, r->object + offset, &ref.to) && tell(r, &ref);
}

/* ---- containers ---- */

static bool tell_items(const struct refs *r)
{
	struct python_ref ref = {.kind = PYTHON_REF_ITEM};
	uint64_t items[WORDS_AT_ONCE], count, first;

	if (!python_items(r->p, r->object, &count, &first))
		return false;
	for (uint64_t i = 0; i < count; i += WORDS_AT_ONCE) {
		uint64_t n = count - i < WORDS_AT_ONCE ? count - i : WORDS_AT_ONCE;

		if (!python_read(r->p, first + i * 8, items, n * 8))
			return false;
		for (uint64_t k = 0; k < n; k++) {
			ref.to = items[k];
			ref.index = i + k;
			if (tell(r, &ref))
				return true;
		}
	}
	return false;
}

static bool tell_pair(void *ctx, uint64_t key, uint64_t value)
{
	const struct refs *r = (const struct refs *)ctx;
	struct python_ref ref = {.to = value, .kind = r->kind, .key = key};

	if (tell(r, &ref))
		return true;
	ref = (struct python_ref){.to = key, .kind = PYTHON_REF_KEY};
	return tell(r, &ref);
}

static bool tell_set(const struct refs *r)
{
	struct python_ref ref = {.kind = PYTHON_REF_KEY};
	struct python_set_walk walk;

	if (!python_set_begin(r->p, r->object, &walk))
		return false;
	while (python_set_next(r->p, &walk, &ref.to))
		if (tell(r, &ref))
			return true;
	return false;
}

static bool tell_deque(const struct refs *r)
{
	uint64_t fields = r->object + r->p->layout.var_object.size + 8, count, block, at;
	uint64_t items[DEQUE_ITEMS + 2];
	struct python_ref ref = {.kind = PYTHON_REF_ITEM};

	if (!python_read_u64(r->p, r->object + r->p->layout.var_object.size, &count) ||
		!python_read_u64(r->p, fields + DEQUE_LEFT_BLOCK, &block) ||
		!python_read_u64(r->p, fields + DEQUE_LEFT_INDEX, &at))
		return false;
	for (unsigned blocks = 0; count && blocks < DEQUE_MOST_BLOCKS; blocks++) {
		if (!python_pointer_ok(block) || !python_read(r->p, block, items, sizeof(items)))
			return false;
		for (; count && at < DEQUE_ITEMS; at++, count--, ref.index++) {
			ref.to = items[1 + at];
			if (tell(r, &ref))
				return true;
		}
		block = items[DEQUE_ITEMS + 1];
		at = 0;
	}
	return false;
}

/* ---- attributes, slots, fields ---- */

static bool tell_attributes(struct refs *r)
{
	struct python_ref ref = {.kind = PYTHON_REF_FIELD, .name = "__dict__"};
	uint64_t values;

	r->kind = PYTHON_REF_ATTRIBUTE;
	ref.to = python_instance_dict(r->p, r->object, &values);
	if (!(r->once && ref.to) && python_attributes_each(r->p, r->object, tell_pair, r))
		return true;
	/* The dict itself as well: it is an object, when it is there. */
	return tell(r, &ref);
}

static const char *name_of_member(
	const struct python_member *members, size_t count, uint64_t offset)
{
	for (size_t i = 0; i < count; i++)
		if (members[i].offset == offset)
			return members[i].name;
	return NULL;
}

static bool tell_members(const struct refs *r)
{
	const struct python_type *t = r->type;

	/* __slots__, and fields that a type in C shows. */
	for (unsigned depth = 0; t && depth < 64; depth++) {
		size_t count;
		const struct python_member *members = python_type_members(r->p, t, &count);
		uint64_t base;

		for (size_t i = 0; i < count; i++)
			if (members[i].offset < r->type->basic_bytes &&
				tell_field(r, (uint32_t)members[i].offset, members[i].name))
				return true;
		if (!python_read_u64(r->p, t->address + r->p->layout.type.base, &base))
			return false;
		t = base ? python_type(r->p, base) : NULL;
	}
	return false;
}

/* Where the weak references to the object are, and its dict: neither is a reference of its fields. */
static bool is_left_out(const struct refs *r, uint64_t offset)
{
	uint64_t weak;

	if (offset == r->type->dict_offset)
		return true;
	return python_read_u64(r->p, r->type->address + r->p->layout.type.weak_offset, &weak) &&
		weak == offset;
}

struct words {
	const struct refs *r;
	const struct python_member *members;
	size_t member_count;
};

/* The header has the type, which is told apart. */
static bool tell_word(void *ctx, const struct python_ref *word)
{
	const struct words *w = (const struct words *)ctx;
	const char *name = name_of_member(w->members, w->member_count, word->index);
	struct python_ref ref = *word;

	if (word->index < w->r->p->layout.object.bytes || is_left_out(w->r, word->index))
		return false;
	if (name) {
		ref.kind = PYTHON_REF_FIELD;
		ref.name = name;
	}
	return tell(w->r, &ref);
}

struct marks python_any_object;

static bool is_known(struct python *p, struct marks *known, uint64_t word)
{
	if (!python_pointer_ok(word))
		return false;
	return known == &python_any_object ? python_type_of_object(p, word) != NULL : marks_have(known, word);
}

bool python_words_each(struct python *p, uint64_t from, uint64_t to, struct marks *known,
	python_ref_fn *each, void *ctx)
{
	struct python_ref ref = {.kind = PYTHON_REF_WORD};
	uint64_t words[WORDS_AT_ONCE];

	if (!known || to < from || to - from > MOST_BODY_BYTES)
		return false;
	for (uint64_t at = from; at + 8 <= to; at += sizeof(words)) {
		uint64_t n = (to - at) / 8 < WORDS_AT_ONCE ? (to - at) / 8 : WORDS_AT_ONCE;

		if (!python_read(p, at, words, n * 8))
			return false;
		for (uint64_t k = 0; k < n; k++) {
			ref.to = words[k];
			ref.index = at - from + k * 8;
			if (is_known(p, known, ref.to) && each(ctx, &ref))
				return true;
		}
	}
	return false;
}

/* What a C struct holds, by trying each word. Offsets count from the start of the object. */
static bool tell_words(const struct refs *r)
{
	struct words w = {.r = r};
	uint64_t bytes = r->type->basic_bytes, count;

	w.members = python_type_members(r->p, r->type, &w.member_count);
	if (r->type->item_bytes == 8 &&
		python_read_u64(r->p, r->object + r->p->layout.var_object.size, &count) &&
		count < MOST_BODY_BYTES / 8)
		bytes += count * 8;
	return r->known && python_words_each(r->p, r->object, r->object + bytes, r->known, tell_word, &w);
}

/* ---- frames ---- */

static uint64_t tuple_count(struct python *p, uint64_t code, uint32_t offset)
{
	uint64_t tuple, count, first;

	return offset != PYTHON_ABSENT && python_read_u64(p, code + offset, &tuple) &&
			python_items(p, tuple, &count, &first)
		? count
		: 0;
}

static uint64_t code_of(struct python *p, uint64_t frame)
{
	uint64_t code;

	if (!python_read_u64(p, frame + p->layout.frame.code, &code))
		return 0;
	code &= ~7ULL;
	return python_is(p, code, "code") ? code : 0;
}

/* Local variables, cells and free ones; up to 3.10 they have three tuples of names, after that one. */
static uint64_t name_of_local(struct python *p, uint64_t code, uint64_t index)
{
	const uint32_t tuples[] = {p->layout.code.local_names, p->layout.code.cell_names,
		p->layout.code.free_names};

	for (size_t i = 0; i < sizeof(tuples) / sizeof(tuples[0]); i++) {
		uint64_t tuple, count, first, name;

		if (tuples[i] == PYTHON_ABSENT || !python_read_u64(p, code + tuples[i], &tuple) ||
			!python_items(p, tuple, &count, &first))
			return 0;
		if (index < count)
			return python_read_u64(p, first + index * 8, &name) ? name : 0;
		index -= count;
	}
	return 0;
}

/* How many values are on the stack; 0 while the frame runs: it is not written down then. */
static uint64_t stack_depth(struct python *p, uint64_t frame, uint64_t locals, uint64_t local_count)
{
	const struct python_layout *l = &p->layout;
	uint64_t top, bottom;
	uint32_t depth;

	if (l->frame.value_stack != PYTHON_ABSENT && p->minor <= 9) {
		if (!python_read_u64(p, frame + l->frame.stack_top, &top) ||
			!python_read_u64(p, frame + l->frame.value_stack, &bottom) || top < bottom)
			return 0;
		return (top - bottom) / 8;
	}
	if (p->minor >= 14) {
		if (!python_read_u64(p, frame + l->frame.stack_top, &top) || top < locals + local_count * 8)
			return 0;
		return (top - locals) / 8 - local_count;
	}
	if (!python_read_u32(p, frame + l->frame.stack_top, &depth) || (int32_t)depth < 0)
		return 0;
	/* 3.10 counts from the bottom of the stack, later ones from the first local variable. */
	return p->minor == 10 ? depth : depth > local_count ? depth - local_count : 0;
}

bool python_frame_refs_each(struct python *p, uint64_t frame, python_ref_fn *each, void *ctx)
{
	const struct python_layout *l = &p->layout;
	uint64_t code = code_of(p, frame), locals = frame + l->frame.locals, depth, value;
	uint32_t count;

	if (!code || !python_read_u32(p, code + l->code.local_count, &count))
		return false;
	count += (uint32_t)(tuple_count(p, code, l->code.cell_names) + tuple_count(p, code, l->code.free_names));
	if (count > MOST_BODY_BYTES / 8)
		return false;
	for (uint64_t i = 0; i < count; i++) {
		struct python_ref ref = {.kind = PYTHON_REF_LOCAL, .index = i};

		/* 3.14 has tags in the lowest bits. */
		if (!python_read_u64(p, locals + i * 8, &value))
			return false;
		ref.to = value & ~7ULL;
		if (!python_pointer_ok(ref.to))
			continue;
		ref.key = name_of_local(p, code, i);
		if (each(ctx, &ref))
			return true;
	}
	depth = stack_depth(p, frame, locals, count);
	for (uint64_t i = 0; i < depth && i < MOST_BODY_BYTES / 8; i++) {
		struct python_ref ref = {.kind = PYTHON_REF_STACK, .index = i};

		if (!python_read_u64(p, locals + (count + i) * 8, &value))
			return false;
		ref.to = value & ~7ULL;
		if (python_pointer_ok(ref.to) && each(ctx, &ref))
			return true;
	}
	return false;
}

/* A frame object, or what has a frame in it: a generator. */
static bool tell_frame(const struct refs *r)
{
	const struct python_layout *l = &r->p->layout;
	uint64_t frame = r->object;

	if (r->type->kind == PYTHON_GENERATOR) {
		/* Up to 3.10 it is an object of its own. */
		if (r->p->minor <= 10)
			return tell_field(r, l->generator.frame, "gi_frame");
		frame += l->generator.frame;
	} else if (l->frame_object.frame != PYTHON_ABSENT &&
		!python_read_u64(r->p, r->object + l->frame_object.frame, &frame)) {
		return false;
	}
	return python_frame_refs_each(r->p, frame, r->each, r->ctx);
}

/* ---- by kind ---- */

static bool tell_class(const struct refs *r)
{
	const struct python_layout *l = &r->p->layout;
	struct refs in_dict = *r;
	uint64_t dict;

	in_dict.kind = PYTHON_REF_ATTRIBUTE;
	if (!r->once && python_read_u64(r->p, r->object + l->type.dict, &dict) && python_pointer_ok(dict) &&
		python_dict_each(r->p, dict, tell_pair, &in_dict))
		return true;
	return tell_field(r, l->type.dict, "__dict__") || tell_field(r, l->type.base, "__base__") ||
		tell_field(r, l->type.bases, "__bases__") || tell_field(r, l->type.mro, "__mro__");
}

static bool tell_function(const struct refs *r)
{
	const struct python_layout *l = &r->p->layout;

	return tell_field(r, l->function.closure, "__closure__") ||
		tell_field(r, l->function.defaults, "__defaults__") ||
		tell_field(r, l->function.kwdefaults, "__kwdefaults__") ||
		tell_field(r, l->function.code, "__code__") ||
		tell_field(r, l->function.globals, "__globals__");
}

static bool tell_own(struct refs *r)
{
	const struct python_layout *l = &r->p->layout;

	switch (r->type->kind) {
	case PYTHON_TUPLE:
	case PYTHON_LIST:
		return tell_items(r);
	case PYTHON_DICT:
		r->kind = PYTHON_REF_VALUE;
		return python_dict_each(r->p, r->object, tell_pair, r);
	case PYTHON_SET:
		return tell_set(r);
	case PYTHON_DEQUE:
		return tell_deque(r);
	case PYTHON_TYPE:
		return tell_class(r);
	case PYTHON_FUNCTION:
		return tell_function(r);
	case PYTHON_CELL:
		return tell_field(r, l->cell.contents, "cell_contents");
	case PYTHON_METHOD:
		return tell_field(r, l->method.self, "__self__") ||
			tell_field(r, l->method.function, "__func__");
	case PYTHON_BUILTIN:
		return tell_field(r, l->builtin.self, "__self__");
	case PYTHON_FRAME:
	case PYTHON_GENERATOR:
		return tell_frame(r);
	case PYTHON_WEAKREF:
		/* The object itself is what it does not keep. */
		return tell_field(r, l->weakref.callback, "__callback__");
	default:
		return false;
	}
}

/* Whether the rest of the struct is looked at word by word. */
static bool has_words(enum python_kind kind)
{
	switch (kind) {
	case PYTHON_OTHER:
	case PYTHON_MODULE:
	case PYTHON_FUNCTION:
	case PYTHON_METHOD:
	case PYTHON_BUILTIN:
	case PYTHON_DEQUE:
		return true;
	default:
		return false;
	}
}

/* Fields that are words as well are told by their names first. */
static bool tell_fields(struct refs *r)
{
	bool words = has_words(r->type->kind);

	if (!(r->once && words && r->type->kind != PYTHON_DEQUE) && tell_own(r))
		return true;
	if (!(r->once && words) && r->type->kind != PYTHON_TYPE && tell_members(r))
		return true;
	return words && tell_words(r);
}

static bool tell_all(struct refs *r)
{
	struct python_ref type = {.kind = PYTHON_REF_FIELD, .name = "__class__"};

	r->type = python_type_of_object(r->p, r->object);
	if (!r->type)
		return false;
	if (r->type->kind != PYTHON_TYPE && tell_attributes(r))
		return true;
	if (tell_fields(r))
		return true;
	type.to = r->type->address;
	return r->type->heap && tell(r, &type);
}

bool python_refs_each(
	struct python *p, uint64_t object, struct marks *known, python_ref_fn *each, void *ctx)
{
	struct refs r = {.p = p, .known = known, .each = each, .ctx = ctx, .object = object};

	return tell_all(&r);
}

bool python_refs_count_each(
	struct python *p, uint64_t object, struct marks *known, python_ref_fn *each, void *ctx)
{
	struct refs r = {
		.p = p, .known = known, .each = each, .ctx = ctx, .object = object, .once = true};

	return tell_all(&r);
}

void python_ref_show(struct python *p, const struct python_ref *ref, struct buf *ret)
{
	switch (ref->kind) {
	case PYTHON_REF_ITEM:
		buf_printf(ret, "[%" PRIu64 "]", ref->index);
		break;
	case PYTHON_REF_KEY:
		buf_str(ret, "{key}");
		break;
	case PYTHON_REF_VALUE:
		buf_char(ret, '[');
		python_show(p, ref->key, 60, 1, ret);
		buf_char(ret, ']');
		break;
	case PYTHON_REF_ATTRIBUTE:
	case PYTHON_REF_LOCAL:
		buf_str(ret, ref->kind == PYTHON_REF_ATTRIBUTE ? "." : "");
		if (!ref->key || !python_text(p, ref->key, 100, ret, NULL))
			buf_str(ret, "?");
		break;
	case PYTHON_REF_FIELD:
		buf_printf(ret, ".%s", ref->name);
		break;
	case PYTHON_REF_WORD:
		buf_printf(ret, "+%" PRIu64, ref->index);
		break;
	case PYTHON_REF_STACK:
		buf_str(ret, "in an expression");
		break;
	}
}
