/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of the injector. */
#ifndef SONDE_HEAP_INJECT_PRIV_H
#define SONDE_HEAP_INJECT_PRIV_H

#include <stdbool.h>

#include "base/vec.h"
#include "capture/writer.h"
#include "elf/elf_file.h"
#include "heap/inject/code.h"
#include "heap/inject/inject.h"
#include "os/proc.h"
#include "os/ptrace.h"
#include "os/sched_clock.h"
#include "os/seccomp.h"
#include "sample/ptrace/user_stack.h"
#include "sample/session.h"

/* ---- what is in the process (modules.c) ---- */

enum inject_kind {
	INJECT_OTHER,
	INJECT_LIBC,      /* and libpthread, libdl where these are their own */
	INJECT_LOADER,    /* musl's is its libc */
	INJECT_ALLOCATOR, /* it has a malloc of its own */
	INJECT_OURS,      /* the library that was loaded before */
};

struct inject_function {
	uint64_t start, end; /* in the process */
	const char *name;    /* of the file */
};

/* One executable mapping of a file. */
struct inject_module {
	uint64_t start, end, bias;
	enum inject_kind kind;
	bool stripped; /* ALLOCATOR: all of it is taken for one */
	char name[64]; /* base name of its path */
	uint64_t tail; /* where its last segment's bytes end, behind which nothing is up to `end`; 0: not known */
	struct elf_file *file; /* of LIBC, and of ALLOCATOR with symbols; else NULL */
	VEC(struct inject_function) functions; /* of these, ascending by start */
};

struct inject_modules {
	VEC(struct inject_module) all;
	uint64_t dlopen, dlerror, errno_location; /* functions; 0: not there */
	bool old_dlopen;                          /* __libc_dlopen_mode(), which needs another flag */
	bool any_libc;
};

int inject_modules_read(pid_t pid, struct inject_modules *ret, struct err *err);
void inject_modules_release(struct inject_modules *m);
const struct inject_module *inject_module_at(const struct inject_modules *m, uint64_t pc);

/* The function of a module that holds `pc`: all its names, one a call, from *at = 0 on. NULL: no more. */
const char *inject_function_name(const struct inject_module *m, uint64_t pc, size_t *at);

/* ---- where a thread stands (safe.c) ---- */

#define SAFE_STACK_BYTES 16384u
#define SAFE_WHY_BYTES 160u

struct safe_stack {
	ptrace_gregs regs;
	size_t size;
	uint8_t bytes[SAFE_STACK_BYTES]; /* from its sp on */
};

/* What is used to look at stacks. */
struct safe_walker {
	struct capture_writer *writer;
	struct session *session;
	struct thread_selection all;
};

int safe_walker_open(struct safe_walker *w, pid_t pid, struct err *err);
void safe_walker_release(struct safe_walker *w);

/* Whether a system call is one that a thread may be taken out of; `args` as it was called with. */
bool safe_syscall(int number, const uint64_t args[6]);

/* Whether a stopped thread may be diverted; if not, `why` says what it is in. `number`: the call that it waits in, -1: it computes. */
bool safe_stand(const struct inject_modules *m, struct safe_walker *w, pid_t pid, pid_t tid, const struct safe_stack *stack,
	int number, char *why);

/* ---- the room behind a segment (place.c) ---- */

struct inject_place {
	uint64_t address;
	size_t size;
	uint8_t before[1024]; /* what stood there */
	pid_t last; /* the thread that was last diverted by one that died meanwhile; 0 */
};

/* -ENOSPC: there is none; -EBUSY: another one's code is there, and runs. */
int inject_place_find(pid_t pid, int mem_fd, const struct inject_modules *m, struct inject_place *ret, struct err *err);

/* Writes to memory that the process itself may not write to. `tid` is a thread that is traced and stopped. */
int inject_poke(int mem_fd, pid_t tid, uint64_t address, const void *bytes, size_t size);

/* ---- diverting (divert.c) ---- */

#define REGION_BYTES (512u << 10)
#define REGION_TEXT_AT 512u
#define REGION_TEXT_BYTES 8192u
#define REGION_STATE_AT 16384u /* extended state, at most */
#define REGION_STATE_BYTES 16384u
#define REGION_SIGNALS_ALL (~0ull)

struct divert {
	pid_t pid, tid;
	int mem_fd;
	struct inject_place *place;
	uint64_t call_ns;
	uint64_t mask;
	int policy;         /* how it was scheduled, where it runs before others now; -1 */
	ptrace_gregs regs;  /* as they are to be */
	uint64_t region;
	int memfd;          /* its number there; -1 */
	size_t state_bytes;
	uint8_t state[REGION_STATE_BYTES] __attribute__((aligned(64)));
	int quiet;          /* the signal that it tells by */
	bool diverted;
	bool ended;         /* the thread, or the process, is no more, or has been left alone */
};

/* The thread stands stopped with `d->regs`, and is now to stand in our code with memory and, where `memfd_name` is not "", a memfd. On failure
 * it is as it was. */
int divert_begin(struct divert *d, const char *memfd_name, struct err *err);

/* A call there. -ETIMEDOUT, -EFAULT, -ESRCH: it does not stand there any more. */
int divert_call(struct divert *d, uint64_t errno_location, uint64_t function, const uint64_t args[6], uint64_t *ret,
	struct err *err);

/* Back to where it was, stopped still. Nothing is done where that is over. */
int divert_end(struct divert *d, struct err *err);

/* Waits until the thread is in a stop that is ours; 0, -ESRCH, -ETIMEDOUT; *ret as ptrace_next(). */
int divert_wait(pid_t tid, uint64_t until_ns, struct ptrace_event *ret);

/* Of a time that a thread has waited, what its system call cannot be told. */
struct inject_part {
	pid_t tid;
	uint64_t ns;
};

struct inject {
	pid_t pid;
	struct inject_options options;
	struct inject_modules modules;
	struct safe_walker walker;
	struct inject_place place;
	struct sched_clock clock;
	struct inject_stats stats;
	struct inject_part part;
	int mem_fd, lock_fd;
	char library[64];         /* its memfd's name, "" before one was loaded */
	struct elf_file *file;    /* it */
	uint64_t bias;
	struct divert divert;
	struct safe_stack seen, now; /* of the thread that is looked at */
	uint8_t *room;
};

/* ---- seccomp (filters.c) ---- */

/* Of one thread. */
VEC_TYPE(inject_filters, struct seccomp_filter);

/* It stands stopped, traced by the caller. -EACCES: we may not read them; -ESRCH. */
int inject_filters_read(pid_t tid, struct inject_filters *ret, struct err *err);
void inject_filters_release(struct inject_filters *f);

/* Whether it may begin again the calls that the kernel goes on with by restart_syscall(2). */
bool inject_filters_restart(const struct inject_filters *f);

/* 0, or -EACCES with words: what we do is not allowed. */
int inject_filters_judge(const struct inject_filters *f, pid_t tid, struct err *err);

/* Judges those of all threads, each of which is stopped for a moment (search.c). */
int inject_judge_filters(struct inject *i, struct err *err);

/* Finds a thread (search.c), diverts it, and calls `act` while it stands in our code; then gives it back. */
struct inject_act {
	const char *memfd_name;
	int (*act)(struct inject *i, void *ctx, struct err *err);
	void *ctx;
};
int inject_divert(struct inject *i, const struct inject_act *act, struct err *err);

#endif
