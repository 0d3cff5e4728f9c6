/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that lies about what it waits for, and changes while it is looked at. `liar WHAT`:
 *
 *	locks   threads wait for words that another thread writes ids of threads and nonsense into
 *	lists   the same with structs that point at each other in circles, struct pthread among them
 *	pages   arguments of calls stand in pages that are unmapped and mapped all the time
 *	storm   threads that start and end, with names that are commands for terminals; forks
 *	exec    it calls exec again and again, with threads
 *
 * Prints "ready"; when stdin closes, "CALLS EINTRS", and ends with status 1 when there were any EINTRs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 64
#define WAITERS 8
#define PTHREAD_TID 720 /* of glibc on x86-64: struct pthread holds the id there, and its robust list behind it */

static _Atomic uint32_t words[WORDS];
static _Atomic pid_t tids[WAITERS + 1];
static atomic_ulong calls, eintrs;
static uint8_t *volatile pages;

static const char *const names[] = {"\x1b[31mred\x1b[0m", "a\tb\nc\rd", "\x9b""2J", "\xc2\x9b""2Jc1", "\"\\', {}",
	"\xff\xfe\x80", "\xe2\x80\xaetxt.exe", "\x1b]0;title\x07", "%s%n%d", ""};

static void count(long result)
{
	atomic_fetch_add(&calls, 1);
	if (result == -1 && errno == EINTR)
		atomic_fetch_add(&eintrs, 1);
}

static uint32_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* What may stand in a lock, and what may not. */
static uint32_t draw_word(uint64_t *state, pid_t waiter)
{
	uint32_t r = draw(state), tid = (uint32_t)tids[r % (WAITERS + 1)];

	switch (r / 16 % 10) {
	case 0:
		return tid;
	case 1:
		return FUTEX_WAITERS | tid;
	case 2:
		return FUTEX_WAITERS | FUTEX_OWNER_DIED | tid;
	case 3:
		return (uint32_t)waiter;
	case 4:
		return r & 1 ? 1 : (uint32_t)getppid();
	case 5:
		return 0x40000000u | tid;
	case 6:
		return UINT32_MAX - r % 16;
	case 7:
		return r % 5;
	case 8:
		return FUTEX_WAITERS | EBUSY;
	default:
		return draw(state);
	}
}

static void wait_for(void *word, int operation, uint32_t expected, uint64_t *state)
{
	uint64_t ns = 1000000u << draw(state) % 8;
	struct timespec limit = {.tv_nsec = (long)ns};

	/* Of the one form the limit counts from now; of the other it is a time. */
	if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
		clock_gettime(CLOCK_MONOTONIC, &limit);
		ns += (uint64_t)limit.tv_nsec;
		limit.tv_nsec = (long)(ns % 1000000000);
		limit.tv_sec += (time_t)(ns / 1000000000);
	}
	count(syscall(SYS_futex, word, operation, expected, &limit, NULL, ~0u));
}

/* glibc's mutex: lock, count, owner, users, type. */
static void wait_for_mutex(_Atomic uint32_t *at, uint64_t *state, pid_t self)
{
	static const uint8_t types[] = {0, 0, 0, 1, 2, 16, 32, 128};
	uint32_t type = types[draw(state) % sizeof(types)], owner = draw_word(state, self);
	uint32_t lock = type == 16 ? FUTEX_WAITERS | owner : 2;

	at[1] = draw(state) % 3;
	at[2] = draw(state) & 3 ? (uint32_t)tids[draw(state) % (WAITERS + 1)] : owner;
	at[3] = 1 + draw(state) % 4;
	at[4] = type;
	at[0] = lock;
	wait_for((void *)at, type & 128 ? FUTEX_WAIT : FUTEX_WAIT | FUTEX_PRIVATE_FLAG, lock, state);
}

