/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one gate through which sonde reads bytes it did not write (ELF, DWARF, ring records,
 * recordings).
 *
 * A cursor knows how much is left. A read past the end sets `bad`, moves nothing, and gives zero
 * from then on, so parsers check `bad` once a record instead of every field. Multi-byte reads are
 * little-endian: sonde's targets are x86-64 and aarch64, and its own files are little-endian.
 *
 * Invariant: at <= end. The bytes belong to the caller and outlive the cursor.
 */
#ifndef SONDE_BASE_CURSOR_H
#define SONDE_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
	const uint8_t *at, *end;
	bool bad;
};

static inline struct cursor cursor_over(const void *bytes, size_t len)
{
	const uint8_t *at = (const uint8_t *)bytes;

	return (struct cursor){.at = at, .end = at ? at + len : at};
}

static inline size_t cursor_left(const struct cursor *c)
{
	return c->bad ? 0 : (size_t)(c->end - c->at);
}

/* `len` bytes, or NULL (and `bad`) when they are not there. */
static inline const uint8_t *cursor_bytes(struct cursor *c, uint64_t len)
{
	if (c->bad || len > (uint64_t)(c->end - c->at)) {
		c->bad = true;
		return NULL;
	}
	const uint8_t *p = c->at;
	c->at += len;
	return p;
}

static inline void cursor_skip(struct cursor *c, uint64_t len)
{
	(void)cursor_bytes(c, len);
}

/* A cursor over the next `len` bytes; bad when they are not there. */
static inline struct cursor cursor_sub(struct cursor *c, uint64_t len)
{
	const uint8_t *p = cursor_bytes(c, len);

	if (!p)
		return (struct cursor){.bad = true};
	return cursor_over(p, (size_t)len);
}

#define CURSOR_FIXED(name, type)                                                                   \
	static inline type cursor_##name(struct cursor *c)                                         \
	{                                                                                          \
		type v = 0;                                                                        \
		const uint8_t *p = cursor_bytes(c, sizeof(v));                                     \
		if (p)                                                                             \
			memcpy(&v, p, sizeof(v));                                                  \
		return v;                                                                          \
	}
CURSOR_FIXED(u8, uint8_t)
CURSOR_FIXED(u16, uint16_t)
CURSOR_FIXED(u32, uint32_t)
CURSOR_FIXED(u64, uint64_t)
CURSOR_FIXED(s8, int8_t)
CURSOR_FIXED(s16, int16_t)
CURSOR_FIXED(s32, int32_t)
CURSOR_FIXED(s64, int64_t)
#undef CURSOR_FIXED

/* LEB128 (DWARF 5, 7.6). More than 10 bytes is bad; bits beyond the 64th are dropped. */
static inline uint64_t cursor_uleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t byte = cursor_u8(c);

		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return c->bad ? 0 : v;
	}
	c->bad = true;
	return 0;
}

static inline int64_t cursor_sleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t byte = cursor_u8(c);

		if (shift < 64)
			v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		if ((byte & 0x40) && shift + 7 < 64)
			v |= ~0ULL << (shift + 7);
		return c->bad ? 0 : (int64_t)v;
	}
	c->bad = true;
	return 0;
}

/* A NUL-terminated string inside the bytes; "" (and `bad`) when the NUL is missing. */
static inline const char *cursor_cstr(struct cursor *c)
{
	size_t left = cursor_left(c);
	const uint8_t *nul = left ? (const uint8_t *)memchr(c->at, 0, left) : NULL;

	if (!nul) {
		c->bad = true;
		return "";
	}
	const char *s = (const char *)c->at;
	c->at = nul + 1;
	return s;
}

#endif
