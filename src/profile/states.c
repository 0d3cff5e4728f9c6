/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time off the CPU in the model: the frames that say what a thread was in, how long threads were in
 * which state, and which of them did nothing but wait.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/profile_priv.h"

static const struct {
	const char *name;  /* for --state and JSON */
	const char *frame; /* in stacks */
} states[STATE_COUNT] = {
	[STATE_ON_CPU] = {"on-cpu", NULL},
	[STATE_RUN_QUEUE] = {"run-queue", "[run queue]"},
	[STATE_THROTTLED] = {"throttled", "[throttled]"},
	[STATE_FUTEX] = {"futex", "[futex]"},
	[STATE_SYSCALL] = {"syscall", "[syscall]"},
	[STATE_PAGE_FAULT] = {"page-fault", "[page fault]"},
	[STATE_STOPPED] = {"stopped", "[stopped]"},
	[STATE_BLOCKED] = {"blocked", "[blocked]"},
};

const char *profile_state_name(enum thread_state state)
{
	return states[state].name;
}

int profile_state_by_name(const char *name, enum thread_state *ret)
{
	for (enum thread_state s = 0; s < STATE_COUNT; s++) {
		if (strcmp(states[s].name, name) != 0)
			continue;
		*ret = s;
		return 0;
	}
	return -EINVAL;
}

/* ---- frames ---- */

/* A frame for each state, and for each system call; a node for each of them below a stack. */
struct state_frame {
	uint64_t key; /* state and system call */
	uint32_t frame;
};

struct state_nodes {
	struct loader *l;
	VEC(struct state_frame) frames;
	struct id_table frame_ids, node_ids;
	VEC(uint32_t) outer; /* by frame: outer_frame() of it */
};

static uint64_t frame_hash(const void *ctx, uint32_t index)
{
	return hash_u64(((const struct state_nodes *)ctx)->frames.data[index].key);
}

static uint64_t node_hash(const void *ctx, uint32_t index)
{
	const struct profile_node *n =
		&((const struct state_nodes *)ctx)->l->p->nodes.data[index];

	return hash_u64((uint64_t)n->parent << 32 | n->frame);
}

static const char *state_text(
	enum thread_state state, const struct profile_wait *w, char *text, size_t size)
{
	if (w->awaits && state == STATE_BLOCKED) {
		snprintf(text, size, "[%.60s]", w->awaits);
		return text;
	}
	if (state != STATE_SYSCALL || w->syscall < 0)
		return states[state].frame;
	if (w->syscall_name)
		snprintf(text, size, "[syscall %s]", w->syscall_name);
	else
		snprintf(text, size, "[syscall %d]", w->syscall);
	return text;
}

static int add_state_frame(
	struct state_nodes *b, enum thread_state state, const struct profile_wait *w)
{
	struct profile *p = b->l->p;
	struct profile_frame f = {.module = PROFILE_NONE, .kind = PROFILE_FRAME_STATE,
		.first_level = (uint32_t)p->levels.len, .level_count = 1};
	struct profile_level level = {0};
	char text[72];

	level.function = loader_state_function(
		b->l, state_text(state, w, text, sizeof(text)), state);
	if (level.function == PROFILE_NONE || p->levels.len >= PROFILE_NONE - 1 ||
		p->frames.len >= PROFILE_NONE - 1 || vec_push(&p->levels, level))
		return -ENOMEM;
	return vec_push(&p->frames, f);
}

/* The frame, or PROFILE_NONE when out of memory. */
static uint32_t state_frame(
	struct state_nodes *b, enum thread_state state, const struct profile_wait *w)
{
	/* Texts of a recording are there once. */
	uint64_t key = w->awaits && state == STATE_BLOCKED
		? 1ULL << 63 | (uint64_t)(uintptr_t)w->awaits
		: (uint64_t)state << 32 | (uint32_t)(state == STATE_SYSCALL ? w->syscall : 0);
	struct id_probe probe = id_probe_start(&b->frame_ids, hash_u64(key));
	struct state_frame added = {.key = key, .frame = (uint32_t)b->l->p->frames.len};

