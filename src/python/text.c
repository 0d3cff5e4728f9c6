/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/text.h"

#include "python/python_priv.h"

/* PyASCIIObject.state: 32 bits, of which `interned` comes first. */
struct str_state {
	unsigned kind; /* bytes a character; 0: the old kind that is not ready */
	bool compact, ascii;
};

bool python_has_flag(struct python *p, uint64_t object, uint64_t flag)
{
	uint64_t type, flags;

	if (!python_pointer_ok(object) ||
		!python_read_u64(p, object + p->layout.object.type, &type) || !python_pointer_ok(type))
		return false;
	if (type == p->str_type && flag == PYTHON_FLAG_STR)
		return true;
	if (!python_read_u64(p, type + p->layout.type.flags, &flags) ||
		!(flags & flag))
		return false;
	if (flag == PYTHON_FLAG_STR)
		p->str_type = type;
	return true;
}

static bool read_state(struct python *p, uint64_t object, struct str_state *ret)
{
	uint32_t state;
	unsigned shift = p->layout.unicode.kind_shift;

	if (!python_read_u32(p, object + p->layout.unicode.state, &state))
		return false;
	ret->kind = state >> shift & 7;
	ret->compact = state >> (shift + 3) & 1;
	ret->ascii = state >> (shift + 4) & 1;
	return ret->kind == 1 || ret->kind == 2 || ret->kind == 4;
}

static void add_character(struct buf *ret, uint32_t c)
{
	if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80) {
		buf_u8(ret, (uint8_t)c);
	} else if (c < 0x800) {
		buf_u8(ret, (uint8_t)(0xc0 | c >> 6));
		buf_u8(ret, (uint8_t)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		buf_u8(ret, (uint8_t)(0xe0 | c >> 12));
		buf_u8(ret, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
		buf_u8(ret, (uint8_t)(0x80 | (c & 0x3f)));
	} else {
		buf_u8(ret, (uint8_t)(0xf0 | c >> 18));
		buf_u8(ret, (uint8_t)(0x80 | (c >> 12 & 0x3f)));
		buf_u8(ret, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
		buf_u8(ret, (uint8_t)(0x80 | (c & 0x3f)));
	}
}

/* Where the characters are; 0: nowhere. */
static uint64_t data_of(struct python *p, uint64_t object, const struct str_state *state)
{
	uint64_t data;

	if (state->compact)
		return object + (state->ascii ? p->layout.unicode.ascii_data : p->layout.unicode.data);
	/* Instances of subclasses have a pointer behind what a compact one has. */
	if (!python_read_u64(p, object + p->layout.unicode.data, &data) || data < 4096)
		return 0;
	return data;
}

static bool add_characters(struct python *p, uint64_t data, unsigned kind, uint64_t count,
	struct buf *ret)
{
	uint8_t piece[4096];
	size_t before = ret->len;

	while (count) {
		size_t now = count < sizeof(piece) / kind ? count : sizeof(piece) / kind;

		if (!python_read(p, data, piece, now * kind)) {
			ret->len = before;
			return false;
		}
		for (size_t i = 0; i < now; i++) {
			uint32_t c = 0;

			memcpy(&c, piece + i * kind, kind);
			add_character(ret, c);
		}
		data += now * kind;
		count -= now;
	}
	return true;
}

bool python_str(struct python *p, uint64_t object, size_t most, struct buf *ret, bool *ret_cut)
{
	struct str_state state;
	uint64_t length, data;

	if (!python_has_flag(p, object, PYTHON_FLAG_STR) || !read_state(p, object, &state) ||
		!python_read_u64(p, object + p->layout.unicode.length, &length) || length > INT64_MAX)
		return false;
	data = data_of(p, object, &state);
	if (!data || !add_characters(p, data, state.kind, length < most ? length : most, ret))
		return false;
	if (ret_cut)
		*ret_cut = length > most;
	return !ret->failed;
}

bool python_bytes(struct python *p, uint64_t object, size_t most, struct buf *ret)
{
	uint64_t size;
	void *to;

	if (!python_has_flag(p, object, PYTHON_FLAG_BYTES) ||
		!python_read_u64(p, object + p->layout.bytes.size, &size) || size > most)
		return false;
	to = buf_reserve(ret, size + 1);
	if (!to || !python_read(p, object + p->layout.bytes.data, to, size))
		return false;
	ret->len += size;
	return true;
}
