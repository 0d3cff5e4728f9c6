/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs say: from events to records, to the model, to reports. And names of code that they generate. */
#include "heap/notes.h"

#include <string.h>

#include "profile/notes.h"
#include "recording.h"
#include "sample/told_code.h"
#include "test.h"
#include "view/view.h"

struct world {
	struct capture_writer *w;
	struct session *s;
	struct heap_notes *n;
	int fd;
};

static struct world begin(void)
{
	static const struct thread_selection all;
	struct world b = {0};

	b.w = recording_start(&b.fd);
	if (!b.w || session_new(b.w, &all, &b.s, NULL) || heap_notes_new(b.w, b.s, &b.n, NULL))
		abort();
	return b;
}

/* Texts: one behind the other, each with a NUL. */
static bool say(struct world *b, uint32_t process, uint32_t type, uint64_t time_ns, uint64_t address, uint64_t value,
	const char *const texts[3])
{
	struct heap_event_more more = {.value = value, .text = {"", "", ""}};
	struct heap_event e = {.time_ns = time_ns, .address = address, .process = process, .tid = 7, .type = type, .more = &more};

	for (int i = 0; texts && i < 3; i++) {
		more.text[i] = texts[i];
		more.text_bytes[i] = (uint32_t)strlen(texts[i]);
	}
	return heap_note(b->n, &e, (pid_t)(100 + process), 7);
}
#define SAY(b, process, type, time, address, value, ...)                                          \
	say(b, process, type, time, address, value, (const char *const[3]){__VA_ARGS__})

static struct profile *end(struct world *b)
{
	struct profile *p = NULL;
	struct bytes bytes;

	heap_notes_free(b->n);
	session_flush(b->s, 1);
	session_free(b->s);
	if (capture_writer_finish(b->w, END_TARGET_EXITED, 1000, NULL))
		abort();
	bytes = recording_bytes(b->fd);
	if (profile_load_memory(bytes.data, bytes.len, NULL, &p, NULL))
		abort();
	free(bytes.data);
	return p;
}

TEST(marks_and_messages_stand_in_the_report)
{
	struct world b = begin();
	struct view_options o = {0};
	struct buf json = {0}, text = {0};
	struct profile *p;

	check(SAY(&b, 1, SHARE_MARK, 500, 40, 450, "gc", "minor", "x"));
	check(SAY(&b, 1, SHARE_MARK, 600, 10, 590, "gc", "minor", ""));
	check(SAY(&b, 2, SHARE_LOG, 700, 0, MARK_WARNING, "disk", "full", ""));
	check(SAY(&b, 2, SHARE_LOG, 800, 0, 99, "", "odd", ""));
	check(!say(&b, 1, SHARE_ALLOC, 1, 2, 3, NULL));
	p = end(&b);
	check_u64(p->notes->marks.len, 4);
	check(!view_json(p, &o, &json, NULL));
	check(strstr(json.data, "{\"time_ns\":450,\"duration_ns\":40,\"group\":\"gc\",\"name\":\"minor\",\"message\":\"x\","
		"\"pid\":101,\"tid\":7}"));
	check(strstr(json.data, "{\"time_ns\":700,\"severity\":\"warning\",\"domain\":\"disk\",\"message\":\"full\","
		"\"pid\":102,\"tid\":7}"));
	check(strstr(json.data, "\"severity\":\"message\",\"domain\":\"\",\"message\":\"odd\""));
	check(!view_notes(p, &o, false, &text, NULL));
	check(strstr(text.data, "gc: minor") && strstr(text.data, "disk: full"));
	buf_release(&json);
	buf_release(&text);
	profile_free(p);
}

