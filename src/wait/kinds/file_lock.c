/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks on files: flock(), fcntl() of a process, fcntl() of an open file. /proc/locks pairs who waits with
 * what is in the way; docs/heuristics/file-locks.md says who that is.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

#ifndef F_OFD_SETLKW
#define F_OFD_SETLKW 38
#endif

/* So many lines of /proc/locks are looked at, and so many descriptors for the lock they hold. */
#define MOST_LINES 200000u
#define MOST_FDS 50000u

struct locking {
	enum file_lock_type type;
	int fd;
	bool known; /* the call and its descriptor are ours to see */
};

static bool decode(const struct wait_look *l, struct locking *ret)
{
	*ret = (struct locking){.known = true};
	if (!wait_has_call(l)) {
		ret->known = false;
		return wait_in(l, "locks_lock_inode_wait") || wait_in(l, "flock_lock") ||
			wait_in(l, "fcntl_setlk") || wait_in(l, "posix_lock");
	}
	ret->fd = (int)l->args[0];
	if (l->call == SYS_flock) {
		ret->type = FILE_LOCK_FLOCK;
		return true;
	}
	if (l->call != SYS_fcntl)
		return false;
	if (l->args[1] == F_SETLKW)
		ret->type = FILE_LOCK_POSIX;
	else if (l->args[1] == F_OFD_SETLKW)
		ret->type = FILE_LOCK_OFD;
	return ret->type != FILE_LOCK_OTHER;
}

/* The lines of this waiter: by its id, or for open files, which have none, by the file. */
static bool is_ours(const struct wait_look *l, const struct locking *call, uint64_t inode,
	const struct file_lock *line)
{
	if (!line->waits)
		return false;
	if (!call->known)
		return line->pid == l->process->pid;
	if (line->type != call->type || (inode && line->inode != inode))
		return false;
	return call->type == FILE_LOCK_OFD ? inode != 0 : line->pid == l->process->pid;
}

static const struct file_lock *find(
	struct wait_look *l, const struct locking *call, uint64_t inode)
{
	const struct file_locks *locks = wait_world_locks(l->world);

	for (size_t i = 0; i < locks->len && i < MOST_LINES; i++)
		if (is_ours(l, call, inode, &locks->data[i]))
			return file_lock_holder(locks, i);
	return NULL;
}

/* ---- who holds it ---- */

static bool is_same_lock(const struct file_lock *a, const struct file_lock *b)
{
	return a->type == b->type && a->device == b->device && a->inode == b->inode &&
		a->start == b->start && a->end == b->end && a->write == b->write;
}

static bool holds(struct wait_look *l, const struct open_file *f, const struct file_lock *lock)
{
	const struct fdinfo *info = wait_world_fdinfo(l->world, f->pid, f->fd);

	if (info)
		vec_each(&info->locks, k)
			if (is_same_lock(k, lock))
				return true;
	return false;
}

/* Those with a descriptor that it was taken through: first those by the name that the file has here, then,
 * since it may have others, all. */
static void find_by_descriptor(struct wait_look *l, const struct file_lock *lock, const char *path,
	struct wait_holders *h)
{
	const struct open_files *files = wait_world_files(l->world);
	const struct open_file *f;
	size_t n = *path ? open_files_find(files, OPEN_PATH, open_path_key(path), &f) : 0;

	for (size_t i = 0; i < n; i++)
		if (holds(l, &f[i], lock))
			wait_holders_add(h, l, f[i].pid);
	if (h->self || h->others.len)
		return;
	n = 0;
	vec_each(&files->files, it)
		if (it->what == OPEN_PATH && n++ < MOST_FDS && holds(l, it, lock))
			wait_holders_add(h, l, it->pid);
}

static void blame_descriptors(struct wait_look *l, const struct file_lock *lock, const char *path,
	struct wait *ret)
{
	struct wait_holders h = {0};
	struct proc_family f;
	bool taker_lives = lock->pid > 0 && !proc_family_read(lock->pid, &f) && f.state != 'Z';

	find_by_descriptor(l, lock, path, &h);
	/* flock() names who took it; as long as that one has the descriptor it is the one. */
	vec_each(&h.others, p)
		if (taker_lives && *p == lock->pid) {
			ret->grade = WAIT_PROVEN;
			wait_blame_process(l, ret, *p, WAIT_PROVEN, "it took the lock, and has it");
			goto out;
		}
	if (h.self && lock->pid == l->process->pid) {
		/* Through another descriptor of its own: it stands in its own way. */
		wait_blame_process(l, ret, lock->pid, WAIT_PROVEN, "it took the lock itself, through another descriptor");
		goto out;
	}
	if (h.others.len || h.self) {
		if (lock->pid > 0 && !taker_lives)
			WAIT_APPEND(ret->detail, "taken by process %d, which has ended and left it to others",
				(int)lock->pid);
		wait_blame_holders(l, &h, "it has the descriptor that the lock belongs to", ret);
	} else if (taker_lives) {
		ret->grade = WAIT_INFERRED;
		wait_blame_process(l, ret, lock->pid, WAIT_INFERRED, "it took the lock, says /proc/locks");
	} else {
		ret->grade = WAIT_INFERRED;
		WAIT_APPEND(ret->detail, "who holds it is not ours to see");
	}
out:
	ret->nature = WAIT_LOCK;
	wait_holders_release(&h);
}

static void blame(struct wait_look *l, const struct file_lock *lock, const char *path, struct wait *ret)
{
	if (lock->type != FILE_LOCK_POSIX || lock->pid <= 0) {
		blame_descriptors(l, lock, path, ret);
		return;
	}
	wait_blame_process(l, ret, lock->pid, WAIT_PROVEN, "it holds the lock, says /proc/locks");
	if (lock->start || lock->end != UINT64_MAX)
		WAIT_APPEND(ret->detail, "bytes %" PRIu64 " to %" PRIu64, lock->start, lock->end);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	static const char *const kinds[] = {"file_lock", "flock", "fcntl_lock", "ofd_lock"};
	static const char *const words[] = {
		"a lock on", "flock on", "an fcntl lock on", "an fcntl lock of the open file on"};
	const struct fdinfo *info = NULL;
	const struct file_lock *lock;
	struct open_file f = {0};
	char path[OPEN_MOST_NAME] = "";
	struct locking call;

	if (!decode(l, &call))
		return false;
	if (call.known) {
		open_file_read(l->process->reader, call.fd, &f, path, sizeof(path));
		info = wait_world_fdinfo(l->world, l->process->reader, call.fd);
	}
	lock = find(l, &call, info ? info->inode : 0);
	if (lock && !call.known)
		call.type = lock->type;
	ret->kind = kinds[call.type];
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for %s %.100s", words[call.type], *path ? path : "a file");
	if (!lock) {
		ret->grade = WAIT_INFERRED;
		WAIT_SAY(ret->detail, "/proc/locks does not tell who holds it");
		return true;
	}
	WAIT_SAY(ret->object, "%s %" PRIx64 ":%" PRIu64, kinds[call.type], lock->device, lock->inode);
	blame(l, lock, path, ret);
	return true;
}

const struct wait_kind wait_kind_file_lock = {.name = "file_lock", .look = look};
