/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A window as a recording: its segments are read one after the other; what an event refers to is
 * written before it, once, under the number it has in the new file.
 *
 * Definitions are kept as they are read and written when the first event needs them, so that nothing
 * of what only older events needed gets into the file (and no time is lost naming it).
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "capture/reader.h"
#include "capture/window_priv.h"

/* Known in the new file from one segment to the next. */
#define MOST_NODES ((size_t)128 << 10)

/* Numbers of a thing in a segment and in the new file; CAPTURE_NONE: not written yet. */
struct known_string {
	size_t at; /* in struct replay.text */
	uint32_t len, out;
};

struct known_module {
	struct record_module record;
	uint32_t out;
	bool defined;
};

struct known_frame {
	struct record_frame record;
	uint32_t out;
};

struct known_node {
	uint32_t parent, frame, out;
};

/* Of a thread: the last ones before the window, the first ones in it, and the last; pid 0: none. */
struct known_times {
	struct record_thread_times before, first, last;
};

/* Hashes of what was seen: 64 bits are as good as the thing itself for a few million of them. */
struct seen {
	VEC(uint64_t) hashes;
	struct id_table ids;
};

struct replay {
	struct capture_writer *out;
	struct capture_window_counts *counts;
	uint64_t from_ns;
	bool failed; /* out of memory */

	/* of the segment */
	struct buf text;
	VEC(struct known_string) strings;
	VEC(struct known_frame) frames;
	VEC(struct known_node) nodes;
	uint32_t first_node;
	VEC(uint32_t) chain; /* scratch */
	bool cut;            /* it began before from_ns */
	struct seen needed;  /* then: threads and processes with events since */

	/* of all */
	VEC(struct known_module) modules;
	struct seen told;    /* names and mappings, and threads for counting */
	uint64_t now_ns;     /* of the event */
	VEC(uint64_t) frame_ns;
	VEC(struct known_times) times;
	struct id_table times_ids; /* by thread */
};

/* ---- sets ---- */

static uint64_t seen_hash_of(const void *ctx, uint32_t id)
{
	return ((const struct seen *)ctx)->hashes.data[id];
}

static bool seen_has(const struct seen *s, uint64_t hash)
{
	struct id_probe probe = id_probe_start(&s->ids, hash);

	while (id_probe_next(&s->ids, &probe))
		if (s->hashes.data[probe.id] == hash)
			return true;
	return false;
}

/* False when it was there already. */
static bool seen_add(struct replay *r, struct seen *s, uint64_t hash)
{
	if (seen_has(s, hash))
		return false;
	if (id_table_reserve(&s->ids, seen_hash_of, s) || vec_push(&s->hashes, hash)) {
		r->failed = true;
		return true;
	}
	id_table_add(&s->ids, hash, (uint32_t)s->hashes.len - 1);
	return true;
}

static void seen_clear(struct seen *s)
{
	vec_release(&s->hashes);
	id_table_release(&s->ids);
}

static uint64_t thread_key(uint32_t pid, uint32_t tid)
{
	return hash_u64((uint64_t)pid << 32 | tid);
}

/* ---- definitions ---- */

static uint32_t out_string(struct replay *r, uint32_t id)
{
	if (id >= r->strings.len)
		return CAPTURE_NONE;

	struct known_string *s = &r->strings.data[id];

	if (s->out == CAPTURE_NONE)
		s->out = capture_string_bytes(r->out, r->text.data + s->at, s->len);
	return s->out;
}

/* The path is translated when the module is read: its string belongs to this segment. */
static uint32_t out_module(struct replay *r, uint32_t id)
{
	if (id >= r->modules.len || !r->modules.data[id].defined)
		return CAPTURE_NONE;

	struct known_module *m = &r->modules.data[id];

	if (m->out == CAPTURE_NONE) {
		struct record_module record = m->record;

		record.path = out_string(r, m->record.path);
		m->out = capture_module(r->out, &record);
	}
	return m->out;
}

static uint32_t out_frame(struct replay *r, uint32_t id)
{
	if (id >= r->frames.len)
		return CAPTURE_NONE;

	struct known_frame *f = &r->frames.data[id];

	if (f->out == CAPTURE_NONE) {
		struct record_frame record = f->record;

		record.module = out_module(r, record.module);
		f->out = capture_frame(r->out, &record);
		if (f->out == r->frame_ns.len && vec_push(&r->frame_ns, r->now_ns))
			r->failed = true;
	}
	return f->out;
}

