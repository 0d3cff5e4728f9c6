/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes call frame sections by hand, and rules as text, for tests.
 *
 *	struct cfi_bytes s = {.vaddr = 0x10000};
 *	cfi_bytes_cie(&s, &(struct cie_spec){.letters = "zR", .encoding = 0x1b});
 *	cfi_bytes_fde(&s, 0x1000, 0x20, OPS(0x41, 0x0e, 16));
 *
 * FDEs belong to the CIE written last. Unless the spec says otherwise a CIE is what compilers
 * write for x86-64: code alignment 1, data alignment -8, CFA rsp + 8, return address at CFA - 8.
 */
#ifndef SONDE_TESTS_UNIT_CFI_BYTES_H
#define SONDE_TESTS_UNIT_CFI_BYTES_H

#include <dwarf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "unwind/table.h"

#define OPS(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define NO_OPS NULL, 0
/* The same for an array member followed by its length. */
#define OPS_(...) {__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

struct cie_spec {
	uint8_t version; /* 0: 1 */
	const char *letters;
	uint8_t encoding;  /* of FDE addresses, when letters has 'R' */
	uint8_t id_size;   /* 64-bit .eh_frame: 4 or 8; 0: 4 */
	uint8_t addr_size; /* version 4; 0: 8 */
	uint8_t segment_size;
	uint8_t code_align;  /* 0: 1 */
	uint8_t ra_reg;	     /* 0: 16 */
	const uint8_t *data; /* augmentation data instead of the one byte for 'R' */
	size_t data_len;
	const uint8_t *ops; /* instead of those above */
	size_t ops_len;
};

struct cfi_bytes {
	struct buf b;
	uint64_t vaddr, data_base;
	bool debug, wide;
	size_t cie_at;
	struct cie_spec cie;
	size_t length_at, body_at; /* of the entry being written */
};

static inline struct unwind_section cfi_bytes_section(const struct cfi_bytes *s)
{
	return (struct unwind_section){
		.bytes = (const uint8_t *)s->b.data, .size = s->b.len, .vaddr = s->vaddr};
}

static inline void cfi_bytes_begin_(struct cfi_bytes *s)
{
	buf_u32(&s->b, s->wide ? UINT32_MAX : 0);
	s->length_at = s->wide ? s->b.len : s->b.len - 4;
	if (s->wide)
		buf_u64(&s->b, 0);
	s->body_at = s->b.len;
}

static inline void cfi_bytes_end_(struct cfi_bytes *s)
{
	buf_pad(&s->b, 8); /* nops */

	uint64_t len = s->b.len - s->body_at;

	memcpy(s->b.data + s->length_at, &len, s->wide ? 8 : 4);
}

/* A CIE id or pointer, as wide as this kind of section has it. */
static inline void cfi_bytes_id_(struct cfi_bytes *s, uint64_t id)
{
	if (s->wide && (s->debug || s->cie.id_size == 8))
		buf_u64(&s->b, id);
	else
		buf_u32(&s->b, (uint32_t)id);
}

static inline void cfi_bytes_cie(struct cfi_bytes *s, const struct cie_spec *spec)
{
	static const uint8_t ops[] = {DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1};
	const char *letters = spec->letters ? spec->letters : "";
	uint8_t version = spec->version ? spec->version : 1;

	s->cie = *spec;
	s->cie_at = s->b.len;
	cfi_bytes_begin_(s);
	cfi_bytes_id_(s, s->debug ? UINT64_MAX : 0);
	buf_u8(&s->b, version);
	buf_add(&s->b, letters, strlen(letters) + 1);
	if (!strcmp(letters, "eh"))
		buf_u64(&s->b, 0x1234);
	if (version == 4) {
		buf_u8(&s->b, spec->addr_size ? spec->addr_size : 8);
		buf_u8(&s->b, spec->segment_size);
	}
	buf_uleb(&s->b, spec->code_align ? spec->code_align : 1);
	buf_u8(&s->b, 0x78); /* -8 */
	buf_u8(&s->b, spec->ra_reg ? spec->ra_reg : 16);
	if (*letters == 'z') {
		buf_uleb(&s->b, spec->data ? spec->data_len : 1);
		buf_add(&s->b, spec->data ? spec->data : &spec->encoding,
			spec->data ? spec->data_len : 1);
	}
	buf_add(&s->b, spec->ops ? spec->ops : ops, spec->ops ? spec->ops_len : sizeof(ops));
	cfi_bytes_end_(s);
}

