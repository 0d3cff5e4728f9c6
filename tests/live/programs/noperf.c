/* SPDX-License-Identifier: BSD-2-Clause */
/* noperf CMD ARGS...: runs CMD where perf_event_open() is forbidden, as containers forbid it. */
#include "refuse.h"

int main(int argc, char **argv)
{
	return run_without(SYS_perf_event_open, argv);
}
