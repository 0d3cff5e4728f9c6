/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/term.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

struct args {
	bool flag, other;
	const char *text;
	struct option_list list;
	uint64_t number, size, duration;
	int called;
	struct thread_options threads;
};

static int take_even(void *values, const char *text, struct err *err)
{
	struct args *a = values;

	a->called++;
	return strlen(text) % 2 ? err_set(err, EINVAL, "'%s' is odd", text) : 0;
}

static const struct option_spec specs[] = {
	OPTION_FLAG('f', "flag", struct args, flag, "a flag"),
	OPTION_FLAG('g', "other", struct args, other, "another"),
	OPTION_STRING('s', "text", struct args, text, "WORDS", "some words"),
	OPTION_LIST('p', "pid", struct args, list, "PID", "again and again"),
	OPTION_NUMBER('n', "number", struct args, number, "N", 1, 100, "a number"),
	OPTION_SIZE(0, "size", struct args, size, "BYTES", 0, UINT64_MAX, "a size"),
	OPTION_DURATION('d', "duration", struct args, duration, "TIME", 0, UINT64_MAX, "a time"),
	OPTION_CALLBACK(0, "even", take_even, "TEXT", "of even length"),
	OPTIONS_THREADS(struct args, threads),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = "test", .arguments = "[FILE]", .about = "About.", .options = specs,
	.max_arguments = 1,
};
static const struct options_usage launcher = {
	.command = "test", .arguments = "[-- CMD]", .about = "About.", .options = specs,
	.takes_command = true,
};

static struct args got;
static struct options_rest rest;
static char said[1024]; /* on stderr */

/* Parses "a b c", split at spaces. */
static int parse_with(const struct options_usage *u, const char *line)
{
	static char copy[256];
	static char *argv[32];
	int argc = 1, saved = dup(STDERR_FILENO);
	FILE *capture = tmpfile();

	snprintf(copy, sizeof(copy), "%s", line);
	argv[0] = (char *)"test";
	for (char *at = copy, *word; (word = strsep(&at, " "));)
		if (*word)
			argv[argc++] = word;
	argv[argc] = NULL;
	vec_release(&got.list);
	got = (struct args){0};

	dup2(fileno(capture), STDERR_FILENO);
	int status = options_parse(u, argc, argv, &got, &rest);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(capture);
	said[fread(said, 1, sizeof(said) - 1, capture)] = '\0';
	fclose(capture);
	return status;
}

static int parse(const char *line)
{
	return parse_with(&usage, line);
}

TEST(every_spelling)
{
	check(parse("") == OPTIONS_RUN && !got.flag && !rest.count);
	check(parse("--flag file -s hello") == OPTIONS_RUN && got.flag);
	check_str(got.text, "hello");
	check_str(rest.args[0], "file");
	check(parse("-shello") == OPTIONS_RUN);
	check_str(got.text, "hello");
	check(parse("--text=a=b") == OPTIONS_RUN);
	check_str(got.text, "a=b");
	check(parse("--text=") == OPTIONS_RUN);
	check_str(got.text, "");
	check(parse("-fgn7") == OPTIONS_RUN && got.flag && got.other);
	check_u64(got.number, 7);
	check(parse("-p 1 --pid 2 -p3") == OPTIONS_RUN);
	check_u64(got.list.len, 3);
	check_str(got.list.data[2], "3");
	check(parse("--even ab") == OPTIONS_RUN && got.called == 1);
	check(parse("-t re --main --tid 5") == OPTIONS_RUN && got.threads.main_only);
	check_u64(got.threads.tid, 5);
	check(parse("-") == OPTIONS_RUN);
	check_str(rest.args[0], "-");
}

TEST(end_of_options)
{
	check(parse("-- -f") == OPTIONS_RUN && !got.flag);
	check_u64(rest.count, 1);
	check_str(rest.args[0], "-f");
	check(!rest.command);
	check(parse_with(&launcher, "-f -- cmd -g -- x") == OPTIONS_RUN && got.flag && !got.other);
	check_u64(rest.command_count, 4);
	check_str(rest.command[1], "-g");
	check(!rest.command[4]);
	check(parse_with(&launcher, "--") == OPTIONS_RUN && rest.command && !rest.command_count);
}

