/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * phases N: N periods of 200 ms, of which the first thread computes 50 %, sleeps 30 % and waits 20 % for a
 * mutex that another thread holds. Prints "ready", then what the clocks said about the first thread, in ns
 * and one a line: "wall", "cpu", "sleep", "lock"; and "stolen", what the hypervisor took of all CPUs meanwhile:
 * it is in no thread's CPU time, but a thread that it is taken from has not left its CPU.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#define MS 1000000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t wanted, taken;

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t stolen_ns(void)
{
	FILE *f = fopen("/proc/stat", "re");
	unsigned long long ticks = 0;

	if (f) {
		if (fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
			ticks = 0;
		fclose(f);
	}
	return ticks * (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void sleep_ns(long ns)
{
	struct timespec ts = {.tv_nsec = ns};

	nanosleep(&ts, NULL);
}

static void *holder(void *arg)
{
	for (;;) {
		sem_wait(&wanted);
		pthread_mutex_lock(&mutex);
		sem_post(&taken);
		sleep_ns(40 * MS);
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

NOINLINE void compute(void)
{
	spin_ms(100);
	NOT_A_TAIL_CALL;
}

NOINLINE void take_a_nap(void)
{
	sleep_ns(60 * MS);
	NOT_A_TAIL_CALL;
}

NOINLINE void wait_for_the_lock(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	NOT_A_TAIL_CALL;
}

int main(int argc, char **argv)
{
	long periods = argc > 1 ? atol(argv[1]) : 10;
	uint64_t wall, cpu, stolen, sleep = 0, lock = 0;
	pthread_t thread;

	sem_init(&wanted, 0, 0);
	sem_init(&taken, 0, 0);
	pthread_create(&thread, NULL, holder, NULL);
	puts("ready");
	fflush(stdout);
	stolen = stolen_ns();
	wall = now_ns(CLOCK_MONOTONIC);
	cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (long i = 0; i < periods; i++) {
		uint64_t start;

		compute();
		start = now_ns(CLOCK_MONOTONIC);
		take_a_nap();
		sleep += now_ns(CLOCK_MONOTONIC) - start;
		sem_post(&wanted);
		sem_wait(&taken);
		start = now_ns(CLOCK_MONOTONIC);
		wait_for_the_lock();
		lock += now_ns(CLOCK_MONOTONIC) - start;
	}
	wall = now_ns(CLOCK_MONOTONIC) - wall;
	cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	stolen = stolen_ns() - stolen;
	printf("wall %llu\ncpu %llu\nsleep %llu\nlock %llu\nstolen %llu\n", (unsigned long long)wall,
		(unsigned long long)cpu, (unsigned long long)sleep, (unsigned long long)lock,
		(unsigned long long)stolen);
	return 0;
}
