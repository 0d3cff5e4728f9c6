/* SPDX-License-Identifier: BSD-2-Clause */
/* Of src/python: objects, the census and what keeps objects alive, on memory that never was. */
#include "alloc_fail.h"
#include "python/alive.h"
#include "python/census.h"
#include "python/marks.h"
#include "python/object_refs.h"
#include "python_heap_image.h"
#include "test.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static void begin(size_t v, struct heap_image *h)
{
	heap_init(h, image_new(versions[v].version, versions[v].free_threaded), 0);
}

static struct python *opened(struct heap_image *h, size_t v)
{
	struct err err = {0};
	struct python *p = NULL;

	if (image_open(h->im, versions[v].version, &p, &err))
		printf("version %x: %s\n", versions[v].version, err.text);
	check(p != NULL);
	return p;
}

static void end(struct heap_image *h, struct python *p)
{
	python_free(p);
	image_free(h->im);
}

static void check_shown(struct python *p, uint64_t object, const char *want)
{
	struct buf text = {0};

	python_refresh(p);
	python_show(p, object, 200, 3, &text);
	check_str(text.data, want);
	buf_release(&text);
}

/* What the image has been given since is seen after a refresh. */
static bool read_int(struct python *p, uint64_t object, int64_t *ret)
{
	python_refresh(p);
	return python_int(p, object, ret);
}

static uint64_t value_of(struct python *p, uint64_t dict, const char *key)
{
	python_refresh(p);
	return python_dict_get(p, dict, key);
}

TEST(ints_of_one_to_three_digits)
{
	static const uint32_t one[] = {42}, two[] = {1, 1}, most[] = {0x3fffffff, 0x3fffffff, 7},
		least[] = {0, 0, 8}, more[] = {0, 0, 16}, bad[] = {1u << 30};

	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		int64_t n;

		begin(v, &h);
		p = opened(&h, v);
		check(read_int(p, heap_int(&h, false, one, 0), &n) && n == 0);
		check(read_int(p, heap_int(&h, false, one, 1), &n) && n == 42);
		check(read_int(p, heap_int(&h, true, one, 1), &n) && n == -42);
		check(read_int(p, heap_int(&h, false, two, 2), &n) && n == (1 << 30) + 1);
		check(read_int(p, heap_int(&h, false, most, 3), &n) && n == INT64_MAX);
		check(read_int(p, heap_int(&h, true, least, 3), &n) && n == INT64_MIN);
		check(!read_int(p, heap_int(&h, false, least, 3), &n));
		check(!read_int(p, heap_int(&h, false, more, 3), &n));
		check(!read_int(p, heap_int(&h, false, bad, 1), &n));
		check(!read_int(p, image_str(h.im, "5"), &n));
		check_shown(p, heap_int(&h, true, two, 2), "-1073741825");
		check_shown(p, heap_int(&h, false, more, 3), "<int of about 90 bits>");
		end(&h, p);
	}
}

TEST(dicts_of_all_kinds)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t keys[3], values[3], dict;

		begin(v, &h);
		for (unsigned i = 0; i < 3; i++) {
			uint32_t digit = 10 + i;

			keys[i] = image_str(h.im, i == 0 ? "one" : i == 1 ? "two" : "three");
			values[i] = heap_int(&h, false, &digit, 1);
		}
		p = opened(&h, v);
		for (enum heap_keys kind = HEAP_GENERAL; kind <= HEAP_SPLIT; kind++) {
			dict = heap_dict(&h, kind, keys, values, 3);
			python_refresh(p);
			check_u64(python_dict_count(p, dict), 3);
			check_u64(value_of(p, dict, "two"), values[1]);
			check_u64(value_of(p, dict, "tw"), 0);
			check_u64(value_of(p, dict, "twoo"), 0);
			check_shown(p, dict, "{'one': 10, 'two': 11, 'three': 12}");
		}
		/* What was removed has a key that is no more, or no value. */
		values[1] = 0;
		check_shown(p, heap_dict(&h, HEAP_UNICODE, keys, values, 3),
			"{'one': 10, 'three': 12, \xe2\x80\xa6" "1 more}");
		check_u64(value_of(p, heap_dict(&h, HEAP_SPLIT, keys, values, 3), "two"), 0);
		check_u64(value_of(p, keys[0], "two"), 0);
		end(&h, p);
	}
}

