/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/inject/inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "heap/inject/inject_priv.h"
#include "os/rights.h"

#define SEARCH_NS (3 * NS_PER_S)
#define CALL_NS (2 * NS_PER_S)
#define RTLD_OF_LIBC 0x80000000u /* __RTLD_DLOPEN, of __libc_dlopen_mode() */

/* ---- opening ---- */

static int check_state(pid_t pid, struct err *err)
{
	struct proc_status st;
	int rc = proc_status_read(pid, &st, err);

	if (rc)
		return rc;
	if (st.state == 'T')
		return err_set(err, EAGAIN, "process %d is stopped by a signal and runs no code; continue it first: "
			"kill -CONT %d", (int)pid, (int)pid);
	if (st.tracer)
		return rights_trace_refused(EPERM, pid, err);
	return 0;
}

static int check_modules(const struct inject *i, struct err *err)
{
	if (!i->modules.all.len)
		return err_set(err, ENOEXEC, "no program file of process %d can be read", (int)i->pid);
	if (!i->modules.any_libc)
		return err_set(err, ENOEXEC, "process %d is a static program, or has a C library that is none of glibc and musl: "
			"there is no dlopen() that could load anything", (int)i->pid);
	if (!i->modules.dlopen || !i->modules.errno_location)
		return err_set(err, ENOEXEC, "the C library of process %d has no dlopen()", (int)i->pid);
	return 0;
}

/* Two at once would write their code to the same place. */
static int lock(struct inject *i, struct err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)i->pid);
	i->lock_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (i->lock_fd >= 0 && flock(i->lock_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return err_set(err, EBUSY, "another sonde puts code into process %d right now", (int)i->pid);
	return 0;
}

static int open_memory(struct inject *i, struct err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)proc_surviving_thread(i->pid));
	i->mem_fd = open(path, O_RDWR | O_CLOEXEC);
	return i->mem_fd < 0 ? rights_trace_refused(errno, i->pid, err) : 0;
}

static int look_at_process(struct inject *i, struct err *err)
{
	int rc = rights_check_target(i->pid, err);

	if (!rc)
		rc = check_state(i->pid, err);
	if (!rc)
		rc = open_memory(i, err);
	if (!rc)
		rc = lock(i, err);
	if (!rc)
		rc = inject_modules_read(i->pid, &i->modules, err);
	if (!rc)
		rc = check_modules(i, err);
	if (!rc)
		rc = inject_place_find(i->pid, i->mem_fd, &i->modules, &i->place, err);
	if (!rc)
		rc = safe_walker_open(&i->walker, i->pid, err);
	if (!rc)
		rc = inject_judge_filters(i, err);
	return rc;
}

int inject_open(pid_t pid, const struct inject_options *options, struct inject **ret, struct err *err)
{
	struct inject *i = calloc(1, sizeof(*i));
	int rc;

	if (!i)
		return err_nomem(err);
	i->pid = pid;
	i->mem_fd = i->lock_fd = -1;
	if (options)
		i->options = *options;
	if (!i->options.search_ns)
		i->options.search_ns = SEARCH_NS;
	if (!i->options.call_ns)
		i->options.call_ns = CALL_NS;
	rc = pid == getpid() ? err_set(err, EINVAL, "that is this process itself") : look_at_process(i, err);
	if (rc)
		inject_close(i);
	else
		*ret = i;
	return rc;
}

void inject_close(struct inject *i)
{
	if (!i)
		return;
	safe_walker_release(&i->walker);
	inject_modules_release(&i->modules);
	sched_clock_release(&i->clock);
	if (i->file)
		elf_file_free(i->file);
	if (i->mem_fd >= 0)
		close(i->mem_fd);
	if (i->lock_fd >= 0)
		close(i->lock_fd);
	free(i);
}

void inject_stats(const struct inject *i, struct inject_stats *ret)
{
	*ret = i->stats;
}

/* ---- loading ---- */

struct loading {
	const void *bytes;
	size_t size;
	uint64_t hash;
};

/* "memfd:NAME (deleted)" is what maps shows. */
static int find_loaded(void *ctx, const struct proc_mapping *m)
{
	struct inject *i = ctx;
	const char *name = strstr(m->path, "memfd:");

	if (m->offset || !name || strcmp(name + 6, i->library))
		return 0;
	i->bias = m->start;
	return 1;
}

static int fill(struct inject *i, const struct loading *l, struct err *err)
{
	const uint8_t *bytes = l->bytes;
	char path[64];
	size_t done = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)i->divert.tid, i->divert.memfd);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "the file in memory that process %d has made for us", (int)i->pid);
	while (done < l->size && (n = write(fd, bytes + done, l->size - done)) > 0)
		done += (size_t)n;
	close(fd);
	return done == l->size ? 0 : err_set(err, ENOMEM, "no memory for the library in process %d", (int)i->pid);
}

/*
 * The loader takes libraries with the same name for the same, so the names of two differ although their
 * descriptors may not: in the slashes.
 */
#define NAME_BITS 24

