/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/alive.h"

#include <inttypes.h>
#include <string.h>

#include "view/view_priv.h"

#define INDENT 6u

/* ---- one chain ---- */

static void add_thread(const struct python_alive_way *way, struct buf *out)
{
	buf_str(out, way->main_thread ? "main thread" : "thread");
	if (way->native_id)
		buf_printf(out, " %" PRIu32, way->native_id);
}

static void add_root(const struct python_alive_way *way, struct buf *out)
{
	switch (way->root) {
	case PYTHON_ROOT_MODULE:
		buf_str(out, "module ");
		words_text(out, way->root_name ? way->root_name : "?");
		break;
	case PYTHON_ROOT_FRAME:
		add_thread(way, out);
		buf_str(out, " in ");
		words_text(out, way->root_name ? way->root_name : "?");
		break;
	case PYTHON_ROOT_THREAD:
		buf_str(out, "what the interpreter keeps for ");
		add_thread(way, out);
		break;
	case PYTHON_ROOT_INTERPRETER:
		buf_str(out, "what the interpreter keeps");
		break;
	case PYTHON_ROOT_UNSEEN:
		buf_printf(out, "unseen (%" PRIu64 " %s more than were found)", way->unseen,
			way->unseen == 1 ? "reference" : "references");
		break;
	}
}

static void add_object(const struct python_alive_step *step, bool last, struct buf *out)
{
	buf_str(out, " (");
	words_text(out, step->type);
	if (step->count) {
		buf_str(out, " of ");
		words_count(out, step->count);
	}
	if (last)
		buf_printf(out, " at 0x%" PRIx64, step->object);
	buf_char(out, ')');
}

/* What is referred to how, in a form that needs no explanation. */
static void add_reference(const struct python_alive_way *way, size_t i, struct buf *out)
{
	const char *words = way->steps.data[i].reference;

	if (!i && way->root == PYTHON_ROOT_FRAME && *words != '.' && *words != '[')
		buf_str(out, strchr(words, ' ') ? "" : "variable ");
	if (!i && way->root == PYTHON_ROOT_MODULE && *words == '.')
		words++;
	while (*words == ' ')
		words++;
	words_text(out, words);
}

/* Steps in a line each would be long, all in one too wide: they are wrapped. */
static void add_wrapped(struct buf *out, const struct term *t, const struct buf *piece, size_t *column)
{
	size_t width = term_width(piece->data ? piece->data : ""), limit = t->columns > 40 ? t->columns : 40;

	if (*column > INDENT && *column + width + 4 > limit) {
		out->data[--out->len] = 0; /* the space */
		buf_printf(out, "\n%*s", (int)INDENT, "");
		*column = INDENT;
	}
	if (*column != INDENT - 2) {
		buf_str(out, "-> ");
		*column += 3;
	}
	buf_str(out, piece->data ? piece->data : "");
	buf_char(out, ' ');
	*column += width + 1;
}

static void add_chain(const struct python_alive_way *way, const struct term *t, struct buf *out)
{
	struct buf piece = {0};
	size_t column = INDENT - 2;

	buf_printf(out, "%*s", (int)(INDENT - 2), "");
	add_root(way, &piece);
	add_wrapped(out, t, &piece, &column);
	if (way->root == PYTHON_ROOT_UNSEEN || way->root == PYTHON_ROOT_INTERPRETER) {
		buf_clear(&piece);
		words_text(&piece, way->first_type);
		buf_printf(&piece, " at 0x%" PRIx64, way->first);
		add_wrapped(out, t, &piece, &column);
	}
	for (size_t i = 0; i < way->steps.len; i++) {
		buf_clear(&piece);
		add_reference(way, i, &piece);
		add_object(&way->steps.data[i], i + 1 == way->steps.len, &piece);
		add_wrapped(out, t, &piece, &column);
	}
	while (out->len && out->data[out->len - 1] == ' ')
		out->data[--out->len] = 0;
	buf_char(out, '\n');
	buf_release(&piece);
}

/* ---- all ---- */

static void add_number(struct buf *out, uint64_t n, const char *one, const char *more)
{
	words_count(out, n);
	buf_printf(out, " %s", n == 1 ? one : more);
}

