/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * switches HOW MS: computes for MS milliseconds of CPU time on a stack that is not the thread's own.
 *
 *	raised       a signal handler on a stack of its own, from a signal the program sends itself
 *	interrupting the same, interrupting a computation
 *	ucontext     a generator of makecontext() and swapcontext(), three calls deep
 *	switch       a generator of a hand-written switch, three calls deep
 *	fcontext     the same, entered by a jump from code that puts its own return address on the stack
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "spin.h"

#define STACK_BYTES (256u << 10)
#define PIECE_MS 5

static uint64_t until_ns;

static int done(void)
{
	return spin_cpu_ns() >= until_ns;
}

static char *new_stack(void)
{
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		exit(1);
	return stack;
}

/* ---- signal handlers ---- */

static NOINLINE void handler_work(void)
{
	spin_ms(PIECE_MS);
	NOT_A_TAIL_CALL;
}

static NOINLINE void on_signal(int sig)
{
	(void)sig;
	handler_work();
	NOT_A_TAIL_CALL;
}

static void install(int sig)
{
	stack_t alt = {.ss_sp = new_stack(), .ss_size = STACK_BYTES};
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};

	if (sigaltstack(&alt, NULL) || sigaction(sig, &act, NULL))
		exit(1);
}

static NOINLINE void send_signals(void)
{
	while (!done())
		raise(SIGUSR1);
	NOT_A_TAIL_CALL;
}

static NOINLINE void run_raised(void)
{
	install(SIGUSR1);
	send_signals();
	NOT_A_TAIL_CALL;
}

static NOINLINE void computation(void)
{
	while (!done())
		spin_ms(PIECE_MS);
	NOT_A_TAIL_CALL;
}

static NOINLINE void run_interrupting(void)
{
	struct itimerval every = {{0, 8000}, {0, 8000}};

	install(SIGPROF);
	setitimer(ITIMER_PROF, &every, NULL);
	computation();
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_PROF, &every, NULL);
}

/* ---- generators ---- */

static void (*give_back)(void);

static NOINLINE void level_three(void)
{
	spin_ms(PIECE_MS);
	give_back();
	NOT_A_TAIL_CALL;
}

static NOINLINE void level_two(void)
{
	level_three();
	NOT_A_TAIL_CALL;
}

static NOINLINE void level_one(void)
{
	level_two();
	NOT_A_TAIL_CALL;
}

static NOINLINE void generator(void)
{
	for (;;)
		level_one();
}

static ucontext_t here, there;

static NOINLINE void give_back_ucontext(void)
{
	swapcontext(&there, &here);
}

static NOINLINE void run_ucontext(void)
{
	getcontext(&there);
	there.uc_stack.ss_sp = new_stack();
	there.uc_stack.ss_size = STACK_BYTES;
	there.uc_link = &here;
	makecontext(&there, generator, 0);
	give_back = give_back_ucontext;
	while (!done())
		swapcontext(&here, &there);
}

#if defined(__x86_64__)
/* Saves what a call must give back, changes the stack, takes it up there. */
void switch_stack(void **save_sp, void *to_sp);
__asm__(".text\n.type switch_stack, @function\nswitch_stack:\n"
	"\tpush %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n"
	"\tmov %rsp, (%rdi)\n\tmov %rsi, %rsp\n"
	"\tpop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\tret\n"
	".size switch_stack, . - switch_stack\n");

static void *sp_here, *sp_there;

static NOINLINE void give_back_switch(void)
{
	switch_stack(&sp_there, sp_here);
	NOT_A_TAIL_CALL;
}

static void run_generator(void)
{
	give_back = give_back_switch;
	while (!done())
		switch_stack(&sp_here, sp_there);
}

static NOINLINE void run_switch(void)
{
	void **top = (void **)(void *)(new_stack() + STACK_BYTES) - 2;

	/* As a call would leave it: nothing above, and 8 bytes off a multiple of 16. */
	*top-- = NULL;
	*top-- = (void *)generator;
	top -= 5;
	sp_there = top;
	run_generator();
	NOT_A_TAIL_CALL;
}

/* No unwind tables here, as in the libraries that do it so. */
void fcontext_start(void);
void fcontext_end(void);
__asm__(".text\n.type fcontext_start, @function\nfcontext_start:\n"
	"\tpush %rbp\n\tjmp *%rbx\n"
	"fcontext_end:\n\txor %rdi, %rdi\n\tcall _exit\n\thlt\n"
	".size fcontext_start, . - fcontext_start\n");

static NOINLINE void run_fcontext(void)
{
	void **top = (void **)(void *)(new_stack() + STACK_BYTES) - 2;

	*--top = (void *)fcontext_start;
	*--top = (void *)fcontext_end; /* rbp */
	*--top = (void *)generator;    /* rbx */
	sp_there = top - 4;
	run_generator();
	NOT_A_TAIL_CALL;
}
#endif

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} hows[] = {
		{"raised", run_raised},
		{"interrupting", run_interrupting},
		{"ucontext", run_ucontext},
#if defined(__x86_64__)
		{"switch", run_switch},
		{"fcontext", run_fcontext},
#endif
	};

	puts("ready");
	fflush(stdout);
	for (size_t i = 0; argc == 3 && i < sizeof(hows) / sizeof(hows[0]); i++) {
		if (strcmp(argv[1], hows[i].name))
			continue;
		until_ns = spin_cpu_ns() + strtoull(argv[2], NULL, 10) * 1000000;
		hows[i].run();
		return 0;
	}
	return 1;
}
