/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rolling window: a capture_writer that keeps what was recorded last in memory, and gives it out as
 * a recording when asked.
 *
 *	      segment 7          segment 8          segment 9
 *	|  header, blocks   |  header, blocks   |  blocks, block |  <- records
 *	   closed, compressed, in memory           open
 *	        ^ from_ns: what is older is left out when the window is written
 *
 * The window is cut into segments, each of them bytes of a recording that stands alone: strings,
 * frames and stack nodes begin anew in each, so that a segment can be dropped as a whole and memory
 * is bounded whatever the target does. Modules keep their ids over segments; each segment defines
 * those that it names. What is said once and holds on (names of threads, processes) is to be said
 * again when capture_segment() changes. META stand apart; the last of a key counts.
 *
 * A segment ends when it covers an eighth of the window or when its tables are full. The oldest
 * segment is dropped when all of it is older than the window, and earlier when all segments together
 * exceed the limit: `limited` tells.
 *
 * Beginning a new segment invalidates stack ids: whoever keeps one over time hands it to
 * capture_window_carry() in the callback of capture_window_rotate().
 */
#ifndef SONDE_CAPTURE_WINDOW_H
#define SONDE_CAPTURE_WINDOW_H

#include "capture/writer.h"

struct capture_window_options {
	uint64_t length_ns;
	size_t limit_bytes; /* of compressed segments; the tables of the open one come on top */
	size_t table_bytes; /* a segment whose tables exceed this is closed; 0: a good size */
};

/* A writer for capture_* calls. capture_writer_abandon() frees it. */
int capture_window_new(const struct capture_window_options *options, uint64_t now_ns,
	struct capture_writer **ret, struct err *err);

/* Whether capture_window_rotate() is due. False for writers of files. */
bool capture_window_due(const struct capture_writer *w, uint64_t now_ns);

/* Begins a segment, and drops what is too old or too much. `each_kept` is called once, to carry over
 * the stack ids that are still needed. */
void capture_window_rotate(struct capture_writer *w, uint64_t now_ns,
	void (*each_kept)(void *ctx), void *ctx);

/* In `each_kept`: the id of the same stack from now on; CAPTURE_NONE when it is not known (any more). */
uint32_t capture_window_carry(struct capture_writer *w, uint32_t leaf);

/* Whether a stack id is one of this segment (always true in a file). */
bool capture_window_knows(const struct capture_writer *w, uint32_t leaf);

/* Whether any segment in memory names the module; if none does, its id can be given up. */
bool capture_window_names_module(const struct capture_writer *w, uint32_t id);
void capture_window_forget_module(struct capture_writer *w, uint32_t id);

struct capture_window_stats {
	uint64_t since_ns;    /* from when on everything is in the window */
	size_t bytes;         /* of closed segments */
	size_t segments;
	bool limited;         /* the limit has made since_ns later than it would be */
};
void capture_window_stats(const struct capture_writer *w, uint64_t now_ns,
	struct capture_window_stats *ret);

/* What was written. */
struct capture_window_counts {
	uint64_t samples, samples_ended[16]; /* by `end` of struct record_sample, 15: any higher */
	uint64_t off_cpu, off_cpu_ns, off_cpu_rooted;
	uint64_t losses[LOSS_KIND_COUNT];
	uint64_t threads;
};

/* What is in the new file. */
struct capture_window_map {
	uint32_t *modules; /* the number there of each of the window's; CAPTURE_NONE: it is not there */
	size_t module_count;
	uint64_t *frame_ns; /* by the number there: the time of the first event that goes through it */
	size_t frame_count;
};
void capture_window_map_release(struct capture_window_map *m);

/*
 * Writes the window from `from_ns` on into `out`: META, and the events with all that they refer to.
 * Intervals off the CPU that began earlier are cut; times of threads count from then on, too. *ret_map
 * is for the caller to release.
 * Ends the open block of the window, which costs it some compression; nothing else changes. The
 * memory of segments is given back on the way if `consume`: then the window is of no use any more.
 */
int capture_window_write(struct capture_writer *w, uint64_t from_ns, bool consume,
	struct capture_writer *out, struct capture_window_map *ret_map,
	struct capture_window_counts *ret, struct err *err);

#endif
