/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that want a lock on a file, do not get it, sleep for a moment and try again: the kernel does not
 * know that they wait. What shows it is a file that the sleeper has open and another process has locked. Some
 * close the file before they sleep; of those the names of their files are known.
 * docs/heuristics/lock-poll.md
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/in_root.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

/* Whoever sleeps for longer does not look for a lock. */
#define LONGEST_NAP_NS (5 * NS_PER_S)
#define MOST_LOCKS 4096u

struct known_files {
	const char *library;
	const char *files[5];
};

static const struct known_files known_files[] = {
	{"/libapt-pkg.so",
		{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock",
			"/var/cache/apt/archives/lock", NULL}},
};

/* How long it wanted to sleep; LOOK_UNKNOWN: it does not, or that is not known. */
static uint64_t nap_ns(const struct wait_look *l)
{
	if (!wait_has_call(l))
		return LOOK_UNKNOWN;
	if (l->call == SYS_nanosleep)
		return wait_timespec(l, l->args[0]);
	if (l->call == SYS_clock_nanosleep && !l->args[1])
		return wait_timespec(l, l->args[2]);
	return LOOK_UNKNOWN;
}

static bool is_others(const struct wait_look *l, const struct file_lock *lock)
{
	return !lock->waits && lock->pid > 0 && lock->pid != l->process->pid &&
		(lock->type == FILE_LOCK_POSIX || lock->type == FILE_LOCK_FLOCK);
}

static void blame(struct wait_look *l, const struct file_lock *lock, const char *path, struct wait *ret)
{
	WAIT_SAY(ret->what, "in short sleeps for a lock on %.100s", path);
	WAIT_SAY(ret->object, "file lock %llx:%llu", (unsigned long long)lock->device,
		(unsigned long long)lock->inode);
	wait_blame_process(l, ret, lock->pid, WAIT_INFERRED,
		"it has locked a file that the sleeper needs, says /proc/locks");
	ret->nature = WAIT_LOCK;
	ret->grade = WAIT_INFERRED;
	ret->polls = true;
}

/* A lock of somebody else on the file with this identity. */
static const struct file_lock *lock_on(
	struct wait_look *l, uint64_t device, uint64_t inode)
{
	const struct file_locks *locks = wait_world_locks(l->world);

	for (size_t i = 0; i < locks->len && i < MOST_LOCKS; i++)
		if (is_others(l, &locks->data[i]) && locks->data[i].inode == inode &&
			locks->data[i].device == device)
			return &locks->data[i];
	return NULL;
}

static bool find_open(struct wait_look *l, struct wait *ret)
{
	const struct file_locks *locks = wait_world_locks(l->world);
	bool any = false;

	for (size_t i = 0; i < locks->len && i < MOST_LOCKS && !any; i++)
		any = is_others(l, &locks->data[i]);
	if (!any)
		return false;
	vec_each(&wait_world_files(l->world)->files, f) {
		const struct file_lock *lock;
		struct open_identity id;
		struct open_file again;
		char path[OPEN_MOST_NAME];

		if (f->pid != l->process->pid || f->what != OPEN_PATH ||
			!open_file_identity(f->pid, f->fd, &id) || !S_ISREG(id.mode))
			continue;
		lock = lock_on(l, id.device, id.inode);
		if (!lock || open_file_read(f->pid, f->fd, &again, path, sizeof(path)))
			continue;
		blame(l, lock, path, ret);
		return true;
	}
	return false;
}

static bool has_mapped(struct wait_look *l, const char *library)
{
	snapshot_mapping(l->process, 0);
	vec_each(&l->process->mappings, m)
		if (strstr(m->path, library))
			return true;
	return false;
}

static bool try_file(struct wait_look *l, const char *path, struct wait *ret)
{
	char root[48];
	struct stat st;
	const struct file_lock *lock;

	snprintf(root, sizeof(root), "/proc/%d/root", (int)l->process->pid);

	autoclose int fd = in_root_find(root, path, false, NULL);

	if (fd < 0 || fstat(fd, &st))
		return false;
	lock = lock_on(l, st.st_dev, st.st_ino);
	if (lock)
		blame(l, lock, path, ret);
	return lock;
}

static bool find_known(struct wait_look *l, struct wait *ret)
{
	for (size_t i = 0; i < sizeof(known_files) / sizeof(known_files[0]); i++) {
		if (!has_mapped(l, known_files[i].library))
			continue;
		for (const char *const *path = known_files[i].files; *path; path++)
			if (try_file(l, *path, ret))
				return true;
	}
	return false;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	return nap_ns(l) <= LONGEST_NAP_NS && (find_open(l, ret) || find_known(l, ret));
}

const struct wait_kind wait_kind_lock_poll = {.name = "lock_poll", .look = look};
