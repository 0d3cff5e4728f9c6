/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What those have to know who copy chains of Python frames at the moment of a sample, and what they copied: BPF
 * programs (bpf/python_chain.h), and the tracer of the ptrace sampler (stopped.h).
 *
 * A copier fills the maps of one program: which processes run CPython, how their memory is laid out, and where
 * the states of their threads are, as the session finds out. It stops nobody and calls no BPF itself but to
 * fill maps. Not for two threads at once.
 */
#ifndef SONDE_SAMPLE_PYTHON_COPIER_H
#define SONDE_SAMPLE_PYTHON_COPIER_H

#include "bpf/python_copy.h"
#include "sample/session.h"

/* Where what is to be known is put: a program's maps by their descriptors, and its count of processes, which are
 * borrowed; or what stands for them. 0 or -errno. */
struct python_copier_maps {
	void *ctx;
	int processes, threads;
	uint32_t *process_count;
	int (*update)(void *ctx, int map, const void *key, const void *value);
	int (*remove)(void *ctx, int map, const void *key);
};

struct python_copier;

int python_copier_new(const struct python_copier_maps *maps, struct python_copier **ret, struct err *err);
void python_copier_free(struct python_copier *c);

/* From now on it is told by the session, which must not be told of anything any more once the copier was freed.
 * -ENOMEM. */
int python_copier_follow(struct python_copier *c, struct session *session);

/* A chain, as a program tells it. */
struct python_copied {
	pid_t pid, tid;
	uint64_t pointer; /* the thread pointer */
	bool by_slot;
	struct raw_chain raw; /* its chain borrows the room that was given */
};

#define PYTHON_COPIED_ROOM sizeof(((struct python_copy *)0)->words)

/* Takes a record apart; `room` has PYTHON_COPIED_ROOM bytes, 8-byte aligned. False: it makes no sense. */
bool python_copied_read(const void *record, size_t bytes, void *room, struct python_copied *ret);

/* A chain of a thread came: its thread pointer is known now. */
void python_copier_learn(struct python_copier *c, const struct python_copied *copied);

/*
 * What a stack whose thread had no chain copied with it means: PYTHON_NOT_NOW where that says that it has none;
 * PYTHON_LIVE where the program does not know enough of its process yet.
 */
enum python_when python_copier_without(const struct python_copier *c, pid_t pid);

#endif
