/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Naming: when recording ends, every address that was seen gets its function, inline chain, file
 * and line, so that the recording can be read anywhere, without the binaries.
 *
 * One module after another, so that only one file's debug information is in memory at a time.
 */
#include "sample/session_priv.h"

#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "symbol/symbol.h"
#include "unwind/table.h"

/* Maps that are kept open; in system-wide mode processes come and go without end. */
#define MAX_PERF_MAPS 256

void perf_map_note(struct session *s, struct module *jit)
{
	if (jit->map_noted)
		return;
	jit->map_noted = true;
	if (s->perf_maps.len >= MAX_PERF_MAPS)
		return;

	struct perf_map_fd map = {jit->pid, symbol_perf_map_open(jit->pid, NULL)};

	if (vec_push(&s->perf_maps, map) && map.fd >= 0)
		close(map.fd);
}

void perf_maps_release(struct session *s)
{
	vec_each(&s->perf_maps, it)
		if (it->fd >= 0)
			close(it->fd);
	vec_release(&s->perf_maps);
}

/* The map file may have been created after the first sample in JIT code: look once more. */
static int open_perf_map(struct session *s, pid_t pid, struct symbol_source **ret)
{
	vec_each(&s->perf_maps, it) {
		if (it->pid != pid)
			continue;
		if (it->fd == -ENOENT)
			it->fd = symbol_perf_map_open(pid, NULL);
		return it->fd < 0 ? it->fd : symbol_source_perf_map(it->fd, ret, NULL);
	}
	return -ENOENT;
}

/* The place this module's names come from. NULL: none, and *ret_reason says why. */
static struct symbol_source *open_source(struct session *s, struct module *m,
	const struct naming_options *options, enum symbol_reason *ret_reason)
{
	struct symbol_source *source = NULL;
	char root[48] = "";
	int rc;

	if (m->kind == MODULE_KERNEL) {
		rc = symbol_source_kernel(&source, NULL);
	} else if (m->kind == MODULE_JIT) {
		rc = open_perf_map(s, m->pid, &source);
	} else if (m->file) {
		if (m->root_fd >= 0)
			snprintf(root, sizeof(root), "/proc/self/fd/%d", m->root_fd);
		struct symbol_elf_options elf = {
			.root = root,
			.debuginfod = options->debuginfod,
		};
		rc = symbol_source_elf(m->file, &elf, &source, NULL);
	} else {
		rc = -ENOENT;
	}
	*ret_reason = rc == -EPERM            ? SYMBOL_REFUSED
		: m->kind == MODULE_JIT       ? SYMBOL_ANONYMOUS
		: m->kind == MODULE_KERNEL    ? SYMBOL_NO_SYMBOLS
					      : SYMBOL_NO_FILE;
	return rc ? NULL : source;
}

/* A frame without a name; where its function starts is known all the same when CFI covers it. */
static void write_unnamed(struct session *s, const struct module *m, uint32_t id,
	const struct record_frame *frame, enum symbol_reason reason)
{
	uint64_t start = 0;

	if (m && m->unwind)
		unwind_module_function(m->unwind, frame->address - frame->is_return, &start);
	capture_unnamed(s->writer, id, (uint8_t)reason, start);
}

static void name_frame(struct session *s, const struct module *m, struct symbol_source *source,
	uint32_t id, const struct record_frame *frame)
{
	/* A return address stands behind its call; the call is what the name is asked for. */
	struct symbol_answer answer = symbol_resolve(source, frame->address - frame->is_return);
	struct record_symbol_level levels[SYMBOL_MAX_LEVELS];

	for (size_t i = 0; i < answer.count; i++) {
		const struct symbol_level *level = &answer.levels[i];

		levels[i] = (struct record_symbol_level){
			.name = capture_string(s->writer, level->name),
			.file = level->file ? capture_string(s->writer, level->file) : CAPTURE_NONE,
			.line = level->line,
		};
	}
	if (answer.count)
		capture_symbol(s->writer, id, (uint8_t)answer.reason, levels, answer.count);
	else
		write_unnamed(s, m, id, frame, answer.reason);
}

struct frame_ref {
	uint32_t module, id;
	uint64_t address;
};

/* By module, then by address: neighbours share compilation units and cache lines. */
static int compare_refs(const void *a, const void *b)
{
	const struct frame_ref *x = a, *y = b;

	if (x->module != y->module)
		return (x->module > y->module) - (x->module < y->module);
	return (x->address > y->address) - (x->address < y->address);
}

static struct frame_ref *sorted_refs(const struct session *s, size_t count)
{
	struct frame_ref *refs = calloc(count ? count : 1, sizeof(*refs));

	for (size_t i = 0; refs && i < count; i++) {
		struct record_frame f = capture_frame_get(s->writer, (uint32_t)i);
		refs[i] = (struct frame_ref){f.module, (uint32_t)i, f.address};
	}
	if (refs)
		qsort(refs, count, sizeof(*refs), compare_refs);
	return refs;
}

static struct module *module_by_id(const struct session *s, uint32_t id)
{
	for (size_t i = 0; i < module_store_count(s->modules); i++)
		if (module_store_at(s->modules, i)->capture_id == id)
			return module_store_at(s->modules, i);
	return NULL;
}

/* Names the run of frames that lie in one module. */
static void name_module(struct session *s, const struct frame_ref *refs, size_t count,
	const struct naming_options *options)
{
	struct module *m = module_by_id(s, refs->module);
	enum symbol_reason reason = SYMBOL_NOT_MAPPED;
	struct symbol_source *source = m ? open_source(s, m, options, &reason) : NULL;

	for (size_t i = 0; i < count; i++) {
		struct record_frame frame = capture_frame_get(s->writer, refs[i].id);

		if (source)
			name_frame(s, m, source, refs[i].id, &frame);
		else
			write_unnamed(s, m, refs[i].id, &frame, reason);
	}
	symbol_source_free(source);
}

void session_name_frames(struct session *s, const struct naming_options *options)
{
	size_t count = capture_frame_count(s->writer);
	autofree struct frame_ref *refs = sorted_refs(s, count);

	for (size_t i = 0, end; refs && i < count; i = end) {
		for (end = i + 1; end < count && refs[end].module == refs[i].module;)
			end++;
		if (options->progress)
			options->progress(options->ctx, i, count);
		name_module(s, refs + i, end - i, options);
	}
}
