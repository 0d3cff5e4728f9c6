/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde why PID: what every thread waits for, who has it, and what that one is doing. */
#include "cmd/target.h"

#include <string.h>

#include "base/clock.h"
#include "base/term.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/why_over_time.h"
#include "cmd/why_watch.h"
#include "view/why.h"
#include "view/why_time.h"

struct why_args {
	bool all, json, dot;
	uint64_t chain_of, duration_ns;
	const char *watch;
	const char *output;
	struct target_options target;
};

static const struct option_spec why_options[] = {
	OPTION_FLAG('a', "all", struct why_args, all, "every thread and every edge"),
	OPTION_NUMBER(0, "chain-of", struct why_args, chain_of, "TID", 1, INT32_MAX,
		"explain this thread, instead of the most interesting one"),
	OPTION_DURATION('d', "duration", struct why_args, duration_ns, "TIME", NS_PER_MS * 100, NS_PER_S * 86400,
		"slow, not hung: watch for that long, and tell what the time of each thread went to"),
	OPTION_STRING(0, "watch", struct why_args, watch, "CONDITION",
		"wait until it happens, then explain it: 'main blocked > 5s', 'NAME blocked > 2s' (a regular "
		"expression), 'any blocked > 10s', 'main not run > 5s', deadlock; who is idle is not blocked"),
	OPTION_FLAG(0, "json", struct why_args, json, "for scripts (docs/JSON.md)"),
	OPTION_FLAG(0, "dot", struct why_args, dot, "the wait graph for Graphviz"),
	OPTION_STRING('o', "output", struct why_args, output, "FILE", "write there instead of stdout"),
	OPTIONS_TARGET(struct why_args, target),
	OPTIONS_END,
};

static const struct options_usage why_usage = {
	.command = "why",
	.arguments = "PID|NAME|--core FILE",
	.about = "Says what a process waits for: the chain from the thread that hangs to who is in its way, "
		 "through locks, pipes, sockets and other processes, and what that one is doing. Nothing is "
		 "stopped.",
	.options = why_options,
	.examples = {
		{"A program hangs: why?", "sonde why 1234"},
		{"It is slow: what is its time lost to?", "sonde why -d 5 1234"},
		{"It hangs now and then: tell why when it does", "sonde why --watch 'main blocked > 5s' -o why.txt 1234"},
		{"The whole graph as a picture", "sonde why --dot --all 1234 | dot -Tsvg > waits.svg"},
		{"What a core tells of it", "sonde why --core core.1234"},
	},
	.max_arguments = 1,
	.stray = "one process at a time",
};

static int print(const struct why_args *args, const struct wait_answer *a, FILE *out, struct err *err)
{
	struct why_options o = {.term = term_describe(fileno(out)), .all = args->all};
	struct buf text = {0};
	int rc = args->json ? view_why_json(a, &o, &text, err)
		: args->dot ? view_why_dot(a, &o, &text, err)
			    : view_why(a, &o, &text, err);

	if (!rc)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return rc;
}

static int print_over_time(const struct why_args *args, const struct over_time *o, FILE *out, struct err *err)
{
	struct why_options options = {.term = term_describe(fileno(out)), .all = args->all};
	struct buf text = {0};
	int rc = args->json ? view_why_time_json(o, &text, err) : view_why_time(o, &options, &text, err);

	if (!rc)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return rc;
}

static int run_over_time(const struct why_args *args, pid_t pid, const struct snapshot_options *snapshot)
{
	struct over_options options = {
		.snapshot = *snapshot, .pid = pid, .focus = (pid_t)args->chain_of};
	struct over_time *o = NULL;
	struct err err = {0};
	FILE *out;
	int rc = why_over_time(&options, args->duration_ns, &o, &err);

	if (!rc)
		rc = cmd_open_output(args->output, &out, &err);
	if (!rc) {
		rc = print_over_time(args, o, out, &err);
		if (cmd_close_output("why", out, args->output) && !rc)
			rc = STATUS_FAILED;
	}
	over_time_free(o);
	return rc < 0 ? cmd_failed("why", &err) : rc;
}

/* 1, or 0 where there is nothing to explain; -errno. */
static int find_answer(const struct why_args *args, pid_t pid, const struct snapshot_options *options,
	struct watch_for *watch, struct wait_answer *ret, struct err *err)
{
	int rc;

	if (args->watch)
		return why_watch(options, pid, watch, args->watch, ret, err);
	rc = wait_answer_new(options, pid, (pid_t)args->chain_of, ret, err);
	return rc ? rc : 1;
}

static void note_refusal(const struct snapshot_process *p)
{
	if (p->refused)
		cmd_note("why", "process %d is not ours to read: what its threads wait for is not known "
			"(\"sonde doctor %d\" says what it takes)", (int)p->pid, (int)p->pid);
}

static int run(const struct why_args *args, pid_t pid, const struct snapshot_options *options,
	struct watch_for *watch)
{
	struct wait_answer answer = {0};
	struct err err = {0};
	FILE *out;
	int rc = find_answer(args, pid, options, watch, &answer, &err);

	if (!rc)
		return STATUS_FAILED;
	if (rc > 0) {
		note_refusal(answer.verdict.focus->thread->process);
		rc = cmd_open_output(args->output, &out, &err);
	}
	if (!rc) {
		rc = print(args, &answer, out, &err);
		if (cmd_close_output("why", out, args->output) && !rc)
			rc = STATUS_FAILED;
	}
	wait_answer_release(&answer);
	return rc < 0 ? cmd_failed("why", &err) : rc;
}

int cmd_why(int argc, char **argv)
{
	struct why_args args = {0};
	struct snapshot_options options = {.plain_runtime = true};
	struct options_rest rest;
	struct watch_for watch = {0};
	struct err err = {0};
	pid_t pid;
	int status = options_parse(&why_usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	if (args.json && args.dot)
		return options_complain(&why_usage, "--json or --dot, not both");
	if (args.duration_ns && (args.dot || args.target.core))
		return options_complain(&why_usage, "there is no --dot and no --core of a time, only of a moment");
	if (args.watch && (args.duration_ns || args.chain_of || args.target.core))
		return options_complain(&why_usage, "--watch goes without -d, --chain-of and --core");
	if (args.watch && watch_for_parse(args.watch, &watch, &err))
		return options_complain(&why_usage, "%s", err.text);
	status = target_choose(&why_usage, &args.target, &rest, &options, &pid);
	if (status == OPTIONS_RUN)
		status = args.duration_ns ? run_over_time(&args, pid, &options)
					  : run(&args, pid, &options, &watch);
	watch_for_release(&watch);
	return status;
}
