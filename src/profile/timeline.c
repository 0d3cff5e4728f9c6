/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "profile/profile.h"

/* A counting sort: samples are in time order already. */
int profile_timelines_build(
	const struct profile *p, struct profile_timelines *ret, struct err *err)
{
	struct profile_timelines t = {
		.order = calloc(p->samples.len + 1, sizeof(*t.order)),
		.begin = calloc(p->threads.len + 2, sizeof(*t.begin)),
	};

	if (!t.order || !t.begin) {
		profile_timelines_release(&t);
		return err_nomem(err);
	}
	/* begin[k + 1] is where the next sample of thread k goes, and when all have gone, its end. */
	vec_each(&p->samples, s)
		t.begin[s->thread + 2]++;
	for (size_t i = 2; i < p->threads.len + 2; i++)
		t.begin[i] += t.begin[i - 1];
	for (uint32_t i = 0; i < p->samples.len; i++)
		t.order[t.begin[p->samples.data[i].thread + 1]++] = i;
	*ret = t;
	return 0;
}

void profile_timelines_release(struct profile_timelines *t)
{
	free(t->order);
	free(t->begin);
	*t = (struct profile_timelines){0};
}
