/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that allocate and free all the time, also each other's blocks; with pauses, so that others can run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS 20000

static _Atomic(void *) slots[SLOTS];

static void *thread(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;

	for (unsigned i = 0;; i++) {
		seed = seed * 1103515245u + 12345u;
		free(atomic_exchange(&slots[(seed >> 8) % SLOTS], malloc(16 + (seed >> 12) % 2000)));
		if (i % 512 == 0)
			usleep(1000);
	}
	return NULL;
}

int main(void)
{
	pthread_t id;

	for (size_t i = 1; i <= 3; i++)
		pthread_create(&id, NULL, thread, (void *)i);
	usleep(300000);
	printf("ready\n");
	fflush(stdout);
	pause();
	return 0;
}
