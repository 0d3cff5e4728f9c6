/* SPDX-License-Identifier: BSD-2-Clause */
/* The conditions of --when and --watch: what is understood, and when they fire. */
#include "test.h"

#include <errno.h>

#include "cmd/record/when.h"
#include "cmd/watch_for.h"

#define S 1000000000ULL
#define MS 1000000ULL

static struct when parsed(const char *text)
{
	struct when w = {0};
	struct err err = {0};

	check(!when_parse(text, &w, &err));
	if (err.code)
		printf("%s: %s\n", text, err.text);
	return w;
}

TEST(what_is_understood)
{
	struct when w = parsed("blocked MAIN > 2s");

	check(w.kind == WHEN_BLOCKED && w.who == WHEN_MAIN && w.duration_ns == 2 * S);
	check_str(w.text, "blocked MAIN > 2s");
	when_release(&w);
	w = parsed(" blocked any>1.5 ");
	check(w.who == WHEN_ANY && w.duration_ns == 1500 * MS);
	when_release(&w);
	w = parsed("blocked 4711 > 300ms");
	check(w.who == WHEN_TID && w.tid == 4711 && w.duration_ns == 300 * MS);
	when_release(&w);
	w = parsed("blocked /^io (a|b)>/ > 5m");
	check(w.who == WHEN_NAME && w.duration_ns == 300 * S);
	check(!regexec(&w.name, "io b>", 0, NULL, 0));
	check(regexec(&w.name, "io c>", 0, NULL, 0));
	when_release(&w);
	w = parsed("cpu > 90% for 3s");
	check(w.kind == WHEN_CPU && !w.below && w.percent == 90 && w.duration_ns == 3 * S);
	when_release(&w);
	w = parsed("cpu<12.5");
	check(w.below && w.percent == 12.5 && w.duration_ns == 1 * S);
	when_release(&w);
	w = parsed("rss > 2G");
	check(w.kind == WHEN_RSS && w.limit == 2ULL << 30 && !w.below);
	when_release(&w);
	w = parsed("threads < 500");
	check(w.kind == WHEN_THREADS && w.limit == 500 && w.below);
	when_release(&w);
}

TEST(what_is_not)
{
	static const char *const texts[] = {
		"", " ", "blocked", "blocked MAIN", "blocked MAIN >", "blocked MAIN 2s",
		"blocked MAIN < 2s", "blocked > 2s", "blocked main thread > 2s", "blocked MAIN > 2s x",
		"blocked MAIN > soon", "blocked MAIN > 1ms", "blocked MAIN > 0", "blocked 0 > 2s",
		"blocked -1 > 2s", "blocked 99999999999 > 2s", "blocked / > 2s", "blocked // > 2s",
		"blocked /[/ > 2s", "blocked /a > 2s", "cpu", "cpu > ", "cpu > x", "cpu > -5",
		"cpu > 90%%", "cpu > 90 % for 3s", "cpu > 90% 3s", "cpu > 90% for", "cpu > 90% for x",
		"cpu > 90% for 3s now", "cpu > 90% for 1ms", "cpu > 1e9", "cpu = 90", "rss > ",
		"rss > much", "rss > 2G for 3s", "threads > many", "threads", "load > 3", "BLOCKED MAIN > 2s",
	};
	char many[4000];
	struct when w = {0};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct err err = {0};

		if (when_parse(texts[i], &w, &err) != -EINVAL || !strstr(err.text, "--when")) {
			check(!"refused with words");
			printf("'%s': '%s'\n", texts[i], err.text);
		}
	}
	memset(many, 'x', sizeof(many) - 1);
	many[sizeof(many) - 1] = '\0';
	check(when_parse(many, &w, NULL) == -EINVAL);
	memcpy(many, "blocked /", 9);
	many[sizeof(many) - 2] = '/';
	check(when_parse(many, &w, NULL) == -EINVAL);
}

static bool fires_at(struct when *w, uint64_t now_ns, double cpu, size_t *ret)
{
	struct when_facts f = {.now_ns = now_ns, .since_ns = now_ns - 100 * MS, .cpu_percent = cpu};

	return when_fires(w, &f, 30 * S, ret);
}

/* How often and when first, over a minute of which [from, to) is busy. */
static unsigned fires(struct when *w, uint64_t from_ns, uint64_t to_ns, uint64_t *ret_first)
{
	unsigned count = 0;
	size_t which;

	*ret_first = 0;
	for (uint64_t now = S; now < 61 * S; now += 100 * MS)
		if (fires_at(w, now, now >= from_ns && now < to_ns ? 99 : 10, &which) && !count++)
			*ret_first = now;
	return count;
}

TEST(cpu_for_a_time)
{
	uint64_t first;
	struct when w = parsed("cpu > 90% for 3s");

	check_u64(fires(&w, 10 * S, 20 * S, &first), 1);
	check_u64(first, 12900 * MS); /* the first fact is about the tenth of a second before it */
	when_release(&w);
	w = parsed("cpu > 90% for 3s");
	check_u64(fires(&w, 10 * S, 12800 * MS, &first), 0);
	when_release(&w);
	/* Once, however long it stays. */
	w = parsed("cpu > 90% for 3s");
	check_u64(fires(&w, 10 * S, 61 * S, &first), 1);
	when_release(&w);
	w = parsed("cpu < 50% for 1s");
	check_u64(fires(&w, 5 * S, 61 * S, &first), 1);
	check_u64(first, 1900 * MS);
	when_release(&w);
	/* Not known is neither above nor below. */
	w = parsed("cpu < 50% for 1s");
	for (uint64_t now = S; now < 10 * S; now += 100 * MS)
		check(!fires_at(&w, now, -1, NULL));
	when_release(&w);
}

