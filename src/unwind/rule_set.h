/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The distinct rules of one module by 16-bit number.
 *
 * A file of a million rows has a few hundred distinct rules. Numbers count up from 0; stored
 * rules never move and are cut after their reg_count registers. All-zero is the empty set.
 */
#ifndef SONDE_UNWIND_RULE_SET_H
#define SONDE_UNWIND_RULE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "unwind/rule.h"

/* Not a rule: nothing is known here. Also the answer when 65,535 rules are taken. */
#define RULE_NONE UINT16_MAX

struct rule_set {
	struct unwind_rule **rules; /* by number */
	size_t count, cap;
	uint32_t *slots;   /* open addressing: tag << 16 | number + 1, 0 = empty */
	size_t slot_count; /* a power of two, or 0 */
	size_t rule_bytes; /* of all stored rules */
};

/* The number of this rule, stored when new. Padding and everything else up to reg_count must be
 * defined; registers behind that are not looked at. 0 or -ENOMEM. */
int rule_set_add(struct rule_set *set, const struct unwind_rule *rule, uint16_t *ret);

/* NULL for RULE_NONE. */
static inline const struct unwind_rule *rule_set_get(const struct rule_set *set, uint16_t number)
{
	return number < set->count ? set->rules[number] : NULL;
}

/* Memory held, in bytes. */
size_t rule_set_bytes(const struct rule_set *set);

void rule_set_release(struct rule_set *set);

#endif
