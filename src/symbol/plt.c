/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stub jumps through a slot of the GOT, and a relocation says which symbol goes into that slot:
 * decode the jump, look up the slot. Nothing is assumed about the order of stubs. The one form
 * without a slot in it (x86-64 with IBT: endbr64; push N; jmp) holds the number of its relocation.
 * Encodings: Intel SDM vol. 2; x86-64 psABI 5.2; Arm AAELF64, "Procedure linkage table".
 */
#include "symbol/plt.h"

#include <elf.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/cursor.h"

#define STUB_BYTES 16

struct slot {
	uint64_t address;
	const char *name; /* of the symbol; NULL: addend names an IFUNC resolver */
	uint64_t resolver;
};

struct slots {
	VEC(struct slot) sorted;
	VEC(struct slot) numbered; /* .rela.plt in file order */
};

static bool fills_slot(unsigned machine, uint32_t type)
{
	if (machine == EM_X86_64)
		return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
			type == R_X86_64_IRELATIVE;
	return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT ||
		type == R_AARCH64_IRELATIVE;
}

static const char *dynamic_name(
	const struct elf_section *symbols, const struct elf_section *strings, uint64_t index)
{
	Elf64_Sym sym;

	if (!index || index >= symbols->size / sizeof(sym))
		return NULL;
	memcpy(&sym, symbols->bytes + index * sizeof(sym), sizeof(sym));
	return sym.st_name < strings->size ? (const char *)strings->bytes + sym.st_name : NULL;
}

static int read_relocations(struct elf_file *f, const char *section, struct slots *ret)
{
	struct elf_section rela, symbols = {0}, strings = {0};
	bool numbered = !strcmp(section, ".rela.plt");

	if (!elf_file_section(f, section, &rela))
		return 0;
	if (!elf_file_section(f, ".dynsym", &symbols) || !elf_file_section(f, ".dynstr", &strings))
		symbols.size = 0;
	if (!strings.size || strings.bytes[strings.size - 1])
		symbols.size = 0; /* names that may not end: none */

	struct cursor c = cursor_over(rela.bytes, rela.size);
	while (cursor_left(&c) >= sizeof(Elf64_Rela)) {
		Elf64_Rela r;

		memcpy(&r, cursor_bytes(&c, sizeof(r)), sizeof(r));
		struct slot s = {.address = r.r_offset, .resolver = (uint64_t)r.r_addend};
		bool ours = fills_slot(elf_file_machine(f), ELF64_R_TYPE(r.r_info));

		if (ours)
			s.name = dynamic_name(&symbols, &strings, ELF64_R_SYM(r.r_info));
		if ((ours && vec_push(&ret->sorted, s)) ||
			(numbered && vec_push(&ret->numbered, s)))
			return -ENOMEM;
	}
	return 0;
}

static int compare_slots(const void *va, const void *vb)
{
	const struct slot *a = va, *b = vb;

	return (a->address > b->address) - (a->address < b->address);
}

static const struct slot *slot_at(const struct slots *slots, uint64_t address)
{
	struct slot key = {.address = address};

	if (!slots->sorted.len)
		return NULL;
	return bsearch(&key, slots->sorted.data, slots->sorted.len, sizeof(key), compare_slots);
}

/* [endbr64] [bnd] jmp *slot(%rip), or endbr64; push N. `bytes` holds STUB_BYTES or fewer. */
static const struct slot *decode_x86(
	const struct slots *slots, const uint8_t *bytes, size_t len, uint64_t address)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	struct cursor c = cursor_over(bytes, len);
	bool ibt = len >= 4 && !memcmp(bytes, endbr64, 4);

	cursor_skip(&c, ibt ? 4 : 0);
	if (cursor_left(&c) && *c.at == 0xf2)
		cursor_skip(&c, 1);
	uint8_t opcode = cursor_u8(&c);

	if (ibt && opcode == 0x68) {
		uint32_t number = cursor_u32(&c);
		bool known = !c.bad && number < slots->numbered.len;
		return known ? &slots->numbered.data[number] : NULL;
	}
	if (opcode != 0xff || cursor_u8(&c) != 0x25)
		return NULL;
	int64_t distance = cursor_s32(&c);
	if (c.bad)
		return NULL;
	return slot_at(slots, address + (uint64_t)(c.at - bytes) + (uint64_t)distance);
}