TEST(dicts_that_cannot_be)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t key, dict, table;
		const struct python_layout *l;

		begin(v, &h);
		l = &h.im->layout;
		key = image_str(h.im, "key");
		dict = heap_dict(&h, HEAP_GENERAL, &key, &key, 1);
		p = opened(&h, v);
		table = image_get(h.im, dict + l->dict.keys);
		/* More entries than there is room for; no power of two; sizes beyond all bounds; nowhere. */
		image_u64(h.im, table, l->dict_keys.count, 6);
		check_u64(value_of(p, dict, "key"), 0);
		image_u64(h.im, table, l->dict_keys.count, 1);
		image_u64(h.im, table, l->dict_keys.size, 7);
		image_u8(h.im, table, l->dict_keys.log2_size, 200);
		check_u64(value_of(p, dict, "key"), 0);
		image_u64(h.im, table, l->dict_keys.size, 1ULL << 60);
		if (l->dict_keys.log2_size != PYTHON_ABSENT)
			image_u8(h.im, table, l->dict_keys.log2_size + 1, 63);
		check_u64(value_of(p, dict, "key"), 0);
		image_u64(h.im, dict, l->dict.keys, 8);
		check_u64(value_of(p, dict, "key"), 0);
		check_shown(p, dict, "{\xe2\x80\xa6" "1 more}");
		end(&h, p);
	}
}

TEST(attributes_wherever_they_are)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t class, instance, keys[2], values[2];
		const struct python_type *t;

		begin(v, &h);
		class = heap_class(&h, "app.models", "User", "Outer.User");
		keys[0] = image_str(h.im, "name");
		keys[1] = image_str(h.im, "age");
		values[0] = image_str(h.im, "Ada");
		values[1] = heap_int(&h, false, (const uint32_t[]){36}, 1);
		instance = heap_instance(&h, class, keys, values, 2);
		p = opened(&h, v);
		t = python_type(p, class);
		check(t && t->heap && t->collected);
		check_str(t ? t->name : "", "User");
		check_str(t ? t->module : "", "app.models");
		check_str(t ? t->full_name : "", "app.models.Outer.User");
		check(python_is(p, instance, "User"));
		check_u64(python_attribute(p, instance, "name"), values[0]);
		check_u64(python_attribute(p, instance, "age"), values[1]);
		check_u64(python_attribute(p, instance, "size"), 0);
		check_u64(python_attribute(p, values[0], "name"), 0);
		end(&h, p);
	}
}

/* 3.13 and later: values that were moved to a dict are stale where they were. */
TEST(inline_values_that_are_no_more_valid)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t class, instance, key, value, other;
		const struct python_layout *l;

		begin(v, &h);
		l = &h.im->layout;
		class = heap_class(&h, "app", "User", "User");
		key = image_str(h.im, "name");
		value = image_str(h.im, "Ada");
		other = image_str(h.im, "Grace");
		instance = heap_instance(&h, class, &key, &value, 1);
		p = opened(&h, v);
		if (h.im->minor >= 13) {
			image_u8(h.im, instance + image_get(h.im, class + l->type.basic_bytes),
				l->dict_values.valid, 0);
			python_refresh(p);
			check_u64(python_attribute(p, instance, "name"), 0);
			image_set(h.im, instance - l->managed.dict,
				heap_dict(&h, HEAP_UNICODE, &key, &other, 1));
			python_refresh(p);
			check_u64(python_attribute(p, instance, "name"), other);
		}
		end(&h, p);
	}
}

