/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps memory in known ways, beside some blocks of malloc: heap_maps [attached]. Prints "truth FUNCTION calls bytes live-mappings
 * live-bytes" of each. "attached": waits for a line before it begins, and for another one at its end.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spin.h"

#define PAGE 4096l

NOINLINE char *keeps(long pages)
{
	char *ret = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NOT_A_TAIL_CALL;
	return ret;
}

NOINLINE void drops(long pages)
{
	char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(at, pages * PAGE);
	NOT_A_TAIL_CALL;
}

/* Of 10 pages each: the third and fourth go, and then the last one and what is behind it. */
NOINLINE void in_pieces(void)
{
	char *at = mmap(NULL, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(at + 2 * PAGE, 2 * PAGE);
	munmap(at + 9 * PAGE, PAGE);
	NOT_A_TAIL_CALL;
}

NOINLINE char *grown(char *at, long from, long to)
{
	char *ret = mremap(at, from * PAGE, to * PAGE, MREMAP_MAYMOVE);

	NOT_A_TAIL_CALL;
	return ret;
}

NOINLINE char *reserves(long pages)
{
	char *ret = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	NOT_A_TAIL_CALL;
	return ret;
}

/* Into what is reserved: of that so much goes. */
NOINLINE void commits(char *at, long pages)
{
	mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	NOT_A_TAIL_CALL;
}

NOINLINE char *maps_file(int fd)
{
	char *ret = mmap(NULL, 3 * PAGE + 1, PROT_READ, MAP_PRIVATE, fd, 0);

	NOT_A_TAIL_CALL;
	return ret;
}

NOINLINE void moves_break(long bytes)
{
	if (sbrk(bytes) == (void *)-1)
		exit(1);
	NOT_A_TAIL_CALL;
}

/* None of these changes anything. */
NOINLINE void fails(char *kept)
{
	if (mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || munmap(kept + 1, PAGE) != -1 ||
		mremap(kept, PAGE, 1l << 46, MREMAP_MAYMOVE) != MAP_FAILED)
		exit(1);
	NOT_A_TAIL_CALL;
}

NOINLINE char *allocates(long bytes)
{
	char *ret = malloc((size_t)bytes);

	NOT_A_TAIL_CALL;
	return ret;
}

static void truth(const char *name, long calls, long bytes, long live, long live_bytes)
{
	printf("truth %s %ld %ld %ld %ld\n", name, calls, bytes, live, live_bytes);
}

static void wait_for_line(void)
{
	char c;

	while (read(0, &c, 1) == 1 && c != '\n')
		;
}

int main(int argc, char **argv)
{
	int fd = open("/proc/self/exe", 0);
	bool attached = argc > 1 && !strcmp(argv[1], "attached");
	char *at, *small[8];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (attached) {
		puts("ready");
		wait_for_line();
	}
	for (long i = 1; i <= 8; i++)
		small[i - 1] = keeps(i);
	fails(small[0]);
	for (long i = 0; i < 100; i++)
		drops(16);
	for (long i = 0; i < 5; i++)
		in_pieces();
	at = grown(small[7], 8, 300);
	if (at == MAP_FAILED || fd < 0)
		return 1;
	at = reserves(1000);
	commits(at + 10 * PAGE, 100);
	commits(at + 50 * PAGE, 100);
	maps_file(fd);
	moves_break(1 << 20);
	moves_break(-(1 << 19));
	allocates(10 << 20); /* libc maps that: it is malloc's alone */
	truth("keeps", 8, 36 * PAGE, 7, 28 * PAGE);
	truth("drops", 100, 1600 * PAGE, 0, 0);
	truth("in_pieces", 5, 50 * PAGE, 5, 35 * PAGE);
	truth("grown", 1, 300 * PAGE, 1, 300 * PAGE);
	truth("reserves", 1, 1000 * PAGE, 1, 860 * PAGE);
	truth("commits", 2, 200 * PAGE, 2, 140 * PAGE);
	truth("maps_file", 1, 4 * PAGE, 1, 4 * PAGE);
	truth("moves_break", 1, 1 << 20, 1, 1 << 19);
	puts("done");
	if (attached)
		wait_for_line();
	return 0;
}
