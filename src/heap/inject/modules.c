/* SPDX-License-Identifier: BSD-2-Clause */
/* The object files of the process: which is the C library, the loader, an allocator, and what their functions are called. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "heap/inject/inject_priv.h"

struct reading {
	pid_t pid;
	struct inject_modules *m;
	struct err *err;
};

/* What the exported names of a file say about it. */
struct marks {
	bool start_main, tls_get_addr, malloc, own_malloc, pthread_create, dlopen;
	uint64_t dlopen_at, old_dlopen_at, dlerror_at, errno_at;
};

static int mark(void *ctx, const struct elf_symbol *s)
{
	struct marks *k = ctx;

	if (!s->dynamic) {
		k->own_malloc |= !strcmp(s->name, "malloc");
		return 0;
	}
	k->start_main |= !strcmp(s->name, "__libc_start_main");
	k->tls_get_addr |= !strcmp(s->name, "__tls_get_addr");
	k->malloc |= !strcmp(s->name, "malloc");
	k->pthread_create |= !strcmp(s->name, "pthread_create");
	if (!strcmp(s->name, "dlopen"))
		k->dlopen_at = s->start;
	if (!strcmp(s->name, "__libc_dlopen_mode"))
		k->old_dlopen_at = s->start;
	if (!strcmp(s->name, "dlerror"))
		k->dlerror_at = s->start;
	if (!strcmp(s->name, "__errno_location"))
		k->errno_at = s->start;
	return 0;
}

/* libc.so.6 can be executed as well, so that does not tell it from a program. */
static enum inject_kind kind_of(const struct marks *k, const char *name)
{
	if (!strncmp(name, "memfd:sonde-", 12))
		return INJECT_OURS;
	if (k->start_main)
		return INJECT_LIBC;
	if (k->tls_get_addr)
		return INJECT_LOADER;
	if (!strncmp(name, "libpthread", 10) || !strncmp(name, "libdl", 5))
		return INJECT_LIBC;
	return k->malloc || k->own_malloc ? INJECT_ALLOCATOR : INJECT_OTHER;
}

struct taking {
	struct inject_module *module;
	bool has_symtab;
	int rc;
};

static int take_function(void *ctx, const struct elf_symbol *s)
{
	struct taking *t = ctx;
	struct inject_function f = {s->start + t->module->bias, s->end + t->module->bias, s->name};

	t->has_symtab |= !s->dynamic;
	if (s->end > s->start && vec_push(&t->module->functions, f))
		t->rc = -ENOMEM;
	return t->rc;
}

static int by_start(const void *a, const void *b)
{
	const struct inject_function *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int take_functions(struct inject_module *m, struct elf_file *file)
{
	struct taking t = {.module = m};

	elf_file_each_symbol(file, take_function, &t);
	if (t.rc)
		return t.rc;
	m->stripped = !t.has_symtab;
	if (m->functions.len)
		qsort(m->functions.data, m->functions.len, sizeof(*m->functions.data), by_start);
	return 0;
}

/* Where the bytes of the segment end that the mapping is the last part of. */
static uint64_t tail_of(const struct inject_module *m, const struct elf_file *file)
{
	const struct elf_segment *s;
	size_t count = elf_file_segments(file, &s);

	for (size_t i = 0; i < count; i++) {
		uint64_t end = s[i].vaddr + s[i].mem_size + m->bias;

		if (s[i].executable && end > m->start && end < m->end && m->end - end < 4096)
			return end;
	}
	return 0;
}

/* The newest place counts: a program has one C library, and old ones have dlopen() in libdl. */
static void take_marks(struct inject_modules *all, const struct inject_module *m, const struct marks *k)
{
	if (m->kind != INJECT_LIBC)
		return;
	all->any_libc |= k->start_main;
	if (k->dlopen_at && (!all->dlopen || all->old_dlopen)) {
		all->dlopen = k->dlopen_at + m->bias;
		all->old_dlopen = false;
	}
	if (k->old_dlopen_at && !all->dlopen) {
		all->dlopen = k->old_dlopen_at + m->bias;
		all->old_dlopen = true;
	}
	if (k->dlerror_at)
		all->dlerror = k->dlerror_at + m->bias;
	if (k->errno_at)
		all->errno_location = k->errno_at + m->bias;
}

static int take_module(struct reading *r, const struct proc_mapping *map, struct elf_file *file)
{
	const char *base = strrchr(map->path, '/');
	struct inject_module m = {.start = map->start, .end = map->end};
	struct marks k = {0};
	uint64_t vaddr;
	int rc = 0;

	if (!elf_file_vaddr_of_offset(file, map->offset, &vaddr)) {
		elf_file_free(file);
		return 0;
	}
	m.bias = map->start - vaddr;
	snprintf(m.name, sizeof(m.name), "%s", base ? base + 1 : map->path);
	elf_file_each_symbol(file, mark, &k);
	m.kind = kind_of(&k, m.name);
	m.tail = tail_of(&m, file);
	if (m.kind == INJECT_LIBC || m.kind == INJECT_ALLOCATOR) {
		rc = take_functions(&m, file);
		m.file = file;
	} else {
		elf_file_free(file);
	}
	take_marks(r->m, &m, &k);
	if (!rc)
		rc = vec_push(&r->m->all, m);
	if (rc) {
		elf_file_free(m.file);
		vec_release(&m.functions);
	}
	return rc;
}

static int take_mapping(void *ctx, const struct proc_mapping *map)
{
	struct reading *r = ctx;
	struct elf_file *file = NULL;
	int fd, rc;

	if (!map->exec || !*map->path || *map->path == '[')
		return 0;
	fd = proc_open_mapped_file(r->pid, map, NULL);
	if (fd < 0 || elf_file_open_fd(fd, map->path, &file, NULL))
		return 0; /* what cannot be read is no code that a stack may be in: safe_stand() */
	rc = take_module(r, map, file);
	return rc ? err_nomem(r->err) : 0;
}

int inject_modules_read(pid_t pid, struct inject_modules *ret, struct err *err)
{
	struct reading r = {.pid = pid, .m = ret, .err = err};
	int rc = proc_each_mapping(pid, take_mapping, &r, err);

	if (rc)
		inject_modules_release(ret);
	return rc;
}

void inject_modules_release(struct inject_modules *m)
{
	vec_each(&m->all, it) {
		if (it->file)
			elf_file_free(it->file);
		vec_release(&it->functions);
	}
	vec_release(&m->all);
	*m = (struct inject_modules){0};
}

const struct inject_module *inject_module_at(const struct inject_modules *m, uint64_t pc)
{
	vec_each(&m->all, it)
		if (pc >= it->start && pc < it->end)
			return it;
	return NULL;
}

/* Functions do not lie in each other, but for a few bytes of assembler. */
#define LOOK_BACK 64u

const char *inject_function_name(const struct inject_module *m, uint64_t pc, size_t *at)
{
	size_t low = 0, high = m->functions.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (m->functions.data[mid].start <= pc)
			low = mid + 1;
		else
			high = mid;
	}
	for (; *at < LOOK_BACK && *at < low; (*at)++) {
		const struct inject_function *f = &m->functions.data[low - 1 - *at];

		if (pc < f->end) {
			(*at)++;
			return f->name;
		}
	}
	return NULL;
}