TEST(containers_as_text)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t items[3], list, tuple, circle;

		begin(v, &h);
		for (unsigned i = 0; i < 3; i++)
			items[i] = heap_int(&h, false, &(uint32_t){i + 1}, 1);
		list = heap_list(&h, items, 3);
		tuple = heap_tuple(&h, &list, 1);
		circle = heap_list(&h, items, 3);
		image_set(h.im, image_get(h.im, circle + h.im->layout.list.items), circle);
		p = opened(&h, v);
		check_shown(p, list, "[1, 2, 3]");
		check_shown(p, tuple, "([1, 2, 3],)");
		check_shown(p, heap_set(&h, items, 2), "{1, 2}");
		check_shown(p, heap_set(&h, items, 0), "set()");
		check_shown(p, circle, "[[\xe2\x80\xa6" "3 more], 2, 3]");
		check_shown(p, 0x10, "<unreadable at 0x10>");
		check_shown(p, image_str(h.im, "it's\n\x1b"), "'it\\'s\\n\\x1b'");
		/* Lengths that cannot be. */
		image_u64(h.im, list, h.im->layout.var_object.size, UINT64_MAX);
		python_refresh(p);
		check(!python_items(p, list, &items[0], &items[1]));
		end(&h, p);
	}
}

/* Another type at the same place is another one, and what was handed out stays. */
TEST(types_are_checked_again)
{
	EACH_VERSION(v)
	{
		struct heap_image h;
		struct python *p;
		uint64_t class;
		const struct python_type *before, *after;

		begin(v, &h);
		class = heap_class(&h, "app", "User", "User");
		p = opened(&h, v);
		before = python_type(p, class);
		python_refresh(p);
		check(python_type(p, class) == before);
		image_u64(h.im, class, h.im->layout.type.name, image_get(h.im, h.list + h.im->layout.type.name));
		python_refresh(p);
		after = python_type(p, class);
		check(after && after != before);
		check_str(before ? before->name : "", "User");
		check_str(after ? after->name : "", "list");
		/* Not even a type. */
		check(!python_type(p, class - 16));
		check(!python_type(p, class + 4));
		end(&h, p);
	}
}

TEST(marks)
{
	struct marks m = {0};
	uint64_t before = 0;

	check_u64(marks_add(&m, 0x7f0000000010), 1);
	check_u64(marks_add(&m, 0x7f0000000010), 0);
	for (uint64_t at = 0x100000; at < 0x300000; at += 0x1238)
		check_u64(marks_add(&m, at), 1);
	check(marks_have(&m, 0x100000) && !marks_have(&m, 0x100008) && marks_have(&m, 0x7f0000000010));
	check_u64(m.count, 0x200000 / 0x1238 + 2);
	check(before == 0);
	marks_release(&m);
	check(!marks_have(&m, 0x100000));
}

/* ---- the census ---- */

static const struct python_census_row *row_of(const struct python_census *c, const char *name)
{
	static const struct python_census_row none;

	vec_each(&c->rows, row)
		if (!strcmp(row->name, name))
			return row;
	return &none;
}

static int census(struct python *p, bool loose, struct python_census *ret)
{
	struct python_census_options options = {.loose = loose};
	struct err err = {0};
	int rc = python_census(p, &options, ret, &err);

	if (rc)
		check(*err.text);
	return rc;
}

TEST(census_of_every_version)
{
	EACH_VERSION(v)
	{
		struct python_census c = {0};
		struct heap_image h;
		struct python *p;
		uint64_t instances[3];

		begin(v, &h);
		heap_populate(&h, instances);
		p = opened(&h, v);
		if (h.im->free_threaded) {
			check(census(p, false, &c) == -EOPNOTSUPP);
			python_census_release(&c);
			end(&h, p);
			continue;
		}
		check_u64(census(p, false, &c), 0);
		check_u64(row_of(&c, "app.Leaky")->objects, 3);
		check_u64(row_of(&c, "list")->objects, 1);
		check_u64(row_of(&c, "module")->objects, 1);
		check_u64(c.frozen, 1);
		check_u64(c.gaps, 0);
		check_u64(c.interpreters, 1);
		check_u64(c.loose, 0);
		check(marks_have(&c.objects_at, instances[2]));
		/* The list: the collector's head, itself, and ten slots. */
		check_u64(row_of(&c, "list")->bytes, 16 + h.im->layout.list.allocated + 8 + 80);
		python_census_release(&c);
		check_u64(census(p, true, &c), 0);
		check_u64(row_of(&c, "app.Leaky")->objects, 3);
		check_u64(row_of(&c, "int")->loose, 3);
		check(row_of(&c, "str")->loose >= 2);
		python_census_release(&c);
		end(&h, p);
	}
}

