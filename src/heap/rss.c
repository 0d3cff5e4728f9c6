/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the account adds up: each mapping has a kind that all of it belongs to (rss_kinds.c). Who knows better about a part of it
 * claims that part (stacks, heaps): its pages that are in memory go to the claim's row, and the mapping keeps the rest.
 */
#include "heap/rss.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "heap/rss_priv.h"
#include "os/rights.h"

/* ---- mappings ---- */

const char *rss_keep(struct rss_work *w, const char *text)
{
	uint32_t id = intern_str(&w->ret->texts, text);

	if (id != INTERN_NONE)
		return intern_get(&w->ret->texts, id, NULL);
	w->failed = true;
	return "";
}

static int take_mapping(void *ctx, const struct smaps_mapping *m)
{
	struct rss_work *w = (struct rss_work *)ctx;
	struct rss *r = w->ret;
	struct rss_mapping mapping = {
		.m = m->m, .sizes = m->sizes, .grows_down = m->grows_down, .kind = RSS_ANONYMOUS, .name = ""};

	mapping.m.path = rss_keep(w, m->m.path);
	r->bytes += m->sizes.rss;
	r->pss += m->sizes.pss;
	r->swap += m->sizes.swap;
	r->huge += m->sizes.anon_huge + m->sizes.shmem_huge + m->sizes.file_huge;
	r->lazy_free += m->sizes.lazy_free;
	r->size += m->m.end - m->m.start;
	r->mappings++;
	return w->failed || vec_push(&w->mappings, mapping) ? -ENOMEM : 0;
}

struct rss_mapping *rss_mapping_at(struct rss_work *w, uint64_t address)
{
	size_t low = 0, high = w->mappings.len;

	if (w->last < high && address >= w->mappings.data[w->last].m.start &&
		address < w->mappings.data[w->last].m.end)
		return &w->mappings.data[w->last];
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct rss_mapping *m = &w->mappings.data[middle];

