/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * read_python PID [ROUNDS [FILE]]: the stacks of a CPython process as src/python reads them, as JSON, for tests that
 * know better. With ROUNDS it looks that often, prints what the last look saw, and how many were torn or
 * failed. All memory that was looked at is written to FILE, as fuzz_python takes it. It finds the runtime by its
 * symbols alone.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "elf/elf_file.h"
#include "python/census.h"
#include "python/greenlets.h"
#include "python/python.h"
#include "python/tasks.h"
#include "python/python_priv.h"
#include "python_everything.h"

#define FRAMES 20000

struct target {
	int pid;
	struct python_place place;
};

/* ---- what was looked at: the linker leads src/python's reads through here ---- */

bool __real_python_read(struct python *p, uint64_t addr, void *buf, size_t len);
bool __wrap_python_read(struct python *p, uint64_t addr, void *buf, size_t len);
bool __wrap_python_read_u64(struct python *p, uint64_t addr, uint64_t *ret);
bool __wrap_python_read_u32(struct python *p, uint64_t addr, uint32_t *ret);

struct span {
	uint64_t addr, end;
};
static VEC(struct span) looked_at;
static bool recording;

bool __wrap_python_read(struct python *p, uint64_t addr, void *buf, size_t len)
{
	bool there = __real_python_read(p, addr, buf, len);

	if (there && recording && len && vec_push(&looked_at, (struct span){addr, addr + len}))
		abort();
	return there;
}

bool __wrap_python_read_u64(struct python *p, uint64_t addr, uint64_t *ret)
{
	return __wrap_python_read(p, addr, ret, sizeof(*ret));
}

bool __wrap_python_read_u32(struct python *p, uint64_t addr, uint32_t *ret)
{
	return __wrap_python_read(p, addr, ret, sizeof(*ret));
}

static int by_address(const void *a, const void *b)
{
	const struct span *x = (const struct span *)a, *y = (const struct span *)b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static void write_span(struct python *p, const struct span *s, struct buf *out)
{
	size_t len = s->end - s->addr;
	void *to;

	buf_u64(out, s->addr);
	buf_u32(out, (uint32_t)len);
	to = buf_reserve(out, len);
	if (!to || !__real_python_read(p, s->addr, to, len))
		abort();
	out->len += len;
}

/* What fuzz_python looks at besides. */
static void look_at_objects(struct python *p, const struct python_threads *threads,
	const struct python_frames *frames)
{
	struct python_greenlets greenlets = {0};
	struct buf text = {0};
	uint64_t word;

	vec_each(frames, f)
		for (uint64_t i = 0; recording && i < 16; i++)
			if (f < frames->data + 4 && python_read_u64(p, f->at + python_layout(p)->frame.locals + i * 8, &word)) {
				python_show(p, word & ~3ULL, 100, 2, &text);
				if (python_greenlet(p, threads, word & ~3ULL, &greenlets))
					abort();
			}
	python_greenlets_release(&greenlets);
	buf_release(&text);
}

static void look_at_tasks(struct python *p, const struct python_threads *threads)
{
	struct python_tasks tasks = {0};

	if (recording)
		(void)python_tasks(p, threads, &tasks, NULL);
	python_tasks_release(&tasks);
}

static void count_some_objects(struct python *p)
{
	const struct python_census_options options = {.most_objects = 60};
	struct python_census census = {0};

	if (recording)
		(void)python_census(p, &options, &census, NULL);
	python_census_release(&census);
}

static int write_recorded(struct python *p, const struct python_place *place, const char *path)
{
	struct buf out = {0};
	struct span now = {0};
	FILE *file = fopen(path, "wb");
	bool written;

	buf_u64(&out, place->runtime);
	buf_u64(&out, place->version_at);
	buf_u64(&out, 0);
	buf_u64(&out, 0);
	buf_u32(&out, python_version(p) >> 16 & 0xff);
	buf_u32(&out, place->aarch64);
	qsort(looked_at.data, looked_at.len, sizeof(*looked_at.data), by_address);
	vec_each(&looked_at, s)
	{
		if (s->addr > now.end + 8) {
			if (now.end)
				write_span(p, &now, &out);
			now = *s;
		} else if (s->end > now.end) {
			now.end = s->end;
		}
	}
	if (now.end)
		write_span(p, &now, &out);
	written = file && fwrite(out.data, 1, out.len, file) == out.len && !out.failed;
	if (file && fclose(file))
		written = false;
	buf_release(&out);
	return written ? 0 : 1;
}

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
		look_at_objects(p, &threads, &frames);
		if (recording && frames.len)
			everything_of_frames(p, frames.data, frames.len);
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
	if (recording)
		everything_of_threads(p, &threads);
	look_at_tasks(p, &threads);
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
	int bad;

	if (!find_place(&t)) {
		fprintf(stderr, "no _PyRuntime in %d\n", t.pid);
		return 1;
	}
	recording = argc > 3;
	if (python_new(&memory, &t.place, &p, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	before = clock_monotonic_ns();
	p->pages.reads = 0;
	for (long i = 0; i < rounds; i++) {
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
	count_some_objects(p);
	recording = false;
	bad = argc > 3 ? write_recorded(p, &t.place, argv[3]) : 0;
	vec_release(&looked_at);
	python_free(p);
	return bad;
}
