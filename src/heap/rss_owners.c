/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose anonymous memory it is that is neither heap nor stack: of CPython's own allocator, which is told by its pools; or of
 * an allocator or a runtime that the process has, by elimination. docs/heuristics/rss-owners.md
 */
#include <string.h>

#include "elf/elf_file.h"
#include "heap/rss_priv.h"
#include "python/pools.h"

/* ---- Python's pools ---- */

#define POOL_STEP 4096u

static bool has_python(const struct rss_work *w)
{
	vec_each(&w->mappings, m)
		if (m->m.inode && strstr(m->m.path, "python"))
			return true;
	return false;
}

static bool is_nobodys(const struct rss_mapping *m)
{
	return m->kind == RSS_ANONYMOUS && !m->taken && m->m.read && m->m.write && m->sizes.rss > m->claimed &&
		(!m->m.path[0] || m->m.path[0] == '[');
}

static uint64_t claim_pool(struct rss_work *w, uint64_t at, const struct python_pool *pool)
{
	struct rss_claim got = rss_take(w, at, at + pool->pool_bytes);
	uint64_t used = pool->used_bytes ? pool->used_bytes + PYTHON_POOL_HEADER_BYTES : 0;

	if (used > got.bytes)
		used = got.bytes;
	rss_add(w, RSS_ALLOCATOR, "Python objects", &(struct rss_row){
		.bytes = used, .swap = got.swap, .size = pool->used_bytes});
	rss_add(w, RSS_ALLOCATOR, "Python, free in pools of objects", &(struct rss_row){
		.bytes = got.bytes - used, .size = pool->pool_bytes - pool->used_bytes});
	return pool->pool_bytes;
}

/* The header of a pool at `at`, which is in memory. */
static bool is_pool(struct rss_work *w, uint64_t at, uint64_t end, struct python_pool *ret)
{
	uint8_t header[PYTHON_POOL_HEADER_BYTES];

	return rss_read(w, at, header, sizeof(header)) == sizeof(header) && python_pool_parse(header, ret) &&
		!(at % ret->pool_bytes) && ret->pool_bytes <= end - at;
}

/* Each page that is in memory may begin one. */
static void find_pools(struct rss_work *w, const struct rss_mapping *m)
{
	uint64_t at = m->m.start, end = m->m.end;

	while (at < end) {
		struct python_pool pool;
		uint64_t next = rss_next_resident(w, at), until;

		at = next == UINT64_MAX ? end : next;
		if (at >= end)
			return;
		until = rss_claimed_until(w, at);
		if (until)
			at = (until + POOL_STEP - 1) & ~(uint64_t)(POOL_STEP - 1);
		else if (is_pool(w, at, end, &pool))
			at += claim_pool(w, at, &pool);
		else
			at += POOL_STEP;
	}
}

/* ---- by elimination ---- */

struct owner {
	const char *name;
	const char *library; /* begins the base name of a file that it comes as; NULL: none */
	const char *symbols[4]; /* functions that a program has which it is built into */
	const char *section;
};

static const struct owner owners[] = {
	{"jemalloc", "libjemalloc", {"mallctl", "je_mallctl", "_rjem_mallctl"}, NULL},
	{"tcmalloc", "libtcmalloc", {"tc_malloc", "TCMallocInternalMalloc"}, NULL},
	{"mimalloc", "libmimalloc", {"mi_malloc", "_mi_malloc_generic"}, NULL},
	{"AddressSanitizer", "libasan", {"__asan_init"}, NULL},
	{"V8 (JavaScript)", "libv8", {"_ZN2v87Isolate3NewERKNS0_12CreateParamsE"}, NULL},
	{"Go", NULL, {"runtime.mallocgc"}, ".gopclntab"},
	{"Java", "libjvm.so", {NULL}, NULL},
	{".NET", "libcoreclr.so", {NULL}, NULL},
	{"LuaJIT", "libluajit", {"luaJIT_setmode"}, NULL},
	{"musl's malloc", "ld-musl", {"__malloc_donate"}, NULL},
};

#define OWNERS (sizeof(owners) / sizeof(owners[0]))

struct found {
	bool have[OWNERS];
};

static int look_at_symbol(void *ctx, const struct elf_symbol *symbol)
{
	struct found *f = (struct found *)ctx;

	for (size_t i = 0; i < OWNERS; i++)
		for (size_t k = 0; k < 4 && owners[i].symbols[k] && !f->have[i]; k++)
			f->have[i] = !strcmp(symbol->name, owners[i].symbols[k]);
	return 0;
}

static void look_into(struct rss_work *w, const struct proc_mapping *m, struct found *f)
{
	struct elf_file *file = NULL;
	int fd = proc_open_mapped_file(w->reader, m, NULL);

	if (fd < 0 || elf_file_open_fd(fd, m->path, &file, NULL))
		return;
	for (size_t i = 0; i < OWNERS; i++)
		if (owners[i].section)
			f->have[i] |= elf_file_has_section(file, owners[i].section);
	elf_file_each_symbol(file, look_at_symbol, f);
	elf_file_free(file);
}

/* What libraries there are says their names; what is in the program itself, its symbols. */
static void find_owners(struct rss_work *w, struct found *f)
{
	bool program = false;

	vec_each(&w->mappings, m) {
		const char *slash = strrchr(m->m.path, '/');

		if (!m->m.inode || !m->m.exec || !slash)
			continue;
		for (size_t i = 0; i < OWNERS; i++)
			if (owners[i].library && !strncmp(slash + 1, owners[i].library, strlen(owners[i].library)))
				f->have[i] = true;
		if (!program)
			look_into(w, &m->m, f);
		program = true;
	}
}

static const char *name_owners(struct rss_work *w, const struct found *f)
{
	char name[256] = "";

	for (size_t i = 0; i < OWNERS; i++)
		if (f->have[i]) {
			size_t len = strlen(name);

			snprintf(name + len, sizeof(name) - len, "%s%s", len ? ", " : "", owners[i].name);
		}
	return name[0] ? rss_keep(w, name) : NULL;
}

void rss_find_owners(struct rss_work *w)
{
	struct found found = {0};
	const char *name;

	if (has_python(w) && w->pages.fd >= 0)
		vec_each(&w->mappings, m)
			if (is_nobodys(m))
				find_pools(w, m);
	find_owners(w, &found);
	name = name_owners(w, &found);
	vec_each(&w->mappings, m)
		if (name && !m->m.path[0] && !m->taken && (m->kind == RSS_ANONYMOUS || m->kind == RSS_CODE)) {
			m->name = name;
			m->kind = m->kind == RSS_CODE ? RSS_CODE : RSS_ALLOCATOR;
		}
}
