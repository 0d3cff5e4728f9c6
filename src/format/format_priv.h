/* SPDX-License-Identifier: BSD-2-Clause */
/* What the writers share. */
#ifndef SONDE_FORMAT_FORMAT_PRIV_H
#define SONDE_FORMAT_FORMAT_PRIV_H

#include "base/buf.h"
#include "format/format.h"

/* Hands what was gathered to the FILE and empties the buffer; a failed buffer stays failed. */
static inline void drain(struct buf *b, FILE *out)
{
	if (b->failed || !b->len)
		return;
	fwrite(b->data, 1, b->len, out);
	buf_clear(b);
}

/* Equal samples together: same thread, same stack (and with it the same state), same end, ended by
 * the same waker. */
struct sample_group {
	uint32_t thread, stack;
	uint32_t waker;     /* index into wakers, PROFILE_NONE: not known, or no thread */
	uint8_t waker_kind; /* enum waker_kind */
	uint8_t end, state;
	uint64_t samples, weight;
};
VEC_TYPE(sample_groups, struct sample_group);

/* Ordered by thread, stack, end, waker. */
int group_samples(const struct profile *p, struct sample_groups *ret, struct err *err);

#endif