		if (address >= m->m.start && address < m->m.end) {
			w->last = middle;
			return m;
		}
		if (address < m->m.start)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* ---- pages ---- */

static void ask(struct rss_work *w, struct rss_mapping *m)
{
	struct err err = {0};

	if (m->asked)
		return;
	m->asked = true;
	m->run_first = w->runs.len;
	if (w->pages.fd < 0 || (!m->sizes.rss && !m->sizes.swap))
		return;
	if (pages_runs(&w->pages, m->m.start, m->m.end, &w->runs, &err) && !w->ret->unseen[0])
		snprintf(w->ret->unseen, sizeof(w->ret->unseen), "%.190s", err.text);
	m->run_count = w->runs.len - m->run_first;
}

/* The first run of the mapping that ends behind `address`; claims come in ascending order, mostly. */
static size_t first_run(const struct rss_work *w, struct rss_mapping *m, uint64_t address)
{
	const struct page_run *runs = w->runs.data + m->run_first;
	size_t at = m->run_last, low = 0, high = m->run_count;

	if (at < high && runs[at].end > address && (!at || runs[at - 1].end <= address))
		return at;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (runs[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	m->run_last = low;
	return low;
}

static struct rss_claim resident_in(struct rss_work *w, struct rss_mapping *m, uint64_t start, uint64_t end)
{
	struct rss_claim got = {0};

	ask(w, m);
	/* Mostly it is all in the run that the last one was in. */
	if (m->run_last < m->run_count) {
		const struct page_run *last = &w->runs.data[m->run_first + m->run_last];

		if (last->state == PAGE_RESIDENT && last->start <= start && end <= last->end)
			return (struct rss_claim){.bytes = end - start};
	}
	for (size_t i = first_run(w, m, start); i < m->run_count; i++) {
		const struct page_run *run = &w->runs.data[m->run_first + i];
		uint64_t from = run->start > start ? run->start : start, to = run->end < end ? run->end : end;

		if (run->start >= end)
			break;
		if (run->state == PAGE_RESIDENT)
			got.bytes += to - from;
		else if (run->state == PAGE_SWAPPED)
			got.swap += to - from;
	}
	return got;
}

static struct rss_claim over_mappings(struct rss_work *w, uint64_t start, uint64_t end, bool take)
{
	struct rss_claim all = {0};

	while (start < end) {
		struct rss_mapping *m = rss_mapping_at(w, start);
		struct rss_claim got;
		uint64_t to;

		if (!m)
			break;
		to = end < m->m.end ? end : m->m.end;
		got = resident_in(w, m, start, to);
		m->claimed += take ? got.bytes : 0;
		m->claimed_swap += take ? got.swap : 0;
		all.bytes += got.bytes;
		all.swap += got.swap;
		start = to;
	}
	return all;
}

struct rss_claim rss_resident(struct rss_work *w, uint64_t start, uint64_t end)
{
	return over_mappings(w, start, end, false);
}

struct rss_claim rss_take(struct rss_work *w, uint64_t start, uint64_t end)
{
	return over_mappings(w, start, end, true);
}

void rss_note_claimed(struct rss_work *w, uint64_t start, uint64_t end)
{
	w->sorted = false;
	if (vec_push(&w->claimed, (struct arenas_range){start, end}))
		w->failed = true;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct arenas_range *x = (const struct arenas_range *)a, *y = (const struct arenas_range *)b;

	return (x->start > y->start) - (x->start < y->start);
}

uint64_t rss_claimed_until(struct rss_work *w, uint64_t address)
{
	size_t low = 0, high = w->claimed.len;

	if (!w->sorted && high)
		qsort(w->claimed.data, high, sizeof(*w->claimed.data), compare_ranges);
	w->sorted = true;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct arenas_range *r = &w->claimed.data[middle];

		if (address >= r->start && address < r->end)
			return r->end;
		if (address < r->start)
			high = middle;
		else
			low = middle + 1;
	}
	return 0;
}

struct rss_claim rss_claim(struct rss_work *w, uint64_t start, uint64_t end, enum rss_kind kind, const char *name)
{
	struct rss_claim got = over_mappings(w, start, end, true);

	rss_note_claimed(w, start, end);
	rss_add(w, kind, name, &(struct rss_row){.bytes = got.bytes, .swap = got.swap, .size = end - start, .count = 1});
	return got;
}

/* As far as pages are alike, from `address` on and within the mapping; ret_state 0: they are absent. */
static uint64_t same_pages(struct rss_work *w, struct rss_mapping *m, uint64_t address, int *ret_state)
{
	const struct page_run *run;
	size_t at;

	ask(w, m);
	at = first_run(w, m, address);
	run = at < m->run_count ? &w->runs.data[m->run_first + at] : NULL;
	*ret_state = run && run->start <= address ? (int)run->state : 0;
	return !run ? m->m.end : run->start <= address ? run->end : run->start;
}

void rss_ask_again(struct rss_work *w, uint64_t start, uint64_t end)
{
	while (start < end) {
		struct rss_mapping *m = rss_mapping_at(w, start);

		if (!m)
			return;
		m->asked = false;
		m->run_count = m->run_last = 0;
		start = m->m.end;
	}
}

uint64_t rss_next_resident(struct rss_work *w, uint64_t address)
{
	struct rss_mapping *m = rss_mapping_at(w, address);

	for (; m && m < w->mappings.data + w->mappings.len; m++) {
		ask(w, m);
		for (size_t i = first_run(w, m, address); i < m->run_count; i++) {
			const struct page_run *run = &w->runs.data[m->run_first + i];

			if (run->state == PAGE_RESIDENT)
				return run->start > address ? run->start : address;
		}
	}
	return UINT64_MAX;
}

size_t rss_read(struct rss_work *w, uint64_t address, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct rss_mapping *m = rss_mapping_at(w, address + done);
		uint64_t to, part;
		int state;

		if (!m || !m->m.read)
			break;
		to = same_pages(w, m, address + done, &state);
		part = to - (address + done) < len - done ? to - (address + done) : len - done;
		if (state == PAGE_SWAPPED)
			break;
		if (state != PAGE_RESIDENT)
			memset((char *)buf + done, 0, part);
		else if (!proc_read_memory(w->reader, address + done, (char *)buf + done, part))
			break;
		done += part;
	}
	return done;
}

/* ---- rows ---- */

void rss_add(struct rss_work *w, enum rss_kind kind, const char *name, const struct rss_row *numbers)
{
	struct rss_rows *rows = &w->ret->rows;
	struct rss_row *row = NULL;

	/* Names are interned, so equal ones are the same pointer; neighbours often belong together. */
	name = rss_keep(w, name);
	for (size_t i = rows->len; i-- > 0 && !row;)
		if (rows->data[i].kind == kind && rows->data[i].name == name)
			row = &rows->data[i];
	if (!row) {
		if (vec_push(rows, (struct rss_row){.kind = kind, .name = name})) {
			w->failed = true;
			return;
		}
		row = &rows->data[rows->len - 1];
	}
	row->bytes += numbers->bytes;
	row->swap += numbers->swap;
	row->size += numbers->size;
	row->count += numbers->count;
}

/* Pages that were claimed but had not been there when their mapping was: off the largest rows of what was claimed. */
static void take_off(struct rss_work *w, uint64_t bytes)
{
	w->ret->shrunk += bytes;
	while (bytes) {
		struct rss_row *largest = NULL;
		uint64_t part;

		vec_each(&w->ret->rows, row)
			if (row->kind < RSS_ALLOCATOR && (!largest || row->bytes > largest->bytes))
				largest = row;
		if (!largest || !largest->bytes)
			vec_each(&w->ret->rows, row)
				if (!largest || row->bytes > largest->bytes)
					largest = row;
		if (!largest || !largest->bytes)
			return;
		part = largest->bytes < bytes ? largest->bytes : bytes;
		largest->bytes -= part;
		bytes -= part;
	}
}

static bool is_file(enum rss_kind kind)
{
	return kind >= RSS_FILE_TEXT && kind <= RSS_FILE_WRITTEN;
}

/* What nobody has claimed of a mapping. */
static uint64_t add_rest(struct rss_work *w, const struct rss_mapping *m)
{
	uint64_t claimed = m->claimed < m->sizes.rss ? m->claimed : m->sizes.rss, rest = m->sizes.rss - claimed;
	uint64_t copies = is_file(m->kind) && m->sizes.anonymous < rest ? m->sizes.anonymous : 0;
	uint64_t swap = m->sizes.swap > m->claimed_swap ? m->sizes.swap - m->claimed_swap : 0;

	if (is_file(m->kind) && m->sizes.anonymous >= rest)
		copies = rest;
	rss_add(w, m->kind, m->name, &(struct rss_row){.bytes = rest - copies, .swap = copies ? 0 : swap,
		.size = m->m.end - m->m.start, .count = rest || swap});
	if (copies)
		rss_add(w, RSS_FILE_WRITTEN, m->name, &(struct rss_row){.bytes = copies, .swap = swap, .count = 1});
	return m->claimed - claimed;
}

static void add_rests(struct rss_work *w)
{
	uint64_t gone = 0;

	vec_each(&w->mappings, m)
		gone += add_rest(w, m);
	if (gone)
		take_off(w, gone);
}

/* Files and mappings of which nothing is in memory say nothing. */
static void drop_empty(struct rss_rows *rows)
{
	size_t kept = 0;

	vec_each(rows, row)
		if (row->bytes || row->swap)
			rows->data[kept++] = *row;
	rows->len = kept;
}

static int compare_rows(const void *a, const void *b)
{
	const struct rss_row *x = (const struct rss_row *)a, *y = (const struct rss_row *)b;

	if (x->kind != y->kind)
		return (x->kind > y->kind) - (x->kind < y->kind);
	if (x->bytes != y->bytes)
		return (x->bytes < y->bytes) - (x->bytes > y->bytes);
	return strcmp(x->name, y->name);
}

static int compare_stacks(const void *a, const void *b)
{
	const struct rss_stack *x = (const struct rss_stack *)a, *y = (const struct rss_stack *)b;
	uint64_t p = x->used + x->deeper, q = y->used + y->deeper;

	return p != q ? (p < q) - (p > q) : (x->tid > y->tid) - (x->tid < y->tid);
}

uint64_t rss_sum(const struct rss *r, enum rss_kind kind)
{
	uint64_t sum = 0;

	vec_each(&r->rows, row)
		sum += row->kind == kind ? row->bytes : 0;
	return sum;
}

/* ---- all of it ---- */

static int read_process(struct rss_work *w, struct err *err)
{
	struct proc_status status;
	struct err pages = {0};
	int rc = proc_status_read(w->pid, &status, err);

	if (rc)
		return rc;
	if (status.kernel_thread)
		return err_set(err, EINVAL, "%d (%s) is a thread of the kernel: it has no memory of its own",
			(int)w->pid, status.name);
	memcpy(w->ret->name, status.name, sizeof(w->ret->name));
	w->reader = status.state == 'Z' ? proc_surviving_thread(w->pid) : w->pid;
	if (pages_open(w->reader, &w->pages, &pages))
		snprintf(w->ret->unseen, sizeof(w->ret->unseen), "%.190s", pages.text);
	rc = smaps_read(w->reader, take_mapping, w, err);
	if (rc == -ENOMEM)
		return err_nomem(err);
	if (!rc && !w->mappings.len)
		return err_set(err, ESRCH, "%d (%s) has no memory: it has ended", (int)w->pid, status.name);
	return rc ? rc : smaps_process_read(w->reader, &w->ret->process, err);
}

int rss_account(pid_t pid, struct rss *ret, struct err *err)
{
	struct rss_work w = {.ret = ret, .pid = pid, .pages = {.fd = -1}};
	uint64_t start_ns = clock_monotonic_ns();
	int rc;

	*ret = (struct rss){.pid = pid};
	rc = read_process(&w, err);
	if (!rc) {
		rss_classify(&w);
		rss_find_stacks(&w);
		rss_walk_heaps(&w);
		rss_find_owners(&w);
		add_rests(&w);
		if (w.failed)
			rc = err_nomem(err);
	}
	drop_empty(&ret->rows);
	if (ret->rows.len)
		qsort(ret->rows.data, ret->rows.len, sizeof(*ret->rows.data), compare_rows);
	if (ret->stacks.len)
		qsort(ret->stacks.data, ret->stacks.len, sizeof(*ret->stacks.data), compare_stacks);
	ret->took_ns = clock_monotonic_ns() - start_ns;
	pages_close(&w.pages);
	vec_release(&w.mappings);
	vec_release(&w.runs);
	vec_release(&w.claimed);
	if (rc)
		rss_release(ret);
	return rc;
}

void rss_release(struct rss *r)
{
	vec_release(&r->rows);
	vec_release(&r->stacks);
	arenas_release(&r->arenas);
	intern_release(&r->texts);
}
