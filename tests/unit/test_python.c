/* SPDX-License-Identifier: BSD-2-Clause */
/* Of src/python: memory, layouts, chains, frames, threads, on images of memory that never was. */
#include "alloc_fail.h"
#include "base/buf.h"
#include "python/code.h"
#include "python/line_table.h"
#include "python/memory.h"
#include "python/object.h"
#include "python/text.h"
#include "python_image.h"
#include "test.h"


static struct image *image_of(size_t v)
{
	return image_new(versions[v].version, versions[v].free_threaded);
}

static struct python *opened(struct image *im, size_t v)
{
	struct err err = {0};
	struct python *p = NULL;
	int bad = image_open(im, versions[v].version, &p, &err);

	if (bad)
		printf("version %x: %s\n", versions[v].version, err.text);
	check(!bad);
	return p;
}

/* Three frames: leaf in middle in root, and what the interpreter puts behind them. Returns the innermost. */
static uint64_t three_frames(struct image *im, uint64_t thread)
{
	uint64_t leaf = image_frame(im, image_code(im, "leaf", 10), 0, 0);
	uint64_t middle = image_frame(im, image_code(im, "Class.middle", 20), 24, 1);
	uint64_t root = image_frame(im, image_code(im, "root", 30), 98, 0), shim;

	image_link(im, leaf, middle);
	image_link(im, middle, root);
	if (im->minor >= 12) {
		shim = image_frame(im, im->str_type, 0, 3);
		image_link(im, root, shim);
	}
	image_enter(im, thread, leaf);
	return leaf;
}

struct look {
	struct python_link links[16];
	uint64_t cframes[16];
	struct python_chain chain;
	struct python_frames frames;
};

static void look_at(struct python *p, uint64_t thread, size_t limit, struct look *ret)
{
	vec_release(&ret->frames);
	ret->chain = (struct python_chain){
		.links = ret->links, .limit = limit, .cframes = ret->cframes, .cframe_limit = 16};
	python_chain_read(p, thread, &ret->chain);
	check(!python_frames(p, &ret->chain, &ret->frames));
}

TEST(frames_of_every_version)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		struct python *p;
		struct look look = {0};

		three_frames(im, im->main_thread);
		p = opened(im, v);
		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_WHOLE);
		check_u64(look.frames.len, 3);
		if (look.frames.len == 3) {
			const struct python_frame *f = look.frames.data;

			check_str(f[0].code->name, "leaf");
			check_str(f[1].code->name, "Class.middle");
			check_str(f[2].code->file, "made_up.py");
			check_u64(f[0].position.line, 10);
			check_u64(f[1].position.line, 21);
			check_u64(f[2].position.line, 34);
			check_u64(f[1].offset, 24);
			check_u64(f[1].code->arguments, 2);
			check(f[0].code->serial != f[1].code->serial);
			check_u64(f[2].entry, im->minor != 11);
			check_u64(f[0].entry, im->minor <= 10);
			check(im->minor < 12 || f[2].marker);
		}
		vec_release(&look.frames);
		python_free(p);
		image_free(im);
	}
}

TEST(a_chain_that_is_cut_or_goes_in_a_circle)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		uint64_t leaf = three_frames(im, im->main_thread), middle;
		struct python *p = opened(im, v);
		struct look look = {0};

		look_at(p, im->main_thread, 2, &look);
		check_u64(look.chain.torn, PYTHON_CUT);
		check_u64(look.frames.len, 2);

		/* root -> middle */
		memcpy(&middle, im->bytes + (leaf + im->layout.frame.previous - IMAGE_BASE), 8);
		image_link(im, look.chain.links[1].at, leaf);
		python_refresh(p);
		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_TORN);
		check_u64(look.frames.len, 2);
		image_link(im, leaf, leaf);
		python_refresh(p);
		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_TORN);
		check_u64(look.frames.len, 1);
		vec_release(&look.frames);
		python_free(p);
		image_free(im);
	}
}

