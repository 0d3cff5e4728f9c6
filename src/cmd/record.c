/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde record: samples processes and writes a recording. Parse, plan, run, tell. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/term.h"
#include "capture/writer.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "os/child.h"
#include "os/perf_event.h"
#include "os/proc.h"
#include "os/rights.h"
#include "sample/perf/perf.h"
#include "sample/session.h"

#define NAME "record"
#define FLUSH_NS NS_PER_S /* what a kill -9 can cost at most */

struct record_args {
	struct option_list pids;
	const char *name;
	bool all;
	uint64_t frequency_hz, stack_bytes, duration_ns;
	const char *output;
	struct thread_options threads;
	bool debuginfod, quiet;
};

static const struct option_spec options[] = {
	OPTION_LIST('p', "pid", struct record_args, pids, "PID",
		"a running process, all its threads and what they start; may be repeated"),
	OPTION_STRING('n', "name", struct record_args, name, "NAME",
		"all running processes of that name"),
	OPTION_FLAG('a', "all", struct record_args, all, "everything that runs on this machine"),
	OPTION_NUMBER('F', "frequency", struct record_args, frequency_hz, "HZ", 1, 20000,
		"samples a second of CPU time (default 199)"),
	OPTION_DURATION('d', "duration", struct record_args, duration_ns, "TIME", 1, UINT64_MAX / 2,
		"end after this time: 10, 2.5, 300ms, 5m (default: when the target ends, or Ctrl-C)"),
	OPTION_STRING('o', "output", struct record_args, output, "FILE",
		"where to write (default " DEFAULT_RECORDING ")"),
	OPTIONS_THREADS(struct record_args, threads),
	OPTION_SIZE(0, "stack-size", struct record_args, stack_bytes, "BYTES", 256, 65536,
		"bytes of stack copied a sample (default 65528, which is also the most)"),
	OPTION_FLAG(0, "debuginfod", struct record_args, debuginfod,
		"fetch missing debug information from the servers in DEBUGINFOD_URLS"),
	OPTION_FLAG('q', "quiet", struct record_args, quiet, "say nothing but errors"),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = NAME,
	.arguments = "[-- CMD ARGS...]",
	.about = "Samples where running threads are and writes whole stacks, with names, to a "
		 "recording. The target is never stopped. With -- CMD, runs CMD and ends with its "
		 "exit status.",
	.options = options,
	.stray = "a process is -p PID or -n NAME, a command comes after --",
	.examples =
		{
			{"Ten seconds of a running server", "sonde record -n redis-server -d 10"},
			{"A whole command, from its first instruction", "sonde record -- make -j2"},
		},
	.takes_command = true,
};

/* Everything that is open while recording. */
struct recording {
	const struct record_args *args;
	char **command;
	struct pid_vec pids; /* targets, in all but system-wide mode */
	VEC(int) pid_fds;    /* one a target that still runs */
	struct child child;
	regex_t regex;
	bool has_regex;
	struct thread_selection selection;
	struct perf_sampler *sampler;
	struct capture_writer *writer;
	struct session *session;
	int signal_fd;
	struct child_inherits inherits;
	uint64_t start_ns, start_cpu_ns, end_ns, wakeups, file_bytes;
	int forward_signal; /* sent to us alone: the command should get it too */
	enum end_reason reason;
	char unsampled[256]; /* what to say about time that no sample stands for, or "" */
	struct term term;
};

/* ---- plan: who is recorded ---- */

static int parse_pids(struct recording *r, struct err *err)
{
	vec_each(&r->args->pids, text) {
		uint64_t pid;
		int rc = option_number(*text, &pid, err);

		if (!rc && (!pid || pid > INT32_MAX))
			rc = err_set(err, EINVAL, "'%s' is not a process id", *text);
		if (!rc && vec_push(&r->pids, (pid_t)pid))
			rc = err_nomem(err);
		if (rc)
			return rc;
	}
	return 0;
}

