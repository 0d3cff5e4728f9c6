/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/snapshot/core.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/in_root.h"
#include "base/intern.h"
#include "elf/elf_file.h"

#if defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#define OUR_MACHINE EM_X86_64
#endif

/* Of a mapped file's start, as far as the core has it: headers and notes stand there. */
#define HEAD_BYTES 65536u

struct core_entry {
	const char *path;
	bool deleted; /* when the core was written; another may have its path now */
	bool code;    /* some of it is, or may be, mapped as code */
	enum core_found found;
	int refused;  /* -errno, where it is missing */
	struct elf_file *file;
	const struct core_mapping *head; /* the mapping of its first byte; NULL */
};

struct core {
	struct source source; /* the first: pointers to it are pointers to this */
	struct look look;
	struct core_file *file;
	struct intern paths;
	char *root;
	VEC(struct core_entry) entries; /* by their ids in `paths` */
	VEC(uint32_t) entry_of;         /* by mapping */
};

static struct core *core_of(const struct source *s)
{
	return (struct core *)(uintptr_t)s;
}

/* ---- files ---- */

static int add_entry(struct core *c, const struct core_mapping *m)
{
	autofree char *path = strdup(m->path);
	bool deleted = path && proc_cut_deleted(path);
	uint32_t id = path ? intern_str(&c->paths, path) : INTERN_NONE;

	if (id == INTERN_NONE)
		return -ENOMEM;
	if (id == c->entries.len &&
		vec_push(&c->entries, (struct core_entry){.path = intern_get(&c->paths, id, NULL)}))
		return -ENOMEM;
	c->entries.data[id].deleted |= deleted;
	if (!m->offset && !c->entries.data[id].head)
		c->entries.data[id].head = m;
	return vec_push(&c->entry_of, id);
}

/* The program headers say where in memory what of the file goes: two builds seldom agree on that. */
static bool same_headers(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
	Elf64_Ehdr x, y;
	size_t bytes;

	if (a_size < sizeof(x) || b_size < sizeof(y))
		return false;
	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	bytes = (size_t)x.e_phnum * sizeof(Elf64_Phdr);
	return x.e_phnum == y.e_phnum && x.e_phoff == y.e_phoff && x.e_entry == y.e_entry &&
		x.e_phoff < a_size && bytes <= a_size - x.e_phoff &&
		y.e_phoff < b_size && bytes <= b_size - y.e_phoff &&
		!memcmp(a + x.e_phoff, b + y.e_phoff, bytes);
}

static enum core_found compare(const struct core_entry *e, const uint8_t *head, size_t head_size)
{
	struct elf_file *in_memory;
	const uint8_t *was = NULL, *is = NULL, *image;
	size_t was_len, is_len, size;
	bool same;

	if (elf_file_open_memory(head, head_size, "head", &in_memory, NULL))
		return CORE_ANOTHER;
	was_len = elf_file_build_id(in_memory, &was);
	is_len = elf_file_build_id(e->file, &is);
	if (was_len && is_len) {
		same = was_len == is_len && !memcmp(was, is, was_len);
	} else {
		image = elf_file_image(e->file, &size);
		same = same_headers(head, head_size, image, size);
	}
	elf_file_free(in_memory);
	return same ? CORE_FOUND : CORE_ANOTHER;
}

static enum core_found check(const struct core *c, const struct core_entry *e)
{
	autofree uint8_t *head = malloc(HEAD_BYTES);
	uint64_t size = e->head ? e->head->end - e->head->start : 0;
	size_t got = head && size ? core_file_read(c->file, e->head->start, head,
		size < HEAD_BYTES ? size : HEAD_BYTES) : 0;

	return got < sizeof(Elf64_Ehdr) ? CORE_UNCHECKED : compare(e, head, got);
}

/* Memory that has a path and no file, and devices, which are not to be opened. */
static bool is_file_path(const char *path)
{
	return path[0] == '/' && strncmp(path, "/dev/", 5) && strncmp(path, "/memfd:", 7) &&
	       strncmp(path, "/SYSV", 5) && strncmp(path, "/anon_hugepage", 14);
}

static void look_for(const struct core *c, struct core_entry *e)
{
	int fd = is_file_path(e->path) ? in_root_open(c->root, e->path, false) : -ENOENT;
	int rc = fd < 0 ? fd : elf_file_open_fd(fd, e->path, &e->file, NULL);

	if (rc) {
		e->found = rc == -ENOEXEC ? CORE_ANOTHER : CORE_MISSING;
		e->refused = rc;
		return;
	}
	e->found = check(c, e);
	if (e->found == CORE_UNCHECKED && e->deleted)
		e->found = CORE_ANOTHER; /* most likely */
	if (e->found != CORE_ANOTHER)
		return;
	elf_file_free(e->file);
	e->file = NULL;
	e->refused = -ESTALE;
}

