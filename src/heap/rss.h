/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the resident memory of a process is: one account whose rows add up to it exactly.
 *
 * The process is not stopped and nothing is put into it. Sizes of mappings are those of /proc/PID/smaps, at
 * one look; their sum is what the account adds up to. Mappings of which parts belong to different things
 * (heaps, stacks) are divided by which of their pages are in memory. What changes between these two looks, and
 * what belongs to nobody that is known here, has rows of its own.
 *
 * Nothing is paged in or swapped in: of pages that are not in memory none is read.
 */
#ifndef SONDE_HEAP_RSS_H
#define SONDE_HEAP_RSS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/vec.h"
#include "heap/arenas.h"
#include "os/smaps.h"

enum rss_kind {
	RSS_HEAP_USED,        /* blocks that the program holds, with their headers */
	RSS_HEAP_MAPPED,      /* the same, large ones that have a mapping each */
	RSS_HEAP_CACHED,      /* freed, kept for the thread or the size (tcache, fastbins) */
	RSS_HEAP_FREE,        /* freed, between blocks in use */
	RSS_HEAP_TOP,         /* free, at the end of a heap */
	RSS_HEAP_BOOKKEEPING, /* the allocator's own */
	RSS_HEAP_UNSEEN,      /* the heap, where it could not be walked */
	RSS_ALLOCATOR,        /* memory of another allocator or a runtime; the name says of which */
	RSS_CODE,             /* generated code */
	RSS_STACK_USED,       /* of threads, from where they are now */
	RSS_STACK_DEEPER,     /* of threads: was used when they were in deeper calls */
	RSS_FILE_TEXT,        /* of files: code; the name is the file's */
	RSS_FILE_DATA,        /* what was read */
	RSS_FILE_WRITTEN,     /* private copies: relocations, variables */
	RSS_FILE_BSS,         /* variables that begin as zeros */
	RSS_SHARED,           /* shared memory */
	RSS_ANONYMOUS,        /* memory that nobody is known to own; or the name that its owner gave it */
	RSS_KERNEL,           /* pages that the kernel lends (vdso) */
	RSS_MOVED,            /* changed hands between two looks */
	RSS_KINDS
};

struct rss_row {
	enum rss_kind kind;
	const char *name;      /* "": the kind says it all */
	uint64_t bytes;        /* resident */
	uint64_t swap;         /* not in bytes */
	uint64_t size;         /* address space; 0 where that says nothing */
	uint64_t count;        /* mappings, or stacks */
};
VEC_TYPE(rss_rows, struct rss_row);

struct rss_stack {
	pid_t tid;
	char name[PROC_NAME_BYTES];
	uint64_t start, end;
	uint64_t sp;            /* 0: it was running, all that is resident counts as used */
	uint64_t used, deeper;  /* resident bytes */
	uint64_t swap;
};
VEC_TYPE(rss_stacks, struct rss_stack);

struct rss {
	pid_t pid;
	char name[PROC_NAME_BYTES];
	uint64_t bytes;           /* RSS: the sum of all rows, and of the mappings of smaps */
	uint64_t pss;
	uint64_t swap;
	uint64_t huge;            /* of bytes: in huge pages */
	uint64_t lazy_free;       /* of bytes: may be taken by the kernel at any time */
	uint64_t size;            /* address space */
	uint64_t mappings;
	uint64_t shrunk;          /* bytes that had gone when pages were asked for: taken off rows */
	struct smaps_process process;
	struct rss_rows rows;     /* by kind, then bytes */
	struct rss_stacks stacks; /* by bytes */
	bool has_arenas;          /* it uses glibc's malloc: */
	struct arenas arenas;
	uint64_t stackless;       /* threads whose stack was not found */
	char unseen[200];         /* why pages could not be asked for, "" */
	uint64_t took_ns;
	struct intern texts;      /* names are in it */
};

/* -ESRCH, -EACCES, -EINVAL (a kernel thread), -ENOMEM. */
int rss_account(pid_t pid, struct rss *ret, struct err *err);
void rss_release(struct rss *r);

/* Of all rows of that kind. */
uint64_t rss_sum(const struct rss *r, enum rss_kind kind);

#endif
