/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/modules.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/vec.h"
#include "sample/jit_code.h"
#include "sample/loaded_image.h"

/*
 * Whoever is profiled may map any number of files of any size. The last eighth of our descriptors
 * is not for them but for reading /proc, for perf maps and for debug files. An object file larger
 * than this is none that a linker made, and all together fit well into an address space.
 */
#define MAX_OBJECT_BYTES ((uint64_t)64 << 30)
#define MAX_BYTES_IN_ALL ((uint64_t)32 << 40)
#define MAX_IMAGE_BYTES ((uint64_t)512 << 20)
#define MAX_VDSO_BYTES ((size_t)1 << 20)

/* Each has an index of up to some 80 MB. */
#define MAX_JITDUMPS 64u

#define BUCKETS 1024u

/* The root of a file tree other than ours, shared by the modules that were opened in it. */
struct tree {
	uint64_t namespace, device, inode;
	int fd;
};

struct module_store {
	struct capture_writer *writer;
	const struct source *source;
	VEC(struct module *) modules;
	struct module *buckets[BUCKETS]; /* files by inode, JIT memory by pid; the latest first */
	struct module *vdso, *kernel, *uprobes;
	VEC(struct tree) trees;
	VEC(struct module *) jitdumps;
	rlim_t max_fd; /* descriptors are given out from the lowest on */
	uint64_t mapped_bytes;
	uint64_t image_bytes; /* held in memory of files that cannot be opened */
};

/* Functions at the bottom of stacks whose files have no CFI to say so: musl's start code and
 * thread entry, and the Go runtime's. */
static const char *const root_names[] = {
	"_start", "_start_c", "__clone", "_rt0_amd64", "_rt0_amd64_linux", "_rt0_arm64_linux",
	"runtime.goexit", "runtime.goexit.abi0", "runtime.mstart", "runtime.mstart.abi0",
	"runtime.rt0_go", "runtime.rt0_go.abi0", "runtime.mcall", "runtime.morestack",
	"runtime.morestack.abi0",
};

/* Each name stands once in a file that a linker made; versions and aliases add a few. */
#define MAX_ROOTS 256

struct root_list {
	VEC(struct unwind_range) ranges;
};

static int collect_root(void *ctx, const struct elf_symbol *sym)
{
	struct root_list *list = ctx;

	if ((sym->name[0] != '_' && sym->name[0] != 'r') || sym->end <= sym->start)
		return 0;
	if (list->ranges.len >= MAX_ROOTS)
		return 1;
	for (size_t i = 0; i < sizeof(root_names) / sizeof(root_names[0]); i++)
		if (!strcmp(sym->name, root_names[i]))
			return vec_push(&list->ranges, (struct unwind_range){sym->start, sym->end});
	return 0;
}

struct start_taker {
	void (*take)(void *ctx, uint64_t vaddr);
	void *ctx;
};

/* What compilers have split off a function begins in the middle of it. */
static bool is_part(const char *name)
{
	const char *dot = strstr(name, ".cold");

	return dot && (!dot[5] || dot[5] == '.');
}

static int tell_start(void *ctx, const struct elf_symbol *sym)
{
	const struct start_taker *t = ctx;

	if (sym->type == STT_FUNC && !is_part(sym->name))
		t->take(t->ctx, sym->start);
	return 0;
}

static void each_function(void *functions, void (*take)(void *ctx, uint64_t vaddr), void *ctx)
{
	struct start_taker t = {take, ctx};

	elf_file_each_symbol(functions, tell_start, &t);
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
		.each_function = each_function,
		.functions = f,
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
	jit_code_free(m->jit);
	told_code_release(&m->told);
	if (m->map_fd >= 0)
		close(m->map_fd);
	free(m->python);
	free(m->path);
	free(m);
}

int module_store_new(struct capture_writer *w, const struct source *source, struct module_store **ret,
	struct err *err)
{
	struct module_store *s = calloc(1, sizeof(*s));
	struct rlimit limit;

	if (!s)
		return err_nomem(err);
	s->writer = w;
	s->source = source;
	s->max_fd = getrlimit(RLIMIT_NOFILE, &limit) ? 1024 : limit.rlim_cur;
	s->max_fd -= s->max_fd / 8;
	*ret = s;
	return 0;
}

