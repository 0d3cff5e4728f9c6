/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding and reading CIEs and FDEs. Running their instructions is cfi_run.c. */
#include "unwind/cfi.h"

#include <dwarf.h>

/* What stands before the body of an entry. */
struct entry_head {
	struct cursor body; /* from the CIE id or pointer to the end of the entry */
	uint64_t id_offset; /* of the first byte of the body in the section */
	bool wide;	    /* 64-bit format */
};

static uint64_t offset_of(const struct cfi_section *s, const struct cursor *c)
{
	return (uint64_t)(c->at - s->bytes);
}

/* The length field and the bytes it speaks of. False at the end of what can be read; an empty
 * body is a terminator. */
static bool read_head(const struct cfi_section *s, uint64_t offset, struct entry_head *ret)
{
	if (offset >= s->size)
		return false;

	struct cursor c = cursor_over(s->bytes + offset, s->size - (size_t)offset);
	uint64_t len = cursor_u32(&c);

	ret->wide = len == UINT32_MAX;
	if (ret->wide)
		len = cursor_u64(&c);
	if (c.bad)
		return false;
	ret->id_offset = offset_of(s, &c);
	ret->body = cursor_sub(&c, len);
	return !ret->body.bad;
}

/* In .eh_frame a CIE has id 0, in .debug_frame all ones. The LSB gives .eh_frame ids four bytes
 * even in the 64-bit format; some assemblers write eight. The version, which is never 0, follows
 * a CIE's id and so tells which. */
static bool read_cie_id(const struct cfi_section *s, struct entry_head *h, uint8_t *ret_size)
{
	if (s->debug) {
		*ret_size = h->wide ? 8 : 4;
		return h->wide ? cursor_u64(&h->body) == UINT64_MAX
			       : cursor_u32(&h->body) == UINT32_MAX;
	}
	if (cursor_u32(&h->body))
		return false;
	*ret_size = 4;
	if (h->wide && cursor_left(&h->body) > 4 && !*h->body.at) {
		*ret_size = 8;
		return !cursor_u32(&h->body);
	}
	return true;
}

enum cfi_entry cfi_next(const struct cfi_section *s, uint64_t *offset, uint64_t *ret_offset)
{
	struct entry_head h;

	while (read_head(s, *offset, &h)) {
		uint64_t at = *offset;
		uint8_t id_size;

		*offset = h.id_offset + cursor_left(&h.body);
		if (cursor_left(&h.body) < 4)
			continue;
		*ret_offset = at;
		return read_cie_id(s, &h, &id_size) ? CFI_CIE : CFI_FDE;
	}
	return CFI_END;
}

static uint64_t read_address(struct cursor *c, uint8_t size)
{
	return size == 4 ? cursor_u32(c) : cursor_u64(c);
}

uint64_t cfi_read_encoded(struct cursor *c, uint8_t encoding, uint64_t at, uint64_t data_base)
{
	uint64_t base = 0;

	switch (encoding & 0x70) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_textrel: /* both of our architectures count from 0 */
		break;
	case DW_EH_PE_pcrel:
		base = at;
		break;
	case DW_EH_PE_datarel:
		base = data_base;
		break;
	case DW_EH_PE_aligned:
		cursor_skip(c, -at & 7);
		break;
	default:
		c->bad = true;
	}
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return base + cursor_u64(c);
	case DW_EH_PE_udata4:
		return base + cursor_u32(c);
	case DW_EH_PE_sdata4:
		return base + (uint64_t)cursor_s32(c);
	case DW_EH_PE_udata2:
		return base + cursor_u16(c);
	case DW_EH_PE_sdata2:
		return base + (uint64_t)cursor_s16(c);
	case DW_EH_PE_uleb128:
		return base + cursor_uleb(c);
	case DW_EH_PE_sleb128:
		return base + (uint64_t)cursor_sleb(c);
	}
	c->bad = true;
	return 0;
}

/* The augmentation data that the letters after 'z' describe. Letters not known end it: its length
 * tells where the instructions begin all the same. */
