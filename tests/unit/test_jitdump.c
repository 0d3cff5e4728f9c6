/* SPDX-License-Identifier: BSD-2-Clause */
/* Jitdump files: which code lay where and when, its name and line, and files that make no sense. */
#include "test.h"

#include <stdlib.h>

#include "base/clock.h"
#include "jitdump_bytes.h"
#include "symbol/jitdump.h"

static struct jitdump *opened(int fd)
{
	struct jitdump *d = NULL;
	struct err err = {0};

	check(!jitdump_open(dup(fd), &d, &err));
	if (!d) {
		printf("%s\n", err.text);
		exit(1);
	}
	return d;
}

static void follow(struct jitdump *d)
{
	while (jitdump_follow(d))
		;
}

/* "name", "name file:line", or why there is none, of what lay at `address` at that time. */
static const char *name_then(struct jitdump *d, uint64_t address, uint64_t time_ns)
{
	static char text[512];
	struct symbol_source *s = NULL;
	struct jitdump_code code;

	if (!jitdump_find(d, address, time_ns, &code))
		return "nothing";
	check(address >= code.start && address < code.end);
	check(!symbol_source_jitdump(d, &s, NULL));

	struct symbol_answer a = symbol_resolve(s, code.offset + (address - code.start));

	if (!a.count)
		snprintf(text, sizeof(text), "%s", symbol_reason_text(a.reason));
	else if (a.levels[0].file)
		snprintf(text, sizeof(text), "%s %s:%u", a.levels[0].name, a.levels[0].file,
			a.levels[0].line);
	else
		snprintf(text, sizeof(text), "%s", a.levels[0].name);
	symbol_source_free(s);
	return text;
}

TEST(names_of_files)
{
	check(jitdump_pid("/tmp/jit-123.dump") == 123);
	check(jitdump_pid("jit-2147483647.dump") == 2147483647);
	check(!jitdump_pid("jit-2147483648.dump"));
	check(!jitdump_pid("jit-99999999999999999999999.dump"));
	check(!jitdump_pid("/tmp/jit-.dump"));
	check(!jitdump_pid("/tmp/jit-12.dump2"));
	check(!jitdump_pid("/tmp/jit-12x.dump"));
	check(!jitdump_pid("/tmp/ajit-12.dump"));
	check(!jitdump_pid("/tmp/jit-12.dump/x"));
	check(!jitdump_pid(""));
}

TEST(code_replaces_code)
{
	int fd = dump_new(0, 0);
	struct jitdump *d = opened(fd);

	dump_load(fd, 1000, 0x10000, 0x80, "first");
	dump_load(fd, 1000, 0x10080, 0x80, "neighbour@app/node_modules/@x/y.js");
	dump_load(fd, 2000, 0x10000, 0x40, "second");
	follow(d);
	check_str(name_then(d, 0xffff, 3000), "nothing");
	check_str(name_then(d, 0x10000, 1000), "first");
	check_str(name_then(d, 0x10000, 1999), "first");
	check_str(name_then(d, 0x10000, 2000), "second");
	check_str(name_then(d, 0x1003f, 9999), "second");
	check_str(name_then(d, 0x10040, 9999), "first");
	check_str(name_then(d, 0x10080, 1500), "neighbour@app/node_modules/@x/y.js");
	check_str(name_then(d, 0x10100, 9999), "nothing");
	/* Told late, the code had begun to run. */
	check_str(name_then(d, 0x10010, 10), "first");
	jitdump_free(d);
	close(fd);
}

TEST(code_is_moved)
{
	int fd = dump_new(0, 0);
	struct jitdump *d = opened(fd);
	struct jitdump_code before, after;

	dump_load(fd, 1000, 0x10000, 0x80, "mover");
	dump_move(fd, 2000, 0x10000, 0x50fc0, 0x80);
	dump_load(fd, 3000, 0x10000, 0x80, "newcomer");
	dump_move(fd, 4000, 0x999, 0x60000, 0x80); /* nothing was there */
	dump_move(fd, 4000, 0x10008, 0x60000, 0x80); /* nor began there */
	follow(d);
	check_str(name_then(d, 0x10020, 1500), "mover");
	check_str(name_then(d, 0x10020, 3500), "newcomer");
	check_str(name_then(d, 0x50fc0, 2500), "mover");
	check_str(name_then(d, 0x5103f, 2500), "mover"); /* in the next page */
	check_str(name_then(d, 0x60000, 9999), "nothing");
	check(jitdump_find(d, 0x10020, 1500, &before) && jitdump_find(d, 0x50fe0, 2500, &after));
	check_u64(before.offset, after.offset);
	check_u64(before.number, after.number);
	jitdump_free(d);
	close(fd);
}

