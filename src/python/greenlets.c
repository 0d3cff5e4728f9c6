/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is looked for in a greenlet (of greenlet 1) or behind its last pointer (of 2 and later):
 *
 *	stack_start, stack_stop, stack_copy, stack_saved   where its C stack lies, and what of it was moved to the heap
 *	...
 *	top_frame                                          a frame object, while it is switched out
 *
 * From 3.12 on frames of Python lead through frames that the interpreter keeps on the C stack (shims). Of
 * a greenlet that is switched out another's bytes lie there now, and its own in the copy: these are read instead.
 */
#include "python/greenlets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "python/census.h"
#include "python/object_priv.h"

#define MOST_WORDS 48u   /* of a greenlet, that are looked at */
#define LAST_STACK 16u   /* the stack's bounds are before this word */
#define BEGUN 1u         /* for the start of the stack of one that was never switched out yet */
#define LEAST_BYTES 64u  /* of greenlet 1's struct; later ones only have a pointer in theirs */
#define MOST_SAVED (64ULL << 20)
#define MOST_STACK (1ULL << 30)
#define MOST_FRAMES 16384u
#define MOST_BASES 64u
#define TYPE_SLOTS 1024u

/* The part of a C stack that was copied. */
struct moved {
	uint64_t start, bytes, copy;
};

struct greenlets_look {
	struct python *p;
	const struct python_threads *threads;
	struct python_greenlets *ret;
	struct python_link *links;
	/* Types by address: whether they are greenlets. */
	struct {
		uint64_t type;
		bool is;
	} types[TYPE_SLOTS];
	bool failed;
};

/* The type greenlet.greenlet, from which this one derives; NULL: it does not. */
static const struct python_type *greenlet_type(struct python *p, const struct python_type *t)
{
	for (unsigned i = 0; t && i < MOST_BASES; i++) {
		uint64_t base;

		if (!strcmp(t->name, "greenlet.greenlet"))
			return t;
		t = python_read_u64(p, t->address + p->layout.type.base, &base) ? python_type(p, base) : NULL;
	}
	return NULL;
}

static bool is_greenlet(struct greenlets_look *look, uint64_t object)
{
	uint64_t type = python_type_of(look->p, object), slot = type >> 4 & (TYPE_SLOTS - 1);

	if (!type)
		return false;
	if (look->types[slot].type != type) {
		look->types[slot].type = type;
		look->types[slot].is = greenlet_type(look->p, python_type(look->p, type));
	}
	return look->types[slot].is;
}

/* ---- its parts ---- */

/* What a greenlet points to last is of C++, with its virtual table first, and knows it. */
static bool points_back(const uint64_t *words, size_t count, uint64_t object)
{
	bool found = false;

	for (size_t i = 1; i < count; i++)
		found |= words[i] == object;
	return found && python_pointer_ok(words[0]);
}

/* The words that are looked through; how many. */
static size_t read_words(struct greenlets_look *look, const struct python_type *type, uint64_t object,
	uint64_t *words)
{
	struct python *p = look->p;
	const struct python_type *base = greenlet_type(p, type);
	uint64_t parts;

	if (!base)
		return 0;
	if (base->basic_bytes > LEAST_BYTES) {
		size_t count = base->basic_bytes / 8 < MOST_WORDS ? base->basic_bytes / 8 : MOST_WORDS;

		return python_read(p, object, words, count * 8) ? count : 0;
	}
	if (!python_read_u64(p, object + base->basic_bytes - 8, &parts) || !python_pointer_ok(parts))
		return 0;
	for (size_t count = MOST_WORDS; count > 16; count -= 8)
		if (python_read(p, parts, words, count * 8))
			return points_back(words, count, object) ? count : 0;
	return 0;
}

/* Whether four words can be the bounds of a stack, and what was copied of it: where to, and how much. */
static bool is_stack(struct python *p, const uint64_t *words)
{
	uint64_t start = words[0], stop = words[1], copy = words[2], saved = words[3], some;

	if ((!python_pointer_ok(start) && start != BEGUN) || stop <= start || saved > stop - start || saved > MOST_SAVED ||
		saved % 8 || !saved != !copy)
		return false;
	/* The main greenlet's stack has no end: all bits set. */
	if (stop != UINT64_MAX && (stop - start > MOST_STACK || !python_pointer_ok(stop & ~7ULL)))
		return false;
	return saved ? python_read_u64(p, copy, &some) : start == BEGUN || !python_type_of_object(p, start);
}

/* Its index; 0: there is none. Where all of it still lies in its place these are less distinct, so that a copy is looked for first. */
static size_t find_stack(struct python *p, const uint64_t *words, size_t count, struct moved *ret)
{
	for (unsigned copied = 2; copied-- > 0;)
		for (size_t i = 2; i + 3 < count && i < LAST_STACK; i++) {
			if ((words[i + 3] != 0) != (copied != 0) || !is_stack(p, words + i))
				continue;
			*ret = (struct moved){words[i], words[i + 3], words[i + 2]};
			return i;
		}
	return 0;
}

/* Behind the stack come the greenlet whose stack is below, the context (2 and later) or the parent and what is to
 * run (1), and then the frame. What is further behind may be another object's already. */
static uint64_t find_frame(struct python *p, const uint64_t *words, size_t count, size_t stack)
{
	for (size_t i = stack + 6; i <= stack + 7 && i < count; i++)
		if (python_pointer_ok(words[i]) && python_is(p, words[i], "frame"))
			return words[i];
	return 0;
}

/* ---- its frames ---- */

static bool read_moved(struct python *p, const struct moved *moved, uint64_t addr, uint64_t *ret)
{
	if (addr >= moved->start && addr - moved->start + 8 <= moved->bytes)
		addr = moved->copy + (addr - moved->start);
	return python_read_u64(p, addr, ret);
}

