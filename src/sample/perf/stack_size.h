/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes of its stack to copy with each sample of a thread: the policy, and nothing else.
 *
 * Every thread starts small. It gets twice as much when its own stacks are cut too often although
 * what lies beyond the copy is read from its memory, and half as much again when for a long time they
 * were far from needing it. Once it has grown back after that it stays.
 */
#ifndef SONDE_SAMPLE_PERF_STACK_SIZE_H
#define SONDE_SAMPLE_PERF_STACK_SIZE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	STACK_SIZE_FIRST, /* 8 KB: with 4 KB most programs' stacks need a second look */
	STACK_SIZE_16K,
	STACK_SIZE_32K,
	STACK_SIZE_MOST, /* what the kernel copies at most, 65,528 bytes */
	STACK_SIZE_COUNT,
};

/* How much there is to copy in all, compared with what it may be. */
enum stack_room {
	STACK_ROOM,      /* threads may grow */
	STACK_ROOM_NONE, /* no further */
	STACK_ROOM_OVER, /* those that have grown must give back */
};

/* All-zero at first. */
struct stack_size {
	uint8_t level;     /* STACK_SIZE_... */
	bool shrunk, kept; /* it has shrunk once; it has grown back since */
	uint16_t seen, cut; /* stacks, of late */
	uint16_t shallow;  /* stacks that needed less than half of half the copy, in a row */
};

/* What became of a stack. */
struct stack_seen {
	bool cut;        /* by the end of the copy, and what was behind could not be had */
	uint32_t needed; /* bytes of the whole stack; unless `cut` */
};

uint32_t stack_size_bytes(unsigned level);
uint8_t stack_size_level(uint32_t bytes); /* the least that has so many */

/* Takes a stack into account; true when the level is another one now. */
bool stack_size_note(struct stack_size *s, struct stack_seen seen, enum stack_room room);

/* The room there is at so many bytes a second through all rings: beyond STACK_RATE_BYTES_S no thread
 * grows, and above 5/4 of it those that have are taken back. Threads that have not grown are copied
 * from at any rate. */
#define STACK_RATE_BYTES_S (64u << 20)
enum stack_room stack_room_at(uint64_t bytes_per_s);

#endif
