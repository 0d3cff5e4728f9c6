/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * /proc/kallsyms: "ADDRESS TYPE NAME[\t[MODULE]]" a line. There are no sizes; a function reaches to
 * the next symbol of any type, and no further than MAX_FUNCTION_BYTES, which keeps the last one
 * before a gap from covering the gap.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "symbol/symbol_priv.h"
#include "symbol/text_file.h"

#define MAX_FILE_BYTES (256u << 20)
#define MAX_FUNCTION_BYTES (1u << 20)

struct kernel_symbol {
	uint64_t start;
	const char *name; /* NULL: not a function, only an end */
};

struct kernel_source {
	struct symbol_source base;
	char *text; /* the file; names point into it */
	VEC(struct kernel_symbol) symbols;
};

static size_t kernel_resolve(struct symbol_source *base, uint64_t address,
	struct symbol_level *levels, enum symbol_reason *ret_reason)
{
	struct kernel_source *k = (struct kernel_source *)base;
	size_t low = 0, high = k->symbols.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (k->symbols.data[mid].start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	const struct kernel_symbol *sym = low ? &k->symbols.data[low - 1] : NULL;
	if (!sym || !sym->name || address - sym->start >= MAX_FUNCTION_BYTES) {
		*ret_reason = SYMBOL_NO_SYMBOLS;
		return 0;
	}
	levels[0] = (struct symbol_level){.name = symbol_shown_name(base, sym->name)};
	*ret_reason = SYMBOL_OK;
	return 1;
}

static void kernel_free(struct symbol_source *base)
{
	struct kernel_source *k = (struct kernel_source *)base;

	symbol_source_release(base);
	vec_release(&k->symbols);
	free(k->text);
	free(k);
}

/* One line, already NUL-terminated. False when it is not a symbol. */
static bool parse_line(char *line, struct kernel_symbol *ret)
{
	char *at = line, *tab;
	char type;

	if (!text_hex(&at, &ret->start) || *at++ != ' ')
		return false;
	type = *at;
	if (!type || at[1] != ' ' || !at[2])
		return false;
	ret->name = strchr("tTwW", type) ? at + 2 : NULL;
	tab = strchr(at + 2, '\t');
	if (tab)
		*tab = ' ';
	return true;
}

/* By address; of several names for one address the first in the file. */
static int compare_symbols(const void *va, const void *vb)
{
	const struct kernel_symbol *a = va, *b = vb;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	if (!a->name != !b->name)
		return !a->name - !b->name;
	return (a->name > b->name) - (a->name < b->name);
}

static void drop_aliases(struct kernel_source *k)
{
	size_t kept = 0;

	vec_each(&k->symbols, sym)
		if (!kept || k->symbols.data[kept - 1].start != sym->start)
			k->symbols.data[kept++] = *sym;
	k->symbols.len = kept;
}

static int parse_kallsyms(struct kernel_source *k, size_t len, struct err *err)
{
	bool any_address = false;

	for (char *line = k->text, *end = k->text + len; line < end;) {
		char *next = text_end_line(line, end);
		struct kernel_symbol sym;

		if (parse_line(line, &sym)) {
			any_address |= sym.start != 0;
			if (vec_push(&k->symbols, sym))
				return err_nomem(err);
		}
		line = next;
	}
	if (!k->symbols.len)
		return err_set(err, ENOENT, "/proc/kallsyms has no symbols");
	if (!any_address)
		return err_set(err, EPERM,
			"kernel addresses are hidden by kernel.kptr_restrict: run as root, or "
			"'sysctl kernel.kptr_restrict=0' (and kernel.perf_event_paranoid=1)");
	qsort(k->symbols.data, k->symbols.len, sizeof(*k->symbols.data), compare_symbols);
	drop_aliases(k);
	return 0;
}

/* Takes ownership of the text, which ends with a NUL behind `len`. */
static int new_source(char *text, size_t len, struct symbol_source **ret, struct err *err)
{
	static const struct symbol_ops ops = {kernel_resolve, kernel_free};
	struct kernel_source *k = calloc(1, sizeof(*k));

	if (!k) {
		free(text);
		return err_nomem(err);
	}
	k->base.ops = &ops;
	k->text = text;
	int rc = parse_kallsyms(k, len, err);
	if (rc < 0) {
		kernel_free(&k->base);
		return rc;
	}
	*ret = &k->base;
	return 0;
}

int symbol_source_kernel(struct symbol_source **ret, struct err *err)
{
	autoclose int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	struct buf text = {0};

	if (fd < 0)
		return err_errno(err, errno, "/proc/kallsyms");
	int rc = text_read(fd, MAX_FILE_BYTES, "/proc/kallsyms", &text, err);
	if (rc < 0)
		return rc;
	return new_source(text.data, text.len, ret, err);
}

int symbol_source_kernel_text(
	const char *text, size_t len, struct symbol_source **ret, struct err *err)
{
	struct buf copy = {0};

	buf_add(&copy, text, len);
	return copy.failed ? err_nomem(err) : new_source(copy.data, copy.len, ret, err);
}
