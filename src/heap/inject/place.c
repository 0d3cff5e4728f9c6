/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Room for a few hundred bytes of code: behind the last byte of an executable segment, up to the end of its page.
 * The file's bytes that are mapped there belong to nothing, or to another segment that is mapped elsewhere again. So
 * no memory has to be made executable, which many systems forbid, and nothing has to run in the target before.
 */
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/inject/inject_priv.h"

#define PATIENCE_NS (2 * NS_PER_S)

static size_t needed(void)
{
	return (size_t)(inject_code_end - inject_code_start) + sizeof(struct inject_block);
}

struct look_for {
	uint64_t start;
	bool found;
};

static int is_mapped(void *ctx, const struct proc_mapping *m)
{
	struct look_for *l = ctx;

	l->found = l->found || (l->start >= m->start && l->start < m->end);
	return 0;
}

/* Whether the thread that was diverted by an injector that died is still on its way back. */
static bool is_busy(pid_t pid, const struct inject_block *b)
{
	struct look_for l = {.start = b->region};

	if (!b->region)
		return false;
	return proc_each_mapping(pid, is_mapped, &l, NULL) || l.found;
}

/* What stands there after one that has died is the code as it is here, or nothing of ours. */
static int wait_for_the_dead(pid_t pid, int mem_fd, uint64_t address, pid_t *ret_last, struct err *err)
{
	uint64_t at = address + (uint64_t)(inject_code_end - inject_code_start);
	uint64_t until_ns = clock_monotonic_ns() + PATIENCE_NS;
	const struct timespec nap = {.tv_nsec = 5 * NS_PER_MS};
	struct inject_block b;

	for (;;) {
		if (pread(mem_fd, &b, sizeof(b), (off_t)at) != (ssize_t)sizeof(b))
			return err_errno(err, errno, "memory of process %d", (int)pid);
		if (b.magic != INJECT_MAGIC)
			return 0;
		*ret_last = (pid_t)b.tid;
		if (!is_busy(pid, &b))
			return 0;
		if (clock_monotonic_ns() > until_ns)
			return err_set(err, EBUSY, "process %d still runs what was put into it by a sonde that was "
				"killed; try again when that is over", (int)pid);
		nanosleep(&nap, NULL);
	}
}

static bool is_better(const struct inject_module *m, const struct inject_module *best)
{
	if (!m->tail || m->end - m->tail < needed() + 16 || m->kind == INJECT_OURS)
		return false;
	/* The C library is in every process and in its place for good. */
	return !best || (m->kind == INJECT_LIBC && best->kind != INJECT_LIBC);
}

int inject_place_find(pid_t pid, int mem_fd, const struct inject_modules *m, struct inject_place *ret, struct err *err)
{
	const struct inject_module *best = NULL;
	int rc;

	ret->last = 0;
	vec_each(&m->all, it)
		if (is_better(it, best))
			best = it;
	if (!best)
		return err_set(err, ENOSPC, "no program segment of process %d ends with %zu bytes of its last page unused, "
			"which code could be put into", (int)pid, needed());
	ret->size = needed();
	ret->address = (best->end - ret->size) & ~15ull;
	rc = wait_for_the_dead(pid, mem_fd, ret->address, &ret->last, err);
	if (rc)
		return rc;
	if (ret->size > sizeof(ret->before) ||
		pread(mem_fd, ret->before, ret->size, (off_t)ret->address) != (ssize_t)ret->size)
		return err_set(err, EIO, "%s of process %d cannot be read", best->name, (int)pid);
	if (ret->last)
		memset(ret->before, 0, ret->size);
	return 0;
}

static int poke_words(pid_t tid, uint64_t address, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i += sizeof(long)) {
		size_t part = size - i < sizeof(long) ? size - i : sizeof(long);
		long word = 0;

		if (part < sizeof(long)) {
			errno = 0;
			word = ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(address + i), NULL);
			if (errno)
				return -errno;
		}
		memcpy(&word, bytes + i, part);
		if (ptrace(PTRACE_POKETEXT, tid, (void *)(uintptr_t)(address + i), (void *)word))
			return -errno;
	}
	return 0;
}

int inject_poke(int mem_fd, pid_t tid, uint64_t address, const void *bytes, size_t size)
{
	if (pwrite(mem_fd, bytes, size, (off_t)address) == (ssize_t)size)
		return 0;
	/* proc_mem.force_override=never */
	return poke_words(tid, address, bytes, size);
}
