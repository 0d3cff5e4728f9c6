/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/modules.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"

struct module_store {
	struct capture_writer *writer;
	VEC(struct module *) modules;
};

/* Functions at the bottom of stacks whose files have no CFI to say so: musl's start code and
 * thread entry, and the Go runtime's. */
static const char *const root_names[] = {
	"_start", "_start_c", "__clone", "_rt0_amd64", "_rt0_amd64_linux", "_rt0_arm64_linux",
	"runtime.goexit", "runtime.goexit.abi0", "runtime.mstart", "runtime.mstart.abi0",
	"runtime.rt0_go", "runtime.rt0_go.abi0", "runtime.mcall", "runtime.morestack",
	"runtime.morestack.abi0",
};

struct root_list {
	VEC(struct unwind_range) ranges;
};

static int collect_root(void *ctx, const struct elf_symbol *sym)
{
	struct root_list *list = ctx;

	if ((sym->name[0] != '_' && sym->name[0] != 'r') || sym->end <= sym->start)
		return 0;
	for (size_t i = 0; i < sizeof(root_names) / sizeof(root_names[0]); i++)
		if (!strcmp(sym->name, root_names[i]))
			return vec_push(&list->ranges, (struct unwind_range){sym->start, sym->end});
	return 0;
}

static struct unwind_section section_named(struct elf_file *f, const char *name)
{
	struct elf_section s;

	if (!elf_file_section(f, name, &s))
		return (struct unwind_section){0};
	return (struct unwind_section){s.bytes, s.size, s.vaddr};
}

static bool has_section(struct elf_file *f, const char *name)
{
	struct elf_section s;

	return elf_file_section(f, name, &s);
}

#define MAX_TEXT_SEGMENTS 16

static size_t text_segments(struct elf_file *f, struct unwind_section *text)
{
	const struct elf_segment *segments;
	size_t count = elf_file_segments(f, &segments), used = 0;

	for (size_t i = 0; i < count && used < MAX_TEXT_SEGMENTS; i++) {
		const struct elf_segment *s = &segments[i];
		const uint8_t *bytes = s->executable && s->file_size
			? elf_file_bytes_at(f, s->vaddr, s->file_size)
			: NULL;

		if (bytes)
			text[used++] = (struct unwind_section){bytes, s->file_size, s->vaddr};
	}
	return used;
}

static int make_unwind(struct module *m)
{
	struct unwind_section text[MAX_TEXT_SEGMENTS];
	struct root_list roots = {0};
	struct elf_file *f = m->file;

	elf_file_each_symbol(f, collect_root, &roots);

	struct unwind_module_input input = {
		.arch = elf_file_machine(f) == EM_AARCH64 ? UNWIND_AARCH64 : UNWIND_X86_64,
		.eh_frame = section_named(f, ".eh_frame"),
		.eh_frame_hdr = section_named(f, ".eh_frame_hdr"),
		.debug_frame = section_named(f, ".debug_frame"),
		.text = text,
		.text_count = text_segments(f, text),
		.roots = roots.ranges.data,
		.root_count = roots.ranges.len,
		.entry = elf_file_is_executable(f) ? elf_file_entry(f) : 0,
		.data_base = section_named(f, ".got").vaddr,
		.go = has_section(f, ".gopclntab") || has_section(f, ".note.go.buildid"),
	};
	int rc = unwind_module_new(&input, &m->unwind, NULL);

	vec_release(&roots.ranges);
	return rc;
}

static void module_free(struct module *m)
{
	if (!m)
		return;
	unwind_module_free(m->unwind);
	elf_file_free(m->file);
	if (m->root_fd >= 0)
		close(m->root_fd);
	free(m->path);
	free(m);
}

int module_store_new(struct capture_writer *w, struct module_store **ret, struct err *err)
{
	struct module_store *s = calloc(1, sizeof(*s));

	if (!s)
		return err_nomem(err);
	s->writer = w;
	*ret = s;
	return 0;
}

void module_store_free(struct module_store *s)
{
	if (!s)
		return;
	vec_each(&s->modules, m)
		module_free(*m);
	vec_release(&s->modules);
	free(s);
}

static void write_module(struct module_store *s, struct module *m)
{
	const uint8_t *build_id = NULL;
	size_t len = m->file ? elf_file_build_id(m->file, &build_id) : 0;
	struct record_module record = {
		.path = capture_string(s->writer, m->path),
		.kind = m->kind,
		.pid = (uint32_t)m->pid,
		.inode = m->inode,
		.device = m->device,
		.build_id_bytes = (uint8_t)len,
	};

	if (len)
		memcpy(record.build_id, build_id, len);
	m->capture_id = capture_module(s->writer, &record);
}

/* Takes ownership of `m`; NULL when out of memory. */
static struct module *add_module(struct module_store *s, struct module *m)
{
	if (m->file && make_unwind(m)) {
		module_free(m);
		return NULL;
	}
	if (vec_push(&s->modules, m)) {
		module_free(m);
		return NULL;
	}
	write_module(s, m);
	return m;
}

static struct module *new_module(uint32_t kind, const char *path)
{
	struct module *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->kind = kind;
	m->root_fd = -1;
	m->path = strdup(path);
	if (!m->path) {
		free(m);
		return NULL;
	}
	return m;
}

