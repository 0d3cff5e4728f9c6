/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/chains.h"

static bool is_same(const struct python_link *a, const struct python_link *b)
{
	return a->at == b->at && a->code == b->code && a->position == b->position;
}

/* How many links at the outer end both have. */
static size_t common(const struct python_chain *a, const struct python_chain *b)
{
	size_t most = a->count < b->count ? a->count : b->count, n = 0;

	while (n < most && is_same(&a->links[a->count - 1 - n], &b->links[b->count - 1 - n]))
		n++;
	return n;
}

/* The outermost `kept` links of the chain alone. */
static void keep_outer(struct python_chain *chain, size_t kept)
{
	size_t gone = chain->count - kept;

	for (size_t i = 0; i < kept; i++)
		chain->links[i] = chain->links[i + gone];
	chain->count = kept;
}

void python_chain_read_live(struct python *p, uint64_t state, struct python_chain *ret,
	struct python_link *again)
{
	struct python_chain now = {.links = again, .limit = ret->limit};
	size_t kept;

	python_refresh(p);
	python_chain_read(p, state, ret);
	python_refresh(p);
	python_chain_read(p, state, &now);
	kept = common(ret, &now);
	if (kept == ret->count && kept == now.count)
		return;
	/* The ends of chains that do not end as they should are at no fixed distance from the outer end. */
	keep_outer(ret, ret->torn == PYTHON_WHOLE && now.torn == PYTHON_WHOLE ? kept : 0);
	ret->torn = PYTHON_TORN;
}

void python_chain_complete(struct python *p, struct python_chain *chain)
{
	struct python_link last, check;
	struct python_chain rest, one = {.links = &check, .limit = 1};

	if (chain->torn != PYTHON_CUT || !chain->count || chain->count >= chain->limit)
		return;
	last = chain->links[chain->count - 1];
	rest = (struct python_chain){
		.links = chain->links + chain->count - 1,
		.limit = chain->limit - chain->count + 1,
	};
	python_refresh(p);
	python_chain_read_from(p, last.at, &rest);
	python_refresh(p);
	python_chain_read_from(p, last.at, &one);
	if (rest.count && is_same(&rest.links[0], &last) && one.count && is_same(&check, &last) &&
		(rest.torn == PYTHON_WHOLE || rest.torn == PYTHON_CUT)) {
		chain->count += rest.count - 1;
		chain->torn = rest.torn;
	}
	chain->links[rest.links - chain->links] = last;
}
