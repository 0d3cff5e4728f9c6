/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pingpong N: two threads send a byte to each other through pipes, N times there and back: as many switches
 * a second as the machine can do. Prints "ready", and in the end the time of a round trip in ns, and the CPU
 * time that both threads used for one.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];
static long rounds;

static void *answer(void *arg)
{
	char byte;

	for (long i = 0; i < rounds; i++)
		if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
			exit(1);
	return arg;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	uint64_t start, start_cpu;
	char byte = 0;

	rounds = argc > 1 ? atol(argv[1]) : 100000;
	if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, answer, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	start = now_ns(CLOCK_MONOTONIC);
	start_cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	for (long i = 0; i < rounds; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 1;
	printf("%llu %llu\n", (unsigned long long)((now_ns(CLOCK_MONOTONIC) - start) / (uint64_t)rounds),
		(unsigned long long)((now_ns(CLOCK_PROCESS_CPUTIME_ID) - start_cpu) / (uint64_t)rounds));
	pthread_join(thread, NULL);
	return 0;
}
