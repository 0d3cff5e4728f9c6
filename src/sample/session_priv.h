/* SPDX-License-Identifier: BSD-2-Clause */
/* What session.c and naming.c share. */
#ifndef SONDE_SAMPLE_SESSION_PRIV_H
#define SONDE_SAMPLE_SESSION_PRIV_H

#include "base/vec.h"
#include "sample/processes.h"
#include "sample/session.h"
#include "sample/tail.h"

/* A JIT's map file, kept open from the first sample in its code: at the end of the recording the
 * process, and with it the way to its /tmp, may be gone. */
struct perf_map_fd {
	pid_t pid;
	int fd; /* -errno when it could not be opened */
};

struct session {
	struct capture_writer *writer;
	const struct thread_selection *selection;
	struct module_store *modules;
	struct process_table *processes;
	struct unwinder *unwinder;
	struct tail tail;
	struct unwind_frame *frames; /* room for FRAME_LIMIT */
	size_t walked;               /* of them in the last stack */
	uint64_t now_ns;             /* time of the event being handled */
	uint64_t sampled_pc;         /* of the sample being walked */
	uint64_t pending_losses[LOSS_KIND_COUNT];
	struct session_stats stats;
	VEC(struct perf_map_fd) perf_maps;
	size_t sweep_above; /* known threads and processes above which the dead are looked for */
};

/* A sample met code of this JIT module: opens the map file when that is new. */
void perf_map_note(struct session *s, struct module *jit);
void perf_maps_release(struct session *s);

#endif
