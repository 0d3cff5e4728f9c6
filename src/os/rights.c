/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walls: why the kernel says no, what that costs, and the command that takes the wall away.
 *
 * A refused system call gives one errno for many reasons. The functions here find out which
 * reason it was by asking the same questions as the kernel (perf_event_open(2), "ptrace access
 * mode checking" in ptrace(2), proc(5)), and put the row of the table into words.
 */
#include "os/rights.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "os/perf_event.h"
#include "os/proc.h"
#include "os/rights_priv.h"

#define WITHOUT_PERF                                                                               \
	"record stops running threads with ptrace instead, for microseconds a sample: no kernel "  \
	"frames, no `-a`"

/* In texts: {exe} is this program, {pid} the process, {value} what was found. */
static const struct rights_wall walls[] = {
	[WALL_PARANOID] = {
		.why = "kernel.perf_event_paranoid is {value} here, and sonde has no CAP_PERFMON",
		.cost = WITHOUT_PERF,
		.fix = "sudo sysctl kernel.perf_event_paranoid=2"
		       "   or   sudo setcap cap_perfmon,cap_sys_ptrace+ep {exe}",
	},
	[WALL_MACHINE_WIDE] = {
		.why = "sampling the whole machine needs CAP_PERFMON or "
		       "kernel.perf_event_paranoid <= 0, which is {value}",
		.cost = "`record -a` is refused; single processes (-p, -n, -- CMD) still work",
		.fix = "sudo {exe} record -a",
	},
	[WALL_CAPABILITIES] = {
		.why = "sonde runs without CAP_PERFMON and CAP_SYS_PTRACE",
		.cost = "only your own processes can be sampled",
		.fix = "sudo setcap cap_perfmon,cap_sys_ptrace+ep {exe}",
	},
	[WALL_KERNEL_FRAMES] = {
		.why = "kernel.perf_event_paranoid is {value} (kernel frames need <= 1 or CAP_PERFMON)",
		.cost = "time inside the kernel is not sampled, and no stack has kernel frames",
		.fix = "sudo sysctl kernel.perf_event_paranoid=1",
	},
	[WALL_KERNEL_NAMES] = {
		.why = "kernel addresses are hidden (kernel.kptr_restrict is {value})",
		.cost = "kernel frames have no names",
		.fix = "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
	},
	[WALL_OTHER_USER] = {
		.why = "it belongs to uid {value}, and sonde has not the capabilities for that",
		.cost = "processes of other users cannot be sampled",
		.fix = "sudo {exe} record -p {pid}",
	},
	[WALL_NOT_DUMPABLE] = {
		.why = "the process does not let its own user look inside (a set-uid program, file "
		       "capabilities, PR_SET_DUMPABLE, or another user namespace)",
		.cost = "its memory and maps are closed, and so are its stacks",
		.fix = "sudo {exe} record -p {pid}",
	},
	[WALL_SECCOMP] = {
		.why = "a seccomp filter forbids perf_event_open (containers do that by default)",
		.cost = WITHOUT_PERF,
		.fix = "docker run --cap-add PERFMON --cap-add SYS_PTRACE "
		       "--security-opt seccomp=unconfined ...   or run sonde on the host: "
		       "sudo {exe} record -p PID",
	},
	[WALL_YAMA] = {
		.why = "kernel.yama.ptrace_scope is {value}, and sonde has no CAP_SYS_PTRACE",
		.cost = "memory of processes that sonde did not start cannot be read: stacks end where "
			"the copied part ends (--stack-size makes it bigger)",
		.fix = "sudo sysctl kernel.yama.ptrace_scope=0"
		       "   or   sudo setcap cap_perfmon,cap_sys_ptrace+ep {exe}",
	},
	[WALL_RING_MEMORY] = {
		.why = "the ring would lock more memory than this user may "
		       "(kernel.perf_event_mlock_kb is {value}, and RLIMIT_MEMLOCK on top)",
		.cost = "no ring, no samples",
		.fix = "sudo sysctl kernel.perf_event_mlock_kb=4096   or   ulimit -l unlimited",
	},
	[WALL_DESCRIPTORS] = {
		.why = "the limit of open files is reached (RLIMIT_NOFILE is {value}; an event takes one "
		       "per thread)",
		.cost = "threads beyond the limit are not sampled",
		.fix = "ulimit -n $(ulimit -Hn)",
	},
	[WALL_NO_PERF] = {
		.why = "this kernel was built without perf events (CONFIG_PERF_EVENTS)",
		.cost = WITHOUT_PERF,
		.fix = "",
	},
	[WALL_MAP_FILES] = {
		.why = "opening /proc/PID/map_files needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN",
		.cost = "of files that were deleted or replaced while mapped, and memfds, only exported "
			"functions have names",
		.fix = "sudo setcap cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore+ep {exe}",
	},
	[WALL_BPF_CAPABILITIES] = {
		.why = "loading BPF programs needs CAP_BPF and CAP_PERFMON",
		.cost = "time off the CPU is recorded with more overhead, and without who woke whom",
		.fix = "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep {exe}",
	},
	[WALL_BPF_TYPES] = {
		.why = "this kernel has no type information (CONFIG_DEBUG_INFO_BTF)",
		.cost = "time off the CPU is recorded with more overhead, and without who woke whom",
		.fix = "",
	},
	[WALL_BPF_KERNEL] = {
		.why = "this kernel does not take the program: it is older than 5.10, was built without "
		       "BPF, or is locked down",
		.cost = "time off the CPU is recorded with more overhead, and without who woke whom",
		.fix = "",
	},
	[WALL_UNKNOWN] = {
		.why = "a security module (SELinux, AppArmor, lockdown) or the container forbids it; "
		       "the kernel does not say which",
		.cost = "nothing can be sampled",
		.fix = "sudo {exe} doctor {pid}",
	},
};

const struct rights_wall *rights_wall_of(enum rights_wall_id id)
{
	return &walls[id];
}

static const char *own_path(char *buf, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", buf, size - 1);

	if (len <= 0)
		return "sonde";
	buf[len] = 0;
	return buf;
}

static void put_word(struct buf *b, const char *word, size_t len, pid_t pid, long value)
{
	char exe[PATH_MAX];

	if (len == 3 && !memcmp(word, "exe", 3))
		buf_str(b, own_path(exe, sizeof(exe)));
	else if (len == 3 && !memcmp(word, "pid", 3) && pid > 0)
		buf_printf(b, "%d", (int)pid);
	else if (len == 5 && !memcmp(word, "value", 5))
		buf_printf(b, "%ld", value);
}

void rights_expand(char *buf, size_t size, const char *text, pid_t pid, long value)
{
	struct buf b = {0};
	const char *open, *close;

	while ((open = strchr(text, '{')) && (close = strchr(open, '}'))) {
		buf_add(&b, text, (size_t)(open - text));
		put_word(&b, open + 1, (size_t)(close - open - 1), pid, value);
		text = close + 1;
	}
	buf_str(&b, text);
	snprintf(buf, size, "%s", b.data ? b.data : "");
	while (*buf && buf[strlen(buf) - 1] == ' ')
		buf[strlen(buf) - 1] = 0;
	buf_release(&b);
}

/* What failed, on what: the first line of a refusal. */
static void describe(char *buf, size_t size, const char *verb, pid_t pid)
{
	struct proc_status st;

	if (pid < 0)
		snprintf(buf, size, "cannot %s the whole machine", verb);
	else if (pid == 0)
		snprintf(buf, size, "cannot %s", verb);
	else if (proc_status_read(pid, &st, NULL))
		snprintf(buf, size, "cannot %s process %d", verb, (int)pid);
	else
		snprintf(buf, size, "cannot %s process %d (%s)", verb, (int)pid, st.name);
}

static int refuse(
	struct err *err, int code, const char *what, enum rights_wall_id id, pid_t pid, long value)
{
	char why[240], fix[360];

	rights_expand(why, sizeof(why), walls[id].why, pid, value);
	rights_expand(fix, sizeof(fix), walls[id].fix, pid, value);
	if (!*fix)
		return err_set(err, code, "%s: %s", what, why);
	return err_set(err, code, "%s: %s\n  try: %s", what, why, fix);
}

/* Bits of one Cap line; effective capabilities also say whether root is really root. */
static uint64_t own_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	if (syscall(SYS_capget, &header, data))
		return 0;
	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

bool rights_capable(unsigned capability)
{
	return capability < 64 && (own_capabilities() >> capability & 1);
}

bool rights_perfmon(void)
{
	return rights_capable(CAP_PERFMON) || rights_capable(CAP_SYS_ADMIN);
}

static bool foreign(const struct proc_status *st)
{
	return st->euid != geteuid() && !rights_capable(CAP_SYS_PTRACE) && !rights_perfmon();
}

int rights_check_target(pid_t pid, struct err *err)
{
	struct proc_status st;
	char what[96], exe[48];

	if (proc_status_read(pid, &st, NULL))
		return err_set(err, ESRCH, "there is no process %d", (int)pid);
	describe(what, sizeof(what), "sample", pid);
	if (st.kernel_thread)
		return err_set(err, EINVAL,
			"%s: it is a kernel thread, and has no user stack to look at", what);
	/* Its first thread may have ended alone. */
	if ((st.state == 'Z' || st.state == 'X') && proc_surviving_thread(pid) == pid)
		return err_set(err, ECHILD,
			"%s: it is a zombie: it has ended, and its parent (pid %d) has not noticed yet",
			what, (int)st.ppid);
	if (foreign(&st))
		return refuse(err, EPERM, what, WALL_OTHER_USER, pid, (long)st.euid);
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)st.tgid);
	if (proc_is_32bit_file(exe))
		return err_set(err, ENOEXEC,
			"%s: it is a 32-bit program, and sonde unwinds stacks of 64-bit code only", what);
	return 0;
}

