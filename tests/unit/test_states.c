/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc_fail.h"
#include "letters.h"
#include "small_wall.h"

/* ---- helpers ---- */

static const struct profile_thread *thread_named(const struct profile *p, const char *name)
{
	vec_each(&p->threads, t)
		if (!strcmp(t->name, name))
			return t;
	check(!"there is no such thread");
	return p->threads.data;
}

/* "m a [futex]" of a stack. */
static const char *stack_text(const struct profile *p, uint32_t stack)
{
	static char text[512];
	uint32_t levels[32];
	size_t n = profile_stack_levels(p, stack, levels, 32), used = 0;


	while (n-- > 0)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
			p->functions.data[p->levels.data[levels[n]].function].name, n ? " " : "");
	return text;
}

/* An interval of thread 100 that begins at r->now. */
static struct record_off_cpu interval(struct rec *r, uint8_t state, uint64_t blocked_ns,
	uint64_t queued_ns)
{
	return (struct record_off_cpu){.start_ns = r->now, .duration_ns = blocked_ns + queued_ns,
		.blocked_ns = blocked_ns, .queued_ns = queued_ns, .pid = 100, .tid = 100,
		.stack = rec_stack(r, "mX"), .syscall = -1, .syscall_name = CAPTURE_NONE,
		.waker_stack = CAPTURE_NONE,
		.state = state};
}

static struct profile *load_one(const struct record_off_cpu *like)
{
	struct rec r = rec_start();
	struct record_off_cpu record = *like;

	record.syscall_name = CAPTURE_NONE;
	record.stack = like->stack == CAPTURE_NONE ? CAPTURE_NONE : rec_stack(&r, "mX");
	capture_record(r.w, RECORD_OFF_CPU, &record, sizeof(record));
	rec_names(&r);
	return rec_load(&r, NULL);
}

/* ---- intervals ---- */

TEST(interval_becomes_two_samples)
{
	struct record_off_cpu one = {.start_ns = 5000, .duration_ns = 100, .blocked_ns = 70,
		.queued_ns = 30, .pid = 100, .tid = 100, .syscall = 202, .state = STATE_FUTEX,
		.waker = WAKER_THREAD, .waker_pid = 100, .waker_tid = 107, .cpu = 3, .open = 3,
		.used_bytes = 64, .live_frames = 1};
	struct profile *p = load_one(&one);
	const struct profile_sample *s = p->samples.data;
	const struct profile_wait *w = p->waits.data;

	check_u64(p->samples.len, 2);
	check(s[0].state == STATE_FUTEX && s[0].weight == 70 && s[0].time_ns == 5000);
	check(s[1].state == STATE_RUN_QUEUE && s[1].weight == 30 && s[1].time_ns == 5070);
	check(s[0].wait == 0 && s[1].wait == 0 && s[0].cpu == 3);
	check_str(stack_text(p, s[0].stack), "m X inl [futex]");
	check_str(stack_text(p, s[1].stack), "m X inl [run queue]");
	check(w->start_ns == 5000 && w->duration_ns == 100 && w->syscall == 202);
	check(w->was_open && w->still_open && !w->thinned && w->waker_kind == WAKER_THREAD);
	check(w->waker == 0 && p->wakers.data[0].tid == 107 && p->wakers_known);
	check_u64(p->mode, PROFILE_OFF_CPU);
	/* One stack, of two frames of code. */
	check(p->quality.samples == 1 && p->quality.intervals == 1 && p->quality.frames == 2);
	check(p->quality.live_frames == 1 && p->quality.off_cpu_rooted_pct == 100);
	check(p->total_weight == 100 && p->cpu_ns == 0);
	profile_free(p);
}

TEST(preempted_threads_are_only_queued)
{
	struct record_off_cpu one = {.duration_ns = 50, .queued_ns = 50, .pid = 100, .tid = 100,
		.syscall = -1, .state = STATE_RUN_QUEUE};
	struct profile *p = load_one(&one);

	check(p->samples.len == 1 && p->samples.data[0].state == STATE_RUN_QUEUE);
	profile_free(p);
	one.state = STATE_THROTTLED;
	p = load_one(&one);
	check(p->samples.len == 1 && p->samples.data[0].state == STATE_THROTTLED);
	check_str(stack_text(p, p->samples.data[0].stack), "m X inl [throttled]");
	profile_free(p);
}

