/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * /tmp/perf-PID.map: "START SIZE NAME" a line, both numbers in hexadecimal, written by JIT
 * compilers as they go (Linux tools/perf/Documentation/jit-interface.txt). Code memory is reused,
 * so a later line overrides what it overlaps of earlier ones; what sticks out of those stays.
 *
 * The file is written by the target into a directory everybody can write to: only a regular file
 * of the target's own user is believed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/in_root.h"
#include "os/proc.h"
#include "symbol/symbol_priv.h"
#include "symbol/text_file.h"

#define MAX_FILE_BYTES (128u << 20) /* a million functions; in memory a few times that */

/* One line, and later one piece of what is visible of it. */
struct span {
	uint64_t start, end;
	const char *name;
	uint32_t line;
};

struct perf_map_source {
	struct symbol_source base;
	char *text; /* names point into it */
	VEC(struct span) spans; /* sorted, disjoint */
};

static size_t perf_map_resolve(struct symbol_source *base, uint64_t address,
	struct symbol_level *levels, enum symbol_reason *ret_reason)
{
	struct perf_map_source *m = (struct perf_map_source *)base;
	size_t low = 0, high = m->spans.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (m->spans.data[mid].start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || address >= m->spans.data[low - 1].end) {
		*ret_reason = SYMBOL_NO_SYMBOLS;
		return 0;
	}
	levels[0].name = symbol_shown_name_whole(base, m->spans.data[low - 1].name);
	levels[0].file = NULL;
	levels[0].line = 0;
	*ret_reason = SYMBOL_OK;
	return 1;
}

static void perf_map_free(struct symbol_source *base)
{
	struct perf_map_source *m = (struct perf_map_source *)base;

	symbol_source_release(base);
	vec_release(&m->spans);
	free(m->text);
	free(m);
}

static bool parse_line(char *line, struct span *ret)
{
	char *at = line;
	uint64_t size;

	if (!text_hex(&at, &ret->start) || *at++ != ' ' || !text_hex(&at, &size) || *at++ != ' ')
		return false;
	ret->name = at;
	return size && *at && !__builtin_add_overflow(ret->start, size, &ret->end);
}

static int compare_spans(const void *va, const void *vb)
{
	const struct span *a = va, *b = vb;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	return (a->line > b->line) - (a->line < b->line);
}

VEC_TYPE(span_heap, struct span *);

/* A heap with the latest line on top. */
static int heap_push(struct span_heap *h, struct span *s)
{
	if (vec_push(h, s))
		return -ENOMEM;
	size_t i = h->len - 1;

	for (; i && h->data[(i - 1) / 2]->line < s->line; i = (i - 1) / 2)
		h->data[i] = h->data[(i - 1) / 2];
	h->data[i] = s;
	return 0;
}

static void heap_pop(struct span_heap *h)
{
	struct span *last = h->data[--h->len];
	size_t i = 0;

	for (size_t child; (child = 2 * i + 1) < h->len; i = child) {
		if (child + 1 < h->len && h->data[child + 1]->line > h->data[child]->line)
			child++;
		if (h->data[child]->line < last->line)
			break;
		h->data[i] = h->data[child];
	}
	h->data[i] = last;
}

/*
 * Sweeps over the lines by start and emits what is visible: at each point the latest line among
 * those that cover it. A visible piece ends where its line ends or where a later line starts; at
 * most one piece a start and one an end, so the output is at most twice the input.
 */
static int flatten(struct perf_map_source *m)
{
	VEC(struct span) out = {0};
	struct span_heap open = {0};
	uint64_t at = 0;
	size_t next = 0;
	int rc = 0;

	while (!rc && (next < m->spans.len || open.len)) {
		if (!open.len)
			at = m->spans.data[next].start;
		while (!rc && next < m->spans.len && m->spans.data[next].start <= at)
			rc = heap_push(&open, &m->spans.data[next++]);
		while (open.len && open.data[0]->end <= at)
			heap_pop(&open);
		if (rc || !open.len)
			continue;
		struct span piece = *open.data[0];
		piece.start = at;
		if (next < m->spans.len && m->spans.data[next].start < piece.end)
			piece.end = m->spans.data[next].start;
		at = piece.end;
		struct span *last = out.len ? &out.data[out.len - 1] : NULL;
		if (last && last->line == piece.line && last->end == piece.start)
			last->end = piece.end;
		else
			rc = vec_push(&out, piece);
	}
	vec_release(&open);
	vec_release(&m->spans);
	m->spans.data = out.data;
	m->spans.len = out.len;
	m->spans.cap = out.cap;
	return rc;
}

static int parse_map(struct perf_map_source *m, size_t len)
{
	uint32_t line_number = 0;

	for (char *line = m->text, *end = m->text + len; line < end;) {
		char *next = text_end_line(line, end);
		struct span s = {.line = line_number++};

		if (parse_line(line, &s) && vec_push(&m->spans, s))
			return -ENOMEM;
		line = next;
	}
	if (!m->spans.len)
		return 0;
	qsort(m->spans.data, m->spans.len, sizeof(*m->spans.data), compare_spans);
	return flatten(m);
}

/* Takes ownership of the text, which ends with a NUL behind `len`. */
static int new_source(char *text, size_t len, struct symbol_source **ret, struct err *err)
{
	static const struct symbol_ops ops = {perf_map_resolve, perf_map_free};
	struct perf_map_source *m = calloc(1, sizeof(*m));

	if (!m) {
		free(text);
		return err_nomem(err);
	}
	m->base.ops = &ops;
	m->text = text;
	if (parse_map(m, len)) {
		perf_map_free(&m->base);
		return err_nomem(err);
	}
	*ret = &m->base;
	return 0;
}

int symbol_source_perf_map_text(
	const char *text, size_t len, struct symbol_source **ret, struct err *err)
{
	struct buf copy = {0};

	buf_add(&copy, text, len);
	return copy.failed ? err_nomem(err) : new_source(copy.data, copy.len, ret, err);
}

/* A descriptor, -ENOENT, or -EPERM when the file is there and is not to be believed. */
static int open_map(const char *root, pid_t pid, uid_t owner, struct err *err)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)pid);
	autoclose int fd = in_root_open(root, path, true);

	if (fd == -ELOOP || fd == -EINVAL)
		return err_set(err, EPERM, "%s%s is not a regular file: ignored", root, path);
	if (fd < 0)
		return err_errno(err, -fd, "%s%s", root, path);
	if (fstat(fd, &st))
		return err_errno(err, errno, "%s%s", root, path);
	if (st.st_uid != owner)
		return err_set(err, EPERM,
			"%s%s belongs to user %u, the process to user %u: ignored", root, path,
			(unsigned)st.st_uid, (unsigned)owner);
	return take_fd(fd);
}

int symbol_perf_map_open(pid_t pid, struct err *err)
{
	struct proc_status status;
	char root[32];
	int fd = proc_status_read(pid, &status, err);

	if (fd < 0)
		return fd;
	snprintf(root, sizeof(root), "/proc/%d/root", (int)status.tgid);
	fd = open_map(root, status.ns_pid, status.euid, err);
	if (fd == -ENOENT || fd == -EACCES) /* written by a shim outside its namespaces */
		fd = open_map("", status.tgid, status.euid, err);
	return fd;
}

int symbol_source_perf_map(int fd, struct symbol_source **ret, struct err *err)
{
	struct buf text = {0};
	int rc = text_read(fd, MAX_FILE_BYTES, "perf map", &text, err);

	if (rc < 0)
		return rc;
	return new_source(text.data, text.len, ret, err);
}
