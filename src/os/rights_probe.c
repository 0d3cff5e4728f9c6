/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking at the machine: one small function a question, each trying the thing itself.
 *
 * A question fills in what it found and, when something is missing, names the wall (rights.c)
 * whose words say what that costs and how to get rid of it.
 */
#include "os/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "config.h"
#include "os/perf_event.h"
#include "os/proc.h"
#include "os/ptrace.h"
#include "os/rights_priv.h"

/* Registers that every unwinder needs: the numbers of asm/perf_regs.h. */
#if defined(__x86_64__)
#define PROBE_REGS ((1ULL << 6) | (1ULL << 7) | (1ULL << 8)) /* bp, sp, ip */
#else
#define PROBE_REGS ((1ULL << 29) | (1ULL << 31) | (1ULL << 32)) /* x29, sp, pc */
#endif

#define PROBE_RING_PAGES 64 /* what a recording asks for at least */

static void found(struct right *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void found(struct right *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->found, sizeof(r->found), fmt, ap);
	va_end(ap);
}

/* Something is missing, and the table knows what to say about it. */
static void blocked(
	struct right *r, enum right_state state, enum rights_wall_id id, pid_t pid, long value)
{
	const struct rights_wall *wall = rights_wall_of(id);

	r->state = state;
	rights_expand(r->cost, sizeof(r->cost), wall->cost, pid, value);
	rights_expand(r->fix, sizeof(r->fix), wall->fix, pid, value);
}

/* ---- ptrace: what is left where perf events are refused ---- */

/* Tried on a child that does nothing. 0 or a positive errno. */
static int try_ptrace(void)
{
	pid_t pid = fork();
	int rc;

	if (pid < 0)
		return errno;
	if (!pid) {
		pause();
		_exit(0);
	}
	rc = ptrace_seize(pid, false);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		continue;
	return -rc;
}

static void probe_ptrace(struct right *r)
{
	int code = try_ptrace();

	if (!code) {
		found(r, "threads that run can be stopped for a sample, where perf events are refused");
		return;
	}
	r->state = RIGHT_PARTLY;
	found(r, "refused (%s)", strerror(code));
	snprintf(r->cost, sizeof(r->cost),
		"record --on-signal is refused, and nothing helps where perf events are refused");
}

/* ---- perf events ---- */

static struct perf_event_attr timer_event(void)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_CPU_CLOCK;
	attr.sample_period = 10000000;
	attr.disabled = 1;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER |
			   PERF_SAMPLE_STACK_USER;
	attr.sample_regs_user = PROBE_REGS;
	attr.sample_stack_user = 8192;
	attr.use_clockid = 1;
	attr.clockid = CLOCK_MONOTONIC;
	return attr;
}

/* 0 or a positive errno; nothing stays open. */
static int try_event(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	autoclose int fd = perf_event_open(attr, pid, cpu, -1);

	return fd < 0 ? -fd : 0;
}

static void probe_sampling(struct right *r)
{
	struct perf_event_attr attr = timer_event();
	int code = try_event(&attr, 0, -1);
	int paranoid = perf_sysctl("perf_event_paranoid", 2);
	struct proc_status self = {0};

	r->needed = true;
	if (!code) {
		found(r, "samples of one's own processes, with registers and stack");
		return;
	}
	found(r, "perf_event_open: %s", strerror(code));
	(void)proc_status_read(getpid(), &self, NULL);
	if (code == ENOSYS)
		blocked(r, RIGHT_PARTLY, WALL_NO_PERF, 0, 0);
	else if (paranoid > 2 && !rights_perfmon())
		blocked(r, RIGHT_PARTLY, WALL_PARANOID, 0, paranoid);
	else if (self.seccomp)
		blocked(r, RIGHT_PARTLY, WALL_SECCOMP, 0, 0);
	else
		blocked(r, RIGHT_PARTLY, WALL_UNKNOWN, 0, 0);
	if (!try_ptrace())
		return;
	r->state = RIGHT_NO;
	snprintf(r->cost, sizeof(r->cost), "nothing can be sampled");
}

