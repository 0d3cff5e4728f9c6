/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of a recording, one after the other, into the arrays of a loader. */
#include <string.h>

#include "base/hash.h"
#include "profile/profile_priv.h"

const char *loader_string(const struct loader *l, uint32_t id)
{
	uint32_t at = id_map_find(&l->string_ids, id);

	return at == PROFILE_NONE ? NULL : l->strings.data[at];
}

static void note_time(struct loader *l, uint64_t time_ns)
{
	if (time_ns > l->last_ns)
		l->last_ns = time_ns;
}

/* ---- processes and threads ---- */

static uint64_t thread_hash(uint32_t pid, uint32_t tid)
{
	return hash_u64((uint64_t)pid << 32 | tid);
}

static uint64_t thread_hash_of(const void *ctx, uint32_t index)
{
	const struct profile_thread *t = &((const struct loader *)ctx)->p->threads.data[index];

	return thread_hash(t->pid, t->tid);
}

uint32_t loader_thread(struct loader *l, uint32_t pid, uint32_t tid)
{
	uint64_t hash = thread_hash(pid, tid);
	struct id_probe probe = id_probe_start(&l->thread_ids, hash);
	struct profile_thread t = {.pid = pid, .tid = tid};

	while (id_probe_next(&l->thread_ids, &probe)) {
		const struct profile_thread *known = &l->p->threads.data[probe.id];
		if (known->pid == pid && known->tid == tid)
			return probe.id;
	}
	if (id_table_reserve(&l->thread_ids, thread_hash_of, l) || vec_push(&l->p->threads, t))
		return PROFILE_NONE;
	id_table_add(&l->thread_ids, hash, (uint32_t)l->p->threads.len - 1);
	return (uint32_t)l->p->threads.len - 1;
}

/* ---- one function a record type: 0 or -ENOMEM ---- */

static int load_meta(struct loader *l, const struct record_meta *r)
{
	const char *key = loader_string(l, r->key), *value = loader_string(l, r->value);

	if (!key || !value)
		return 0;
	if (vec_reserve(&l->p->meta, l->p->meta.len + 2))
		return -ENOMEM;
	l->p->meta.data[l->p->meta.len++] = key;
	l->p->meta.data[l->p->meta.len++] = value;
	return 0;
}

static int load_string(struct loader *l, const struct record_string *r)
{
	if (!id_map_accepts(&l->string_ids, r->id))
		return 0;

	const char *text = loader_text(l, (const char *)(r + 1), r->len);

	if (!text || vec_push(&l->strings, text) || vec_push(&l->string_ids.ids, r->id))
		return -ENOMEM;
	return 0;
}

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static int load_module(struct loader *l, const struct record_module *r)
{
	const char *path = loader_string(l, r->path);
	struct profile_module m = {
		.path = path && *path ? path : "[lost]",
		.kind = r->kind,
		.pid = r->pid,
		.build_id_bytes = r->build_id_bytes,
	};
	struct module_file file = {.inode = r->inode, .device = r->device};

	if (!id_map_accepts(&l->module_ids, r->id))
		return 0;
	/* A jitdump is where its code is described, not where it is. */
	m.name = m.kind == MODULE_JIT ? "[jit]" : last_component(m.path);
	memcpy(m.build_id, r->build_id, sizeof(m.build_id));
	if (vec_push(&l->p->modules, m) || vec_push(&l->files, file) ||
		vec_push(&l->module_ids.ids, r->id))
		return -ENOMEM;
	return 0;
}

static int load_process(struct loader *l, const struct record_process *r)
{
	const char *command = loader_string(l, r->command);
	struct loaded_process *known = loader_process(l, r->pid);

	note_time(l, r->time_ns);
	if (!command)
		return 0;
	if (known) {
		known->command = command;
		return 0;
	}
	if (id_table_reserve(&l->process_ids, loader_process_hash, l) ||
		vec_push(&l->processes, (struct loaded_process){r->pid, command}))
		return -ENOMEM;
	id_table_add(&l->process_ids, hash_u64(r->pid), (uint32_t)l->processes.len - 1);
	return 0;
}

