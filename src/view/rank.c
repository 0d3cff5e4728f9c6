/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "view/view_priv.h"

#define DESCENDING(a, b) (((a) < (b)) - ((a) > (b)))

static int by_name(const struct ranked *a, const struct ranked *b, const struct profile *p)
{
	int order = strcmp(
		p->functions.data[a->function].name, p->functions.data[b->function].name);

	return order ? order : (a->function > b->function) - (a->function < b->function);
}

static int by_samples(const void *left, const void *right, void *profile)
{
	const struct ranked *a = left, *b = right;
	int order = DESCENDING(a->count.self, b->count.self);

	if (!order)
		order = DESCENDING(a->count.total, b->count.total);
	return order ? order : by_name(a, b, profile);
}

static int by_time(const void *left, const void *right, void *profile)
{
	const struct ranked *a = left, *b = right;
	int order = DESCENDING(a->count.self_weight, b->count.self_weight);

	if (!order)
		order = DESCENDING(a->count.total_weight, b->count.total_weight);
	return order ? order : by_samples(a, b, profile);
}

int rank_functions(
	const struct profile *p, enum rank_order order, struct ranking *ret, struct err *err)
{
	struct profile_count *counts = NULL;
	struct ranking r = {0};
	int rc = profile_count_functions(p, &counts, err);

	if (rc)
		return rc;
	for (uint32_t f = 0; f < p->functions.len && !rc; f++)
		if (f == p->truncated_function ? counts[f].self : counts[f].total)
			rc = vec_push(&r, (struct ranked){.function = f, .count = counts[f]});
	free(counts);
	if (rc) {
		vec_release(&r);
		return err_nomem(err);
	}
	if (r.len)
		qsort_r(r.data, r.len, sizeof(*r.data),
			order == RANK_BY_TIME ? by_time : by_samples, (void *)p);
	*ret = r;
	return 0;
}

static int by_weight(const void *left, const void *right, void *profile)
{
	const struct profile *p = profile;
	const struct profile_thread *a = &p->threads.data[*(const uint32_t *)left];
	const struct profile_thread *b = &p->threads.data[*(const uint32_t *)right];
	int order = DESCENDING(a->cpu_ns, b->cpu_ns);

	if (!order)
		order = DESCENDING(a->weight, b->weight);
	if (!order)
		order = DESCENDING(a->samples, b->samples);
	return order ? order : (a->tid > b->tid) - (a->tid < b->tid);
}

int rank_threads(const struct profile *p, uint32_t **ret, struct err *err)
{
	uint32_t *order = calloc(p->threads.len + 1, sizeof(*order));

	if (!order)
		return err_nomem(err);
	for (uint32_t i = 0; i < p->threads.len; i++)
		order[i] = i;
	qsort_r(order, p->threads.len, sizeof(*order), by_weight, (void *)p);
	*ret = order;
	return 0;
}
