/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/heap/record_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/target.h"

#define DEFAULT_SAMPLE_BYTES (512u << 10)
#define AUTO_OVERHEAD 0.01

static int parse_sample(void *values, const char *text, struct err *err)
{
	struct heap_record_args *args = values;
	int rc;

	args->sample_auto = !strcmp(text, "auto");
	if (args->sample_auto)
		return 0;
	rc = option_size(text, &args->sample_bytes, err);
	return rc || args->sample_bytes ? rc : err_set(err, EINVAL, "a block of bytes, not none");
}

/* "2.5" -> 0.025 */
static int parse_percent(const char *text, double *ret, struct err *err)
{
	char *end;
	double percent = strtod(text, &end);

	/* Not a number, or "1e-320", is no wish either. */
	if (end == text || *end || !(percent >= 0.01 && percent <= 100))
		return err_set(err, EINVAL, "'%s' is no number of percent from 0.01 to 100", text);
	*ret = percent / 100;
	return 0;
}

static int parse_overhead(void *values, const char *text, struct err *err)
{
	return parse_percent(text, &((struct heap_record_args *)values)->wish.overhead, err);
}

static int parse_error(void *values, const char *text, struct err *err)
{
	return parse_percent(text, &((struct heap_record_args *)values)->wish.error, err);
}

static const struct option_spec options[] = {
	OPTION_CALLBACK(0, "sample", parse_sample, "BYTES",
		"of the bytes that are allocated take one in so many, by chance, with its block (default 512K; auto: as "
		"--overhead 1); all numbers are estimates then, and have a 95 % interval"),
	OPTION_CALLBACK(0, "overhead", parse_overhead, "PCT",
		"as many samples as take this share of the program's CPU time, about"),
	OPTION_CALLBACK(0, "error", parse_error, "PCT",
		"as many samples as it takes to know what is live to so many percent, with 95 %"),
	OPTION_FLAG(0, "exact", struct heap_record_args, exact, "every allocation and every free"),
	OPTION_NUMBER(0, "every", struct heap_record_args, every_calls, "N", 1, 1ull << 32,
		"of the calls take one in N, by chance, whatever their sizes are"),
	OPTION_FLAG(0, "time", struct heap_record_args, time,
		"with --every: CPU time instead of memory, what a thread has used between one of these calls and the next"),
	OPTION_FLAG(0, "free-stacks", struct heap_record_args, free_stacks,
		"also where blocks are freed: who frees what others allocated is then told by stack"),
	OPTION_FLAG(0, "maps", struct heap_record_args, maps,
		"also what programs map themselves (mmap, mremap, brk), every call of it; it is told apart from what malloc gives"),
	OPTION_FLAG(0, "no-children", struct heap_record_args, no_children,
		"the process of CMD alone, not those that it starts"),
	OPTION_FLAG(0, "daemons", struct heap_record_args, daemons,
		"go on until all that CMD has started has ended, not CMD alone: for programs that put themselves into the background"),
	OPTION_STRING('p', "pid", struct heap_record_args, pid, "PID",
		"a program that runs already, by number or name: our library is put into it, and taken out of the way at "
		"the end; what it allocated before is not seen"),
	OPTION_STRING(0, "allocator", struct heap_record_args, allocator, "PREFIX",
		"the program has an allocator of its own whose functions are called PREFIXmalloc, PREFIXfree and so on: probes see "
		"it (those of jemalloc, tcmalloc, mimalloc and rpmalloc are known)"),
	OPTION_STRING('o', "output", struct heap_record_args, output, "FILE",
		"where to write (default " DEFAULT_HEAP_RECORDING ")"),
	OPTION_DURATION('d', "duration", struct heap_record_args, duration_ns, "TIME", 1, UINT64_MAX / 2,
		"end after this time: 10, 2.5, 300ms, 5m (default: when CMD ends, or Ctrl-C); CMD goes on"),
	OPTION_FLAG(0, "debuginfod", struct heap_record_args, debuginfod,
		"fetch missing debug information from the servers in DEBUGINFOD_URLS"),
	OPTION_FLAG('q', "quiet", struct heap_record_args, quiet, "say nothing but errors"),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = NAME,
	.arguments = "-- CMD ARGS... | -p PID",
	.about = "Runs CMD and writes down who allocates what: what is live, what was live at the peak, what leaks, what is only "
		 "churn. CMD is never stopped, and what it starts is watched as well; ends with its exit status. What takes no library, "
		 "because it is linked statically or has an allocator of its own, is seen by probes in the kernel. docs/HEAP.md",
	.options = options,
	.examples =
		{
			{"What a program holds, at little cost", "sonde heap -- ./server --port 8080"},
			{"Every allocation of a test", "sonde heap --exact -o test.sonde -- ./test"},
			{"What a server that runs already allocates, for ten seconds", "sonde heap -p 1234 -d 10"},
		},
	.stray = "one process at a time, and a command comes after --",
	.takes_command = true,
};

