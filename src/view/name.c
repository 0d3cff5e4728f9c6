/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Function names in limited space. C++ and Rust names are long because of their template and
 * call arguments and their namespaces; what a reader looks for is the last word. So brackets lose
 * their insides first, then qualifiers go from the front, and only then the end is cut. In Rust's
 * "<T as Trait>::f" the words are T, Trait and f: there the qualifiers of T and Trait go, and the
 * trait, before T does.
 */
#include <string.h>

#include "view/view_priv.h"

/* Length of an operator's name after "operator" at `s` ("<<=", "()", "->"), so that its characters
 * are not taken for brackets; 0 when `s` does not start one. */
static size_t operator_length(const char *s)
{
	static const char word[] = "operator";

	if (strncmp(s, word, sizeof(word) - 1))
		return 0;

	size_t at = sizeof(word) - 1;

	if (!strncmp(s + at, "()", 2) || !strncmp(s + at, "[]", 2))
		return at + 2;
	return at + strspn(s + at, "<>=-+*/%^&|!~");
}

static bool opens(char c)
{
	return c == '<' || c == '(' || c == '{' || c == '[';
}

static bool closes(char c)
{
	return c == '>' || c == ')' || c == '}' || c == ']';
}

/* Only <> and () hold arguments worth hiding; {} and [] hold words such as {closure#0}. */
static bool hides(char c)
{
	return c == '<' || c == '(';
}

/* A bracket that starts the name or a part of it, as in Rust's "<T as Trait>::f", in
 * "a::(anonymous namespace)::g" or in Go's "pkg.(*T).f", says where we are. */
static bool says_where(const char *name, const char *at)
{
	return at == name || (*at == '(' && (at[-1] == ':' || at[-1] == '.'));
}

/* `name` with the insides of its outermost <...> and (...) as an ellipsis. */
static void without_arguments(struct buf *out, const char *name, const char *dots)
{
	size_t depth = 0, hidden_at = 0;

	for (const char *at = name; *at; at++) {
		size_t op = operator_length(at);
		bool hidden = hidden_at && depth >= hidden_at;

		if (op) {
			if (!hidden)
				buf_add(out, at, op);
			at += op - 1;
			continue;
		}
		if (closes(*at) && depth && !(*at == '>' && at > name && at[-1] == '-')) {
			if (hidden_at == depth)
				hidden_at = 0;
			depth--;
			hidden = hidden_at && depth >= hidden_at;
		}
		if (!hidden)
			buf_char(out, *at);
		if (!opens(*at))
			continue;
		depth++;
		if (!hidden_at && hides(*at) && !says_where(name, at) && !closes(at[1])) {
			hidden_at = depth;
			buf_str(out, dots);
		}
	}
}

/* Names come from files: nothing in them may move a terminal's cursor. Controls are those below
 * space, DEL, and U+0080 to U+009F, which UTF-8 writes as c2 80 to c2 9f; some terminals also take a single
 * byte 80 to 9f for one, which is no UTF-8. */
static void add_printable(struct buf *out, const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		const unsigned char *c = (const unsigned char *)s + i;
		size_t n = utf8_sequence(c);
		bool bad = !n || n > len - i || *c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0);

		if (bad)
			buf_char(out, '?');
		else
			buf_add(out, c, n);
		i += n && n <= len - i ? n : 1;
	}
}

void words_text(struct buf *out, const char *s)
{
	add_printable(out, s, strlen(s));
}

/* Where `name` goes on after its first "a::", or "a/" of a Go package; NULL when there is none
 * outside brackets. With a space in it the name is a sentence with a path ("JS:*f /tmp/a.js:1"). */
static const char *after_qualifier(const char *name)
{
	bool slashes = !strchr(name, ' ');
	size_t depth = 0;

	for (const char *at = name; *at; at++) {
		size_t op = operator_length(at);

		if (op) {
			at += op - 1;
		} else if (opens(*at)) {
			depth++;
		} else if (closes(*at)) {
			depth -= depth > 0;
		} else if (!depth && at[0] == ':' && at[1] == ':' && at[2]) {
			return at + 2;
		} else if (!depth && slashes && at[0] == '/' && at[1]) {
			return at + 1;
		}
	}
	return NULL;
}

/* The longest end of `name` that starts at a qualifier and fits; its last part when none does. */
static const char *last_parts(const char *name, size_t columns)
{
	const char *next;

	while (term_width(name) > columns && (next = after_qualifier(name)))
		name = next;
	return name;
}

