/* SPDX-License-Identifier: BSD-2-Clause */
/* What Python's threads and objects are called, by whoever refers to them. */
#include <string.h>

#include "base/buf.h"
#include "python/layout.h"
#include "python/locals.h"
#include "python/object.h"
#include "wait/pythons_priv.h"

/* A program's own frames that want a lock are behind few of the library's. */
#define MOST_NAMING_FRAMES 6u
#define MOST_NAME 64u
#define MOST_LOCALS 32u
#define MOST_ATTRIBUTES 512u
#define MOST_GLOBALS 65536u
#define MOST_NAMES 512u /* in one function's code */

/* ---- threads ---- */

struct threads_walk {
	struct python *python;
	bool (*each)(void *ctx, uint64_t ident, uint64_t object);
	void *ctx;
	unsigned count;
};

static bool each_active(void *ctx, uint64_t key, uint64_t value)
{
	struct threads_walk *w = ctx;
	int64_t ident;

	return ++w->count > PYTHON_MOST_THREADS ||
		(python_int(w->python, key, &ident) && w->each(w->ctx, (uint64_t)ident, value));
}

bool look_thread_objects(struct python_look *look, bool (*each)(void *ctx, uint64_t ident, uint64_t object),
	void *ctx)
{
	struct threads_walk w = {.python = look->python, .each = each, .ctx = ctx};
	uint64_t last = 0;

	vec_each(&look->threads, t) {
		uint64_t module;

		if (t->thread.interpreter == last)
			continue;
		last = t->thread.interpreter;
		module = python_module(look->python, last, "threading");
		if (module && python_dict_each(look->python, python_global(look->python, module, "_active"),
				      each_active, &w))
			return true;
	}
	return false;
}

struct name_search {
	struct python *python;
	uint64_t pthread;
	char *buf;
	size_t size;
};

static bool take_text(struct python *python, uint64_t str, char *buf, size_t size)
{
	struct buf text = {0};
	bool is = python_text(python, str, MOST_NAME, &text, NULL) && text.len && !text.failed;

	if (is)
		wait_say(buf, size, "%s", text.data);
	buf_release(&text);
	return is;
}

static bool is_thread(void *ctx, uint64_t ident, uint64_t object)
{
	struct name_search *s = ctx;

	return ident == s->pthread &&
		take_text(s->python, python_attribute(s->python, object, "_name"), s->buf, s->size);
}

bool look_thread_name(struct python_look *look, pid_t tid, char *buf, size_t size)
{
	struct name_search s = {look->python, 0, buf, size};

	vec_each(&look->threads, t)
		if (t->tid == tid)
			s.pthread = t->thread.pthread;
	return s.pthread && look_thread_objects(look, is_thread, &s);
}

/* ---- objects ---- */

/* How something refers to the object that is looked for. */
struct search {
	struct python_look *look;
	const struct python_frame *frame;
	uint64_t object;
	uint64_t globals;
	bool mentioned;          /* only by a name that is in the function's code */
	const char *owner;       /* of an attribute: its type, "Cache" */
	unsigned locals, attributes;
	char *buf;
	size_t size;
};

/* Whether the code uses a name: of a global, or of an attribute. */
static bool is_used(const struct search *s, uint64_t name)
{
	struct python *p = s->look->python;
	uint64_t names, first, count, at;

	if (!python_read_u64(p, s->frame->code->address + python_layout(p)->code.names, &names) ||
		!python_items(p, names, &count, &first))
		return false;
	/* They are interned: the same text is the same object. */
	for (uint64_t i = 0; i < count && i < MOST_NAMES; i++)
		if (python_read_u64(p, first + i * 8, &at) && at == name)
			return true;
	return false;
}

/* "app" of a module, "python_hangs" of the one that was started. */
static void module_name(struct search *s, char *buf, size_t size)
{
	struct python *p = s->look->python;
	const char *file = s->frame->code->file, *slash = strrchr(file, '/');
	const char *dot;

	if (take_text(p, python_dict_get(p, s->globals, "__name__"), buf, size) && strcmp(buf, "__main__") != 0)
		return;
	file = slash ? slash + 1 : file;
	dot = strrchr(file, '.');
	wait_say(buf, size, "%.*s", dot ? (int)(dot - file) : (int)strlen(file), file);
}

