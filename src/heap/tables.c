/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blobs by module, made once; for each process a copy of those that it maps, and directories that name them.
 *
 * The area of a process is handed out first fit. A copy stays when its module is unmapped, for it may come back, and goes when
 * room is short. Nothing that the published directory leads to is ever written to; a reader that is still on an older
 * one sees that it is older (tables_layout.h).
 */
#include "heap/tables.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "heap/table_blob.h"
#include "heap/tables_layout.h"
#include "unwind/arch.h"
#include "unwind/table.h"

#define AREA_FIRST 4096u /* where the first thing may be: 0 says nowhere */

/* ---- what is made of modules ---- */

struct rules_module {
	const struct unwind_module *module;
	struct blob_builder *builder; /* until it is done */
	void *blob;                   /* NULL: not done, or it failed */
	size_t bytes;
	bool failed; /* out of memory: has no rules */
};

struct heap_rules {
	VEC(struct rules_module *) modules;
	VEC(struct heap_tables *) tables; /* all */
	size_t bytes, unfinished;
	uint64_t build_ns;
};

int heap_rules_new(struct heap_rules **ret, struct err *err)
{
	struct heap_rules *r = (struct heap_rules *)calloc(1, sizeof(*r));

	if (!r)
		return err_nomem(err);
	*ret = r;
	return 0;
}

static void free_module(struct heap_rules *r, struct rules_module *m)
{
	if (m->builder)
		r->unfinished--;
	r->bytes -= m->bytes;
	blob_builder_free(m->builder);
	free(m->blob);
	free(m);
}

void heap_rules_free(struct heap_rules *r)
{
	if (!r)
		return;
	vec_each(&r->modules, m)
		free_module(r, *m);
	vec_release(&r->modules);
	vec_release(&r->tables);
	free(r);
}

static struct rules_module *find_module(struct heap_rules *r, const struct unwind_module *module)
{
	vec_each(&r->modules, m)
		if ((*m)->module == module)
			return *m;
	return NULL;
}

/* The module's entry, new when it is first seen. NULL: out of memory. */
static struct rules_module *need_module(struct heap_rules *r, const struct unwind_module *module)
{
	struct rules_module *m = find_module(r, module);

	if (m)
		return m;
	m = (struct rules_module *)calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->module = module;

	uint64_t began = clock_own_cpu_ns();
	int rc = blob_builder_new(module, &m->builder, NULL);

	r->build_ns += clock_own_cpu_ns() - began;
	if (rc || vec_push(&r->modules, m)) {
		blob_builder_free(m->builder);
		free(m);
		return NULL;
	}
	r->unfinished++;
	return m;
}

static void finish_module(struct heap_rules *r, struct rules_module *m, bool good)
{
	if (good && !blob_builder_take(m->builder, &m->blob, &m->bytes))
		r->bytes += m->bytes;
	else
		m->failed = true;
	blob_builder_free(m->builder);
	m->builder = NULL;
	r->unfinished--;
}

/* Goes on with a module. True when it is done, either way. */
static bool work_on(struct heap_rules *r, struct rules_module *m, uint64_t ns)
{
	if (!m->builder)
		return true;

	uint64_t began = clock_own_cpu_ns();
	int rc = blob_builder_work(m->builder, ns);

	if (rc)
		finish_module(r, m, rc > 0);
	r->build_ns += clock_own_cpu_ns() - began;
	return rc != 0;
}

void heap_rules_stats(const struct heap_rules *r, struct heap_rules_stats *ret)
{
	*ret = (struct heap_rules_stats){
		.modules = r->modules.len,
		.unfinished = r->unfinished,
		.bytes = r->bytes,
		.build_ns = r->build_ns,
	};
}

/* ---- the area of a process ---- */

/* Part of the area that is taken. */
struct extent {
	uint64_t at, bytes;
	const struct rules_module *module; /* NULL: a directory */
	bool used;                         /* by the directory that is published */
};

struct heap_tables {
	struct heap_rules *rules;
	uint8_t *area;
	struct share_header *header;
	uint64_t first, limit, bytes;
	VEC(struct extent) extents; /* ascending */
	VEC(struct heap_tables_module) modules; /* ascending, disjoint; as set */
	enum unwind_arch arch;
	uint32_t modules_gone, generation;
	bool incomplete; /* some of them are not done */
};

int heap_tables_new(struct heap_rules *r, uint8_t *area, struct share_header *header, uint64_t limit,
	struct heap_tables **ret, struct err *err)
{
	struct heap_tables *t = (struct heap_tables *)calloc(1, sizeof(*t));

	if (!t || vec_push(&r->tables, t)) {
		free(t);
		return err_nomem(err);
	}
	t->rules = r;
	t->area = area;
	t->header = header;
	t->first = AREA_FIRST;
	t->limit = limit && limit < SHARE_TABLES_BYTES ? limit : SHARE_TABLES_BYTES;
	*ret = t;
	return 0;
}

