/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flight recorder: --last keeps a rolling window in memory; it is written when somebody asks
 * (SIGUSR2), when a condition of --when fires, and at the end.
 *
 * A window that is written while recording goes on is written by a forked child: it has all of the
 * memory as of that moment, and takes its time to find names while the parent samples on. One at a
 * time: who asks meanwhile gets the next one.
 *
 * Every window gets a file of its own: FILE, FILE.2, FILE.3... (before .sonde); none is overwritten.
 */
#ifndef SONDE_CMD_RECORD_FLIGHT_H
#define SONDE_CMD_RECORD_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define FLIGHT_LAST_MIN_NS (100 * 1000000ULL)
#define FLIGHT_LAST_MAX_NS (24 * 3600 * 1000000000ULL)
#define FLIGHT_MEMORY_BYTES (24ULL << 20)

struct flight;
struct recording;
struct record_args;

/* Whether what was asked for can be had; -EINVAL with words. For a recording with --last. */
int flight_new(const struct record_args *args, struct flight **ret, struct err *err);
void flight_free(struct flight *f);

/* Opens r->writer. */
int flight_open_window(struct recording *r, struct err *err);

/* Recording begins. */
int flight_start(struct recording *r, struct err *err);

/* When there is something to do next; and a descriptor that is readable then, -1: none. */
uint64_t flight_next_ns(const struct flight *f);
int flight_fd(const struct flight *f);

/* SIGUSR2 came. */
void flight_ask(struct flight *f);

/* Looks at conditions, begins to write what was asked for. True: as many windows as were wanted are
 * written, or began to be. */
bool flight_step(struct recording *r, uint64_t now_ns);

/* The end: samplers are stopped and drained. Writes the window once more, unless there were enough. */
int flight_finish(struct recording *r, uint64_t stop_ns, struct err *err);

#endif
