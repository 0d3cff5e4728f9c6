/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs say themselves: three arrays of the JSON, three sections of a report. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "view/notes_priv.h"
#include "view/view_priv.h"

/* ---- JSON ---- */

/* No words for what JSON has no number for. */
static void add_number(struct buf *out, const struct profile_counter *c, const struct profile_value *v)
{
	double value = profile_value(c, v);

	if (c->kind == COUNTER_INT64)
		buf_printf(out, "%" PRId64, (int64_t)v->value);
	else if (isfinite(value))
		buf_printf(out, "%.17g", value);
	else
		buf_str(out, "null");
}

static void add_text(struct buf *out, const char *key, const char *text)
{
	buf_printf(out, ",\"%s\":", key);
	buf_json(out, text);
}

static const char *severity_word(uint8_t severity)
{
	static const char *const words[] = {"", "debug", "info", "message", "warning", "critical", "error"};

	return words[severity];
}

static void add_marks(const struct profile_notes *n, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\n\"marks\":[");
	vec_each(&n->marks, m) {
		if (m->severity != MARK_NO_MESSAGE)
			continue;
		buf_printf(out, "%s\n{\"time_ns\":%" PRIu64 ",\"duration_ns\":%" PRIu64, first ? "" : ",", m->time_ns,
			m->duration_ns);
		add_text(out, "group", m->group);
		add_text(out, "name", m->name);
		add_text(out, "message", m->message);
		buf_printf(out, ",\"pid\":%u,\"tid\":%u}", m->pid, m->tid);
		first = false;
	}
	buf_char(out, ']');
}

static void add_messages(const struct profile_notes *n, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\n\"messages\":[");
	vec_each(&n->marks, m) {
		if (m->severity == MARK_NO_MESSAGE)
			continue;
		buf_printf(out, "%s\n{\"time_ns\":%" PRIu64 ",\"severity\":\"%s\"", first ? "" : ",", m->time_ns,
			severity_word(m->severity));
		add_text(out, "domain", m->group);
		add_text(out, "message", m->message);
		buf_printf(out, ",\"pid\":%u,\"tid\":%u}", m->pid, m->tid);
		first = false;
	}
	buf_char(out, ']');
}

static void add_counters(const struct profile_notes *n, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\n\"counters\":[");
	vec_each(&n->counters, c) {
		if (!c->defined)
			continue;
		buf_printf(out, "%s\n{\"pid\":%u", first ? "" : ",", c->pid);
		add_text(out, "group", c->group);
		add_text(out, "name", c->name);
		add_text(out, "description", c->description);
		add_text(out, "kind", c->kind == COUNTER_DOUBLE ? "double" : "int64");
		buf_str(out, ",\"values\":[");
		vec_each(&c->values, v) {
			buf_printf(out, "%s[%" PRIu64 ",", v == c->values.data ? "" : ",", v->time_ns);
			add_number(out, c, v);
			buf_char(out, ']');
		}
		buf_str(out, "]}");
		first = false;
	}
	buf_char(out, ']');
}

void notes_json(const struct profile *p, struct buf *out)
{
	add_marks(p->notes, out);
	add_counters(p->notes, out);
	add_messages(p->notes, out);
}

/* ---- text ---- */

#define NUMBER_COLUMNS 14u
#define SHORT_ROWS 10u   /* of each section in a summary */
#define LONG_ROWS 1000u

static void cell(struct buf *out, const struct buf *text)
{
	buf_char(out, ' ');
	for (size_t i = text->len + 1; i < NUMBER_COLUMNS; i++)
		buf_char(out, ' ');
	buf_str(out, text->data ? text->data : "");
}

static void duration_cell(struct buf *out, uint64_t ns)
{
	struct buf text = {0};

	words_duration(&text, ns);
	cell(out, &text);
	out->failed |= text.failed;
	buf_release(&text);
}

static void count_cell(struct buf *out, uint64_t n)
{
	struct buf text = {0};

	words_count(&text, n);
	cell(out, &text);
	out->failed |= text.failed;
	buf_release(&text);
}

static void value_cell(struct buf *out, const struct profile_counter *c, const struct profile_value *v)
{
	struct buf text = {0};

	if (c->kind == COUNTER_INT64)
		buf_printf(&text, "%" PRId64, (int64_t)v->value);
	else
		buf_printf(&text, "%.6g", profile_value(c, v));
	cell(out, &text);
	out->failed |= text.failed;
	buf_release(&text);
}

