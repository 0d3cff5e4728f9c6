/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Call frame information as it lies in a file: CIEs and FDEs (DWARF 5, 6.4.1; for .eh_frame the
 * Linux Standard Base, Core, "Exception Frames") and the instructions in them (DWARF 5, 6.4.2).
 *
 * cfi.c finds and reads the entries, cfi_run.c runs the instructions of one FDE. Both only read
 * the section they are given, never allocate for longer than a call, and know nothing of indexes
 * or tables. Everything in a section is untrusted; what cannot be read ends the entry, not the
 * section.
 */
#ifndef SONDE_UNWIND_CFI_H
#define SONDE_UNWIND_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/vec.h"
#include "unwind/rule.h"

struct cfi_section {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
	uint64_t data_base; /* what DW_EH_PE_datarel counts from */
	enum unwind_arch arch;
	bool debug; /* .debug_frame, else .eh_frame */
};

/* A pointer in one of the DW_EH_PE_ encodings, whose first byte stands at address `at`. The
 * indirect flag is left to the caller: the value is then the address of the pointer. */
uint64_t cfi_read_encoded(struct cursor *c, uint8_t encoding, uint64_t at, uint64_t data_base);

struct cfi_cie {
	uint64_t offset; /* in the section; UINT64_MAX: nothing was read */
	uint64_t code_align;
	int64_t data_align;
	uint8_t ra_reg;
	uint8_t encoding;  /* of the FDEs' addresses, DW_EH_PE_ */
	uint8_t id_size;   /* bytes of the CIE pointer in its FDEs */
	uint8_t addr_size; /* of DW_EH_PE_absptr */
	bool has_augmentation_data;
	bool signal_frame;
	struct cursor code; /* initial instructions */
};

struct cfi_fde {
	uint64_t offset;
	uint64_t start, end; /* half-open, module addresses */
	struct cursor code;
};

/* The kind of entry that cfi_next() found. */
enum cfi_entry {
	CFI_END, /* nothing more that can be read */
	CFI_CIE,
	CFI_FDE,
};

/* Steps over one entry at *offset, sets *ret_offset to where it began and *offset behind it.
 * Zero terminators in the middle of the section are stepped over. */
enum cfi_entry cfi_next(const struct cfi_section *s, uint64_t *offset, uint64_t *ret_offset);

/* Reads the FDE at `offset`. `cie` caches the last CIE across calls for one section: start with
 * offset UINT64_MAX. False when the FDE or its CIE cannot be read; *ret is undefined then. */
bool cfi_read_fde(
	const struct cfi_section *s, uint64_t offset, struct cfi_cie *cie, struct cfi_fde *ret);

/* ---- running the instructions ---- */

/* One slot a register of enum unwind_arch, and one for a return address column beyond them. */
#define CFI_SLOTS (UNWIND_MAX_REGS + 1)

/* The register rules at one point of the program. */
struct cfi_state {
	uint8_t cfa_kind; /* enum cfa_kind, or CFI_NO_CFA */
	uint8_t cfa_reg;
	uint16_t cfa_expr_len;
	int32_t cfa_expr;   /* start in the section, while cfa_kind is CFA_EXPR */
	int32_t cfa_offset; /* kept meanwhile */
	bool ra_mangled;
	uint64_t named; /* bit i: regs[i] is a rule */
	struct reg_rule regs[CFI_SLOTS];
};

#define CFI_NO_CFA 0xff

/* Takes the rows of an FDE in order of address; `state` NULL: no rule holds from here on. Called
 * once a row, with offsets that grow strictly from 0. Returns 0, or an error that stops the run. */
struct cfi_sink {
	int (*row)(void *ctx, uint64_t offset, const struct cfi_state *state);
	void *ctx;
};

/* Reusable memory of runs; all-zero to begin with. */
struct cfi_runner {
	uint64_t cie_offset; /* whose initial state `initial` is; valid when has_initial */
	bool has_initial, initial_bad;
	struct cfi_state initial, now;
	VEC(struct cfi_state) stack; /* of DW_CFA_remember_state */
};

/* The runner's memory; it is all-zero again. */
void cfi_runner_release(struct cfi_runner *r);

/* Runs an FDE that cfi_read_fde() read. Instructions that are malformed or unknown end the rules:
 * rows before the point are delivered, then one without rule. 0, what the sink returned, or
 * -ENOMEM. */
int cfi_run(struct cfi_runner *r, const struct cfi_section *s, const struct cfi_cie *cie,
	const struct cfi_fde *fde, const struct cfi_sink *sink);

#endif
