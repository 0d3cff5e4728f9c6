/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocations whose numbers are known: heap_truth WHAT [TIMES]. Each site is a function of its own. At the end each says what
 * it did:
 *
 *	truth FUNCTION total_count total_bytes live_count live_bytes temporary_count cross_thread_frees
 *
 * "fork" and "exec" say it for the child as well, whose functions have other names.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

static volatile uintptr_t sink; /* keeps the compiler from leaving out what is not used */

static void *use(void *p)
{
	sink += (uintptr_t)p;
	return p;
}

static void say(const char *name, size_t total, size_t bytes, size_t live, size_t live_bytes, size_t temporary,
	size_t cross)
{
	printf("truth %s %zu %zu %zu %zu %zu %zu\n", name, total, bytes, live, live_bytes, temporary, cross);
	fflush(stdout);
}

/* ---- what is not freed ---- */

static void *kept[8];

NOINLINE static void leak_small(size_t times)
{
	for (size_t i = 0; i < times; i++)
		kept[0] = use(malloc(24 + i % 8 * 16));
}

static size_t leak_small_bytes(size_t times)
{
	size_t sum = 0;

	for (size_t i = 0; i < times; i++)
		sum += 24 + i % 8 * 16;
	return sum;
}

NOINLINE static void leak_zeroed(size_t times)
{
	for (size_t i = 0; i < times; i++)
		kept[1] = use(calloc(10, 100));
}

NOINLINE static void leak_aligned(size_t times)
{
	for (size_t i = 0; i < times; i++)
		if (posix_memalign(&kept[2], 64, 500))
			abort();
		else
			use(kept[2]);
}

static void leaks(size_t times)
{
	leak_small(times);
	leak_zeroed(times);
	leak_aligned(times);
	say("leak_small", times, leak_small_bytes(times), times, leak_small_bytes(times), 0, 0);
	say("leak_zeroed", times, times * 1000, times, times * 1000, 0, 0);
	say("leak_aligned", times, times * 500, times, times * 500, 0, 0);
}

/* ---- what does not live long ---- */

NOINLINE static void churn(size_t times)
{
	for (size_t i = 0; i < times; i++)
		free(use(malloc(100 + i % 50)));
}

/* Each lives until the one after it was allocated. */
NOINLINE static void overlap(size_t times)
{
	char *last = NULL;

	for (size_t i = 0; i < times; i++) {
		char *next = use(malloc(300));

		free(last);
		last = next;
	}
	free(last);
}

static void temporaries(size_t times)
{
	size_t bytes = 0;

	for (size_t i = 0; i < times; i++)
		bytes += 100 + i % 50;
	churn(times);
	overlap(times);
	say("churn", times, bytes, 0, 0, times, 0);
	/* The last one was freed before anything else was allocated. */
	say("overlap", times, times * 300, 0, 0, 1, 0);
}

/* ---- one thread allocates, another one frees ---- */

#define QUEUE 64
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void *item[QUEUE];
	size_t in, out;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0};

NOINLINE static void produce(size_t times)
{
	for (size_t i = 0; i < times; i++) {
		void *p = use(malloc(200));

		pthread_mutex_lock(&queue.lock);
		while (queue.in - queue.out == QUEUE)
			pthread_cond_wait(&queue.changed, &queue.lock);
		queue.item[queue.in++ % QUEUE] = p;
		pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
	}
}

static void *consume(void *arg)
{
	for (size_t i = 0; i < (size_t)(uintptr_t)arg; i++) {
		pthread_mutex_lock(&queue.lock);
		while (queue.in == queue.out)
			pthread_cond_wait(&queue.changed, &queue.lock);
		void *p = queue.item[queue.out++ % QUEUE];

		pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
		free(p);
	}
	return NULL;
}

static void hand_over(size_t times)
{
	pthread_t t;

	pthread_create(&t, NULL, consume, (void *)(uintptr_t)times);
	produce(times);
	pthread_join(t, NULL);
	say("produce", times, times * 200, 0, 0, 0, times);
}

/* ---- the peak ---- */

NOINLINE static void **hold(size_t times)
{
	void **all = use(malloc(times * sizeof(*all)));

	for (size_t i = 0; i < times; i++)
		all[i] = use(malloc(4096));
	return all;
}