static bool is_wished(const struct heap_record_args *a)
{
	return a->wish.overhead > 0 || a->wish.error > 0;
}

static int check(struct heap_recording *r)
{
	const struct heap_record_args *a = r->args;

	if (a->pid && r->command)
		return options_complain(&usage, "-p PID or a command after --: one of them");
	if (!a->pid && (!r->command || !r->command[0]))
		return options_complain(&usage, "there is no command after --");
	if (a->exact + (a->sample_bytes || a->sample_auto || is_wished(a)) + (a->every_calls != 0) > 1)
		return options_complain(&usage, "--exact, --sample and --every exclude each other");
	if (a->maps && a->every_calls)
		return options_complain(&usage, "--maps is of memory that is live, which --every does not know");
	if (a->daemons && a->pid)
		return options_complain(&usage, "--daemons goes with a command");
	if (a->time && !a->every_calls)
		return options_complain(&usage, "--time goes with --every N");
	if (a->sample_bytes && is_wished(a))
		return options_complain(&usage, "--overhead and --error choose what --sample would say: leave that out");
	return STATUS_OK;
}

static void release(struct heap_recording *r)
{
	heap_collector_free(r->collector);
	free(r->entries);
	if (r->told)
		heap_told_release(r->told);
	free(r->told);
	session_free(r->session);
	capture_writer_abandon(r->writer);
	if (r->pid_fd >= 0)
		close(r->pid_fd);
	if (r->signal_fd >= 0)
		close(r->signal_fd);
	/* Who lives on may start programs that look for it. */
	if (r->library && heap_library_in_use(heap_library_path(r->library))) {
		if (!r->args->quiet)
			cmd_note(NAME, r->reason == END_TARGET_EXITED && !r->args->daemons
					? "processes that the command has left behind run on unwatched (--daemons goes on with them); %s "
					  "stays as long as they have it in LD_PRELOAD"
					: "%s stays: processes that still run have it in LD_PRELOAD",
				heap_library_path(r->library));
		heap_library_leave(r->library);
	} else {
		heap_library_free(r->library);
	}
}

/* Nothing was recorded: leave no empty file behind. */
static void remove_empty(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISREG(st.st_mode))
		unlink(path);
}

static int record(struct heap_recording *r)
{
	struct err err = {0};
	int rc = r->args->pid ? target_find(r->args->pid, &r->pid, &err) : heap_check_command(r, &err), status;

	if (!rc && r->pid)
		rc = heap_choose_way(r, &err);
	child_inherits_now(&r->inherits);
	cmd_fill_standard_descriptors();
	if (!rc)
		rc = heap_open(r, &err);
	if (!rc) /* not before: opening a FIFO waits for its reader, and Ctrl-C must end that */
		rc = heap_block_signals(r, &err);
	if (!rc) {
		rc = r->pid ? heap_attach(r, &err) : heap_start(r, &err);
		if (rc)
			remove_empty(r->args->output);
	}
	if (!rc) {
		heap_run(r);
		heap_detach(r);
		rc = heap_finish(r, &err);
	}
	status = rc ? cmd_failed(NAME, &err) : STATUS_OK;
	if (!rc)
		heap_tell(r);
	if (r->child.pid) {
		int command_status = heap_leave_command(r);

		status = command_status ? command_status : status;
	}
	return status;
}

bool heap_record_is_meant(int argc, char **argv)
{
	static const char *const own[] = {
		"--exact", "--sample", "--allocator", "--overhead", "--error", "--no-children", "--daemons", "--free-stacks",
		"--maps"};
	/* Of questions that nothing is put into the process for. */
	static const char *const others[] = {"--census", "--every", "--times", "--why-alive", "--paths", "--all", "-a", "--top",
		"-n", "--json", "--core", "--root", "--rss"};

	bool pid = false, other = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--"))
			return true;
		pid |= !strncmp(argv[i], "-p", 2) || !strncmp(argv[i], "--pid", 5);
		for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
			other |= !strncmp(argv[i], others[k], strlen(others[k]));
		for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
			if (!strncmp(argv[i], own[k], strlen(own[k])))
				return true;
	}
	return pid && !other;
}

void heap_record_help(void)
{
	options_help(&usage);
}

int heap_record(int argc, char **argv)
{
	struct heap_record_args args = {.output = DEFAULT_HEAP_RECORDING};
	struct options_rest rest;
	struct heap_recording r = {
		.args = &args, .signal_fd = -1, .pid_fd = -1, .child = {0, -1, -1}, .term = term_describe(2)};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	r.command = rest.command;
	status = check(&r);
	if (status == STATUS_OK) {
		if (args.sample_auto && !is_wished(&args))
			args.wish.overhead = AUTO_OVERHEAD;
		args.own_sampling = args.sample_bytes || is_wished(&args);
		if (!args.exact && !args.every_calls && !args.sample_bytes)
			args.sample_bytes = is_wished(&args) ? HEAP_RATE_FIRST : DEFAULT_SAMPLE_BYTES;
		status = record(&r);
	}
	release(&r);
	return status;
}