static struct core_entry *entry_of(const struct core *c, const struct core_mapping *m)
{
	return &c->entries.data[c->entry_of.data[m - core_file_info(c->file)->mappings.data]];
}

/* The same after it was looked for; its `file` is NULL where it was not found. */
static struct core_entry *found_entry(const struct core *c, const struct core_mapping *m)
{
	struct core_entry *e = entry_of(c, m);

	if (e->found == CORE_NOT_LOOKED_FOR)
		look_for(c, e);
	return e;
}

static bool maps_code(const struct core *c, const struct core_mapping *m)
{
	const uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	const struct core_entry *e = found_entry(c, m);
	const struct elf_segment *s;
	size_t count = e->file ? elf_file_segments(e->file, &s) : 0;

	for (size_t i = 0; i < count; i++)
		if (s[i].executable && (s[i].offset & page_mask) <= m->offset &&
			m->offset - (s[i].offset & page_mask) < s[i].mem_size)
			return true;
	return !e->file;
}

/* ---- the source ---- */

/* Bytes that the core leaves out because they are the file's. What the process could write to may be
 * anything by now. */
static size_t read_mapped(const struct core *c, uint64_t addr, uint8_t *buf, size_t len)
{
	const struct core_segment *s = core_file_segment(c->file, addr);
	const struct core_mapping *m = core_file_mapping(c->file, addr);
	const struct core_entry *e = m && !(s && s->write) ? found_entry(c, m) : NULL;
	const uint8_t *image;
	uint64_t at;
	size_t size;

	if (!e || !e->file)
		return 0;
	image = elf_file_image(e->file, &size);
	at = m->offset + (addr - m->start);
	if (at >= size)
		return 0;
	len = len < m->end - addr ? len : m->end - addr;
	len = len < size - at ? len : size - at;
	memcpy(buf, image + at, len);
	return len;
}

static size_t kept_read(const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len)
{
	const struct core *c = core_of(s);
	size_t done = 0, got = 1;

	(void)id;
	while (done < len && got && addr + done >= addr) {
		got = core_file_read(c->file, addr + done, (uint8_t *)buf + done, len - done);
		if (!got)
			got = read_mapped(c, addr + done, (uint8_t *)buf + done, len - done);
		done += got;
	}
	return done;
}

/* Memory without a file. */
static int give_memory(const struct core *c, const struct core_segment *s, uint64_t start, uint64_t end,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx)
{
	const struct core_info *info = core_file_info(c->file);
	bool vdso = info->vdso >= start && info->vdso < end;
	bool stack = info->on_stack >= start && info->on_stack < end;
	struct proc_mapping m = {
		.start = start,
		.end = end,
		.read = s->read,
		.write = s->write,
		.exec = s->exec,
		.path = vdso ? "[vdso]" : stack ? "[stack]" : start >> 63 ? "[vsyscall]" : "",
	};

	return each(ctx, &m);
}

static int give_file(const struct core *c, const struct core_mapping *mapping,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx)
{
	const struct core_segment *s = core_file_segment(c->file, mapping->start);
	struct core_entry *e = entry_of(c, mapping);
	struct proc_mapping m = {
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		/* No inode is told; this one stands for the path. */
		.inode = (uint64_t)(e - c->entries.data) + 1,
		.read = true,
		.write = s && s->write,
		.exec = s ? s->exec : maps_code(c, mapping),
		.deleted = e->deleted,
		.path = e->path,
	};

	e->code |= m.exec;
	return each(ctx, &m);
}

/* Segments are memory that the core has, or had no reason to keep; debuggers leave out those that are the
 * file's. So what is mapped is what either list has. */
static int kept_each_mapping(const struct source *source, pid_t pid,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err)
{
	const struct core *c = core_of(source);
	const struct core_info *info = core_file_info(c->file);
	const struct core_segment *s = info->segments.data, *s_end = s ? s + info->segments.len : s;
	const struct core_mapping *m = info->mappings.data, *m_end = m ? m + info->mappings.len : m;
	uint64_t at = 0;
	int rc = pid == info->pid ? 0 : err_set(err, ESRCH, "the core is not of process %d", (int)pid);

	while (!rc && (s < s_end || m < m_end)) {
		uint64_t start = s < s_end && s->start > at ? s->start : at;

		if (s < s_end && s->end <= at) {
			s++;
		} else if (m < m_end && (s == s_end || m->start <= start)) {
			rc = give_file(c, m, each, ctx);
			at = m++->end;
		} else {
			uint64_t end = m < m_end && m->start < s->end ? m->start : s->end;

			rc = give_memory(c, s, start, end, each, ctx);
			at = end;
		}
	}
	return rc;
}

