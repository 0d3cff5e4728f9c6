/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/in_root.h"
#include "os/proc_priv.h"

#define PROC_TEXT_MAX ((size_t)64 << 20) /* more than any /proc file we read */

/* A vanished process shows as ENOENT on open and as ESRCH on read. */
static int gone_or(int code)
{
	return code == ENOENT ? ESRCH : code;
}

static int open_proc(pid_t pid, const char *what)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -gone_or(errno) : fd;
}

ssize_t proc_read_small(pid_t pid, const char *what, char *buf, size_t size)
{
	autoclose int fd = open_proc(pid, what);
	size_t used = 0;

	if (fd < 0)
		return fd;
	while (used < size - 1) {
		ssize_t n = read(fd, buf + used, size - 1 - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -gone_or(errno);
		if (!n)
			break;
		used += (size_t)n;
	}
	buf[used] = '\0';
	return (ssize_t)used;
}

int proc_read_whole(const char *path, size_t most, char **ret)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct buf text = {0};

	if (fd < 0)
		return -gone_or(errno);
	while (buf_reserve(&text, 16384)) {
		ssize_t n = read(fd, text.data + text.len, 16383);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int code = gone_or(errno);

			buf_release(&text);
			return -code;
		}
		text.len += (size_t)n;
		if (!n || text.len > most)
			break;
	}
	if (text.failed || text.len > most) {
		bool failed = text.failed;

		buf_release(&text);
		return failed ? -ENOMEM : -EFBIG;
	}
	text.data[text.len] = '\0';
	*ret = text.data;
	return 0;
}

static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

const char *proc_status_field(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) && line[len] == ':')
			return line + len + 1 + strspn(line + len + 1, " \t");
	}
	return NULL;
}

static unsigned long status_number(const char *text, const char *key, unsigned skip_words)
{
	const char *at = proc_status_field(text, key);

	for (; at && skip_words; skip_words--) {
		at += strcspn(at, " \t\n");
		at += strspn(at, " \t");
	}
	return at ? strtoul(at, NULL, 10) : 0;
}

/* "NSpid: 812 17 1": the last number is the pid in the innermost namespace. */
static pid_t innermost_pid(const char *text, pid_t fallback)
{
	const char *at = proc_status_field(text, "NSpid");
	unsigned long pid = (unsigned long)fallback;

	while (at && *at && *at != '\n') {
		char *end;
		unsigned long v = strtoul(at, &end, 10);

		if (end == at)
			break;
		pid = v;
		at = end + strspn(end, " \t");
	}
	return (pid_t)pid;
}

/* PF_KTHREAD in the flags field of stat (include/linux/sched.h). */
static bool has_kthread_flag(pid_t pid)
{
	char stat[1024];
	unsigned long flags = 0;

	if (proc_read_small(pid, "stat", stat, sizeof(stat)) < 0)
		return false;
	const char *after_name = strrchr(stat, ')');
	if (!after_name || sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) != 1)
		return false;
	return flags & 0x00200000;
}

int proc_status_read(pid_t pid, struct proc_status *ret, struct err *err)
{
	char text[8192];
	ssize_t n = proc_read_small(pid, "status", text, sizeof(text));

	if (n == -ESRCH)
		return err_set(err, ESRCH, "there is no process %d", (int)pid);
	if (n < 0)
		return err_errno(err, (int)-n, "/proc/%d/status", (int)pid);

	const char *name = proc_status_field(text, "Name"), *state = proc_status_field(text, "State");
	*ret = (struct proc_status){
		.state = state ? *state : '?',
		.tgid = (pid_t)status_number(text, "Tgid", 0),
		.ppid = (pid_t)status_number(text, "PPid", 0),
		.tracer = (pid_t)status_number(text, "TracerPid", 0),
		.euid = (uid_t)status_number(text, "Uid", 1),
		.ns_pid = innermost_pid(text, pid),
		.kernel_thread = has_kthread_flag(pid),
		.seccomp = status_number(text, "Seccomp", 0) != 0,
		.seccomp_filters = (unsigned)status_number(
			text, proc_status_field(text, "Seccomp_filters") ? "Seccomp_filters" : "Seccomp", 0),
	};
	if (name)
		snprintf(ret->name, sizeof(ret->name), "%.*s", (int)strcspn(name, "\n"), name);
	make_printable(ret->name);
	return 0;
}

