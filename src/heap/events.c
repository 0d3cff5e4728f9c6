/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The next event of a ring. Its bytes may change while they are looked at: words are loaded once, and what is longer is
 * copied before it is taken apart.
 */
#include <string.h>

#include "base/clock.h"
#include "base/cursor.h"
#include "heap/reader_priv.h"

/* So far may the clocks of two CPUs be apart. */
#define SKEW_NS NS_PER_MS

#define WORD sizeof(uint64_t)
#define HEAD_WORDS 2u

/* An event of the future is one that was written since the drain began, or makes no sense. */
static bool in_future(struct heap_readers *set, struct process *p, uint64_t *ns)
{
	if (*ns <= set->until_ns + SKEW_NS || *ns <= clock_monotonic_ns() + SKEW_NS)
		return true;
	p->losses.times_backwards++;
	*ns = set->until_ns;
	return false;
}

bool ring_odd_head(struct heap_readers *set, struct process *p, struct ring *r, uint64_t time, uint64_t ns)
{
	if (ns > set->until_ns && in_future(set, p, &ns))
		return false;
	if (time < r->last)
		p->losses.times_backwards++;
	r->last = time;
	r->head_ns = ns < r->last_ns ? r->last_ns : ns;
	return true;
}

/* ---- what has no fixed size ---- */

/* Copies `bytes` of the event at `at` to `to`: it is there, and of its type. */
static bool copy_event(const struct ring *r, uint64_t bytes, size_t least, void *to)
{
	if (bytes % WORD || bytes < least || bytes > r->used - r->at)
		return false;
	memcpy(to, ring_words(r), bytes);
	return true;
}

/* A stack that the target could not walk: kept until its allocation comes. */
static bool take_raw(struct ring *r, uint64_t bytes)
{
	struct share_raw_stack raw;
	uint8_t *copy = bytes <= SHARE_CHUNK_ROOM ? malloc(bytes + 1) : NULL;

	if (!copy || !copy_event(r, bytes, sizeof(raw), copy)) {
		free(copy);
		return false;
	}
	memcpy(&raw, copy, sizeof(raw));
	if (raw.stack_bytes > bytes - sizeof(raw)) {
		free(copy);
		return false;
	}
	free(r->raw);
	r->raw = copy;
	return true;
}

static uint32_t most_text(uint32_t type, unsigned index)
{
	return type == SHARE_PYTHON_CODE && index == 2 ? SHARE_PYTHON_TABLE_MOST : SHARE_TEXT_MOST;
}

/* set->text gets what was copied; its texts are moved to its beginning, each with a NUL behind it. */
static bool take_note(struct heap_readers *set, const struct ring *r, uint32_t type, uint64_t bytes)
{
	struct heap_event_more *more = &set->more;
	struct share_note note;
	char *to = set->text;

	if (!copy_event(r, bytes, sizeof(note), set->text))
		return false;
	memcpy(&note, set->text, sizeof(note));

	struct cursor c = cursor_over(set->text + sizeof(note), bytes - sizeof(note));

	more->value = note.value;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t length = note.text_bytes[i];
		const uint8_t *text = length <= most_text(type, i) ? cursor_bytes(&c, length) : NULL;

		if (!text)
			return false;
		memmove(to, text, length); /* to <= text: the note in front of them is longer than their NULs */
		to[length] = '\0';
		more->text[i] = to;
		more->text_bytes[i] = length;
		to += length + 1;
	}
	return true;
}

static void take_name(struct heap_readers *set, uint64_t first, uint64_t second)
{
	memcpy(set->text, &first, WORD);
	memcpy(set->text + WORD, &second, WORD);
	set->text[2 * WORD] = '\0';
	set->more.text[0] = set->text;
	set->more.text_bytes[0] = (uint32_t)strlen(set->text);
}

/* ---- what has ---- */

static uint32_t checked_node(struct process *p, const struct heap_event *e, uint64_t node)
{
	if (node < SHARE_NODES || (node == SHARE_STACK_UNSAMPLED && e->type == SHARE_REALLOC_DONE))
		return (uint32_t)node;
	p->losses.nodes_wrong++;
	return SHARE_STACK_NONE;
}

/* Words of an event as they come; `bad` when there is none any more. */
struct words {
	const uint64_t *at;
	uint32_t left, taken;
	bool bad;
};

static inline uint64_t next_word(struct words *w)
{
	if (w->taken >= w->left) {
		w->bad = true;
		return 0;
	}
	return shared_load(&w->at[w->taken++]);
}

static void stack_and_size(struct process *p, struct words *w, struct heap_event *e)
{
	uint64_t both = next_word(w);

	e->node = checked_node(p, e, both >> 32);
	e->size = (uint32_t)both == SHARE_LARGE ? next_word(w) : (uint32_t)both;
}

/* The raw stack of before belongs to this event. */
static bool with_raw(struct heap_readers *set, struct ring *r)
{
	if (!r->raw)
		return false;
	set->raw = take_ptr(r->raw);
	set->more.raw = (const struct share_raw_stack *)(const void *)set->raw;
	set->more.raw_stack = set->raw + sizeof(struct share_raw_stack);
	return true;
}

