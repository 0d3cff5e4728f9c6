/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Types, remembered by address.
 *
 * A type can be freed and something else stand in its place, so after a refresh what was read of the struct is
 * compared once with what stands there. What was handed out stays as it was: another type gets another entry.
 */
#include "python/object_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/intern.h"
#include "base/table.h"
#include "python/python_priv.h"

/* What is read of the struct. */
enum { FIELD_TYPE, FIELD_NAME, FIELD_BASIC, FIELD_ITEM, FIELD_FLAGS, FIELD_DICT_OFFSET, FIELDS };

#define MOST_NAME 256u
#define TYPE_BYTES_MOST 512u
/* Addresses that are no types are remembered as well, up to so many. */
#define MOST_REFUSED 65536u

struct entry {
	struct table_node node; /* by address */
	struct python_type type;
	uint64_t look;          /* when it was last checked */
	uint64_t fields[FIELDS];     /* of the struct as it stands there */
	bool refused;           /* no type stands there */
	bool unfinished;        /* it is being read just now */
	struct entry *earlier;  /* in `gone` */
	bool members_read;
	struct python_member *members;
	size_t member_count;
};

struct types {
	struct table table;
	struct entry *gone;     /* types that are no more; what points to them may be in use */
	struct intern names;
	size_t refused;
};

static void free_entry(struct entry *e)
{
	free(e->members);
	free(e);
}

static void free_types(void *objects)
{
	struct types *types = (struct types *)objects;
	struct table_node *next;

	for (struct table_node *node = table_next(&types->table, NULL); node; node = next) {
		next = table_next(&types->table, node);
		free_entry((struct entry *)node);
	}
	while (types->gone) {
		struct entry *e = types->gone;

		types->gone = e->earlier;
		free_entry(e);
	}
	table_release(&types->table);
	intern_release(&types->names);
	free(types);
}

static struct types *types_of(struct python *p)
{
	if (!p->objects) {
		p->objects = calloc(1, sizeof(struct types));
		p->objects_free = p->objects ? free_types : NULL;
	}
	return (struct types *)p->objects;
}

/* ---- reading one ---- */

static bool read_fields(struct python *p, uint64_t address, uint64_t *ret)
{
	const struct python_layout *l = &p->layout;
	const uint32_t at[] = {
		[FIELD_TYPE] = l->object.type,
		[FIELD_NAME] = l->type.name,
		[FIELD_BASIC] = l->type.basic_bytes,
		[FIELD_ITEM] = l->type.item_bytes,
		[FIELD_FLAGS] = l->type.flags,
		[FIELD_DICT_OFFSET] = l->type.dict_offset,
	};
	uint8_t bytes[TYPE_BYTES_MOST];

	if (l->type.bytes > sizeof(bytes) || !python_read(p, address, bytes, l->type.bytes))
		return false;
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct cursor c = cursor_over(bytes, l->type.bytes);

		cursor_skip(&c, at[i]);
		ret[i] = cursor_u64(&c);
		if (c.bad)
			return false;
	}
	return true;
}

/* A type's own type is derived from `type`, which its flags tell. */
static bool are_of_type(struct python *p, const uint64_t *fields)
{
	uint64_t flags;

	/* Up to 3.9 some types inside the interpreter are never made ready, such as async_generator_asend. */
	return (fields[FIELD_FLAGS] & TYPE_READY || p->minor <= 9) && fields[FIELD_BASIC] < 1u << 24 &&
		fields[FIELD_ITEM] < 1u << 24 &&
		python_read_u64(p, fields[FIELD_TYPE] + p->layout.type.flags, &flags) &&
		flags & TYPE_IS_TYPE;
}

static bool read_name(struct python *p, uint64_t at, char *ret)
{
	/* It ends somewhere before the end of what can be read. */
	for (size_t i = 0; i < MOST_NAME; i++) {
		if (!python_read(p, at + i, ret + i, 1))
			return false;
		if (!ret[i])
			return i > 0;
	}
	ret[MOST_NAME - 1] = 0;
	return true;
}

/* Names come from the target: what is no text becomes something that can be printed. */
static void make_printable(char *name)
{
	for (unsigned char *s = (unsigned char *)name; *s;) {
		size_t n = *s >= 0x20 && *s != 0x7f ? utf8_sequence(s) : 0;

		if (!n)
			*s = '?';
		s += n ? n : 1;
	}
}

