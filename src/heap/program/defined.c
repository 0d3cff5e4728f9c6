/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the program has defined, counters and pools: kept in private memory, which a forked child has as well, and says
 * to its own collector before anything else.
 *
 * Definitions stand one behind the other, written by whoever has taken the room, and are there once their size is. A
 * child that was forked while another thread wrote one finds no size, and what comes behind it is not told.
 */
#include <string.h>
#include <sys/mman.h>

#include "heap/preload/clock.h"
#include "heap/preload/ring.h"
#include "heap/preload/sys.h"
#include "heap/program/note.h"

#define ROOM_BYTES (1u << 20) /* some thousands of them; touched as far as it is used */

struct kept {
	uint32_t bytes; /* with this; 0: it is not there yet */
	uint32_t pad;
	/* the note as it stands in a ring */
};

static uint8_t *room;
static uint32_t used, count;

static uint8_t *get_room(void)
{
	uint8_t *at = __atomic_load_n(&room, __ATOMIC_ACQUIRE), *fresh;
	long ret;

	if (at)
		return at;
	ret = sys6(SYS_mmap, 0, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ret < 0 && ret > -4096)
		return NULL;
	fresh = (uint8_t *)ret;
	if (__atomic_compare_exchange_n(&room, &at, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return fresh;
	sys3(SYS_munmap, fresh, ROOM_BYTES, 0);
	return at;
}

uint32_t defined_keep(struct note *note)
{
	struct share_note measured;
	uint32_t bytes = note_measure(note, &measured) + (uint32_t)sizeof(struct kept), from;
	uint8_t *at = get_room();
	struct kept *kept;

	if (!at)
		return 0;
	from = __atomic_load_n(&used, __ATOMIC_RELAXED);
	do {
		if (bytes > ROOM_BYTES - from)
			return 0;
	} while (!__atomic_compare_exchange_n(&used, &from, from + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	note->address = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
	note_measure(note, &measured);
	kept = (struct kept *)(void *)(at + from);
	note_write(note, &measured, 0, kept + 1);
	__atomic_store_n(&kept->bytes, bytes, __ATOMIC_RELEASE);
	return (uint32_t)note->address;
}

void defined_tell(struct thread *t)
{
	const uint8_t *at = __atomic_load_n(&room, __ATOMIC_ACQUIRE);
	uint32_t end = __atomic_load_n(&used, __ATOMIC_RELAXED), bytes, size;
	uint64_t *e;

	for (uint32_t from = 0; at && from < end; from += size) {
		const struct kept *kept = (const struct kept *)(const void *)(at + from);

		size = __atomic_load_n(&kept->bytes, __ATOMIC_ACQUIRE);
		if (!size)
			return;
		bytes = size - (uint32_t)sizeof(*kept);
		e = ring_reserve(t, bytes);
		if (!e)
			return;
		memcpy(e, kept + 1, bytes);
		e[0] = clock_before(preload.clock);
		ring_commit(t, bytes);
	}
}
