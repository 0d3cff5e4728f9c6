/* SPDX-License-Identifier: BSD-2-Clause */
/* What the BPF iterator writes about a thread -> struct thread_look. */
#ifndef SONDE_SAMPLE_SNAPSHOT_BPF_TASK_H
#define SONDE_SAMPLE_SNAPSHOT_BPF_TASK_H

#include "bpf/snapshot.h"
#include "sample/snapshot/look.h"

/* All but wait.where. False: the thread is gone. */
bool bpf_task_look(const struct snapshot_task *task, struct thread_look *ret);

#endif
