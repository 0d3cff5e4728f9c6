/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/when.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/options.h"

#define DEFAULT_FOR_NS NS_PER_S
#define LEAST_INTERVAL_NS (10 * NS_PER_MS)
#define MOST_INTERVAL_NS (500 * NS_PER_MS)
#define WORD_BYTES 128

#define GRAMMAR                                                                                    \
	"conditions are: blocked MAIN|ANY|TID|/NAME/ > TIME, cpu > N% for TIME, rss > SIZE, "      \
	"threads > N"

/* ---- words ---- */

static const char *skip_blanks(const char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	return s;
}

/* The next word, which ends before a blank, < or >; false when it is too long. */
static bool take_word(const char **at, char *ret, size_t size)
{
	const char *s = skip_blanks(*at);
	size_t len = strcspn(s, " \t<>");

	if (len >= size)
		return false;
	memcpy(ret, s, len);
	ret[len] = '\0';
	*at = s + len;
	return true;
}

static int complain(const char *text, struct err *err)
{
	return err_set(err, EINVAL, "--when '%.200s': %s", text, GRAMMAR);
}

static int complain_part(const char *text, struct err *err)
{
	return err_prefix(err, "--when '%.200s'", text);
}

static int take_comparison(struct when *w, const char **at, struct err *err)
{
	const char *s = skip_blanks(*at);

	if (*s != '>' && *s != '<')
		return complain(w->text, err);
	w->below = *s == '<';
	if (w->below && w->kind == WHEN_BLOCKED)
		return complain(w->text, err);
	*at = skip_blanks(s + 1);
	return 0;
}

/* ---- parts ---- */

/* /REGEX/: up to the last slash, for what follows holds none. */
static int take_name(struct when *w, const char **at, struct err *err)
{
	const char *open = *at, *close = strrchr(open, '/');
	char pattern[WORD_BYTES], why[160];
	size_t len = (size_t)(close - open);
	int rc;

	if (len < 2 || len > sizeof(pattern))
		return complain(w->text, err);
	memcpy(pattern, open + 1, len - 1);
	pattern[len - 1] = '\0';
	rc = regcomp(&w->name, pattern, REG_EXTENDED | REG_NOSUB);
	if (rc) {
		regerror(rc, &w->name, why, sizeof(why));
		return err_set(err, EINVAL, "--when: thread name pattern '%s': %s", pattern, why);
	}
	w->who = WHEN_NAME;
	*at = close + 1;
	return 0;
}

static int take_who(struct when *w, const char **at, struct err *err)
{
	char word[WORD_BYTES];
	uint64_t tid;

	*at = skip_blanks(*at);
	if (**at == '/')
		return take_name(w, at, err);
	if (!take_word(at, word, sizeof(word)))
		return complain(w->text, err);
	if (!strcasecmp(word, "main")) {
		w->who = WHEN_MAIN;
		return 0;
	}
	if (!strcasecmp(word, "any")) {
		w->who = WHEN_ANY;
		return 0;
	}
	if (option_number(word, &tid, NULL) || !tid || tid > INT32_MAX)
		return complain(w->text, err);
	w->who = WHEN_TID;
	w->tid = (pid_t)tid;
	return 0;
}

/* A decimal number with or without %. */
static int parse_percent(const char *word, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)word[0]))
		return -EINVAL;
	*ret = strtod(word, &end);
	if (*end == '%')
		end++;
	return *end || *ret > 1e6 ? -EINVAL : 0;
}

static int take_percent(struct when *w, const char **at, struct err *err)
{
	char word[WORD_BYTES];

	w->duration_ns = DEFAULT_FOR_NS;
	if (!take_word(at, word, sizeof(word)) || parse_percent(word, &w->percent) ||
		!take_word(at, word, sizeof(word)))
		return complain(w->text, err);
	if (!word[0])
		return 0;
	if (strcmp(word, "for") != 0 || !take_word(at, word, sizeof(word)))
		return complain(w->text, err);
	return option_duration(word, &w->duration_ns, err) ? complain_part(w->text, err) : 0;
}

static int take_limit(struct when *w, const char **at, struct err *err)
{
	char word[WORD_BYTES];
	int rc;

	if (w->kind == WHEN_CPU)
		return take_percent(w, at, err);
	if (!take_word(at, word, sizeof(word)) || !word[0])
		return complain(w->text, err);
	rc = w->kind == WHEN_BLOCKED ? option_duration(word, &w->duration_ns, err)
		: w->kind == WHEN_RSS ? option_size(word, &w->limit, err)
				      : option_number(word, &w->limit, err);
	return rc ? complain_part(w->text, err) : 0;
}

