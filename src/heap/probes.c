/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ways to place probes. Since 6.13 one link has all of them, and the program says at the entry of a function whether
 * its return is of interest: then only calls that are sampled pay for that. Before, each probe is an event of its own,
 * and each function that allocates has a second one at its return. Which there is, the kernel's type information says.
 */
#include "heap/probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/vec.h"
#include "os/rights.h"
#include "sample/bpf/common.h"
#include "sample/bpf/ring.h"

#include <heap_probes.skel.h>

/* The first pid namespace is this one on every system: PROC_PID_INIT_INO. */
#define FIRST_NAMESPACE 0xeffffffcu
/* A probe of the program's own is an instruction that does nothing. Stacks are looked at as behind a call, and it may be the
 * first one of its function: so they are said to be behind that. */
#if defined(__x86_64__)
#define DWARF_PC UNWIND_X86_PC
#define PROBE_BYTES 1
#else
#define DWARF_PC UNWIND_A64_PC
#define PROBE_BYTES 4
#endif
/* With so many bytes between samples there are so few that each may copy more of its stack. */
#define DEEP_RATE (64u << 10)

struct heap_probes {
	struct heap_probes_bpf *skeleton;
	struct bpf_ring ring;
	int session_fd; /* the link with all probes; -1: `links` has them */
	VEC(struct bpf_link *) links;
	uint64_t bytes, told;
	unsigned functions, slow, left_out, cpus;
	int attach_type; /* of that link; 0: there is none */
	bool failed;
};

/* ---- what the kernel has ---- */

/* The value of an enumerator in the kernel; -1: there is none of that name. */
static int64_t kernel_value(const struct btf *btf, const char *type, const char *name)
{
	int32_t id = btf__find_by_name_kind(btf, type, BTF_KIND_ENUM);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;

	for (unsigned i = 0; t && i < btf_vlen(t); i++) {
		const char *has = btf__name_by_offset(btf, btf_enum(t)[i].name_off);

		if (has && !strcmp(has, name))
			return btf_enum(t)[i].val;
	}
	return -1;
}

struct kernel {
	bool cookies;
	int session; /* attach type; 0: none */
};

static int look_at_kernel(struct kernel *ret, struct err *err)
{
	struct btf *btf;
	int64_t session;

	bpf_keep_quiet();
	btf = btf__load_vmlinux_btf();
	if (!btf)
		return rights_bpf_refused(ENOENT, err);
	session = kernel_value(btf, "bpf_attach_type", "BPF_TRACE_UPROBE_SESSION");
	*ret = (struct kernel){
		.cookies = kernel_value(btf, "bpf_func_id", "BPF_FUNC_get_attach_cookie") > 0,
		.session = session > 0 ? (int)session : 0,
	};
	btf__free(btf);
	return ret->cookies ? 0 : err_set(err, EOPNOTSUPP, "this kernel cannot tell a program which probe was hit (Linux 5.15 can)");
}

/* A refusal costs next to nothing in this way: before the kernel's type information is read. */
static int try_map(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, NULL, sizeof(uint32_t), sizeof(uint32_t), 1, NULL);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int heap_probes_possible(struct err *err)
{
	struct kernel kernel = {0};
	int rc = try_map();

	return rc ? rights_bpf_refused(-rc, err) : look_at_kernel(&kernel, err);
}

/* ---- load ---- */