static int load_thread(struct loader *l, const struct record_thread *r)
{
	const char *name = loader_string(l, r->name);
	uint32_t index = loader_thread(l, r->pid, r->tid);

	note_time(l, r->time_ns);
	if (index == PROFILE_NONE)
		return -ENOMEM;
	if (name)
		l->p->threads.data[index].name = name;
	return 0;
}

static int load_mapping(struct loader *l, const struct record_mapping *r)
{
	uint32_t module = id_map_find(&l->module_ids, r->module);

	note_time(l, r->time_ns);
	if (module == PROFILE_NONE || r->end <= r->start)
		return 0;

	struct profile_module *m = &l->p->modules.data[module];

	if (!m->end) {
		m->start = r->start;
		m->end = r->end;
		m->bias = r->bias;
	}
	return 0;
}

static int load_frame(struct loader *l, const struct record_frame *r)
{
	struct profile_frame f = {
		.address = r->address,
		.module = id_map_find(&l->module_ids, r->module),
		.kind = r->kind,
		.how = r->how,
		.role = r->role,
		.source = r->source,
		.is_return = r->is_return != 0,
	};

	if (!id_map_accepts(&l->frame_ids, r->id))
		return 0;
	if (vec_push(&l->p->frames, f) || vec_push(&l->names, (struct frame_name){0}) ||
		vec_push(&l->frame_ids.ids, r->id))
		return -ENOMEM;
	return 0;
}

/* A node whose parent was lost is kept: what is below it is still true. */
static int load_stack(struct loader *l, const struct record_stack *r)
{
	struct profile_node n = {
		.parent = id_map_find(&l->node_ids, r->parent),
		.frame = id_map_find(&l->frame_ids, r->frame),
		.depth = 1,
	};
	uint8_t cut = n.parent == PROFILE_NONE && r->parent != CAPTURE_NONE;

	if (!id_map_accepts(&l->node_ids, r->id))
		return 0;
	if (n.parent != PROFILE_NONE) {
		n.depth = l->p->nodes.data[n.parent].depth + 1;
		cut = l->cut_nodes.data[n.parent];
	}
	if (vec_push(&l->p->nodes, n) || vec_push(&l->cut_nodes, cut) ||
		vec_push(&l->node_ids.ids, r->id))
		return -ENOMEM;
	return 0;
}

/* How the user part of a stack ends: as recorded, unless damage cut it shorter. */
static uint8_t stack_end(const struct loader *l, uint32_t found, uint32_t recorded, uint8_t end)
{
	if (end >= UNWIND_END_COUNT)
		end = UNWIND_NO_RULE;
	if (found == PROFILE_NONE ? recorded != CAPTURE_NONE : l->cut_nodes.data[found])
		return UNWIND_TRUNCATED;
	return found == PROFILE_NONE && end == UNWIND_ROOT ? UNWIND_NO_REGS : end;
}

static int load_sample(struct loader *l, const struct record_sample *r)
{
	struct profile_sample s = {
		.time_ns = r->time_ns,
		.weight = r->weight,
		.thread = loader_thread(l, r->pid, r->tid),
		.stack = id_map_find(&l->node_ids, r->stack),
		.used_bytes = r->used_bytes,
		.live_frames = r->live_frames,
		.cpu = r->cpu,
		.wait = PROFILE_NONE,
		.python = r->python,
	};

	note_time(l, r->time_ns);
	if (s.thread == PROFILE_NONE)
		return -ENOMEM;
	s.end = stack_end(l, s.stack, r->stack, r->end);
	return vec_push(&l->p->samples, s);
}

/* Of an interval of which several are left out, a part that lasted `weight` in proportion. */
static uint64_t lasted(const struct record_off_cpu *r, uint64_t weight, bool thinned)
{
	double whole = (double)r->blocked_ns + (double)r->queued_ns;

	return thinned ? (uint64_t)((double)r->duration_ns * ((double)weight / whole)) : weight;
}