/* `value` in a DW_EH_PE_ encoding; as a size it is relative to nothing. */
static inline void cfi_bytes_pointer_(struct cfi_bytes *s, uint64_t value, bool is_size)
{
	uint8_t encoding = s->cie.encoding;

	if (!is_size && (encoding & 0x70) == DW_EH_PE_pcrel)
		value -= s->vaddr + s->b.len;
	if (!is_size && (encoding & 0x70) == DW_EH_PE_datarel)
		value -= s->data_base;
	if (s->cie.addr_size == 4 && !encoding)
		encoding = DW_EH_PE_udata4;
	switch (encoding & 0x07) {
	case DW_EH_PE_uleb128:
		buf_uleb(&s->b, value);
		break;
	case DW_EH_PE_udata2:
		buf_u16(&s->b, (uint16_t)value);
		break;
	case DW_EH_PE_udata4:
		buf_u32(&s->b, (uint32_t)value);
		break;
	default:
		buf_u64(&s->b, value);
	}
}

/* Returns where in the section the FDE lies. */
static inline size_t cfi_bytes_fde(
	struct cfi_bytes *s, uint64_t start, uint64_t size, const uint8_t *ops, size_t ops_len)
{
	size_t at = s->b.len;

	cfi_bytes_begin_(s);
	cfi_bytes_id_(s, s->debug ? s->cie_at : s->b.len - s->cie_at);
	cfi_bytes_pointer_(s, start, false);
	cfi_bytes_pointer_(s, size, true);
	if (s->cie.letters && *s->cie.letters == 'z')
		buf_uleb(&s->b, 0);
	buf_add(&s->b, ops, ops_len);
	cfi_bytes_end_(s);
	return at;
}

/* One entry of an .eh_frame_hdr table; cfi_bytes_hdr() begins one that promises `count`. */
static inline void cfi_bytes_hdr(struct cfi_bytes *hdr, const struct cfi_bytes *eh, uint32_t count)
{
	buf_u8(&hdr->b, 1);
	buf_u8(&hdr->b, DW_EH_PE_pcrel | DW_EH_PE_sdata4);
	buf_u8(&hdr->b, DW_EH_PE_udata4);
	buf_u8(&hdr->b, DW_EH_PE_datarel | DW_EH_PE_sdata4);
	buf_u32(&hdr->b, (uint32_t)(eh->vaddr - hdr->vaddr - 4));
	buf_u32(&hdr->b, count);
}

static inline void cfi_bytes_hdr_entry(
	struct cfi_bytes *hdr, const struct cfi_bytes *eh, uint64_t start, size_t fde_at)
{
	buf_u32(&hdr->b, (uint32_t)(start - hdr->vaddr));
	buf_u32(&hdr->b, (uint32_t)(eh->vaddr + fde_at - hdr->vaddr));
}

/* ---- rules as text: "7+16 3@-24 16@-8", the CFA first ---- */

static inline void rule_text_reg_(struct buf *b, const struct reg_rule *r)
{
	switch ((enum reg_kind)r->kind) {
	case REG_UNDEFINED:
		buf_printf(b, " %u=lost", r->reg);
		break;
	case REG_SAME:
		buf_printf(b, " %u=same", r->reg);
		break;
	case REG_AT_CFA:
		buf_printf(b, " %u@%+d", r->reg, r->offset);
		break;
	case REG_CFA_OFFSET:
		buf_printf(b, " %u=cfa%+d", r->reg, r->offset);
		break;
	case REG_IN_REG:
		buf_printf(b, " %u=r%d", r->reg, r->offset);
		break;
	case REG_AT_EXPR:
		buf_printf(b, " %u@expr(%u)", r->reg, r->expr_len);
		break;
	case REG_EXPR:
		buf_printf(b, " %u=expr(%u)", r->reg, r->expr_len);
		break;
	}
}

/* Good until the next call. "none" for NULL. */
static inline const char *rule_text(const struct unwind_rule *rule)
{
	static struct buf b;

	buf_clear(&b);
	if (!rule)
		return "none";
	if (rule->cfa_kind == CFA_EXPR)
		buf_printf(&b, "expr(%u)", rule->cfa_expr_len);
	else
		buf_printf(&b, "%u%+d", rule->cfa_reg, rule->cfa_offset);
	for (int i = 0; i < rule->reg_count; i++)
		rule_text_reg_(&b, &rule->regs[i]);
	if (rule->ra_reg != 16)
		buf_printf(&b, " ra=%u", rule->ra_reg);
	buf_str(&b, rule->signal_frame ? " signal" : "");
	buf_str(&b, rule->ra_mangled ? " mangled" : "");
	return b.data;
}

#endif
