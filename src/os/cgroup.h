/* SPDX-License-Identifier: BSD-2-Clause */
/* What a cgroup's CPU controller tells: v2, or v1 where that is what is mounted. */
#ifndef SONDE_OS_CGROUP_H
#define SONDE_OS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The directory of the cgroup that limits the CPU time of a process, "" for none: no controller, or the
 * process is gone. True when it is not "". */
bool cgroup_cpu_directory(pid_t pid, char *buf, size_t size);

/* Makes it the directory of the cgroup above; false: there is none. */
bool cgroup_parent(char *directory);

/* How often, and for how long in all, threads were held back because the bandwidth was used up (the
 * longest time of any CPU counts at least; the kernel adds up its CPUs). */
struct cgroup_throttling {
	uint64_t periods, ns;
};

/* False where nothing counts that, as in the topmost cgroup. */
bool cgroup_throttling_read(const char *directory, struct cgroup_throttling *ret);

/* The same of the text of cpu.stat. */
bool cgroup_throttling_parse(const char *text, struct cgroup_throttling *ret);

/* The path of the cgroup whose CPU time is limited in the text of /proc/PID/cgroup; *ret_v1 says of which
 * hierarchy. False: none. */
bool cgroup_cpu_path(const char *text, char *buf, size_t size, bool *ret_v1);

#endif
