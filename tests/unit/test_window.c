/* SPDX-License-Identifier: BSD-2-Clause */
/* The rolling window of capture/window.h: what it keeps, what it drops, what it writes. */
#include "test.h"

#include <errno.h>

#include "alloc_fail.h"
#include "base/vec.h"
#include "capture/reader.h"
#include "capture/window.h"
#include "recording.h"

#define S 1000000000ULL

/* ---- a recording, read back ---- */

struct got {
	int rc;
	struct capture_damage damage;
	VEC(char *) strings;
	VEC(struct record_module) modules;
	VEC(struct record_frame) frames;
	VEC(struct record_stack) nodes;
	VEC(struct record_sample) samples;
	VEC(struct record_off_cpu) off_cpu;
	VEC(struct record_thread_times) times;
	VEC(struct record_thread) threads;
	VEC(struct record_process) processes;
	VEC(struct record_mapping) mappings;
	VEC(struct record_meta) meta;
	uint64_t losses, exits;
};

static void got_release(struct got *g)
{
	vec_each(&g->strings, s)
		free(*s);
	vec_release(&g->strings);
	vec_release(&g->modules);
	vec_release(&g->frames);
	vec_release(&g->nodes);
	vec_release(&g->samples);
	vec_release(&g->off_cpu);
	vec_release(&g->times);
	vec_release(&g->threads);
	vec_release(&g->processes);
	vec_release(&g->mappings);
	vec_release(&g->meta);
}

#define KEEP(list, type) check(!vec_push(&g->list, *(const struct type *)(const void *)h))

static void take(struct got *g, const struct record_header *h)
{
	const struct record_string *s = (const void *)h;

	switch (h->type) {
	case RECORD_STRING:
		check_u64(s->id, g->strings.len);
		check(!vec_push(&g->strings, strndup((const char *)(s + 1), s->len)));
		break;
	case RECORD_MODULE:
		KEEP(modules, record_module);
		break;
	case RECORD_FRAME:
		KEEP(frames, record_frame);
		check_u64(g->frames.data[g->frames.len - 1].id, g->frames.len - 1);
		break;
	case RECORD_STACK:
		KEEP(nodes, record_stack);
		check_u64(g->nodes.data[g->nodes.len - 1].id, g->nodes.len - 1);
		break;
	case RECORD_SAMPLE:
		KEEP(samples, record_sample);
		break;
	case RECORD_OFF_CPU:
		KEEP(off_cpu, record_off_cpu);
		break;
	case RECORD_THREAD_TIMES:
		KEEP(times, record_thread_times);
		break;
	case RECORD_THREAD:
		KEEP(threads, record_thread);
		break;
	case RECORD_PROCESS:
		KEEP(processes, record_process);
		break;
	case RECORD_MAPPING:
		KEEP(mappings, record_mapping);
		break;
	case RECORD_META:
		KEEP(meta, record_meta);
		break;
	case RECORD_LOSS:
		g->losses += ((const struct record_loss *)(const void *)h)->count;
		break;
	case RECORD_EXIT:
		g->exits++;
		break;
	default:
		check(h->type == RECORD_END);
	}
}

static struct got read_back(int fd)
{
	struct bytes b = recording_bytes(fd);
	struct got g = {0};
	struct capture_reader *r;
	const struct record_header *h;

	g.rc = capture_reader_open_memory(b.data, b.len, &r, NULL);
	check(!g.rc);
	while ((g.rc = capture_reader_next(r, &h, NULL)) > 0)
		take(&g, h);
	g.damage = *capture_reader_damage(r);
	check(!g.damage.bad_blocks && !g.damage.bad_records && !g.damage.no_end);
	capture_reader_free(r);
	free(b.data);
	return g;
}

static struct capture_window_counts counts;
static struct capture_window_map map;

/* Writes the window into memory and reads that. */
static struct got written(struct capture_writer *w, uint64_t from_ns)
{
	int fd;
	struct capture_writer *out = recording_start(&fd);

	capture_window_map_release(&map);
	check(!capture_window_write(w, from_ns, false, out, &map, &counts, NULL));
	check(!capture_writer_finish(out, END_INTERRUPTED, 1, NULL));
	return read_back(fd);
}

/* ---- things to put in ---- */