TEST(long_circles_end)
{
	struct image *im = image_new(0x030d00f0, false);
	struct python *p;
	struct python_link *links = calloc(200000, sizeof(*links));
	struct python_chain chain = {.links = links, .limit = 200000};
	uint64_t code = image_code(im, "f", 1), first = 0, last = 0, tenth = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t f = image_frame(im, code, 0, 0);

		if (last)
			image_link(im, last, f);
		first = first ? first : f;
		tenth = i == 10 ? f : tenth;
		last = f;
	}
	image_enter(im, im->main_thread, first);
	p = opened(im, 5);
	python_chain_read(p, im->main_thread, &chain);
	check_u64(chain.count, 1000);
	check_u64(chain.torn, PYTHON_WHOLE);
	image_link(im, last, tenth);
	python_refresh(p);
	python_chain_read(p, im->main_thread, &chain);
	check_u64(chain.count, 1000);
	check_u64(chain.torn, PYTHON_TORN);
	python_free(p);
	image_free(im);
	free(links);
}

TEST(what_is_inside_a_torn_frame_stands)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		struct python *p;
		struct look look = {0};
		uint64_t middle;

		three_frames(im, im->main_thread);
		p = opened(im, v);
		look_at(p, im->main_thread, 16, &look);
		middle = look.chain.links[1].at;
		image_u64(im, middle, im->layout.frame.code, im->str_type);
		python_refresh(p);
		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_TORN);
		check_u64(look.frames.len, 1);
		/* It leads to where nothing is. */
		image_link(im, middle, 0x7000);
		python_refresh(p);
		look_at(p, im->main_thread, 16, &look);
		check(look.chain.torn != PYTHON_WHOLE);
		check_u64(look.chain.count, 2);
		/* It is no pointer. */
		image_link(im, middle, 0x7001);
		python_refresh(p);
		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_TORN);
		vec_release(&look.frames);
		python_free(p);
		image_free(im);
	}
}

TEST(an_offset_outside_of_the_code_has_no_line)
{
	struct image *im = image_new(0x030c01f0, false);
	uint64_t leaf = three_frames(im, im->main_thread);
	struct python *p = opened(im, 4);
	struct look look = {0};

	image_u64(im, leaf, im->layout.frame.position, 0x10000000);
	python_refresh(p);
	look_at(p, im->main_thread, 16, &look);
	check_u64(look.chain.torn, PYTHON_TORN);
	check_u64(look.frames.len, 3);
	check_u64(look.frames.data[0].position.line, 0);
	vec_release(&look.frames);
	python_free(p);
	image_free(im);
}

/* Free-threaded builds have a copy of the bytecode for each thread. */
TEST(bytecode_of_a_thread)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		const struct python_layout *l = &im->layout;
		uint64_t leaf = three_frames(im, im->main_thread), code, copies, copy, count = 2;
		struct python *p = opened(im, v);
		struct look look = {0};

		if (l->code.tlbc != PYTHON_ABSENT) {
			memcpy(&code, im->bytes + (leaf + l->frame.code - IMAGE_BASE), 8);
			code &= ~3ULL;
			copies = image_take(im, 64);
			copy = image_take(im, 100);
			image_u64(im, code, l->code.tlbc, copies);
			image_put(im, copies, &count, 8);
			image_u64(im, copies, 16, copy);
			image_u64(im, leaf, l->frame.position, copy + 40);
			image_u32(im, leaf, l->frame.tlbc_index, 1);
			python_refresh(p);
			look_at(p, im->main_thread, 16, &look);
			check_u64(look.frames.data[0].offset, 40);
			check_u64(look.frames.data[0].position.line, 12);
			check_u64(look.chain.torn, PYTHON_WHOLE);
			/* There are no more than two. */
			image_u32(im, leaf, l->frame.tlbc_index, 2);
			python_refresh(p);
			look_at(p, im->main_thread, 16, &look);
			check_u64(look.frames.len, 3);
			check_u64(look.frames.data[0].offset, (uint64_t)-1);
			check_u64(look.frames.data[0].position.line, 0);
		}
		check_u64(l->code.tlbc != PYTHON_ABSENT, im->free_threaded && im->minor >= 14);
		vec_release(&look.frames);
		python_free(p);
		image_free(im);
	}
}