TEST(thinned_intervals_keep_their_place)
{
	struct record_off_cpu one = {.start_ns = 1000, .duration_ns = 100, .blocked_ns = 600,
		.queued_ns = 400, .pid = 100, .tid = 100, .syscall = -1, .state = STATE_BLOCKED};
	struct profile *p = load_one(&one);

	check(p->waits.data[0].thinned && p->quality.intervals_thinned == 1);
	check_u64(p->samples.data[1].time_ns, 1060);
	check_u64(p->total_weight, 1000);
	profile_free(p);
}

TEST(nothing_in_the_record_is_trusted)
{
	struct record_off_cpu one = {.start_ns = UINT64_MAX - 5, .duration_ns = UINT64_MAX,
		.blocked_ns = UINT64_MAX, .queued_ns = UINT64_MAX, .pid = 100, .tid = 100,
		.stack = CAPTURE_NONE, .syscall = INT32_MIN, .waker_stack = 77, .state = 200,
		.waker = 9, .end = 200, .open = 0xff};
	struct profile *p = load_one(&one);

	check_u64(p->samples.len, 2);
	vec_each(&p->samples, s) {
		check(s->state == STATE_BLOCKED || s->state == STATE_RUN_QUEUE);
		check_u64(s->end, UNWIND_NO_RULE);
	}
	check(p->waits.data[0].waker_kind == WAKER_UNKNOWN && p->waits.data[0].syscall == -1);
	check(p->waits.data[0].waker_stack == PROFILE_NONE && !p->wakers_known);
	check_u64(p->quality.intervals_without_stack, 1);
	profile_free(p);

	one.state = STATE_ON_CPU;
	one.waker = WAKER_THREAD; /* without a number */
	p = load_one(&one);
	check(p->samples.data[0].state != STATE_ON_CPU && !p->wakers.len);
	check_u64(p->waits.data[0].waker_kind, WAKER_UNKNOWN);
	profile_free(p);

	one.blocked_ns = one.queued_ns = 0;
	p = load_one(&one);
	check_u64(p->samples.len, 0);
	profile_free(p);
}

TEST(system_calls_are_frames)
{
	struct rec r = rec_start();
	static const int calls[] = {-1, 7, 7, 230, 9999};
	static const char *const names[] = {NULL, "poll", "poll", "clock_nanosleep", NULL};
	struct profile *p;

	for (size_t i = 0; i < 5; i++) {
		struct record_off_cpu one = interval(&r, STATE_SYSCALL, 10, 0);

		one.syscall = calls[i];
		one.syscall_name = capture_string(r.w, names[i]);
		capture_record(r.w, RECORD_OFF_CPU, &one, sizeof(one));
		r.now += 10;
	}
	rec_names(&r);
	p = rec_load(&r, NULL);
	check_str(stack_text(p, p->samples.data[0].stack), "m X inl [syscall]");
	check_str(stack_text(p, p->samples.data[1].stack), "m X inl [syscall poll]");
	check_str(stack_text(p, p->samples.data[3].stack), "m X inl [syscall clock_nanosleep]");
	check(p->samples.data[1].stack == p->samples.data[2].stack);
	check_str(stack_text(p, p->samples.data[4].stack), "m X inl [syscall 9999]");
	profile_free(p);
}

TEST(names_of_states)
{
	enum thread_state got;

	for (enum thread_state s = 0; s < STATE_COUNT; s++)
		check(!profile_state_by_name(profile_state_name(s), &got) && got == s);
	check(profile_state_by_name("off-cpu", &got) == -EINVAL);
}

/* ---- the whole ---- */

TEST(wall_clock_of_a_server)
{
	struct profile *p = wall_profile(NULL);
	const struct profile_thread *server = thread_named(p, "server");
	const struct profile_thread *holder = thread_named(p, "holder");

	check_u64(p->mode, PROFILE_WALL);
	check(server->exact && server->watched_ns == 100 * WALL_MS);
	check_u64(server->state_ns[STATE_FUTEX], 18 * WALL_MS);
	check(server->cpu_ns == 50 * WALL_MS && server->weight == 100 * WALL_MS);
	check(!holder->exact && holder->watched_ns == 100 * WALL_MS);
	check_u64(holder->state_ns[STATE_SYSCALL], 80 * WALL_MS);
	check(thread_named(p, "bio_b")->idle && !server->idle && !thread_named(p, "bio_b")->apart);
	check(!thread_named(p, "client")->watched_ns && !thread_named(p, "client")->samples);
	check(p->watched_threads == 5 && p->watched_ns == 500 * WALL_MS);
	check_u64(p->state_ns[STATE_ON_CPU], 70 * WALL_MS);
	check_u64(p->total_weight, 500 * WALL_MS);
	check_u64(p->cpu_ns, 70 * WALL_MS);
	check_u64(p->quality.samples, 14 + 11);
	check_u64(p->quality.intervals, 11);
	check_u64(p->quality.intervals_without_stack, 1);
	check_u64(p->quality.on_cpu_rooted_pct, 100);
	check_u64(p->samples.len, 14 + 11 + 1);
	profile_free(p);
}