static void wait_for_word(unsigned number, uint64_t *state)
{
	static const int operations[] = {FUTEX_WAIT | FUTEX_PRIVATE_FLAG, FUTEX_WAIT,
		FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, FUTEX_WAIT_BITSET};
	_Atomic uint32_t *word = &words[draw(state) % (WORDS - 8)];
	uint32_t value = draw(state) & 1 ? 2 : draw_word(state, tids[number]);

	if (draw(state) & 1) {
		wait_for_mutex(word, state, tids[number]);
	} else {
		atomic_store(word, value);
		wait_for((void *)word, operations[draw(state) % 4], value, state);
	}
}

/* Overwrites what is waited for, but not so fast that nobody gets to sleep. */
static void *scribble(void *arg)
{
	uint64_t state = 99;

	for (;;) {
		for (int i = 0; i < 8; i++)
			atomic_store(&words[draw(&state) % WORDS], draw_word(&state, tids[draw(&state) % WAITERS]));
		usleep(20);
	}
	return NULL;
}

/* ---- structs in circles ---- */

struct fake_pthread {
	uint64_t words[WORDS * 2];
};
static struct fake_pthread fakes[WAITERS + 1];

/* Each says that it is a thread's, that the next one has the lock, and that its list goes on in the next. */
static void *tie_knots(void *arg)
{
	uint64_t state = 7;

	for (;;) {
		struct fake_pthread *f = &fakes[draw(&state) % WAITERS], *to = &fakes[draw(&state) % WAITERS];
		size_t at = draw(&state) % (WORDS * 2);
		volatile uint64_t *word = &f->words[at];

		*word = draw(&state) & 1 ? (uint64_t)(uintptr_t)to
			: at == PTHREAD_TID / 8 ? (uint64_t)tids[draw(&state) % WAITERS]
						: (uint64_t)(uintptr_t)word;
		usleep(10);
	}
	return NULL;
}

static void wait_for_fake(unsigned number, uint64_t *state)
{
	volatile uint32_t *lock = (uint32_t *)&fakes[draw(state) % WAITERS].words[draw(state) % 80];

	/* A FILE's lock: 2, how often, and whose; or a thread that is joined. */
	if (draw(state) & 1) {
		lock[0] = 2;
		lock[1] = 1;
		*(volatile uint64_t *)(lock + 2) = (uintptr_t)&fakes[draw(state) % WAITERS];
		wait_for((void *)lock, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, state);
	} else {
		lock = (uint32_t *)&fakes[draw(state) % WAITERS].words[PTHREAD_TID / 8];
		wait_for((void *)lock, FUTEX_WAIT_BITSET, *lock, state);
	}
}

/* ---- pages that come and go ---- */

#define PAGE_BYTES 4096
#define PAGES 16

static void *map_and_unmap(void *arg)
{
	uint64_t state = 3;

	for (;;) {
		uint8_t *page = pages + draw(&state) % PAGES * PAGE_BYTES;

		munmap(page, PAGE_BYTES);
		usleep(50);
		mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		usleep(50);
	}
	return NULL;
}

/* Pages are written by the kernel alone, so that nobody dies where there is none. */
static bool put(uint64_t at, const void *bytes, size_t len)
{
	struct iovec local = {(void *)bytes, len}, remote = {pages + at, len};

	return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)len;
}

static void call_with_page(unsigned number, uint64_t *state)
{
	static int watched_pipe[2], epoll;
	uint64_t at = number % PAGES * PAGE_BYTES + PAGE_BYTES - 16;
	struct timespec nap = {.tv_nsec = 1000000l << draw(state) % 6};

	if (!epoll && (pipe(watched_pipe) || (epoll = epoll_create1(0)) < 0))
		exit(2);

	struct pollfd watched[4] = {{watched_pipe[0], POLLIN, 0}, {epoll, POLLIN, 0}, {9999, POLLIN, 0},
		{(int)draw(state), (short)draw(state), 0}};

	put(at, draw(state) & 1 ? (void *)&nap : watched, sizeof(nap));
	switch (draw(state) % 5) {
	case 0:
		put(at, watched, sizeof(watched));
		count(syscall(SYS_poll, pages + at, draw(state) % 16 ? 1 : 1 << 19, 5));
		break;
	case 1:
		count(syscall(SYS_nanosleep, pages + at, NULL));
		break;
	case 2:
		count(syscall(SYS_ppoll, watched, 1, pages + at, NULL, 0));
		break;
	case 3:
		count(syscall(SYS_epoll_pwait2, epoll, pages, 4, pages + at, NULL, 0));
		break;
	case 4:
		count(syscall(SYS_select, 8, pages + at, NULL, NULL, &(struct timeval){.tv_usec = 5000}));
		break;
	}
}