	while (id_probe_next(&b->frame_ids, &probe))
		if (b->frames.data[probe.id].key == key)
			return b->frames.data[probe.id].frame;
	if (id_table_reserve(&b->frame_ids, frame_hash, b) || add_state_frame(b, state, w) ||
		vec_push(&b->frames, added))
		return PROFILE_NONE;
	id_table_add(&b->frame_ids, hash_u64(key), (uint32_t)b->frames.len - 1);
	return added.frame;
}

/* The stack with the frame of the state as its leaf; PROFILE_NONE when out of memory. */
static uint32_t state_node(struct state_nodes *b, uint32_t stack, uint32_t frame)
{
	struct profile *p = b->l->p;
	struct profile_node n = {.parent = stack, .frame = frame, .depth = 1};
	uint64_t hash = hash_u64((uint64_t)stack << 32 | frame);
	struct id_probe probe = id_probe_start(&b->node_ids, hash);

	while (id_probe_next(&b->node_ids, &probe)) {
		const struct profile_node *known = &p->nodes.data[probe.id];

		if (known->parent == stack && known->frame == frame)
			return probe.id;
	}
	if (stack != PROFILE_NONE)
		n.depth += p->nodes.data[stack].depth;
	if (p->nodes.len >= PROFILE_NONE - 1 || id_table_reserve(&b->node_ids, node_hash, b) ||
		vec_push(&p->nodes, n))
		return PROFILE_NONE;
	id_table_add(&b->node_ids, hash, (uint32_t)p->nodes.len - 1);
	return (uint32_t)p->nodes.len - 1;
}

/* ---- what the program called ---- */

static bool is_c_library(const struct profile *p, const struct profile_frame *f)
{
	static const char *const starts[] = {"libc.so", "libc-2.", "libpthread", "ld-musl-",
		"libc.musl-"};
	const char *name;

	if (f->module == PROFILE_NONE || p->modules.data[f->module].kind != MODULE_FILE)
		return false;
	name = p->modules.data[f->module].name;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (!strncmp(name, starts[i], strlen(starts[i])))
			return true;
	return false;
}

static const struct profile_frame *frame_of(const struct profile *p, uint32_t node)
{
	return &p->frames.data[p->nodes.data[node].frame];
}

/* A frame of the same place with its function alone, without what is inlined into it; its index, or
 * PROFILE_NONE when out of memory. */
static uint32_t outer_frame(struct state_nodes *b, uint32_t index)
{
	struct profile *p = b->l->p;
	struct profile_frame f = p->frames.data[index];

	if (f.level_count == 1)
		return index;
	while (b->outer.len <= index)
		if (vec_push(&b->outer, PROFILE_NONE))
			return PROFILE_NONE;
	if (b->outer.data[index] != PROFILE_NONE)
		return b->outer.data[index];
	f.first_level += f.level_count - 1;
	f.level_count = 1;
	if (p->frames.len >= PROFILE_NONE - 1 || vec_push(&p->frames, f))
		return PROFILE_NONE;
	b->outer.data[index] = (uint32_t)p->frames.len - 1;
	return b->outer.data[index];
}

/* Shortens a stack to end with the call that the program made. -ENOMEM. */
static int shorten(struct state_nodes *b, uint32_t *stack)
{
	const struct profile *p = b->l->p;
	uint32_t user = *stack, call, frame;

	while (user != PROFILE_NONE && frame_of(p, user)->kind == FRAME_KERNEL)
		user = p->nodes.data[user].parent;
	/* A thread of the kernel, or one whose program is gone: it ends. */
	if (user == PROFILE_NONE || frame_of(p, user)->module == PROFILE_NONE)
		return 0;
	*stack = user;
	for (call = PROFILE_NONE; user != PROFILE_NONE && is_c_library(p, frame_of(p, user));
		user = p->nodes.data[user].parent)
		call = user;
	/* Not called by a program: of that there is nothing, or what starts it alone. */
	if (call == PROFILE_NONE || user == PROFILE_NONE ||
		p->nodes.data[user].parent == PROFILE_NONE)
		return 0;
	frame = outer_frame(b, p->nodes.data[call].frame);
	if (frame == PROFILE_NONE)
		return -ENOMEM;
	if (frame != p->nodes.data[call].frame)
		call = state_node(b, user, frame);
	*stack = call;
	return call == PROFILE_NONE ? -ENOMEM : 0;
}

