/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Futures and tasks of asyncio: in C (_asyncio), or in Python.
 *
 * A task of _asyncio's is a future with more fields behind it:
 *
 *	_asyncio.Future   head | loop, callback0, context0, callbacks, ..., state (int), ... |
 *	_asyncio.Task     the same                                                          | waiter, coroutine, name, ...
 *
 * The order has not changed since 3.8, but what lies between has: LAYOUTS tells the builds apart by the sizes that the
 * two types say of themselves. Those in Python keep the same things as attributes.
 */
#include "python/tasks_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LAST_STATE 2u /* pending, cancelled, finished */
#define MOST_BASES 64u
#define MOST_CALLBACKS 65536u

/* Behind the object's head: loop, then callback0, context0 and callbacks. */
#define AT_LOOP 0u
#define AT_CALLBACK 8u
#define AT_CALLBACKS 24u

/* In bytes behind the object's head. Taken from objects of each version whose fields were known. */
static const struct {
	unsigned minor;
	uint32_t future_bytes, task_bytes;
	uint32_t state, waiter;
	uint32_t awaited_by, node; /* 0: none */
} layouts[] = {
	{8, 88, 128, 56, 88, 0, 0},
	{9, 128, 168, 64, 128, 0, 0},
	{10, 136, 176, 72, 136, 0, 0},
	{11, 112, 160, 72, 112, 0, 0},
	{12, 112, 160, 72, 112, 0, 0},
	{13, 88, 128, 80, 96, 0, 0},
	{14, 96, 152, 88, 104, 80, 136},
	{15, 96, 152, 88, 104, 80, 136},
};

/* ---- types ---- */

const struct python_type *python_base(struct python *p, const struct python_type *type)
{
	uint64_t base;

	return python_read_u64(p, type->address + p->layout.type.base, &base) ? python_type(p, base) : NULL;
}

static const struct python_type *derived_from(struct python *p, const struct python_type *type,
	const char *full_name)
{
	for (unsigned i = 0; type && i < MOST_BASES; i++) {
		if (!strcmp(type->full_name, full_name))
			return type;
		type = python_base(p, type);
	}
	return NULL;
}

bool python_derives(struct python *p, const struct python_type *type, const char *full_name)
{
	return derived_from(p, type, full_name);
}

int future_layout(struct tasks_look *look, const struct python_type *task)
{
	const struct python_type *future = python_base(look->p, task);
	uint32_t head = look->p->layout.object.bytes;

	for (size_t i = 0; future && i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		if (layouts[i].minor != look->p->minor ||
			future->basic_bytes != head + layouts[i].future_bytes ||
			task->basic_bytes != head + layouts[i].task_bytes)
			continue;
		look->layout = (struct future_layout){
			.known = true,
			.loop = head + AT_LOOP,
			.callback = head + AT_CALLBACK,
			.callbacks = head + AT_CALLBACKS,
			.state = head + layouts[i].state,
			.waiter = head + layouts[i].waiter,
			.coroutine = head + layouts[i].waiter + 8,
			.name = head + layouts[i].waiter + 16,
			.awaited_by = layouts[i].awaited_by ? head + layouts[i].awaited_by : 0,
			.node = layouts[i].node ? head + layouts[i].node : 0,
		};
		return 0;
	}
	return err_set(look->err, EOPNOTSUPP,
		"tasks of this build of CPython %s are laid out as in none that is known (_asyncio.Task has %"
		PRIu64 " bytes)",
		python_version_text(look->p), task->basic_bytes);
}

static bool c_future(struct tasks_look *look, const struct python_type *type, struct future *ret)
{
	uint32_t state;

	if (!look->layout.known || !python_read_u32(look->p, ret->address + look->layout.state, &state) ||
		state > LAST_STATE)
		return false;
	ret->c = true;
	ret->task = derived_from(look->p, type, "_asyncio.Task");
	ret->done = state;
	return true;
}

bool future_look(struct tasks_look *look, uint64_t object, struct future *ret)
{
	const struct python_type *type = python_type_of_object(look->p, object);
	uint64_t state;

	*ret = (struct future){.address = object};
	if (!type)
		return false;
	if (derived_from(look->p, type, "_asyncio.Future"))
		return c_future(look, type, ret);
	if (!python_attribute(look->p, object, "_loop") || !python_attribute(look->p, object, "_callbacks"))
		return false;
	/* As long as it is pending the class has its state. */
	state = python_attribute(look->p, object, "_state");
	ret->done = state && !python_text_equals(look->p, state, "PENDING", strlen("PENDING"));
	ret->task = python_attribute(look->p, object, "_coro");
	return true;
}

/* ---- fields ---- */