static void probe_ring(struct right *r)
{
	struct perf_event_attr attr = timer_event();
	autoclose int fd = perf_event_open(&attr, 0, 0, -1);
	struct perf_ring ring = {0};
	int kb = perf_sysctl("perf_event_mlock_kb", 516);

	r->needed = fd >= 0;
	if (fd < 0) {
		r->state = RIGHT_PARTLY;
		found(r, "not tried: there is no event to read from");
		snprintf(r->cost, sizeof(r->cost), "as for perf_events");
		return;
	}
	int rc = perf_ring_map(&ring, fd, PROBE_RING_PAGES);
	if (rc) {
		found(r, "mmap of %d pages: %s", PROBE_RING_PAGES, strerror(-rc));
		blocked(r, RIGHT_NO, WALL_RING_MEMORY, 0, kb);
		return;
	}
	perf_ring_unmap(&ring);
	found(r, "%d KiB a CPU and user before RLIMIT_MEMLOCK counts", kb);
}

static void probe_cycles(struct right *r)
{
	struct perf_event_attr attr = timer_event();

	attr.type = PERF_TYPE_HARDWARE;
	attr.config = PERF_COUNT_HW_CPU_CYCLES;
	int code = try_event(&attr, 0, -1);
	if (!code) {
		found(r, "the processor counts cycles");
		return;
	}
	r->state = RIGHT_PARTLY;
	found(r, "no cycle counter (%s)", strerror(code));
	snprintf(r->cost, sizeof(r->cost),
		"samples come from the timer (cpu-clock): right for time, blind where interrupts "
		"are off");
}

static void probe_kernel_frames(struct right *r)
{
	struct perf_event_attr attr = timer_event();

	attr.exclude_kernel = 0;
	attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
	attr.exclude_callchain_user = 1;
	int code = try_event(&attr, 0, -1);
	if (!code) {
		found(r, "time in the kernel is sampled, with kernel stacks");
		return;
	}
	found(r, "refused (%s)", strerror(code));
	blocked(r, RIGHT_PARTLY, WALL_KERNEL_FRAMES, 0, perf_sysctl("perf_event_paranoid", 2));
}

static void probe_machine_wide(struct right *r)
{
	struct perf_event_attr attr = timer_event();
	int code = try_event(&attr, -1, 0);

	if (!code) {
		found(r, "all processes of the machine at once (record -a)");
		return;
	}
	found(r, "refused (%s)", strerror(code));
	blocked(r, RIGHT_PARTLY, WALL_MACHINE_WIDE, 0, perf_sysctl("perf_event_paranoid", 2));
}

static void probe_paranoid(struct right *r)
{
	int paranoid = perf_sysctl("perf_event_paranoid", 99);

	if (paranoid == 99) {
		found(r, "kernel.perf_event_paranoid cannot be read");
		blocked(r, RIGHT_PARTLY, WALL_NO_PERF, 0, 0);
		return;
	}
	found(r, "kernel.perf_event_paranoid = %d%s", paranoid,
		rights_perfmon() ? ", which does not bind us (CAP_PERFMON)" : "");
	if (rights_perfmon() || paranoid <= 1)
		return;
	if (paranoid > 2)
		blocked(r, RIGHT_PARTLY, WALL_PARANOID, 0, paranoid);
	else
		blocked(r, RIGHT_PARTLY, WALL_KERNEL_FRAMES, 0, paranoid);
}

static void probe_sample_rate(struct right *r)
{
	int most = perf_sysctl("perf_event_max_sample_rate", 0);

	found(r, "at most %d samples a second and CPU", most);
	if (most >= 1000)
		return;
	r->state = RIGHT_PARTLY;
	snprintf(r->cost, sizeof(r->cost), "record -F above %d is refused", most);
	snprintf(r->fix, sizeof(r->fix), "sudo sysctl kernel.perf_event_max_sample_rate=100000");
}

/* ---- ourselves ---- */

static const struct {
	unsigned number;
	const char *name;
} useful_capabilities[] = {
	{CAP_PERFMON, "PERFMON"},
	{CAP_SYS_PTRACE, "SYS_PTRACE"},
	{CAP_SYS_ADMIN, "SYS_ADMIN"},
	{CAP_BPF, "BPF"},
	{CAP_CHECKPOINT_RESTORE, "CHECKPOINT_RESTORE"},
	{CAP_SYSLOG, "SYSLOG"},
};

