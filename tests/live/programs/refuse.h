/* SPDX-License-Identifier: BSD-2-Clause */
/* Running a command where one system call is forbidden, as containers forbid some. */
#ifndef SONDE_TESTS_REFUSE_H
#define SONDE_TESTS_REFUSE_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From now on the call returns EPERM. */
static inline bool refuse(unsigned number)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
		!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Becomes argv[1] with its arguments; an exit status when it cannot. */
static inline int run_without(unsigned number, char **argv)
{
	if (!argv[1] || !refuse(number))
		return 2;
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 2;
}

#endif