TEST(threads_that_only_wait_stand_apart)
{
	struct profile_load_options load = {.filter.idle_apart = true};
	struct profile *p = wall_profile(&load);
	const struct profile_thread *bio = thread_named(p, "bio_a");

	check(bio->apart && !bio->samples && bio->watched_ns == 100 * WALL_MS);
	check_str(stack_text(p, bio->waits_in), "clone bio_wait do_futex [futex]");
	check(p->watched_threads == 2 && p->watched_ns == 200 * WALL_MS);
	check_u64(p->total_weight, 200 * WALL_MS);
	profile_free(p);

	/* Alone they are what there is to see. */
	load.filter.tid = 103;
	p = wall_profile(&load);
	check(p->samples.len == 1 && !p->threads.data[0].apart && p->threads.data[0].idle);
	profile_free(p);
}

TEST(states_are_selected)
{
	struct profile_load_options load = {.filter.states = 1u << STATE_FUTEX};
	struct profile *p = wall_profile(&load);

	check_u64(p->samples.len, 4 + 3);
	check_u64(p->total_weight, 318 * WALL_MS);
	check_u64(p->watched_ns, 500 * WALL_MS);
	check_u64(thread_named(p, "server")->state_ns[STATE_ON_CPU], 50 * WALL_MS);
	profile_free(p);
	load.filter.states = 1u << STATE_RUN_QUEUE;
	p = wall_profile(&load);
	/* Of the sleep only its queued part is left, and still it is one stack. */
	check(p->samples.len == 2 && p->quality.samples == 2 && p->quality.intervals == 2);
	profile_free(p);
}

/* ---- what the program called ---- */

/* The stack of the one wait, shortened as in the summary; `names` from the outermost frame, those
 * of the kernel in capitals, of the C library with a dot before them. */
