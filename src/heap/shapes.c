/* SPDX-License-Identifier: BSD-2-Clause */
/* How sizes, lifetimes and ages are distributed: most sites have few buckets, so only those between the first and last are kept. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "heap/model_priv.h"

static void read_counts(const struct shape *s, double counts[HEAP_BUCKETS])
{
	for (uint32_t i = 0; i < s->buckets; i++)
		counts[s->first + i] = s->outside ? shape_outside(s)[i] : s->inside[i];
}

/* Whole numbers that are few enough stay in their place. */
static bool fits_inside(const struct shape *s, uint32_t buckets, double count)
{
	return !s->outside && buckets <= SHAPE_INSIDE && count == 1;
}

bool shape_add_slowly(struct shape *s, uint32_t bucket, double count)
{
	uint32_t first = s->buckets && s->first < bucket ? s->first : bucket;
	uint32_t end = s->buckets && s->first + s->buckets > bucket + 1 ? s->first + s->buckets : bucket + 1;
	double counts[HEAP_BUCKETS] = {0}, *to;

	read_counts(s, counts);
	counts[bucket] += count;
	if (fits_inside(s, end - first, count) && counts[bucket] <= UINT32_MAX) {
		for (uint32_t i = first; i < end; i++)
			s->inside[i - first] = (uint32_t)counts[i];
	} else {
		to = s->outside ? shape_outside(s) : NULL;
		if (!to || end - first > s->buckets)
			to = realloc(to, (end - first) * sizeof(*to));
		if (!to)
			return false;
		memcpy(to, counts + first, (end - first) * sizeof(*to));
		memcpy(s->inside, &to, sizeof(to));
		s->outside = true;
	}
	s->first = (uint8_t)first;
	s->buckets = (uint8_t)(end - first);
	return true;
}

void shape_write(struct capture_writer *w, uint64_t time_ns, uint32_t site, enum heap_shape kind, const struct shape *s)
{
	struct record_heap_shape record = {.time_ns = time_ns, .site = site, .kind = kind};
	double counts[HEAP_BUCKETS] = {0};

	read_counts(s, counts);
	capture_heap_shape(w, &record, counts);
}

struct live_shapes {
	struct shape sizes, ages, bytes, unused;
};

static bool add_block(const struct heap_model *m, const struct watched *p, const struct live_block *b, uint64_t time_ns, struct live_shapes *s)
{
	struct weight w = block_weight(m, b);
	uint32_t age = shape_bucket((time_ns > b->time_ns ? time_ns - b->time_ns : 0) / NS_PER_US);

	uint64_t usable = p->sizes ? usable_of(p, b->size, b->address) : 0;

	return shape_add(&s->sizes, shape_bucket(b->size), w.count) && shape_add(&s->ages, age, w.count) &&
		shape_add(&s->bytes, age, w.bytes) &&
		(usable <= b->size || shape_add(&s->unused, shape_bucket(b->size), w.count * (double)(usable - b->size)));
}

static void write_live(const struct watched *p, struct capture_writer *w, uint64_t time_ns, uint32_t site, const struct live_shapes *s)
{
	shape_write(w, time_ns, site, HEAP_LIVE_SIZES, &s->sizes);
	shape_write(w, time_ns, site, HEAP_AGES, &s->ages);
	shape_write(w, time_ns, site, HEAP_LIVE_BYTES_BY_AGE, &s->bytes);
	if (p->sizes)
		shape_write(w, time_ns, site, HEAP_USABLE, &s->unused);
}

/* Numbers the sites of a process, for an array of them. Returns how many there are. */
static uint32_t number_sites(struct heap_model *m, const struct watched *p)
{
	uint32_t count = 0;

	for (uint32_t id = p->first_site; id != NO_SITE; id = m->sites[id].next)
		m->sites[id].at = count++;
	return count;
}

static bool add_blocks(const struct heap_model *m, const struct watched *p, uint64_t time_ns, struct live_shapes *shapes)
{
	struct live_walk walk = {0};
	struct live_block b;

	while (live_next(&p->live, &walk, &b)) {
		const struct site *s = &m->sites[b.site];

		if (s->process == p->number && !add_block(m, p, &b, time_ns, &shapes[s->at]))
			return false;
	}
	return true;
}

static bool add_mappings(const struct heap_model *m, const struct watched *p, uint64_t time_ns, struct live_shapes *shapes)
{
	for (size_t i = 0; p->maps && i < p->maps->mappings.len; i++) {
		const struct mapping *map = &p->maps->mappings.data[i];
		uint32_t age = shape_bucket((time_ns > map->time_ns ? time_ns - map->time_ns : 0) / NS_PER_US);
		struct live_shapes *s = &shapes[m->sites[map->site].at];

		if (map->left && !(shape_add(&s->sizes, shape_bucket(map->left), 1) && shape_add(&s->ages, age, 1) &&
					 shape_add(&s->bytes, age, (double)map->left)))
			return false;
	}
	return true;
}

static void write_sites(struct heap_model *m, const struct watched *p, struct capture_writer *w, uint64_t time_ns,
	const struct live_shapes *shapes)
{
	for (uint32_t id = p->first_site; id != NO_SITE; id = m->sites[id].next) {
		struct site *s = &m->sites[id];
		bool any = shapes[s->at].sizes.buckets != 0;

		if (any || s->aged)
			write_live(p, w, time_ns, id, &shapes[s->at]);
		s->aged = any;
	}
}

void shapes_of_live(struct heap_model *m, const struct watched *p, struct capture_writer *w, uint64_t time_ns)
{
	uint32_t count = number_sites(m, p);
	struct live_shapes *shapes = calloc((size_t)count + 1, sizeof(*shapes));

	if (shapes && add_blocks(m, p, time_ns, shapes) && add_mappings(m, p, time_ns, shapes))
		write_sites(m, p, w, time_ns, shapes);
	else
		m->no_memory = true;
	for (uint32_t i = 0; shapes && i < count; i++) {
		shape_release(&shapes[i].sizes);
		shape_release(&shapes[i].ages);
		shape_release(&shapes[i].bytes);
		shape_release(&shapes[i].unused);
	}
	free(shapes);
}
