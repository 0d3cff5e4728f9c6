/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects as text for a person, from their bytes alone: no __repr__ is run. */
#include "python/object_priv.h"

#include <inttypes.h>
#include <string.h>

#include "python/text.h"

#define DOTS "\xe2\x80\xa6"
#define MOST_DEPTH 16u

struct show {
	struct python *p;
	struct buf *ret;
	size_t end;   /* where ret->len should not go past */
	unsigned depth; /* that containers are opened */
	unsigned open;  /* containers around this one */
	uint64_t path[MOST_DEPTH];
};

static void show(struct show *s, uint64_t object);

static size_t room(const struct show *s)
{
	return s->ret->len < s->end ? s->end - s->ret->len : 0;
}

static void show_plain(struct show *s, uint64_t object, const struct python_type *t)
{
	buf_printf(s->ret, "<%s at 0x%" PRIx64 ">", t->full_name, object);
}

static void add_escaped(struct buf *ret, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '\n')
			buf_str(ret, "\\n");
		else if (c == '\\' || c == '\'')
			buf_printf(ret, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			buf_printf(ret, "\\x%02x", c);
		/* U+0080 to U+009F control terminals as well. */
		else if (c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0)
			buf_printf(ret, "\\x%02x", (unsigned char)text[++i]);
		else
			buf_char(ret, (char)c);
	}
}

static bool show_str(struct show *s, uint64_t object)
{
	struct buf text = {0};
	bool cut = false;
	size_t most = room(s);
	bool ok = python_text(s->p, object, most > 8 ? most : 8, &text, &cut);

	if (ok) {
		buf_char(s->ret, '\'');
		add_escaped(s->ret, text.data ? text.data : "", text.len);
		buf_printf(s->ret, "%s'", cut ? DOTS : "");
	}
	buf_release(&text);
	return ok;
}

static bool show_bytes(struct show *s, uint64_t object)
{
	const struct python_layout *l = &s->p->layout;
	uint64_t size;
	uint8_t some[64];
	size_t n = room(s) < sizeof(some) ? room(s) : sizeof(some);

	if (!python_read_u64(s->p, object + l->bytes.size, &size))
		return false;
	if (n > size)
		n = (size_t)size;
	if (n && !python_read(s->p, object + l->bytes.data, some, n))
		return false;
	buf_str(s->ret, "b'");
	for (size_t i = 0; i < n; i++) {
		if (some[i] >= 0x20 && some[i] < 0x7f && some[i] != '\'' && some[i] != '\\')
			buf_char(s->ret, (char)some[i]);
		else
			buf_printf(s->ret, "\\x%02x", some[i]);
	}
	buf_printf(s->ret, "%s'", size > n ? DOTS : "");
	return true;
}

static bool show_float(struct show *s, uint64_t object)
{
	uint64_t bits;
	double real;

	if (!python_read_u64(s->p, object + s->p->layout.real.value, &bits))
		return false;
	memcpy(&real, &bits, sizeof(real));
	buf_printf(s->ret, "%.12g", real);
	return true;
}

static bool show_int(struct show *s, uint64_t object, const struct python_type *t)
{
	uint64_t digits = python_int_digits(s->p, object);
	int64_t value;

	if (!python_int(s->p, object, &value)) {
		if (digits)
			buf_printf(s->ret, "<int of about %" PRIu64 " bits>", digits * LONG_DIGIT_BITS);
		return digits;
	}
	if (!strcmp(t->name, "bool"))
		buf_str(s->ret, value ? "True" : "False");
	else
		buf_printf(s->ret, "%" PRId64, value);
	return true;
}

/* ---- containers ---- */

static bool enter(struct show *s, uint64_t object)
{
	for (unsigned i = 0; i < s->open; i++)
		if (s->path[i] == object)
			return false;
	if (s->open >= s->depth || s->open >= MOST_DEPTH)
		return false;
	s->path[s->open++] = object;
	return true;
}

static void show_more(struct show *s, uint64_t shown, uint64_t count)
{
	if (shown < count)
		buf_printf(s->ret, "%s" DOTS "%" PRIu64 " more", shown ? ", " : "", count - shown);
}

