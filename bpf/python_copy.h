/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs that copy Python's frames and sample/python/copier.c share.
 *
 * A thread's frames are a chain in its own memory. The program follows it at the moment of the sample and
 * stores of each frame the words that matter, as they are; what they mean is found out in user space
 * (python/python.h). Where things are in the memory of a process is told in the map `processes`; where
 * the thread's state is, in `threads`, or in a word at a fixed distance from its thread pointer.
 */
#ifndef SONDE_BPF_PYTHON_COPY_H
#define SONDE_BPF_PYTHON_COPY_H

#include <stdint.h>

#define PYTHON_COPY_PROCESSES 1024u
#define PYTHON_COPY_THREADS 8192u
#define PYTHON_COPY_STATES 4u       /* of one thread, in as many interpreters */
#define PYTHON_COPY_LINKS 192u      /* frames of a chain */
#define PYTHON_COPY_CFRAMES 252u
#define PYTHON_COPY_FRAME_BYTES 128u /* of a frame, that hold all of its words */
#define PYTHON_COPY_STATE_BYTES 1024u /* more than a PyThreadState with cframes has: the last of these lies within it */

/* Offsets in bytes, as in struct python_chain_layout. */
struct python_copy_process {
	uint16_t entry, cframe_entry, cframe_frame, cframe_previous;
	uint16_t previous, code, position, marks;
	uint16_t bytes;
	uint8_t by_cframe, cframes;
	int32_t slot;        /* from the thread pointer to the word that is its state's address */
	uint32_t has_slot;
	int32_t gil_locked;  /* from the word that says who has the lock to the one that says whether */
	uint64_t gil;        /* of the main interpreter: where that word is; 0: there is none */
};

struct python_copy_state {
	uint64_t address; /* PyThreadState; 0: none */
	uint64_t gil;
};

struct python_copy_thread {
	uint32_t tgid, pad;
	struct python_copy_state states[PYTHON_COPY_STATES];
};

struct python_copy_link { /* struct python_link */
	uint64_t at, code, position, marks;
};

#define PYTHON_COPY_GIL 1u        /* it holds the lock of its interpreter */
#define PYTHON_COPY_CUT 2u        /* there are more frames */
#define PYTHON_COPY_UNREADABLE 4u /* there are more, which are not in memory */
#define PYTHON_COPY_BY_SLOT 8u    /* its state is that of the word by the thread pointer */

/* A chain of a thread. Links follow, and then cframes. */
struct python_copy_head {
	uint32_t tid, tgid; /* as the reader's pid namespace has them */
	uint64_t pointer;   /* the thread pointer */
	uint64_t state;
	uint32_t flags;
	uint16_t links, cframes;
};

#define PYTHON_COPY_WORDS (PYTHON_COPY_LINKS * 4u + PYTHON_COPY_CFRAMES)

/* A head and all words; a power of two, so that a size can be bounded by a mask. */
#define PYTHON_COPY_BYTES 8192u
_Static_assert(sizeof(struct python_copy_head) + PYTHON_COPY_WORDS * sizeof(uint64_t) == PYTHON_COPY_BYTES,
	"the words fill it");

/* Where one is made. */
struct python_copy {
	struct python_copy_head head;
	uint64_t words[PYTHON_COPY_WORDS];
	uint8_t frame[PYTHON_COPY_FRAME_BYTES + 8];
};

#endif
