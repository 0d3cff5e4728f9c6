/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash table of things that hold their own place in it: a struct table_node, which is best their first member.
 * They belong to the caller and stay where they are. Keys are 64 bits wide and each stands there once. All-zero is an
 * empty table. Not for two threads at once.
 */
#ifndef SONDE_BASE_TABLE_H
#define SONDE_BASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct table_node {
	struct table_node *next;
	uint64_t key;
};

struct table {
	struct table_node **buckets;
	size_t bucket_count, count;
};

/* 0, or -ENOMEM: only an empty table needs memory to take one more. */
int table_add(struct table *t, struct table_node *node, uint64_t key);
struct table_node *table_find(const struct table *t, uint64_t key); /* NULL: none */
/* In no order; NULL begins and ends. One may be removed when the one behind it was asked for. */
struct table_node *table_next(const struct table *t, const struct table_node *node);
void table_remove(struct table *t, struct table_node *node);
/* What is still in it is forgotten, not freed. */
void table_release(struct table *t);

#endif