static void set_constants(struct heap_probes_bpf *skeleton, const struct heap_probes_options *o, bool all_returns)
{
	struct stat st;
	uint32_t *logs = (uint32_t *)skeleton->rodata->log2_table;

	for (uint32_t i = 0; i < 1u << HEAP_PROBE_LOG_BITS; i++)
		logs[i] = (uint32_t)(log2(1 + (double)i / (1u << HEAP_PROBE_LOG_BITS)) * 0x1p32);
	logs[1u << HEAP_PROBE_LOG_BITS] = UINT32_MAX;
	for (size_t i = 0; o->told && i < o->told->count; i++)
		memcpy((void *)&skeleton->rodata->told[i], &o->told->sites[i].probe, sizeof(struct heap_told_probe));
	for (size_t i = 0; o->entries && i < o->entries->count; i++)
		memcpy((void *)&skeleton->rodata->probes[i], &o->entries->entries[i].probe, sizeof(struct heap_probe));
	for (size_t i = 0; o->entries && i < o->entries->range_count; i++)
		memcpy((void *)&skeleton->rodata->ranges[i], &o->entries->ranges[i], sizeof(struct heap_probe_range));
	*(uint32_t *)&skeleton->rodata->range_count = o->entries ? (uint32_t)o->entries->range_count : 0;
	*(uint32_t *)&skeleton->rodata->sees_all_returns = all_returns;
	*(uint64_t *)&skeleton->rodata->throw_most = o->throw_most;
	if (!stat("/proc/self/ns/pid", &st) && st.st_ino != FIRST_NAMESPACE) {
		*(uint64_t *)&skeleton->rodata->own_ns_device = st.st_dev;
		*(uint64_t *)&skeleton->rodata->own_ns_inode = st.st_ino;
	}
	skeleton->bss->deep = o->rate >= DEEP_RATE;
	skeleton->data->rate = o->rate;
}

static int load(struct heap_probes *p, const struct heap_probes_options *o, struct err *err)
{
	struct kernel kernel = {0};
	int rc = try_map();

	if (rc)
		return rights_bpf_refused(-rc, err);
	rc = look_at_kernel(&kernel, err);
	if (rc)
		return rc;
	p->skeleton = heap_probes_bpf__open();
	if (!p->skeleton)
		return err_errno(err, errno, "opening the BPF program");
	p->attach_type = o->told ? 0 : kernel.session;
	set_constants(p->skeleton, o, !kernel.session);
	bpf_program__set_autoload(p->skeleton->progs.on_told, o->told);
	if (o->told) {
		bpf_program__set_autoload(p->skeleton->progs.on_call, false);
		bpf_program__set_autoload(p->skeleton->progs.on_return, false);
	} else if (kernel.session) {
		bpf_program__set_expected_attach_type(p->skeleton->progs.on_call, (enum bpf_attach_type)kernel.session);
		bpf_program__set_autoload(p->skeleton->progs.on_return, false);
	}
	bpf_program__set_autoload(p->skeleton->progs.nothing, false);
	rc = heap_probes_bpf__load(p->skeleton);
	return rc ? rights_bpf_refused(-rc, err) : 0;
}

/* ---- attach ---- */

/* The part of the kernel's union bpf_attr that makes such a link (include/uapi/linux/bpf.h), which older headers lack. */
struct multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, counters, cookies;
	uint32_t count, multi_flags, pid, pad;
};

static int attach_session(struct heap_probes *p, const struct heap_probes_options *o, struct err *err)
{
	uint64_t offsets[HEAP_PROBES_MOST], cookies[HEAP_PROBES_MOST];
	struct multi_attr attr = {
		.prog_fd = (uint32_t)bpf_program__fd(p->skeleton->progs.on_call),
		.attach_type = (uint32_t)p->attach_type,
		.path = (uintptr_t)o->path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.count = (uint32_t)o->entries->count,
		.pid = (uint32_t)o->only_pid,
	};

	for (size_t i = 0; i < o->entries->count; i++) {
		offsets[i] = o->entries->entries[i].offset;
		cookies[i] = i;
	}
	p->session_fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	return p->session_fd < 0 ? err_errno(err, errno, "placing %zu probes in %s", o->entries->count, o->path) : 0;
}

static int attach_one(struct heap_probes *p, const struct heap_probes_options *o, size_t i, bool at_return, struct err *err)
{
	const struct heap_entry *e = &o->entries->entries[i];
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = i, .retprobe = at_return);
	struct bpf_link *link = bpf_program__attach_uprobe_opts(
		at_return ? p->skeleton->progs.on_return : p->skeleton->progs.on_call, o->only_pid ? o->only_pid : -1, o->path,
		e->offset, &opts);

	if (!link)
		return err_errno(err, errno, "placing a probe at %s in %s", e->name, o->path);
	if (vec_push(&p->links, link)) {
		bpf_link__destroy(link);
		return err_nomem(err);
	}
	return 0;
}

