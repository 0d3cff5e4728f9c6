/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/code.h"
#include "python/python_priv.h"

/* _PyInterpreterFrame.owner */
enum owner {
	OWNER_THREAD = 0,
	OWNER_GENERATOR = 1,
	OWNER_OBJECT = 2,
	OWNER_SHIM = 3,    /* 3.12 and 3.13: CSTACK, 3.14: INTERPRETER. What a call of the interpreter begins with. */
	OWNER_C_STACK = 4, /* 3.14 */
};

struct walk {
	struct python *p;
	struct python_chain *chain;
	struct python_frames *ret;
	size_t first;    /* of ret: where this chain's frames begin */
	size_t entries;  /* links that take a cframe each, up to 3.11 */
	size_t cframe;   /* of the next of them */
	bool has_cframe;
};

static uint8_t mark(const struct python *p, const struct python_link *link, uint32_t field)
{
	uint32_t at = field - p->chain.marks;

	return at < sizeof(link->marks) ? (uint8_t)(link->marks >> at * 8) : 0;
}

static bool is_entry(const struct python *p, const struct python_link *link)
{
	return p->minor <= 10 || (p->minor == 11 && mark(p, link, p->layout.frame.is_entry));
}

bool python_chain_has_root(const struct python *p, const struct python_chain *chain)
{
	const struct python_link *last = chain->count ? &chain->links[chain->count - 1] : NULL;

	if (chain->torn == PYTHON_CUT || chain->torn == PYTHON_UNREADABLE)
		return false;
	if (!last || p->minor <= 10)
		return true;
	return p->minor == 11 ? is_entry(p, last) : mark(p, last, p->layout.frame.owner) >= OWNER_SHIM;
}

/*
 * Frames and cframes are paired from the outer end: the innermost call may have put one there and not yet the other.
 * Where one of the two is cut off, from the inner end.
 */
static void pair_cframes(struct walk *w)
{
	const struct python_chain *c = w->chain;
	bool cut = c->torn != PYTHON_WHOLE || c->cframe_count == c->cframe_limit;

	if (!w->p->chain.cframes || !c->cframe_count)
		return;
	w->has_cframe = true;
	for (size_t i = 0; i < c->count; i++)
		w->entries += is_entry(w->p, &c->links[i]);
	if (!cut && c->cframe_count > w->entries)
		w->cframe = c->cframe_count - w->entries;
	if (!cut && c->cframe_count < w->entries)
		w->has_cframe = false;
}

static uint64_t next_cframe(struct walk *w)
{
	if (!w->has_cframe || w->cframe >= w->chain->cframe_count)
		return 0;
	return w->chain->cframes[w->cframe++];
}

/* Where the bytecode is that this frame runs: free-threaded builds have a copy for each thread. 0: not known. */
static uint64_t bytecode_of(struct python *p, const struct python_link *link, uint64_t code)
{
	uint64_t copies, count, copy;
	uint32_t index, at = p->layout.frame.tlbc_index - p->chain.marks;

	if (p->layout.code.tlbc == PYTHON_ABSENT || at > sizeof(link->marks) - sizeof(index))
		return code + p->layout.code.bytecode;
	index = (uint32_t)(link->marks >> at * 8);
	if (!index)
		return code + p->layout.code.bytecode;
	if (!python_read_u64(p, code + p->layout.code.tlbc, &copies) || !python_pointer_ok(copies) ||
		!python_read_u64(p, copies, &count) || index >= count || count > 1u << 24 ||
		!python_read_u64(p, copies + 8 + 8ULL * index, &copy))
		return 0;
	return copy;
}

/* False: it points outside of its code. */
static bool offset_of(struct python *p, const struct python_link *link, const struct python_code *code,
	int32_t *ret)
{
	uint64_t bytecode;
	int64_t offset;

	*ret = -1;
	if (p->minor <= 10) {
		offset = (int32_t)link->position;
		if (offset < -1 || offset > INT32_MAX / 2)
			return false;
		*ret = (int32_t)(offset > 0 && p->minor == 10 ? offset * 2 : offset);
		return true;
	}
	bytecode = bytecode_of(p, link, code->address);
	offset = (int64_t)(link->position - bytecode);
	if (!bytecode || offset < -2 || offset >= (int64_t)python_code_bytes(code))
		return false;
	*ret = offset < 0 ? -1 : (int32_t)offset;
	return true;
}

static enum python_owner owner_of(const struct python *p, const struct python_code *code, unsigned owner)
{
	if (p->minor <= 10)
		return code->flags & (PYTHON_CODE_GENERATOR | PYTHON_CODE_COROUTINE |
					     PYTHON_CODE_ASYNC_GENERATOR) ?
			PYTHON_OF_GENERATOR :
			PYTHON_OF_THREAD;
	return owner == OWNER_GENERATOR ? PYTHON_OF_GENERATOR :
		owner == OWNER_OBJECT   ? PYTHON_OF_OBJECT :
					  PYTHON_OF_THREAD;
}

/* What begins a call ends the group of frames that it runs. */
static void end_group(struct walk *w, uint64_t marker)
{
	struct python_frames *frames = w->ret;

	if (frames->len > w->first && !frames->data[frames->len - 1].entry) {
		frames->data[frames->len - 1].entry = true;
		frames->data[frames->len - 1].marker = marker;
	}
}

static int add_frame(struct walk *w, const struct python_link *link, unsigned owner)
{
	struct python_frame f = {.at = link->at};
	int err = python_code(w->p, link->code & w->p->chain.pointer_mask, &f.code);

	if (err)
		return err;
	if (!f.code) {
		w->chain->torn = PYTHON_TORN;
		return 1;
	}
	if (!offset_of(w->p, link, f.code, &f.offset))
		w->chain->torn = PYTHON_TORN;
	else
		f.position = python_code_position(f.code, f.offset);
	f.owner = owner_of(w->p, f.code, owner);
	if (is_entry(w->p, link)) {
		f.entry = true;
		f.marker = next_cframe(w);
	}
	return vec_push(w->ret, f);
}

int python_frames(struct python *p, struct python_chain *chain, struct python_frames *ret)
{
	struct walk w = {.p = p, .chain = chain, .ret = ret, .first = ret->len};

	pair_cframes(&w);
	for (size_t i = 0; i < chain->count; i++) {
		const struct python_link *link = &chain->links[i];
		unsigned owner = p->minor >= 11 ? mark(p, link, p->layout.frame.owner) : 0;
		int err;

		if (owner > (p->minor >= 14 ? OWNER_C_STACK : p->minor >= 12 ? OWNER_SHIM : OWNER_OBJECT)) {
			chain->torn = PYTHON_TORN;
			break;
		}
		if (owner >= OWNER_SHIM) {
			end_group(&w, link->at);
			continue;
		}
		err = add_frame(&w, link, owner);
		if (err)
			return err < 0 ? err : 0;
	}
	return 0;
}
