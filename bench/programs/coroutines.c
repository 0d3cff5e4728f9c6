/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coroutines: 16 coroutines in one thread, each at the bottom of 20 to 400 calls of 96 bytes and more; they hand over
 * to the next one every 16 calls, and come up and go down again all the time. For ever.
 */
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#define COUNT 16
#define STACK_BYTES (256u << 10)

static ucontext_t contexts[COUNT];
static int current;

__attribute__((noinline)) static uint64_t work(uint64_t x, int rounds)
{
	for (volatile int i = 0; i < rounds; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	return x;
}

__attribute__((noinline)) static void hand_over(void)
{
	int from = current;

	current = (current + 1) % COUNT;
	swapcontext(&contexts[from], &contexts[current]);
}

__attribute__((noinline)) static uint64_t descend(uint64_t x, int level)
{
	volatile char frame[96];

	frame[0] = (char)x;
	x = work(x, 200);
	if (level > 0)
		x = descend(x, level - 1);
	else
		hand_over();
	if (level % 16 == 0)
		hand_over();
	x = work(x, 200);
	return x + (uint64_t)frame[0];
}

static void body(void)
{
	uint64_t x = (uint64_t)current;

	for (;;)
		x = descend(x, 20 + (int)(x % 380));
}

int main(void)
{
	for (int i = 0; i < COUNT; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = malloc(STACK_BYTES);
		contexts[i].uc_stack.ss_size = STACK_BYTES;
		makecontext(&contexts[i], body, 0);
	}
	setcontext(&contexts[0]);
	return 1;
}
