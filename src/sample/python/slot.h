/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where, seen from its thread pointer, each thread of a process keeps the address of its PyThreadState: in a
 * thread-local variable of the interpreter, or among the C library's thread-specific values. No version tells,
 * and no symbol: it is found by looking for the known states of known threads around their thread pointers
 * (docs/heuristics/python-slot.md).
 */
#ifndef SONDE_SAMPLE_PYTHON_SLOT_H
#define SONDE_SAMPLE_PYTHON_SLOT_H

#include "base/vec.h"
#include "python/python.h"

/* Looked at on both sides of the thread pointer. */
#define PYTHON_SLOT_BELOW 16384u
#define PYTHON_SLOT_ABOVE 4096u

struct python_slot {
	int32_t offset;
	bool empty; /* was, in some thread: it only holds the state while that has the interpreter lock */
};

/* All-zero at first. */
struct python_slots {
	VEC(struct python_slot) candidates; /* places that held the state of each thread seen so far */
	unsigned threads;
};

void python_slots_release(struct python_slots *s);

/* A thread, by its thread pointer and its state. */
void python_slots_see(struct python_slots *s, const struct python_memory *memory, uint64_t pointer,
	uint64_t state);

/* The one to be used; false: there is none. */
bool python_slots_best(const struct python_slots *s, int32_t *ret);

/* It held something else. */
void python_slots_drop(struct python_slots *s, int32_t offset);

#endif