TEST(a_collector_that_works_is_waited_for)
{
	struct python_census c = {0};
	struct heap_image h;
	struct python *p;

	begin(4, &h);
	image_u32(h.im, h.gc, h.im->layout.gc.collecting, 1);
	p = opened(&h, 4);
	check(census(p, false, &c) == -EAGAIN);
	python_census_release(&c);
	end(&h, p);
}

/* Debian's 3.13: heads stand 4 bytes earlier. */
TEST(heads_that_are_packed)
{
	struct python_census c = {0};
	struct heap_image h;
	struct python *p;
	uint64_t instances[3];

	heap_init(&h, image_new(0x030d05f0, false), 4);
	heap_populate(&h, instances);
	p = opened(&h, 5);
	check_u64(census(p, false, &c), 0);
	check_u64(row_of(&c, "app.Leaky")->objects, 3);
	check_u64(c.gaps, 0);
	python_census_release(&c);
	end(&h, p);
}

/* 3.14.0 to 3.14.4 have the space of an object in a bit of its link. */
TEST(links_that_have_marks)
{
	struct python_census c = {0};
	struct heap_image h;
	struct python *p = NULL;
	uint64_t items[20];

	heap_init(&h, image_new(0x030e02f0, false), 0);
	for (unsigned i = 0; i < LENGTH(items); i++)
		items[i] = heap_list(&h, NULL, 0);
	for (unsigned i = 0; i < LENGTH(items); i++) {
		image_set(h.im, items[i] - 16, image_get(h.im, items[i] - 16) | (i & 1));
		image_set(h.im, items[i] - 16 + 8, image_get(h.im, items[i] - 16 + 8) | (i & 3));
	}
	check(image_open(h.im, 0x030e02f0, &p, NULL) == 0);
	check_u64(census(p, false, &c), 0);
	check_u64(row_of(&c, "list")->objects, LENGTH(items));
	check_u64(c.gaps, 0);
	python_census_release(&c);
	end(&h, p);
}

/* A link that leads astray is not followed: the rest comes from the other end. */
TEST(a_torn_list_is_read_from_both_ends)
{
	EACH_VERSION(v)
	{
		struct python_census c = {0};
		struct heap_image h;
		struct python *p;
		uint64_t items[100];

		if (versions[v].free_threaded)
			continue;
		begin(v, &h);
		for (unsigned i = 0; i < LENGTH(items); i++)
			items[i] = heap_list(&h, NULL, 0);
		image_set(h.im, items[40] - 16, items[90] - 16);
		p = opened(&h, v);
		check_u64(census(p, false, &c), 0);
		check_u64(row_of(&c, "list")->objects, 100);
		check_u64(c.gaps, 1);
		check(!c.cut);
		python_census_release(&c);
		/* Torn at two places: what is between them cannot be seen, and that is said. */
		image_set(h.im, items[60] - 16 + 8, items[10] - 16);
		check_u64(census(p, false, &c), 0);
		check(row_of(&c, "list")->objects < 100 && row_of(&c, "list")->objects >= 80);
		check_u64(c.gaps, 1);
		python_census_release(&c);
		end(&h, p);
	}
}

TEST(a_list_that_is_a_circle_without_its_head_ends)
{
	struct python_census c = {0};
	struct heap_image h;
	struct python *p;
	uint64_t items[20];

	begin(2, &h);
	for (unsigned i = 0; i < LENGTH(items); i++)
		items[i] = heap_list(&h, NULL, 0);
	/* The last one leads back to the third, which agrees. */
	image_set(h.im, items[19] - 16, items[2] - 16);
	image_set(h.im, items[2] - 16 + 8, items[19] - 16);
	p = opened(&h, 2);
	check_u64(census(p, false, &c), 0);
	check(c.objects <= 20 + 1 && c.gaps);
	python_census_release(&c);
	end(&h, p);
}

