/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains of Python frames of threads that run on while they are read (docs/heuristics/python-live.md).
 *
 * What is kept of such a chain stood all the while: its outer frames. The inner ones, which the thread has left or
 * entered meanwhile, are left out, and the chain is PYTHON_TORN. Both forget what was read of the process before.
 */
#ifndef SONDE_SAMPLE_PYTHON_CHAINS_H
#define SONDE_SAMPLE_PYTHON_CHAINS_H

#include "python/python.h"

/* As python_chain_read(); `again` has room for as many links as ret->links. */
void python_chain_read_live(struct python *p, uint64_t state, struct python_chain *ret,
	struct python_link *again);

/*
 * The frames outside of a chain that was copied as its thread was sampled, and that is PYTHON_CUT: appended, as
 * they are now, if the last frame that was copied still stands before and after. Then the chain is
 * whole, or PYTHON_CUT by chain->limit; otherwise it is left as it is.
 */
void python_chain_complete(struct python *p, struct python_chain *chain);

#endif
