/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The collector: takes programs that say hello (heap/hello.h), tells them how to walk their stacks (heap/tables.h), reads
 * what they write (heap/reader.h), adds it up (heap/model.h), and puts it into the recording of a session.
 *
 * The caller owns the loop: it waits until heap_collector_fd() is readable or the time of the last
 * heap_collector_step() has come, and calls that again.
 *
 * Programs depend on nothing here: when we die they go on, unwatched. Not for two threads at once.
 */
#ifndef SONDE_HEAP_COLLECT_H
#define SONDE_HEAP_COLLECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "capture/writer.h"
#include "heap/hello.h"
#include "heap/model.h"
#include "heap/probes.h"
#include "heap/rate.h"
#include "sample/session.h"

struct heap_collector;

struct heap_collect_options {
	enum heap_precision precision;
	uint64_t rate;          /* bytes or calls; 0: exact */
	/* SHARE_OPTION_...; with SHARE_OPTION_TIMES and HEAP_CALLS the recording is one of CPU time: a sample for each sampled
	 * call, of the time that its thread has run since the one before; and nothing is said of memory. */
	uint64_t share_options;
	struct heap_rate_wish wish; /* HEAP_SAMPLED: the rate is changed for that, from `rate` on */
	bool probes_alone;      /* processes that probes see are not seen by the library as well */
	pid_t only_pid;         /* this process alone, not those that it starts; 0: all that say hello */
};

/* Session and writer are borrowed until heap_collector_free(). */
int heap_collector_new(struct session *s, struct capture_writer *w, const struct heap_collect_options *options,
	struct heap_collector **ret, struct err *err);
void heap_collector_free(struct heap_collector *c); /* NULL is fine */

/* The value of SHARE_ENVIRONMENT for programs to come; `size` of HELLO_VALUE_BYTES is enough. */
void heap_collector_environment(const struct heap_collector *c, char *buf, size_t size);

/* options.only_pid, when it is known late. */
void heap_collector_only(struct heap_collector *c, pid_t pid);

/* A process that was made to share its memory, which is `fd` (taken in any case). `own_pid` as it sees itself. */
int heap_collector_add(
	struct heap_collector *c, int fd, pid_t pid, pid_t own_pid, enum heap_how how, struct err *err);

/*
 * Takes `probes` over, at `allocator` (a path to show). What they tell of is counted like the rest; both may see the same
 * process, when it has two allocators. `told`: they are probes of the program's own, which samples as it likes. Once. 0, -errno.
 */
int heap_collector_probe(struct heap_collector *c, struct heap_probes *probes, const char *allocator, bool told);
/* A process for them, that runs, or (`at_exec`) a child of ours that is about to call exec. */
int heap_collector_probe_process(struct heap_collector *c, pid_t pid, bool at_exec, struct err *err);

int heap_collector_fd(const struct heap_collector *c);

/* Does what there is to do; when to come again, at the latest. */
uint64_t heap_collector_step(struct heap_collector *c, uint64_t now_ns);

/* The end: who still lives is told to write nothing more, what they wrote is read, and the last numbers are written. */
void heap_collector_finish(struct heap_collector *c);

struct heap_collect_stats {
	struct heap_totals totals;
	unsigned processes;      /* that were watched, so far */
	uint64_t refused, turned_away; /* strangers at the socket; programs whose memory could not be used */
	char why[200];           /* the first of those was turned away */
	uint64_t bytes;          /* of events that were read */
	uint64_t rings_abandoned;
	unsigned gave_up;        /* processes that took us for dead */
	uint64_t rate;           /* now */
	uint64_t time_samples, time_ns; /* with SHARE_OPTION_TIMES */
	uint64_t raw_stacks;     /* that were walked here */
	bool probed;
	struct heap_probes_stats probes;
	unsigned uncovered;      /* processes of which not everything is seen */
	unsigned pythons;        /* processes whose stacks have their Python frames */
	char no_python[200];     /* why another one that runs CPython has none; "" */
};
void heap_collector_stats(const struct heap_collector *c, struct heap_collect_stats *ret);

const struct heap_model *heap_collector_model(const struct heap_collector *c);

#endif
