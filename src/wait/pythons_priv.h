/* SPDX-License-Identifier: BSD-2-Clause */
/* What pythons.c (threads, frames) and python_names.c share. */
#ifndef SONDE_WAIT_PYTHONS_PRIV_H
#define SONDE_WAIT_PYTHONS_PRIV_H

#include "base/buf.h"
#include "base/table.h"
#include "wait/pythons.h"

struct look_thread_state {
	pid_t tid;
	struct python_thread thread;
	bool read;
	struct python_frames frames;
};

struct object_name {
	uint64_t object;
	const char *name; /* of `texts` */
};

struct python_look {
	struct table_node by_pid;
	struct snapshot_process *process;
	struct python *python;
	VEC(struct look_thread_state) threads;
	VEC(struct look_gil) gils;
	VEC(struct look_inside) insides;
	bool insides_read;
	unsigned asked;            /* look_takes_time() */
	struct python_link *links; /* room for a chain */
	VEC(char *) texts;         /* what others point to */
	VEC(struct object_name) names; /* that were found: all who want one thing call it the same */
};

/* Takes the text's memory; "" where there is none. */
const char *look_keep(struct python_look *look, struct buf *text);

#endif