/* "<T as Trait>::f" or "<T>::f", cut in pieces. */
struct method {
	const char *type;
	const char *trait; /* NULL: there is none */
	const char *tail;  /* ">::f" */
};

/* Splits `copy` in place; the tail, whose ">" that overwrites, is in `name`. */
static bool split_method(char *copy, const char *name, struct method *ret)
{
	char *as = NULL, *at = copy;
	size_t depth = 0;

	for (; *at; at++) {
		if (opens(*at))
			depth++;
		else if (closes(*at) && depth && at[-1] != '-' && !--depth)
			break;
		else if (depth == 1 && !as && !strncmp(at, " as ", 4))
			as = at;
	}
	if (*copy != '<' || *at != '>' || !at[1])
		return false;
	*at = '\0';
	if (as)
		*as = '\0';
	*ret = (struct method){
		.type = copy + 1, .trait = as ? as + 4 : NULL, .tail = name + (at - copy)};
	return true;
}

static size_t minus(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

/* As many of the last parts of `name` as fit, at least one; returns its cells. */
static size_t add_last_parts(struct buf *out, const char *name, size_t columns, const char *dots)
{
	size_t width = term_width(name), dot_cells = term_width(dots);
	const char *rest = width <= columns ? name : last_parts(name, minus(columns, dot_cells));

	buf_str(out, rest == name ? "" : dots);
	buf_str(out, rest);
	return rest == name ? width : dot_cells + term_width(rest);
}

/* The method with fewer qualifiers; without the trait when `no_trait`. Returns its cells, which may
 * be more than `columns`. */
static size_t add_method(struct buf *out, const struct method *m, size_t columns, bool no_trait,
	const char *dots)
{
	size_t used = strlen("<") + term_width(m->tail);
	struct buf trait = {0};

	if (m->trait) {
		buf_str(&trait, " as ");
		used += strlen(" as ");
		used += add_last_parts(&trait, no_trait ? dots : m->trait,
			minus(columns, used + term_width(m->type)), dots);
	}
	buf_char(out, '<');
	used += add_last_parts(out, m->type, minus(columns, used), dots);
	out->failed |= trait.failed;
	if (trait.data)
		buf_str(out, trait.data);
	buf_str(out, m->tail);
	buf_release(&trait);
	return used;
}

/* Leaves `out` empty when the name is not one of a method, or not even this makes it fit. */
static void shorter_method(struct buf *out, const char *name, size_t columns, const char *dots)
{
	struct buf copy = {0};
	struct method m;

	buf_str(&copy, name);
	if (!copy.failed && split_method(copy.data, name, &m) &&
		add_method(out, &m, columns, false, dots) > columns) {
		buf_clear(out);
		if (!m.trait || add_method(out, &m, columns, true, dots) > columns)
			buf_clear(out);
	}
	buf_release(&copy);
}

static size_t cut_to(struct buf *out, const char *name, size_t columns, const char *dots)
{
	size_t width = term_width(name), dot_cells = term_width(dots);

	if (width <= columns) {
		add_printable(out, name, strlen(name));
		return width;
	}
	size_t keep = term_fit(name, columns > dot_cells ? columns - dot_cells : 0);

	add_printable(out, name, keep);
	buf_str(out, dots);
	return columns;
}

size_t name_fit(struct buf *out, const char *name, size_t columns, bool unicode)
{
	const char *dots = unicode ? "…" : "..";
	size_t width = term_width(name), dot_cells = term_width(dots);
	struct buf shorter = {0}, method = {0};

	if (!columns || width <= columns) {
		add_printable(out, name, strlen(name));
		return width;
	}
	without_arguments(&shorter, name, dots);
	if (!shorter.failed && shorter.len)
		name = shorter.data;
	if (term_width(name) > columns)
		shorter_method(&method, name, columns, dots);
	if (!method.failed && method.len)
		name = method.data;
	width = 0;
	if (term_width(name) > columns && columns > dot_cells) {
		const char *rest = last_parts(name, columns - dot_cells);

		if (rest != name) {
			buf_str(out, dots);
			columns -= dot_cells;
			width = dot_cells;
			name = rest;
		}
	}
	width += cut_to(out, name, columns, dots);
	buf_release(&shorter);
	buf_release(&method);
	return width;
}
