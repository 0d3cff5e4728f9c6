/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What guards and locks are called, and how a guard leads to its lock. docs/heuristics/guard-variables.md has
 * the tables in words.
 */
#include <string.h>

#include "wait/guards_priv.h"

#define MAX_DEPTH 12
#define MAX_MEMBERS 256u
#define UNKNOWN_LOCK_BYTES 64u /* how far behind a pointer to an unknown type a lock's word may be */

/* By the last name, template arguments left out. */
static const char *const guard_names[] = {
	/* Rust: std, parking_lot, lock_api, spin */
	"MutexGuard", "MappedMutexGuard", "ReentrantMutexGuard", "ReentrantLockGuard",
	"FairMutexGuard", "ArcMutexGuard", "RwLockReadGuard", "RwLockWriteGuard",
	"MappedRwLockReadGuard", "MappedRwLockWriteGuard", "RwLockUpgradableReadGuard",
	"ArcRwLockReadGuard", "ArcRwLockWriteGuard",
	/* C++, Boost */
	"lock_guard", "unique_lock", "shared_lock", "scoped_lock", "upgrade_lock", "strict_lock",
	"shared_lock_guard", "upgrade_to_unique_lock",
	/* Qt */
	"QMutexLocker", "QReadLocker", "QWriteLocker",
	/* Abseil, LevelDB, LLVM, Chromium, Mozilla, HotSpot, ... */
	"MutexLock", "MutexLocker", "ReaderMutexLock", "WriterMutexLock", "ReleasableMutexLock",
	"ReadLock", "WriteLock", "ReaderLock", "WriterLock", "ScopedLock", "SmartScopedLock",
	"SmartScopedReader", "SmartScopedWriter", "AutoLock", "BaseAutoLock", "MutexAutoLock",
	"AutoReadLock", "AutoWriteLock", "ReadLocker", "WriteLocker", NULL};

static size_t bare_length(const char *name)
{
	return strcspn(name, "<");
}

bool guard_name_is_guard(const char *name)
{
	size_t len = bare_length(name);

	for (const char *const *at = guard_names; *at; at++)
		if (strlen(*at) == len && !memcmp(*at, name, len))
			return true;
	return false;
}

static bool is_letter(char c, char first)
{
	return c >= first && c < first + 26;
}

/* "lock" as a word: lock, Lock, rw_lock, SpinLock; not block or Clock. */
static bool has_lock_word(const char *name, size_t len)
{
	for (size_t i = 0; i + 4 <= len; i++) {
		if (memcmp(name + i + 1, "ock", 3))
			continue;
		if (name[i] == 'L' || (name[i] == 'l' && (!i || (!is_letter(name[i - 1], 'a') &&
							 !is_letter(name[i - 1], 'A')))))
			return true;
	}
	return false;
}

bool guard_name_is_lock(const char *name)
{
	static const char *const parts[] = {"mutex", "Mutex", "rwlock", "spinlock", "sem_t", "emaphore",
		"ondition_variable", "ondvar", "pthread_cond", "WaitCondition", "barrier", "Barrier",
		"latch", "Latch", "once_flag", "OnceLock", NULL};
	char bare[128];
	size_t len = bare_length(name);

	if (len >= sizeof(bare) || guard_name_is_guard(name))
		return false;
	memcpy(bare, name, len);
	bare[len] = '\0';
	for (const char *const *part = parts; *part; part++)
		if (strstr(bare, *part))
			return true;
	return has_lock_word(bare, len);
}

static bool is_lock(void *ctx, const struct variable_type *t)
{
	return t->kind == VARIABLE_STRUCT && guard_name_is_lock(t->name);
}

/* ---- what a guard holds ---- */

/* Rust's guards and locks name what the lock protects: it may hold locks of its own. */
static bool is_protected(const struct variable_member *m)
{
	return !strcmp(m->name, "data");
}

static bool says_held(const struct variable_member *m)
{
	return m->type->kind == VARIABLE_PLAIN && m->type->size == 1 && !strstr(m->name, "unlock") &&
	       (strstr(m->name, "owns") || strstr(m->name, "ocked") || strstr(m->name, "held"));
}