/* One sample for the blocked part and one for that in the run queue, as far as they are there. */
static int load_parts(struct loader *l, const struct record_off_cpu *r, struct profile_sample s)
{
	bool known = r->state < STATE_COUNT && r->state != STATE_ON_CPU;
	bool thinned = l->p->waits.data[s.wait].thinned;

	s.state = known ? r->state : STATE_BLOCKED;
	s.weight = r->blocked_ns;
	if (r->blocked_ns && vec_push(&l->p->samples, s))
		return -ENOMEM;
	if (!r->queued_ns)
		return 0;
	/* A thread that was preempted was queued in this state from the beginning. */
	if (s.state != STATE_THROTTLED)
		s.state = STATE_RUN_QUEUE;
	s.time_ns += lasted(r, r->blocked_ns, thinned);
	s.weight = r->queued_ns;
	return vec_push(&l->p->samples, s);
}

static int load_off_cpu(struct loader *l, const struct record_off_cpu *r)
{
	struct profile_sample s = {
		.time_ns = r->start_ns,
		.thread = loader_thread(l, r->pid, r->tid),
		.stack = id_map_find(&l->node_ids, r->stack),
		.wait = (uint32_t)l->p->waits.len,
		.used_bytes = r->used_bytes,
		.live_frames = r->live_frames,
		.cpu = r->cpu,
		.python = r->python,
	};
	struct profile_wait w = {
		.start_ns = r->start_ns,
		.duration_ns = r->duration_ns,
		.stack = s.stack,
		.syscall = r->syscall >= 0 ? r->syscall : -1,
		.syscall_name = loader_string(l, r->syscall_name),
		.waker = PROFILE_NONE,
		.waker_stack = id_map_find(&l->node_ids, r->waker_stack),
		.waker_kind = r->waker <= WAKER_INTERRUPT ? r->waker : WAKER_UNKNOWN,
		.was_open = r->open & 1,
		.still_open = r->open & 2,
		.thinned = r->blocked_ns > r->duration_ns ||
			   r->queued_ns > r->duration_ns - r->blocked_ns,
	};
	uint32_t waker = PROFILE_NONE;

	if (w.waker_kind == WAKER_THREAD && !r->waker_tid)
		w.waker_kind = WAKER_UNKNOWN;
	if (w.waker_kind == WAKER_THREAD)
		waker = loader_thread(l, r->waker_pid, r->waker_tid);
	note_time(l, r->start_ns);
	if (r->duration_ns <= UINT64_MAX - r->start_ns)
		note_time(l, r->start_ns + r->duration_ns);
	if (s.thread == PROFILE_NONE || (w.waker_kind == WAKER_THREAD && waker == PROFILE_NONE) ||
		s.wait == PROFILE_NONE || vec_push(&l->p->waits, w) ||
		vec_push(&l->waker_threads, waker))
		return -ENOMEM;
	s.end = stack_end(l, s.stack, r->stack, r->end);
	return load_parts(l, r, s);
}

static int load_thread_times(struct loader *l, const struct record_thread_times *r)
{
	uint32_t index = loader_thread(l, r->pid, r->tid);

	note_time(l, r->until_ns);
	if (index == PROFILE_NONE)
		return -ENOMEM;
	loader_set_times(&l->p->threads.data[index], r);
	return 0;
}

/* A task that waits is like a thread that is blocked, and one that waits for its loop like one in a run queue. */
static int load_task_time(struct loader *l, const struct record_task_time *r)
{
	struct profile_sample s = {
		.time_ns = r->time_ns,
		.weight = r->weight_ns,
		.wait = r->doing == TASK_RUNS ? PROFILE_NONE : (uint32_t)l->p->waits.len,
		.stack = id_map_find(&l->node_ids, r->stack),
		.state = r->doing == TASK_RUNS ? STATE_ON_CPU : r->doing == TASK_READY ? STATE_RUN_QUEUE : STATE_BLOCKED,
		.python = r->python,
	};
	struct profile_wait w = {
		.start_ns = r->time_ns,
		.duration_ns = r->weight_ns,
		.stack = s.stack,
		.syscall = -1,
		.awaits = loader_string(l, r->what),
		.waker = PROFILE_NONE,
		.waker_stack = PROFILE_NONE,
	};

	note_time(l, r->time_ns);
	l->p->task_ns += r->weight_ns;
	if (!l->options->filter.tasks)
		return 0;
	s.thread = loader_thread(l, r->pid, r->tid);
	if (s.thread == PROFILE_NONE)
		return -ENOMEM;
	if (s.wait != PROFILE_NONE &&
		(vec_push(&l->p->waits, w) || vec_push(&l->waker_threads, PROFILE_NONE)))
		return -ENOMEM;
	return vec_push(&l->p->samples, s);
}

