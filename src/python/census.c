/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walking the collector's lists:
 *
 *	head <-> object <-> object <-> ... <-> head
 *
 * A node is 16 bytes in front of its object: next and prev, whose lowest two bits have other uses. What was seen is
 * marked, so that an object is counted once also when it moves to an older list, which is walked later.
 */
#include "python/census.h"

#include <string.h>

#include "base/hash.h"
#include "python/census_priv.h"
#include "python/object_priv.h"

#define GENERATIONS 3u
#define POINTER_BITS (~3ULL)
/* Nodes that are remembered to go back to. */
#define TRAIL 64u
/* How often memory may be looked at anew for one list, and from its start. */
#define MOST_AGAIN 4000u
#define MOST_FROM_START 20u

struct node {
	uint64_t next, prev;
	uint64_t type;
};

struct walk {
	struct census *c;
	struct python *p;
	uint64_t head;
	bool backwards;
	uint64_t trail[TRAIL]; /* the last nodes, in a circle */
	uint64_t steps;        /* of which trail has the last ones */
	uint64_t again, from_start;
	uint64_t seen_again;
};

/* ---- rows ---- */

static struct census_type *slot_of(struct census *c, uint64_t type)
{
	size_t mask = c->type_slots - 1;

	for (size_t i = hash_u64(type) & mask;; i = (i + 1) & mask)
		if (!c->types[i].address || c->types[i].address == type)
			return &c->types[i];
}

static int more_types(struct census *c)
{
	struct census_type *old = c->types;
	size_t slots = c->type_slots;

	c->types = calloc(slots ? slots * 2 : 1024, sizeof(*c->types));
	if (!c->types) {
		c->types = old;
		return -ENOMEM;
	}
	c->type_slots = slots ? slots * 2 : 1024;
	for (size_t i = 0; i < slots; i++)
		if (old[i].address)
			*slot_of(c, old[i].address) = old[i];
	free(old);
	return 0;
}

static size_t row_of(struct census *c, const struct python_type *t)
{
	/* Classes of the same name are one row; names are interned. */
	for (size_t i = c->ret->rows.len; i-- > 0;)
		if (c->ret->rows.data[i].name == t->full_name)
			return i;
	if (vec_push(&c->ret->rows, (struct python_census_row){.name = t->full_name}))
		return SIZE_MAX;
	return c->ret->rows.len - 1;
}

struct census_type *census_type(struct census *c, uint64_t type)
{
	const struct python_type *t;
	struct census_type *slot;

	if (c->type_count * 2 >= c->type_slots && more_types(c))
		return NULL;
	slot = slot_of(c, type);
	if (slot->address)
		return slot->type ? slot : NULL;
	t = python_type(c->p, type);
	if (!t)
		return NULL;
	*slot = (struct census_type){.address = type, .type = t, .row = row_of(c, t)};
	if (slot->row == SIZE_MAX) {
		*slot = (struct census_type){0};
		return NULL;
	}
	c->type_count++;
	return slot;
}

/* ---- one step ---- */

static bool read_node(struct walk *w, uint64_t at, struct node *ret)
{
	const struct python_layout *l = &w->p->layout;
	uint64_t words[8];
	uint32_t type = l->gc_head.bytes + l->object.type;

	if ((at != w->head && !python_pointer_ok(at)) || type + 8 > sizeof(words) ||
		!python_read(w->p, at, words, at == w->head ? 16 : type + 8))
		return false;
	*ret = (struct node){.next = words[0] & POINTER_BITS, .prev = words[1] & POINTER_BITS};
	if (at != w->head)
		ret->type = words[type / 8];
	return true;
}

static uint64_t onward(const struct walk *w, const struct node *n)
{
	return w->backwards ? n->prev : n->next;
}

static uint64_t back(const struct walk *w, const struct node *n)
{
	return w->backwards ? n->next : n->prev;
}

static int count(struct walk *w, uint64_t at, const struct node *n)
{
	struct python_census *ret = w->c->ret;
	uint64_t object = at + w->p->layout.gc_head.bytes;
	struct census_type *t = census_type(w->c, n->type);
	int added;

	if (!t) {
		ret->lost++;
		return 0;
	}
	added = marks_add(&ret->objects_at, object);
	if (added > 0) {
		uint64_t bytes = python_object_bytes(w->p, object, t->type);

		ret->rows.data[t->row].objects++;
		ret->rows.data[t->row].bytes += bytes;
		ret->objects++;
		ret->bytes += bytes;
	}
	w->seen_again += !added;
	return added < 0 ? added : 0;
}