/* EACCES and EPERM: the questions in the order in which the kernel asks them. */
static int perf_forbidden(int code, pid_t pid, const char *what, struct err *err)
{
	int paranoid = perf_sysctl("perf_event_paranoid", 2);
	struct proc_status st, self;

	if (pid < 0 && paranoid > 0 && !rights_perfmon())
		return refuse(err, code, what, WALL_MACHINE_WIDE, pid, paranoid);
	if (paranoid > 2 && !rights_perfmon())
		return refuse(err, code, what, WALL_PARANOID, pid, paranoid);
	if (pid > 0 && !proc_status_read(pid, &st, NULL)) {
		if (foreign(&st))
			return refuse(err, code, what, WALL_OTHER_USER, pid, (long)st.euid);
		if (code == EACCES && !rights_perfmon())
			return refuse(err, code, what, WALL_NOT_DUMPABLE, pid, 0);
	}
	if (!proc_status_read(getpid(), &self, NULL) && self.seccomp)
		return refuse(err, code, what, WALL_SECCOMP, pid, 0);
	return refuse(err, code, what, WALL_UNKNOWN, pid, 0);
}

int rights_perf_refused(int code, pid_t pid, struct err *err)
{
	struct rlimit files = {0};
	char what[96];

	describe(what, sizeof(what), "sample", pid);
	switch (code) {
	case ESRCH:
		return err_set(err, code, "%s: it is gone", what);
	case EACCES:
	case EPERM:
		return perf_forbidden(code, pid, what, err);
	case EMFILE:
	case ENFILE:
		getrlimit(RLIMIT_NOFILE, &files);
		return refuse(err, code, what, WALL_DESCRIPTORS, pid, (long)files.rlim_cur);
	case ENOSYS:
		return refuse(err, code, what, WALL_NO_PERF, pid, 0);
	default:
		return err_errno(err, code, "%s: perf_event_open", what);
	}
}

