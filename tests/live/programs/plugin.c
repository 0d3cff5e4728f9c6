/* SPDX-License-Identifier: BSD-2-Clause */
/* A library for `family plugin`. */
#include "spin.h"

void plugin_work(uint64_t ms);

NOINLINE void plugin_work(uint64_t ms)
{
	spin_ms(ms);
	NOT_A_TAIL_CALL;
}
