/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde stack PID: the stack of every thread, once. */
#include "cmd/target.h"

#include <inttypes.h>
#include <regex.h>
#include <string.h>

#include "base/term.h"
#include "cmd/cmd.h"
#include "cmd/stack_tasks.h"
#include "sample/snapshot/core.h"
#include "view/why.h"

struct stack_args {
	struct thread_options threads;
	bool json, stop, interpreter, locals, tasks;
	const char *output;
	struct target_options target;
};

static const struct option_spec stack_options[] = {
	OPTIONS_THREADS(struct stack_args, threads),
	OPTION_FLAG(0, "stop-running", struct stack_args, stop,
		"stop threads that run for some microseconds, instead of sampling them"),
	OPTION_FLAG(0, "show-interpreter", struct stack_args, interpreter,
		"Python's own C functions as well, beside the Python frames that they run"),
	OPTION_FLAG(0, "locals", struct stack_args, locals,
		"arguments and variables of Python frames as well, cut short where they are long"),
	OPTION_FLAG(0, "tasks", struct stack_args, tasks,
		"asyncio's tasks instead of threads: who awaits whom, and what each waits for"),
	OPTION_FLAG(0, "json", struct stack_args, json, "for scripts (docs/JSON.md)"),
	OPTION_STRING('o', "output", struct stack_args, output, "FILE", "write there instead of stdout"),
	OPTIONS_TARGET(struct stack_args, target),
	OPTIONS_END,
};

static const struct options_usage stack_usage = {
	.command = "stack",
	.arguments = "PID|NAME|--core FILE",
	.about = "Shows the stack of every thread, without stopping any of them. Threads with the same stack "
		 "are shown once.",
	.options = stack_options,
	.examples = {
		{"All threads of a process", "sonde stack 1234"},
		{"Those of a pool", "sonde stack -t '^worker' nginx"},
		{"What the tasks of an asyncio program wait for", "sonde stack --tasks 1234"},
		{"Of a program that has crashed", "sonde stack --core core.1234"},
	},
	.max_arguments = 1,
	.stray = "one process at a time",
};

static bool is_wanted(
	const struct stack_args *args, const regex_t *name, const struct snapshot_thread *t)
{
	const struct thread_options *want = &args->threads;

	return (!want->tid || (pid_t)want->tid == t->look.tid) &&
		(!want->main_only || t->look.tid == t->process->pid) &&
		(!name || !regexec(name, t->look.name, 0, NULL, 0));
}

static int select_threads(const struct stack_args *args, const struct snapshot_process *p,
	struct stack_threads *ret, struct err *err)
{
	regex_t name;
	bool named = false;
	int rc = thread_options_regex(&args->threads, &name, &named, err);

	vec_each(&p->threads, t)
		if (!rc && is_wanted(args, named ? &name : NULL, *t) && vec_push(ret, *t))
			rc = err_nomem(err);
	if (named)
		regfree(&name);
	if (!rc && !ret->len)
		rc = err_set(err, ESRCH, "process %d has %zu threads, and none is meant by these options",
			(int)p->pid, p->threads.len);
	return rc;
}

/* The tasks of all loops, unless threads were chosen. */
static int tasks_text(const struct stack_args *args, struct snapshot *s, const struct stack_threads *threads,
	const struct term *term, struct buf *text, struct err *err)
{
	struct stack_tasks_ask ask = {
		.snapshot = s,
		.process = threads->data[0]->process,
		.threads = threads->len < threads->data[0]->process->threads.len ? threads : NULL,
		.term = term,
		.json = args->json,
	};

	return stack_tasks(&ask, text, err);
}

static int print(const struct stack_args *args, struct snapshot *s, const struct stack_threads *threads,
	struct err *err)
{
	struct stacks_options options = {.interpreter = args->interpreter};
	struct buf text = {0};
	FILE *out;
	int rc = cmd_open_output(args->output, &out, err);

	if (rc)
		return rc;
	options.term = term_describe(fileno(out));
	rc = args->tasks ? tasks_text(args, s, threads, &options.term, &text, err)
		: args->json ? view_stacks_json(s, threads, &options, &text, err)
			     : view_stacks(s, threads, &options, &text, err);
	if (!rc)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return cmd_close_output("stack", out, args->output) && !rc ? STATUS_FAILED : rc;
}

/* One thread is read alone; of a whole process all are, at once. */
static void read_stacks(struct snapshot *s, struct snapshot_process *p, const struct stack_threads *threads)
{
	if (threads->len == p->threads.len) {
		snapshot_stacks(s, p);
		snapshot_running(s, p);
		return;
	}
	vec_each(threads, t)
		snapshot_stack(s, *t);
}

/* Where an interpreter cannot be read its C functions are all there is, and that is told. */
static void note_python(struct snapshot *s, const struct snapshot_process *p)
{
	const char *refusal = "";

	snapshot_python(s, p, &refusal);
	if (*refusal)
		cmd_note("stack", "%s; its C functions are shown instead of Python frames", refusal);
}

static int run(const struct stack_args *args, pid_t pid, const struct snapshot_options *options)
{
	struct snapshot *s = NULL;
	struct snapshot_process *p = NULL;
	struct stack_threads threads = {0};
	struct err err = {0};
	int rc = snapshot_new(options, &s, &err);

	if (!rc)
		rc = snapshot_process(s, options->core ? core_info(snapshot_core(s))->pid : pid, &p, &err);
	if (!rc)
		rc = select_threads(args, p, &threads, &err);
	if (!rc) {
		if (!args->tasks)
			read_stacks(s, p, &threads);
		if (p->refused)
			cmd_note("stack", "process %d is not ours to read: names and states are all there is "
				"(\"sonde doctor %d\" says what it takes)", (int)p->pid, (int)p->pid);
		else
			note_python(s, p);
		rc = print(args, s, &threads, &err);
	}
	vec_release(&threads);
	snapshot_free(s);
	return rc < 0 ? cmd_failed("stack", &err) : rc;
}

int cmd_stack(int argc, char **argv)
{
	struct stack_args args = {0};
	struct snapshot_options options = {0};
	struct options_rest rest;
	pid_t pid;
	int status = options_parse(&stack_usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	status = thread_options_check(&stack_usage, &args.threads);
	if (status != STATUS_OK)
		return status;
	options.stop_running = args.stop;
	options.locals = args.locals;
	options.plain_beside_python = !args.interpreter;
	status = target_choose(&stack_usage, &args.target, &rest, &options, &pid);
	if (status != OPTIONS_RUN)
		return status;
	if (args.tasks && (args.locals || args.stop || args.interpreter))
		return options_complain(&stack_usage,
			"--tasks is without --locals, --stop-running and --show-interpreter");
	if (options.core && args.stop)
		return options_complain(&stack_usage, "--stop-running is for processes that live");
	return run(&args, pid, &options);
}
