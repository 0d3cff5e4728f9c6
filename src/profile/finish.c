/* SPDX-License-Identifier: BSD-2-Clause */
/* What was loaded becomes the model: functions and levels, threads, samples in order, quality. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/profile_priv.h"
#include "symbol/interpreter.h"

#define TEXT(l, s) loader_text((l), (s), strlen(s))

/* ---- functions ---- */

/* Names are interned, so that equal names are equal pointers. */
static uint64_t function_hash(const char *name, uint32_t module)
{
	return hash_pair((uintptr_t)name, module);
}

static uint64_t function_hash_of(const void *ctx, uint32_t index)
{
	const struct profile_function *f =
		&((const struct loader *)ctx)->p->functions.data[index];

	return function_hash(f->name, f->module);
}

/* The index of this function, added when it is new; PROFILE_NONE when out of memory. */
static uint32_t function_index(struct loader *l, const struct profile_function *f)
{
	uint64_t hash = function_hash(f->name, f->module);
	struct id_probe probe = id_probe_start(&l->function_ids, hash);

	while (id_probe_next(&l->function_ids, &probe)) {
		struct profile_function *known = &l->p->functions.data[probe.id];
		if (known->name != f->name || known->module != f->module ||
			known->unresolved != f->unresolved)
			continue;
		if (!known->file)
			known->file = f->file;
		return probe.id;
	}
	if (id_table_reserve(&l->function_ids, function_hash_of, l) ||
		vec_push(&l->p->functions, *f))
		return PROFILE_NONE;
	id_table_add(&l->function_ids, hash, (uint32_t)l->p->functions.len - 1);
	return (uint32_t)l->p->functions.len - 1;
}

static uint32_t synthetic_function(struct loader *l, const char *name)
{
	struct profile_function f = {
		.name = TEXT(l, name),
		.module = PROFILE_NONE,
		.unresolved = true,
		.reason = SYMBOL_NOT_MAPPED,
	};

	return f.name ? function_index(l, &f) : PROFILE_NONE;
}

uint32_t loader_state_function(struct loader *l, const char *name, enum thread_state state)
{
	struct profile_function f = {
		.name = TEXT(l, name),
		.module = PROFILE_NONE,
		.unresolved = true,
		.reason = SYMBOL_NOT_MAPPED,
		.state = (uint8_t)state,
	};

	return f.name ? function_index(l, &f) : PROFILE_NONE;
}

/* ---- the levels of a frame ---- */

/* "libfoo.so+0x1a2b40", or "[jit]": see struct profile_function. */
static const char *placeholder_name(
	struct loader *l, const struct profile_frame *f, const struct frame_name *name)
{
	const char *module = f->module == PROFILE_NONE ? "[unmapped]" :
							 l->p->modules.data[f->module].name;
	char text[512];

	if (f->module != PROFILE_NONE && l->p->modules.data[f->module].kind == MODULE_JIT)
		return TEXT(l, module);

	int len = snprintf(text, sizeof(text), "%.480s+0x%llx", module,
		(unsigned long long)(name->function_start ? name->function_start : f->address));

	return len > 0 ? loader_text(l, text, (size_t)len) : NULL;
}

static uint8_t placeholder_reason(
	const struct loader *l, const struct profile_frame *f, const struct frame_name *name)
{
	if (f->module == PROFILE_NONE)
		return SYMBOL_NOT_MAPPED;
	if (name->known && name->reason != SYMBOL_OK && name->reason != SYMBOL_NEAREST)
		return name->reason;
	return l->p->modules.data[f->module].kind == MODULE_JIT ? SYMBOL_ANONYMOUS : SYMBOL_NO_FILE;
}

/* One level; `loaded` NULL (or with a name that was lost) gives the placeholder. */
static int add_level(struct loader *l, const struct profile_frame *frame,
	const struct frame_name *name, const struct loaded_level *loaded, bool inlined)
{
	struct profile_function f = {
		.name = loaded ? loaded->name : NULL,
		.file = loaded ? loaded->file : NULL,
		.module = frame->module,
		.kernel = frame->kind == FRAME_KERNEL,
		.reason = name->reason,
	};
	struct profile_level level = {
		.line = loaded ? loaded->line : 0,
		.file = f.file,
		.inlined = inlined,
	};

	if (!f.name) {
		f.name = placeholder_name(l, frame, name);
		f.unresolved = true;
		f.reason = placeholder_reason(l, frame, name);
	}
	level.function = f.name ? function_index(l, &f) : PROFILE_NONE;
	if (level.function == PROFILE_NONE || l->p->levels.len >= PROFILE_NONE - 1)
		return -ENOMEM;
	return vec_push(&l->p->levels, level);
}

