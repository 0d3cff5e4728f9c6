/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates in every way there is, and says what it did: "alloc ADDRESS SIZE", "free ADDRESS", "realloc OLD NEW SIZE", one
 * line each, in order. Nothing is allocated for that.
 *
 *	allocations entries             each function of the allocator, and failures
 *	allocations threads N WIDTH     N threads, WIDTH at a time; each allocates, and frees in its last destructor
 *	allocations fork|vfork|spawn    a child allocates: of its own, of ours; `spawn` runs `allocations entries`
 *	allocations exec                allocates, then becomes `allocations entries`
 *	allocations signals             a handler on a stack of its own allocates
 *	allocations ticks MS            allocates for so long; says how many rounds there were in each tenth
 *	allocations lock                locks all of its memory, and says how much of it is there
 *	allocations leave               a block that stays, then _exit
 *	allocations sandbox MODE CMD... runs CMD where memfd_create (MODE memfd) or socket (MODE socket) fails, or where
 *	                                both end it (MODE kill)
 *	allocations alone HOW           allocates, then forbids itself all system calls but a few that it needs, by prctl
 *	                                or syscall (HOW), and goes on
 *	allocations limit WHO           allocates, then leaves WHO (itself, child, vfork, threads) 256 MB of address space;
 *	                                "large": whether 100 MB were had, and 1 GB; "limit": what it is
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

extern char **environ;
static void *volatile sink;

static void say(const char *what, const void *a, const void *b, size_t size)
{
	char line[128];
	int n = b ? snprintf(line, sizeof(line), "%s %p %p %zu\n", what, a, b, size)
		  : size ? snprintf(line, sizeof(line), "%s %p %zu\n", what, a, size)
			 : snprintf(line, sizeof(line), "%s %p\n", what, a);

	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(3);
}

static void *got(void *p, size_t size)
{
	if (!p)
		_exit(4);
	sink = p;
	say("alloc", p, NULL, size);
	return p;
}

static void let_go(void *p)
{
	say("free", p, NULL, 0);
	free(p);
}

static void *resized(void *old, void *p, size_t size)
{
	if (!p)
		_exit(5);
	say("realloc", old, p, size);
	return p;
}

NOINLINE static int entries(void)
{
	void *p[16], *q;
	volatile size_t huge = SIZE_MAX / 2; /* not for the compiler to see */

	p[0] = got(malloc(100001), 100001);
	p[1] = got(calloc(3, 100011), 300033);
	p[2] = got(memalign(64, 100021), 100021);
	p[3] = NULL;
	if (posix_memalign(&p[3], 128, 100031))
		return 1;
	got(p[3], 100031);
	p[4] = got(aligned_alloc(256, 100096), 100096);
	p[5] = got(valloc(100051), 100051);
	p[6] = got(pvalloc(100061), 100061);
	p[7] = got(realloc(NULL, 100071), 100071);
	p[8] = got(reallocarray(NULL, 7, 100011), 700077);
	p[9] = got(strdup("a text that is not short enough to be inside of anything"), 57);
	q = p[0];
	p[0] = resized(q, realloc(q, 200001), 200001);
	q = p[1];
	p[1] = resized(q, reallocarray(q, 5, 100013), 500065);
	q = p[9];
	p[9] = resized(q, realloc(q, 20), 20);
	if (malloc_usable_size(p[0]) < 200001)
		return 1;

	/* None of these is an allocation, and the blocks stay what they were. */
	errno = 0;
	if (malloc(huge + 1) || errno != ENOMEM || calloc(huge, 4) || realloc(p[2], huge + 1) || memalign(64, huge + 1) ||
		reallocarray(p[2], huge, 8) || posix_memalign(&q, 3, 8) != EINVAL || posix_memalign(&q, 64, huge + 1) != ENOMEM)
		return 1;
	/* errno stays what it was when all is well. */
	errno = 77;
	q = got(malloc(100081), 100081);
	let_go(q);
	free(NULL);
	if (errno != 77)
		return 1;
	/* A size of 0 gives the block back. */
	q = got(malloc(100091), 100091);
	say("free", q, NULL, 0);
	sink = realloc(q, 0);
	if (sink)
		return 1;
	for (int i = 0; i < 10; i++)
		let_go(p[i]);
	return 0;
}

static pthread_key_t key;

static void last(void *p)
{
	free(p);
}

static void *live_shortly(void *size)
{
	void *p = malloc((size_t)size);

	pthread_setspecific(key, p);
	sink = p;
	free(malloc(24));
	return NULL;
}

static int many_threads(int count, int width)
{
	pthread_t threads[64];

	if (pthread_key_create(&key, last))
		return 1;
	for (int i = 0; i < count; i += width) {
		for (int k = 0; k < width; k++)
			if (pthread_create(&threads[k], NULL, live_shortly, (void *)(uintptr_t)(200000 + i + k)))
				return 1;
		for (int k = 0; k < width; k++)
			pthread_join(threads[k], NULL);
	}
	return 0;
}

