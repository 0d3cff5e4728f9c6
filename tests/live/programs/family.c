/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * family fork MS | exec MS | plugin FILE MS | die MS | crowd COUNT MS: what processes do while they
 * are being recorded.
 *
 *   fork    the parent spins in parent_work(), its child in child_work()
 *   exec    spins in before_exec(), then becomes another image that spins in after_exec()
 *   plugin  spins in before_plugin(), then in plugin_work() of a library it loads
 *   die     spins in last_words(), then kills itself
 *   crowd   COUNT children one after the other, each in crowd_work()
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

#define WORK(name)                                                                                 \
	NOINLINE void name(uint64_t ms)                                                            \
	{                                                                                          \
		spin_ms(ms);                                                                       \
		NOT_A_TAIL_CALL;                                                                   \
	}
WORK(parent_work)
WORK(child_work)
WORK(before_exec)
WORK(after_exec)
WORK(before_plugin)
WORK(last_words)
WORK(crowd_work)

static int run_fork(uint64_t ms)
{
	pid_t child = fork();

	if (child < 0)
		return 1;
	if (!child) {
		child_work(ms);
		_exit(0);
	}
	parent_work(ms);
	return waitpid(child, NULL, 0) != child;
}

static int run_exec(char **argv, uint64_t ms)
{
	char *again[] = {argv[0], "after", argv[2], NULL};

	before_exec(ms);
	execv("/proc/self/exe", again);
	return 1;
}

static int run_plugin(const char *file, uint64_t ms)
{
	before_plugin(ms);
	void *library = dlopen(file, RTLD_NOW);
	void (*work)(uint64_t) = NULL;

	if (library)
		*(void **)&work = dlsym(library, "plugin_work");
	if (!work)
		return 1;
	work(ms);
	return 0;
}

static int run_crowd(long count, uint64_t ms)
{
	for (long i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			crowd_work(ms);
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	uint64_t ms = argc > 2 ? strtoull(argv[argc - 1], NULL, 10) : 0;

	puts("ready");
	fflush(stdout);
	if (!strcmp(mode, "fork"))
		return run_fork(ms);
	if (!strcmp(mode, "exec"))
		return run_exec(argv, ms);
	if (!strcmp(mode, "plugin") && argc > 3)
		return run_plugin(argv[2], ms);
	if (!strcmp(mode, "crowd") && argc > 3)
		return run_crowd(strtol(argv[2], NULL, 10), ms);
	if (!strcmp(mode, "after")) {
		after_exec(ms);
		return 0;
	}
	if (!strcmp(mode, "die")) {
		last_words(ms);
		raise(SIGKILL);
	}
	return 2;
}
