/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Times of blocks are 36 bits: LIVE_TICK_BITS ticks since `base_ns`, or, with OLD_TIME, milliseconds (nearly) since the
 * first block. When the ticks since base_ns do not fit any more, which is after 36 minutes, all blocks older than RECENT_NS get the old kind: of what
 * has lived for so long a millisecond more or less is nothing.
 */
#include "heap/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TIME_BITS 36
#define TIME_MASK ((1ull << TIME_BITS) - 1)
#define OLD_TIME (1ull << (TIME_BITS - 1))
#define OLD_TICK_BITS 20
#define RECENT_NS 4000000000ull

#define SPILL 24u          /* slots behind the last home; when they do not suffice a part grows */
#define FIRST_HOMES 12u
#define LOOSE_HOMES 512u   /* up to here memory is cheaper than looking */
#define MAP_BYTES 65536u   /* larger parts are mapped, and grow by moving pages */
#define MAP_PAGE 4096u

_Static_assert(LIVE_NARROW_SITE_BITS + TIME_BITS + LIVE_NARROW_SIZE_BITS == 64 + 16, "a slot is full");

/* ---- blocks and slots ---- */

static uint64_t time_bits(const struct live *l, uint64_t time_ns)
{
	uint64_t ticks = (time_ns - l->base_ns) >> LIVE_TICK_BITS, since = time_ns > l->began_ns ? time_ns - l->began_ns : 0;

	if (time_ns >= l->base_ns && ticks < OLD_TIME)
		return ticks;
	since >>= OLD_TICK_BITS;
	return OLD_TIME | (since < OLD_TIME ? since : OLD_TIME - 1);
}

static uint64_t time_of(const struct live *l, uint64_t bits)
{
	if (bits & OLD_TIME)
		return l->began_ns + ((bits & ~OLD_TIME) << OLD_TICK_BITS);
	return l->base_ns + (bits << LIVE_TICK_BITS);
}

static uint64_t slot_time(const struct live_slot *s)
{
	return s->value >> 8 & TIME_MASK;
}

static struct live_slot slot_with(const struct live *l, uint64_t hash, const struct live_block *b)
{
	return (struct live_slot){
		.key = hash << 16 | (b->size & 0xffff),
		.value = (uint64_t)b->site << (64 - LIVE_NARROW_SITE_BITS) | time_bits(l, b->time_ns) << 8 | b->size >> 16,
	};
}

static struct live_block block_in(const struct live *l, const struct live_slot *s, uint64_t address)
{
	return (struct live_block){
		.address = address,
		.time_ns = time_of(l, slot_time(s)),
		.size = (s->value & 0xff) << 16 | (s->key & 0xffff),
		.site = (uint32_t)(s->value >> (64 - LIVE_NARROW_SITE_BITS)),
		.tid = LIVE_TID_OF_SITE,
	};
}

static bool is_narrow(const struct live *l, const struct live_block *b, uint64_t hash)
{
	return b->tid == LIVE_TID_OF_SITE && !b->rate && !(b->size >> LIVE_NARROW_SIZE_BITS) && !(b->address >> LIVE_HASH_BITS) &&
		!(b->site >> LIVE_NARROW_SITE_BITS) && hash != LIVE_HASH_MOST && l->began_ns <= b->time_ns;
}

/* ---- the slots of a part ---- */

static struct live_slot *more_slots(struct live_slot *old, uint32_t old_room, uint32_t room)
{
	size_t had = (size_t)old_room * sizeof(*old), bytes = (size_t)room * sizeof(*old);
	struct live_slot *p;

	if (bytes < MAP_BYTES)
		return realloc(old, bytes);
	if (had >= MAP_BYTES) {
		p = mremap(old, had, bytes, MREMAP_MAYMOVE);
		return p == MAP_FAILED ? NULL : p;
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (had)
		memcpy(p, old, had);
	free(old);
	return p;
}

/* NULL: nothing was done. */
static struct live_slot *less_slots(struct live_slot *old, uint32_t old_room, uint32_t room)
{
	size_t had = (size_t)old_room * sizeof(*old), bytes = (size_t)room * sizeof(*old);
	struct live_slot *p;

