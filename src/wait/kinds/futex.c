/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any other futex. Many locks of one's own keep the holder's thread id in the word: where what is expected,
 * or what stands there, is the id of a thread that lives, that is the one. Else it is an event.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#define NR_FUTEX_WAITV 449
#define TID_MASK 0x3fffffffu

static bool look_at_one(struct wait_look *l, const struct futex_call *f, struct wait *ret)
{
	static const char how[] = "its thread id stands in the word";
	uint32_t word;

	futex_object(l, f, ret);
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "for a futex");
	if (!snapshot_read(l->snapshot, l->process, f->address, &word, sizeof(word)))
		return true;
	/* Small numbers are counters and states, even where such a thread exists. */
	if ((f->expected & TID_MASK) > 300 && word == f->expected &&
		futex_blame(l, f, word & TID_MASK, false, how, ret)) {
		ret->nature = WAIT_LOCK;
		ret->grade = ret->blockers[0].grade = WAIT_INFERRED;
		WAIT_SAY(ret->what, "for a lock that is a futex");
	}
	return true;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;

	if (futex_decode(l, &f))
		return look_at_one(l, &f, ret);
	if (l->call != NR_FUTEX_WAITV)
		return false;
	ret->nature = WAIT_EVENT;
	ret->timeout_ns = LOOK_UNKNOWN;
	WAIT_SAY(ret->what, "for one of %u futexes", (unsigned)l->args[1]);
	return true;
}

const struct wait_kind wait_kind_futex = {.name = "futex", .look = look, .from_memory = true};
