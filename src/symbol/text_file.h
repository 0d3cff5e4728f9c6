/* SPDX-License-Identifier: BSD-2-Clause */
/* Line-oriented text of /proc/kallsyms and perf maps, parsed in place. */
#ifndef SONDE_SYMBOL_TEXT_FILE_H
#define SONDE_SYMBOL_TEXT_FILE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"

/* Reads all of the file, at most `max` bytes: -EFBIG beyond. Never leaves data NULL on success. */
static inline int text_read(int fd, size_t max, const char *name, struct buf *ret, struct err *err)
{
	buf_str(ret, "");
	for (;;) {
		char *at = buf_reserve(ret, 1u << 16);
		ssize_t n = at ? pread(fd, at, 1u << 16, (off_t)ret->len) : 0;

		if (at && n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		int rc = !at ? err_nomem(err)
			: n < 0 ? err_errno(err, errno, "reading %s", name)
			: ret->len + (size_t)n > max
			? err_set(err, EFBIG, "%s is larger than %zu MB", name, max >> 20)
			: 0;
		if (rc) {
			buf_release(ret);
			return rc;
		}
		ret->len += (size_t)n;
	}
	ret->data[ret->len] = '\0';
	return 0;
}

/* Puts a NUL over the end of the line (a byte at `end` is a NUL already); returns the next one. */
static inline char *text_end_line(char *line, char *end)
{
	char *newline = memchr(line, '\n', (size_t)(end - line));

	if (!newline)
		return end;
	*newline = '\0';
	return newline + 1;
}

/* Up to 16 hexadecimal digits, "0x" allowed before them; *at moves behind them. */
static inline bool text_hex(char **at, uint64_t *ret)
{
	char *p = *at;
	uint64_t v = 0;
	int digits = 0;

	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (;; p++, digits++) {
		unsigned d = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0')
			: (*p | 32) >= 'a' && (*p | 32) <= 'f' ? (unsigned)((*p | 32) - 'a' + 10)
			: 16;
		if (d == 16)
			break;
		if (digits == 16)
			return false;
		v = v << 4 | d;
	}
	*at = p;
	*ret = v;
	return digits;
}

#endif
