/* SPDX-License-Identifier: BSD-2-Clause */
/* Size classes (src/heap/classes.c): their borders, glibc's sizes, and sums against the plainest way to make them. */
#include <malloc.h>

#include "heap/model_priv.h"
#include "test.h"

TEST(classes_have_borders)
{
	uint32_t last = 0;

	for (uint64_t usable = 0; usable < 100000; usable++) {
		uint32_t class = class_of(usable);

		check(class == last || class == last + 1);
		check(class_most(class) >= usable && (!usable || class_most(class - 1) < usable));
		last = class;
	}
	for (unsigned bits = 17; bits < LIVE_SIZE_BITS; bits++)
		for (int i = -1; i <= 1; i++) {
			uint64_t usable = (1ull << bits) + (uint64_t)i;

			check(class_of(usable) < CLASSES && class_most(class_of(usable)) >= usable);
			check(class_most(class_of(usable) - 1) < usable);
		}
	check(class_of(UINT64_MAX) == CLASSES - 1);
}

#ifdef __GLIBC__
/* What is fresh from the top of the heap is as large as we say. */
TEST(sizes_of_glibc)
{
	struct watched p = {.sizes = SHARE_SIZES_GLIBC};
	unsigned larger = 0;

	if (HAS_ASAN) {
		skip("malloc is the sanitizer's here");
		return;
	}
	for (size_t size = 0; size < 3000000; size += size < 3000 ? 1 : size / 17) {
		char *block = malloc(size); /* never freed: the next one is fresh */
		uint64_t usable = usable_of(&p, size, (uintptr_t)block), real = malloc_usable_size(block);

		check(usable <= real && real <= usable + 16);
		larger += real > usable;
	}
	check(larger < 20);
}
#endif

/* ---- sums ---- */

#define BLOCKS 500u

struct reference {
	uint64_t size[BLOCKS];
	double live[CLASSES], usable[CLASSES], peak[CLASSES];
	double all, most;
};

static uint64_t told(uint64_t size)
{
	return (size + 32) / 32 * 32;
}

static void step(struct heap_model *m, struct reference *r, uint32_t i, uint64_t random, bool *told_size)
{
	struct heap_event e = {.time_ns = 1000, .tid = 5, .address = 0x1000 + i * 64, .type = SHARE_FREE};
	uint64_t size = random % 300;
	double sign = r->size[i] ? -1 : 1;
	uint32_t class;

	if (!r->size[i]) {
		r->size[i] = size + 1;
		e.type = SHARE_ALLOC;
	}
	e.size = size = r->size[i] - 1;
	/* Some sizes are told late, and what is there then has been counted already. */
	if (e.type == SHARE_ALLOC && random >> 40 & 1 && !told_size[size]) {
		heap_model_usable(m, &(struct heap_event){.address = told(size), .size = size, .type = SHARE_USABLE});
		told_size[size] = true;
		/* One that says something else later is not believed. */
		heap_model_usable(m, &(struct heap_event){.address = told(size) + 64, .size = size, .type = SHARE_USABLE});
	}
	heap_model_take(m, &e, 3);
	if (sign < 0)
		r->size[i] = 0;
	class = class_of(told(size));
	r->live[class] += sign;
	r->usable[class] += sign * (double)told(size);
	r->all += sign * (double)size;
	if (r->all > r->most) {
		r->most = r->all;
		for (uint32_t k = 0; k < CLASSES; k++)
			r->peak[k] = r->live[k];
	}
}

TEST(sums_are_by_class)
{
	struct reference *r = calloc(1, sizeof(*r));
	static bool told_size[512];
	uint64_t random = 99;
	struct heap_model *m;

	check(!heap_model_new(&m, NULL));
	check(!heap_model_process(m, 0, 1000, HEAP_EXACT, NULL));
	heap_model_sizes(m, 0, SHARE_SIZES_TOLD);
	for (unsigned i = 0; i < 200000; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		step(m, r, (uint32_t)(random >> 33) % BLOCKS, random >> 10, told_size);
	}
	for (size_t size = 0; size < 300; size++)
		check(told_size[size]);
	for (uint32_t i = 1; i < CLASSES; i++) {
		struct size_class *c = &m->classes[i];

		check(c->live == r->live[i] && c->live_usable == r->usable[i] && c->variance_wasted == 0);
	}
	check(m->classes[0].live == 0 && m->classes[0].live_bytes == 0);
	check(m->peak_bytes == r->most);
	heap_model_process_ended(m, NULL, 0, 2000);
	for (uint32_t i = 0; i < CLASSES; i++)
		check(m->classes[i].ended == m->classes[i].live && m->classes[i].ended_usable == m->classes[i].live_usable);
	heap_model_free(m);
	free(r);
}

/* The peak by class is that of the moment at which there was most. */
TEST(peaks_are_by_class)
{
	struct reference *r = calloc(1, sizeof(*r));
	static bool told_size[512];
	uint64_t random = 5;
	struct heap_model *m;

	check(!heap_model_new(&m, NULL));
	check(!heap_model_process(m, 0, 1000, HEAP_EXACT, NULL));
	heap_model_sizes(m, 0, SHARE_SIZES_TOLD);
	for (uint64_t size = 0; size < 300; size++) {
		heap_model_usable(m, &(struct heap_event){.address = told(size), .size = size, .type = SHARE_USABLE});
		told_size[size] = true;
	}
	for (unsigned i = 0; i < 50000; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		step(m, r, (uint32_t)(random >> 33) % BLOCKS, random >> 10, told_size);
		for (uint32_t k = 1; i % 1000 == 0 && k < CLASSES; k++) {
			struct size_class *c = &m->classes[k];
			double peak = c->epoch == m->epoch ? c->peak : c->live - c->ended;

			check(peak == r->peak[k]);
		}
	}
	heap_model_free(m);
	free(r);
}

/* Sizes and answers that cannot be. */
TEST(nonsense_is_harmless)
{
	static const uint64_t odd[] = {0, 1, 100, 1ull << 48, 1ull << 55, UINT64_MAX};
	struct heap_model *m;

	check(!heap_model_new(&m, NULL));
	check(!heap_model_process(m, 0, 1000, HEAP_EXACT, NULL));
	heap_model_sizes(m, 0, SHARE_SIZES_TOLD);
	heap_model_sizes(m, 7, SHARE_SIZES_TOLD);
	for (size_t i = 0; i < 6; i++)
		for (size_t k = 0; k < 6; k++)
			heap_model_usable(m, &(struct heap_event){.address = odd[i], .size = odd[k], .process = (uint32_t)(i & 1)});
	check(usable_of(&(struct watched){.sizes = SHARE_SIZES_GLIBC}, 1ull << 48, 16) >= 1ull << 48);
	heap_model_free(m);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(classes_have_borders),
#ifdef __GLIBC__
		T(sizes_of_glibc),
#endif
		T(sums_are_by_class), T(peaks_are_by_class), T(nonsense_is_harmless));
}
