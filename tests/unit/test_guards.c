/* SPDX-License-Identifier: BSD-2-Clause */
/* What is called like a guard and like a lock; that a guard leads to its lock and no other. */
#include "symbol_fixtures.h"
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>

#include "wait/guards_priv.h"

TEST(names_of_guards)
{
	check(guard_name_is_guard("lock_guard<std::mutex>"));
	check(guard_name_is_guard("shared_lock<std::shared_mutex>"));
	check(guard_name_is_guard("scoped_lock<>"));
	check(guard_name_is_guard("MutexGuard<alloc::vec::Vec<u8>>"));
	check(guard_name_is_guard("RwLockReadGuard<u8>"));
	check(guard_name_is_guard("QMutexLocker<QMutex>"));
	check(guard_name_is_guard("QReadLocker"));
	check(guard_name_is_guard("MutexLock"));
	check(!guard_name_is_guard("vector<std::lock_guard<std::mutex> >"));
	check(!guard_name_is_guard("lock_guard_list"));
	check(!guard_name_is_guard("my_lock_guard"));
	check(!guard_name_is_guard("Mutex<u8>"));
	check(!guard_name_is_guard(""));
}

TEST(names_of_locks)
{
	static const char *const locks[] = {"mutex", "shared_mutex", "pthread_mutex_t", "pthread_rwlock_t",
		"Mutex<u8>", "RwLock<u8>", "ReentrantLock", "SpinLock", "spin_lock", "QMutex",
		"QReadWriteLock", "sem_t", "condition_variable", "Condvar", "Lock", "lock", "once_flag",
		"barrier", "__shared_mutex_pthread"};
	static const char *const others[] = {"Block", "Clock", "clock_t", "block_t", "Flock", "Box<Mutex>",
		"atomic<int>", "vector<std::mutex>", "lock_guard<std::mutex>", "MutexGuard<u8>", ""};

	for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
		if (!guard_name_is_lock(locks[i]))
			check_str(locks[i], "a lock");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (guard_name_is_lock(others[i]))
			check_str(others[i], "no lock");
}

struct world {
	struct elf_file *file;
	struct variables *variables;
};

static bool open_world(struct world *w)
{
	struct variables_options options = {.root = ""};
	struct err err = {0};
	int fd = open(FIXTURES "/locks.so", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || elf_file_open_fd(fd, FIXTURES "/locks.so", &w->file, &err) ||
		variables_new(w->file, &options, &w->variables, &err)) {
		check(!"locks.so can be read");
		return false;
	}
	return true;
}

static void close_world(struct world *w)
{
	variables_free(w->variables);
	elf_file_free(w->file);
}

struct wanted {
	const char *name;
	uint64_t start;
};

static int note_start(void *ctx, const struct elf_symbol *sym)
{
	struct wanted *w = ctx;

	if (strcmp(sym->name, w->name))
		return 0;
	w->start = sym->start;
	return 1;
}

/* The type of a global of locks.cpp. */
static const struct variable_type *type_of(struct world *w, const char *name)
{
	struct wanted wanted = {.name = name};
	struct variable_global global;

	check(elf_file_each_object(w->file, note_start, &wanted) == 1);
	check(variables_global_at(w->variables, wanted.start, &global) && global.type);
	return global.type;
}

/* locks.cpp: what is protected begins at 8, and its own lock stands at 16. */
TEST(data_is_not_the_lock)
{
	struct variable_part part;
	struct buf path = {0};
	struct world w;

	if (!open_world(&w))
		return;
	const struct variable_type *outer = type_of(&w, "outer");

	check(guard_leads_to(w.variables, outer, 0x1000, 0x1000));
	check(guard_leads_to(w.variables, outer, 0x1000, 0x1004));
	check(!guard_leads_to(w.variables, outer, 0x1000, 0x1010));
	check(!guard_leads_to(w.variables, outer, 0x1000, 0x1000 + outer->size));
	check(!guard_leads_to(w.variables, outer, 0x1000, 0xfff));
	check(!guard_leads_to(w.variables, outer, 0, 4));
	check(guard_leads_to(w.variables, NULL, 0x1000, 0x1008));
	check(!guard_leads_to(w.variables, NULL, 0x1000, 0x2000));

	check(guard_find_lock(w.variables, outer, 0, &part, &path) && part.type == outer && !part.member);
	check(guard_find_lock(w.variables, outer, 16, &part, &path));
	check_str(path.data, ".data.part");
	check_str(part.member ? part.member->name : "", "part");
	check_u64(part.offset, 16);
	buf_release(&path);
	close_world(&w);
}

TEST(what_guards_hold)
{
	struct guards g = {0};
	struct world w;

	if (!open_world(&w))
		return;
	const struct guard_type *one = guards_type(&g, w.variables, type_of(&w, "one"));
	const struct guard_type *two = guards_type(&g, w.variables, type_of(&w, "two"));
	const struct guard_type *qt = guards_type(&g, w.variables, type_of(&w, "qt"));

	check(one->is_guard && one->has_flag && one->pointer_count == 1);
	check_u64(one->pointers[0].offset, 0);
	check_u64(one->flag_offset, 8);
	check(!strcmp(one->pointers[0].target->name, "mutex"));
	/* By its base classes, and not by the data. */
	check(two->is_guard && !two->has_flag && two->pointer_count == 2);
	check_u64(two->pointers[0].offset + two->pointers[1].offset, 8);
	check(qt->is_guard && qt->pointer_count == 1 && qt->pointers[0].tagged);
	check(guards_type(&g, w.variables, type_of(&w, "qt")) == qt);

	struct table_node *next;

	for (struct table_node *at = table_next(&g.types, NULL); at; at = next) {
		next = table_next(&g.types, at);
		free(at);
	}
	table_release(&g.types);
	close_world(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(names_of_guards), T(names_of_locks), T(data_is_not_the_lock),
		T(what_guards_hold));
}
