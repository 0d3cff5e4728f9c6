/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/histogram.h"
#include "base/intern.h"
#include "base/table.h"
#include "base/vec.h"

TEST(err_words)
{
	struct err e = {0};

	check(err_set(&e, ENOENT, "no %s", "file") == -ENOENT);
	check_str(e.text, "no file");
	check(err_errno(&e, EACCES, "open %s", "x") == -EACCES);
	check_str(e.text, "open x: Permission denied");
	check(err_prefix(&e, "recording") == -EACCES);
	check_str(e.text, "recording: open x: Permission denied");
	check(err_set(NULL, EIO, "nobody listens") == -EIO);
}

TEST(vec_grows)
{
	VEC(int) v = {0};

	for (int i = 0; i < 1000; i++)
		check(!vec_push(&v, i));
	check_u64(v.len, 1000);
	int sum = 0;
	vec_each(&v, it)
		sum += *it;
	check_u64((uint64_t)sum, 499500);
	check(vec_reserve(&v, SIZE_MAX / 2) == -ENOMEM);
	check_u64(v.len, 1000);
	vec_release(&v);
	check(!v.data && !v.cap);
}

TEST(buf_text)
{
	struct buf b = {0};

	buf_json(&b, "a\"b\\\n\x01\xff\xc3\xa9");
	check_str(b.data, "\"a\\\"b\\\\\\u000a\\u0001\xef\xbf\xbd\xc3\xa9\"");
	buf_clear(&b);
	buf_json(&b, "\x1b\x7f\xc2\x9b\xc2\xa0");
	check_str(b.data, "\"\\u001b\\u007f\\u009b\xc2\xa0\"");
	buf_clear(&b);
	buf_xml(&b, "<a&'b'>\x02\xef\xbf\xbf\xef\xbf\xbd");
	check_str(b.data, "&lt;a&amp;&#39;b&#39;&gt;\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	buf_clear(&b);
	buf_uleb(&b, 624485);
	check_u64(b.len, 3);
	check(!memcmp(b.data, "\xe5\x8e\x26", 3));
	buf_pad(&b, 8);
	check_u64(b.len, 8);
	buf_release(&b);
}

TEST(cursor_is_sticky)
{
	const uint8_t bytes[] = {1, 2, 0, 0, 0x80, 0x80, 0x01, 0x7f, 'h', 'i', 0, 9};
	struct cursor c = cursor_over(bytes, sizeof(bytes));

	check_u64(cursor_u32(&c), 0x201);
	check_u64(cursor_uleb(&c), 1 << 14);
	check(cursor_sleb(&c) == -1);
	check_str(cursor_cstr(&c), "hi");
	check_u64(cursor_left(&c), 1);
	check_u64(cursor_u16(&c), 0);
	check(c.bad);
	check_u64(cursor_u8(&c), 0);
	check_u64(cursor_left(&c), 0);

	c = cursor_over(bytes, 4);
	cursor_skip(&c, UINT64_MAX);
	check(c.bad);
	c = cursor_over("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
	cursor_uleb(&c);
	check(c.bad);
	c = cursor_over("abc", 3);
	check_str(cursor_cstr(&c), "");
	check(c.bad);
}

TEST(hash_is_xxh64)
{
	/* Known values of the xxHash test suite, seed 0. */
	check_u64(hash_bytes("", 0), 0xef46db3751d8e999ULL);
	check_u64(hash_bytes("a", 1), 0xd24ec4f1a98c6e5bULL);
	check_u64(hash_bytes("abc", 3), 0x44bc2cf5ad770999ULL);
	check_u64(hash_bytes("Call me Ishmael. Some years ago--never mind how long precisely-", 63),
		0x02a2e85470d6fd96ULL);
}

TEST(intern_is_stable)
{
	struct intern t = {0};
	char name[16];

	check_u64(intern_find(&t, "x", 1), INTERN_NONE);
	const char *first = NULL;
	for (unsigned i = 0; i < 20000; i++) {
		int len = snprintf(name, sizeof(name), "n%u", i);
		check_u64(intern_add(&t, name, (size_t)len), i);
		if (!i)
			first = intern_get(&t, 0, NULL);
	}
	check_u64(intern_str(&t, "n777"), 777);
	check_u64(intern_find(&t, "n19999", 6), 19999);
	check(intern_get(&t, 0, NULL) == first);
	check_u64(intern_add(&t, "n\0x", 3), 20000);
	check_u64(intern_add(&t, "", 0), 20001);
	intern_release(&t);
}

static bool near(uint64_t got, uint64_t want)
{
	return got * 100 >= want * 93 && got * 100 <= want * 107;
}

TEST(histogram_tells_quantiles)
{
	static struct histogram h, few;

	check_u64(histogram_quantile(&h, 500), 0);
	check_u64(histogram_mean(&h), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		histogram_add(&h, i);
	check_u64(histogram_mean(&h), 50000);
	check(near(histogram_quantile(&h, 500), 50000));
	check(near(histogram_quantile(&h, 990), 99000));
	check_u64(histogram_quantile(&h, 1000), 100000);
	histogram_add(&few, 3);
	histogram_add(&few, UINT64_MAX);
	check_u64(histogram_quantile(&few, 500), 3);
	check_u64(histogram_quantile(&few, 501), UINT64_MAX);
}

TEST(table_finds_what_is_in_it)
{
	static struct table_node nodes[500];
	struct table t = {0};
	size_t seen = 0;

	check(!table_find(&t, 7) && !table_next(&t, NULL));
	for (uint64_t i = 0; i < 500; i++)
		check(!table_add(&t, &nodes[i], i << 32));
	for (uint64_t i = 0; i < 500; i++)
		check(table_find(&t, i << 32) == &nodes[i]);
	check(!table_find(&t, 7));
	for (struct table_node *n = NULL; (n = table_next(&t, n));)
		seen++;
	check_u64(seen, 500);
	for (uint64_t i = 0; i < 500; i += 2)
		table_remove(&t, &nodes[i]);
	check_u64(t.count, 250);
	for (uint64_t i = 0; i < 500; i++)
		check(table_find(&t, i << 32) == (i % 2 ? &nodes[i] : NULL));
	table_release(&t);
	check(!table_find(&t, 1ULL << 32));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(err_words), T(vec_grows), T(buf_text), T(cursor_is_sticky),
		T(hash_is_xxh64), T(intern_is_stable), T(histogram_tells_quantiles),
		T(table_finds_what_is_in_it));
}
