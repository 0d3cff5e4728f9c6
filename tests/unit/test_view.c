/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc_fail.h"
#include "small_profile.h"
#include "view/view_priv.h"

static const struct term screen = {.unicode = true, .columns = 80, .rows = 24};

typedef int view_fn(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* What a view draws of the small profile; the caller releases it. */
static struct buf draw(
	view_fn *view, const struct view_options *o, const struct profile_load_options *load)
{
	struct profile *p = small_profile(load);
	struct buf out = {0};

	check(p && !view(p, o, &out, NULL));
	profile_free(p);
	return out;
}

static void check_view(view_fn *view, const struct view_options *o, const char *want)
{
	struct buf got = draw(view, o, NULL);

	check_str(got.data, want);
	buf_release(&got);
}

TEST(summary_is_one_screen)
{
	struct view_options o = {.term = screen};

	check_view(view_summary, &o,
		"server --port 80 <&\"> · 100 ms · 10 samples at 200 Hz (cpu-clock) · 50 ms CPU\n"
		"Stacks: 90.0% rooted, 10.0% truncated, 3.2% guessed, 3.2% unresolved, 3 lost\n"
		"  → 10.0% of stacks are cut short: record with --stack-size 65528\n"
		"  → 3 samples were lost: lower the rate (-F) or record fewer processes\n"
		"\n"
		"  self   total  function          in\n"
		" 70.0%   70.0%  parse<int; char>  server\n"
		" 20.0%   20.0%  memcpy            libc.so.6\n"
		" 10.0%   10.0%  ksys_read         [kernel]\n"
		"\n"
		" total  hottest paths\n"
		" 80.0%  _start › main › serve\n"
		" 60.0%  ├ parse<int; char> (inl)\n"
		" 20.0%  └ memcpy\n"
		" 10.0%  clone › worker › ksys_read\n"
		" 10.0%  [truncated] › libc.so.6+0x2fff ? › serve › parse<int; char> (inl)\n"
		"\n"
		"Threads: 80.0% server 100, 20.0% io 101\n");
}

TEST(summary_inverted_ascii)
{
	struct view_options o = {.term = screen, .inverted = true, .top = 1};

	o.term.unicode = false;
	check_view(view_summary, &o,
		"server --port 80 <&\"> - 100 ms - 10 samples at 200 Hz (cpu-clock) - 50 ms CPU\n"
		"Stacks: 90.0% rooted, 10.0% truncated, 3.2% guessed, 3.2% unresolved, 3 lost\n"
		"  -> 10.0% of stacks are cut short: record with --stack-size 65528\n"
		"  -> 3 samples were lost: lower the rate (-F) or record fewer processes\n"
		"\n"
		"  self   total  function          in\n"
		" 70.0%   70.0%  parse<int; char>  server\n"
		"\n"
		" total  hottest functions, and who calls them\n"
		" 70.0%  parse<int; char> (inl) > serve > main > _start\n"
		" 20.0%  memcpy > serve > main > _start\n"
		" 10.0%  ksys_read > worker > clone\n"
		"\n"
		"Threads: 80.0% server 100, 20.0% io 101\n");
}

TEST(summary_fits_the_screen)
{
	static const size_t sizes[][2] = {{80, 24}, {60, 16}, {120, 50}, {40, 10}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct view_options o = {.term = screen};
		struct buf got;
		size_t lines = 0;

		o.term.columns = sizes[i][0];
		o.term.rows = sizes[i][1];
		got = draw(view_summary, &o, NULL);
		for (char *at = got.data, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
			*end = '\0';
			if (sizes[i][0] >= 80 && term_width(at) > sizes[i][0]) {
				check(!"a line is wider than the screen");
				puts(at);
			}
		}
		if (sizes[i][1] >= 24)
			check(lines < sizes[i][1]);
		buf_release(&got);
	}
}

TEST(summary_colours)
{
	struct view_options o = {.term = screen};
	struct buf got = draw(view_summary, &o, NULL);

	check(!strchr(got.data, '\x1b'));
	buf_release(&got);
	o.term.colour = true;
	got = draw(view_summary, &o, NULL);
	check(strstr(got.data, "\x1b[1;31m 70.0%\x1b[0m"));
	buf_release(&got);
}

TEST(summary_of_nothing)
{
	struct profile_load_options other = {.filter.tid = 4711};
	struct view_options o = {.term = screen};
	struct buf got = draw(view_summary, &o, &other);

	check(strstr(got.data, "No samples"));
	buf_release(&got);
}

TEST(hints_know_java)
{
	struct profile p = {.quality = {.frames = 10, .guessed_frames = 5, .guessed_frames_pct = 50}};
	struct hints hints = {0};

	check(!vec_push(&p.modules, (struct profile_module){.path = "", .name = "libc.so.6"}));
	check(!facts_hints(&p, &hints, NULL));
	check(hints.len == 1 && strstr(hints.data[0], "code without unwind information"));
	hints_release(&hints);
	check(!vec_push(&p.modules, (struct profile_module){.path = "", .name = "libjvm.so"}));
	check(!facts_hints(&p, &hints, NULL));
	check(hints.len == 1 && strstr(hints.data[0], "-XX:+PreserveFramePointer"));
	hints_release(&hints);
	vec_release(&p.modules);
}

/* The cut stack of the small profile is not deep when its code lies outside every mapping. */
TEST(hints_tell_of_python)
{
	struct profile p = {.quality = {.samples = 100, .python_torn = 5, .python_cut = 1}};
	struct hints hints = {0};

	check(!facts_hints(&p, &hints, NULL));
	check(hints.len == 1 && strstr(hints.data[0], "6.0% of stacks lack Python frames, which changed"));
	hints_release(&hints);
	p.quality.python_cut = 20;
	check(!facts_hints(&p, &hints, NULL));
	check(hints.len == 1 && strstr(hints.data[0], "there are too many of them"));
	hints_release(&hints);
	p.quality.python_torn = p.quality.python_cut = 1;
	check(!facts_hints(&p, &hints, NULL));
	check(!hints.len);
	hints_release(&hints);
}

TEST(hints_leave_stacks_of_execve)
{
	struct profile *p = small_profile(NULL);
	struct hints hints = {0};

	check(p && !facts_hints(p, &hints, NULL));
	check(hints.len && strstr(hints.data[0], "10.0% of stacks are cut short"));
	hints_release(&hints);
	vec_each(&p->frames, f)
		f->module = PROFILE_NONE;
	check(!facts_hints(p, &hints, NULL));
	vec_each(&hints, it)
		check(!strstr(*it, "cut short"));
	hints_release(&hints);
	profile_free(p);
}

/* Every stack of a static program ends in a guessed _start: nothing to act on. */
TEST(hints_leave_guessed_roots)
{
	struct profile p = {.quality = {.frames = 300, .guessed_frames = 100,
				    .guessed_roots = 100, .guessed_frames_pct = 33.3}};
	struct hints hints = {0};

	check(!facts_hints(&p, &hints, NULL));
	check_u64(hints.len, 0);
	hints_release(&hints);
	p.quality.guessed_roots = 90;
	check(!facts_hints(&p, &hints, NULL));
	check(hints.len == 1 && strstr(hints.data[0], "33.3% of frames are guesses"));
	hints_release(&hints);
}

TEST(text_has_everything)
{
	struct view_options o = {.term = screen};

	check_view(view_text, &o,
		"server --port 80 <&\"> · 100 ms · 10 samples at 200 Hz (cpu-clock) · 50 ms CPU\n"
		"  command            server --port 80 <&\">\n"
		"  event              cpu-clock\n"
		"  frequency_hz       200\n"
		"  stack_bytes        8192\n"
		"  sampling cost      1 ms CPU, naming 3 ms, file 910 bytes\n"
		"\n"
		"Stacks, by how they end\n"
		"   90.0%  root\n"
		"   10.0%  truncated\n"
		"\n"
		"Frames\n"
		"    3.2%  guessed (marked ? in the tree)\n"
		"    0.0%  found by frame pointer, validated\n"
		"    0.0%  beyond the copied stack, read live and checked\n"
		"    3.2%  without a name\n"
		"\n"
		"Lost\n"
		"  3 samples dropped by the kernel: the ring was full\n"
		"\n"
		"Hints\n"
		"  10.0% of stacks are cut short: record with --stack-size 65528\n"
		"  3 samples were lost: lower the rate (-F) or record fewer processes\n"
		"  most unnamed frames are in libc.so.6: install its debug symbols\n"
		"  3.2% of frames are guesses (marked ?): code without unwind information\n"
		"\n"
		"Threads\n"
		"   share  samples      tid  name (process)\n"
		"   80.0%        8      100  server (server 100)\n"
		"   20.0%        2      101  io (server 100)\n"
		"\n"
		"Functions\n"
		"    self   total  samples  function (module)\n"
		"   70.0%   70.0%        7  parse<int; char> (server)\n"
		"   20.0%   20.0%        2  memcpy (libc.so.6)\n"
		"   10.0%   10.0%        1  ksys_read ([kernel])\n"
		"    0.0%   90.0%        0  serve (server)\n"
		"    0.0%   80.0%        0  _start (server)\n"
		"    0.0%   80.0%        0  main (server)\n"
		"    0.0%   10.0%        0  clone (libc.so.6)\n"
		"    0.0%   10.0%        0  libc.so.6+0x2fff (libc.so.6)\n"
		"    0.0%   10.0%        0  worker (server)\n"
		"\n"
		"Call tree\n"
		" 80.0%  ├ _start\n"
		" 80.0%  │ main\n"
		" 80.0%  │ serve\n"
		" 60.0%  │ ├ parse<int; char> (inl)\n"
		" 20.0%  │ └ memcpy\n"
		" 10.0%  ├ clone\n"
		" 10.0%  │ worker\n"
		" 10.0%  │ ksys_read\n"
		" 10.0%  └ [truncated]\n"
		" 10.0%    libc.so.6+0x2fff ?\n"
		" 10.0%    serve\n"
		" 10.0%    parse<int; char> (inl)\n");
}

TEST(text_counts_idle_threads)
{
	struct profile *p = small_profile(NULL);
	struct profile_thread idle = {.pid = 200, .tid = 200, .name = "true", .process = "true"};
	struct view_options o = {.term = screen};
	struct buf out = {0};

	check(p && !vec_push(&p->threads, idle) && !view_text(p, &o, &out, NULL));
	check(strstr(out.data, "io (server 100)\n  and 1 thread without samples\n\nFunctions"));
	buf_clear(&out);
	check(!vec_push(&p->threads, idle) && !view_text(p, &o, &out, NULL));
	check(strstr(out.data, "io (server 100)\n  and 2 threads without samples\n\nFunctions"));
	check(!strstr(out.data, "true"));
	buf_release(&out);
	profile_free(p);
}

TEST(json_keeps_its_keys)
{
	struct view_options o = {.tree = true, .top = 2};

	check_view(view_json, &o,
		"{\n"
		"\"version\":1,\"samples\":10,\"duration_ns\":100000000,\"cpu_ns\":50000000,"
		"\"start_realtime_ns\":1700000000000000000,\"mode\":\"cpu\","
		"\"meta\":{\"command\":\"server --port 80 <&\\\">\",\"event\":\"cpu-clock\","
		"\"frequency_hz\":\"200\",\"stack_bytes\":\"8192\"}\n"
		",\"threads\":[\n"
		"  {\"tid\":100,\"name\":\"server\",\"samples\":8,\"pid\":100,"
		"\"process\":\"server\",\"cpu_ns\":40000000},\n"
		"  {\"tid\":101,\"name\":\"io\",\"samples\":2,\"pid\":100,"
		"\"process\":\"server\",\"cpu_ns\":10000000}]\n"
		",\"quality\":{\"rooted_pct\":90.000,\"truncated_pct\":10.000,"
		"\"guessed_frames_pct\":3.226,\"lost_samples\":3,"
		"\"unresolved_frames_pct\":3.226,\"fp_frames_pct\":0.000,\"prologue_frames_pct\":0.000,\"live_frames_pct\":0.000,\"frames\":31,"
		"\"python_stacks\":0,\"python_torn\":0,\"python_cut\":0,"
		"\"ends\":{\"root\":9,\"truncated\":1,\"no-rule\":0,\"bad-rule\":0,"
		"\"bad-address\":0,\"no-progress\":0,\"frame-limit\":0,\"no-regs\":0,\"changed\":0},"
		"\"losses\":{\"ring_samples\":3,\"throttled\":0,\"no_registers\":0,"
		"\"malformed\":0,\"unreadable_files\":0,\"unattached_threads\":0,"
		"\"late_mappings\":0,\"ring_records\":0,\"off_cpu_stacks\":0,\"heap_events\":0,"
		"\"heap_early\":0,\"heap_stacks\":0,\"notes\":0},\"damage\":{\"bad_blocks\":0,"
		"\"missing_blocks\":0,\"bad_records\":0,\"skipped_bytes\":0,"
		"\"truncated\":false,\"no_end\":false,\"bad_header\":false}}\n"
		",\"functions\":[\n"
		"  {\"name\":\"parse<int; char>\",\"module\":\"server\",\"self\":7,\"total\":7,"
		"\"self_ns\":35000000,\"total_ns\":35000000,\"file\":\"parse.h\"},\n"
		"  {\"name\":\"memcpy\",\"module\":\"libc.so.6\",\"self\":2,\"total\":2,"
		"\"self_ns\":10000000,\"total_ns\":10000000}]\n"
		",\"cost\":{\"sampler_cpu_ns\":1200000,\"bytes_written\":910,"
		"\"symbol_cpu_ns\":3400000,\"wakeups\":5,\"ring_bytes\":6000},"
		"\"tree\":{\"name\":\"all\",\"self\":0,\"total\":10,"
		"\"children\":[{\"name\":\"_start\",\"self\":0,\"total\":8,"
		"\"children\":[{\"name\":\"main\",\"self\":0,\"total\":8,"
		"\"children\":[{\"name\":\"serve\",\"self\":0,\"total\":8,"
		"\"children\":[{\"name\":\"parse<int; char>\",\"self\":6,\"total\":6,"
		"\"inlined\":true,\"children\":[]},{\"name\":\"memcpy\",\"self\":2,\"total\":2,"
		"\"children\":[]}]}]}]},{\"name\":\"clone\",\"self\":0,\"total\":1,"
		"\"children\":[{\"name\":\"worker\",\"self\":0,\"total\":1,"
		"\"children\":[{\"name\":\"ksys_read\",\"self\":1,\"total\":1,"
		"\"children\":[]}]}]},{\"name\":\"[truncated]\",\"self\":0,\"total\":1,"
		"\"children\":[{\"name\":\"libc.so.6+0x2fff\",\"self\":0,\"total\":1,"
		"\"guessed\":true,\"children\":[{\"name\":\"serve\",\"self\":0,\"total\":1,"
		"\"children\":[{\"name\":\"parse<int; char>\",\"self\":1,\"total\":1,"
		"\"inlined\":true,\"children\":[]}]}]}]}]}\n"
		"}\n");
}

TEST(svg_escapes_names)
{
	struct view_options o = {0};
	struct buf got = draw(view_svg, &o, NULL);

	check(strstr(
		got.data, "<title>server --port 80 &lt;&amp;&quot;&gt; · 100 ms · 10 samples"));
	check(strstr(got.data, "<text x=\"4\" y=\"13\">parse&lt;int; char&gt;</text>"));
	check(strstr(got.data, "<title>parse&lt;int; char&gt; (inlined)\n60.0%, 6 samples, "
			       "60.0% itself\nserver</title>"));
	check(strstr(got.data, "partly guessed"));
	check(strstr(got.data, ">native, by module</text>"));
	check(!strstr(got.data, "not drawn"));
	buf_release(&got);
}

/* The colour of the first box with this title. */
static uint32_t fill_of(const char *svg, const char *title)
{
	const char *at = strstr(svg, title);

	at = at ? strstr(at, "fill=\"#") : NULL;
	return at ? (uint32_t)strtoul(at + strlen("fill=\"#"), NULL, 16) : 0;
}

TEST(svg_colours_are_stable)
{
	struct view_options upright = {0}, inverted = {.inverted = true};
	struct buf a = draw(view_svg, &upright, NULL), b = draw(view_svg, &inverted, NULL);
	uint32_t kernel = fill_of(a.data, "<title>ksys_read\n");
	uint32_t hole = fill_of(a.data, "<title>libc.so.6+0x2fff\n");

	check_u64(fill_of(a.data, "<title>memcpy\n"), fill_of(b.data, "<title>memcpy\n"));
	check(fill_of(a.data, "<title>memcpy\n") != fill_of(a.data, "<title>main\n"));
	check((kernel >> 16) > (kernel & 0xff)); /* orange */
	check_u64(hole >> 16, hole & 0xff);      /* grey */
	buf_release(&a);
	buf_release(&b);
}

static void check_name(const char *name, size_t columns, const char *want)
{
	struct buf b = {0};
	size_t used = name_fit(&b, name, columns, true);

	check_str(b.data, want);
	check_u64(used, term_width(b.data));
	check(!columns || used <= columns);
	buf_release(&b);
}

TEST(names_fit)
{
	check_name("main", 10, "main");
	check_name("std::vector<int, std::allocator<int> >::push_back(int&&)", 40,
		"std::vector<…>::push_back(…)");
	check_name("std::vector<int, std::allocator<int> >::push_back(int&&)", 16, "…push_back(…)");
	check_name("a::b::operator<<(std::ostream&, int)", 20, "a::b::operator<<(…)");
	check_name("a::operator()(int, int, int, int) const", 24, "a::operator()(…) const");
	check_name(
		"ns::(anonymous namespace)::f(int, int, int)", 30, "…(anonymous namespace)::f(…)");
	check_name("<core::iter::Map<I, F> as core::iter::Iterator>::next", 28,
		"<…Map<…> as …Iterator>::next");
	check_name("<core::iter::Map<I, F> as core::iter::Iterator>::next", 20,
		"<…Map<…> as …>::next");
	check_name("<core::iter::Map<I, F> as core::iter::Iterator>::next", 19, "…next");
	check_name("<core::hash::sip::Sip13Rounds as core::hash::sip::Sip>::c_rounds", 60,
		"<core::hash::sip::Sip13Rounds as …hash::sip::Sip>::c_rounds");
	check_name("<core::hash::sip::Sip13Rounds as core::hash::sip::Sip>::c_rounds", 40,
		"<…sip::Sip13Rounds as …Sip>::c_rounds");
	check_name("<alloc::vec::Vec<u8>>::push", 20, "<…vec::Vec<…>>::push");
	check_name("<fn(i32) -> i32 as core::ops::FnOnce<(i32,)>>::call_once", 40,
		"<fn(…) -> i32 as …FnOnce<…>>::call_once");
	check_name("<open as ended", 8, "<open a…");
	check_name("< as >::f", 8, "…f");
	check_name("cmd/compile/internal/types2.(*Checker).checkFiles", 30,
		"…types2.(*Checker).checkFiles");
	check_name("JS:*work /tmp/some/where/file.js:2:14", 20, "JS:*work /tmp/some/…");
	check_name("aVeryLongNameWithoutAnyBracketsOrColons", 10, "aVeryLong…");
	check_name("evil\x1b[2Jname\n", 0, "evil?[2Jname?");
	check_name(")>>}broken<((", 5, ")>>}…");
}

TEST(words)
{
	struct buf b = {0};

	words_count(&b, 1234567);
	buf_char(&b, ' ');
	words_count(&b, 999);
	buf_char(&b, ' ');
	words_duration(&b, 350000000);
	buf_char(&b, ' ');
	words_duration(&b, 9980000000);
	buf_char(&b, ' ');
	words_duration(&b, 723000000000);
	buf_char(&b, ' ');
	words_bytes(&b, 812);
	buf_char(&b, ' ');
	words_bytes(&b, 1500000);
	buf_char(&b, ' ');
	words_share(&b, 0.01);
	buf_char(&b, ' ');
	words_share(&b, 99.99);
	buf_char(&b, ' ');
	words_share(&b, 100);
	check_str(b.data,
		"1,234,567 999 350 ms 9.98 s 12 min 3 s 812 bytes 1.4 MiB <0.1% >99.9% 100%");
	buf_release(&b);
}

TEST(command_lines_keep_their_pid)
{
	static const struct {
		const char *line;
		size_t columns;
		const char *want;
	} cases[] = {
		{"/usr/bin/python3 a.py (pid 12)", 0, "/usr/bin/python3 a.py (pid 12)"},
		{"/usr/bin/python3 a.py (pid 12)", 30, "/usr/bin/python3 a.py (pid 12)"},
		{"/usr/bin/python3 a.py (pid 12)", 29, "python3 a.py (pid 12)"},
		{"/usr/bin/python3 a.py (pid 12)", 20, "python3 a.… (pid 12)"},
		{"/usr/bin/python3 a.py (pid 12)", 3, "p… (pid 12)"},
		{"sh -c 'x=$(date) /tmp/long'", 12, "sh -c 'x=$(…"},
		{"cc /tmp/some/where/a.c", 12, "cc /tmp/som…"},
		{"(date)", 3, "(d…"},
		{"/a/b/ c", 4, "/a/…"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf b = {0};

		words_command(&b, cases[i].line, cases[i].columns, true);
		check_str(b.data, cases[i].want);
		buf_release(&b);
	}
}

TEST(damage_in_words)
{
	struct bytes whole = small_recording();
	struct profile_load_options none = {0};
	struct profile *p = NULL;
	struct buf b = {0};

	check(!profile_load_memory(whole.data, whole.len, &none, &p, NULL));
	view_damage(p, &b);
	check_u64(b.len, 0);
	profile_free(p);
	p = NULL;
	check(!profile_load_memory(whole.data, whole.len - 4, &none, &p, NULL));
	view_damage(p, &b);
	check(b.data && strstr(b.data, "ends in the middle of a block"));
	profile_free(p);
	free(whole.data);
	buf_release(&b);
}

/* Every text of a recording may be an attack on the terminal that shows it. */
TEST(foreign_text_is_harmless)
{
	static const char evil[] = "\x1b[2J\n\xc2\x9b\x07";
	static view_fn *const views[] = {view_summary, view_text, view_tree};
	struct profile *p = small_profile(NULL);
	struct view_options o = {.term = screen};
	struct buf out = {0};

	vec_each(&p->functions, f)
		f->name = evil;
	vec_each(&p->modules, m)
		m->name = m->path = evil;
	vec_each(&p->threads, t)
		t->name = t->process = evil;
	vec_each(&p->meta, m)
		if ((m - p->meta.data) % 2)
			*m = evil;
	for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		check(!views[i](p, &o, &out, NULL));
		check(out.len && !strpbrk(out.data, "\x1b\x07") && !strstr(out.data, "\xc2\x9b"));
		buf_clear(&out);
	}
	buf_release(&out);
	profile_free(p);
}

TEST(no_memory)
{
	static view_fn *const views[] = {view_summary, view_text, view_tree, view_json, view_svg};
	struct profile *p = small_profile(NULL);
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

/* The dump reads files: the recording goes through one. */
static char *dump_of(const struct bytes *bytes)
{
	char path[] = "/tmp/sonde-test-XXXXXX", *text = NULL;
	int fd = mkstemp(path);
	size_t len;
	FILE *out = open_memstream(&text, &len);

	check(write(fd, bytes->data, bytes->len) == (ssize_t)bytes->len);
	close(fd);
	check(!view_dump(path, out, NULL));
	fclose(out);
	unlink(path);
	return text;
}

TEST(dump_prints_every_record)
{
	struct bytes bytes = small_recording();
	char *text = dump_of(&bytes);
	static const char *const types[] = {"\nmeta ", "\nstring ", "\nmodule ", "\nthread ",
		"\nmapping ", "\nframe ", "\nstack ", "\nsample ", "\nloss ", "\nsymbol ",
		"\ncost ", "\nend "};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		check(strstr(text, types[i]));
	check(strstr(text, "kind=ring_samples count=3"));
	check(strstr(text, "reason=target-exited"));
	check(strstr(text, "build_id=aaaaaaaa"));
	check(!strstr(text, "damage"));
	free(text);
	bytes.len -= 4;
	text = dump_of(&bytes);
	check(strstr(text, "truncated=1"));
	free(text);
	free(bytes.data);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(summary_is_one_screen), T(summary_inverted_ascii),
		T(summary_fits_the_screen), T(summary_colours), T(summary_of_nothing),
		T(hints_know_java), T(hints_tell_of_python), T(hints_leave_stacks_of_execve), T(hints_leave_guessed_roots),
		T(text_has_everything), T(text_counts_idle_threads),
		T(json_keeps_its_keys), T(svg_escapes_names),
		T(svg_colours_are_stable), T(names_fit), T(words),
		T(command_lines_keep_their_pid), T(damage_in_words),
		T(foreign_text_is_harmless), T(no_memory), T(dump_prints_every_record));
}