/*
 * The last node of the trail that is still linked with the one before it; the head when there is none left.
 * False: it has been tried too often.
 */
static bool resume(struct walk *w, uint64_t *ret_at)
{
	uint64_t known = w->steps < TRAIL ? w->steps : TRAIL;

	if (++w->again > MOST_AGAIN)
		return false;
	w->c->ret->again++;
	python_refresh(w->p);
	for (uint64_t k = 1; k < known; k++) {
		uint64_t at = w->trail[(w->steps - k) % TRAIL], before = w->trail[(w->steps - k - 1) % TRAIL];
		struct node n, m;

		if (!read_node(w, at, &n) || !read_node(w, before, &m) || back(w, &n) != before ||
			onward(w, &m) != at)
			continue;
		w->steps -= k - 1;
		*ret_at = at;
		return true;
	}
	if (++w->from_start > MOST_FROM_START)
		return false;
	w->steps = 0;
	*ret_at = w->head;
	return true;
}

static bool is_cut(struct walk *w)
{
	w->c->ret->cut |= w->c->ret->objects >= w->c->most;
	return w->c->ret->cut;
}

/* 1: to the end; 0: it could not be followed; -ENOMEM. */
static int walk(struct walk *w)
{
	uint64_t at = w->head, stuck_at = 0;
	struct node n;

	if (!read_node(w, at, &n))
		return 0;
	while (!is_cut(w)) {
		uint64_t next = onward(w, &n);
		struct node m;
		int rc;

		w->trail[w->steps++ % TRAIL] = at;
		if (read_node(w, next, &m) && back(w, &m) == at) {
			if (next == w->head)
				return 1;
			rc = count(w, next, &m);
			/* A circle beside the head cannot be entered by links that agree, but memory may lie. */
			if (rc || w->seen_again > w->c->ret->objects + 1024)
				return rc;
			at = next;
			n = m;
			continue;
		}
		/* Twice at the same place: it does not change, it is so. */
		if (stuck_at == next)
			return 0;
		stuck_at = next;
		if (!resume(w, &at) || !read_node(w, at, &n))
			return 0;
	}
	return 1;
}

static int walk_list(struct census *c, uint64_t head)
{
	struct walk w = {.c = c, .p = c->p, .head = head};
	int rc = walk(&w);

	if (rc)
		return rc < 0 ? rc : 0;
	w = (struct walk){.c = c, .p = c->p, .head = head, .backwards = true, .again = w.again};
	rc = walk(&w);
	c->ret->gaps++;
	return rc < 0 ? rc : 0;
}

/* ---- all lists ---- */

/* Debian builds 3.13 with heads that are aligned to 4 bytes: where they follow an int, they stand so much earlier. */
#define PACKED_EARLIER 4u

static bool is_head(struct census *c, uint64_t head)
{
	struct walk w = {.c = c, .p = c->p, .head = head};
	struct node n, first;

	return read_node(&w, head, &n) && read_node(&w, n.next, &first) && first.prev == head;
}

/* The head of a list at `at`, or a little before. The first one is believed where neither is for certain. */
static uint64_t head_at(struct census *c, uint64_t at)
{
	return !is_head(c, at) && is_head(c, at - PACKED_EARLIER) ? at - PACKED_EARLIER : at;
}

static int walk_collector(struct census *c, uint64_t gc, struct err *err)
{
	const struct python_layout *l = &c->p->layout;
	uint32_t collecting;
	uint64_t before;
	int rc = 0;

	if (!python_read_u32(c->p, gc + l->gc.collecting, &collecting))
		return err_set(err, EFAULT, "the state of the collector cannot be read");
	if (collecting)
		return err_set(err, EAGAIN, "the collector is at work just now: its lists are taken apart");
	/* Objects only move to older lists, which come later. */
	for (unsigned i = 0; i < GENERATIONS && !rc; i++)
		rc = walk_list(c, head_at(c, gc + l->gc.generations + i * l->gc.generation_bytes));
	before = c->ret->objects;
	if (!rc)
		rc = walk_list(c, head_at(c, gc + l->gc.permanent));
	c->ret->frozen += c->ret->objects - before;
	return rc ? err_nomem(err) : 0;
}

