/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * taken WHAT [N]: a program that checks itself while code is put into it. Prints "ready"; at SIGTERM, and when its
 * parent is gone, what went wrong, if anything, and ends with status 1 then.
 *
 *	compute      one thread that makes no system call, whose results are known
 *	malloc N     N threads allocate, fill, look, free
 *	forks        children all the time, which allocate
 *	threads N    N threads that wait for a condition with a time limit
 *	CALL MS      one thread that waits in CALL for MS, again and again: nanosleep, clock_nanosleep, futex, cond, poll, select,
 *	             epoll, ppoll, sigsuspend, pipe (which is written to every MS by a child)
 *	signals      waits in pause(), and its child sends it signals, each of which is to arrive
 */
#include <errno.h>
#include <immintrin.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EARLY_MS 2 /* a limit in ms is what is left of it, rounded, each time that its call is begun again */
#define LATE_MS 150 /* on top of what a busy machine explains; a limit that is begun anew is later than that, mostly */
#define NAP_MS 5
#define FUTEX_WAIT_PRIVATE 128 /* linux/futex.h, which musl lacks */

static volatile sig_atomic_t done;
static atomic_ulong wrong, rounds;
static char words[256];

static void finish(int number)
{
	done = 1;
}

static void say(const char *what, double value)
{
	if (!atomic_fetch_add(&wrong, 1))
		snprintf(words, sizeof(words), "%s %.3f", what, value);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- computing ---- */

/* Everything stays in registers: integers, floating point, vectors, and flags across the loop. */
__attribute__((noinline)) static uint64_t one_result(void)
{
	__m128i v = _mm_set_epi64x(1, 2), k = _mm_set_epi64x(0x9e3779b97f4a7c15, 0x123456789abcdef);
	uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
	double x = 1.0, y = 0.5;

	__asm__ volatile("" : "+r"(a));
	for (int i = 0; i < 2000000; i++) {
		a += b ^ (c << 3);
		b = b * 6364136223846793005u + d;
		c ^= a >> 7;
		d += e < a;
		e = (e << 5 | e >> 59) + f;
		f -= c;
		x = x * 1.0000001 + y;
		y = y * 0.9999999;
		v = _mm_add_epi64(_mm_xor_si128(v, k), _mm_slli_epi64(v, 1));
	}
	return a ^ b ^ c ^ d ^ e ^ f ^ (uint64_t)(x * 1e6) ^ (uint64_t)(y * 1e9) ^ (uint64_t)_mm_cvtsi128_si64(v) ^
		(uint64_t)_mm_cvtsi128_si64(_mm_srli_si128(v, 8));
}

static void compute(void)
{
	uint64_t known = one_result();

	puts("ready");
	fflush(stdout);
	while (!done && rounds < 1u << 30) {
		/* Else one result is taken for all. */
		__asm__ volatile("" ::: "memory");
		if (one_result() != known)
			say("a result is another one after rounds:", (double)rounds);
		rounds++;
	}
}

/* ---- allocating ---- */

static void *allocate(void *arg)
{
	unsigned char *block[64] = {0};
	size_t size[64] = {0};
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!done) {
		unsigned at = (seed = seed * 1103515245 + 12345) >> 16 & 63;

		if (block[at] && (block[at][0] != at || block[at][size[at] - 1] != at))
			say("a block was overwritten", (double)at);
		free(block[at]);
		size[at] = 1 + (seed >> 8 & 4095);
		block[at] = malloc(size[at]);
		memset(block[at], (int)at, size[at]);
		if (!(rounds++ & 1023))
			usleep(100);
	}
	return NULL;
}

static void many(int count, void *(*run)(void *))
{
	pthread_t thread;

	for (int i = 0; i < count; i++)
		if (pthread_create(&thread, NULL, run, (void *)(uintptr_t)(i + 1)))
			exit(2);
	puts("ready");
	fflush(stdout);
	while (!done)
		usleep(20000);
	usleep(100000);
}

static void *wait_for_condition(void *arg)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
	struct timespec until;

	while (!done) {
		double began = now_ms();
		int rc;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 200000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_mutex_lock(&mutex);
		rc = pthread_cond_timedwait(&condition, &mutex, &until);
		pthread_mutex_unlock(&mutex);
		if (rc != ETIMEDOUT || now_ms() < began + 195)
			say("pthread_cond_timedwait", rc);
		rounds++;
	}
	return NULL;
}

/* ---- processes ---- */

