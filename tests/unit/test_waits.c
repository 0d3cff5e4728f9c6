/* SPDX-License-Identifier: BSD-2-Clause */
/* What views make of time off the CPU. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc_fail.h"
#include "small_wall.h"
#include "view/view_priv.h"

static const struct term screen = {.unicode = true, .columns = 80, .rows = 24};
static const struct term wide = {.unicode = true, .columns = 120, .rows = 50};

/* As the summary is loaded, and as the text is. */
static const struct profile_load_options brief = {
	.filter = {.idle_apart = true, .brief_waits = true}};
static const struct profile_load_options apart = {.filter = {.idle_apart = true}};

typedef int view_fn(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

static struct buf draw(
	view_fn *view, const struct view_options *o, const struct profile_load_options *load)
{
	struct profile *p = wall_profile(load);
	struct buf out = {0};

	check(p && !view(p, o, &out, NULL));
	profile_free(p);
	return out;
}

/* ---- the summary ---- */

TEST(summary_of_wall_clock)
{
	struct view_options o = {.term = screen};
	struct buf got = draw(view_summary, &o, &brief);

	check_str(got.data,
		"server --port 80 · 100 ms · 14 samples at 200 Hz · 8 waits · 70 ms CPU\n"
		"100% is 200 ms: 2 threads watched; 3 that only waited are apart\n"
		"Time: 55.0% syscall, 35.0% on-cpu, 9.0% futex, 1.0% run-queue\n"
		"Stacks: 100% rooted on-cpu, 87.5% off-cpu, 0 lost\n"
		"  → 12.5% of waits have no stack: where the threads waited then is not known\n"
		"\n"
		"  on-cpu  run-queue   futex  syscall  thread\n"
		"   50.0%       2.0%   18.0%    30.0%  server 100\n"
		"   20.0%          -       -    80.0%  holder 101\n"
		"       -          -  100.0%        -  3 × bio_* in bio_wait\n"
		"\n"
		" total  paths on and off the CPU\n"
		" 50.0%  clone › worker\n"
		" 40.0%  └ [syscall read]\n"
		" 40.0%      not woken before the recording ended\n"
		" 49.0%  _start › main\n"
		" 25.8%  ├ serve › parse<int; char> (inl)\n"
		" 14.2%  └ clock_nanosleep › [syscall clock_nanosleep]\n"
		" 14.0%      woken by a timer or a device\n"
		"\n"
		"on-cpu   total  function          in\n"
		" 25.0%   25.8%  parse<int; char>  server\n"
		" 10.0%   10.0%  memcpy            libc.so.6\n");
	buf_release(&got);
}

TEST(summary_has_room_for_more)
{
	struct view_options o = {.term = wide};
	struct buf got = draw(view_summary, &o, &brief);

	check_str(got.data,
		"server --port 80 · 100 ms · 14 samples at 200 Hz (cpu-clock) · 8 waits · 70 ms CPU\n"
		"100% is 200 ms: 2 threads watched; 3 that only waited are apart\n"
		"Time: 55.0% syscall, 35.0% on-cpu, 9.0% futex, 1.0% run-queue\n"
		"Stacks: 100% rooted on-cpu, 87.5% off-cpu, 0% truncated, 0% guessed, 0% unresolved, 0 lost\n"
		"  → 12.5% of waits have no stack: where the threads waited then is not known\n"
		"\n"
		"  on-cpu  run-queue   futex  syscall  thread\n"
		"   50.0%       2.0%   18.0%    30.0%  server 100\n"
		"   20.0%          -       -    80.0%  holder 101\n"
		"       -          -  100.0%        -  3 × bio_* in bio_wait\n"
		"\n"
		" total  paths on and off the CPU\n"
		" 50.0%  clone › worker\n"
		" 40.0%  ├ [syscall read]\n"
		" 40.0%  │   not woken before the recording ended\n"
		" 10.0%  └ memcpy\n"
		" 49.0%  _start › main\n"
		" 25.8%  ├ serve › parse<int; char> (inl)\n"
		"  0.8%  │ └ [run queue]\n"
		" 14.2%  ├ clock_nanosleep › [syscall clock_nanosleep]\n"
		" 14.0%  │   woken by a timer or a device\n"
		"  9.0%  └ pthread_mutex_lock › [futex]\n"
		"  7.5%      woken by holder (server): worker › pthread_mutex_unlock\n"
		"  1.5%      woken by client (client): post_request › pthread_mutex_unlock\n"
		"  1.0%  [truncated] › [syscall poll]\n"
		"  1.0%    who woke it is not known\n"
		"\n"
		"on-cpu   total  function          in\n"
		" 25.0%   25.8%  parse<int; char>  server\n"
		" 10.0%   10.0%  memcpy            libc.so.6\n");
	buf_release(&got);
}

TEST(summary_off_the_cpu)
{
	struct profile_load_options load = brief;
	struct view_options o = {.term = wide};
	struct buf got;

	load.filter.states = (1u << STATE_COUNT) - 2;
	got = draw(view_summary, &o, &load);
	check_str(got.data,
		"server --port 80 · 100 ms · 8 waits\n"
		"100% is 200 ms: 2 threads watched; 3 that only waited are apart\n"
		"Time: 55.0% syscall, 35.0% on-cpu, 9.0% futex, 1.0% run-queue\n"
		"Stacks: 87.5% rooted, 0% truncated, 0% guessed, 0% unresolved, 0 lost\n"
		"  → 12.5% of waits have no stack: where the threads waited then is not known\n"
		"\n"
		"  on-cpu  run-queue   futex  syscall  thread\n"
		"   50.0%       2.0%   18.0%    30.0%  server 100\n"
		"   20.0%          -       -    80.0%  holder 101\n"
		"       -          -  100.0%        -  3 × bio_* in bio_wait\n"
		"\n"
		" total  paths off the CPU\n"
		" 40.0%  clone › worker › [syscall read]\n"
		" 40.0%    not woken before the recording ended\n"
		" 24.0%  _start › main\n"
		" 14.2%  ├ clock_nanosleep › [syscall clock_nanosleep]\n"
		" 14.0%  │   woken by a timer or a device\n"
		"  9.0%  ├ pthread_mutex_lock › [futex]\n"
		"  7.5%  │   woken by holder (server): worker › pthread_mutex_unlock\n"
		"  1.5%  │   woken by client (client): post_request › pthread_mutex_unlock\n"
		"  0.8%  └ serve › parse<int; char> (inl) › [run queue]\n"
		"  1.0%  [truncated] › [syscall poll]\n"
		"  1.0%    who woke it is not known\n");
	buf_release(&got);
}

TEST(summary_from_the_leaves_up)
{
	struct view_options o = {.term = wide, .inverted = true};
	struct buf got = draw(view_summary, &o, &brief);

	check(strstr(got.data,
		" total  where the time goes, from the leaves up\n"
		" 40.0%  [syscall read] › worker › clone\n"));
	check(!strstr(got.data, "woken"));
	buf_release(&got);
}

TEST(summary_fits_the_screen)
{
	static const size_t sizes[][2] = {{80, 24}, {100, 30}, {120, 50}, {200, 80}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct view_options o = {.term = screen};
		struct buf got;
		size_t lines = 0;

		o.term.columns = sizes[i][0];
		o.term.rows = sizes[i][1];
		got = draw(view_summary, &o, &brief);
		for (char *at = got.data, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
			*end = '\0';
			if (term_width(at) > sizes[i][0]) {
				check(!"a line is wider than the screen");
				puts(at);
			}
		}
		check(lines < sizes[i][1]);
		buf_release(&got);
	}
}

/* Heat is for what runs. */
TEST(waits_are_not_hot)
{
	struct view_options o = {.term = wide};
	struct buf got;

	o.term.colour = true;
	got = draw(view_summary, &o, &brief);
	check(strstr(got.data, "\x1b[1;31m 25.8%\x1b[0m"));
	check(strstr(got.data, "\n 40.0%  "));
	check(strstr(got.data, "\x1b[36m[futex]\x1b[0m"));
	buf_release(&got);
}

TEST(summary_without_samples)
{
	struct profile_load_options load = {.filter.states = 1u << STATE_STOPPED};
	struct view_options o = {.term = screen};
	struct buf got = draw(view_summary, &o, &load);

	check(strstr(got.data, "No samples: no thread was seen on a CPU or off it"));
	buf_release(&got);
}

/* ---- threads ---- */

static struct buf table_of(const struct profile *p, const struct term *t, size_t limit)
{
	struct thread_rows rows = {0};
	struct buf out = {0};

	check(!threads_gather(p, &rows, NULL));
	check(!threads_table(p, t, &rows, limit, &out));
	vec_release(&rows);
	return out;
}

TEST(rows_that_do_not_fit_are_counted)
{
	struct profile *p = wall_profile(NULL);
	struct buf got = table_of(p, &screen, 1);

	check_str(got.data,
		"  on-cpu  run-queue   futex  syscall  thread\n"
		"   50.0%       2.0%   18.0%    30.0%  server 100\n"
		"  and 4 more threads\n");
	buf_release(&got);
	/* One row takes no more room than the words that there is one. */
	got = table_of(p, &screen, 2);
	check(strstr(got.data, "3 × bio_* in bio_wait\n") && !strstr(got.data, "more"));
	buf_release(&got);
	profile_free(p);
}

static void rename_thread(struct profile *p, uint32_t tid, const char *name)
{
	vec_each(&p->threads, t)
		if (t->tid == tid)
			t->name = name;
}

TEST(names_of_idle_threads)
{
	static const struct {
		const char *names[3], *want;
	} cases[] = {
		{{"pool", "pool", "pool"}, "3 × pool in"},
		{{"pool-1", "pool-10", "pool-11"}, "3 × pool-* in"},
		{{"pool", "pool-1", "pool-2"}, "3 × pool* in"},
		{{"a", "b", "c"}, "3 × * in"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct profile *p = wall_profile(&apart);
		struct buf got;

		for (uint32_t k = 0; k < 3; k++)
			rename_thread(p, 102 + k, cases[i].names[k]);
		got = table_of(p, &screen, 0);
		if (!strstr(got.data, cases[i].want)) {
			check(!"another name");
			puts(got.data);
		}
		buf_release(&got);
		profile_free(p);
	}
}

TEST(watched_time_where_it_differs)
{
	struct profile *p = wall_profile(&apart);
	struct buf got;

	p->threads.data[1].watched_ns = 20 * WALL_MS;
	p->threads.data[1].state_ns[STATE_SYSCALL] = 0;
	got = table_of(p, &screen, 0);
	check_str(got.data,
		"  on-cpu  run-queue   futex  syscall  watched  thread\n"
		"   50.0%       2.0%   18.0%    30.0%   100 ms  server 100\n"
		"  100.0%          -       -        -    20 ms  holder 101\n"
		"       -          -  100.0%        -   100 ms  3 × bio_* in bio_wait\n");
	buf_release(&got);
	profile_free(p);
}

/* ---- everything ---- */

/* Whole stacks, with the kernel and all. */
TEST(text_has_whole_stacks)
{
	struct view_options o = {.term = screen};
	struct buf got = draw(view_text, &o, &apart);

	check(strstr(got.data,
		"Time off the CPU\n"
		"   87.5%  of waits have a whole stack\n"
		"   12.5%  have none at all\n"));
	check(strstr(got.data,
		"Threads, each in % of the time it was watched\n"
		"  on-cpu  run-queue   futex  syscall  watched  thread\n"
		"   50.0%       2.0%   18.0%    30.0%   100 ms  server 100\n"
		"   20.0%          -       -    80.0%   100 ms  holder 101\n"
		"       -          -  100.0%        -   100 ms  3 × bio_* in bio_wait\n"));
	check(strstr(got.data,
		"Call tree\n"
		" 50.0%  ├ clone\n"
		" 50.0%  │ worker\n"
		" 40.0%  │ ├ ksys_read\n"
		" 40.0%  │ │ [syscall read]\n"
		" 40.0%  │ │   not woken before the recording ended\n"
		" 10.0%  │ └ memcpy\n"
		" 49.0%  ├ _start\n"
		" 49.0%  │ main\n"
		" 25.8%  │ ├ serve\n"
		" 25.8%  │ │ parse<int; char> (inl)\n"
		"  0.8%  │ │ [run queue]\n"
		" 14.2%  │ ├ clock_nanosleep\n"
		" 14.0%  │ │ ├ [syscall clock_nanosleep]\n"
		" 14.0%  │ │ │   woken by a timer or a device\n"
		"  0.2%  │ │ └ [run queue]\n"
		"  9.0%  │ └ pthread_mutex_lock\n"
		"  9.0%  │   do_futex\n"
		"  9.0%  │   schedule\n"
		"  9.0%  │   [futex]\n"
		"  7.5%  │     woken by holder (server): worker › pthread_mutex_unlock\n"
		"  1.5%  │     woken by client (client): post_request › pthread_mutex_unlock\n"
		"  1.0%  └ [truncated]\n"
		"  1.0%    [syscall poll]\n"
		"  1.0%      who woke it is not known\n"));
	buf_release(&got);
}

TEST(unknown_wakers_are_told_once)
{
	struct profile *p = wall_profile(&apart);
	struct view_options o = {.term = screen};
	struct buf got = {0};

	p->wakers_known = false;
	check(!view_text(p, &o, &got, NULL));
	check(strstr(got.data, "who ended the waits is not known: that needs BPF"));
	check(!strstr(got.data, "woken"));
	buf_release(&got);
	profile_free(p);
}

TEST(hints_of_waits)
{
	struct profile *p = wall_profile(NULL);
	struct hints hints = {0};

	check(!facts_hints(p, &hints, NULL));
	check_u64(hints.len, 1);
	check_str(hints.data[0],
		"9.1% of waits have no stack: where the threads waited then is not known");
	hints_release(&hints);
	profile_free(p);
}

TEST(json_has_states_and_wakers)
{
	struct view_options o = {.tree = true};
	struct buf got = draw(view_json, &o, NULL);

	check(strstr(got.data, "\"samples\":26,\"duration_ns\":100000000,\"cpu_ns\":70000000,"));
	check(strstr(got.data,
		"\"mode\":\"wall\",\"off_cpu_ns\":430000000,\"watched_ns\":500000000,\"states\":"
		"{\"on-cpu\":70000000,\"run-queue\":2000000,\"throttled\":0,\"futex\":318000000,"
		"\"syscall\":110000000,\"page-fault\":0,\"stopped\":0,\"blocked\":0}"));
	check(strstr(got.data,
		"{\"tid\":100,\"name\":\"server\",\"samples\":18,\"pid\":100,\"process\":"
		"\"server\",\"cpu_ns\":50000000,\"off_cpu_ns\":50000000,\"watched_ns\":100000000,"
		"\"measured\":true,\"only_waited\":false,\"states\":{\"on-cpu\":50000000,"));
	check(strstr(got.data, "\"intervals\":11,\"intervals_without_stack\":1,"));
	check(strstr(got.data,
		"{\"name\":\"[futex]\",\"module\":\"\",\"self\":7,\"total\":7,"
		"\"self_ns\":318000000,\"total_ns\":318000000,\"state\":\"futex\"}"));
	check(strstr(got.data,
		"{\"name\":\"[futex]\",\"self\":4,\"total\":4,\"self_ns\":18000000,"
		"\"total_ns\":18000000,\"state\":\"futex\",\"wakers\":["
		"{\"by\":\"thread\",\"thread\":\"holder\",\"process\":\"server\",\"waits\":3,"
		"\"ns\":15000000,\"path\":[\"clone\",\"worker\",\"pthread_mutex_unlock\","
		"\"do_futex\"]},"
		"{\"by\":\"thread\",\"thread\":\"client\",\"process\":\"client\",\"waits\":1,"
		"\"ns\":3000000,\"path\":[\"_start\",\"post_request\",\"pthread_mutex_unlock\"]}],"
		"\"children\":[]}"));
	check(strstr(got.data, "\"wakers\":[{\"by\":\"interrupt\",\"waits\":1,\"ns\":28000000}]"));
	check(strstr(got.data, "\"wakers\":[{\"by\":\"nobody\",\"waits\":1,\"ns\":80000000}]"));
	buf_release(&got);
}

TEST(svg_tells_waiting_from_running)
{
	struct view_options o = {0};
	struct buf got = draw(view_svg, &o, NULL);

	check(strstr(got.data,
		"<title>[futex]\n3.6%, 18 ms\n"
		"83.3% woken by holder (server): worker › pthread_mutex_unlock\n"
		"16.7% woken by client (client): post_request › pthread_mutex_unlock"
		"</title>"));
	check(strstr(got.data, "<title>parse&lt;int; char&gt; (inlined)\n10.3%, 52 ms, 10.0% itself"));
	check(strstr(got.data, ">off the CPU</text>"));
	buf_release(&got);
}

TEST(dump_prints_intervals)
{
	struct bytes bytes = wall_recording();
	char path[] = "/tmp/sonde-test-XXXXXX", *text = NULL;
	int fd = mkstemp(path);
	size_t len;
	FILE *out = open_memstream(&text, &len);

	check(write(fd, bytes.data, bytes.len) == (ssize_t)bytes.len);
	close(fd);
	check(!view_dump(path, out, NULL));
	fclose(out);
	unlink(path);
	check(strstr(text, "\noff-cpu  time=0.030000000 duration_ns=28500000 pid=100 tid=100 cpu=0 "
			   "state=syscall syscall=230 stack=k"));
	check(strstr(text, "blocked_ns=28000000 queued_ns=500000 waker=interrupt"));
	check(strstr(text, "waker=thread waker_pid=200 waker_tid=200 waker_stack=k"));
	check(strstr(text, "open=not-over"));
	check(strstr(text, "\ntimes    since=0.000000000 until=0.100000000 pid=100 tid=100 "
			   "on-cpu=50000000 run-queue=2000000 throttled=0 futex=18000000"));
	free(text);
	free(bytes.data);
}

TEST(no_memory)
{
	static view_fn *const views[] = {view_summary, view_text, view_tree, view_json, view_svg};
	struct profile *p = wall_profile(&apart);
	struct view_options o = {.term = screen, .tree = true};

	for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		for (uint64_t n = 0;; n++) {
			struct buf out = {0};

			alloc_fail_begin(n);
			int rc = views[i](p, &o, &out, NULL);
			bool hit = alloc_fail_end();

			check(rc == (hit ? -ENOMEM : 0));
			buf_release(&out);
			if (!hit)
				break;
		}
	}
	profile_free(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(summary_of_wall_clock), T(summary_has_room_for_more),
		T(summary_off_the_cpu), T(summary_from_the_leaves_up), T(summary_fits_the_screen),
		T(waits_are_not_hot), T(summary_without_samples),
		T(rows_that_do_not_fit_are_counted), T(names_of_idle_threads),
		T(watched_time_where_it_differs), T(text_has_whole_stacks),
		T(unknown_wakers_are_told_once), T(hints_of_waits),
		T(json_has_states_and_wakers),
		T(svg_tells_waiting_from_running), T(dump_prints_intervals), T(no_memory));
}