static int walk_all(struct census *c, struct err *err)
{
	const struct python_layout *l = &c->p->layout;
	struct python_addresses interpreters = {0};
	int rc = python_interpreters(c->p, &interpreters);

	if (rc == -ENOMEM) {
		err_nomem(err);
	} else if (!interpreters.len) {
		rc = err_set(err, EFAULT, "the interpreters cannot be read");
	} else if (l->runtime.gc != PYTHON_ABSENT) {
		rc = walk_collector(c, c->p->place.runtime + l->runtime.gc, err);
	} else {
		rc = 0;
		for (size_t i = 0; i < interpreters.len && !rc; i++)
			rc = walk_collector(c, interpreters.data[i] + l->interpreter.gc, err);
	}
	c->ret->interpreters = interpreters.len;
	vec_release(&interpreters);
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	const struct python_census_row *x = a, *y = b;
	uint64_t p = x->bytes + x->loose_bytes, q = y->bytes + y->loose_bytes;

	return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

int python_census(struct python *p, const struct python_census_options *options, struct python_census *ret,
	struct err *err)
{
	struct census c = {.p = p, .ret = ret, .most = options->most_objects};
	int rc;

	if (p->layout.gc_head.bytes == PYTHON_ABSENT)
		return err_set(err, EOPNOTSUPP,
			"CPython %s keeps no lists of its objects: a free-threaded build looks for them in its "
			"allocator instead, which is not read here", python_version_text(p));
	if (!c.most)
		c.most = PYTHON_CENSUS_MOST;
	python_refresh(p);
	rc = walk_all(&c, err);
	if (!rc && options->loose && census_loose(&c))
		rc = err_nomem(err);
	if (ret->rows.len)
		qsort(ret->rows.data, ret->rows.len, sizeof(*ret->rows.data), by_bytes);
	free(c.types);
	return rc;
}

void python_census_release(struct python_census *c)
{
	vec_release(&c->rows);
	marks_release(&c->objects_at);
	*c = (struct python_census){0};
}

/* ---- growth ---- */

static int by_growth(const void *a, const void *b)
{
	const struct python_growth *x = a, *y = b;

	if (x->bytes != y->bytes)
		return (x->bytes < y->bytes) - (x->bytes > y->bytes);
	return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct python_census_row *const *)a)->name,
		(*(const struct python_census_row *const *)b)->name);
}

static int sorted_by_name(const struct python_census *c, const struct python_census_row ***ret)
{
	const struct python_census_row **rows = calloc(c->rows.len + 1, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < c->rows.len; i++)
		rows[i] = &c->rows.data[i];
	qsort(rows, c->rows.len, sizeof(*rows), by_name);
	*ret = rows;
	return 0;
}

static int add_growth(const struct python_census_row *was, const struct python_census_row *is, bool loose,
	struct python_growths *ret)
{
	static const struct python_census_row none;
	struct python_growth g = {.name = is ? is->name : was->name};

	was = was ? was : &none;
	is = is ? is : &none;
	g.now = is->objects + (loose ? is->loose : 0);
	g.now_bytes = is->bytes + (loose ? is->loose_bytes : 0);
	g.objects = (int64_t)(g.now - was->objects - (loose ? was->loose : 0));
	g.bytes = (int64_t)(g.now_bytes - was->bytes - (loose ? was->loose_bytes : 0));
	return g.objects || g.bytes ? vec_push(ret, g) : 0;
}

int python_census_growth(const struct python_census *earlier, const struct python_census *later,
	struct python_growths *ret)
{
	const struct python_census_row **was, **is;
	bool loose = earlier->loose && later->loose;
	size_t i = 0, k = 0;
	int rc = 0;

	if (sorted_by_name(earlier, &was))
		return -ENOMEM;
	if (sorted_by_name(later, &is)) {
		free(was);
		return -ENOMEM;
	}
	/* Both end in a NULL. */
	while (!rc && (was[i] || is[k])) {
		int order = !was[i] ? 1 : !is[k] ? -1 : strcmp(was[i]->name, is[k]->name);

		rc = add_growth(order <= 0 ? was[i] : NULL, order >= 0 ? is[k] : NULL, loose, ret);
		i += order <= 0;
		k += order >= 0;
	}
	if (ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), by_growth);
	free(was);
	free(is);
	return rc;
}
