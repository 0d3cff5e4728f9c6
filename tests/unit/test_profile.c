/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>

#include "alloc_fail.h"
#include "letters.h"
#include "symbol/interpreter.h"

/* ---- helpers ---- */

/* "self/total" of a function. */
static const char *counts_of(const struct profile *p, const char *name)
{
	static char text[64];
	struct profile_count *counts;
	uint32_t f = function_named(p, name);

	if (f == PROFILE_NONE || profile_count_functions(p, &counts, NULL))
		return "none";
	check_u64(counts[f].self_weight, counts[f].self * 10);
	check_u64(counts[f].total_weight, counts[f].total * 10);
	snprintf(text, sizeof(text), "%d/%d", (int)counts[f].self, (int)counts[f].total);
	free(counts);
	return text;
}

/* "(name total self flags children...)", flags: i inlined, g guessed. */
static void draw(const struct profile *p, const struct profile_tree *t, uint32_t at, struct buf *b)
{
	const struct tree_node *n = &t->nodes.data[at];

	buf_printf(b, "(%s %d %d%s%s",
		n->function == PROFILE_NONE ? "*" : p->functions.data[n->function].name,
		(int)n->total, (int)n->self, n->inlined ? " i" : "", n->guessed ? " g" : "");
	check_u64(n->total_weight, n->total * 10);
	for (uint32_t c = n->first_child; c != PROFILE_NONE; c = t->nodes.data[c].next_sibling) {
		check(t->nodes.data[c].parent == at);
		buf_char(b, ' ');
		draw(p, t, c, b);
	}
	buf_char(b, ')');
}

static void check_tree(const struct profile *p, bool inverted, const char *want)
{
	struct profile_tree t;
	struct buf b = {0};

	check(!profile_tree_build(p, inverted, &t, NULL));
	draw(p, &t, 0, &b);
	check_str(b.data, want);
	buf_release(&b);
	profile_tree_release(&t);
}

/* ---- loading ---- */

TEST(everything_loaded)
{
	struct rec r = rec_start();
	struct record_mapping map = {.time_ns = 1, .start = 0x5000, .end = 0x6000, .bias = 0x4000};
	struct record_loss loss = {.time_ns = 2, .count = 4, .kind = LOSS_RING};
	struct record_cost cost = {.wakeups = 1};

	capture_meta(r.w, "host", "old");
	capture_meta(r.w, "host", "new");
	map.module = r.module;
	capture_record(r.w, RECORD_MAPPING, &map, sizeof(map));
	map.start = 0x9000, map.end = 0xa000;
	capture_record(r.w, RECORD_MAPPING, &map, sizeof(map));
	rec_thread(&r, 100, "main\x1b[31m");
	rec_thread(&r, 101, "worker");
	rec_thread(&r, 101, "renamed");
	rec_thread(&r, 102, "idle");
	rec_sample(&r, 101, rec_stack(&r, "mX"), UNWIND_ROOT);
	capture_record(r.w, RECORD_LOSS, &loss, sizeof(loss));
	capture_record(r.w, RECORD_LOSS, &loss, sizeof(loss));
	capture_record(r.w, RECORD_COST, &cost, sizeof(cost));
	cost.wakeups = 2;
	capture_record(r.w, RECORD_COST, &cost, sizeof(cost));
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_u64(p->threads.len, 3);
	check_str(p->threads.data[0].name, "main?[31m");
	check_str(p->threads.data[1].name, "renamed");
	check_str(p->threads.data[1].process, "main?[31m");
	check(p->threads.data[1].samples == 1 && p->threads.data[1].weight == 10);
	check(p->threads.data[2].samples == 0 && p->total_weight == 10);
	check_u64(p->modules.len, 1);
	check_str(p->modules.data[0].path, "/usr/lib/libfoo.so");
	check_str(p->modules.data[0].name, "libfoo.so");
	check(p->modules.data[0].start == 0x5000 && p->modules.data[0].end == 0x6000);
	check_u64(p->modules.data[0].bias, 0x4000);
	check_str(profile_meta(p, "host"), "new");
	check(!profile_meta(p, "absent"));
	check_u64(p->cost.wakeups, 2);
	check_u64(p->quality.losses[LOSS_RING], 8);
	check_u64(p->end_reason, END_INTERRUPTED);
	check(p->start_ns && p->end_ns >= p->start_ns && p->start_realtime_ns > p->start_ns);
	check(!p->damage.no_end && p->file_bytes > 64);
	profile_free(p);
}