int rights_ring_refused(int code, size_t bytes, struct err *err)
{
	char what[96];

	snprintf(what, sizeof(what), "cannot map a ring of %zu KiB", bytes / 1024);
	if (code == EPERM || code == ENOMEM)
		return refuse(err, code, what, WALL_RING_MEMORY, 0,
			perf_sysctl("perf_event_mlock_kb", 516));
	return err_errno(err, code, "%s", what);
}

bool rights_bpf(void)
{
	return (rights_capable(CAP_BPF) && rights_capable(CAP_PERFMON)) ||
		rights_capable(CAP_SYS_ADMIN);
}

int rights_bpf_refused(int code, struct err *err)
{
	static const char what[] = "cannot load the BPF program";

	if (!rights_bpf())
		return refuse(err, code, what, WALL_BPF_CAPABILITIES, 0, 0);
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return refuse(err, code, what, WALL_BPF_TYPES, 0, 0);
	if (code == ENOMEM)
		return err_nomem(err);
	return refuse(err, code, what, WALL_BPF_KERNEL, 0, 0);
}

/* What is asked of every access to another process ("ptrace access mode checking"). */
static int access_refused(int code, pid_t pid, const char *text, struct err *err)
{
	struct proc_status st;
	int yama = perf_sysctl("yama/ptrace_scope", 0);

	if (code == ESRCH || code == ENOENT || proc_status_read(pid, &st, NULL))
		return err_set(err, ESRCH, "%s: it is gone", text);
	if (code != EACCES && code != EPERM)
		return err_errno(err, code, "%s", text);
	if (st.euid != geteuid())
		return refuse(err, code, text, WALL_OTHER_USER, pid, (long)st.euid);
	if (yama > 0 && code == EPERM)
		return refuse(err, code, text, WALL_YAMA, pid, yama);
	return refuse(err, code, text, WALL_NOT_DUMPABLE, pid, 0);
}

