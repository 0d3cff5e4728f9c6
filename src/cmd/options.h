/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Command-line options from a table: parsing, the --help text and the complaints all come from the
 * same rows, so they cannot disagree.
 *
 *	struct report_args { bool text; uint64_t top; };
 *
 *	static const struct option_spec options[] = {
 *		OPTION_FLAG('x', "text", struct report_args, text, "plain text, everything"),
 *		OPTION_NUMBER('n', "top", struct report_args, top, "N", 1, 10000,
 *			"how many functions to list"),
 *		OPTIONS_END
 *	};
 *	static const struct options_usage usage = {
 *		.command = "report", .arguments = "[FILE]", .options = options, ...
 *	};
 *
 *	struct report_args args = {.top = 10};
 *	struct options_rest rest;
 *	int status = options_parse(&usage, argc, argv, &args, &rest);
 *	if (status != OPTIONS_RUN)
 *		return status;
 *
 * Values keep what the caller put there unless the option is given. Accepted: --name, --name VALUE,
 * --name=VALUE, -n, -n VALUE, -nVALUE, -abc for flags; options and arguments in any order; `--`
 * ends the options. -h and --help are there without a row. Long names are never abbreviated.
 */
#ifndef SONDE_CMD_OPTIONS_H
#define SONDE_CMD_OPTIONS_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/vec.h"

enum option_kind {
	OPTION_KIND_FLAG,     /* bool */
	OPTION_KIND_STRING,   /* const char *, pointing into argv */
	OPTION_KIND_LIST,     /* struct option_list: may be given again and again */
	OPTION_KIND_NUMBER,   /* uint64_t */
	OPTION_KIND_SIZE,     /* uint64_t bytes: 4096, 64K, 2M, 1G (powers of 1024) */
	OPTION_KIND_DURATION, /* uint64_t ns: 10, 2.5 (seconds), 300ms, 10s, 5m, 1h */
	OPTION_KIND_CALLBACK, /* parse() decides */
	OPTION_KIND_HEADING,  /* no option: --help begins a new list here */
};

VEC_TYPE(option_list, const char *);

struct option_spec {
	char short_name; /* 0: none */
	const char *long_name;
	enum option_kind kind;
	size_t at;           /* offset of the value in the caller's struct */
	const char *metavar; /* what stands for the value in --help; NULL for flags */
	const char *help;    /* wrapped to the terminal; ';'-free half sentences read best */
	uint64_t min, max;   /* inclusive, for the three numeric kinds */
	/* OPTION_KIND_CALLBACK: `values` is the caller's struct. -errno and words when refused. */
	int (*parse)(void *values, const char *text, struct err *err);
};

#define OPTION_ROW(s, l, k, type, member, ...)                                                     \
	{                                                                                          \
		.short_name = (s), .long_name = (l), .kind = (k), .at = offsetof(type, member),    \
		__VA_ARGS__                                                                        \
	}
#define OPTION_FLAG(s, l, type, member, text)                                                      \
	OPTION_ROW(s, l, OPTION_KIND_FLAG, type, member, .help = (text))
#define OPTION_STRING(s, l, type, member, meta, text)                                              \
	OPTION_ROW(s, l, OPTION_KIND_STRING, type, member, .metavar = (meta), .help = (text))
#define OPTION_LIST(s, l, type, member, meta, text)                                                \
	OPTION_ROW(s, l, OPTION_KIND_LIST, type, member, .metavar = (meta), .help = (text))
#define OPTION_NUMBER(s, l, type, member, meta, lo, hi, text)                                      \
	OPTION_ROW(s, l, OPTION_KIND_NUMBER, type, member, .metavar = (meta), .min = (lo),         \
		.max = (hi), .help = (text))
#define OPTION_SIZE(s, l, type, member, meta, lo, hi, text)                                        \
	OPTION_ROW(s, l, OPTION_KIND_SIZE, type, member, .metavar = (meta), .min = (lo),           \
		.max = (hi), .help = (text))
#define OPTION_DURATION(s, l, type, member, meta, lo, hi, text)                                    \
	OPTION_ROW(s, l, OPTION_KIND_DURATION, type, member, .metavar = (meta), .min = (lo),       \
		.max = (hi), .help = (text))
#define OPTION_CALLBACK(s, l, fn, meta, text)                                                      \
	{.short_name = (s), .long_name = (l), .kind = OPTION_KIND_CALLBACK, .parse = (fn),         \
		.metavar = (meta), .help = (text)}
#define OPTION_HEADING(text)                                                                       \
	{.long_name = "", .kind = OPTION_KIND_HEADING, .help = (text)}
#define OPTIONS_END                                                                                \
	{                                                                                          \
	}

struct options_example {
	const char *does;    /* "Profile a running server for ten seconds" */
	const char *command; /* "sonde record -n nginx -d 10" */
};

struct options_usage {
	const char *command;               /* "report" */
	const char *arguments;             /* "[FILE]", "IN OUT", "[-- CMD ARGS...]"; "" for none */
	const char *about;                 /* one paragraph, wrapped to the terminal */
	const struct option_spec *options; /* ended by OPTIONS_END */
	struct options_example examples[5]; /* at least two */
	size_t max_arguments; /* more of them is a usage error */
	const char *stray;    /* what to say when there are more; may be NULL */
	bool takes_command;   /* what follows `--` is a command line, not arguments */
};

/* What is left: arguments in order, then (takes_command) the command line, NULL-terminated. Both
 * point into argv, which options_parse() reorders. */
struct options_rest {
	char **args;
	size_t count;
	char **command; /* NULL when there was no `--` */
	size_t command_count;
};

#define OPTIONS_RUN (-1)

/* OPTIONS_RUN: go on. Otherwise everything has been said (--help, or what is wrong with the
 * command line) and the value is the exit status. argv[0] is the command's name. */
int options_parse(const struct options_usage *usage, int argc, char **argv, void *values,
	struct options_rest *rest);

/* For what the table cannot check: prints the complaint and "Try ... --help"; returns the exit
 * status for wrong usage. */
int options_complain(const struct options_usage *usage, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void options_help(const struct options_usage *usage);

/* Strict parsing as the three numeric kinds do it; nothing but the number may stand in the text. */
int option_number(const char *text, uint64_t *ret, struct err *err);
int option_size(const char *text, uint64_t *ret_bytes, struct err *err);
int option_duration(const char *text, uint64_t *ret_ns, struct err *err);

/* ---- which threads: one grammar in every command ---- */

struct thread_options {
	const char *pattern; /* -t REGEX (POSIX extended), NULL: all names */
	bool main_only;      /* --main */
	uint64_t tid;        /* --tid N, 0: all */
};

#define OPTIONS_THREADS(type, member)                                                              \
	OPTION_STRING('t', "thread", type, member.pattern, "REGEX",                                \
		"only threads whose name matches this extended regular expression"),               \
		OPTION_FLAG(0, "main", type, member.main_only,                                     \
			"only the first thread of each process"),                                  \
		OPTION_NUMBER(0, "tid", type, member.tid, "N", 1, INT32_MAX, "only this thread")

/* Compiles the pattern: *ret_given says whether there is one (regfree() it then). -EINVAL with the
 * pattern and what is wrong with it. */
int thread_options_regex(
	const struct thread_options *t, regex_t *ret, bool *ret_given, struct err *err);

/* STATUS_OK, or the complaint about the pattern has been made and this is the exit status. */
int thread_options_check(const struct options_usage *usage, const struct thread_options *t);

#endif
