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

static void refuse(struct heap_cover *ret, const char *words)
{
	ret->kind = HEAP_NOT_PRELOADED;
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
		refuse(ret, "is statically linked: no library can be loaded into it, so its allocations cannot be "
			"seen. Link it dynamically; where its time goes shows \"sonde record\"");
		return;
	}
	elf_file_each_symbol(f, look_for_malloc, &found);
	if (!found)
		return;
	ret->kind = HEAP_OWN_ALLOCATOR;
	snprintf(ret->words, sizeof(ret->words),
		"has an allocator of its own (%s is in the program itself): what is allocated with that is not seen. "
		"Link the allocator as a shared library to have all of it",
		found);
}

void heap_cover_file(const char *path, struct heap_cover *ret)
{
	char file[PATH_MAX];
	struct elf_file *f = NULL;
	int fd;

	*ret = (struct heap_cover){0};
	snprintf(file, sizeof(file), "%s", path);
	for (unsigned i = 0; i < MOST_SCRIPTS && script_interpreter(file, file, sizeof(file)); i++)
		;
	if (proc_is_32bit_file(file)) {
		refuse(ret, "is a 32-bit program: sonde watches 64-bit programs only");
		return;
	}
	if (gains_rights(file)) {
		refuse(ret, "gains rights when it is started (setuid, setgid or file capabilities), so the loader takes "
			"no library from us; run it as the user it changes to");
		return;
	}
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && !elf_file_open_fd(fd, file, &f, NULL))
		look_at(f, ret);
	elf_file_free(f);
}
