/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * split PERIOD_NS MS: for MS of CPU time, 70 % in heavy() and 30 % in light(), which take turns
 * within each period. The boundaries are absolute, so that no error adds up.
 */
#include <stdio.h>
#include <stdlib.h>

#include "spin.h"

NOINLINE void heavy(uint64_t until_ns)
{
	spin_until(until_ns);
	NOT_A_TAIL_CALL;
}

NOINLINE void light(uint64_t until_ns)
{
	spin_until(until_ns);
	NOT_A_TAIL_CALL;
}

int main(int argc, char **argv)
{
	uint64_t period = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000;
	uint64_t total = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1000) * 1000000u;
	uint64_t start = spin_cpu_ns();

	puts("ready");
	fflush(stdout);
	for (uint64_t at = 0; at < total; at += period) {
		heavy(start + at + period * 7 / 10);
		light(start + at + period);
	}
	return 0;
}
