/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde convert: a recording in the format of another tool, and what that format cannot hold. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cmd/cmd.h"
#include "cmd/load.h"
#include "cmd/options.h"
#include "format/format.h"
#include "profile/heap.h"

struct convert_args {
	const char *to;
	const char *sort;
	enum heap_order order; /* of `sort` */
	bool list, quiet;
	struct load_request load;
};

static const struct option_spec convert_options[] = {
	OPTION_STRING(0, "to", struct convert_args, to, "FORMAT",
		"the format, when the name of OUT does not tell it"),
	OPTION_FLAG(0, "list", struct convert_args, list,
		"list the formats, what reads them and what they cannot hold"),
	OPTION_FLAG('q', "quiet", struct convert_args, quiet, "do not say what is lost"),
	OPTION_STRING(0, "sort", struct convert_args, sort, "WHAT",
		"of allocations, for formats with one number a stack: live, leaked, growth, peak, total, temporary, cross, count, wasted"),
	OPTIONS_LOAD(struct convert_args, load),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = "convert",
	.arguments = "IN OUT",
	.about = "Writes the recording IN as OUT, in the format that the name of OUT tells (- is "
		 "stdout), and says what that format cannot hold.",
	.options = convert_options,
	.examples =
		{
			{"For go tool pprof", "sonde convert " DEFAULT_RECORDING " cpu.pb.gz"},
			{"For flamegraph.pl, through a pipe",
				"sonde convert " DEFAULT_RECORDING
				" - --to folded | flamegraph.pl >cpu.svg"},
		},
	.max_arguments = 2,
};

static void add_names(struct buf *words)
{
	for (const struct format_ops *const *f = formats; *f; f++)
		buf_printf(words, "%s%s", f == formats ? "" : ", ", (*f)->name);
}

static int list_formats(void)
{
	for (const struct format_ops *const *f = formats; *f; f++) {
		printf("%s (", (*f)->name);
		for (size_t i = 0; i < FORMAT_MAX_EXTENSIONS && (*f)->extensions[i]; i++)
			printf("%s*%s", i ? ", " : "", (*f)->extensions[i]);
		printf(")\n  read by:      %s\n  cannot hold:  %s\n", (*f)->help, (*f)->loses);
	}
	return cmd_finish_stdout(usage.command);
}

static int choose(const struct convert_args *args, const char *out, const struct format_ops **ret)
{
	struct buf names = {0};
	int status = STATUS_OK;

	*ret = args->to ? format_by_name(args->to) : format_by_path(out);
	add_names(&names);
	if (!*ret && args->to)
		status = options_complain(
			&usage, "unknown format '%s': there are %s", args->to, names.data);
	else if (!*ret)
		status = options_complain(&usage,
			"the name '%s' tells no format: say --to FORMAT, one of %s", out,
			names.data);
	else if ((*ret)->binary && !strcmp(out, "-") && isatty(STDOUT_FILENO))
		status = options_complain(
			&usage, "%s is not for terminals: name a file", (*ret)->name);
	buf_release(&names);
	return status;
}

static int convert(const struct convert_args *args, const struct format_ops *format,
	const char *in, const char *out_path, struct err *err)
{
	struct profile *p;
	FILE *out = NULL;
	int rc, status;

	if (load_profile(usage.command, in, &args->load, &p, err))
		return cmd_failed(usage.command, err);
	rc = p->heap && !p->samples.len ? profile_heap_weigh(p, args->order, err) : 0;
	if (!rc)
		rc = cmd_open_output(out_path, &out, err);
	if (!rc)
		rc = format->write(p, out, err);
	profile_free(p);
	status = out ? cmd_close_output(usage.command, out, out_path) : STATUS_OK;
	if (rc)
		return cmd_failed(usage.command, err);
	if (!status && !args->quiet)
		cmd_note(usage.command, "%s cannot hold: %s", format->name, format->loses);
	return status;
}

int cmd_convert(int argc, char **argv)
{
	struct convert_args args = {0};
	const struct format_ops *format;
	struct options_rest rest;
	struct err err = {0};
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	if (args.list)
		return list_formats();
	if (rest.count < 2)
		return options_complain(
			&usage, "what to read and what to write must both be named");
	if (args.sort && heap_order_by_name(args.sort, &args.order))
		return options_complain(&usage, "--sort %s: there is no such order", args.sort);
	status = load_check(&usage, &args.load);
	if (status == STATUS_OK)
		status = choose(&args, rest.args[1], &format);
	return status ? status : convert(&args, format, rest.args[0], rest.args[1], &err);
}
