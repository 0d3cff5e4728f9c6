/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * callbacks ROUNDS: computes in functions that the C library calls back, each with a known way there:
 *
 *	main > by_NAME > the library's function > in_NAME > work
 *
 * Every way gets the same CPU time. ROUNDS 0: for ever. A second thread does the same.
 */
#include <fnmatch.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spin.h"

#define SHARE_MS 20
#define ITEMS 48

static __thread uint64_t until_ns;
static __thread int items[ITEMS];

static NOINLINE void work(void)
{
	spin_ms(1);
	NOT_A_TAIL_CALL;
}

static int done(void)
{
	return spin_cpu_ns() >= until_ns;
}

/* Differs from item to item, so that a search goes on. */
static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static NOINLINE int in_qsort(const void *a, const void *b)
{
	if (!done())
		work();
	return compare(a, b);
}

static NOINLINE int in_bsearch(const void *a, const void *b)
{
	work();
	return compare(a, b);
}

static NOINLINE int in_lfind(const void *a, const void *b)
{
	if (!done())
		work();
	return compare(a, b);
}

static NOINLINE int in_tsearch(const void *a, const void *b)
{
	if (!done())
		work();
	return compare(a, b);
}

static NOINLINE int in_nftw(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path, (void)st, (void)type, (void)ftw;
	work();
	return done();
}

static NOINLINE ssize_t in_stdio(void *cookie, const char *buf, size_t size)
{
	(void)cookie, (void)buf;
	work();
	return (ssize_t)size;
}

static NOINLINE void in_once(void)
{
	work();
	NOT_A_TAIL_CALL;
}

static void fill(void)
{
	for (int i = 0; i < ITEMS; i++)
		items[i] = i * 7919 % 1009;
}

static NOINLINE void by_qsort(void)
{
	fill();
	qsort(items, ITEMS, sizeof(items[0]), in_qsort);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_bsearch(void)
{
	int key = 40000;

	fill();
	bsearch(&key, items, ITEMS, sizeof(items[0]), in_bsearch);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_lfind(void)
{
	size_t n = ITEMS;
	int key = 40000;

	fill();
	lfind(&key, items, &n, sizeof(items[0]), in_lfind);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_tsearch(void)
{
	static __thread void *root;

	fill();
	for (int i = 0; i < ITEMS; i++)
		tsearch(&items[i], &root, in_tsearch);
	while (root)
		tdelete(*(int **)root, &root, compare);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_nftw(void)
{
	nftw("/proc/self/task", in_nftw, 4, FTW_PHYS);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_stdio(void)
{
	cookie_io_functions_t io = {.write = in_stdio};
	FILE *f = fopencookie(NULL, "w", io);
	char buf[64];

	setvbuf(f, buf, _IOFBF, sizeof(buf));
	for (int i = 0; i < ITEMS && !done(); i++)
		fprintf(f, "%d of %d: %s %.3f\n", i, ITEMS, "words", i / 3.0);
	fclose(f);
	NOT_A_TAIL_CALL;
}

static NOINLINE void by_once(void)
{
	pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, in_once);
	NOT_A_TAIL_CALL;
}

static void (*const ways[])(void) = {
	by_qsort, by_bsearch, by_lfind, by_tsearch, by_nftw, by_stdio, by_once,
};

static NOINLINE void *all_ways(void *rounds)
{
	for (unsigned long i = 0; !rounds || i < (unsigned long)rounds; i++) {
		for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			until_ns = spin_cpu_ns() + SHARE_MS * 1000000ull;
			while (!done())
				ways[w]();
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	pthread_t thread;

	puts("ready");
	fflush(stdout);
	if (pthread_create(&thread, NULL, all_ways, (void *)rounds))
		return 1;
	all_ways((void *)rounds);
	pthread_join(thread, NULL);
	return 0;
}