static const char *shortened(const char *const *names, size_t count)
{
	struct profile_load_options load = {.filter.brief_waits = true};
	struct small s = {.now = SMALL_START_NS};
	struct record_off_cpu one = {.duration_ns = 5, .blocked_ns = 5, .pid = 100, .tid = 100,
		.syscall = -1, .state = STATE_FUTEX, .waker_stack = CAPTURE_NONE,
		.stack = CAPTURE_NONE};
	static char text[512];
	struct bytes bytes;
	struct profile *p = NULL;
	int fd;

	s.w = recording_start(&fd);
	s.server = small_module(&s, "/usr/bin/server", MODULE_FILE, 1);
	s.libc = small_module(&s, "/lib/libc.so.6", MODULE_FILE, 2);
	s.kernel = small_module(&s, "[kernel]", MODULE_KERNEL, 0);
	for (size_t i = 0; i < count; i++) {
		const char *name = names[i];
		uint32_t module = *name == '.' ? s.libc
				  : *name >= 'A' && *name <= 'Z' ? s.kernel : s.server;
		uint32_t frame = *name == '?'
			? small_frame(&s, CAPTURE_NONE, 0x77, UNWIND_CFI, true)
			: small_frame(&s, module, 0x1000 + i, UNWIND_CFI, true);
		struct record_symbol_level levels[2] = {
			small_level(&s, "inside", NULL, 0), small_level(&s, name, NULL, 0)};

		/* Everything in the library has something inlined. */
		capture_symbol(s.w, frame, SYMBOL_OK, levels + (*name != '.'), 1 + (*name == '.'));
		one.stack = capture_stack(s.w, one.stack, frame);
	}
	capture_record(s.w, RECORD_OFF_CPU, &one, sizeof(one));
	capture_writer_finish(s.w, END_DURATION, s.now, NULL);
	bytes = recording_bytes(fd);
	check(!profile_load_memory(bytes.data, bytes.len, &load, &p, NULL));
	check_u64(p->quality.frames, count);
	snprintf(text, sizeof(text), "%s", stack_text(p, p->samples.data[0].stack));
	profile_free(p);
	free(bytes.data);
	return text;
}
#define SHORTENED(...)                                                                             \
	shortened((const char *const[]){__VA_ARGS__},                                              \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

TEST(waits_end_with_what_the_program_called)
{
	check_str(SHORTENED("start", "main", ".lock", ".wait", "SYSCALL", "SCHEDULE"),
		"start main .lock [futex]");
	/* Called through the library: the call is the innermost run of it. */
	check_str(SHORTENED("start", "main", ".qsort", "compare", ".lock", ".wait", "SCHEDULE"),
		"start main .qsort inside compare .lock [futex]");
	check_str(SHORTENED("start", "main", "INTERRUPT", "SCHEDULE"), "start main [futex]");
	/* Nothing of the program in it. */
	check_str(SHORTENED(".clone", ".helper", ".wait", "SCHEDULE"),
		".clone inside .helper inside .wait inside [futex]");
	check_str(SHORTENED("start", ".exit", ".leave", "EXIT"),
		"start .exit inside .leave inside [futex]");
	check_str(SHORTENED("FORK", "KTHREAD", "SCHEDULE"), "FORK KTHREAD SCHEDULE [futex]");
	check_str(SHORTENED("?", "DO_EXIT", "SCHEDULE"), "? DO_EXIT SCHEDULE [futex]");
}

/* ---- threads that only wait ---- */

/* Whether a thread of 100 ms is idle that ran, was queued, waited in one place and in another. */
static bool idle(uint64_t ran_us, uint64_t queued_us, uint64_t here_us, uint64_t there_us)
{
	struct rec r = rec_start();
	struct record_thread_times t = {.until_ns = 100 * WALL_MS, .pid = 100, .tid = 100};
	struct record_off_cpu one;
	struct profile *p;
	bool is;

	capture_meta(r.w, "mode", "wall");
	t.ns[STATE_ON_CPU] = ran_us * 1000;
	t.ns[STATE_RUN_QUEUE] = queued_us * 1000;
	t.ns[STATE_FUTEX] = t.until_ns - t.ns[0] - t.ns[1];
	capture_record(r.w, RECORD_THREAD_TIMES, &t, sizeof(t));
	one = interval(&r, STATE_FUTEX, here_us * 1000, 0);
	capture_record(r.w, RECORD_OFF_CPU, &one, sizeof(one));
	one = interval(&r, STATE_FUTEX, there_us * 1000, 0);
	one.stack = rec_stack(&r, "mz");
	capture_record(r.w, RECORD_OFF_CPU, &one, sizeof(one));
	p = rec_load(&r, NULL);
	is = p->threads.data[0].idle;
	profile_free(p);
	return is;
}

TEST(idle_threads)
{
	check(idle(0, 0, 100000, 0));
	check(idle(100, 10000, 88000, 900));
	check(!idle(101, 0, 99000, 0));
	check(!idle(0, 10001, 89000, 0));
	check(!idle(0, 0, 90000, 10000));
	check(!idle(0, 0, 10000, 90000));
}

/* ---- times ---- */

TEST(last_times_count)
{
	struct rec r = rec_start();
	struct record_thread_times t = {.since_ns = 10, .until_ns = 60, .pid = 100, .tid = 100};
	struct profile *p;

	capture_meta(r.w, "mode", "off-cpu");
	t.ns[STATE_ON_CPU] = 50;
	capture_record(r.w, RECORD_THREAD_TIMES, &t, sizeof(t));
	t.until_ns = 110;
	t.ns[STATE_FUTEX] = 50;
	capture_record(r.w, RECORD_THREAD_TIMES, &t, sizeof(t));
	p = rec_load(&r, NULL);
	check(p->threads.len == 1 && p->threads.data[0].exact);
	check(p->watched_ns == 100 && p->state_ns[STATE_FUTEX] == 50);
	profile_free(p);
}

TEST(impossible_times_are_not_taken)
{
	for (int i = 0; i < 3; i++) {
		struct rec r = rec_start();
		struct record_thread_times t = {.since_ns = 10, .until_ns = 60, .pid = 100,
			.tid = 100, .ns = {50}};
		struct profile *p;

		capture_meta(r.w, "mode", "wall");
		if (i == 0)
			t.until_ns = 9;
		else if (i == 1)
			t.ns[1] = UINT64_MAX;
		else
			t.ns[1] = NS_PER_S;
		capture_record(r.w, RECORD_THREAD_TIMES, &t, sizeof(t));
		p = rec_load(&r, NULL);
		check(!p->threads.data[0].exact && !p->watched_ns);
		profile_free(p);
	}
}

/* ---- who woke whom ---- */

/* The node of the tree that is this function, the heaviest of them. */
static uint32_t node_named(const struct profile *p, const struct profile_tree *t, const char *name)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < t->nodes.len; i++)
		if (!strcmp(p->functions.data[t->nodes.data[i].function].name, name) &&
			(!best || t->nodes.data[i].total_weight > t->nodes.data[best].total_weight))
			best = i;
	return best;
}

