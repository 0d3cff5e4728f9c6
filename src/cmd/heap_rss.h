/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde heap --rss: what the resident memory of a process is. */
#ifndef SONDE_CMD_HEAP_RSS_H
#define SONDE_CMD_HEAP_RSS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct heap_rss_args {
	const char *output; /* NULL: stdout */
	bool json;
	uint64_t top;
};

/* Returns an exit status. */
int heap_rss(const struct heap_rss_args *args, pid_t pid);

#endif
