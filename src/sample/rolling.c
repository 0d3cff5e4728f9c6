/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a session does for a rolling window: it begins new segments, tells each what it needs to know,
 * and lets go of what no segment refers to any more.
 */
#include "capture/window.h"
#include "sample/session_priv.h"

int session_keeps_stacks(struct session *s, session_kept_stacks each, void *ctx, struct err *err)
{
	return vec_push(&s->keepers, (struct stack_keeper){each, ctx}) ? err_nomem(err) : 0;
}

void session_kept_stack(struct session *s, uint32_t *leaf)
{
	if (*leaf != CAPTURE_NONE)
		*leaf = capture_window_carry(s->writer, *leaf);
}

static void carry_over(void *ctx)
{
	struct session *s = ctx;

	vec_each(&s->keepers, keeper)
		keeper->each(keeper->ctx, s);
}

void session_roll(struct session *s, uint64_t now_ns)
{
	if (capture_window_due(s->writer, now_ns))
		capture_window_rotate(s->writer, now_ns, carry_over, s);
}

static void tell_thread(void *ctx, struct thread *th)
{
	session_tell(ctx, th);
}

void session_move(
	struct session *s, struct capture_writer *w, const uint32_t *modules, size_t count)
{
	s->writer = w;
	for (size_t i = 0; i < module_store_count(s->modules); i++) {
		struct module *m = module_store_at(s->modules, i);

		m->capture_id = m->capture_id < count ? modules[m->capture_id] : CAPTURE_NONE;
	}
	process_table_each_thread(s->processes, tell_thread, s);
}
