/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/term.h"
#include "cmd/cmd.h"

/* ---- numbers ---- */

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit no_units[] = {{"", 1}, {NULL, 0}};
static const struct unit size_units[] = {{"", 1}, {"K", 1u << 10}, {"M", 1u << 20},
	{"G", 1u << 30}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {NULL, 0}};
static const struct unit duration_units[] = {{"", NS_PER_S}, {"s", NS_PER_S}, {"ms", NS_PER_MS},
	{"us", NS_PER_US}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}, {NULL, 0}};

/* Digits of the fraction that count; a nanosecond of an hour needs no more. */
#define MAX_FRACTION_DIGITS 9

static int bad_number(const char *text, const char *expected, struct err *err)
{
	return err_set(err, EINVAL, "'%s' is not %s", text, expected);
}

/* DIGITS[.DIGITS][UNIT], the fraction only where a unit gives it a meaning. */
static int parse_scaled(const char *text, const struct unit *units, bool fraction,
	const char *expected, uint64_t *ret, struct err *err)
{
	const char *at = text;
	uint64_t whole = 0, parts = 0, scale = 1, value;

	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
			__builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole))
			return err_set(err, ERANGE, "'%s' is too large", text);
	if (at == text)
		return bad_number(text, expected, err);
	if (fraction && *at == '.') {
		for (at++; *at >= '0' && *at <= '9'; at++)
			if (scale < 1000000000) {
				parts = parts * 10 + (uint64_t)(*at - '0');
				scale *= 10;
			}
		if (scale == 1)
			return bad_number(text, expected, err);
	}
	for (; units->name; units++)
		if (!strcmp(at, units->name))
			break;
	if (!units->name)
		return bad_number(text, expected, err);
	if (__builtin_mul_overflow(whole, units->factor, &value) ||
		__builtin_add_overflow(value,
			(uint64_t)((double)parts * (double)units->factor / (double)scale), &value))
		return err_set(err, ERANGE, "'%s' is too large", text);
	*ret = value;
	return 0;
}

int option_number(const char *text, uint64_t *ret, struct err *err)
{
	return parse_scaled(text, no_units, false, "a whole number", ret, err);
}

int option_size(const char *text, uint64_t *ret_bytes, struct err *err)
{
	return parse_scaled(
		text, size_units, false, "a size such as 4096, 64K or 2M", ret_bytes, err);
}

int option_duration(const char *text, uint64_t *ret_ns, struct err *err)
{
	return parse_scaled(
		text, duration_units, true, "a time such as 10, 2.5s, 300ms or 5m", ret_ns, err);
}

/* ---- values ---- */

static int parse_numeric(const struct option_spec *spec, uint64_t *value, const char *text,
	struct err *err)
{
	uint64_t got = 0;
	int rc = spec->kind == OPTION_KIND_SIZE       ? option_size(text, &got, err)
		 : spec->kind == OPTION_KIND_DURATION ? option_duration(text, &got, err)
						      : option_number(text, &got, err);

	if (rc)
		return rc;
	if (got < spec->min || got > spec->max) {
		/* Durations are said in seconds, as they are given. */
		uint64_t unit = spec->kind == OPTION_KIND_DURATION ? NS_PER_S : 1;

		return err_set(err, ERANGE, "'%s' is not between %g and %.0f", text,
			(double)spec->min / (double)unit, (double)spec->max / (double)unit);
	}
	*value = got;
	return 0;
}

static int store(const struct option_spec *spec, void *values, const char *text, struct err *err)
{
	void *at = (char *)values + spec->at;

	switch (spec->kind) {
	case OPTION_KIND_FLAG:
		*(bool *)at = true;
		return 0;
	case OPTION_KIND_STRING:
		*(const char **)at = text;
		return 0;
	case OPTION_KIND_LIST:
		return vec_push((struct option_list *)at, text) ? err_nomem(err) : 0;
	case OPTION_KIND_NUMBER:
	case OPTION_KIND_SIZE:
	case OPTION_KIND_DURATION:
		return parse_numeric(spec, at, text, err);
	case OPTION_KIND_CALLBACK:
		return spec->parse(values, text, err);
	case OPTION_KIND_HEADING: /* nobody can give it */
		break;
	}
	return 0;
}