static const char *keep(struct types *types, const char *text)
{
	uint32_t id = intern_str(&types->names, text);

	return id == INTERN_NONE ? "" : intern_get(&types->names, id, NULL);
}

/* What a class statement leaves in the class: a str of its dict, or "". */
static const char *of_class(struct python *p, struct types *types, uint64_t address, const char *key)
{
	struct buf text = {0};
	const char *kept = "";
	uint64_t dict, value;
	bool cut;

	if (!python_read_u64(p, address + p->layout.type.dict, &dict))
		return "";
	value = python_dict_get(p, dict, key);
	if (value && python_text(p, value, MOST_NAME, &text, &cut) && text.len && !text.failed) {
		make_printable(text.data);
		kept = keep(types, text.data);
	}
	buf_release(&text);
	return kept;
}

static const char *qualified(struct python *p, struct types *types, uint64_t address)
{
	struct buf text = {0};
	const char *kept = "";
	uint64_t value;
	bool cut;

	if (python_read_u64(p, address + p->layout.heap_type.qualname, &value) &&
		python_text(p, value, MOST_NAME, &text, &cut) && text.len && !text.failed) {
		make_printable(text.data);
		kept = keep(types, text.data);
	}
	buf_release(&text);
	return kept;
}

static void set_full_name(struct python *p, struct types *types, struct python_type *t)
{
	const char *name = t->heap && !strchr(t->name, '.') ? qualified(p, types, t->address) : "";
	struct buf text = {0};

	if (!*name)
		name = t->name;
	if (*t->module && strcmp(t->module, "builtins") != 0)
		buf_printf(&text, "%s.", t->module);
	buf_str(&text, name);
	t->full_name = text.failed ? t->name : keep(types, text.data);
	buf_release(&text);
}

/* Those that are told by their name; what a class statement made may be called the same. */
static const struct {
	const char *name;
	enum python_kind kind;
} kinds[] = {
	{"set", PYTHON_SET},
	{"frozenset", PYTHON_SET},
	{"module", PYTHON_MODULE},
	{"function", PYTHON_FUNCTION},
	{"method", PYTHON_METHOD},
	{"builtin_function_or_method", PYTHON_BUILTIN},
	{"cell", PYTHON_CELL},
	{"generator", PYTHON_GENERATOR},
	{"coroutine", PYTHON_GENERATOR},
	{"async_generator", PYTHON_GENERATOR},
	{"frame", PYTHON_FRAME},
	{"weakref", PYTHON_WEAKREF},
	{"weakproxy", PYTHON_WEAKREF},
	{"weakcallableproxy", PYTHON_WEAKREF},
	{"weakref.ReferenceType", PYTHON_WEAKREF},
	{"weakref.ProxyType", PYTHON_WEAKREF},
	{"weakref.CallableProxyType", PYTHON_WEAKREF},
	{"collections.deque", PYTHON_DEQUE},
};

static enum python_kind kind_of(struct python *p, const struct python_type *t)
{
	static const enum python_kind by_bit[] = {PYTHON_INT, PYTHON_LIST, PYTHON_TUPLE, PYTHON_BYTES,
		PYTHON_STR, PYTHON_DICT, PYTHON_OTHER, PYTHON_TYPE};
	const struct python_type *derived_from;
	uint64_t base;

	for (size_t i = 0; i < sizeof(by_bit) / sizeof(by_bit[0]); i++)
		if (t->flags & TYPE_IS_INT << i)
			return by_bit[i];
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(t->name, kinds[i].name) && (!t->heap || strchr(t->name, '.')))
			return kinds[i].kind;
	if (!python_read_u64(p, t->address + p->layout.type.base, &base) || !base)
		return PYTHON_OTHER;
	derived_from = python_type(p, base);
	return derived_from ? derived_from->kind : PYTHON_OTHER;
}

static bool fill(struct python *p, struct types *types, struct entry *e)
{
	struct python_type *t = &e->type;
	const uint64_t *fields = e->fields;
	char name[MOST_NAME];

	if (!are_of_type(p, fields) || !read_name(p, fields[FIELD_NAME], name))
		return false;
	make_printable(name);
	*t = (struct python_type){
		.address = e->node.key,
		.name = keep(types, name),
		.module = "",
		.basic_bytes = fields[FIELD_BASIC],
		.item_bytes = fields[FIELD_ITEM],
		.flags = fields[FIELD_FLAGS],
		.dict_offset = fields[FIELD_DICT_OFFSET],
		.collected = fields[FIELD_FLAGS] & TYPE_COLLECTED,
		.heap = fields[FIELD_FLAGS] & TYPE_HEAP,
	};
	/* Types that C made say their module in their name. */
	if (t->heap && !strchr(name, '.'))
		t->module = of_class(p, types, t->address, "__module__");
	set_full_name(p, types, t);
	t->kind = kind_of(p, t);
	return *t->name;
}

