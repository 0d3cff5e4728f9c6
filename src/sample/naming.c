/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Naming: when recording ends, every address that was seen gets its function, inline chain, file
 * and line, so that the recording can be read anywhere, without the binaries.
 *
 * One module after another, so that only one file's debug information is in memory at a time.
 */
#include "sample/naming_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sample/python/place.h"
#include "sample/runtime_library.h"
#include "symbol/symbol.h"
#include "unwind/table.h"

/* Debug information of the C library and of an interpreter takes a tenth of a second to open, and says little to who looks at a
 * Python program. */
static bool is_plain(const struct session *s, const struct module *m, const struct naming_options *options)
{
	bool interpreter = m->python && m->python->there;

	return (options->plain_runtime || (options->plain_beside_python && s->runs_python)) &&
		(interpreter || runtime_library(m->path));
}

static int open_elf(const struct session *s, const struct module *m, const struct naming_options *options,
	struct symbol_source **ret)
{
	char root[48] = "";

	if (m->root_fd >= 0)
		snprintf(root, sizeof(root), "/proc/self/fd/%d", m->root_fd);

	struct symbol_elf_options elf = {
		.root = root,
		.debuginfod = options->debuginfod,
		.no_inlines = is_plain(s, m, options),
	};

	return symbol_source_elf(m->file, &elf, ret, NULL);
}

void naming_open(struct naming *n, const struct naming_options *options)
{
	struct module *m = n->module;
	int rc;

	n->reason = SYMBOL_NOT_MAPPED;
	if (!m)
		return;
	if (m->kind == MODULE_JIT) {
		n->jit = jit_names_open(n->session, m, &n->reason);
		return;
	}
	rc = m->kind == MODULE_KERNEL ? symbol_source_kernel(&n->source, NULL)
		: m->file             ? open_elf(n->session, m, options, &n->source)
				      : -ENOENT;
	n->reason = rc == -EPERM           ? SYMBOL_REFUSED
		: m->kind == MODULE_KERNEL ? SYMBOL_NO_SYMBOLS
					   : SYMBOL_NO_FILE;
}

void naming_close(struct naming *n)
{
	symbol_source_free(n->source);
	if (n->module && n->module->file)
		elf_file_rest(n->module->file);
	jit_names_free(n->jit);
}

/* The trampoline is returned to and never called; all else in the page are copies of single
 * instructions. */
static struct symbol_answer name_uprobes(const struct record_frame *frame)
{
	static const struct symbol_level names[] = {{"[uprobe]", NULL, 0}, {"[uretprobe]", NULL, 0}};

	return (struct symbol_answer){&names[frame->is_return != 0], 1, SYMBOL_OK};
}

struct symbol_answer naming_resolve(
	const struct naming *n, uint32_t id, const struct record_frame *frame)
{
	const char *file;

	if (frame->kind == FRAME_PYTHON)
		return python_stacks_name(n->session->python, frame, &file);
	if (n->module && module_is_uprobes(n->module))
		return name_uprobes(frame);
	if (n->jit)
		return jit_names_resolve(n->jit, id, frame);
	/* A return address stands behind its call; the call is what the name is asked for. */
	if (n->source)
		return symbol_resolve(n->source, frame->address - frame->is_return);
	return (struct symbol_answer){.reason = n->reason};
}

uint64_t naming_function_start(const struct naming *n, const struct record_frame *frame)
{
	const struct module *m = n->module;
	uint64_t start = 0;

	if (m && m->unwind)
		unwind_module_function(m->unwind, frame->address - frame->is_return, &start);
	return start;
}

/* A frame without a name; where its function starts is known all the same when CFI covers it. */
static void write_unnamed(const struct naming *n, uint32_t id, const struct record_frame *frame,
	enum symbol_reason reason)
{
	capture_unnamed(n->session->writer, id, (uint8_t)reason, naming_function_start(n, frame));
}

static void name_frame(const struct naming *n, uint32_t id, const struct record_frame *frame)
{
	struct capture_writer *w = n->session->writer;

	if (frame->kind == FRAME_PYTHON && python_stacks_has_name(n->session->python, id))
		return;
	if (id == n->session->truncated)
		return;
	vec_each(&n->session->named, named)
		if (*named == id)
			return;

	struct record_symbol_level levels[SYMBOL_MAX_LEVELS];
	struct symbol_answer answer = naming_resolve(n, id, frame);

	for (size_t i = 0; i < answer.count; i++) {
		const struct symbol_level *level = &answer.levels[i];

		levels[i] = (struct record_symbol_level){
			.name = capture_string(w, level->name),
			.file = level->file ? capture_string(w, level->file) : CAPTURE_NONE,
			.line = level->line,
			.column = level->column,
		};
	}
	if (answer.count)
		capture_symbol(w, id, (uint8_t)answer.reason, levels, answer.count);
	else
		write_unnamed(n, id, frame, answer.reason);
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

struct module *naming_module(const struct session *s, uint32_t id)
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
	struct naming n = {.session = s, .module = naming_module(s, refs->module)};

	naming_open(&n, options);
	for (size_t i = 0; i < count; i++) {
		struct record_frame frame = capture_frame_get(s->writer, refs[i].id);

		name_frame(&n, refs[i].id, &frame);
	}
	naming_close(&n);
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
