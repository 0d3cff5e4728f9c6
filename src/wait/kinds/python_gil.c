/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CPython's global interpreter lock. Who wants it waits for a condition variable within its struct, wakes up every
 * few milliseconds to ask for it, and waits again; its struct says who has it.
 * docs/heuristics/python-locks.md.
 */
#include "wait/futex.h"
#include "wait/kinds.h"
#include "wait/pythons.h"

#include <time.h>

#include "base/clock.h"
#include "os/thread_wait.h"

/* Who asks and does not get it uses less than this part of the time. */
#define ASKING_PARTS 50u

static struct look_gil *gil_of(struct wait_look *l, struct futex_call *f)
{
	struct python_look *look = futex_decode(l, f) ? wait_python(l) : NULL;

	return look ? look_gil_at(look, f->address) : NULL;
}

static void blame(struct wait_look *l, const struct look_gil *gil, struct wait *ret)
{
	if (!gil->holder || gil->holder == l->look->tid)
		return;
	if (gil->sure)
		wait_add_blocker(ret, l->process->pid, gil->holder, WAIT_PROVEN, "the GIL says that it has it");
	else
		wait_add_blocker(ret, l->process->pid, gil->holder, WAIT_OBSERVED, "it had the GIL last");
}

static void tell(struct wait_look *l, const struct look_gil *gil, struct wait *ret)
{
	ret->nature = WAIT_LOCK;
	ret->polls = true;
	ret->counter = gil->now.switches;
	WAIT_SAY(ret->what, "for the GIL");
	if (gil->interpreter_id)
		WAIT_SAY(ret->name, "the GIL of interpreter %lld", (long long)gil->interpreter_id);
	else
		WAIT_SAY(ret->name, "the GIL");
	WAIT_SAY(ret->object, "gil %d:0x%llx", (int)l->process->pid, (unsigned long long)gil->now.address);
	ret->address = gil->now.address;
	ret->object_bytes = gil->now.bytes;
	blame(l, gil, ret);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	const struct look_gil *gil = gil_of(l, &f);

	if (gil)
		tell(l, gil, ret);
	return gil;
}

/* It asks for a moment, and then waits for longer than this again. */
#define TRIES 4u
#define TRY_NS (500 * 1000L)
#define MOST_ASKED 32u /* threads of a process, at one look */

static bool is_asking(struct wait_look *l, struct thread_wait *w, struct wait *ret)
{
	struct wait_look then = *l;
	struct futex_call f;
	const struct look_gil *gil;

	/* With many looks the next one comes soon. */
	for (unsigned i = 0, tries = snapshot_asked(l->snapshot)->often ? 1 : TRIES; i < tries; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
		if (thread_wait_read(l->process->pid, l->look->tid, w, NULL))
			return false;
		if (!w->blocked)
			continue;
		then.call = w->syscall;
		then.args = w->args;
		gil = gil_of(&then, &f);
		if (!gil || gil->holder == l->look->tid)
			return false;
		tell(l, gil, ret);
		return true;
	}
	return false;
}

bool wait_asks_for_gil(struct wait_look *l, struct wait *ret)
{
	struct python_look *look = l->process->source->still ? NULL : wait_python(l);
	struct thread_wait w;

	return look && look_gil_is_held(look, l->look->tid) && look_takes_time(look, MOST_ASKED) &&
		is_asking(l, &w, ret);
}

/* Who had it in between, if anybody, has run for longer than asking takes. */
static bool again(struct wait_look *l, const struct thread_look *now, struct wait *ret)
{
	uint64_t ns = now->at_ns - l->look->at_ns, ran_ns = now->ran_ns - l->look->ran_ns;
	struct python_look *look = wait_python(l);
	const struct look_gil *gil = look ? look_gil_at(look, ret->address) : NULL;

	if (!gil)
		return false;
	if (gil->now.switches == ret->counter)
		return true;
	if (ns && gil->now.switches > ret->counter)
		WAIT_SAY(ret->detail, "it went from one thread to another %llu times a second",
			(unsigned long long)((gil->now.switches - ret->counter) * NS_PER_S / ns));
	return now->ran_ns != LOOK_UNKNOWN && l->look->ran_ns != LOOK_UNKNOWN && ran_ns < ns / ASKING_PARTS;
}

const struct wait_kind wait_kind_python_gil = {
	.name = "python_gil", .look = look, .again = again, .from_memory = true};
