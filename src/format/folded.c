/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Folded stacks: one line a different stack, "root;caller;leaf N", N in samples. With time off the
 * CPU, N is in nanoseconds (of allocations in bytes): samples on the CPU and intervals off it have no other common measure.
 *
 * The text has no escapes of its own, so ';' in a name is written as ':' and line breaks as spaces:
 * a reader then sees one frame where there is one. Paths come from the call tree, which is made
 * per stack node; paths that differ only in what the text cannot say are joined.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/intern.h"
#include "format/folded.h"
#include "format/format_priv.h"

struct fold {
	const struct profile *p;
	struct profile_tree tree;
	struct buf path;
	VEC(size_t) lengths; /* of `path` before each open node */
	struct intern lines;
	VEC(uint64_t) counts; /* by line */
};

void folded_add_name(struct buf *path, const char *name)
{
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		buf_char(path, c == ';' ? ':' : c < 0x20 || c == 0x7f ? ' ' : *name);
	}
}

static int add_line(struct fold *f, uint64_t count)
{
	uint32_t id = f->path.failed ? INTERN_NONE
				     : intern_add(&f->lines, f->path.data, f->path.len);

	if (id == INTERN_NONE)
		return -ENOMEM;
	if (id == f->counts.len)
		return vec_push(&f->counts, count);
	f->counts.data[id] += count;
	return 0;
}

static int enter(struct fold *f, uint32_t node)
{
	const struct tree_node *n = &f->tree.nodes.data[node];

	if (vec_push(&f->lengths, f->path.len))
		return -ENOMEM;
	if (node) {
		if (f->path.len)
			buf_char(&f->path, ';');
		folded_add_name(&f->path, f->p->functions.data[n->function].name);
	}
	return n->self ? add_line(f, f->p->mode == PROFILE_CPU ? n->self : n->self_weight) : 0;
}

static void leave(struct fold *f)
{
	f->path.len = f->lengths.data[--f->lengths.len];
}

static int walk(struct fold *f)
{
	uint32_t at = 0;
	int rc = 0;

	while (at != PROFILE_NONE && !(rc = enter(f, at))) {
		const struct tree_node *nodes = f->tree.nodes.data;

		if (nodes[at].first_child != PROFILE_NONE) {
			at = nodes[at].first_child;
			continue;
		}
		leave(f);
		while (at && nodes[at].next_sibling == PROFILE_NONE) {
			at = nodes[at].parent;
			leave(f);
		}
		at = at ? nodes[at].next_sibling : PROFILE_NONE;
	}
	return rc;
}

static void write_lines(const struct fold *f, FILE *out)
{
	for (uint32_t i = 0; i < f->counts.len; i++) {
		size_t len;
		const char *line = intern_get(&f->lines, i, &len);

		fwrite(line, 1, len, out);
		fprintf(out, " %" PRIu64 "\n", f->counts.data[i]);
	}
}

static int write_folded(const struct profile *p, FILE *out, struct err *err)
{
	struct fold f = {.p = p};
	int rc = profile_tree_build(p, false, &f.tree, err);

	if (rc)
		return rc;
	rc = walk(&f);
	if (!rc)
		write_lines(&f, out);
	profile_tree_release(&f.tree);
	buf_release(&f.path);
	vec_release(&f.lengths);
	intern_release(&f.lines);
	vec_release(&f.counts);
	return rc ? err_nomem(err) : 0;
}

const struct format_ops format_folded = {
	.name = "folded",
	.extensions = {".folded", ".txt"},
	.help = "flamegraph.pl, inferno, speedscope, flamelens",
	.loses = "the time of each sample, threads, modules, lines, which frames are inlined or "
		 "guessed, who woke whom",
	.write = write_folded,
};
