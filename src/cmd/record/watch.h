/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Brings the facts for --when: looks at the processes of a session now and then, through /proc and
 * their CPU clocks. No sampler is needed for it, and nothing is stopped.
 *
 * It looks as often as the conditions ask for, and less often when looking would use more than a
 * hundredth of a CPU: with very many threads the times of `blocked` get coarser, not the load higher.
 */
#ifndef SONDE_CMD_RECORD_WATCH_H
#define SONDE_CMD_RECORD_WATCH_H

#include "cmd/options.h"
#include "sample/session.h"

struct watch;

/* -EINVAL with words when a condition cannot be understood. */
int watch_new(const struct option_list *conditions, uint64_t cool_down_ns, struct watch **ret,
	struct err *err);
void watch_free(struct watch *w);

/* A process that was named: its first thread is MAIN. -ENOMEM. */
int watch_add(struct watch *w, pid_t pid, struct err *err);

/* When watch_look() has something to do next. */
uint64_t watch_next_ns(const struct watch *w);

/* Looks, when it is time. True: a condition fires, and `why` says which and what was seen. */
bool watch_look(struct watch *w, struct session *s, uint64_t now_ns, char *why, size_t size);

/* Looks once more, and gives all threads that have not run since; none when no condition is on that. */
void watch_each_idle(struct watch *w, struct session *s, uint64_t now_ns,
	void (*fn)(void *ctx, pid_t pid, pid_t tid, uint64_t since_ns), void *ctx);

#endif
