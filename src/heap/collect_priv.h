/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the collector share. */
#ifndef SONDE_HEAP_COLLECT_PRIV_H
#define SONDE_HEAP_COLLECT_PRIV_H

#include <sys/epoll.h>

#include "base/vec.h"
#include "heap/collect.h"
#include "heap/notes.h"
#include "heap/reader.h"
#include "heap/tables.h"

/* A program that is watched. */
struct watched {
	uint32_t number; /* of heap/reader.h */
	pid_t pid, own_pid;
	bool says;       /* memory in which the program says things itself, besides that of its allocations; any number */
	uint64_t inode, reread_ns; /* of what says: of the memory; when its code was looked at last */
	int pid_fd;      /* -1: it cannot be had, and its end is looked for */
	struct heap_tables *tables;
	uint32_t modules_done;
	struct heap_losses losses; /* as they were told last */
	uint32_t left;   /* enum share_left, as it was told */
	struct record_heap record; /* as it was written */
	VEC(uint32_t) stacks;  /* by node: of the recording, + 1; 0: not known yet */
	VEC(uint32_t) path;    /* nodes whose frames are to be stored, innermost first */
	VEC(pid_t) tids;       /* threads that write, as the program says; the first one is not among them */
	uint32_t last_tid, last_outside; /* of those, as we see it */
	struct watched_python *python; /* collect_python.c; NULL: there was nothing to keep so far */
};

/* A process that is seen by probes. */
struct probed {
	uint32_t number; /* of the model */
	pid_t pid;
	int pid_fd;
	uint64_t told_rate; /* of the last sample that the program has taken itself; 0: none yet */
};
#define HEAP_PROBED_MOST 256u
#define COLLECT_PROBES (UINT64_MAX - 1) /* in epoll_event.data */

struct heap_collector {
	struct session *session;
	struct capture_writer *writer;
	struct heap_collect_options options;
	struct hello *hello;
	struct heap_readers *readers;
	struct heap_model *model;
	struct heap_notes *notes;
	struct heap_rules *rules;
	int epoll_fd;
	struct watched *watched[HEAP_PROCESSES]; /* by slot */
	uint32_t slots;                          /* those beyond were never used */
	uint64_t start_ns, wait_ns, moment_ns, point_ns; /* wait: between two drains; the others: when they are due */
	uint64_t rate, rate_ns;                  /* the one that is chosen now, and when to choose again */
	uint64_t rate_samples, rate_cpu_ns;      /* when it was chosen */
	bool changed;                            /* since the last point */
	VEC(pid_t) unseen;                       /* children that took no library, and were told */
	VEC(struct heap_tables_module) modules;  /* of the process that is looked at */
	struct heap_probes *probes;              /* NULL: there are none */
	VEC(struct probed) probed;
	char probes_allocator[256];
	bool told;                               /* they are the program's own */
	uint64_t probes_ns, probes_lost;         /* of the last event; those that were told */
	uint32_t probes_begun;
	struct heap_collect_stats stats;
};

/* collect_stacks.c: the stack of an event in the recording; CAPTURE_NONE: it has none. */
uint32_t collect_stack(struct heap_collector *c, struct watched *w, const struct heap_event *e);

/* Whether callers of its outermost frame are missing. */
bool collect_is_cut(struct heap_collector *c, const struct watched *w, const struct heap_event *e);

/* A thread as we see it. */
pid_t collect_tid(struct watched *w, uint32_t tid);

/* collect_process.c: how programs begin and end. */
int collect_begin(struct heap_collector *c, int fd, pid_t pid, pid_t own_pid, enum heap_how how, struct err *err);
/* `exec`: the same process goes on as another program. */
void collect_end(struct heap_collector *c, struct watched *w, bool exec, uint64_t now_ns);
struct watched *collect_find(struct heap_collector *c, pid_t pid);

/* Reads what is mapped and publishes the tables of that, when it has changed. */
void collect_modules(struct heap_collector *c, struct watched *w, uint64_t ns);

/* The same when nothing says that it has: some code is not known. */
void collect_modules_again(struct heap_collector *c, struct watched *w, uint64_t ns);

/* Looks for threads that are gone, and what those that are there are called now. */
void collect_threads(struct heap_collector *c, struct watched *w, uint64_t now_ns);

/* Looks for children that cannot be watched, and tells of them. */
void collect_unseen(struct heap_collector *c, const struct watched *w, uint64_t now_ns);

/* What was lost since it was told last. */
void collect_losses(struct heap_collector *c, struct watched *w);

/* collect_python.c: tells the program how to find its Python frames, when it runs CPython and that was not done yet. */
void collect_python(struct heap_collector *c, struct watched *w, uint64_t now_ns);
/* Whether that is to be tried again soon. */
bool collect_python_waits(const struct watched *w, uint64_t now_ns);
void collect_python_code(struct heap_collector *c, struct watched *w, const struct heap_event *e);
void collect_python_call(struct watched *w, uint64_t pc);
/* The stack of a node that is no native frame, which is `at`. */
uint32_t collect_python_stack(struct heap_collector *c, struct watched *w, uint32_t node, const struct heap_node *at);
/* The stack of an event that could not be walked in the program, with the Python frames of its node. */
uint32_t collect_python_walked(
	struct heap_collector *c, struct watched *w, const struct heap_event *e, const struct raw_stack *raw);
void collect_python_free(struct heap_collector *c, struct watched *w);

/* collect_said.c: an event of a program that says things itself. */
void collect_said(struct heap_collector *c, struct watched *w, const struct heap_event *e);

/* collect_maps.c: SHARE_MAP, _UNMAP, _UNMAP_FAILED. */
void collect_mapped(struct heap_collector *c, struct watched *w, const struct heap_event *e);

/* Another memory of the process said hello: those that are not mapped any more were of programs before exec, or of
 * objects that are gone. */
void collect_said_over(struct heap_collector *c, const struct watched *by);

/* collect_probes.c: reads what probes have written; how many events. */
size_t collect_probes(struct heap_collector *c, size_t limit);
/* Looks for processes that are gone. */
void collect_probes_ends(struct heap_collector *c, uint64_t now_ns);
void collect_probes_losses(struct heap_collector *c);
void collect_probes_free(struct heap_collector *c);

/* collect.c: whether the recording is one of memory, not of time. */
bool collect_of_memory(const struct heap_collector *c);

/* Reads all that is there. */
void collect_drain(struct heap_collector *c);

#endif
