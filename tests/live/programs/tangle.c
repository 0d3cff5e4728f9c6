/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tangle signals | thread-exec MS | vfork MS: what a tracer can get wrong.
 *
 *   signals      gets thousands of signals of several kinds; says "lost N" in the end, of those without effect
 *   thread-exec  another thread than the first one becomes a new program, which spins in after_exec()
 *   vfork        a child of vfork() becomes a new program, which spins in after_exec()
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spin.h"

NOINLINE void after_exec(uint64_t ms)
{
	spin_ms(ms);
	NOT_A_TAIL_CALL;
}

static volatile sig_atomic_t raised, queued, faults, wrong;
static volatile char *forbidden;
static sigjmp_buf out;

static void on_raised(int number)
{
	raised++;
}

/* Realtime signals keep their values and their order. */
static void on_queued(int number, siginfo_t *info, void *context)
{
	wrong += info->si_value.sival_int != queued || info->si_pid != getpid();
	queued++;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	wrong += info->si_addr != forbidden || info->si_code != SEGV_ACCERR;
	faults++;
	siglongjmp(out, 1);
}

static int run_signals(void)
{
	struct sigaction with_info = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO};
	enum { RAISED = 5000, QUEUED = 5000, FAULTS = 2000 };

	forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	signal(SIGUSR1, on_raised);
	sigaction(SIGRTMIN + 1, &with_info, NULL);
	with_info.sa_sigaction = on_fault;
	sigaction(SIGSEGV, &with_info, NULL);
	for (int i = 0; i < RAISED; i++) {
		raise(SIGUSR1);
		spin_until(spin_cpu_ns() + 20000);
	}
	for (int i = 0; i < QUEUED; i++)
		if (sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}))
			return 2;
	for (volatile int i = 0; i < FAULTS; i++)
		if (!sigsetjmp(out, 1))
			*forbidden = 1;
	printf("lost %d wrong %d\n", RAISED - raised + QUEUED - queued + FAULTS - faults, (int)wrong);
	return 0;
}

static char **again;

static void *become_another(void *arg)
{
	spin_ms(100);
	execv("/proc/self/exe", again);
	return arg;
}

static void *spin_for_ever(void *arg)
{
	for (;;)
		spin_ms(10);
	return arg;
}

static int run_thread_exec(void)
{
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, spin_for_ever, NULL);
	pthread_create(&thread, NULL, become_another, NULL);
	pthread_join(thread, NULL);
	return 2;
}

static int run_vfork(void)
{
	int status = -1;
	pid_t child = vfork();

	if (!child) {
		execv("/proc/self/exe", again);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	char after[] = "after";
	char *other[] = {argv[0], after, argv[argc - 1], NULL};

	again = other;
	if (!strcmp(mode, "after")) {
		after_exec(strtoull(argv[2], NULL, 10));
		return 0;
	}
	puts("ready");
	fflush(stdout);
	if (!strcmp(mode, "signals"))
		return run_signals();
	if (!strcmp(mode, "thread-exec"))
		return run_thread_exec();
	if (!strcmp(mode, "vfork"))
		return run_vfork();
	return 2;
}