static uint64_t field(struct tasks_look *look, const struct future *f, uint32_t offset, const char *attribute)
{
	uint64_t value = 0;

	if (f->c && !python_read_u64(look->p, f->address + offset, &value))
		return 0;
	if (!f->c)
		value = python_attribute(look->p, f->address, attribute);
	return python_pointer_ok(value) && !python_is(look->p, value, "NoneType") ? value : 0;
}

uint64_t future_loop(struct tasks_look *look, const struct future *f)
{
	return field(look, f, look->layout.loop, "_loop");
}

uint64_t task_waiter(struct tasks_look *look, const struct future *f)
{
	return f->task ? field(look, f, look->layout.waiter, "_fut_waiter") : 0;
}

uint64_t task_coroutine(struct tasks_look *look, const struct future *f)
{
	return f->task ? field(look, f, look->layout.coroutine, "_coro") : 0;
}

#define MOST_NAME 200u

/* From 3.12 on a name that nobody has given is a number until somebody asks for it. */
void task_name(struct tasks_look *look, const struct future *f, struct buf *ret)
{
	uint64_t name = f->task ? field(look, f, look->layout.name, "_name") : 0;
	int64_t number;

	if (name && !python_text(look->p, name, MOST_NAME, ret, NULL) && python_int(look->p, name, &number))
		buf_printf(ret, "Task-%" PRId64, number);
}

/* ---- containers of futures ---- */

static bool each_in_set(struct python *p, uint64_t set, bool (*each)(void *ctx, uint64_t item), void *ctx)
{
	struct python_set_walk walk;
	uint64_t item;

	if (!python_set_begin(p, set, &walk))
		return false;
	while (python_set_next(p, &walk, &item))
		if (each(ctx, item))
			return true;
	return false;
}

struct through_weak {
	struct python *p;
	bool (*each)(void *ctx, uint64_t item);
	void *ctx;
};

/* PyWeakReference begins with what it refers to; None when that is gone. */
static bool follow_weak(void *ctx, uint64_t reference)
{
	struct through_weak *t = (struct through_weak *)ctx;
	uint64_t object;

	return python_read_u64(t->p, reference + t->p->layout.object.bytes, &object) &&
		python_pointer_ok(object) && !python_is(t->p, object, "NoneType") && t->each(t->ctx, object);
}

bool python_each_item(struct python *p, uint64_t object, bool (*each)(void *ctx, uint64_t item), void *ctx)
{
	const struct python_type *type = python_type_of_object(p, object);
	uint64_t count, first, item;

	if (!type)
		return false;
	if (!strcmp(type->full_name, "_weakrefset.WeakSet"))
		return each_in_set(p, python_attribute(p, object, "data"), follow_weak,
			&(struct through_weak){p, each, ctx});
	if (!strcmp(type->name, "set") || !strcmp(type->name, "frozenset"))
		return each_in_set(p, object, each, ctx);
	if (!python_items(p, object, &count, &first))
		return false;
	for (uint64_t i = 0; i < count && i < PYTHON_MOST_TASKS; i++)
		if (!python_read_u64(p, first + i * 8, &item) || (item && each(ctx, item)))
			return true;
	return false;
}

/* ---- callbacks ---- */

struct callbacks {
	struct python *p;
	bool (*each)(void *ctx, uint64_t callback);
	void *ctx;
	unsigned count;
};

/* An item of the list is (callback, context). */
static bool callback_of_pair(void *ctx, uint64_t pair)
{
	struct callbacks *c = (struct callbacks *)ctx;
	uint64_t count, first, callback;

	if (c->count++ >= MOST_CALLBACKS)
		return true;
	return python_items(c->p, pair, &count, &first) && count && python_read_u64(c->p, first, &callback) &&
		c->each(c->ctx, callback);
}

bool future_callbacks(struct tasks_look *look, const struct future *f,
	bool (*each)(void *ctx, uint64_t callback), void *ctx)
{
	struct callbacks c = {.p = look->p, .each = each, .ctx = ctx};
	uint64_t first = f->c ? field(look, f, look->layout.callback, "") : 0;
	uint64_t list = field(look, f, look->layout.callbacks, "_callbacks");

	return (first && each(ctx, first)) || (list && python_each_item(look->p, list, callback_of_pair, &c));
}

bool future_awaited_by(struct tasks_look *look, const struct future *f,
	bool (*each)(void *ctx, uint64_t task), void *ctx)
{
	uint64_t by;

	if (f->c && !look->layout.awaited_by)
		return false;
	/* Where it is one of Python's, this attribute is a set in 3.14, and is not there before. */
	by = field(look, f, look->layout.awaited_by, "_Future__asyncio_awaited_by");
	if (!by)
		return false;
	return python_is(look->p, by, "set") || python_is(look->p, by, "frozenset")
		? python_each_item(look->p, by, each, ctx)
		: each(ctx, by);
}
