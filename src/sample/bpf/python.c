/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Python's frames of threads that are off the CPU: copied with their stacks, told in a record before that of the
 * interval. Records of several CPUs may stand between the two.
 */
#include "sample/bpf/bpf_priv.h"

#include <stdlib.h>
#include <string.h>

static void drop(struct bpf_sampler *s, size_t i)
{
	free(s->chains.data[i].record);
	s->chains.len--;
	memmove(&s->chains.data[i], &s->chains.data[i + 1],
		(s->chains.len - i) * sizeof(s->chains.data[0]));
}

void bpf_keep_chain(struct bpf_sampler *s, const struct off_cpu_python *e, size_t bytes)
{
	struct early_chain chain = {.slot = e->head.slot, .seq = e->head.seq,
		.bytes = bytes - sizeof(e->head)};

	if (s->chains.len == MOST_EARLY_CHAINS) /* the interval got lost */
		drop(s, 0);
	chain.record = malloc(chain.bytes + 1);
	if (!chain.record)
		return;
	memcpy(chain.record, &e->chain, chain.bytes);
	if (vec_push(&s->chains, chain))
		free(chain.record);
}

void bpf_take_chain(struct bpf_sampler *s, uint32_t slot, uint32_t seq, struct raw_stack *raw)
{
	struct python_copied copied;

	for (size_t i = 0; i < s->chains.len; i++) {
		struct early_chain *chain = &s->chains.data[i];

		if (chain->slot != slot || chain->seq != seq)
			continue;
		if (python_copied_read(chain->record, chain->bytes, s->room, &copied)) {
			python_copier_learn(s->python, &copied);
			s->chain = copied.raw;
			raw->chains = &s->chain;
			raw->chain_count = 1;
		}
		drop(s, i);
		return;
	}
}

void bpf_release_chains(struct bpf_sampler *s)
{
	while (s->chains.len)
		drop(s, s->chains.len - 1);
	vec_release(&s->chains);
}