static int attach_each(struct heap_probes *p, const struct heap_probes_options *o, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < o->entries->count; i++) {
		/* Its return would be awaited in each call, also in one that throws. */
		if (o->entries->entries[i].probe.throws) {
			p->left_out++;
			continue;
		}
		if (o->entries->entries[i].probe.kind != HEAP_PROBE_FREE)
			rc = attach_one(p, o, i, true, err);
		if (!rc)
			rc = attach_one(p, o, i, false, err);
	}
	return rc;
}

/* Who listens counts the semaphore up, and down again when the link is gone: the kernel does that. Frees come first, so that
 * no block is known whose free goes unseen. */
static int attach_told(struct heap_probes *p, const struct heap_probes_options *o, bool frees, struct err *err)
{
	for (size_t i = 0; i < o->told->count; i++) {
		const struct heap_told_site *s = &o->told->sites[i];
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = i, .ref_ctr_offset = s->semaphore);
		struct bpf_link *link;

		if (s->probe.frees != frees)
			continue;
		link = bpf_program__attach_uprobe_opts(p->skeleton->progs.on_told, o->only_pid, o->path, s->offset, &opts);
		if (!link)
			return err_errno(err, errno, "placing a probe at otel_memory:%s in %s", frees ? "free" : "alloc", o->told->shown);
		if (vec_push(&p->links, link)) {
			bpf_link__destroy(link);
			return err_nomem(err);
		}
	}
	return 0;
}

static int attach(struct heap_probes *p, const struct heap_probes_options *o, struct err *err)
{
	p->skeleton->links.on_fork = bpf_program__attach(p->skeleton->progs.on_fork);
	if (!p->skeleton->links.on_fork)
		return err_errno(err, errno, "attaching to sched_process_fork");
	p->skeleton->links.on_exec = bpf_program__attach(p->skeleton->progs.on_exec);
	if (!p->skeleton->links.on_exec)
		return err_errno(err, errno, "attaching to sched_process_exec");
	if (o->told) {
		int rc = attach_told(p, o, true, err);

		return rc ? rc : attach_told(p, o, false, err);
	}
	for (size_t i = 0; i < o->entries->count; i++)
		p->slow += !o->entries->entries[i].emulated;
	p->functions = (unsigned)o->entries->count;
	return p->attach_type ? attach_session(p, o, err) : attach_each(p, o, err);
}