/* NS_GET_PID_FROM_PIDNS of linux/nsfs.h, since Linux 6.11. */
#define GET_PID_FROM_NAMESPACE _IOR(0xb7, 0x6, int)

static bool same_namespace(pid_t pid, const struct stat *ns)
{
	struct stat st;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return !stat(path, &st) && st.st_ino == ns->st_ino && st.st_dev == ns->st_dev;
}

/* Threads of one process of that namespace. */
static pid_t find_inner(pid_t pid, pid_t inner)
{
	struct pid_vec tids = {0};
	struct proc_status status;
	pid_t found = 0;

	if (!proc_threads(pid, &tids, NULL))
		for (size_t i = 0; i < tids.len && !found; i++)
			if (!proc_status_read(tids.data[i], &status, NULL) && status.ns_pid == inner)
				found = tids.data[i];
	vec_release(&tids);
	return found;
}

pid_t proc_outside_tid(pid_t pid, pid_t inner)
{
	struct pid_vec all = {0};
	struct stat ns;
	pid_t found = 0;
	autoclose int fd = open_proc(pid, "ns/pid");

	if (fd < 0 || fstat(fd, &ns))
		return 0;
	found = ioctl(fd, GET_PID_FROM_NAMESPACE, inner);
	if (found > 0)
		return found;
	found = 0;
	if (!proc_all(&all, NULL))
		for (size_t i = 0; i < all.len && !found; i++)
			if (same_namespace(all.data[i], &ns))
				found = find_inner(all.data[i], inner);
	vec_release(&all);
	return found;
}

int proc_command_line(pid_t pid, char *buf, size_t size, struct err *err)
{
	ssize_t n = proc_read_small(pid, "cmdline", buf, size);

	if (n < 0)
		return err_errno(err, (int)-n, "/proc/%d/cmdline", (int)pid);
	while (n > 0 && !buf[n - 1])
		n--;
	for (ssize_t i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = ' ';
	buf[n] = '\0';
	if (!n) {
		char name[PROC_NAME_BYTES];
		int rc = proc_thread_name(pid, pid, name, sizeof(name), err);
		if (rc)
			return rc;
		snprintf(buf, size, "[%s]", name);
	}
	make_printable(buf);
	return 0;
}

int proc_thread_name(pid_t pid, pid_t tid, char *buf, size_t size, struct err *err)
{
	char what[48];

	snprintf(what, sizeof(what), "task/%d/comm", (int)tid);
	ssize_t n = proc_read_small(pid, what, buf, size);
	if (n < 0)
		return err_errno(err, (int)-n, "name of thread %d", (int)tid);
	buf[strcspn(buf, "\n")] = '\0';
	make_printable(buf);
	return 0;
}

uint64_t proc_stack_start(pid_t pid)
{
	char stat[1024];
	uint64_t start = 0;

	if (proc_read_small(pid, "stat", stat, sizeof(stat)) < 0)
		return 0;
	const char *at = strrchr(stat, ')');
	/* at + 2 is field 3; startstack is field 28 (proc_pid_stat(5)). */
	for (unsigned field = 2; at && field < 28; field++)
		at = strchr(at + 1, ' ');
	if (at)
		start = strtoull(at, NULL, 10);
	return start;
}

/*
 * Linux gives all processes address spaces of one size (a larger one only to those that ask for it,
 * mapping by mapping), and puts the first stack at the top. The exact mask, NT_ARM_PAC_MASK, can
 * only be asked of a thread that is being traced.
 */
uint64_t proc_address_mask(void)
{
	uint64_t top = 0;

#if defined(__aarch64__)
	top = getauxval(AT_RANDOM);
#endif
	return top ? ~0ULL >> __builtin_clzll(top) : ~0ULL;
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* The numeric names in a directory, ascending. */
static int list_numbers(const char *path, struct pid_vec *ret, struct err *err)
{
	DIR *dir = opendir(path);
	int rc = 0;

	ret->len = 0;
	if (!dir)
		return err_errno(err, gone_or(errno), "%s", path);
	for (struct dirent *e; !rc && (e = readdir(dir));) {
		char *end;
		unsigned long v = strtoul(e->d_name, &end, 10);

		if (*end || end == e->d_name || v > INT32_MAX)
			continue;
		if (vec_push(ret, (pid_t)v))
			rc = err_nomem(err);
	}
	closedir(dir);
	if (!rc && ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), compare_pids);
	return rc;
}

int proc_threads(pid_t pid, struct pid_vec *ret, struct err *err)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	int rc = list_numbers(path, ret, err);
	if (!rc && !ret->len)
		return err_set(err, ESRCH, "process %d is gone", (int)pid);
	return rc;
}

