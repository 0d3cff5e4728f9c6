/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

void *buf_reserve(struct buf *b, size_t extra)
{
	size_t need, want = b->cap ? b->cap : 256;

	if (b->failed)
		return NULL;
	if (__builtin_add_overflow(b->len, extra, &need) ||
		__builtin_add_overflow(need, 1, &need))
		goto fail;
	if (need > b->cap) {
		while (want < need)
			if (__builtin_mul_overflow(want, 2, &want))
				goto fail;
		char *grown = realloc(b->data, want);
		if (!grown)
			goto fail;
		b->data = grown;
		b->cap = want;
	}
	return b->data + b->len;
fail:
	b->failed = true;
	return NULL;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
	char *at = buf_reserve(b, len);

	if (!at)
		return;
	if (len)
		memcpy(at, bytes, len);
	at[len] = '\0';
	b->len += len;
}

void buf_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int need = vsnprintf(NULL, 0, fmt, again);
	va_end(again);

	char *at = need < 0 ? NULL : buf_reserve(b, (size_t)need);

	if (!at) {
		b->failed = true;
		return;
	}
	vsnprintf(at, (size_t)need + 1, fmt, ap);
	b->len += (size_t)need;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

static void buf_little_endian(struct buf *b, uint64_t v, unsigned bytes)
{
	uint8_t le[8];

	for (unsigned i = 0; i < bytes; i++)
		le[i] = (uint8_t)(v >> (8 * i));
	buf_add(b, le, bytes);
}

void buf_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}

void buf_u16(struct buf *b, uint16_t v)
{
	buf_little_endian(b, v, 2);
}

void buf_u32(struct buf *b, uint32_t v)
{
	buf_little_endian(b, v, 4);
}

void buf_u64(struct buf *b, uint64_t v)
{
	buf_little_endian(b, v, 8);
}

void buf_uleb(struct buf *b, uint64_t v)
{
	do {
		uint8_t byte = v & 0x7f;
		v >>= 7;
		buf_u8(b, v ? byte | 0x80 : byte);
	} while (v);
}

void buf_pad(struct buf *b, size_t align)
{
	while (!b->failed && (b->len & (align - 1)))
		buf_u8(b, 0);
}

/* RFC 3629, section 4. */
size_t utf8_sequence(const unsigned char *s)
{
	if (s[0] < 0x80)
		return 1;

	size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;

	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
		(s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

void buf_json(struct buf *b, const char *s)
{
	buf_char(b, '"');
	for (const unsigned char *p = (const unsigned char *)s; *p;) {
		size_t len = utf8_sequence(p);

		if (!len)
			buf_str(b, REPLACEMENT);
		else if (*p == '"' || *p == '\\')
			buf_printf(b, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			buf_printf(b, "\\u%04x", *p);
		else if (*p == 0xc2 && p[1] < 0xa0) /* U+0080 to U+009F are control characters too */
			buf_printf(b, "\\u%04x", p[1]);
		else
			buf_add(b, p, len);
		p += len ? len : 1;
	}
	buf_char(b, '"');
}

/* What XML 1.0 does not allow although it is UTF-8: U+FFFE and U+FFFF (2.2, production 2). */
static bool is_noncharacter(const unsigned char *s)
{
	return s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe;
}

static const char *xml_entity(unsigned char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return c < 0x20 || c == 0x7f ? REPLACEMENT : NULL;
	}
}

void buf_xml(struct buf *b, const char *s)
{
	for (const unsigned char *p = (const unsigned char *)s; *p;) {
		const char *entity = xml_entity(*p);
		size_t len = utf8_sequence(p);

		if (entity)
			buf_str(b, entity);
		else if (!len || (len == 3 && is_noncharacter(p)))
			buf_str(b, REPLACEMENT);
		else
			buf_add(b, p, len);
		p += len ? len : 1;
	}
}
