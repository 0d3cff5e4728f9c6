/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This process as a program that is watched, and its own collector: tables of all that it maps, the shared memory,
 * and the unwinder of samples over the same mappings to compare with.
 */
#ifndef SONDE_TESTS_UNIT_OWN_TABLES_H
#define SONDE_TESTS_UNIT_OWN_TABLES_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/preload/walk.h"
#include "heap/tables.h"
#include "heap/tables_layout.h"
#include "sample/processes.h"
#include "unwind/unwind.h"

struct own {
	struct capture_writer *writer;
	struct module_store *modules;
	struct process_table *table;
	struct process *process;
	struct heap_rules *rules;
	struct heap_tables *tables;
	struct walk_memory memory;
};

static inline void own_added(void *ctx, struct process *p, struct space_mapping *m)
{
	(void)ctx;
	(void)p;
	(void)m;
}

/* Zeroed memory that takes room only where it is touched; never fails in a test that can go on. */
static inline void *own_memory(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static inline int own_publish(struct own *o, uint64_t ns)
{
	VEC(struct heap_tables_module) list = {0};
	struct share_header *h = o->memory.header;
	int rc = 0;

	if (process_snapshot(o->table, o->process, clock_monotonic_ns(), NULL))
		abort();
	vec_each(&o->process->mappings, m)
		if (m->module && m->module->unwind && !m->meaningless)
			rc |= vec_push(&list, (struct heap_tables_module){m->start, m->end, m->bias, m->module->unwind});
	if (!rc)
		rc = heap_tables_set(o->tables, list.data, list.len, h->modules_wanted, h->modules_gone, ns, NULL);
	vec_release(&list);
	return rc;
}

static inline void own_init(struct own *o)
{
	*o = (struct own){0};
	o->memory.header = (struct share_header *)own_memory(4096);
	o->memory.index = (uint32_t *)own_memory(SHARE_INDEX_SLOTS * 4);
	o->memory.nodes = (struct share_node *)own_memory(SHARE_NODES * sizeof(struct share_node));
	o->memory.tables = (const uint8_t *)own_memory(SHARE_TABLES_BYTES);
	if (capture_writer_to_fd(open("/dev/null", O_WRONLY), "null", &o->writer, NULL) ||
		module_store_new(o->writer, &source_live, &o->modules, NULL) ||
		process_table_new(o->modules, own_added, o, &o->table, NULL) ||
		!(o->process = process_get(o->table, getpid())) || heap_rules_new(&o->rules, NULL) ||
		heap_tables_new(o->rules, (uint8_t *)o->memory.tables, o->memory.header, 0, &o->tables, NULL))
		abort();
}

static inline void own_release(struct own *o)
{
	heap_tables_free(o->tables);
	heap_rules_free(o->rules);
	process_table_free(o->table);
	module_store_free(o->modules);
	capture_writer_abandon(o->writer);
	munmap(o->memory.header, 4096);
	munmap(o->memory.index, SHARE_INDEX_SLOTS * 4);
	munmap(o->memory.nodes, SHARE_NODES * sizeof(struct share_node));
	munmap((void *)o->memory.tables, SHARE_TABLES_BYTES);
}

static inline struct walk_state *own_state(void)
{
	return (struct walk_state *)own_memory(walk_state_bytes());
}

static inline bool own_find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	const struct own *o = (const struct own *)ctx;
	struct space_mapping *m = process_mapping(o->process, addr);

	if (!m)
		return false;
	*ret = (struct unwind_mapping){.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.module = m->module ? m->module->unwind : NULL,
		.id = 1,
		.executable = true};
	return true;
}

/* ---- registers here, and of the caller ---- */

/* A function that asks for its frame address keeps a frame pointer. */
#define OWN_HOOK __attribute__((noinline))

#if defined(__x86_64__)
/* Of the function that expands it, as a sampler would see them. */
#define own_registers(regs)                                                                        \
	do {                                                                                       \
		uint64_t *v_ = (regs)->value;                                                      \
		__asm__ volatile("lea 0(%%rip), %%rax\n\tmov %%rax, 128(%0)\n\tmov %%rsp, 56(%0)\n\t"        \
				 "mov %%rbp, 48(%0)\n\tmov %%rbx, 24(%0)\n\tmov %%r12, 96(%0)\n\t"           \
				 "mov %%r13, 104(%0)\n\tmov %%r14, 112(%0)\n\tmov %%r15, 120(%0)"             \
			: : "r"(v_) : "rax", "memory");                                            \
		(regs)->known = 1 << 16 | 1 << 7 | 1 << 6 | 1 << 3 | 0xf << 12;                    \
	} while (0)
/* In a function that keeps its frame pointer: what walk_stack() starts from. */
#define own_start()                                                                                \
	((struct walk_start){(uint64_t)__builtin_return_address(0),                                \
		(uint64_t)__builtin_frame_address(0) + 16, *(uint64_t *)__builtin_frame_address(0)})
#elif defined(__aarch64__)
#define own_start()                                                                                \
	((struct walk_start){(uint64_t)__builtin_return_address(0), 0, 0})
#endif

#endif
