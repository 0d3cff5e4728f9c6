/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that wait a few milliseconds in a system call, compute a little, and wait again, for ever;
 * each in another call, most of them such as return EINTR when their thread is stopped. Prints "ready"; when
 * stdin closes, one line a call, "NAME CALLS EINTRS", and ends with status 1 when there were any.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "spin.h"

#define WAIT_MS 3
static const struct timespec wait_time = {.tv_nsec = WAIT_MS * 1000000};

/* ---- one wait each; the state of a thread is one number ---- */

static long open_epoll(void)
{
	return epoll_create1(0);
}

static long call_epoll(long fd)
{
	struct epoll_event event;

	return epoll_wait((int)fd, &event, 1, WAIT_MS);
}

static long call_epoll_pwait(long fd)
{
	struct epoll_event event;
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGUSR2);
	return epoll_pwait((int)fd, &event, 1, WAIT_MS, &set);
}

/* Without a time limit: a timer ends it. */
static long open_epoll_timer(void)
{
	int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec often = {wait_time, wait_time};
	struct epoll_event event = {.events = EPOLLIN, .data = {.fd = timer}};

	timerfd_settime(timer, 0, &often, NULL);
	return epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) ? -1 : epoll;
}

static long call_epoll_for_ever(long fd)
{
	struct epoll_event event;
	uint64_t count;
	long rc = epoll_wait((int)fd, &event, 1, -1);

	return rc < 0 || read(event.data.fd, &count, sizeof(count)) < 0 ? -1 : rc;
}

static long open_timer(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec often = {wait_time, wait_time};

	return timerfd_settime(timer, 0, &often, NULL) ? -1 : timer;
}

static long call_read(long fd)
{
	uint64_t count;

	return read((int)fd, &count, sizeof(count));
}

static atomic_int semaphores = -1;

static long open_semaphore(void)
{
	semaphores = semget(IPC_PRIVATE, 2, 0600);
	return semaphores;
}

static long call_semtimedop(long id)
{
	struct sembuf take = {.sem_op = -1};

	return semtimedop((int)id, &take, 1, &wait_time);
}

/* semop() has no time limit: two threads hand a semaphore back and forth. */
static long pass_on(long id, int from, int to)
{
	struct sembuf take = {.sem_num = (unsigned short)from, .sem_op = -1};
	struct sembuf give = {.sem_num = (unsigned short)to, .sem_op = 1};
	long rc;

	usleep(1000 * WAIT_MS / 2);
	semop((int)id, &give, 1);
	while ((rc = semop((int)id, &take, 1)) < 0 && errno == EAGAIN)
		continue;
	return rc;
}

static long open_pair(void)
{
	static atomic_int pair = -1, taken;
	int none = -1, id = -1;

	if (!atomic_fetch_add(&taken, 1)) {
		id = semget(IPC_PRIVATE, 2, 0600);
		pair = id;
	}
	while (pair == none)
		usleep(1000);
	return pair;
}

static long call_semop(long id)
{
	return pass_on(id, 0, 1);
}

static long call_semop_other(long id)
{
	return pass_on(id, 1, 0);
}

static long call_sigtimedwait(long unused)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigtimedwait(&set, NULL, &wait_time);
}

static long open_socket(void)
{
	struct timeval limit = {.tv_usec = WAIT_MS * 1000};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -1;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return pair[0];
}

static long call_recv(long fd)
{
	char byte;

	return recv((int)fd, &byte, 1, 0);
}

static long open_listener(void)
{
	struct timeval limit = {.tv_usec = WAIT_MS * 1000};
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	/* An abstract name that the kernel chooses. */
	if (bind(fd, (struct sockaddr *)&name, sizeof(name.sun_family)) || listen(fd, 1))
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static long call_accept(long fd)
{
	return accept((int)fd, NULL, NULL);
}

static long open_uring(void)
{
	struct io_uring_params params = {0};

	return syscall(SYS_io_uring_setup, 4, &params);
}

static long call_uring(long fd)
{
	struct __kernel_timespec limit = {.tv_nsec = WAIT_MS * 1000000};
	struct io_uring_getevents_arg arg = {.ts = (uint64_t)(uintptr_t)&limit};

	return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
		&arg, sizeof(arg));
}

static long open_aio(void)
{
	aio_context_t context = 0;

	return syscall(SYS_io_setup, 1, &context) ? -1 : (long)context;
}

static long call_aio(long context)
{
	struct io_event event;

	return syscall(SYS_io_getevents, context, 1, 1, &event, &wait_time);
}

static long call_nanosleep(long unused)
{
	return nanosleep(&wait_time, NULL);
}

static long call_clock_nanosleep(long unused)
{
	int code = clock_nanosleep(CLOCK_MONOTONIC, 0, &wait_time, NULL);

	errno = code;
	return code ? -1 : 0;
}

static long call_poll(long unused)
{
	return poll(NULL, 0, WAIT_MS);
}

static long call_select(long unused)
{
	struct timeval limit = {.tv_usec = WAIT_MS * 1000};

	return select(0, NULL, NULL, NULL, &limit);
}

static long call_futex(long unused)
{
	uint32_t word = 0;

	return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &wait_time, NULL, 0);
}

static struct wait {
	const char *name;
	long (*open)(void);
	long (*call)(long state);
	unsigned long calls, interrupted;
} waits[] = {
	{"epoll_wait", open_epoll, call_epoll, 0, 0},
	{"epoll_wait_for_ever", open_epoll_timer, call_epoll_for_ever, 0, 0},
	{"epoll_pwait", open_epoll, call_epoll_pwait, 0, 0},
	{"timerfd", open_timer, call_read, 0, 0},
	{"semtimedop", open_semaphore, call_semtimedop, 0, 0},
	{"semop", open_pair, call_semop, 0, 0},
	{"semop_other", open_pair, call_semop_other, 0, 0},
	{"sigtimedwait", NULL, call_sigtimedwait, 0, 0},
	{"recv", open_socket, call_recv, 0, 0},
	{"accept", open_listener, call_accept, 0, 0},
	{"io_uring_enter", open_uring, call_uring, 0, 0},
	{"io_getevents", open_aio, call_aio, 0, 0},
	{"nanosleep", NULL, call_nanosleep, 0, 0},
	{"clock_nanosleep", NULL, call_clock_nanosleep, 0, 0},
	{"poll", NULL, call_poll, 0, 0},
	{"select", NULL, call_select, 0, 0},
	{"futex", NULL, call_futex, 0, 0},
};

enum { COUNT = sizeof(waits) / sizeof(waits[0]) };

static atomic_bool done;

/* Computes so little that a thread is often seen running just before it waits. */
static void *wait_again(void *arg)
{
	struct wait *w = arg;
	long state = w->open ? w->open() : 0;

	while (!done && state >= 0) {
		w->interrupted += w->call(state) < 0 && errno == EINTR;
		w->calls++;
		spin_until(spin_cpu_ns() + 50000);
	}
	return NULL;
}

int main(void)
{
	unsigned long total = 0;
	pthread_t thread;
	sigset_t set;
	char byte;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < COUNT; i++)
		if (pthread_create(&thread, NULL, wait_again, &waits[i]))
			return 2;
	usleep(100000);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	done = true;
	for (int i = 0; i < COUNT; i++) {
		total += waits[i].interrupted;
		printf("%s %lu %lu\n", waits[i].name, waits[i].calls, waits[i].interrupted);
	}
	fflush(stdout);
	if (semaphores >= 0)
		semctl(semaphores, 0, IPC_RMID);
	semctl((int)open_pair(), 0, IPC_RMID);
	_exit(total != 0);
}
