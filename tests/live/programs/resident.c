/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of each kind, of known size: what is touched counts in RSS, what is not does not. Then it stands still. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)

static char zeroes[3 * MB];
static pthread_barrier_t ready;

static void touch(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 4096)
		((volatile char *)at)[i] = 1;
}

/* 1 MB of stack, and back. */
__attribute__((noinline)) static void deep(void)
{
	char room[MB];

	touch(room, sizeof(room));
}

static void *thread(void *arg)
{
	prctl(PR_SET_NAME, (const char *)arg);
	deep();
	pthread_barrier_wait(&ready);
	pause();
	return NULL;
}

int main(void)
{
	pthread_t a, b;
	pthread_attr_t attributes;
	char *named = mmap(NULL, 16 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *guard = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("known", 0);
	char *shared;
	volatile char sum = 0;

	if (ftruncate(fd, 8 * MB))
		return 1;
	shared = mmap(NULL, 8 * MB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (named == MAP_FAILED || guard == MAP_FAILED || shared == MAP_FAILED)
		return 1;
	prctl(53 /* PR_SET_VMA */, 0 /* PR_SET_VMA_ANON_NAME */, named, 16 * MB, "known cache");
	touch(named, 5 * MB);
	/* Read only: the kernel's page of zeros, which is nobody's. */
	for (size_t i = 8 * MB; i < 10 * MB; i += 4096)
		sum += named[i];
	touch(shared, 2 * MB);
	touch(zeroes, sizeof(zeroes));
	pthread_barrier_init(&ready, NULL, 3);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 4 * MB);
	pthread_create(&a, &attributes, thread, "first");
	pthread_create(&b, &attributes, thread, "second");
	pthread_barrier_wait(&ready);
	/* They go on to sleep. */
	usleep(200000);
	printf("ready\n");
	fflush(stdout);
	pause();
	return sum;
}
