/* SPDX-License-Identifier: BSD-2-Clause */
/* What a mapping is for, as far as the kernel's own words and the file that it belongs to say. */
#include <string.h>

#include "base/cleanup.h"
#include "elf/elf_file.h"
#include "heap/rss_priv.h"

/* ---- by name ---- */

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* The kernel's names that are no files. */
static bool is_shared_memory(const struct proc_mapping *m)
{
	return begins(m->path, "/dev/shm/") || begins(m->path, "/memfd:") || begins(m->path, "/SYSV") ||
		(m->shared && begins(m->path, "/dev/zero")) || begins(m->path, "[anon_shmem:");
}

static bool is_kernels(const char *path)
{
	return !strcmp(path, "[vdso]") || begins(path, "[vvar") || !strcmp(path, "[vsyscall]") ||
		!strcmp(path, "[uprobes]");
}

/* "[anon:NAME]" as PR_SET_VMA_ANON_NAME gave it. */
static const char *given_name(struct rss_work *w, const char *path)
{
	char name[128];
	const char *at = strchr(path, ':');

	if (!at)
		return path;
	at += 1 + strspn(at + 1, " ");
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "]"), at);
	return rss_keep(w, name);
}

static void by_path(struct rss_work *w, struct rss_mapping *m)
{
	const char *path = m->m.path;

	m->name = path;
	if (is_shared_memory(&m->m)) {
		m->kind = RSS_SHARED;
		m->name = path[0] == '[' ? given_name(w, path) : path;
	} else if (is_kernels(path)) {
		m->kind = RSS_KERNEL;
	} else if (begins(path, "[anon:")) {
		m->kind = m->m.exec ? RSS_CODE : RSS_ANONYMOUS;
		m->name = given_name(w, path);
	} else if (!strcmp(path, "[heap]")) {
		m->kind = RSS_HEAP_UNSEEN;
		m->name = "";
	} else if (begins(path, "[stack")) {
		m->kind = RSS_STACK_DEEPER;
		m->name = "";
	} else if (path[0] == '/' || m->m.inode) {
		m->kind = m->m.exec ? RSS_FILE_TEXT : RSS_FILE_DATA;
	} else {
		m->kind = m->m.shared ? RSS_SHARED : m->m.exec ? RSS_CODE : RSS_ANONYMOUS;
		m->name = path;
	}
}

/* ---- variables that begin as zeros ---- */

/* Where those of the file end, in memory, 0: it has none. */
static uint64_t bss_end(struct rss_work *w, const struct proc_mapping *m)
{
	const struct elf_segment *segments;
	struct elf_file *file = NULL;
	int fd = proc_open_mapped_file(w->reader, m, NULL);
	uint64_t vaddr, end = 0;
	size_t count;

	if (fd < 0 || elf_file_open_fd(fd, m->path, &file, NULL))
		return 0;
	count = elf_file_segments(file, &segments);
	if (elf_file_vaddr_of_offset(file, m->offset, &vaddr))
		for (size_t i = 0; i < count; i++)
			if (segments[i].mem_size > segments[i].file_size &&
				segments[i].vaddr + segments[i].mem_size > vaddr)
				end = m->start - vaddr + segments[i].vaddr + segments[i].mem_size;
	elf_file_free(file);
	return end;
}

static bool is_private_file(const struct rss_mapping *m)
{
	return m->m.inode && !m->m.shared && m->m.path[0] == '/';
}

/* The mapping behind the last one of a file holds the rest of the file's variables, and what was mapped behind them. */
static void claim_bss(struct rss_work *w, const struct rss_mapping *file, struct rss_mapping *rest)
{
	uint64_t page = w->pages.page_bytes ? w->pages.page_bytes : 4096, end = bss_end(w, &file->m);

	end = (end + page - 1) & ~(page - 1);
	if (end <= rest->m.start)
		return;
	if (end >= rest->m.end) {
		rest->kind = RSS_FILE_BSS;
		rest->name = file->m.path;
	} else {
		rss_claim(w, rest->m.start, end, RSS_FILE_BSS, file->m.path);
	}
}

static bool is_plain(const struct rss_mapping *m)
{
	return m->kind == RSS_ANONYMOUS && !m->m.path[0] && m->m.write && !m->m.shared;
}

void rss_classify(struct rss_work *w)
{
	vec_each(&w->mappings, m)
		by_path(w, m);
	for (size_t i = 1; i < w->mappings.len; i++) {
		struct rss_mapping *m = &w->mappings.data[i], *before = m - 1;

		if (is_plain(m) && before->m.end == m->m.start && is_private_file(before))
			claim_bss(w, before, m);
	}
}
