/* SPDX-License-Identifier: BSD-2-Clause */
/* recurse LEVELS MS: MS of CPU time at the bottom of LEVELS calls of descend(). */
#include <stdio.h>
#include <stdlib.h>

#include "spin.h"

static uint64_t ms;

NOINLINE void bottom(void)
{
	spin_ms(ms);
	NOT_A_TAIL_CALL;
}

NOINLINE void descend(long level)
{
	volatile char frame[64];

	frame[0] = 0;
	if (level > 1)
		descend(level - 1);
	else
		bottom();
	NOT_A_TAIL_CALL;
	frame[1] = frame[0];
}

int main(int argc, char **argv)
{
	ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 500;
	puts("ready");
	fflush(stdout);
	descend(argc > 1 ? strtol(argv[1], NULL, 10) : 300);
	return 0;
}
