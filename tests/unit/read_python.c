/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * read_python PID [ROUNDS]: the stacks of a CPython process as src/python reads them, as JSON, for tests that know
 * better. With ROUNDS it looks that often, prints what the last look saw, and how many were torn or
 * failed. It finds the runtime by its symbols alone.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "elf/elf_file.h"
#include "python/python.h"
#include "python/python_priv.h"

#define FRAMES 20000

struct target {
	int pid;
	struct python_place place;
};

static bool read_process(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct target *t = (struct target *)ctx;
	struct iovec here = {buf, len}, there = {(void *)(uintptr_t)addr, len};

	return process_vm_readv(t->pid, &here, 1, &there, 1, 0) == (ssize_t)len;
}

static int take_symbol(void *ctx, const struct elf_symbol *sym)
{
	struct python_place *found = (struct python_place *)ctx;

	if (!strcmp(sym->name, "_PyRuntime"))
		found->runtime = sym->start;
	if (!strcmp(sym->name, "Py_Version"))
		found->version_at = sym->start;
	return 0;
}

struct mapping {
	uint64_t start, end, offset;
	char rights[8], path[4096];
};

static bool next_mapping(FILE *maps, struct mapping *ret)
{
	char line[4500];

	if (!fgets(line, sizeof(line), maps))
		return false;
	ret->path[0] = 0;
	return sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %4095[^\n]", &ret->start,
		       &ret->end, ret->rights, &ret->offset, ret->path) >= 4;
}

/* Looks into the file of a mapping; true when the runtime is in it. */
static bool look_into(struct target *t, const struct mapping *m)
{
	char path[5000];
	struct elf_file *f;
	struct python_place found = {0};
	struct elf_section section;
	uint64_t vaddr;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, t->pid, m->start, m->end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/root%s", t->pid, m->path);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0 || elf_file_open_fd(fd, path, &f, NULL))
		return false;
	elf_file_each_object(f, take_symbol, &found);
	if (!found.runtime && elf_file_section(f, ".PyRuntime", &section))
		found.runtime = section.vaddr;
	if (found.runtime && elf_file_vaddr_of_offset(f, m->offset, &vaddr)) {
		t->place.runtime = found.runtime + m->start - vaddr;
		t->place.version_at = found.version_at ? found.version_at + m->start - vaddr : 0;
		t->place.aarch64 = elf_file_machine(f) == 183;
	}
	elf_file_free(f);
	return t->place.runtime != 0;
}

static bool find_place(struct target *t)
{
	char path[64], file[4096] = "";
	struct mapping m;
	FILE *maps;
	bool inside = false;

	snprintf(path, sizeof(path), "/proc/%d/maps", t->pid);
	maps = fopen(path, "r");
	if (!maps)
		return false;
	while (next_mapping(maps, &m)) {
		if (!t->place.runtime && m.path[0] == '/' && m.offset == 0 &&
			look_into(t, &m))
			snprintf(file, sizeof(file), "%s", m.path);
		/* Writable data of that file, and the .bss behind it. */
		inside = *file && (!strcmp(m.path, file) || (inside && !*m.path));
		if (inside && m.rights[1] == 'w') {
			if (!t->place.data_start)
				t->place.data_start = m.start;
			t->place.data_end = m.end;
		}
	}
	fclose(maps);
	return t->place.runtime != 0;
}

static void print_frame(const struct python_frame *f, struct buf *out)
{
	buf_str(out, "{\"qualname\": ");
	buf_json(out, f->code->name);
	buf_str(out, ", \"file\": ");
	buf_json(out, f->code->file);
	buf_printf(out, ", \"line\": %u, \"span\": [%u, %u, %u, %u], \"first_line\": %u, \"entry\": %s, "
			"\"marker\": \"0x%" PRIx64 "\", \"owner\": %d}",
		f->position.line, f->position.line, f->position.end_line, f->position.column,
		f->position.end_column, f->code->first_line, f->entry ? "true" : "false", f->marker, f->owner);
}

/* One look; how many threads were torn, or -1. */
static int look(struct python *p, const uint32_t *tids, size_t tid_count, struct buf *out)
{
	static struct python_link links[FRAMES];
	static uint64_t cframes[FRAMES];
	struct python_threads threads = {0};
	struct python_frames frames = {0};
	struct python_gil gil = {0};
	int bad = python_threads(p, tids, tid_count, &threads, NULL), torn = 0;

	if (threads.len)
		(void)python_gil(p, &threads.data[0], &gil, NULL);
	buf_printf(out, "{\"version\": \"%s\", \"complete\": %s, \"gil\": {\"locked\": %d, \"off\": %d, \"holder\": "
			"%" PRIu64 ", \"switches\": %" PRIu64 "}, \"threads\": [",
		python_version_text(p), bad ? "false" : "true", gil.locked, gil.off, gil.holder, gil.switches);
	vec_each(&threads, t)
	{
		struct python_chain chain = {
			.links = links, .limit = FRAMES, .cframes = cframes, .cframe_limit = FRAMES};

		frames.len = 0;
		python_chain_read(p, t->address, &chain);
		if (python_frames(p, &chain, &frames))
			abort();
		torn += chain.torn != PYTHON_WHOLE;
		buf_printf(out, "%s\n{\"id\": %u, \"address\": %" PRIu64 ", \"pthread\": %" PRIu64
				", \"interpreter\": %" PRId64 ", \"main\": %s, \"torn\": %d, \"frames\": [",
			t == threads.data ? "" : ",", t->native_id, t->address, t->pthread, t->interpreter_id,
			t->main ? "true" : "false", chain.torn);
		vec_each(&frames, f)
		{
			buf_str(out, f == frames.data ? "" : ",\n ");
			print_frame(f, out);
		}
		buf_str(out, "]}");
	}
	buf_str(out, "]");
	vec_release(&threads);
	vec_release(&frames);
	return bad ? -1 : torn;
}

static size_t read_tids(int pid, uint32_t *ret, size_t limit)
{
	char path[64];
	FILE *in;
	size_t count = 0;

	snprintf(path, sizeof(path), "ls /proc/%d/task", pid);
	in = popen(path, "r");
	while (in && count < limit && fscanf(in, "%u", &ret[count]) == 1)
		count++;
	if (in)
		pclose(in);
	return count;
}

int main(int argc, char **argv)
{
	static uint32_t tids[4096];
	struct target t = {.pid = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0};
	long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1, torn = 0, failed = 0;
	struct python_memory memory = {.ctx = &t, .read = read_process};
	struct python *p;
	struct err err;
	struct buf out = {0};
	size_t tid_count = read_tids(t.pid, tids, 4096);
	uint64_t before;

	if (!find_place(&t)) {
		fprintf(stderr, "no _PyRuntime in %d\n", t.pid);
		return 1;
	}
	if (python_new(&memory, &t.place, &p, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	before = clock_monotonic_ns();
	p->pages.reads = 0;
	for (long i = 0; i < rounds; i++) {
		int bad;

		buf_clear(&out);
		python_refresh(p);
		bad = look(p, tids, tid_count, &out);
		torn += bad > 0;
		failed += bad < 0;
	}
	printf("%s, \"torn\": %ld, \"failed\": %ld, \"rounds\": %ld, \"ns\": %" PRIu64 ", \"reads\": %" PRIu64 "}\n",
		out.data, torn, failed, rounds, (clock_monotonic_ns() - before) / (uint64_t)rounds,
		p->pages.reads / (uint64_t)rounds);
	buf_release(&out);
	python_free(p);
	return 0;
}
