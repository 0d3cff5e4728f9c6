/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/code.h"

#include "base/hash.h"
#include "python/python_priv.h"
#include "python/text.h"

#define MOST_NAME 4096            /* characters of a name or a path */
#define MOST_TABLE ((size_t)8 << 20) /* bytes of a line table */
#define MOST_CODE_BYTES 512       /* of the struct */
#define MOST_BYTECODE (1u << 29)

/* What makes a code object the one it is. All of it stays the same as long as it lives. */
struct identity {
	uint64_t file, name, qualname, line_table, local_names, size;
	uint32_t first_line, flags, arguments, keyword_only, local_count;
	uint32_t padding;
};

struct code_entry {
	struct table_node node; /* key: its address */
	struct table_node again; /* key: its address and all that it says */
	struct python_code code;
	struct identity identity;
	uint64_t look; /* when it was last compared */
	struct python_ranges ranges;
	uint32_t bytecode_bytes;
	char *text;    /* name and file */
	size_t text_bytes;
	struct code_entry *next; /* of all that were ever made */
};

struct python_codes {
	struct table by_address; /* what stands there now, as far as it is known */
	struct table ever;
	struct code_entry *all;
	uint32_t serials;
};

static uint64_t word(const uint8_t *raw, uint32_t offset)
{
	uint64_t v = 0;

	if (offset <= MOST_CODE_BYTES - sizeof(v))
		memcpy(&v, raw + offset, sizeof(v));
	return v;
}

static uint32_t half_word(const uint8_t *raw, uint32_t offset)
{
	uint32_t v = 0;

	if (offset <= MOST_CODE_BYTES - sizeof(v))
		memcpy(&v, raw + offset, sizeof(v));
	return v;
}

/* PyCode_Type is known by its name and by the size of its instances, which is another one in nearly each version. */
static bool is_code_type(struct python *p, uint64_t type)
{
	uint64_t name, basic_bytes;
	char text[5];

	return python_pointer_ok(type) && python_read_u64(p, type + p->layout.type.name, &name) &&
		python_read_u64(p, type + p->layout.type.basic_bytes, &basic_bytes) &&
		basic_bytes == p->layout.code.bytes && python_read(p, name, text, sizeof(text)) &&
		!memcmp(text, "code", 5);
}

/* Whether a code object stands there, and its words. */
static bool read_identity(struct python *p, uint64_t address, struct identity *ret)
{
	const struct python_layout *l = &p->layout;
	uint8_t raw[MOST_CODE_BYTES] = {0};
	uint64_t type;

	if (!python_pointer_ok(address) || l->code.bytes > sizeof(raw) ||
		!python_read(p, address, raw, l->code.bytes))
		return false;
	type = word(raw, l->object.type);
	if (type != p->code_type || !type) {
		if (p->code_type || !is_code_type(p, type))
			return false;
		p->code_type = type;
	}
	*ret = (struct identity){
		.file = word(raw, l->code.file),
		.name = word(raw, l->code.name),
		.qualname = word(raw, l->code.qualname),
		.line_table = word(raw, l->code.line_table),
		.local_names = word(raw, l->code.local_names),
		.size = l->code.bytecode != PYTHON_ABSENT ? word(raw, l->var_object.size) :
							    word(raw, l->code.code),
		.first_line = half_word(raw, l->code.first_line),
		.flags = half_word(raw, l->code.flags),
		.arguments = half_word(raw, l->code.arguments),
		.keyword_only = half_word(raw, l->code.keyword_only),
		.local_count = half_word(raw, l->code.local_count),
	};
	return true;
}

static enum python_line_form form_of(const struct python *p)
{
	return p->minor >= 11 ? PYTHON_LOCATIONS : p->minor == 10 ? PYTHON_LINETABLE : PYTHON_LNOTAB;
}

static int read_ranges(struct python *p, struct code_entry *e)
{
	struct buf table = {0};
	int err = 0;

	if (python_bytes(p, e->identity.line_table, MOST_TABLE, &table))
		err = python_ranges_decode(form_of(p), (const uint8_t *)table.data, table.len,
			e->identity.first_line, &e->ranges);
	if (table.failed)
		err = -ENOMEM;
	buf_release(&table);
	return err;
}

/* Bytes up to the first NUL: these become C strings. */
static void close_text(struct buf *text, size_t from)
{
	const char *nul;

	if (text->failed)
		return;
	nul = text->len > from ? (const char *)memchr(text->data + from, 0, text->len - from) : NULL;
	if (nul)
		text->len = (size_t)(nul - text->data);
	buf_char(text, 0);
}

static int read_names(struct python *p, struct code_entry *e)
{
	struct buf text = {0};
	size_t file_at;

	if (!python_str(p, p->minor >= 11 ? e->identity.qualname : e->identity.name, MOST_NAME, &text,
		    NULL))
		(void)python_str(p, e->identity.name, MOST_NAME, &text, NULL);
	close_text(&text, 0);
	file_at = text.len;
	(void)python_str(p, e->identity.file, MOST_NAME, &text, NULL);
	close_text(&text, file_at);
	if (text.failed) {
		buf_release(&text);
		return -ENOMEM;
	}
	e->text = text.data;
	e->text_bytes = text.len;
	e->code.name = e->text;
	e->code.file = e->text + file_at;
	return 0;
}