int proc_all(struct pid_vec *ret, struct err *err)
{
	return list_numbers("/proc", ret, err);
}

/* Whether `pid` goes by that name: its comm (which the kernel cuts at 15 bytes), or the base name
 * of its executable. */
static bool has_name(pid_t pid, const char *name)
{
	char comm[PROC_NAME_BYTES], link[48], exe[4096];

	if (!proc_thread_name(pid, pid, comm, sizeof(comm), NULL) && !strcmp(comm, name))
		return true;
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(link, exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	const char *slash = strrchr(exe, '/');
	return !strcmp(slash ? slash + 1 : exe, name);
}

int proc_find_name(const char *name, struct pid_vec *ret, struct err *err)
{
	struct pid_vec all = {0};
	int rc = proc_all(&all, err);

	ret->len = 0;
	for (size_t i = 0; !rc && i < all.len; i++)
		if (all.data[i] != getpid() && has_name(all.data[i], name))
			rc = vec_push(ret, all.data[i]) ? err_nomem(err) : 0;
	vec_release(&all);
	if (!rc && !ret->len)
		rc = err_set(err, ESRCH, "no process is named '%s'", name);
	return rc;
}

bool proc_is_32bit_file(const char *path)
{
	static const char magic[] = {0x7f, 'E', 'L', 'F', 1 /* ELFCLASS32 */};
	char ident[sizeof(magic)];
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	return fd >= 0 && read(fd, ident, sizeof(ident)) == (ssize_t)sizeof(ident) &&
	       !memcmp(ident, magic, sizeof(magic));
}

bool proc_cut_deleted(char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), cut = sizeof(deleted) - 1;

	if (len <= cut || strcmp(path + len - cut, deleted))
		return false;
	path[len - cut] = '\0';
	return true;
}

bool proc_parse_mapping(char *line, struct proc_mapping *m)
{
	unsigned major, minor;
	char perms[5] = "";
	int path_at = 0;

	*m = (struct proc_mapping){.path = ""};
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m->start,
		    &m->end, perms, &m->offset, &major, &minor, &m->inode, &path_at) < 7)
		return false;
	m->device = makedev(major, minor);
	m->read = perms[0] == 'r';
	m->write = perms[1] == 'w';
	m->exec = perms[2] == 'x';
	m->shared = perms[3] == 's';
	if (path_at) {
		m->path = line + path_at;
		m->deleted = proc_cut_deleted(line + path_at);
		make_printable(line + path_at);
	}
	return m->start < m->end;
}

pid_t proc_surviving_thread(pid_t pid)
{
	struct pid_vec tids = {0};
	struct proc_status status;
	pid_t found = pid;

	if (!proc_threads(pid, &tids, NULL))
		for (size_t i = 0; i < tids.len && found == pid; i++)
			if (tids.data[i] != pid && !proc_status_read(tids.data[i], &status, NULL) &&
				status.state != 'Z' && status.state != 'X')
				found = tids.data[i];
	vec_release(&tids);
	return found;
}

static int each_mapping_of(pid_t pid, int (*each)(void *ctx, const struct proc_mapping *m),
	void *ctx, bool *ret_any, struct err *err)
{
	int fd = open_proc(pid, "maps"), rc = 0;
	autofclose FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	autofree char *line = NULL;
	size_t cap = 0, total = 0;
	ssize_t n;

	if (!f)
		return err_errno(err, fd < 0 ? -fd : errno, "/proc/%d/maps", (int)pid);
	while (!rc && (n = getline(&line, &cap, f)) > 0 && total < PROC_TEXT_MAX) {
		struct proc_mapping m;

		total += (size_t)n;
		line[strcspn(line, "\n")] = '\0';
		*ret_any = true;
		if (proc_parse_mapping(line, &m))
			rc = each(ctx, &m);
	}
	if (!rc && ferror(f))
		rc = err_errno(err, gone_or(errno), "/proc/%d/maps", (int)pid);
	return rc;
}

