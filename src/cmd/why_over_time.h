/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde why -d TIME */
#ifndef SONDE_CMD_WHY_OVER_TIME_H
#define SONDE_CMD_WHY_OVER_TIME_H

#include "wait/over_time.h"

/* Watches until the time is over, Ctrl-C, or the end of the process: *ret is finished. */
int why_over_time(const struct over_options *options, uint64_t duration_ns, struct over_time **ret,
	struct err *err);

#endif
