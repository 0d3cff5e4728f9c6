/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * waits: one thread per blocking call that a stopped-and-continued process would see interrupted,
 * and one that is busy. Prints "ready"; when stdin closes, prints how often each call returned
 * EINTR, and ends with status 0 when none did.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "spin.h"

static atomic_int interrupted[4];
static atomic_bool done;
static atomic_int semaphore = -1;

static void *wait_epoll(void *arg)
{
	int epoll = epoll_create1(0);
	struct epoll_event event;

	while (!done)
		if (epoll_wait(epoll, &event, 1, 10000) < 0 && errno == EINTR)
			interrupted[0]++;
	return arg;
}

static void *wait_signal(void *arg)
{
	sigset_t set;
	struct timespec limit = {.tv_sec = 10};

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (!done)
		if (sigtimedwait(&set, NULL, &limit) < 0 && errno == EINTR)
			interrupted[1]++;
	return arg;
}

static void *wait_semaphore(void *arg)
{
	int id = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf take = {.sem_op = -1};
	struct timespec limit = {.tv_sec = 10};

	semaphore = id;
	while (!done && id >= 0)
		if (semtimedop(id, &take, 1, &limit) < 0 && errno == EINTR)
			interrupted[2]++;
	return arg;
}

static void *wait_socket(void *arg)
{
	int pair[2];
	struct timeval limit = {.tv_sec = 10};
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return arg;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (!done)
		if (recv(pair[0], &byte, 1, 0) < 0 && errno == EINTR)
			interrupted[3]++;
	return arg;
}

NOINLINE void busy(void)
{
	while (!done)
		spin_ms(10);
}

static void *run_busy(void *arg)
{
	busy();
	return arg;
}

int main(void)
{
	void *(*const bodies[])(void *) = {
		wait_epoll, wait_signal, wait_semaphore, wait_socket, run_busy};
	pthread_t thread;
	sigset_t set;
	char byte;
	int total = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (unsigned i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		if (pthread_create(&thread, NULL, bodies[i], NULL))
			return 2;
	usleep(100000);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	for (int i = 0; i < 4; i++)
		total += interrupted[i];
	printf("epoll_wait %d sigtimedwait %d semtimedop %d recv %d\n", interrupted[0],
		interrupted[1], interrupted[2], interrupted[3]);
	fflush(stdout);
	if (semaphore >= 0)
		semctl(semaphore, 0, IPC_RMID);
	_exit(total != 0);
}
