/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/open_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "os/proc.h"

static bool starts_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

uint64_t open_path_key(const char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), cut = sizeof(deleted) - 1;
	const char *slash = strrchr(path, '/');

	if (len > cut && !strcmp(path + len - cut, deleted))
		len -= cut;
	if (slash && (size_t)(slash + 1 - path) <= len) {
		len -= (size_t)(slash + 1 - path);
		path = slash + 1;
	}
	return hash_bytes(path, len);
}

static enum open_what anonymous(const char *name)
{
	static const struct {
		const char *name;
		enum open_what what;
	} names[] = {
		{"[eventfd]", OPEN_EVENTFD}, {"[eventpoll]", OPEN_EPOLL}, {"[pidfd]", OPEN_PIDFD},
		{"[timerfd]", OPEN_TIMERFD}, {"[signalfd]", OPEN_SIGNALFD},
		{"inotify", OPEN_INOTIFY}, {"[inotify]", OPEN_INOTIFY},
		{"[fanotify]", OPEN_INOTIFY}, {"[io_uring]", OPEN_URING},
		{"[userfaultfd]", OPEN_USERFAULTFD},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i].name))
			return names[i].what;
	return OPEN_ANON;
}

enum open_what open_file_classify(const char *link, uint64_t *ret_key)
{
	*ret_key = 0;
	if (starts_with(link, "pipe:["))
		return *ret_key = strtoull(link + 6, NULL, 10), OPEN_PIPE;
	if (starts_with(link, "socket:["))
		return *ret_key = strtoull(link + 8, NULL, 10), OPEN_SOCKET;
	if (starts_with(link, "pidfd:[")) /* since 6.9 */
		return OPEN_PIDFD;
	if (starts_with(link, "anon_inode:"))
		return anonymous(link + 11);
	if (*link != '/')
		return OPEN_ANON;
	*ret_key = open_path_key(link);
	return OPEN_PATH;
}

int open_file_read(pid_t pid, int fd, struct open_file *ret, char *link, size_t size)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);

	ssize_t n = readlink(path, text, sizeof(text) - 1);

	if (n < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	text[n] = '\0';
	*ret = (struct open_file){.pid = pid, .fd = fd};
	ret->what = open_file_classify(text, &ret->key);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	snprintf(link, size, "%s", text);
	return 0;
}

static int read_directory(pid_t pid, DIR *dir, struct open_files *o)
{
	char text[4096];
	struct dirent *e;

	while ((e = readdir(dir))) {
		char *end;
		long fd = strtol(e->d_name, &end, 10);
		ssize_t n;

		if (end == e->d_name || *end)
			continue;
		n = readlinkat(dirfd(dir), e->d_name, text, sizeof(text) - 1);
		if (n < 0)
			continue; /* closed meanwhile */
		text[n] = '\0';

		struct open_file f = {.pid = pid, .fd = (int)fd};

		f.what = open_file_classify(text, &f.key);
		if (o->files.len >= OPEN_MOST_FILES) {
			o->cut = true;
			return 0;
		}
		if (vec_push(&o->files, f))
			return -ENOMEM;
	}
	return 0;
}

/* A kernel thread has nothing open, and neither has a process that has ended. */
static bool has_files(pid_t pid)
{
	struct proc_status st;

	return !proc_status_read(pid, &st, NULL) && !st.kernel_thread && st.state != 'Z';
}

static int read_process(pid_t pid, struct open_files *o)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);

	DIR *dir = opendir(path);
	size_t before = o->files.len;

	if (!dir) {
		o->refused += (errno == EACCES || errno == EPERM) && has_files(pid);
		return 0;
	}

	int rc = read_directory(pid, dir, o);

	closedir(dir);
	/* The first thread may have ended: the table is shown by the others. */
	if (!rc && o->files.len == before) {
		pid_t other = proc_surviving_thread(pid);

		snprintf(path, sizeof(path), "/proc/%d/fd", (int)other);
		dir = other != pid ? opendir(path) : NULL;
		if (dir) {
			rc = read_directory(pid, dir, o);
			closedir(dir);
		}
	}
	o->processes++;
	return rc;
}

static int compare(const void *a, const void *b)
{
	const struct open_file *x = a, *y = b;

	if (x->what != y->what)
		return x->what < y->what ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->fd > y->fd) - (x->fd < y->fd);
}

int open_files_read(pid_t without, uint64_t deadline_ns, struct open_files *ret, struct err *err)
{
	struct pid_vec pids = {0};
	int rc = proc_all(&pids, err);

	*ret = (struct open_files){0};
	for (size_t i = 0; !rc && i < pids.len && !ret->cut; i++) {
		if (pids.data[i] == without)
			continue;
		if (clock_monotonic_ns() > deadline_ns)
			ret->cut = true;
		else if (read_process(pids.data[i], ret))
			rc = err_nomem(err);
	}
	vec_release(&pids);
	if (rc)
		open_files_release(ret);
	else if (ret->files.len)
		qsort(ret->files.data, ret->files.len, sizeof(*ret->files.data), compare);
	return rc;
}

void open_files_release(struct open_files *o)
{
	vec_release(&o->files);
}

size_t open_files_find(const struct open_files *o, enum open_what what, uint64_t key,
	const struct open_file **ret_first)
{
	struct open_file want = {.what = what, .key = key, .pid = INT32_MIN, .fd = INT32_MIN};
	size_t low = 0, high = o->files.len, n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(&o->files.data[middle], &want) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (n = 0; low + n < o->files.len && o->files.data[low + n].what == what &&
	     o->files.data[low + n].key == key;)
		n++;
	*ret_first = n ? &o->files.data[low] : NULL;
	return n;
}

bool open_file_identity(pid_t pid, int fd, struct open_identity *ret)
{
	struct statx st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
		    STATX_TYPE | STATX_MODE | STATX_INO, &st))
		return false;
	*ret = (struct open_identity){
		.device = makedev(st.stx_dev_major, st.stx_dev_minor),
		.inode = st.stx_ino,
		.mode = st.stx_mode & S_IFMT,
		.rdevice = makedev(st.stx_rdev_major, st.stx_rdev_minor),
	};
	return true;
}

bool open_file_same(const struct open_identity *a, const struct open_identity *b)
{
	return a->device == b->device && a->inode == b->inode;
}