static int load_loss(struct loader *l, const struct record_loss *r)
{
	note_time(l, r->time_ns);
	if (r->kind < LOSS_KIND_COUNT)
		l->p->quality.losses[r->kind] += r->count;
	return 0;
}

/* Levels beyond CAPTURE_MAX_LEVELS are not taken: one record of thousands could be put on every
 * node of a stack. The outermost are kept, of which the last is the real function. */
static int load_symbol(struct loader *l, const struct record_symbol *r)
{
	const struct record_symbol_level *levels = (const void *)(r + 1);
	uint32_t frame = id_map_find(&l->frame_ids, r->frame);
	uint32_t from = 0;

	if (frame == PROFILE_NONE)
		return 0;
	if (r->level_count > CAPTURE_MAX_LEVELS)
		from = r->level_count - CAPTURE_MAX_LEVELS;
	if (l->levels.len + r->level_count >= PROFILE_NONE)
		return -ENOMEM;
	l->names.data[frame] = (struct frame_name){
		.first = (uint32_t)l->levels.len,
		.count = r->level_count - from,
		.reason = r->reason,
		.known = true,
		.function_start = r->function_start,
	};
	for (size_t i = from; i < r->level_count; i++) {
		struct loaded_level level = {
			.name = loader_string(l, levels[i].name),
			.file = loader_string(l, levels[i].file),
			.line = levels[i].line,
		};
		if (vec_push(&l->levels, level))
			return -ENOMEM;
	}
	return 0;
}

static int load_end(struct loader *l, const struct record_end *r)
{
	note_time(l, r->time_ns);
	l->end_ns = r->time_ns;
	l->p->end_reason = r->reason;
	return 0;
}

static int load_exit(struct loader *l, const struct record_exit *r)
{
	note_time(l, r->time_ns);
	if (r->pid == r->tid)
		loader_heap_exit(l, r->pid);
	return 0;
}

/* All of them that have a time have it there. */
static int load_heap(struct loader *l, const struct record_header *h)
{
	if (h->type != RECORD_HEAP_SITE)
		note_time(l, ((const struct record_heap *)(const void *)h)->time_ns);
	return loader_heap_record(l, h);
}

static int load_note(struct loader *l, const struct record_header *h)
{
	const struct record_mark *mark = (const void *)h;

	if (h->type == RECORD_COUNTER_VALUE)
		note_time(l, ((const struct record_counter_value *)(const void *)h)->time_ns);
	else if (h->type == RECORD_MARK)
		note_time(l, mark->time_ns);
	return loader_note(l, h);
}

static int load_record(struct loader *l, const struct record_header *h)
{
	const void *r = h;

	if (l->options->filter.tasks && (h->type == RECORD_SAMPLE || h->type == RECORD_OFF_CPU ||
						h->type == RECORD_THREAD_TIMES))
		return 0;
	switch (h->type) {
	case RECORD_META:
		return load_meta(l, r);
	case RECORD_STRING:
		return load_string(l, r);
	case RECORD_MODULE:
		return load_module(l, r);
	case RECORD_PROCESS:
		return load_process(l, r);
	case RECORD_THREAD:
		return load_thread(l, r);
	case RECORD_EXIT:
		return load_exit(l, r);
	case RECORD_MAPPING:
		return load_mapping(l, r);
	case RECORD_FRAME:
		return load_frame(l, r);
	case RECORD_STACK:
		return load_stack(l, r);
	case RECORD_SAMPLE:
		return load_sample(l, r);
	case RECORD_LOSS:
		return load_loss(l, r);
	case RECORD_SYMBOL:
		return load_symbol(l, r);
	case RECORD_COST:
		l->p->cost = *(const struct record_cost *)r;
		return 0;
	case RECORD_END:
		return load_end(l, r);
	case RECORD_OFF_CPU:
		return load_off_cpu(l, r);
	case RECORD_THREAD_TIMES:
		return load_thread_times(l, r);
	case RECORD_TASK_TIME:
		return load_task_time(l, r);
	case RECORD_HEAP:
	case RECORD_HEAP_SITE:
	case RECORD_HEAP_STATE:
	case RECORD_HEAP_SHAPE:
	case RECORD_HEAP_FLOW:
	case RECORD_HEAP_THREAD:
	case RECORD_HEAP_TOTAL:
	case RECORD_HEAP_CLASS:
		return load_heap(l, h);
	case RECORD_MARK:
	case RECORD_COUNTER:
	case RECORD_COUNTER_VALUE:
		return load_note(l, h);
	default:
		return 0; /* of a later version: counted by the reader */
	}
}

