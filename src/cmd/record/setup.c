/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "os/rights.h"
#include "symbol/debuginfod.h"

static void nothing(int signal)
{
}

/* A signal that our caller had ignored (nohup, a shell's background job) stays ignored: blocked it
 * would be delivered all the same. */
int record_block_signals(struct recording *r, struct err *err)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	/* A file that may not grow is an error of write(); a handler, which exec resets. */
	struct sigaction action = {.sa_handler = nothing}, old;
	sigset_t mask;

	sigaction(SIGXFSZ, &action, NULL);
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
		if (!sigaction(ending[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaddset(&mask, ending[i]);
	if (r->flight)
		sigaddset(&mask, SIGUSR2);
	if (r->on_signal.number)
		sigaddset(&mask, r->on_signal.number);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	r->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return r->signal_fd < 0 ? err_errno(err, errno, "signalfd") : 0;
}

/* One process by its command line, several by their names. */
static void describe_process(struct buf *text, pid_t pid, bool alone)
{
	char words[512];

	if (alone ? proc_command_line(pid, words, sizeof(words), NULL)
		  : proc_thread_name(pid, pid, words, sizeof(words), NULL))
		return;
	buf_printf(text, "%s%s (pid %d)", text->len ? ", " : "", words, (int)pid);
}

static void write_target_meta(struct recording *r)
{
	struct buf text = {0};
	size_t count = r->pids.len;

	if (r->args->all)
		buf_str(&text, "everything");
	if (r->args->cgroup)
		buf_printf(&text, "cgroup %s", r->args->cgroup);
	for (char **arg = r->command; arg && *arg; arg++)
		buf_printf(&text, "%s%s", arg == r->command ? "" : " ", *arg);
	if (r->args->name && count > 1)
		buf_printf(&text, "%s (%zu processes)", r->args->name, count);
	else
		for (size_t i = 0; !r->command && i < count; i++)
			describe_process(&text, r->pids.data[i], count == 1);
	capture_meta(r->writer, "command", text.data ? text.data : "");
	buf_release(&text);
}

/* Kernel addresses mean something only until the next boot. */
static void write_boot_id(struct recording *r)
{
	autofclose FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	char id[64];

	if (!f || !fgets(id, sizeof(id), f))
		return;
	id[strcspn(id, "\n")] = '\0';
	capture_meta(r->writer, "boot_id", id);
}

static void write_meta(struct recording *r)
{
	struct sampler_facts facts;
	struct utsname uts = {0};
	char number[32], note[600];

	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	uname(&uts);
	write_target_meta(r);
	capture_meta(r->writer, "sonde", SONDE_VERSION);
	capture_meta(r->writer, "host", uts.nodename);
	capture_meta(r->writer, "kernel", uts.release);
	capture_meta(r->writer, "arch", uts.machine);
	write_boot_id(r);
	capture_meta(r->writer, "event", facts.event);
	capture_meta(r->writer, "kernel_frames", facts.kernel ? "yes" : "no");
	snprintf(number, sizeof(number), "%u", (unsigned)r->args->frequency_hz);
	capture_meta(r->writer, "frequency_hz", number);
	capture_meta(r->writer, "mode", !r->off_cpu ? "cpu" : r->on_cpu ? "wall" : "off-cpu");
	snprintf(number, sizeof(number), "%llu", (unsigned long long)r->args->min_block_ns);
	if (r->off_cpu)
		capture_meta(r->writer, "min_block_ns", number);
	snprintf(number, sizeof(number), "%u", facts.stack_bytes);
	capture_meta(r->writer, "stack_bytes", facts.stack_bytes ? number : "adaptive");
	if (r->off_cpu && r->samplers[0]->ops == &sampler_perf && r->sampler_count == 1)
		rights_off_cpu_note(note, sizeof(note));
	else
		rights_kernel_frames_note(note, sizeof(note));
	if (!facts.kernel && note[0])
		capture_meta(r->writer, "note", note);
}

/* Where cgroups are mounted: the second is that of systems that have both versions. */
static const char *const cgroup_roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", ""};

/* The directory of the cgroup: below where cgroups are mounted, or as given. */
static int open_cgroup(struct recording *r, struct err *err)
{
	const char *path = r->args->cgroup;
	char full[4096];

	for (size_t i = 0; i < sizeof(cgroup_roots) / sizeof(cgroup_roots[0]); i++) {
		if (cgroup_roots[i][0])
			snprintf(full, sizeof(full), "%s/%s", cgroup_roots[i], path);
		else
			snprintf(full, sizeof(full), "%s", path);
		r->cgroup_fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r->cgroup_fd < 0)
			continue;
		if (!faccessat(r->cgroup_fd, "cgroup.procs", F_OK, 0))
			return 0;
		close(r->cgroup_fd);
		r->cgroup_fd = -1;
	}
	return err_set(err, ENOENT, "%s is no cgroup: give the path below /sys/fs/cgroup", path);
}

/* Before there are threads: the library is loaded here. */
static void check_debuginfod(const struct recording *r)
{
	if (!r->args->debuginfod)
		return;
	if (!debuginfod_is_there())
		cmd_note(NAME, "--debuginfod needs libdebuginfod.so.1, which is not installed here "
			"(Debian: libdebuginfod1); names come from this machine's files alone");
	else if (!getenv("DEBUGINFOD_URLS"))
		cmd_note(NAME, "--debuginfod asks the servers in DEBUGINFOD_URLS, which is not set; "
			"sonde doctor -p PID names one");
}

int record_open(struct recording *r, struct err *err)
{
	int rc;

	check_debuginfod(r);
	rc = record_open_samplers(r, err);

	if (!rc && r->args->cgroup)
		rc = open_cgroup(r, err);
	if (!rc)
		rc = r->flight ? flight_open_window(r, err)
			       : capture_writer_create(r->args->output, &r->writer, err);
	if (!rc)
		rc = session_new(r->writer, &r->selection, &r->session, err);
	if (!rc && r->args->tasks)
		rc = task_times_new(r->session, &r->tasks, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < r->sampler_count; i++)
		r->samplers[i]->ops->bind(r->samplers[i], r->session);
	write_meta(r);
	return 0;
}

/* Readable when the process has ended. */
static int watch_end(struct recording *r, pid_t pid, struct err *err)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return err_errno(err, errno, "process %d", (int)pid);
	if (vec_push(&r->pid_fds, fd)) {
		close(fd);
		return err_nomem(err);
	}
	return 0;
}

