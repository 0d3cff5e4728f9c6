/* SPDX-License-Identifier: BSD-2-Clause */
/* The grammar is that of `record --when`, with the thread in front, as one says it. */
#include "cmd/watch_for.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static int complain(const char *text, struct err *err)
{
	return err_set(err, EINVAL,
		"--watch '%.200s': conditions are: main|any|TID|NAME blocked > TIME, the same with `not run`, "
		"and deadlock; NAME is a regular expression",
		text);
}

static bool is_any(const char *word, size_t len, const char *const *words)
{
	for (; *words; words++)
		if (strlen(*words) == len && !strncasecmp(word, *words, len))
			return true;
	return false;
}

/* "blocked WHO > TIME" of it; a name becomes /NAME/. */
static void turn_round(const char *who, size_t len, const char *rest, struct buf *out)
{
	static const char *const words[] = {"main", "any", NULL};
	bool plain = is_any(who, len, words) || strspn(who, "0123456789") == len ||
		(len > 1 && who[0] == '/' && who[len - 1] == '/');

	buf_str(out, "blocked ");
	buf_str(out, plain ? "" : "/");
	buf_add(out, who, len);
	buf_str(out, plain ? " " : "/ ");
	buf_str(out, rest);
	buf_char(out, '\0');
}

/* The last place where `verb` stands alone; NULL. */
static const char *find_verb(const char *text, const char *verb)
{
	const char *found = NULL;
	size_t len = strlen(verb);

	for (const char *at = text; (at = strstr(at, verb)); at++)
		if (at > text && at[-1] == ' ' && (at[len] == ' ' || at[len] == '>'))
			found = at;
	return found;
}

static int parse(const char *text, struct watch_for *w, struct err *err)
{
	const char *verb = find_verb(text, "blocked");
	struct buf turned = {0};
	size_t who;
	int rc;

	if (!strncmp(text, "blocked ", 8)) {
		rc = when_parse(text, &w->when, NULL);
		return rc ? complain(text, err) : 0;
	}
	w->kind = verb ? WATCH_BLOCKED : WATCH_NOT_RUN;
	if (!verb)
		verb = find_verb(text, "not run");
	if (!verb)
		return complain(text, err);
	for (who = (size_t)(verb - text); who && text[who - 1] == ' '; who--)
		;
	turn_round(text, who, verb + strlen(w->kind == WATCH_BLOCKED ? "blocked" : "not run"), &turned);
	rc = turned.failed ? -ENOMEM : when_parse(turned.data, &w->when, NULL);
	buf_release(&turned);
	return rc ? complain(text, err) : 0;
}

int watch_for_parse(const char *text, struct watch_for *ret, struct err *err)
{
	struct watch_for w = {.kind = WATCH_BLOCKED};
	int rc;

	text += strspn(text, " ");
	if (!strncmp(text, "deadlock", 8) && !text[8 + strspn(text + 8, " ")]) {
		w.kind = WATCH_DEADLOCK;
		rc = when_parse("blocked any > 1s", &w.when, err);
	} else {
		rc = parse(text, &w, err);
	}
	if (!rc)
		*ret = w;
	return rc;
}

void watch_for_release(struct watch_for *w)
{
	when_release(&w->when);
}