TEST(not_too_often)
{
	struct when w = parsed("threads > 5");
	struct when_facts f = {.since_ns = S, .now_ns = S};
	unsigned count = 0;
	size_t which;

	/* True every other second of five minutes. */
	for (; f.now_ns < 301 * S; f.since_ns = f.now_ns, f.now_ns += S) {
		f.thread_count = f.now_ns / S % 2 ? 6 : 5;
		count += when_fires(&w, &f, 30 * S, &which);
	}
	check_u64(count, 10);
	when_release(&w);
}

TEST(who_is_blocked)
{
	struct when_thread threads[] = {
		{.pid = 7, .tid = 7, .is_main = true, .idle_ns = 2 * S},
		{.pid = 7, .tid = 8, .idle_ns = 5 * S, .name = "worker"},
		{.pid = 7, .tid = 9, .idle_ns = 9 * S, .name = "waiter"},
		{.pid = 7, .tid = 10, .idle_ns = 4 * S},
	};
	struct when_facts f = {.now_ns = 10 * S, .threads = threads, .known_threads = 4};
	static const struct {
		const char *text;
		int which; /* -1: does not fire */
	} cases[] = {
		{"blocked MAIN > 2s", -1},     {"blocked MAIN > 1.9s", 0},
		{"blocked ANY > 3s", 2},       {"blocked ANY > 9s", -1},
		{"blocked /^work/ > 3s", 1},   {"blocked /^work/ > 5s", -1},
		{"blocked /nobody/ > 1s", -1}, {"blocked 10 > 3s", 3},
		{"blocked 11 > 3s", -1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct when w = parsed(cases[i].text);
		size_t which = 99;

		check(when_fires(&w, &f, S, &which) == (cases[i].which >= 0));
		if (cases[i].which >= 0)
			check_u64(which, (size_t)cases[i].which);
		check(!when_fires(&w, &f, S, &which)); /* still true */
		when_release(&w);
	}
}

TEST(how_often_to_look)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} cases[] = {
		{"blocked MAIN > 2s", 200 * MS}, {"blocked MAIN > 10ms", 10 * MS},
		{"blocked MAIN > 1h", 500 * MS}, {"cpu > 9 for 3s", 300 * MS},
		{"cpu > 9", 100 * MS},           {"rss > 5", 500 * MS},
		{"threads > 5", 500 * MS},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct when w = parsed(cases[i].text);

		check_u64(when_interval_ns(&w), cases[i].ns);
		when_release(&w);
	}
}

TEST(watched_for)
{
	static const struct {
		const char *text;
		enum watch_kind kind;
		enum when_who who;
		uint64_t ns;
	} cases[] = {
		{"main blocked > 5s", WATCH_BLOCKED, WHEN_MAIN, 5 * S},
		{"  MAIN   blocked>300ms ", WATCH_BLOCKED, WHEN_MAIN, 300 * MS},
		{"any blocked > 10s", WATCH_BLOCKED, WHEN_ANY, 10 * S},
		{"blocked any > 10s", WATCH_BLOCKED, WHEN_ANY, 10 * S},
		{"4711 not run > 1s", WATCH_NOT_RUN, WHEN_TID, S},
		{"main not run > 5", WATCH_NOT_RUN, WHEN_MAIN, 5 * S},
		{"io-[0-9]+ blocked > 2s", WATCH_BLOCKED, WHEN_NAME, 2 * S},
		{"/io-[0-9]+/ blocked > 2s", WATCH_BLOCKED, WHEN_NAME, 2 * S},
		{"is blocked now blocked > 2s", WATCH_BLOCKED, WHEN_NAME, 2 * S},
		{"mainly not run > 2s", WATCH_NOT_RUN, WHEN_NAME, 2 * S},
		{"deadlock ", WATCH_DEADLOCK, WHEN_ANY, S},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct watch_for w = {0};

		check(!watch_for_parse(cases[i].text, &w, NULL));
		check(w.kind == cases[i].kind && w.when.who == cases[i].who);
		check_u64(w.when.duration_ns, cases[i].ns);
		if (w.when.who == WHEN_NAME && i < 8) {
			check(!regexec(&w.when.name, "io-12", 0, NULL, 0));
			check(regexec(&w.when.name, "io-x", 0, NULL, 0));
		}
		watch_for_release(&w);
	}
}

TEST(not_watched_for)
{
	static const char *const texts[] = {"", " ", "main", "main blocked", "main blocked >", "blocked",
		" blocked > 5s", "main blocked < 5s", "main blocked > 5x", "main blocked > 1ms",
		"main notrun > 5s", "deadlock > 5s", "[ blocked > 5s", "rss > 5", "cpu > 90%",
		"main blocked > 5s and more", "99999999999 blocked > 5s"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct watch_for w = {0};
		struct err err = {0};

		if (watch_for_parse(texts[i], &w, &err) != -EINVAL)
			printf("understood: %s\n", texts[i]);
		check(err.code == EINVAL);
		watch_for_release(&w);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(what_is_understood), T(what_is_not), T(cpu_for_a_time),
		T(not_too_often), T(who_is_blocked), T(how_often_to_look),
		T(watched_for), T(not_watched_for));
}