static void library_path(const struct loading *l, int memfd, char *buf, size_t size)
{
	size_t at = (size_t)snprintf(buf, size, "/proc/self/fd");

	for (unsigned bit = 0; bit < NAME_BITS; bit++)
		at += (size_t)snprintf(buf + at, size - at, "%s", l->hash >> bit & 1 ? "/." : "/");
	snprintf(buf + at, size - at, "/%d", memfd);
}

static int put_text(struct inject *i, const char *text, struct err *err)
{
	size_t size = strlen(text) + 1;

	if (size > REGION_TEXT_BYTES)
		return err_set(err, E2BIG, "a text of %zu bytes is too long to be handed over", size);
	if (pwrite(i->mem_fd, text, size, (off_t)(i->divert.region + REGION_TEXT_AT)) != (ssize_t)size)
		return err_set(err, EIO, "memory of process %d cannot be written", (int)i->pid);
	return 0;
}

/* What dlerror() says. */
static int refused(struct inject *i, struct err *err)
{
	const uint64_t none[6] = {0};
	char words[300] = "";
	uint64_t at = 0;

	if (i->modules.dlerror && !divert_call(&i->divert, i->modules.errno_location, i->modules.dlerror, none, &at, NULL) && at &&
		pread(i->mem_fd, words, sizeof(words) - 1, (off_t)at) < 0)
		*words = 0;
	return err_set(err, ELIBBAD, "the loader of process %d refuses the library: %s", (int)i->pid,
		*words ? words : "it does not say why");
}

static int load(struct inject *i, void *ctx, struct err *err)
{
	struct loading *l = ctx;
	uint64_t args[6] = {i->divert.region + REGION_TEXT_AT, RTLD_NOW}, handle = 0;
	char path[256];
	int rc = fill(i, l, err);

	library_path(l, i->divert.memfd, path, sizeof(path));
	if (i->modules.old_dlopen)
		args[1] |= RTLD_OF_LIBC;
	if (!rc)
		rc = put_text(i, path, err);
	if (!rc)
		rc = divert_call(&i->divert, i->modules.errno_location, i->modules.dlopen, args, &handle, err);
	if (!rc && !handle)
		rc = refused(i, err);
	/* The first member of what a handle is, in glibc and in musl: how far it is from its own addresses. */
	if (!rc && pread(i->mem_fd, &i->bias, sizeof(i->bias), (off_t)handle) != (ssize_t)sizeof(i->bias))
		rc = err_set(err, EIO, "the library cannot be found in process %d", (int)i->pid);
	return rc;
}

int inject_load(struct inject *i, const char *name, const void *bytes, size_t size, struct err *err)
{
	struct loading l = {bytes, size, hash_bytes(bytes, size)};
	const struct inject_act act = {.memfd_name = i->library, .act = load, .ctx = &l};
	int rc;

	if (i->file)
		return err_set(err, EEXIST, "a library was loaded already");
	rc = elf_file_open_memory(bytes, size, name, &i->file, err);
	if (rc)
		return rc;
	snprintf(i->library, sizeof(i->library), "sonde-%.20s-%08x", name, (unsigned)(l.hash >> 32));
	rc = proc_each_mapping(i->pid, find_loaded, i, err);
	if (!rc)
		rc = inject_divert(i, &act, err);
	if (rc < 0) {
		elf_file_free(i->file);
		i->file = NULL;
	}
	return rc < 0 ? rc : 0;
}

/* ---- calling ---- */

struct looking_up {
	const char *name;
	uint64_t vaddr;
};

static int look_up(void *ctx, const struct elf_symbol *s)
{
	struct looking_up *l = ctx;

	if (!s->dynamic || strcmp(s->name, l->name))
		return 0;
	l->vaddr = s->start;
	return 1;
}

struct calling {
	uint64_t function, number;
	const char *text;
	uint64_t result;
};

static int call(struct inject *i, void *ctx, struct err *err)
{
	struct calling *c = ctx;
	const uint64_t args[6] = {c->text ? i->divert.region + REGION_TEXT_AT : 0, c->number};
	int rc = c->text ? put_text(i, c->text, err) : 0;

	return rc ? rc : divert_call(&i->divert, i->modules.errno_location, c->function, args, &c->result, err);
}

int inject_call(struct inject *i, const char *symbol, const char *text, uint64_t number, int64_t *ret_value,
	struct err *err)
{
	struct looking_up l = {.name = symbol};
	struct calling c = {.number = number, .text = text};
	const struct inject_act act = {.memfd_name = "", .act = call, .ctx = &c};
	int rc;

	if (!i->file)
		return err_set(err, EINVAL, "no library was loaded into process %d", (int)i->pid);
	if (!elf_file_each_symbol(i->file, look_up, &l))
		return err_set(err, ENOENT, "the library has no function %s", symbol);
	c.function = l.vaddr + i->bias;
	rc = inject_divert(i, &act, err);
	if (!rc && ret_value)
		*ret_value = (int64_t)c.result;
	return rc;
}