/* STATUS_OK, or what has been complained about. */
static int check_usage(struct recording *r)
{
	const struct record_args *a = r->args;
	int ways = !!a->pids.len + !!a->name + a->all + !!r->command;
	struct err err = {0};

	if (!ways)
		return options_complain(&usage, "say what to record: -p PID, -n NAME, -a or -- CMD");
	if (ways > 1)
		return options_complain(&usage, "-p, -n, -a and -- CMD exclude each other");
	if (r->command && !r->command[0])
		return options_complain(&usage, "there is no command after --");
	if (a->threads.tid && (r->command || a->all || a->pids.len > 1))
		return options_complain(&usage, "--tid goes with one -p PID");
	if (parse_pids(r, &err) ||
		thread_options_regex(&a->threads, &r->regex, &r->has_regex, &err))
		return options_complain(&usage, "%s", err.text);
	r->selection = (struct thread_selection){
		.name = r->has_regex ? &r->regex : NULL,
		.main_only = a->threads.main_only,
		.tid = (pid_t)a->threads.tid,
	};
	return STATUS_OK;
}

static int find_targets(struct recording *r, struct err *err)
{
	int rc = r->args->name ? proc_find_name(r->args->name, &r->pids, err)
		: r->command   ? child_check(r->command[0], err)
			       : 0;

	for (size_t i = 0; !rc && i < r->pids.len; i++)
		rc = rights_check_target(r->pids.data[i], err);
	return rc;
}

/* ---- set up ---- */

/* Without these, what is opened first would be written to as stdout or stderr. Close-on-exec: the
 * command finds them closed, as we did. */
static void fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static void nothing(int signal)
{
}

/* A signal that our caller had ignored (nohup, a shell's background job) stays ignored: blocked it
 * would be delivered all the same. */
static int block_signals(struct recording *r, struct err *err)
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
	struct perf_sampler_facts facts;
	struct utsname uts = {0};
	char number[32], note[600];

	perf_sampler_facts(r->sampler, &facts);
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
	snprintf(number, sizeof(number), "%u", (unsigned)r->args->stack_bytes);
	capture_meta(r->writer, "stack_bytes", number);
	rights_kernel_frames_note(note, sizeof(note));
	if (!facts.kernel && note[0])
		capture_meta(r->writer, "note", note);
}

