/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/rss.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "view/why_priv.h"

#define BYTES_COLUMNS 12u
#define SHARE_COLUMNS 8u
#define NAME_AT (BYTES_COLUMNS + SHARE_COLUMNS + 2)
#define KERNEL_STACK_BYTES 16384u /* a thread, on x86-64 and aarch64 (THREAD_SIZE) */
#define TOP_STACKS 5u
#define PLAIN_COLUMNS 120u /* of text that is for no terminal */

/* ---- lines ---- */

static void right(struct buf *out, const struct buf *text, size_t columns)
{
	size_t width = text->data ? term_width(text->data) : 0;

	for (; width < columns; width++)
		buf_char(out, ' ');
	buf_str(out, text->data ? text->data : "");
}

static void add_numbers(const struct rss *r, uint64_t bytes, struct buf *out)
{
	struct buf text = {0};

	words_bytes(&text, bytes);
	right(out, &text, BYTES_COLUMNS);
	buf_clear(&text);
	words_share(&text, percent_of(bytes, r->bytes));
	right(out, &text, SHARE_COLUMNS);
	buf_str(out, "  ");
	buf_release(&text);
}

/* A line of a group: its name is indented; `note` may be NULL. */
static void add_line(const struct rss *r, const struct rss_options *o, uint64_t bytes, const char *name, const char *note,
	struct buf *out)
{
	size_t used = NAME_AT + 2 + (note ? term_width(note) + 2 : 0);

	add_numbers(r, bytes, out);
	buf_str(out, "  ");
	name_fit(out, name, o->term.interactive && o->term.columns > used + 12 ? o->term.columns - used : 0,
		o->term.unicode);
	if (note && note[0]) {
		buf_str(out, "  ");
		paint(out, &o->term, PAINT_DIM, note);
	}
	buf_char(out, '\n');
}

static void add_title(const struct rss *r, const struct rss_options *o, uint64_t bytes, const char *title,
	struct buf *out)
{
	add_numbers(r, bytes, out);
	paint(out, &o->term, PAINT_TITLE, title);
	buf_char(out, '\n');
}

/* ---- groups of rows ---- */

static const char *const kind_words[RSS_KINDS] = {
	[RSS_HEAP_USED] = "in use",
	[RSS_HEAP_MAPPED] = "in use, large blocks with a mapping each",
	[RSS_HEAP_CACHED] = "free, kept for the next of its size",
	[RSS_HEAP_FREE] = "free, between blocks in use",
	[RSS_HEAP_TOP] = "free, at the end of a heap",
	[RSS_HEAP_BOOKKEEPING] = "the allocator's own",
	[RSS_HEAP_UNSEEN] = "not divided",
	[RSS_STACK_USED] = "in use",
	[RSS_STACK_DEEPER] = "used earlier, by deeper calls",
	[RSS_ANONYMOUS] = "nobody's that is known",
	[RSS_CODE] = "code made at run time",
	[RSS_KERNEL] = "lent by the kernel",
	[RSS_MOVED] = "changed while it was looked at",
};

static uint64_t sum_of(const struct rss *r, enum rss_kind first, enum rss_kind last)
{
	uint64_t sum = 0;

	for (int kind = (int)first; kind <= (int)last; kind++)
		sum += rss_sum(r, (enum rss_kind)kind);
	return sum;
}

/* Blocks, and how much they are with what of them is not in memory. */
static void note_of_blocks(const struct rss_row *row, struct buf *out)
{
	bool blocks = row->kind <= RSS_HEAP_FREE && row->count;

	if (blocks) {
		words_count(out, row->count);
		buf_str(out, row->count == 1 ? " block" : " blocks");
	}
	if (row->size > row->bytes + row->bytes / 50) {
		buf_str(out, blocks ? " of " : "of ");
		words_bytes(out, row->size);
	}
}

