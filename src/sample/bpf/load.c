/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening: set constants, load, attach; then what is watched. */
#include "sample/bpf/bpf_priv.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/rights.h"
#include "sample/bpf/common.h"
#include "sample/bpf/python_program.h"
#include "symbol/symbol.h"

#include <off_cpu.skel.h>

/* While events come, they are read this often: each wake-up costs the thread that causes it. */
#define BATCH_NS (2 * NS_PER_MS)
#define CGROUP_DEPTH 32
/* A copy of a stack costs some 300 ns: this share of a thread's time may go into those that are made
 * although its intervals were short. */
#define COPY_SPACING_NS (50 * NS_PER_US)

/* ---- open ---- */

static int set_up_slots(struct bpf_sampler *s, struct err *err)
{
	int fd = bpf_map__fd(s->skeleton->maps.free_slots);
	int threads_fd = bpf_map__fd(s->skeleton->maps.threads);
	void *map = mmap(NULL, OFF_CPU_THREADS * sizeof(*s->threads), PROT_READ | PROT_WRITE,
		MAP_SHARED, threads_fd, 0);

	if (map == MAP_FAILED)
		return err_errno(err, errno, "mmap of a BPF map");
	s->threads = map;
	for (uint32_t slot = OFF_CPU_THREADS; slot-- > 0;)
		if (bpf_map_update_elem(fd, NULL, &slot, BPF_ANY))
			return err_errno(err, errno, "filling a BPF map");
	return 0;
}

static int set_up_wakeups(struct bpf_sampler *s, struct err *err)
{
	/* Edges: the ring is drained when it is time, whatever is in it. */
	struct epoll_event edge = {.events = EPOLLIN | EPOLLET};

	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0 ||
		epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, bpf_map__fd(s->skeleton->maps.ring), &edge))
		return err_errno(err, errno, "epoll");
	return 0;
}

static int load(struct bpf_sampler *s, struct err *err)
{
	uint64_t period_ns = NS_PER_S / s->options.frequency_hz;
	int rc;

	bpf_keep_quiet();
	s->skeleton = off_cpu_bpf__open();
	if (!s->skeleton)
		return err_errno(err, errno, "opening the BPF program");
	s->keep_ns = s->options.min_block_ns ? s->options.min_block_ns : period_ns;
	s->skeleton->rodata->keep_ns = s->keep_ns;
	s->skeleton->rodata->mark_ns = s->options.min_block_ns ? 0 : period_ns;
	s->skeleton->rodata->copy_spacing_ns =
		s->keep_ns / 10 > COPY_SPACING_NS ? s->keep_ns / 10 : COPY_SPACING_NS;
	python_own_namespace((uint64_t *)&s->skeleton->rodata->own_ns_device,
		(uint64_t *)&s->skeleton->rodata->own_ns_inode);
	rc = off_cpu_bpf__load(s->skeleton);
	if (!rc)
		rc = off_cpu_bpf__attach(s->skeleton);
	return rc ? rights_bpf_refused(-rc, err) : 0;
}

static int set_up_python(struct bpf_sampler *s, struct err *err)
{
	const struct python_copier_maps maps = {
		.processes = bpf_map__fd(s->skeleton->maps.processes),
		.threads = bpf_map__fd(s->skeleton->maps.python_threads),
		.process_count = &s->skeleton->bss->python_processes,
		.update = python_map_update,
		.remove = python_map_remove,
	};

	return python_copier_new(&maps, &s->python, err);
}

static void bpf_free(struct sampler *sampler)
{
	struct bpf_sampler *s = bpf_of(sampler);

	bpf_ring_unmap(&s->ring);
	if (s->threads)
		munmap(s->threads, OFF_CPU_THREADS * sizeof(*s->threads));
	bpf_release_chains(s);
	python_copier_free(s->python);
	off_cpu_bpf__destroy(s->skeleton);
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	vec_release(&s->finished);
	if (s->kernel_names)
		symbol_source_free(s->kernel_names);
	free(s);
}

