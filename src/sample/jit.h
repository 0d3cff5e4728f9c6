/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executable memory without a file, in a session: what describes it (a jitdump, a perf map), where
 * the unwinder gets its functions from, and at the end their names.
 *
 * docs/heuristics/generated-code.md says which description is believed of which moment.
 */
#ifndef SONDE_SAMPLE_JIT_H
#define SONDE_SAMPLE_JIT_H

#include "sample/session_priv.h"
#include "symbol/symbol.h"

/* A mapping was added: if it is that of a jitdump, it describes the code of `p` from now on. */
void jit_announced(struct session *s, struct process *p, struct module *m);

/* What lies at `addr` of `p`, in the mapping `m` of memory without a file, at the time of the event
 * being handled. */
void jit_mapping(struct session *s, struct process *p, const struct space_mapping *m, uint64_t addr,
	struct unwind_mapping *ret);

/* Frames that no description covered when they were seen may be covered by what is written later:
 * notes when that was. */
void jit_seen(struct session *s, const struct process *p, uint32_t frame);

/* Where the names of one module of kind MODULE_JIT come from. */
struct jit_names;

/* NULL: none is known, and *ret_reason says why. */
struct jit_names *jit_names_open(
	struct session *s, struct module *m, enum symbol_reason *ret_reason);
struct symbol_answer jit_names_resolve(
	struct jit_names *n, uint32_t frame_id, const struct record_frame *frame);
void jit_names_free(struct jit_names *n);

#endif