static enum event_result allocated(
	struct heap_readers *set, struct process *p, struct ring *r, struct words *w, struct heap_event *e)
{
	bool more = e->type == SHARE_CALL || e->type == SHARE_OWN_ALLOC;

	stack_and_size(p, w, e);
	if (e->type == SHARE_CALL) {
		set->more.cpu_ns = next_word(w);
		set->more.calls = next_word(w);
	} else if (e->type == SHARE_OWN_ALLOC) {
		set->more.value = next_word(w);
	}
	if (with_raw(set, r))
		more = true;
	return more ? EVENT_MORE : EVENT_PLAIN;
}

static enum event_result noted(struct heap_readers *set, struct process *p, struct ring *r, struct words *w,
	struct heap_event *e)
{
	uint64_t bytes = next_word(w);

	if (w->bad)
		return EVENT_WRONG;
	if (e->type == SHARE_RAW ? !take_raw(r, bytes) : !take_note(set, r, e->type, bytes))
		return EVENT_WRONG;
	w->taken = (uint32_t)(bytes / WORD);
	if (e->type == SHARE_RAW)
		return EVENT_NONE;
	if (e->type == SHARE_MARK && p->header.clock == SHARE_CLOCK_COUNTER)
		e->address = (uint64_t)((unsigned __int128)e->address * set->counter.ns_by_2_32 >> 32);
	return EVENT_MORE;
}

static enum event_result mapped(
	struct heap_readers *set, struct process *p, struct ring *r, struct words *w, struct heap_event *e)
{
	uint64_t both;

	e->size = next_word(w);
	if (e->type == SHARE_UNMAP)
		return EVENT_PLAIN;
	both = next_word(w);
	e->node = checked_node(p, e, (uint32_t)both);
	set->more.value = both >> 32 < SHARE_MAP_KINDS ? both >> 32 : SHARE_MAP_MEMORY;
	with_raw(set, r);
	return EVENT_MORE;
}

static enum event_result other_event(
	struct heap_readers *set, struct process *p, struct ring *r, struct words *w, struct heap_event *e)
{
	uint64_t first;

	switch (e->type) {
	case SHARE_RATE:
		r->rate = next_word(w);
		return EVENT_NONE;
	case SHARE_THREAD:
		r->tid = e->tid = (uint32_t)e->address;
		first = next_word(w);
		take_name(set, first, next_word(w));
		return EVENT_MORE;
	case SHARE_MAP:
	case SHARE_UNMAP:
		return mapped(set, p, r, w, e);
	case SHARE_USABLE:
		e->size = next_word(w);
		return EVENT_PLAIN;
	case SHARE_VALUE:
	case SHARE_OWN_FREE:
		set->more.value = next_word(w);
		return EVENT_MORE;
	case SHARE_MODULES:
	case SHARE_UNMAP_FAILED:
	case SHARE_PROCESS_END:
	case SHARE_PYTHON_CALL:
		return EVENT_PLAIN;
	case SHARE_RAW:
	case SHARE_MARK:
	case SHARE_COUNTER:
	case SHARE_CODE:
	case SHARE_LOG:
	case SHARE_POOL:
	case SHARE_PYTHON_CODE:
		return noted(set, p, r, w, e);
	default:
		return EVENT_WRONG;
	}
}

static enum event_result by_type(
	struct heap_readers *set, struct process *p, struct ring *r, struct words *w, struct heap_event *e)
{
	switch (e->type) {
	case SHARE_FREE:
	case SHARE_FREE_LAST:
	case SHARE_REALLOC:
		return EVENT_PLAIN;
	case SHARE_FREE_STACK:
	case SHARE_FREE_STACK_LAST:
		e->node = checked_node(p, e, next_word(w));
		return with_raw(set, r) ? EVENT_MORE : EVENT_PLAIN;
	case SHARE_ALLOC:
	case SHARE_REALLOC_DONE:
	case SHARE_CALL:
	case SHARE_OWN_ALLOC:
		return allocated(set, p, r, w, e);
	default:
		return other_event(set, p, r, w, e);
	}
}

enum event_result ring_event(struct heap_readers *set, struct process *p, struct ring *r, struct heap_event *ret)
{
	struct words w = {.at = ring_words(r), .left = (r->used - r->at) / (uint32_t)WORD, .taken = 1};
	uint64_t word = next_word(&w);
	enum event_result result;

	*ret = (struct heap_event){
		.time_ns = r->head_ns,
		.address = SHARE_ADDRESS(word),
		.rate = r->rate,
		.process = p->number,
		.tid = r->tid,
		.type = SHARE_TYPE(word),
	};
	result = by_type(set, p, r, &w, ret);
	if (w.bad)
		return EVENT_WRONG;
	r->at += w.taken * (uint32_t)WORD;
	r->last_ns = r->head_ns;
	set->bytes += w.taken * WORD;
	return result;
}
