/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Python frames in stacks: when they are asked for, and what the collector is told of code objects. It reads nothing of
 * them itself: a module's code is gone when its import is over, and short programs are gone before anybody looks.
 */
#include <pthread.h>

#include "heap/preload/clock.h"
#include "heap/preload/python.h"
#include "heap/preload/ring.h"
#include "heap/preload/sys.h"
#include "heap/preload/take.h"

#include <linux/futex.h>

#pragma weak pthread_self

/* Characters of a name, and of a path, that are looked at. */
#define MOST_CHARACTERS SHARE_PYTHON_NAME_MOST

struct text {
	uint8_t *at;
	uint32_t bytes;
};

static uint64_t load64(uint64_t at)
{
	return *(const volatile uint64_t *)(uintptr_t)at;
}

static uint32_t load32(uint64_t at)
{
	return *(const volatile uint32_t *)(uintptr_t)at;
}

static uint32_t character(uint64_t data, uint32_t kind, uint64_t index)
{
	if (kind == 1)
		return *(const volatile uint8_t *)(uintptr_t)(data + index);
	if (kind == 2)
		return *(const volatile uint16_t *)(uintptr_t)(data + 2 * index);
	return load32(data + 4 * index);
}

static void put_character(struct text *to, uint32_t c)
{
	uint8_t *at = to->at + to->bytes;

	if (!c || c >= 0x110000 || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80) {
		at[0] = (uint8_t)c;
		to->bytes += 1;
	} else if (c < 0x800) {
		at[0] = (uint8_t)(0xc0 | c >> 6);
		at[1] = (uint8_t)(0x80 | (c & 0x3f));
		to->bytes += 2;
	} else if (c < 0x10000) {
		at[0] = (uint8_t)(0xe0 | c >> 12);
		at[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		at[2] = (uint8_t)(0x80 | (c & 0x3f));
		to->bytes += 3;
	} else {
		at[0] = (uint8_t)(0xf0 | c >> 18);
		at[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
		at[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		at[3] = (uint8_t)(0x80 | (c & 0x3f));
		to->bytes += 4;
	}
}

/* A str as UTF-8, at most SHARE_PYTHON_NAME_MOST bytes of it; nothing where it is none, or not a usual one. */
static void put_str(struct thread *t, const struct share_python *p, uint64_t str, struct text *to)
{
	uint32_t state, kind;
	uint64_t length, data;

	to->bytes = 0;
	if (str & 7 || !walk_python_can_read(t->walk, str, p->str_data_at + 8ull))
		return;
	length = load64(str + p->str_length_at);
	state = load32(str + p->str_state_at);
	kind = state >> p->str_kind_shift & 7;
	if (!(state >> (p->str_kind_shift + 3) & 1) || (kind != 1 && kind != 2 && kind != 4))
		return;
	data = str + (state >> (p->str_kind_shift + 4) & 1 ? p->str_ascii_at : p->str_data_at);
	if (length > MOST_CHARACTERS)
		length = MOST_CHARACTERS;
	if (data & (kind - 1) || !walk_python_can_read(t->walk, data, length * kind))
		return;
	for (uint64_t i = 0; i < length && to->bytes + 4 <= SHARE_PYTHON_NAME_MOST; i++)
		put_character(to, character(data, kind, i));
}

/* A bytes object; whether all of it was taken. */
static bool put_bytes(struct thread *t, const struct share_python *p, uint64_t object, struct text *to)
{
	uint64_t size, taken;

	to->bytes = 0;
	if (object & 7 || !walk_python_can_read(t->walk, object, p->bytes_data_at))
		return false;
	size = load64(object + p->bytes_size_at);
	taken = size < SHARE_PYTHON_TABLE_MOST ? size : SHARE_PYTHON_TABLE_MOST;
	if (!walk_python_can_read(t->walk, object + p->bytes_data_at, taken))
		return false;
	for (; to->bytes < taken; to->bytes++)
		to->at[to->bytes] = *(const volatile uint8_t *)(uintptr_t)(object + p->bytes_data_at + to->bytes);
	return taken == size;
}

static bool tell_code(void *ctx, const struct share_python *p, uint64_t code, uint64_t key)
{
	const uint32_t most = sizeof(struct share_note) + 2 * SHARE_PYTHON_NAME_MOST + SHARE_PYTHON_TABLE_MOST;
	struct thread *t = ctx;
	uint64_t *event = ring_reserve(t, most);
	struct share_note *note = (struct share_note *)(void *)event;
	struct text text = {(uint8_t *)(note + 1), 0};
	uint64_t line;

	if (!event)
		return false;
	/* These words were just looked at. */
	line = load32(code + p->code_line_at);
	put_str(t, p, load64(code + p->code_name_at), &text);
	note->text_bytes[0] = text.bytes;
	text.at += text.bytes;
	put_str(t, p, load64(code + p->code_file_at), &text);
	note->text_bytes[1] = text.bytes;
	text.at += text.bytes;
	if (!put_bytes(t, p, load64(code + p->code_table_at), &text))
		line |= SHARE_PYTHON_CODE_CUT;
	note->text_bytes[2] = text.bytes;
	text.at += text.bytes;
	note->pad = 0;
	note->time = clock_before(preload.clock);
	note->word = SHARE_WORD(SHARE_PYTHON_CODE, line);
	note->value = key;
	note->bytes = ((uint64_t)(text.at - (uint8_t *)event) + 7) & ~7ull;
	ring_commit(t, (uint32_t)(((uint64_t)(text.at - (uint8_t *)event) + 7) & ~7ull));
	return true;
}

static bool tell_call(void *ctx, uint64_t pc)
{
	struct thread *t = ctx;
	uint64_t *event = ring_reserve(t, 16);

	if (!event)
		return false;
	event[0] = clock_before(preload.clock);
	event[1] = SHARE_WORD(SHARE_PYTHON_CALL, pc);
	ring_commit(t, 16);
	return true;
}

/* ---- before the interpreter runs ---- */

static void ask(struct share_python *p)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), end = now + SHARE_PYTHON_WAIT_MS * 1000000ull;
	uint32_t number = __atomic_add_fetch(&p->asked, 1, __ATOMIC_RELAXED), answered;

	while (now < end && !preload.memory.header->stop) {
		struct timespec left = {.tv_nsec = (long)(end - now < 50000000u ? end - now : 50000000u)};

		answered = __atomic_load_n(&p->answered, __ATOMIC_ACQUIRE);
		if ((int32_t)(answered - number) >= 0)
			return;
		sys6(SYS_futex, &p->answered, FUTEX_WAIT, answered, &left, 0, 0);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

/* Whether the interpreter may have begun to run since it was looked for. Any stack counts where its function is not known. */
static bool may_run(uint32_t native)
{
	static uint32_t generation, stacks;
	static bool met;

	if (generation != preload.generation) {
		generation = preload.generation;
		stacks = 0;
		met = false;
	}
	if (!met && walk_python_evaluates(&preload.memory, native))
		return met = true;
	return stacks < SHARE_PYTHON_ASKS * SHARE_PYTHON_ASKED_EVERY && ++stacks % SHARE_PYTHON_ASKED_EVERY == 0;
}

uint32_t python_stack(struct thread *t, uint32_t native)
{
	struct share_python *p = share_python_of(preload.memory.header);
	const struct walk_python_teller teller = {tell_code, tell_call, t};

	if (!pthread_self)
		return native;
	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == SHARE_PYTHON_LIKELY && may_run(native))
		ask(p);
	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != SHARE_PYTHON_READY)
		return native;
	return walk_python(&preload.memory, t->walk, (uint64_t)pthread_self(), native, &teller);
}
