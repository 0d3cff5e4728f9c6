/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/fde_index.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_BYTES 8
#define ENTRIES_PER_BUCKET 16 /* two cache lines */
#define HDR_PROBES 16	      /* entries compared with the FDEs they name when opening */

static int32_t load(const struct fde_index *index, size_t i, size_t field)
{
	int32_t v;

	memcpy(&v, index->entries + i * ENTRY_BYTES + field, sizeof(v));
	return v;
}

uint64_t fde_index_start(const struct fde_index *index, size_t i)
{
	return index->start_base + (uint64_t)load(index, i, 0);
}

uint64_t fde_index_offset(const struct fde_index *index, size_t i)
{
	return index->fde_base + (uint64_t)load(index, i, 4);
}

size_t fde_index_bytes(const struct fde_index *index)
{
	size_t buckets = index->buckets ? (index->bucket_count + 1) * sizeof(*index->buckets) : 0;

	return buckets + (index->own ? index->count * ENTRY_BYTES : 0);
}

void fde_index_release(struct fde_index *index)
{
	free(index->own);
	free(index->buckets);
	*index = (struct fde_index){0};
}

/* ---- buckets ---- */

/* Buckets of a power of two bytes, as many as give each ENTRIES_PER_BUCKET on average. The array
 * must be sorted. -EINVAL when it spans more than its 32-bit entries can, as it does where one of
 * them goes round the end of the address space. */
static int build_buckets(struct fde_index *index)
{
	if (!index->count)
		return 0;
	index->first = fde_index_start(index, 0);

	uint64_t span = fde_index_start(index, index->count - 1) - index->first;
	size_t want = index->count / ENTRIES_PER_BUCKET + 1, at = 0;

	if (span > UINT32_MAX)
		return -EINVAL;
	while (span >> index->bucket_shift >= want)
		index->bucket_shift++;
	index->bucket_count = (size_t)(span >> index->bucket_shift) + 1;
	index->buckets = malloc((index->bucket_count + 1) * sizeof(*index->buckets));
	if (!index->buckets)
		return -ENOMEM;
	for (size_t i = 0; i < index->count; i++) {
		size_t bucket =
			(size_t)((fde_index_start(index, i) - index->first) >> index->bucket_shift);

		while (at <= bucket)
			index->buckets[at++] = (uint32_t)i;
	}
	while (at <= index->bucket_count)
		index->buckets[at++] = (uint32_t)index->count;
	return 0;
}

