/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library whose heartbeat_start() starts a thread that does nothing but look at the clock. Where its own
 * looks are far apart, and the kernel says that it was not merely preempted, it was stopped. The length
 * of that, without what the thread then waited for a CPU (which is the business of whatever else runs
 * on the machine), is a pause. heartbeat_print() says how many there were, p50, p99 and the longest in us,
 * and then p99 with the wait for a CPU.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 20 };

static double pauses[MOST], gaps[MOST];
static volatile size_t count;

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* A stopped thread leaves its CPU of its own will, as the kernel counts. */
static long stops(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* What this thread has waited for a CPU so far. */
static double queued_us(int schedstat)
{
	char text[96] = "";
	unsigned long long run, queued = 0;

	if (pread(schedstat, text, sizeof(text) - 1, 0) > 0)
		sscanf(text, "%llu %llu", &run, &queued);
	return (double)queued / 1e3;
}

static void *beat(void *arg)
{
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	double queued = queued_us(schedstat);
	double last = now_us();
	long seen = stops();

	prctl(PR_SET_NAME, "heartbeat");
	for (;;) {
		double now = now_us();

		if (now - last > 3) {
			long more = stops();
			double then = queued_us(schedstat);

			if (more != seen && count < MOST) {
				gaps[count] = now - last;
				pauses[count++] = now - last - (then - queued);
			}
			seen = more;
			queued = then;
			now = now_us();
		}
		last = now;
	}
	return arg;
}

void heartbeat_start(void);
void heartbeat_clear(void);
void heartbeat_print(void);

void heartbeat_start(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, beat, NULL);
}

void heartbeat_clear(void)
{
	count = 0;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

void heartbeat_print(void)
{
	size_t n = count;

	qsort(pauses, n, sizeof(*pauses), compare);
	qsort(gaps, n, sizeof(*gaps), compare);
	if (n)
		printf("%zu %.1f %.1f %.1f %.1f\n", n, pauses[n / 2], pauses[n * 99 / 100],
			pauses[n - 1], gaps[n * 99 / 100]);
	else
		printf("0 0 0 0 0\n");
	fflush(stdout);
}
