/* SPDX-License-Identifier: BSD-2-Clause */
/* Between rights.c (the walls and their words) and rights_probe.c (looking at the machine). */
#ifndef SONDE_OS_RIGHTS_PRIV_H
#define SONDE_OS_RIGHTS_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum rights_wall_id {
	WALL_PARANOID,
	WALL_CAPABILITIES,
	WALL_MACHINE_WIDE,
	WALL_KERNEL_FRAMES,
	WALL_KERNEL_NAMES,
	WALL_OTHER_USER,
	WALL_NOT_DUMPABLE,
	WALL_SECCOMP,
	WALL_YAMA,
	WALL_RING_MEMORY,
	WALL_DESCRIPTORS,
	WALL_NO_PERF,
	WALL_MAP_FILES,
	WALL_BPF_CAPABILITIES,
	WALL_BPF_TYPES,
	WALL_BPF_KERNEL,
	WALL_UNKNOWN,
};

struct rights_wall {
	const char *why, *cost, *fix; /* with {exe}, {pid}, {value} */
};

const struct rights_wall *rights_wall_of(enum rights_wall_id id);

/* `text` with its {words} filled in, cut to `size`. */
void rights_expand(char *buf, size_t size, const char *text, pid_t pid, long value);

/* CAP_PERFMON, or CAP_SYS_ADMIN that includes it. */
bool rights_perfmon(void);

/* CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN. */
bool rights_bpf(void);

#endif
