/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What allocators give above what they are asked for, by the size of the blocks that they make of it: docs/heuristics/heap-classes.md.
 *
 * Of glibc that follows from the size. Others are asked by the library in the program, once for each size, and tell us before
 * the first block of it. A size that nobody has told of (alignment was asked for, or realloc has made it) stands for
 * itself, in a class of its own, until it is told.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "heap/model_priv.h"

#define MOST_SIZES 65536u

/* ---- how large a block is ---- */

/* glibc (malloc.c): a chunk has 8 bytes of its own and is a multiple of 16, at least 32. From the threshold of mmap on it may be
 * mapped by itself; then it fills pages, and begins 16 bytes behind the first. */
#define CHUNK_OWN 8u
#define CHUNK_ALIGN 16u
#define CHUNK_LEAST 32u
#define MAPPED_LEAST (128u * 1024 - 3 * CHUNK_OWN)
#define GLIBC_PAGE 4096u

static uint64_t up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

static uint64_t glibc_usable(uint64_t size, uint64_t address)
{
	uint64_t chunk = up(size + CHUNK_OWN, CHUNK_ALIGN);

	if (chunk < CHUNK_LEAST)
		chunk = CHUNK_LEAST;
	if (size >= MAPPED_LEAST && address % GLIBC_PAGE == 2 * CHUNK_OWN)
		return up(chunk + CHUNK_OWN, GLIBC_PAGE) - 2 * CHUNK_OWN;
	return chunk - CHUNK_OWN;
}

static uint64_t hash_of_size(const void *ctx, uint32_t index)
{
	return hash_u64(((const struct told_sizes *)ctx)->list.data[index].size);
}

/* NULL: not seen yet. */
static struct told_size *find_size(const struct told_sizes *sizes, uint64_t size)
{
	struct id_probe probe = id_probe_start(&sizes->index, hash_u64(size));

	while (id_probe_next(&sizes->index, &probe))
		if (sizes->list.data[probe.id].size == size)
			return &sizes->list.data[probe.id];
	return NULL;
}

static struct told_size *size_of(struct told_sizes *sizes, uint64_t size)
{
	struct told_size *known = find_size(sizes, size);

	if (known || sizes->list.len >= MOST_SIZES)
		return known;
	if (id_table_reserve(&sizes->index, hash_of_size, sizes) || vec_push(&sizes->list, ((struct told_size){.size = size})))
		return NULL;
	id_table_add(&sizes->index, hash_u64(size), (uint32_t)sizes->list.len - 1);
	return &sizes->list.data[sizes->list.len - 1];
}

void told_sizes_free(struct told_sizes *sizes)
{
	if (!sizes)
		return;
	vec_release(&sizes->list);
	id_table_release(&sizes->index);
	free(sizes);
}

uint64_t usable_of(const struct watched *p, uint64_t size, uint64_t address)
{
	const struct told_size *told;

	if (p->sizes == SHARE_SIZES_GLIBC)
		return glibc_usable(size, address);
	told = p->told ? find_size(p->told, size) : NULL;
	return told && told->usable ? told->usable : 0;
}

/* ---- classes ---- */

uint32_t class_of(uint64_t usable)
{
	uint32_t bits, part;

	if (usable <= CLASS_EXACT)
		return (uint32_t)((usable + 7) / 8);
	if (usable > 1ull << LIVE_SIZE_BITS)
		usable = 1ull << LIVE_SIZE_BITS;
	bits = 63 - (uint32_t)__builtin_clzll(usable - 1);
	part = (uint32_t)((usable - 1) >> (bits - CLASS_PART_BITS)) & ((1u << CLASS_PART_BITS) - 1);
	return CLASS_EXACT / 8 + 1 + ((bits - CLASS_EXACT_BITS) << CLASS_PART_BITS) + part;
}

uint64_t class_most(uint32_t class)
{
	uint32_t above = class - CLASS_EXACT / 8 - 1, bits = CLASS_EXACT_BITS + (above >> CLASS_PART_BITS);

	if (class <= CLASS_EXACT / 8)
		return class * 8;
	return (1ull << bits) + ((above & ((1u << CLASS_PART_BITS) - 1)) + 1ull) * (1ull << (bits - CLASS_PART_BITS));
}