TEST(wakers_of_a_lock)
{
	struct profile_load_options load = {.filter.idle_apart = true};
	struct profile *p = wall_profile(&load);
	struct profile_tree t;
	struct profile_wakes w;
	const struct profile_wake *rows;
	size_t count;

	check(!profile_tree_build(p, false, &t, NULL) && !profile_wakes_build(p, &t, &w, NULL));
	rows = profile_wakes_of(&w, node_named(p, &t, "[futex]"), &count);
	check_u64(count, 2);
	check(rows[0].kind == WAKER_THREAD && rows[0].samples == 3);
	check_u64(rows[0].weight, 15 * WALL_MS);
	check_str(p->wakers.data[rows[0].waker].name, "holder");
	check_str(p->functions.data[w.paths.nodes.data[rows[0].path].function].name, "do_futex");
	check_str(p->wakers.data[rows[1].waker].process, "client");
	check_u64(rows[1].weight, 3 * WALL_MS);

	rows = profile_wakes_of(&w, node_named(p, &t, "[syscall clock_nanosleep]"), &count);
	check(count == 1 && rows->kind == WAKER_INTERRUPT && rows->waker == PROFILE_NONE);
	rows = profile_wakes_of(&w, node_named(p, &t, "[syscall read]"), &count);
	check(count == 1 && rows->kind == WAKER_UNKNOWN && rows->asleep);
	/* Who waits for a CPU was woken by nobody. */
	check(!profile_wakes_of(&w, node_named(p, &t, "[run queue]"), &count) && !count);
	profile_wakes_release(&w);
	profile_tree_release(&t);
	profile_free(p);
}

/* Threads of one name on paths of the same functions are one line. */
TEST(equal_wakers_are_one)
{
	struct rec r = rec_start();
	struct profile_tree t;
	struct profile_wakes w;
	struct profile *p;
	size_t count;

	for (uint32_t tid = 201; tid <= 205; tid++) {
		struct record_off_cpu one = interval(&r, STATE_FUTEX, 10, 0);

		rec_thread(&r, tid, tid < 205 ? "pool" : "other");
		one.waker = WAKER_THREAD;
		one.waker_pid = 100;
		one.waker_tid = tid;
		one.waker_stack = rec_stack(&r, tid == 204 ? "mz" : "my");
		capture_record(r.w, RECORD_OFF_CPU, &one, sizeof(one));
		r.now += 10;
	}
	rec_names(&r);
	p = rec_load(&r, NULL);
	check(!profile_tree_build(p, false, &t, NULL) && !profile_wakes_build(p, &t, &w, NULL));
	check(profile_wakes_of(&w, node_named(p, &t, "[futex]"), &count));
	check_u64(count, 3);
	check(w.rows.data[0].samples == 3 && w.rows.data[0].weight == 30);
	profile_wakes_release(&w);
	profile_tree_release(&t);
	profile_free(p);
}

/* ---- time lines ---- */

TEST(time_lines)
{
	struct profile *p = wall_profile(NULL);
	struct profile_timelines t;

	check(!profile_timelines_build(p, &t, NULL));
	check_u64(t.begin[p->threads.len], p->samples.len);
	for (size_t k = 0; k < p->threads.len; k++) {
		check_u64(t.begin[k + 1] - t.begin[k], p->threads.data[k].samples);
		for (size_t i = t.begin[k]; i < t.begin[k + 1]; i++) {
			const struct profile_sample *s = &p->samples.data[t.order[i]];

			check_u64(s->thread, k);
			check(i == t.begin[k] ||
				p->samples.data[t.order[i - 1]].time_ns <= s->time_ns);
		}
	}
	profile_timelines_release(&t);
	profile_free(p);
}

/* ---- memory ---- */

