/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde heap PID: what fills the heap of a Python program, and what keeps it alive. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/term.h"
#include "cmd/cmd.h"
#include "cmd/heap/record.h"
#include "cmd/heap_rss.h"
#include "cmd/target.h"
#include "cmd/until.h"
#include "os/proc.h"
#include "os/usage.h"
#include "sample/python/place.h"
#include "sample/snapshot/core.h"
#include "view/alive.h"
#include "view/census.h"

/* The collector is done after so long, or it will not be. */
#define COLLECTOR_NS (20 * NS_PER_S)
/* As often a census is made at most, until lists could be followed to their ends. */
#define MOST_TRIES 5u
static const struct timespec COLLECTOR_AGAIN = {.tv_nsec = 3 * NS_PER_MS};

struct heap_args {
	const char *pid, *why_alive, *output, *core, *root;
	bool census, all, json, rss;
	uint64_t every_ns, times, top, paths;
};

static const struct option_spec heap_options[] = {
	OPTION_FLAG(0, "census", struct heap_args, census,
		"objects and bytes by type; this is done unless something else is asked for"),
	OPTION_DURATION(0, "every", struct heap_args, every_ns, "TIME", NS_PER_MS, UINT64_MAX,
		"again and again, with what has become more, until Ctrl-C or the end of the process"),
	OPTION_NUMBER(0, "times", struct heap_args, times, "N", 1, UINT64_MAX, "with --every: end after so many"),
	OPTION_STRING(0, "why-alive", struct heap_args, why_alive, "TYPE",
		"what keeps objects of this type alive: references from modules, threads, the interpreter"),
	OPTION_NUMBER(0, "paths", struct heap_args, paths, "N", 1, 1000,
		"with --why-alive: at most so many different ways (5)"),
	OPTION_FLAG(0, "rss", struct heap_args, rss,
		"of any program: what its resident memory is, in an account that adds up (docs/RSS.md)"),
	OPTION_FLAG('a', "all", struct heap_args, all,
		"also str, bytes, int and what else the collector does not track"),
	OPTION_NUMBER('n', "top", struct heap_args, top, "N", 1, 1000000, "so many types (20)"),
	OPTION_FLAG(0, "json", struct heap_args, json, "for scripts (docs/JSON.md)"),
	OPTION_STRING('o', "output", struct heap_args, output, "FILE", "write there instead of stdout"),
	OPTION_STRING('p', "pid", struct heap_args, pid, "PID", "the process, instead of the argument"),
	OPTION_STRING(0, "core", struct heap_args, core, "FILE", "look at a core file instead of a process"),
	OPTION_STRING(0, "root", struct heap_args, root, "DIR",
		"with --core: where the files that were mapped are found"),
	OPTIONS_END,
};

static const struct options_usage heap_usage = {
	.command = "heap",
	.arguments = "PID|NAME|--core FILE",
	.about = "Counts the objects of a running Python program (CPython 3.8 to 3.15) by type, and says what keeps them "
		 "alive. Nothing is put into the program and it is not stopped. docs/CENSUS.md",
	.options = heap_options,
	.examples = {
		{"What is there", "sonde heap --census 1234"},
		{"What becomes more", "sonde heap --census --every 60s 1234"},
		{"And why it does not go away", "sonde heap --why-alive app.models.User 1234"},
		{"Where the memory of any process is", "sonde heap --rss 1234"},
	},
	.max_arguments = 1,
	.stray = "one process at a time",
};

struct heap {
	const struct heap_args *args;
	pid_t pid;
	struct core *core; /* NULL: it lives */
	struct python_process *process;
	char name[PROC_NAME_BYTES];
	FILE *out;
	struct term term;
};

VEC_TYPE(tids, uint32_t);

/* ---- counting ---- */

/*
 * The collector takes its lists apart while it works; that is waited for. Lists that could not be followed, because it
 * began meanwhile or many objects went, are followed once more a few times.
 */
static bool is_again(const struct heap *h, int rc, uint64_t gaps, unsigned tries, uint64_t end_ns)
{
	if (h->core || clock_monotonic_ns() >= end_ns || (rc != -EAGAIN && (rc || !gaps || tries >= MOST_TRIES)))
		return false;
	nanosleep(&COLLECTOR_AGAIN, NULL);
	return true;
}

