/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's mutexes, and so std::mutex and its relatives: the thread id of the holder stands in the mutex,
 * whatever its type. A waiter expects 2 there; of a robust mutex, the holder's id itself; for one with
 * priority inheritance it waits in the kernel.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <linux/futex.h>
#include <string.h>

#define TYPE_RECURSIVE 1
#define TYPE_ROBUST 16
#define TYPE_PI 32

#define LOCKED_WITH_WAITERS 2u

static const char *type_words(const struct glibc_mutex *m)
{
	if (m->type & TYPE_ROBUST)
		return "a robust mutex";
	if (m->type & TYPE_PI)
		return "a mutex with priority inheritance";
	if ((m->type & 3) == TYPE_RECURSIVE)
		return "a recursive mutex";
	return "a mutex";
}

/* What the waiter expects fits the mutex's type. */
static bool fits(const struct futex_call *f, const struct glibc_mutex *m)
{
	if (f->pi)
		return m->type & TYPE_PI;
	if (m->type & TYPE_ROBUST)
		return (f->expected & FUTEX_WAITERS) &&
			(f->expected & FUTEX_TID_MASK) == (m->lock & FUTEX_TID_MASK);
	return f->expected == LOCKED_WITH_WAITERS && m->lock <= LOCKED_WITH_WAITERS;
}

/* Robust mutexes keep the holder in the lock word alone while they are handed on. */
static uint32_t owner_of(const struct futex_call *f, const struct glibc_mutex *m)
{
	return f->pi || m->type & TYPE_ROBUST ? m->lock & FUTEX_TID_MASK : m->owner;
}

static const char loader_words[] = "a lock of the loader (dlopen, dl_iterate_phdr)";

static bool is_loaders(struct wait_look *l, uint64_t address)
{
	const struct snapshot_mapping *m = snapshot_mapping(l->process, address);

	return m && (strstr(m->path, "/ld-linux") || strstr(m->path, "/ld-2."));
}

/* Bare locks of the C library look alike: that one is a mutex is known by its holder, who lives, or by
 * the function that waits. */
static bool is_in_mutex_function(struct wait_look *l)
{
	static const char *const functions[] = {
		"pthread_mutex_*", "__pthread_mutex_*", "___pthread_mutex_*", NULL};

	return wait_find_function(l, l->thread, functions, WAIT_LEAF_FRAMES) >= 0;
}

static bool blame_owner(
	struct wait_look *l, const struct futex_call *f, uint32_t owner, struct wait *ret)
{
	static const char how[] = "its thread id stands in the mutex";

	return futex_blame(l, f, owner, false, how, ret) ||
		(owner && is_in_mutex_function(l) && futex_blame(l, f, owner, true, how, ret));
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	struct glibc_mutex m;

	if (!futex_decode(l, &f) || !futex_read_mutex(l, f.address, &m) || !fits(&f, &m) ||
		!blame_owner(l, &f, owner_of(&f, &m), ret))
		return false;
	if (m.lock & FUTEX_OWNER_DIED && m.type & TYPE_ROBUST)
		WAIT_SAY(ret->detail, "its last holder ended without unlocking it");
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for %s", is_loaders(l, f.address) ? loader_words : type_words(&m));
	futex_object(l, &f, ret);
	return true;
}

const struct wait_kind wait_kind_mutex = {.name = "mutex", .look = look, .from_memory = true};