static uint32_t out_stack(struct replay *r, uint32_t leaf)
{
	uint32_t node = CAPTURE_NONE, at = leaf;

	r->chain.len = 0;
	while (at - r->first_node < r->nodes.len) {
		struct known_node *n = &r->nodes.data[at - r->first_node];

		if (n->out != CAPTURE_NONE) {
			node = n->out;
			break;
		}
		if (vec_push(&r->chain, at)) {
			r->failed = true;
			return CAPTURE_NONE;
		}
		at = n->parent;
	}
	while (r->chain.len) {
		struct known_node *n =
			&r->nodes.data[r->chain.data[--r->chain.len] - r->first_node];

		node = n->out = capture_stack(r->out, node, out_frame(r, n->frame));
	}
	return node;
}

/* What the segment defines is kept. Ids ascend; a parent stands before its children. */
static void keep_string(struct replay *r, const struct record_string *s)
{
	struct known_string known = {.at = r->text.len, .len = s->len, .out = CAPTURE_NONE};

	buf_add(&r->text, s + 1, s->len);
	r->failed |= r->text.failed || vec_push(&r->strings, known);
}

static void keep_module(struct replay *r, const struct record_module *m)
{
	struct known_module known = {.record = *m, .out = CAPTURE_NONE, .defined = true};

	while (!r->failed && r->modules.len <= m->id)
		r->failed |= vec_push(&r->modules, (struct known_module){.out = CAPTURE_NONE});
	if (r->failed)
		return;
	known.out = r->modules.data[m->id].out;
	r->modules.data[m->id] = known;
}

static void keep_frame(struct replay *r, const struct record_frame *f)
{
	r->failed |= vec_push(&r->frames, (struct known_frame){*f, CAPTURE_NONE});
}

static void keep_node(struct replay *r, const struct record_stack *s)
{
	if (!r->nodes.len)
		r->first_node = s->id;
	r->failed |= vec_push(&r->nodes, (struct known_node){s->parent, s->frame, CAPTURE_NONE});
}

/* ---- events ---- */

static void write_record(struct replay *r, enum record_type type, void *record, size_t bytes)
{
	capture_record(r->out, type, record, bytes);
}

static void count_thread(struct replay *r, uint32_t pid, uint32_t tid)
{
	r->counts->threads += seen_add(r, &r->told, thread_key(pid, tid));
}

static void replay_sample(struct replay *r, const struct record_sample *sample)
{
	struct record_sample s = *sample;

	if (s.time_ns < r->from_ns)
		return;
	r->now_ns = s.time_ns;
	s.stack = out_stack(r, s.stack);
	write_record(r, RECORD_SAMPLE, &s, sizeof(s));
	r->counts->samples++;
	r->counts->samples_ended[s.end < 15 ? s.end : 15]++;
	count_thread(r, s.pid, s.tid);
}

/* An interval that began before the window: blocked first, then queued, and the weights are cut in
 * proportion. */
static void cut_interval(struct record_off_cpu *o, uint64_t from_ns)
{
	uint64_t cut = from_ns - o->start_ns, weight = o->blocked_ns + o->queued_ns;
	uint64_t cut_weight = o->duration_ns
		? (uint64_t)((double)weight * ((double)cut / (double)o->duration_ns))
		: 0;
	uint64_t of_blocked = cut_weight < o->blocked_ns ? cut_weight : o->blocked_ns;

	cut_weight -= of_blocked;
	o->blocked_ns -= of_blocked;
	o->queued_ns -= cut_weight < o->queued_ns ? cut_weight : o->queued_ns;
	o->start_ns += cut;
	o->duration_ns -= cut;
	o->open |= 1;
}