/* Our own vDSO: the kernel maps the same image into every 64-bit process. */
static int copy_own_vdso(void *ctx, const struct proc_mapping *m)
{
	struct module *vdso = ctx;

	if (strcmp(m->path, "[vdso]"))
		return 0;
	elf_file_open_memory(
		(const void *)(uintptr_t)m->start, m->end - m->start, "[vdso]", &vdso->file, NULL);
	return 1;
}

static struct module *find_special(struct module_store *s, uint32_t kind, pid_t pid)
{
	vec_each(&s->modules, m)
		if ((*m)->kind == kind && (*m)->pid == pid)
			return *m;
	return NULL;
}

static struct module *vdso_module(struct module_store *s)
{
	struct module *m = find_special(s, MODULE_VDSO, 0);

	if (m)
		return m;
	m = new_module(MODULE_VDSO, "[vdso]");
	if (!m)
		return NULL;
	proc_each_mapping(getpid(), copy_own_vdso, m, NULL);
	return add_module(s, m);
}

struct module *module_store_jit(struct module_store *s, pid_t pid)
{
	struct module *m = find_special(s, MODULE_JIT, pid);

	if (m)
		return m;
	m = new_module(MODULE_JIT, "[jit]");
	if (!m)
		return NULL;
	m->pid = pid;
	return add_module(s, m);
}

struct module *module_store_kernel(struct module_store *s)
{
	struct module *m = find_special(s, MODULE_KERNEL, 0);

	if (m)
		return m;
	m = new_module(MODULE_KERNEL, "[kernel]");
	return m ? add_module(s, m) : NULL;
}

static bool same_link(pid_t pid, const char *what)
{
	char theirs[64], ours[64], a[4096], b[4096];

	snprintf(theirs, sizeof(theirs), "/proc/%d/%s", (int)pid, what);
	snprintf(ours, sizeof(ours), "/proc/self/%s", what);
	ssize_t n = readlink(theirs, a, sizeof(a)), k = readlink(ours, b, sizeof(b));
	return n > 0 && n == k && !memcmp(a, b, (size_t)n);
}

/* A handle on the file tree the process sees, -1 when it is ours (or cannot be told). */
static int open_root(pid_t pid)
{
	char path[48];

	if (same_link(pid, "ns/mnt") && same_link(pid, "root"))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static struct module *find_file(struct module_store *s, const struct proc_mapping *m)
{
	vec_each(&s->modules, it)
		if ((*it)->inode == m->inode && (*it)->device == m->device &&
			(*it)->kind == MODULE_FILE && !strcmp((*it)->path, m->path))
			return *it;
	return NULL;
}

static struct module *open_file_module(
	struct module_store *s, pid_t pid, const struct proc_mapping *mapping)
{
	struct module *m = new_module(MODULE_FILE, mapping->path);

	if (!m)
		return NULL;
	m->inode = mapping->inode;
	m->device = mapping->device;

	int fd = proc_open_mapped_file(pid, mapping, NULL);

	if (fd < 0) {
		m->refused = -fd;
	} else {
		m->refused = -elf_file_open_fd(fd, mapping->path, &m->file, NULL);
		m->root_fd = open_root(pid);
	}
	return add_module(s, m);
}

/* Names the kernel gives to memory that has an inode and no file; JITs live there too. */
static bool is_shared_memory(const char *path)
{
	static const char *const prefixes[] = {"/memfd:", "/dev/", "/SYSV", "/anon_hugepage"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(path, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

struct module *module_store_mapped(struct module_store *s, pid_t pid, const struct proc_mapping *m)
{
	if (!strcmp(m->path, "[vdso]"))
		return vdso_module(s);
	if (m->path[0] != '/' || !m->inode)
		return module_store_jit(s, pid);

	struct module *known = find_file(s, m);

	/* One that could not be opened for a process that was gone may be for the next. */
	if (!known || known->refused == ESRCH)
		known = open_file_module(s, pid, m);
	return known && !known->file && is_shared_memory(m->path) ? module_store_jit(s, pid) : known;
}

size_t module_store_count(const struct module_store *s)
{
	return s->modules.len;
}

struct module *module_store_at(const struct module_store *s, size_t index)
{
	return s->modules.data[index];
}

/* Address in the file of the byte at `offset`, which a mapping of executable pages starts with.
 * The loader maps whole pages, so the mapping of a segment starts at the page the segment starts
 * in, which may belong to the segment before it too (lld, mold). A mapping that starts elsewhere is
 * a part of a segment. */
static bool code_vaddr(const struct elf_file *f, uint64_t offset, uint64_t *ret)
{
	const uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	const struct elf_segment *segments, *found = NULL;
	size_t count = elf_file_segments(f, &segments);

	for (size_t i = 0; i < count; i++) {
		const struct elf_segment *s = &segments[i];

		if (!s->executable)
			continue;
		if ((s->offset & page_mask) == offset ||
			(offset >= s->offset && offset - s->offset < s->file_size))
			found = s;
		if ((s->offset & page_mask) == offset)
			break;
	}
	if (found)
		*ret = found->vaddr + (offset - found->offset);
	return found;
}

bool module_bias(const struct module *m, const struct proc_mapping *mapping, uint64_t *ret)
{
	uint64_t vaddr;

	if (m->kind == MODULE_JIT)
		*ret = 0;
	else if (!m->file)
		*ret = mapping->start - mapping->offset;
	else if (code_vaddr(m->file, m->kind == MODULE_VDSO ? 0 : mapping->offset, &vaddr))
		*ret = mapping->start - vaddr;
	else
		return false;
	return true;
}