static int bpf_open(const struct sampler_options *options, struct sampler **ret, struct err *err)
{
	struct bpf_sampler *s;
	int rc;

	if (!options->off_cpu)
		return err_set(err, EINVAL,
			"the bpf sampler sees time off the CPU alone: add --wall or --off-cpu");
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_nomem(err);
	s->sampler.ops = &sampler_bpf;
	s->options = *options;
	s->epoll_fd = -1;
	rc = load(s, err);
	if (!rc)
		rc = set_up_slots(s, err);
	if (!rc)
		rc = bpf_ring_map(&s->ring, bpf_map__fd(s->skeleton->maps.ring), OFF_CPU_RING_BYTES,
			err);
	if (!rc)
		rc = set_up_wakeups(s, err);
	if (!rc)
		rc = set_up_python(s, err);
	if (rc) {
		bpf_free(&s->sampler);
		return rc;
	}
	*ret = &s->sampler;
	return 0;
}

/* ---- watching ---- */

/* In a rolling window: numbers of stacks change, and times are told again. */
static void carry(void *ctx, struct session *session, uint64_t now_ns)
{
	struct bpf_sampler *s = ctx;

	for (uint32_t slot = 0; slot < OFF_CPU_THREADS; slot++) {
		struct thread_note *note = &s->notes[slot];

		note->told_seq = 0;
		if (note->stack_seq)
			session_kept_stack(session, &note->stack.leaf);
		if (note->waker_seq)
			session_kept_stack(session, &note->waker_stack);
	}
	vec_each(&s->finished, i) {
		session_kept_stack(session, &i->stack.leaf);
		session_kept_stack(session, &i->waker_stack);
	}
	s->tell_ns = 0;
}

static void tell_open(void *ctx, uint64_t now_ns)
{
	bpf_finish(ctx, now_ns);
}

static void bpf_bind(struct sampler *sampler, struct session *session)
{
	static const struct session_keeper_ops keeper = {.carry = carry, .tell_open = tell_open};
	struct bpf_sampler *s = bpf_of(sampler);

	s->session = session;
	s->unkept = session_keep(session, &keeper, s, NULL);
	if (!s->options.nonblocking)
		python_copier_follow(s->python, session);
}

static int watch(struct bpf_sampler *s, pid_t pid, uint32_t how, struct err *err)
{
	uint32_t tgid = (uint32_t)pid;

	if (bpf_map_update_elem(bpf_map__fd(s->skeleton->maps.watched), &tgid, &how, BPF_ANY))
		return err_errno(err, errno, "watching process %d", (int)pid);
	return 0;
}

/* Slots for all threads that are to be watched, and the stacks of those that sleep. */
static int begin(struct bpf_sampler *s, struct err *err)
{
	if (s->unkept)
		return err_nomem(err);
	return bpf_look(s, UINT64_MAX, err);
}

static int bpf_watch_process(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct bpf_sampler *s = bpf_of(sampler);
	int rc = watch(s, pid, OFF_CPU_NOW, err);

	return rc ? rc : begin(s, err);
}

/* The whole process: the session tells its threads apart. */
static int bpf_watch_thread(struct sampler *sampler, pid_t pid, pid_t tid, struct err *err)
{
	return bpf_watch_process(sampler, pid, err);
}

static int bpf_watch_child(struct sampler *sampler, pid_t pid, struct err *err)
{
	return watch(bpf_of(sampler), pid, OFF_CPU_AT_EXEC, err);
}

static int bpf_watch_all(struct sampler *sampler, struct err *err)
{
	struct bpf_sampler *s = bpf_of(sampler);

	s->skeleton->bss->scope = OFF_CPU_ALL;
	return begin(s, err);
}

/* The processes in a cgroup and those below it; the descriptor is taken. */
static int watch_members(struct bpf_sampler *s, int cgroup_fd, int depth, struct err *err)
{
	int fd = openat(cgroup_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC), rc = 0;
	autofclose FILE *procs = fd < 0 ? NULL : fdopen(fd, "r");
	DIR *dir = fdopendir(cgroup_fd);
	char line[32];

	while (!rc && procs && fgets(line, sizeof(line), procs))
		rc = watch(s, (pid_t)strtol(line, NULL, 10), OFF_CPU_NOW, err);
	for (struct dirent *e; !rc && dir && depth < CGROUP_DEPTH && (e = readdir(dir));) {
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			rc = watch_members(s, fd, depth + 1, err);
	}
	if (dir)
		closedir(dir);
	else
		close(cgroup_fd);
	return rc;
}