static void replay_off_cpu(struct replay *r, const struct record_off_cpu *interval)
{
	struct record_off_cpu o = *interval;

	if (o.start_ns + o.duration_ns < r->from_ns)
		return;
	if (o.start_ns < r->from_ns)
		cut_interval(&o, r->from_ns);
	r->now_ns = o.start_ns;
	o.stack = out_stack(r, o.stack);
	o.waker_stack = out_stack(r, o.waker_stack);
	o.syscall_name = out_string(r, o.syscall_name);
	write_record(r, RECORD_OFF_CPU, &o, sizeof(o));
	r->counts->off_cpu++;
	r->counts->off_cpu_rooted += !o.end;
	r->counts->off_cpu_ns += o.blocked_ns + o.queued_ns;
	count_thread(r, o.pid, o.tid);
}

static void replay_task_time(struct replay *r, const struct record_task_time *time)
{
	struct record_task_time t = *time;

	if (t.time_ns < r->from_ns)
		return;
	r->now_ns = t.time_ns;
	t.stack = out_stack(r, t.stack);
	t.what = out_string(r, t.what);
	write_record(r, RECORD_TASK_TIME, &t, sizeof(t));
	count_thread(r, t.pid, t.tid);
}

static void replay_loss(struct replay *r, const struct record_loss *loss)
{
	struct record_loss l = *loss;

	if (l.time_ns < r->from_ns)
		return;
	write_record(r, RECORD_LOSS, &l, sizeof(l));
	if (l.kind < LOSS_KIND_COUNT)
		r->counts->losses[l.kind] += l.count;
}

static void replay_exit(struct replay *r, const struct record_exit *exit)
{
	struct record_exit x = *exit;

	if (x.time_ns >= r->from_ns)
		write_record(r, RECORD_EXIT, &x, sizeof(x));
}

/* In the segment that is cut, only of those who did something since. */
static bool is_needed(const struct replay *r, uint32_t pid, uint32_t tid)
{
	return !r->cut || seen_has(&r->needed, thread_key(pid, tid));
}

/* What was told earlier held when the window began. */
static uint64_t not_before(const struct replay *r, uint64_t time_ns)
{
	return time_ns > r->from_ns ? time_ns : r->from_ns;
}

static void replay_process(struct replay *r, const struct record_process *process)
{
	struct record_process p = *process;

	if (!is_needed(r, p.pid, 0))
		return;
	p.time_ns = not_before(r, p.time_ns);
	p.command = out_string(r, p.command);
	if (seen_add(r, &r->told, hash_pair(RECORD_PROCESS, hash_pair(p.pid, p.command))))
		write_record(r, RECORD_PROCESS, &p, sizeof(p));
}

static void replay_thread(struct replay *r, const struct record_thread *thread)
{
	struct record_thread t = *thread;

	if (!is_needed(r, t.pid, t.tid))
		return;
	t.time_ns = not_before(r, t.time_ns);
	t.name = out_string(r, t.name);
	write_record(r, RECORD_THREAD, &t, sizeof(t));
}

static void replay_mapping(struct replay *r, const struct record_mapping *mapping)
{
	struct record_mapping m = *mapping;

	if (!is_needed(r, m.pid, 0))
		return;
	m.time_ns = not_before(r, m.time_ns);
	m.module = out_module(r, m.module);
	if (seen_add(r, &r->told,
		    hash_pair(hash_pair(m.pid, m.module),
			    hash_pair(hash_pair(m.start, m.end), m.bias))))
		write_record(r, RECORD_MAPPING, &m, sizeof(m));
}

/* ---- times of threads: what they were at the end less what they were at the start ---- */

static uint64_t times_hash_of(const void *ctx, uint32_t i)
{
	const struct record_thread_times *t = &((const struct replay *)ctx)->times.data[i].last;

	return thread_key(t->pid, t->tid);
}

/* Those of the thread, new ones when it is new; NULL when out of memory. */
static struct known_times *times_of(struct replay *r, const struct record_thread_times *t)
{
	struct id_probe probe = id_probe_start(&r->times_ids, thread_key(t->pid, t->tid));
	struct known_times added = {.last = *t};

	while (id_probe_next(&r->times_ids, &probe)) {
		struct known_times *known = &r->times.data[probe.id];

		if (known->last.pid == t->pid && known->last.tid == t->tid)
			return known;
	}
	if (id_table_reserve(&r->times_ids, times_hash_of, r) || vec_push(&r->times, added))
		return NULL;
	id_table_add(&r->times_ids, thread_key(t->pid, t->tid), (uint32_t)r->times.len - 1);
	return &r->times.data[r->times.len - 1];
}