static int everything(const struct bytes *bytes)
{
	struct profile_load_options load = {.filter = {.idle_apart = true, .brief_waits = true}};
	struct profile *p = NULL;
	struct profile_tree t = {0};
	struct profile_wakes w = {0};
	struct profile_timelines lines = {0};
	int rc = profile_load_memory(bytes->data, bytes->len, &load, &p, NULL);

	if (!rc)
		rc = profile_tree_build(p, false, &t, NULL);
	if (!rc)
		rc = profile_wakes_build(p, &t, &w, NULL);
	if (!rc)
		rc = profile_timelines_build(p, &lines, NULL);
	profile_timelines_release(&lines);
	profile_wakes_release(&w);
	profile_tree_release(&t);
	profile_free(p);
	return rc;
}

TEST(no_memory)
{
	struct bytes bytes = wall_recording();

	for (uint64_t n = 0;; n++) {
		int rc;

		alloc_fail_begin(n);
		rc = everything(&bytes);
		if (!alloc_fail_end()) {
			check_u64(rc, 0);
			break;
		}
		check(rc == -ENOMEM);
	}
	free(bytes.data);
}

/* ---- tasks ---- */

static struct profile *load_tasks(bool asked)
{
	static const struct profile_load_options tasks = {.filter = {.tasks = true, .idle_apart = true}};
	struct rec r = rec_start();
	struct record_off_cpu one = interval(&r, STATE_SYSCALL, 500, 0);
	struct record_task_time t = {.time_ns = r.now, .pid = 100, .tid = 100, .stack = rec_stack(&r, "mX"), .count = 3,
		.weight_ns = 300, .doing = TASK_WAITS, .what = capture_string(r.w, "asyncio.Lock")};

	capture_meta(r.w, "mode", "cpu");
	capture_record(r.w, RECORD_OFF_CPU, &one, sizeof(one));
	capture_record(r.w, RECORD_TASK_TIME, &t, sizeof(t));
	t.what = capture_string(r.w, "asyncio.Queue.get()");
	capture_record(r.w, RECORD_TASK_TIME, &t, sizeof(t));
	t.what = CAPTURE_NONE;
	t.doing = TASK_READY;
	capture_record(r.w, RECORD_TASK_TIME, &t, sizeof(t));
	t.doing = TASK_RUNS;
	capture_record(r.w, RECORD_TASK_TIME, &t, sizeof(t));
	t.doing = 77;
	t.stack = 12345;
	capture_record(r.w, RECORD_TASK_TIME, &t, sizeof(t));
	rec_names(&r);
	return rec_load(&r, asked ? &tasks : NULL);
}

TEST(time_of_tasks_is_apart)
{
	struct profile *p = load_tasks(false);

	check(!p->of_tasks && p->samples.len == 1 && p->total_weight == 500);
	check_u64(p->task_ns, 1500);
	profile_free(p);
}

TEST(time_of_tasks_instead_of_threads)
{
	struct profile *p = load_tasks(true);
	const struct profile_sample *s = p->samples.data;

	check(p->of_tasks && p->mode == PROFILE_WALL);
	check_u64(p->task_ns, 1500);
	check_u64(p->total_weight, 1500);
	if (p->samples.len == 5) {
		check_str(stack_text(p, s[0].stack), "m X inl [asyncio.Lock]");
		check_str(stack_text(p, s[1].stack), "m X inl [asyncio.Queue.get()]");
		check_str(stack_text(p, s[2].stack), "m X inl [run queue]");
		check(s[3].state == STATE_ON_CPU && s[3].wait == PROFILE_NONE);
		check_str(stack_text(p, s[3].stack), "m X inl");
		/* What a later version may tell: blocked, in what is not known. */
		check_str(stack_text(p, s[4].stack), "[blocked]");
	}
	check_u64(p->samples.len, 5);
	/* All that a task does may be to wait: it is shown all the same. */
	check(!p->threads.data[0].apart);
	profile_free(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(interval_becomes_two_samples),
		T(preempted_threads_are_only_queued), T(thinned_intervals_keep_their_place),
		T(nothing_in_the_record_is_trusted), T(system_calls_are_frames), T(names_of_states),
		T(wall_clock_of_a_server), T(threads_that_only_wait_stand_apart),
		T(states_are_selected), T(waits_end_with_what_the_program_called),
		T(idle_threads), T(last_times_count), T(impossible_times_are_not_taken),
		T(wakers_of_a_lock), T(time_of_tasks_is_apart), T(time_of_tasks_instead_of_threads), T(equal_wakers_are_one), T(time_lines), T(no_memory));
}
