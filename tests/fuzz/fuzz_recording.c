/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recording reader and everything that is computed from a recording.
 *
 * The checksums would keep a fuzzer outside: inputs that begin with the magic are read as they are,
 * all others are taken as records and put into a block with the right checksum.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "capture/block.h"
#include "profile/heap.h"
#include "profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t touched; /* keeps the compiler from leaving the reads out */

static void wrap_records(struct buf *b, const uint8_t *records, size_t len)
{
	struct capture_file_header file = {
		.magic = CAPTURE_MAGIC,
		.version = CAPTURE_VERSION,
		.header_bytes = sizeof(file),
	};
	struct capture_block_header block = {
		.magic = CAPTURE_BLOCK_MAGIC,
		.stored_bytes = (uint32_t)len,
		.plain_bytes = (uint32_t)len,
	};

	file.checksum = file_header_checksum(&file);
	block.checksum = block_checksum(&block, records);
	buf_add(b, &file, sizeof(file));
	buf_add(b, &block, sizeof(block));
	buf_add(b, records, len);
}

/* Every index the model promises to be good is followed; strings are read to their end. */
static size_t touch_model(const struct profile *p)
{
	size_t sink = 0;
	uint32_t levels[64];

	for (size_t i = 0; i < p->samples.len; i++) {
		const struct profile_sample *s = &p->samples.data[i];
		size_t n = profile_stack_levels(p, s->stack, levels, 64);

		sink += strlen(p->threads.data[s->thread].process) + p->quality.ends[s->end];
		for (size_t k = 0; k < n && k < 64; k++) {
			const struct profile_level *l = &p->levels.data[levels[k]];
			const struct profile_function *f = &p->functions.data[l->function];

			sink += strlen(f->name) + (f->file ? strlen(f->file) : 0);
			sink += f->module != PROFILE_NONE ?
				strlen(p->modules.data[f->module].name) :
				0;
		}
		/* Long stacks are walked once; what they hold does not depend on the sample. */
		if (n > 1024)
			break;
	}
	return sink + (profile_meta(p, "host") != NULL);
}

static void touch_tree(const struct profile *p, bool inverted)
{
	struct profile_tree t;
	uint64_t self = 0;

	if (profile_tree_build(p, inverted, &t, NULL))
		return;
	for (size_t i = 0; i < t.nodes.len; i++)
		self += t.nodes.data[i].self;
	if (self != p->samples.len || t.nodes.data[0].total != self)
		__builtin_trap();
	profile_tree_release(&t);
}

/* Who woke whom: every wait has a waker, known or not, and stands in one row. */
static void touch_wakes(const struct profile *p)
{
	struct profile_tree t;
	struct profile_wakes w;
	uint64_t rows = 0, waits = 0;

	if (profile_tree_build(p, false, &t, NULL))
		return;
	if (!profile_wakes_build(p, &t, &w, NULL)) {
		for (uint32_t node = 0; node < t.nodes.len; node++) {
			size_t count;
			const struct profile_wake *row = profile_wakes_of(&w, node, &count);

			for (size_t i = 0; i < count; i++) {
				rows += row[i].samples;
				if (row[i].waker != PROFILE_NONE)
					touched += strlen(p->wakers.data[row[i].waker].name);
				if (row[i].path != PROFILE_NONE)
					touched += w.paths.nodes.data[row[i].path].parent;
			}
		}
		for (size_t i = 0; i < p->samples.len; i++) {
			const struct profile_sample *s = &p->samples.data[i];

			waits += s->state > STATE_THROTTLED;
		}
		if (rows != waits)
			__builtin_trap();
		profile_wakes_release(&w);
	}
	profile_tree_release(&t);
}

static void touch_timelines(const struct profile *p)
{
	struct profile_timelines t;

	if (profile_timelines_build(p, &t, NULL))
		return;
	if (t.begin[p->threads.len] != p->samples.len)
		__builtin_trap();
	for (size_t i = 0; i < p->threads.len; i++)
		for (size_t k = t.begin[i]; k < t.begin[i + 1]; k++)
			if (p->samples.data[t.order[k]].thread != i)
				__builtin_trap();
	profile_timelines_release(&t);
}

/* Numbers stay numbers, and what is added up is what there is. */
static void check_number(double number)
{
	if (!(number >= 0 && number < 1e300))
		__builtin_trap();
}

static void touch_spots(const struct profile *p, const struct heap_spots *s)
{
	double shape[HEAP_BUCKETS];
	size_t sites = 0;

	vec_each(&s->spots, spot) {
		sites += spot->count;
		touched += spot->function == PROFILE_NONE ? 0 : strlen(p->functions.data[spot->function].name);
		check_number(spot->sum.live_bytes);
		check_number(spot->sum.leaked_bytes);
		check_number(heap_weight(p->heap, &spot->sum, true));
		if (spot->growth.low > spot->growth.rate || spot->growth.high < spot->growth.rate)
			__builtin_trap();
		for (unsigned kind = 0; kind < HEAP_SHAPES; kind++) {
			heap_shape_sum(p, s->order.data + spot->first, spot->count, kind, shape);
			check_number(shape[kind]);
		}
	}
	if (sites != p->heap->sites.len)
		__builtin_trap();
}

static void touch_heap(struct profile *p)
{
	struct heap_spots s = {0};

	if (!p->heap)
		return;
	for (unsigned order = 0; order < HEAP_ORDERS; order++) {
		if (heap_spots_build(p, order, &s, NULL))
			continue;
		touch_spots(p, &s);
		heap_spots_release(&s);
	}
	vec_each(&p->heap->flows, f)
		touched += p->heap->sites.data[f->site].tid;
	for (uint32_t i = 0; i < p->heap->sites.len; i++) {
		size_t count;

		heap_flows_of(p->heap, i, &count);
		touched += count + strlen(p->threads.data[p->heap->sites.data[i].thread].name);
	}
	vec_each(&p->heap->processes, process)
		touched += strlen(process->name);
	if (!profile_heap_weigh(p, HEAP_BY_TOTAL, NULL))
		touch_tree(p, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char magic[] = CAPTURE_MAGIC;
	/* As for a summary, or as for everything else. */
	struct profile_load_options options = {.filter = {.idle_apart = size / 8 & 1,
						       .brief_waits = size / 8 & 1,
						       .tasks = size / 16 & 1,
						       .main_only = size / 32 & 1,
						       .heap_from_ns = size / 64 & 1}};
	struct profile *p;
	struct profile_count *counts;
	struct buf b = {0};

	if (size >= 8 && !memcmp(data, magic, 8))
		buf_add(&b, data, size);
	else
		wrap_records(&b, data, size);
	if (!profile_load_memory(b.data, b.len, &options, &p, NULL)) {
		touched += touch_model(p);
		touch_tree(p, false);
		touch_tree(p, true);
		touch_wakes(p);
		touch_timelines(p);
		if (!profile_count_functions(p, &counts, NULL))
			free(counts);
		touch_heap(p);
		profile_free(p);
	}
	buf_release(&b);
	return 0;
}