static int wait_for(pid_t child)
{
	int status = 0;

	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int with_child(const char *how, char *self)
{
	char *arguments[] = {self, "entries", NULL};
	void *before = got(malloc(300001), 300001), *volatile shared = NULL;
	pid_t child;

	if (!strcmp(how, "fork")) {
		child = fork();
		if (!child) {
			free(before);
			sink = malloc(300011);
			exit(0);
		}
	} else if (!strcmp(how, "vfork")) {
		child = vfork();
		if (!child) {
			shared = malloc(300021);
			_exit(0);
		}
		got(shared, 300021);
	} else if (posix_spawn(&child, self, NULL, NULL, arguments, environ)) {
		return 1;
	}
	if (wait_for(child))
		return 1;
	let_go(before);
	return 0;
}

static void handler(int number)
{
	void *p = malloc(400011);

	(void)number;
	say("alloc", p, NULL, 400011);
	say("free", p, NULL, 0);
	free(p);
}

static int signals(void)
{
	static char stack[65536];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	sigaltstack(&other, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 100; i++)
		raise(SIGUSR1);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int ticks(uint64_t ms)
{
	uint64_t begin = now_ns(), end = begin + ms * 1000000u, sum = 0;

	for (uint64_t rounds = 0; now_ns() < end; rounds++) {
		unsigned char *p[32];

		for (size_t i = 0; i < 32; i++) {
			p[i] = malloc(16 + i * 24);
			memset(p[i], (int)i, 16);
		}
		for (size_t i = 0; i < 32; i++) {
			if (p[i][15] != i)
				return 1;
			sum += p[i][3];
			free(p[i]);
		}
	}
	printf("right %d\n", sum > 0);
	return 0;
}

static int lock(void)
{
	unsigned long pages = 0;
	FILE *f;

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return 8;
	f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%*s %lu", &pages) != 1)
		return 1;
	printf("resident %lu\n", pages);
	return 0;
}

static int sandbox(const char *mode, char **command)
{
	uint32_t number = !strcmp(mode, "memfd") ? SYS_memfd_create : SYS_socket;
	uint32_t what = !strcmp(mode, "kill") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, !strcmp(mode, "kill") ? SYS_memfd_create : number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, what),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = 5, .filter = rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 9;
	execv(command[0], command);
	return 9;
}

static void many(void)
{
	for (size_t i = 1; i < 20000; i++) {
		unsigned char *p = malloc(i % 3000 + 1);

		if (!p)
			_exit(4);
		p[i % 3000] = (unsigned char)i;
		sink = p;
		free(p);
	}
}

static int alone(const char *how)
{
	static const uint32_t allowed[] = {SYS_write, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_getrandom,
		SYS_rt_sigreturn};
	enum { COUNT = sizeof(allowed) / sizeof(allowed[0]) };
	struct sock_filter rules[COUNT + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog filter = {.len = COUNT + 3, .filter = rules};

	for (uint8_t i = 0; i < COUNT; i++)
		rules[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], COUNT - i, 0);
	rules[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	rules[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	got(malloc(300001), 300001);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 9;
	if (!strcmp(how, "prctl") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
				  : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter))
		return 9;
	many();
	got(malloc(400001), 400001);
	_exit(0);
}

static void *idle(void *at)
{
	while (!__atomic_load_n((int *)at, __ATOMIC_ACQUIRE))
		many();
	return NULL;
}

/* What the limit allows, in words. */
static int limited(void)
{
	struct rlimit now;
	void *some, *much;

	many();
	some = malloc(100u << 20);
	much = malloc(4096ul << 20);
	if (getrlimit(RLIMIT_AS, &now) || printf("large %d %d\nlimit %lu\n", some != NULL, much != NULL,
						  (unsigned long)(now.rlim_cur >> 20)) < 0)
		return 1;
	return fflush(stdout);
}

static int limit(const char *who, char **again)
{
	const struct rlimit most = {256u << 20, RLIM_INFINITY};
	pthread_t thread;
	int done = 0, ret = 0;
	pid_t child = 0;

	many();
	if (!strcmp(who, "threads") && pthread_create(&thread, NULL, idle, &done))
		return 1;
	if (!strcmp(who, "vfork")) {
		child = vfork();
		if (!child) {
			setrlimit(RLIMIT_AS, &most);
			execv(again[0], again);
			_exit(1);
		}
	} else {
		child = !strcmp(who, "child") ? fork() : 0;
		if (!child && !prlimit(0, RLIMIT_AS, &most, NULL))
			ret = limited();
	}
	if (child)
		waitpid(child, &ret, 0);
	many();
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	if (!strcmp(who, "threads"))
		pthread_join(thread, NULL);
	return ret;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char *again[] = {argv[0], "entries", NULL};

	if (!strcmp(what, "entries"))
		return entries();
	if (!strcmp(what, "threads") && argc > 3)
		return many_threads((int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10));
	if (!strcmp(what, "fork") || !strcmp(what, "vfork") || !strcmp(what, "spawn"))
		return with_child(what, argv[0]);
	if (!strcmp(what, "exec")) {
		got(malloc(500001), 500001);
		execv(argv[0], again);
		return 1;
	}
	if (!strcmp(what, "signals"))
		return signals();
	if (!strcmp(what, "ticks") && argc > 2)
		return ticks(strtoull(argv[2], NULL, 10));
	if (!strcmp(what, "lock"))
		return lock();
	if (!strcmp(what, "leave")) {
		got(malloc(600001), 600001);
		_exit(0);
	}
	if (!strcmp(what, "limited"))
		return limited();
	if (!strcmp(what, "limit") && argc > 2)
		return limit(argv[2], (char *[]){argv[0], "limited", NULL});
	if (!strcmp(what, "alone") && argc > 2)
		return alone(argv[2]);
	if (!strcmp(what, "sandbox") && argc > 3)
		return sandbox(argv[2], argv + 3);
	return 2;
}