static int open_recording(struct recording *r, struct err *err)
{
	struct perf_sampler_options o = {
		.frequency_hz = (uint32_t)r->args->frequency_hz,
		.stack_bytes = (uint32_t)r->args->stack_bytes & ~7u,
	};
	int rc;

	if (o.stack_bytes > PERF_MAX_STACK_BYTES)
		o.stack_bytes = PERF_MAX_STACK_BYTES;
	rc = perf_sampler_new(&o, &r->sampler, err);
	if (!rc)
		rc = capture_writer_create(r->args->output, &r->writer, err);
	if (!rc)
		rc = session_new(r->writer, &r->selection, &r->session, err);
	if (rc)
		return rc;
	perf_sampler_bind(r->sampler, r->session);
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

/* Events first, then the list of mappings: what happens in between is in both. */
static int attach(struct recording *r, pid_t pid, struct err *err)
{
	pid_t tid = r->selection.tid;
	int rc = watch_end(r, pid, err);

	if (!rc)
		rc = tid ? perf_sampler_watch_thread(r->sampler, pid, tid, err)
			 : perf_sampler_watch_process(r->sampler, pid, err);
	return rc ? rc : session_adopt(r->session, pid, err);
}

static int start_command(struct recording *r, struct err *err)
{
	int rc = child_start(r->command, &r->inherits, &r->child, err);

	if (rc)
		return rc;
	rc = watch_end(r, r->child.pid, err);
	if (!rc)
		rc = perf_sampler_watch_child(r->sampler, r->child.pid, err);
	if (rc)
		child_abandon(&r->child);
	else
		rc = child_go(&r->child, r->command[0], err);
	if (rc)
		r->child.pid = 0;
	return rc;
}

static int start(struct recording *r, struct err *err)
{
	int rc = 0;

	r->start_cpu_ns = clock_own_cpu_ns();
	r->start_ns = clock_monotonic_ns();
	if (r->args->duration_ns)
		r->end_ns = r->start_ns + r->args->duration_ns;
	if (r->args->all)
		return perf_sampler_watch_all(r->sampler, err);
	if (r->command)
		return start_command(r, err);
	for (size_t i = 0; !rc && i < r->pids.len; i++)
		rc = attach(r, r->pids.data[i], err);
	return rc;
}

/* ---- run ---- */

static bool take_signal(struct recording *r)
{
	struct signalfd_siginfo info;

	if (read(r->signal_fd, &info, sizeof(info)) != sizeof(info))
		return false;
	/* Ctrl-C reaches the command by itself; a signal sent to us alone does not. */
	if (info.ssi_code <= 0) /* sent by a process: kill, sigqueue, tgkill */
		r->forward_signal = (int)info.ssi_signo;
	r->reason = END_INTERRUPTED;
	return true;
}

/* Drops the targets that have ended; true when none is left. */
static bool all_ended(struct recording *r)
{
	for (size_t i = 0; i < r->pid_fds.len;) {
		struct pollfd p = {.fd = r->pid_fds.data[i], .events = POLLIN};

		if (poll(&p, 1, 0) == 1) {
			close(p.fd);
			r->pid_fds.data[i] = r->pid_fds.data[--r->pid_fds.len];
		} else {
			i++;
		}
	}
	r->reason = END_TARGET_EXITED;
	return !r->pid_fds.len;
}

static void show_progress(struct recording *r, uint64_t now)
{
	struct session_stats stats;

	if (!r->term.interactive || r->args->quiet || r->command)
		return;
	session_stats(r->session, &stats);
	fprintf(stderr, "\rrecording %.0f s, %llu samples, %llu KB; Ctrl-C ends it ",
		(double)(now - r->start_ns) / 1e9, (unsigned long long)stats.samples,
		(unsigned long long)capture_writer_bytes(r->writer) / 1024);
}

/* Sleeps until there is something to do, at most until `until_ns`. */
static void wait_for_work(struct recording *r, uint64_t until_ns, bool unsettled)
{
	uint64_t now = clock_monotonic_ns(), ns = until_ns > now ? until_ns - now : 0;
	struct pollfd fds[3] = {
		{.fd = perf_sampler_fd(r->sampler), .events = POLLIN},
		{.fd = r->signal_fd, .events = POLLIN},
		/* One target is enough to wake up for: the flush interval bounds the rest. */
		{.fd = r->pid_fds.len ? r->pid_fds.data[0] : -1, .events = POLLIN},
	};

	if (unsettled && ns > PERF_SETTLE_NS)
		ns = PERF_SETTLE_NS;

	struct timespec timeout = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	ppoll(fds, 3, &timeout, NULL);
	r->wakeups++;
}

static void run(struct recording *r)
{
	uint64_t flush_ns = r->start_ns + FLUSH_NS;
	bool unsettled = false;

	for (;;) {
		uint64_t until = r->end_ns && r->end_ns < flush_ns ? r->end_ns : flush_ns;

		wait_for_work(r, until, unsettled);
		unsettled = perf_sampler_drain(r->sampler, false);

		uint64_t now = clock_monotonic_ns();

		if (now >= flush_ns) {
			session_flush(r->session, now);
			show_progress(r, now);
			flush_ns = now + FLUSH_NS;
		}
		if (capture_writer_error(r->writer, NULL)) {
			r->reason = END_ERROR;
			return;
		}
		if (take_signal(r) || (!r->args->all && all_ended(r)))
			return;
		if (r->end_ns && now >= r->end_ns) {
			r->reason = END_DURATION;
			return;
		}
	}
}

/* ---- finish ---- */

static void show_naming(void *ctx, size_t done, size_t all)
{
	struct recording *r = ctx;

	if (r->term.interactive && !r->args->quiet && all > 20000)
		fprintf(stderr, "\rnaming %zu of %zu addresses ", done, all);
}

/* Up to this much may be missing, by chance and by what ran before the first sample. */
#define FAIR_UNSAMPLED_NS (200 * NS_PER_MS)

/* Each new process gets a whole period before its first sample, so those that end earlier have
 * none: a script of a thousand commands can seem to use no time. The kernel counted their time. */
static void check_coverage(struct recording *r)
{
	struct session_stats stats;
	uint64_t cpu_ns = r->reason == END_TARGET_EXITED && r->child.pid && !r->selection.name &&
			!r->selection.main_only
		? child_cpu_ns(&r->child)
		: 0;

	session_stats(r->session, &stats);
	if (cpu_ns < stats.weight_ns + stats.weight_ns / 4 + FAIR_UNSAMPLED_NS)
		return;
	snprintf(r->unsampled, sizeof(r->unsampled),
		"used %.1f s of CPU time, sampled %.1f s: processes shorter than a period are "
		"missed; raise -F",
		(double)cpu_ns / 1e9, (double)stats.weight_ns / 1e9);
	capture_meta(r->writer, "unsampled", r->unsampled);
}

static int finish(struct recording *r, struct err *err)
{
	struct perf_sampler_facts facts;
	struct naming_options naming = {
		.debuginfod = r->args->debuginfod, .progress = show_naming, .ctx = r};
	uint64_t stop_ns = clock_monotonic_ns(), named_cpu_ns;

	perf_sampler_stop(r->sampler);
	perf_sampler_drain(r->sampler, true);
	check_coverage(r);
	session_flush(r->session, stop_ns);
	r->end_ns = stop_ns;

	perf_sampler_facts(r->sampler, &facts);
	struct record_cost cost = {
		.sampler_cpu_ns = clock_own_cpu_ns() - r->start_cpu_ns,
		.wakeups = r->wakeups,
		.ring_bytes = facts.ring_bytes_read,
	};
	named_cpu_ns = clock_own_cpu_ns();
	session_name_frames(r->session, &naming);
	cost.symbol_cpu_ns = clock_own_cpu_ns() - named_cpu_ns;
	capture_record(r->writer, RECORD_COST, &cost, sizeof(cost));
	if (r->term.interactive && !r->args->quiet)
		fputs("\r\033[K", stderr);
	capture_writer_flush(r->writer);
	r->file_bytes = capture_writer_bytes(r->writer);
	return capture_writer_finish(take_ptr(r->writer), r->reason, stop_ns, err);
}

static void tell_losses(const struct session_stats *stats, const struct recording *r)
{
	static const char *const words[LOSS_KIND_COUNT] = {
		[LOSS_RING] = "samples lost, the ring was full: try a lower -F or --stack-size",
		[LOSS_THROTTLE] = "times throttled by the kernel (perf_cpu_time_max_percent)",
		[LOSS_NO_REGS] = "samples of 32-bit code, whose stacks sonde does not unwind",
		[LOSS_MALFORMED] = "records of the kernel that made no sense",
		[LOSS_FILE] = "mapped files that could not be opened",
		[LOSS_THREAD] = "threads not attached: too many open files (ulimit -n)",
		[LOSS_LATE_MAPPING] = "samples older than their mapping",
		[LOSS_RING_RECORDS] = "mapping and thread records lost, the ring was full",
	};

	for (size_t i = 0; i < LOSS_KIND_COUNT; i++)
		if (stats->losses[i])
			fprintf(stderr, "  %llu %s\n", (unsigned long long)stats->losses[i],
				words[i]);
	if (r->unsampled[0])
		fprintf(stderr, "  %s\n", r->unsampled);
	else if (!stats->samples)
		fprintf(stderr, "  nothing ran on a CPU for a sampling period%s\n",
			r->selection.name || r->selection.main_only || r->selection.tid
				? " in the selected threads"
				: "");
}

static void tell(const struct recording *r, const struct session_stats *stats)
{
	double seconds = (double)(r->end_ns - r->start_ns) / 1e9;
	double whole = stats->samples
		? 100.0 * (double)stats->ends[UNWIND_ROOT] / (double)stats->samples
		: 0;

	if (r->args->quiet)
		return;
	fprintf(stderr, "%s: %llu sample%s in %.1f s, ", r->args->output,
		(unsigned long long)stats->samples, stats->samples == 1 ? "" : "s", seconds);
	if (stats->samples)
		fprintf(stderr, "%.1f %% of stacks whole, ", whole);
	fprintf(stderr, "%llu KB\n", (unsigned long long)(r->file_bytes + 1023) / 1024);
	tell_losses(stats, r);
	if (stats->samples)
		fprintf(stderr, "see it: sonde report%s%s\n",
			strcmp(r->args->output, DEFAULT_RECORDING) ? " " : "",
			strcmp(r->args->output, DEFAULT_RECORDING) ? r->args->output : "");
}

static void release(struct recording *r)
{
	perf_sampler_free(r->sampler);
	session_free(r->session);
	capture_writer_abandon(r->writer);
	vec_each(&r->pid_fds, fd)
		close(*fd);
	vec_release(&r->pid_fds);
	vec_release(&r->pids);
	if (r->has_regex)
		regfree(&r->regex);
	if (r->signal_fd >= 0)
		close(r->signal_fd);
}

/* The recording is done; what the command does from now on is its own business. Until it ends we
 * stand before it and pass on what is sent to us. */
static int leave_command(struct recording *r)
{
	for (;;) {
		struct pollfd fds[2] = {
			{.fd = r->signal_fd, .events = POLLIN},
			{.fd = r->pid_fds.len ? r->pid_fds.data[0] : -1, .events = POLLIN},
		};

		if (r->forward_signal)
			kill(r->child.pid, r->forward_signal);
		r->forward_signal = 0;
		if (!r->pid_fds.len || (poll(fds, 2, -1) < 0 && errno != EINTR) || fds[1].revents)
			return child_wait(&r->child);
		take_signal(r);
	}
}

/* Nothing was recorded: leave no empty file behind, and no device or pipe without its name. */
static void remove_empty(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISREG(st.st_mode))
		unlink(path);
}

