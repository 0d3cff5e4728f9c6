/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any bytes as a machine whose processes wait for each other (made_up.h), asked why the first of them hangs: the
 * answer as text, JSON and a picture, and its stacks. No control character may get through to any of these.
 */
#include <stdlib.h>
#include <string.h>

#include "made_up.h"
#include "view/why.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
	if (!fine)
		abort();
}

/* UTF-8, and nothing that a terminal would take for a command: U+0080 to U+009F are controls as well. */
static void check_text(struct buf *out)
{
	size_t n;

	for (size_t i = 0; i < out->len; i += n) {
		const unsigned char *c = (const unsigned char *)out->data + i;

		n = utf8_sequence(c);
		check(n && ((*c >= 0x20 && *c != 0x7f) || *c == '\n') && !(*c == 0xc2 && c[1] < 0xa0));
	}
	buf_clear(out);
}

/* Quotes and brackets belong together, and no text lacks its end. */
static void check_balance(const struct buf *out)
{
	char open[64];
	size_t depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < out->len; i++) {
		char c = out->data[i];

		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && strchr("{[", c)) {
			check(depth < sizeof(open));
			open[depth++] = c == '{' ? '}' : ']';
		} else if (!quoted && strchr("}]", c)) {
			check(depth && open[--depth] == c);
		}
	}
	check(!depth && !quoted);
}

static void view_stacks_of_all(const struct wait_answer *a, const struct term *term, struct buf *out)
{
	struct stacks_options o = {.term = *term, .interpreter = made.world & 2};

	for (size_t i = 0; i < snapshot_process_count(a->snapshot); i++) {
		struct snapshot_process *p = snapshot_process_at(a->snapshot, i);
		struct stack_threads threads = {0};

		snapshot_stacks(a->snapshot, p);
		snapshot_running(a->snapshot, p);
		vec_each(&p->threads, t)
			(void)vec_push(&threads, *t);
		view_stacks(a->snapshot, &threads, &o, out, NULL);
		check_text(out);
		view_stacks_json(a->snapshot, &threads, &o, out, NULL);
		check_balance(out);
		check_text(out);
		vec_release(&threads);
	}
}

static void view(const struct wait_answer *a, bool all)
{
	struct why_options o = {.all = all, .term = {.columns = made.world & 1 ? 60 : 0, .unicode = made.world & 4}};
	struct buf out = {0};

	view_why(a, &o, &out, NULL);
	check_text(&out);
	view_why_json(a, &o, &out, NULL);
	check_balance(&out);
	check_text(&out);
	view_why_dot(a, &o, &out, NULL);
	check_balance(&out);
	check_text(&out);
	view_stacks_of_all(a, &o.term, &out);
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct snapshot_options options = {.method = SNAPSHOT_PROC, .plain_runtime = true};
	struct wait_answer answer;
	pid_t focus;

	made_begin(data, size);
	options.core = made.still ? "made up" : NULL;
	focus = made_byte() & 1 ? made_tid(made_byte()) : 0;
	if (wait_answer_new(&options, made.processes[0].status.tgid, focus, &answer, NULL))
		return 0;
	view(&answer, made.world & 2);
	wait_answer_release(&answer);
	return 0;
}