TEST(no_more_than_was_asked_for)
{
	struct python_census_options options = {.most_objects = 10};
	struct python_census c = {0};
	struct heap_image h;
	struct python *p;

	begin(3, &h);
	for (unsigned i = 0; i < 50; i++)
		heap_list(&h, NULL, 0);
	p = opened(&h, 3);
	check_u64(python_census(p, &options, &c, NULL), 0);
	check(c.cut && c.objects == 10);
	python_census_release(&c);
	end(&h, p);
}

TEST(growth)
{
	struct python_census_row was[] = {{"a", 10, 100, 0, 0}, {"b", 5, 50, 0, 0}, {"gone", 1, 10, 0, 0}},
				 is[] = {{"b", 9, 90, 0, 0}, {"new", 2, 1000, 0, 0}, {"a", 10, 100, 0, 0}};
	struct python_census earlier = {.rows = {was, 3, 3}}, later = {.rows = {is, 3, 3}};
	struct python_growths g = {0};

	check_u64(python_census_growth(&earlier, &later, &g), 0);
	check_u64(g.len, 3);
	check_str(g.data[0].name, "new");
	check_u64(g.data[0].objects, 2);
	check_str(g.data[1].name, "b");
	check_u64(g.data[1].objects, 4);
	check_u64(g.data[1].now, 9);
	check_str(g.data[2].name, "gone");
	check(g.data[2].objects == -1 && g.data[2].bytes == -10);
	vec_release(&g);
}

/* ---- what keeps objects alive ---- */

/* Its only attribute is the object. */
static void hold_oneself(struct heap_image *h, uint64_t instance)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t class = image_get(h->im, instance + l->object.type), at;

	if (h->im->minor <= 10) {
		at = image_get(h->im, instance + l->object.bytes);
		at = image_get(h->im, at + l->dict.values);
	} else if (h->im->minor == 11) {
		at = image_get(h->im, instance - l->managed.values);
	} else if (h->im->minor == 12) {
		at = image_get(h->im, instance - l->managed.dict) + 1;
	} else {
		at = instance + image_get(h->im, class + l->type.basic_bytes);
	}
	image_set(h->im, at + l->dict_values.first, instance);
}

TEST(kept_by_a_module_or_by_nobody)
{
	EACH_VERSION(v)
	{
		struct python_alive_options options = {.type = "Leaky", .most_ways = 5};
		struct python_alive a = {0};
		struct heap_image h;
		struct python *p;
		uint64_t instances[4], key;

		if (versions[v].free_threaded)
			continue;
		begin(v, &h);
		heap_populate(&h, instances);
		key = image_str(h.im, "n");
		instances[3] = heap_instance(
			&h, image_get(h.im, instances[0] + h.im->layout.object.type), &key, &key, 1);
		/* The second has one reference that is nowhere, the third is its own, and one was freed just now. */
		hold_oneself(&h, instances[2]);
		image_set(h.im, instances[3], 0);
		p = opened(&h, v);
		check_u64(python_alive(p, &options, &a, NULL), 0);
		check_str(a.type, "app.Leaky");
		check_u64(a.instances, 4);
		check_u64(a.unseen, 1);
		check_u64(a.nobody, 1);
		check_u64(a.nobody_example, instances[2]);
		check_u64(a.ways.len, 2);
		for (size_t i = 0; i < a.ways.len; i++) {
			const struct python_alive_way *way = &a.ways.data[i];

			check_u64(way->instances, 1);
			if (way->root == PYTHON_ROOT_UNSEEN) {
				check_u64(way->first, instances[1]);
				check_u64(way->unseen, 1);
				continue;
			}
			check(way->root == PYTHON_ROOT_MODULE);
			check_str(way->root_name, "app");
			check_u64(way->steps.len, 2);
			check_str(way->steps.data[0].reference, ".CACHE");
			check_str(way->steps.data[1].reference, "[1]");
			check_u64(way->steps.data[1].object, instances[0]);
		}
		python_alive_release(&a);
		end(&h, p);
	}
}

