/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * USDT probes that an object file says it has: notes in .note.stapsdt, of the form that
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation describes. Addresses are those of the file as it is: where
 * prelinking has moved them, .stapsdt.base says by how much.
 */
#ifndef SONDE_ELF_PROBE_NOTES_H
#define SONDE_ELF_PROBE_NOTES_H

#include <stddef.h>
#include <stdint.h>

#include "elf/elf_file.h"

enum elf_operand_kind {
	ELF_OPERAND_OTHER, /* of a form that is not read */
	ELF_OPERAND_CONSTANT,
	ELF_OPERAND_REGISTER,
	ELF_OPERAND_MEMORY, /* at register + value */
};

struct elf_operand {
	uint8_t kind;  /* enum elf_operand_kind */
	uint8_t reg;   /* DWARF number of the general register */
	int8_t size;   /* 1, 2, 4 or 8 bytes; negative: of a signed number */
	int64_t value; /* of a constant; the distance in memory */
};

#define ELF_PROBE_OPERANDS 12u

struct elf_probe {
	const char *provider, *name, *arguments; /* valid as long as the notes */
	uint64_t at;        /* the instruction */
	uint64_t semaphore; /* a 16-bit counter of those that listen; 0: there is none */
	unsigned count;
	struct elf_operand operands[ELF_PROBE_OPERANDS]; /* further arguments are not read */
};

/*
 * Calls `each` for every probe; stops at the first note that makes no sense, and returns the value of `each` when it is not 0.
 * `base`: where .stapsdt.base is, NULL: there is none. `machine`: EM_X86_64 or EM_AARCH64, by which registers are called.
 */
int elf_probe_notes(const void *notes, size_t size, unsigned machine, const uint64_t *base,
	int (*each)(void *ctx, const struct elf_probe *p), void *ctx);

/* The same with the notes of a file; 0 when it has none. */
int elf_file_each_probe(struct elf_file *f, int (*each)(void *ctx, const struct elf_probe *p), void *ctx);

#endif