static void note_of(const struct rss_row *row, struct buf *out)
{
	buf_clear(out);
	if (row->kind < RSS_HEAP_UNSEEN) {
		note_of_blocks(row, out);
	} else if (row->count > 1 && row->kind >= RSS_ALLOCATOR && row->kind != RSS_STACK_USED &&
		row->kind != RSS_STACK_DEEPER) {
		words_count(out, row->count);
		buf_str(out, " mappings");
	}
	if (row->swap) {
		buf_str(out, out->len ? ", " : "");
		words_bytes(out, row->swap);
		buf_str(out, " in swap");
	}
}

/* Rows of these kinds, the largest ones; they are sorted within a kind. */
static void add_rows(const struct rss *r, const struct rss_options *o, enum rss_kind first, enum rss_kind last,
	struct buf *out)
{
	struct buf note = {0};
	uint64_t rest = 0;
	size_t shown = 0, left = 0;

	vec_each(&r->rows, row) {
		if (row->kind < first || row->kind > last)
			continue;
		/* What a heap is made of is always a few lines. */
		if (shown++ >= o->top && row->kind >= RSS_ALLOCATOR) {
			rest += row->bytes;
			left++;
			continue;
		}
		note_of(row, &note);
		add_line(r, o, row->bytes, row->name[0] ? row->name : kind_words[row->kind],
			note.len ? note.data : NULL, out);
	}
	if (left) {
		buf_clear(&note);
		buf_printf(&note, "%zu more", left);
		add_line(r, o, rest, note.data ? note.data : "", NULL, out);
	}
	buf_release(&note);
}

static void add_group(const struct rss *r, const struct rss_options *o, const char *title, enum rss_kind first,
	enum rss_kind last, struct buf *out)
{
	uint64_t sum = sum_of(r, first, last);

	if (!sum)
		return;
	add_title(r, o, sum, title, out);
	add_rows(r, o, first, last, out);
}

/* ---- files: one line each ---- */

struct file {
	const char *name;
	uint64_t bytes, parts[4]; /* text, data, written, bss */
};
VEC_TYPE(files, struct file);

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static int compare_files(const void *a, const void *b)
{
	const struct file *x = (const struct file *)a, *y = (const struct file *)b;

	return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : compare_names(a, b);
}

static int gather_files(const struct rss *r, struct files *ret)
{
	size_t kept = 0;

	vec_each(&r->rows, row) {
		struct file f = {.name = row->name, .bytes = row->bytes};

		if (row->kind < RSS_FILE_TEXT || row->kind > RSS_FILE_BSS)
			continue;
		f.parts[row->kind - RSS_FILE_TEXT] = row->bytes;
		if (vec_push(ret, f))
			return -ENOMEM;
	}
	if (!ret->len)
		return 0;
	qsort(ret->data, ret->len, sizeof(*ret->data), compare_names);
	for (size_t i = 1; i < ret->len; i++) {
		struct file *f = &ret->data[i], *same = &ret->data[kept];

		if (strcmp(f->name, same->name)) {
			ret->data[++kept] = *f;
			continue;
		}
		same->bytes += f->bytes;
		for (size_t part = 0; part < 4; part++)
			same->parts[part] += f->parts[part];
	}
	ret->len = kept + 1;
	qsort(ret->data, ret->len, sizeof(*ret->data), compare_files);
	return 0;
}

static void note_of_file(const struct file *f, struct buf *out)
{
	static const char *const words[] = {"code", "data", "written", "zeroed variables"};

	buf_clear(out);
	for (size_t i = 0; i < 4; i++)
		if (f->parts[i]) {
			buf_printf(out, "%s%s ", out->len ? ", " : "", words[i]);
			words_bytes(out, f->parts[i]);
		}
}

/* The name without its directories, unless another file has the same. */
static const char *short_name(const struct files *files, const struct file *f)
{
	const char *slash = strrchr(f->name, '/'), *name = slash ? slash + 1 : f->name;

	vec_each(files, other) {
		const char *its = strrchr(other->name, '/');

		if (other != f && !strcmp(its ? its + 1 : other->name, name))
			return f->name;
	}
	return name;
}

