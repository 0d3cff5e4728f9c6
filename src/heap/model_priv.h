/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files of the model:
 *
 *	model.c   events: what is allocated, freed, moved
 *	sites.c   sites, threads, flows: found by their keys, and bounded
 *	shapes.c  how sizes, lifetimes and ages are distributed
 *	moments.c what is written to a recording
 *	live.c    the blocks that are live; live_wide.c those of them that need all their fields
 *	maps.c    what is mapped
 *	classes.c how large the blocks are that an allocator makes
 */
#ifndef SONDE_HEAP_MODEL_PRIV_H
#define SONDE_HEAP_MODEL_PRIV_H

#include <string.h>

#include "base/vec.h"
#include "capture/id_table.h"
#include "heap/live.h"
#include "heap/model.h"
#include "heap/ranges.h"

#define NO_SITE UINT32_MAX

/* Counts of buckets that lie between the first and the last one that has any. Most sites have few, and whole numbers. */
#define SHAPE_INSIDE 7u
struct shape {
	uint8_t first, buckets;
	bool outside; /* the counts are doubles: shape_outside() */
	uint8_t pad;
	uint32_t inside[SHAPE_INSIDE];
};

/*
 * In cache lines: what is allocated, or freed, changes the first two; the third what is freed at once, or by a new peak. What most sites
 * have nothing of is elsewhere.
 */
struct site {
	double allocated, allocated_bytes, freed, freed_bytes, lifetime_ns; /* HEAP_ALLOCATED... */
	uint64_t epoch : 48;         /* the model's, when it changed last */
	uint64_t changed : 1, reshaped : 1; /* since it was written */
	uint64_t ended : 1;          /* its process, or its frees are not seen: nothing of it is live at a later peak */
	uint64_t aged : 1;           /* shapes of what is live were written */
	uint64_t mapped : 1;         /* of mappings: in no sum */
	uint32_t samples, process, stack, tid;

	struct shape sizes, lifetimes;

	double temporary, temporary_bytes;
	double peak, peak_bytes;     /* at the peak of `epoch` */
	double written_peak, written_peak_bytes;
	uint32_t pid;
	uint32_t next;               /* site of the same process; NO_SITE: none */
	uint32_t at;                 /* among the sites of its process: shapes_of_live() */
	uint32_t rare;               /* of the model's; 0: all of that is 0 */
};
_Static_assert(sizeof(struct site) == 192, "whole cache lines");

struct rare {
	double cross_freed, cross_freed_bytes, reallocated, reallocated_bytes, moved;
	double variance[HEAP_VARIANCES];
	uint64_t live_blocks;        /* sampled ones: with none the sums are made exact again */
};

struct thread {
	uint32_t process, pid, tid;
	bool changed, ended;
	uint64_t last_address;          /* of the block that it allocated last; 0: none, or it is freed */
	double allocated, allocated_bytes, freed, freed_bytes, freed_unknown;
	uint64_t moving;                /* address of a block that realloc has; 0: none */
	struct live_block moved;        /* that block, when it is known: its address is not 0 */
	struct ranges unmapped;         /* that it has unmapped last, with the numbers of their mappings */
	uint64_t unmapped_ns;
	uint32_t last_mapping;          /* + 1: that it has made last; 0: none, or some of it is gone */
	uint32_t unmapped_was_last;     /* the same, before it has unmapped that */
	uint8_t unmapped_kind;          /* enum share_map */
};

/* What was mapped at once. */
struct mapping {
	uint64_t time_ns, bytes, left; /* left: of `bytes`, that are mapped still */
	uint32_t site, tid;
	uint32_t next; /* + 1: unused one behind this, which is unused */
	uint8_t kind;  /* enum share_map */
};

struct maps {
	struct ranges ranges; /* numbers: of their mappings */
	VEC(struct mapping) mappings;
	uint32_t unused;      /* + 1: the first one */
};

struct flow {
	uint32_t site, pid, tid, stack;
	double count, bytes;
	bool changed;
};

/* What malloc makes of a size. */
struct told_size {
	uint64_t size, usable; /* usable 0: not told */
	struct {
		double count, bytes, variance;
	} live; /* blocks of this size */
};

struct told_sizes {
	VEC(struct told_size) list;
	struct id_table index; /* by size */
};