TEST(counters_are_of_their_process)
{
	struct world b = begin();
	struct profile_counter *c;
	struct profile *p;
	double half = 0.5;
	uint64_t bits;

	memcpy(&bits, &half, sizeof(bits));
	/* A value may come before its counter; the same number of another process is another counter. */
	say(&b, 1, SHARE_VALUE, 10, 5, (uint64_t)-3, NULL);
	SAY(&b, 2, SHARE_COUNTER, 11, 5, 1, "g", "real", "");
	SAY(&b, 1, SHARE_COUNTER, 12, 5, 0, "g", "whole", "what it is");
	SAY(&b, 1, SHARE_COUNTER, 13, 5, 0, "g", "again", "");
	say(&b, 2, SHARE_VALUE, 14, 5, bits, NULL);
	say(&b, 1, SHARE_VALUE, 15, 5, 4, NULL);
	say(&b, 1, SHARE_VALUE, 16, 77, 4, NULL);
	p = end(&b);
	check_u64(p->notes->counters.len, 3);
	c = p->notes->counters.data;
	check_str(c[0].name, "whole");
	check_u64(c[0].pid, 101);
	check_u64(c[0].values.len, 2);
	check(profile_value(&c[0], &c[0].values.data[0]) == -3);
	check_str(c[1].name, "real");
	check(profile_value(&c[1], &c[1].values.data[0]) == 0.5);
	check(!c[2].defined && c[2].values.len == 1);
	profile_free(p);
}

TEST(too_many_counters_are_counted)
{
	struct world b = begin();
	struct profile *p;

	for (uint32_t i = 0; i < HEAP_MOST_DEFINED + 10; i++)
		say(&b, 1, SHARE_VALUE, 10, i, 1, NULL);
	check(SAY(&b, 1, SHARE_VALUE, 10, 1ull << 40, 1, "", "", ""));
	p = end(&b);
	check_u64(p->notes->counters.len, HEAP_MOST_DEFINED);
	check_u64(p->quality.losses[LOSS_NOTE], 11);
	profile_free(p);
}

TEST(pools_have_names)
{
	struct world b = begin();

	SAY(&b, 3, SHARE_POOL, 10, 4, 0, "nodes", "", "");
	check_str(heap_notes_pool(b.n, 3, 4), "nodes");
	check(!heap_notes_pool(b.n, 3, 5) && !heap_notes_pool(b.n, 2, 4));
	profile_free(end(&b));
}

TEST(sums_of_marks)
{
	struct profile_mark_sums sums = {0};
	struct world b = begin();
	struct profile *p;

	SAY(&b, 1, SHARE_MARK, 10, 5, 1, "a", "short", "");
	SAY(&b, 1, SHARE_MARK, 20, 50, 1, "a", "long", "");
	SAY(&b, 1, SHARE_MARK, 30, 7, 1, "a", "short", "");
	SAY(&b, 1, SHARE_LOG, 30, 7, 1, "a", "short", "");
	p = end(&b);
	check(!profile_mark_sums(p, &sums));
	check_u64(sums.len, 2);
	check_str(sums.data[0].name, "long");
	check_u64(sums.data[1].count, 2);
	check_u64(sums.data[1].sum_ns, 12);
	check_u64(sums.data[1].least_ns, 5);
	check_u64(sums.data[1].most_ns, 7);
	vec_release(&sums);
	profile_free(p);
}

TEST(code_is_what_was_told_last)
{
	struct told_code t = {0};

	check(!told_code_name(&t, 0x1000, 1));
	check(!told_code_add(&t, 100, 0x1000, 0x100, "first"));
	check(!told_code_add(&t, 200, 0x1080, 0x100, "second"));
	check(!told_code_add(&t, 300, 0x1000, 0x40, "third"));
	check_str(told_code_name(&t, 0x1010, 150), "first");
	check_str(told_code_name(&t, 0x1010, 300), "third");
	check_str(told_code_name(&t, 0x1050, 999), "first");
	check_str(told_code_name(&t, 0x1090, 199), "first");
	check_str(told_code_name(&t, 0x1090, 200), "second");
	/* Told a moment late. */
	check_str(told_code_name(&t, 0x1010, 5), "first");
	check_str(told_code_name(&t, 0x1170, 5), "second");
	check(!told_code_name(&t, 0x1180, 999) && !told_code_name(&t, 0xfff, 999));
	check(told_code_add(&t, 1, UINT64_MAX - 5, 100, "wraps"));
	told_code_release(&t);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(marks_and_messages_stand_in_the_report), T(counters_are_of_their_process),
		T(too_many_counters_are_counted), T(pools_have_names), T(sums_of_marks), T(code_is_what_was_told_last));
}