TEST(cframes_are_paired_from_the_outer_end)
{
	struct image *im = image_new(0x030a0df0, false);
	uint64_t cframes[4];
	struct python *p;
	struct look look = {0};

	three_frames(im, im->main_thread);
	for (int i = 3; i >= 0; i--) {
		cframes[i] = image_take(im, 64);
		image_u64(im, cframes[i], im->layout.cframe.previous, i == 3 ? im->main_thread + 64 : cframes[i + 1]);
	}
	/* The innermost call has none of its frame in the chain yet. */
	image_u64(im, im->main_thread, im->layout.thread.cframe, cframes[0]);
	p = opened(im, 2);
	look_at(p, im->main_thread, 16, &look);
	check_u64(look.frames.len, 3);
	for (size_t i = 0; i < look.frames.len; i++)
		check_u64(look.frames.data[i].marker, cframes[i + 1]);
	look_at(p, im->main_thread, 2, &look);
	check_u64(look.frames.data[0].marker, cframes[0]);
	vec_release(&look.frames);
	python_free(p);
	image_free(im);
}

TEST(another_code_object_at_the_same_place_is_another_one)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		const struct python_code *before, *same, *after;
		uint64_t leaf = three_frames(im, im->main_thread), code;
		struct python *p = opened(im, v);

		memcpy(&code, im->bytes + (leaf + im->layout.frame.code - IMAGE_BASE), 8);
		code &= ~3ULL;
		check(!python_code(p, code, &before) && before);
		image_u64(im, code, im->layout.code.name, image_str(im, "other"));
		image_u64(im, code, im->layout.code.qualname, image_str(im, "other"));
		check(!python_code(p, code, &same) && same == before);
		python_refresh(p);
		check(!python_code(p, code, &after) && after && after != before);
		check_str(before->name, "leaf");
		check_str(after->name, "other");
		check(before->serial != after->serial);
		python_refresh(p);
		check(!python_code(p, code, &same) && same == after);
		/* The first one again, made anew. */
		image_u64(im, code, im->layout.code.name, image_str(im, "leaf"));
		image_u64(im, code, im->layout.code.qualname, image_str(im, "leaf"));
		python_refresh(p);
		check(!python_code(p, code, &same) && same == before);
		image_u64(im, code, im->layout.object.type, im->str_type);
		python_refresh(p);
		check(!python_code(p, code, &same) && !same);
		python_free(p);
		image_free(im);
	}
}

static int tried(struct image *im, uint32_t version, const char *words)
{
	struct err err = {0};
	struct python *p = NULL;
	int bad = image_open(im, version, &p, &err);

	check(bad && strstr(err.text, words));
	if (bad && !strstr(err.text, words))
		printf("it says: %s\n", err.text);
	if (!bad)
		python_free(p);
	return bad;
}

TEST(what_is_not_known_is_refused_in_words)
{
	struct image *im = image_new(0x030b07f0, false);
	uint64_t zero = 0;

	three_frames(im, im->main_thread);
	check_u64(tried(im, 0x030710f0, "Python 3.7.16 is too old"), -EOPNOTSUPP);
	check_u64(tried(im, 0x034000f0, "Python 3.64.0"), -EOPNOTSUPP);
	/* Objects are larger. */
	image_u64(im, im->code_type, im->layout.type.basic_bytes, im->layout.code.bytes + 16);
	check_u64(tried(im, 0x030b07f0, "does not look as Python 3.11.7's"), -EOPNOTSUPP);
	image_put(im, im->runtime + im->layout.runtime.head, &zero, 8);
	check_u64(tried(im, 0x030b07f0, "has not started yet, or has ended"), -EAGAIN);
	im->hole = im->runtime;
	im->hole_bytes = 4096;
	check_u64(tried(im, 0x030b07f0, "cannot be read"), -EFAULT);
	image_free(im);
}

TEST(memory_of_another_version_is_refused)
{
	struct image *im = image_new(0x030912f0, false);

	three_frames(im, im->main_thread);
	check_u64(tried(im, 0x030812f0, "does not look as Python 3.8.18's"), -EOPNOTSUPP);
	check_u64(tried(im, 0x030a0df0, "does not look as Python 3.10.13's"), -EOPNOTSUPP);
	image_free(im);
}

TEST(a_thread_without_frames_is_enough)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		struct python *p = opened(im, v);
		struct look look = {0};

		look_at(p, im->main_thread, 16, &look);
		check_u64(look.chain.torn, PYTHON_WHOLE);
		check_u64(look.frames.len, 0);
		python_free(p);
		image_free(im);
	}
}