void heap_tables_free(struct heap_tables *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->rules->tables.len; i++)
		if (t->rules->tables.data[i] == t)
			t->rules->tables.data[i] = t->rules->tables.data[--t->rules->tables.len];
	vec_release(&t->extents);
	vec_release(&t->modules);
	free(t);
}

void heap_tables_keep(struct heap_tables *t, uint64_t bytes)
{
	if (bytes > t->first && bytes <= SHARE_KEPT_MOST && bytes < t->limit / 2)
		t->first = (bytes + 7) & ~7ull;
}

uint64_t heap_tables_bytes(const struct heap_tables *t)
{
	return t->bytes;
}

static void drop_extent(struct heap_tables *t, size_t i)
{
	t->bytes -= t->extents.data[i].bytes;
	memmove(&t->extents.data[i], &t->extents.data[i + 1], (t->extents.len - i - 1) * sizeof(struct extent));
	t->extents.len--;
}

/* Before extent i, when it fits there. */
static bool gap_before(const struct heap_tables *t, size_t i, uint64_t bytes, uint64_t *ret)
{
	uint64_t from = i ? t->extents.data[i - 1].at + t->extents.data[i - 1].bytes : t->first;
	uint64_t to = i < t->extents.len ? t->extents.data[i].at : t->limit;

	*ret = from;
	return from <= to && to - from >= bytes;
}

/* Room for so many bytes. 0; -ENOSPC or -ENOMEM. */
static int take_room(struct heap_tables *t, uint64_t bytes, const struct rules_module *module, uint64_t *ret)
{
	uint64_t at;
	size_t i;

	bytes = (bytes + 7) & ~7ull;
	for (i = 0; i <= t->extents.len; i++)
		if (gap_before(t, i, bytes, &at))
			break;
	if (i > t->extents.len)
		return -ENOSPC;
	if (vec_reserve(&t->extents, t->extents.len + 1))
		return -ENOMEM;
	memmove(&t->extents.data[i + 1], &t->extents.data[i], (t->extents.len - i) * sizeof(struct extent));
	t->extents.len++;
	t->extents.data[i] = (struct extent){at, bytes, module, false};
	t->bytes += bytes;
	*ret = at;
	return 0;
}

/* The same, after what no directory needs was thrown out, if that is what it takes. */
static int need_room(struct heap_tables *t, uint64_t bytes, const struct rules_module *module, uint64_t *ret)
{
	int rc = take_room(t, bytes, module, ret);

	if (rc != -ENOSPC)
		return rc;
	for (size_t i = t->extents.len; i-- > 0;)
		if (!t->extents.data[i].used)
			drop_extent(t, i);
	return take_room(t, bytes, module, ret);
}

static struct extent *extent_of(struct heap_tables *t, const struct rules_module *module)
{
	vec_each(&t->extents, x)
		if (x->module == module)
			return x;
	return NULL;
}

/* ---- directories ---- */

/* Marks what the directory that is being made needs, so that it is not thrown out meanwhile. */
static void mark_needed(struct heap_tables *t)
{
	vec_each(&t->modules, m) {
		struct rules_module *known = find_module(t->rules, m->module);
		struct extent *x = known ? extent_of(t, known) : NULL;

		if (x)
			x->used = true;
	}
}

/* Where the process has the module's blob; 0: nowhere. -ENOSPC, -ENOMEM when it should be there. */
static int place_blob(struct heap_tables *t, const struct unwind_module *module, uint64_t *ret)
{
	struct rules_module *known = find_module(t->rules, module);
	struct extent *x;
	int rc;

	*ret = 0;
	if (!known || known->failed)
		return -ENOMEM;
	if (!known->blob) {
		t->incomplete = true;
		return 0;
	}
	x = extent_of(t, known);
	if (x) {
		*ret = x->at;
		return 0;
	}
	rc = need_room(t, known->bytes, known, ret);
	if (rc)
		return rc;
	memcpy(t->area + *ret, known->blob, known->bytes);
	extent_of(t, known)->used = true;
	return 0;
}

static void set_published(struct heap_tables *t, uint64_t directory)
{
	vec_each(&t->extents, x)
		x->used = x->at == directory;
	mark_needed(t);
	t->generation = (t->generation + 1) & 0xffffff;
	__atomic_store_n(&t->header->directory, TABLES_WORD(directory, t->generation), __ATOMIC_RELEASE);
	/* Older directories are of no use to anybody. */
	for (size_t i = t->extents.len; i-- > 0;)
		if (!t->extents.data[i].module && !t->extents.data[i].used)
			drop_extent(t, i);
}

/* A directory of t->modules. 0; -ENOMEM or -ENOSPC when something is missing in it, or it could not be made at all
 * (*ret_made). */