static void read_augmentation(
	const struct cfi_section *s, struct cursor *data, const char *letters, struct cfi_cie *cie)
{
	for (; *letters && !data->bad; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R':
			cie->encoding = cursor_u8(data);
			break;
		case 'P':
			encoding = cursor_u8(data);
			cfi_read_encoded(data, encoding & 0x7f, s->vaddr + offset_of(s, data), 0);
			break;
		case 'L':
			cursor_skip(data, 1);
			break;
		case 'S':
			cie->signal_frame = true;
			break;
		case 'B': /* aarch64: signed with the B key; stripping is the same */
		case 'G': /* aarch64: memory tagging of the stack */
			break;
		default:
			return;
		}
	}
}

/* The letters of a CIE, and the data some of them bring. Without 'z' only "" and "eh", whose one
 * pointer was read before, can be understood. */
static bool read_letters(
	const struct cfi_section *s, struct cursor *c, const char *letters, struct cfi_cie *cie)
{
	if (*letters == 'z') {
		struct cursor data = cursor_sub(c, cursor_uleb(c));

		cie->has_augmentation_data = true;
		read_augmentation(s, &data, letters + 1, cie);
		return !c->bad && !data.bad;
	}
	return !*letters || (letters[0] == 'e' && letters[1] == 'h' && !letters[2]);
}

static bool read_cie(const struct cfi_section *s, uint64_t offset, struct cfi_cie *cie)
{
	struct entry_head h;

	*cie = (struct cfi_cie){.offset = UINT64_MAX, .addr_size = 8};
	if (!read_head(s, offset, &h) || !read_cie_id(s, &h, &cie->id_size))
		return false;

	struct cursor *c = &h.body;
	uint8_t version = cursor_u8(c), segment_size = 0;
	const char *letters = cursor_cstr(c);

	if (c->bad || (version != 1 && version != 3 && version != 4))
		return false;
	if (letters[0] == 'e' && letters[1] == 'h')
		cursor_skip(c, 8);
	if (version == 4) {
		cie->addr_size = cursor_u8(c);
		segment_size = cursor_u8(c);
	}
	cie->code_align = cursor_uleb(c);
	cie->data_align = cursor_sleb(c);

	uint64_t ra_reg = version == 1 ? cursor_u8(c) : cursor_uleb(c);

	if (c->bad || segment_size || ra_reg > UINT8_MAX)
		return false;
	if (cie->addr_size != 4 && cie->addr_size != 8)
		return false;
	cie->ra_reg = (uint8_t)ra_reg;
	if (!read_letters(s, c, letters, cie))
		return false;
	cie->code = *c;
	cie->offset = offset;
	return true;
}

/* Where the CIE of an FDE lies: in .eh_frame counted backwards from the pointer itself. The low
 * half is enough to find it, so the width, which only the CIE knows, may be settled later. */
static bool find_cie(const struct cfi_section *s, struct entry_head *h, uint64_t *ret)
{
	struct cursor peek = h->body;

	if (s->debug) {
		*ret = h->wide ? cursor_u64(&peek) : cursor_u32(&peek);
		return !peek.bad && *ret < s->size;
	}

	uint64_t back = cursor_u32(&peek);

	*ret = h->id_offset - back;
	return !peek.bad && back && back <= h->id_offset;
}

static uint64_t read_fde_address(
	const struct cfi_section *s, struct cursor *c, const struct cfi_cie *cie, uint8_t encoding)
{
	if (s->debug && !encoding)
		return read_address(c, cie->addr_size);
	return cfi_read_encoded(c, encoding, s->vaddr + offset_of(s, c), s->data_base);
}

bool cfi_read_fde(
	const struct cfi_section *s, uint64_t offset, struct cfi_cie *cie, struct cfi_fde *ret)
{
	struct entry_head h;
	uint64_t cie_offset, size;

	if (!read_head(s, offset, &h) || !find_cie(s, &h, &cie_offset))
		return false;
	if (cie->offset != cie_offset && !read_cie(s, cie_offset, cie))
		return false;
	cursor_skip(&h.body, cie->id_size);

	ret->offset = offset;
	ret->start = read_fde_address(s, &h.body, cie, cie->encoding & 0x7f);
	size = read_fde_address(s, &h.body, cie, cie->encoding & 0x0f);
	if (cie->has_augmentation_data)
		cursor_skip(&h.body, cursor_uleb(&h.body));
	ret->code = h.body;
	return !h.body.bad && !__builtin_add_overflow(ret->start, size, &ret->end);
}
