/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/fdinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/proc_priv.h"

#define MOST_TEXT ((size_t)8 << 20)

/* The kernel's own packing of device numbers, include/linux/kdev_t.h: 20 bits of minor. */
static uint64_t device_of(uint64_t kernel)
{
	return makedev((unsigned)(kernel >> 20), (unsigned)(kernel & 0xfffff));
}

static uint64_t saturated_ns(uint64_t seconds, uint64_t ns)
{
	uint64_t sum;

	if (__builtin_mul_overflow(seconds, NS_PER_S, &sum) ||
		__builtin_add_overflow(sum, ns, &sum) || sum == UINT64_MAX)
		return UINT64_MAX - 1;
	return sum;
}

/* "        4 events:       19 data:                4  pos:0 ino:3 sdev:1a" */
static int add_watch(const char *at, struct fdinfo *f)
{
	struct fdinfo_watch w = {0};
	const char *ino = strstr(at, " ino:"), *line_end = at + strcspn(at, "\n");
	uint64_t device;

	if (sscanf(at, "%d events: %" SCNx32, &w.fd, &w.events) != 2)
		return 0;
	if (ino && ino < line_end &&
		sscanf(ino, " ino:%" SCNx64 " sdev:%" SCNx64, &w.inode, &device) == 2)
		w.device = device_of(device);
	if (f->watches.len >= FDINFO_MOST_WATCHES) {
		f->watches_cut = true;
		return 0;
	}
	return vec_push(&f->watches, w);
}

static int add_lock(const char *at, struct fdinfo *f)
{
	struct file_lock l;

	return file_lock_parse(at, &l) ? vec_push(&f->locks, l) : 0;
}

/* "(3, 500000000)" */
static uint64_t time_of(const char *at)
{
	uint64_t seconds = 0, ns = 0;

	if (sscanf(at, "(%" SCNu64 ", %" SCNu64 ")", &seconds, &ns) != 2)
		return 0;
	return saturated_ns(seconds, ns);
}

enum field {
	FIELD_NONE,
	FIELD_FLAGS,
	FIELD_INODE,
	FIELD_EVENTFD_ID,
	FIELD_EVENTFD_COUNT,
	FIELD_PIDFD,
	FIELD_CLOCK,
	FIELD_TIMER,
	FIELD_TTY,
	FIELD_SQ_HEAD,
	FIELD_SQ_TAIL,
	FIELD_PENDING,
	FIELD_TOTAL,
	FIELD_WATCH,
	FIELD_LOCK,
};

static enum field field_of(const char *line, size_t len)
{
	static const struct {
		const char *key;
		enum field field;
	} keys[] = {
		{"flags", FIELD_FLAGS}, {"ino", FIELD_INODE}, {"eventfd-id", FIELD_EVENTFD_ID},
		{"eventfd-count", FIELD_EVENTFD_COUNT}, {"Pid", FIELD_PIDFD},
		{"clockid", FIELD_CLOCK}, {"it_value", FIELD_TIMER}, {"tty-index", FIELD_TTY},
		{"SqHead", FIELD_SQ_HEAD}, {"SqTail", FIELD_SQ_TAIL}, {"pending", FIELD_PENDING},
		{"total", FIELD_TOTAL}, {"tfd", FIELD_WATCH}, {"lock", FIELD_LOCK},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strlen(keys[i].key) == len && !memcmp(line, keys[i].key, len))
			return keys[i].field;
	return FIELD_NONE;
}

static int take_field(enum field field, const char *at, struct fdinfo *f)
{
	switch (field) {
	case FIELD_FLAGS:
		f->flags = (unsigned)strtoul(at, NULL, 8);
		break;
	case FIELD_INODE:
		f->inode = strtoull(at, NULL, 10);
		break;
	case FIELD_EVENTFD_ID:
		f->eventfd_id = (int64_t)strtoul(at, NULL, 10);
		break;
	case FIELD_EVENTFD_COUNT:
		f->eventfd_count = strtoull(at, NULL, 16);
		break;
	case FIELD_PIDFD:
		f->pidfd = (pid_t)strtol(at, NULL, 10);
		f->pidfd = f->pidfd > 0 ? f->pidfd : -1;
		break;
	case FIELD_CLOCK:
		f->timer = true;
		f->timer_clock = (int)strtol(at, NULL, 10);
		break;
	case FIELD_TIMER:
		f->timer_ns = time_of(at);
		break;
	case FIELD_TTY:
		f->tty_index = (int)strtol(at, NULL, 10);
		break;
	case FIELD_SQ_HEAD:
		f->uring = true;
		f->uring_taken = (uint32_t)strtoul(at, NULL, 0);
		break;
	case FIELD_SQ_TAIL:
		f->uring_submitted = (uint32_t)strtoul(at, NULL, 0);
		break;
	case FIELD_PENDING:
		f->uffd_pending = strtoull(at, NULL, 10);
		break;
	case FIELD_TOTAL:
		f->uffd = true;
		f->uffd_total = strtoull(at, NULL, 10);
		break;
	case FIELD_WATCH:
		return add_watch(at, f);
	case FIELD_LOCK:
		return add_lock(at, f);
	case FIELD_NONE:
		break;
	}
	return 0;
}

int fdinfo_parse(const char *text, struct fdinfo *ret)
{
	*ret = (struct fdinfo){.eventfd_id = -1, .tty_index = -1};
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t len = strcspn(line, ":\n");
		const char *at = line + len;

		if (*at != ':')
			continue;
		at++;
		at += strspn(at, " \t");
		if (take_field(field_of(line, len), at, ret))
			return -ENOMEM;
	}
	return 0;
}

int fdinfo_read(pid_t pid, int fd, struct fdinfo *ret, struct err *err)
{
	autofree char *text = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)pid, fd);

	int rc = proc_read_whole(path, MOST_TEXT, &text);

	if (rc < 0)
		return err_errno(err, -rc, "%s", path);
	if (!fdinfo_parse(text, ret))
		return 0;
	fdinfo_release(ret);
	return err_nomem(err);
}

void fdinfo_release(struct fdinfo *f)
{
	vec_release(&f->watches);
	vec_release(&f->locks);
}

bool fdinfo_reads(const struct fdinfo *f)
{
	return (f->flags & O_ACCMODE) != O_WRONLY;
}

bool fdinfo_writes(const struct fdinfo *f)
{
	return (f->flags & O_ACCMODE) != O_RDONLY;
}