/* ---- help ---- */

#define HELP_MAX_COLUMNS 100
#define HELP_TEXT_COLUMN 26

/* Prints `text` wrapped at words, going on at column `indent`; the cursor stands at `column`. */
static void print_wrapped(const char *text, size_t column, size_t indent, size_t columns)
{
	for (;;) {
		text += strspn(text, " ");

		size_t len = strcspn(text, " ");

		if (!len)
			break;
		if (column > indent && column + 1 + len > columns) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)len, text);
		column += len;
		text += len;
	}
	putchar('\n');
}

static void print_option(const struct option_spec *spec, size_t columns)
{
	char left[80];
	int len;

	if (spec->short_name)
		len = snprintf(left, sizeof(left), "  -%c, --%s%s%s", spec->short_name,
			spec->long_name, spec->metavar ? " " : "",
			spec->metavar ? spec->metavar : "");
	else
		len = snprintf(left, sizeof(left), "      --%s%s%s", spec->long_name,
			spec->metavar ? " " : "", spec->metavar ? spec->metavar : "");
	fputs(left, stdout);
	if (len + 2 > HELP_TEXT_COLUMN)
		printf("\n%*s", HELP_TEXT_COLUMN, "");
	else
		printf("%*s", HELP_TEXT_COLUMN - len, "");
	print_wrapped(spec->help, HELP_TEXT_COLUMN, HELP_TEXT_COLUMN, columns);
}

static const struct option_spec help_option = {
	.short_name = 'h', .long_name = "help", .help = "this text"};

/* Those before the first heading are "Options", and help is the last of them. */
static void print_options(const struct option_spec *spec, size_t columns)
{
	printf("\nOptions:\n");
	for (; spec->long_name && spec->kind != OPTION_KIND_HEADING; spec++)
		print_option(spec, columns);
	print_option(&help_option, columns);
	for (; spec->long_name; spec++) {
		if (spec->kind == OPTION_KIND_HEADING)
			printf("\n%s:\n", spec->help);
		else
			print_option(spec, columns);
	}
}

void options_help(const struct options_usage *usage)
{
	size_t columns = term_describe(STDOUT_FILENO).columns;

	if (columns > HELP_MAX_COLUMNS)
		columns = HELP_MAX_COLUMNS;
	printf("Usage: sonde %s [OPTIONS]%s%s\n\n", usage->command, *usage->arguments ? " " : "",
		usage->arguments);
	print_wrapped(usage->about, 0, 0, columns);
	print_options(usage->options, columns);
	printf("\nExamples:\n");
	for (size_t i = 0; i < sizeof(usage->examples) / sizeof(usage->examples[0]); i++)
		if (usage->examples[i].command)
			printf("  # %s\n  %s\n", usage->examples[i].does,
				usage->examples[i].command);
}

int options_complain(const struct options_usage *usage, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sonde %s: ", usage->command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry \"sonde %s --help\".\n", usage->command);
	return STATUS_USAGE;
}

/* ---- the command line ---- */

struct parser {
	const struct options_usage *usage;
	char **argv;
	int argc, at; /* argv[at] is looked at */
	void *values;
	bool want_help;
};

static const struct option_spec *find_long(const struct parser *p, const char *name, size_t len)
{
	if (len == strlen(help_option.long_name) && !strncmp(name, help_option.long_name, len))
		return &help_option;
	for (const struct option_spec *spec = p->usage->options; spec->long_name; spec++)
		if (spec->kind != OPTION_KIND_HEADING && strlen(spec->long_name) == len &&
			!strncmp(name, spec->long_name, len))
			return spec;
	return NULL;
}

static const struct option_spec *find_short(const struct parser *p, char name)
{
	if (name == help_option.short_name)
		return &help_option;
	for (const struct option_spec *spec = p->usage->options; spec->long_name; spec++)
		if (spec->short_name == name)
			return spec;
	return NULL;
}

static bool takes_value(const struct option_spec *spec)
{
	return spec->kind != OPTION_KIND_FLAG && spec->metavar;
}

