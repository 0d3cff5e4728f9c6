/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Four interning tables: strings, modules, frames and stack nodes.
 *
 * In a file only the stack nodes grow with the length of a recording, so they alone are forgotten
 * from time to time (FORGET_NODES). In a window each segment begins with empty tables but for the
 * modules, whose ids others keep: a segment defines those that its frames and mappings name.
 */
#include <string.h>

#include "base/hash.h"
#include "capture/writer_priv.h"

#define FORGET_NODES ((size_t)2 << 20)

void stack_tables_release(struct stack_tables *t)
{
	vec_release(&t->frames);
	id_table_release(&t->frame_ids);
	vec_release(&t->nodes);
	id_table_release(&t->node_ids);
}

void tables_release(struct capture_writer *w)
{
	vec_each(&w->modules, m)
		free(m->path);
	vec_release(&w->modules);
	id_table_release(&w->module_ids);
	intern_release(&w->strings);
	stack_tables_release(&w->stacks);
}

size_t tables_bytes(const struct capture_writer *w)
{
	const struct stack_tables *t = &w->stacks;

	return t->frames.len * sizeof(*t->frames.data) + t->nodes.len * sizeof(*t->nodes.data) +
		(t->frame_ids.slot_count + t->node_ids.slot_count) * sizeof(uint32_t) +
		intern_bytes(&w->strings);
}

/* ---- strings ---- */

uint32_t capture_string_bytes(struct capture_writer *w, const char *bytes, size_t len)
{
	size_t kept = len < CAPTURE_MAX_STRING_BYTES ? len : CAPTURE_MAX_STRING_BYTES;
	size_t before = intern_count(&w->strings);
	uint32_t id = intern_add(&w->strings, bytes, kept);

	if (id == INTERN_NONE)
		return writer_no_memory(w);
	if (id == before) {
		struct record_string r = {.id = id, .len = (uint32_t)kept};
		writer_add_record(w, RECORD_STRING, &r, sizeof(r), bytes, kept);
	}
	return id;
}

uint32_t capture_string(struct capture_writer *w, const char *s)
{
	return s ? capture_string_bytes(w, s, strlen(s)) : CAPTURE_NONE;
}

/* ---- modules ---- */

/* What stands behind the path. */
#define MODULE_KEY offsetof(struct record_module, kind)
#define MODULE_KEY_BYTES (sizeof(struct record_module) - MODULE_KEY)

static uint64_t module_hash(const struct module_entry *m)
{
	uint64_t path = m->path ? hash_bytes(m->path, strlen(m->path)) : m->record.path;

	return hash_pair(path, hash_bytes((const uint8_t *)&m->record + MODULE_KEY, MODULE_KEY_BYTES));
}

static uint64_t module_hash_of(const void *ctx, uint32_t id)
{
	const struct capture_writer *w = ctx;

	return module_hash(&w->modules.data[id]);
}

static bool module_same(const struct module_entry *a, const struct module_entry *b)
{
	return !b->free &&
		(a->path ? !strcmp(a->path, b->path) : a->record.path == b->record.path) &&
		!memcmp((const uint8_t *)&a->record + MODULE_KEY,
			(const uint8_t *)&b->record + MODULE_KEY, MODULE_KEY_BYTES);
}

static void write_module(struct capture_writer *w, uint32_t id, uint32_t path)
{
	struct record_module r = w->modules.data[id].record;

	r.id = id;
	r.path = path;
	writer_add_record(w, RECORD_MODULE, &r, sizeof(r), NULL, 0);
}

void tables_define_module(struct capture_writer *w, uint32_t id)
{
	uint32_t segment = capture_segment(w);

	if (id >= w->modules.len || w->modules.data[id].segment == segment)
		return;
	w->modules.data[id].segment = segment;
	write_module(w, id, capture_string(w, w->modules.data[id].path));
}

/* An id for `m`, of which the ownership of the path is taken. */
static uint32_t add_module(struct capture_writer *w, struct module_entry *m)
{
	uint32_t id = 0;

	while (w->window && id < w->modules.len && !w->modules.data[id].free)
		id++;
	if (!w->window)
		id = (uint32_t)w->modules.len;
	if (id_table_reserve(&w->module_ids, module_hash_of, w) ||
		(id == w->modules.len && vec_push(&w->modules, *m))) {
		free(m->path);
		return writer_no_memory(w);
	}
	w->modules.data[id] = *m;
	id_table_add(&w->module_ids, module_hash(m), id);
	if (!w->window)
		write_module(w, id, m->record.path);
	return id;
}

uint32_t capture_module(struct capture_writer *w, const struct record_module *module)
{
	struct module_entry m = {.record = *module};
	struct record_module *r = &m.record;

	r->id = 0;
	memset(r->pad, 0, sizeof(r->pad));
	if (r->build_id_bytes > sizeof(r->build_id))
		r->build_id_bytes = sizeof(r->build_id);
	memset(r->build_id + r->build_id_bytes, 0, sizeof(r->build_id) - r->build_id_bytes);
	if (w->window) {
		m.path = strdup(r->path < intern_count(&w->strings)
				? intern_get(&w->strings, r->path, NULL)
				: "");
		if (!m.path)
			return writer_no_memory(w);
	}

	struct id_probe probe = id_probe_start(&w->module_ids, module_hash(&m));

	while (id_probe_next(&w->module_ids, &probe)) {
		if (!module_same(&m, &w->modules.data[probe.id]))
			continue;
		free(m.path);
		return probe.id;
	}
	return add_module(w, &m);
}