NOINLINE static void after(size_t times)
{
	for (size_t i = 0; i < times / 2; i++)
		kept[3] = use(malloc(4000));
}

static void peak(size_t times)
{
	void **all = hold(times);

	for (size_t i = 0; i < times; i++)
		free(all[i]);
	free(all);
	after(times);
	/* The last one was freed before anything else was allocated. */
	say("hold", times + 1, times * (4096 + sizeof(void *)), 0, 0, 1, 0);
	say("after", times / 2, times / 2 * 4000, times / 2, times / 2 * 4000, 0, 0);
}

/* ---- realloc ---- */

NOINLINE static void grow(size_t times)
{
	char *p = NULL;

	for (size_t i = 1; i <= times; i++)
		p = use(realloc(p, i * 64));
	free(p);
}

static void chains(size_t times)
{
	size_t bytes = 0;

	for (size_t i = 1; i <= times; i++)
		bytes += i * 64;
	grow(times);
	say("grow", times, bytes, 0, 0, 1, 0);
}

/* ---- threads that come and go ---- */

NOINLINE static void *come_and_go(void *arg)
{
	free(use(malloc(50)));
	kept[4] = use(malloc(60));
	return arg;
}

static void threads(size_t times)
{
	for (size_t i = 0; i < times; i += 4) {
		pthread_t t[4];

		for (size_t k = 0; k < 4; k++)
			if (pthread_create(&t[k], NULL, come_and_go, NULL))
				abort();
		for (size_t k = 0; k < 4; k++)
			pthread_join(t[k], NULL);
	}
	say("come_and_go", 2 * ((times + 3) / 4 * 4), (times + 3) / 4 * 4 * 110, (times + 3) / 4 * 4,
		(times + 3) / 4 * 4 * 60, (times + 3) / 4 * 4, 0);
}

/* ---- children ---- */

NOINLINE static void before_fork(size_t times)
{
	for (size_t i = 0; i < times; i++)
		kept[5] = use(malloc(70));
}

NOINLINE static void in_child(size_t times)
{
	for (size_t i = 0; i < times; i++)
		kept[6] = use(malloc(80));
}

static void children(size_t times, char *self, const char *what)
{
	char number[32], *argv[] = {self, what ? "after_exec" : NULL, number, NULL};
	int status;

	snprintf(number, sizeof(number), "%zu", times);
	before_fork(times);
	pid_t child = fork();

	if (!child) {
		in_child(times);
		say("in_child", times, times * 80, times, times * 80, 0, 0);
		if (what)
			execv(self, argv);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say("before_fork", times, times * 70, times, times * 70, 0, 0);
	if (status)
		abort();
}

NOINLINE static void after_exec(size_t times)
{
	for (size_t i = 0; i < times; i++)
		kept[7] = use(malloc(90));
}

/* ---- for as long as one likes ---- */

static void *loop(void *arg)
{
	for (;;) {
		churn(1000);
		overlap(1000);
		grow(20);
		usleep(100);
	}
	return arg;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "leaks";
	size_t times = argc > 2 ? (size_t)atol(argv[2]) : 1000;

	if (!strcmp(what, "leaks"))
		leaks(times);
	else if (!strcmp(what, "temporaries"))
		temporaries(times);
	else if (!strcmp(what, "hand_over"))
		hand_over(times);
	else if (!strcmp(what, "peak"))
		peak(times);
	else if (!strcmp(what, "chains"))
		chains(times);
	else if (!strcmp(what, "threads"))
		threads(times);
	else if (!strcmp(what, "fork"))
		children(times, argv[0], NULL);
	else if (!strcmp(what, "exec"))
		children(times, argv[0], what);
	else if (!strcmp(what, "after_exec")) {
		after_exec(times);
		say("after_exec", times, times * 90, times, times * 90, 0, 0);
	} else if (!strcmp(what, "loop")) {
		pthread_t t;

		printf("ready\n");
		fflush(stdout);
		pthread_create(&t, NULL, loop, NULL);
		pthread_detach(t);
		/* So much CPU time of the first thread, and a right answer at the end. */
		for (size_t i = 0; i < times; i++) {
			churn(1000);
			overlap(1000);
			grow(20);
		}
		printf("done\n");
	}
	return 0;
}