static void entry_free(struct code_entry *e)
{
	free(e->text);
	vec_release(&e->ranges);
	free(e);
}

static int fill_entry(struct python *p, struct code_entry *e)
{
	const struct identity *id = &e->identity;
	int err = read_names(p, e);

	if (err)
		return err;
	e->code.first_line = id->first_line;
	e->code.flags = id->flags;
	e->code.arguments = (uint16_t)(id->arguments > UINT16_MAX ? UINT16_MAX : id->arguments);
	e->code.keyword_only =
		(uint16_t)(id->keyword_only > UINT16_MAX ? UINT16_MAX : id->keyword_only);
	if (p->minor >= 11 && id->size < MOST_BYTECODE / 2)
		e->bytecode_bytes = (uint32_t)id->size * 2;
	return read_ranges(p, e);
}

/* ---- code that is made over and over ---- */

static uint64_t content_key(const struct code_entry *e)
{
	uint64_t key = hash_bytes(e->text, e->text_bytes);

	if (e->ranges.len)
		key = hash_pair(key, hash_bytes(e->ranges.data, e->ranges.len * sizeof(*e->ranges.data)));
	return hash_pair(key, e->code.address);
}

static bool same_content(const struct code_entry *a, const struct code_entry *b)
{
	return a->code.address == b->code.address && a->text_bytes == b->text_bytes &&
		!memcmp(a->text, b->text, a->text_bytes) && a->code.first_line == b->code.first_line &&
		a->code.flags == b->code.flags && a->code.arguments == b->code.arguments &&
		a->code.keyword_only == b->code.keyword_only && a->bytecode_bytes == b->bytecode_bytes &&
		a->ranges.len == b->ranges.len &&
		(!a->ranges.len ||
			!memcmp(a->ranges.data, b->ranges.data, a->ranges.len * sizeof(*a->ranges.data)));
}

/*
 * A program that calls exec() in a loop makes the same function over and over, mostly in the same few places. When
 * one of them was there before, it is that one: otherwise a long recording would keep one for each.
 */
static bool revive(struct python *p, const struct code_entry *fresh, struct code_entry **ret)
{
	struct table_node *node = table_find(&p->codes->ever, content_key(fresh));
	struct code_entry *e;

	if (!node)
		return false;
	e = (struct code_entry *)((char *)node - offsetof(struct code_entry, again));
	if (!same_content(e, fresh))
		return false;
	e->identity = fresh->identity;
	e->look = fresh->look;
	*ret = e;
	return true;
}

static int keep(struct python *p, struct code_entry *e)
{
	uint64_t key = content_key(e);

	if (table_add(&p->codes->by_address, &e->node, e->code.address))
		return -ENOMEM;
	/* Where two have the same key, the second is not found again. */
	if (!table_find(&p->codes->ever, key) && table_add(&p->codes->ever, &e->again, key)) {
		table_remove(&p->codes->by_address, &e->node);
		return -ENOMEM;
	}
	e->code.serial = p->codes->serials++;
	e->next = p->codes->all;
	p->codes->all = e;
	return 0;
}

static int add_entry(struct python *p, uint64_t address, const struct identity *identity,
	struct code_entry **ret)
{
	struct code_entry *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->identity = *identity;
	e->look = p->look;
	e->code.address = address;
	err = fill_entry(p, e);
	if (!err && revive(p, e, ret)) {
		entry_free(e);
		return table_add(&p->codes->by_address, &(*ret)->node, address);
	}
	if (!err)
		err = keep(p, e);
	if (err) {
		entry_free(e);
		return err;
	}
	*ret = e;
	return 0;
}

int python_code(struct python *p, uint64_t address, const struct python_code **ret)
{
	struct code_entry *e;
	struct identity now;
	int err = 0;

	*ret = NULL;
	if (!p->codes && !(p->codes = calloc(1, sizeof(*p->codes))))
		return -ENOMEM;
	e = (struct code_entry *)table_find(&p->codes->by_address, address);
	if (!e || e->look != p->look) {
		if (!read_identity(p, address, &now))
			return 0;
		if (e && memcmp(&e->identity, &now, sizeof(now)) != 0) {
			table_remove(&p->codes->by_address, &e->node);
			e = NULL;
		}
		if (e)
			e->look = p->look;
		else
			err = add_entry(p, address, &now, &e);
	}
	if (!err)
		*ret = &e->code;
	return err;
}

static const struct code_entry *entry_of(const struct python_code *code)
{
	return (const struct code_entry *)((const char *)code - offsetof(struct code_entry, code));
}

struct python_position python_code_position(const struct python_code *code, int32_t offset)
{
	struct python_position at;

	if (offset < 0)
		return (struct python_position){.line = code->first_line};
	at = python_ranges_find(&entry_of(code)->ranges, (uint32_t)offset);
	return at;
}

uint32_t python_code_bytes(const struct python_code *code)
{
	return entry_of(code)->bytecode_bytes;
}

void python_codes_free(struct python_codes *codes)
{
	if (!codes)
		return;
	while (codes->all) {
		struct code_entry *next = codes->all->next;

		entry_free(codes->all);
		codes->all = next;
	}
	table_release(&codes->by_address);
	table_release(&codes->ever);
	free(codes);
}
