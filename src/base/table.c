/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/table.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

#define FIRST_BUCKETS 64

static struct table_node **bucket_of(const struct table *t, uint64_t key)
{
	return &t->buckets[hash_u64(key) & (t->bucket_count - 1)];
}

static void put(struct table *t, struct table_node *node)
{
	struct table_node **bucket = bucket_of(t, node->key);

	node->next = *bucket;
	*bucket = node;
}

/* When there is no memory for that, chains get longer. */
static int grow(struct table *t)
{
	struct table bigger = {
		.bucket_count = t->bucket_count ? t->bucket_count * 2 : FIRST_BUCKETS,
		.count = t->count,
	};

	bigger.buckets = calloc(bigger.bucket_count, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return t->bucket_count ? 0 : -ENOMEM;
	for (size_t i = 0; i < t->bucket_count; i++) {
		for (struct table_node *n = t->buckets[i], *next; n; n = next) {
			next = n->next;
			put(&bigger, n);
		}
	}
	free(t->buckets);
	*t = bigger;
	return 0;
}

int table_add(struct table *t, struct table_node *node, uint64_t key)
{
	if (t->count >= t->bucket_count && grow(t))
		return -ENOMEM;
	node->key = key;
	put(t, node);
	t->count++;
	return 0;
}

struct table_node *table_find(const struct table *t, uint64_t key)
{
	struct table_node *n = t->bucket_count ? *bucket_of(t, key) : NULL;

	while (n && n->key != key)
		n = n->next;
	return n;
}

struct table_node *table_next(const struct table *t, const struct table_node *node)
{
	size_t bucket = 0;

	if (node && node->next)
		return node->next;
	if (node)
		bucket = (size_t)(bucket_of(t, node->key) - t->buckets) + 1;
	while (bucket < t->bucket_count && !t->buckets[bucket])
		bucket++;
	return bucket < t->bucket_count ? t->buckets[bucket] : NULL;
}

void table_remove(struct table *t, struct table_node *node)
{
	struct table_node **at = bucket_of(t, node->key);

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	t->count--;
}

void table_release(struct table *t)
{
	free(t->buckets);
	*t = (struct table){0};
}