static struct entry *add(struct python *p, struct types *types, uint64_t address)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->look = p->look;
	/* Its dict is read to name it, and things of this very type may be in there. */
	e->refused = e->unfinished = true;
	if (table_add(&types->table, &e->node, address)) {
		free(e);
		return NULL;
	}
	e->refused = !read_fields(p, address, e->fields) || !fill(p, types, e);
	e->unfinished = false;
	types->refused += e->refused;
	return e;
}

/* Whether an entry of an earlier look is still right. */
static bool still_there(struct python *p, const struct entry *e)
{
	uint64_t now[FIELDS];

	return !e->refused && read_fields(p, e->node.key, now) && !memcmp(now, e->fields, sizeof(now));
}

static void drop(struct types *types, struct entry *e)
{
	table_remove(&types->table, &e->node);
	if (e->refused) {
		types->refused--;
		free_entry(e);
		return;
	}
	e->earlier = types->gone;
	types->gone = e;
}

static void drop_refused(struct types *types)
{
	struct table_node *next;

	for (struct table_node *node = table_next(&types->table, NULL); node; node = next) {
		struct entry *e = (struct entry *)node;

		next = table_next(&types->table, node);
		if (e->refused && !e->unfinished)
			drop(types, e);
	}
}

const struct python_type *python_type(struct python *p, uint64_t address)
{
	struct types *types = types_of(p);
	struct entry *e;

	if (!types || !python_pointer_ok(address))
		return NULL;
	e = (struct entry *)table_find(&types->table, address);
	if (e && e->look != p->look && !e->unfinished) {
		if (still_there(p, e)) {
			e->look = p->look;
		} else {
			drop(types, e);
			e = NULL;
		}
	}
	if (!e) {
		if (types->refused >= MOST_REFUSED)
			drop_refused(types);
		e = add(p, types, address);
	}
	return e && !e->refused ? &e->type : NULL;
}

const struct python_type *python_type_of_object(struct python *p, uint64_t object)
{
	return python_type(p, python_type_of(p, object));
}

bool python_is(struct python *p, uint64_t object, const char *type_name)
{
	const struct python_type *t = python_type_of_object(p, object);

	return t && !strcmp(t->name, type_name);
}

/* ---- members ---- */

/* PyMemberDef (Include/structmember.h): name, int type, offset, int flags, doc. */
#define MEMBER_BYTES 40u
#define MOST_MEMBERS 512u
#define MEMBER_OBJECT 6u
#define MEMBER_OBJECT_OR_ERROR 16u

static void read_members(struct python *p, struct types *types, struct entry *e)
{
	VEC(struct python_member) members = {0};
	uint64_t at;

	e->members_read = true;
	if (!python_read_u64(p, e->node.key + p->layout.type.members, &at) || !python_pointer_ok(at))
		return;
	for (unsigned i = 0; i < MOST_MEMBERS; i++, at += MEMBER_BYTES) {
		uint8_t bytes[MEMBER_BYTES];
		struct cursor c = cursor_over(bytes, sizeof(bytes));
		struct python_member m;
		char name[MOST_NAME];
		uint64_t name_at;
		uint32_t kind;

		if (!python_read(p, at, bytes, sizeof(bytes)))
			break;
		name_at = cursor_u64(&c);
		kind = cursor_u32(&c);
		cursor_skip(&c, 4);
		m.offset = cursor_u64(&c);
		if (!name_at || !read_name(p, name_at, name))
			break;
		if ((kind != MEMBER_OBJECT && kind != MEMBER_OBJECT_OR_ERROR) || m.offset & 7)
			continue;
		make_printable(name);
		m.name = keep(types, name);
		if (vec_push(&members, m))
			break;
	}
	e->members = members.data;
	e->member_count = members.len;
}

const struct python_member *python_type_members(
	struct python *p, const struct python_type *t, size_t *ret_count)
{
	struct entry *e = (struct entry *)((char *)(uintptr_t)t - offsetof(struct entry, type));

	if (!e->members_read)
		read_members(p, types_of(p), e);
	*ret_count = e->member_count;
	return e->members;
}