static void note_peak(const struct heap_model *m, struct size_class *c)
{
	if (c->epoch == m->epoch)
		return;
	c->epoch = m->epoch;
	c->peak = c->live - c->ended;
	c->peak_bytes = c->live_bytes - c->ended_bytes;
	c->peak_usable = c->live_usable - c->ended_usable;
}

/* `sign`: 1 for a block that is there, -1 for one that is no more. Without a usable size it stands for itself. */
static void count(struct heap_model *m, uint64_t size, uint64_t usable, const struct weight *w, double sign)
{
	struct size_class *c = &m->classes[usable ? class_of(usable) : 0];
	double unused = usable > size ? (double)(usable - size) : 0;

	note_peak(m, c);
	c->live += sign * w->count;
	c->live_bytes += sign * w->bytes;
	c->live_usable += sign * (w->bytes + unused * w->count);
	c->variance_wasted += sign * unused * unused * w->variance;
	c->changed = true;
}

void class_count(struct heap_model *m, const struct watched *p, uint64_t size, uint64_t address, const struct weight *w, double sign)
{
	struct told_size *told;

	if (p->sizes == SHARE_SIZES_TOLD && p->told) {
		told = size_of(p->told, size);
		if (told) {
			told->live.count += sign * w->count;
			told->live.bytes += sign * w->bytes;
			told->live.variance += sign * w->variance;
		}
	}
	count(m, size, usable_of(p, size, address), w, sign);
}

void classes_ended(struct heap_model *m, const struct watched *p)
{
	if (p->sizes == SHARE_SIZES_UNKNOWN || p->apart)
		return;

	struct live_walk walk = {0};
	struct live_block b;

	while (live_next(&p->live, &walk, &b)) {
		uint64_t usable = usable_of(p, b.size, b.address);
		struct size_class *c = &m->classes[usable ? class_of(usable) : 0];
		struct weight w;

		if (m->sites[b.site].process != p->number)
			continue;
		w = block_weight(m, &b);
		note_peak(m, c);
		c->ended += w.count;
		c->ended_bytes += w.bytes;
		c->ended_usable += w.bytes + (usable > b.size ? (double)(usable - b.size) * w.count : 0);
	}
}

void classes_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns)
{
	for (uint32_t i = 0; i < CLASSES; i++) {
		struct size_class *c = &m->classes[i];
		struct record_heap_class record;

		if (!c->live && !c->changed && !c->peak && !c->written_peak)
			continue;
		note_peak(m, c);
		if (!c->changed && c->peak == c->written_peak)
			continue;
		record = (struct record_heap_class){
			.time_ns = time_ns,
			.usable = class_most(i),
			.live = c->live,
			.live_bytes = c->live_bytes,
			.live_usable = c->live_usable,
			.peak = c->peak,
			.peak_bytes = c->peak_bytes,
			.peak_usable = c->peak_usable,
			.variance_wasted = c->variance_wasted > 0 ? c->variance_wasted : 0,
		};
		capture_record(w, RECORD_HEAP_CLASS, &record, sizeof(record));
		c->changed = false;
		c->written_peak = c->peak;
	}
}

/* ---- what is told ---- */

void heap_model_sizes(struct heap_model *m, uint32_t number, enum share_sizes sizes)
{
	struct watched *p = watched_of(m, number);

	if (!p)
		return;
	p->sizes = (uint8_t)sizes;
	if (sizes == SHARE_SIZES_TOLD)
		p->told = calloc(1, sizeof(*p->told));
}

void heap_model_usable(struct heap_model *m, const struct heap_event *e)
{
	struct watched *p = watched_of(m, e->process);
	struct told_size *told = p && p->told && e->size < 1ull << LIVE_SIZE_BITS ? size_of(p->told, e->size) : NULL;
	struct weight w;

	/* What was told first stays: blocks are counted by it. */
	if (!told || told->usable || e->address < e->size || !e->address)
		return;
	w = (struct weight){.count = told->live.count, .bytes = told->live.bytes, .variance = told->live.variance};
	count(m, told->size, 0, &w, -1);
	told->usable = e->address;
	count(m, told->size, told->usable, &w, 1);
}
