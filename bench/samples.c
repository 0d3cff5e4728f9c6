/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/samples.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define RING_BYTES (4u << 20)
#define MAX_RINGS 256
#define PERF_REGS 0xff0fffULL

struct ring {
	int fd;
	struct perf_event_mmap_page *page;
	uint64_t tail;
};

/* DWARF number of each register in the order of perf's mask; 99: not wanted. */
static const uint8_t dwarf_number[] = {
	0, 3, 2, 1, 4, 5, 6, 7, 16, 99, 99, 99, 8, 9, 10, 11, 12, 13, 14, 15};

/* ---- the ring ---- */

static bool ring_open(struct ring *r, pid_t pid, int cpu, bool on_exec, size_t stack_bytes)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000003,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = PERF_REGS,
		.sample_stack_user = (uint32_t)stack_bytes,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.inherit = on_exec,
		.enable_on_exec = on_exec,
		.disabled = 1,
		.wakeup_events = 1,
	};

	r->fd = (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (r->fd < 0)
		return false;

	void *at = mmap(NULL, RING_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);

	r->tail = 0;
	r->page = at == MAP_FAILED ? NULL : (struct perf_event_mmap_page *)at;
	if (!on_exec)
		ioctl(r->fd, PERF_EVENT_IOC_ENABLE, 0);
	return r->page != NULL;
}

static void ring_copy(const struct ring *r, uint64_t at, void *to, size_t len)
{
	const uint8_t *data = (const uint8_t *)r->page + 4096;
	size_t from = at % RING_BYTES, first = len < RING_BYTES - from ? len : RING_BYTES - from;

	memcpy(to, data + from, first);
	memcpy((uint8_t *)to + first, data, len - first);
}

/* u32 pid, tid; u64 abi; regs; u64 size; stack; u64 dyn_size (include/uapi/linux/perf_event.h) */
static void take_sample(struct sampled_process *p, const uint8_t *body, size_t len)
{
	struct stack_sample s = {0};
	uint64_t word, dyn;
	uint32_t pid;
	size_t at = 8;

	if (len < 16)
		return;
	memcpy(&pid, body, 4);
	memcpy(&s.tid, body + 4, 4);
	memcpy(&word, body + at, 8);
	at += 8;
	if ((pid_t)pid != p->pid || word != PERF_SAMPLE_REGS_ABI_64 ||
		len < at + 8 * sizeof(dwarf_number) + 8)
		return;
	for (size_t i = 0; i < sizeof(dwarf_number); i++, at += 8) {
		memcpy(&word, body + at, 8);
		if (dwarf_number[i] == 99)
			continue;
		s.regs.value[dwarf_number[i]] = word;
		s.regs.known |= 1ULL << dwarf_number[i];
	}
	memcpy(&word, body + at, 8);
	at += 8;
	if (!word || word > len - at || len - at - word < 8)
		return;
	memcpy(&dyn, body + at + word, 8);
	s.stack_size = dyn < word ? dyn : word;
	s.stack = (uint8_t *)malloc(s.stack_size + 1);
	if (!s.stack)
		return;
	memcpy(s.stack, body + at, s.stack_size);
	s.stack_start = s.regs.value[UNWIND_X86_RSP];
	if (vec_push(&p->samples, s))
		free(s.stack);
}

static void ring_drain(struct ring *r, struct sampled_process *p, size_t want)
{
	static uint8_t record[65536];
	uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);

	while (r->tail < head) {
		struct perf_event_header h;

		ring_copy(r, r->tail, &h, sizeof(h));
		if (h.size < sizeof(h))
			break;
		if (h.type == PERF_RECORD_SAMPLE && p->samples.len < want) {
			ring_copy(r, r->tail + sizeof(h), record, h.size - sizeof(h));
			take_sample(p, record, h.size - sizeof(h));
		}
		r->tail += h.size;
	}
	__atomic_store_n(&r->page->data_tail, r->tail, __ATOMIC_RELEASE);
}

/* ---- the process ---- */

