/* SPDX-License-Identifier: BSD-2-Clause */
/* One module, and the place its names come from: what naming at the end and naming as we go share. */
#ifndef SONDE_SAMPLE_NAMING_PRIV_H
#define SONDE_SAMPLE_NAMING_PRIV_H

#include "sample/jit.h"
#include "sample/session_priv.h"

struct naming {
	struct session *session;
	struct module *module;        /* NULL: not mapped */
	struct symbol_source *source; /* NULL: none, or... */
	struct jit_names *jit;        /* ... this; else */
	enum symbol_reason reason;    /* says why there is none */
};

/* `session` and `module` are set. */
void naming_open(struct naming *n, const struct naming_options *options);
void naming_close(struct naming *n);
struct symbol_answer naming_resolve(
	const struct naming *n, uint32_t id, const struct record_frame *frame);

/* Where the function of a frame starts, in the module; 0: not known. */
uint64_t naming_function_start(const struct naming *n, const struct record_frame *frame);

/* NULL: none has this id. */
struct module *naming_module(const struct session *s, uint32_t id);

#endif
