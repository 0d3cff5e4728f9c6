/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "heap/inject/inject.h"
#include "heap/library.h"
#include "os/proc.h"

static int open_and_load(pid_t pid, struct inject **ret, struct err *err)
{
	const void *bytes;
	size_t size;
	int rc = inject_open(pid, NULL, ret, err);

	if (rc)
		return rc;
	heap_library_bytes(&bytes, &size);
	rc = inject_load(*ret, "heap", bytes, size, err);
	if (rc)
		inject_close(*ret);
	return rc;
}

int heap_attach_possible(pid_t pid, struct err *err)
{
	struct inject *i;
	int rc = inject_open(pid, NULL, &i, err);

	if (!rc)
		inject_close(i);
	return rc;
}

static void finish(struct inject *i, struct heap_attached *ret)
{
	struct inject_stats stats;

	inject_stats(i, &stats);
	ret->stops += stats.stops;
	ret->stopped_ns += stats.total_ns;
	if (stats.longest_ns > ret->longest_stop_ns)
		ret->longest_stop_ns = stats.longest_ns;
	inject_close(i);
}

/* ---- who watches it already ---- */

struct memory {
	uint64_t inode;
};

static int find_memory(void *ctx, const struct proc_mapping *m)
{
	struct memory *found = ctx;

	if (!m->shared || !strstr(m->path, "memfd:sonde-heap"))
		return 0;
	found->inode = m->inode;
	return 1;
}

static int has_memory(void *ctx, const struct proc_mapping *m)
{
	const struct memory *wanted = ctx;

	return m->shared && m->inode == wanted->inode && strstr(m->path, "memfd:sonde-heap");
}

/* The process that shares its memory with it; 0: there is none (any more). */
static pid_t watcher_of(pid_t pid)
{
	struct memory memory = {0};
	struct pid_vec all = {0};
	pid_t found = 0;

	if (proc_each_mapping(pid, find_memory, &memory, NULL) != 1 || proc_all(&all, NULL))
		return 0;
	vec_each(&all, it)
		if (!found && *it != pid && proc_each_mapping(*it, has_memory, &memory, NULL) == 1)
			found = *it;
	vec_release(&all);
	return found;
}

static int share_refused(pid_t pid, int64_t code, struct err *err)
{
	pid_t watcher = code == -EBUSY ? watcher_of(pid) : 0;

	switch (-code) {
	case EBUSY:
		if (watcher)
			return err_set(err, EBUSY, "process %d is watched already, by process %d", (int)pid, (int)watcher);
		return err_set(err, EBUSY, "process %d was started by sonde heap, and cannot be attached to besides", (int)pid);
	case ENOSYS:
		return err_set(err, ENOSYS, "the loader of process %d does not tell where its malloc is", (int)pid);
	default:
		return err_errno(err, (int)-code, "process %d cannot share memory with us (limits on its address space or on "
			"its files, or no memory)", (int)pid);
	}
}

/* ---- the steps ---- */

static int share(struct inject *i, pid_t pid, const char *wish, int64_t *ret, struct err *err)
{
	int rc = inject_call(i, "sonde_heap_share", wish, 0, ret, err);

	/* Its collector was killed: its place is free. */
	if (rc || *ret != -EBUSY || watcher_of(pid))
		return rc;
	rc = inject_call(i, "sonde_heap_abandoned", NULL, 0, ret, err);
	return rc || *ret ? rc : inject_call(i, "sonde_heap_share", wish, 0, ret, err);
}

static int open_shared(pid_t pid, int number, int *ret_fd, struct err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)proc_surviving_thread(pid), number);
	*ret_fd = open(path, O_RDWR | O_CLOEXEC);
	return *ret_fd < 0 ? err_errno(err, errno, "the memory that process %d shares with us", (int)pid) : 0;
}

int heap_attach_share(pid_t pid, const char *wish, int *ret_fd, struct heap_attached *ret, struct err *err)
{
	struct inject *i;
	int64_t number = 0;
	int rc = open_and_load(pid, &i, err);

	if (rc)
		return rc;
	rc = share(i, pid, wish, &number, err);
	finish(i, ret);
	if (rc)
		return rc;
	return number < 0 ? share_refused(pid, number, err) : open_shared(pid, (int)number, ret_fd, err);
}

int heap_attach_begin(pid_t pid, struct heap_attached *ret, struct err *err)
{
	struct inject *i;
	int64_t counts = 0;
	int rc = open_and_load(pid, &i, err);

	if (rc)
		return rc;
	rc = inject_call(i, "sonde_heap_attach", NULL, 0, &counts, err);
	finish(i, ret);
	if (rc)
		return rc;
	if (counts <= 0)
		return err_set(err, ENOENT, "no object file of process %d calls an allocator in a way that can be led to us",
			(int)pid);
	ret->slots = (uint32_t)counts;
	ret->objects = (uint32_t)((uint64_t)counts >> 32);
	return 0;
}

int heap_attach_end(pid_t pid, struct heap_attached *ret, struct err *err)
{
	struct inject *i;
	int64_t code = 0;
	int rc = open_and_load(pid, &i, err);

	if (rc)
		return rc;
	rc = inject_call(i, "sonde_heap_detach", NULL, 0, &code, err);
	finish(i, ret);
	return rc;
}
