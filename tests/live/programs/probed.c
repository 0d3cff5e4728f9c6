/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A function to set uretprobes on, probed, and those that call it: outermost calls caller.
 *
 *	probed direct MS       caller calls it directly, with a hundred bytes of locals
 *	probed recursive MS    caller calls probed_again, which calls itself four times
 *	probed pointer MS      caller calls what calls it through a pointer
 *
 * Says "ready" and waits for a line before it begins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spin.h"

NOINLINE void probed(uint64_t ms)
{
	spin_ms(ms);
	NOT_A_TAIL_CALL;
}

NOINLINE void probed_again(unsigned depth)
{
	if (depth)
		probed_again(depth - 1);
	else
		spin_ms(10);
	NOT_A_TAIL_CALL;
}

static void (*volatile pointer)(uint64_t) = probed;

/* From a register: the instruction does not say where the address came from. */
NOINLINE void call_pointer(void (*function)(uint64_t))
{
	function(10);
	NOT_A_TAIL_CALL;
}

NOINLINE void caller(char mode)
{
	volatile char locals[100];

	locals[7] = mode;
	if (mode == 'd')
		probed(10);
	else if (mode == 'r')
		probed_again(4);
	else
		call_pointer(pointer);
	locals[8] = 0;
}

NOINLINE void outermost(char mode)
{
	caller(mode);
	NOT_A_TAIL_CALL;
}

int main(int argc, char **argv)
{
	int ms = argc > 2 ? atoi(argv[2]) : 1000;

	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (; ms > 0; ms -= 10)
		outermost(argc > 1 ? argv[1][0] : 'd');
	return 0;
}
