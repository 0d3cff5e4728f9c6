/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>

#include "view/rss.h"

/* Stable: scripts know these. */
static const char *const kind_keys[RSS_KINDS] = {
	[RSS_HEAP_USED] = "heap_used",
	[RSS_HEAP_MAPPED] = "heap_mapped",
	[RSS_HEAP_CACHED] = "heap_cached",
	[RSS_HEAP_FREE] = "heap_free",
	[RSS_HEAP_TOP] = "heap_top",
	[RSS_HEAP_BOOKKEEPING] = "heap_bookkeeping",
	[RSS_HEAP_UNSEEN] = "heap_unseen",
	[RSS_ALLOCATOR] = "allocator",
	[RSS_CODE] = "generated_code",
	[RSS_STACK_USED] = "stack_used",
	[RSS_STACK_DEEPER] = "stack_deeper",
	[RSS_FILE_TEXT] = "file_text",
	[RSS_FILE_DATA] = "file_data",
	[RSS_FILE_WRITTEN] = "file_written",
	[RSS_FILE_BSS] = "file_bss",
	[RSS_SHARED] = "shared",
	[RSS_ANONYMOUS] = "anonymous",
	[RSS_KERNEL] = "kernel",
	[RSS_MOVED] = "moved",
};

static void number(struct buf *out, const char *key, uint64_t n)
{
	buf_printf(out, ",\"%s\":%" PRIu64, key, n);
}

static void add_rows(const struct rss *r, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\"rows\":[");
	vec_each(&r->rows, row) {
		buf_printf(out, "%s{\"kind\":\"%s\",\"name\":", first ? "" : ",", kind_keys[row->kind]);
		buf_json(out, row->name);
		number(out, "bytes", row->bytes);
		number(out, "swap_bytes", row->swap);
		number(out, "size_bytes", row->size);
		number(out, "count", row->count);
		buf_char(out, '}');
		first = false;
	}
	buf_char(out, ']');
}

static void add_kinds(const struct rss *r, struct buf *out)
{
	buf_str(out, ",\"kinds\":{");
	for (int kind = 0; kind < RSS_KINDS; kind++)
		buf_printf(out, "%s\"%s\":%" PRIu64, kind ? "," : "", kind_keys[kind],
			rss_sum(r, (enum rss_kind)kind));
	buf_char(out, '}');
}

static void add_stacks(const struct rss *r, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\"stacks\":[");
	vec_each(&r->stacks, s) {
		buf_printf(out, "%s{\"tid\":%d,\"name\":", first ? "" : ",", (int)s->tid);
		buf_json(out, s->name);
		buf_printf(out, ",\"running\":%s", s->sp ? "false" : "true");
		number(out, "used_bytes", s->used);
		number(out, "deeper_bytes", s->deeper);
		number(out, "swap_bytes", s->swap);
		number(out, "size_bytes", s->end - s->start);
		buf_char(out, '}');
		first = false;
	}
	buf_char(out, ']');
	number(out, "stacks_not_found", r->stackless);
}

static const char *const state_keys[ARENAS_STATES] = {
	[ARENAS_USED] = "used",
	[ARENAS_CACHED] = "cached",
	[ARENAS_FAST] = "fast",
	[ARENAS_FREE] = "free",
	[ARENAS_TOP] = "top",
	[ARENAS_OWN] = "own",
	[ARENAS_UNSEEN] = "unseen",
};

static void add_states(const struct arenas_sum *states, struct buf *out)
{
	char key[32];

	for (size_t i = 0; i < ARENAS_STATES; i++) {
		snprintf(key, sizeof(key), "%s_bytes", state_keys[i]);
		number(out, key, states[i].bytes);
		snprintf(key, sizeof(key), "%s_count", state_keys[i]);
		number(out, key, states[i].count);
	}
}

static void add_classes(const char *key, const struct arenas_sum *classes, struct buf *out)
{
	bool first = true;

	buf_printf(out, ",\"%s\":[", key);
	for (size_t i = 0; i < ARENAS_CLASSES; i++) {
		if (!classes[i].count)
			continue;
		buf_printf(out, "%s{\"least\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"count\":%" PRIu64 "}", first ? "" : ",",
			(uint64_t)1 << i, classes[i].bytes, classes[i].count);
		first = false;
	}
	buf_char(out, ']');
}

static void add_list(const struct arenas *a, struct buf *out)
{
	bool first = true;

	buf_str(out, ",\"list\":[");
	vec_each(&a->list, one) {
		buf_printf(out, "%s{\"address\":%" PRIu64 ",\"main\":%s", first ? "" : ",", one->address,
			one->main ? "true" : "false");
		number(out, "heaps", one->heaps);
		number(out, "threads", one->threads);
		number(out, "system_bytes", one->system_bytes);
		add_states(one->states, out);
		number(out, "largest_free_bytes", one->largest_free);
		number(out, "trim_bytes", one->trim_bytes);
		buf_printf(out, ",\"moved\":%s}", one->moved ? "true" : "false");
		first = false;
	}
	buf_char(out, ']');
}

static void add_arenas(const struct rss *r, struct buf *out)
{
	const struct arenas *a = &r->arenas;

	buf_str(out, ",\"glibc\":");
	if (!r->has_arenas) {
		buf_str(out, "null");
		return;
	}
	buf_printf(out, "{\"arenas\":%zu", a->list.len);
	add_states(a->states, out);
	number(out, "mapped_bytes", a->mapped.bytes);
	number(out, "mapped_count", a->mapped.count);
	buf_printf(out, ",\"parameters\":%s", a->parameters ? "true" : "false");
	number(out, "mapped_said_bytes", a->mapped_said.bytes);
	number(out, "mapped_said_count", a->mapped_said.count);
	number(out, "trim_threshold", a->trim_threshold);
	number(out, "mmap_threshold", a->mmap_threshold);
	number(out, "thread_caches", a->thread_caches);
	number(out, "unsorted_bytes", a->unsorted_bytes);
	number(out, "largest_free_bytes", a->largest_free);
	number(out, "trim_bytes", a->trim_bytes);
	number(out, "walks", a->walks);
	add_classes("used_sizes", a->used_classes, out);
	add_classes("free_sizes", a->free_classes, out);
	add_list(a, out);
	buf_char(out, '}');
}

int view_rss_json(const struct rss *r, struct buf *out, struct err *err)
{
	buf_printf(out, "{\"pid\":%d,\"name\":", (int)r->pid);
	buf_json(out, r->name);
	number(out, "took_ns", r->took_ns);
	number(out, "rss_bytes", r->bytes);
	number(out, "pss_bytes", r->pss);
	number(out, "huge_bytes", r->huge);
	number(out, "lazy_free_bytes", r->lazy_free);
	number(out, "swap_bytes", r->swap);
	number(out, "size_bytes", r->size);
	number(out, "mappings", r->mappings);
	number(out, "vm_rss_bytes", r->process.rss);
	number(out, "peak_rss_bytes", r->process.peak_rss);
	number(out, "page_table_bytes", r->process.page_tables);
	number(out, "hugetlb_bytes", r->process.hugetlb);
	number(out, "locked_bytes", r->process.locked);
	number(out, "threads", r->process.threads);
	number(out, "shrunk_bytes", r->shrunk);
	buf_str(out, ",\"pages_refused\":");
	if (r->unseen[0])
		buf_json(out, r->unseen);
	else
		buf_str(out, "null");
	add_kinds(r, out);
	add_rows(r, out);
	add_stacks(r, out);
	add_arenas(r, out);
	buf_str(out, "}\n");
	return out->failed ? err_nomem(err) : 0;
}