static void probe_capabilities(struct right *r)
{
	size_t len = 0;

	for (size_t i = 0; i < sizeof(useful_capabilities) / sizeof(useful_capabilities[0]); i++)
		if (rights_capable(useful_capabilities[i].number))
			len += (size_t)snprintf(r->found + len, sizeof(r->found) - len, "%s%s",
				len ? " " : "", useful_capabilities[i].name);
	if (!len)
		found(r, "none, running as uid %d", (int)geteuid());
	if (rights_perfmon() && rights_capable(CAP_SYS_PTRACE))
		return;
	blocked(r, RIGHT_PARTLY, WALL_CAPABILITIES, 0, 0);
}

static void probe_seccomp(struct right *r)
{
	struct proc_status self = {0};

	if (!proc_status_read(getpid(), &self, NULL) && self.seccomp) {
		r->state = RIGHT_PARTLY;
		found(r, "sonde itself runs under a seccomp filter (a container?)");
		snprintf(r->cost, sizeof(r->cost),
			"nothing, as long as the other lines here say yes");
		return;
	}
	found(r, "no filter");
}

static void probe_descriptors(struct right *r)
{
	struct rlimit limit = {0};

	getrlimit(RLIMIT_NOFILE, &limit);
	found(r, "%ju open files (hard limit %ju)", (uintmax_t)limit.rlim_cur,
		(uintmax_t)limit.rlim_max);
	if (limit.rlim_max < 4096)
		blocked(r, RIGHT_PARTLY, WALL_DESCRIPTORS, 0, (long)limit.rlim_cur);
}

/* ---- what else the kernel shows ---- */

static void probe_ptrace_scope(struct right *r)
{
	int scope = perf_sysctl("yama/ptrace_scope", -1);

	if (scope < 0) {
		found(r, "Yama is not there: memory of one's own processes is readable");
		return;
	}
	found(r, "kernel.yama.ptrace_scope = %d", scope);
	if (scope > 0 && !rights_capable(CAP_SYS_PTRACE))
		blocked(r, RIGHT_PARTLY, WALL_YAMA, 0, scope);
}

/* The first executable mapping of a file, for trying map_files. */
static int note_mapping(void *ctx, const struct proc_mapping *m)
{
	char *name = ctx;

	if (!m->exec || *m->path != '/')
		return 0;
	snprintf(name, 64, "%" PRIx64 "-%" PRIx64, m->start, m->end);
	return 1;
}

static void probe_map_files(struct right *r)
{
	char range[64] = "", path[128];

	(void)proc_each_mapping(getpid(), note_mapping, range, NULL);
	snprintf(path, sizeof(path), "/proc/self/map_files/%s", range);
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		found(r, "mapped files can be opened even when deleted or replaced");
		return;
	}
	found(r, "refused (%s); files are opened by path", strerror(errno));
	blocked(r, RIGHT_PARTLY, WALL_MAP_FILES, 0, 0);
}

static bool kernel_addresses_shown(void)
{
	autofclose FILE *f = fopen("/proc/kallsyms", "re");
	char line[256];
	int lines = 0;

	while (f && lines++ < 64 && fgets(line, sizeof(line), f))
		if (strtoull(line, NULL, 16))
			return true;
	return false;
}

static void probe_kernel_names(struct right *r)
{
	int restricted = perf_sysctl("kptr_restrict", 0);

	if (kernel_addresses_shown()) {
		found(r, "/proc/kallsyms shows addresses (kernel.kptr_restrict = %d)", restricted);
		return;
	}
	found(r, "/proc/kallsyms hides addresses (kernel.kptr_restrict = %d)", restricted);
	blocked(r, RIGHT_PARTLY, WALL_KERNEL_NAMES, 0, restricted);
}

static void probe_btf(struct right *r)
{
	struct stat st;

	if (!stat("/sys/kernel/btf/vmlinux", &st)) {
		found(r, "the kernel describes its types (%jd KiB)", (intmax_t)st.st_size / 1024);
		return;
	}
	r->state = RIGHT_PARTLY;
	found(r, "no /sys/kernel/btf/vmlinux");
	snprintf(r->cost, sizeof(r->cost), "%s", rights_wall_of(WALL_BPF_TYPES)->cost);
}

/* The smallest program there is, of the kind that our own are; 0 or a positive errno. */
static int try_bpf(void)
{
	static const char license[] = "GPL";
	struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
	attr.insns = (uintptr_t)code;
	attr.insn_cnt = 2;
	attr.license = (uintptr_t)license;
	autoclose int fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));

	return fd < 0 ? errno : 0;
}

