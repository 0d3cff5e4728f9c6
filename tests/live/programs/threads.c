/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * threads COUNT MS: COUNT threads named worker-00, worker-01, ... each use MS of CPU time; the
 * first thread, named main, uses MS too. "ready" is printed when all of them run.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "spin.h"

static pthread_barrier_t all_run;
static uint64_t each_ms;

NOINLINE void worker_body(void)
{
	spin_ms(each_ms);
	NOT_A_TAIL_CALL;
}

static void *worker(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "worker-%02d", (int)(intptr_t)arg);
	prctl(PR_SET_NAME, name);
	pthread_barrier_wait(&all_run);
	worker_body();
	return NULL;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 4;
	pthread_t *threads = calloc((size_t)count, sizeof(*threads));

	each_ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
	prctl(PR_SET_NAME, "main");
	pthread_barrier_init(&all_run, NULL, (unsigned)count + 1);
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i))
			return 1;
	pthread_barrier_wait(&all_run);
	puts("ready");
	fflush(stdout);
	worker_body();
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