/* Of a process that has ended: an address that no file is mapped at any more, and nothing else. */
static bool says_nothing(const struct profile *p, uint32_t stack)
{
	return p->nodes.data[stack].parent == PROFILE_NONE &&
	       frame_of(p, stack)->module == PROFILE_NONE;
}

static int shorten_wakers(struct state_nodes *b)
{
	vec_each(&b->l->p->waits, w) {
		if (w->waker_stack == PROFILE_NONE)
			continue;
		if (says_nothing(b->l->p, w->waker_stack))
			w->waker_stack = PROFILE_NONE;
		else if (shorten(b, &w->waker_stack))
			return -ENOMEM;
	}
	return 0;
}

static int add_state(struct state_nodes *b, struct profile_sample *s, bool brief)
{
	uint32_t frame = state_frame(b, s->state, &b->l->p->waits.data[s->wait]);

	if (frame == PROFILE_NONE || (brief && s->stack != PROFILE_NONE && shorten(b, &s->stack)))
		return -ENOMEM;
	s->stack = state_node(b, s->stack, frame);
	return s->stack == PROFILE_NONE ? -ENOMEM : 0;
}

int loader_add_state_frames(struct loader *l)
{
	struct state_nodes b = {.l = l};
	bool brief = l->options->filter.brief_waits;
	int rc = brief ? shorten_wakers(&b) : 0;

	vec_each(&l->p->samples, s)
		if (s->wait != PROFILE_NONE && !rc)
			rc = add_state(&b, s, brief);
	vec_release(&b.outer);
	vec_release(&b.frames);
	id_table_release(&b.frame_ids);
	id_table_release(&b.node_ids);
	return rc;
}

/* ---- times ---- */

/* What two clocks of one recording may differ by. */
#define TOLERANCE_NS 1000000

void loader_set_times(struct profile_thread *t, const struct record_thread_times *r)
{
	uint64_t sum = 0, span = r->until_ns - r->since_ns;

	if (r->until_ns < r->since_ns)
		return;
	for (size_t i = 0; i < STATE_COUNT; i++)
		if (__builtin_add_overflow(sum, r->ns[i], &sum))
			return;
	/* They would not be times of this thread. */
	if (sum > span + span / 100 + TOLERANCE_NS)
		return;
	for (size_t i = 0; i < STATE_COUNT; i++)
		t->state_ns[i] = r->ns[i];
	t->watched_ns = sum;
	t->exact = true;
}

static void times_from_samples(struct profile *p)
{
	vec_each(&p->samples, s) {
		struct profile_thread *t = &p->threads.data[s->thread];

		if (t->exact)
			continue;
		t->state_ns[s->state] += s->weight;
		t->watched_ns += s->weight;
	}
}

/* ---- threads that only wait ---- */

#define RAN_FRACTION 1000     /* ran for at most one part in so many */
#define QUEUED_FRACTION 10    /* waited for a CPU, as all do when they start and end */
#define ELSEWHERE_FRACTION 50 /* was blocked in other places */

static bool only_waits(const struct profile_thread *t)
{
	uint64_t queued_ns = t->state_ns[STATE_RUN_QUEUE] + t->state_ns[STATE_THROTTLED];

	return t->watched_ns && t->state_ns[STATE_ON_CPU] <= t->watched_ns / RAN_FRACTION &&
	       queued_ns <= t->watched_ns / QUEUED_FRACTION;
}

