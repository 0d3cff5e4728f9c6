/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sources: LSB Core 5.0, "The .eh_frame section" and "The .eh_frame_hdr section". Pointer encodings
 * other than those that linkers and compilers write for code (4 or 8 bytes, absolute, relative to
 * the field or to the header) are passed over.
 */
#include "symbol/function_starts.h"

#include "base/cursor.h"

#define PE_ABSPTR 0x00
#define PE_UDATA4 0x03
#define PE_SDATA4 0x0b
#define PE_SDATA8 0x0c
#define PE_PCREL 0x10
#define PE_DATAREL 0x30
#define PE_OMIT 0xff
#define TABLE_ENTRY_BYTES 8

struct reader {
	struct cursor c;
	const uint8_t *first; /* of the section */
	uint64_t vaddr;       /* of `first` */
};

static uint64_t position(const struct reader *r)
{
	return r->vaddr + (uint64_t)(r->c.at - r->first);
}

static bool read_pointer(struct reader *r, uint8_t encoding, uint64_t *ret)
{
	uint64_t base = 0, value;

	if ((encoding & 0x70) == PE_PCREL)
		base = position(r);
	else if ((encoding & 0x70) == PE_DATAREL)
		base = r->vaddr;
	else if (encoding & 0x70)
		return false;
	switch (encoding & 0x0f) {
	case PE_ABSPTR:
	case 0x04: /* udata8 */
	case PE_SDATA8:
		value = cursor_u64(&r->c);
		break;
	case PE_UDATA4:
		value = cursor_u32(&r->c);
		break;
	case PE_SDATA4:
		value = (uint64_t)cursor_s32(&r->c);
		break;
	default:
		return false;
	}
	*ret = base + value;
	return !r->c.bad;
}

static bool use_table(struct elf_file *f, struct function_starts *ret)
{
	struct elf_section s;

	if (!elf_file_section(f, ".eh_frame_hdr", &s))
		return false;
	struct reader r = {cursor_over(s.bytes, s.size), s.bytes, s.vaddr};
	uint8_t version = cursor_u8(&r.c), frame_enc = cursor_u8(&r.c);
	uint8_t count_enc = cursor_u8(&r.c), table_enc = cursor_u8(&r.c);
	uint64_t frame, count;

	if (version != 1 || table_enc != (PE_DATAREL | PE_SDATA4) || count_enc == PE_OMIT ||
		!read_pointer(&r, frame_enc, &frame) || !read_pointer(&r, count_enc, &count))
		return false;
	size_t room = cursor_left(&r.c) / TABLE_ENTRY_BYTES;

	ret->table = r.c.at;
	ret->table_count = count < room ? count : room;
	ret->table_base = s.vaddr;
	return ret->table_count;
}

/* The encoding of pointers in the FDEs of the CIE at `at`; PE_OMIT when it cannot be told. */
static uint8_t fde_encoding(const uint8_t *at, const uint8_t *end)
{
	struct cursor c = cursor_over(at, (size_t)(end - at));
	struct cursor body = cursor_sub(&c, cursor_u32(&c));

	if (cursor_u32(&body))
		return PE_OMIT;
	uint8_t version = cursor_u8(&body);
	const char *augmentation = cursor_cstr(&body);

	cursor_uleb(&body);
	cursor_sleb(&body);
	if (version == 1)
		cursor_skip(&body, 1);
	else
		cursor_uleb(&body);
	if (*augmentation != 'z')
		return body.bad ? PE_OMIT : PE_ABSPTR;
	cursor_uleb(&body);
	for (const char *a = augmentation + 1; *a; a++) {
		uint8_t byte = *a == 'R' || *a == 'L' || *a == 'P' ? cursor_u8(&body) : 0;

		if (*a == 'R')
			return body.bad ? PE_OMIT : byte;
		if (*a == 'P') /* after its encoding, a pointer of that width */
			cursor_skip(&body, (byte & 7) == PE_UDATA4 ? 4 : 8);
	}
	return PE_ABSPTR;
}

static int compare_starts(const void *va, const void *vb)
{
	uint64_t a = *(const uint64_t *)va, b = *(const uint64_t *)vb;

	return (a > b) - (a < b);
}

static int scan_frames(struct elf_file *f, struct function_starts *ret)
{
	struct elf_section s;

	if (!elf_file_section(f, ".eh_frame", &s))
		return 0;
	struct reader r = {cursor_over(s.bytes, s.size), s.bytes, s.vaddr};

	while (cursor_left(&r.c) >= 4) {
		uint32_t len = cursor_u32(&r.c);
		const uint8_t *body = r.c.at;
		struct reader entry = {cursor_sub(&r.c, len), s.bytes, s.vaddr};
		uint32_t back = len >= 4 ? cursor_u32(&entry.c) : 0; /* FDE: distance to its CIE */
		uint64_t start;

		if (!back || back > (size_t)(body - s.bytes))
			continue;
		uint8_t encoding = fde_encoding(body - back, s.bytes + s.size);
		if (encoding == PE_OMIT || !read_pointer(&entry, encoding, &start) || !start)
			continue;
		if (vec_push(&ret->sorted, start))
			return -ENOMEM;
	}
	if (ret->sorted.len)
		qsort(ret->sorted.data, ret->sorted.len, sizeof(uint64_t), compare_starts);
	return 0;
}

int function_starts_read(struct elf_file *f, struct function_starts *ret)
{
	*ret = (struct function_starts){0};
	return use_table(f, ret) ? 0 : scan_frames(f, ret);
}

static uint64_t start_at(const struct function_starts *s, size_t index)
{
	struct cursor c = cursor_over(s->table + index * TABLE_ENTRY_BYTES, 4);

	return s->table ? s->table_base + (uint64_t)cursor_s32(&c) : s->sorted.data[index];
}

bool function_starts_find(const struct function_starts *s, uint64_t address, uint64_t *ret)
{
	size_t low = 0, high = s->table ? s->table_count : s->sorted.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (start_at(s, mid) <= address)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return false;
	*ret = start_at(s, low - 1);
	return true;
}

void function_starts_release(struct function_starts *s)
{
	vec_release(&s->sorted);
}