/* Machinery of an interpreter that the compiler has put into something else. */
static bool hides_level(const struct loader *l, const struct profile_frame *f, const struct frame_name *name,
	uint32_t i)
{
	return i + 1 < name->count && !l->options->filter.interpreter && !l->options->filter.native_only &&
		interpreter_hides_inlined(f->role, l->levels.data[name->first + i].name);
}

static int finish_frame(struct loader *l, struct profile_frame *f, const struct frame_name *name)
{
	uint32_t first = l->options->filter.no_inline && name->count ? name->count - 1 : 0;

	f->first_level = (uint32_t)l->p->levels.len;
	for (uint32_t i = first; i < name->count; i++)
		if (!hides_level(l, f, name, i) && add_level(l, f, name, &l->levels.data[name->first + i], i + 1 < name->count))
			return -ENOMEM;
	if (!name->count && add_level(l, f, name, NULL, false))
		return -ENOMEM;
	f->level_count = (uint32_t)l->p->levels.len - f->first_level;
	return 0;
}

/* Nodes whose frame was lost share one frame that says so. */
static int add_lost_frame(struct loader *l)
{
	struct profile_frame f = {.module = PROFILE_NONE, .level_count = 1};
	uint32_t index = (uint32_t)l->p->frames.len;
	bool needed = false;

	vec_each(&l->p->nodes, n) {
		if (n->frame == PROFILE_NONE) {
			n->frame = index;
			needed = true;
		}
	}
	if (!needed)
		return 0;
	f.first_level = (uint32_t)l->p->levels.len;

	struct profile_level level = {.function = synthetic_function(l, "[lost]")};

	if (level.function == PROFILE_NONE || vec_push(&l->p->levels, level))
		return -ENOMEM;
	return vec_push(&l->p->frames, f);
}

static int finish_frames(struct loader *l)
{
	for (size_t i = 0; i < l->p->frames.len; i++)
		if (finish_frame(l, &l->p->frames.data[i], &l->names.data[i]))
			return -ENOMEM;
	l->p->truncated_function = synthetic_function(l, "[truncated]");
	if (l->p->truncated_function == PROFILE_NONE)
		return -ENOMEM;
	return add_lost_frame(l);
}

/* ---- threads ---- */

static const char *thread_name_of(const struct loader *l, uint32_t pid, uint32_t tid)
{
	struct id_probe probe = id_probe_start(&l->thread_ids, hash_u64((uint64_t)pid << 32 | tid));

	while (id_probe_next(&l->thread_ids, &probe)) {
		const struct profile_thread *t = &l->p->threads.data[probe.id];
		if (t->pid == pid && t->tid == tid)
			return t->name;
	}
	return NULL;
}

/* Base name of the first word of a command line. */
static const char *command_name(struct loader *l, const char *command)
{
	size_t len = strcspn(command, " "), from = len;

	while (from && command[from - 1] != '/')
		from--;
	return loader_text(l, command + from, len - from);
}

const char *loader_process_name(struct loader *l, uint32_t pid)
{
	const char *name = thread_name_of(l, pid, pid);
	const char *command = loader_command(l, pid);
	char text[32];

	if (name)
		return name;
	if (command)
		return command_name(l, command);
	snprintf(text, sizeof(text), "pid %u", pid);
	return TEXT(l, text);
}

static int name_threads(struct loader *l)
{
	char text[32];

	vec_each(&l->p->threads, t) {
		t->process = loader_process_name(l, t->pid);
		if (!t->process)
			return -ENOMEM;
	}
	/* Apart, because loader_process_name() must not find the stand-ins. */
	vec_each(&l->p->threads, t) {
		if (t->name)
			continue;
		/* Threads of no number are those that allocated at a site that was not told apart by thread. */
		snprintf(text, sizeof(text), t->tid ? "tid %u" : "[several]", t->tid);
		t->name = TEXT(l, text);
		if (!t->name)
			return -ENOMEM;
	}
	return 0;
}

