/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names while recording goes on, for those who cannot wait for its end.
 *
 * Each frame is looked up once, and the places that names come from stay open, so this costs the
 * memory that session_name_frames() saves. Generated code without a name is looked up again, since its
 * name may come later.
 */
#ifndef SONDE_SAMPLE_LIVE_NAMES_H
#define SONDE_SAMPLE_LIVE_NAMES_H

#include "sample/session.h"
#include "symbol/symbol.h"

struct live_names;

/* The session is borrowed. NULL: out of memory. */
struct live_names *live_names_new(struct session *s, const struct naming_options *options);
void live_names_free(struct live_names *l);

struct live_name {
	struct symbol_answer answer; /* valid until the next call */
	const char *module;          /* base name of its file, "[jit]", ...; NULL: not mapped */
	bool generated;              /* code without a file */
	bool python;                 /* a Python frame */
	bool library;                /* of Python's standard library: python_library() */
	uint8_t role;                /* enum frame_role: what it is to Python frames of the same stack */
	bool interpreter;            /* and it tells nothing beside these (symbol/interpreter.h) */
	uint64_t start;              /* without a name: where its function starts, else its address */
};

/* The object file that a frame is in, borrowed from the session; NULL: none. */
struct elf_file *live_name_file(struct live_names *l, uint32_t frame);

/* A frame by its id in the recording. */
struct live_name live_name_of(struct live_names *l, uint32_t frame);

#endif
