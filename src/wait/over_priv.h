/* SPDX-License-Identifier: BSD-2-Clause */
/* Between over_time.c (looks) and over_sums.c (what they add up to). */
#ifndef SONDE_WAIT_OVER_PRIV_H
#define SONDE_WAIT_OVER_PRIV_H

#include "wait/over_time.h"

/* By its id; NULL. */
struct over_thread *over_find(const struct over_time *o, pid_t tid);

/* The counters of a thread at this look, and its state. -ENOMEM. */
int over_count(struct over_time *o, struct wait_node *n, uint64_t now_ns, struct err *err);

/* What it waits for, and who is to blame. After over_count() of all threads of the look. -ENOMEM. */
int over_blame(struct over_time *o, struct wait_node *n, uint64_t now_ns, struct err *err);

/* An idle thread need not be asked again for a while. */
void over_remember(struct over_thread *th, const struct wait_node *n, uint64_t now_ns);

#endif
