/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/memory.h"

#include "base/hash.h"
#include "python/python_priv.h"

/* Reads larger than this go past the cache: they are arrays that are looked at once. */
#define LARGE_BYTES (4 * PYTHON_BLOCK_BYTES)

void python_pages_init(struct python_pages *pages, const struct python_memory *memory)
{
	memset(pages, 0, sizeof(*pages));
	pages->memory = *memory;
	pages->look = 1;
}

void python_pages_release(struct python_pages *pages)
{
	for (size_t set = 0; set < PYTHON_SETS; set++)
		for (size_t way = 0; way < PYTHON_WAYS; way++)
			free(pages->blocks[set][way].data);
	memset(pages->blocks, 0, sizeof(pages->blocks));
	pages->last = NULL;
}

void python_pages_refresh(struct python_pages *pages)
{
	pages->look++;
	pages->last = NULL;
}

static bool read_now(struct python_pages *pages, uint64_t addr, void *buf, size_t len)
{
	pages->reads++;
	return pages->memory.read(pages->memory.ctx, addr, buf, len);
}

/* The block's place; what was there before is forgotten. NULL: no memory. */
static struct python_block *block_of(struct python_pages *pages, uint64_t number)
{
	struct python_block *set = pages->blocks[hash_u64(number) % PYTHON_SETS], *oldest = set;

	if (pages->last && pages->last->number == number)
		return pages->last;
	for (size_t way = 0; way < PYTHON_WAYS; way++) {
		struct python_block *b = &set[way];

		if (b->look == pages->look && b->number == number) {
			b->used = ++pages->clock;
			return pages->last = b;
		}
		if ((b->look == pages->look ? b->used : 0) <
			(oldest->look == pages->look ? oldest->used : 0))
			oldest = b;
	}
	if (!oldest->data)
		oldest->data = malloc(PYTHON_BLOCK_BYTES);
	if (!oldest->data)
		return NULL;
	*oldest = (struct python_block){.number = number,
		.look = pages->look,
		.used = ++pages->clock,
		.data = oldest->data};
	return pages->last = oldest;
}

/* Reads `count` pages from `first` on in one call. */
static bool fill_run(struct python_pages *pages, struct python_block *b, unsigned first,
	unsigned count)
{
	uint16_t bits = (uint16_t)(((1u << count) - 1) << first);
	uint64_t addr = b->number * PYTHON_BLOCK_BYTES + (uint64_t)first * PYTHON_PAGE_BYTES;

	/* What is there stays as it was: one look shall see one state of each page. */
	if ((b->present | b->missing) & bits ||
		!read_now(pages, addr, b->data + first * PYTHON_PAGE_BYTES, count * PYTHON_PAGE_BYTES))
		return false;
	b->present |= bits;
	return true;
}

static bool fill_page(struct python_pages *pages, struct python_block *b, unsigned page)
{
	if (b->missing & 1u << page)
		return false;
	if (b->misses < 3)
		b->misses++;
	for (unsigned count = 1u << 2 * (b->misses - 1); count > 1; count >>= 1)
		if (fill_run(pages, b, page & ~(count - 1), count))
			return true;
	if (fill_run(pages, b, page, 1))
		return true;
	b->missing |= (uint16_t)(1u << page);
	return false;
}

static bool read_part(struct python_pages *pages, uint64_t addr, uint8_t *buf, size_t len)
{
	struct python_block *b = block_of(pages, addr / PYTHON_BLOCK_BYTES);
	size_t at = addr % PYTHON_BLOCK_BYTES;

	if (!b)
		return read_now(pages, addr, buf, len);
	for (size_t page = at / PYTHON_PAGE_BYTES; page <= (at + len - 1) / PYTHON_PAGE_BYTES; page++)
		if (!(b->present & 1u << page) && !fill_page(pages, b, (unsigned)page))
			return false;
	memcpy(buf, b->data + at, len);
	return true;
}

bool python_pages_read(struct python_pages *pages, uint64_t addr, void *buf, size_t len)
{
	uint64_t end;
	uint8_t *to = (uint8_t *)buf;

	if (__builtin_add_overflow(addr, len, &end))
		return false;
	if (len > LARGE_BYTES)
		return read_now(pages, addr, buf, len);
	while (addr < end) {
		uint64_t stop = (addr / PYTHON_BLOCK_BYTES + 1) * PYTHON_BLOCK_BYTES;
		size_t part = (stop && stop < end ? stop : end) - addr;

		if (!read_part(pages, addr, to, part))
			return false;
		addr += part;
		to += part;
	}
	return true;
}

bool python_read(struct python *p, uint64_t addr, void *buf, size_t len)
{
	return python_pages_read(&p->pages, addr, buf, len);
}

bool python_read_u64(struct python *p, uint64_t addr, uint64_t *ret)
{
	const struct python_block *b = p->pages.last;

	/* Most reads by far: the block that was used last, and a page that is there. */
	if (b && addr / PYTHON_BLOCK_BYTES == b->number && !(addr & 7) &&
		b->present >> addr % PYTHON_BLOCK_BYTES / PYTHON_PAGE_BYTES & 1) {
		memcpy(ret, b->data + addr % PYTHON_BLOCK_BYTES, sizeof(*ret));
		return true;
	}
	return python_pages_read(&p->pages, addr, ret, sizeof(*ret));
}

bool python_read_u32(struct python *p, uint64_t addr, uint32_t *ret)
{
	return python_pages_read(&p->pages, addr, ret, sizeof(*ret));
}
