/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recording allocations, in the order in which things happen:
 *
 *	record.c   what was asked for; the whole story
 *	probes.c   what can be seen of the program, and how
 *	launch.c   starts it with our library
 *	attach.c   or puts that into one that runs, and takes it back
 *	run.c      the loop, until something ends it; the end of the file
 *	tell.c     what was seen
 */
#ifndef SONDE_CMD_HEAP_RECORD_PRIV_H
#define SONDE_CMD_HEAP_RECORD_PRIV_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/term.h"
#include "capture/writer.h"
#include "cmd/heap/record.h"
#include "heap/attach.h"
#include "heap/collect.h"
#include "heap/cover.h"
#include "heap/entries.h"
#include "heap/library.h"
#include "heap/probes.h"
#include "heap/told.h"
#include "os/child.h"
#include "sample/session.h"

#define NAME "heap"

struct heap_record_args {
	bool exact, time, no_children, daemons, quiet, debuginfod, free_stacks, maps;
	bool sample_auto, own_sampling; /* own_sampling: how much to sample was asked for */
	struct heap_rate_wish wish;
	uint64_t sample_bytes, every_calls, duration_ns;
	const char *output, *pid, *allocator;
};

struct heap_recording {
	const struct heap_record_args *args;
	char **command;
	pid_t pid; /* of a program that ran before; 0: we start one */
	bool attached; /* its calls are led to us */
	struct heap_attached attach;
	struct heap_cover cover;
	struct heap_entries *entries; /* where to put probes */
	struct heap_told *told;       /* or which of its own are used; NULL: none */
	char probed_path[PATH_MAX + 32], probed_shown[PATH_MAX]; /* in which file, as we reach it and as it is called */
	bool probes_wanted, probes_in_library;
	bool probes_alone; /* our library would see nothing, or the same once more */
	struct thread_selection selection;
	struct child child;
	struct child_inherits inherits;
	bool waits_for_daemons; /* the command has ended, and what it has left behind is waited for */
	int signal_fd, pid_fd; /* pid_fd: readable when the command has ended */
	struct capture_writer *writer;
	struct session *session;
	struct heap_collector *collector;
	struct heap_library *library;
	uint64_t start_ns, end_ns, start_cpu_ns, wakeups, file_bytes;
	struct record_cost cost;
	int forward_signal; /* sent to us alone: the command should get it too */
	enum end_reason reason;
	struct heap_collect_stats stats;    /* when all is done */
	struct session_stats session_stats;
	struct term term;
};

/* probes.c: chooses, and says what stays unseen; after that probes_wanted says whether they are to be placed. */
int heap_choose_way(struct heap_recording *r, struct err *err); /* of r->pid */
int heap_choose_way_of_command(struct heap_recording *r, const char *path, struct err *err);
int heap_plan_probes(struct heap_recording *r, const char *path, const char *shown, struct err *err);
int heap_place_probes(struct heap_recording *r, pid_t pid, bool at_exec, struct err *err);
void heap_tell_probes(const struct heap_recording *r);

/* launch.c */
int heap_check_command(struct heap_recording *r, struct err *err);
int heap_block_signals(struct heap_recording *r, struct err *err);
int heap_open(struct heap_recording *r, struct err *err);
int heap_start(struct heap_recording *r, struct err *err);

/* attach.c */
int heap_attach(struct heap_recording *r, struct err *err);
void heap_detach(struct heap_recording *r); /* notes what goes wrong; the recording is good all the same */

/* run.c */
void heap_run(struct heap_recording *r);
int heap_finish(struct heap_recording *r, struct err *err);

/* The recording is done; until the command ends we stand before it and pass on what is sent to us. Its exit status. */
int heap_leave_command(struct heap_recording *r);

/* tell.c */
void heap_tell(const struct heap_recording *r);

#endif
