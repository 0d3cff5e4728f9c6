/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/ranges.h"

#include <errno.h>
#include <string.h>

/* Of the first range that ends behind `address`. */
static size_t find(const struct ranges *r, uint64_t address)
{
	size_t low = 0, high = r->len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (r->data[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* There is room for one more. */
static void insert(struct ranges *r, size_t at, struct range it)
{
	memmove(r->data + at + 1, r->data + at, (r->len - at) * sizeof(*r->data));
	r->data[at] = it;
	r->len++;
}

int ranges_add(struct ranges *r, uint64_t start, uint64_t end, uint32_t number)
{
	size_t at = find(r, start);

	if (start >= end)
		return -EINVAL;
	if (at < r->len && r->data[at].start < end)
		return -EEXIST;
	if (r->len >= RANGES_MOST)
		return -ENOSPC;
	if (vec_reserve(r, r->len + 1))
		return -ENOMEM;
	insert(r, at, (struct range){start, end, number, 0});
	return 0;
}

/* What of a range lies before and behind what is cut out of it stays. */
int ranges_cut(struct ranges *r, uint64_t start, uint64_t end, struct ranges *ret)
{
	size_t first = find(r, start), last = first, kept = first;
	struct range rest = {0};

	while (last < r->len && r->data[last].start < end)
		last++;
	if (first == last || start >= end)
		return 0;
	if (r->len >= RANGES_MOST)
		return -ENOSPC;
	if (vec_reserve(r, r->len + 1) || vec_reserve(ret, ret->len + last - first))
		return -ENOMEM;
	for (size_t i = first; i < last; i++) {
		struct range it = r->data[i], cut = it;

		cut.start = it.start < start ? start : it.start;
		cut.end = it.end > end ? end : it.end;
		ret->data[ret->len++] = cut;
		/* Of the first one this stands in its own place, where nothing is read any more. */
		if (it.start < start)
			r->data[kept++] = (struct range){it.start, start, it.number, 0};
		if (it.end > end)
			rest = (struct range){end, it.end, it.number, 0};
	}
	memmove(r->data + kept, r->data + last, (r->len - last) * sizeof(*r->data));
	r->len -= last - kept;
	if (rest.end)
		insert(r, kept, rest);
	return 0;
}
