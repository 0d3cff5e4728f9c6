/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/line_table.h"

#include "base/cursor.h"

#define MOST_OFFSET (1u << 30) /* bytecode longer than this is none */

/* The last of several that start at the same byte is the one that counts. */
static int add_range(struct python_ranges *ret, uint32_t start, struct python_position position)
{
	if (ret->len && ret->data[ret->len - 1].start == start) {
		ret->data[ret->len - 1].position = position;
		return 0;
	}
	return vec_push(ret, (struct python_range){start, position});
}

static struct python_position at_line(int64_t line)
{
	if (line <= 0 || line > INT32_MAX)
		return (struct python_position){0};
	return (struct python_position){.line = (uint32_t)line};
}

/* Pairs: bytes forward, lines forward or back. */
static int decode_lnotab(struct cursor *c, int64_t line, struct python_ranges *ret)
{
	uint32_t start = 0;
	int err = add_range(ret, 0, at_line(line));

	while (!err && cursor_left(c) >= 2 && start < MOST_OFFSET) {
		start += cursor_u8(c);
		line += cursor_s8(c);
		err = add_range(ret, start, at_line(line));
	}
	return err;
}

/* Pairs: length of the range, lines forward or back; -128: the range has no line. */
static int decode_linetable(struct cursor *c, int64_t line, struct python_ranges *ret)
{
	uint32_t start = 0;
	int err = 0;

	while (!err && cursor_left(c) >= 2 && start < MOST_OFFSET) {
		uint32_t bytes = cursor_u8(c);
		int lines = cursor_s8(c);

		if (lines != -128)
			line += lines;
		if (bytes)
			err = add_range(ret, start, at_line(lines == -128 ? 0 : line));
		start += bytes;
	}
	return err ? err : add_range(ret, start, at_line(0));
}

/* Six bits a byte, the lowest first; the seventh bit says that there are more. */
static uint32_t varint(struct cursor *c)
{
	uint32_t v = 0;

	for (unsigned shift = 0; shift < 36; shift += 6) {
		uint8_t byte = cursor_u8(c);

		if (shift < 32)
			v |= (uint32_t)(byte & 63) << shift;
		if (!(byte & 64))
			return v;
	}
	c->bad = true;
	return 0;
}

static int64_t signed_varint(struct cursor *c)
{
	uint32_t v = varint(c);

	return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

enum location_code {
	LOCATION_ONE_LINE = 10, /* 10 to 12: that many lines less 10, two columns of a byte */
	LOCATION_NO_COLUMNS = 13,
	LOCATION_LONG = 14,
	LOCATION_NONE = 15,
};

static void set_columns(struct python_position *at, uint32_t column, uint32_t end)
{
	at->column = column + 1;
	at->end_column = end + 1;
}

static struct python_position read_location(struct cursor *c, unsigned code, int64_t *line)
{
	struct python_position at;
	uint32_t lines, column, end;

	if (code == LOCATION_NONE)
		return at_line(0);
	if (code >= LOCATION_NO_COLUMNS)
		*line += signed_varint(c);
	else if (code >= LOCATION_ONE_LINE)
		*line += code - LOCATION_ONE_LINE;
	at = at_line(*line);
	at.end_line = at.line;
	if (code < LOCATION_ONE_LINE) {
		uint8_t byte = cursor_u8(c);

		column = code * 8 + (byte >> 4 & 7);
		set_columns(&at, column, column + (byte & 15));
	} else if (code < LOCATION_NO_COLUMNS) {
		column = cursor_u8(c);
		set_columns(&at, column, cursor_u8(c));
	} else if (code == LOCATION_LONG) {
		lines = varint(c);
		column = varint(c);
		end = varint(c);
		at.end_line += lines;
		at.column = column;
		at.end_column = end;
	}
	return at.line ? at : at_line(0);
}

static int decode_locations(struct cursor *c, int64_t line, struct python_ranges *ret)
{
	uint32_t start = 0;
	int err = 0;

	while (!err && cursor_left(c) && start < MOST_OFFSET) {
		uint8_t first = cursor_u8(c);
		struct python_position at;

		if (!(first & 0x80))
			break;
		at = read_location(c, first >> 3 & 15, &line);
		if (c->bad || line > INT32_MAX || line < INT32_MIN)
			break;
		err = add_range(ret, start, at);
		start += 2u * ((first & 7u) + 1u);
	}
	return err ? err : add_range(ret, start, at_line(0));
}

int python_ranges_decode(enum python_line_form form, const uint8_t *table, size_t len,
	uint32_t first_line, struct python_ranges *ret)
{
	struct cursor c = cursor_over(table, len);
	int64_t line = (int32_t)first_line;

	switch (form) {
	case PYTHON_LNOTAB:
		return decode_lnotab(&c, line, ret);
	case PYTHON_LINETABLE:
		return decode_linetable(&c, line, ret);
	default:
		return decode_locations(&c, line, ret);
	}
}

struct python_position python_ranges_find(const struct python_ranges *ranges, uint32_t offset)
{
	size_t low = 0, high = ranges->len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges->data[middle].start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? ranges->data[low - 1].position : (struct python_position){0};
}
