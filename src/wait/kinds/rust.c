/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rust's std::sync on Linux (library/std/src/sys/sync): futexes of its own, which hold no thread ids. Whoever
 * has a lock has a guard of it in a variable: the graph looks for that.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <string.h>

struct rust_lock {
	const char *function; /* that waits, in any version of the mangling */
	const char *what;
	bool is_lock;
};

static const struct rust_lock locks[] = {
	{"mutex::futex::Mutex::lock_contended", "for a Mutex", true},
	{"futex_mutex::Mutex::lock_contended", "for a Mutex", true},
	{"RwLock::read_contended", "for a RwLock, to read", true},
	{"RwLock::write_contended", "for a RwLock, to write", true},
	{"Condvar::wait", "for a Condvar", false},
	{"Once::call", "for a Once", false},
	{"Once::wait", "for a Once", false},
	{"thread::park", "to be unparked", false},
	{"Parker::park", "to be unparked", false},
};

/* The path without the brackets that the newer mangling puts around types: <a::Mutex>::lock. Cut when long. */
static void without_brackets(const char *function, char *ret, size_t size)
{
	size_t len = 0;

	for (; *function && len + 1 < size; function++)
		if (*function != '<' && *function != '>')
			ret[len++] = *function;
	ret[len] = '\0';
}

/* Whole names of the path: FnOnce::call is not Once::call. */
static bool has_path(const char *function, const char *path)
{
	for (const char *at = strstr(function, path); at; at = strstr(at + 1, path))
		if (at == function || at[-1] == ':')
			return true;
	return false;
}

static const struct rust_lock *which(struct wait_look *l)
{
	char function[512];

	for (size_t frame = 0; frame < WAIT_LEAF_FRAMES; frame++) {
		without_brackets(wait_function(l, l->thread, frame), function, sizeof(function));
		for (size_t i = 0; *function && i < sizeof(locks) / sizeof(locks[0]); i++)
			if (has_path(function, locks[i].function))
				return &locks[i];
	}
	return NULL;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	const struct rust_lock *lock;

	/* A bitset and the monotonic clock, as glibc has it for pthread_mutex_clocklock alone. */
	if (!futex_decode(l, &f) || !f.timed_form || f.realtime || f.shared)
		return false;
	lock = which(l);
	if (!lock)
		return false;
	ret->nature = lock->is_lock ? WAIT_LOCK : WAIT_EVENT;
	ret->ownerless = lock->is_lock;
	WAIT_SAY(ret->what, "%s", lock->what);
	futex_object(l, &f, ret);
	return true;
}

const struct wait_kind wait_kind_rust = {.name = "rust", .look = look, .from_memory = true};