/* Without any word of which version it is, exactly one of 3.8 to 3.10 fits. */
TEST(versions_that_say_nothing_are_told_apart)
{
	static const char *const names[] = {"3.8", "3.9", "3.10"};

	for (size_t v = 0; v < 3; v++) {
		struct image *im = image_of(v);
		struct python_memory memory = {.ctx = im, .read = image_read};
		struct python_place place = {.runtime = im->runtime};
		struct python *p = NULL;
		struct err err = {0};

		three_frames(im, im->main_thread);
		check(!python_new(&memory, &place, &p, &err));
		check_str(p ? python_version_text(p) : err.text, names[v]);
		python_free(p);
		/* A hint that is wrong does not help. */
		place.minor = v == 0 ? 9 : 8;
		check(python_new(&memory, &place, &p, &err) == -EOPNOTSUPP);
		image_free(im);
	}
}

static const char *version_by_text(const char *text, char *ret)
{
	struct image *im = image_new(0x030812f0, false);
	struct python_memory memory = {.ctx = im, .read = image_read};
	uint64_t at = image_take(im, 300000) + 262144 - 100;
	struct python_place place = {.runtime = im->runtime, .data_start = im->runtime,
		.data_end = IMAGE_BASE + IMAGE_BYTES};
	struct python *p = NULL;
	struct err err = {0};

	three_frames(im, im->main_thread);
	image_put(im, at, text, strlen(text) + 1);
	if (python_new(&memory, &place, &p, &err))
		snprintf(ret, 64, "%.63s", err.text);
	else
		snprintf(ret, 64, "%s", python_version_text(p));
	python_free(p);
	image_free(im);
	return ret;
}

TEST(the_version_stands_in_the_data_as_text)
{
	char got[64];

	check_str(version_by_text("3.8.18 (default, May  9 2026, 07:29:33) \n[GCC 12.2.0]", got), "3.8.18");
	check_str(version_by_text("3.8.2+ (heads/3.8:abc, May  9 2026) [Clang]", got), "3.8.2");
	check_str(version_by_text("3.8.0rc1 (default, May  9 2026) \n[GCC 9]", got), "3.8.0rc1");
	check_str(version_by_text("3.8.0b4 (default) [GCC 9]", got), "3.8.0b4");
	/* None of these is one. */
	check_str(version_by_text("3.8.18", got), "3.8");
	check_str(version_by_text("3.8.18 (default) GCC", got), "3.8");
	check_str(version_by_text("3.8.181 (default) [GCC]", got), "3.8");
	check_str(version_by_text("3.7.16 (default, x) \n[GCC 9]", got), "Python 3.7.16 is too old: stacks are read from 3.8 on");
}

TEST(threads_and_their_native_ids)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		const uint32_t tids[] = {100, 101, 102};
		struct python_threads threads = {0};
		struct python *p;

		image_thread(im, 101);
		image_thread(im, 102);
		p = opened(im, v);
		check(!python_threads(p, tids, 3, &threads, NULL));
		check_u64(threads.len, 3);
		for (size_t i = 0; i < threads.len; i++) {
			check_u64(threads.data[i].native_id, 102 - i);
			check_u64(threads.data[i].main, i == 2);
		}
		python_free(p);
		p = opened(im, v);
		check(!python_threads(p, NULL, 0, &threads, NULL));
		check_u64(threads.data[0].native_id, im->minor >= 11 ? 102 : 0);
		/* A list that leads into nothing: what was found stays. */
		image_u64(im, im->main_thread, im->layout.thread.next, 0x5000);
		python_refresh(p);
		check_u64(python_threads(p, tids, 3, &threads, NULL), -EFAULT);
		check_u64(threads.len, 3);
		/* A list without an end. */
		image_u64(im, im->main_thread, im->layout.thread.next, im->main_thread);
		python_refresh(p);
		check_u64(python_threads(p, tids, 3, &threads, NULL), -EFAULT);
		check_u64(threads.len, PYTHON_MOST_THREADS);
		vec_release(&threads);
		python_free(p);
		image_free(im);
	}
}

