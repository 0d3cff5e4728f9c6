/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/tail.h"

#include <string.h>
#include <sys/uio.h>

/* Frames whose return addresses are read again. The outermost say whether the tail still belongs
 * to them; the others catch most returns and calls from the same place. */
#define CHECKED_FRAMES 8

/* The slots of the outermost frames, and what must stand there. */
struct checks {
	struct iovec slots[CHECKED_FRAMES];
	uint64_t want[CHECKED_FRAMES], words[CHECKED_FRAMES];
	size_t count;
};

static void choose_checks(struct checks *c, const struct unwind_frame *frames, size_t count)
{
	c->count = 0;
	for (size_t i = count; i-- > 0 && c->count < CHECKED_FRAMES;) {
		if (!frames[i].slot)
			continue;
		c->slots[c->count].iov_base = (void *)(uintptr_t)frames[i].slot;
		c->slots[c->count].iov_len = sizeof(uint64_t);
		c->want[c->count++] = frames[i].pc;
	}
}

static enum unwind_tail compare(const struct checks *c, uint64_t mask)
{
	for (size_t i = 0; i < c->count; i++)
		if ((c->words[i] ^ c->want[i]) & mask)
			return UNWIND_TAIL_CHANGED;
	return UNWIND_TAIL_OK;
}

/* Where the window would end, were it all mapped. */
static size_t window_bytes(uint64_t addr, uint64_t stack_end)
{
	uint64_t left = stack_end - addr;

	return addr < stack_end && left < TAIL_BYTES ? left : TAIL_BYTES;
}

enum unwind_tail tail_read(struct tail *t, const struct tail_stack *stack,
	const struct unwind_frame *frames, size_t count, uint64_t addr, struct unwind_dump *ret)
{
	size_t want = window_bytes(addr, stack->end);
	struct checks c;
	ssize_t got;

	choose_checks(&c, frames, count);
	if (!c.count) /* nothing to look at is no proof */
		return UNWIND_TAIL_UNREADABLE;

	/* The kernel reads one piece after the other: what stands after the tail was read stood then. */
	struct iovec local[2] = {{t->bytes, want}, {c.words, c.count * sizeof(uint64_t)}};
	struct iovec remote[1 + CHECKED_FRAMES] = {{(void *)(uintptr_t)addr, want}};

	memcpy(remote + 1, c.slots, c.count * sizeof(c.slots[0]));
	got = process_vm_readv(stack->tid, local, 2, remote, 1 + c.count, 0);
	if (got < (ssize_t)sizeof(uint64_t))
		return UNWIND_TAIL_UNREADABLE;
	if ((size_t)got < want + local[1].iov_len) { /* the mapping ends inside the window */
		want = (size_t)got < want ? (size_t)got : want;
		got = process_vm_readv(stack->tid, local + 1, 1, c.slots, c.count, 0);
		if (got != (ssize_t)local[1].iov_len)
			return UNWIND_TAIL_UNREADABLE;
	}
	*ret = (struct unwind_dump){addr, t->bytes, want};
	return compare(&c, stack->address_mask ? stack->address_mask : ~0ULL);
}

/* The bytes from `addr` to the end of what holds it, NULL when that is not at least a word. */
static const uint8_t *find_early(const struct tail_early *early, uint64_t addr, size_t *ret_size)
{
	const struct unwind_dump *pieces[] = {&early->near, &early->other};

	for (unsigned i = 0; i < 2; i++) {
		const struct unwind_dump *d = pieces[i];
		uint64_t at = addr - d->start;

		if (d->size < sizeof(uint64_t) || at > d->size - sizeof(uint64_t))
			continue;
		*ret_size = d->size - (size_t)at;
		return (const uint8_t *)d->bytes + at;
	}
	return NULL;
}

enum unwind_tail tail_from_early(const struct tail_early *early, uint64_t address_mask,
	const struct unwind_frame *frames, size_t count, uint64_t addr, struct unwind_dump *ret)
{
	size_t size, rest;
	const uint8_t *bytes = find_early(early, addr, &size);
	struct checks c;

	if (!bytes)
		return UNWIND_TAIL_UNREADABLE;
	choose_checks(&c, frames, count);
	for (size_t i = 0; i < c.count; i++) {
		const uint8_t *word =
			find_early(early, (uint64_t)(uintptr_t)c.slots[i].iov_base, &rest);

		if (!word)
			return UNWIND_TAIL_UNREADABLE;
		memcpy(&c.words[i], word, sizeof(uint64_t));
	}
	if (!c.count)
		return UNWIND_TAIL_UNREADABLE;
	*ret = (struct unwind_dump){addr, bytes, size};
	return compare(&c, address_mask ? address_mask : ~0ULL);
}
