/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_known [THREADS]: blocks of known sizes in arenas of threads, some of them freed, some in fastbins and in the caches of
 * threads, some with a mapping of their own, touched and untouched. Then it says what mallinfo2(3) says, and stands
 * still; after SIGUSR1 it calls malloc_trim(3).
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 20000

static pthread_barrier_t ready;

static unsigned next_random(unsigned *seed)
{
	return (*seed = *seed * 1103515245u + 12345u) >> 8;
}

static void fill(unsigned seed)
{
	static __thread char *blocks[BLOCKS];

	for (size_t i = 0; i < BLOCKS; i++) {
		size_t bytes = next_random(&seed) % 8 ? next_random(&seed) % 300 : next_random(&seed) % 6000;

		blocks[i] = malloc(bytes);
		if (blocks[i] && i % 2)
			memset(blocks[i], 0x5a, bytes);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		if (next_random(&seed) % 3 == 0) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
	/* Neighbours, so that they are merged. */
	for (size_t i = BLOCKS / 2; i < BLOCKS / 2 + 2000; i++)
		free(blocks[i]);
}

static void *thread(void *arg)
{
	fill((unsigned)(size_t)arg);
	pthread_barrier_wait(&ready);
	pause();
	return NULL;
}

static void say(const char *text, int len)
{
	if (write(1, text, (size_t)len) != len)
		_exit(1);
}

static void nothing(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	pthread_attr_t attributes;
	pthread_t id;
	struct mallinfo2 info;
	char text[400];
	char *large[5];
	void *aligned = NULL;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 1 << 20);
	pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&id, &attributes, thread, (void *)(size_t)(i + 7));
	fill(3);
	for (int i = 0; i < 5; i++) {
		large[i] = malloc((size_t)(i + 1) * 777777);
		memset(large[i], 1, 100000);
	}
	free(large[2]);
	if (posix_memalign(&aligned, 256, 1234567))
		return 1;
	pthread_barrier_wait(&ready);
	usleep(100000);
	info = mallinfo2();
	say(text, snprintf(text, sizeof(text),
		"{\"arena\": %zu, \"used\": %zu, \"free\": %zu, \"fast\": %zu, \"fast_count\": %zu, \"free_count\": %zu, "
		"\"mapped\": %zu, \"mapped_count\": %zu, \"top\": %zu}\n",
		info.arena, info.uordblks, info.fordblks, info.fsmblks, info.smblks, info.ordblks, info.hblkhd, info.hblks,
		info.keepcost));
	signal(SIGUSR1, nothing);
	say("ready\n", 6);
	pause();
	malloc_trim(0);
	say("trimmed\n", 8);
	pause();
	return large[0] != NULL;
}