int proc_each_mapping(
	pid_t pid, int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err)
{
	bool any = false;
	int rc = each_mapping_of(pid, each, ctx, &any, err);

	if (rc || any)
		return rc;

	pid_t other = proc_surviving_thread(pid);

	return other != pid ? each_mapping_of(other, each, ctx, &any, err) : 0;
}

/* How a mapped file was found, and so what is left to compare. */
enum found_by {
	BY_MAPPING,  /* through the mapping that is there now */
	BY_PATH,     /* in the tree of the process */
	BY_OUR_PATH, /* in our own tree, the process being gone */
};

/* Whether the mapping shows another inode number than stat does: the lower file's. */
static bool is_overlay(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* Accepts only the very file that is mapped; a device or a FIFO is never opened. */
static int check_identity(int fd, const struct proc_mapping *m, enum found_by by, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return err_errno(err, errno, "%s", m->path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ENOEXEC, "%s: not a regular file", m->path);
	/* Something else may be mapped there by now: it must not pass for the file of others. In its
	 * own tree the device is not compared: overlayfs and btrfs show another one in maps than in
	 * stat. Elsewhere it must be, for the tree may be another one. */
	if (((uint64_t)st.st_ino != m->inode && (by != BY_MAPPING || !is_overlay(fd))) ||
		(by == BY_OUR_PATH && (uint64_t)st.st_dev != m->device))
		return err_set(err, ESTALE, "%s: another file stands there now", m->path);
	return 0;
}

static int find_in_root(pid_t pid, const char *path, struct err *err)
{
	char root[48];
	bool gone;

	snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
	int fd = in_root_find(root, path, false, &gone);
	if (fd >= 0)
		return fd;
	return gone ? err_errno(err, gone_or(-fd), "%s", root) : err_errno(err, -fd, "%s", path);
}

/* Takes `found`, which is O_PATH: to open a device is to do something to it, so it is looked at
 * first. A descriptor for reading when it is the mapped file. */
static int open_found(int found, const struct proc_mapping *m, enum found_by by, struct err *err)
{
	autoclose int file = found;
	int rc = file < 0 ? file : check_identity(file, m, by, err);

	if (rc)
		return rc;

	int fd = in_root_reopen(file);

	return fd < 0 ? err_errno(err, -fd, "%s", m->path) : fd;
}

/* -ESRCH also where /proc only shows none of it any more. */
static int open_of_process(pid_t pid, const struct proc_mapping *m, struct err *err)
{
	char link[96];

	/* This follows a magic link to the inode itself, so no path is involved. */
	snprintf(link, sizeof(link), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m->start,
		m->end);
	int found = open(link, O_PATH | O_CLOEXEC);
	int fd = found < 0 ? -gone_or(errno) : open_found(found, m, BY_MAPPING, err);

	if (found >= 0 && fd != -ESTALE)
		return fd;
	if (m->path[0] != '/')
		return err_errno(err, -fd, "%s", m->path);
	return open_found(find_in_root(pid, m->path, err), m, BY_PATH, err);
}

int proc_open_mapped_file(pid_t pid, const struct proc_mapping *m, struct err *err)
{
	int fd = open_of_process(pid, m, err);
	pid_t other = fd == -ESRCH ? proc_surviving_thread(pid) : pid;

	if (other != pid)
		fd = open_of_process(other, m, err);
	if (fd != -ESRCH || m->path[0] != '/')
		return fd;
	/* Commands of a few milliseconds are gone before we look; their files rarely are. */
	fd = open_found(find_in_root(getpid(), m->path, NULL), m, BY_OUR_PATH, NULL);
	return fd < 0 ? -ESRCH : fd;
}

bool proc_read_memory(pid_t pid, uint64_t addr, void *buf, size_t len)
{
	struct iovec local = {.iov_base = buf, .iov_len = len};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)addr, .iov_len = len};

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}