	if (had < MAP_BYTES)
		return realloc(old, bytes);
	if (bytes >= MAP_BYTES) {
		p = mremap(old, had, bytes, 0);
		return p == MAP_FAILED ? NULL : p;
	}
	p = malloc(bytes);
	if (!p)
		return NULL;
	memcpy(p, old, bytes);
	munmap(old, had);
	return p;
}

static void free_slots(struct live_part *p)
{
	size_t bytes = (size_t)p->room * sizeof(*p->slots);

	if (bytes >= MAP_BYTES)
		munmap(p->slots, bytes);
	else
		free(p->slots);
	*p = (struct live_part){0};
}

static uint32_t room_for(uint32_t homes)
{
	uint64_t room = (uint64_t)homes + (homes / 4 < SPILL ? homes / 4 : SPILL) + 4;

	if (room * sizeof(struct live_slot) >= MAP_BYTES) {
		uint64_t in_page = MAP_PAGE / sizeof(struct live_slot);

		room = (room + in_page - 1) / in_page * in_page;
	}
	return (uint32_t)room;
}

/* Where the one behind the last would be with `homes` homes; all blocks are at the end of the part. */
static uint64_t end_with(const struct live_part *p, uint32_t homes)
{
	struct live_part like = {.homes = homes};
	uint64_t next = 0;

	for (uint32_t i = p->room - p->count; i < p->room; i++) {
		uint32_t home = live_home(&like, p->slots[i].key >> 16);

		next = (home > next ? home : next) + 1;
	}
	return next;
}

/* Puts the blocks where they belong. All are at the end by now, in order, so none is written over before it was read. */
static void lay_out(struct live_part *p, uint32_t homes)
{
	uint32_t next = 0;

	p->homes = homes;
	p->most = homes <= LOOSE_HOMES ? homes / 8 * 5 : homes / 5 * 4;
	for (uint32_t from = p->room - p->count; from < p->room; from++) {
		struct live_slot s = p->slots[from];
		uint32_t home = live_home(p, s.key >> 16);

		for (; next < home; next++)
			p->slots[next].key = UINT64_MAX;
		p->slots[next++] = s;
	}
	for (; next < p->room; next++)
		p->slots[next].key = UINT64_MAX;
}

static void gather(struct live_part *p)
{
	uint32_t to = p->room;

	for (uint32_t i = p->room; i-- > 0;)
		if (p->slots[i].key != UINT64_MAX)
			p->slots[--to] = p->slots[i];
}

static int grow(struct live *l, struct live_part *p)
{
	uint32_t homes = p->homes, had, room;
	struct live_slot *slots;

	for (;;) {
		/* Parts begin differently, so that they do not all grow at once. */
		homes = homes ? homes + homes / 8 + 1 : FIRST_HOMES + (uint32_t)(p - l->parts) * FIRST_HOMES / LIVE_PARTS;
		had = p->room;
		room = room_for(homes);
		slots = homes < 1u << 30 ? more_slots(p->slots, had, room) : NULL;
		if (!slots)
			break;
		p->slots = slots;
		p->room = room;
		l->bytes += (size_t)(room - had) * sizeof(*slots);
		for (uint32_t i = had; i < room; i++)
			slots[i].key = UINT64_MAX;
		gather(p);
		if (end_with(p, homes) < room) {
			lay_out(p, homes);
			return 0;
		}
	}
	if (p->count) {
		gather(p); /* as it was */
		lay_out(p, p->homes);
	}
	return -ENOMEM;
}

static void shrink(struct live *l, struct live_part *p)
{
	uint32_t homes = p->count + p->count / 2 + FIRST_HOMES, room = room_for(homes), had = p->room;
	struct live_slot *slots;

	gather(p);
	if (end_with(p, homes) >= room) {
		lay_out(p, p->homes);
		return;
	}
	lay_out(p, homes);
	slots = less_slots(p->slots, had, room);
	if (!slots)
		return;
	p->slots = slots;
	p->room = room;
	l->bytes -= (size_t)(had - room) * sizeof(*slots);
}

static inline bool is_full(const struct live_part *p)
{
	return p->count >= p->most;
}

/* The slot of a hash: *ret_there, or it was made free. NULL: no memory. */
static inline struct live_slot *slot_for(struct live *l, struct live_part *p, uint64_t hash, bool *ret_there)
{
	struct live_slot *s, *end, *last;

	*ret_there = false;
	for (;;) {
		if (is_full(p) && grow(l, p))
			return NULL;
		s = end = live_reach(p, hash);
		*ret_there = live_is(s, hash);
		if (*ret_there)
			return s;
		for (last = p->slots + p->room - 1; end->key != UINT64_MAX; end++)
			;
		if (end < last)
			break;
		if (grow(l, p))
			return NULL;
	}
	for (; end > s; end--)
		end[0] = end[-1];
	p->count++;
	l->count++;
	return s;
}

/* Those behind it that are not at home move up, so that nothing is ever between a block and its home. */
static void remove_slot(struct live *l, struct live_part *p, struct live_slot *s)
{
	for (; s[1].key != UINT64_MAX && live_home(p, s[1].key >> 16) <= s - p->slots; s++)
		s[0] = s[1];
	s->key = UINT64_MAX;
	p->count--;
	l->count--;
}

/* ---- blocks ---- */

/* Ticks since base_ns do not fit any more. */
static void set_base(struct live *l, uint64_t now_ns)
{
	uint64_t old_ns = l->base_ns, base_ns = live_time(now_ns - RECENT_NS);

	for (uint32_t i = 0; i < LIVE_PARTS; i++) {
		for (uint32_t k = 0; k < l->parts[i].room; k++) {
			struct live_slot *s = &l->parts[i].slots[k];
			uint64_t time_ns;

			l->base_ns = old_ns;
			time_ns = time_of(l, slot_time(s));
			l->base_ns = base_ns;
			if (s->key != UINT64_MAX && !(slot_time(s) & OLD_TIME))
				s->value = (s->value & ~(TIME_MASK << 8)) | time_bits(l, time_ns) << 8;
		}
	}
	l->base_ns = base_ns;
}

static bool wide_take(struct live *l, uint64_t address, struct live_block *ret)
{
	struct live_block *b = l->wide.count ? wide_find(&l->wide, address) : NULL;

	if (!b)
		return false;
	*ret = *b;
	wide_remove(&l->wide, b);
	l->count--;
	return true;
}

static int put_wide(struct live *l, const struct live_block *block)
{
	l->wide.seed = l->seed;
	if (wide_reserve(&l->wide))
		return -ENOMEM;
	wide_add(&l->wide, block);
	l->count++;
	return 0;
}

int live_put(struct live *l, const struct live_block *block, struct live_block *ret_old)
{
	uint64_t hash = live_hash(l, block->address);
	struct live_part *p = &l->parts[live_part_of(l, hash) - l->parts];
	struct live_slot *s;
	bool there;

	if (!l->began_ns)
		l->began_ns = l->base_ns = live_time(block->time_ns);
	if (block->time_ns > l->base_ns && (block->time_ns - l->base_ns) >> LIVE_TICK_BITS >= OLD_TIME)
		set_base(l, block->time_ns);
	ret_old->address = 0;
	if (!is_narrow(l, block, hash)) {
		live_take(l, block->address, ret_old);
		return put_wide(l, block);
	}
	if (l->wide.count)
		wide_take(l, block->address, ret_old);
	s = slot_for(l, p, hash, &there);
	if (!s)
		return -ENOMEM;
	if (there)
		*ret_old = block_in(l, s, block->address);
	*s = slot_with(l, hash, block);
	return 0;
}

static bool has_slot(const struct live *l, uint64_t address, uint64_t hash)
{
	return !(address >> LIVE_HASH_BITS) && live_slot_of(live_part_of(l, hash), hash);
}

bool live_take(struct live *l, uint64_t address, struct live_block *ret)
{
	uint64_t hash = live_hash(l, address);
	struct live_part *p = &l->parts[live_part_of(l, hash) - l->parts];
	struct live_slot *s = address >> LIVE_HASH_BITS ? NULL : live_slot_of(p, hash);

	if (!s)
		return wide_take(l, address, ret);
	*ret = block_in(l, s, address);
	remove_slot(l, p, s);
	return true;
}

bool live_has(const struct live *l, uint64_t address)
{
	return has_slot(l, address, live_hash(l, address)) || wide_find(&l->wide, address);
}

/* Of an odd number, modulo 2^64: each round doubles the bits that are right. */
static uint64_t inverse(uint64_t odd)
{
	uint64_t x = odd;

	for (unsigned bits = 3; bits < 64; bits *= 2)
		x *= 2 - odd * x;
	return x;
}

static uint64_t address_of(const struct live *l, const struct live_walk *walk, uint64_t hash)
{
	hash = hash * walk->back[0] & LIVE_HASH_MOST;
	hash ^= hash >> 24;
	return ((hash * walk->back[1]) ^ l->seed) & LIVE_HASH_MOST;
}

bool live_next(const struct live *l, struct live_walk *walk, struct live_block *ret)
{
	if (!walk->back[0]) {
		walk->back[0] = inverse(LIVE_FACTOR);
		walk->back[1] = inverse(live_factor(l));
	}
	for (; walk->part < LIVE_PARTS; walk->part++, walk->at = 0) {
		const struct live_part *p = &l->parts[walk->part];

		while (walk->at < p->room) {
			const struct live_slot *s = &p->slots[walk->at++];

			if (s->key == UINT64_MAX)
				continue;
			*ret = block_in(l, s, address_of(l, walk, s->key >> 16));
			return true;
		}
	}
	while (walk->at < l->wide.slot_count) {
		*ret = l->wide.slots[walk->at++];
		if (ret->address)
			return true;
	}
	return false;
}

void live_fit(struct live *l)
{
	for (uint32_t i = 0; i < LIVE_PARTS; i++)
		if (l->parts[i].homes > 4 * FIRST_HOMES && l->parts[i].count < l->parts[i].homes / 4)
			shrink(l, &l->parts[i]);
	wide_fit(&l->wide);
}

void live_release(struct live *l)
{
	for (uint32_t i = 0; i < LIVE_PARTS; i++)
		free_slots(&l->parts[i]);
	wide_release(&l->wide);
	l->count = l->bytes = 0;
}
