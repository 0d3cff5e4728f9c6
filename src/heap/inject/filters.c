/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs under seccomp filters: whether these allow what is done in the process, asked of the filters themselves.
 *
 * A filter that ends the process does so at the first call that it does not know, and there is no way back. So all calls
 * are judged before any is made: those of code_x86_64.S, of dlopen() and what it allocates, and of the library, which
 * all threads make once they are watched.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "heap/inject/inject_priv.h"
#include "heap/share.h"

#define ARG(n) (1u << (n))
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define OF_FILE (MAP_PRIVATE | MAP_DENYWRITE)
#define RW (PROT_READ | PROT_WRITE)
/* linux/memfd.h, linux/fcntl.h, linux/futex.h */
#define FD_CLOEXEC_FLAG 1u
#define FD_SEALING_FLAG 2u
#define ADD_SEALS 1033
#define FUTEX_PRIVATE 128

static const struct needed {
	const char *name;
	struct seccomp_call call;
	bool may_fail;
} needed[] = {
#define MAP(protection, flags) {"mmap", {SYS_mmap, {0, 0, protection, flags}, ARG(2) | ARG(3)}, false}
	MAP(RW, ANON),
	MAP(RW, ANON | MAP_NORESERVE),
	MAP(RW, ANON | MAP_NORESERVE | MAP_FIXED),
	MAP(RW, ANON | MAP_FIXED),
	MAP(PROT_READ, OF_FILE),
	MAP(PROT_READ, OF_FILE | MAP_FIXED),
	MAP(PROT_READ | PROT_EXEC, OF_FILE),
	MAP(PROT_READ | PROT_EXEC, OF_FILE | MAP_FIXED),
	MAP(RW, OF_FILE | MAP_FIXED),
	MAP(PROT_READ, MAP_SHARED | MAP_NORESERVE),
	MAP(PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED),
	MAP(RW, MAP_SHARED | MAP_NORESERVE | MAP_FIXED),
	{"mprotect", {SYS_mprotect, {0, 0, RW}, ARG(2)}, false},
	{"mprotect", {SYS_mprotect, {0, 0, PROT_READ}, ARG(2)}, false},
	{"mprotect", {SYS_mprotect, {0, 0, PROT_NONE}, ARG(2)}, false},
	{"munmap", {SYS_munmap, {0}, 0}, false},
	{"brk", {SYS_brk, {0}, 0}, false},
	{"memfd_create", {SYS_memfd_create, {0, FD_CLOEXEC_FLAG}, ARG(1)}, false},
	{"memfd_create", {SYS_memfd_create, {0, FD_CLOEXEC_FLAG | FD_SEALING_FLAG}, ARG(1)}, false},
	{"ftruncate", {SYS_ftruncate, {0}, 0}, false},
	{"fcntl", {SYS_fcntl, {0, ADD_SEALS}, ARG(1)}, false},
	{"prlimit64", {SYS_prlimit64, {0, RLIMIT_AS}, ARG(0) | ARG(1) | ARG(2)}, false},
	{"prlimit64", {SYS_prlimit64, {0, RLIMIT_FSIZE}, ARG(0) | ARG(1)}, false},
	{"openat", {SYS_openat, {(uint64_t)AT_FDCWD, 0, O_RDONLY | O_CLOEXEC}, ARG(0) | ARG(2)}, false},
	{"read", {SYS_read, {0}, 0}, false},
	{"pread64", {SYS_pread64, {0}, 0}, false},
	{"fstat", {SYS_fstat, {0}, 0}, false},
	{"newfstatat", {SYS_newfstatat, {0, 0, 0, AT_EMPTY_PATH}, ARG(3)}, false},
	{"close", {SYS_close, {0}, 0}, false},
	{"getpid", {SYS_getpid, {0}, 0}, false},
	{"gettid", {SYS_gettid, {0}, 0}, false},
	{"tgkill", {SYS_tgkill, {0}, 0}, false},
	{"rt_sigprocmask", {SYS_rt_sigprocmask, {SIG_SETMASK, 0, 0, 8}, ARG(0) | ARG(3)}, false},
	{"rt_sigprocmask", {SYS_rt_sigprocmask, {UINT32_MAX, 0, 0, 8}, ARG(0) | ARG(3)}, false},
	{"futex", {SYS_futex, {0, 0 /* FUTEX_WAIT */, 0}, ARG(1)}, false},
	{"futex", {SYS_futex, {0, FUTEX_PRIVATE, 0}, ARG(1)}, false},
	{"futex", {SYS_futex, {0, FUTEX_PRIVATE | 1, 0}, ARG(1)}, false},
	{"clock_gettime", {SYS_clock_gettime, {0}, 0}, false},
	{"nanosleep", {SYS_nanosleep, {0}, 0}, false},
	{"restart_syscall", {SYS_restart_syscall, {0}, 0}, false},
	{"madvise", {SYS_madvise, {0}, 0}, true},
	{"prctl", {SYS_prctl, {PR_GET_NAME}, ARG(0)}, true},
	{"getrandom", {SYS_getrandom, {0}, 0}, true},
	/* Children that it forks say hello, or are not watched. */
	{"socket", {SYS_socket, {AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK}, ARG(0) | ARG(1) | ARG(2)}, true},
	{"connect", {SYS_connect, {0}, 0}, true},
	{"sendmsg", {SYS_sendmsg, {0}, 0}, true},
	/* What it had before it was hurried. */
	{"sched_setscheduler", {SYS_sched_setscheduler, {0, SCHED_OTHER}, ARG(0) | ARG(1)}, true},
};

static enum seccomp_says worst(const struct inject_filters *f, const struct seccomp_call *call)
{
	enum seccomp_says all = SECCOMP_ALLOWS;

	vec_each(f, it) {
		enum seccomp_says one = seccomp_judge(it->data, it->len, call);

		all = one > all ? one : all;
	}
	return all;
}

int inject_filters_read(pid_t tid, struct inject_filters *ret, struct err *err)
{
	int rc = 0;

	for (unsigned index = 0; !rc; index++) {
		struct seccomp_filter one = {0};

		rc = seccomp_filter_read(tid, index, &one);
		if (!rc && vec_push(ret, one))
			rc = -ENOMEM;
		if (rc)
			vec_release(&one);
	}
	if (rc == -ENOENT)
		return 0;
	if (rc == -EPERM || rc == -EACCES)
		return err_set(err, EACCES, "thread %d has a seccomp filter, which may end it for the calls that loading a library "
			"takes; to read what it allows takes CAP_SYS_ADMIN: run sonde as root, outside of containers", (int)tid);
	return rc == -ESRCH ? rc : err_errno(err, -rc, "the seccomp filters of thread %d (the kernel does not hand them out)",
		(int)tid);
}

void inject_filters_release(struct inject_filters *f)
{
	vec_each(f, it)
		vec_release(it);
	vec_release(f);
}

bool inject_filters_restart(const struct inject_filters *f)
{
	const struct seccomp_call call = {.number = SYS_restart_syscall};

	return worst(f, &call) == SECCOMP_ALLOWS;
}

int inject_filters_judge(const struct inject_filters *f, pid_t tid, struct err *err)
{
	static const char *const words[] = {"", "refuses", "decides by what is not known beforehand about",
		"would end the process for"};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		enum seccomp_says says = worst(f, &needed[i].call);

		if (says > (needed[i].may_fail ? SECCOMP_ERROR : SECCOMP_ALLOWS))
			return err_set(err, EACCES, "the seccomp filter of thread %d %s %s, which watching its allocations takes; "
				"nothing was changed", (int)tid, words[says], needed[i].name);
	}
	return 0;
}
