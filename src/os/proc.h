/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What /proc tells about processes and threads: facts, no policy.
 *
 * Processes come and go while they are read: every function reports -ESRCH when the process (or
 * thread) is gone, and a list is a snapshot. Names from /proc are untrusted bytes; control
 * characters in them are replaced by '?'.
 */
#ifndef SONDE_OS_PROC_H
#define SONDE_OS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

#define PROC_NAME_BYTES 64

struct proc_status {
	char name[PROC_NAME_BYTES]; /* comm */
	char state;                 /* R S D T t Z X I... */
	pid_t tgid, ppid;
	pid_t tracer; /* who traces it (a debugger), 0: nobody */
	uid_t euid;
	pid_t ns_pid; /* pid in the innermost pid namespace */
	bool kernel_thread;
	bool seccomp;
	unsigned seccomp_filters; /* kernels before 5.9 do not tell: 1 when there are any */
};

/* `pid` may be a thread id. */
int proc_status_read(pid_t pid, struct proc_status *ret, struct err *err);

/* Command line with arguments joined by spaces; "[name]" for a kernel thread. Always terminated. */
int proc_command_line(pid_t pid, char *buf, size_t size, struct err *err);

/* comm of a thread. */
int proc_thread_name(pid_t pid, pid_t tid, char *buf, size_t size, struct err *err);

/* Top of the first stack's arguments (stat field 28, "startstack"), 0 when it is hidden. */
uint64_t proc_stack_start(pid_t pid);

/* The bits of a code address that are address, in all processes of this machine: aarch64 keeps a
 * signature in the others (pointer authentication). All bits elsewhere. */
uint64_t proc_address_mask(void);

/* A thread by its id in the pid namespace of `pid`, as we know it; 0: there is none, or it cannot be found
 * out. */
pid_t proc_outside_tid(pid_t pid, pid_t inner);

VEC_TYPE(pid_vec, pid_t);

/* Thread ids of a process, ascending. -ESRCH when it is gone. */
int proc_threads(pid_t pid, struct pid_vec *ret, struct err *err);

/* Of a process whose first thread has ended, /proc shows memory and files only by its other threads. One
 * of those, or `pid` where there is none. */
pid_t proc_surviving_thread(pid_t pid);

/* All processes, ascending. */
int proc_all(struct pid_vec *ret, struct err *err);

/* Processes whose comm, or base name of their executable, is `name`, without ourselves. */
int proc_find_name(const char *name, struct pid_vec *ret, struct err *err);

/* One line of /proc/PID/maps. */
struct proc_mapping {
	uint64_t start, end, offset;
	uint64_t inode, device; /* device as makedev() */
	bool read, write, exec, shared;
	bool deleted;     /* path ended in " (deleted)", which is cut off */
	const char *path; /* "" for anonymous memory; valid during the call */
};

/* Whether the file is a program or library of 32-bit code (also x32's). False when it cannot be read. */
bool proc_is_32bit_file(const char *path);

/* Cuts " (deleted)" off a path as the kernel writes it; whether it was there. */
bool proc_cut_deleted(char *path);

/* A line of maps (proc_pid_maps(5)) without its newline; the line is changed, and the path points
 * into it. False when it is not one. */
bool proc_parse_mapping(char *line, struct proc_mapping *m);

/* Calls `each` for every mapping in ascending order; stops and returns its value when it is not
 * 0. -EACCES: not ours to read. */
int proc_each_mapping(pid_t pid,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err);

/*
 * Opens the file behind a mapping, read-only: by /proc/PID/map_files (the exact inode, also when
 * the path was deleted or replaced; the mapping's inode number must still be there, except on
 * overlayfs, which shows others), else by path under /proc/PID/root, without following
 * symlinks out of it, and only when the inode is the mapping's (the device is not compared:
 * overlayfs and btrfs show different ones). When the process is gone: by path in our own tree, when
 * inode and device are the mapping's. Returns a descriptor of a regular file or -errno: -ESTALE
 * when the path now names another file, -ESRCH when the process is gone and took its tree along.
 */
int proc_open_mapped_file(pid_t pid, const struct proc_mapping *m, struct err *err);

/* process_vm_readv of one range: all `len` bytes, or false. */
bool proc_read_memory(pid_t pid, uint64_t addr, void *buf, size_t len);

#endif