/* Blocks of about one size, of all processes. Those of one size alone up to CLASS_EXACT bytes, then so many classes for each doubling;
 * in class 0 are those whose size is not known. */
#define CLASS_EXACT_BITS 10u
#define CLASS_EXACT (1u << CLASS_EXACT_BITS)
#define CLASS_PART_BITS 3u
#define CLASSES (CLASS_EXACT / 8 + 1 + ((LIVE_SIZE_BITS - CLASS_EXACT_BITS) << CLASS_PART_BITS))

struct size_class {
	double live, live_bytes, live_usable;
	double ended, ended_bytes, ended_usable; /* of these, of processes that have ended: no part of a later peak */
	double peak, peak_bytes, peak_usable;    /* at the peak of `epoch` */
	double variance_wasted, written_peak;
	uint64_t epoch;
	bool changed;
};

struct watched {
	uint32_t number, pid;
	uint8_t precision;
	uint8_t sizes;        /* enum share_sizes */
	bool apart;           /* heap_model_apart() */
	struct live live;
	uint32_t first_site;  /* list of its sites */
	uint32_t merged_site; /* of all that found no place; NO_SITE: none so far */
	struct thread *others; /* those that were too many */
	struct told_sizes *told; /* SHARE_SIZES_TOLD */
	struct maps *maps;     /* NULL: it has mapped nothing that is of interest */
};

/* How blocks were chosen; stored with each. Number 0 is: all. */
struct rate {
	double rate;
	uint8_t precision;
};
#define RATES_MOST (1u << (64 - LIVE_SIZE_BITS))

/* What one block stands for. */
struct weight {
	double count, bytes, variance, variance_bytes;
};

struct sums {
	double count, bytes, variance, variance_bytes;
};

#define AHEAD 16u
#define LAST_THREADS 16u
#define HINTS 8192u

struct heap_model {
	uint64_t seed;
	struct watched *processes[HEAP_PROCESSES]; /* by slot */

	struct site *sites; /* address space for HEAP_MOST_SITES * 3; pages are there once they are used */
	uint32_t site_count;
	struct rare *rares; /* as many, and as `sites`; the first one stays 0 */
	uint32_t rare_count;
	struct id_table site_index;
	uint32_t merged_site; /* of all processes; NO_SITE: none so far */
	VEC(struct thread *) threads;
	struct id_table thread_index;
	struct thread *last_threads[LAST_THREADS]; /* that were asked for, by tid */
	uint32_t threads_ended;
	VEC(struct flow) flows;
	struct id_table flow_index;
	VEC(struct rate) rates;
	uint32_t last_rate;

	/* What is about to be taken: see heap_model_prefetch(). */
	const struct heap_event *ahead[AHEAD];
	uint32_t ahead_from, ahead_to;
	uint32_t *hints; /* by process, thread and node: the site of the last event with that hash */

	struct size_class *classes; /* CLASSES */
	struct sums living;    /* blocks of processes that run */
	struct sums ended;     /* what others had at their end */
	struct sums allocated;
	double temporary, freed_unknown;
	double peak_bytes, peak_variance;
	uint64_t peak_ns, epoch; /* + 1 with each new peak */
	uint64_t samples, live_blocks, missed_frees;
	uint32_t moments, sites_merged;
	uint32_t told;         /* sites whose RECORD_HEAP_SITE is written: those below */
	bool no_memory;
};

static inline struct watched *watched_of(const struct heap_model *m, uint32_t number)
{
	struct watched *p = HEAP_SLOT(number) < HEAP_PROCESSES ? m->processes[HEAP_SLOT(number)] : NULL;

	return p && p->number == number ? p : NULL;
}

/* What is live of the blocks of a site. */
static inline double site_live(const struct site *s)
{
	return s->allocated - s->freed;
}

static inline double site_live_bytes(const struct site *s)
{
	return s->allocated_bytes - s->freed_bytes;
}

static inline struct rare *rare_of(struct heap_model *m, struct site *s)
{
	if (!s->rare)
		s->rare = ++m->rare_count;
	return &m->rares[s->rare];
}

