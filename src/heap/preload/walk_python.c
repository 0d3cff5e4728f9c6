/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Python frames of the calling thread: CPython's own chain of them, from the thread's PyThreadState outwards, by
 * offsets that the collector has published (share.h).
 *
 * Whose frames these are is no doubt while a thread runs Python code, or code that Python called: it is its own chain,
 * and nobody else changes it. So plain loads do, but of pages that are known to be there. A thread that has the
 * interpreter's lock runs while nobody can end the interpreter: pages that it has seen it need not ask for again,
 * for live frames do not lie in memory that is unmapped. Without the lock the kernel is asked for each page once a walk.
 *
 * All of the chain is looked at each time, and of each code object the words that tell it from one that stood in its
 * place before: code comes and goes, that of modules while they are imported. What is remembered is the node of a whole
 * chain by its hash.
 */
#include "heap/preload/walk_priv.h"

#define PAGE 4096ull
#define MOST_ADDRESS (1ull << 56)
#define MOST_OFFSET (1u << 28)

/* _PyInterpreterFrame.owner: from these on a frame is none of Python code, but what a call of the evaluation function
 * begins with. */
#define OWNER_SHIM 3
#define OWNER_MOST 4

struct chain {
	struct walk_python *w;
	const struct share_python *p;
	uint32_t count; /* of w->fresh */
	uint32_t base;  /* SHARE_STACK_ROOT, or _CUT where the outermost ones are missing */
	bool open;      /* the last frame is not the outermost one of its call */
};

/* ---- memory ---- */

static __attribute__((noinline)) bool look_at_page(struct walk_python *w, uint64_t page)
{
	if (page < PAGE || page >= MOST_ADDRESS || !readable_page(page))
		return false;
	w->pages[page / PAGE % PYTHON_PAGES] = page | w->epoch;
	return true;
}

static inline bool can_read(struct walk_python *w, uint64_t at)
{
	uint64_t page = at & ~(PAGE - 1);

	return __builtin_expect(w->pages[page / PAGE % PYTHON_PAGES] == (page | w->epoch), 1) || look_at_page(w, page);
}

/* An aligned word never lies in two pages. */
static LOOKS_ANYWHERE bool read_word(struct walk_python *w, uint64_t at, uint64_t *ret)
{
	typedef uint64_t __attribute__((may_alias)) word;

	if (__builtin_expect(at & 7 || !can_read(w, at), 0))
		return false;
	*ret = *(const volatile word *)(uintptr_t)at;
	return true;
}

static LOOKS_ANYWHERE bool read_half(struct walk_python *w, uint64_t at, uint32_t *ret)
{
	typedef uint32_t __attribute__((may_alias)) half;

	if (__builtin_expect(at & 3 || !can_read(w, at), 0))
		return false;
	*ret = *(const volatile half *)(uintptr_t)at;
	return true;
}

static LOOKS_ANYWHERE bool read_byte(struct walk_python *w, uint64_t at, uint8_t *ret)
{
	if (__builtin_expect(!can_read(w, at), 0))
		return false;
	*ret = *(const volatile uint8_t *)(uintptr_t)at;
	return true;
}

bool walk_python_can_read(struct walk_state *state, uint64_t at, uint64_t bytes)
{
	uint64_t page = at & ~(PAGE - 1);

	if (at >= MOST_ADDRESS || bytes > MOST_ADDRESS)
		return false;
	for (; page < at + bytes; page += PAGE)
		if (!can_read(&state->python, page))
			return false;
	return true;
}

static __attribute__((noinline)) void forget_pages(struct walk_python *w)
{
	w->epoch++;
	if (w->epoch < PAGE)
		return;
	w->epoch = 1;
	for (uint32_t i = 0; i < PYTHON_PAGES; i++)
		w->pages[i] = 0;
}

/* ---- frames ---- */

static bool holds_lock(struct walk_python *w, const struct share_python *p, uint64_t thread)
{
	uint64_t holder;
	uint32_t locked;

	return read_word(w, p->lock + p->lock_holder_at, &holder) && read_half(w, p->lock + p->lock_locked_at, &locked) &&
		holder == thread && locked == 1;
}