struct place {
	uint32_t thread, stack;
	uint64_t weight;
};

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->thread != b->thread)
		return (a->thread > b->thread) - (a->thread < b->thread);
	return (a->stack > b->stack) - (a->stack < b->stack);
}

/* The places of one thread, equal ones next to each other: where it was for longest, and whether
 * that was nearly all of the time. */
static void judge_places(struct profile_thread *t, const struct place *places, size_t count)
{
	uint64_t best = 0, all = 0;

	for (size_t i = 0, next; i < count; i = next) {
		uint64_t sum = 0;

		for (next = i; next < count && places[next].stack == places[i].stack; next++)
			sum += places[next].weight;
		all += sum;
		if (sum <= best)
			continue;
		best = sum;
		t->waits_in = places[i].stack;
	}
	t->idle = all - best <= all / ELSEWHERE_FRACTION;
}

static int find_places(struct profile *p)
{
	VEC(struct place) places = {0};
	int rc = 0;

	vec_each(&p->samples, s)
		if (!rc && is_blocked(s) && p->threads.data[s->thread].idle)
			rc = vec_push(&places, (struct place){s->thread, s->stack, s->weight});
	if (!rc && places.len) {
		qsort(places.data, places.len, sizeof(*places.data), compare_places);
		for (size_t i = 0, next; i < places.len; i = next) {
			uint32_t thread = places.data[i].thread;

			for (next = i; next < places.len && places.data[next].thread == thread;)
				next++;
			judge_places(&p->threads.data[thread], &places.data[i], next - i);
		}
	}
	vec_release(&places);
	return rc;
}

static void set_apart(struct profile *p)
{
	bool any_active = false;

	vec_each(&p->threads, t)
		any_active |= !t->idle && t->watched_ns;
	vec_each(&p->threads, t)
		t->apart = any_active && t->idle;
}

int loader_thread_states(struct loader *l)
{
	struct profile *p = l->p;

	vec_each(&p->threads, t)
		t->waits_in = PROFILE_NONE;
	if (p->mode == PROFILE_CPU)
		return 0;
	times_from_samples(p);
	vec_each(&p->threads, t)
		t->idle = only_waits(t);
	if (find_places(p))
		return -ENOMEM;
	/* All that most tasks do is wait. */
	if (l->options->filter.idle_apart && !p->of_tasks)
		set_apart(p);
	vec_each(&p->threads, t) {
		if (t->apart || !t->watched_ns)
			continue;
		p->watched_threads++;
		p->watched_ns += t->watched_ns;
		for (size_t i = 0; i < STATE_COUNT; i++)
			p->state_ns[i] += t->state_ns[i];
	}
	return 0;
}

void loader_filter_samples(struct loader *l)
{
	struct profile *p = l->p;
	uint32_t kept_states = l->options->filter.states;
	size_t kept = 0;

	vec_each(&p->samples, s)
		if (!p->threads.data[s->thread].apart &&
			(!kept_states || kept_states & 1u << s->state))
			p->samples.data[kept++] = *s;
	p->samples.len = kept;
}

/* ---- the mode ---- */

void loader_find_mode(struct loader *l)
{
	static const char *const modes[] = {
		[PROFILE_CPU] = "cpu", [PROFILE_WALL] = "wall", [PROFILE_OFF_CPU] = "off-cpu"};
	const char *mode = profile_meta(l->p, "mode");
	bool on_cpu = false;

	l->p->of_tasks = l->options->filter.tasks;
	if (l->p->of_tasks) {
		l->p->mode = PROFILE_WALL;
		return;
	}
	for (size_t i = 0; mode && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(mode, modes[i]))
			l->p->mode = (enum profile_mode)i;
	if (l->p->mode != PROFILE_CPU || !l->p->waits.len)
		return;
	/* The fact was lost; what is there tells. */
	vec_each(&l->p->samples, s)
		on_cpu |= s->wait == PROFILE_NONE;
	l->p->mode = on_cpu ? PROFILE_WALL : PROFILE_OFF_CPU;
}