TEST(stack_levels)
{
	struct rec r = rec_start();
	uint32_t got[8], leaf = rec_stack(&r, "mXb");

	rec_sample(&r, 100, leaf, UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	memset(got, 0xff, sizeof(got));
	check_u64(profile_stack_levels(p, p->samples.data[0].stack, got, 3), 4);
	check_u64(got[3], UINT32_MAX);
	check_u64(profile_stack_levels(p, p->samples.data[0].stack, got, 8), 4);
	const char *want[] = {"b", "inl", "X", "m"};
	for (int i = 0; i < 4; i++) {
		const struct profile_level *level = &p->levels.data[got[i]];
		check_str(p->functions.data[level->function].name, want[i]);
		check(level->inlined == (i == 1));
	}
	check_str(p->levels.data[got[1]].file, "inl.h");
	check_u64(p->levels.data[got[1]].line, 7);
	check(!p->levels.data[got[2]].file);
	check_str(p->functions.data[function_named(p, "inl")].file, "inl.h");
	check_u64(profile_stack_levels(p, PROFILE_NONE, got, 8), 0);
	check_u64(p->nodes.data[p->samples.data[0].stack].depth, 3);
	profile_free(p);
}

TEST(process_names)
{
	struct rec r = rec_start();
	struct record_process process = {.pid = 100};

	rec_sample(&r, 107, rec_stack(&r, "m"), UNWIND_ROOT);

	struct record_sample s = {.pid = 55, .tid = 56, .stack = CAPTURE_NONE};

	capture_record(r.w, RECORD_SAMPLE, &s, sizeof(s));
	process.command = capture_string(r.w, "/bin/sh -c python3");
	capture_record(r.w, RECORD_PROCESS, &process, sizeof(process));
	process.command = capture_string(r.w, "/usr/bin/python3 /x/y.py");
	capture_record(r.w, RECORD_PROCESS, &process, sizeof(process));

	struct profile *p = rec_load(&r, NULL);

	check_str(p->threads.data[0].name, "tid 107");
	check_str(p->threads.data[0].process, "python3");
	check_str(p->threads.data[1].process, "pid 55");
	profile_free(p);
}

TEST(samples_by_time)
{
	struct rec r = rec_start();
	uint64_t times[] = {50, 20, 40, 20, 10, 30};

	for (size_t i = 0; i < 6; i++) {
		r.now = times[i];
		rec_sample(&r, 100, rec_stack(&r, "m"), UNWIND_ROOT);
	}

	struct profile *p = rec_load(&r, NULL);

	for (size_t i = 1; i < 6; i++)
		check(p->samples.data[i - 1].time_ns <= p->samples.data[i].time_ns);
	check_u64(p->samples.data[0].time_ns, 10);
	profile_free(p);
}

/* ---- names of what has none ---- */

TEST(placeholders)
{
	struct rec r = rec_start();
	struct record_module jit = {.kind = MODULE_JIT, .pid = 100};
	struct record_frame f[5] = {
		{.address = 0x1a2b, .module = r.module},
		{.address = 0x1a2b, .module = r.module, .is_return = 1},
		{.address = 0x7f00, .module = CAPTURE_NONE},
		{.address = 0x7f00},
		{.address = 0x8f10},
	};

	jit.path = capture_string(r.w, "[jit]");
	f[3].module = f[4].module = capture_module(r.w, &jit);
	for (int i = 0; i < 5; i++)
		rec_sample(&r, 100, capture_stack(r.w, CAPTURE_NONE, capture_frame(r.w, &f[i])),
			UNWIND_ROOT);
	capture_symbol(r.w, 0, SYMBOL_NO_SYMBOLS, NULL, 0);
	capture_symbol(r.w, 1, SYMBOL_NO_SYMBOLS, NULL, 0);

	struct profile *p = rec_load(&r, NULL);
	uint32_t stripped = function_named(p, "libfoo.so+0x1a2b");

	/* One function an address, however it was found. */
	check_str(counts_of(p, "libfoo.so+0x1a2b"), "2/2");
	check(p->functions.data[stripped].unresolved && p->functions.data[stripped].module == 0);
	check_u64(p->functions.data[stripped].reason, SYMBOL_NO_SYMBOLS);
	uint32_t unmapped = function_named(p, "[unmapped]+0x7f00");
	uint32_t jitted = function_named(p, "[jit]");
	check_u64(p->functions.data[unmapped].reason, SYMBOL_NOT_MAPPED);
	check_u64(p->functions.data[jitted].reason, SYMBOL_ANONYMOUS);
	check_str(counts_of(p, "[jit]"), "2/2"); /* which no two runs have at the same address */
	check_u64(p->quality.unresolved_frames, 5);
	check(p->quality.unresolved_frames_pct == 100);
	profile_free(p);
}

/* ---- counting ---- */

TEST(counts_and_trees_by_hand)
{
	struct rec r = rec_start();

	for (int i = 0; i < 3; i++)
		rec_sample(&r, 100, rec_stack(&r, "mab"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "ma"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "mX"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "mXb"), UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_str(counts_of(p, "m"), "0/6");
	check_str(counts_of(p, "a"), "1/4");
	check_str(counts_of(p, "b"), "4/4");
	check_str(counts_of(p, "X"), "0/2");
	check_str(counts_of(p, "inl"), "1/2");
	check_tree(p, false, "(* 6 0 (m 6 0 (a 4 1 (b 3 3)) (X 2 0 (inl 2 1 i (b 1 1)))))");
	check_tree(p, true,
		"(* 6 0 (b 4 0 (a 3 0 (m 3 3)) (inl 1 0 i (X 1 0 (m 1 1)))) (a 1 0 (m 1 1))"
		" (inl 1 0 i (X 1 0 (m 1 1))))");
	check_u64(p->quality.samples, 6);
	check_u64(p->quality.frames, 3 * 3 + 2 + 2 + 3);
	check(p->quality.rooted_pct == 100 && p->quality.truncated_pct == 0);
	profile_free(p);
}

TEST(recursion_counts_once)
{
	struct rec r = rec_start();

	rec_sample(&r, 100, rec_stack(&r, "mffgf"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "mfff"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "mfg"), UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_str(counts_of(p, "f"), "2/3");
	check_str(counts_of(p, "g"), "1/2");
	check_tree(p, false, "(* 3 0 (m 3 0 (f 3 0 (f 2 0 (f 1 1) (g 1 0 (f 1 1))) (g 1 1))))");
	check_tree(p, true,
		"(* 3 0 (f 2 0 (f 1 0 (f 1 0 (m 1 1))) (g 1 0 (f 1 0 (f 1 0 (m 1 1)))))"
		" (g 1 0 (f 1 0 (m 1 1))))");
	profile_free(p);
}

TEST(cut_stacks_hang_apart)
{
	struct rec r = rec_start();

	/* The same stack node whole and cut, and a sample without any frame. */
	rec_sample(&r, 100, rec_stack(&r, "ab"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "ab"), UNWIND_TRUNCATED);
	rec_sample(&r, 100, rec_stack(&r, "ab"), UNWIND_NO_RULE);
	rec_sample(&r, 100, CAPTURE_NONE, UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_u64(p->truncated_function, function_named(p, "[truncated]"));
	check(p->functions.data[p->truncated_function].unresolved);
	check_tree(p, false, "(* 4 0 ([truncated] 3 1 (a 2 0 (b 2 2))) (a 1 0 (b 1 1)))");
	check_tree(p, true, "(* 4 0 (b 3 0 (a 3 3)) ([truncated] 1 1))");
	check_str(counts_of(p, "[truncated]"), "1/3");
	check_str(counts_of(p, "b"), "3/3");
	check(p->quality.rooted_pct == 25 && p->quality.truncated_pct == 25);
	check_u64(p->quality.ends[UNWIND_NO_REGS], 1); /* no frame is not a whole stack */
	profile_free(p);
}

static uint32_t stack_found(struct rec *r, const char *letters, const uint8_t *how)
{
	uint32_t node = CAPTURE_NONE;

	for (size_t i = 0; letters[i]; i++)
		node = capture_stack(r->w, node, rec_frame(r, letters[i], how[i]));
	return node;
}

TEST(guesses_are_marked)
{
	struct rec r = rec_start();
	const uint8_t leaf[] = {UNWIND_CFI, UNWIND_LEAF, UNWIND_SAMPLED};
	const uint8_t deep[] = {UNWIND_FP, UNWIND_LEAF, UNWIND_CFI, UNWIND_SAMPLED};
	const uint8_t scan[] = {UNWIND_SCAN, UNWIND_FP, UNWIND_SAMPLED};

	rec_sample(&r, 100, stack_found(&r, "abc", leaf), UNWIND_ROOT);
	rec_sample(&r, 100, stack_found(&r, "pXrs", deep), UNWIND_ROOT);
	rec_sample(&r, 100, stack_found(&r, "xyz", scan), UNWIND_ROOT);
	rec_sample(&r, 100, stack_found(&r, "xyz", scan), UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_u64(p->quality.frames, 13);
	check_u64(p->quality.guessed_frames, 3);
	check_u64(p->quality.guessed_roots, 2);
	check_u64(p->quality.fp_frames, 3);
	check_tree(p, false,
		"(* 4 0 (x 2 0 g (y 2 0 (z 2 2))) (a 1 0 (b 1 0 (c 1 1)))"
		" (p 1 0 (X 1 0 g (inl 1 0 i g (r 1 0 (s 1 1))))))");
	check_tree(p, true,
		"(* 4 0 (z 2 0 (y 2 0 (x 2 2 g))) (c 1 0 (b 1 0 (a 1 1)))"
		" (s 1 0 (r 1 0 (inl 1 0 i g (X 1 0 g (p 1 1))))))");
	profile_free(p);
}

/* ---- filters ---- */

static struct bytes three_threads(void)
{
	struct rec r = rec_start();

	rec_thread(&r, 100, "main");
	rec_thread(&r, 101, "io-worker");
	rec_thread(&r, 102, "cpu-worker");
	rec_sample(&r, 100, rec_stack(&r, "mX"), UNWIND_ROOT);
	rec_sample(&r, 101, rec_stack(&r, "tr"), UNWIND_ROOT);
	rec_sample(&r, 102, rec_stack(&r, "tc"), UNWIND_TRUNCATED);
	rec_sample(&r, 101, rec_stack(&r, "tw"), UNWIND_ROOT);
	rec_names(&r);
	return rec_bytes(&r);
}

TEST(filters)
{
	struct bytes b = three_threads();
	struct profile_load_options o = {0};
	regex_t re;

	check(!regcomp(&re, "-worker$", REG_EXTENDED | REG_NOSUB));
	o.filter.thread = &re;
	struct profile *p = load_bytes(b, &o);
	check_u64(p->threads.len, 2);
	check_u64(p->samples.len, 3);
	check_str(p->threads.data[p->samples.data[1].thread].name, "cpu-worker");
	check_str(p->threads.data[0].process, "main"); /* found although filtered out */
	check_u64(p->quality.ends[UNWIND_TRUNCATED], 1);
	check_tree(p, false, "(* 3 0 (t 2 0 (r 1 1) (w 1 1)) ([truncated] 1 0 (t 1 0 (c 1 1))))");
	profile_free(p);

	o.filter.tid = 101; /* all parts of a filter have to hold */
	p = load_bytes(b, &o);
	check(p->samples.len == 2 && p->threads.len == 1 && p->threads.data[0].samples == 2);
	profile_free(p);
	regfree(&re);

	o = (struct profile_load_options){.filter.main_only = true};
	p = load_bytes(b, &o);
	check_tree(p, false, "(* 1 0 (m 1 0 (X 1 0 (inl 1 1 i))))");
	profile_free(p);

	o = (struct profile_load_options){.filter = {.main_only = true, .no_inline = true}};
	p = load_bytes(b, &o);
	check_tree(p, false, "(* 1 0 (m 1 0 (X 1 1)))");
	check_u64(function_named(p, "inl"), PROFILE_NONE);
	profile_free(p);
	free(b.data);
}

/* "e" is CPython's evaluation function, which runs the Python frame "p"; others as ever. */
static uint32_t python_stack(struct rec *r, const char *letters)
{
	uint32_t node = CAPTURE_NONE;

	for (; *letters; letters++) {
		struct record_frame f = {
			.address = (uint64_t)(unsigned char)*letters << 8,
			.module = r->module,
			.how = letters[1] ? UNWIND_CFI : UNWIND_SAMPLED,
			.kind = *letters == 'p' ? FRAME_PYTHON : FRAME_USER,
			.role = *letters == 'e' ? FRAME_EVALUATES : FRAME_OTHER,
		};

		node = capture_stack(r->w, node, capture_frame(r->w, &f));
	}
	return node;
}

static void python_sample(struct rec *r, const char *letters, uint8_t marks)
{
	struct record_sample s = {.time_ns = r->now++, .weight = 10, .pid = 100, .tid = 100,
		.stack = python_stack(r, letters), .end = UNWIND_ROOT, .python = marks};

	capture_record(r->w, RECORD_SAMPLE, &s, sizeof(s));
}

static struct bytes python_and_others(void)
{
	struct rec r = rec_start();

	rec_thread(&r, 100, "main");
	python_sample(&r, "mepc", SAMPLE_PYTHON_GIL);
	python_sample(&r, "mepepc", SAMPLE_PYTHON_TORN);
	python_sample(&r, "mepc", SAMPLE_PYTHON_CUT | SAMPLE_PYTHON_GIL);
	python_sample(&r, "mc", 0);
	rec_names(&r);
	return rec_bytes(&r);
}

TEST(frames_of_python)
{
	static const struct {
		struct profile_filter filter;
		const char *tree;
	} views[] = {
		{{0}, "(* 4 0 (m 4 0 (p 3 0 (c 2 2) (p 1 0 (c 1 1))) (c 1 1)))"},
		{{.interpreter = true},
			"(* 4 0 (m 4 0 (e 3 0 (p 3 0 (c 2 2) (e 1 0 (p 1 0 (c 1 1))))) (c 1 1)))"},
		{{.python_only = true}, "(* 3 0 (p 3 2 (p 1 1)))"},
		{{.native_only = true}, "(* 4 0 (m 4 0 (e 3 0 (c 2 2) (e 1 0 (c 1 1))) (c 1 1)))"},
		{{.gil = true}, "(* 2 0 (m 2 0 (p 2 0 (c 2 2))))"},
	};
	struct bytes b = python_and_others();

	for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		struct profile_load_options o = {.filter = views[i].filter};
		struct profile *p = load_bytes(b, &o);

		check_tree(p, false, views[i].tree);
		if (!i) {
			check_u64(p->quality.python, 3);
			check_u64(p->quality.python_torn, 1);
			check_u64(p->quality.python_cut, 1);
		}
		profile_free(p);
	}
	free(b.data);
}

/* ---- damage ---- */

/* Every reference dangles, one after the other. */
TEST(dangling_ids)
{
	struct buf b = {0}, payload = {0};
	struct record_meta meta = {.key = 3, .value = 4};
	struct record_module m = {.id = 5, .path = 9};
	struct record_thread t = {.pid = 1, .tid = 1, .name = 8};
	struct record_process pr = {.pid = 1, .command = 8};
	struct record_mapping map = {.module = 77, .start = 1, .end = 2};
	struct record_frame f = {.id = 2, .module = 99, .address = 0x10};
	struct record_stack k = {.id = 4, .parent = 2, .frame = 2};
	struct record_stack k2 = {.id = 6, .parent = 4, .frame = 1000};
	struct record_sample s = {.pid = 1, .tid = 1, .stack = 6, .end = UNWIND_ROOT, .weight = 10};
	struct record_sample s2 = {.pid = 1, .tid = 1, .stack = 5, .end = 200, .weight = 10};
	struct record_loss l = {.kind = 1000, .count = 5};
	struct record_symbol y = {.frame = 1};

	raw_record(&payload, RECORD_META, &meta, sizeof(meta));
	raw_record(&payload, RECORD_MODULE, &m, sizeof(m));
	raw_record(&payload, RECORD_THREAD, &t, sizeof(t));
	raw_record(&payload, RECORD_PROCESS, &pr, sizeof(pr));
	raw_record(&payload, RECORD_MAPPING, &map, sizeof(map));
	raw_record(&payload, RECORD_FRAME, &f, sizeof(f));
	raw_record(&payload, RECORD_STACK, &k, sizeof(k));
	raw_record(&payload, RECORD_STACK, &k2, sizeof(k2));
	raw_record(&payload, RECORD_STACK, &k, sizeof(k)); /* an id that does not ascend */
	raw_record(&payload, RECORD_SAMPLE, &s, sizeof(s));
	raw_record(&payload, RECORD_SAMPLE, &s2, sizeof(s2));
	raw_record(&payload, RECORD_LOSS, &l, sizeof(l));
	raw_record(&payload, RECORD_SYMBOL, &y, sizeof(y));
	raw_header(&b);
	raw_block(&b, 0, payload.data, payload.len);

	struct profile *p = load_bytes((struct bytes){(uint8_t *)b.data, b.len}, NULL);

	check_u64(p->nodes.len, 2);
	check_str(p->modules.data[0].name, "[lost]");
	check_str(p->threads.data[0].name, "tid 1");
	check_str(p->threads.data[0].process, "pid 1");
	check_u64(p->quality.ends[UNWIND_TRUNCATED], 2); /* what was lost is not called rooted */
	check_tree(p, false, "(* 2 0 ([truncated] 2 1 ([unmapped]+0x10 1 0 ([lost] 1 1))))");
	check_str(counts_of(p, "[lost]"), "1/1");
	check(p->damage.no_end);
	buf_release(&payload);
	buf_release(&b);
	profile_free(p);
}

/* A symbol with more levels than any compiler makes keeps the outermost ones. */
TEST(too_many_levels)
{
	struct buf b = {0}, payload = {0};
	struct record_frame f = {.module = CAPTURE_NONE};
	struct record_stack k = {.parent = CAPTURE_NONE};
	struct record_sample s = {.pid = 1, .tid = 1, .weight = 10};
	struct {
		struct record_symbol symbol;
		struct record_symbol_level levels[100];
	} y = {.symbol.level_count = 100};
	uint32_t got[128];

	for (uint32_t i = 0; i < 100; i++)
		y.levels[i].line = i;
	raw_record(&payload, RECORD_FRAME, &f, sizeof(f));
	raw_record(&payload, RECORD_STACK, &k, sizeof(k));
	raw_record(&payload, RECORD_SAMPLE, &s, sizeof(s));
	raw_record(&payload, RECORD_SYMBOL, &y, sizeof(y));
	raw_header(&b);
	raw_block(&b, 0, payload.data, payload.len);

	struct profile *p = load_bytes((struct bytes){(uint8_t *)b.data, b.len}, NULL);

	check_u64(profile_stack_levels(p, 0, got, 128), CAPTURE_MAX_LEVELS);
	check_u64(p->levels.data[got[CAPTURE_MAX_LEVELS - 1]].line, 99);
	check(!p->levels.data[got[CAPTURE_MAX_LEVELS - 1]].inlined);
	check(p->levels.data[got[0]].inlined);
	buf_release(&payload);
	buf_release(&b);
	profile_free(p);
}

/* A block lost in the middle takes the strings with it and nothing else. */
TEST(lost_block_leaves_holes)
{
	struct rec r = rec_start();

	rec_sample(&r, 100, rec_stack(&r, "ab"), UNWIND_ROOT);
	capture_writer_flush(r.w);
	uint64_t from = capture_writer_bytes(r.w);
	rec_sample(&r, 100, rec_stack(&r, "cd"), UNWIND_ROOT);
	rec_thread(&r, 100, "lost");
	capture_writer_flush(r.w);
	uint64_t to = capture_writer_bytes(r.w);
	rec_sample(&r, 100, rec_stack(&r, "ae"), UNWIND_ROOT);
	rec_sample(&r, 100, rec_stack(&r, "cdf"), UNWIND_ROOT);
	rec_thread(&r, 101, "kept");
	rec_names(&r);

	struct bytes b = rec_bytes(&r);

	memmove(b.data + from, b.data + to, b.len - to);
	b.len -= to - from;

	struct profile *p = load_bytes(b, NULL);

	check_u64(p->damage.missing_blocks, 1);
	check_u64(p->samples.len, 3);
	/* "c" was defined in the lost block, "d" as a caller of "f" in the one after it. */
	check_tree(p, false,
		"(* 3 0 (a 2 0 (b 1 1) (e 1 1)) ([truncated] 1 0 (d 1 0 (f 1 1))))");
	check_str(p->threads.data[1].name, "kept");
	free(b.data);
	profile_free(p);
}

/* ---- size ---- */

TEST(deep_stacks)
{
	struct rec r = rec_start();
	uint32_t node = CAPTURE_NONE, depth = 200000;
	struct profile_tree t;

	for (uint32_t i = 0; i < depth; i++)
		node = capture_stack(r.w, node, rec_frame(&r, i & 1 ? 'a' : 'b', UNWIND_CFI));
	rec_sample(&r, 100, node, UNWIND_ROOT);
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_u64(p->quality.frames, depth);
	check_str(counts_of(p, "a"), "1/1");
	check_str(counts_of(p, "b"), "0/1");
	check(!profile_tree_build(p, false, &t, NULL));
	check_u64(t.nodes.len, depth + 1);
	profile_tree_release(&t);
	check(!profile_tree_build(p, true, &t, NULL));
	check_u64(t.nodes.len, PROFILE_INVERTED_DEPTH + 1);
	check_u64(t.nodes.data[0].total, 1);
	profile_tree_release(&t);
	profile_free(p);
}

/* ---- against the obvious algorithm ---- */

/* Samples whose functions, from the root (or the leaf) on, begin with the path of a tree node. */
static uint64_t samples_below(const struct profile *p, const struct profile_tree *t, uint32_t at,
	bool inverted)
{
	uint32_t path[64], levels[64];
	size_t len = 0;
	uint64_t found = 0;

	for (; at; at = t->nodes.data[at].parent)
		path[len++] = t->nodes.data[at].function;
	vec_each(&p->samples, s) {
		size_t n = profile_stack_levels(p, s->stack, levels, 64), i = 0;
		for (; i < len && i < n; i++) {
			uint32_t level = levels[inverted ? i : n - 1 - i];
			if (p->levels.data[level].function != path[len - 1 - i])
				break;
		}
		found += i == len;
	}
	return found;
}

static void check_against_paths(const struct profile *p, bool inverted)
{
	struct profile_tree t;

	check(!profile_tree_build(p, inverted, &t, NULL));
	check(t.nodes.len > 100);
	for (uint32_t i = 0; i < t.nodes.len; i++) {
		const struct tree_node *n = &t.nodes.data[i];
		uint64_t below = n->self, last = UINT64_MAX;

		check_u64(n->total, samples_below(p, &t, i, inverted));
		for (uint32_t c = n->first_child; c != PROFILE_NONE;
			c = t.nodes.data[c].next_sibling) {
			check(t.nodes.data[c].total <= last);
			last = t.nodes.data[c].total;
			below += last;
		}
		check_u64(n->total, below);
	}
	profile_tree_release(&t);
}

static void check_against_stacks(const struct profile *p)
{
	struct profile_count *counts;
	uint32_t levels[64];

	check(!profile_count_functions(p, &counts, NULL));
	for (uint32_t f = 0; f < p->functions.len; f++) {
		uint64_t self = 0, total = 0;

		vec_each(&p->samples, s) {
			size_t n = profile_stack_levels(p, s->stack, levels, 64), i = 0;
			while (i < n && p->levels.data[levels[i]].function != f)
				i++;
			self += i == 0;
			total += i < n;
		}
		check_u64(counts[f].self, self);
		check_u64(counts[f].total, total);
	}
	free(counts);
}

TEST(agrees_with_the_obvious)
{
	struct rec r = rec_start();
	uint64_t x = 1;

	for (int i = 0; i < 400; i++) {
		char letters[12] = {0};
		size_t len = 1 + (x = hash_u64(x + 1)) % 10;

		for (size_t k = 0; k < len; k++)
			letters[k] = "abcdXY"[(x >> (8 + 4 * k)) % 6];
		rec_sample(&r, 100, rec_stack(&r, letters), UNWIND_ROOT);
	}
	rec_names(&r);

	struct profile *p = rec_load(&r, NULL);

	check_against_paths(p, false);
	check_against_paths(p, true);
	check_against_stacks(p);
	profile_free(p);
}

/* ---- out of memory, no file ---- */

static int all_of_it(struct bytes b)
{
	struct profile *p;
	struct profile_tree up, down;
	struct profile_count *counts;
	int rc = profile_load_memory(b.data, b.len, NULL, &p, NULL);

	if (rc)
		return rc;
	rc = profile_tree_build(p, false, &up, NULL);
	if (!rc)
		profile_tree_release(&up);
	if (!rc && !(rc = profile_tree_build(p, true, &down, NULL)))
		profile_tree_release(&down);
	if (!rc && !(rc = profile_count_functions(p, &counts, NULL)))
		free(counts);
	profile_free(p);
	return rc;
}

TEST(no_memory)
{
	struct bytes b = three_threads();
	uint64_t n = 0;

	for (;; n++) {
		alloc_fail_begin(n);
		int rc = all_of_it(b);
		bool hit = alloc_fail_end();
		check(rc == (hit ? -ENOMEM : 0));
		if (!hit)
			break;
	}
	check(n > 30);
	free(b.data);
}

TEST(no_file)
{
	struct profile *p;
	struct err e = {0};

	check(profile_load("/nonexistent/x", NULL, &p, &e) == -ENOENT);
	check(strstr(e.text, "/nonexistent/x") != NULL);
	profile_free(NULL);
}

/* Nothing but a header: a profile without samples answers everything with nothing. */
TEST(empty_recording)
{
	struct rec r = {.w = NULL};

	r.w = recording_start(&r.fd);
	struct profile *p = rec_load(&r, NULL);
	check_tree(p, false, "(* 0 0)");
	check_tree(p, true, "(* 0 0)");
	check_str(counts_of(p, "[truncated]"), "0/0");
	check(p->quality.rooted_pct == 0 && p->threads.len == 0);
	profile_free(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(everything_loaded), T(stack_levels), T(process_names),
		T(samples_by_time), T(placeholders), T(counts_and_trees_by_hand),
		T(recursion_counts_once), T(cut_stacks_hang_apart), T(guesses_are_marked),
		T(filters), T(frames_of_python), T(dangling_ids), T(too_many_levels), T(lost_block_leaves_holes),
		T(deep_stacks), T(agrees_with_the_obvious), T(no_memory), T(no_file),
		T(empty_recording));
}
