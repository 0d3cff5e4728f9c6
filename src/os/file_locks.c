/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/file_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "os/proc_priv.h"

#define MOST_TEXT ((size_t)16 << 20)

static enum file_lock_type type_of(const char *word)
{
	if (!strcmp(word, "FLOCK"))
		return FILE_LOCK_FLOCK;
	if (!strcmp(word, "POSIX"))
		return FILE_LOCK_POSIX;
	if (!strcmp(word, "OFDLCK"))
		return FILE_LOCK_OFD;
	return FILE_LOCK_OTHER;
}

/*
 * proc_locks(5): "ID: [-> ]TYPE ADVISORY|... READ|WRITE PID MAJOR:MINOR:INODE START END", where END may
 * be "EOF". Somebody who waits for a waiter has more spaces before the arrow.
 */
bool file_lock_parse(const char *line, struct file_lock *ret)
{
	struct file_lock l = {0};
	char type[16], strict[16], mode[16], end[24];
	unsigned major, minor;
	int pid, at = 0;

	if (sscanf(line, "%" SCNu64 ":%n", &l.id, &at) != 1 || !at)
		return false;
	line += at;
	for (line += strspn(line, " "); !strncmp(line, "->", 2); line += strspn(line, " ")) {
		l.waits = true;
		line += 2;
	}
	if (sscanf(line, "%15s %15s %15s %d %x:%x:%" SCNu64 " %" SCNu64 " %23s", type, strict, mode,
		    &pid, &major, &minor, &l.inode, &l.start, end) != 9)
		return false;
	l.type = type_of(type);
	l.write = !strcmp(mode, "WRITE");
	l.pid = pid;
	l.device = makedev(major, minor);
	l.end = !strcmp(end, "EOF") ? UINT64_MAX : strtoull(end, NULL, 10);
	*ret = l;
	return true;
}

int file_locks_parse(const char *text, struct file_locks *ret)
{
	ret->len = 0;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		struct file_lock l;

		if (file_lock_parse(line, &l) && vec_push(ret, l))
			return -ENOMEM;
	}
	return 0;
}

int file_locks_read(struct file_locks *ret, struct err *err)
{
	autofree char *text = NULL;
	int rc = proc_read_whole("/proc/locks", MOST_TEXT, &text);

	if (rc < 0)
		return err_errno(err, -rc, "/proc/locks");
	return file_locks_parse(text, ret) ? err_nomem(err) : 0;
}

const struct file_lock *file_lock_holder(const struct file_locks *locks, size_t index)
{
	const struct file_lock *w = &locks->data[index];

	for (size_t i = index; i-- > 0 && locks->data[i].id == w->id;)
		if (!locks->data[i].waits)
			return &locks->data[i];
	return NULL;
}