static void complains(const char *line, const char *words)
{
	check_u64((uint64_t)parse(line), STATUS_USAGE);
	if (!strstr(said, words) || !strstr(said, "Try \"sonde test --help\"")) {
		check(!"the complaint has the words");
		printf("%s\nlacks: %s\n", said, words);
	}
}

TEST(complaints)
{
	complains("--nope", "unknown option --nope");
	complains("--fla", "unknown option --fla");
	complains("-fz", "unknown option -z");
	complains("--flag=1", "--flag takes no value");
	complains("-s", "--text needs a value (WORDS)");
	complains("-n 0", "--number: '0' is not between 1 and 100");
	complains("-n 1x", "'1x' is not a whole number");
	complains("-n -1", "'-1' is not a whole number");
	complains("--even odd", "'odd' is odd");
	complains("a b", "one argument too many: 'b'");
	complains("--tid 0", "not between 1");
}

static uint64_t value_of(int (*parse_one)(const char *, uint64_t *, struct err *), const char *text)
{
	struct err err = {0};
	uint64_t v = 0;

	return parse_one(text, &v, &err) ? UINT64_MAX : v;
}

TEST(numbers)
{
	check_u64(value_of(option_number, "42"), 42);
	check_u64(value_of(option_number, ""), UINT64_MAX);
	check_u64(value_of(option_number, " 1"), UINT64_MAX);
	check_u64(value_of(option_number, "99999999999999999999"), UINT64_MAX);
	check_u64(value_of(option_size, "64K"), 65536);
	check_u64(value_of(option_size, "2MiB"), 2 << 20);
	check_u64(value_of(option_size, "1.5M"), UINT64_MAX);
	check_u64(value_of(option_size, "99999999999999G"), UINT64_MAX);
	check_u64(value_of(option_duration, "10"), 10000000000);
	check_u64(value_of(option_duration, "2.5"), 2500000000);
	check_u64(value_of(option_duration, "300ms"), 300000000);
	check_u64(value_of(option_duration, "5m"), 300000000000);
	check_u64(value_of(option_duration, "1.s"), UINT64_MAX);
	check_u64(value_of(option_duration, "10 s"), UINT64_MAX);
}

TEST(thread_patterns)
{
	struct thread_options none = {0}, good = {.pattern = "^w[0-9]+$"}, bad = {.pattern = "("};
	struct err err = {0};
	regex_t re;
	bool given;

	check(!thread_options_regex(&none, &re, &given, &err) && !given);
	check(!thread_options_regex(&good, &re, &given, &err) && given);
	check(!regexec(&re, "w12", 0, NULL, 0) && regexec(&re, "xw12", 0, NULL, 0));
	regfree(&re);
	check(thread_options_regex(&bad, &re, &given, &err) == -EINVAL && !given);
	check(strstr(err.text, "'('"));
}

TEST(terminal_widths)
{
	check_u64(term_width("abc"), 3);
	check_u64(term_width("a\xc3\xa9…"), 3);
	check_u64(term_width("e\xcc\x81"), 1);         /* a combining accent */
	check_u64(term_width("\xe6\xbc\xa2"), 2);      /* an ideograph */
	check_u64(term_width("\xff\xc3("), 3);         /* not UTF-8 */
	check_u64(term_fit("\xe6\xbc\xa2\xe6\xbc\xa2", 3), 3);
	check_u64(term_fit("abc", 9), 3);
}

TEST(no_colour_in_files)
{
	FILE *file = tmpfile();
	struct term t;

	setenv("TERM", "xterm", 1);
	setenv("COLUMNS", "120", 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	t = term_describe(fileno(file));
	check(!t.interactive && !t.colour && t.unicode);
	check_u64(t.columns, 120);
	setenv("LC_ALL", "C", 1);
	setenv("COLUMNS", "7", 1);
	t = term_describe(fileno(file));
	check(!t.unicode);
	check_u64(t.columns, 40);
	fclose(file);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(every_spelling), T(end_of_options), T(complaints),
		T(numbers), T(thread_patterns), T(terminal_widths), T(no_colour_in_files));
}