static void title(struct buf *out, const struct view_options *o, const char *text, const char *columns)
{
	buf_char(out, '\n');
	paint(out, &o->term, PAINT_TITLE, text);
	paint(out, &o->term, PAINT_DIM, columns);
	buf_char(out, '\n');
}

static void add_name(struct buf *out, const struct view_options *o, const char *group, const char *name)
{
	struct buf both = {0};

	buf_str(out, "  ");
	buf_printf(&both, "%s%s%s", group, *group && *name ? ": " : "", name);
	name_fit(out, both.len ? both.data : "(no name)", o->term.columns > 60 ? o->term.columns - 60 : 0,
		o->term.unicode);
	out->failed |= both.failed;
	buf_release(&both);
	buf_char(out, '\n');
}

static void add_more(struct buf *out, const struct view_options *o, size_t left)
{
	struct buf text = {0};

	if (!left)
		return;
	buf_printf(&text, "  and %zu more\n", left);
	paint(out, &o->term, PAINT_DIM, text.data ? text.data : "");
	out->failed |= text.failed;
	buf_release(&text);
}

static int marks_section(const struct profile *p, const struct view_options *o, size_t rows, struct buf *out)
{
	struct profile_mark_sums sums = {0};
	int rc = profile_mark_sums(p, &sums);

	if (!rc && sums.len) {
		title(out, o, "Marks         ", "count           sum          mean       longest");
		for (size_t i = 0; i < sums.len && i < rows; i++) {
			const struct profile_mark_sum *s = &sums.data[i];

			buf_str(out, "     ");
			count_cell(out, s->count);
			duration_cell(out, s->sum_ns);
			duration_cell(out, s->sum_ns / s->count);
			duration_cell(out, s->most_ns);
			add_name(out, o, s->group, s->name);
		}
		add_more(out, o, sums.len > rows ? sums.len - rows : 0);
	}
	vec_release(&sums);
	return rc;
}

static void counter_row(const struct profile_counter *c, const struct view_options *o, struct buf *out)
{
	const struct profile_value *least = c->values.data, *most = least, *last = least;

	vec_each(&c->values, v) {
		if (profile_value(c, v) < profile_value(c, least))
			least = v;
		if (profile_value(c, v) > profile_value(c, most))
			most = v;
		last = v;
	}
	buf_str(out, "     ");
	count_cell(out, c->values.len);
	if (c->values.len) {
		value_cell(out, c, last);
		value_cell(out, c, least);
		value_cell(out, c, most);
	} else {
		buf_printf(out, "%*s", (int)(3 * NUMBER_COLUMNS), "");
	}
	add_name(out, o, c->group, c->name);
}

static void counters_section(const struct profile_notes *n, const struct view_options *o, size_t rows, struct buf *out)
{
	size_t shown = 0, count = 0;

	vec_each(&n->counters, c)
		count += c->defined;
	if (!count)
		return;
	title(out, o, "Counters     ", "values          last         least          most");
	vec_each(&n->counters, c) {
		if (!c->defined || shown >= rows)
			continue;
		counter_row(c, o, out);
		shown++;
	}
	add_more(out, o, count - shown);
}

static void messages_section(
	const struct profile *p, const struct view_options *o, size_t rows, struct buf *out)
{
	size_t shown = 0, count = 0;

	vec_each(&p->notes->marks, m)
		count += m->severity != MARK_NO_MESSAGE;
	if (!count)
		return;
	title(out, o, "Messages", "");
	vec_each(&p->notes->marks, m) {
		if (m->severity == MARK_NO_MESSAGE || shown >= rows)
			continue;
		buf_printf(out, "%12.3f s  %-8s  ", ((double)m->time_ns - (double)p->start_ns) / 1e9,
			severity_word(m->severity));
		buf_printf(out, "%s%s", m->group, *m->group ? ": " : "");
		name_fit(out, m->message, 0, o->term.unicode);
		buf_char(out, '\n');
		shown++;
	}
	add_more(out, o, count - shown);
}

int view_notes(const struct profile *p, const struct view_options *o, bool all, struct buf *out, struct err *err)
{
	size_t rows = all ? LONG_ROWS : SHORT_ROWS;

	if (!p->notes)
		return 0;
	if (marks_section(p, o, rows, out))
		return err_nomem(err);
	counters_section(p->notes, o, rows, out);
	messages_section(p, o, rows, out);
	return out->failed ? err_nomem(err) : 0;
}