static void add_pointer(struct guard_type *ret, uint64_t offset, const struct variable_type *target, bool tagged)
{
	if (ret->pointer_count < GUARDS_MOST_POINTERS)
		ret->pointers[ret->pointer_count++] = (struct guard_pointer){offset, target, tagged};
}

struct type_reader {
	struct variables *v;
	struct guard_type *ret;
	bool qt;
	unsigned left;
};

static void read_type(struct type_reader *r, const struct variable_type *t, uint64_t offset, int depth)
{
	const struct variable_member *members;
	size_t count = depth < MAX_DEPTH ? variable_members(r->v, t, &members) : 0;

	for (size_t i = 0; i < count && r->left; i++) {
		const struct variable_member *m = &members[i];
		uint64_t at = offset + m->offset;

		r->left--;
		if (r->ret->is_guard && is_protected(m))
			continue;
		if (m->type->kind == VARIABLE_POINTER) {
			add_pointer(r->ret, at, variable_target(r->v, m->type), false);
		} else if (m->type->kind == VARIABLE_STRUCT) {
			read_type(r, m->type, at, depth + 1);
		} else if (says_held(m)) {
			r->ret->has_flag = true;
			r->ret->flag_offset = at;
		} else if (r->qt && m->type->kind == VARIABLE_PLAIN && m->type->size == 8) {
			add_pointer(r->ret, at, NULL, true);
		}
	}
}

const struct guard_type *guards_type(
	struct guards *g, struct variables *v, const struct variable_type *t)
{
	struct table_node *known = table_find(&g->types, (uintptr_t)t);
	struct guard_type *type = (struct guard_type *)known;

	if (known)
		return type;
	type = calloc(1, sizeof(*type));
	if (!type)
		return NULL;
	type->is_guard = t->kind == VARIABLE_STRUCT && guard_name_is_guard(t->name);
	if (t->kind == VARIABLE_STRUCT) {
		struct type_reader r = {v, type, type->is_guard && t->name[0] == 'Q', MAX_MEMBERS};

		read_type(&r, t, 0, 0);
	}
	if (table_add(&g->types, &type->node, (uintptr_t)t)) {
		free(type);
		return NULL;
	}
	return type;
}

/* What the lock protects, where that holds the byte; NULL: it is one of the lock itself. */
static const struct variable_member *data_at(
	struct variables *v, const struct variable_type *lock, uint64_t offset)
{
	const struct variable_member *members;
	size_t count = variable_members(v, lock, &members);

	for (size_t i = 0; i < count; i++)
		if (is_protected(&members[i]) && offset - members[i].offset < members[i].type->size)
			return &members[i];
	return NULL;
}

bool guard_find_lock(struct variables *v, const struct variable_type *t, uint64_t offset,
	struct variable_part *ret, struct buf *path)
{
	const struct variable_member *data;
	struct variable_part part;
	uint64_t before = 0;

	if (!variable_find_part(v, t, offset, is_lock, NULL, ret, path))
		return false;
	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		uint64_t in_lock = offset - before - ret->offset;

		data = data_at(v, ret->type, in_lock);
		if (!data)
			break;
		before += ret->offset + data->offset;
		if (path)
			buf_printf(path, ".%s", data->name);
		if (!variable_find_part(v, data->type, offset - before, is_lock, NULL, &part, path))
			return false;
		*ret = part;
	}
	ret->offset += before;
	return true;
}

bool guard_leads_to(struct variables *v, const struct variable_type *target, uint64_t pointer,
	uint64_t address)
{
	struct variable_part part;
	uint64_t offset = address - pointer;

	if (!pointer)
		return false;
	if (!target || !target->size)
		return offset < UNKNOWN_LOCK_BYTES;
	if (offset >= target->size)
		return false;
	if (is_lock(NULL, target))
		return !data_at(v, target, offset);
	return target->kind != VARIABLE_STRUCT || !offset ||
	       guard_find_lock(v, target, offset, &part, NULL);
}