TEST(times_of_another_clock)
{
	int tsc = dump_new(0, 1), far = dump_new(0, 0);
	uint64_t ahead = clock_monotonic_ns() + 3600 * NS_PER_S;

	for (unsigned i = 0; i < 2; i++) {
		struct jitdump *d = opened(i ? far : tsc);

		dump_load(i ? far : tsc, ahead, 0x10000, 0x80, "first");
		dump_load(i ? far : tsc, ahead + 1000, 0x10000, 0x80, "second");
		follow(d);
		check_str(name_then(d, 0x10000, 5), "second");
		jitdump_free(d);
	}
	close(tsc);
	close(far);
}

TEST(lines)
{
	const struct dump_line lines[] = {
		{0x10020, 12, "\xff"},
		{0x10000, 10, "dir/a.js"},
		{0x10010, 11, "\xff"},
		{0x10030, 7, "b.js"},
	};
	const struct dump_line v8[] = {{0x10040, 10, "a.js"}, {0x10050, 11, "a.js"}};
	const struct dump_line broken[] = {{0x10000, 10, "a.js"}, {0x20000, 11, "a.js"}};
	int fd = dump_new(0, 0);
	struct jitdump *d = opened(fd);

	dump_lines(fd, 0x10000, lines + 1, 3);
	dump_lines(fd, 0x20000, lines, 4); /* never loaded */
	dump_load(fd, 1, 0x10000, 0x80, "f");
	dump_load(fd, 2, 0x10000, 0x80, "without");
	dump_lines(fd, 0x10000, broken, 2);
	dump_load(fd, 3, 0x10000, 0x80, "disbelieved");
	follow(d);
	check_str(name_then(d, 0x10000, 1), "f dir/a.js:10");
	check_str(name_then(d, 0x1000f, 1), "f dir/a.js:10");
	check_str(name_then(d, 0x10010, 1), "f dir/a.js:11");
	check_str(name_then(d, 0x1007f, 1), "f b.js:7");
	check_str(name_then(d, 0x10010, 2), "without");
	check_str(name_then(d, 0x10000, 3), "disbelieved");
	jitdump_free(d);
	close(fd);

	fd = dump_new(0xdeadbeef, 0);
	d = opened(fd);
	dump_lines(fd, 0x10000, v8, 2);
	dump_load(fd, 1, 0x10000, 0x80, "f");
	follow(d);
	check_str(name_then(d, 0x10000, 1), "f a.js:10");
	check_str(name_then(d, 0x10010, 1), "f a.js:11");
	jitdump_free(d);
	close(fd);
}

TEST(unwind_information)
{
	int fd = dump_new(0, 0);
	struct jitdump *d = opened(fd);
	struct jitdump_code code;
	char bytes[8] = {0};

	dump_unwind(fd, "ABCDEFGH", 8, 3, 8);
	dump_load(fd, 1, 0x10000, 0x80, "with");
	dump_load(fd, 1, 0x20000, 0x80, "without");
	dump_unwind(fd, "ABCDEFGH", 8, 3, 0);
	dump_load(fd, 1, 0x30000, 0x80, "frame pointers");
	dump_unwind(fd, "ABCDEFGH", 8, 9, 8);
	dump_load(fd, 1, 0x40000, 0x80, "broken");
	follow(d);
	check(jitdump_find(d, 0x10000, 1, &code));
	check_u64(code.unwind_bytes, 8);
	check_u64(code.unwind_hdr_bytes, 3);
	check(jitdump_read(d, code.unwind_offset, bytes, 8) && !memcmp(bytes, "ABCDEFGH", 8));
	for (uint64_t at = 0x20000; at <= 0x40000; at += 0x10000)
		check(jitdump_find(d, at, 1, &code) && !code.unwind_bytes);
	jitdump_free(d);
	close(fd);
}