static int watch(struct recording *r, size_t i, pid_t pid, struct err *err)
{
	pid_t tid = r->selection.tid;

	return tid ? sampler_watch_thread(r->samplers[i], pid, tid, err)
		   : sampler_watch_process(r->samplers[i], pid, err);
}

/* Events first, then the list of mappings: what happens in between is in both. The first sampler tells
 * of mappings; another one may want to unwind at once. */
static int attach(struct recording *r, pid_t pid, struct err *err)
{
	int rc = watch_end(r, pid, err);

	if (!rc)
		rc = watch(r, 0, pid, err);
	if (!rc)
		rc = session_adopt(r->session, pid, err);
	for (size_t i = 1; !rc && i < r->sampler_count; i++)
		rc = watch(r, i, pid, err);
	return rc;
}

static int watch_child(struct recording *r, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < r->sampler_count; i++)
		rc = sampler_watch_child(r->samplers[i], r->child.pid, err);
	return rc;
}

/* Everything, or everything in the cgroup. */
static int watch_group(struct recording *r, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < r->sampler_count; i++)
		rc = r->args->all ? sampler_watch_all(r->samplers[i], err)
				  : sampler_watch_cgroup(r->samplers[i], r->cgroup_fd, err);
	return rc;
}

static int start_command(struct recording *r, struct err *err)
{
	int rc = child_start(r->command, &r->inherits, &r->child, err);

	if (rc)
		return rc;
	session_expect_exec(r->session, r->child.pid);
	rc = watch_end(r, r->child.pid, err);
	if (!rc)
		rc = watch_child(r, err);
	if (rc)
		child_abandon(&r->child);
	else
		rc = child_go(&r->child, r->command[0], err);
	if (rc)
		r->child.pid = 0;
	return rc;
}

int record_start(struct recording *r, struct err *err)
{
	int rc = 0;

	r->start_cpu_ns = clock_own_cpu_ns();
	r->start_ns = clock_monotonic_ns();
	if (r->args->duration_ns)
		r->end_ns = r->start_ns + r->args->duration_ns;
	if (r->args->all || r->args->cgroup)
		return watch_group(r, err);
	if (r->command)
		return start_command(r, err);
	for (size_t i = 0; !rc && i < r->pids.len; i++)
		rc = attach(r, r->pids.data[i], err);
	return rc;
}

