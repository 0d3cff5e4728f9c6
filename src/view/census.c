/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/census.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "view/view_priv.h"

#define COUNT_COLUMNS 13u
#define BYTES_COLUMNS 12u

/* ---- columns ---- */

/* Text at the right edge of a column. */
static void right(struct buf *out, const struct buf *text, size_t columns)
{
	size_t width = text->data ? term_width(text->data) : 0;

	for (; width < columns; width++)
		buf_char(out, ' ');
	buf_str(out, text->data ? text->data : "");
}

static void add_count(struct buf *out, uint64_t n, size_t columns)
{
	struct buf text = {0};

	words_count(&text, n);
	right(out, &text, columns);
	buf_release(&text);
}

static void add_bytes(struct buf *out, uint64_t n, size_t columns)
{
	struct buf text = {0};

	words_bytes(&text, n);
	right(out, &text, columns);
	buf_release(&text);
}

static uint64_t magnitude(int64_t n)
{
	return n < 0 ? -(uint64_t)n : (uint64_t)n;
}

static void add_signed_count(struct buf *out, int64_t n, size_t columns)
{
	struct buf text = {0};

	buf_str(&text, n < 0 ? "-" : n ? "+" : "");
	words_count(&text, magnitude(n));
	right(out, &text, columns);
	buf_release(&text);
}

static void add_signed_bytes(struct buf *out, int64_t n, size_t columns)
{
	struct buf text = {0};

	buf_str(&text, n < 0 ? "-" : n ? "+" : "");
	words_bytes(&text, magnitude(n));
	right(out, &text, columns);
	buf_release(&text);
}

static void add_name(struct buf *out, const char *name, const struct term *t, size_t used)
{
	name_fit(out, name, t->columns > used + 12 && t->interactive ? t->columns - used : 0, t->unicode);
	buf_char(out, '\n');
}

/* ---- what could not be seen ---- */

static void add_doubts(const struct python_census *c, const struct term *t, struct buf *out)
{
	if (c->gaps) {
		paint_on(out, t, PAINT_WARN);
		buf_printf(out, "%" PRIu64 " of the collector's lists changed too fast to be followed in one go: "
			"objects may be missing.\n", c->gaps);
		paint_off(out, t, PAINT_WARN);
	}
	if (c->cut) {
		paint_on(out, t, PAINT_WARN);
		buf_str(out, "There are more objects than were counted.\n");
		paint_off(out, t, PAINT_WARN);
	}
	if (c->lost * 1000 > c->objects) {
		buf_str(out, "Gone before they could be looked at: ");
		words_count(out, c->lost);
		buf_str(out, " objects.\n");
	}
}

/* An arena that is mostly empty is worth a word: it is not given back. */
#define MOSTLY_EMPTY_PERCENT 70

static void add_pools(const struct python_pools *p, const struct term *t, struct buf *out)
{
	double used = percent_of(p->used_bytes, p->arena_bytes);

	if (!p->arenas)
		return;
	paint_on(out, t, used < MOSTLY_EMPTY_PERCENT ? PAINT_WARN : PAINT_DIM);
	buf_str(out, "Small blocks (up to 512 bytes): ");
	words_bytes(out, p->used_bytes);
	buf_str(out, " in use of ");
	words_bytes(out, p->arena_bytes);
	buf_str(out, " in ");
	words_count(out, p->arenas);
	buf_str(out, p->arenas == 1 ? " arena" : " arenas");
	if (used < MOSTLY_EMPTY_PERCENT) {
		buf_str(out, " (");
		words_share(out, used);
		buf_str(out, "): an arena is given back when nothing of it is in use any more");
	}
	buf_char(out, '.');
	paint_off(out, t, used < MOSTLY_EMPTY_PERCENT ? PAINT_WARN : PAINT_DIM);
	buf_char(out, '\n');
}

