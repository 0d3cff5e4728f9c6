/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared tree of stacks, found through the index (share.h), which all threads fill in without locks.
 *
 * A slot of the index holds the number of a node in its low 22 bits and ten more bits of the hash above, so that a
 * look at the node itself is nearly always the last one. A node is filled in before its slot is: who sees the
 * number sees what it stands for. Two threads that add the same node meet at the same slot, where the second finds
 * the first's.
 */
#include "heap/preload/walk_priv.h"

#define NODE_BITS 22
#define NODE_MASK ((1u << NODE_BITS) - 1)

_Static_assert(SHARE_NODES <= 1u << NODE_BITS, "numbers of nodes fit their part of a slot");

static bool is_node(const struct walk_memory *m, uint32_t node, uint32_t parent, uint64_t pc, uint32_t detail)
{
	const struct share_node *n = &m->nodes[node & (SHARE_NODES - 1)];

	return __atomic_load_n(&n->pc, __ATOMIC_RELAXED) == pc && __atomic_load_n(&n->parent, __ATOMIC_RELAXED) == parent &&
		__atomic_load_n(&n->detail, __ATOMIC_RELAXED) == detail;
}

/* A number that nobody has yet and that is above its parent's; 0: there are no more. */
static uint32_t take_number(const struct walk_memory *m, struct walk_state *s, uint32_t parent)
{
	uint32_t count = __atomic_load_n(&m->header->node_count, __ATOMIC_RELAXED), node = s->spare;

	s->spare = 0;
	if (node > parent && node < SHARE_NODES)
		return node;
	do {
		node = count < SHARE_STACK_FIRST ? SHARE_STACK_FIRST : count;
		if (node >= SHARE_NODES || node <= parent)
			return 0;
	} while (!__atomic_compare_exchange_n(
		&m->header->node_count, &count, node + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return node;
}

/* Into the slot, which was free. The number that is there in the end, as a slot has it; 0: no room for nodes. */
static uint32_t add_node(const struct walk_memory *m, struct walk_state *s, uint32_t *slot, uint32_t tag,
	uint32_t parent, uint64_t pc, uint32_t detail)
{
	uint32_t node = take_number(m, s, parent), seen = 0;

	if (!node)
		return 0;
	__atomic_store_n(&m->nodes[node].pc, pc, __ATOMIC_RELAXED);
	__atomic_store_n(&m->nodes[node].parent, parent, __ATOMIC_RELAXED);
	__atomic_store_n(&m->nodes[node].detail, detail, __ATOMIC_RELAXED);
	if (__atomic_compare_exchange_n(slot, &seen, tag | node, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
		return tag | node;
	s->spare = node;
	return seen;
}

uint32_t node_find(const struct walk_memory *m, struct walk_state *s, uint32_t parent, uint64_t pc, uint32_t detail)
{
	uint32_t hash = share_node_hash(parent, pc, detail), tag = hash & ~NODE_MASK;

	/* In a large tree most nodes are in the last levels: the way there is waited for once, not once a level. */
	for (uint32_t level = 1; level < SHARE_INDEX_LEVELS; level++)
		__builtin_prefetch(m->index + share_index_level(level) + (hash & ((1u << (14 + 2 * level)) - 1)));
	for (uint32_t level = 0; level < SHARE_INDEX_LEVELS; level++) {
		uint32_t slots = 1u << (14 + 2 * level);
		uint32_t *first = m->index + share_index_level(level);
		uint32_t window = level + 1 < SHARE_INDEX_LEVELS ? SHARE_INDEX_WINDOW : SHARE_INDEX_WINDOW_LAST;

		for (uint32_t i = 0; i < window; i++) {
			uint32_t *slot = first + ((hash + i) & (slots - 1));
			uint32_t seen = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

			if (!seen) {
				seen = add_node(m, s, slot, tag, parent, pc, detail);
				if (!seen)
					return 0;
			}
			if ((seen & ~NODE_MASK) == tag && is_node(m, seen & NODE_MASK, parent, pc, detail))
				return seen & NODE_MASK;
		}
	}
	return 0;
}