static struct capture_writer *window(uint64_t length_ns, size_t limit, size_t tables)
{
	struct capture_window_options o = {
		.length_ns = length_ns, .limit_bytes = limit, .table_bytes = tables};
	struct capture_writer *w = NULL;

	check(!capture_window_new(&o, 0, &w, NULL));
	return w;
}

static uint32_t module(struct capture_writer *w, const char *path)
{
	struct record_module m = {.path = capture_string(w, path), .inode = 5};

	return capture_module(w, &m);
}

static uint32_t stack(struct capture_writer *w, uint32_t module, uint64_t outer, uint64_t inner)
{
	struct record_frame f = {.address = outer, .module = module, .is_return = 1};
	uint32_t root = capture_stack(w, CAPTURE_NONE, capture_frame(w, &f));

	f.address = inner;
	f.is_return = 0;
	return capture_stack(w, root, capture_frame(w, &f));
}

static void sample(struct capture_writer *w, uint64_t time_ns, uint32_t tid, uint32_t leaf)
{
	struct record_sample s = {
		.time_ns = time_ns, .weight = 10, .pid = 7, .tid = tid, .stack = leaf};

	capture_record(w, RECORD_SAMPLE, &s, sizeof(s));
}

static void thread(struct capture_writer *w, uint64_t time_ns, uint32_t tid, const char *name)
{
	struct record_thread t = {
		.time_ns = time_ns, .pid = 7, .tid = tid, .name = capture_string(w, name)};

	capture_record(w, RECORD_THREAD, &t, sizeof(t));
}

static void rotate_when_due(struct capture_writer *w, uint64_t now_ns)
{
	if (capture_window_due(w, now_ns))
		capture_window_rotate(w, now_ns, NULL, NULL);
}

/* ---- the window rolls ---- */

/* Twenty seconds, a hundred samples each; the function is the second, the thread too. */
static struct capture_writer *twenty_seconds(void)
{
	struct capture_writer *w = window(3 * S, 1 << 20, 0);
	uint32_t m = module(w, "/bin/phases"), unused = module(w, "/bin/unused"), told = 0;

	capture_meta(w, "command", "first");
	capture_meta(w, "host", "here");
	capture_meta(w, "command", "phases");
	check(unused != m);
	for (uint64_t i = 0; i < 2000; i++) {
		uint64_t now = i * (S / 100);
		uint32_t tid = 100 + (uint32_t)(now / S);
		char name[16];

		rotate_when_due(w, now);
		if (capture_segment(w) != told || i % 100 == 0) {
			struct record_process p = {.time_ns = now, .pid = 7};
			struct record_mapping lies = {
				.time_ns = now, .start = 1, .end = 2, .pid = 7, .module = m};

			told = capture_segment(w);
			p.command = capture_string(w, "phases --all");
			capture_record(w, RECORD_PROCESS, &p, sizeof(p));
			capture_record(w, RECORD_MAPPING, &lies, sizeof(lies));
			snprintf(name, sizeof(name), "second %u", tid - 100);
			thread(w, now, tid, name);
		}
		sample(w, now, tid, stack(w, m, 0x1000, 0x2000 + now / S));
	}
	return w;
}

TEST(holds_the_last_seconds)
{
	struct capture_writer *w = twenty_seconds();
	struct capture_window_stats stats;

	capture_window_stats(w, 20 * S, &stats);
	check_u64(stats.since_ns, 17 * S);
	check(!stats.limited);
	check(stats.segments <= 13);

	struct got g = written(w, 17 * S);

	check_u64(g.samples.len, 300);
	check_u64(counts.samples, 300);
	check_u64(counts.threads, 3);
	check_u64(g.frames.len, 4); /* the root and three seconds */
	check_u64(g.nodes.len, 4);
	check_u64(g.modules.len, 1);
	check_str(g.strings.data[g.modules.data[0].path], "/bin/phases");
	check_u64(map.module_count, 1);
	check_u64(map.modules[0], 0);
	check_u64(map.frame_count, 4);
	check_u64(map.frame_ns[0], 17 * S);
	check_u64(map.frame_ns[3], 19 * S);
	check_u64(g.processes.len, 1); /* told once, whatever the number of segments */
	check_u64(g.mappings.len, 1);
	for (size_t i = 0; i < g.samples.len; i++) {
		const struct record_sample *s = &g.samples.data[i];
		const struct record_stack *leaf = &g.nodes.data[s->stack];

		check(s->time_ns >= 17 * S);
		check_u64(g.frames.data[leaf->frame].address, 0x2000 + s->time_ns / S);
		check_u64(g.frames.data[g.nodes.data[leaf->parent].frame].address, 0x1000);
	}
	vec_each(&g.threads, t)
		check(t->tid >= 117);
	check_u64(g.meta.len, 2);
	check_str(g.strings.data[g.meta.data[0].value], "phases");
	got_release(&g);
	capture_writer_abandon(w);
}

