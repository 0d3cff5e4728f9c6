/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crash segv|null|abort|hang: the first thread holds a lock that another one waits for, and then dies by a bad pointer, a
 * call of nothing or abort(), or waits itself for a signal to kill it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int waits;

static NOINLINE void wait_for_it(void)
{
	waits = 1;
	pthread_mutex_lock(&lock);
	NOT_A_TAIL_CALL;
}

static void *waiter(void *arg)
{
	wait_for_it();
	return arg;
}

static NOINLINE void crash_here(volatile int *p)
{
	*p = 1;
	NOT_A_TAIL_CALL;
}

static void (*volatile nothing)(void);

static NOINLINE void call_it(void (*f)(void))
{
	f();
	NOT_A_TAIL_CALL;
}

static NOINLINE void fail(const char *how)
{
	if (!strcmp(how, "segv"))
		crash_here((volatile int *)0x10);
	else if (!strcmp(how, "null"))
		call_it(nothing);
	else if (!strcmp(how, "abort"))
		abort();
	pause();
	NOT_A_TAIL_CALL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	pthread_mutex_lock(&lock);
	if (argc < 2 || pthread_create(&thread, NULL, waiter, NULL))
		return 2;
	while (!waits)
		usleep(1000);
	usleep(100000);
	puts("ready");
	fflush(stdout);
	fail(argv[1]);
	return 1;
}
