/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * headless: the first thread ends, and another one goes on: it computes and sleeps, for ever. Prints "ready"
 * when /proc shows a zombie.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spin.h"

NOINLINE void go_on(void)
{
	spin_ms(5);
	usleep(20000);
	NOT_A_TAIL_CALL;
}

static void *survivor(void *arg)
{
	usleep(200000);
	puts("ready");
	fflush(stdout);
	for (;;)
		go_on();
	return arg;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, survivor, NULL))
		return 1;
	syscall(SYS_exit, 0);
}
