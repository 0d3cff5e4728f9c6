/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Python frames of a session's stacks, among the native ones, and their names.
 *
 * A sampler that copied the chain of frames together with the registers hands it over; of a thread that
 * stands still it is read here. Nothing is stopped.
 */
#ifndef SONDE_SAMPLE_PYTHON_STACKS_H
#define SONDE_SAMPLE_PYTHON_STACKS_H

#include "python/python.h"
#include "sample/session.h"
#include "symbol/symbol.h"

struct record_frame;
struct thread;

struct python_stacks; /* of a session */
int python_stacks_new(struct python_stacks **ret, struct err *err);
void python_stacks_free(struct python_stacks *p);

/* Finds the Python frames of the stack that was just walked into s->frames[0 .. count): as the sampler copied
 * them, or as they stand where the thread stands still. Else there are none. */
void python_stacks_find(struct session *s, const struct thread *th, const struct raw_stack *raw, size_t count,
	enum unwind_end end);

/* The frames that were found last, to be written down by the caller. */
size_t python_stacks_last(const struct python_stacks *p, struct placed_frame **ret);

/* Bits of struct record_sample.python of that stack. */
uint8_t python_stacks_marks(const struct python_stacks *p);

/* Writes down a Python frame; its id in the recording. */
uint32_t python_stacks_push(struct session *s, const struct thread *th, const struct python_frame *frame);

/* Writes down a Python frame that somebody else has read, by what `code` says: its name, its file and its first line. */
uint32_t python_stacks_told(struct session *s, const struct python_code *code, struct python_position position);

/* What native frame `index` of the last stack is to Python: enum frame_role. */
uint8_t python_stacks_role(const struct session *s, const struct thread *th, size_t index);

/* Whether the name of the frame stands in the recording already. */
bool python_stacks_has_name(const struct python_stacks *p, uint32_t frame);

/* The name of a frame of kind FRAME_PYTHON, and the path of its file; valid until the next call. */
struct symbol_answer python_stacks_name(
	struct python_stacks *p, const struct record_frame *frame, const char **ret_file);

#endif
