/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/ptrace/dump_size.h"

#include "base/hash.h"

/* Room above what was used, since the next stack may be a little deeper. */
#define SPARE_BYTES 1024u

static uint32_t place_of(pid_t tid)
{
	return (uint32_t)(hash_u64((uint64_t)tid) % DUMP_PLACES);
}

static uint32_t bounded(const struct dump_sizes *d, uint32_t bytes)
{
	uint32_t most = d->most && d->most < DUMP_MOST_BYTES ? d->most : DUMP_MOST_BYTES;

	if (bytes < DUMP_LEAST_BYTES)
		bytes = DUMP_LEAST_BYTES;
	return (bytes < most ? bytes : most) & ~7u;
}

size_t dump_size_of(const struct dump_sizes *d, pid_t tid)
{
	uint32_t bytes = atomic_load_explicit(&d->bytes[place_of(tid)], memory_order_relaxed);

	return bounded(d, bytes ? bytes : DUMP_FIRST_BYTES);
}

/* Up at once, down by a sixteenth a stack: shallow stacks between deep ones do not forget them. */
void dump_size_learn(struct dump_sizes *d, pid_t tid, uint32_t used, bool short_of)
{
	_Atomic uint32_t *bytes = &d->bytes[place_of(tid)];
	uint32_t before = (uint32_t)dump_size_of(d, tid), want = used + used / 4 + SPARE_BYTES;

	if (short_of)
		want = 2 * before;
	else if (want < before - before / 16)
		want = before - before / 16;
	atomic_store_explicit(bytes, bounded(d, want), memory_order_relaxed);
}