/* The child waits for a byte before it becomes argv, so that the events are there first. */
static pid_t start(const char *const *argv, int *ret_go)
{
	int go[2];

	if (pipe2(go, O_CLOEXEC))
		return -1;

	pid_t pid = fork();

	if (!pid) {
		char c;
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		dup2(null, 1);
		if (read(go[0], &c, 1) == 1)
			execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(go[0]);
	*ret_go = go[1];
	return pid;
}

static size_t open_rings(struct sampled_process *p, struct ring *rings, size_t stack_bytes)
{
	size_t count = 0;
	char path[64];

	if (p->ours) {
		long cpus = sysconf(_SC_NPROCESSORS_ONLN);

		for (int cpu = 0; cpu < cpus && count < MAX_RINGS; cpu++)
			count += ring_open(&rings[count], p->pid, cpu, true, stack_bytes);
		return count;
	}
	snprintf(path, sizeof(path), "/proc/%d/task", p->pid);

	DIR *tasks = opendir(path);

	for (struct dirent *d; tasks && count < MAX_RINGS && (d = readdir(tasks));) {
		pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);

		if (tid > 0)
			count += ring_open(&rings[count], tid, -1, false, stack_bytes);
	}
	if (tasks)
		closedir(tasks);
	return count;
}

/* ---- mappings ---- */

static bool find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	const struct sampled_process *p = (const struct sampled_process *)ctx;
	size_t lo = 0, hi = p->maps.len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (addr >= p->maps.data[mid].end)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == p->maps.len || addr < p->maps.data[lo].start)
		return false;
	*ret = p->maps.data[lo];
	return true;
}

static bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct sampled_process *p = (const struct sampled_process *)ctx;
	struct iovec local = {buf, len}, remote = {(void *)(uintptr_t)addr, len};

	return process_vm_readv(p->pid, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

/* Functions nothing calls, in the files of languages that do not say so themselves. */
VEC_TYPE(roots, struct unwind_range);

static int add_root(void *ctx, const struct elf_symbol *sym)
{
	static const char *const names[] = {"runtime.goexit", "runtime.goexit.abi0",
		"runtime.mstart", "runtime.mstart.abi0", "runtime.rt0_go", "runtime.rt0_go.abi0",
		"runtime.mcall", "runtime.mcall.abi0"};
	struct roots *roots = (struct roots *)ctx;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(sym->name, names[i]) && sym->end > sym->start)
			return vec_push(roots, (struct unwind_range){sym->start, sym->end});
	return 0;
}

static struct unwind_section section(struct elf_file *f, const char *name)
{
	struct elf_section s;

	if (!elf_file_section(f, name, &s))
		return (struct unwind_section){0};
	return (struct unwind_section){s.bytes, s.size, s.vaddr};
}

static bool load_module(struct sampled_module *m)
{
	const struct elf_segment *segments;
	size_t count = elf_file_segments(m->elf, &segments);
	struct unwind_section text[16];
	struct unwind_module_input in = {
		.arch = UNWIND_X86_64,
		.eh_frame = section(m->elf, ".eh_frame"),
		.eh_frame_hdr = section(m->elf, ".eh_frame_hdr"),
		.debug_frame = section(m->elf, ".debug_frame"),
		.text = text,
		.entry = elf_file_is_executable(m->elf) ? elf_file_entry(m->elf) : 0,
		.go = section(m->elf, ".gopclntab").size != 0,
	};
	struct roots roots = {0};

	if (in.go) {
		in.debug_frame = (struct unwind_section){0};
		elf_file_each_symbol(m->elf, add_root, &roots);
	}
	for (size_t i = 0; i < count && in.text_count < 16; i++) {
		const uint8_t *bytes =
			elf_file_bytes_at(m->elf, segments[i].vaddr, segments[i].file_size);

		if (segments[i].executable && bytes)
			text[in.text_count++] = (struct unwind_section){
				bytes, segments[i].file_size, segments[i].vaddr};
	}
	in.roots = roots.data;
	in.root_count = roots.len;

	bool good = !unwind_module_new(&in, &m->module, NULL);

	vec_release(&roots);
	return good;
}

/* The vDSO has no path: its image is read out of the process. */
static struct elf_file *open_vdso(struct sampled_process *p, const struct unwind_mapping *map)
{
	size_t size = map->end - map->start;
	void *bytes = malloc(size);
	struct elf_file *elf = NULL;

	if (bytes && read_memory(p, map->start, bytes, size))
		elf_file_open_memory(bytes, size, "[vdso]", &elf, NULL);
	free(bytes);
	return elf;
}

/* Mappings begin on a page, segments need not: the address of the first byte by the executable
 * segment that this part of the file overlaps. */
