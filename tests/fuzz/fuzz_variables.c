/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as an object file: what is in scope, where it is kept, what it is made of, and globals. */
#include <string.h>

#include "symbol/variables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_LOOKED_AT 64

static bool read_zeros(void *ctx, uint64_t addr, void *buf, size_t len)
{
	memset(buf, 0, len);
	return addr & 1;
}

static bool is_plain(void *ctx, const struct variable_type *t)
{
	return t->kind == VARIABLE_PLAIN;
}

static void look_at_type(struct variables *v, const struct variable_type *t)
{
	const struct variable_member *m;
	struct variable_part part;
	struct buf path = {0};
	const char *file;

	for (int i = 0; t && i < 8; i++, t = variable_target(v, t)) {
		size_t count = variable_members(v, t, &m);

		variable_type_name(v, t);
		for (size_t at = 0; at < count && at < MOST_LOOKED_AT; at++)
			variable_member_line(v, t, &m[at], &file);
		variable_find_part(v, t, t->size / 2, is_plain, NULL, &part, &path);
	}
	buf_release(&path);
}

static void look_at(struct variables *v, uint64_t address)
{
	struct unwind_regs regs = {.known = 0xffff};
	const struct variable_frame frame = {&regs, 0x7fff0000, 0x1000, read_zeros, NULL};
	const struct variable_call call = {"i", "", "e"};
	const struct variable *vars;
	struct variable_place place;
	struct variable_global global;
	const char *file;
	uint64_t got;
	size_t count = variables_at(v, address, &vars);

	for (size_t i = 0; i < count && i < MOST_LOOKED_AT; i++) {
		variable_line(v, &vars[i], &file);
		variable_function(v, &vars[i]);
		variable_called_since(v, &vars[i], &call, 1000);
		if (variable_place(v, &vars[i], &frame, &place))
			variable_read(&place, &frame, address % 16, &got, sizeof(got));
		look_at_type(v, vars[i].type);
	}
	if (variables_global_at(v, address, &global) && global.type)
		look_at_type(v, global.type);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct variables_options options = {.root = "/nonexistent"};
	struct variables *v;
	struct elf_file *f;

	if (elf_file_open_memory(data, size, "fuzz", &f, NULL))
		return 0;
	if (!variables_new(f, &options, &v, NULL)) {
		const struct elf_segment *segments;
		size_t count = elf_file_segments(f, &segments);

		for (size_t i = 0; i < count && i < 8; i++)
			for (uint64_t step = 0; step < 64; step++)
				look_at(v, segments[i].vaddr + step * step);
		variables_free(v);
	}
	elf_file_free(f);
	return 0;
}