/* The innermost frame of the thread, and its state; 0: there is none. */
static uint64_t first_frame(struct walk_python *w, const struct share_python *p, uint64_t self, uint64_t *ret_thread)
{
	uint64_t thread, frame, pthread;

	if (!read_word(w, self + (uint64_t)p->state_at, &thread) || !thread)
		return 0;
	*ret_thread = thread;
	if (!holds_lock(w, p, thread))
		forget_pages(w);
	if (!read_word(w, thread + p->thread_pthread_at, &pthread) || pthread != self ||
		!read_word(w, thread + p->thread_frame_at, &frame))
		return 0;
	if (p->cframe_frame_at != SHARE_PYTHON_NONE && (!frame || !read_word(w, frame + p->cframe_frame_at, &frame)))
		return 0;
	return frame;
}

/* What tells a code object from others at the same address: 16 bits of where its parts are. */
static inline bool print_of(struct walk_python *w, const struct share_python *p, uint64_t code, uint32_t *ret)
{
	uint64_t type, name, file, table, hash;
	uint32_t line;

	if (!read_word(w, code + p->type_at, &type) || type != p->code_type || !read_word(w, code + p->code_name_at, &name) ||
		!read_word(w, code + p->code_file_at, &file) || !read_word(w, code + p->code_table_at, &table) ||
		!read_half(w, code + p->code_line_at, &line))
		return false;
	hash = (name ^ file << 20 ^ file >> 44 ^ table << 40 ^ table >> 24) + line * 0xd6e8feb86659fd93u;
	*ret = (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 48);
	return true;
}

/* Which instruction of it runs, and SHARE_PYTHON_OFFSET_ADDED. */
static inline bool offset_of(
	struct walk_python *w, const struct share_python *p, uint64_t frame, uint64_t code, uint32_t *ret)
{
	uint64_t position;
	uint32_t index;

	if (p->code_bytecode_at != SHARE_PYTHON_NONE) {
		if (!read_word(w, frame + p->position_at, &position))
			return false;
		position += SHARE_PYTHON_OFFSET_ADDED - code - p->code_bytecode_at;
	} else {
		if (!read_half(w, frame + p->position_at, &index))
			return false;
		position = (uint64_t)((int64_t)(int32_t)index + SHARE_PYTHON_OFFSET_ADDED);
	}
	*ret = (uint32_t)position;
	return position < MOST_OFFSET;
}

static void add(struct chain *c, uint64_t pc, uint32_t detail)
{
	c->w->fresh[c->count].pc = pc;
	c->w->fresh[c->count++].detail = detail;
}

/* What a call of the evaluation function begins with. */
static void end_call(struct chain *c)
{
	if (c->open)
		c->w->fresh[c->count - 1].detail ^= SHARE_PYTHON_FRAME ^ SHARE_PYTHON_ENTRY;
	else
		add(c, 0, SHARE_DETAIL(SHARE_PYTHON_ENTRY, 0));
	c->open = false;
}

/* False: it is no frame. */
static bool add_frame(struct chain *c, uint64_t frame)
{
	const struct share_python *p = c->p;
	uint8_t owner = 0, entry = p->minor <= 10;
	uint32_t print, offset;
	uint64_t code;

	if (p->owner_at != SHARE_PYTHON_NONE && !read_byte(c->w, frame + p->owner_at, &owner))
		return false;
	if (owner >= OWNER_SHIM) {
		if (owner > OWNER_MOST || p->minor < 12)
			return false;
		end_call(c);
		return true;
	}
	if (p->entry_at != SHARE_PYTHON_NONE && !read_byte(c->w, frame + p->entry_at, &entry))
		return false;
	if (!read_word(c->w, frame + p->code_at, &code))
		return false;
	code &= p->code_mask;
	if (code >= SHARE_CODE_MOST || !print_of(c->w, p, code, &print) || !offset_of(c->w, p, frame, code, &offset))
		return false;
	add(c, SHARE_CODE_KEY(code, print), SHARE_DETAIL(entry ? SHARE_PYTHON_ENTRY : SHARE_PYTHON_FRAME, offset));
	c->open = !entry;
	return true;
}