/* Who woke others is told whether its own samples are shown or not: before the filter. */
static int gather_wakers(struct loader *l)
{
	struct profile *p = l->p;
	autofree uint32_t *as = malloc((p->threads.len + 1) * sizeof(*as));

	if (!as)
		return -ENOMEM;
	for (size_t i = 0; i < p->threads.len; i++)
		as[i] = PROFILE_NONE;
	for (size_t i = 0; i < p->waits.len; i++) {
		uint32_t thread = l->waker_threads.data[i];

		p->wakers_known |= p->waits.data[i].waker_kind != WAKER_UNKNOWN;
		if (thread == PROFILE_NONE)
			continue;
		if (as[thread] == PROFILE_NONE) {
			const struct profile_thread *t = &p->threads.data[thread];

			as[thread] = (uint32_t)p->wakers.len;
			if (vec_push(&p->wakers,
				    (struct profile_waker){t->pid, t->tid, t->name, t->process}))
				return -ENOMEM;
		}
		p->waits.data[i].waker = as[thread];
	}
	return 0;
}

static bool filter_keeps(const struct profile_filter *filter, const struct profile_thread *t)
{
	if (filter->main_only && t->pid != t->tid)
		return false;
	if (filter->tid && filter->tid != t->tid)
		return false;
	return !filter->thread || !regexec(filter->thread, t->name, 0, NULL, 0);
}

/* Drops the threads that the filter does not keep, and their samples. */
static int filter_threads(struct loader *l)
{
	struct profile *p = l->p;
	autofree uint32_t *kept_as = calloc(p->threads.len + 1, sizeof(*kept_as));
	size_t kept = 0;

	if (!kept_as)
		return -ENOMEM;
	for (size_t i = 0; i < p->threads.len; i++) {
		kept_as[i] = PROFILE_NONE;
		if (!filter_keeps(&l->options->filter, &p->threads.data[i]))
			continue;
		kept_as[i] = (uint32_t)kept;
		p->threads.data[kept++] = p->threads.data[i];
	}
	p->threads.len = kept;
	kept = 0;
	vec_each(&p->samples, s) {
		s->thread = kept_as[s->thread];
		if (s->thread != PROFILE_NONE)
			p->samples.data[kept++] = *s;
	}
	p->samples.len = kept;
	return loader_heap_filter(l, kept_as);
}

/* ---- samples ---- */