TEST(writing_changes_nothing)
{
	struct capture_writer *w = twenty_seconds();
	struct got first = written(w, 17 * S), again = written(w, 17 * S);
	struct got less = written(w, 19 * S);

	check_u64(again.samples.len, first.samples.len);
	check_u64(again.strings.len, first.strings.len);
	check_u64(less.samples.len, 100);
	check_u64(less.threads.len >= 1, 1);
	sample(w, 20 * S, 119, stack(w, 0, 0x1000, 0x9000));
	got_release(&again);
	again = written(w, 17 * S);
	check_u64(again.samples.len, first.samples.len + 1);
	got_release(&first);
	got_release(&again);
	got_release(&less);
	capture_writer_abandon(w);
}

TEST(an_empty_window)
{
	struct capture_writer *w = window(S, 1 << 20, 0);
	struct got g = written(w, 0);

	check_u64(g.samples.len, 0);
	check_u64(capture_segment(w), 1);
	got_release(&g);
	for (int i = 1; i < 50; i++)
		rotate_when_due(w, (uint64_t)i * S);
	g = written(w, 49 * S);
	check_u64(g.samples.len, 0);
	got_release(&g);
	capture_writer_abandon(w);
}

/* Every stack is new: what bounds memory is the limit, and since_ns says what it cost. */
TEST(memory_is_bounded)
{
	const size_t limit = 300000, tables = 400000;
	struct capture_writer *w = window(3600 * S, limit, tables);
	uint32_t m = module(w, "/bin/jit");
	struct capture_window_stats stats;
	uint64_t random = 1, now = 0;

	for (int i = 0; i < 200000; i++) {
		now += S / 100;
		rotate_when_due(w, now);
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		sample(w, now, 8, stack(w, m, random >> 20, random >> 40));
		if (i % 1000 == 0) {
			capture_window_stats(w, now, &stats);
			check(stats.bytes <= limit);
		}
	}
	capture_window_stats(w, now, &stats);
	check(stats.limited);
	check(stats.since_ns > 0);

	struct got g = written(w, stats.since_ns);

	/* All since then is there. */
	check_u64(g.samples.len, (now - stats.since_ns) / (S / 100) + 1);
	got_release(&g);
	capture_writer_abandon(w);
}

/* ---- ids that others keep ---- */

struct keeper {
	struct capture_writer *w;
	uint32_t leaf, unknown;
};

static void carry(void *ctx)
{
	struct keeper *k = ctx;

	k->leaf = capture_window_carry(k->w, k->leaf);
	k->unknown = capture_window_carry(k->w, k->unknown);
}

TEST(stacks_are_carried_over)
{
	struct keeper k = {.w = window(S, 1 << 20, 0), .unknown = 12345};
	uint32_t m = module(k.w, "/bin/held"), first;

	first = k.leaf = stack(k.w, m, 0x10, 0x20);
	for (uint64_t i = 1; i < 100; i++) {
		capture_window_rotate(k.w, i * S, carry, &k);
		check(capture_window_knows(k.w, k.leaf));
		sample(k.w, i * S, 9, stack(k.w, m, 0x10, 0x30 + i));
	}
	check(!capture_window_knows(k.w, first));
	check_u64(k.unknown, CAPTURE_NONE);
	sample(k.w, 99 * S + 1, 9, k.leaf);

	struct got g = written(k.w, 99 * S + 1);

	check_u64(g.samples.len, 1);
	check_u64(g.nodes.len, 2);
	check_u64(g.frames.data[g.nodes.data[1].frame].address, 0x20);
	check_u64(g.frames.data[g.nodes.data[0].frame].address, 0x10);
	check_str(g.strings.data[g.modules.data[g.frames.data[0].module].path], "/bin/held");
	got_release(&g);
	capture_writer_abandon(k.w);
}