static void read_chain(struct chain *c, uint64_t frame)
{
	while (frame) {
		if (c->count == PYTHON_MOST_SEEN || !add_frame(c, frame) ||
			!read_word(c->w, frame + c->p->previous_at, &frame)) {
			c->base = SHARE_STACK_CUT;
			return;
		}
	}
	/* The link of a generator to its caller may be cut at this moment. */
	c->base = c->open ? SHARE_STACK_CUT : SHARE_STACK_ROOT;
}

/* ---- calls of the evaluation function ---- */

#define MOST_CALLS 1024u /* whose place is looked for in one stack */
#define MOST_FRAME_BYTES (1ull << 20)

/* Frame `i` of the native stack that was just walked, innermost first; UINT64_MAX: there is none. */
static inline uint64_t sp_of(const struct walk_state *s, uint32_t i)
{
	return i < s->count ? s->frames[s->count - 1 - i].sp : UINT64_MAX;
}

static inline uint64_t pc_of(const struct walk_state *s, uint32_t i)
{
	return s->frames[s->count - 1 - i].pc;
}

/* Each call keeps something of Python's in its C frame: which frame that is says which code it is. Nothing else does where
 * the function has no name, or parts of it have none. */
static void tell_call(struct walk_state *s, uint64_t marker, uint32_t *from, const struct walk_python_teller *teller)
{
	for (uint32_t i = *from; sp_of(s, i) != UINT64_MAX; i++) {
		uint64_t low = sp_of(s, i), high = sp_of(s, i + 1), pc = pc_of(s, i);
		uint64_t *slot = &s->python.told[(pc * 0x9e3779b97f4a7c15u) >> 52 & (PYTHON_TOLD - 1)];

		if (marker < low || marker >= high || marker - low >= MOST_FRAME_BYTES)
			continue;
		*from = i;
		if (*slot != pc && teller->tell_call(teller->ctx, pc))
			*slot = pc;
		return;
	}
}

static void tell_calls_by_cframes(
	struct walk_state *s, const struct share_python *p, uint64_t thread, const struct walk_python_teller *teller)
{
	uint64_t at = thread + p->thread_cframe_at;
	uint32_t from = 0;

	for (uint32_t i = 0; i < MOST_CALLS && read_word(&s->python, at, &at) && at; i++) {
		tell_call(s, at, &from, teller);
		at += p->cframe_previous_at;
	}
}

static void tell_calls_by_shims(
	struct walk_state *s, const struct share_python *p, uint64_t frame, const struct walk_python_teller *teller)
{
	uint32_t from = 0, calls = 0;
	uint8_t owner;

	for (uint32_t i = 0; i < PYTHON_MOST_SEEN && frame && calls < MOST_CALLS; i++) {
		if (!read_byte(&s->python, frame + p->owner_at, &owner))
			return;
		if (owner >= OWNER_SHIM) {
			tell_call(s, frame, &from, teller);
			calls++;
		}
		if (!read_word(&s->python, frame + p->previous_at, &frame))
			return;
	}
}

/* ---- nodes ---- */

static uint64_t hash_of_chain(const struct chain *c)
{
	uint64_t hash = c->base;

	for (uint32_t i = c->count; i-- > 0;) {
		const struct python_seen *f = &c->w->fresh[i];

		hash = (hash ^ f->pc) * 0x9e3779b97f4a7c15u;
		hash = ((hash ^ hash >> 29) + f->detail) * 0xd6e8feb86659fd93u;
		hash ^= hash >> 32;
	}
	return hash;
}

static bool tell(struct walk_python *w, const struct share_python *p, uint64_t key, const struct walk_python_teller *teller)
{
	uint64_t *slot = &w->told[(key * 0x9e3779b97f4a7c15u) >> 52 & (PYTHON_TOLD - 1)];

	if (!key || *slot == key)
		return true;
	if (!teller->tell_code(teller->ctx, p, key & (SHARE_CODE_MOST - 1), key))
		return false;
	*slot = key;
	return true;
}