static void probe_bpf(struct right *r)
{
	int code = try_bpf();

	if (code) {
		found(r, "refused (%s)", strerror(code));
		blocked(r, RIGHT_PARTLY, rights_bpf() ? WALL_BPF_KERNEL : WALL_BPF_CAPABILITIES, 0,
			0);
		return;
	}
#if HAVE_BPF
	found(r, "programs load: time off the CPU at little cost, and who woke whom");
#else
	r->state = RIGHT_PARTLY;
	found(r, "programs load, but this sonde was built without its own");
	snprintf(r->cost, sizeof(r->cost), "%s", rights_wall_of(WALL_BPF_KERNEL)->cost);
	snprintf(r->fix, sizeof(r->fix),
		"apt-get install libbpf-dev clang bpftool   and build sonde again");
#endif
}

static void probe_tracefs(struct right *r)
{
	if (!access("/sys/kernel/tracing/events", R_OK | X_OK)) {
		found(r, "/sys/kernel/tracing is readable");
		return;
	}
	r->state = RIGHT_PARTLY;
	found(r, "/sys/kernel/tracing: %s", strerror(errno));
	snprintf(r->cost, sizeof(r->cost),
		"nothing yet: no command of this version uses tracepoints");
}

struct probe {
	const char *id;
	void (*look)(struct right *r);
};

static const struct probe machine_probes[] = {
	{"perf_events", probe_sampling},
	{"ring_memory", probe_ring},
	{"cycles", probe_cycles},
	{"kernel_frames", probe_kernel_frames},
	{"kernel_names", probe_kernel_names},
	{"whole_machine", probe_machine_wide},
	{"perf_event_paranoid", probe_paranoid},
	{"sample_rate", probe_sample_rate},
	{"capabilities", probe_capabilities},
	{"ptrace", probe_ptrace},
	{"ptrace_scope", probe_ptrace_scope},
	{"map_files", probe_map_files},
	{"seccomp", probe_seccomp},
	{"open_files", probe_descriptors},
	{"bpf", probe_bpf},
	{"btf", probe_btf},
	{"tracefs", probe_tracefs},
};

int rights_probe_machine(struct right_vec *ret, struct err *err)
{
	for (size_t i = 0; i < sizeof(machine_probes) / sizeof(machine_probes[0]); i++) {
		struct right r = {.id = machine_probes[i].id};

		machine_probes[i].look(&r);
		if (vec_push(ret, r))
			return err_nomem(err);
	}
	return 0;
}

/* ---- one process ---- */

static void probe_target(pid_t pid, const struct proc_status *st, struct right *r)
{
	struct err err = {0};

	r->needed = true;
	found(r, "%s, pid %d, state %c, uid %d", st->name, (int)pid, st->state, (int)st->euid);
	if (!rights_check_target(pid, &err))
		return;
	r->state = RIGHT_NO;
	snprintf(r->cost, sizeof(r->cost), "%s",
		st->kernel_thread  ? "a kernel thread has no user stack: nothing to sample"
		: st->state == 'Z' ? "it has ended: nothing to sample"
				   : "it cannot be sampled by this user");
	if (err.code == EPERM)
		rights_expand(r->fix, sizeof(r->fix), rights_wall_of(WALL_OTHER_USER)->fix, pid, 0);
}

static void probe_target_event(pid_t pid, const struct proc_status *st, struct right *r)
{
	struct perf_event_attr attr = timer_event();
	int code = try_event(&attr, pid, -1);

	r->needed = true;
	if (!code) {
		found(r, "the kernel samples it for us");
		return;
	}
	found(r, "perf_event_open: %s", strerror(code));
	blocked(r, RIGHT_NO, st->euid != geteuid() ? WALL_OTHER_USER : WALL_NOT_DUMPABLE, pid,
		(long)st->euid);
}

/* A byte that is there in every process: the lowest readable mapping. */
static int first_readable(void *ctx, const struct proc_mapping *m)
{
	if (!m->read)
		return 0;
	*(uint64_t *)ctx = m->start;
	return 1;
}