static int bpf_watch_cgroup(struct sampler *sampler, int cgroup_fd, struct err *err)
{
	struct bpf_sampler *s = bpf_of(sampler);
	uint32_t zero = 0, fd = (uint32_t)cgroup_fd;
	int own, rc;

	if (bpf_map_update_elem(bpf_map__fd(s->skeleton->maps.cgroups), &zero, &fd, BPF_ANY))
		return err_errno(err, errno, "watching a cgroup");
	s->skeleton->bss->scope = OFF_CPU_CGROUP;
	own = openat(cgroup_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = own < 0 ? err_errno(err, errno, "reading a cgroup") : watch_members(s, own, 0, err);
	return rc ? rc : begin(s, err);
}

/* ---- the loop ---- */

static int bpf_fd(const struct sampler *sampler)
{
	return ((const struct bpf_sampler *)sampler)->epoll_fd;
}

static uint64_t oldest_ns(struct sampler *sampler)
{
	return bpf_oldest_ns(bpf_of(sampler));
}

static void drain_until(struct sampler *sampler, uint64_t time_ns)
{
	bpf_decode_until(bpf_of(sampler), time_ns);
}

static uint64_t settle(struct sampler *sampler, bool last)
{
	struct bpf_sampler *s = bpf_of(sampler);
	struct epoll_event consumed;
	uint64_t now_ns, wait_ns;
	bool busy = s->ring_bytes_read != s->last_bytes_read || s->finished.len;

	if (last) {
		bpf_finish(s, s->stop_ns);
		return UINT64_MAX;
	}
	s->last_bytes_read = s->ring_bytes_read;
	epoll_wait(s->epoll_fd, &consumed, 1, 0);
	s->skeleton->data->reader_sleeps = !busy;
	/* What was written before that wakes nobody. */
	if (!busy && bpf_oldest_ns(s) != UINT64_MAX)
		return 0;
	bpf_settle(s, clock_monotonic_ns() - BATCH_NS / 2);
	bpf_scan(s, clock_monotonic_ns());
	now_ns = clock_monotonic_ns();
	wait_ns = s->scan_ns > now_ns ? s->scan_ns - now_ns : 0;
	return busy && wait_ns > BATCH_NS ? BATCH_NS : wait_ns;
}

static uint64_t bpf_drain(struct sampler *sampler, bool last)
{
	bpf_decode_until(bpf_of(sampler), last ? UINT64_MAX : clock_monotonic_ns());
	return settle(sampler, last);
}

static void bpf_stop(struct sampler *sampler)
{
	struct bpf_sampler *s = bpf_of(sampler);

	if (s->stop_ns)
		return;
	bpf_look(s, UINT64_MAX, NULL);
	s->stop_ns = clock_monotonic_ns();
	off_cpu_bpf__detach(s->skeleton);
}

static void bpf_facts(const struct sampler *sampler, struct sampler_facts *ret)
{
	const struct bpf_sampler *s = (const struct bpf_sampler *)sampler;

	*ret = (struct sampler_facts){
		.event = "sched_switch",
		.kernel = true,
		.missed_threads = s->skeleton->bss->lost_threads,
		.ring_bytes_read = s->ring_bytes_read,
	};
}

const struct sampler_ops sampler_bpf = {
	.name = "bpf",
	.open = bpf_open,
	.free = bpf_free,
	.bind = bpf_bind,
	.watch_process = bpf_watch_process,
	.watch_thread = bpf_watch_thread,
	.watch_child = bpf_watch_child,
	.watch_all = bpf_watch_all,
	.watch_cgroup = bpf_watch_cgroup,
	.fd = bpf_fd,
	.drain = bpf_drain,
	.oldest_ns = oldest_ns,
	.drain_until = drain_until,
	.settle = settle,
	.stop = bpf_stop,
	.facts = bpf_facts,
};
