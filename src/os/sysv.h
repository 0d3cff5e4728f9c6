/* SPDX-License-Identifier: BSD-2-Clause */
/* Semaphores and message queues of System V, as the IPC namespace of a process has them. */
#ifndef SONDE_OS_SYSV_H
#define SONDE_OS_SYSV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct sysv_sem {
	int value;
	pid_t last;          /* who changed it last, an id of ours; 0: nobody, or not of our namespace */
	int waiting;         /* threads that wait for it to grow */
	int waiting_for_0;
};

struct sysv_queue {
	uint64_t messages, bytes, most_bytes;
	pid_t last_sender, last_receiver; /* ids of ours; 0: nobody, or not of our namespace */
};

/* 0, -EINVAL (no such semaphore), -EACCES, -EPERM or as in_namespace(). */
int sysv_sem_read(pid_t pid, int id, unsigned number, struct sysv_sem *ret, struct err *err);
int sysv_queue_read(pid_t pid, int id, struct sysv_queue *ret, struct err *err);

#endif
