/* SPDX-License-Identifier: BSD-2-Clause */
#include "elf/probe_notes.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"

#define NOTE_NAME "stapsdt"
#define NOTE_TYPE 3
#define NOTE_ALIGN 4u
#define OPERAND_BYTES 64u

/* ---- registers ---- */

/* By their DWARF numbers (psABI of x86-64, figure 3.36), of 8, 4, 2 and 1 bytes. */
static const char *const x86_names[][4] = {
	{"rax", "eax", "ax", "al"},	{"rdx", "edx", "dx", "dl"},	{"rcx", "ecx", "cx", "cl"},
	{"rbx", "ebx", "bx", "bl"},	{"rsi", "esi", "si", "sil"},	{"rdi", "edi", "di", "dil"},
	{"rbp", "ebp", "bp", "bpl"},	{"rsp", "esp", "sp", "spl"},	{"r8", "r8d", "r8w", "r8b"},
	{"r9", "r9d", "r9w", "r9b"},	{"r10", "r10d", "r10w", "r10b"}, {"r11", "r11d", "r11w", "r11b"},
	{"r12", "r12d", "r12w", "r12b"}, {"r13", "r13d", "r13w", "r13b"}, {"r14", "r14d", "r14w", "r14b"},
	{"r15", "r15d", "r15w", "r15b"},
};

static int register_x86(const char *name)
{
	for (size_t i = 0; i < sizeof(x86_names) / sizeof(x86_names[0]); i++)
		for (size_t k = 0; k < 4; k++)
			if (!strcmp(name, x86_names[i][k]))
				return (int)i;
	return -1;
}

/* x0 to x30, w0 to w30, sp. */
static int register_arm(const char *name)
{
	char *end;
	long n;

	if (!strcmp(name, "sp"))
		return 31;
	if ((name[0] != 'x' && name[0] != 'w') || name[1] < '0' || name[1] > '9')
		return -1;
	n = strtol(name + 1, &end, 10);
	return *end || n > 30 ? -1 : (int)n;
}

/* ---- operands ---- */

static bool number(const char *text, int64_t *ret)
{
	char *end;

	*ret = strtoll(text, &end, 0);
	return end != text && !*end;
}

static void set(struct elf_operand *o, enum elf_operand_kind kind, int reg)
{
	if (reg < 0)
		return;
	o->kind = (uint8_t)kind;
	o->reg = (uint8_t)reg;
}

/* $5, %rdi, -8(%rbp), (%rax); the text is changed. */
static void operand_x86(char *text, struct elf_operand *o)
{
	char *open = strchr(text, '('), *close = strchr(text, ')');

	if (text[0] == '$') {
		if (number(text + 1, &o->value))
			o->kind = ELF_OPERAND_CONSTANT;
	} else if (text[0] == '%') {
		set(o, ELF_OPERAND_REGISTER, register_x86(text + 1));
	} else if (open && open[1] == '%' && close && close > open && !close[1]) {
		*open = *close = '\0';
		if (open == text || number(text, &o->value))
			set(o, ELF_OPERAND_MEMORY, register_x86(open + 2));
	}
}

/* 5, x0, [sp], [sp, 16]; the text is changed. */
static void operand_arm(char *text, struct elf_operand *o)
{
	char *close = strchr(text, ']'), *comma = strchr(text, ',');

	if (number(text, &o->value)) {
		o->kind = ELF_OPERAND_CONSTANT;
	} else if (text[0] != '[') {
		set(o, ELF_OPERAND_REGISTER, register_arm(text));
	} else if (close && !close[1]) {
		*close = '\0';
		if (comma)
			*comma = '\0';
		if (comma)
			comma += 1 + (comma[1] == ' ');
		if (comma)
			comma += *comma == '#';
		if (!comma || number(comma, &o->value))
			set(o, ELF_OPERAND_MEMORY, register_arm(text + 1));
	}
}

/* Up to the next space that is not in brackets. */
static size_t operand_length(const char *text)
{
	size_t n = 0;

	for (int depth = 0; text[n] && (text[n] != ' ' || depth > 0); n++)
		depth += text[n] == '[' || text[n] == '(' ? 1 : text[n] == ']' || text[n] == ')' ? -1 : 0;
	return n;
}

static struct elf_operand read_operand(const char *text, size_t len, unsigned machine)
{
	struct elf_operand o = {0};
	char copy[OPERAND_BYTES], *end;
	long size;

	if (len >= sizeof(copy))
		return o;
	memcpy(copy, text, len);
	copy[len] = '\0';
	size = strtol(copy, &end, 10);
	if (end == copy || *end != '@' || !(labs(size) == 1 || labs(size) == 2 || labs(size) == 4 || labs(size) == 8))
		return o;
	o.size = (int8_t)size;
	if (machine == EM_X86_64)
		operand_x86(end + 1, &o);
	else
		operand_arm(end + 1, &o);
	return o;
}

static void read_operands(struct elf_probe *p, unsigned machine)
{
	const char *at = p->arguments;

	for (at += strspn(at, " "); *at && p->count < ELF_PROBE_OPERANDS; at += strspn(at, " ")) {
		size_t len = operand_length(at);

		p->operands[p->count++] = read_operand(at, len, machine);
		at += len;
	}
}

/* ---- notes ---- */

static bool read_note(struct cursor note, unsigned machine, const uint64_t *base, struct elf_probe *ret)
{
	uint64_t at = cursor_u64(&note), said_base = cursor_u64(&note), semaphore = cursor_u64(&note);
	uint64_t moved = base && said_base ? *base - said_base : 0;

	*ret = (struct elf_probe){.at = at + moved, .semaphore = semaphore ? semaphore + moved : 0};
	ret->provider = cursor_cstr(&note);
	ret->name = cursor_cstr(&note);
	ret->arguments = cursor_cstr(&note);
	if (note.bad)
		return false;
	read_operands(ret, machine);
	return true;
}

static uint32_t padding(uint32_t size)
{
	return -size & (NOTE_ALIGN - 1);
}

int elf_probe_notes(const void *notes, size_t size, unsigned machine, const uint64_t *base,
	int (*each)(void *ctx, const struct elf_probe *p), void *ctx)
{
	struct cursor c = cursor_over(notes, size);

	while (cursor_left(&c) >= 12) {
		uint32_t name_bytes = cursor_u32(&c), bytes = cursor_u32(&c), type = cursor_u32(&c);
		const uint8_t *name = cursor_bytes(&c, name_bytes);
		struct cursor note;
		struct elf_probe p;
		int rc;

		cursor_skip(&c, padding(name_bytes));
		note = cursor_sub(&c, bytes);
		if (c.bad)
			break;
		if (type == NOTE_TYPE && name_bytes == sizeof(NOTE_NAME) && !memcmp(name, NOTE_NAME, sizeof(NOTE_NAME))) {
			if (!read_note(note, machine, base, &p))
				break;
			rc = each(ctx, &p);
			if (rc)
				return rc;
		}
		cursor_skip(&c, padding(bytes));
	}
	return 0;
}

int elf_file_each_probe(struct elf_file *f, int (*each)(void *ctx, const struct elf_probe *p), void *ctx)
{
	struct elf_section notes, base;
	bool has_base;

	if (!elf_file_section(f, ".note.stapsdt", &notes))
		return 0;
	has_base = elf_file_section(f, ".stapsdt.base", &base);
	return elf_probe_notes(notes.bytes, notes.size, elf_file_machine(f), has_base ? &base.vaddr : NULL, each, ctx);
}