/* Before anything of a site changes: notes what it had at the last peak. */
static inline void site_note_peak(const struct heap_model *m, struct site *s)
{
	if (s->epoch == m->epoch)
		return;
	s->epoch = m->epoch;
	s->peak = s->ended ? 0 : site_live(s);
	s->peak_bytes = s->ended ? 0 : site_live_bytes(s);
	if (s->rare)
		m->rares[s->rare].variance[HEAP_VAR_PEAK_BYTES] =
			s->ended ? 0 : m->rares[s->rare].variance[HEAP_VAR_LIVE_BYTES];
}

/* model.c */

/* What is left as it was when something happens in a process that is apart. */
struct kept_sums {
	struct sums living, ended, allocated;
	double temporary, freed_unknown, peak_bytes, peak_variance;
	uint64_t peak_ns, epoch, samples, live_blocks, missed_frees;
};
void sums_keep(const struct heap_model *m, struct kept_sums *ret);
void sums_put_back(struct heap_model *m, const struct kept_sums *kept);

/* One that was chosen by a rate. */
struct weight weigh_sampled(const struct rate *r, uint64_t size);

static inline struct weight weigh(const struct heap_model *m, uint32_t rate, uint64_t size)
{
	if (rate)
		return weigh_sampled(&m->rates.data[rate], size);
	return (struct weight){.count = 1, .bytes = (double)size};
}

static inline struct weight block_weight(const struct heap_model *m, const struct live_block *b)
{
	return weigh(m, b->rate, b->size);
}

/* sites.c */

/* The site of a stack, made when it is new. NULL: no memory. */
struct site *site_of(struct heap_model *m, struct watched *p, uint32_t tid, uint32_t stack);
/* The same of a thread. */
struct thread *thread_of(struct heap_model *m, struct watched *p, uint32_t tid);
void flow_add(struct heap_model *m, const struct thread *t, uint32_t site, uint32_t stack, const struct weight *w);
/* Threads of processes that have ended are forgotten. */
void threads_sweep(struct heap_model *m);

/* shapes.c */

static inline uint32_t shape_bucket(uint64_t value)
{
	uint32_t bucket = value ? 64 - (uint32_t)__builtin_clzll(value) : 0;

	return bucket < HEAP_BUCKETS ? bucket : HEAP_BUCKETS - 1;
}

/* What shape_add() does where that is not simply adding one. False: no memory. */
bool shape_add_slowly(struct shape *s, uint32_t bucket, double count);

static inline double *shape_outside(const struct shape *s)
{
	double *counts;

	memcpy(&counts, s->inside, sizeof(counts));
	return counts;
}

static inline bool shape_add(struct shape *s, uint32_t bucket, double count)
{
	uint32_t i = bucket - s->first;

	if (i < s->buckets && s->outside) {
		shape_outside(s)[i] += count;
		return true;
	}
	if (i >= s->buckets || count != 1 || s->inside[i] == UINT32_MAX)
		return shape_add_slowly(s, bucket, count);
	s->inside[i]++;
	return true;
}

static inline void shape_release(struct shape *s)
{
	if (s->outside)
		free(shape_outside(s));
}

void shape_write(struct capture_writer *w, uint64_t time_ns, uint32_t site, enum heap_shape kind, const struct shape *s);
/* What is live of a process, by size and age. */
void shapes_of_live(struct heap_model *m, const struct watched *p, struct capture_writer *w, uint64_t time_ns);

/* classes.c */

/* Bytes of a block of so many; 0: not known. */
uint64_t usable_of(const struct watched *p, uint64_t size, uint64_t address);
uint32_t class_of(uint64_t usable);
uint64_t class_most(uint32_t class); /* bytes of the largest block in it */
/* `sign`: 1, a block is there; -1: it is no more. Of processes whose sizes are known. */
void class_count(struct heap_model *m, const struct watched *p, uint64_t size, uint64_t address, const struct weight *w, double sign);
void classes_ended(struct heap_model *m, const struct watched *p);
void classes_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns);
void told_sizes_free(struct told_sizes *sizes); /* NULL is fine */

/* maps.c */

void maps_free(struct maps *maps); /* NULL is fine */

static inline void thread_free(struct thread *t)
{
	vec_release(&t->unmapped);
	free(t);
}

/* moments.c */

void threads_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns, const struct watched *only);
void site_state(const struct heap_model *m, uint32_t id, struct record_heap_state *ret);

#endif
