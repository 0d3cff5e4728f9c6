/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blocked N: N threads, all but two of them 13 calls deep in a wait for one mutex, which the thread "holder" has
 * while it sleeps. The first thread looks at the clock and remembers the longest gap; for each line on stdin it
 * prints that in microseconds and begins anew.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define DEEP __attribute__((noinline))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int depth_sink;

static void *holder(void *arg)
{
	prctl(PR_SET_NAME, "holder");
	pthread_mutex_lock(&lock);
	for (;;)
		pause();
	return arg;
}

static DEEP int down(int depth)
{
	int below;

	if (!depth) {
		pthread_mutex_lock(&lock);
		return 0;
	}
	below = down(depth - 1);
	depth_sink = below;
	return below + 1;
}

static void *waiter(void *arg)
{
	down(10);
	return arg;
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void watch_the_clock(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	double longest = 0, last = now_us();
	char line[64];

	for (;;) {
		for (int i = 0; i < 10000; i++) {
			double now = now_us();

			longest = now - last > longest ? now - last : longest;
			last = now;
		}
		if (poll(&in, 1, 0) != 1)
			continue;
		if (read(0, line, sizeof(line)) <= 0)
			exit(0);
		printf("%.0f\n", longest);
		fflush(stdout);
		longest = 0;
		last = now_us();
	}
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 100;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	pthread_create(&thread, &attr, holder, NULL);
	usleep(50000);
	for (int i = 2; i < count; i++)
		if (pthread_create(&thread, &attr, waiter, NULL))
			abort();
	usleep(200000);
	puts("ready");
	fflush(stdout);
	watch_the_clock();
}