/* ---- threads and processes that come and go ---- */

static void *live_shortly(void *arg)
{
	struct timespec nap = {.tv_nsec = 200000};

	prctl(PR_SET_NAME, names[(uintptr_t)arg % (sizeof(names) / sizeof(names[0]))]);
	count(syscall(SYS_nanosleep, &nap, NULL));
	return NULL;
}

static void *start_processes(void *arg)
{
	for (;;) {
		pid_t child = fork();

		if (!child) {
			usleep(2000);
			execl("/bin/true", "\x1b[31mtrue", NULL);
			_exit(0);
		}
		if (child > 0)
			waitpid(child, NULL, 0);
		usleep(1000);
	}
	return NULL;
}

static void start_storm(unsigned number, uint64_t *state)
{
	pthread_t t;

	if (!pthread_create(&t, NULL, live_shortly, (void *)(uintptr_t)draw(state)))
		pthread_join(t, NULL);
}

/* ---- what there is to choose from ---- */

static const struct way {
	const char *name;
	void (*step)(unsigned number, uint64_t *state); /* of threads that wait, also of the first one */
	void *(*liar)(void *);
} ways[] = {
	{"locks", wait_for_word, scribble},
	{"lists", wait_for_fake, tie_knots},
	{"pages", call_with_page, map_and_unmap},
	{"storm", start_storm, start_processes},
	{"exec", wait_for_word, scribble},
};
static const struct way *way;

static void wait_in_steps(unsigned number, bool for_ever)
{
	uint64_t state = number;
	struct pollfd input = {.fd = 0, .events = POLLIN};

	tids[number] = (pid_t)syscall(SYS_gettid);
	prctl(PR_SET_NAME, names[number % (sizeof(names) / sizeof(names[0]))]);
	/* The kernel walks this list when the thread ends; the thread does not end. */
	if (way->step == wait_for_fake)
		syscall(SYS_set_robust_list, &fakes[number].words[PTHREAD_TID / 8 + 2], 24);
	while (for_ever || poll(&input, 1, 0) == 0)
		way->step(number, &state);
}

static void *waiter(void *arg)
{
	wait_in_steps((unsigned)(uintptr_t)arg, true);
	return NULL;
}

static void start(void *(*function)(void *), uintptr_t number)
{
	pthread_t t;

	if (pthread_create(&t, NULL, function, (void *)number))
		exit(2);
}

/* stdin and stdout are handed on. */
static void exec_again(char **argv)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	for (uintptr_t i = 0; i < 3; i++)
		start(waiter, i);
	if (poll(&input, 1, 10) > 0)
		return;
	execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
	exit(2);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (argc > 1 && !strcmp(argv[1], ways[i].name))
			way = &ways[i];
	if (!way)
		return 2;
	tids[WAITERS] = getpid();
	pages = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argc < 3 && (puts("ready") < 0 || fflush(stdout)))
		return 2;
	if (!strcmp(way->name, "exec")) {
		exec_again(argv);
	} else {
		for (uintptr_t i = 0; i < WAITERS; i++)
			start(waiter, i);
		start(way->liar, 0);
		wait_in_steps(WAITERS, false);
	}
	printf("%lu %lu\n", atomic_load(&calls), atomic_load(&eintrs));
	fflush(stdout);
	_exit(eintrs != 0);
}
