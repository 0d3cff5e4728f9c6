/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slow SCENARIO: is slow in a way that is known, or hangs after a while. Beats are of 50 ms; who holds a lock
 * holds it for the first 30 of them. Threads bear names. Prints "ready".
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#define MS 1000000ull
#define BEAT (50 * MS)
#define HELD (30 * MS)

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int taken;

static unsigned long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static void sleep_until(unsigned long long at)
{
	struct timespec t = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static void start(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, arg))
		abort();
	pthread_detach(thread);
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

/* ---- who holds ---- */

static NOINLINE void hold_asleep(unsigned long long until)
{
	sleep_until(until);
	NOT_A_TAIL_CALL;
}

static NOINLINE void hold_spinning(unsigned long long until)
{
	while (now() < until)
		;
	NOT_A_TAIL_CALL;
}

static void beat(pthread_mutex_t *lock, void (*hold)(unsigned long long until))
{
	for (unsigned long long at = now();; at += BEAT) {
		sleep_until(at);
		pthread_mutex_lock(lock);
		hold(at + HELD);
		pthread_mutex_unlock(lock);
	}
}

static void *sleeping_holder(void *arg)
{
	prctl(PR_SET_NAME, "holder");
	beat(arg, hold_asleep);
	return NULL;
}

static void *spinning_holder(void *arg)
{
	prctl(PR_SET_NAME, "holder");
	beat(arg, hold_spinning);
	return NULL;
}

/* Has one lock while it waits for the other. */
static void *middle(void *arg)
{
	prctl(PR_SET_NAME, "middle");
	for (unsigned long long at = now();; at += BEAT) {
		sleep_until(at + 2 * MS);
		pthread_mutex_lock(&lock_a);
		pthread_mutex_lock(&lock_b);
		pthread_mutex_unlock(&lock_b);
		pthread_mutex_unlock(&lock_a);
	}
	return arg;
}

/* ---- who wants ---- */

static NOINLINE void want(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	NOT_A_TAIL_CALL;
}

static void want_for_ever(pthread_mutex_t *lock)
{
	for (;;) {
		want(lock);
		usleep(1000);
	}
}

static void behind_a_sleeper(void)
{
	start(sleeping_holder, &lock_a);
	ready();
	want_for_ever(&lock_a);
}

static void behind_a_spinner(void)
{
	start(spinning_holder, &lock_a);
	ready();
	want_for_ever(&lock_a);
}

static void behind_a_chain(void)
{
	start(sleeping_holder, &lock_b);
	start(middle, NULL);
	ready();
	want_for_ever(&lock_a);
}

/* ---- one CPU ---- */

static void *spinner(void *arg)
{
	prctl(PR_SET_NAME, "rival");
	for (;;)
		;
	return arg;
}

static void run_queue(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	start(spinner, NULL);
	ready();
	for (;;)
		;
}

/* ---- idle, or for a short time ---- */

static void *pool_thread(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "pool-%d", (int)(long)arg);
	prctl(PR_SET_NAME, name);
	pthread_mutex_lock(&work_lock);
	for (;;)
		pthread_cond_wait(&work, &work_lock);
	return arg;
}

static void start_pool(void)
{
	for (long i = 0; i < 8; i++)
		start(pool_thread, (void *)i);
}

static void pool(void)
{
	start_pool();
	ready();
	for (;;)
		usleep(10000);
}

static void *short_life(void *arg)
{
	prctl(PR_SET_NAME, "short");
	usleep(80000);
	return arg;
}

static void churn(void)
{
	ready();
	for (;;) {
		start(short_life, NULL);
		usleep(20000);
	}
}

/* ---- well for a second and a half, then not ---- */

static void beat_for_a_while(void)
{
	for (int i = 0; i < 150; i++)
		usleep(10000);
}

static void *holder_for_ever(void *arg)
{
	prctl(PR_SET_NAME, "holder");
	pthread_mutex_lock(&lock_a);
	taken = 1;
	for (;;)
		pause();
	return arg;
}

static void later(void)
{
	start_pool();
	start(holder_for_ever, NULL);
	while (!taken)
		usleep(1000);
	ready();
	beat_for_a_while();
	want(&lock_a);
}

static void *other_way_round(void *arg)
{
	prctl(PR_SET_NAME, "other");
	pthread_mutex_lock(&lock_b);
	taken = 1;
	beat_for_a_while();
	pthread_mutex_lock(&lock_a);
	return arg;
}

static void deadlock_later(void)
{
	start_pool();
	pthread_mutex_lock(&lock_a);
	start(other_way_round, NULL);
	while (!taken)
		usleep(1000);
	ready();
	beat_for_a_while();
	pthread_mutex_lock(&lock_b);
}

static void end_later(void)
{
	ready();
	beat_for_a_while();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{"sleeper", behind_a_sleeper},
		{"spinner", behind_a_spinner},
		{"chain", behind_a_chain},
		{"run-queue", run_queue},
		{"pool", pool},
		{"churn", churn},
		{"later", later},
		{"deadlock-later", deadlock_later},
		{"end-later", end_later},
	};

	for (size_t i = 0; argc == 2 && i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(argv[1], scenarios[i].name)) {
			scenarios[i].run();
			return 0;
		}
	return 2;
}
