/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/live_names.h"

#include <string.h>

#include "base/clock.h"
#include "sample/naming_priv.h"
#include "sample/runtime_library.h"
#include "symbol/interpreter.h"

/* Perf maps and jitdumps are read again for a name that was not there, this often at most. */
#define JIT_AGAIN_NS NS_PER_S

struct open_module {
	struct naming naming;
	uint64_t opened_ns; /* 0: not yet */
};

struct live_names {
	struct session *session;
	struct naming_options options;
	VEC(struct open_module *) modules; /* by their ids in the recording */
	struct open_module unmapped;
};

struct live_names *live_names_new(struct session *s, const struct naming_options *options)
{
	struct live_names *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->session = s;
	l->options = *options;
	return l;
}

void live_names_free(struct live_names *l)
{
	if (!l)
		return;
	vec_each(&l->modules, m) {
		if (*m)
			naming_close(&(*m)->naming);
		free(*m);
	}
	vec_release(&l->modules);
	free(l);
}

static struct open_module *module_of(struct live_names *l, uint32_t id)
{
	struct module *m = id == CAPTURE_NONE ? NULL : naming_module(l->session, id);

	if (!m || vec_reserve(&l->modules, (size_t)id + 1))
		return &l->unmapped;
	while (l->modules.len <= id)
		l->modules.data[l->modules.len++] = NULL;
	if (!l->modules.data[id]) {
		l->modules.data[id] = calloc(1, sizeof(struct open_module));
		if (!l->modules.data[id])
			return &l->unmapped;
		l->modules.data[id]->naming = (struct naming){.session = l->session, .module = m};
	}
	return l->modules.data[id];
}

static void open_module(struct live_names *l, struct open_module *m)
{
	naming_close(&m->naming);
	m->naming.source = NULL;
	m->naming.jit = NULL;
	naming_open(&m->naming, &l->options);
	m->opened_ns = clock_monotonic_ns();
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

struct elf_file *live_name_file(struct live_names *l, uint32_t frame)
{
	struct record_frame f = capture_frame_get(l->session->writer, frame);
	struct module *m = f.module == CAPTURE_NONE ? NULL : naming_module(l->session, f.module);

	return m ? m->file : NULL;
}

static struct live_name python_name(struct live_names *l, const struct record_frame *f)
{
	const char *file;
	struct symbol_answer answer = python_stacks_name(l->session->python, f, &file);

	return (struct live_name){.answer = answer, .module = base_name(file), .start = f->address,
		.python = true, .library = python_library(file)};
}

struct live_name live_name_of(struct live_names *l, uint32_t frame)
{
	struct record_frame f = capture_frame_get(l->session->writer, frame);

	if (f.kind == FRAME_PYTHON)
		return python_name(l, &f);

	struct open_module *m = module_of(l, f.module);
	const struct module *module = m->naming.module;
	struct live_name name = {.generated = module && module->kind == MODULE_JIT};

	if (!m->opened_ns)
		open_module(l, m);
	name.answer = naming_resolve(&m->naming, frame, &f);
	if (!name.answer.count && name.generated &&
		clock_monotonic_ns() - m->opened_ns > JIT_AGAIN_NS) {
		open_module(l, m);
		name.answer = naming_resolve(&m->naming, frame, &f);
	}
	name.start = name.answer.count ? 0 : naming_function_start(&m->naming, &f);
	if (!name.start)
		name.start = f.address;
	if (module)
		name.module = base_name(module->path);
	name.library = module && module->path && python_library(module->path);
	name.role = f.role;
	name.interpreter = interpreter_hides(f.role,
		name.answer.count ? name.answer.levels[name.answer.count - 1].name : NULL);
	return name;
}
