/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the memory, the mappings and the files of processes come from: the live system (source_live), or
 * what somebody has kept of a process (snapshot/core.h).
 *
 * The calls mean what those of os/proc.h mean, and fail like them. A source that is `still` never changes: what
 * was read once needs no second look, and nothing about its processes may be asked of the live system, where
 * their numbers belong to others.
 */
#ifndef SONDE_SAMPLE_SOURCE_H
#define SONDE_SAMPLE_SOURCE_H

#include "os/proc.h"

struct source {
	const struct source_ops *ops;
	bool still;
	int root_fd; /* of a still one: O_PATH of the directory that files were opened in; -1: our own root */
};

struct source_ops {
	/* Copies memory from `addr` on, by process or thread; how many bytes there were, at most `len`. */
	size_t (*read)(const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len);
	/* As proc_each_mapping(), proc_open_mapped_file(), proc_threads(), proc_status_read(),
	 * proc_command_line() and proc_thread_name(). */
	int (*each_mapping)(const struct source *s, pid_t pid,
		int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err);
	int (*open_file)(
		const struct source *s, pid_t pid, const struct proc_mapping *m, struct err *err);
	int (*threads)(const struct source *s, pid_t pid, struct pid_vec *ret, struct err *err);
	int (*status)(const struct source *s, pid_t id, struct proc_status *ret, struct err *err);
	int (*command_line)(
		const struct source *s, pid_t pid, char *buf, size_t size, struct err *err);
	int (*thread_name)(const struct source *s, pid_t pid, pid_t tid, char *buf, size_t size,
		struct err *err);
};

extern const struct source source_live;

/* The directory that stands for / of the process, as a path for opening debug files; "" for our own. */
void source_root(const struct source *s, pid_t pid, char *buf, size_t size);

static inline size_t source_read_some(
	const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len)
{
	return s->ops->read(s, id, addr, buf, len);
}

/* All `len` bytes, or false. */
static inline bool source_read(
	const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len)
{
	return source_read_some(s, id, addr, buf, len) == len;
}

#endif
