/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/python_priv.h"

#define MOST_CFRAMES PYTHON_MOST_FRAMES

static uint16_t largest(uint16_t a, uint32_t b)
{
	return b > a ? (uint16_t)b : a;
}

void python_chain_layout_set(struct python *p)
{
	const struct python_layout *l = &p->layout;
	struct python_chain_layout *c = &p->chain;

	c->by_cframe = p->minor == 11 || p->minor == 12;
	c->cframes = p->minor == 10 || p->minor == 11;
	c->entry = (uint16_t)(c->by_cframe ? l->thread.cframe : l->thread.frame);
	c->cframe_entry = (uint16_t)(c->cframes ? l->thread.cframe : 0);
	c->cframe_frame = (uint16_t)(c->by_cframe ? l->cframe.frame : 0);
	c->cframe_previous = (uint16_t)(c->cframes ? l->cframe.previous : 0);
	c->previous = (uint16_t)l->frame.previous;
	c->code = (uint16_t)l->frame.code;
	c->position = (uint16_t)l->frame.position;
	/* owner, and with it is_entry or tlbc_index, lie in one aligned word; 3.10 and before have none of it. */
	c->marks = (uint16_t)(l->frame.owner != PYTHON_ABSENT ? l->frame.owner & ~7u : l->frame.position);
	c->bytes = largest(0, c->previous + 8u);
	c->bytes = largest(c->bytes, c->code + 8u);
	c->bytes = largest(c->bytes, c->position + 8u);
	c->bytes = largest(c->bytes, c->marks + 8u);
	c->pointer_mask = p->minor >= 14 ? ~3ULL : ~0ULL;
}

const struct python_chain_layout *python_chain_layout(const struct python *p)
{
	return &p->chain;
}

static bool read_link(struct python *p, uint64_t at, struct python_link *ret, uint64_t *ret_previous)
{
	const struct python_chain_layout *c = &p->chain;

	ret->at = at;
	return python_read_u64(p, at + c->code, &ret->code) &&
		python_read_u64(p, at + c->position, &ret->position) &&
		python_read_u64(p, at + c->marks, &ret->marks) &&
		python_read_u64(p, at + c->previous, ret_previous);
}

/*
 * Brent's way to see that a chain goes in a circle: the frame at a power of two is kept, and meets
 * itself. Then what is in it once stands.
 */
static bool is_circle(const struct python_chain *chain, uint64_t next, size_t *kept, size_t *ret_length)
{
	if (!chain->count)
		return false;
	if (chain->links[*kept].at == next) {
		*ret_length = chain->count - *kept;
		return true;
	}
	if (!(chain->count & (chain->count - 1)))
		*kept = chain->count - 1;
	return false;
}

static void cut_circle(struct python_chain *chain, size_t length)
{
	size_t first = 0;

	while (first + length < chain->count && chain->links[first].at != chain->links[first + length].at)
		first++;
	if (first + length < chain->count)
		chain->count = first + length;
	chain->torn = PYTHON_TORN;
}

void python_chain_read_from(struct python *p, uint64_t frame, struct python_chain *ret)
{
	size_t limit = ret->limit < PYTHON_MOST_FRAMES ? ret->limit : PYTHON_MOST_FRAMES;
	size_t kept = 0, length;

	ret->count = ret->cframe_count = 0;
	ret->torn = PYTHON_WHOLE;
	while (frame) {
		uint64_t previous;

		if (!python_pointer_ok(frame)) {
			ret->torn = PYTHON_TORN;
			return;
		}
		if (is_circle(ret, frame, &kept, &length)) {
			cut_circle(ret, length);
			return;
		}
		if (ret->count == limit) {
			ret->torn = PYTHON_CUT;
			return;
		}
		if (!read_link(p, frame, &ret->links[ret->count], &previous)) {
			ret->torn = PYTHON_UNREADABLE;
			return;
		}
		ret->count++;
		frame = previous;
	}
}

/* The one that lies within the thread state is there always, and is of no call. */
static void read_cframes(struct python *p, uint64_t thread, struct python_chain *ret)
{
	uint64_t at;

	if (!python_read_u64(p, thread + p->chain.cframe_entry, &at))
		return;
	while (python_pointer_ok(at) && at - thread >= p->layout.thread.bytes &&
		ret->cframe_count < ret->cframe_limit && ret->cframe_count < MOST_CFRAMES) {
		ret->cframes[ret->cframe_count++] = at;
		if (!python_read_u64(p, at + p->chain.cframe_previous, &at))
			return;
	}
}

void python_chain_read(struct python *p, uint64_t thread, struct python_chain *ret)
{
	uint64_t frame;

	ret->count = ret->cframe_count = 0;
	ret->torn = PYTHON_UNREADABLE;
	if (!python_pointer_ok(thread) || !python_read_u64(p, thread + p->chain.entry, &frame))
		return;
	if (p->chain.by_cframe &&
		(!python_pointer_ok(frame) || !python_read_u64(p, frame + p->chain.cframe_frame, &frame)))
		return;
	python_chain_read_from(p, frame, ret);
	if (p->chain.cframes)
		read_cframes(p, thread, ret);
}
