/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a session does for a rolling window: it begins new segments, tells each what it needs to know,
 * and lets go of what no segment refers to any more.
 */
#include <string.h>

#include "base/clock.h"
#include "capture/window.h"
#include "os/usage.h"
#include "sample/session_priv.h"

int session_keep(
	struct session *s, const struct session_keeper_ops *ops, void *ctx, struct err *err)
{
	return vec_push(&s->keepers, (struct session_keeper){ops, ctx}) ? err_nomem(err) : 0;
}

void session_tell_open(struct session *s, uint64_t now_ns)
{
	vec_each(&s->keepers, keeper)
		keeper->ops->tell_open(keeper->ctx, now_ns);
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
		keeper->ops->carry(keeper->ctx, s, s->now_ns);
}

/* ---- modules ---- */

/* Pages of object files that nobody needs any more are only given back if somebody does it. Those that
 * are needed come back within microseconds. */
#define REST_NS (100 * NS_PER_MS)
#define REST_ABOVE_BYTES ((uint64_t)24 << 20)

/* So many may well be in use. */
#define SWEEP_MODULES_ABOVE 128u

static void need_mappings(void *ctx, struct process *p)
{
	if (p->jitdump)
		p->jitdump->needed = true;
	vec_each(&p->mappings, m) {
		m->module->needed = true;
		if (m->copied_from)
			m->copied_from->needed = true;
	}
}

/* Its number in the recording goes with it, unless another one bears the same. */
static void module_gone(void *ctx, const struct module *gone)
{
	struct session *s = ctx;
	bool shared = false;

	if (gone->map_fd >= 0)
		s->perf_maps--;
	for (size_t i = 0; i < module_store_count(s->modules); i++) {
		const struct module *m = module_store_at(s->modules, i);

		shared |= m->needed && m->capture_id == gone->capture_id;
	}
	if (!shared)
		capture_window_forget_module(s->writer, gone->capture_id);
}

/* What no process maps and no segment names will not be asked for any more. After a sweep that leaves
 * many, the next one waits until there are twice as many. */
static void sweep_modules(struct session *s)
{
	size_t count = module_store_count(s->modules);

	if (count <= s->sweep_modules_above)
		return;
	for (size_t i = 0; i < count; i++) {
		struct module *m = module_store_at(s->modules, i);

		m->needed = capture_window_names_module(s->writer, m->capture_id);
	}
	process_table_each_process(s->processes, need_mappings, NULL);
	module_store_sweep(s->modules, module_gone, s);
	count = module_store_count(s->modules);
	s->sweep_modules_above = count > SWEEP_MODULES_ABOVE / 2 ? 2 * count : SWEEP_MODULES_ABOVE;
}

void session_roll(struct session *s, uint64_t now_ns)
{
	if (capture_segment(s->writer) && now_ns - s->rested_ns >= REST_NS) {
		if (usage_own_files() > REST_ABOVE_BYTES)
			module_store_rest(s->modules);
		s->rested_ns = now_ns;
	}
	if (!capture_window_due(s->writer, now_ns))
		return;
	s->now_ns = now_ns;
	capture_window_rotate(s->writer, now_ns, carry_over, s);
	sweep_modules(s);
}

static void tell_thread(void *ctx, struct thread *th)
{
	session_tell(ctx, th);
}

void session_move(
	struct session *s, struct capture_writer *w, const struct capture_window_map *map)
{
	s->writer = w;
	for (size_t i = 0; i < module_store_count(s->modules); i++) {
		struct module *m = module_store_at(s->modules, i);

		m->capture_id = m->capture_id < map->module_count ? map->modules[m->capture_id]
								  : CAPTURE_NONE;
	}
	/* A frame was seen when the window says; for code that a JIT moves about that matters. */
	s->seen_ns.len = 0;
	if (!vec_reserve(&s->seen_ns, map->frame_count)) {
		memcpy(s->seen_ns.data, map->frame_ns, map->frame_count * sizeof(*map->frame_ns));
		s->seen_ns.len = map->frame_count;
	}
	process_table_each_thread(s->processes, tell_thread, s);
}
