/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A growable byte buffer, used for text and for binary records.
 *
 * Errors are sticky: after an allocation failed every further append is a no-op and `failed`
 * stays set, so that writers check once, at the end. `data` is NUL-terminated after any append
 * (the NUL is not counted in `len`) and NULL before the first one. All-zero is the empty buffer.
 */
#ifndef SONDE_BASE_BUF_H
#define SONDE_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len, cap;
	bool failed;
};

void buf_release(struct buf *b);

/* Forgets the contents and keeps the memory; clears `failed`. */
void buf_clear(struct buf *b);

/* Room for `extra` more bytes; returns where to write them, or NULL after a failure. The caller
 * adds what it wrote to `len`. */
void *buf_reserve(struct buf *b, size_t extra);

void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Little-endian fixed width, and LEB128 as in DWARF and protobuf. */
void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_uleb(struct buf *b, uint64_t v);

/* Zero bytes until `len` is a multiple of `align`, a power of two. */
void buf_pad(struct buf *b, size_t align);

/* `s` as a JSON string with its quotes, control characters as \u00XX. Bytes that are not UTF-8 become
 * U+FFFD. */
void buf_json(struct buf *b, const char *s);

/* Length of the UTF-8 sequence at `s`, which ends in NUL; 0 when it is not one (overlong and surrogates included). */
size_t utf8_sequence(const unsigned char *s);

/* `s` with & < > " ' escaped for XML text and attributes; control characters and noncharacters
 * become U+FFFD. */
void buf_xml(struct buf *b, const char *s);

#endif
