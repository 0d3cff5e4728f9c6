/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A jitdump file: what a JIT compiler writes down of the code it generates (Linux,
 * tools/perf/Documentation/jitdump-specification.txt).
 *
 * Unlike a perf map it holds the code itself, lines, unwind information and when the code came to
 * where it lies, so that an address that held one function after another has the right name at
 * each moment. The file grows while the program runs and is read as far as it goes.
 *
 * Code gets an address that never changes meaning: the file offset of its bytes in the dump, called
 * its offset below. Everything in the file is untrusted: sizes are checked against the file, what
 * makes no sense ends the reading, and the index has a limit on its memory.
 *
 * Not thread-safe.
 */
#ifndef SONDE_SYMBOL_JITDUMP_H
#define SONDE_SYMBOL_JITDUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "symbol/symbol.h"

struct jitdump;

/* Whose code a mapped file describes, by its name, which is jit-PID.dump; 0 when it has another. The
 * pid is the one in the innermost namespace. */
pid_t jitdump_pid(const char *path);

/* Takes ownership of `fd`, on failure too. Whether it is a jitdump is seen when it is followed: its
 * header may not have been written yet. One that is none holds no code. */
int jitdump_open(int fd, struct jitdump **ret, struct err *err);
void jitdump_free(struct jitdump *d);

/* Reads what was added to the file since the last call, but no more than 8 MB of it: true when
 * there is more. Call it before every look-up, or every few; a call in vain is one fstat. */
bool jitdump_follow(struct jitdump *d);

/* A piece of code at one place. */
struct jitdump_code {
	uint64_t start, end; /* where it lies in memory, half-open */
	uint64_t offset;     /* of its first byte in the file */
	uint32_t number;     /* of the piece: 0, 1, 2 in the order of the file, wherever it lies */
	/* Its .eh_frame and .eh_frame_hdr, in either order; unwind_bytes 0: it keeps frame pointers,
	 * or says nothing. */
	uint64_t unwind_offset;
	uint32_t unwind_bytes, unwind_hdr_bytes;
};

/* The code that lay at `address` at that time (CLOCK_MONOTONIC): the last that came there until then,
 * else the first that came later, for some compilers tell a moment after the code has begun to run. In
 * files without such times: the last. False when there is none, as far as the file has been read. */
bool jitdump_find(
	const struct jitdump *d, uint64_t address, uint64_t time_ns, struct jitdump_code *ret);

/* Reads `len` bytes of the file: all of them, or false. */
bool jitdump_read(const struct jitdump *d, uint64_t offset, void *buf, size_t len);

/* Names and lines by offset; as far as the file has been read when they are asked for. `d` is borrowed
 * and outlives the source. */
int symbol_source_jitdump(struct jitdump *d, struct symbol_source **ret, struct err *err);

#endif