static int take_kind(struct when *w, const char **at, struct err *err)
{
	static const char *const kinds[] = {
		[WHEN_BLOCKED] = "blocked",
		[WHEN_CPU] = "cpu",
		[WHEN_RSS] = "rss",
		[WHEN_THREADS] = "threads",
	};
	char word[WORD_BYTES];

	if (!take_word(at, word, sizeof(word)))
		return complain(w->text, err);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(word, kinds[i]) != 0)
			continue;
		w->kind = (enum when_kind)i;
		return 0;
	}
	return complain(w->text, err);
}

int when_parse(const char *text, struct when *ret, struct err *err)
{
	struct when w = {.text = strdup(text), .who = WHEN_ANY};
	const char *at = text;
	int rc;

	if (!w.text)
		return err_nomem(err);
	rc = take_kind(&w, &at, err);
	if (!rc && w.kind == WHEN_BLOCKED)
		rc = take_who(&w, &at, err);
	if (!rc)
		rc = take_comparison(&w, &at, err);
	if (!rc)
		rc = take_limit(&w, &at, err);
	if (!rc && *skip_blanks(at))
		rc = complain(text, err);
	if (!rc && w.kind <= WHEN_CPU && w.duration_ns < LEAST_INTERVAL_NS)
		rc = err_set(err, EINVAL, "--when '%.200s': times below 10ms cannot be told", text);
	if (rc)
		when_release(&w);
	else
		*ret = w;
	return rc;
}

void when_release(struct when *w)
{
	if (w->who == WHEN_NAME)
		regfree(&w->name);
	free(w->text);
	*w = (struct when){0};
}

/* ---- judging ---- */

bool when_is_about(const struct when *w, const struct when_thread *t)
{
	switch (w->who) {
	case WHEN_MAIN:
		return t->is_main;
	case WHEN_TID:
		return t->tid == w->tid;
	case WHEN_NAME:
		return t->name && !regexec(&w->name, t->name, 0, NULL, 0);
	default:
		return true;
	}
}

static bool is_blocked(const struct when *w, const struct when_facts *f, size_t *ret_thread)
{
	uint64_t longest = w->duration_ns;
	bool found = false;

	for (size_t i = 0; i < f->known_threads; i++) {
		const struct when_thread *t = &f->threads[i];

		if (t->idle_ns <= longest || !when_is_about(w, t))
			continue;
		longest = t->idle_ns;
		*ret_thread = i;
		found = true;
	}
	return found;
}

static bool compares(const struct when *w, double value, double limit)
{
	return w->below ? value < limit : value > limit;
}

/* Whether it has been true for as long as is asked for. */
static bool holds(struct when *w, const struct when_facts *f, size_t *ret_thread)
{
	bool now;

	switch (w->kind) {
	case WHEN_BLOCKED:
		return is_blocked(w, f, ret_thread);
	case WHEN_CPU:
		now = f->cpu_percent >= 0 && compares(w, f->cpu_percent, w->percent);
		break;
	case WHEN_RSS:
		now = compares(w, (double)f->rss_bytes, (double)w->limit);
		break;
	default:
		now = compares(w, (double)f->thread_count, (double)w->limit);
	}
	if (!now)
		w->true_since_ns = 0;
	else if (!w->true_since_ns)
		w->true_since_ns = f->since_ns;
	return now && f->now_ns - w->true_since_ns >= w->duration_ns;
}

bool when_fires(
	struct when *w, const struct when_facts *f, uint64_t cool_down_ns, size_t *ret_thread)
{
	if (!holds(w, f, ret_thread)) {
		w->fired = false;
		return false;
	}
	if (w->fired || f->now_ns < w->quiet_until_ns)
		return false;
	w->fired = true;
	w->quiet_until_ns = f->now_ns + cool_down_ns;
	return true;
}

uint64_t when_interval_ns(const struct when *w)
{
	uint64_t ns = w->duration_ns / 10;

	if (w->kind == WHEN_RSS || w->kind == WHEN_THREADS || ns > MOST_INTERVAL_NS)
		return MOST_INTERVAL_NS;
	return ns < LEAST_INTERVAL_NS ? LEAST_INTERVAL_NS : ns;
}
