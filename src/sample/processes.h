/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processes and threads being sampled, and what each process has mapped where.
 *
 * Kept up to date by the kernel's records (mmap, fork, exec, exit) in time order, on top of a
 * snapshot of /proc/PID/maps for processes that were running before. There is no record of munmap:
 * a new mapping replaces what it overlaps.
 */
#ifndef SONDE_SAMPLE_PROCESSES_H
#define SONDE_SAMPLE_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "os/proc.h"
#include "sample/modules.h"

struct space_mapping {
	uint64_t start, end, bias;
	struct module *module;
	bool meaningless; /* lies in no segment of its file: no address here can be looked up */
	uint32_t told_in; /* as in struct process */
	/* text_copy.h: of what this may be a copy, NULL: of nothing; looked at so many times more */
	uint8_t copy_tries;
	struct module *copied_from;
	uint64_t copied_bias;
};

struct process {
	pid_t pid;
	uint64_t snapshot_ns;   /* when /proc/PID/maps was read; older mmap records are in it already */
	uint64_t refresh_ns;    /* when it was last read again because an address was not found */
	uint64_t stack_end;     /* top of the first stack, 0 not known */
	unsigned threads;       /* known ones */
	uint32_t told_in;       /* segment of the recording (capture_segment()) that has it written down */
	pid_t ppid;             /* these two only for the next segment; a file has only one */
	char *command;
	bool in_exec;           /* has called exec, and was not yet seen in its new program */
	bool maps_refused;      /* not ours to read */
	bool gone;              /* the last sweep did not find it any more */
	struct python_of_process *python; /* sample/python/known.h; NULL: not looked for yet */
	struct module *jitdump; /* that describes its generated code; NULL: none */
	bool told_code;         /* it names code itself; or whom it was forked from does */
	uint64_t jitdump_until_ns; /* up to this time; later records are those of its parent */
	VEC(struct space_mapping) mappings; /* executable ones, ascending, not overlapping */
	struct process *next;   /* hash chain */
};

struct thread {
	pid_t tid;
	struct process *process;
	char name[PROC_NAME_BYTES];
	bool selected;        /* by -t, --main, --tid */
	bool gone;            /* as in its process */
	bool name_pending;    /* its name was not written down yet */
	unsigned names;       /* that were, since it began */
	uint32_t told_in;     /* as in its process */
	uint64_t credit_ns;   /* sampled time that no sample stands for yet */
	struct thread *next;  /* hash chain */
};

struct process_table;

/* Called for each mapping that is added, to write it down. */
typedef void (*mapping_added)(void *ctx, struct process *p, struct space_mapping *m);

int process_table_new(struct module_store *modules, mapping_added added, void *ctx,
	struct process_table **ret, struct err *err);
void process_table_free(struct process_table *t);

/* The process, NULL when not known. */
struct process *process_find(struct process_table *t, pid_t pid);

/* The process, added (empty) when not known. NULL: out of memory. */
struct process *process_get(struct process_table *t, pid_t pid);

/* Reads the mappings from the source of the module store; what was there before is forgotten, unless nothing can be read any more. */
int process_snapshot(struct process_table *t, struct process *p, uint64_t now_ns, struct err *err);

/* The child starts, at that time, with a copy of its parent's mappings; with none when those are so many
 * that a storm of forks would cost more memory than the kernel's own copies. NULL: out of memory. */
struct process *process_fork(
	struct process_table *t, struct process *parent, pid_t child, uint64_t time_ns);

/* exec by `survivor`: nothing of the old address space and no other thread is left. */
void process_exec(struct process_table *t, struct process *p, pid_t survivor);

/* An executable mapping appeared. 0; -ENOMEM, also when there are PROCESS_MAX_MAPPINGS. Since munmap
 * is not told, a process that maps and unmaps for ever gets there; take a snapshot then. */
#define PROCESS_MAX_MAPPINGS ((size_t)128 << 10)
int process_map(struct process_table *t, struct process *p, const struct proc_mapping *m);

/* The mapping that holds `addr`, NULL when there is none. */
struct space_mapping *process_mapping(const struct process *p, uint64_t addr);

/* The same, after it was seen whether the mapping is a copy of a file's text (text_copy.h). */
struct space_mapping *process_code(struct process_table *t, struct process *p, uint64_t addr);

/* Threads by id; `thread_get` adds one to the process when not known (NULL: out of memory). */
struct thread *thread_find(struct process_table *t, pid_t tid);
struct thread *thread_get(struct process_table *t, struct process *p, pid_t tid);

/* Forgets the thread, and its process with the last one known. */
void thread_exit(struct process_table *t, pid_t pid, pid_t tid);

/*
 * Records get lost, and threads whose exit is not told would be kept for ever. Forgets those that
 * the system does not have any more, unless that is news since the last sweep: records of their
 * last moments may still be on their way. True when any were found dead. One system call each.
 */
bool process_table_sweep(struct process_table *t);

/* The known ones, in no order. `fn` must not add or remove any. */
void process_table_each_process(
	struct process_table *t, void (*fn)(void *ctx, struct process *p), void *ctx);
void process_table_each_thread(
	struct process_table *t, void (*fn)(void *ctx, struct thread *th), void *ctx);

/* Known processes and threads. */
size_t process_table_count(const struct process_table *t);

#endif
