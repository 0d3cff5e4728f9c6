/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stops N: stops itself N times by SIGSTOP; a child lets it go on 100 ms later. Prints "ready", and in the
 * end for how long it stood still, in ns.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* From the moment it stands, for however late we are. */
static void let_it_go_on(pid_t pid)
{
	char path[64], state = 'R';

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (state != 'T' && state != 't') { /* t: it is traced as well */
		FILE *f = fopen(path, "r");

		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			_exit(1);
		fclose(f);
		usleep(1000);
	}
	usleep(100000);
	kill(pid, SIGCONT);
	_exit(0);
}

NOINLINE void stop(void)
{
	raise(SIGSTOP);
	NOT_A_TAIL_CALL;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 5;
	uint64_t stood = 0;
	pid_t self = getpid();

	puts("ready");
	fflush(stdout);
	for (long i = 0; i < count; i++) {
		uint64_t start = now_ns();
		pid_t child = fork();

		if (!child)
			let_it_go_on(self);
		stop();
		stood += now_ns() - start;
		waitpid(child, NULL, 0);
		spin_ms(10);
	}
	printf("%llu\n", (unsigned long long)stood);
	return 0;
}