int heap_probes_new(const struct heap_probes_options *options, struct heap_probes **ret, struct err *err)
{
	struct heap_probes *p = calloc(1, sizeof(*p));
	int rc, cpus;

	if (!p)
		return err_nomem(err);
	p->session_fd = -1;
	rc = load(p, options, err);
	cpus = rc ? 0 : libbpf_num_possible_cpus();
	p->cpus = cpus > 0 ? (unsigned)cpus : 0;
	if (!rc)
		rc = bpf_ring_map(&p->ring, bpf_map__fd(p->skeleton->maps.ring), HEAP_PROBE_RING_BYTES, err);
	if (!rc)
		rc = attach(p, options, err);
	if (rc) {
		heap_probes_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void heap_probes_free(struct heap_probes *p)
{
	if (!p)
		return;
	if (p->session_fd >= 0)
		close(p->session_fd);
	vec_each(&p->links, link)
		bpf_link__destroy(*link);
	vec_release(&p->links);
	bpf_ring_unmap(&p->ring);
	heap_probes_bpf__destroy(p->skeleton);
	free(p);
}

/* ---- who is watched ---- */

int heap_probes_watch(struct heap_probes *p, pid_t pid, bool at_exec, struct err *err)
{
	uint32_t key = (uint32_t)pid, how = at_exec ? HEAP_PROBE_AT_EXEC : HEAP_PROBE_NOW;

	if (bpf_map_update_elem(bpf_map__fd(p->skeleton->maps.watched), &key, &how, BPF_ANY))
		return err_errno(err, errno, "watching process %d", (int)pid);
	return 0;
}

void heap_probes_unwatch(struct heap_probes *p, pid_t pid)
{
	uint32_t key = (uint32_t)pid;

	bpf_map_delete_elem(bpf_map__fd(p->skeleton->maps.watched), &key);
}

bool heap_probes_watches(const struct heap_probes *p, pid_t pid)
{
	uint32_t key = (uint32_t)pid, how;

	return !bpf_map_lookup_elem(bpf_map__fd(p->skeleton->maps.watched), &key, &how);
}

/* ---- events ---- */

int heap_probes_fd(const struct heap_probes *p)
{
	return bpf_map__fd(p->skeleton->maps.ring);
}

static bool is_sample(const struct heap_probe_event *e)
{
	return e->type == HEAP_PROBE_ALLOCATED || e->type == HEAP_PROBE_MOVED_SAMPLED || e->type == HEAP_PROBE_TOLD;
}

size_t heap_probes_drain(struct heap_probes *p, size_t limit,
	void (*take)(void *ctx, const struct heap_probe_event *e, const struct heap_probe_sample *sample), void *ctx)
{
	size_t count = 0, bytes;
	const void *record;

	for (; count < limit && (record = bpf_ring_peek(&p->ring, &bytes)); count++) {
		const struct heap_probe_event *e = record;

		if (bytes >= sizeof(struct heap_probe_sample) && is_sample(e) &&
			e->stack_bytes <= bytes - sizeof(struct heap_probe_sample))
			take(ctx, e, record);
		else if (bytes >= sizeof(*e) && !is_sample(e))
			take(ctx, e, NULL);
		p->bytes += bytes;
		p->told += e->type == HEAP_PROBE_TOLD;
		bpf_ring_pop(&p->ring);
	}
	return count;
}

bool heap_probes_regs(const struct heap_probe_sample *sample, struct unwind_regs *ret)
{
	if (!bpf_user_regs(sample->regs, false, ret))
		return false;
	if (sample->head.type == HEAP_PROBE_TOLD)
		ret->value[DWARF_PC] += PROBE_BYTES;
	return true;
}

void heap_probes_set_rate(struct heap_probes *p, uint64_t rate)
{
	if (rate > HEAP_PROBE_RATE_MOST)
		rate = HEAP_PROBE_RATE_MOST;
	__atomic_store_n(&p->skeleton->data->rate, rate, __ATOMIC_RELAXED);
	p->skeleton->bss->deep = rate >= DEEP_RATE;
}

void heap_probes_stop(struct heap_probes *p)
{
	__atomic_store_n(&p->skeleton->bss->stopped, 1, __ATOMIC_RELAXED);
}

void heap_probes_stats(const struct heap_probes *p, struct heap_probes_stats *ret)
{
	const struct heap_probes_bpf__bss *bss = p->skeleton->bss;
	struct heap_probe_calls *by_cpu = calloc(p->cpus ? p->cpus : 1, sizeof(*by_cpu));

	*ret = (struct heap_probes_stats){
		.lost = bss->lost_room + bss->lost_table + bss->lost_throwing,
		.bytes = p->bytes,
		.told = p->told,
		.functions = p->functions - p->left_out,
		.left_out = p->left_out,
		.slow = p->slow,
		.all_returns = !p->attach_type,
	};
	for (uint32_t i = 0; by_cpu && i < p->functions; i++) {
		if (bpf_map_lookup_elem(bpf_map__fd(p->skeleton->maps.calls), &i, by_cpu))
			continue;
		for (unsigned cpu = 0; cpu < p->cpus; cpu++) {
			ret->calls += by_cpu[cpu].calls;
			ret->inner += by_cpu[cpu].inner;
		}
	}
	free(by_cpu);
}