/* The node of the chain, each frame of which has been told. 0: no room. */
static __attribute__((noinline)) uint32_t find_chain(
	const struct walk_memory *m, struct walk_state *s, const struct chain *c, const struct walk_python_teller *teller)
{
	struct walk_python *w = c->w;
	uint32_t parent = c->base, i = 0;

	if (w->last_count && w->last[0].node && c->base == SHARE_STACK_ROOT) {
		for (; i < c->count && i < w->last_count; i++) {
			const struct python_seen *f = &w->fresh[c->count - 1 - i], *old = &w->last[i];

			if (f->pc != old->pc || f->detail != old->detail)
				break;
			parent = old->node;
		}
	}
	w->last_count = i;
	for (; i < c->count; i++) {
		const struct python_seen *f = &w->fresh[c->count - 1 - i];

		if (!tell(w, c->p, f->pc, teller))
			return 0;
		parent = node_find(m, s, parent, f->pc, f->detail);
		if (!parent)
			return 0;
		if (c->base != SHARE_STACK_ROOT)
			continue;
		w->last[i] = (struct python_seen){f->pc, f->detail, parent};
		w->last_count = i + 1;
	}
	return parent;
}

static uint32_t node_of_chain(
	const struct walk_memory *m, struct walk_state *s, const struct chain *c, const struct walk_python_teller *teller)
{
	uint64_t hash = hash_of_chain(c);
	struct walk_stack_entry *set = c->w->stacks[hash >> 53 & (PYTHON_STACK_SETS - 1)], other;

	if (__builtin_expect(set->hash == hash && set->node, 1))
		return set->node;
	/* What was asked for last stands first. */
	other = set[1];
	set[1] = set[0];
	set[0] = other;
	if (other.hash != hash || !other.node)
		set[0] = (struct walk_stack_entry){.hash = hash, .node = find_chain(m, s, c, teller)};
	return set[0].node;
}

uint32_t walk_python(const struct walk_memory *memory, struct walk_state *state, uint64_t self, uint32_t native,
	const struct walk_python_teller *teller)
{
	struct walk_python *w = &state->python;
	struct chain c = {.w = w, .p = share_python_of(memory->header)};
	uint32_t python, pair;
	struct walk_stack_entry *known;
	uint64_t frame, thread, key;

	if (!w->used) {
		w->used = true;
		forget_pages(w);
	}
	frame = first_frame(w, c.p, self, &thread);
	if (!frame)
		return native;
	read_chain(&c, frame);
	python = c.count ? node_of_chain(memory, state, &c, teller) : 0;
	if (!python)
		return native;
	if (native < SHARE_STACK_FIRST)
		return python;
	key = (uint64_t)native << 32 | python;
	known = &w->pairs[(key * 0x9e3779b97f4a7c15u) >> 54 & (PYTHON_PAIRS - 1)];
	if (known->hash == key)
		return known->node;
	walk_keep_frames(memory, state);
	if (c.p->thread_cframe_at != SHARE_PYTHON_NONE)
		tell_calls_by_cframes(state, c.p, thread, teller);
	else if (c.p->minor >= 12)
		tell_calls_by_shims(state, c.p, frame, teller);
	pair = node_find(memory, state, native, python, SHARE_DETAIL(SHARE_PAIR, 0));
	if (!pair)
		return native;
	*known = (struct walk_stack_entry){.hash = key, .node = pair};
	return pair;
}

bool walk_python_evaluates(const struct walk_memory *memory, uint32_t node)
{
	const struct share_python *p = share_python_of(memory->header);

	/* Parents have smaller numbers. */
	for (; node >= SHARE_STACK_FIRST && node < SHARE_NODES; node = memory->nodes[node].parent)
		for (uint32_t i = 0; i < SHARE_PYTHON_EVALS && p->evals[i][1]; i++)
			if (memory->nodes[node].pc - 1 >= p->evals[i][0] && memory->nodes[node].pc - 1 < p->evals[i][1])
				return true;
	return false;
}