TEST(the_main_interpreter_comes_first)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		const struct python_layout *l = &im->layout;
		uint64_t second = image_take(im, l->interpreter.bytes), first = im->interpreter, gil;
		struct python_threads threads = {0};
		struct python *p;

		/* The newest is the head of the list. */
		image_u64(im, second, l->interpreter.next, first);
		image_u64(im, second, l->interpreter.id, 1);
		if (l->interpreter.gil != PYTHON_ABSENT) {
			gil = image_take(im, l->gil.bytes);
			image_u64(im, second, l->interpreter.gil, gil);
		}
		image_u64(im, im->runtime, l->runtime.head, second);
		im->interpreter = second;
		image_thread(im, 200);
		p = opened(im, v);
		check(!python_threads(p, NULL, 0, &threads, NULL));
		check_u64(threads.len, 2);
		check_u64(threads.data[0].interpreter_id, 0);
		check_u64(threads.data[0].interpreter, first);
		check_u64(threads.data[1].interpreter_id, 1);
		check(threads.data[1].main);
		/* They go in a circle. */
		image_u64(im, first, l->interpreter.next, second);
		python_refresh(p);
		check_u64(python_threads(p, NULL, 0, &threads, NULL), -EFAULT);
		vec_release(&threads);
		python_free(p);
		image_free(im);
	}
}

TEST(the_lock_and_who_has_it)
{
	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		const struct python_layout *l = &im->layout;
		struct python *p = opened(im, v);
		struct python_threads threads = {0};
		struct python_gil gil;
		uint64_t at;

		check(!python_threads(p, NULL, 0, &threads, NULL));
		check(!python_gil(p, &threads.data[0], &gil, NULL));
		check(!gil.locked && !gil.holder);
		check_u64(gil.off, im->free_threaded);
		at = gil.address;
		image_u64(im, at, l->gil.holder, im->main_thread);
		image_u32(im, at, l->gil.locked, 1);
		image_u64(im, at, l->gil.switches, 7);
		python_refresh(p);
		check(!python_gil(p, &threads.data[0], &gil, NULL));
		check(gil.locked && gil.holder == im->main_thread && gil.switches == 7);
		check_u64(gil.bytes, l->gil.bytes);
		vec_release(&threads);
		python_free(p);
		image_free(im);
	}
}

/* ---- strings ---- */

static void check_text(struct python *p, uint64_t at, size_t most, const char *want, bool cut)
{
	struct buf got = {0};
	bool is_cut = false;

	buf_str(&got, "");
	python_refresh(p);
	check(python_str(p, at, most, &got, &is_cut));
	check_str(got.data ? got.data : "", want);
	check_u64(is_cut, cut);
	buf_release(&got);
}

TEST(strings_of_all_kinds_are_utf_8)
{
	static const uint8_t latin[] = {'c', 'a', 'f', 0xe9};
	static const uint16_t ucs2[] = {0x434, 0x43e, 0x43c, 0x65e5};
	static const uint16_t lone[] = {'a', 0xdcff, 'b'};
	static const uint32_t ucs4[] = {0x1f40d, 'x', 0x110000};

	EACH_VERSION(v)
	{
		struct image *im = image_of(v);
		struct python *p = opened(im, v);
		struct buf none = {0};
		uint64_t sub = image_type(im, "app.Text", 80, 1ULL << 28), at;

		check_text(p, image_str(im, ""), 10, "", false);
		check_text(p, image_str(im, "plain"), 10, "plain", false);
		check_text(p, image_str(im, "plain"), 3, "pla", true);
		check_text(p, image_str_of(im, 1, false, latin, 4), 10, "café", false);
		check_text(p, image_str_of(im, 2, false, ucs2, 4), 10, "дом日", false);
		check_text(p, image_str_of(im, 2, false, lone, 3), 10, "a\xef\xbf\xbd"
									"b",
			false);
		check_text(p, image_str_of(im, 4, false, ucs4, 3), 10, "🐍x\xef\xbf\xbd", false);
		/* An instance of a subclass points to its characters. */
		at = image_take(im, 128);
		image_u64(im, at, im->layout.object.type, sub);
		image_u64(im, at, im->layout.unicode.length, 3);
		image_u32(im, at, im->layout.unicode.state, 1u << im->layout.unicode.kind_shift);
		image_u64(im, at, im->layout.unicode.data, image_bytes(im, "sub", 3) + im->layout.bytes.data);
		check_text(p, at, 10, "sub", false);
		/* No string; a length that is none; characters that are not there. */
		check(!python_str(p, im->code_type, 10, &none, NULL));
		check(!python_str(p, 0, 10, &none, NULL));
		image_u64(im, at, im->layout.unicode.length, UINT64_MAX);
		python_refresh(p);
		check(!python_str(p, at, 10, &none, NULL));
		image_u64(im, at, im->layout.unicode.length, 3);
		image_u64(im, at, im->layout.unicode.data, 0x123456789000);
		python_refresh(p);
		check(!python_str(p, at, 10, &none, NULL));
		check_u64(none.len, 0);
		buf_release(&none);
		python_free(p);
		image_free(im);
	}
}

