/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs map themselves, as numbers of sites: a mapping is like a block, but may go piece by piece. Its bytes are
 * freed with each piece, and it is freed itself with the last one.
 *
 * None of it is in a sum over sites: an allocator of the program's may hand the same memory out once more.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "heap/model_priv.h"

/* ---- made and freed ---- */

void maps_free(struct maps *maps)
{
	if (!maps)
		return;
	vec_release(&maps->ranges);
	vec_release(&maps->mappings);
	free(maps);
}

static struct maps *maps_of(struct watched *p)
{
	if (!p->maps)
		p->maps = calloc(1, sizeof(*p->maps));
	return p->maps;
}

/* Number of a mapping that stands for nothing yet; UINT32_MAX: no memory. */
static uint32_t new_mapping(struct maps *maps)
{
	uint32_t number = maps->unused;

	if (number) {
		maps->unused = maps->mappings.data[number - 1].next;
		return number - 1;
	}
	if (maps->mappings.len >= RANGES_MOST || vec_push(&maps->mappings, (struct mapping){0}))
		return UINT32_MAX;
	return (uint32_t)maps->mappings.len - 1;
}

static void forget_mapping(struct maps *maps, uint32_t number)
{
	maps->mappings.data[number] = (struct mapping){.next = maps->unused};
	maps->unused = number + 1;
}

/* ---- what goes ---- */

/* The last piece of a mapping has gone, or (`sign` -1) has come back. */
static void count_gone(struct heap_model *m, struct site *s, const struct mapping *map, uint64_t time_ns, bool temporary, double sign)
{
	uint64_t lived_ns = time_ns > map->time_ns ? time_ns - map->time_ns : 0;

	s->freed += sign;
	s->lifetime_ns += sign * (double)lived_ns;
	if (!shape_add(&s->lifetimes, shape_bucket(lived_ns / NS_PER_US), sign))
		m->no_memory = true;
	if (!temporary)
		return;
	s->temporary += sign;
	s->temporary_bytes += sign * (double)map->bytes;
}

/* The pieces that a thread has unmapped last, out of the numbers of their sites or back into them. */
static void count_pieces(struct heap_model *m, const struct maps *maps, const struct thread *t, double sign)
{
	vec_each(&t->unmapped, piece) {
		struct mapping *map = &maps->mappings.data[piece->number];
		struct site *s = &m->sites[map->site];
		uint64_t bytes = piece->end - piece->start;
		bool temporary = map->tid == t->tid && t->unmapped_was_last == piece->number + 1;

		site_note_peak(m, s);
		s->freed_bytes += sign * (double)bytes;
		if (map->tid != t->tid)
			rare_of(m, s)->cross_freed_bytes += sign * (double)bytes;
		s->changed = s->reshaped = true;
		if (sign < 0 && !map->left)
			count_gone(m, s, map, t->unmapped_ns, temporary, sign);
		if (sign < 0 && !map->left && map->tid != t->tid)
			rare_of(m, s)->cross_freed--;
		map->left = sign > 0 ? map->left - bytes : map->left + bytes;
		if (sign > 0 && !map->left)
			count_gone(m, s, map, t->unmapped_ns, temporary, sign);
		if (sign > 0 && !map->left && map->tid != t->tid)
			rare_of(m, s)->cross_freed++;
	}
}

/* What a thread has unmapped last will not come back. */
static void settle(struct maps *maps, struct thread *t)
{
	vec_each(&t->unmapped, piece) {
		struct mapping *map = &maps->mappings.data[piece->number];

		/* Of several pieces of one mapping the first one forgets it. */
		if (!map->left && map->bytes)
			forget_mapping(maps, piece->number);
	}
	t->unmapped.len = 0;
}

static void unmapped(struct heap_model *m, struct maps *maps, struct thread *t, const struct heap_event *e)
{
	uint64_t end;

	settle(maps, t);
	if (__builtin_add_overflow(e->address, e->size, &end))
		return;
	if (ranges_cut(&maps->ranges, e->address, end, &t->unmapped)) {
		m->no_memory = true;
		return;
	}
	t->unmapped_ns = e->time_ns;
	t->unmapped_was_last = t->last_mapping;
	if (t->unmapped.len) {
		t->unmapped_kind = maps->mappings.data[t->unmapped.data[0].number].kind;
		t->last_mapping = 0;
	} else {
		t->unmapped_kind = SHARE_MAP_MEMORY;
	}
	count_pieces(m, maps, t, 1);
}

/* Where somebody else has been told to be meanwhile, which cannot be, they stay where they are. */
static void not_unmapped(struct heap_model *m, struct maps *maps, struct thread *t)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->unmapped.len; i++) {
		struct range *piece = &t->unmapped.data[i];

		if (!ranges_add(&maps->ranges, piece->start, piece->end, piece->number))
			t->unmapped.data[kept++] = *piece;
	}
	t->unmapped.len = kept;
	count_pieces(m, maps, t, -1);
	t->unmapped.len = 0;
	t->last_mapping = t->unmapped_was_last;
}

/* ---- what comes ---- */

static void mapped(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e, uint32_t stack,
	enum share_map kind)
{
	struct maps *maps = p->maps;
	uint32_t number;
	struct site *s;

	/* Whatever is there goes. */
	unmapped(m, maps, t, e);
	settle(maps, t);
	if (!e->size || e->address + e->size < e->address)
		return;
	s = site_of(m, p, e->tid, stack);
	number = new_mapping(maps);
	/* Sites that are put together with others are of blocks. */
	if (!s || s->stack != stack || number == UINT32_MAX ||
		ranges_add(&maps->ranges, e->address, e->address + e->size, number)) {
		if (number != UINT32_MAX)
			forget_mapping(maps, number);
		m->no_memory = true;
		return;
	}
	maps->mappings.data[number] = (struct mapping){.time_ns = e->time_ns, .bytes = e->size, .left = e->size,
		.site = (uint32_t)(s - m->sites), .tid = e->tid, .kind = (uint8_t)kind};
	t->last_mapping = number + 1;
	site_note_peak(m, s);
	s->mapped = true;
	s->allocated++;
	s->allocated_bytes += (double)e->size;
	s->samples++;
	s->changed = s->reshaped = true;
	if (!shape_add(&s->sizes, shape_bucket(e->size), 1))
		m->no_memory = true;
}

/* ---- events ---- */

static struct thread *thread_that(struct heap_model *m, struct watched *p, uint32_t tid)
{
	struct thread *t = thread_of(m, p, tid);

	if (!t || !maps_of(p)) {
		m->no_memory = true;
		return NULL;
	}
	return t;
}

enum share_map heap_model_unmapped_kind(struct heap_model *m, uint32_t process, uint32_t tid)
{
	struct watched *p = watched_of(m, process);
	struct thread *t = p ? thread_that(m, p, tid) : NULL;

	return t ? (enum share_map)t->unmapped_kind : SHARE_MAP_MEMORY;
}

void heap_model_mapped(struct heap_model *m, const struct heap_event *e, uint32_t stack, enum share_map kind)
{
	struct watched *p = watched_of(m, e->process);
	struct thread *t = p ? thread_that(m, p, e->tid) : NULL;

	if (!t)
		return;
	if (e->type == SHARE_MAP)
		mapped(m, p, t, e, stack, kind);
	else if (e->type == SHARE_UNMAP)
		unmapped(m, p->maps, t, e);
	else if (e->type == SHARE_UNMAP_FAILED)
		not_unmapped(m, p->maps, t);
}
