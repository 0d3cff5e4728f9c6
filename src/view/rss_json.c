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
	buf_str(out, "}\n");
	return out->failed ? err_nomem(err) : 0;
}
