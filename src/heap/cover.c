/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/cover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <elf.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "elf/elf_file.h"
#include "os/proc.h"

/* A script's interpreter may be a script; the kernel follows as many (fs/exec.c, exec_binprm). */
#define MOST_SCRIPTS 5u

static void refuse(struct heap_cover *ret, enum heap_cover_kind kind, const char *words)
{
	ret->kind = kind;
	snprintf(ret->words, sizeof(ret->words), "%s", words);
}

/* The interpreter of a script ("#!PATH ARGS"), as execve(2) reads it. */
static bool script_interpreter(const char *path, char *ret, size_t size)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char line[256];
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	char *at = line + 2;

	if (n < 3 || line[0] != '#' || line[1] != '!')
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	at += strspn(at, " \t");
	at[strcspn(at, " \t")] = '\0';
	return *at && (size_t)snprintf(ret, size, "%s", at) < size;
}

/* Whether the kernel gives the program rights that its caller has not, so that the loader ignores LD_PRELOAD. */
static bool gains_rights(const char *path)
{
	struct stat st;
	uint8_t capabilities[64];

	if (stat(path, &st))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return true;
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		return true;
	return getuid() && getxattr(path, "security.capability", capabilities, sizeof(capabilities)) > 0;
}

/* Allocators as they are linked into programs, under names that no library can take. */
static const char *const own_names[] = {"_rjem_malloc", "_rjem_mallocx", "je_malloc", "jemalloc_malloc", "mi_malloc",
	"tc_malloc", "rpmalloc", "__wrap_malloc"};

static int look_for_malloc(void *ctx, const struct elf_symbol *sym)
{
	const char **found = ctx;

	if (sym->binding == STB_LOCAL)
		return 0;
	if (!strcmp(sym->name, "malloc")) {
		*found = "malloc";
		return 1;
	}
	for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++)
		if (!strcmp(sym->name, own_names[i]))
			*found = own_names[i];
	return 0;
}

static void look_at(struct elf_file *f, struct heap_cover *ret)
{
	const char *found = NULL;

	if (!elf_file_has_interpreter(f)) {
		refuse(ret, HEAP_STATIC, "is statically linked: no library can be loaded into it");
		return;
	}
	elf_file_each_symbol(f, look_for_malloc, &found);
	if (!found)
		return;
	ret->kind = HEAP_OWN_ALLOCATOR;
	ret->own_malloc = !strcmp(found, "malloc");
	snprintf(ret->words, sizeof(ret->words),
		"has an allocator of its own (%s is in the program itself): what is allocated with that is not seen "
		"from inside. sonde heap -p PID samples it by probes in the kernel (as root, or with CAP_BPF and CAP_PERFMON)",
		found);
}

void heap_cover_program(const char *path, char *ret, size_t size)
{
	snprintf(ret, size, "%s", path);
	for (unsigned i = 0; i < MOST_SCRIPTS && script_interpreter(ret, ret, size); i++)
		;
}

void heap_cover_file(const char *path, struct heap_cover *ret)
{
	char file[PATH_MAX];
	struct elf_file *f = NULL;
	int fd;

	*ret = (struct heap_cover){0};
	heap_cover_program(path, file, sizeof(file));
	if (proc_is_32bit_file(file)) {
		refuse(ret, HEAP_NOT_PRELOADED, "is a 32-bit program: sonde watches 64-bit programs only");
		return;
	}
	if (gains_rights(file)) {
		refuse(ret, HEAP_NOT_PRELOADED, "gains rights when it is started (setuid, setgid or file capabilities), so the loader takes "
			"no library from us; run it as the user it changes to");
		return;
	}
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && !elf_file_open_fd(fd, file, &f, NULL))
		look_at(f, ret);
	elf_file_free(f);
}

/* ---- a process: whose malloc it is ---- */

struct allocator {
	char path[256];
};

/* Shared allocators that stand before the C library's. */
static const char *const allocators[] = {"jemalloc", "tcmalloc", "mimalloc", "hoard", "snmalloc", "rpmalloc", "scudo"};

static bool is_c_library(const char *base)
{
	return !strncmp(base, "libc.so", 7) || !strncmp(base, "libc-2", 6) || !strncmp(base, "libc.musl", 9) ||
		!strncmp(base, "ld-musl", 7);
}

static int find_allocator(void *ctx, const struct proc_mapping *m)
{
	struct allocator *found = ctx;
	const char *slash = strrchr(m->path, '/'), *base = slash ? slash + 1 : m->path;

	if (!m->exec || m->path[0] != '/')
		return 0;
	if (is_c_library(base) && !found->path[0])
		snprintf(found->path, sizeof(found->path), "%s", m->path);
	for (size_t i = 0; i < sizeof(allocators) / sizeof(allocators[0]); i++)
		if (!strncmp(base, "lib", 3) && strstr(base, allocators[i])) {
			snprintf(found->path, sizeof(found->path), "%s", m->path);
			return 1;
		}
	return 0;
}

int heap_cover_allocator(pid_t pid, char *ret, size_t size)
{
	struct allocator found = {0};
	int rc = proc_each_mapping(pid, find_allocator, &found, NULL);

	snprintf(ret, size, "%s", found.path);
	return rc < 0 ? rc : found.path[0] ? 0 : -ENOENT;
}