/* ---- the whole ---- */

static void set_span(struct loader *l, const struct capture_reader *reader)
{
	const struct capture_file_header *h = capture_reader_header(reader);
	struct profile *p = l->p;

	if (!capture_reader_damage(reader)->bad_header) {
		p->start_ns = h->start_monotonic_ns;
		p->start_realtime_ns = h->start_realtime_ns;
	} else if (p->samples.len) {
		p->start_ns = p->samples.data[0].time_ns;
	}
	p->end_ns = l->end_ns ? l->end_ns : l->last_ns;
	if (p->end_ns < p->start_ns)
		p->end_ns = p->start_ns;
}

static int load_all(struct loader *l, struct capture_reader *reader, struct err *err)
{
	const struct record_header *h;
	int rc;

	loader_heap_range(l, capture_reader_header(reader)->start_monotonic_ns);
	while ((rc = capture_reader_next(reader, &h, err)) > 0)
		if (load_record(l, h))
			return err_nomem(err);
	if (rc)
		return rc;
	if (l->options->name_locally && (rc = loader_name_locally(l, err)))
		return rc;
	rc = loader_finish(l, err);
	if (rc)
		return rc;
	set_span(l, reader);
	loader_heap_finish(l);
	l->p->file_bytes = capture_reader_bytes(reader);
	l->p->damage = *capture_reader_damage(reader);
	return 0;
}

static void loader_release(struct loader *l)
{
	vec_release(&l->string_ids.ids);
	vec_release(&l->module_ids.ids);
	vec_release(&l->frame_ids.ids);
	vec_release(&l->node_ids.ids);
	vec_release(&l->strings);
	vec_release(&l->files);
	vec_release(&l->names);
	vec_release(&l->levels);
	vec_release(&l->cut_nodes);
	vec_release(&l->processes);
	vec_release(&l->waker_threads);
	id_table_release(&l->process_ids);
	id_table_release(&l->thread_ids);
	id_table_release(&l->function_ids);
	loader_heap_release(l);
}

/* Takes the reader. */
static int load_from(struct capture_reader *reader, const struct profile_load_options *options,
	struct profile **ret, struct err *err)
{
	static const struct profile_load_options defaults;
	struct loader l = {
		.p = calloc(1, sizeof(*l.p)),
		.options = options ? options : &defaults,
	};
	int rc = l.p ? load_all(&l, reader, err) : err_nomem(err);

	loader_release(&l);
	capture_reader_free(reader);
	if (rc)
		profile_free(l.p);
	else
		*ret = l.p;
	return rc;
}

int profile_load(const char *path, const struct profile_load_options *options,
	struct profile **ret, struct err *err)
{
	struct capture_reader *reader;
	int rc = capture_reader_open(path, &reader, err);

	return rc ? rc : load_from(reader, options, ret, err);
}

int profile_load_memory(const void *bytes, size_t size, const struct profile_load_options *options,
	struct profile **ret, struct err *err)
{
	struct capture_reader *reader;
	int rc = capture_reader_open_memory(bytes, size, &reader, err);

	return rc ? rc : load_from(reader, options, ret, err);
}
