/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/term.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 80
#define DEFAULT_ROWS 24
#define MIN_COLUMNS 40
#define MAX_COLUMNS 1000

/* A variable set to the empty string counts as unset, as no-color.org asks. */
static const char *env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static size_t env_size(const char *name)
{
	const char *value = env(name);

	return value ? (size_t)strtoul(value, NULL, 10) : 0;
}

/* The first of these that is set decides about the encoding (POSIX, XBD 8.2). */
static bool locale_is_utf8(void)
{
	const char *locale = env("LC_ALL");

	if (!locale)
		locale = env("LC_CTYPE");
	if (!locale)
		locale = env("LANG");
	return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8"));
}

static size_t clamp(size_t v, size_t low, size_t high)
{
	return v < low ? low : v > high ? high : v;
}

struct term term_describe(int fd)
{
	struct term t = {.interactive = isatty(fd), .unicode = locale_is_utf8()};
	struct winsize size = {0};
	const char *kind = env("TERM");

	if (t.interactive && ioctl(fd, TIOCGWINSZ, &size))
		size = (struct winsize){0};
	t.columns = size.ws_col ? size.ws_col : env_size("COLUMNS");
	t.rows = size.ws_row ? size.ws_row : env_size("LINES");
	t.columns = t.columns ? clamp(t.columns, MIN_COLUMNS, MAX_COLUMNS) : DEFAULT_COLUMNS;
	t.rows = t.rows ? clamp(t.rows, 1, MAX_COLUMNS) : DEFAULT_ROWS;
	t.colour = t.interactive && !env("NO_COLOR") && kind && strcmp(kind, "dumb");
	return t;
}

/* One UTF-8 sequence at `s` (not at the NUL): its value in *ret, its length returned; an invalid
 * byte is itself. Only display width depends on this, so overlong forms need no care. */
static size_t decode(const char *s, uint32_t *ret)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : u[0] >= 0xc2 ? 2 : 1;
	uint32_t v = len == 1 ? u[0] : u[0] & (0xffu >> (len + 1));

	for (size_t i = 1; i < len; i++) {
		if ((u[i] & 0xc0) != 0x80) {
			*ret = u[0];
			return 1;
		}
		v = v << 6 | (u[i] & 0x3f);
	}
	*ret = v;
	return len;
}

struct span {
	uint32_t first, last;
};

/* Unicode 15, reduced to blocks: combining marks and joiners; East Asian Wide and emoji. */
static const struct span zero_width[] = {{0x300, 0x36f}, {0x483, 0x489}, {0x591, 0x5bd},
	{0x200b, 0x200f}, {0x2060, 0x2064}, {0x20d0, 0x20f0}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
static const struct span double_width[] = {{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf},
	{0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
	{0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};

static bool within(const struct span *spans, size_t count, uint32_t v)
{
	for (size_t i = 0; i < count; i++)
		if (v >= spans[i].first && v <= spans[i].last)
			return true;
	return false;
}

static size_t cells(uint32_t v)
{
	if (v < 0x300)
		return 1;
	if (within(zero_width, sizeof(zero_width) / sizeof(zero_width[0]), v))
		return 0;
	return within(double_width, sizeof(double_width) / sizeof(double_width[0]), v) ? 2 : 1;
}

size_t term_fit(const char *s, size_t columns)
{
	size_t at = 0, used = 0;
	uint32_t v;

	while (s[at]) {
		size_t len = decode(s + at, &v), wide = cells(v);

		if (used + wide > columns)
			break;
		used += wide;
		at += len;
	}
	return at;
}

size_t term_width(const char *s)
{
	size_t used = 0;
	uint32_t v;

	while (*s) {
		s += decode(s, &v);
		used += cells(v);
	}
	return used;
}
