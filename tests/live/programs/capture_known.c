/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says known things with libsonde-capture, and prints what it said:
 *
 *	base NS            the clock as it began
 *	recording 0|1
 *
 * capture_known all | fork | threads N | signals N | jit | slow MS | early
 */
#include <sonde/capture.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t base;
static uint32_t early;

__attribute__((constructor)) static void construct(void)
{
	base = sonde_clock();
	early = sonde_counter_define("early", "constructed", "defined before main", SONDE_COUNTER_INT64);
	sonde_counter_set(early, 7);
	sonde_mark(base, 5, "early", "constructor", "before main");
}

static void all(void)
{
	static char longest[SONDE_TEXT_MOST + 100];
	uint32_t integers = sonde_counter_define("numbers", "integers", "some \"integers\"\n", SONDE_COUNTER_INT64);
	uint32_t reals = sonde_counter_define("numbers", "reals", NULL, SONDE_COUNTER_DOUBLE);
	uint64_t begin;
	int i;

	sonde_mark(base + 1000, 2000, "group", "one", "m\xc3\xb6glich");
	sonde_mark(base + 500, 0, NULL, "moment", NULL);
	sonde_mark(0, UINT64_MAX, "group", "endless", "");
	memset(longest, 'x', sizeof(longest) - 1);
	/* The character that the cut falls into goes as a whole. */
	memcpy(longest + SONDE_TEXT_MOST - 1, "\xe2\x82\xac", 3);
	sonde_mark(base, 1, "group", "long", longest);
	begin = sonde_mark_begin();
	usleep(20000);
	sonde_mark_end(begin, "group", "slept", "20 ms");
	for (i = -3; i <= 3; i++)
		sonde_counter_set(integers, i * 1000000007LL);
	sonde_counter_set_double(integers, 1e30);
	sonde_counter_set_double(integers, -2.9);
	sonde_counter_set_double(reals, 0.1);
	sonde_counter_set(reals, -5);
	sonde_counter_set(0, 99);
	sonde_log("disk", SONDE_WARNING, "nearly full");
	sonde_log(NULL, (enum sonde_severity)77, "odd");
	sonde_log("net", SONDE_ERROR, "gone");
}

static void forks(void)
{
	uint32_t counter = sonde_counter_define("fork", "inherited", "by children", SONDE_COUNTER_INT64);
	pid_t child;

	sonde_counter_set(counter, 1);
	child = fork();
	if (!child) {
		sonde_counter_set(counter, 2);
		sonde_mark(sonde_clock(), 10, "fork", "child", "says");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	sonde_counter_set(counter, 3);
	printf("child %d\n", (int)child);
}

static long rounds;

static void *hammer(void *arg)
{
	uint32_t counter = *(uint32_t *)arg;
	long i;

	for (i = 0; i < rounds; i++) {
		sonde_counter_set(counter, i);
		if (i % 10 == 0)
			sonde_mark((uint64_t)i, (uint64_t)i * 3, "hammer", counter & 2 ? "even" : "odd", "");
	}
	return NULL;
}

static void threads(void)
{
	uint32_t counters[2];
	pthread_t thread[2];
	int i;

	counters[0] = sonde_counter_define("hammer", "first", "", SONDE_COUNTER_INT64);
	counters[1] = sonde_counter_define("hammer", "second", "", SONDE_COUNTER_INT64);
	for (i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, hammer, &counters[i]);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}

static volatile long handled;
static uint32_t in_handler;

static void handle(int signal)
{
	(void)signal;
	handled++;
	sonde_counter_set(in_handler, handled);
	sonde_log("handler", SONDE_DEBUG, "hello");
}

static void signals(void)
{
	struct itimerval often = {{0, 200}, {0, 200}};
	uint32_t counter = sonde_counter_define("signals", "main", "", SONDE_COUNTER_INT64);
	long i;

	in_handler = sonde_counter_define("signals", "handler", "", SONDE_COUNTER_INT64);
	signal(SIGALRM, handle);
	setitimer(ITIMER_REAL, &often, NULL);
	for (i = 0; i < rounds; i++)
		sonde_counter_set(counter, i);
	memset(&often, 0, sizeof(often));
	setitimer(ITIMER_REAL, &often, NULL);
	printf("handled %ld\n", handled);
}

/* A function that calls `callee` with (first, second), built at run time. */
static void *generate(uint8_t *at, void *callee, uint32_t first)
{
	uint8_t *p = at;

	*p++ = 0x55; /* push %rbp; mov %rsp,%rbp */
	memcpy(p, "\x48\x89\xe5", 3);
	p += 3;
	*p++ = 0xbf; /* mov $first,%edi */
	memcpy(p, &first, 4);
	p += 4;
	memcpy(p, "\x48\xb8", 2); /* movabs $callee,%rax; call *%rax */
	memcpy(p + 2, &callee, 8);
	memcpy(p + 10, "\xff\xd0", 2);
	p += 12;
	*p++ = 0x5d; /* pop %rbp; ret */
	*p++ = 0xc3;
	return at;
}

__attribute__((noinline)) static void *called_back(int which)
{
	void *block = malloc((size_t)which);

	__asm__ volatile("" : : "r"(block) : "memory");
	return block;
}

static void jit(void)
{
	uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *(*function)(void);
	int i;

	for (i = 0; i < 2; i++) {
		function = (void *(*)(void))(uintptr_t)generate(code + i * 64, (void *)(uintptr_t)called_back, 70001 + i);
		sonde_jit_map(code + i * 64, 64, i ? "second_generated" : "first_generated", "script.js");
		function();
	}
}

__attribute__((noinline)) static void take_three(uint32_t pool, char *from)
{
	sonde_alloc(pool, from, 100);
	sonde_alloc(pool, from + 100, 200);
	sonde_alloc(pool, from + 300, 300);
	__asm__ volatile("" : : : "memory"); /* no jump */
}

__attribute__((noinline)) static void take_other(uint32_t pool, char *from)
{
	sonde_alloc(pool, from, 4000);
	__asm__ volatile("" : : : "memory");
}

static void pools(void)
{
	static char arena[8192];
	uint32_t pool = sonde_pool_define("nodes"), other = sonde_pool_define("strings");

	take_three(pool, arena);
	take_other(other, arena); /* the same address in another pool */
	sonde_free(pool, arena + 100);
	sonde_alloc(0, arena, 1);
	sonde_free(pool, NULL);
}

/* Until it is told to end; how many calls a millisecond. */
static void slow(int milliseconds)
{
	uint32_t counter = sonde_counter_define("slow", "calls", "", SONDE_COUNTER_INT64);
	uint64_t end = sonde_clock() + (uint64_t)milliseconds * 1000000;
	long calls = 0;

	printf("ready\n");
	fflush(stdout);
	while (sonde_clock() < end) {
		sonde_counter_set(counter, calls++);
		if (calls % 1000 == 0)
			usleep(1000);
	}
	printf("calls %ld\n", calls);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "all";

	rounds = argc > 2 ? atol(argv[2]) : 100000;
	printf("base %llu\n", (unsigned long long)base);
	printf("recording %d\n", sonde_is_recording());
	fflush(stdout);
	if (!strcmp(what, "all"))
		all();
	else if (!strcmp(what, "fork"))
		forks();
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "signals"))
		signals();
	else if (!strcmp(what, "jit"))
		jit();
	else if (!strcmp(what, "pools"))
		pools();
	else if (!strcmp(what, "slow"))
		slow((int)rounds);
	return 0;
}
