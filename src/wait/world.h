/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of the machine beyond one process's memory: who has what open, which sockets belong
 * together, who holds which file lock. Each of these is read once, when it is first asked for, within
 * a time limit; what could not be read is told by wait_world_gaps().
 *
 * Pointers stay valid until wait_world_free() or wait_world_forget(). Not for two threads at once.
 */
#ifndef SONDE_WAIT_WORLD_H
#define SONDE_WAIT_WORLD_H

#include <stdbool.h>

#include "base/err.h"
#include "base/table.h"
#include "os/children.h"
#include "os/fdinfo.h"
#include "os/file_locks.h"
#include "os/open_files.h"
#include "os/sockets.h"

struct wait_world;

int wait_world_new(struct wait_world **ret, struct err *err);
void wait_world_free(struct wait_world *w);

/* What is of a moment is read again when it is asked for: file locks, what descriptors hold; with `files` also
 * who has what open, and sockets, which takes longer. Pointers into it are not valid any more. */
void wait_world_forget(struct wait_world *w, bool files);

/* Descriptors of all processes, ourselves among them: who reads what we print waits for us. Never NULL; empty where nothing could be read. */
const struct open_files *wait_world_files(struct wait_world *w);

/* Whether every process's descriptors were read: nobody else can have what is asked for. */
bool wait_world_saw_all(struct wait_world *w);

/* Sockets of the network namespace of a process. Never NULL; empty where nothing could be read. */
const struct sockets *wait_world_sockets(struct wait_world *w, pid_t pid);

/*
 * The TCP socket at the other end of `info`, which is of the namespace of `pid`: there, or in the
 * namespace of another process. NULL: on none that we can see. *ret_in: the sockets it was found among.
 */
const struct socket_info *wait_world_tcp_peer(struct wait_world *w, pid_t pid,
	const struct socket_info *info, const struct sockets **ret_in);

/* /proc/locks. Never NULL. */
const struct file_locks *wait_world_locks(struct wait_world *w);

/* Of a descriptor; NULL: it cannot be read. */
const struct fdinfo *wait_world_fdinfo(struct wait_world *w, pid_t pid, int fd);

/* How many threads a process has; 0: it is gone. */
unsigned wait_world_threads(struct wait_world *w, pid_t pid);

/* The path of the frozen cgroup that a process is in; NULL: it is in none. */
const char *wait_world_frozen(struct wait_world *w, pid_t pid);

/* What is known of the CPython of processes: pythons.h. */
struct table *wait_world_pythons(struct wait_world *w);

/* What could not be seen, for a person: "the descriptors of 12 processes"; "": nothing is missing of what
 * was asked for. */
void wait_world_gaps(struct wait_world *w, char *buf, size_t size);

#endif
