/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks, in three steps for a whole process or for one of its threads:
 *
 *	look        what each thread is in, and its registers     (look.h)
 *	read, walk  the stacks of those that sleep                (sample/session.h)
 *	look again  who has slept all the while: those are exact
 *
 * /proc is enough for most of them. Code that keeps frame pointers needs them, and they are not in /proc:
 * where a stack does not reach its root, all registers are asked of BPF, which takes a while to load
 * and so is not loaded for nothing.
 */
#include "sample/snapshot/snapshot_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sample/snapshot/running.h"

/* A thread that runs now and then may be asleep the next time. */
#define TRIES 3

/* The kernel gives memory by thread as well, also when the first thread of the process has ended. */
static struct raw_stack copy_stack(struct snapshot *s, const struct thread_look *look)
{
	struct raw_stack raw = {.regs = look->regs};
	size_t got = look->compat || !look->regs.known
		? 0
		: source_read_some(s->source, look->tid, look->wait.sp, s->bytes, SNAPSHOT_STACK_BYTES);

	/* Of a core that is cut off, the pc is better than nothing. */
	if (got >= sizeof(uint64_t) || (s->core && !look->compat)) {
		raw.has_regs = true;
		raw.dump = (struct unwind_dump){look->wait.sp, s->bytes, got};
	}
	return raw;
}

static void add_step(struct snapshot_thread *t, struct snapshot_step step)
{
	t->steps[t->step_count++] = step;
}

/* Native frames and the Python frames that they run, in one order. */
static void take_steps(struct snapshot_thread *t)
{
	size_t python = 0;

	free(t->steps);
	t->step_count = 0;
	t->steps = calloc(t->frame_count + t->python_count + 1, sizeof(*t->steps));
	for (size_t i = 0; t->steps && i <= t->frame_count; i++) {
		for (; python < t->python_count && t->python[python].before == i; python++)
			add_step(t, (struct snapshot_step){t->python[python].id, NULL, &t->python[python]});
		if (i < t->frame_count)
			add_step(t, (struct snapshot_step){t->frames[i].id, &t->frames[i], NULL});
	}
}

/* The stack that the session has walked last becomes the thread's. */
static void take_python(struct snapshot *s, struct snapshot_thread *t)
{
	const struct placed_frame *placed;
	size_t count = session_last_python(s->session, &placed);

	free(t->python);
	t->python_count = 0;
	t->python = count ? calloc(count, sizeof(*t->python)) : NULL;
	if (!t->python)
		return;
	memcpy(t->python, placed, count * sizeof(*placed));
	t->python_count = count;
}

static void take_frames(struct snapshot *s, struct snapshot_thread *t, enum unwind_end end)
{
	const struct unwind_frame *walked = session_last_walk(s->session);
	const uint32_t *ids;
	size_t count = session_last_frames(s->session, &ids);
	struct snapshot_frame *frames = calloc(count ? count : 1, sizeof(*frames));

	if (!frames)
		return;
	for (size_t i = 0; i < count; i++)
		frames[i] = (struct snapshot_frame){ids[i], walked[i]};
	free(t->frames);
	t->frames = frames;
	t->frame_count = count;
	t->end = end;
	t->has_stack = count > 0;
}

static void walk(struct snapshot *s, struct snapshot_thread *t, const struct raw_stack *raw)
{
	struct stored_stack stack;

	if (!raw->has_regs || !session_stack(s->session, t->process->pid, t->look.tid, clock_monotonic_ns(),
				      raw, &stack))
		return;
	take_frames(s, t, stack.end);
	take_python(s, t);
	take_steps(t);
	t->python_marks = stack.python;
	snapshot_take_locals(s, t);
}

static void walk_sleeper(struct snapshot *s, struct snapshot_thread *t)
{
	struct raw_stack raw;

	t->stack_read = true;
	if (t->faith != SNAPSHOT_ASLEEP)
		return;
	raw = copy_stack(s, &t->look);
	raw.python = PYTHON_STILL;
	raw.look = s->look_number;
	walk(s, t, &raw);
}

static void forget_stack(struct snapshot_thread *t)
{
	t->has_stack = false;
	t->frame_count = t->python_count = t->step_count = 0;
}

/* ---- exact or not ---- */

/* What a thread was in that has moved is of the past. With many looks it counts all the same: were it left out for
 * what comes next, short waits would be missing. */
static bool keep_moved(struct snapshot *s, struct snapshot_thread *t)
{
	if (!s->options.often)
		return false;
	t->faith = SNAPSHOT_MOVED;
	return true;
}

