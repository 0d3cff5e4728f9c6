/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sonde itself, with one difference: its samples hold 64 KB of the stack, and it is made to believe that they
 * hold SONDE_BENCH_CUT bytes. It reads what lies beyond from the running target, as always. Then the whole copy is
 * unwound as well, which is the truth, and both are compared. Prints one line at the end:
 *
 *	SAMPLES  taken, whose whole copy leads to the root without a look at the target
 *	INSIDE   of them, that fit into the cut
 *	RIGHT    that were completed from the target as they were
 *	WRONG    that were completed as something else
 *	CUT      that were not completed: visibly cut
 *
 * Two functions stand in front of those of sonde (ld --wrap): perf_ring_word(), by which the thread on the
 * sample's CPU looks at records, and session_sample(), which gets samples.
 */
#include <stdio.h>
#include <stdlib.h>

#include "os/perf_event.h"
#include "sample/session.h"

static struct {
	unsigned long samples, inside, right, wrong, cut;
} counts;

static uint64_t cut_bytes(void)
{
	static uint64_t bytes;

	if (!bytes)
		bytes = getenv("SONDE_BENCH_CUT") ? strtoull(getenv("SONDE_BENCH_CUT"), NULL, 10) : 8192;
	return bytes;
}

/* ---- the thread on the CPU ---- */

uint64_t __real_perf_ring_word(const struct perf_ring *r, uint64_t position);
uint64_t __wrap_perf_ring_word(const struct perf_ring *r, uint64_t position);

/* As large as a record lets it be. */
static bool is_copy_size(uint64_t word)
{
	return word > PERF_MAX_STACK_BYTES - 4096 && word <= PERF_MAX_STACK_BYTES;
}

/* The size of the copy stands before it, and how much of it is valid behind it. */
uint64_t __wrap_perf_ring_word(const struct perf_ring *r, uint64_t position)
{
	static __thread uint64_t copy_at, copy_size;
	uint64_t word;

	if (copy_at && position == copy_at + cut_bytes()) {
		word = __real_perf_ring_word(r, copy_at + copy_size);
		copy_at = 0;
		return word < cut_bytes() ? word : cut_bytes();
	}
	word = __real_perf_ring_word(r, position);
	if (!is_copy_size(word))
		return word;
	copy_size = word;
	copy_at = position + sizeof(word);
	return cut_bytes();
}

/* ---- the drain ---- */

bool __real_session_sample(struct session *s, const struct raw_sample *raw, struct stored_stack *ret);
bool __wrap_session_sample(struct session *s, const struct raw_sample *raw, struct stored_stack *ret);

static void compare(const struct stored_stack *seen, const struct stored_stack *truth)
{
	if (truth->end != UNWIND_ROOT || truth->live_frames || truth->switched)
		return;
	counts.samples++;
	if (seen->end != UNWIND_ROOT)
		counts.cut++;
	else if (!seen->live_frames)
		counts.inside++;
	else if (seen->leaf == truth->leaf)
		counts.right++;
	else
		counts.wrong++;
}

static void print_counts(void)
{
	fprintf(stderr, "%lu %lu %lu %lu %lu\n", counts.samples, counts.inside, counts.right, counts.wrong,
		counts.cut);
}

bool __wrap_session_sample(struct session *s, const struct raw_sample *raw, struct stored_stack *ret)
{
	static bool begun;
	struct raw_sample *cut = (struct raw_sample *)raw; /* the sampler's own, which learns from its size */
	struct raw_stack whole = raw->stack;
	struct stored_stack truth;

	if (!begun)
		begun = !atexit(print_counts);
	whole.early = whole.other = (struct unwind_dump){0};
	if (cut->stack.dump.size > cut_bytes())
		cut->stack.dump.size = cut_bytes();
	if (!__real_session_sample(s, raw, ret))
		return false;
	if (session_stack(s, raw->pid, raw->tid, raw->time_ns, &whole, &truth))
		compare(ret, &truth);
	return true;
}
