/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who may read what during a walk.
 *
 * The dump is the stack as it was at the time of the sample; anything read later from a running
 * target may have changed. So with a dump, stack words come from the dump, and beyond it only from
 * the live tail, which the caller gives as long as the frames found so far still stand; else the
 * stack is truncated, never completed from another moment. Code and data (the GOT, what an
 * expression points at) do not move and are read from the target.
 */
#include "unwind/walk_priv.h"

static bool read_target(struct walk *w, uint64_t addr, void *buf, size_t len)
{
	return w->target->read_memory && addr + len >= addr &&
	       w->target->read_memory(w->target->ctx, addr, buf, len);
}

/* Beyond the dump, in what is still this stack. */
static bool is_stack_tail(const struct walk *w, uint64_t addr)
{
	uint64_t offset = addr - w->dump_start;

	if (w->live_stack || offset >= WALK_STACK_BYTES)
		return false;
	return !w->target->stack_end || w->dump_start >= w->target->stack_end ||
	       addr < w->target->stack_end;
}

static bool in_tail(const struct walk *w, uint64_t addr)
{
	return w->tail.size >= 8 && addr - w->tail.start <= w->tail.size - 8;
}

/* Makes the tail hold `addr`, when that may be done: beyond the dump, or on another stack that the
 * walk has come to. */
static bool extend_tail(struct walk *w, uint64_t addr)
{
	if (in_tail(w, addr))
		return true;
	if (w->tail_changed || !w->target->read_tail ||
		(!w->may_switch && walk_unreadable(w, addr) != UNWIND_TRUNCATED))
		return false;

	enum unwind_tail got =
		w->target->read_tail(w->target->ctx, w->frames, w->count, addr, &w->tail);

	w->tail_changed = got == UNWIND_TAIL_CHANGED;
	if (got != UNWIND_TAIL_OK)
		w->tail.size = 0;
	return in_tail(w, addr);
}

bool walk_read_stack_slow(struct walk *w, uint64_t addr, uint64_t *ret)
{
	if (w->live_stack) {
		if (!read_target(w, addr, ret, sizeof(*ret)))
			return false;
	} else {
		if (!extend_tail(w, addr))
			return false;
		memcpy(ret, (const uint8_t *)w->tail.bytes + (addr - w->tail.start), sizeof(*ret));
	}
	w->source = UNWIND_FROM_LIVE;
	return true;
}

int walk_unreadable(const struct walk *w, uint64_t addr)
{
	uint64_t sp = w->regs.value[w->arch->sp];

	if (w->live_stack || is_stack_tail(w, addr))
		return UNWIND_TRUNCATED;
	/* Another stack than the one that was copied (signal stack, coroutine). */
	if (sp - w->dump_start >= w->dump_size)
		return UNWIND_TRUNCATED;
	return UNWIND_BAD_RULE;
}

bool walk_read_data(struct walk *w, uint64_t addr, void *buf, size_t len)
{
	uint64_t offset = addr - w->dump_start;

	if (w->dump_size >= len && offset <= w->dump_size - len) {
		memcpy(buf, w->dump + offset, len);
		return true;
	}
	if (len <= sizeof(uint64_t) && is_stack_tail(w, addr) && extend_tail(w, addr)) {
		memcpy(buf, (const uint8_t *)w->tail.bytes + (addr - w->tail.start), len);
		return true;
	}
	if (is_stack_tail(w, addr) || (addr < w->dump_start && addr + len > w->dump_start)) {
		w->read_too_high = true;
		return false;
	}
	return read_target(w, addr, buf, len);
}

static const struct code_line *code_line(struct walk *w, uint64_t addr)
{
	uint64_t start = addr & ~(uint64_t)(WALK_LINE_BYTES - 1);
	struct code_line *line = &w->code[start / WALK_LINE_BYTES % WALK_CODE_LINES];

	if (line->addr == start)
		return line;
	line->addr = 0;
	if (!read_target(w, start, line->bytes, WALK_LINE_BYTES))
		return NULL;
	line->addr = start;
	return line;
}

const uint8_t *walk_code_line(struct walk *w, uint64_t addr)
{
	const struct code_line *line = code_line(w, addr);

	return line ? line->bytes : NULL;
}

static bool code_of_target(struct walk *w, uint64_t addr, uint8_t *buf, size_t len)
{
	while (len) {
		const struct code_line *line = code_line(w, addr);
		size_t at = addr % WALK_LINE_BYTES, n = WALK_LINE_BYTES - at;

		if (!line)
			return false;
		if (n > len)
			n = len;
		memcpy(buf, line->bytes + at, n);
		buf += n;
		addr += n;
		len -= n;
	}
	return true;
}

/* All of [addr, addr + len): from the file when it is one, else from the target. */
static bool code_bytes(
	struct walk *w, const struct walk_mapping *at, uint64_t addr, uint8_t *buf, size_t len)
{
	if (!at->module)
		return code_of_target(w, addr, buf, len);

	const uint8_t *text = unwind_module_text(at->module, addr - at->bias, len);

	if (text)
		memcpy(buf, text, len);
	return text != NULL;
}

size_t walk_code_from(
	struct walk *w, const struct walk_mapping *at, uint64_t addr, uint8_t *buf, size_t len)
{
	if (addr < at->start || addr >= at->end)
		return 0;
	if (len > at->end - addr)
		len = at->end - addr;
	for (; len; len /= 2)
		if (code_bytes(w, at, addr, buf, len))
			return len;
	return 0;
}

size_t walk_code_before(
	struct walk *w, const struct walk_mapping *at, uint64_t addr, uint8_t *buf, size_t len)
{
	if (addr <= at->start || addr > at->end)
		return 0;
	if (len > addr - at->start)
		len = addr - at->start;
	for (; len; len--)
		if (code_bytes(w, at, addr - len, buf, len))
			return len;
	return 0;
}
