// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Python's frames, at the moment of a sample: runs in the interrupt that takes the sample, of the thread that
 * it interrupts, just before the kernel writes the sample down; and writes what it has copied into the same
 * ring, in front of it. It lets every sample pass.
 *
 * For each kernel since 5.10: loops have a fixed end.
 */
#include "kernel_types.h"

#include "python_chain.h"

char LICENSE[] SEC("license") = "GPL"; /* helpers that read other memory ask for it */

/* By CPU: an event whose records go to the ring of the samples. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, uint32_t);
	__type(value, uint32_t);
} output SEC(".maps");

uint64_t not_written; /* chains, for want of room in the ring */

static __always_inline void tell(void *ctx, uint64_t ids, uint64_t pointer,
	struct python_copy_state state, bool by_slot)
{
	struct python_copy *c = own_copy();
	int bytes = copy_python_chain((uint32_t)(ids >> 32), state.address, state.gil);

	if (!c || !bytes)
		return;
	c->head.tid = (uint32_t)ids;
	c->head.tgid = (uint32_t)(ids >> 32);
	c->head.pointer = pointer;
	if (by_slot)
		c->head.flags |= PYTHON_COPY_BY_SLOT;
	if (bpf_perf_event_output(ctx, &output, BPF_F_CURRENT_CPU, c, copied_bytes((uint32_t)bytes)))
		__sync_fetch_and_add(&not_written, 1);
}

SEC("perf_event")
int on_sample(void *ctx)
{
	uint64_t ids = python_processes ? own_ids() : 0, pointer;
	uint32_t tgid = (uint32_t)(ids >> 32), tid = (uint32_t)ids;
	struct python_copy_process *p = ids ? bpf_map_lookup_elem(&processes, &tgid) : NULL;
	struct python_copy_state own = {0};
	struct python_copy_thread *known;

	if (!p)
		return 1;
	pointer = own_thread_pointer();
	if (p->has_slot && pointer)
		own.address = user_word(pointer + (int64_t)p->slot);
	own.gil = p->gil;
	known = bpf_map_lookup_elem(&python_threads, &tid);
	if (known && known->tgid != tgid)
		known = NULL;
	for (uint32_t i = 0; known && i < PYTHON_COPY_STATES; i++)
		if (known->states[i].address == own.address)
			own.gil = known->states[i].gil;
	if (own.address)
		tell(ctx, ids, pointer, own, true);
	for (uint32_t i = 0; known && i < PYTHON_COPY_STATES; i++)
		if (known->states[i].address && known->states[i].address != own.address)
			tell(ctx, ids, pointer, known->states[i], false);
	return 1;
}