static int add_files(const struct rss *r, const struct rss_options *o, struct buf *out)
{
	struct files files = {0};
	struct buf note = {0};
	uint64_t rest = 0;
	int rc = gather_files(r, &files);

	if (!rc && files.len)
		add_title(r, o, sum_of(r, RSS_FILE_TEXT, RSS_FILE_BSS), "files", out);
	for (size_t i = 0; !rc && i < files.len; i++) {
		const struct file *f = &files.data[i];

		if (i >= o->top) {
			rest += f->bytes;
			continue;
		}
		note_of_file(f, &note);
		add_line(r, o, f->bytes, short_name(&files, f), note.data, out);
	}
	if (!rc && files.len > o->top) {
		buf_clear(&note);
		buf_printf(&note, "%zu more file%s", files.len - o->top, files.len - o->top == 1 ? "" : "s");
		add_line(r, o, rest, note.data ? note.data : "", NULL, out);
	}
	buf_release(&note);
	vec_release(&files);
	return rc;
}

/* ---- stacks ---- */

static void add_stack(const struct rss *r, const struct rss_options *o, const struct rss_stack *s, struct buf *out)
{
	struct buf name = {0}, note = {0};

	buf_printf(&name, "%s (%d)", s->name, (int)s->tid);
	if (s->sp) {
		buf_str(&note, "in use ");
		words_bytes(&note, s->used);
		buf_str(&note, ", of ");
	} else {
		buf_str(&note, "runs; of ");
	}
	words_bytes(&note, s->end - s->start);
	add_line(r, o, s->used + s->deeper, name.data ? name.data : "", note.data, out);
	buf_release(&name);
	buf_release(&note);
}

static void add_stacks(const struct rss *r, const struct rss_options *o, struct buf *out)
{
	uint64_t sum = sum_of(r, RSS_STACK_USED, RSS_STACK_DEEPER), rest = 0;
	size_t most = r->stacks.len <= TOP_STACKS + 1 ? r->stacks.len : TOP_STACKS;
	struct buf text = {0};

	if (!sum)
		return;
	buf_printf(&text, "stacks of %zu thread%s", r->stacks.len, r->stacks.len == 1 ? "" : "s");
	add_title(r, o, sum, text.data ? text.data : "", out);
	if (r->stacks.len < 2)
		add_rows(r, o, RSS_STACK_USED, RSS_STACK_DEEPER, out);
	for (size_t i = 0; r->stacks.len > 1 && i < r->stacks.len; i++)
		if (i < most)
			add_stack(r, o, &r->stacks.data[i], out);
		else
			rest += r->stacks.data[i].used + r->stacks.data[i].deeper;
	if (most < r->stacks.len) {
		buf_clear(&text);
		buf_printf(&text, "%zu more threads", r->stacks.len - most);
		add_line(r, o, rest, text.data ? text.data : "", NULL, out);
	}
	buf_release(&text);
}

/* ---- around it ---- */

static void add_headline(const struct rss *r, struct buf *out)
{
	words_text(out, r->name);
	buf_printf(out, " (%d): ", (int)r->pid);
	words_bytes(out, r->bytes);
	buf_str(out, " resident, in ");
	words_count(out, r->mappings);
	buf_str(out, " mappings");
	if (r->process.peak_rss > r->bytes + r->bytes / 20) {
		buf_str(out, "; ");
		words_bytes(out, r->process.peak_rss);
		buf_str(out, " at its peak");
	}
	buf_str(out, "\n\n");
}

static void beside(struct buf *out, uint64_t bytes, const char *words)
{
	struct buf text = {0};

	words_bytes(&text, bytes);
	right(out, &text, BYTES_COLUMNS);
	for (size_t i = 0; i < SHARE_COLUMNS + 2; i++)
		buf_char(out, ' ');
	buf_printf(out, "%s\n", words);
	buf_release(&text);
}

