/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/told_code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Functions that begin before an address are looked at from the last one on, so many of them: code is put where other code
 * was, and what is told may overlap in any way. */
#define LOOK_BACK 4096u

int told_code_add(struct told_code *t, uint64_t time_ns, uint64_t start, uint64_t bytes, const char *name)
{
	struct told_function f = {.start = start, .time_ns = time_ns, .order = (uint32_t)t->functions.len};

	if (t->functions.len >= TOLD_CODE_MOST || __builtin_add_overflow(start, bytes, &f.end))
		return -ENOSPC;
	f.name = intern_add(&t->names, name, strlen(name));
	if (f.name == INTERN_NONE || vec_push(&t->functions, f))
		return -ENOMEM;
	t->sorted = false;
	return 0;
}

static int compare(const void *va, const void *vb)
{
	const struct told_function *a = va, *b = vb;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	return (a->order > b->order) - (a->order < b->order);
}

/* Whether `a` says better than `b` what was there at that time. */
static bool is_better(const struct told_function *a, const struct told_function *b, uint64_t time_ns)
{
	bool a_before = a->time_ns <= time_ns, b_before = b->time_ns <= time_ns;

	if (a_before != b_before)
		return a_before;
	if (a->time_ns != b->time_ns)
		return a_before ? a->time_ns > b->time_ns : a->time_ns < b->time_ns;
	return a->order > b->order;
}

const char *told_code_name(struct told_code *t, uint64_t address, uint64_t time_ns)
{
	const struct told_function *best = NULL;
	size_t low = 0, high = t->functions.len;

	if (!t->sorted && high)
		qsort(t->functions.data, high, sizeof(*t->functions.data), compare);
	t->sorted = true;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->functions.data[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i > 0 && low - i < LOOK_BACK; i--) {
		const struct told_function *f = &t->functions.data[i - 1];

		if (address < f->end && (!best || is_better(f, best, time_ns)))
			best = f;
	}
	return best ? intern_get(&t->names, best->name, NULL) : NULL;
}

void told_code_release(struct told_code *t)
{
	vec_release(&t->functions);
	intern_release(&t->names);
	*t = (struct told_code){0};
}
