/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a coroutine awaits, and what that awaits in turn: docs/heuristics/await-chain.md.
 *
 * A frame that is suspended in an `await` (or `yield from`) has what it awaits on top of its value stack. Coroutines are
 * suspended nowhere else. Generators also are in a `yield`, where the top is anything or nothing: these are told apart
 * by the instruction that follows, and from 3.13 on by the state of the generator.
 */
#include "python/tasks_priv.h"

#include <errno.h>
#include <string.h>

#include "python/text.h"

/* Values that one frame can have on its stack; more is nonsense. */
#define MOST_VALUES 65536u

/* gi_frame_state, as signed chars. */
#define STATE_YIELD_FROM (-1) /* 3.13 and later */
#define STATE_EXECUTING 0
#define STATE_COMPLETED 1

/* Opcodes (opcode.h of each version). */
#define OP_YIELD_FROM 72 /* 3.8 to 3.10 */
#define OP_RESUME_QUICK 150 /* 3.11 */
#define OP_RESUME 151 /* 3.11, 3.12 */
#define OP_INSTRUMENTED_RESUME 240 /* 3.12 */

/* A coroutine, generator or asynchronous generator. */
struct generator {
	uint64_t frame; /* 0: it has ended */
	enum progress progress;
	uint64_t stack, top; /* where its value stack begins, and ends */
	int8_t state;   /* 3.11 and later */
};

static bool has_frame(const struct python_type *type)
{
	return !strcmp(type->name, "coroutine") || !strcmp(type->name, "generator") ||
		!strcmp(type->name, "async_generator");
}

/* ---- where its values are ---- */

static bool old_stack(struct python *p, struct generator *g)
{
	const struct python_layout *l = &p->layout;
	uint32_t position, depth;

	if (!python_read_u64(p, g->frame + l->frame.value_stack, &g->stack) ||
		!python_read_u32(p, g->frame + l->frame.position, &position))
		return false;
	if (p->minor == 10) {
		if (!python_read_u32(p, g->frame + l->frame.stack_top, &depth))
			return false;
		g->top = (int32_t)depth < 0 ? 0 : g->stack + 8ULL * depth;
	} else if (!python_read_u64(p, g->frame + l->frame.stack_top, &g->top)) {
		return false;
	}
	g->progress = !g->top ? PROGRESS_RUNS : (int32_t)position < 0 ? PROGRESS_NOT_BEGUN : PROGRESS_SUSPENDED;
	return true;
}

/* 3.15 counts the same states from 0 on, and has one more for those that another thread is about to run. */
static int8_t state_of(const struct python *p, int8_t state)
{
	static const int8_t before[] = {-3, -2, STATE_YIELD_FROM, STATE_YIELD_FROM, STATE_EXECUTING, STATE_COMPLETED};

	if (p->minor < 15)
		return state;
	return state >= 0 && state < (int)sizeof(before) ? before[state] : STATE_COMPLETED;
}

static bool new_stack(struct python *p, uint64_t object, struct generator *g)
{
	const struct python_layout *l = &p->layout;
	uint64_t code, locals = g->frame + l->frame.locals;
	uint32_t count, top;

	if (!python_read(p, object + l->generator.state, &g->state, 1))
		return false;
	g->state = state_of(p, g->state);
	g->progress = g->state >= STATE_COMPLETED ? PROGRESS_ENDED :
		g->state == STATE_EXECUTING       ? PROGRESS_RUNS :
		g->state == (p->minor >= 13 ? -3 : -2) ? PROGRESS_NOT_BEGUN :
						    PROGRESS_SUSPENDED;
	if (g->progress != PROGRESS_SUSPENDED)
		return true;
	if (!python_read_u64(p, g->frame + l->frame.code, &code) ||
		!python_read_u32(p, (code & p->chain.pointer_mask) + l->code.local_count, &count) ||
		count > MOST_VALUES)
		return false;
	g->stack = locals + 8ULL * count;
	if (p->minor >= 14)
		return python_read_u64(p, g->frame + l->frame.stack_top, &g->top);
	if (!python_read_u32(p, g->frame + l->frame.stack_top, &top))
		return false;
	g->top = (int32_t)top < 0 ? 0 : locals + 8ULL * top;
	return true;
}

static bool read_generator(struct python *p, uint64_t object, struct generator *ret)
{
	*ret = (struct generator){.frame = object + p->layout.generator.frame};
	if (p->minor >= 11)
		return new_stack(p, object, ret);
	if (!python_read_pointer(p, ret->frame, &ret->frame))
		return false;
	ret->progress = PROGRESS_ENDED;
	return !ret->frame || old_stack(p, ret);
}

/* ---- whether it awaits ---- */

static bool next_opcode(struct python *p, const struct generator *g, uint8_t *ret)
{
	const struct python_layout *l = &p->layout;
	uint64_t position, code, bytecode;
	int64_t at;

	if (!python_read_u64(p, g->frame + l->frame.position, &position))
		return false;
	if (p->minor >= 11)
		return python_read(p, position + 2, ret, 2);
	at = (int32_t)position;
	at = p->minor == 10 ? (at + 1) * 2 : at + 2;
	return python_read_u64(p, g->frame + l->frame.code, &code) &&
		python_read_u64(p, code + l->code.code, &bytecode) &&
		python_has_flag(p, bytecode, PYTHON_FLAG_BYTES) &&
		python_read(p, bytecode + l->bytes.data + (uint64_t)at, ret, 2);
}

