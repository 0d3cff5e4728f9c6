/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A CPython process that was never alive: memory with just the structs in it that src/python looks at, laid out as
 * any version does it. Everything is at IMAGE_BASE, in one piece.
 */
#ifndef SONDE_TESTS_UNIT_PYTHON_IMAGE_H
#define SONDE_TESTS_UNIT_PYTHON_IMAGE_H

#include <stdlib.h>
#include <string.h>

#include "python/layout.h"
#include "python/python.h"

#define IMAGE_BASE 0x10000000ULL
#define IMAGE_BYTES ((size_t)4 << 20)
#define IMAGE_PAGE ((size_t)4096)

struct image {
	uint8_t *bytes;
	size_t used;
	uint64_t hole, hole_bytes; /* cannot be read */
	unsigned long reads;
	struct python_layout layout;
	unsigned minor;
	bool free_threaded;
	uint64_t runtime, interpreter, code_type, str_type, bytes_type, frame_type, main_thread;
};

static inline bool image_read(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct image *im = (struct image *)ctx;

	im->reads++;
	if (addr < IMAGE_BASE || addr - IMAGE_BASE > IMAGE_BYTES || len > IMAGE_BYTES - (addr - IMAGE_BASE))
		return false;
	if (im->hole_bytes && addr < im->hole + im->hole_bytes && im->hole < addr + len)
		return false;
	memcpy(buf, im->bytes + (addr - IMAGE_BASE), len);
	return true;
}

static inline uint64_t image_take(struct image *im, size_t bytes)
{
	uint64_t at = IMAGE_BASE + im->used;

	im->used += (bytes + 15) & ~(size_t)15;
	if (im->used > IMAGE_BYTES)
		abort();
	return at;
}

static inline void image_put(struct image *im, uint64_t addr, const void *bytes, size_t len)
{
	if (len)
		memcpy(im->bytes + (addr - IMAGE_BASE), bytes, len);
}

/* A field that the version does not have is left out. */
static inline void image_u64(struct image *im, uint64_t addr, uint32_t field, uint64_t v)
{
	if (field != PYTHON_ABSENT)
		image_put(im, addr + field, &v, 8);
}

static inline void image_u32(struct image *im, uint64_t addr, uint32_t field, uint32_t v)
{
	if (field != PYTHON_ABSENT)
		image_put(im, addr + field, &v, 4);
}

static inline void image_u8(struct image *im, uint64_t addr, uint32_t field, uint8_t v)
{
	if (field != PYTHON_ABSENT)
		image_put(im, addr + field, &v, 1);
}

static inline uint64_t image_type(struct image *im, const char *name, uint64_t bytes, uint64_t flags)
{
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->type.bytes), text = image_take(im, strlen(name) + 1);

	image_put(im, text, name, strlen(name) + 1);
	image_u64(im, at, l->type.name, text);
	image_u64(im, at, l->type.basic_bytes, bytes);
	image_u64(im, at, l->type.flags, flags);
	return at;
}

/* A compact str of characters of `kind` bytes each. */
static inline uint64_t image_str_of(struct image *im, unsigned kind, bool ascii, const void *data, size_t count)
{
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->unicode.data + (count + 1) * kind);

	image_u64(im, at, l->object.type, im->str_type);
	image_u64(im, at, l->unicode.length, count);
	image_u32(im, at, l->unicode.state, (kind | 1u << 3 | (uint32_t)ascii << 4) << l->unicode.kind_shift);
	image_put(im, at + (ascii ? l->unicode.ascii_data : l->unicode.data), data, count * kind);
	return at;
}

static inline uint64_t image_str(struct image *im, const char *text)
{
	return image_str_of(im, 1, true, text, strlen(text));
}

static inline uint64_t image_bytes(struct image *im, const void *data, size_t len)
{
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->bytes.data + len + 1);

	image_u64(im, at, l->object.type, im->bytes_type);
	image_u64(im, at, l->bytes.size, len);
	image_put(im, at + l->bytes.data, data, len);
	return at;
}

#define IMAGE_CODE_UNITS 50u

/* A function of 100 bytes of bytecode: the first 20 are line `first`, the next 20 one more... */
static inline uint64_t image_code(struct image *im, const char *name, uint32_t first)
{
	static const uint8_t lnotab[] = {20, 1, 20, 1, 20, 1, 20, 1};
	static const uint8_t linetable[] = {20, 0, 20, 1, 20, 1, 20, 1, 20, 1};
	/* Two entries of 8 and 2 units a line: no columns, line + delta. */
	static const uint8_t locations[] = {0xef, 0, 0xe9, 0, 0xef, 2, 0xe9, 0, 0xef, 2, 0xe9, 0, 0xef, 2, 0xe9, 0, 0xef, 2,
		0xe9, 0};
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->code.bytes + 2 * IMAGE_CODE_UNITS), text = image_str(im, name);
	uint64_t lines = im->minor >= 11 ? image_bytes(im, locations, sizeof(locations)) :
		im->minor == 10          ? image_bytes(im, linetable, sizeof(linetable)) :
					   image_bytes(im, lnotab, sizeof(lnotab));

	image_u64(im, at, l->object.type, im->code_type);
	if (im->minor >= 11)
		image_u64(im, at, l->var_object.size, IMAGE_CODE_UNITS);
	image_u64(im, at, l->code.name, text);
	image_u64(im, at, l->code.qualname, text);
	image_u64(im, at, l->code.file, image_str(im, "made_up.py"));
	image_u64(im, at, l->code.line_table, lines);
	image_u32(im, at, l->code.first_line, first);
	image_u32(im, at, l->code.arguments, 2);
	return at;
}