static void probe_target_memory(pid_t pid, const struct proc_status *st, struct right *r)
{
	uint64_t addr = 0;
	char byte;
	int rc = proc_each_mapping(pid, first_readable, &addr, NULL);
	int yama = perf_sysctl("yama/ptrace_scope", 0);

	if (rc >= 0 && addr && proc_read_memory(pid, addr, &byte, 1)) {
		found(r, "maps and memory are readable");
		return;
	}
	if (st->kernel_thread || st->state == 'Z') {
		r->state = RIGHT_NO;
		found(r, "it has no memory");
		return;
	}
	found(r, "%s", rc < 0 ? "its maps cannot be read" : "only its maps can be read");
	blocked(r, rc < 0 ? RIGHT_NO : RIGHT_PARTLY,
		st->euid != geteuid()  ? WALL_OTHER_USER
		: rc >= 0 && yama > 0  ? WALL_YAMA
				       : WALL_NOT_DUMPABLE,
		pid, yama);
	r->needed = rc < 0;
}

static ino_t namespace_of(pid_t pid, const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	return stat(path, &st) ? 0 : st.st_ino;
}

static void probe_target_namespaces(pid_t pid, const struct proc_status *st, struct right *r)
{
	static const char *const kinds[] = {"mnt", "pid", "user", "net"};
	size_t len = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		ino_t its = namespace_of(pid, kinds[i]);

		if (its && its != namespace_of(getpid(), kinds[i]))
			len += (size_t)snprintf(r->found + len, sizeof(r->found) - len, "%s%s",
				len ? " " : "in namespaces of its own: ", kinds[i]);
	}
	if (!len)
		found(r, "the same as ours");
	else if (st->ns_pid != pid)
		snprintf(r->found + len, sizeof(r->found) - len, " (it is pid %d inside)",
			(int)st->ns_pid);
}

static void probe_target_threads(pid_t pid, const struct proc_status *st, struct right *r)
{
	struct pid_vec tids = {0};
	struct rlimit limit = {0};

	(void)st;
	getrlimit(RLIMIT_NOFILE, &limit);
	(void)proc_threads(pid, &tids, NULL);
	found(r, "%zu", tids.len);
	if (tids.len + 64 > limit.rlim_max)
		blocked(r, RIGHT_PARTLY, WALL_DESCRIPTORS, pid, (long)limit.rlim_max);
	vec_release(&tids);
}

/* Bytes of executable memory that no file is behind: what a JIT compiler wrote. */
static int add_jit_bytes(void *ctx, const struct proc_mapping *m)
{
	if (m->exec && !*m->path)
		*(uint64_t *)ctx += m->end - m->start;
	return 0;
}

static void probe_target_jit(pid_t pid, const struct proc_status *st, struct right *r)
{
	uint64_t bytes = 0;
	char path[96];

	(void)proc_each_mapping(pid, add_jit_bytes, &bytes, NULL);
	snprintf(path, sizeof(path), "/proc/%d/root/tmp/perf-%d.map", (int)pid, (int)st->ns_pid);
	if (!access(path, F_OK)) {
		found(r, "/tmp/perf-%d.map names its generated code", (int)st->ns_pid);
		return;
	}
	if (!bytes) {
		found(r, "no generated code");
		return;
	}
	r->state = RIGHT_PARTLY;
	found(r, "%" PRIu64 " KiB of generated code, and no /tmp/perf-%d.map", bytes / 1024,
		(int)st->ns_pid);
	snprintf(r->cost, sizeof(r->cost), "frames in generated code have no names");
	snprintf(r->fix, sizeof(r->fix),
		"start it so that it writes the map: node --perf-basic-prof ...   or   "
		"python3 -X perf ...   or   java -XX:+PreserveFramePointer ... and "
		"jcmd PID Compiler.perfmap");
}

static const struct {
	const char *id;
	void (*look)(pid_t pid, const struct proc_status *st, struct right *r);
} process_probes[] = {
	{"process", probe_target},
	{"sampling", probe_target_event},
	{"memory", probe_target_memory},
	{"threads", probe_target_threads},
	{"namespaces", probe_target_namespaces},
	{"generated_code", probe_target_jit},
};

int rights_probe_process(pid_t pid, struct right_vec *ret, struct err *err)
{
	struct proc_status st;

	if (proc_status_read(pid, &st, NULL))
		return err_set(err, ESRCH, "there is no process %d", (int)pid);
	for (size_t i = 0; i < sizeof(process_probes) / sizeof(process_probes[0]); i++) {
		struct right r = {.id = process_probes[i].id};

		process_probes[i].look(pid, &st, &r);
		if (vec_push(ret, r))
			return err_nomem(err);
		if (r.state == RIGHT_NO && !i)
			break; /* the rest would only repeat it */
	}
	return 0;
}