static void add_beside(const struct rss *r, const struct rss_options *o, struct buf *out)
{
	paint(out, &o->term, PAINT_TITLE, "Not in RSS:");
	buf_char(out, '\n');
	if (r->swap)
		beside(out, r->swap, "in swap");
	if (r->process.hugetlb)
		beside(out, r->process.hugetlb, "pages of hugetlbfs");
	beside(out, r->process.page_tables, "page tables");
	beside(out, r->process.threads * KERNEL_STACK_BYTES, "the kernel's stacks of its threads, 16 KiB each");
	if (r->pss < r->bytes) {
		buf_str(out, "Of RSS: ");
		words_bytes(out, r->bytes - r->pss);
		buf_str(out, " are other processes' share of pages that they map as well (PSS is ");
		words_bytes(out, r->pss);
		buf_str(out, ").\n");
	}
	if (r->huge) {
		buf_str(out, "Of RSS: ");
		words_bytes(out, r->huge);
		buf_str(out, " in huge pages.\n");
	}
	if (r->lazy_free) {
		buf_str(out, "Of RSS: ");
		words_bytes(out, r->lazy_free);
		buf_str(out, " was given back (MADV_FREE), and the kernel has not taken it yet.\n");
	}
}

/* What of the heap is not known, and why. */
static void add_heap_doubts(const struct rss *r, struct buf *out)
{
	const struct arenas *a = &r->arenas;
	uint64_t unseen = a->states[ARENAS_UNSEEN].bytes;

	if (!r->has_arenas)
		return;
	if (unseen) {
		words_bytes(out, unseen);
		buf_str(out, " of the heap were not walked: the program changed them each time, or they are in swap, from where nothing "
			"is read.\n");
	}
	if (a->parameters && a->mapped_said.bytes != a->mapped.bytes) {
		buf_str(out, "Large blocks: ");
		words_bytes(out, a->mapped.bytes);
		buf_str(out, " found, the allocator counts ");
		words_bytes(out, a->mapped_said.bytes);
		buf_str(out, "; the difference is in other lines.\n");
	}
}

static void add_doubts(const struct rss *r, const struct rss_options *o, struct buf *out)
{
	if (r->unseen[0]) {
		paint_on(out, &o->term, PAINT_WARN);
		buf_printf(out, "Pages could not be asked for, so heaps and stacks are not divided: %s\n", r->unseen);
		paint_off(out, &o->term, PAINT_WARN);
	}
	add_heap_doubts(r, out);
	if (r->shrunk) {
		words_bytes(out, r->shrunk);
		buf_str(out, " came while it was looked at, and are not in these numbers.\n");
	}
	if (r->stackless)
		buf_printf(out, r->stackless == 1 ? "The stack of %" PRIu64 " thread was not found; it is in other lines.\n"
						  : "The stacks of %" PRIu64 " threads were not found; they are in other lines.\n",
			r->stackless);
}

/* ---- what to do about it ---- */

#define WORTH_BYTES ((uint64_t)4 << 20)
#define WORTH_PERCENT 15.0
#define MANY_ARENAS 4u

static bool is_worth(const struct rss *r, uint64_t bytes)
{
	return bytes >= WORTH_BYTES && percent_of(bytes, r->bytes) >= WORTH_PERCENT;
}