int rights_read_refused(int code, pid_t pid, const char *what, struct err *err)
{
	char text[128], verb[40];

	snprintf(verb, sizeof(verb), "read the %s of", what);
	describe(text, sizeof(text), verb, pid);
	return access_refused(code, pid, text, err);
}

int rights_trace_refused(int code, pid_t pid, struct err *err)
{
	struct proc_status st, tracer;
	char text[128];

	describe(text, sizeof(text), "trace", pid);
	if (code == EPERM && !proc_status_read(pid, &st, NULL) && st.tracer &&
		!proc_status_read(st.tracer, &tracer, NULL))
		return err_set(err, EPERM,
			"%s: %s (pid %d) traces it already, and there can be only one; end that "
			"first, or use --sampler perf",
			text, tracer.name, (int)st.tracer);
	return access_refused(code, pid, text, err);
}

static void kernel_note(const char *missing, char *buf, size_t size)
{
	int paranoid = perf_sysctl("perf_event_paranoid", 2);
	char why[240], fix[360];

	*buf = 0;
	if (paranoid <= 1 || rights_perfmon())
		return;
	rights_expand(why, sizeof(why), walls[WALL_KERNEL_FRAMES].why, 0, paranoid);
	rights_expand(fix, sizeof(fix), walls[WALL_KERNEL_FRAMES].fix, 0, paranoid);
	snprintf(buf, size, "%s: %s; try: %s", missing, why, fix);
}

void rights_kernel_frames_note(char *buf, size_t size)
{
	kernel_note("no kernel frames", buf, size);
}

void rights_off_cpu_note(char *buf, size_t size)
{
	kernel_note("no kernel frames, and stacks only of waits that last some milliseconds", buf, size);
}