static void add_blind_spots(const struct python_census *c, const struct census_facts *f,
	const struct census_options *o, struct buf *out)
{
	uint64_t bytes = c->bytes + c->loose_bytes;

	paint_on(out, &o->term, PAINT_DIM);
	if (!o->loose)
		buf_str(out, "Not counted: str, bytes, int, float and what holds only such; --all counts them.\n");
	buf_str(out, "Not seen: memory that is no Python object (arrays of numpy, C libraries, free blocks).");
	if (f->resident_bytes) {
		buf_str(out, " The process has ");
		words_bytes(out, f->resident_bytes);
		buf_str(out, " of memory, ");
		words_share(out, percent_of(bytes, f->resident_bytes));
		buf_str(out, " of it in these objects.");
	}
	paint_off(out, &o->term, PAINT_DIM);
	buf_char(out, '\n');
}

/* ---- a census ---- */

static void add_headline(const struct python_census *c, const struct census_facts *f, struct buf *out)
{
	words_text(out, f->name);
	buf_printf(out, " (%d), CPython %s: ", f->pid, f->version);
	words_count(out, c->objects + c->loose);
	buf_str(out, " objects of ");
	words_count(out, c->rows.len);
	buf_str(out, c->rows.len == 1 ? " type, " : " types, ");
	words_bytes(out, c->bytes + c->loose_bytes);
	buf_str(out, ", counted in ");
	words_duration(out, f->took_ns);
	if (c->interpreters > 1)
		buf_printf(out, ", in %" PRIu64 " interpreters", c->interpreters);
	if (c->frozen) {
		buf_str(out, "; ");
		words_count(out, c->frozen);
		buf_str(out, " of them frozen (gc.freeze)");
	}
	buf_char(out, '\n');
}

static void add_rows(const struct python_census *c, const struct census_options *o, struct buf *out)
{
	uint64_t objects = 0, bytes = 0;
	size_t shown = c->rows.len < o->top ? c->rows.len : o->top;

	buf_str(out, "\n      objects       bytes  type\n");
	for (size_t i = 0; i < c->rows.len; i++) {
		const struct python_census_row *row = &c->rows.data[i];

		if (i >= shown) {
			objects += row->objects + row->loose;
			bytes += row->bytes + row->loose_bytes;
			continue;
		}
		add_count(out, row->objects + row->loose, COUNT_COLUMNS);
		add_bytes(out, row->bytes + row->loose_bytes, BYTES_COLUMNS);
		buf_str(out, "  ");
		add_name(out, row->name, &o->term, COUNT_COLUMNS + BYTES_COLUMNS + 2);
	}
	if (shown < c->rows.len) {
		add_count(out, objects, COUNT_COLUMNS);
		add_bytes(out, bytes, BYTES_COLUMNS);
		buf_printf(out, "  of %zu more types\n", c->rows.len - shown);
	}
	buf_char(out, '\n');
}

int view_census(const struct python_census *c, const struct census_facts *f, const struct census_options *o,
	struct buf *out, struct err *err)
{
	add_headline(c, f, out);
	add_rows(c, o, out);
	add_doubts(c, &o->term, out);
	add_pools(&f->pools, &o->term, out);
	add_blind_spots(c, f, o, out);
	return out->failed ? err_nomem(err) : 0;
}

/* ---- growth ---- */

static void add_change(const struct python_growth *g, const struct census_options *o, struct buf *out)
{
	struct buf now = {0};

	add_signed_count(out, g->objects, COUNT_COLUMNS);
	add_signed_bytes(out, g->bytes, BYTES_COLUMNS + 1);
	buf_str(out, "  ");
	name_fit(out, g->name, 0, o->term.unicode);
	buf_str(&now, " (now ");
	words_count(&now, g->now);
	buf_str(&now, ", ");
	words_bytes(&now, g->now_bytes);
	buf_char(&now, ')');
	paint(out, &o->term, PAINT_DIM, now.data ? now.data : "");
	buf_char(out, '\n');
	buf_release(&now);
}

