/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde record: samples processes and writes a recording. What was asked for, and the whole story. */
#include "cmd/record/record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/cmd.h"
#include "os/rights.h"

#define DEFAULT_FREQUENCY_HZ 199
#define DEFAULT_STACKS "sonde.folded" /* of --on-signal */

static const struct option_spec options[] = {
	OPTION_LIST('p', "pid", struct record_args, pids, "PID",
		"a running process, all its threads and what they start; may be repeated"),
	OPTION_STRING('n', "name", struct record_args, name, "NAME",
		"all running processes of that name"),
	OPTION_FLAG('a', "all", struct record_args, all, "everything that runs on this machine"),
	OPTION_STRING(0, "cgroup", struct record_args, cgroup, "PATH",
		"everything in this cgroup (v2) and below it: a path under /sys/fs/cgroup"),
	OPTIONS_THREADS(struct record_args, threads),
	OPTION_STRING('o', "output", struct record_args, output, "FILE",
		"where to write (default " DEFAULT_RECORDING ")"),
	OPTION_DURATION('d', "duration", struct record_args, duration_ns, "TIME", 1, UINT64_MAX / 2,
		"end after this time: 10, 2.5, 300ms, 5m (default: when the target ends, or Ctrl-C)"),
	OPTION_FLAG('q', "quiet", struct record_args, quiet, "say nothing but errors"),
	OPTION_HEADING("What is recorded (default: time on the CPU)"),
	OPTION_FLAG(0, "wall", struct record_args, wall,
		"time on and off the CPU: where threads run, wait to run, and are blocked"),
	OPTION_FLAG(0, "off-cpu", struct record_args, off_cpu, "time off the CPU alone"),
	OPTION_DURATION(0, "min-block", struct record_args, min_block_ns, "TIME", 0, UINT64_MAX / 2,
		"with --wall, --off-cpu: only keep stacks of intervals at least this long (default 0)"),
	OPTION_FLAG(0, "tasks", struct record_args, tasks,
		"asyncio's tasks as well, running or not, 20 times a second: report --tasks shows what they wait for"),
	OPTION_STRING(0, "on-signal", struct record_args, on_signal, "SIGNAL",
		"no recording: each time the target gets this signal, append the stacks of all its "
		"threads to a file of folded stacks (default " DEFAULT_STACKS "), and swallow it"),
	OPTION_HEADING("How"),
	OPTION_NUMBER('F', "frequency", struct record_args, frequency_hz, "HZ", 1, 20000,
		"samples a second of CPU time (default 199)"),
	OPTION_STRING(0, "sampler", struct record_args, sampler, "NAME",
		"who takes the samples: perf, bpf, ptrace (default: what is allowed here)"),
	OPTION_FLAG(0, "nonblocking", struct record_args, nonblocking,
		"never stop a thread, nor use BPF, for Python frames: read them while it runs, leave out "
		"what changes meanwhile, and count that (default: BPF, or else ptrace with -p and -n)"),
	OPTION_SIZE(0, "stack-size", struct record_args, stack_bytes, "BYTES", 256, 65536,
		"bytes of stack copied a sample, at most 65528 (default: what each thread needs, from "
		"8192 on; threads stop growing at 64 MB/s in all)"),
	OPTION_FLAG(0, "debuginfod", struct record_args, debuginfod,
		"fetch missing debug information from the servers in DEBUGINFOD_URLS"),
	OPTION_HEADING("The flight recorder"),
	OPTION_DURATION(0, "last", struct record_args, last_ns, "TIME", FLIGHT_LAST_MIN_NS,
		FLIGHT_LAST_MAX_NS,
		"keep only the last TIME in memory, and write that on SIGUSR2 (then go on), on --when "
		"and at the end; each time to a new file: FILE, FILE.2, FILE.3..."),
	OPTION_LIST(0, "when", struct record_args, when, "CONDITION",
		"write when 'blocked MAIN > 2s' (or ANY, /NAME/, a thread id), 'cpu > 90% "
		"for 3s', 'rss > 2G' or 'threads > 500' becomes true, and go on; may be repeated"),
	OPTION_NUMBER(0, "windows", struct record_args, windows, "N", 1, UINT32_MAX,
		"end after writing so many"),
	OPTION_SIZE(0, "memory", struct record_args, memory_bytes, "BYTES", 1 << 20, 1 << 30,
		"what is kept takes at most this much; older samples go first (default "
		"24M)"),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = NAME,
	.arguments = "[-- CMD ARGS...]",
	.about = "Samples where running threads are and writes whole stacks, with names, to a "
		 "recording. The target goes on meanwhile: only --sampler ptrace and --on-signal stop "
		 "its threads, one at a time, for microseconds. With -- CMD, runs CMD and ends with its "
		 "exit status.",
	.options = options,
	.stray = "a process is -p PID or -n NAME, a command comes after --",
	.examples =
		{
			{"Ten seconds of a running server", "sonde record -n redis-server -d 10"},
			{"A whole command, from its first instruction", "sonde record -- make -j2"},
			{"The half minute before a server hangs",
				"sonde record --last 30s --when 'blocked MAIN > 2s' -n redis-server"},
		},
	.takes_command = true,
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

/* What does not go with samples that come when others want them. The same values as check_usage(). */
static int check_on_signal(struct recording *r)
{
	const struct record_args *a = r->args;
	struct err err = {0};

	if (a->all || a->cgroup)
		return options_complain(&usage, "--on-signal goes with -p PID, -n NAME or -- CMD");
	if (a->wall || a->off_cpu)
		return options_complain(&usage,
			"--on-signal takes all threads, whether they run or wait: leave --wall and "
			"--off-cpu out");
	if (a->last_ns)
		return options_complain(&usage, "--on-signal and --last exclude each other");
	if (a->frequency_hz != DEFAULT_FREQUENCY_HZ)
		return options_complain(&usage, "--on-signal samples when the signal comes: leave -F out");
	if (a->sampler && strcmp(a->sampler, sampler_ptrace.name))
		return options_complain(&usage,
			"--on-signal is done by the ptrace sampler: leave --sampler out");
	if (on_signal_parse(a->on_signal, &r->on_signal.number, &err))
		return options_complain(&usage, "--on-signal: %s", err.text);
	return STATUS_OK;
}

/* STATUS_OK, or what has been complained about. */
static int check_usage(struct recording *r)
{
	const struct record_args *a = r->args;
	int ways = !!a->pids.len + !!a->name + a->all + !!a->cgroup + !!r->command;
	struct err err = {0};

	if (!ways)
		return options_complain(&usage, "say what to record: -p PID, -n NAME, -a, --cgroup or -- CMD");
	if (ways > 1)
		return options_complain(&usage, "-p, -n, -a, --cgroup and -- CMD exclude each other");
	if (r->command && !r->command[0])
		return options_complain(&usage, "there is no command after --");
	if (a->wall && a->off_cpu)
		return options_complain(&usage, "--wall and --off-cpu exclude each other");
	if (a->min_block_ns && !a->wall && !a->off_cpu)
		return options_complain(&usage, "--min-block goes with --wall or --off-cpu");
	if (a->threads.tid && (r->command || a->all || a->cgroup || a->pids.len > 1))
		return options_complain(&usage, "--tid goes with one -p PID");
	if (a->on_signal && check_on_signal(r))
		return STATUS_USAGE;
	if (parse_pids(r, &err) ||
		thread_options_regex(&a->threads, &r->regex, &r->has_regex, &err))
		return options_complain(&usage, "%s", err.text);
	if (!a->last_ns && (a->when.len || a->windows || a->memory_bytes != FLIGHT_MEMORY_BYTES))
		return options_complain(&usage, "--when, --windows and --memory go with --last");
	if (a->when.len && (a->all || a->cgroup))
		return options_complain(&usage, "--when goes with -p, -n or a command");
	if (a->last_ns && flight_new(a, &r->flight, &err))
		return options_complain(&usage, "%s", err.text);
	r->on_cpu = !a->off_cpu;
	r->off_cpu = a->off_cpu || a->wall;
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

static void release(struct recording *r)
{
	flight_free(r->flight);
	for (size_t i = 0; i < r->sampler_count; i++)
		sampler_free(r->samplers[i]);
	on_signal_release(r);
	task_times_free(r->tasks);
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
	if (r->cgroup_fd >= 0)
		close(r->cgroup_fd);
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
	struct err err = {0};
	int rc = find_targets(r, &err);

	child_inherits_now(&r->inherits);
	cmd_fill_standard_descriptors();
	if (!rc)
		rc = r->on_signal.number ? on_signal_open(r, &err) : record_open(r, &err);
	if (!rc) /* not before: opening a FIFO waits for its reader, and Ctrl-C must end that */
		rc = record_block_signals(r, &err);
	if (!rc) {
		rc = record_start(r, &err);
		if (!rc && r->flight)
			rc = flight_start(r, &err);
		if (rc && !r->flight)
			remove_empty(r->args->output);
	}
	if (!rc) {
		record_run(r);
		rc = r->on_signal.number ? on_signal_finish(r, &err) : record_finish(r, &err);
	}
	int status = rc ? cmd_failed(NAME, &err) : STATUS_OK;
	if (!rc && r->on_signal.number)
		on_signal_tell(r);
	else if (!rc && !r->flight)
		record_tell(r);
	if (r->child.pid) {
		int command_status = record_leave_command(r);
		status = command_status ? command_status : status;
	}
	return status;
}

int cmd_record(int argc, char **argv)
{
	struct record_args args = {
		.frequency_hz = DEFAULT_FREQUENCY_HZ,
		.memory_bytes = FLIGHT_MEMORY_BYTES,
	};
	struct options_rest rest;
	struct recording r = {
		.args = &args, .signal_fd = -1, .cgroup_fd = -1, .on_signal = {.fd = -1},
		.child = {0, -1, -1}, .term = term_describe(2)};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status == OPTIONS_RUN) {
		r.command = rest.command;
		if (!args.output)
			args.output = args.on_signal ? DEFAULT_STACKS : DEFAULT_RECORDING;
		status = check_usage(&r);
		if (status == STATUS_OK)
			status = record(&r);
	}
	release(&r);
	vec_release(&args.pids);
	vec_release(&args.when);
	return status;
}
