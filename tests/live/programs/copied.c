/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs copy their text to anonymous memory, to have it in large pages, and put that where the
 * file was mapped.
 *
 *	copied whole MS    all of it, by mremap
 *	copied part MS     only the pages of one function, by mremap
 *	copied fixed MS    only these pages, by mapping anonymous memory over them and copying back
 *	copied first MS    "part" after saying "ready" and waiting for a moment
 *
 * Says "ready" and calls outer_of_copy, which calls inner_of_copy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spin.h"

#define PAGE 4096ul

/* Pages of their own, so that they can be taken away while this runs. */
NOINLINE __attribute__((section(".text.copied"), aligned(4096))) void inner_of_copy(uint64_t end_ns)
{
	uint64_t x = end_ns;

	for (int i = 0; i < 200000; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	spin_sink = x;
}

NOINLINE __attribute__((section(".text.copied"))) void outer_of_copy(uint64_t end_ns)
{
	while (spin_cpu_ns() < end_ns)
		inner_of_copy(end_ns);
	NOT_A_TAIL_CALL;
}

NOINLINE __attribute__((section(".text.behind"), aligned(4096))) void copy(
	const char *from, size_t size, int in_place)
{
	char *to = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);

	if (to == MAP_FAILED)
		exit(1);
	memcpy(to, from, size);
	if (!in_place) {
		mprotect(to, size, PROT_READ | PROT_EXEC);
		if (mremap(to, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
			exit(2);
		return;
	}
	if (mmap((void *)(uintptr_t)from, size, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		exit(3);
	memcpy((void *)(uintptr_t)from, to, size);
	mprotect((void *)(uintptr_t)from, size, PROT_READ | PROT_EXEC);
	munmap(to, size);
}

static const char *page_of(const void *p)
{
	return (const char *)((uintptr_t)p & ~(PAGE - 1));
}

/* The mapping that holds main. */
static const char *whole_text(size_t *ret_size)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t start, end, here = (uintptr_t)page_of;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx", &start, &end) != 2 || here < start || here >= end)
			continue;
		fclose(maps);
		*ret_size = end - start;
		return (const char *)start;
	}
	exit(4);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "whole";
	unsigned ms = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
	const char *from = page_of((const void *)(uintptr_t)inner_of_copy);
	size_t size = PAGE;

	if (!strcmp(mode, "first")) {
		puts("ready");
		fflush(stdout);
		outer_of_copy(spin_cpu_ns() + 500000000u);
	}
	if (!strcmp(mode, "whole"))
		from = whole_text(&size);
	copy(from, size, !strcmp(mode, "fixed"));
	if (strcmp(mode, "first")) {
		puts("ready");
		fflush(stdout);
	}
	outer_of_copy(spin_cpu_ns() + ms * 1000000ull);
	return 0;
}
