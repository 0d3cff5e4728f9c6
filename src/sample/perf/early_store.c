/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/perf/early_store.h"

#include <errno.h>
#include <stdlib.h>

/* An entry does not wrap: what is left at the end is an entry of this position. */
#define PAD UINT64_MAX

static struct early_entry *at(const struct early_store *q, uint64_t offset)
{
	return (struct early_entry *)(q->bytes + (offset & (EARLY_STORE_BYTES - 1)));
}

static uint64_t after(const struct early_entry *e, uint64_t offset)
{
	return offset + sizeof(*e) + e->room;
}

int early_store_init(struct early_store *q)
{
	*q = (struct early_store){.bytes = malloc(EARLY_STORE_BYTES)};
	return q->bytes ? 0 : -ENOMEM;
}

void early_store_release(struct early_store *q)
{
	free(q->bytes);
	*q = (struct early_store){0};
}

struct early_entry *early_store_reserve(struct early_store *q, size_t room)
{
	const size_t unit = sizeof(struct early_entry);
	uint64_t tail = __atomic_load_n(&q->tail, __ATOMIC_ACQUIRE), head = q->head;
	size_t need = unit + (room + unit - 1) / unit * unit;
	size_t left = EARLY_STORE_BYTES - (head & (EARLY_STORE_BYTES - 1));
	size_t pad = left < need ? left : 0;

	if (head + pad + need - tail > EARLY_STORE_BYTES)
		return NULL;
	if (pad)
		*at(q, head) = (struct early_entry){.position = PAD, .room = (uint32_t)(pad - unit)};
	head += pad;
	*at(q, head) = (struct early_entry){.room = (uint32_t)(need - unit)};
	q->next_head = head + need;
	return at(q, head);
}

void early_store_publish(struct early_store *q)
{
	__atomic_store_n(&q->head, q->next_head, __ATOMIC_RELEASE);
}

bool early_store_is_filling(const struct early_store *q)
{
	return q->head - __atomic_load_n(&q->tail, __ATOMIC_RELAXED) > EARLY_STORE_BYTES / 2;
}

const struct early_entry *early_store_find(const struct early_store *q, uint64_t position)
{
	uint64_t head = __atomic_load_n(&q->head, __ATOMIC_ACQUIRE);

	for (uint64_t i = q->tail; i < head; i = after(at(q, i), i))
		if (at(q, i)->position == position)
			return at(q, i);
	return NULL;
}

void early_store_drop(struct early_store *q, uint64_t position)
{
	uint64_t head = __atomic_load_n(&q->head, __ATOMIC_ACQUIRE), i = q->tail;

	for (; i < head; i = after(at(q, i), i))
		if (at(q, i)->position != PAD && at(q, i)->position > position)
			break;
	__atomic_store_n(&q->tail, i, __ATOMIC_RELEASE);
}