/* A frame at byte `offset` of its code; owner 3 is what the interpreter puts in itself, from 3.12 on. */
static inline uint64_t image_frame(struct image *im, uint64_t code, int offset, unsigned owner)
{
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->frame.bytes);

	image_u64(im, at, l->frame.code, code | (im->minor >= 14));
	if (im->minor >= 11)
		image_u64(im, at, l->frame.position, code + l->code.bytecode + (uint64_t)offset);
	else
		image_u32(im, at, l->frame.position, (uint32_t)(im->minor == 10 && offset > 0 ? offset / 2 : offset));
	image_u8(im, at, l->frame.owner, (uint8_t)owner);
	if (im->minor <= 10)
		image_u64(im, at, l->object.type, im->frame_type);
	return at;
}

static inline void image_link(struct image *im, uint64_t inner, uint64_t outer)
{
	image_u64(im, inner, im->layout.frame.previous, outer);
}

/* The thread's innermost frame. */
static inline void image_enter(struct image *im, uint64_t thread, uint64_t frame)
{
	const struct python_layout *l = &im->layout;

	if (im->minor == 11 || im->minor == 12) {
		uint64_t cframe = image_take(im, 64);

		image_u64(im, cframe, l->cframe.frame, frame);
		image_u64(im, thread, l->thread.cframe, cframe);
		/* The outermost is in the thread itself. */
		image_u64(im, cframe, l->cframe.previous, thread + 64);
	} else {
		image_u64(im, thread, l->thread.frame, frame);
	}
}

/* A thread in front of the others. */
static inline uint64_t image_thread(struct image *im, uint32_t native_id)
{
	const struct python_layout *l = &im->layout;
	uint64_t at = image_take(im, l->thread.bytes), pthread = image_take(im, 2048), head;

	memcpy(&head, im->bytes + (im->interpreter + l->interpreter.threads - IMAGE_BASE), 8);
	image_u64(im, at, l->thread.next, head);
	image_u64(im, at, l->thread.interpreter, im->interpreter);
	image_u64(im, at, l->thread.pthread, pthread);
	image_u64(im, at, l->thread.native_id, native_id);
	image_u32(im, pthread, 720, native_id);
	image_u64(im, im->interpreter, l->interpreter.threads, at);
	image_enter(im, at, 0);
	return at;
}

static inline void image_put_own(struct image *im, uint32_t version)
{
	int column = python_layout_column_of(version, im->free_threaded);
	uint32_t numbers[PYTHON_LAYOUT_FIELDS];
	uint64_t free_threaded = im->free_threaded;

	if (!python_layout_columns[column].own_bytes)
		return;
	memcpy(numbers, &im->layout, sizeof(numbers));
	image_put(im, im->runtime, "xdebugpy", 8);
	image_u64(im, im->runtime, 8, version);
	image_u64(im, im->runtime, 16, free_threaded);
	for (size_t i = 0; i < PYTHON_LAYOUT_FIELDS; i++)
		image_u64(im, im->runtime, python_layout_own[i][column], numbers[i]);
}

/* One interpreter with one thread, whose native id is 100, and no frame. */
static inline struct image *image_new(uint32_t version, bool free_threaded)
{
	struct image *im = calloc(1, sizeof(*im));
	const struct python_layout *l = &im->layout;
	uint64_t gil, pthread;

	if (!im || !(im->bytes = calloc(1, IMAGE_BYTES)) ||
		!python_layout_of(version, free_threaded, false, &im->layout))
		abort();
	im->minor = version >> 16 & 0xff;
	im->free_threaded = free_threaded;
	im->runtime = image_take(im, l->runtime.bytes);
	im->interpreter = image_take(im, l->interpreter.bytes);
	gil = image_take(im, l->gil.bytes);
	im->code_type = image_type(im, "code", l->code.bytes, 0);
	im->frame_type = image_type(im, "frame", l->frame.bytes, 0);
	im->str_type = image_type(im, "str", l->unicode.ascii_data, 1ULL << 28);
	im->bytes_type = image_type(im, "bytes", l->bytes.data + 1, 1ULL << 27);
	image_put_own(im, version);
	image_u64(im, im->runtime, l->runtime.head, im->interpreter);
	image_u64(im, im->runtime, l->runtime.main, im->interpreter);
	image_u64(im, im->interpreter, l->interpreter.gil, gil);
	image_u64(im, im->interpreter, l->interpreter.runtime, im->runtime);
	if (im->minor == 8)
		image_u64(im, im->interpreter, 24, UINT64_MAX); /* id_refcount */
	im->main_thread = image_thread(im, 100);
	memcpy(&pthread, im->bytes + (im->main_thread + l->thread.pthread - IMAGE_BASE), 8);
	image_u64(im, im->runtime, l->runtime.main_thread, pthread);
	return im;
}

static inline void image_free(struct image *im)
{
	free(im->bytes);
	free(im);
}

/* As the process's files would tell: where a version is said is the end of the image. */
static inline int image_open(struct image *im, uint32_t version, struct python **ret, struct err *err)
{
	struct python_memory memory = {.ctx = im, .read = image_read};
	struct python_place place = {.runtime = im->runtime, .version_at = IMAGE_BASE + IMAGE_BYTES - 8};

	image_put(im, place.version_at, &version, 4);
	return python_new(&memory, &place, ret, err);
}

/* One of each layout that is known. */
static const struct {
	uint32_t version;
	bool free_threaded;
} versions[] = {
	{0x030812f0, false},
	{0x030912f0, false},
	{0x030a0df0, false},
	{0x030b07f0, false},
	{0x030c01f0, false},
	{0x030d00f0, false},
	{0x030d05f0, true},
	{0x030e0af0, false},
	{0x030e0af0, true},
	{0x030f02f0, false},
	{0x030f02f0, true},
};

#define EACH_VERSION(v) for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++)

#endif