static int kept_open_file(
	const struct source *s, pid_t pid, const struct proc_mapping *m, struct err *err)
{
	const struct core *c = core_of(s);
	struct core_entry *e =
		m->inode && m->inode <= c->entries.len ? &c->entries.data[m->inode - 1] : NULL;
	int fd;

	(void)pid;
	if (e && e->found == CORE_NOT_LOOKED_FOR)
		look_for(c, e);
	if (!e || !e->file)
		return err_set(err, e && e->refused ? -e->refused : ENOENT, "%s is not the file that was mapped",
			m->path);
	fd = fcntl(elf_file_fd(e->file), F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? err_errno(err, errno, "%s", m->path) : fd;
}

static const struct core_thread *find_thread(const struct core_info *info, pid_t tid)
{
	vec_each(&info->threads, t)
		if (t->tid == tid)
			return t;
	return NULL;
}

static int kept_threads(const struct source *s, pid_t pid, struct pid_vec *ret, struct err *err)
{
	(void)pid;
	vec_each(&core_file_info(core_of(s)->file)->threads, t)
		if (vec_push(ret, t->tid))
			return err_nomem(err);
	return 0;
}

static int kept_status(const struct source *s, pid_t id, struct proc_status *ret, struct err *err)
{
	const struct core_info *info = core_file_info(core_of(s)->file);

	if (id != info->pid && !find_thread(info, id))
		return err_set(err, ESRCH, "the core has no thread %d", (int)id);
	/* The kernel writes ids as the process itself counts. */
	*ret = (struct proc_status){
		.state = 'S', .tgid = info->pid, .ppid = info->ppid, .ns_pid = id};
	snprintf(ret->name, sizeof(ret->name), "%s", info->name);
	return 0;
}

static int kept_command_line(
	const struct source *s, pid_t pid, char *buf, size_t size, struct err *err)
{
	const struct core_info *info = core_file_info(core_of(s)->file);

	(void)pid;
	(void)err;
	snprintf(buf, size, "%s", info->arguments[0] ? info->arguments : info->name);
	return 0;
}

static int kept_thread_name(const struct source *s, pid_t pid, pid_t tid, char *buf, size_t size,
	struct err *err)
{
	(void)pid;
	(void)tid;
	(void)err;
	snprintf(buf, size, "%s", core_file_info(core_of(s)->file)->name);
	return 0;
}

static const struct source_ops kept_ops = {
	.read = kept_read,
	.each_mapping = kept_each_mapping,
	.open_file = kept_open_file,
	.threads = kept_threads,
	.status = kept_status,
	.command_line = kept_command_line,
	.thread_name = kept_thread_name,
};

/* ---- the look ---- */

#if defined(__aarch64__)
static void take_registers(const struct core_thread *t, struct thread_look *look)
{
	for (size_t i = 0; i < 33; i++)
		look->regs.value[i] = t->regs[i];
	look->regs.known = (1ULL << 33) - 1;
	look->wait.sp = t->regs[31];
	look->wait.pc = t->regs[32];
	look->wait.syscall = -1;
}
#else
/* struct user_regs_struct of x86-64. */
enum { R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI, ORIG_RAX, RIP, CS, EFLAGS, RSP };

#define CS_OF_32BIT 0x23u

/* What a call left to be returned when it was broken off: the thread was waiting in it. The first five are the
 * kernel's own and never reach the program (include/linux/errno.h); the last is what the slot holds
 * while the call is under way. */
static bool is_under_way(const struct core_thread *t)
{
	static const int codes[] = {512, 513, 514, 515, 516, EINTR, ENOSYS};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if ((int64_t)t->regs[RAX] == -codes[i])
			return (int64_t)t->regs[ORIG_RAX] >= 0 && t->regs[ORIG_RAX] <= INT32_MAX;
	return false;
}

static void take_registers(const struct core_thread *t, struct thread_look *look)
{
	static const uint8_t by_dwarf[] = {RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12,
		R13, R14, R15, RIP};
	static const uint8_t arguments[] = {RDI, RSI, RDX, R10, R8, R9};

	for (size_t i = 0; i < sizeof(by_dwarf); i++)
		look->regs.value[i] = t->regs[by_dwarf[i]];
	look->regs.known = (1ULL << sizeof(by_dwarf)) - 1;
	look->wait.sp = t->regs[RSP];
	look->wait.pc = t->regs[RIP];
	look->wait.syscall = -1;
	look->compat = t->regs[CS] == CS_OF_32BIT;
	if (!is_under_way(t) || look->compat)
		return;
	look->wait.blocked = true;
	look->wait.syscall = (int)t->regs[ORIG_RAX];
	for (size_t i = 0; i < sizeof(arguments); i++)
		look->wait.args[i] = t->regs[arguments[i]];
}
#endif

static struct thread_look look_at(const struct core *c, const struct core_thread *t)
{
	const struct core_info *info = core_file_info(c->file);
	struct thread_look look = {
		.pid = info->pid,
		.tid = t->tid,
		.ran_ns = LOOK_UNKNOWN,
		.queued_ns = LOOK_UNKNOWN,
		.idle_ns = LOOK_UNKNOWN,
		.killed_by = t == info->threads.data ? core_signal(c) : 0,
	};

	snprintf(look.name, sizeof(look.name), "%s", info->name);
	take_registers(t, &look);
	look.wait.state = look.wait.blocked ? 'S' : 'R';
	return look;
}

static int compare_looks(const void *x, const void *y)
{
	const struct thread_look *a = x, *b = y;

	return (a->tid > b->tid) - (a->tid < b->tid);
}

static int kept_look(struct look *l, pid_t pid, pid_t tid, struct thread_looks *ret, struct err *err)
{
	const struct core *c = (struct core *)((char *)l - offsetof(struct core, look));
	const struct core_info *info = core_file_info(c->file);
	size_t kept = 0;

	ret->len = 0;
	if (pid == info->pid)
		vec_each(&info->threads, t)
			if ((!tid || t->tid == tid) && vec_push(ret, look_at(c, t)))
				return err_nomem(err);
	if (!ret->len)
		return err_set(err, ESRCH, "the core has no thread %d", (int)(tid ? tid : pid));
	qsort(ret->data, ret->len, sizeof(*ret->data), compare_looks);
	vec_each(ret, it)
		if (!kept || it->tid != ret->data[kept - 1].tid)
			ret->data[kept++] = *it;
	ret->len = kept;
	return 0;
}

/* It is opened and freed with its core. */
static void leave_look(struct look *l)
{
	(void)l;
}

static const struct look_ops look_core = {.name = "core", .free = leave_look, .read = kept_look};

/* ---- life ---- */

static int open_core_file(struct core *c, const char *path, struct err *err)
{
	/* It may be a FIFO, or a device. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc = fd < 0 ? err_errno(err, errno, "%s", path) : core_file_open_fd(fd, path, &c->file, err);

	if (!rc && core_file_info(c->file)->machine != OUR_MACHINE)
		rc = err_set(err, ENOEXEC, "%s is the core of a program for another architecture: look at it on "
			"a machine of that kind", path);
	return rc;
}

static int open_root(struct core *c, const char *root, struct err *err)
{
	c->root = strdup(root ? root : "");
	if (!c->root)
		return err_nomem(err);
	if (!c->root[0])
		return 0;
	c->source.root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return c->source.root_fd < 0 ? err_errno(err, errno, "%s", root) : 0;
}

int core_open(const char *path, const char *root, struct core **ret, struct err *err)
{
	struct core *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_nomem(err);
	c->source = (struct source){.ops = &kept_ops, .still = true, .root_fd = -1};
	c->look.ops = &look_core;
	rc = open_root(c, root, err);
	if (!rc)
		rc = open_core_file(c, path, err);
	if (!rc)
		vec_each(&core_file_info(c->file)->mappings, m)
			if (!rc && add_entry(c, m))
				rc = err_nomem(err);
	if (rc)
		core_free(c);
	else
		*ret = c;
	return rc;
}

void core_free(struct core *c)
{
	if (!c)
		return;
	vec_each(&c->entries, e)
		elf_file_free(e->file);
	vec_release(&c->entries);
	vec_release(&c->entry_of);
	intern_release(&c->paths);
	core_file_free(c->file);
	if (c->source.root_fd >= 0)
		close(c->source.root_fd);
	free(c->root);
	free(c);
}

const struct core_info *core_info(const struct core *c)
{
	return core_file_info(c->file);
}

const struct source *core_source(const struct core *c)
{
	return &c->source;
}

struct look *core_look(struct core *c)
{
	return &c->look;
}

/* A debugger writes cores of processes that live on; what they were getting then is what it stopped them with. Only
 * these end a process with a core (signal(7)). */
int core_signal(const struct core *c)
{
	static const int deadly[] = {SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU,
		SIGXFSZ, SIGSYS};
	int signal = core_file_info(c->file)->threads.data[0].signal;

	for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
		if (deadly[i] == signal)
			return signal;
	return 0;
}

void core_each_file(const struct core *c,
	void (*each)(void *ctx, const char *path, enum core_found found), void *ctx)
{
	vec_each(&c->entries, e)
		if (e->found != CORE_NOT_LOOKED_FOR && e->code && is_file_path(e->path))
			each(ctx, e->path, e->found);
}