TEST(modules_can_be_given_up)
{
	struct capture_writer *w = window(S, 1 << 20, 0);
	uint32_t a = module(w, "/a"), b = module(w, "/b");
	uint64_t now = 0;

	check_u64(module(w, "/a"), a);
	sample(w, now, 8, stack(w, a, 1, 2));
	check(capture_window_names_module(w, a));
	check(!capture_window_names_module(w, b));
	for (; capture_window_names_module(w, a) && now < 100 * S; now += S / 4)
		rotate_when_due(w, now);
	check(now > S && now < 4 * S);
	capture_window_forget_module(w, a);
	check_u64(module(w, "/b"), b);
	/* Another takes its place, and all are found where they are. */
	uint32_t c = module(w, "/c"), again = module(w, "/a");

	check_u64(c, a);
	check(again != c && again != b);
	rotate_when_due(w, now += S);
	check_u64(module(w, "/c"), c);
	check_u64(module(w, "/a"), again);
	sample(w, now, 8, stack(w, c, 1, 2));
	sample(w, now, 8, stack(w, again, 1, 2));

	struct got g = written(w, now);

	check_u64(g.modules.len, 2);
	check_str(g.strings.data[g.modules.data[map.modules[c]].path], "/c");
	check_str(g.strings.data[g.modules.data[map.modules[again]].path], "/a");
	got_release(&g);
	capture_writer_abandon(w);
}

/* ---- what is cut at the start of the window ---- */

static void off_cpu(struct capture_writer *w, uint64_t start, uint64_t blocked, uint64_t queued)
{
	struct record_off_cpu o = {
		.start_ns = start,
		.duration_ns = blocked + queued,
		.blocked_ns = 3 * blocked, /* stands for two more that were not kept */
		.queued_ns = 3 * queued,
		.pid = 7,
		.tid = 8,
		.stack = stack(w, 0, 1, 2),
		.waker_stack = CAPTURE_NONE,
		.state = STATE_FUTEX,
	};

	capture_record(w, RECORD_OFF_CPU, &o, sizeof(o));
}

TEST(intervals_are_cut)
{
	struct capture_writer *w = window(100 * S, 1 << 20, 0);

	module(w, "/m");
	off_cpu(w, 1 * S, 2 * S, 1 * S); /* over before */
	off_cpu(w, 8 * S, 4 * S, 1 * S); /* two seconds before, three in it, one of them queued */
	off_cpu(w, 5 * S, 1 * S, 6 * S); /* queued when it begins */
	off_cpu(w, 11 * S, 1 * S, 0);

	struct got g = written(w, 10 * S);

	check_u64(g.off_cpu.len, 3);
	check_u64(g.off_cpu.data[0].start_ns, 10 * S);
	check_u64(g.off_cpu.data[0].duration_ns, 3 * S);
	check_u64(g.off_cpu.data[0].blocked_ns, 6 * S);
	check_u64(g.off_cpu.data[0].queued_ns, 3 * S);
	check_u64(g.off_cpu.data[0].open, 1);
	check_u64(g.off_cpu.data[1].blocked_ns, 0);
	check_u64(g.off_cpu.data[1].queued_ns, 6 * S);
	check_u64(g.off_cpu.data[2].open, 0);
	check_u64(g.off_cpu.data[2].blocked_ns, 3 * S);
	check_u64(counts.off_cpu, 3);
	check_u64(counts.off_cpu_ns, 18 * S);
	got_release(&g);
	capture_writer_abandon(w);
}

static void times(struct capture_writer *w, uint32_t tid, uint64_t since, uint64_t until)
{
	struct record_thread_times t = {.since_ns = since, .until_ns = until, .pid = 7, .tid = tid};

	t.ns[STATE_ON_CPU] = (until - since) / 4;
	t.ns[STATE_FUTEX] = until - since - t.ns[STATE_ON_CPU];
	capture_record(w, RECORD_THREAD_TIMES, &t, sizeof(t));
}

