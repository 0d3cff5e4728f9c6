/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for a recording that was cut short before its names were written.
 *
 * A file counts as the one that was recorded when its build id is the recorded one, or, for files
 * without, when it still is the same inode. The kernel counts as the same as long as this machine
 * has not been started anew (META "boot_id"). Everything else keeps its address: a wrong name is
 * worse than none.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/profile_priv.h"

struct local_module {
	struct elf_file *file;
	struct symbol_source *names; /* NULL: none, and `reason` says why */
	uint8_t reason;
	bool tried;
};

/* The path comes from the recording: nothing but a regular file is opened, and never waited for. */
static int open_regular(const char *path, struct stat *ret)
{
	autoclose int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, ret))
		return -errno;
	return S_ISREG(ret->st_mode) ? take_fd(fd) : -EINVAL;
}

static bool same_file(const struct profile_module *m, const struct module_file *recorded,
	struct elf_file *file, const struct stat *st)
{
	const uint8_t *id;
	size_t bytes = elf_file_build_id(file, &id);

	if (m->build_id_bytes || bytes)
		return bytes == m->build_id_bytes && !memcmp(id, m->build_id, bytes);
	return recorded->inode && recorded->inode == st->st_ino && recorded->device == st->st_dev;
}

static void open_file(struct loader *l, uint32_t module, struct local_module *local)
{
	static const struct symbol_elf_options options = {.root = ""};
	const struct profile_module *m = &l->p->modules.data[module];
	struct stat st;
	int fd = open_regular(m->path, &st);

	local->reason = SYMBOL_NO_FILE;
	if (fd < 0 || elf_file_open_fd(fd, m->path, &local->file, NULL))
		return;
	if (!same_file(m, &l->files.data[module], local->file, &st))
		return;
	if (symbol_source_elf(local->file, &options, &local->names, NULL))
		local->names = NULL;
}

static bool same_boot(const struct profile *p)
{
	const char *recorded = profile_meta(p, "boot_id");
	autofclose FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	char now[64];

	if (!recorded || !f || !fgets(now, sizeof(now), f))
		return false;
	now[strcspn(now, "\n")] = '\0';
	return !strcmp(now, recorded);
}

static void open_kernel(struct loader *l, struct local_module *local)
{
	local->reason = SYMBOL_NO_FILE;
	if (!same_boot(l->p))
		return;

	int rc = symbol_source_kernel(&local->names, NULL);

	if (!rc)
		return;
	local->names = NULL;
	if (rc == -EPERM || rc == -EACCES)
		local->reason = SYMBOL_REFUSED;
}

static void open_module(struct loader *l, uint32_t module, struct local_module *local)
{
	uint32_t kind = l->p->modules.data[module].kind;

	if (local->tried)
		return;
	local->tried = true;
	if (kind == MODULE_FILE)
		open_file(l, module, local);
	else if (kind == MODULE_KERNEL)
		open_kernel(l, local);
	else
		local->reason = kind == MODULE_JIT ? SYMBOL_ANONYMOUS : SYMBOL_NO_FILE;
}

static int take_answer(
	struct loader *l, struct frame_name *name, const struct symbol_answer *answer)
{
	*name = (struct frame_name){
		.first = (uint32_t)l->levels.len,
		.count = (uint32_t)answer->count,
		.reason = (uint8_t)answer->reason,
		.known = true,
	};
	if (l->levels.len + answer->count >= PROFILE_NONE)
		return -ENOMEM;
	for (size_t i = 0; i < answer->count; i++) {
		const struct symbol_level *from = &answer->levels[i];
		struct loaded_level to = {
			.name = loader_text(l, from->name, strlen(from->name)),
			.file = from->file ? loader_text(l, from->file, strlen(from->file)) : NULL,
			.line = from->line,
		};

		if (!to.name || (from->file && !to.file) || vec_push(&l->levels, to))
			return -ENOMEM;
	}
	return 0;
}

static int name_frames(struct loader *l, struct local_module *modules)
{
	for (size_t i = 0; i < l->p->frames.len; i++) {
		const struct profile_frame *f = &l->p->frames.data[i];
		struct frame_name *name = &l->names.data[i];

		if (name->known || f->module == PROFILE_NONE)
			continue;

		struct local_module *m = &modules[f->module];
		struct symbol_answer answer = {0};

		open_module(l, f->module, m);
		answer.reason = m->reason;
		if (m->names)
			answer = symbol_resolve(m->names, f->address - f->is_return);
		if (take_answer(l, name, &answer))
			return -ENOMEM;
	}
	return 0;
}

int loader_name_locally(struct loader *l, struct err *err)
{
	size_t count = l->p->modules.len;
	autofree struct local_module *modules = calloc(count + 1, sizeof(*modules));

	if (!modules)
		return err_nomem(err);

	int rc = name_frames(l, modules);

	for (size_t i = 0; i < count; i++) {
		symbol_source_free(modules[i].names);
		elf_file_free(modules[i].file);
	}
	return rc ? err_nomem(err) : 0;
}