static int compare_samples(const void *a, const void *b)
{
	const struct profile_sample *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
	if (x->thread != y->thread)
		return (x->thread > y->thread) - (x->thread < y->thread);
	return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Rings are read one CPU after the other, so the samples of a file are nearly but not in order. */
static void sort_samples(struct profile *p)
{
	for (size_t i = 1; i < p->samples.len; i++) {
		if (p->samples.data[i - 1].time_ns <= p->samples.data[i].time_ns)
			continue;
		qsort(p->samples.data, p->samples.len, sizeof(*p->samples.data), compare_samples);
		return;
	}
}

/* ---- quality ---- */

/* Frames of each sort from a node to the root. */
struct path_count {
	uint32_t guessed, fp, prologue, unresolved;
	bool python;       /* there is at least one of Python */
	bool guessed_root; /* the outermost one was guessed */
};

static bool is_unresolved(const struct profile *p, const struct profile_frame *f)
{
	const struct profile_level *real = &p->levels.data[f->first_level + f->level_count - 1];

	return p->functions.data[real->function].unresolved;
}

static void count_paths(const struct profile *p, struct path_count *paths)
{
	for (size_t i = 0; i < p->nodes.len; i++) {
		const struct profile_node *n = &p->nodes.data[i];
		const struct profile_frame *f = &p->frames.data[n->frame];
		struct path_count c = {0};

		if (n->parent != PROFILE_NONE) {
			const struct profile_frame *outer =
				&p->frames.data[p->nodes.data[n->parent].frame];
			c = paths[n->parent];
			/* What depends on its callee could not be counted at its own node. */
			c.guessed += outer->how == UNWIND_LEAF && frame_is_guess(outer, f);
			if (n->depth == 2)
				c.guessed_root = frame_is_guess(outer, f);
		} else {
			c.guessed_root = frame_is_guess(f, NULL);
		}
		c.guessed += frame_is_guess(f, NULL);
		c.fp += f->how == UNWIND_FP && f->kind == FRAME_USER;
		c.prologue += f->how == UNWIND_PROLOGUE;
		c.unresolved += is_unresolved(p, f);
		c.python |= f->kind == FRAME_PYTHON;
		paths[i] = c;
	}
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void count_thread(struct profile *p, const struct profile_sample *s)
{
	struct profile_thread *t = &p->threads.data[s->thread];
	uint64_t cpu_ns = s->wait == PROFILE_NONE ? s->weight : 0;

	t->samples++;
	t->weight += s->weight;
	t->cpu_ns += cpu_ns;
	p->total_weight += s->weight;
	p->cpu_ns += cpu_ns;
}

static void count_stack(struct profile *p, const struct profile_sample *s,
	const struct path_count *paths)
{
	struct profile_quality *q = &p->quality;
	uint32_t code = s->wait == PROFILE_NONE ? s->stack : p->waits.data[s->wait].stack;

	q->samples++;
	q->ends[s->end]++;
	if (s->wait != PROFILE_NONE) {
		q->intervals++;
		q->intervals_rooted += s->end == UNWIND_ROOT;
		q->intervals_without_stack += code == PROFILE_NONE;
		q->intervals_thinned += p->waits.data[s->wait].thinned;
	}
	q->python_torn += (s->python & SAMPLE_PYTHON_TORN) != 0;
	q->python_cut += (s->python & SAMPLE_PYTHON_CUT) != 0;
	if (code == PROFILE_NONE)
		return;
	q->python += paths[code].python;
	q->frames += p->nodes.data[code].depth;
	q->live_frames += s->live_frames;
	q->guessed_frames += paths[code].guessed;
	q->guessed_roots += s->end == UNWIND_ROOT && paths[code].guessed_root;
	q->fp_frames += paths[code].fp;
	q->prologue_frames += paths[code].prologue;
	q->unresolved_frames += paths[code].unresolved;
}

static void set_percentages(struct profile_quality *q)
{
	uint64_t on_cpu = q->samples - q->intervals;

	q->rooted_pct = percent(q->ends[UNWIND_ROOT], q->samples);
	q->on_cpu_rooted_pct = percent(q->ends[UNWIND_ROOT] - q->intervals_rooted, on_cpu);
	q->off_cpu_rooted_pct = percent(q->intervals_rooted, q->intervals);
	q->truncated_pct = percent(q->ends[UNWIND_TRUNCATED] + q->ends[UNWIND_CHANGED] +
					   q->ends[UNWIND_FRAME_LIMIT],
		q->samples);
	q->guessed_frames_pct = percent(q->guessed_frames, q->frames);
	q->live_frames_pct = percent(q->live_frames, q->frames);
	q->fp_frames_pct = percent(q->fp_frames, q->frames);
	q->prologue_frames_pct = percent(q->prologue_frames, q->frames);
	q->unresolved_frames_pct = percent(q->unresolved_frames, q->frames);
}

static int measure_quality(struct profile *p)
{
	autofree struct path_count *paths = calloc(p->nodes.len + 1, sizeof(*paths));
	autofree uint8_t *counted = calloc(p->waits.len + 1, sizeof(*counted));

	if (!paths || !counted)
		return -ENOMEM;
	count_paths(p, paths);
	vec_each(&p->samples, s) {
		count_thread(p, s);
		/* The second part of an interval has the stack of the first. */
		if (s->wait == PROFILE_NONE || !counted[s->wait])
			count_stack(p, s, paths);
		if (s->wait != PROFILE_NONE)
			counted[s->wait] = 1;
	}
	set_percentages(&p->quality);
	return 0;
}

int loader_finish(struct loader *l, struct err *err)
{
	loader_find_mode(l);
	if (finish_frames(l) || loader_heap_names(l) || name_threads(l) || gather_wakers(l) || filter_threads(l) ||
		loader_add_state_frames(l) || loader_thread_states(l))
		return err_nomem(err);
	loader_filter_samples(l);
	if (loader_filter_python(l))
		return err_nomem(err);
	sort_samples(l->p);
	if (measure_quality(l->p) || loader_hide_frames(l))
		return err_nomem(err);
	return 0;
}
