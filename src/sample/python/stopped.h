/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains of Python frames of a thread that stands still, as words: what the BPF program copies (bpf/python_copy.h),
 * by reading the process's memory. For a thread of ours other than the session's, in as few system calls as may be:
 * somebody waits stopped meanwhile.
 */
#ifndef SONDE_SAMPLE_PYTHON_STOPPED_H
#define SONDE_SAMPLE_PYTHON_STOPPED_H

#include "sample/python/copier.h"

struct python_stopped;

int python_stopped_new(struct python_stopped **ret, struct err *err);
void python_stopped_free(struct python_stopped *p);

/* Who tells it what to copy, in the session's thread. */
struct python_copier *python_stopped_copier(struct python_stopped *p);

#define PYTHON_STOPPED_CHAINS (PYTHON_COPY_STATES + 1u)
#define PYTHON_STOPPED_ROOM                                                                        \
	(PYTHON_STOPPED_CHAINS * (sizeof(struct python_copy_head) + PYTHON_COPY_WORDS * sizeof(uint64_t)))

/* Writes the thread's chains to `to`, 8-byte aligned, with PYTHON_STOPPED_ROOM bytes of room: one after the other, as
 * python_copied_read() takes them. How many bytes; 0: it has none, or nothing is known of its process. `pointer`
 * is its thread pointer, 0: not known. Only one thread of ours may call this. */
size_t python_stopped_copy(struct python_stopped *p, pid_t pid, pid_t tid, uint64_t pointer, void *to);

/* Takes them apart; as many as there are, at most `limit`. `room` has PYTHON_STOPPED_ROOM bytes. */
size_t python_stopped_read(const void *chains, size_t bytes, void *room, struct raw_chain *ret, size_t limit);

#endif
