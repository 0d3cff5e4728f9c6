/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of what is mapped (src/heap/maps.c, ranges.c) against an array that says of each page who has mapped it. */
#include <string.h>

#include "heap/model.h"
#include "heap/ranges.h"
#include "test.h"

#define PAGES 64u
#define PAGE 4096u
#define BASE 0x10000000u
#define STACKS 5u
#define THREADS 3u

/* ---- ranges ---- */

TEST(ranges_are_cut_in_pieces)
{
	struct ranges r = {0}, gone = {0};

	check(!ranges_add(&r, 100, 200, 1));
	check(!ranges_add(&r, 300, 400, 2));
	check(ranges_add(&r, 199, 300, 3) == -EEXIST);
	check(ranges_add(&r, 250, 250, 3) == -EINVAL);
	check(!ranges_add(&r, 200, 300, 3));
	check(!ranges_cut(&r, 150, 150, &gone));
	check(!ranges_cut(&r, 400, 1000, &gone));
	check_u64(gone.len, 0);
	check(!ranges_cut(&r, 120, 130, &gone));
	check_u64(r.len, 4);
	check(!ranges_cut(&r, 190, 310, &gone));
	check_u64(r.len, 3);
	check_u64(gone.len, 4);
	check(gone.data[1].start == 190 && gone.data[1].end == 200 && gone.data[1].number == 1);
	check(gone.data[2].start == 200 && gone.data[2].end == 300 && gone.data[2].number == 3);
	check(gone.data[3].start == 300 && gone.data[3].end == 310 && gone.data[3].number == 2);
	check(r.data[1].start == 130 && r.data[1].end == 190 && r.data[2].start == 310 && r.data[2].end == 400);
	vec_release(&r);
	vec_release(&gone);
}

/* ---- the model ---- */

struct world {
	struct heap_model *m;
	uint32_t page[PAGES];       /* 1 + number of the call that has mapped it */
	uint32_t stack_of[100000];  /* by call */
	uint32_t pages_left[100000];
	uint32_t calls;
	double allocated[STACKS], allocated_bytes[STACKS], freed[STACKS], freed_bytes[STACKS];
	uint64_t random, now_ns;
};

static uint32_t any(struct world *w, uint32_t below)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((w->random >> 33) % below);
}

static void tell(struct world *w, uint32_t type, uint32_t tid, uint32_t from, uint32_t count, uint32_t stack)
{
	struct heap_event e = {.time_ns = w->now_ns++, .type = type, .tid = tid, .address = BASE + (uint64_t)from * PAGE,
		.size = (uint64_t)count * PAGE};

	heap_model_mapped(w->m, &e, stack, SHARE_MAP_MEMORY);
}

static void take_away(struct world *w, uint32_t from, uint32_t count)
{
	for (uint32_t i = from; i < from + count; i++) {
		uint32_t call = w->page[i] - 1;

		if (!w->page[i])
			continue;
		w->page[i] = 0;
		w->freed_bytes[w->stack_of[call]] += PAGE;
		w->freed[w->stack_of[call]] += !--w->pages_left[call];
	}
}

static void step(struct world *w)
{
	uint32_t from = any(w, PAGES), count = 1 + any(w, PAGES - from < 12 ? PAGES - from : 12), tid = 10 + any(w, THREADS);
	uint32_t stack = any(w, STACKS);

	switch (any(w, 5)) {
	case 0:
	case 1:
		take_away(w, from, count);
		for (uint32_t i = from; i < from + count; i++)
			w->page[i] = w->calls + 1;
		w->stack_of[w->calls] = stack;
		w->pages_left[w->calls++] = count;
		w->allocated[stack]++;
		w->allocated_bytes[stack] += (double)count * PAGE;
		tell(w, SHARE_MAP, tid, from, count, stack);
		break;
	case 2:
	case 3:
		take_away(w, from, count);
		tell(w, SHARE_UNMAP, tid, from, count, 0);
		break;
	default: /* one that fails, which the kernel leaves as it was */
		tell(w, SHARE_UNMAP, tid, from, count, 0);
		tell(w, SHARE_UNMAP_FAILED, tid, 0, 0, 0);
		break;
	}
}

static struct world *world;
static double seen_live;

static void compare(void *ctx, const struct record_heap_site *site, const struct record_heap_state *state)
{
	double *sums = ctx;

	sums[site->stack * 4] += state->number[HEAP_ALLOCATED];
	sums[site->stack * 4 + 1] += state->number[HEAP_ALLOCATED_BYTES];
	sums[site->stack * 4 + 2] += state->number[HEAP_FREED];
	sums[site->stack * 4 + 3] += state->number[HEAP_FREED_BYTES];
	seen_live += state->number[HEAP_ALLOCATED_BYTES] - state->number[HEAP_FREED_BYTES];
}

static void check_all(struct world *w)
{
	double sums[STACKS * 4] = {0}, live = 0;
	struct heap_totals totals;

	seen_live = 0;
	heap_model_each_site(w->m, compare, sums);
	for (uint32_t i = 0; i < STACKS; i++) {
		check(sums[i * 4] == w->allocated[i] && sums[i * 4 + 1] == w->allocated_bytes[i]);
		check(sums[i * 4 + 2] == w->freed[i] && sums[i * 4 + 3] == w->freed_bytes[i]);
	}
	for (uint32_t i = 0; i < PAGES; i++)
		live += w->page[i] ? PAGE : 0;
	check(live == seen_live);
	heap_model_totals(w->m, &totals);
	check(totals.total.live_bytes == 0 && totals.total.allocated_bytes == 0 && totals.total.peak_bytes == 0);
	check(!totals.no_memory);
}

TEST(numbers_of_mappings)
{
	world = calloc(1, sizeof(*world));
	world->random = 7;
	world->now_ns = 1000;
	check(!heap_model_new(&world->m, NULL));
	check(!heap_model_process(world->m, 0, 1000, HEAP_SAMPLED, NULL));
	for (unsigned i = 0; i < 60; i++) {
		for (unsigned k = 0; k < 500; k++)
			step(world);
		check_all(world);
	}
	/* What is mapped at the end stays counted as live, and is in no sum. */
	heap_model_process_ended(world->m, NULL, 0, world->now_ns);
	check_all(world);
	heap_model_free(world->m);
	free(world);
}

/* Addresses and sizes that cannot be, and failures of nothing. */
TEST(nonsense_is_harmless)
{
	static const uint64_t odd[] = {0, 1, UINT64_MAX, UINT64_MAX - 4096, 1ull << 55, 4096};
	struct heap_totals totals;
	struct heap_model *m;

	check(!heap_model_new(&m, NULL));
	check(!heap_model_process(m, 0, 1000, HEAP_EXACT, NULL));
	for (size_t i = 0; i < 6; i++)
		for (size_t k = 0; k < 6; k++)
			for (uint32_t type = 0; type < 18; type++) {
				struct heap_event e = {.time_ns = 5, .type = type, .tid = 1, .address = odd[i], .size = odd[k]};

				heap_model_mapped(m, &e, 0, SHARE_MAP_FILE);
			}
	heap_model_totals(m, &totals);
	check(totals.total.live_bytes == 0);
	check_u64(heap_model_unmapped_kind(m, 0, 77), SHARE_MAP_MEMORY);
	check_u64(heap_model_unmapped_kind(m, 9, 1), SHARE_MAP_MEMORY);
	heap_model_free(m);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(ranges_are_cut_in_pieces), T(numbers_of_mappings), T(nonsense_is_harmless));
}