/* ---- line tables ---- */

struct wanted {
	uint32_t offset;
	struct python_position at;
};

static void check_lines(enum python_line_form form, const void *table, size_t len, const struct wanted *want,
	size_t count)
{
	struct python_ranges ranges = {0};

	check(!python_ranges_decode(form, (const uint8_t *)table, len, 10, &ranges));
	for (size_t i = 0; i < count; i++) {
		struct python_position got = python_ranges_find(&ranges, want[i].offset);

		check_u64(got.line, want[i].at.line);
		check_u64(got.end_line, want[i].at.end_line);
		check_u64(got.column, want[i].at.column);
		check_u64(got.end_column, want[i].at.end_column);
	}
	for (size_t i = 1; i < ranges.len; i++)
		check(ranges.data[i - 1].start < ranges.data[i].start);
	vec_release(&ranges);
}

#define LINES(form, table, ...)                                                                    \
	do {                                                                                       \
		const struct wanted want_[] = {__VA_ARGS__};                                       \
		check_lines(form, table, sizeof(table), want_, sizeof(want_) / sizeof(want_[0]));  \
	} while (0)

TEST(lnotab)
{
	/* Steps of more than 255 bytes or 127 lines take several pairs; lines go back, too. */
	static const uint8_t table[] = {6, 1, 255, 0, 10, 127, 0, 127, 4, 0xff, 2};

	LINES(PYTHON_LNOTAB, table, {0, {.line = 10}}, {5, {.line = 10}}, {6, {.line = 11}}, {270, {.line = 11}},
		{271, {.line = 265}}, {274, {.line = 265}}, {275, {.line = 264}}, {5000, {.line = 264}});
	check_lines(PYTHON_LNOTAB, NULL, 0, &(struct wanted){7, {.line = 10}}, 1);
}

TEST(linetable)
{
	static const uint8_t table[] = {2, 0, 4, 1, 6, 0x80, 0, 100, 8, 0xfe};

	LINES(PYTHON_LINETABLE, table, {0, {.line = 10}}, {2, {.line = 11}}, {5, {.line = 11}}, {6, {0}}, {11, {0}},
		{12, {.line = 109}}, {19, {.line = 109}}, {20, {0}});
}

TEST(locations)
{
	static const uint8_t table[] = {
		0xf0 | 1, 2, 1, 4, 8,     /* long, 2 units: line + 1, end + 1, columns 3 and 7 */
		0x80 | 3 << 3 | 0, 0x25,  /* short, 1 unit: column 26, 5 wide */
		0x80 | 11 << 3 | 0, 3, 9, /* one line: line + 1 */
		0xf8 | 1,                 /* none, 2 units */
		0xe8 | 7, 0x40 | 3, 4,    /* no columns, 8 units: back by 129 / 2 */
		0xf0, 0x40 | 8, 5, 0, 0, 0, /* long without columns: line + 164 */
	};

	LINES(PYTHON_LOCATIONS, table, {0, {11, 12, 4, 8}}, {3, {11, 12, 4, 8}}, {4, {11, 11, 27, 32}},
		{6, {12, 12, 4, 10}}, {8, {0}}, {11, {0}}, {12, {0}});
}

TEST(locations_without_columns)
{
	static const uint8_t table[] = {0xe8 | 1, 6, 0xf0, 0x40 | 8, 5, 2, 0, 0, 0xe8, 3};

	/* +3; 8 + 5 * 64 = 328: +164, two lines; back by one. */
	LINES(PYTHON_LOCATIONS, table, {0, {.line = 13, .end_line = 13}}, {4, {.line = 177, .end_line = 179}},
		{6, {.line = 176, .end_line = 176}}, {8, {0}});
}