int view_census_growth(const struct python_census *earlier, const struct python_census *c,
	const struct census_facts *f, const struct census_options *o, struct buf *out, struct err *err)
{
	struct python_growths growths = {0};
	size_t shown = 0;

	if (python_census_growth(earlier, c, &growths))
		return err_nomem(err);
	buf_str(out, "\nAfter ");
	words_duration(out, f->since_ns);
	buf_str(out, ": ");
	words_count(out, c->objects + c->loose);
	buf_str(out, " objects, ");
	words_bytes(out, c->bytes + c->loose_bytes);
	buf_str(out, growths.len ? "; in the last " : "; no type has changed in the last ");
	words_duration(out, f->gap_ns);
	buf_str(out, growths.len ? ":\n" : ".\n");
	vec_each(&growths, g)
	{
		/* What has become less is at the end of the list. */
		if (g->bytes <= 0 || shown >= o->top)
			break;
		add_change(g, o, out);
		shown++;
	}
	for (size_t i = growths.len; i-- > 0 && growths.data[i].bytes < 0 && shown < o->top; shown++)
		add_change(&growths.data[i], o, out);
	add_doubts(c, &o->term, out);
	vec_release(&growths);
	return out->failed ? err_nomem(err) : 0;
}

/* ---- JSON ---- */

static void json_rows(const struct python_census *c, size_t top, struct buf *out)
{
	buf_str(out, "\"types\":[");
	for (size_t i = 0; i < c->rows.len && i < top; i++) {
		const struct python_census_row *row = &c->rows.data[i];

		buf_str(out, i ? ",{\"name\":" : "{\"name\":");
		buf_json(out, row->name);
		buf_printf(out, ",\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"loose\":%" PRIu64
			",\"loose_bytes\":%" PRIu64 "}", row->objects, row->bytes, row->loose, row->loose_bytes);
	}
	buf_char(out, ']');
}

static int json_growth(const struct python_census *earlier, const struct python_census *c, size_t top,
	struct buf *out, struct err *err)
{
	struct python_growths growths = {0};

	if (python_census_growth(earlier, c, &growths))
		return err_nomem(err);
	buf_str(out, ",\"growth\":[");
	for (size_t i = 0; i < growths.len && i < top; i++) {
		const struct python_growth *g = &growths.data[i];

		buf_str(out, i ? ",{\"name\":" : "{\"name\":");
		buf_json(out, g->name);
		buf_printf(out, ",\"objects\":%" PRId64 ",\"bytes\":%" PRId64 ",\"now\":%" PRIu64
			",\"now_bytes\":%" PRIu64 "}", g->objects, g->bytes, g->now, g->now_bytes);
	}
	buf_char(out, ']');
	vec_release(&growths);
	return 0;
}

int view_census_json(const struct python_census *earlier, const struct python_census *c,
	const struct census_facts *f, const struct census_options *o, struct buf *out, struct err *err)
{
	int rc = 0;

	buf_printf(out, "{\"pid\":%d,\"name\":", f->pid);
	buf_json(out, f->name);
	buf_str(out, ",\"python\":");
	buf_json(out, f->version);
	buf_printf(out, ",\"since_ns\":%" PRIu64 ",\"took_ns\":%" PRIu64 ",\"resident_bytes\":", f->since_ns,
		f->took_ns);
	if (f->resident_bytes)
		buf_printf(out, "%" PRIu64, f->resident_bytes);
	else
		buf_str(out, "null");
	buf_printf(out, ",\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"loose\":%" PRIu64
		",\"loose_bytes\":%" PRIu64 ",\"loose_counted\":%s,\"frozen\":%" PRIu64 ",\"interpreters\":%" PRIu64,
		c->objects, c->bytes, c->loose, c->loose_bytes, o->loose ? "true" : "false", c->frozen,
		c->interpreters);
	buf_printf(out, ",\"gaps\":%" PRIu64 ",\"again\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"cut\":%s,", c->gaps,
		c->again, c->lost, c->cut ? "true" : "false");
	buf_printf(out, "\"pools\":{\"arenas\":%" PRIu64 ",\"arena_bytes\":%" PRIu64 ",\"pools\":%" PRIu64
		",\"pool_bytes\":%" PRIu64 ",\"used_bytes\":%" PRIu64 "},", f->pools.arenas, f->pools.arena_bytes,
		f->pools.pools, f->pools.pool_bytes, f->pools.used_bytes);
	json_rows(c, o->top, out);
	if (earlier)
		rc = json_growth(earlier, c, o->top, out, err);
	buf_str(out, "}\n");
	return rc ? rc : out->failed ? err_nomem(err) : 0;
}
