/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of rss.h. */
#ifndef SONDE_HEAP_RSS_PRIV_H
#define SONDE_HEAP_RSS_PRIV_H

#include "heap/rss.h"
#include "os/pages.h"

struct rss_mapping {
	struct proc_mapping m;     /* its path is in texts */
	struct smaps_sizes sizes;
	bool grows_down;
	bool taken;                /* it is the stack of a thread */
	enum rss_kind kind;        /* of what nobody claims */
	const char *name;
	uint64_t claimed, claimed_swap;
	size_t run_first, run_count; /* in runs */
	bool asked;                /* for its pages */
	size_t run_last;           /* where the last claim was, in its runs */
};

struct rss_claim {
	uint64_t bytes, swap;
};

struct rss_work {
	struct rss *ret;
	pid_t pid, reader;        /* reader: a thread that is alive */
	VEC(struct rss_mapping) mappings;
	struct pages pages;       /* fd -1: refused */
	struct page_runs runs;
	VEC(struct arenas_range) claimed; /* what is somebody's, sorted when `sorted` */
	bool sorted;
	size_t last;              /* mapping that was found last */
	bool failed;              /* out of memory */
};

/* The mapping that holds the address; NULL. */
struct rss_mapping *rss_mapping_at(struct rss_work *w, uint64_t address);

/* How much of [start, end) is there; each byte may be claimed once, since `claim` takes it from its mapping. */
struct rss_claim rss_resident(struct rss_work *w, uint64_t start, uint64_t end);
struct rss_claim rss_claim(struct rss_work *w, uint64_t start, uint64_t end, enum rss_kind kind, const char *name);

/* A copy of the text that lives as long as the account; never NULL. */
const char *rss_keep(struct rss_work *w, const char *text);

/* The same without a row; the caller adds it. */
struct rss_claim rss_take(struct rss_work *w, uint64_t start, uint64_t end);

/* [start, end) is somebody's; and where what holds `address` ends, 0: it is nobody's yet. */
void rss_note_claimed(struct rss_work *w, uint64_t start, uint64_t end);
uint64_t rss_claimed_until(struct rss_work *w, uint64_t address);

void rss_add(struct rss_work *w, enum rss_kind kind, const char *name, const struct rss_row *numbers);

/* Memory of the process: how many bytes from `address` on. Pages that are in no memory are zeros, and none that is
 * swapped out is read: it ends there. */
size_t rss_read(struct rss_work *w, uint64_t address, void *buf, size_t len);

/* What is known of the pages there is of the past. */
void rss_ask_again(struct rss_work *w, uint64_t start, uint64_t end);

/* The first page from `address` on that is in memory; UINT64_MAX: none. */
uint64_t rss_next_resident(struct rss_work *w, uint64_t address);

void rss_walk_heaps(struct rss_work *w);
/* Memory of Python's pools, and whose the rest is. */
void rss_find_owners(struct rss_work *w);
void rss_classify(struct rss_work *w);
void rss_find_stacks(struct rss_work *w);

#endif