/* As python_chain_read_from(), with what was moved where it was. */
static void read_chain(struct greenlets_look *look, uint64_t frame, const struct moved *moved,
	struct python_chain *ret)
{
	const struct python_chain_layout *c = python_chain_layout(look->p);
	struct python *p = look->p;

	while (frame) {
		struct python_link *link = &ret->links[ret->count];

		if (ret->count == ret->limit) {
			ret->torn = PYTHON_CUT;
			return;
		}
		link->at = frame;
		if (!python_pointer_ok(frame) || !read_moved(p, moved, frame + c->code, &link->code) ||
			!read_moved(p, moved, frame + c->position, &link->position) ||
			!read_moved(p, moved, frame + c->marks, &link->marks) ||
			!read_moved(p, moved, frame + c->previous, &frame)) {
			ret->torn = PYTHON_UNREADABLE;
			return;
		}
		ret->count++;
	}
}

/* The stack that holds the address: the C library keeps the struct of a thread above its stack. */
static uint64_t thread_of(const struct greenlets_look *look, uint64_t address)
{
	const struct python_thread *best = NULL, *main = NULL;

	vec_each(look->threads, t) {
		if (t->main && !main)
			main = t;
		if (t->pthread > address && t->pthread - address < MOST_STACK &&
			(!best || t->pthread < best->pthread) && !(t->main && t->interpreter_id == 0))
			best = t;
	}
	/* That of the main thread is elsewhere, and its stack above all others. */
	return best ? best->address : main ? main->address : 0;
}

static int add(struct greenlets_look *look, const struct python_type *type, uint64_t object, uint64_t frame,
	const struct moved *moved)
{
	struct python_greenlets *ret = look->ret;
	struct python_chain chain = {.links = look->links, .limit = MOST_FRAMES};
	struct python_greenlet g = {
		.address = object,
		.type = type,
		.thread = thread_of(look, moved->start),
		.first_frame = ret->frames.len,
	};

	if (look->p->minor >= 11 &&
		!python_read_u64(look->p, frame + look->p->layout.frame_object.frame, &frame))
		frame = 0;
	read_chain(look, frame, moved, &chain);
	if (python_frames(look->p, &chain, &ret->frames))
		return -ENOMEM;
	g.frame_count = ret->frames.len - g.first_frame;
	g.torn = chain.torn;
	return vec_push(&ret->greenlets, g);
}

static bool look_at(void *ctx, uint64_t object)
{
	struct greenlets_look *look = (struct greenlets_look *)ctx;
	uint64_t words[MOST_WORDS], frame;
	const struct python_type *type;
	struct moved moved;
	size_t count, stack;

	if (!is_greenlet(look, object))
		return false;
	type = python_type_of_object(look->p, object);
	count = type ? read_words(look, type, object, words) : 0;
	stack = find_stack(look->p, words, count, &moved);
	frame = stack ? find_frame(look->p, words, count, stack) : 0;
	if (!count)
		look->ret->unknown++;
	else if (!frame)
		look->ret->others++;
	else if (add(look, type, object, frame, &moved))
		look->failed = true;
	return look->failed;
}

/* ---- all of them ---- */

static bool is_imported(struct python *p, const struct python_threads *threads)
{
	uint64_t last = 0;

	vec_each(threads, t) {
		if (t->interpreter != last && python_module(p, t->interpreter, "greenlet"))
			return true;
		last = t->interpreter;
	}
	return false;
}

static int by_address(const void *a, const void *b)
{
	const struct python_greenlet *x = (const struct python_greenlet *)a, *y = (const struct python_greenlet *)b;

	return (x->address > y->address) - (x->address < y->address);
}

static struct greenlets_look *begin(struct python *p, const struct python_threads *threads,
	struct python_greenlets *ret)
{
	struct greenlets_look *look = (struct greenlets_look *)calloc(1, sizeof(*look));

	if (!look)
		return NULL;
	look->links = (struct python_link *)calloc(MOST_FRAMES, sizeof(*look->links));
	look->p = p;
	look->threads = threads;
	look->ret = ret;
	if (look->links)
		return look;
	free(look);
	return NULL;
}

static void end(struct greenlets_look *look)
{
	free(look->links);
	free(look);
}

int python_greenlet(struct python *p, const struct python_threads *threads, uint64_t object,
	struct python_greenlets *ret)
{
	struct greenlets_look *look;
	int rc;

	if (!greenlet_type(p, python_type_of_object(p, object)))
		return 0;
	look = begin(p, threads, ret);
	if (!look)
		return -ENOMEM;
	rc = look_at(look, object) ? -ENOMEM : 0;
	end(look);
	return rc;
}

int python_greenlets(struct python *p, const struct python_threads *threads, struct python_greenlets *ret,
	struct err *err)
{
	struct python_census census = {0};
	struct greenlets_look *look;
	int rc;

	ret->imported = is_imported(p, threads);
	if (!ret->imported)
		return 0;
	look = begin(p, threads, ret);
	if (!look)
		return err_nomem(err);
	rc = python_census(p, &(struct python_census_options){0}, &census, err);
	if (!rc && marks_each(&census.objects_at, look_at, look))
		rc = err_nomem(err);
	ret->gaps = census.gaps;
	if (ret->greenlets.len)
		qsort(ret->greenlets.data, ret->greenlets.len, sizeof(*ret->greenlets.data), by_address);
	python_census_release(&census);
	end(look);
	return rc;
}

void python_greenlets_release(struct python_greenlets *g)
{
	vec_release(&g->greenlets);
	vec_release(&g->frames);
	*g = (struct python_greenlets){0};
}