static int count(struct heap *h, struct python_census *ret, uint64_t *ret_took_ns, struct err *err)
{
	struct python_census_options options = {.loose = h->args->all};
	uint64_t end_ns = clock_monotonic_ns() + COLLECTOR_NS;
	unsigned tries = 0;
	int rc;

	do {
		uint64_t start_ns = clock_monotonic_ns();

		python_census_release(ret);
		rc = python_census(h->process->python, &options, ret, err);
		*ret_took_ns = clock_monotonic_ns() - start_ns;
		tries += rc != -EAGAIN;
	} while (is_again(h, rc, ret->gaps, tries, end_ns));
	return rc;
}

static int print(struct heap *h, const struct buf *text)
{
	if (text->len)
		fwrite(text->data, 1, text->len, h->out);
	return fflush(h->out) ? -errno : 0;
}

/* One census, and what has changed since the one before. */
static int report(struct heap *h, const struct python_census *earlier, struct python_census *c,
	struct census_facts *facts, struct err *err)
{
	struct census_options options = {.term = h->term, .top = h->args->top, .loose = h->args->all};
	struct buf text = {0};
	int rc;

	if (python_pools(h->process->python, &c->objects_at, &facts->pools))
		return err_nomem(err);
	facts->pid = (int)h->pid;
	facts->name = h->name;
	facts->version = python_version_text(h->process->python);
	if (!h->core)
		usage_memory(h->pid, &facts->resident_bytes, NULL);
	if (h->args->json)
		rc = view_census_json(earlier, c, facts, &options, &text, err);
	else if (earlier)
		rc = view_census_growth(earlier, c, facts, &options, &text, err);
	else
		rc = view_census(c, facts, &options, &text, err);
	/* A full disk, or a reader that has left, shows when the output is closed. */
	if (!rc && print(h, &text))
		rc = 1;
	buf_release(&text);
	return rc;
}

static int count_once(struct heap *h, struct err *err)
{
	struct python_census c = {0};
	struct census_facts facts = {0};
	int rc = count(h, &c, &facts.took_ns, err);

	if (!rc)
		rc = report(h, NULL, &c, &facts, err);
	python_census_release(&c);
	return rc < 0 ? rc : 0;
}

static int count_often(struct heap *h, struct err *err)
{
	uint64_t first_ns = 0, last_ns = 0;
	struct python_census earlier = {0};
	struct until until;
	int rc = until_new(h->pid, &until, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; !rc && (!h->args->times || i < h->args->times); i++) {
		struct python_census c = {0};
		struct census_facts facts = {0};
		uint64_t now_ns;

		if (i && until_ns(&until, first_ns + i * h->args->every_ns) != UNTIL_TIME)
			break;
		now_ns = clock_monotonic_ns();
		first_ns = i ? first_ns : now_ns;
		facts.since_ns = now_ns - first_ns;
		facts.gap_ns = i ? now_ns - last_ns : 0;
		last_ns = now_ns;
		rc = count(h, &c, &facts.took_ns, err);
		/* It may end just then. */
		if (rc == -EFAULT && i && until_ns(&until, 0) == UNTIL_ENDED) {
			python_census_release(&c);
			rc = 0;
			break;
		}
		if (!rc)
			rc = report(h, i ? &earlier : NULL, &c, &facts, err);
		python_census_release(&earlier);
		earlier = c;
		marks_release(&earlier.objects_at);
	}
	python_census_release(&earlier);
	until_release(&until);
	return rc < 0 ? rc : 0;
}

/* ---- what keeps them alive ---- */

static int follow(struct heap *h, const struct python_alive_options *options, struct python_alive *ret,
	uint64_t *ret_took_ns, struct err *err)
{
	uint64_t end_ns = clock_monotonic_ns() + COLLECTOR_NS;
	unsigned tries = 0;
	int rc;

	do {
		uint64_t start_ns = clock_monotonic_ns();

		python_alive_release(ret);
		rc = python_alive(h->process->python, options, ret, err);
		*ret_took_ns = clock_monotonic_ns() - start_ns;
		tries += rc != -EAGAIN;
	} while (is_again(h, rc, ret->gaps, tries, end_ns));
	return rc;
}

/* The ids of the threads as the process itself has them. */
static void own_tids(struct heap *h, struct tids *ret)
{
	struct pid_vec threads = {0};

	if (!h->core && !proc_threads(h->pid, &threads, NULL))
		vec_each(&threads, tid) {
			struct proc_status status;

			if (!proc_status_read(*tid, &status, NULL) && vec_push(ret, (uint32_t)status.ns_pid))
				break;
		}
	vec_release(&threads);
}