static int publish(struct heap_tables *t, bool *ret_made)
{
	uint64_t at, blob;
	size_t bytes = sizeof(struct tables_directory) + t->modules.len * sizeof(struct tables_module);
	int worst = 0, rc;

	*ret_made = false;
	t->incomplete = false;
	mark_needed(t);
	rc = need_room(t, bytes, NULL, &at);
	if (rc)
		return rc;
	/* Not to be thrown out by the blobs that come now. */
	vec_each(&t->extents, x)
		if (x->at == at)
			x->used = true;

	struct tables_directory head = {
		.magic = TABLES_MAGIC,
		.count = (uint32_t)t->modules.len,
		.modules_gone = t->modules_gone,
		.address_mask = arch_of(t->arch)->address_mask,
	};

	for (size_t i = 0; i < t->modules.len; i++) {
		const struct heap_tables_module *m = &t->modules.data[i];

		rc = place_blob(t, m->module, &blob);
		if (rc)
			worst = rc;

		struct tables_module entry = {m->start, m->end, m->bias, blob};

		memcpy(t->area + at + sizeof(head) + i * sizeof(entry), &entry, sizeof(entry));
	}
	memcpy(t->area + at, &head, sizeof(head));
	set_published(t, at);
	*ret_made = true;
	return worst;
}

static int by_start(const void *a, const void *b)
{
	const struct heap_tables_module *x = (const struct heap_tables_module *)a;
	const struct heap_tables_module *y = (const struct heap_tables_module *)b;

	return (x->start > y->start) - (x->start < y->start);
}

static int keep_modules(struct heap_tables *t, const struct heap_tables_module *modules, size_t count)
{
	size_t kept = 0;

	if (vec_reserve(&t->modules, count))
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (modules[i].module && modules[i].start < modules[i].end)
			t->modules.data[kept++] = modules[i];
	t->modules.len = kept;
	if (kept)
		qsort(t->modules.data, kept, sizeof(*t->modules.data), by_start);
	for (size_t i = 0; i + 1 < kept; i++)
		if (t->modules.data[i].end > t->modules.data[i + 1].start)
			t->modules.data[i].end = t->modules.data[i + 1].start;
	if (kept)
		t->arch = unwind_module_input(t->modules.data[0].module)->arch;
	return 0;
}

/* Small ones first come by themselves: each gets what is left of the time, and most need little. */
static void make_blobs(struct heap_tables *t, uint64_t ns)
{
	uint64_t end = ns == UINT64_MAX ? 0 : clock_monotonic_ns() + ns, now;

	vec_each(&t->modules, m) {
		struct rules_module *known = need_module(t->rules, m->module);

		now = end ? clock_monotonic_ns() : 0;
		if (known && (!end || now < end))
			work_on(t->rules, known, end ? end - now : UINT64_MAX);
	}
}

static void set_done(struct heap_tables *t, uint32_t modules_wanted)
{
	__atomic_store_n(&t->header->modules_done, modules_wanted, __ATOMIC_RELEASE);
	syscall(SYS_futex, &t->header->modules_done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int heap_tables_set(struct heap_tables *t, const struct heap_tables_module *modules, size_t count,
	uint32_t modules_wanted, uint32_t modules_gone, uint64_t ns, struct err *err)
{
	bool made;
	int rc = keep_modules(t, modules, count);

	if (rc)
		return err_nomem(err);
	t->modules_gone = modules_gone;
	make_blobs(t, ns);
	rc = publish(t, &made);
	if (made)
		set_done(t, modules_wanted);
	if (rc == -ENOSPC)
		return err_set(err, ENOSPC, "the unwind tables of a process need more than the %llu MB that are reserved for them",
			(unsigned long long)(t->limit >> 20));
	return rc ? err_nomem(err) : 0;
}

/* ---- the rest of the work ---- */

static bool needs(const struct heap_tables *t, const struct unwind_module *module)
{
	vec_each(&t->modules, m)
		if (m->module == module)
			return true;
	return false;
}

static void publish_everywhere(struct heap_rules *r, const struct unwind_module *module)
{
	bool made;

	vec_each(&r->tables, t)
		if ((*t)->incomplete && needs(*t, module))
			publish(*t, &made);
}

bool heap_rules_work(struct heap_rules *r, uint64_t ns)
{
	uint64_t end = ns == UINT64_MAX ? 0 : clock_monotonic_ns() + ns;

	for (size_t i = 0; r->unfinished && i < r->modules.len; i++) {
		struct rules_module *m = r->modules.data[i];
		uint64_t now = end ? clock_monotonic_ns() : 0;

		if (!m->builder)
			continue;
		if (end && now >= end)
			break;
		if (work_on(r, m, end ? end - now : UINT64_MAX) && m->blob)
			publish_everywhere(r, m->module);
	}
	return r->unfinished != 0;
}

void heap_rules_forget(struct heap_rules *r, const struct unwind_module *module)
{
	for (size_t i = 0; i < r->modules.len; i++) {
		struct rules_module *m = r->modules.data[i];

		if (m->module != module)
			continue;
		vec_each(&r->tables, t)
			for (size_t k = (*t)->extents.len; k-- > 0;)
				if ((*t)->extents.data[k].module == m)
					drop_extent(*t, k);
		free_module(r, m);
		r->modules.data[i] = r->modules.data[--r->modules.len];
		return;
	}
}