static void add_rest(const struct python_alive *a, const struct term *t, struct buf *out)
{
	if (a->ways_left_out) {
		add_number(out, a->instances_left_out, "is", "are");
		buf_str(out, " kept in ");
		add_number(out, a->ways_left_out, "other way", "other ways");
		buf_str(out, " (--paths shows more).\n");
	}
	if (a->behind) {
		add_number(out, a->behind, "is", "are");
		buf_str(out, " kept by others of the type.\n");
	}
	if (a->nobody) {
		paint_on(out, t, PAINT_WARN);
		add_number(out, a->nobody, "is", "are");
		buf_printf(out, " garbage: nothing leads to %s, and all references found are of circles (0x%" PRIx64
			"). The collector has not come yet, or is off.\n",
			a->nobody == 1 ? "it" : "them", a->nobody_example);
		paint_off(out, t, PAINT_WARN);
	}
	if (a->unseen)
		buf_str(out, "\"unseen\": native code, or a value in an expression that is being computed.\n");
	if (a->gaps)
		buf_printf(out, "%" PRIu64 " of the collector's lists changed too fast to be followed in one go: "
			"objects may be missing.\n", a->gaps);
	if (a->cut)
		buf_str(out, "There are more objects than were followed.\n");
}

int view_alive(const struct python_alive *a, const struct census_facts *f, const struct term *t,
	struct buf *out, struct err *err)
{
	words_text(out, f->name);
	buf_printf(out, " (%d), CPython %s: ", f->pid, f->version);
	words_count(out, a->instances);
	buf_printf(out, a->instances == 1 ? " object of type %s, " : " objects of type %s, ", a->type);
	words_bytes(out, a->bytes);
	buf_str(out, "; followed references of ");
	words_count(out, a->seen);
	buf_str(out, " objects in ");
	words_duration(out, f->took_ns);
	buf_str(out, "\n\n");
	vec_each(&a->ways, way)
	{
		paint_on(out, t, PAINT_TITLE);
		add_number(out, way->instances, "is kept by", "are kept by");
		paint_off(out, t, PAINT_TITLE);
		buf_char(out, '\n');
		add_chain(way, t, out);
		buf_char(out, '\n');
	}
	add_rest(a, t, out);
	return out->failed ? err_nomem(err) : 0;
}

/* ---- JSON ---- */

static void json_way(const struct python_alive_way *way, struct buf *out)
{
	static const char *const roots[] = {
		[PYTHON_ROOT_MODULE] = "module",
		[PYTHON_ROOT_FRAME] = "frame",
		[PYTHON_ROOT_THREAD] = "thread",
		[PYTHON_ROOT_INTERPRETER] = "interpreter",
		[PYTHON_ROOT_UNSEEN] = "unseen",
	};

	buf_printf(out, "{\"root\":\"%s\",\"root_name\":", roots[way->root]);
	buf_json(out, way->root_name ? way->root_name : "");
	buf_printf(out, ",\"tid\":%" PRIu32 ",\"first\":%" PRIu64 ",\"first_type\":", way->native_id, way->first);
	buf_json(out, way->first_type ? way->first_type : "");
	buf_printf(out, ",\"unseen\":%" PRIu64 ",\"instances\":%" PRIu64 ",\"steps\":[", way->unseen,
		way->instances);
	for (size_t i = 0; i < way->steps.len; i++) {
		const struct python_alive_step *step = &way->steps.data[i];

		buf_str(out, i ? ",{\"reference\":" : "{\"reference\":");
		buf_json(out, step->reference);
		buf_str(out, ",\"type\":");
		buf_json(out, step->type);
		buf_printf(out, ",\"address\":%" PRIu64 ",\"count\":%" PRIu64 "}", step->object, step->count);
	}
	buf_str(out, "]}");
}

int view_alive_json(
	const struct python_alive *a, const struct census_facts *f, struct buf *out, struct err *err)
{
	buf_printf(out, "{\"pid\":%d,\"name\":", f->pid);
	buf_json(out, f->name);
	buf_str(out, ",\"python\":");
	buf_json(out, f->version);
	buf_str(out, ",\"type\":");
	buf_json(out, a->type);
	buf_printf(out, ",\"took_ns\":%" PRIu64 ",\"instances\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"behind\":%" PRIu64 ",\"garbage\":%" PRIu64 ",\"unseen\":%" PRIu64 ",\"seen\":%" PRIu64,
		f->took_ns, a->instances, a->bytes, a->behind, a->nobody, a->unseen, a->seen);
	buf_printf(out, ",\"ways_left_out\":%" PRIu64 ",\"instances_left_out\":%" PRIu64 ",\"gaps\":%" PRIu64
		",\"cut\":%s,\"ways\":[", a->ways_left_out, a->instances_left_out, a->gaps,
		a->cut ? "true" : "false");
	for (size_t i = 0; i < a->ways.len; i++) {
		buf_str(out, i ? "," : "");
		json_way(&a->ways.data[i], out);
	}
	buf_str(out, "]}\n");
	return out->failed ? err_nomem(err) : 0;
}