/* Of the heap, what is free and stays. */
static void advise_on_free(const struct rss *r, uint64_t held, struct buf *out)
{
	const struct arenas *a = &r->arenas;

	words_bytes(out, held);
	buf_printf(out, " of the heap is free and kept by the allocator, in %zu arena%s. ", a->list.len,
		a->list.len == 1 ? "" : "s");
	if (a->trim_bytes >= held / 10) {
		buf_str(out, "malloc_trim(0) in the program would give back ");
		words_bytes(out, a->trim_bytes);
		buf_str(out, " of it now");
		if (a->list.data[0].states[ARENAS_TOP].bytes >= a->trim_bytes / 2)
			buf_str(out, ", a lower M_TRIM_THRESHOLD each time that much is free at the end of the heap");
		buf_str(out, ". ");
	}
	if (a->trim_bytes < held - held / 4) {
		words_bytes(out, held - (a->trim_bytes < held ? a->trim_bytes : held));
		buf_str(out, " shares pages with blocks in use, and comes back only when those are freed: that is fragmentation "
			"(the largest free block has ");
		words_bytes(out, a->largest_free);
		buf_str(out, "). ");
	}
	if (a->list.len > MANY_ARENAS)
		buf_str(out, "With fewer arenas (MALLOC_ARENA_MAX=2) threads share what is free. ");
}

static const struct {
	enum rss_kind first, last;
	const char *words;
} parts[] = {
	{RSS_HEAP_USED, RSS_HEAP_MAPPED, "is heap that the program holds"},
	{RSS_ALLOCATOR, RSS_ALLOCATOR, "belongs to allocators and runtimes of their own"},
	{RSS_CODE, RSS_CODE, "is code made at run time"},
	{RSS_STACK_USED, RSS_STACK_DEEPER, "is in stacks: fewer threads, or smaller ones"},
	{RSS_FILE_TEXT, RSS_FILE_DATA, "is pages of files, which the kernel takes back when it needs them"},
	{RSS_FILE_WRITTEN, RSS_FILE_BSS, "is variables and relocations of programs and libraries"},
	{RSS_SHARED, RSS_SHARED, "is shared memory, which counts for each process that has touched it"},
	{RSS_ANONYMOUS, RSS_ANONYMOUS, "is anonymous memory, mapped by the program itself"},
};

static void add_largest(const struct rss *r, struct buf *out)
{
	size_t largest = 0;
	uint64_t most = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		uint64_t sum = sum_of(r, parts[i].first, parts[i].last);

		largest = sum > most ? i : largest;
		most = sum > most ? sum : most;
	}
	if (!most)
		return;
	buf_str(out, "The largest part, ");
	words_share(out, percent_of(most, r->bytes));
	buf_printf(out, ", %s. ", parts[largest].words);
}

static void add_verdict(const struct rss *r, const struct rss_options *o, struct buf *out)
{
	uint64_t held = sum_of(r, RSS_HEAP_CACHED, RSS_HEAP_TOP);
	struct buf text = {0};

	add_largest(r, &text);
	if (r->has_arenas && is_worth(r, held))
		advise_on_free(r, held, &text);
	if (text.len) {
		struct paragraph p = {.out = out, .columns = o->term.interactive ? o->term.columns : PLAIN_COLUMNS};

		paragraph_add(&p, text.data);
		buf_str(out, "\n\n");
	}
	out->failed |= text.failed;
	buf_release(&text);
}

int view_rss(const struct rss *r, const struct rss_options *o, struct buf *out, struct err *err)
{
	add_headline(r, out);
	add_group(r, o, "heap", RSS_HEAP_USED, RSS_HEAP_UNSEEN, out);
	add_group(r, o, "allocators and runtimes of their own", RSS_ALLOCATOR, RSS_ALLOCATOR, out);
	add_group(r, o, "generated code", RSS_CODE, RSS_CODE, out);
	add_group(r, o, "anonymous memory", RSS_ANONYMOUS, RSS_ANONYMOUS, out);
	add_stacks(r, o, out);
	if (add_files(r, o, out))
		return err_nomem(err);
	add_group(r, o, "shared memory", RSS_SHARED, RSS_SHARED, out);
	add_group(r, o, "other", RSS_KERNEL, RSS_MOVED, out);
	add_title(r, o, r->bytes, "all of it", out);
	buf_char(out, '\n');
	add_verdict(r, o, out);
	add_beside(r, o, out);
	add_doubts(r, o, out);
	return out->failed ? err_nomem(err) : 0;
}
