/* SPDX-License-Identifier: BSD-2-Clause */
/* Where references begin: modules, frames of threads, and what the interpreter keeps for threads and itself. */
#include <inttypes.h>
#include <string.h>

#include "python/alive_priv.h"
#include "python/object_priv.h"

#define MOST_LINKS 4096u

static int add(struct alive *a, struct root r)
{
	if (!vec_push(&a->roots, r))
		return 0;
	free(r.name);
	return -ENOMEM;
}

/* A module's name, and of which interpreter where that is another one than the main one. */
static char *module_name(struct alive *a, uint64_t str)
{
	struct buf text = {0};

	if (!python_text(a->p, str, 200, &text, NULL))
		buf_str(&text, "?");
	if (a->interpreter_id)
		buf_printf(&text, " of interpreter %" PRIu64, a->interpreter_id);
	if (text.failed)
		buf_release(&text);
	return text.data;
}

static bool add_module(void *ctx, uint64_t key, uint64_t value)
{
	struct alive *a = (struct alive *)ctx;
	struct root r = {.kind = PYTHON_ROOT_MODULE, .object = value};

	/* sys.modules may hold anything; most are modules. */
	if (!marks_have(&a->census.objects_at, value))
		return false;
	r.name = module_name(a, key);
	a->failed |= !r.name || add(a, r);
	return a->failed;
}

/* The program itself first: of two chains of the same length, its own is the one to tell. */
static bool add_main(void *ctx, uint64_t key, uint64_t value)
{
	struct alive *a = (struct alive *)ctx;

	return python_text_equals(a->p, key, "__main__", 8) && add_module(ctx, key, value);
}

static bool add_others(void *ctx, uint64_t key, uint64_t value)
{
	struct alive *a = (struct alive *)ctx;

	return !python_text_equals(a->p, key, "__main__", 8) && add_module(ctx, key, value);
}

static char *frame_words(const struct python_frame *f)
{
	const char *slash = strrchr(f->code->file, '/');
	struct buf text = {0};

	buf_printf(&text, "%s (%s:%" PRIu32 ")", *f->code->name ? f->code->name : "?",
		slash ? slash + 1 : f->code->file, f->position.line);
	return text.data;
}

static int add_frames(struct alive *a, const struct python_thread *t)
{
	struct python_chain chain = {.limit = MOST_LINKS};
	struct python_frames frames = {0};
	int rc = 0;

	chain.links = calloc(chain.limit, sizeof(*chain.links));
	if (!chain.links)
		return -ENOMEM;
	python_chain_read(a->p, t->address, &chain);
	rc = python_frames(a->p, &chain, &frames);
	vec_each(&frames, f)
	{
		struct root r = {.kind = PYTHON_ROOT_FRAME,
			.frame = f->at,
			.native_id = t->native_id,
			.main_thread = t->main};

		if (rc)
			break;
		r.name = frame_words(f);
		rc = r.name ? add(a, r) : -ENOMEM;
	}
	vec_release(&frames);
	free(chain.links);
	return rc;
}

static int add_threads(struct alive *a)
{
	struct python_threads threads = {0};
	int rc = python_threads(a->p, a->options->tids, a->options->tid_count, &threads, NULL);

	/* Those that could be read are there. */
	rc = rc == -ENOMEM ? rc : 0;
	vec_each(&threads, t)
		if (!rc)
			rc = add_frames(a, t);
	a->clear_roots = a->roots.len;
	vec_each(&threads, t)
		if (!rc)
			rc = add(a, (struct root){.kind = PYTHON_ROOT_THREAD,
				.from = t->address,
				.to = t->address + a->p->layout.thread.bytes,
				.native_id = t->native_id,
				.main_thread = t->main});
	vec_release(&threads);
	return rc;
}

int alive_find_roots(struct alive *a)
{
	const struct python_layout *l = &a->p->layout;
	struct python_addresses interpreters = {0};
	int rc = python_interpreters(a->p, &interpreters);

	rc = rc == -ENOMEM ? rc : 0;
	vec_each(&interpreters, at)
	{
		uint64_t modules;

		a->interpreter_id = 0;
		python_read_u64(a->p, *at + l->interpreter.id, &a->interpreter_id);
		if (!rc && python_read_u64(a->p, *at + l->interpreter.modules, &modules)) {
			python_dict_each(a->p, modules, add_main, a);
			python_dict_each(a->p, modules, add_others, a);
		}
	}
	if (!rc && !a->failed)
		rc = add_threads(a);
	vec_release(&interpreters);
	return a->failed ? -ENOMEM : rc;
}

struct kept {
	struct marks *marks;
	bool failed;
};

static bool keep_word(void *ctx, const struct python_ref *ref)
{
	struct kept *k = (struct kept *)ctx;

	k->failed |= marks_add(k->marks, ref->to) < 0;
	return k->failed;
}

int alive_interpreter_words(struct alive *a, struct marks *among, struct marks *ret)
{
	struct python_addresses interpreters = {0};
	struct kept k = {.marks = ret};
	int rc = python_interpreters(a->p, &interpreters);

	vec_each(&interpreters, at)
		python_words_each(a->p, *at, *at + a->p->layout.interpreter.bytes, among, keep_word, &k);
	vec_release(&interpreters);
	return rc == -ENOMEM || k.failed ? -ENOMEM : 0;
}
