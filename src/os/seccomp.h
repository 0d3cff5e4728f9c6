/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What seccomp filters say of a system call, without making it: filters are read as the kernel keeps them, and run here.
 *
 * Only what is asked is answered: a filter that looks at what is not known of the call (an address, where it is made from)
 * gives SECCOMP_UNSURE. Filters are bytes that we did not write: nothing in them is believed.
 */
#ifndef SONDE_OS_SECCOMP_H
#define SONDE_OS_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"

struct seccomp_call {
	int number;
	uint64_t args[6];
	uint8_t known; /* bit n: args[n] is what it will be */
};

enum seccomp_says {
	SECCOMP_ALLOWS,
	SECCOMP_ERROR,  /* the call would fail, and nothing else */
	SECCOMP_UNSURE, /* it depends on what is not known, or somebody else is asked */
	SECCOMP_KILLS,  /* it ends the process, or sends it SIGSYS */
};

VEC_TYPE(seccomp_filter, struct sock_filter);

/* One filter. What is no valid filter kills. */
enum seccomp_says seccomp_judge(const struct sock_filter *filter, size_t count, const struct seccomp_call *call);

/* The filters of a thread that is traced and stopped by who asks, from the newest on: `index` 0, 1... 0; -ENOENT: there are
 * no more; -EPERM, -EACCES: we may not ask (CAP_SYS_ADMIN); others: the kernel does not keep them. */
int seccomp_filter_read(pid_t tid, unsigned index, struct seccomp_filter *ret);

/* Of a thread, from /proc: 0 none, 1 strict, 2 filters; < 0: it is gone. `ret_filters`: how many; 0: the kernel does not say. */
int seccomp_mode(pid_t pid, pid_t tid, unsigned *ret_filters);

#endif