size_t fde_index_find(const struct fde_index *index, uint64_t vaddr)
{
	if (!index->count || vaddr < index->first)
		return FDE_NOT_FOUND;

	uint64_t bucket = (vaddr - index->first) >> index->bucket_shift;

	if (bucket >= index->bucket_count)
		return index->count - 1;

	/* Of the entries that start in the bucket the last one not above vaddr; when all are above,
	 * the one before them. */
	size_t low = index->buckets[bucket], high = index->buckets[bucket + 1];

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (fde_index_start(index, middle) <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low - 1;
}

/* ---- the linker's table ---- */

/* LSB Core, "The .eh_frame_hdr section". Only the one form of table that can be searched and that
 * every linker writes is taken: pairs of 32 bits relative to the section. */
static bool read_hdr(
	struct fde_index *index, const struct unwind_section *hdr, const struct cfi_section *s)
{
	struct cursor c = cursor_over(hdr->bytes, hdr->size);
	uint8_t version = cursor_u8(&c), ptr_encoding = cursor_u8(&c);
	uint8_t count_encoding = cursor_u8(&c), table_encoding = cursor_u8(&c);

	if (c.bad || version != 1 || count_encoding == DW_EH_PE_omit ||
		table_encoding != (DW_EH_PE_datarel | DW_EH_PE_sdata4))
		return false;
	if (ptr_encoding != DW_EH_PE_omit)
		cfi_read_encoded(&c, ptr_encoding & 0x7f, hdr->vaddr + 4, hdr->vaddr);

	uint64_t count = cfi_read_encoded(
		&c, count_encoding, hdr->vaddr + (uint64_t)(c.at - hdr->bytes), hdr->vaddr);

	if (c.bad || !count || count > cursor_left(&c) / ENTRY_BYTES || count >= UINT32_MAX)
		return false;
	index->entries = c.at;
	index->count = (size_t)count;
	index->start_base = hdr->vaddr;
	index->fde_base = hdr->vaddr - s->vaddr;
	return true;
}

static bool is_sorted(const struct fde_index *index, const struct cfi_section *s)
{
	uint64_t before = 0;
	bool good = true;

	for (size_t i = 0; i < index->count; i++) {
		uint64_t start = fde_index_start(index, i);

		good &= start >= before && fde_index_offset(index, i) < s->size;
		before = start;
	}
	return good;
}

static bool names_its_fde(
	const struct fde_index *index, const struct cfi_section *s, struct cfi_cie *cie, size_t i)
{
	uint64_t offset = fde_index_offset(index, i);
	struct cfi_fde fde;

	return cfi_read_fde(s, offset, cie, &fde) && fde.start == fde_index_start(index, i) &&
	       !(i && offset == fde_index_offset(index, i - 1));
}

/* A table left over from before a tool rewrote the section is sorted but wrong. */
static bool looks_right(const struct fde_index *index, const struct cfi_section *s)
{
	struct cfi_cie cie = {.offset = UINT64_MAX};
	size_t step = index->count / HDR_PROBES + 1;

	for (size_t i = 0; i < index->count; i += step)
		if (!names_its_fde(index, s, &cie, i))
			return false;
	return true;
}

int fde_index_from_hdr(
	struct fde_index *index, const struct unwind_section *hdr, const struct cfi_section *s)
{
	int err = -EINVAL;

	*index = (struct fde_index){0};
	if (hdr->size && read_hdr(index, hdr, s) && is_sorted(index, s) && looks_right(index, s))
		err = build_buckets(index);
	if (err)
		fde_index_release(index);
	return err;
}

bool fde_index_is_wrong_at(const struct fde_index *index, const struct cfi_section *s, size_t i)
{
	struct cfi_cie cie = {.offset = UINT64_MAX};
	size_t next = i == FDE_NOT_FOUND ? 0 : i + 1;

	if (i != FDE_NOT_FOUND && !names_its_fde(index, s, &cie, i))
		return true;
	return next < index->count && !names_its_fde(index, s, &cie, next);
}

size_t fde_index_count_fdes(const struct cfi_section *s)
{
	uint64_t next = 0, offset;
	enum cfi_entry entry;
	size_t count = 0;

	while ((entry = cfi_next(s, &next, &offset)) != CFI_END)
		count += entry == CFI_FDE;
	return count;
}

/* ---- our own ---- */

struct found_fde {
	uint64_t start, offset;
};

VEC_TYPE(found_fdes, struct found_fde);

static int by_start(const void *a, const void *b)
{
	const struct found_fde *x = a, *y = b;

	if (x->start != y->start)
		return (x->start > y->start) - (x->start < y->start);
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Every FDE that covers anything. In .debug_frame, those at address 0 belonged to functions that
 * the linker threw away. */
static int collect(const struct cfi_section *s, struct found_fdes *ret, bool *ret_sorted)
{
	struct cfi_cie cie = {.offset = UINT64_MAX};
	uint64_t next = 0, offset, before = 0;
	enum cfi_entry entry;
	struct cfi_fde fde;

	*ret_sorted = true;
	while ((entry = cfi_next(s, &next, &offset)) != CFI_END) {
		if (entry != CFI_FDE || offset > INT32_MAX || !cfi_read_fde(s, offset, &cie, &fde))
			continue;
		if (fde.start == fde.end || (s->debug && !fde.start))
			continue;
		if (vec_push(ret, (struct found_fde){.start = fde.start, .offset = offset}))
			return -ENOMEM;
		*ret_sorted &= fde.start >= before;
		before = fde.start;
	}
	return 0;
}

/* Whether start - base fits 32 bits, and without going round the end of the address space. */
static bool fits(uint64_t start, uint64_t base)
{
	return start >= base ? start - base <= INT32_MAX : base - start <= INT32_MAX;
}

/* Packs the sorted list. Starts more than 2 GB from the middle one cannot be packed; in a real
 * file there are none, in a broken one they are the broken ones. */
static int pack(struct fde_index *index, const struct found_fdes *found)
{
	if (!found->len)
		return 0;
	index->own = malloc(found->len * ENTRY_BYTES);
	if (!index->own)
		return -ENOMEM;
	index->entries = index->own;
	index->start_base = found->data[found->len / 2].start;
	for (size_t i = 0; i < found->len; i++) {
		uint64_t start = found->data[i].start;
		int32_t entry[2] = {
			(int32_t)(start - index->start_base), (int32_t)found->data[i].offset};

		if (!fits(start, index->start_base))
			continue;
		memcpy(index->own + index->count++ * ENTRY_BYTES, entry, sizeof(entry));
	}
	return build_buckets(index);
}

int fde_index_scan(struct fde_index *index, const struct cfi_section *s)
{
	struct found_fdes found = {0};
	bool sorted;
	int err = collect(s, &found, &sorted);

	*index = (struct fde_index){0};
	if (!err && !sorted)
		qsort(found.data, found.len, sizeof(*found.data), by_start);
	if (!err)
		err = pack(index, &found);
	vec_release(&found);
	if (err)
		fde_index_release(index);
	return err;
}
