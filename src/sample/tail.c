/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/tail.h"

#include <sys/uio.h>

/* Frames whose return addresses are read again. The outermost say whether the tail still belongs
 * to them; the others catch most returns and calls from the same place. */
#define CHECKED_FRAMES 8

/* Whether the words at the slots of the outermost frames still are their pcs. */
static enum unwind_tail check(
	pid_t pid, uint64_t mask, const struct unwind_frame *frames, size_t count)
{
	struct iovec remote[CHECKED_FRAMES], local;
	uint64_t words[CHECKED_FRAMES], want[CHECKED_FRAMES];
	size_t n = 0;

	for (size_t i = count; i-- > 0 && n < CHECKED_FRAMES;) {
		if (!frames[i].slot)
			continue;
		remote[n] = (struct iovec){(void *)(uintptr_t)frames[i].slot, sizeof(uint64_t)};
		want[n++] = frames[i].pc;
	}
	local = (struct iovec){words, n * sizeof(uint64_t)};
	/* Nothing to look at is no proof. */
	if (!n || process_vm_readv(pid, &local, 1, remote, n, 0) != (ssize_t)local.iov_len)
		return UNWIND_TAIL_UNREADABLE;
	for (size_t i = 0; i < n; i++)
		if ((words[i] ^ want[i]) & mask)
			return UNWIND_TAIL_CHANGED;
	return UNWIND_TAIL_OK;
}

enum unwind_tail tail_read(struct tail *t, pid_t pid, uint64_t address_mask,
	const struct unwind_frame *frames, size_t count, uint64_t addr, struct unwind_dump *ret)
{
	struct iovec local = {t->bytes, sizeof(t->bytes)};
	struct iovec remote = {(void *)(uintptr_t)addr, sizeof(t->bytes)};
	ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);

	if (got < (ssize_t)sizeof(uint64_t))
		return UNWIND_TAIL_UNREADABLE;
	*ret = (struct unwind_dump){addr, t->bytes, (size_t)got};
	/* After the tail was read: what stands now stood then. */
	return check(pid, address_mask ? address_mask : ~0ULL, frames, count);
}