TEST(line_tables_that_end_early)
{
	static const uint8_t cut[] = {0xe8 | 1, 6, 0xf0, 0x40 | 8};
	static const uint8_t no_start[] = {0xe8, 2, 0x12, 0xe8, 2};
	static const uint8_t endless[] = {0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
	static const uint8_t odd[] = {4, 1, 9};

	LINES(PYTHON_LOCATIONS, cut, {0, {.line = 13, .end_line = 13}}, {4, {0}});
	LINES(PYTHON_LOCATIONS, no_start, {0, {.line = 11, .end_line = 11}}, {2, {0}});
	LINES(PYTHON_LOCATIONS, endless, {0, {0}});
	LINES(PYTHON_LNOTAB, odd, {0, {.line = 10}}, {4, {.line = 11}});
	LINES(PYTHON_LINETABLE, odd, {0, {.line = 11}}, {4, {0}});
}

/* ---- memory ---- */

TEST(pages_are_read_once_a_look)
{
	struct image *im = image_new(0x030d00f0, false);
	struct python_memory memory = {.ctx = im, .read = image_read};
	struct python_pages *pages = calloc(1, sizeof(*pages));
	uint64_t v, sum = 0, base = IMAGE_BASE + PYTHON_BLOCK_BYTES;

	for (size_t i = 0; i < IMAGE_BYTES; i += 8)
		image_put(im, IMAGE_BASE + i, &i, 8);
	python_pages_init(pages, &memory);
	im->reads = 0;
	for (uint64_t at = base; at < base + PYTHON_BLOCK_BYTES; at += 8) {
		check(python_pages_read(pages, at, &v, 8));
		sum += v != at - IMAGE_BASE;
	}
	check_u64(sum, 0);
	check(im->reads <= 8);
	/* What was read stays as it was until the next look. */
	v = 77;
	image_put(im, base, &v, 8);
	check(python_pages_read(pages, base, &v, 8) && v == PYTHON_BLOCK_BYTES);
	python_pages_refresh(pages);
	check(python_pages_read(pages, base, &v, 8) && v == 77);
	/* Over the border of two blocks, and at the end of what there is. */
	check(python_pages_read(pages, base + PYTHON_BLOCK_BYTES - 4, &v, 8));
	check(python_pages_read(pages, IMAGE_BASE + IMAGE_BYTES - 8, &v, 8));
	check(!python_pages_read(pages, IMAGE_BASE + IMAGE_BYTES - 4, &v, 8));
	check(!python_pages_read(pages, UINT64_MAX - 3, &v, 8));
	python_pages_release(pages);
	free(pages);
	image_free(im);
}

TEST(pages_around_a_hole)
{
	struct image *im = image_new(0x030d00f0, false);
	struct python_memory memory = {.ctx = im, .read = image_read};
	struct python_pages *pages = calloc(1, sizeof(*pages));
	uint64_t v, base = IMAGE_BASE + PYTHON_BLOCK_BYTES;
	unsigned long before;

	im->hole = base + 5 * PYTHON_PAGE_BYTES;
	im->hole_bytes = PYTHON_PAGE_BYTES;
	python_pages_init(pages, &memory);
	for (unsigned page = 0; page < PYTHON_BLOCK_PAGES; page++)
		check(python_pages_read(pages, base + page * PYTHON_PAGE_BYTES, &v, 8) == (page != 5));
	before = im->reads;
	for (unsigned page = 0; page < PYTHON_BLOCK_PAGES; page++)
		check(python_pages_read(pages, base + page * PYTHON_PAGE_BYTES, &v, 8) == (page != 5));
	check_u64(im->reads, before);
	python_pages_release(pages);
	free(pages);
	image_free(im);
}

TEST(more_blocks_than_there_is_room_for)
{
	struct image *im = image_new(0x030d00f0, false);
	struct python_memory memory = {.ctx = im, .read = image_read};
	struct python_pages *pages = calloc(1, sizeof(*pages));
	uint64_t v;

	python_pages_init(pages, &memory);
	for (uint64_t block = 0; block < 4ULL * PYTHON_SETS * PYTHON_WAYS; block++)
		(void)python_pages_read(pages, block * PYTHON_BLOCK_BYTES, &v, 8);
	for (uint64_t at = IMAGE_BASE; at < IMAGE_BASE + IMAGE_BYTES; at += PYTHON_BLOCK_BYTES)
		check(python_pages_read(pages, at, &v, 8));
	python_pages_release(pages);
	free(pages);
	image_free(im);
}

/* ---- what a process says of its structs ---- */

static int own_with(uint32_t field, uint64_t value)
{
	struct image *im = image_new(0x030d00f0, false);
	int column = python_layout_column_of(0x030d00f0, false), bad;
	uint32_t at = python_layout_own[field][column];

	three_frames(im, im->main_thread);
	image_put(im, im->runtime + at, &value, 8);
	bad = tried(im, 0x030d00f0, "Python 3.13.0");
	image_free(im);
	return bad;
}

#define OWN(name) (offsetof(struct python_layout, name) / 4)

TEST(tables_that_cannot_be_true)
{
	check_u64(own_with(OWN(thread.next), 1u << 20), -EOPNOTSUPP);
	check_u64(own_with(OWN(thread.next), 12), -EOPNOTSUPP);          /* not aligned */
	check_u64(own_with(OWN(thread.next), UINT64_MAX), -EOPNOTSUPP);
	check_u64(own_with(OWN(frame.code), 8), -EOPNOTSUPP);            /* over `previous` */
	check_u64(own_with(OWN(frame.owner), 80), -EOPNOTSUPP);          /* behind the frame */
	check_u64(own_with(OWN(code.bytecode), 10), -EOPNOTSUPP);        /* all of it is behind that */
	check_u64(own_with(OWN(runtime.head), 0), -EOPNOTSUPP);          /* the cookie is no interpreter */
}

static int everything(struct image *im)
{
	struct err err = {0};
	struct python *p = NULL;
	struct python_link links[16];
	uint64_t cframes[16];
	struct python_chain chain = {.links = links, .limit = 16, .cframes = cframes, .cframe_limit = 16};
	struct python_frames frames = {0};
	struct python_threads threads = {0};
	int bad = image_open(im, 0x030c01f0, &p, &err);

	if (bad)
		return bad;
	python_refresh(p);
	bad = python_threads(p, NULL, 0, &threads, &err);
	python_chain_read(p, im->main_thread, &chain);
	if (!bad)
		bad = python_frames(p, &chain, &frames);
	vec_release(&threads);
	vec_release(&frames);
	python_free(p);
	return bad;
}

/* Pages are only a cache, so not each allocation that fails is an error; but nothing else may come of it. */
TEST(no_memory)
{
	struct image *im = image_new(0x030c01f0, false);
	int bad = -ENOMEM;

	three_frames(im, im->main_thread);
	for (uint64_t n = 0; n < 1000; n++) {
		alloc_fail_begin(n);
		bad = everything(im);
		if (!alloc_fail_end())
			break;
		check(bad == 0 || bad == -ENOMEM);
	}
	check_u64(bad, 0);
	image_free(im);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(frames_of_every_version), T(a_chain_that_is_cut_or_goes_in_a_circle),
		T(long_circles_end), T(what_is_inside_a_torn_frame_stands),
		T(an_offset_outside_of_the_code_has_no_line), T(bytecode_of_a_thread), T(cframes_are_paired_from_the_outer_end),
		T(another_code_object_at_the_same_place_is_another_one), T(what_is_not_known_is_refused_in_words),
		T(memory_of_another_version_is_refused), T(a_thread_without_frames_is_enough), T(versions_that_say_nothing_are_told_apart),
		T(the_version_stands_in_the_data_as_text), T(threads_and_their_native_ids),
		T(the_main_interpreter_comes_first), T(the_lock_and_who_has_it), T(strings_of_all_kinds_are_utf_8),
		T(lnotab), T(linetable), T(locations), T(locations_without_columns),
		T(line_tables_that_end_early), T(pages_are_read_once_a_look), T(pages_around_a_hole),
		T(more_blocks_than_there_is_room_for), T(tables_that_cannot_be_true), T(no_memory));
}