/* [bti c]; adrp x16, page; ldr x17, [x16, #low] */
static const struct slot *decode_aarch64(
	const struct slots *slots, const uint8_t *bytes, size_t len, uint64_t address)
{
	struct cursor c = cursor_over(bytes, len);
	uint32_t adrp = cursor_u32(&c);

	if (adrp == 0xd503245f) {
		adrp = cursor_u32(&c);
		address += 4;
	}
	uint32_t ldr = cursor_u32(&c);
	if (c.bad || (adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return NULL;
	uint64_t pages = (uint64_t)((adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3));
	uint64_t signed_pages = (pages ^ 0x100000) - 0x100000; /* 21 bits, signed */
	uint64_t page = (address & ~0xfffULL) + (signed_pages << 12);
	return slot_at(slots, page + (ldr >> 10 & 0xfff) * 8);
}

static const char *stub_name(
	struct symbol_source *s, const struct name_table *names, const struct slot *slot)
{
	const struct name_entry *resolver =
		slot->name ? NULL : name_table_find(names, slot->resolver);
	const char *target = slot->name ? slot->name : resolver ? resolver->name : NULL;
	char text[1024];

	if (!target)
		return NULL;
	autofree char *plain = symbol_demangle(target);
	snprintf(text, sizeof(text), "%s@plt", plain ? plain : target);
	return symbol_keep(s, text);
}

struct stub_walk {
	struct symbol_source *s;
	struct elf_file *f;
	const struct name_table *names;
	const struct slots *slots;
	int (*add)(void *ctx, const struct elf_symbol *sym);
	void *ctx;
};

/* `step` is the distance of possible starts: .plt.got packs stubs of 8 bytes without IBT. */
static int walk_stubs(const struct stub_walk *w, const char *section, size_t step)
{
	const bool x86 = elf_file_machine(w->f) == EM_X86_64;
	struct elf_section text;

	if (!elf_file_section(w->f, section, &text))
		return 0;
	for (size_t at = 0; at + step <= text.size; at += step) {
		const uint8_t *bytes = text.bytes + at;
		size_t len = text.size - at < STUB_BYTES ? text.size - at : STUB_BYTES;
		const struct slot *slot = x86
			? decode_x86(w->slots, bytes, len, text.vaddr + at)
			: decode_aarch64(w->slots, bytes, len, text.vaddr + at);
		const char *name = slot ? stub_name(w->s, w->names, slot) : NULL;

		if (!name)
			continue;
		size_t size = step == 8 && bytes[0] == 0xff ? 8 : STUB_BYTES;
		struct elf_symbol sym = {text.vaddr + at, text.vaddr + at + size, name, STT_FUNC,
			STB_LOCAL, STV_DEFAULT, false};
		int rc = w->add(w->ctx, &sym);
		if (rc)
			return rc;
	}
	return 0;
}

int plt_each_stub(struct symbol_source *s, struct elf_file *f, const struct name_table *names,
	int (*add)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	const size_t step = elf_file_machine(f) == EM_X86_64 ? STUB_BYTES : 4;
	struct slots slots = {0};
	struct stub_walk w = {s, f, names, &slots, add, ctx};
	int rc = read_relocations(f, ".rela.plt", &slots);

	if (!rc)
		rc = read_relocations(f, ".rela.dyn", &slots);
	if (!rc && slots.sorted.len) {
		qsort(slots.sorted.data, slots.sorted.len, sizeof(struct slot), compare_slots);
		rc = walk_stubs(&w, ".plt", step);
		rc = rc ? rc : walk_stubs(&w, ".plt.sec", step);
		rc = rc ? rc : walk_stubs(&w, ".plt.got", step < 8 ? step : 8);
	}
	vec_release(&slots.sorted);
	vec_release(&slots.numbered);
	return rc;
}
