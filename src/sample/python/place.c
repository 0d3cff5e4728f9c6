/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/place.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* ---- what a file holds ---- */

static int take_object(void *ctx, const struct elf_symbol *sym)
{
	struct python_file *file = ctx;

	if (!strcmp(sym->name, "_PyRuntime"))
		file->runtime = sym->start;
	else if (!strcmp(sym->name, "Py_Version"))
		file->version = sym->start;
	return file->runtime && file->version;
}

/* Compilers put parts that are seldom needed elsewhere, as "NAME.cold", and number clones. */
static bool is_eval(const char *name)
{
	static const char eval[] = "_PyEval_EvalFrameDefault";

	return !strncmp(name, eval, sizeof(eval) - 1) &&
		(!name[sizeof(eval) - 1] || name[sizeof(eval) - 1] == '.');
}

static int take_function(void *ctx, const struct elf_symbol *sym)
{
	struct python_file *file = ctx;

	if (!is_eval(sym->name) || sym->end <= sym->start)
		return 0;
	for (size_t i = 0; i < file->eval_count; i++)
		if (file->eval[i].start == sym->start)
			return 0;
	file->eval[file->eval_count].start = sym->start;
	file->eval[file->eval_count++].end = sym->end;
	return file->eval_count == PYTHON_MOST_EVAL_RANGES;
}

/* "python3.11", "libpython3.8.so.1.0": 11, 8; 0 for other names. */
static unsigned minor_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *at = strstr(slash ? slash : path, "python3.");
	unsigned minor = 0;

	for (at = at ? at + strlen("python3.") : ""; isdigit((unsigned char)*at) && minor < 100; at++)
		minor = minor * 10 + (unsigned)(*at - '0');
	return minor;
}

/* The segment that ends in memory which the file does not hold: .bss. */
static void take_data(const struct elf_file *f, struct python_file *file)
{
	const struct elf_segment *segments;
	size_t count = elf_file_segments(f, &segments);

	for (size_t i = 0; i < count; i++) {
		if (segments[i].executable || segments[i].mem_size <= segments[i].file_size)
			continue;
		file->data_start = segments[i].vaddr;
		file->data_end = segments[i].vaddr + segments[i].mem_size;
	}
}

void python_file_look(struct elf_file *f, struct python_file *ret)
{
	struct elf_section section;

	*ret = (struct python_file){
		.aarch64 = elf_file_machine(f) == EM_AARCH64,
		.minor = minor_of(elf_file_name(f)),
	};
	elf_file_each_exported_object(f, take_object, ret);
	if (!ret->runtime && elf_file_section(f, ".PyRuntime", &section))
		ret->runtime = section.vaddr;
	/* A program may export nothing. All its symbols are many, so they are asked by its name only. */
	if (!ret->runtime && ret->minor)
		elf_file_each_object(f, take_object, ret);
	if (!ret->runtime)
		return;
	ret->there = true;
	take_data(f, ret);
	elf_file_each_symbol(f, take_function, ret);
}

struct python_place python_place_at(const struct python_file *file, uint64_t bias)
{
	return (struct python_place){
		.runtime = file->runtime + bias,
		.version_at = file->version ? file->version + bias : 0,
		.data_start = file->data_start ? file->data_start + bias : 0,
		.data_end = file->data_start ? file->data_end + bias : 0,
		.minor = file->minor,
		.aarch64 = file->aarch64,
	};
}

bool python_file_evaluates(const struct python_file *file, uint64_t vaddr)
{
	for (size_t i = 0; i < file->eval_count; i++)
		if (vaddr >= file->eval[i].start && vaddr < file->eval[i].end)
			return true;
	return false;
}

/* ---- one process ---- */

/* Files whose code is mapped; each is looked at once, since their code is mapped in one piece mostly. */
struct search {
	const struct source *source;
	pid_t pid;
	uint64_t device, inode; /* looked at last */
	struct python_place *place;
};

static int look_at_mapping(void *ctx, const struct proc_mapping *m)
{
	struct search *search = ctx;
	struct python_file file;
	struct elf_file *f;
	uint64_t vaddr;
	int fd;

	if (!m->exec || !m->inode || (m->inode == search->inode && m->device == search->device))
		return 0;
	search->inode = m->inode;
	search->device = m->device;
	fd = search->source->ops->open_file(search->source, search->pid, m, NULL);
	if (fd < 0 || elf_file_open_fd(fd, m->path, &f, NULL))
		return 0;
	python_file_look(f, &file);
	if (file.there && elf_file_vaddr_of_offset(f, m->offset, &vaddr))
		*search->place = python_place_at(&file, m->start - vaddr);
	else
		file.there = false;
	elf_file_free(f);
	return file.there;
}

static bool read_process(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct python_process *p = ctx;

	return source_read(p->source, p->reader, addr, buf, len);
}

int python_process_open(const struct source *source, pid_t pid, struct python_process **ret,
	struct err *err)
{
	struct python_process *p = calloc(1, sizeof(*p));
	struct search search = {.source = source, .pid = pid};
	int rc;

	if (!p)
		return err_nomem(err);
	*p = (struct python_process){
		.source = source,
		.reader = source->still ? pid : proc_surviving_thread(pid),
	};
	search.place = &p->place;
	rc = source->ops->each_mapping(source, p->reader, look_at_mapping, &search, err);
	if (!rc)
		rc = err_set(err, ENOENT, "process %d has no CPython in it", (int)pid);
	if (rc > 0)
		rc = python_new(&(struct python_memory){p, read_process}, &p->place, &p->python, err);
	if (rc)
		python_process_close(p);
	else
		*ret = p;
	return rc;
}

void python_process_close(struct python_process *p)
{
	if (p)
		python_free(p->python);
	free(p);
}
