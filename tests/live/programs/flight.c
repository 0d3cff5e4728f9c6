/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * flight MODE N: what a flight recorder is to find in its window. Prints "ready".
 *
 *	phases MS    phase_0 .. phase_9 in turn, MS ms each by the clock; before each one prints its
 *	             number, the time (CLOCK_MONOTONIC) and the CPU time used so far, in ns
 *	hang MS      computes for MS ms by the clock, then main waits for ever for a mutex that the
 *	             thread "holder" has; a thread "busy" goes on computing a little
 *	idle         sleeps until a line comes on stdin, then computes for ever
 *	churn N      N threads that fork for ever; one in four of the children runs another program
 *	copies DIR   for ever runs a copy of itself under a new name in DIR
 *	code N       N threads that make new code for ever and run through random chains of it
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void spin_by_the_clock(uint64_t until_ns)
{
	while (now_ns() < until_ns)
		spin_until(spin_cpu_ns() + 200000);
}

#define PHASE(n)                                                                                   \
	static NOINLINE void phase_##n(uint64_t until_ns)                                          \
	{                                                                                          \
		spin_by_the_clock(until_ns);                                                       \
		NOT_A_TAIL_CALL;                                                                   \
	}
PHASE(0) PHASE(1) PHASE(2) PHASE(3) PHASE(4) PHASE(5) PHASE(6) PHASE(7) PHASE(8) PHASE(9)

static void (*const all_phases[])(uint64_t) = {phase_0, phase_1, phase_2, phase_3, phase_4, phase_5,
	phase_6, phase_7, phase_8, phase_9};

static void phases(uint64_t ms)
{
	for (unsigned i = 0;; i++) {
		uint64_t now = now_ns();

		printf("%u %llu %llu\n", i % 10, (unsigned long long)now,
			(unsigned long long)spin_cpu_ns());
		fflush(stdout);
		all_phases[i % 10](now + ms * 1000000);
	}
}

/* ---- hang ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *hold(void *arg)
{
	pthread_mutex_lock(&lock);
	*(volatile bool *)arg = true;
	for (;;)
		pause();
}

static void *be_busy(void *arg)
{
	for (;;) {
		spin_ms(2);
		usleep(8000);
	}
	return arg;
}

static NOINLINE void hang_here(void)
{
	pthread_mutex_lock(&lock);
	NOT_A_TAIL_CALL;
}

static void hang(uint64_t ms)
{
	pthread_t holder, busy;
	volatile bool held = false;

	pthread_create(&holder, NULL, hold, (void *)&held);
	pthread_setname_np(holder, "holder");
	pthread_create(&busy, NULL, be_busy, NULL);
	pthread_setname_np(busy, "busy");
	while (!held)
		usleep(1000);
	phase_1(now_ns() + ms * 1000000);
	hang_here();
}

static void idle(void)
{
	getchar();
	for (;;)
		phase_2(now_ns() + 1000000000);
}

/* ---- churn ---- */

static void *fork_for_ever(void *arg)
{
	for (unsigned i = 0;; i++) {
		pid_t pid = fork();

		if (!pid) {
			char name[32], command[64];

			snprintf(name, sizeof(name), "child %u", i);
			prctl(PR_SET_NAME, name);
			spin_ms(3);
			snprintf(command, sizeof(command), ": number %u of many", i);
			if (i % 4 == 0)
				execl("/bin/sh", "sh", "-c", command, (char *)NULL);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return arg;
}

static void copies(const char *self, const char *directory)
{
	char path[4096], copy[8192];

	for (unsigned i = 0;; i++) {
		snprintf(path, sizeof(path), "%s/copy-%u", directory, i);
		snprintf(copy, sizeof(copy), "cp %s %s && %s short; rm %s", self, path, path, path);
		if (system(copy) == -1)
			return;
	}
}

/* ---- code ---- */

#if defined(__x86_64__)

/* void f(void **next): calls next[0](next + 1) unless that is NULL, and computes a little. */
static const uint8_t function[] = {
	0x55,                         /* push %rbp */
	0x48, 0x89, 0xe5,             /* mov %rsp,%rbp */
	0x48, 0x8b, 0x07,             /* mov (%rdi),%rax */
	0x48, 0x83, 0xc7, 0x08,       /* add $8,%rdi */
	0x48, 0x85, 0xc0,             /* test %rax,%rax */
	0x74, 0x02,                   /* je over the call */
	0xff, 0xd0,                   /* call *%rax */
	0xb9, 0x00, 0x40, 0x00, 0x00, /* mov $0x4000,%ecx */
	0xff, 0xc9,                   /* dec %ecx */
	0x75, 0xfc,                   /* jne dec */
	0x5d,                         /* pop %rbp */
	0xc3,                         /* ret */
};
#define CODE_BYTES ((size_t)64 << 20)
#define SLOT 64u
#define DEPTH 24

static void *make_code(void *arg)
{
	uint8_t *code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t random = (uintptr_t)arg + 1;
	void *chain[DEPTH + 1] = {0};

	for (;;) {
		for (int i = 0; i < DEPTH; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			chain[i] = code + (random >> 33) % (CODE_BYTES / SLOT) * SLOT;
			memcpy(chain[i], function, sizeof(function));
		}
		((void (*)(void **))chain[0])(chain + 1);
	}
}

#endif

static void in_threads(unsigned count, void *(*fn)(void *))
{
	pthread_t thread;

	for (unsigned i = 1; i < count; i++)
		pthread_create(&thread, NULL, fn, (void *)(uintptr_t)i);
	fn(NULL);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	uint64_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	if (!strcmp(mode, "short")) {
		phase_3(now_ns() + 20000000);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	if (!strcmp(mode, "phases"))
		phases(number);
	else if (!strcmp(mode, "hang"))
		hang(number);
	else if (!strcmp(mode, "idle"))
		idle();
	else if (!strcmp(mode, "churn"))
		in_threads((unsigned)number, fork_for_ever);
	else if (!strcmp(mode, "copies") && argc > 2)
		copies(argv[0], argv[2]);
#if defined(__x86_64__)
	else if (!strcmp(mode, "code"))
		in_threads((unsigned)number, make_code);
#endif
	return 2;
}
