/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/rule_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"

_Static_assert(sizeof(struct reg_rule) == 8, "rules are hashed in words of 8 bytes");
_Static_assert(offsetof(struct unwind_rule, regs) == 16, "rules are hashed in words of 8 bytes");

static size_t size_of(const struct unwind_rule *rule)
{
	return offsetof(struct unwind_rule, regs) + rule->reg_count * sizeof(rule->regs[0]);
}

/* Every row comes through here, and rules are a dozen words long: one multiplication a word. */
static uint64_t hash_of(const struct unwind_rule *rule, size_t size)
{
	const char *bytes = (const char *)rule;
	uint64_t hash = size;

	for (size_t at = 0; at < size; at += 8) {
		uint64_t word;

		memcpy(&word, bytes + at, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash;
}

/* The slot that holds this rule, or the empty one where it belongs. */
static uint32_t *find_slot(
	const struct rule_set *set, const struct unwind_rule *rule, size_t size, uint64_t hash)
{
	size_t mask = set->slot_count - 1;
	uint32_t tag = (uint32_t)(hash >> 48);

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		uint32_t *slot = &set->slots[i];

		if (!*slot)
			return slot;
		if (*slot >> 16 != tag)
			continue;

		const struct unwind_rule *other = set->rules[(*slot & 0xffff) - 1];

		if (other->reg_count == rule->reg_count && !memcmp(other, rule, size))
			return slot;
	}
}

static int grow_slots(struct rule_set *set)
{
	size_t count = set->slot_count ? set->slot_count * 2 : 64;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t number = 0; number < set->count; number++) {
		const struct unwind_rule *rule = set->rules[number];
		uint64_t hash = hash_of(rule, size_of(rule));
		size_t i = hash & (count - 1);

		while (slots[i])
			i = (i + 1) & (count - 1);
		slots[i] = (uint32_t)(hash >> 48) << 16 | (uint32_t)(number + 1);
	}
	free(set->slots);
	set->slots = slots;
	set->slot_count = count;
	return 0;
}

int rule_set_add(struct rule_set *set, const struct unwind_rule *rule, uint16_t *ret)
{
	size_t size = size_of(rule);
	uint64_t hash = hash_of(rule, size);

	if (set->count * 4 >= set->slot_count * 3 && grow_slots(set))
		return -ENOMEM;

	uint32_t *slot = find_slot(set, rule, size, hash);

	if (*slot) {
		*ret = (uint16_t)((*slot & 0xffff) - 1);
		return 0;
	}
	if (set->count == RULE_NONE) {
		*ret = RULE_NONE;
		return 0;
	}
	if (vec_grow((void **)&set->rules, &set->cap, set->count + 1, sizeof(*set->rules)))
		return -ENOMEM;

	struct unwind_rule *copy = malloc(size);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, rule, size);
	set->rules[set->count] = copy;
	set->rule_bytes += size;
	*ret = (uint16_t)set->count++;
	*slot = (uint32_t)(hash >> 48) << 16 | (uint32_t)(*ret + 1);
	return 0;
}

size_t rule_set_bytes(const struct rule_set *set)
{
	return set->rule_bytes + set->cap * sizeof(*set->rules) +
	       set->slot_count * sizeof(*set->slots);
}

void rule_set_release(struct rule_set *set)
{
	for (size_t number = 0; number < set->count; number++)
		free(set->rules[number]);
	free(set->rules);
	free(set->slots);
	*set = (struct rule_set){0};
}