static int record(struct recording *r)
{
	struct session_stats stats = {0};
	struct err err = {0};
	int rc = find_targets(r, &err);

	child_inherits_now(&r->inherits);
	fill_standard_descriptors();
	if (!rc)
		rc = open_recording(r, &err);
	if (!rc) /* not before: opening a FIFO waits for its reader, and Ctrl-C must end that */
		rc = block_signals(r, &err);
	if (!rc) {
		rc = start(r, &err);
		if (rc)
			remove_empty(r->args->output);
	}
	if (!rc) {
		run(r);
		rc = finish(r, &err);
		session_stats(r->session, &stats);
	}
	int status = rc ? cmd_failed(NAME, &err) : STATUS_OK;
	if (!rc)
		tell(r, &stats);
	if (r->child.pid) {
		int command_status = leave_command(r);
		status = command_status ? command_status : status;
	}
	return status;
}

int cmd_record(int argc, char **argv)
{
	struct record_args args = {
		.frequency_hz = 199,
		.stack_bytes = PERF_MAX_STACK_BYTES,
		.output = DEFAULT_RECORDING,
	};
	struct options_rest rest;
	struct recording r = {
		.args = &args, .signal_fd = -1, .child = {0, -1, -1}, .term = term_describe(2)};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status == OPTIONS_RUN) {
		r.command = rest.command;
		status = check_usage(&r);
		if (status == STATUS_OK)
			status = record(&r);
	}
	release(&r);
	vec_release(&args.pids);
	return status;
}