TEST(types_that_are_not_there)
{
	struct python_alive a = {0};
	struct heap_image h;
	struct python *p;
	struct err err = {0};
	uint64_t instances[3], class;

	begin(4, &h);
	heap_populate(&h, instances);
	class = heap_class(&h, "other", "Leaky", "Leaky");
	heap_instance(&h, class, NULL, NULL, 0);
	p = opened(&h, 4);
	check(python_alive(p, &(struct python_alive_options){.type = "eaky"}, &a, &err) == -ENOENT);
	check(strstr(err.text, "app.Leaky") != NULL);
	check(python_alive(p, &(struct python_alive_options){.type = "Leaky"}, &a, &err) == -EINVAL);
	check(strstr(err.text, "other.Leaky") != NULL);
	check(python_alive(p, &(struct python_alive_options){.type = "other.Leaky"}, &a, &err) == 0);
	check_u64(a.instances, 1);
	python_alive_release(&a);
	end(&h, p);
}

/* Objects that keep each other, and one that keeps a chain: behind the first of a type are others. */
TEST(behind_others_of_the_type)
{
	struct python_alive_options options = {.type = "app.Node"};
	struct python_alive a = {0};
	struct heap_image h;
	struct python *p;
	uint64_t class, node = 0, key, module_key;

	begin(5, &h);
	class = heap_class(&h, "app", "Node", "Node");
	key = image_str(h.im, "next");
	for (unsigned i = 0; i < 10; i++)
		node = heap_instance(&h, class, &key, &node, 1);
	module_key = image_str(h.im, "first");
	heap_module(&h, "app", &module_key, &node, 1);
	p = opened(&h, 5);
	check_u64(python_alive(p, &options, &a, NULL), 0);
	check_u64(a.ways.len, 1);
	check_u64(a.behind, 9);
	check_u64(a.nobody + a.unseen, 0);
	python_alive_release(&a);
	end(&h, p);
}

static int everything(struct heap_image *h, size_t v)
{
	struct python_alive_options options = {.type = "Leaky"};
	struct python_alive a = {0};
	struct python_census c = {0};
	struct python *p = NULL;
	int rc = image_open(h->im, versions[v].version, &p, NULL);

	if (!rc)
		rc = python_census(p, &(struct python_census_options){.loose = true}, &c, NULL);
	python_census_release(&c);
	if (!rc)
		rc = python_alive(p, &options, &a, NULL);
	if (!rc)
		python_alive_release(&a);
	python_free(p);
	return rc;
}

TEST(no_memory)
{
	struct heap_image h;
	uint64_t instances[3];
	int rc = -1;

	begin(5, &h);
	heap_populate(&h, instances);
	for (uint64_t n = 0; n < 3000; n++) {
		alloc_fail_begin(n);
		rc = everything(&h, 5);
		if (!alloc_fail_end())
			break;
		/* Names are left out where there is no memory for them: then there is no such type. */
		check(rc == 0 || rc == -ENOMEM || rc == -ENOENT || rc == -EOPNOTSUPP || rc == -EFAULT);
	}
	check_u64(rc, 0);
	image_free(h.im);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv,
		T(ints_of_one_to_three_digits), T(dicts_of_all_kinds), T(dicts_that_cannot_be),
			T(attributes_wherever_they_are), T(inline_values_that_are_no_more_valid),
			T(containers_as_text), T(types_are_checked_again), T(marks), T(census_of_every_version),
			T(a_collector_that_works_is_waited_for), T(heads_that_are_packed), T(links_that_have_marks),
			T(a_torn_list_is_read_from_both_ends),
			T(a_list_that_is_a_circle_without_its_head_ends), T(no_more_than_was_asked_for), T(growth),
			T(kept_by_a_module_or_by_nobody), T(types_that_are_not_there),
			T(behind_others_of_the_type), T(no_memory));
}