/* Compares threads (`only`, or all) with what was just looked at: one that has moved is as it is now, and
 * its stack is not known. How many have. */
static size_t recheck(struct snapshot *s, struct snapshot_process *p, const struct snapshot_thread *only)
{
	size_t at = 0, moved = 0;

	vec_each(&p->threads, it) {
		struct snapshot_thread *t = *it;

		t->again = false;
		if ((only && t != only) || t->faith != SNAPSHOT_ASLEEP || !t->stack_read)
			continue;
		/* Both are ascending. */
		while (at < s->looks.len && s->looks.data[at].tid < t->look.tid)
			at++;
		if (at == s->looks.len || s->looks.data[at].tid != t->look.tid) {
			forget_stack(t); /* it has ended */
			t->faith = SNAPSHOT_MOVED;
		} else if (!look_same(&t->look, &s->looks.data[at])) {
			forget_stack(t);
			if (keep_moved(s, t))
				continue;
			snapshot_take_look(t, &s->looks.data[at]);
			t->again = true;
			moved++;
		}
	}
	return moved;
}

static void stack_of_one(struct snapshot *s, struct snapshot_thread *t)
{
	if (s->core) {
		walk_sleeper(s, t);
		return;
	}
	for (int i = 0; i < TRIES; i++) {
		walk_sleeper(s, t);
		if (t->faith != SNAPSHOT_ASLEEP)
			return;
		if (snapshot_look(s, t->process->pid, t->look.tid, NULL))
			s->looks.len = 0;
		if (!recheck(s, t->process, t))
			return;
	}
	if (t->faith == SNAPSHOT_ASLEEP)
		t->faith = SNAPSHOT_MOVED;
}

/* All sleepers, and one look again for all of them. Those that have moved are tried alone. */
static void stack_of_all(struct snapshot *s, struct snapshot_process *p)
{
	vec_each(&p->threads, t)
		if (!(*t)->stack_read)
			walk_sleeper(s, *t);
	if (s->core)
		return;
	if (snapshot_look(s, p->pid, 0, NULL))
		s->looks.len = 0;
	if (!recheck(s, p, NULL))
		return;
	vec_each(&p->threads, t)
		if ((*t)->again)
			stack_of_one(s, *t);
}

/* ---- with all registers ---- */

static bool wants_registers(const struct snapshot_thread *t)
{
	return t->faith == SNAPSHOT_ASLEEP && !t->look.compat && t->end != UNWIND_ROOT &&
		__builtin_popcountll(t->look.regs.known) <= 2;
}

/* False: nothing came of it. */
static bool walk_with(struct snapshot *s, struct snapshot_thread *t, const struct thread_look *now)
{
	if (!now || !look_same(&t->look, now))
		return false;
	snapshot_take_registers(t, now);
	walk_sleeper(s, t);
	return true;
}

static void complete(struct snapshot *s, struct snapshot_process *p, struct snapshot_thread *only)
{
	pid_t tid = only ? only->look.tid : 0;
	size_t wanting = 0, walked = 0;

	vec_each(&p->threads, t)
		wanting += (!only || *t == only) && wants_registers(*t);
	if (!wanting || s->options.method != SNAPSHOT_AUTO || snapshot_look_bpf(s, p->pid, tid, NULL))
		return;
	vec_each(&p->threads, t)
		if ((!only || *t == only) && wants_registers(*t))
			walked += walk_with(s, *t, snapshot_looked(s, (*t)->look.tid));
	if (!walked)
		return;
	if (snapshot_look_bpf(s, p->pid, tid, NULL))
		s->looks.len = 0;
	recheck(s, p, only);
}

/* ---- threads that run ---- */

/* Code that is run over and over without getting on is not longer than this, and of the registers no more
 * change meanwhile: a counter of tries. */
#define ONE_PLACE_BYTES 64u
#define ONE_PLACE_REGISTERS 1
#define ONE_PLACE_SAMPLES 4u

static uint64_t differing(const struct unwind_regs *a, const struct unwind_regs *b)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < UNWIND_MAX_REGS; i++)
		if (i != SNAPSHOT_REG_PC && a->value[i] != b->value[i])
			bits |= 1ULL << i;
	return bits & a->known & b->known;
}

/* All samples of the thread were within a few instructions of each other, and nothing moved on. */
static bool is_one_place(const struct running_samples *samples, pid_t tid)
{
	const struct unwind_regs *first = NULL;
	uint64_t low = UINT64_MAX, high = 0, changed = 0;
	size_t count = 0;

	vec_each(samples, it) {
		uint64_t pc = it->stack.regs.value[SNAPSHOT_REG_PC];

		if (it->tid != tid || !it->stack.has_regs)
			continue;
		low = pc < low ? pc : low;
		high = pc > high ? pc : high;
		first = first ? first : &it->stack.regs;
		changed |= differing(first, &it->stack.regs);
		count++;
	}
	return count >= ONE_PLACE_SAMPLES && high - low < ONE_PLACE_BYTES &&
		__builtin_popcountll(changed) <= ONE_PLACE_REGISTERS;
}

