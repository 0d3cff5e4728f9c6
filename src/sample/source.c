/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/source.h"

#include <stdio.h>
#include <sys/uio.h>

static size_t live_read(const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len)
{
	struct iovec local = {buf, len};
	struct iovec remote = {(void *)(uintptr_t)addr, len};
	ssize_t got = process_vm_readv(id, &local, 1, &remote, 1, 0);

	(void)s;
	return got < 0 ? 0 : (size_t)got;
}

static int live_each_mapping(const struct source *s, pid_t pid,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err)
{
	(void)s;
	return proc_each_mapping(pid, each, ctx, err);
}

static int live_open_file(
	const struct source *s, pid_t pid, const struct proc_mapping *m, struct err *err)
{
	(void)s;
	return proc_open_mapped_file(pid, m, err);
}

static int live_threads(const struct source *s, pid_t pid, struct pid_vec *ret, struct err *err)
{
	(void)s;
	return proc_threads(pid, ret, err);
}

static int live_status(const struct source *s, pid_t id, struct proc_status *ret, struct err *err)
{
	(void)s;
	return proc_status_read(id, ret, err);
}

static int live_command_line(
	const struct source *s, pid_t pid, char *buf, size_t size, struct err *err)
{
	(void)s;
	return proc_command_line(pid, buf, size, err);
}

static int live_thread_name(const struct source *s, pid_t pid, pid_t tid, char *buf, size_t size,
	struct err *err)
{
	(void)s;
	return proc_thread_name(pid, tid, buf, size, err);
}

static const struct source_ops live_ops = {
	.read = live_read,
	.each_mapping = live_each_mapping,
	.open_file = live_open_file,
	.threads = live_threads,
	.status = live_status,
	.command_line = live_command_line,
	.thread_name = live_thread_name,
};

const struct source source_live = {.ops = &live_ops, .root_fd = -1};

void source_root(const struct source *s, pid_t pid, char *buf, size_t size)
{
	if (!s->still)
		snprintf(buf, size, "/proc/%d/root", (int)pid);
	else if (s->root_fd >= 0)
		snprintf(buf, size, "/proc/self/fd/%d", s->root_fd);
	else
		snprintf(buf, size, "%s", "");
}