/* Stores one option whose value is `text`, or stands in the next argument when that is NULL. */
static int take_option(struct parser *p, const struct option_spec *spec, const char *text)
{
	struct err err = {0};

	if (spec == &help_option) {
		p->want_help = true;
		return OPTIONS_RUN;
	}
	if (takes_value(spec) && !text) {
		if (p->at + 1 >= p->argc)
			return options_complain(p->usage, "--%s needs a value (%s)",
				spec->long_name, spec->metavar);
		text = p->argv[++p->at];
	}
	if (store(spec, p->values, text, &err))
		return options_complain(p->usage, "--%s: %s", spec->long_name, err.text);
	return OPTIONS_RUN;
}

static int parse_long(struct parser *p, const char *arg)
{
	size_t len = strcspn(arg, "=");
	const struct option_spec *spec = find_long(p, arg, len);

	if (!spec)
		return options_complain(p->usage, "unknown option --%.*s", (int)len, arg);
	if (arg[len] && !takes_value(spec))
		return options_complain(p->usage, "--%s takes no value", spec->long_name);
	return take_option(p, spec, arg[len] ? arg + len + 1 : NULL);
}

/* A cluster: flags may follow each other, and the first option with a value takes the rest. */
static int parse_short(struct parser *p, const char *arg)
{
	int status = OPTIONS_RUN;

	for (; *arg && status == OPTIONS_RUN; arg++) {
		const struct option_spec *spec = find_short(p, *arg);

		if (!spec)
			return options_complain(p->usage, "unknown option -%c", *arg);
		if (takes_value(spec))
			return take_option(p, spec, arg[1] ? arg + 1 : NULL);
		status = take_option(p, spec, NULL);
	}
	return status;
}

/* What follows `--`: the command line, or more arguments. */
static void take_rest(struct parser *p, struct options_rest *rest)
{
	char **after = p->argv + p->at + 1;
	size_t count = (size_t)(p->argc - p->at - 1);

	if (p->usage->takes_command) {
		rest->command = after;
		rest->command_count = count;
	} else {
		memmove(rest->args + rest->count, after, count * sizeof(*after));
		rest->count += count;
	}
}

int options_parse(const struct options_usage *usage, int argc, char **argv, void *values,
	struct options_rest *rest)
{
	struct parser p = {.usage = usage, .argv = argv, .argc = argc, .values = values};
	int status = OPTIONS_RUN;

	*rest = (struct options_rest){.args = argv + 1};
	for (p.at = 1; p.at < argc && status == OPTIONS_RUN; p.at++) {
		char *arg = argv[p.at];

		if (!strcmp(arg, "--")) {
			take_rest(&p, rest);
			break;
		}
		if (!strncmp(arg, "--", 2))
			status = parse_long(&p, arg + 2);
		else if (arg[0] == '-' && arg[1])
			status = parse_short(&p, arg + 1);
		else
			rest->args[rest->count++] = arg;
	}
	if (status != OPTIONS_RUN)
		return status;
	if (p.want_help) {
		options_help(usage);
		return cmd_finish_stdout(usage->command);
	}
	if (rest->count > usage->max_arguments)
		return options_complain(usage, "one argument too many: '%s'%s%s",
			rest->args[usage->max_arguments], usage->stray ? "; " : "",
			usage->stray ? usage->stray : "");
	return OPTIONS_RUN;
}

int thread_options_regex(
	const struct thread_options *t, regex_t *ret, bool *ret_given, struct err *err)
{
	char why[160];

	*ret_given = false;
	if (!t->pattern)
		return 0;

	int rc = regcomp(ret, t->pattern, REG_EXTENDED | REG_NOSUB);

	if (rc) {
		regerror(rc, ret, why, sizeof(why));
		return err_set(err, EINVAL, "thread name pattern '%s': %s", t->pattern, why);
	}
	*ret_given = true;
	return 0;
}

int thread_options_check(const struct options_usage *usage, const struct thread_options *t)
{
	struct err err = {0};
	regex_t pattern;
	bool given;

	if (thread_options_regex(t, &pattern, &given, &err))
		return options_complain(usage, "%s", err.text);
	if (given)
		regfree(&pattern);
	return 0;
}
