/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks inside glibc that are a bare word: the heap's arenas, lists of exit handlers, the time zone. They say
 * nothing of their holder. It is inside the same functions, and not waiting: most often one thread, and where
 * a signal handler or a fork's child has come back into them, the thread itself.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

struct internal_lock {
	const char *what;
	const char *functions[16];
};

static const struct internal_lock locks[] = {
	{"for a lock of the heap (malloc)",
		{"malloc", "free", "calloc", "realloc", "__libc_malloc", "__libc_free", "__libc_calloc",
			"__libc_realloc", "_int_malloc", "_int_free", "arena_get*", "memalign",
			"posix_memalign", "aligned_alloc", "malloc_*", NULL}},
	{"for the lock of the exit handlers",
		{"exit", "__run_exit_handlers", "__cxa_atexit", "__cxa_finalize", "on_exit",
			"__new_exitfn", NULL}},
	{"for the lock of the time zone",
		{"localtime*", "mktime", "tzset", "strftime*", "__tz_convert", NULL}},
	{"for a lock of the name service",
		{"getaddrinfo", "getpw*", "getgr*", "gethostby*", "__nss_*", "__res_*", NULL}},
	{"for a lock of the environment", {"getenv", "setenv", "putenv", "unsetenv", NULL}},
};

#define FRAMES 96u

static const struct internal_lock *which(struct wait_look *l, int *ret_at)
{
	for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++) {
		*ret_at = wait_find_function(l, l->thread, locks[i].functions, 5);
		if (*ret_at >= 0)
			return &locks[i];
	}
	return NULL;
}

/* Behind the frame that a signal came upon: below it the thread may be inside the same functions again. */
#define INTERRUPTED_FRAMES 6u

static bool is_inside_twice(struct wait_look *l, const struct internal_lock *lock, int at)
{
	const struct snapshot_thread *t = l->thread;
	size_t i = (size_t)at + 1;

	/* One that was not called by the frame above it was interrupted. */
	while (i < t->frame_count && t->frames[i].at.is_return)
		i++;
	for (size_t end = i + INTERRUPTED_FRAMES; i < end && i < t->frame_count; i++) {
		const char *function = wait_function(l, l->thread, i);

		for (const char *const *name = lock->functions; *name; name++)
			if (wait_is_name(function, *name))
				return true;
	}
	return false;
}

static void blame(struct wait_look *l, const struct futex_call *f, const struct internal_lock *lock,
	struct wait *ret)
{
	vec_each(&l->process->threads, t)
		if (*t != l->thread && !futex_waits_too(f, *t) &&
			wait_find_function(l, *t, lock->functions, FRAMES) >= 0)
			wait_add_blocker(ret, l->process->pid, (*t)->look.tid, WAIT_INFERRED,
				"it is inside the functions that take this lock");
	for (size_t i = 0; ret->blocker_count > 1 && i < ret->blocker_count; i++)
		ret->blockers[i].grade = WAIT_CANDIDATE;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	const struct internal_lock *lock;
	int at;

	if (!futex_decode(l, &f) || f.timed_form || f.expected != 2)
		return false;
	lock = which(l, &at);
	if (!lock)
		return false;
	ret->nature = WAIT_LOCK;
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->what, "%s", lock->what);
	futex_object(l, &f, ret);
	ret->address = 0; /* its name says less than what it is for */
	if (is_inside_twice(l, lock, at))
		wait_add_blocker(ret, l->process->pid, l->look->tid, WAIT_INFERRED,
			"a signal came while it was inside, and the handler came back in");
	else
		blame(l, &f, lock, ret);
	if (!ret->blocker_count && l->process->status.ppid > 1 && l->process->threads.len == 1) {
		ret->trouble = WAIT_FORK_INHERITED;
		WAIT_SAY(ret->detail, "nobody in this process is inside: it was taken when the process "
			"was forked");
	}
	return true;
}

const struct wait_kind wait_kind_internal = {.name = "internal_lock", .look = look, .from_memory = true};
