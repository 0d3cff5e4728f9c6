/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde diff: two recordings of allocations, and what is different. */
#include <errno.h>
#include <unistd.h>

#include "base/buf.h"
#include "cmd/cmd.h"
#include "cmd/load.h"
#include "cmd/options.h"
#include "view/view.h"

struct diff_args {
	bool json;
	uint64_t top;
	const char *output, *sort;
	enum heap_order order; /* of `sort` */
	struct load_request load;
};

static const struct option_spec diff_options[] = {
	OPTION_STRING(0, "sort", struct diff_args, sort, "WHAT",
		"compare live (this is done unless something else is asked for), leaked, peak, total, temporary, cross (freed by "
		"another thread) or count"),
	OPTION_FLAG(0, "json", struct diff_args, json, "one JSON object for scripts"),
	OPTION_NUMBER('n', "top", struct diff_args, top, "N", 1, 1000000, "list so many differences (20)"),
	OPTION_STRING('o', "output", struct diff_args, output, "FILE", "write there, not to stdout"),
	OPTIONS_THREADS(struct diff_args, load.threads),
	OPTION_FLAG(0, "no-inline", struct diff_args, load.no_inline,
		"leave out inlined functions: what they allocate is their caller's"),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = "diff",
	.arguments = "A B",
	.about = "Shows what is different between two recordings of allocations (sonde heap), by who asked for the memory. Code is "
		 "matched by the names of functions and files, so that A and B may be of different builds and machines. Two "
		 "moments of one recording: sonde report A --from TIME --to TIME.",
	.options = diff_options,
	.examples =
		{
			{"What takes more memory than before", "sonde diff old.sonde new.sonde"},
			{"Who allocates more, for a script", "sonde diff --sort total --json old.sonde new.sonde"},
		},
	.max_arguments = 2,
};

static int load(const struct diff_args *args, const char *path, struct profile **ret, struct err *err)
{
	int rc = load_profile(usage.command, path, &args->load, ret, err);

	if (!rc && !(*ret)->heap)
		return err_set(err, EINVAL, "%s has no allocations in it: only recordings of sonde heap can be compared", path);
	return rc;
}

/* Files and pipes get long lines. */
#define FILE_COLUMNS 120

static int draw(const struct diff_args *args, const struct profile *const p[2], FILE *out, struct err *err)
{
	struct view_options o = {.term = term_describe(fileno(out)), .top = args->top, .heap_order = args->order};
	struct buf text = {0};
	int rc;

	if (!o.term.interactive && o.term.columns < FILE_COLUMNS)
		o.term.columns = FILE_COLUMNS;
	rc = args->json ? view_heap_diff_json(p, &o, &text, err) : view_heap_diff(p, &o, &text, err);
	if (!rc)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return rc;
}

static int diff(const struct diff_args *args, char *const *paths, struct err *err)
{
	struct profile *p[2] = {0};
	FILE *out = NULL;
	int rc = load(args, paths[0], &p[0], err), status = STATUS_OK;

	rc = rc ? rc : load(args, paths[1], &p[1], err);
	rc = rc ? rc : cmd_open_output(args->output, &out, err);
	if (!rc)
		heap_share_wrappers(p[0], p[1]);
	if (!rc)
		rc = draw(args, (const struct profile *const[2]){p[0], p[1]}, out, err);
	profile_free(p[0]);
	profile_free(p[1]);
	if (out)
		status = cmd_close_output(usage.command, out, args->output);
	return rc ? cmd_failed(usage.command, err) : status;
}

int cmd_diff(int argc, char **argv)
{
	struct diff_args args = {0};
	struct options_rest rest;
	struct err err = {0};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	if (args.sort && (heap_order_by_name(args.sort, &args.order) || args.order == HEAP_BY_GROWTH))
		return options_complain(&usage, "--sort %s: there are live, leaked, peak, total, temporary, cross, count and wasted", args.sort);
	if (rest.count == 1)
		return options_complain(&usage, "two recordings are needed; for two moments of one: "
			"sonde report %s --from TIME --to TIME --sort growth", rest.args[0]);
	if (rest.count < 2)
		return options_complain(&usage, "two recordings are needed");
	status = load_check(&usage, &args.load);
	return status ? status : diff(&args, rest.args, &err);
}