void tables_forget_module(struct capture_writer *w, uint32_t id)
{
	free(w->modules.data[id].path);
	w->modules.data[id] = (struct module_entry){.free = true};
}

/* What was forgotten still has its place in the hash table. */
void tables_tidy_modules(struct capture_writer *w)
{
	struct id_table *t = &w->module_ids;

	if (!t->used)
		return;
	t->used = 0;
	memset(t->slots, 0, t->slot_count * sizeof(*t->slots));
	for (uint32_t id = 0; id < w->modules.len; id++)
		if (!w->modules.data[id].free)
			id_table_add(t, module_hash_of(w, id), id);
}

/* ---- frames ---- */

static uint64_t frame_hash(const struct record_frame *f)
{
	uint64_t flags = (uint64_t)f->kind | (uint64_t)f->how << 8 | (uint64_t)f->source << 16 |
		(uint64_t)f->is_return << 24 | (uint64_t)f->role << 28;

	return hash_pair(f->address, (uint64_t)f->module << 32 | flags);
}

static uint64_t frame_hash_of(const void *ctx, uint32_t id)
{
	const struct stack_tables *t = ctx;

	return frame_hash(&t->frames.data[id]);
}

static bool frame_same(const struct record_frame *a, const struct record_frame *b)
{
	return a->address == b->address && a->module == b->module && a->kind == b->kind &&
		a->how == b->how && a->source == b->source && a->is_return == b->is_return &&
		a->role == b->role;
}

uint32_t capture_frame(struct capture_writer *w, const struct record_frame *frame)
{
	struct stack_tables *t = &w->stacks;
	uint64_t hash = frame_hash(frame);
	struct id_probe probe = id_probe_start(&t->frame_ids, hash);
	struct record_frame f = *frame;

	while (id_probe_next(&t->frame_ids, &probe))
		if (frame_same(&t->frames.data[probe.id], frame))
			return probe.id;
	f.header = (struct record_header){0};
	f.id = (uint32_t)t->frames.len;
	memset(f.pad, 0, sizeof(f.pad));
	if (f.id >= CAPTURE_NONE - 1 || id_table_reserve(&t->frame_ids, frame_hash_of, t) ||
		vec_push(&t->frames, f))
		return writer_no_memory(w);
	id_table_add(&t->frame_ids, hash, f.id);
	if (w->window)
		tables_define_module(w, f.module);
	writer_add_record(w, RECORD_FRAME, &f, sizeof(f), NULL, 0);
	return f.id;
}

size_t capture_frame_count(const struct capture_writer *w)
{
	return w->stacks.frames.len;
}

struct record_frame capture_frame_get(const struct capture_writer *w, uint32_t id)
{
	return w->stacks.frames.data[id];
}

/* ---- stack nodes ---- */

static uint64_t node_hash_of(const void *ctx, uint32_t index)
{
	const struct stack_tables *t = ctx;
	const struct node *n = &t->nodes.data[index];

	return hash_pair(n->parent, n->frame);
}

static void forget_nodes(struct stack_tables *t)
{
	t->first_node += (uint32_t)t->nodes.len;
	t->nodes.len = 0;
	t->node_ids.used = 0;
	memset(t->node_ids.slots, 0, t->node_ids.slot_count * sizeof(*t->node_ids.slots));
}

void tables_forget_nodes(struct capture_writer *w, size_t if_more_than)
{
	struct stack_tables *t = &w->stacks;

	if (t->nodes.len <= if_more_than)
		return;
	t->first_node += (uint32_t)t->nodes.len;
	vec_release(&t->nodes);
	id_table_release(&t->node_ids);
}

uint32_t capture_stack(struct capture_writer *w, uint32_t parent, uint32_t frame)
{
	struct stack_tables *t = &w->stacks;
	uint64_t hash = hash_pair(parent, frame);
	struct id_probe probe = id_probe_start(&t->node_ids, hash);
	struct node n = {.parent = parent, .frame = frame};

	while (id_probe_next(&t->node_ids, &probe)) {
		const struct node *known = &t->nodes.data[probe.id];
		if (known->parent == parent && known->frame == frame)
			return t->first_node + probe.id;
	}
	if (t->nodes.len >= FORGET_NODES)
		forget_nodes(t);

	uint32_t index = (uint32_t)t->nodes.len;
	struct record_stack r = {.id = t->first_node + index, .parent = parent, .frame = frame};

	if (t->first_node >= CAPTURE_NONE - FORGET_NODES - 1 ||
		id_table_reserve(&t->node_ids, node_hash_of, t) || vec_push(&t->nodes, n))
		return writer_no_memory(w);
	id_table_add(&t->node_ids, hash, index);
	writer_add_record(w, RECORD_STACK, &r, sizeof(r), NULL, 0);
	return r.id;
}
