/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Adding up allocations while they happen: which blocks are live, and the numbers of every site (a stack that
 * allocates, in a thread of a process), as capture/records.h defines them.
 *
 * Events come in order of time, as heap_readers_drain() hands them over. Memory is bounded but for the blocks that are
 * live (some 21 bytes each, heap/live.h): sites beyond HEAP_MOST_SITES are told apart by stack
 * and not by thread (tid 0), beyond twice that by process alone; threads beyond HEAP_MOST_THREADS are one (tid 0), and
 * flows beyond HEAP_MOST_FLOWS have no thread and stack that freed.
 *
 * Trouble that may happen is made good: an allocation at an address that is live says that its free was missed, and
 * the old block is counted as freed by then. A free of what is not known is counted for its thread.
 *
 * docs/heuristics/heap-estimates.md says what the numbers mean. Not for two threads at once.
 */
#ifndef SONDE_HEAP_MODEL_H
#define SONDE_HEAP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "capture/records.h"
#include "capture/writer.h"
#include "heap/reader.h"

#define HEAP_MOST_SITES 200000u
#define HEAP_MOST_THREADS 65536u
#define HEAP_MOST_FLOWS 200000u

struct heap_model;

int heap_model_new(struct heap_model **ret, struct err *err);
void heap_model_free(struct heap_model *m); /* NULL is fine */

/* A process begins, by its number of heap/reader.h. Sites get `pid`. 0, -ENOMEM. Its RECORD_HEAP is the caller's. */
int heap_model_process(
	struct heap_model *m, uint32_t number, uint32_t pid, enum heap_precision precision, struct err *err);

/* What it allocates is no part of any total, and its threads are not told of: blocks of an allocator of the program's
 * own lie in others, that are counted. Right after heap_model_process(). */
void heap_model_apart(struct heap_model *m, uint32_t number);

/*
 * It has ended, by exit or exec. What was live stays counted as live in its sites, and is no part of a peak any more. With a
 * writer (NULL is fine) the shapes of what was live are written. Call it after its last events.
 */
void heap_model_process_ended(struct heap_model *m, struct capture_writer *w, uint32_t number, uint64_t time_ns);

/* Fetches what heap_model_take() will look at. For all events of a batch before the first is taken. */
void heap_model_prefetch(struct heap_model *m, const struct heap_event *e);

/*
 * Takes SHARE_ALLOC, _FREE, _FREE_STACK, _FREE_LAST, _FREE_STACK_LAST, _REALLOC, _REALLOC_DONE and _CALL; others are ignored.
 * `stack`: of the recording, for the event's node or raw stack; CAPTURE_NONE: not known. Returns the address of a
 * sampled block that is no more, for heap_readers_unfilter(); 0: none.
 */
uint64_t heap_model_take(struct heap_model *m, const struct heap_event *e, uint32_t stack);

/*
 * The same of SHARE_MAP, _UNMAP and _UNMAP_FAILED. `stack` and `kind` are of a SHARE_MAP; where its kind is SHARE_MAP_SAME, it
 * is heap_model_unmapped_kind() of the thread. Sites with such stacks have nothing else, and are in no sum.
 */
void heap_model_mapped(struct heap_model *m, const struct heap_event *e, uint32_t stack, enum share_map kind);
enum share_map heap_model_unmapped_kind(struct heap_model *m, uint32_t process, uint32_t tid);

/* How large blocks of a process are, right after heap_model_process(); and a SHARE_USABLE of it. */
void heap_model_sizes(struct heap_model *m, uint32_t number, enum share_sizes sizes);
void heap_model_usable(struct heap_model *m, const struct heap_event *e);

/* Of all processes. Of `total` type, time, rss and with_sites are not filled in. */
struct heap_totals {
	struct record_heap_total total;
	uint64_t samples;       /* blocks that the numbers are made from */
	double freed_unknown;   /* blocks that were freed and not seen allocated; exact processes */
	uint64_t missed_frees;  /* allocations at addresses that were live */
	uint64_t live_blocks;   /* in the table */
	uint32_t sites, sites_merged, threads, flows; /* sites_merged: events' sites that were put with others */
	uint64_t bytes;         /* memory of the model, about */
	bool no_memory;         /* blocks were dropped for want of it */
};
void heap_model_totals(const struct heap_model *m, struct heap_totals *ret);

/*
 * A moment: every site that has changed since the last one, then the total. The thread's numbers, shapes and flows that
 * changed are written with each 16th moment and with the `last` one. `rss_bytes`: 0 when not known.
 */
void heap_model_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint64_t rss_bytes, bool last);

/* A point between moments: the total alone. */
void heap_model_point(const struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint64_t rss_bytes);

/* All sites with their numbers now (type, times of the records are not filled in), in order of their ids. */
void heap_model_each_site(const struct heap_model *m,
	void (*fn)(void *ctx, const struct record_heap_site *site, const struct record_heap_state *state), void *ctx);

/* Half the width of the 95 % interval of an estimate with this variance. */
double heap_model_ci95(double variance);

#endif