/* Written while it is read: whatever is cut off in the middle is taken when it is whole. */
TEST(a_growing_file)
{
	int whole = dump_new(0, 0), part = memfd_create("part", MFD_CLOEXEC);
	static uint8_t bytes[4096];

	dump_load(whole, 1, 0x10000, 0x80, "one");
	dump_load(whole, 2, 0x20000, 0x80, "two");

	ssize_t len = pread(whole, bytes, sizeof(bytes), 0);

	struct jitdump *d = opened(part);

	for (ssize_t i = 0; i < len; i++) {
		check(!jitdump_follow(d));
		check_str(name_then(d, 0x20000, 5), "nothing");
		check(write(part, bytes + i, 1) == 1);
	}
	check(!jitdump_follow(d));
	check_str(name_then(d, 0x10000, 5), "one");
	check_str(name_then(d, 0x20000, 5), "two");
	check(!ftruncate(part, 50)); /* what is known stays, names are gone */
	check(!jitdump_follow(d));
	check_str(name_then(d, 0x20000, 5), "stripped");
	jitdump_free(d);
	close(whole);
	close(part);
}

/* More than a buffer, and more than is read in one go. */
TEST(a_large_file)
{
	int fd = dump_new(0, 0);
	unsigned calls = 1;

	for (unsigned i = 0; i < 200; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%u", i);
		dump_load(fd, i, 0x100000 * (uint64_t)i, 50000 + i, name);
	}

	struct jitdump *d = opened(fd);

	for (; jitdump_follow(d); calls++)
		;
	check(calls == 2);
	for (unsigned i = 0; i < 200; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%u", i);
		check_str(name_then(d, 0x100000 * (uint64_t)i + 49000, 1000), name);
	}
	jitdump_free(d);
	close(fd);
}

static void check_refused(const void *bytes, size_t len)
{
	int fd = memfd_create("bad", MFD_CLOEXEC);
	struct jitdump *d;

	check(write(fd, bytes, len) == (ssize_t)len);
	dump_load(fd, 1, 0x10000, 0x80, "f");
	d = opened(fd);
	check(!jitdump_follow(d));
	check_str(name_then(d, 0x10000, 5), "nothing");
	jitdump_free(d);
	close(fd);
}

TEST(what_is_no_jitdump)
{
	uint32_t header[10] = {0x4a695444, 1, 40, DUMP_MACHINE};

	check_refused(header, 39);
	header[0] = 0x4454694a; /* the other byte order */
	check_refused(header, 40);
	header[0] = 0x4a695444;
	header[2] = 39;
	check_refused(header, 40);
	header[2] = 40;
	header[3] = EM_386;
	check_refused(header, 40);
}

TEST(broken_records)
{
	int fd = dump_new(0, 0);
	struct jitdump *d = opened(fd);
	struct buf b = {0};

	/* Loads that are too short, of nothing, and of more than there is. */
	for (unsigned n = 0; n < 48; n++) {
		buf_str(&b, "");
		memset(buf_reserve(&b, n), 0, n);
		b.len = n;
		dump_record(fd, 0, 1, &b);
	}
	dump_load(fd, 1, 0x10000, 0, "nothing");
	for (unsigned i = 0; i < 6; i++)
		buf_u64(&b, 0x20000); /* the size too */
	buf_str(&b, "name");
	buf_u8(&b, 0);
	dump_record(fd, 0, 1, &b);
	for (uint32_t id = 1; id < 9; id++) {
		buf_str(&b, "short");
		dump_record(fd, id, 1, &b);
	}
	dump_load(fd, 1, UINT64_MAX - 4, 0x80, "wraps");
	dump_load(fd, 1, 0x10000, 0x80, "good");
	buf_u64(&b, 0); /* a record of no size: the end */
	buf_u64(&b, 0);
	dump_flush(fd, &b);
	dump_load(fd, 2, 0x10000, 0x80, "beyond");
	follow(d);
	check_str(name_then(d, 0x10000, 5), "good");
	check_str(name_then(d, 0x20000, 5), "nothing");
	check_str(name_then(d, UINT64_MAX - 1, 5), "nothing");
	check(!jitdump_follow(d));
	jitdump_free(d);
	close(fd);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(names_of_files), T(code_replaces_code), T(code_is_moved),
		T(times_of_another_clock), T(lines), T(unwind_information), T(a_growing_file),
		T(a_large_file), T(what_is_no_jitdump), T(broken_records));
}
