/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with an allocator of its own, of known answers. heap_own STEPS MICROSECONDS: after each line of input (with STEPS
 * 0), or STEPS times with a pause between, 1000 blocks of 1000 bytes are kept, 1000 of 500 bytes are freed at once, and
 * 1000 of 500 grow to 2000 and are freed.
 *
 * With -DPREFIX=name_ the allocator's functions have that in front of their names. With -DOWN they are here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef PREFIX
#define PREFIX
#endif
#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define MALLOC NAME(PREFIX, malloc)
#define CALLOC NAME(PREFIX, calloc)
#define REALLOC NAME(PREFIX, realloc)
#define FREE NAME(PREFIX, free)

void *MALLOC(size_t size);
void *CALLOC(size_t count, size_t size);
void *REALLOC(void *old, size_t size);
void FREE(void *block);

#ifdef OWN
/* Blocks of one size each, with a word in front; calloc and realloc are made of malloc, as in many allocators. */
#include <sys/mman.h>

struct block {
	size_t size;
	struct block *next;
};
static struct block *freed[64];
static char *room;
static size_t left;

__attribute__((noinline)) void *MALLOC(size_t size)
{
	size_t class = (size + 63) / 64;
	struct block *b = class < 64 ? freed[class] : NULL;

	if (b) {
		freed[class] = b->next;
		return b + 1;
	}
	size = class * 64 + sizeof(*b);
	if (left < size) {
		left = 64 << 20;
		room = mmap(NULL, left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	b = (struct block *)room;
	room += size;
	left -= size;
	b->size = class;
	return b + 1;
}

__attribute__((noinline)) void FREE(void *p)
{
	struct block *b = (struct block *)p - 1;

	if (!p || b->size >= 64)
		return;
	b->next = freed[b->size];
	freed[b->size] = b;
}

__attribute__((noinline)) void *CALLOC(size_t count, size_t size)
{
	void *p = MALLOC(count * size);

	return memset(p, 0, count * size);
}

__attribute__((noinline)) void *REALLOC(void *old, size_t size)
{
	void *p = MALLOC(size);

	if (old)
		memcpy(p, old, ((struct block *)old - 1)->size * 64 < size ? ((struct block *)old - 1)->size * 64 : size);
	FREE(old);
	return p;
}
#endif

__attribute__((noinline)) char *keeps(void)
{
	return MALLOC(1000);
}

__attribute__((noinline)) char *drops(void)
{
	return CALLOC(5, 100);
}

__attribute__((noinline)) char *grows(char *old, size_t size)
{
	return REALLOC(old, size);
}

static void step(void)
{
	for (int i = 0; i < 1000; i++) {
		char *kept = keeps(), *dropped = drops(), *grown = grows(NULL, 500);

		grown = grows(grown, 2000);
		kept[0] = dropped[0] = grown[0] = 1;
		FREE(dropped);
		FREE(grown);
	}
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 0, pause = argc > 2 ? atoi(argv[2]) : 0;
	struct timespec from, to;
	double ns = 0;
	char word;

	write(1, "ready\n", 6);
	while (!steps && read(0, &word, 1) == 1) {
		step();
		write(1, "done\n", 5);
	}
	for (int i = 0; i < steps; i++) {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
		step();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
		ns += (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
		usleep((unsigned)pause);
	}
	if (steps)
		printf("%.0f ns a call\n", ns / steps / 6000);
	return 0;
}