static void forks(void)
{
	puts("ready");
	fflush(stdout);
	while (!done) {
		pid_t child = fork();
		int status = 0;

		if (!child) {
			char *volatile block = malloc(10000); /* not to be left out */

			memset(block, 1, 10000);
			free(block);
			_exit(7);
		}
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			if (!done)
				say("waitpid: EINTR", 0);
		if (WEXITSTATUS(status) != 7)
			say("a child ended with", status);
		rounds++;
	}
}

/* ---- waiting ---- */

static int epoll_fd, pipe_fds[2];

static long wait_once(const char *call, int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	struct timeval v = {ms / 1000, ms % 1000 * 1000};
	struct epoll_event event;
	uint32_t word = 0;
	char byte;

	if (!strcmp(call, "nanosleep"))
		return nanosleep(&t, NULL);
	if (!strcmp(call, "clock_nanosleep"))
		return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	if (!strcmp(call, "futex"))
		return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) < 0 && errno == ETIMEDOUT ? 0 : -1;
	if (!strcmp(call, "poll"))
		return poll(NULL, 0, ms);
	if (!strcmp(call, "select"))
		return select(0, NULL, NULL, NULL, &v);
	if (!strcmp(call, "ppoll"))
		return ppoll(NULL, 0, &t, NULL);
	if (!strcmp(call, "epoll"))
		return epoll_wait(epoll_fd, &event, 1, ms);
	return read(pipe_fds[0], &byte, 1) == 1 ? 0 : -1;
}

static void write_now_and_then(int ms)
{
	if (pipe(pipe_fds))
		exit(2);
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		usleep((useconds_t)ms * 1000);
		if (write(pipe_fds[1], "x", 1) != 1)
			_exit(0);
	}
}

/* How much later than it should a process of its own has woken up, all times added: what the machine does to all. */
static volatile double *lateness_ms;

static void watch_the_machine(void)
{
	lateness_ms = mmap(NULL, sizeof(*lateness_ms), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (lateness_ms == MAP_FAILED)
		exit(2);
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		double began = now_ms();

		usleep(NAP_MS * 1000);
		*lateness_ms += now_ms() - began - NAP_MS;
	}
}

/* What the calling thread has waited for a CPU. */
static double runnable_ms(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	double ran_ns, waited_ns = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%lf %lf", &ran_ns, &waited_ns) != 2)
		waited_ns = 0;
	fclose(file);
	return waited_ns / 1e6;
}

static void waits(const char *call, int ms)
{
	watch_the_machine();
	epoll_fd = epoll_create1(0);
	if (!strcmp(call, "pipe"))
		write_now_and_then(ms);
	puts("ready");
	fflush(stdout);
	while (!done) {
		double excuse = *lateness_ms + runnable_ms(), began = now_ms(), took;
		long rc = wait_once(call, ms);

		took = now_ms() - began;
		excuse = *lateness_ms + runnable_ms() - excuse;
		if (done)
			break;
		if (rc)
			say(rc < 0 ? strerror(errno) : "a result", (double)rc);
		if (strcmp(call, "pipe") && (took < ms - EARLY_MS || took > ms + LATE_MS + excuse))
			say("ms it has waited:", took);
		rounds++;
	}
}

/* ---- signals ---- */

static atomic_uint arrived;

static void arrive(int number)
{
	arrived++;
}

/* One signal at a time: the next comes when pause() has returned for the last one. */
static void signals(void)
{
	pid_t parent = getpid();
	int back[2];
	char byte = 0;

	signal(SIGUSR1, arrive);
	if (pipe(back))
		exit(2);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(back[0], &byte, 1) == 1) {
			usleep(3000);
			kill(parent, SIGUSR1);
		}
		_exit(0);
	}
	puts("ready");
	fflush(stdout);
	while (!done) {
		unsigned before = arrived;
		sigset_t set, old;

		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, &old);
		if (write(back[1], "x", 1) != 1)
			exit(2);
		sigsuspend(&old);
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (arrived != before + 1 && !done)
			say("signals that have arrived:", arrived - before);
		rounds++;
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "compute";
	int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 4;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGTERM, finish);
	if (!strcmp(what, "compute"))
		compute();
	else if (!strcmp(what, "malloc"))
		many(n, allocate);
	else if (!strcmp(what, "threads"))
		many(n, wait_for_condition);
	else if (!strcmp(what, "forks"))
		forks();
	else if (!strcmp(what, "signals"))
		signals();
	else
		waits(what, n);
	printf("%lu rounds, %lu wrong: %s\n", rounds, wrong, words);
	fflush(stdout);
	_exit(wrong != 0);
}
