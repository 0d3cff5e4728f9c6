/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * depths HOW MS LEVELS...: for each LEVELS a thread named "depth-LEVELS" uses MS of CPU time at the
 * bottom of so many calls of descend(), of some 100 bytes each. HOW says who makes them:
 *
 *	before   the first thread; "ready" is printed when all run
 *	after    the first thread, 0.3 s after "ready"
 *	chain    each of them the next one, half of its time later
 *	forks    the first thread, each in a process of its own that it forks 0.3 s after "ready"
 *
 * The first thread sleeps.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

#define MAX_THREADS 256

static const char *how;
static uint64_t ms;
static long levels[MAX_THREADS];
static int count;
static pthread_t threads[MAX_THREADS];
static pthread_barrier_t all_run;

static void *body(void *arg);

static void start(int i)
{
	if (pthread_create(&threads[i], NULL, body, (void *)(intptr_t)i))
		_exit(3);
}

NOINLINE void bottom(int i)
{
	spin_ms(ms / 2);
	if (!strcmp(how, "chain") && i + 1 < count)
		start(i + 1);
	spin_ms(ms - ms / 2);
	NOT_A_TAIL_CALL;
}

NOINLINE void descend(int i, long level)
{
	volatile char frame[64];

	frame[0] = 0;
	if (level > 1)
		descend(i, level - 1);
	else
		bottom(i);
	NOT_A_TAIL_CALL;
	frame[1] = frame[0];
}

static void *body(void *arg)
{
	int i = (int)(intptr_t)arg;
	char name[16];

	snprintf(name, sizeof(name), "depth-%ld", levels[i]);
	prctl(PR_SET_NAME, name);
	if (!strcmp(how, "before"))
		pthread_barrier_wait(&all_run);
	descend(i, levels[i]);
	if (!strcmp(how, "chain") && i + 1 < count)
		pthread_join(threads[i + 1], NULL);
	return NULL;
}

static void be_ready(void)
{
	puts("ready");
	fflush(stdout);
	if (strcmp(how, "before") != 0)
		usleep(300000);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	how = argv[1];
	ms = strtoull(argv[2], NULL, 10);
	for (; count < argc - 3 && count < MAX_THREADS; count++)
		levels[count] = strtol(argv[count + 3], NULL, 10);
	pthread_barrier_init(&all_run, NULL, (unsigned)count + 1);
	if (!strcmp(how, "before")) {
		for (int i = 0; i < count; i++)
			start(i);
		be_ready();
		pthread_barrier_wait(&all_run);
	} else {
		be_ready();
		for (int i = 0; i < count && strcmp(how, "forks") != 0; i++)
			if (!i || strcmp(how, "chain") != 0)
				start(i);
	}
	for (int i = 0; i < count && !strcmp(how, "forks"); i++) {
		if (!fork()) {
			body((void *)(intptr_t)i);
			_exit(0);
		}
	}
	for (int i = 0; i < count && strcmp(how, "forks") != 0; i++)
		if (!i || strcmp(how, "chain") != 0)
			pthread_join(threads[i], NULL);
	while (wait(NULL) > 0)
		;
	return 0;
}