static void replay_times(struct replay *r, const struct record_thread_times *t)
{
	struct known_times *known = times_of(r, t);

	if (!known) {
		r->failed = true;
		return;
	}
	if (t->since_ns > known->last.until_ns) /* another thread by the same number */
		*known = (struct known_times){0};
	known->last = *t;
	if (t->until_ns < r->from_ns)
		known->before = *t;
	else if (!known->first.pid)
		known->first = *t;
}

/*
 * What the times were when the window began. Between two times that were told before and after that,
 * the thread is taken to have done the same all along: of one that does nothing this is exact, of the
 * others times are told often. False: that is not known.
 */
static bool times_at_start(
	const struct known_times *k, uint64_t from_ns, struct record_thread_times *ret)
{
	const struct record_thread_times *a = &k->before, *b = &k->first;
	double share;

	*ret = k->last;
	memset(ret->ns, 0, sizeof(ret->ns));
	ret->until_ns = ret->since_ns;
	if (k->last.since_ns >= from_ns)
		return true;
	if (!a->pid)
		return false;
	*ret = *a;
	if (!b->pid || b->until_ns <= a->until_ns)
		return false;
	share = (double)(from_ns - a->until_ns) / (double)(b->until_ns - a->until_ns);
	for (size_t i = 0; i < sizeof(ret->ns) / sizeof(ret->ns[0]); i++)
		if (b->ns[i] > a->ns[i])
			ret->ns[i] += (uint64_t)(share * (double)(b->ns[i] - a->ns[i]));
	return true;
}

/* Rounding must not make it begin before the window. */
static void round_times(struct record_thread_times *t, uint64_t from_ns)
{
	uint64_t over = t->since_ns < from_ns ? from_ns - t->since_ns : 0;

	for (size_t i = 0; over && i < sizeof(t->ns) / sizeof(t->ns[0]); i++) {
		if (t->ns[i] < over)
			continue;
		t->ns[i] -= over;
		t->since_ns += over;
		return;
	}
}

static void write_times(struct replay *r)
{
	vec_each(&r->times, k) {
		struct record_thread_times start, t = k->last;
		uint64_t sum = 0;

		if (t.until_ns <= r->from_ns || !times_at_start(k, r->from_ns, &start))
			continue;
		for (size_t i = 0; i < sizeof(t.ns) / sizeof(t.ns[0]); i++) {
			t.ns[i] -= start.ns[i] < t.ns[i] ? start.ns[i] : t.ns[i];
			sum += t.ns[i];
		}
		t.since_ns = t.until_ns - sum;
		round_times(&t, r->from_ns);
		write_record(r, RECORD_THREAD_TIMES, &t, sizeof(t));
		count_thread(r, t.pid, t.tid);
	}
}

/* ---- segments ---- */

static void replay_record(struct replay *r, const struct record_header *h)
{
	const void *record = h;

	switch (h->type) {
	case RECORD_STRING:
		keep_string(r, record);
		break;
	case RECORD_MODULE:
		keep_module(r, record);
		break;
	case RECORD_FRAME:
		keep_frame(r, record);
		break;
	case RECORD_STACK:
		keep_node(r, record);
		break;
	case RECORD_PROCESS:
		replay_process(r, record);
		break;
	case RECORD_THREAD:
		replay_thread(r, record);
		break;
	case RECORD_EXIT:
		replay_exit(r, record);
		break;
	case RECORD_MAPPING:
		replay_mapping(r, record);
		break;
	case RECORD_SAMPLE:
		replay_sample(r, record);
		break;
	case RECORD_OFF_CPU:
		replay_off_cpu(r, record);
		break;
	case RECORD_THREAD_TIMES:
		replay_times(r, record);
		break;
	case RECORD_TASK_TIME:
		replay_task_time(r, record);
		break;
	case RECORD_LOSS:
		replay_loss(r, record);
		break;
	}
}

static void need_thread(struct replay *r, uint32_t pid, uint32_t tid)
{
	seen_add(r, &r->needed, thread_key(pid, 0));
	seen_add(r, &r->needed, thread_key(pid, tid));
}