TEST(times_count_from_the_start_of_the_window)
{
	struct capture_writer *w = window(100 * S, 1 << 20, 0);

	for (uint64_t i = 1; i <= 20; i++) {
		times(w, 8, 0, i * S);
		if (i >= 16)
			times(w, 9, 15 * S, i * S);
		if (i <= 5)
			times(w, 10, 0, i * S);
		if (i == 8 || i == 16)
			times(w, 11, 0, i * S);
		if (i == 20)
			times(w, 12, 0, i * S); /* what it did before is not known */
		/* A second of it is in no state: records were lost. */
		times(w, 13, i < 15 ? 0 : S, i < 15 ? i * S : (i + 1) * S);
	}

	struct got g = written(w, 10 * S);

	check_u64(g.times.len, 4);
	check_u64(g.times.data[0].since_ns, 10 * S);
	check_u64(g.times.data[0].until_ns, 20 * S);
	check_u64(g.times.data[0].ns[STATE_ON_CPU], 10 * S / 4);
	check_u64(g.times.data[0].ns[STATE_FUTEX], 30 * S / 4);
	check_u64(g.times.data[1].tid, 13);
	check_u64(g.times.data[1].since_ns, 11 * S);
	check_u64(g.times.data[1].ns[STATE_FUTEX], 30 * S / 4);
	check_u64(g.times.data[2].tid, 11);
	check_u64(g.times.data[2].since_ns, 10 * S);
	check_u64(g.times.data[2].until_ns, 16 * S);
	check_u64(g.times.data[2].ns[STATE_ON_CPU], 6 * S / 4);
	check_u64(g.times.data[3].tid, 9);
	check_u64(g.times.data[3].since_ns, 15 * S);
	check_u64(g.times.data[3].ns[STATE_FUTEX], 15 * S / 4);
	got_release(&g);
	capture_writer_abandon(w);
}

TEST(losses_and_exits_of_the_window)
{
	struct capture_writer *w = window(100 * S, 1 << 20, 0);

	for (uint64_t i = 1; i <= 20; i++) {
		struct record_loss l = {.time_ns = i * S, .count = 3, .kind = LOSS_RING};
		struct record_exit x = {.time_ns = i * S, .pid = 7, .tid = (uint32_t)i};

		capture_record(w, RECORD_LOSS, &l, sizeof(l));
		capture_record(w, RECORD_EXIT, &x, sizeof(x));
	}

	struct got g = written(w, 11 * S);

	check_u64(g.losses, 30);
	check_u64(counts.losses[LOSS_RING], 30);
	check_u64(g.exits, 10);
	got_release(&g);
	capture_writer_abandon(w);
}

/* ---- out of memory ---- */

static int roll_a_little(void)
{
	struct capture_window_options o = {.length_ns = S, .limit_bytes = 1 << 20};
	struct capture_writer *w = NULL, *out = NULL;
	struct capture_window_map got = {0};
	int rc = capture_window_new(&o, 0, &w, NULL);

	if (rc)
		return rc;
	capture_meta(w, "a", "b");
	for (uint64_t i = 0; i < 20; i++) {
		if (i % 5 == 4)
			capture_window_rotate(w, i * S / 8, NULL, NULL);
		thread(w, i, 8, "name");
		sample(w, i * S / 8, 8, stack(w, module(w, "/m"), 1, i));
		times(w, 8, 0, i * S);
	}
	rc = capture_writer_to_fd(memfd_create("out", 0), "out", &out, NULL);
	if (!rc)
		rc = capture_window_write(w, S, true, out, &got, &counts, NULL);
	if (!rc)
		rc = capture_writer_finish(out, END_DURATION, 1, NULL);
	else
		capture_writer_abandon(out);
	capture_window_map_release(&got);
	capture_writer_abandon(w);
	return rc;
}

TEST(no_memory)
{
	uint64_t n = 0;

	for (;; n++) {
		alloc_fail_begin(n);
		int rc = roll_a_little();
		bool hit = alloc_fail_end();
		check(rc == (hit ? -ENOMEM : 0));
		if (!hit)
			break;
	}
	check(n > 20);
}

int main(int argc, char **argv)
{
	int status = test_main(argc, argv, T(holds_the_last_seconds), T(writing_changes_nothing),
		T(an_empty_window), T(memory_is_bounded), T(stacks_are_carried_over),
		T(modules_can_be_given_up), T(intervals_are_cut),
		T(times_count_from_the_start_of_the_window), T(losses_and_exits_of_the_window),
		T(no_memory));

	capture_window_map_release(&map);
	return status;
}
