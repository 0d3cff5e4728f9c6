/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/entries.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unwind/insn.h"

#define NONE HEAP_PROBE_NO_ARG

/* ---- names ---- */

struct known {
	const char *name;
	struct heap_probe probe; /* kind, size, count, throws */
};

/* Of the C library and of all that take its place; behind prefixes as well. */
static const struct known common[] = {
	{"malloc", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"calloc", {HEAP_PROBE_ALLOC, 1, 0, 0, 0, 0}},
	{"realloc", {HEAP_PROBE_REALLOC, 1, NONE, 0, 0, 0}},
	{"reallocarray", {HEAP_PROBE_REALLOC, 1, 2, 0, 0, 0}},
	{"reallocf", {HEAP_PROBE_REALLOC, 1, NONE, 0, 0, 0}},
	{"memalign", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"aligned_alloc", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"posix_memalign", {HEAP_PROBE_OUT, 2, NONE, 0, 0, 0}},
	{"valloc", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"pvalloc", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"free", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"cfree", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"free_sized", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"free_aligned_sized", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	/* jemalloc's */
	{"mallocx", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"rallocx", {HEAP_PROBE_REALLOC, 1, NONE, 0, 0, 0}},
	{"dallocx", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"sdallocx", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
};

static const struct known own[] = {
	{"tc_new", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"tc_newarray", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"tc_new_nothrow", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"tc_newarray_nothrow", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"tc_new_aligned", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"tc_newarray_aligned", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"tc_delete", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"tc_deletearray", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"tc_delete_sized", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"tc_deletearray_sized", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"tc_delete_aligned", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"tc_deletearray_aligned", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"mi_zalloc", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_malloc_small", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_zalloc_small", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_mallocn", {HEAP_PROBE_ALLOC, 1, 0, 0, 0, 0}},
	{"mi_reallocn", {HEAP_PROBE_REALLOC, 1, 2, 0, 0, 0}},
	{"mi_new", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"mi_new_n", {HEAP_PROBE_ALLOC, 1, 0, 1, 0, 0}},
	{"mi_new_aligned", {HEAP_PROBE_ALLOC, 0, NONE, 1, 0, 0}},
	{"mi_new_nothrow", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_new_aligned_nothrow", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_malloc_aligned", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_zalloc_aligned", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"mi_calloc_aligned", {HEAP_PROBE_ALLOC, 1, 0, 0, 0, 0}},
	{"mi_realloc_aligned", {HEAP_PROBE_REALLOC, 1, NONE, 0, 0, 0}},
	{"mi_heap_malloc", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"mi_heap_zalloc", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"mi_heap_calloc", {HEAP_PROBE_ALLOC, 2, 1, 0, 0, 0}},
	{"mi_free_size", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"mi_free_aligned", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"mi_free_size_aligned", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
	{"rpmalloc", {HEAP_PROBE_ALLOC, 0, NONE, 0, 0, 0}},
	{"rpcalloc", {HEAP_PROBE_ALLOC, 1, 0, 0, 0, 0}},
	{"rprealloc", {HEAP_PROBE_REALLOC, 1, NONE, 0, 0, 0}},
	{"rpaligned_alloc", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"rpmemalign", {HEAP_PROBE_ALLOC, 1, NONE, 0, 0, 0}},
	{"rpposix_memalign", {HEAP_PROBE_OUT, 2, NONE, 0, 0, 0}},
	{"rpfree", {HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0}},
};

static const char *const prefixes[] = {"je_", "_rjem_", "_rjem_je_", "jemalloc_", "tc_", "mi_"};

/* Allocators that bring operators of C++ of their own, which do not call malloc. */
static const char *const with_operators[] = {"mallocx", "je_mallocx", "tc_new", "tc_malloc", "mi_new"};

static struct heap_probe look_up(const struct known *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i].name, name))
			return list[i].probe;
	return (struct heap_probe){0};
}

static struct heap_probe behind_prefix(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);

	if (strncmp(name, prefix, n))
		return (struct heap_probe){0};
	return look_up(common, sizeof(common) / sizeof(common[0]), name + n);
}

/* "_Znwm..." and "_Znam...", "_ZdlPv..." and "_ZdaPv..." of the Itanium C++ ABI. */
static struct heap_probe operator_of(const char *name)
{
	struct heap_probe none = {0};

	if (!strncmp(name, "_Znwm", 5) || !strncmp(name, "_Znam", 5))
		return (struct heap_probe){HEAP_PROBE_ALLOC, 0, NONE, !strstr(name, "nothrow_t"), 0, 0};
	if (!strncmp(name, "_ZdlPv", 6) || !strncmp(name, "_ZdaPv", 6))
		return (struct heap_probe){HEAP_PROBE_FREE, NONE, NONE, 0, 0, 0};
	return none;
}

struct heap_probe heap_entry_by_name(const char *name, const char *prefix, bool *ret_operator)
{
	struct heap_probe p = look_up(common, sizeof(common) / sizeof(common[0]), name);

	*ret_operator = false;
	if (!p.kind)
		p = look_up(own, sizeof(own) / sizeof(own[0]), name);
	for (size_t i = 0; !p.kind && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		p = behind_prefix(name, prefixes[i]);
	if (!p.kind && prefix)
		p = behind_prefix(name, prefix);
	if (!p.kind) {
		p = operator_of(name);
		*ret_operator = p.kind;
	}
	return p;
}

/* Functions inside allocators that call those above: glibc's memalign, jemalloc's slow ways. */
static bool is_inside(const char *name)
{
	static const char *const parts[] = {"mid_memalign", "newImpl", "malloc_default", "__libc_malloc", "__libc_realloc",
		"__libc_calloc", "__libc_memalign", "handleOOM"};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

/* ---- where in a function ---- */

#define FAR_ENOUGH 96u /* bytes */
#define BIT(n) (1ull << (n))
/* The first arguments, and the stack pointer, by their DWARF numbers: psABI of x86-64, figure 3.36. */
static const uint8_t argument_regs[] = {5, 4, 1};
#define STACK_POINTER BIT(7)

/* As arch/x86/kernel/uprobes.c of the kernel has them: branch_setup_ops() and push_setup_ops(). */
static bool is_emulated(const uint8_t *code, size_t len)
{
	if (len == 1)
		return code[0] == 0x90 || (code[0] >= 0x50 && code[0] <= 0x57);
	if (len == 2 && code[0] == 0x41)
		return code[1] >= 0x50 && code[1] <= 0x57;
	if (len == 2 && ((code[0] >= 0x70 && code[0] <= 0x7f) || code[0] == 0xeb))
		return true;
	if (len == 6 && code[0] == 0x0f)
		return code[1] >= 0x80 && code[1] <= 0x8f;
	return len == 5 && code[0] == 0xe9;
}

/* Of what the decoder knows all effects on registers. */
static bool is_known(const uint8_t *code)
{
	switch (code[0]) {
	case 0x00 ... 0x05: /* add, or, and, sub, xor, cmp */
	case 0x08 ... 0x0d:
	case 0x20 ... 0x25:
	case 0x28 ... 0x2d:
	case 0x30 ... 0x35:
	case 0x38 ... 0x3d:
	case 0x63: /* movslq, imul */
	case 0x69:
	case 0x6b:
	case 0x80:
	case 0x81:
	case 0x83 ... 0x85: /* test */
	case 0x88 ... 0x8b: /* mov, lea */
	case 0x8d:
	case 0xb8 ... 0xbf:
	case 0xc0:
	case 0xc1: /* shifts */
	case 0xc6:
	case 0xc7:
	case 0xd1:
	case 0xd3:
		return true;
	case 0xf6: /* test */
	case 0xf7:
		return !(code[1] & 0x38);
	case 0x0f: /* cmov, imul, movzx, movsx */
		return (code[1] & 0xf0) == 0x40 || code[1] == 0xaf || code[1] == 0xb6 || code[1] == 0xb7 || code[1] == 0xbe ||
			code[1] == 0xbf;
	default:
		return false;
	}
}

/* What may be passed over: it goes on behind, always, and does not change these registers. */
static bool is_harmless(const uint8_t *code, const struct insn *i, uint64_t keep)
{
	size_t at = code[0] == 0x64; /* %fs: what belongs to the thread */
	uint64_t changes = i->writes;

	at += (code[at] & 0xf0) == 0x40; /* REX */
	if (i->entry || i->padding)
		return true;
	if (i->op != INSN_PLAIN && i->op != INSN_ADD && i->op != INSN_LOAD)
		return false;
	if (i->op != INSN_PLAIN)
		changes |= i->reg < 64 ? BIT(i->reg) : 0;
	return !(changes & keep) && is_known(code + at);
}

/* Registers in which the probe finds what it looks at. */
static uint64_t looked_at(const struct heap_probe *probe)
{
	uint64_t keep = STACK_POINTER | (probe->kind != HEAP_PROBE_ALLOC ? BIT(argument_regs[0]) : 0);

	keep |= probe->size < sizeof(argument_regs) ? BIT(argument_regs[probe->size]) : 0;
	return keep | (probe->count < sizeof(argument_regs) ? BIT(argument_regs[probe->count]) : 0);
}

size_t heap_entry_place(
	const struct heap_probe *probe, const uint8_t *code, size_t len, uint64_t at, bool *ret_emulated)
{
	uint64_t keep = looked_at(probe);
	size_t where = 0;

	*ret_emulated = false;
	while (where < len && where < FAR_ENOUGH) {
		struct insn i = insn_x86_64(code + where, len - where, at + where);

		if (!i.len || i.len > len - where)
			return 0;
		*ret_emulated = is_emulated(code + where, i.len);
		if (*ret_emulated)
			return where;
		if (!is_harmless(code + where, &i, keep))
			return 0;
		where += i.len;
	}
	return 0;
}

/* ---- all of a file ---- */

struct finder {
	struct elf_file *file;
	const char *prefix;
	struct heap_entries *found;
	bool operators, symbols;
};

static bool offset_of(const struct elf_file *f, uint64_t vaddr, uint64_t *ret)
{
	const struct elf_segment *s;
	size_t n = elf_file_segments(f, &s);

	for (size_t i = 0; i < n; i++)
		if (s[i].executable && vaddr >= s[i].vaddr && vaddr - s[i].vaddr < s[i].file_size) {
			*ret = vaddr - s[i].vaddr + s[i].offset;
			return true;
		}
	return false;
}

static void add_range(struct heap_entries *e, const struct elf_symbol *sym)
{
	for (size_t i = 0; i < e->range_count; i++)
		if (e->ranges[i].start == sym->start)
			return;
	if (sym->end > sym->start && e->range_count < HEAP_PROBE_RANGES)
		e->ranges[e->range_count++] = (struct heap_probe_range){sym->start, sym->end};
}

static bool is_there(const struct heap_entries *e, uint64_t start)
{
	for (size_t i = 0; i < e->count; i++)
		if (e->entries[i].start == start)
			return true;
	return false;
}

static void add(struct finder *f, const struct elf_symbol *sym, struct heap_probe probe)
{
	uint64_t len = sym->end > sym->start ? sym->end - sym->start : 1, at = sym->start;
	const uint8_t *code = elf_file_bytes_at(f->file, at, len);
	struct heap_entry *e = &f->found->entries[f->found->count];
	bool emulated = false;
	uint64_t offset;

	if (code && elf_file_machine(f->file) == EM_X86_64)
		at += heap_entry_place(&probe, code, len, at, &emulated);
	if (!code || is_there(f->found, sym->start) || !offset_of(f->file, at, &offset))
		return;
	if (f->found->count == HEAP_PROBES_MOST) {
		f->found->left_out++;
		return;
	}
	*e = (struct heap_entry){
		.start = sym->start, .end = sym->end, .probe = probe, .offset = offset, .emulated = emulated};
	snprintf(e->name, sizeof(e->name), "%s", sym->name);
	e->probe.at = at;
	f->found->count++;
	if (probe.kind != HEAP_PROBE_FREE)
		add_range(f->found, sym);
}

static int take(void *ctx, const struct elf_symbol *sym)
{
	struct finder *f = ctx;
	bool is_operator;
	struct heap_probe probe = heap_entry_by_name(sym->name, f->prefix, &is_operator);

	f->symbols = true;
	if (is_inside(sym->name))
		add_range(f->found, sym);
	if (!probe.kind || sym->type == STT_GNU_IFUNC || (is_operator && !f->operators))
		return 0;
	/* In one source file such a function may be anything. */
	if (sym->binding == STB_LOCAL && look_up(common, sizeof(common) / sizeof(common[0]), sym->name).kind)
		return 0;
	if (!strcmp(sym->name, "malloc"))
		f->found->has_malloc = true;
	add(f, sym, probe);
	return 0;
}

static int look_for_operators(void *ctx, const struct elf_symbol *sym)
{
	for (size_t i = 0; i < sizeof(with_operators) / sizeof(with_operators[0]); i++)
		if (!strcmp(sym->name, with_operators[i]))
			return 1;
	return 0;
}

static bool has_kind(const struct heap_entries *e, bool frees)
{
	for (size_t i = 0; i < e->count; i++)
		if ((e->entries[i].probe.kind == HEAP_PROBE_FREE) == frees)
			return true;
	return false;
}

int heap_entries_find(
	struct elf_file *f, struct elf_file *symbols, const char *prefix, struct heap_entries *ret, struct err *err)
{
	struct finder finder = {.file = f, .prefix = prefix, .found = ret};
	struct elf_file *from = symbols ? symbols : f;

	*ret = (struct heap_entries){0};
	finder.operators = elf_file_each_symbol(from, look_for_operators, NULL) == 1;
	elf_file_each_symbol(from, take, &finder);
	if (!finder.symbols)
		return err_set(err, ENOENT, "it has no symbols, so that its allocator cannot be found: run a build that is not "
			"stripped, or put its debug file where debuggers look for it (/usr/lib/debug/.build-id)");
	if (!has_kind(ret, false) || !has_kind(ret, true))
		return err_set(err, ENOENT, "among its symbols are no malloc and free, and none of an allocator that is known: name "
			"their prefix with --allocator");
	return 0;
}