static void note_needed(struct replay *r, const struct record_header *h)
{
	const struct record_sample *s = (const void *)h;
	const struct record_off_cpu *o = (const void *)h;
	const struct record_task_time *t = (const void *)h;

	if (h->type == RECORD_TASK_TIME && t->time_ns >= r->from_ns)
		need_thread(r, t->pid, t->tid);
	if (h->type == RECORD_SAMPLE && s->time_ns >= r->from_ns) {
		need_thread(r, s->pid, s->tid);
	} else if (h->type == RECORD_OFF_CPU && o->start_ns + o->duration_ns >= r->from_ns) {
		need_thread(r, o->pid, o->tid);
		need_thread(r, o->waker_pid, o->waker_tid);
	}
}

static int each_record(struct replay *r, const struct segment *s,
	void (*fn)(struct replay *, const struct record_header *), struct err *err)
{
	struct capture_reader *reader = NULL;
	const struct record_header *h;
	int rc = capture_reader_open_memory(s->bytes.data, s->bytes.len, &reader, err);

	while (!rc && (rc = capture_reader_next(reader, &h, err)) == 1) {
		fn(r, h);
		rc = r->failed ? err_nomem(err) : 0;
	}
	if (!rc && capture_reader_damage(reader)->bad_blocks)
		rc = err_set(err, EIO, "a part of the window is damaged in memory");
	capture_reader_free(reader);
	return rc;
}

static void forget_segment(struct replay *r)
{
	buf_release(&r->text);
	vec_release(&r->strings);
	vec_release(&r->frames);
	vec_release(&r->nodes);
	vec_release(&r->chain);
	seen_clear(&r->needed);
}

static int replay_segment(struct replay *r, const struct segment *s, struct err *err)
{
	int rc = 0;

	r->cut = s->start_ns < r->from_ns;
	if (r->cut)
		rc = each_record(r, s, note_needed, err);
	if (!rc)
		rc = each_record(r, s, replay_record, err);
	forget_segment(r);
	/* What segments have in common is little when each has very many. */
	tables_forget_nodes(r->out, MOST_NODES);
	return rc;
}

static void consume_segment(struct window *window, struct segment *s)
{
	buf_release(&s->bytes);
	*s = (struct segment){0};
	window->bytes = 0;
}

static int replay_segments(
	struct replay *r, struct window *window, bool consume, struct err *err)
{
	int rc = 0;

	vec_each(&window->closed, s) {
		if (!rc)
			rc = replay_segment(r, s, err);
		if (consume)
			consume_segment(window, s);
	}
	if (consume)
		window->closed.len = 0;
	return rc ? rc : replay_segment(r, &window->open, err);
}

static int give_map(struct replay *r, struct capture_window_map *ret, struct err *err)
{
	uint32_t *modules = calloc(r->modules.len + 1, sizeof(*modules));

	if (!modules)
		return err_nomem(err);
	for (size_t i = 0; i < r->modules.len; i++)
		modules[i] = r->modules.data[i].out;
	*ret = (struct capture_window_map){
		.modules = modules,
		.module_count = r->modules.len,
		.frame_ns = take_ptr(r->frame_ns.data),
		.frame_count = r->frame_ns.len,
	};
	return 0;
}

void capture_window_map_release(struct capture_window_map *m)
{
	free(m->modules);
	free(m->frame_ns);
	*m = (struct capture_window_map){0};
}

int capture_window_write(struct capture_writer *w, uint64_t from_ns, bool consume,
	struct capture_writer *out, struct capture_window_map *ret_map,
	struct capture_window_counts *ret, struct err *err)
{
	struct replay r = {.out = out, .counts = ret, .from_ns = from_ns};
	int rc;

	memset(ret, 0, sizeof(*ret));
	writer_end_block(w);
	rc = capture_writer_error(w, err);
	vec_each(&w->window->meta, m)
		capture_meta(out, m->key, m->value);
	if (!rc)
		rc = replay_segments(&r, w->window, consume, err);
	if (!rc)
		write_times(&r);
	if (!rc)
		rc = capture_writer_error(out, err);
	if (!rc)
		rc = give_map(&r, ret_map, err);
	vec_release(&r.modules);
	seen_clear(&r.told);
	vec_release(&r.frame_ns);
	vec_release(&r.times);
	id_table_release(&r.times_ids);
	return rc;
}
