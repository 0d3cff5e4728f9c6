/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs map themselves: sites of their own, whose innermost frame says what was mapped. */
#include "heap/collect_priv.h"

void collect_mapped(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	static const char *const names[] = {
		[SHARE_MAP_MEMORY] = "[mapped]",
		[SHARE_MAP_FILE] = "[mapped file]",
		[SHARE_MAP_RESERVED] = "[mapped, reserved]",
		[SHARE_MAP_BREAK] = "[mapped by brk]",
	};
	struct heap_event as_we_see = *e;
	uint64_t kind = e->more ? e->more->value : SHARE_MAP_MEMORY;
	uint32_t stack = CAPTURE_NONE;

	as_we_see.tid = (uint32_t)collect_tid(w, e->tid);
	if (kind >= SHARE_MAP_SAME)
		kind = heap_model_unmapped_kind(c->model, e->process, as_we_see.tid);
	if (e->type == SHARE_MAP)
		stack = session_named(c->session, collect_stack(c, w, e), names[kind]);
	heap_model_mapped(c->model, &as_we_see, stack, (enum share_map)kind);
}