static void take_samples(struct snapshot *s, struct snapshot_thread *t, const struct running_samples *samples)
{
	const struct running_sample *last = NULL;

	vec_each(samples, it)
		if (it->tid == t->look.tid && it->stack.has_regs)
			last = it;
	if (!last)
		return;

	struct raw_stack raw = last->stack;

	if (!raw.chain_count)
		raw.python = PYTHON_LIVE;
	walk(s, t, &raw);
	t->one_place = is_one_place(samples, t->look.tid);
}

/* Who copies Python's frames of threads that are stopped; NULL: there are none. */
static struct python_stopped *python_of_stops(struct snapshot *s, const struct snapshot_process *p)
{
	if (!snapshot_python(s, p, NULL))
		return NULL;
	if (!s->python && !python_stopped_new(&s->python, NULL) &&
		python_copier_follow(python_stopped_copier(s->python), s->session)) {
		python_stopped_free(s->python);
		s->python = NULL;
	}
	return s->python;
}

static void sample(struct snapshot *s, struct snapshot_process *p, struct snapshot_thread *only)
{
	struct running_options options = {
		.stop = s->options.stop_running, .never_stop = s->options.never_stop};
	struct running_thread threads[RUNNING_MOST_THREADS];
	struct running_samples samples = {0};
	size_t count = 0;

	vec_each(&p->threads, t) {
		if ((only && *t != only) || (*t)->faith != SNAPSHOT_SAMPLED || (*t)->running_tried ||
			(*t)->look.wait.state != 'R' || count == RUNNING_MOST_THREADS)
			continue;
		(*t)->running_tried = true;
		threads[count++] = (struct running_thread){p->pid, (*t)->look.tid};
	}
	if (!count || p->refused)
		return;
	options.python = python_of_stops(s, p);
	running_sample(threads, count, &options, &samples, &s->running, NULL);
	vec_each(&p->threads, t)
		if (!only || *t == only)
			take_samples(s, *t, &samples);
	running_release(&samples);
}

static void sample_running(struct snapshot *s, struct snapshot_process *p, struct snapshot_thread *only)
{
	if (!s->options.no_running)
		sample(s, p, only);
}

void snapshot_running_stack(struct snapshot *s, struct snapshot_thread *t)
{
	sample(s, t->process, t);
}

void snapshot_stack(struct snapshot *s, struct snapshot_thread *t)
{
	if (!t->stack_read) {
		stack_of_one(s, t);
		complete(s, t->process, t);
	}
	if (t->faith == SNAPSHOT_SAMPLED && !t->running_tried)
		sample_running(s, t->process, t);
}

void snapshot_stacks(struct snapshot *s, struct snapshot_process *p)
{
	if (p->stacks_read)
		return;
	p->stacks_read = true;
	stack_of_all(s, p);
	complete(s, p, NULL);
}

void snapshot_running(struct snapshot *s, struct snapshot_process *p)
{
	sample_running(s, p, NULL);
}

void snapshot_registers(struct snapshot *s, struct snapshot_process *p)
{
	if (p->registers_read)
		return;
	p->registers_read = true;
	if (s->options.method != SNAPSHOT_AUTO || p->source->still || snapshot_look_bpf(s, p->pid, 0, NULL))
		return;
	vec_each(&p->threads, t) {
		const struct thread_look *now = snapshot_looked(s, (*t)->look.tid);

		if ((*t)->faith == SNAPSHOT_ASLEEP && now && look_same(&(*t)->look, now))
			(*t)->look.regs = now->regs;
	}
}

size_t snapshot_frame_regs(struct snapshot *s, struct snapshot_thread *t, struct unwind_regs *regs,
	size_t limit)
{
	struct raw_stack raw;
	size_t count;

	if (!t->has_stack || t->faith != SNAPSHOT_ASLEEP)
		return 0;
	raw = copy_stack(s, &t->look);
	count = session_frame_regs(s->session, t->process->pid, t->look.tid, &raw, regs, limit);
	if (count != t->frame_count)
		return 0;
	for (size_t i = 0; i < count; i++)
		if (session_last_walk(s->session)[i].pc != t->frames[i].at.pc)
			return 0;
	return count < limit ? count : limit;
}