static int why_alive(struct heap *h, struct err *err)
{
	struct tids tids = {0};
	struct python_alive a = {0};
	struct python_alive_options options = {.type = h->args->why_alive, .most_ways = h->args->paths};
	struct census_facts facts = {
		.pid = (int)h->pid, .name = h->name, .version = python_version_text(h->process->python)};
	struct buf text = {0};
	int rc;

	own_tids(h, &tids);
	options.tids = tids.data;
	options.tid_count = tids.len;
	rc = follow(h, &options, &a, &facts.took_ns, err);
	if (!rc)
		rc = h->args->json ? view_alive_json(&a, &facts, &text, err)
				   : view_alive(&a, &facts, &h->term, &text, err);
	if (!rc)
		print(h, &text);
	python_alive_release(&a);
	vec_release(&tids);
	buf_release(&text);
	return rc;
}

/* ---- which process ---- */

static int open_core(struct heap *h, struct err *err)
{
	int rc = core_open(h->args->core, h->args->root, &h->core, err);

	if (!rc)
		h->pid = core_info(h->core)->pid;
	return rc;
}

static int open_process(struct heap *h, struct err *err)
{
	const struct source *source = &source_live;
	int rc = h->args->core ? open_core(h, err) : 0;
	struct proc_status status;

	if (rc)
		return rc;
	if (h->core)
		source = core_source(h->core);
	if (!source->ops->status(source, h->pid, &status, NULL))
		snprintf(h->name, sizeof(h->name), "%s", status.name);
	rc = python_process_open(source, h->pid, &h->process, err);
	if (rc == -EACCES || rc == -EPERM)
		rc = err_set(err, -rc, "process %d is not ours to read (\"sonde doctor %d\" says what it takes)",
			(int)h->pid, (int)h->pid);
	return rc;
}

static int run(const struct heap_args *args, pid_t pid)
{
	struct heap h = {.args = args, .pid = pid};
	struct err err = {0};
	int rc = open_process(&h, &err), closed = STATUS_OK;

	if (!rc)
		rc = cmd_open_output(args->output, &h.out, &err);
	if (!rc) {
		h.term = term_describe(fileno(h.out));
		rc = args->why_alive ? why_alive(&h, &err)
			: args->every_ns ? count_often(&h, &err) : count_once(&h, &err);
		closed = cmd_close_output("heap", h.out, args->output);
	}
	python_process_close(h.process);
	core_free(h.core);
	return rc ? cmd_failed("heap", &err) : closed;
}

static int check(const struct heap_args *args, const struct options_rest *rest)
{
	if (args->rss && (args->census || args->why_alive || args->every_ns || args->all))
		return options_complain(&heap_usage, "--rss is a question of its own");
	if (args->rss && args->core)
		return options_complain(&heap_usage, "a core file does not say which pages were in memory: no --rss with --core");
	if (args->why_alive && (args->census || args->every_ns || args->all))
		return options_complain(&heap_usage, "--census counts, --why-alive follows references: one of them");
	if (args->times && !args->every_ns)
		return options_complain(&heap_usage, "--times goes with --every");
	if (args->every_ns && args->core)
		return options_complain(&heap_usage, "a core file does not change: no --every with --core");
	if (args->root && !args->core)
		return options_complain(&heap_usage, "--root goes with --core");
	if ((args->core != NULL) + (args->pid != NULL) + rest->count > 1)
		return options_complain(&heap_usage, "one process at a time");
	if (!args->core && !args->pid && !rest->count)
		return options_complain(&heap_usage, "which process? Give its number or its name");
	return OPTIONS_RUN;
}

int cmd_heap(int argc, char **argv)
{
	struct heap_args args = {.top = 20, .paths = 5};
	struct options_rest rest;
	struct err err = {0};
	pid_t pid = 0;
	int status;

	if (heap_record_is_meant(argc, argv))
		return heap_record(argc, argv);
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		heap_record_help();
		fputs("\n---- Or, without a recording, what there is now in a process:\n\n", stdout);
	}
	status = options_parse(&heap_usage, argc, argv, &args, &rest);
	if (status == OPTIONS_RUN)
		status = check(&args, &rest);
	if (status != OPTIONS_RUN)
		return status;
	if (!args.core && target_find(args.pid ? args.pid : rest.args[0], &pid, &err))
		return cmd_failed("heap", &err);
	if (args.rss)
		return heap_rss(&(struct heap_rss_args){args.output, args.json, args.top}, pid);
	return run(&args, pid);
}
