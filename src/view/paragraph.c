/* SPDX-License-Identifier: BSD-2-Clause */
/* Text in lines of a terminal, broken between words. */
#include <string.h>

#include "view/why_priv.h"

void paragraph_add(struct paragraph *p, const char *text)
{
	struct buf clean = {0};
	const char *word;

	words_text(&clean, text);
	word = clean.data ? clean.data : "";
	while (*word) {
		size_t bytes = strcspn(word, " "), width;
		char *end = clean.data + (word - clean.data) + bytes, after = *end;

		*end = '\0';
		width = term_width(word);
		if (p->open && p->columns && p->at + 1 + width > p->columns) {
			buf_printf(p->out, "\n%*s", (int)p->indent, "");
			p->at = p->indent;
		} else if (p->open) {
			buf_char(p->out, ' ');
			p->at++;
		}
		buf_str(p->out, word);
		p->at += width;
		p->open = true;
		*end = after;
		word += bytes + strspn(word + bytes, " ");
	}
	p->out->failed |= clean.failed;
	buf_release(&clean);
}

void paragraph_painted(struct paragraph *p, const struct term *t, enum paint how, const char *text)
{
	paint_on(p->out, t, how);
	paragraph_add(p, text);
	paint_off(p->out, t, how);
}

void why_wrapped(const char *text, enum paint how, const struct term *t, struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns};

	paragraph_painted(&p, t, how, text);
	buf_char(out, '\n');
}