static bool is_global(void *ctx, uint64_t key, uint64_t value)
{
	struct search *s = ctx;
	char module[MOST_NAME * 2], name[MOST_NAME * 4];

	if (++s->attributes > MOST_GLOBALS)
		return true;
	if (value != s->object || (s->mentioned && !is_used(s, key)) ||
		!take_text(s->look->python, key, name, sizeof(name)))
		return false;
	module_name(s, module, sizeof(module));
	wait_say(s->buf, s->size, "%s.%s", module, name);
	return true;
}

static bool is_attribute(void *ctx, uint64_t key, uint64_t value)
{
	struct search *s = ctx;
	char name[MOST_NAME * 4];

	if (++s->attributes > MOST_ATTRIBUTES)
		return true;
	if (value != s->object || (s->mentioned && !is_used(s, key)) ||
		!take_text(s->look->python, key, name, sizeof(name)))
		return false;
	wait_say(s->buf, s->size, "%s.%s", s->owner, name);
	return true;
}

/* Whether an attribute of the instance is it. Modules have the globals of others. */
static bool has_attribute(struct search *s, uint64_t instance)
{
	const struct python_type *type = python_type_of_object(s->look->python, instance);

	if (!type || !type->heap || !instance)
		return false;
	s->owner = type->name;
	s->attributes = 0;
	*s->buf = 0;
	return python_attributes_each(s->look->python, instance, is_attribute, s) && *s->buf;
}

static bool is_local_attribute(void *ctx, const struct python_local *local)
{
	struct search *s = ctx;

	return ++s->locals > MOST_LOCALS || has_attribute(s, local->value);
}

static bool is_local(void *ctx, const struct python_local *local)
{
	struct search *s = ctx;
	const char *dot;

	if (local->value != s->object)
		return false;
	dot = strrchr(s->frame->code->name, '.');
	wait_say(s->buf, s->size, "%s in %s()", local->name, dot ? dot + 1 : s->frame->code->name);
	return true;
}

/* An attribute of what a global of that name is: "cache.lock", where `cache` is used in the function. */
static bool is_global_attribute(void *ctx, uint64_t key, uint64_t value)
{
	struct search *s = ctx;
	unsigned seen = s->locals;

	if (++s->locals > MOST_GLOBALS)
		return true;
	if (!is_used(s, key))
		return false;
	if (python_is(s->look->python, value, "module") || !has_attribute(s, value)) {
		s->locals = seen + 1;
		return false;
	}
	return true;
}

static bool refers(struct search *s)
{
	struct python *p = s->look->python;

	*s->buf = 0;
	s->attributes = s->locals = 0;
	if (!python_read_u64(p, s->frame->at + python_layout(p)->frame.globals, &s->globals))
		s->globals = 0;
	if (s->globals && python_dict_each(p, s->globals, is_global, s) && *s->buf)
		return true;
	s->locals = 0;
	if (python_locals_each(p, s->frame, is_local_attribute, s) && *s->buf)
		return true;
	s->locals = 0;
	if (s->globals && python_dict_each(p, s->globals, is_global_attribute, s) && *s->buf)
		return true;
	return python_locals_each(p, s->frame, is_local, s);
}

bool look_name_in(struct python_look *look, const struct python_frame *frame, uint64_t object, char *buf, size_t size)
{
	struct search s = {.look = look, .frame = frame, .object = object, .buf = buf, .size = size};

	return refers(&s);
}

static void remember(struct python_look *look, uint64_t object, const char *name)
{
	struct buf text = {0};

	buf_str(&text, name);
	(void)vec_push(&look->names, (struct object_name){object, look_keep(look, &text)});
}

bool look_object_name(struct python_look *look, pid_t tid, size_t from, uint64_t object, char *buf, size_t size)
{
	const struct python_frames *frames = look_frames(look, tid);

	vec_each(&look->names, known) {
		if (known->object != object || !*known->name)
			continue;
		wait_say(buf, size, "%s", known->name);
		return true;
	}
	for (size_t i = from; i < frames->len && i < from + MOST_NAMING_FRAMES; i++) {
		if (!look_name_in(look, &frames->data[i], object, buf, size))
			continue;
		remember(look, object, buf);
		return true;
	}
	*buf = 0;
	return false;
}

bool look_mentions(struct python_look *look, const struct python_frame *frame, uint64_t object)
{
	char name[MOST_NAME * 4];
	struct search s = {.look = look, .frame = frame, .object = object, .buf = name, .size = sizeof(name),
		.mentioned = true};

	return refers(&s);
}