static uint64_t bias_of(const struct elf_file *f, const struct unwind_mapping *map, uint64_t offset)
{
	const struct elf_segment *s;
	size_t count = elf_file_segments(f, &s);
	uint64_t size = map->end - map->start;

	for (size_t i = 0; i < count; i++)
		if (s[i].executable && s[i].offset < offset + size &&
			offset < s[i].offset + s[i].file_size)
			return map->start - offset + s[i].offset - s[i].vaddr;
	return map->start;
}

static uint32_t module_of(
	struct sampled_process *p, const char *path, const struct unwind_mapping *map)
{
	struct sampled_module m = {0};
	char through_root[4352];

	for (size_t i = 0; i < p->modules.len; i++)
		if (!strcmp(p->modules.data[i].path, path))
			return (uint32_t)i + 1;
	if (!strcmp(path, "[vdso]")) {
		m.elf = open_vdso(p, map);
	} else if (path[0] == '/') {
		snprintf(through_root, sizeof(through_root), "/proc/%d/root%s", p->pid, path);

		int fd = open(through_root, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd >= 0)
			elf_file_open_fd(fd, path, &m.elf, NULL);
	}
	if (!m.elf)
		return 0;
	m.path = strdup(path);
	if (!m.path || !load_module(&m) || vec_push(&p->modules, m))
		return 0;
	return (uint32_t)p->modules.len;
}

static bool read_maps(struct sampled_process *p)
{
	char name[64], line[4500];

	snprintf(name, sizeof(name), "/proc/%d/maps", p->pid);

	FILE *in = fopen(name, "re");

	while (in && fgets(line, sizeof(line), in)) {
		struct unwind_mapping map = {0};
		unsigned long long start, end, offset;
		char perms[8], path[4200] = "";

		if (sscanf(line, "%llx-%llx %7s %llx %*s %*s %4199[^\n]", &start, &end, perms,
			    &offset, path) < 4)
			continue;
		map.start = start;
		map.end = end;
		map.executable = perms[2] == 'x';
		map.id = map.executable ? module_of(p, path, &map) : 0;
		if (map.id) {
			const struct sampled_module *m = &p->modules.data[map.id - 1];

			map.module = m->module;
			map.bias = bias_of(m->elf, &map, offset);
		}
		if (vec_push(&p->maps, map))
			break;
	}
	if (in)
		fclose(in);
	p->target = (struct unwind_target){.arch = UNWIND_X86_64,
		.ctx = p,
		.find_mapping = find_mapping,
		.read_memory = read_memory};
	return p->maps.len != 0;
}

bool samples_take(struct sampled_process *p, const char *const *argv, pid_t pid, size_t want,
	unsigned seconds, size_t stack_bytes)
{
	static struct ring rings[MAX_RINGS];
	struct pollfd polls[MAX_RINGS];
	int go = -1;

	*p = (struct sampled_process){.pid = pid, .ours = argv != NULL};
	if (argv && (p->pid = start(argv, &go)) < 0)
		return false;

	size_t count = open_rings(p, rings, stack_bytes);

	if (!count) {
		fprintf(stderr, "perf_event_open: %s\n", strerror(errno));
		return false;
	}
	for (size_t i = 0; i < count; i++)
		polls[i] = (struct pollfd){.fd = rings[i].fd, .events = POLLIN};
	if (argv) {
		if (write(go, "", 1) != 1)
			return false;
		close(go);
	}

	uint64_t until = clock_monotonic_ns() + seconds * NS_PER_S;

	while (p->samples.len < want && clock_monotonic_ns() < until) {
		siginfo_t gone = {0};

		poll(polls, count, 20);
		for (size_t i = 0; i < count; i++)
			ring_drain(&rings[i], p, want);
		if (argv && !waitid(P_PID, (id_t)p->pid, &gone, WEXITED | WNOHANG | WNOWAIT) &&
			gone.si_pid)
			break;
	}
	if (p->ours)
		kill(p->pid, SIGSTOP);
	for (size_t i = 0; i < count; i++) {
		munmap(rings[i].page, RING_BYTES + 4096);
		close(rings[i].fd);
	}
	if (!p->samples.len || !read_maps(p)) {
		fprintf(stderr, "no samples, or the process ended too early\n");
		return false;
	}
	return true;
}

void samples_release(struct sampled_process *p)
{
	if (p->ours && p->pid > 0) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
	}
	vec_each (&p->samples, s)
		free(s->stack);
	vec_each (&p->modules, m) {
		unwind_module_free(m->module);
		elf_file_free(m->elf);
		free(m->path);
	}
	vec_release(&p->samples);
	vec_release(&p->maps);
	vec_release(&p->modules);
}