void module_store_free(struct module_store *s)
{
	if (!s)
		return;
	vec_each(&s->modules, m)
		module_free(*m);
	vec_each(&s->trees, tree)
		close(tree->fd);
	vec_release(&s->modules);
	vec_release(&s->jitdumps);
	vec_release(&s->trees);
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

static struct module **bucket_of(struct module_store *s, uint32_t kind, uint64_t key)
{
	return &s->buckets[hash_pair(kind, key) % BUCKETS];
}

/* Takes ownership of `m`; NULL when out of memory. */
static struct module *add_module(struct module_store *s, struct module *m)
{
	struct module **bucket =
		bucket_of(s, m->kind, m->kind == MODULE_FILE ? m->inode : (uint64_t)m->pid);

	if ((m->file && make_unwind(m)) || vec_push(&s->modules, m)) {
		module_free(m);
		return NULL;
	}
	m->next = *bucket;
	*bucket = m;
	write_module(s, m);
	if (m->file) /* the search for symbols has touched all of them */
		elf_file_rest(m->file);
	return m;
}

static struct module *new_module(uint32_t kind, const char *path)
{
	struct module *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->kind = kind;
	m->root_fd = -1;
	m->map_fd = MAP_UNTRIED;
	m->path = strdup(path);
	if (!m->path) {
		free(m);
		return NULL;
	}
	return m;
}

const struct source *module_store_source(const struct module_store *s)
{
	return s->source;
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

/* What was kept of a process may come from another kernel. */
static void read_kept_vdso(
	const struct source *source, pid_t pid, const struct proc_mapping *at, struct module *vdso)
{
	size_t size = at->end - at->start < MAX_VDSO_BYTES ? at->end - at->start : MAX_VDSO_BYTES;
	autofree uint8_t *bytes = malloc(size);

	if (bytes)
		elf_file_open_memory(bytes, source_read_some(source, pid, at->start, bytes, size),
			"[vdso]", &vdso->file, NULL);
}

static struct module *vdso_module(struct module_store *s, pid_t pid, const struct proc_mapping *at)
{
	struct module *m = s->vdso ? NULL : new_module(MODULE_VDSO, "[vdso]");

	if (m) {
		if (s->source->still)
			read_kept_vdso(s->source, pid, at, m);
		else
			proc_each_mapping(getpid(), copy_own_vdso, m, NULL);
		s->vdso = add_module(s, m);
	}
	return s->vdso;
}

static struct module *find_jit(struct module_store *s, pid_t pid)
{
	struct module *m = *bucket_of(s, MODULE_JIT, (uint64_t)pid);

	while (m && (m->kind != MODULE_JIT || m->pid != pid || m->jit || m->over))
		m = m->next;
	return m;
}

void module_store_jit_over(struct module_store *s, pid_t pid)
{
	struct module *m = find_jit(s, pid);

	if (m)
		m->over = true;
}

struct module *module_store_jit(struct module_store *s, pid_t pid)
{
	struct module *m = find_jit(s, pid);

	if (m)
		return m;
	m = new_module(MODULE_JIT, "[jit]");
	if (!m)
		return NULL;
	m->pid = pid;
	return add_module(s, m);
}

bool module_is_uprobes(const struct module *m)
{
	return m->kind == MODULE_VDSO && !strcmp(m->path, "[uprobes]");
}

/* Each process has its own, and nothing in it has a name: one stands for all. */
static struct module *uprobes_module(struct module_store *s)
{
	struct module *m = s->uprobes ? NULL : new_module(MODULE_VDSO, "[uprobes]");

	if (m)
		s->uprobes = add_module(s, m);
	return s->uprobes;
}

struct module *module_store_kernel(struct module_store *s)
{
	struct module *m = s->kernel ? NULL : new_module(MODULE_KERNEL, "[kernel]");

	if (m)
		s->kernel = add_module(s, m);
	return s->kernel;
}

/* What tells one file tree from another: the mount namespace and the root in it. */
static bool identify_tree(const char *proc, struct tree *ret)
{
	char path[64];
	struct stat namespace, root;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", proc);
	if (stat(path, &namespace))
		return false;
	snprintf(path, sizeof(path), "/proc/%s/root", proc);
	if (stat(path, &root))
		return false;
	*ret = (struct tree){namespace.st_ino, root.st_dev, root.st_ino, -1};
	return true;
}

static bool same_tree(const struct tree *a, const struct tree *b)
{
	return a->namespace == b->namespace && a->device == b->device && a->inode == b->inode;
}

/* A handle on the file tree the process sees, -1 when it is ours (or cannot be told). */
static int tree_of(struct module_store *s, pid_t pid)
{
	char proc[16], path[48];
	struct tree theirs, ours;

	if (s->source->still)
		return s->source->root_fd;
	snprintf(proc, sizeof(proc), "%d", (int)pid);
	if (!identify_tree(proc, &theirs) || !identify_tree("self", &ours) ||
		same_tree(&theirs, &ours))
		return -1;
	vec_each(&s->trees, known)
		if (same_tree(known, &theirs))
			return known->fd;
	snprintf(path, sizeof(path), "/proc/%s/root", proc);
	theirs.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (theirs.fd < 0)
		return -1;
	if ((rlim_t)theirs.fd >= s->max_fd || vec_push(&s->trees, theirs)) {
		close(theirs.fd);
		return -1;
	}
	return theirs.fd;
}

static struct module *find_file(struct module_store *s, const struct proc_mapping *m)
{
	struct module *it = *bucket_of(s, MODULE_FILE, m->inode);

	while (it && (it->kind != MODULE_FILE || it->inode != m->inode || it->device != m->device ||
			     strcmp(it->path, m->path)))
		it = it->next;
	return it;
}

/* Whether we can afford to keep this file open and mapped. 0 or -errno. */
static int check_budget(const struct module_store *s, int fd, uint64_t *ret_bytes)
{
	struct stat st;

	if ((rlim_t)fd >= s->max_fd)
		return -EMFILE;
	if (fstat(fd, &st))
		return -errno;
	*ret_bytes = (uint64_t)st.st_size;
	return *ret_bytes > MAX_OBJECT_BYTES || *ret_bytes > MAX_BYTES_IN_ALL - s->mapped_bytes
		? -EFBIG
		: 0;
}

/* An object file, and what it takes of the budgets. */
struct object {
	struct elf_file *file; /* NULL: could not be opened */
	uint64_t mapped_bytes, image_bytes;
};

/* It is gone, or not for us to open; what is mapped of it may be read all the same. 0 or `why`. */
static int open_loaded(struct module_store *s, pid_t pid, const struct proc_mapping *mapping,
	int why, struct object *ret)
{
	if (why != -ENOENT && why != -ESTALE && why != -EACCES && why != -EPERM)
		return why;
	if (loaded_image_open(s->source, pid, mapping, MAX_IMAGE_BYTES - s->image_bytes, &ret->file,
		    &ret->image_bytes)) {
		*ret = (struct object){0};
		return why;
	}
	s->image_bytes += ret->image_bytes;
	return 0;
}

/* The object file behind the mapping; 0 or -errno. */
static int open_object(struct module_store *s, pid_t pid, const struct proc_mapping *mapping,
	struct object *ret)
{
	autoclose int fd = s->source->ops->open_file(s->source, pid, mapping, NULL);
	uint64_t bytes = 0;
	int rc = fd < 0 ? fd : check_budget(s, fd, &bytes);

	*ret = (struct object){0};
	if (!rc)
		rc = elf_file_open_fd(take_fd(fd), mapping->path, &ret->file, NULL);
	if (rc)
		return open_loaded(s, pid, mapping, rc, ret);
	ret->mapped_bytes = bytes;
	s->mapped_bytes += bytes;
	return 0;
}

/* `known`: a module of the same file that could not be opened before; it is given back when that
 * has not changed. */
static struct module *open_file_module(struct module_store *s, pid_t pid,
	const struct proc_mapping *mapping, struct module *known)
{
	struct object object;
	int rc = open_object(s, pid, mapping, &object);

	if (known && rc == -known->refused)
		return known;

	struct module *m = new_module(MODULE_FILE, mapping->path);

	if (!m) {
		elf_file_free(object.file);
		return NULL;
	}
	m->inode = mapping->inode;
	m->device = mapping->device;
	m->file = object.file;
	m->mapped_bytes = object.mapped_bytes;
	m->image_bytes = object.image_bytes;
	m->refused = -rc;
	if (m->file)
		m->root_fd = tree_of(s, pid);
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

/* The jitdump that the mapping announces; NULL when it is none, or there are too many. */
static struct module *jitdump_module(
	struct module_store *s, pid_t pid, const struct proc_mapping *mapping)
{
	struct jit_code *jit;

	vec_each(&s->jitdumps, known)
		if ((*known)->inode == mapping->inode && (*known)->device == mapping->device)
			return *known;
	if (s->source->still || s->jitdumps.len >= MAX_JITDUMPS || jit_code_open(pid, mapping, &jit, NULL))
		return NULL;

	struct module *m = new_module(MODULE_JIT, mapping->path);

	if (!m) {
		jit_code_free(jit);
		return NULL;
	}
	m->jit = jit;
	m->pid = pid;
	m->inode = mapping->inode;
	m->device = mapping->device;
	m = add_module(s, m);
	if (m)
		(void)vec_push(&s->jitdumps, m);
	return m;
}

struct module *module_store_mapped(struct module_store *s, pid_t pid, const struct proc_mapping *m)
{
	if (!strcmp(m->path, "[vdso]"))
		return vdso_module(s, pid, m);
	if (!strcmp(m->path, "[uprobes]"))
		return uprobes_module(s);
	if (m->path[0] != '/' || !m->inode)
		return module_store_jit(s, pid);

	struct module *known = jitdump_pid(m->path) ? jitdump_module(s, pid, m) : NULL;

	if (known)
		return known;
	known = find_file(s, m);

	/* One that could not be opened for a process that was gone may be for the next. The new
	 * module stands beside the old one, which mappings of others may point to. */
	if (!known || known->refused == ESRCH)
		known = open_file_module(s, pid, m, known);
	return known && !known->file && is_shared_memory(m->path) ? module_store_jit(s, pid) : known;
}

/* ---- letting go ---- */

void module_store_rest(const struct module_store *s)
{
	vec_each(&s->modules, m)
		if ((*m)->file)
			elf_file_rest((*m)->file);
}

static void need_others(struct module_store *s)
{
	struct module *const ours[] = {s->vdso, s->kernel, s->uprobes};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (ours[i])
			ours[i]->needed = true;
	vec_each(&s->modules, it) {
		struct module *m = *it;

		if (!m->needed)
			continue;
		for (const struct module *up = m; up->parent && !up->parent->needed; up = up->parent)
			up->parent->needed = true;
		if (m->described_by)
			m->described_by->needed = true;
	}
}

static void forget_module(struct module_store *s, struct module *m)
{
	struct module **at =
		bucket_of(s, m->kind, m->kind == MODULE_FILE ? m->inode : (uint64_t)m->pid);

	while (*at && *at != m)
		at = &(*at)->next;
	if (*at)
		*at = m->next;
	for (size_t i = 0; i < s->jitdumps.len; i++)
		if (s->jitdumps.data[i] == m)
			s->jitdumps.data[i--] = s->jitdumps.data[--s->jitdumps.len];
	s->mapped_bytes -= m->mapped_bytes;
	s->image_bytes -= m->image_bytes;
	module_free(m);
}

/* Roots of file trees that no module was opened in any more. */
static void forget_trees(struct module_store *s)
{
	size_t kept = 0;

	vec_each(&s->trees, tree) {
		bool used = false;

		vec_each(&s->modules, m)
			used |= (*m)->root_fd == tree->fd;
		if (used)
			s->trees.data[kept++] = *tree;
		else
			close(tree->fd);
	}
	s->trees.len = kept;
}

void module_store_sweep(
	struct module_store *s, void (*gone)(void *ctx, const struct module *m), void *ctx)
{
	size_t kept = 0;

	need_others(s);
	vec_each(&s->modules, m)
		if (!(*m)->needed)
			gone(ctx, *m);
	for (size_t i = 0; i < s->modules.len; i++) {
		struct module *m = s->modules.data[i];

		if (!m->needed) {
			forget_module(s, m);
			continue;
		}
		m->needed = false;
		s->modules.data[kept++] = m;
	}
	s->modules.len = kept;
	forget_trees(s);
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
	else if (module_is_uprobes(m))
		*ret = mapping->start;
	else if (!m->file)
		*ret = mapping->start - mapping->offset;
	else if (code_vaddr(m->file, m->kind == MODULE_VDSO ? 0 : mapping->offset, &vaddr))
		*ret = mapping->start - vaddr;
	else
		return false;
	return true;
}
