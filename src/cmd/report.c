/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde report: one recording, shown in the way that was asked for. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cmd/cmd.h"
#include "cmd/load.h"
#include "cmd/options.h"
#include "format/format.h"
#include "view/view.h"

struct report_args {
	bool text, json, svg, folded, dump, tree, inverted;
	uint64_t top;
	const char *output;
	const char *sort;
	enum heap_order order; /* of `sort` */
	uint64_t site;
	bool show_wrappers;
	struct load_request load;
};

static const struct option_spec report_options[] = {
	OPTION_FLAG(0, "text", struct report_args, text,
		"everything as plain text: all losses, all functions, the whole tree"),
	OPTION_FLAG(0, "json", struct report_args, json, "one JSON object for scripts"),
	OPTION_FLAG(0, "svg", struct report_args, svg,
		"a flame graph: zoom by click, search by regular expression, opens in any browser"),
	OPTION_FLAG(0, "folded", struct report_args, folded,
		"one line a stack: root;caller;leaf SAMPLES, or NANOSECONDS of --wall and --off-cpu "
		"recordings"),
	OPTION_FLAG(0, "tree", struct report_args, tree,
		"the call tree, one line a function (with --json: added to the object)"),
	OPTION_FLAG(0, "inverted", struct report_args, inverted,
		"trees and flame graphs from the leaves up: who calls what is hot"),
	OPTION_FLAG(0, "dump", struct report_args, dump, "every record of the file, as text"),
	OPTION_NUMBER(
		'n', "top", struct report_args, top, "N", 1, 1000000, "list this many functions"),
	OPTION_STRING(
		'o', "output", struct report_args, output, "FILE", "write there, not to stdout"),
	OPTIONS_LOAD(struct report_args, load),
	OPTION_HEADING("Of recordings of allocations (sonde heap):"),
	OPTION_STRING(0, "sort", struct report_args, sort, "WHAT",
		"live (also for --svg and --folded), leaked, growth, peak, total, temporary, cross (freed by another thread), "
		"count, wasted (above what was asked for)"),
	OPTION_NUMBER(0, "site", struct report_args, site, "N", 1, UINT32_MAX, "everything about site N of that order"),
	OPTION_FLAG(0, "show-wrappers", struct report_args, show_wrappers,
		"name the program's own wrappers of malloc, not their callers"),
	OPTIONS_RANGE(struct report_args, load),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = "report",
	.arguments = "[FILE]",
	.about = "Shows where the time went in a recording (" DEFAULT_RECORDING " when no FILE is "
		 "named). Without options: one screen with the facts, the hottest functions, the "
		 "hottest paths and the threads. Shares are shares of CPU time; of recordings with "
		 "--wall or --off-cpu, of the time for which threads were watched, and text sets "
		 "threads apart that only waited. Of a recording of allocations (sonde heap): who holds the "
		 "memory, docs/HEAP.md.",
	.options = report_options,
	.examples =
		{
			{"Where is the time?", "sonde report"},
			{"A flame graph of the worker threads",
				"sonde report --svg -t '^worker' -o workers.svg"},
			{"Who leaks, in a recording of allocations", "sonde report heap.sonde --sort growth"},
		},
	.max_arguments = 1,
};

/* Files and pipes get the summary too, wider and longer than a screen. */
#define FILE_COLUMNS 100
#define FILE_ROWS 60

static struct term output_term(FILE *out)
{
	struct term t = term_describe(fileno(out));

	if (!t.interactive) {
		t.rows = FILE_ROWS;
		t.columns = t.columns > FILE_COLUMNS ? t.columns : FILE_COLUMNS;
	}
	return t;
}

static int draw(const struct report_args *args, struct profile *p, FILE *out, struct err *err)
{
	struct view_options o = {
		.term = output_term(out),
		.top = args->top,
		.inverted = args->inverted,
		.tree = args->tree,
		.heap_order = args->order,
		.heap_site = args->site,
	};
	struct buf text = {0};
	int rc = 0;

	if (p->heap && args->show_wrappers)
		heap_show_wrappers(p);
	/* Pictures and trees of allocations are of the bytes that --sort names. */
	if (p->heap && !p->samples.len && (args->folded || args->svg || args->tree)) {
		rc = profile_heap_weigh(p, args->order, err);
		if (rc)
			return rc;
	}
	if (args->folded)
		return format_folded.write(p, out, err);
	if (args->json)
		rc = view_json(p, &o, &text, err);
	else if (args->svg)
		rc = view_svg(p, &o, &text, err);
	else if (args->text)
		rc = view_text(p, &o, &text, err);
	else if (args->tree)
		rc = view_tree(p, &o, &text, err);
	else
		rc = view_summary(p, &o, &text, err);
	if (!rc && !args->json && !args->svg && !args->tree)
		rc = view_notes(p, &o, args->text, &text, err);
	if (!rc)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return rc;
}

/* Whoever names no file may not know that one is needed. */
static int find_default(const char *path, struct err *err)
{
	if (strcmp(path, DEFAULT_RECORDING) || !access(path, F_OK))
		return 0;
	if (!access("heap.sonde", F_OK))
		return err_set(err, ENOENT, "there is no %s here; for the allocations: sonde report heap.sonde", path);
	return err_set(
		err, ENOENT, "there is no %s here: run sonde record first, or name a file", path);
}

static int report(const struct report_args *args, const char *path, struct err *err)
{
	struct profile *p = NULL;
	FILE *out = NULL;
	int rc = find_default(path, err), status;

	if (!rc && !args->dump)
		rc = load_profile(usage.command, path, &args->load, &p, err);
	if (!rc && p && !p->heap && (args->sort || args->site))
		rc = err_set(err, EINVAL, "%s has no allocations in it, which --sort and --site are of", path);
	if (!rc)
		rc = cmd_open_output(args->output, &out, err);
	if (!rc)
		rc = args->dump ? view_dump(path, out, err) : draw(args, p, out, err);
	profile_free(p);
	status = out ? cmd_close_output(usage.command, out, args->output) : STATUS_OK;
	return rc ? cmd_failed(usage.command, err) : status;
}

static int check(struct report_args *args)
{
	int views = args->text + args->json + args->svg + args->folded + args->dump;

	if (views > 1)
		return options_complain(
			&usage, "only one of --text, --json, --svg, --folded and --dump at a time");
	if (args->tree && views && !args->json)
		return options_complain(&usage, "--tree stands alone or with --json");
	if (args->inverted && (args->folded || args->dump))
		return options_complain(&usage, "--inverted means nothing here");
	if (args->svg && !args->output && isatty(STDOUT_FILENO))
		return options_complain(
			&usage, "an SVG is not for terminals: name a file with -o flame.svg");
	if (args->sort && heap_order_by_name(args->sort, &args->order))
		return options_complain(&usage,
			"--sort %s: there are live, leaked, growth, peak, total, temporary, cross, count and wasted", args->sort);
	if (args->site && (args->json || args->svg || args->folded || args->dump || args->tree))
		return options_complain(&usage, "--site is of text");
	/* For people. Scripts and other tools get everything. */
	args->load.idle_apart = !args->json && !args->svg && !args->folded;
	args->load.brief_waits = !views && !args->tree;
	return load_check(&usage, &args->load);
}

int cmd_report(int argc, char **argv)
{
	struct report_args args = {0};
	struct options_rest rest;
	struct err err = {0};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	status = check(&args);
	if (status)
		return status;
	return report(&args, rest.count ? rest.args[0] : DEFAULT_RECORDING, &err);
}