static bool show_items(struct show *s, uint64_t object, const struct python_type *t)
{
	bool tuple = t->flags & TYPE_IS_TUPLE;
	uint64_t count, first, item, i = 0;

	if (!python_items(s->p, object, &count, &first))
		return false;
	buf_char(s->ret, tuple ? '(' : '[');
	if (enter(s, object)) {
		for (; i < count && room(s); i++) {
			if (i)
				buf_str(s->ret, ", ");
			if (!python_read_u64(s->p, first + i * 8, &item))
				break;
			show(s, item);
		}
		s->open--;
	}
	show_more(s, i, count);
	buf_str(s->ret, !tuple ? "]" : i == 1 && count == 1 ? ",)" : ")");
	return true;
}

struct pairs {
	struct show *s;
	uint64_t shown;
};

static bool show_pair(void *ctx, uint64_t key, uint64_t value)
{
	struct pairs *pairs = (struct pairs *)ctx;

	if (!room(pairs->s))
		return true;
	if (pairs->shown++)
		buf_str(pairs->s->ret, ", ");
	show(pairs->s, key);
	buf_str(pairs->s->ret, ": ");
	show(pairs->s, value);
	return false;
}

static bool show_dict(struct show *s, uint64_t object)
{
	struct pairs pairs = {.s = s};

	buf_char(s->ret, '{');
	if (enter(s, object)) {
		python_dict_each(s->p, object, show_pair, &pairs);
		s->open--;
	}
	show_more(s, pairs.shown, python_dict_count(s->p, object));
	buf_char(s->ret, '}');
	return true;
}

static bool show_set(struct show *s, uint64_t object, const struct python_type *t)
{
	struct python_set_walk walk;
	uint64_t key, shown = 0;

	if (!python_set_begin(s->p, object, &walk))
		return false;
	if (!walk.used) {
		buf_printf(s->ret, "%s()", t->name);
		return true;
	}
	buf_char(s->ret, '{');
	if (enter(s, object)) {
		while (room(s) && python_set_next(s->p, &walk, &key)) {
			if (shown++)
				buf_str(s->ret, ", ");
			show(s, key);
		}
		s->open--;
	}
	show_more(s, shown, walk.used);
	buf_char(s->ret, '}');
	return true;
}

/* What has a name of its own: <function app.load>, <module json>, <class app.User>. */
static bool show_named(struct show *s, uint64_t object, const struct python_type *t)
{
	uint64_t name = 0;

	if (t->flags & TYPE_IS_TYPE) {
		const struct python_type *class = python_type(s->p, object);

		if (class)
			buf_printf(s->ret, "<class %s>", class->full_name);
		return class;
	}
	if (!strcmp(t->name, "module"))
		name = python_attribute(s->p, object, "__name__");
	else if (!strcmp(t->name, "function"))
		python_read_u64(s->p, object + s->p->layout.function.qualname, &name);
	if (!name)
		return false;
	buf_printf(s->ret, "<%s ", t->name);
	if (!python_text(s->p, name, 200, s->ret, NULL))
		buf_printf(s->ret, "at 0x%" PRIx64, object);
	buf_char(s->ret, '>');
	return true;
}

static bool show_known(struct show *s, uint64_t object, const struct python_type *t)
{
	switch (t->kind) {
	case PYTHON_STR:
		return show_str(s, object);
	case PYTHON_BYTES:
		return show_bytes(s, object);
	case PYTHON_INT:
		return show_int(s, object, t);
	case PYTHON_TUPLE:
	case PYTHON_LIST:
		return show_items(s, object, t);
	case PYTHON_DICT:
		return show_dict(s, object);
	case PYTHON_SET:
		return show_set(s, object, t);
	default:
		if (!strcmp(t->name, "float"))
			return show_float(s, object);
		if (strcmp(t->name, "NoneType") != 0)
			return show_named(s, object, t);
		buf_str(s->ret, "None");
		return true;
	}
}

static void show(struct show *s, uint64_t object)
{
	const struct python_type *t = python_type_of_object(s->p, object);

	if (!object)
		buf_str(s->ret, "<nothing>");
	else if (!t)
		buf_printf(s->ret, "<unreadable at 0x%" PRIx64 ">", object);
	else if (!show_known(s, object, t))
		show_plain(s, object, t);
}

void python_show(struct python *p, uint64_t object, size_t most, unsigned depth, struct buf *ret)
{
	struct show s = {.p = p, .ret = ret, .end = ret->len + most, .depth = depth};

	show(&s, object);
}
