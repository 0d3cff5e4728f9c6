/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wakers pipe|tcp|exec N: a process waits N times for a byte that its child sends every 30 ms, through a pipe
 * or a TCP connection of this machine. Prints "ready", then the pid of the child. With "exec", a thread that
 * is not the first one waits so too, and then runs `wakers pipe N` in the place of the whole process.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

static void pause_ms(long ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000};

	nanosleep(&ts, NULL);
}

NOINLINE void tell(int fd, long times)
{
	for (long i = 0; i < times; i++) {
		pause_ms(30);
		if (write(fd, "", 1) != 1)
			exit(1);
	}
}

NOINLINE void hear(int fd, long times)
{
	char byte;

	for (long i = 0; i < times; i++)
		if (read(fd, &byte, 1) != 1)
			exit(1);
}

/* fds[0] hears what fds[1] tells. */
static int connect_both(int fds[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);
	int server = socket(AF_INET, SOCK_STREAM, 0);

	fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(server, (void *)&at, len) || listen(server, 1) ||
		getsockname(server, (void *)&at, &len) || connect(fds[1], (void *)&at, len))
		return -1;
	fds[0] = accept(server, NULL, NULL);
	return fds[0] < 0 ? -1 : 0;
}

static void *run_again(void *arg)
{
	char **argv = arg;

	pause_ms(300);
	execl("/proc/self/exe", argv[0], "pipe", argv[2], NULL);
	return arg;
}

int main(int argc, char **argv)
{
	long times = argc > 2 ? atol(argv[2]) : 30;
	const char *how = argc > 1 ? argv[1] : "pipe";
	pthread_t thread;
	int fds[2];
	pid_t child;

	if (!strcmp(how, "exec")) {
		pthread_create(&thread, NULL, run_again, argv);
		pthread_join(thread, NULL);
	}
	if (!strcmp(how, "tcp") ? connect_both(fds) : pipe(fds))
		return 1;
	puts("ready");
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		tell(fds[1], times);
		return 0;
	}
	printf("%d\n", (int)child);
	fflush(stdout);
	hear(fds[0], times);
	return waitpid(child, NULL, 0) != child;
}
