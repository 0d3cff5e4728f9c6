/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What _Py_DebugOffsets says, believed as far as it can be true: it is memory of another process. Each number must lie
 * within its struct, be aligned as its type is, and two fields of a struct may not lie over each other.
 */
#include "python/layout.h"

#include <errno.h>
#include <string.h>

#define MOST_STRUCT (1u << 24) /* larger than any of CPython's structs */

#define FIELD(name) (offsetof(struct python_layout, name) / sizeof(uint32_t))

/* A field and what it has to lie in. */
struct span {
	uint16_t field, whole; /* whole: the field with the size of the struct */
	uint8_t bytes;         /* of the field; aligned to as many */
};

/* Sorted by struct: fields of one struct stand together. */
static const struct span spans[] = {
	{FIELD(runtime.head), FIELD(runtime.bytes), 8},
	{FIELD(interpreter.next), FIELD(interpreter.bytes), 8},
	{FIELD(interpreter.id), FIELD(interpreter.bytes), 8},
	{FIELD(interpreter.threads), FIELD(interpreter.bytes), 8},
	{FIELD(interpreter.gil), FIELD(interpreter.bytes), 8},
	{FIELD(thread.next), FIELD(thread.bytes), 8},
	{FIELD(thread.interpreter), FIELD(thread.bytes), 8},
	{FIELD(thread.frame), FIELD(thread.bytes), 8},
	{FIELD(thread.pthread), FIELD(thread.bytes), 8},
	{FIELD(thread.native_id), FIELD(thread.bytes), 8},
	{FIELD(frame.previous), FIELD(frame.bytes), 8},
	{FIELD(frame.code), FIELD(frame.bytes), 8},
	{FIELD(frame.position), FIELD(frame.bytes), 8},
	{FIELD(frame.owner), FIELD(frame.bytes), 1},
	{FIELD(frame.tlbc_index), FIELD(frame.bytes), 4},
	{FIELD(code.file), FIELD(code.bytes), 8},
	{FIELD(code.name), FIELD(code.bytes), 8},
	{FIELD(code.qualname), FIELD(code.bytes), 8},
	{FIELD(code.line_table), FIELD(code.bytes), 8},
	{FIELD(code.local_names), FIELD(code.bytes), 8},
	{FIELD(code.local_kinds), FIELD(code.bytes), 8},
	{FIELD(code.first_line), FIELD(code.bytes), 4},
	{FIELD(code.arguments), FIELD(code.bytes), 4},
	{FIELD(object.type), FIELD(object.bytes), 8},
	{FIELD(type.name), FIELD(type.bytes), 8},
	{FIELD(type.flags), FIELD(type.bytes), 8},
};

static bool read_own(const uint8_t *table, size_t bytes, uint32_t at, uint64_t *ret)
{
	if (at > bytes || bytes - at < sizeof(*ret))
		return false;
	memcpy(ret, table + at, sizeof(*ret));
	return true;
}

static int check_span(const uint32_t *numbers, size_t i, struct err *err)
{
	const struct span *s = &spans[i];
	uint32_t at = numbers[s->field], whole = numbers[s->whole];

	if (at == PYTHON_ABSENT)
		return 0;
	if (at % s->bytes || at > whole || whole - at < s->bytes)
		return err_set(err, EOPNOTSUPP,
			"the process's table of its own structs (_Py_DebugOffsets) says that a field of %u bytes "
			"is at %u in a struct of %u",
			s->bytes, at, whole);
	for (size_t k = i; k-- > 0 && spans[k].whole == s->whole;) {
		uint32_t other = numbers[spans[k].field];

		if (other != PYTHON_ABSENT && other < at + s->bytes && at < other + spans[k].bytes)
			return err_set(err, EOPNOTSUPP,
				"the process's table of its own structs (_Py_DebugOffsets) has two fields "
				"at %u and %u, over each other",
				other, at);
	}
	return 0;
}

/* The code object's bytecode is its end, and is what its type calls the size. */
static void set_derived(struct python_layout *l, bool own_bytecode)
{
	if (own_bytecode)
		l->code.bytes = l->code.bytecode;
}

int python_layout_from_own(uint32_t version, bool free_threaded, const uint8_t *table, size_t bytes,
	struct python_layout *layout, struct err *err)
{
	int column = python_layout_column_of(version, free_threaded);
	uint32_t numbers[PYTHON_LAYOUT_FIELDS];

	if (column < 0)
		return err_set(err, EOPNOTSUPP, "this version of Python is not known");
	memcpy(numbers, layout, sizeof(numbers));
	for (size_t i = 0; i < PYTHON_LAYOUT_FIELDS; i++) {
		uint32_t at = python_layout_own[i][column];
		uint64_t said;

		if (at == PYTHON_ABSENT)
			continue;
		if (!read_own(table, bytes, at, &said) || said >= MOST_STRUCT)
			return err_set(err, EOPNOTSUPP,
				"the process's table of its own structs (_Py_DebugOffsets) is not one of "
				"Python 3.%u",
				version >> 16 & 0xff);
		numbers[i] = (uint32_t)said;
	}
	memcpy(layout, numbers, sizeof(numbers));
	set_derived(layout, python_layout_own[FIELD(code.bytecode)][column] != PYTHON_ABSENT);
	memcpy(numbers, layout, sizeof(numbers));
	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
		int bad = check_span(numbers, i, err);

		if (bad)
			return bad;
	}
	return 0;
}