/* Of what also yields: whether it is in `await` or `yield from`. */
static bool awaits(struct python *p, const struct generator *g)
{
	uint8_t op[2];

	if (p->minor >= 13)
		return g->state == STATE_YIELD_FROM;
	if (!next_opcode(p, g, op))
		return false;
	if (p->minor <= 10)
		return op[0] == OP_YIELD_FROM;
	/* RESUME says what it follows: 2 is `yield from`, 3 is `await`. */
	return op[1] >= 2 &&
		(op[0] == OP_RESUME || (op[0] == OP_RESUME_QUICK && p->minor == 11) ||
			op[0] == OP_INSTRUMENTED_RESUME);
}

/* 3.15 keeps where an iteration has got to above what is iterated over, and so above what is awaited. */
static uint64_t from_top(const struct python *p)
{
	return p->minor >= 15 ? 16 : 8;
}

static uint64_t awaited(struct python *p, const struct python_type *type, const struct generator *g)
{
	uint64_t value;

	if (g->progress != PROGRESS_SUSPENDED || g->top < g->stack + from_top(p) || (g->top - g->stack) / 8 > MOST_VALUES)
		return 0;
	if (strcmp(type->name, "coroutine") != 0 && !awaits(p, g))
		return 0;
	if (!python_read_u64(p, g->top - from_top(p), &value))
		return 0;
	if (p->minor >= 14)
		value &= ~PYTHON_REFERENCE_TAGS;
	return python_pointer_ok(value) ? value : 0;
}

/* ---- the chain ---- */

/* What is awaited through: all of them have it first behind the object's head. 0: nothing such. */
static uint64_t inner(struct python *p, const struct python_type *type, uint64_t object)
{
	static const char *const wrappers[] = {
		"coroutine_wrapper",
		"async_generator_asend",
		"async_generator_athrow",
		"anext_awaitable",
		"_asyncio.FutureIter",
	};
	uint64_t value;

	for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
		if (!strcmp(type->name, wrappers[i]))
			return python_read_u64(p, object + p->layout.object.bytes, &value) &&
					python_pointer_ok(value)
				? value
				: 0;
	return 0;
}

/* One link of the chain; false: it cannot be read. Those behind it may be another's already. */
static bool add_link(struct tasks_look *look, uint64_t frame, size_t index)
{
	struct python_chain one = {.links = look->links + index, .limit = 1};

	python_chain_read_from(look->p, frame, &one);
	return one.count == 1;
}

/* They were found from the outside in: what is outside of one that is no frame stands. */
static int add_frames(struct tasks_look *look, size_t count, struct await_chain *ret)
{
	struct python_frames *frames = &look->ret->frames;
	size_t first = frames->len;

	for (size_t i = 0; i < count; i++) {
		struct python_chain one = {.links = look->links + i, .count = 1};

		if (python_frames(look->p, &one, frames))
			return -ENOMEM;
		if (one.torn != PYTHON_WHOLE) {
			ret->torn = PYTHON_TORN;
			break;
		}
	}
	for (size_t i = first, k = frames->len; i + 1 < k; i++) {
		struct python_frame other = frames->data[i];

		frames->data[i] = frames->data[--k];
		frames->data[k] = other;
	}
	return 0;
}

/* ---- whether it stood still ---- */

void tasks_watch(struct tasks_look *look, uint64_t addr)
{
	struct watched w = {.addr = addr};

	if (python_read_u64(look->p, addr, &w.value) && vec_push(&look->watched, w))
		look->watched.len = 0;
}

bool tasks_stood_still(struct tasks_look *look)
{
	const struct python_memory *memory = &look->p->pages.memory;
	uint64_t now;

	vec_each(&look->watched, w)
		if (!memory->read(memory->ctx, w->addr, &now, sizeof(now)) || now != w->value)
			return false;
	return true;
}

/* What changes when a frame goes on: where it is, and what its generator says of itself. */
static void watch_link(struct tasks_look *look, uint64_t object, uint64_t frame)
{
	const struct python_layout *l = &look->p->layout;

	tasks_watch(look, frame + l->frame.position);
	tasks_watch(look, object + (look->p->minor >= 11 ? l->generator.state & ~7u : l->generator.frame));
}

/* One step inwards. False: the chain ends here. */
static bool step(struct tasks_look *look, uint64_t *object, size_t *count, struct await_chain *ret)
{
	const struct python_type *type = python_type_of_object(look->p, *object);
	struct generator g;

	if (!type) {
		ret->torn = PYTHON_TORN;
		return false;
	}
	if (!has_frame(type)) {
		ret->end = *object;
		*object = inner(look->p, type, *object);
		return *object;
	}
	ret->end = 0;
	if (!read_generator(look->p, *object, &g) ||
		(g.progress != PROGRESS_ENDED && !add_link(look, g.frame, *count))) {
		ret->torn = PYTHON_UNREADABLE;
		return false;
	}
	ret->progress = g.progress;
	if (g.progress == PROGRESS_SUSPENDED && task_holds_in(look, g.frame, g.stack, g.top))
		ret->failed = true;
	if (g.progress == PROGRESS_ENDED || ret->failed)
		return false;
	++*count;
	watch_link(look, *object, g.frame);
	*object = awaited(look->p, type, &g);
	if (*object)
		tasks_watch(look, g.top - from_top(look->p));
	return *object;
}

int await_chain(struct tasks_look *look, uint64_t coroutine, struct await_chain *ret)
{
	uint64_t object = coroutine;
	size_t count = 0;

	*ret = (struct await_chain){.progress = PROGRESS_UNREADABLE, .torn = PYTHON_WHOLE};
	/* Wrappers take a step each and have no frame. */
	for (size_t steps = 0; step(look, &object, &count, ret); steps++)
		if (steps >= 2 * PYTHON_MOST_AWAITS || count >= PYTHON_MOST_AWAITS) {
			ret->torn = PYTHON_CUT;
			break;
		}
	return ret->failed ? -ENOMEM : add_frames(look, count, ret);
}
