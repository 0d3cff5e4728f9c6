/* SPDX-License-Identifier: BSD-2-Clause */
/* Following a thread's chain of Python frames; for programs that run in that thread. */
#ifndef SONDE_BPF_PYTHON_CHAIN_H
#define SONDE_BPF_PYTHON_CHAIN_H

#include "kernel_types.h"

#include "python_copy.h"

/* Of another pid namespace than the first: by its file. Set before loading. */
const volatile uint64_t own_ns_device = 0, own_ns_inode = 0;

/* How many processes are known; written by user space. */
uint32_t python_processes;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_COPY_PROCESSES);
	__type(key, uint32_t);
	__type(value, struct python_copy_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_COPY_THREADS);
	__type(key, uint32_t);
	__type(value, struct python_copy_thread);
} python_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct python_copy);
} copies SEC(".maps");

#if defined(__TARGET_ARCH_x86)
static __always_inline uint64_t own_thread_pointer(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread.fsbase);
}
#else
static __always_inline uint64_t own_thread_pointer(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread.uw.tp_value);
}
#endif

/* tgid << 32 | tid, as user space knows them. */
static __always_inline uint64_t own_ids(void)
{
	struct bpf_pidns_info ids = {0};

	if (!own_ns_inode)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(own_ns_device, own_ns_inode, &ids, sizeof(ids)))
		return 0;
	return (uint64_t)ids.tgid << 32 | ids.pid;
}

static __always_inline uint64_t user_word(uint64_t at)
{
	uint64_t word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)at);
	return word;
}

/* A word of the frame that was read last. */
static __always_inline uint64_t frame_word(const struct python_copy *c, uint32_t offset)
{
	return *(const uint64_t *)(c->frame + (offset & (PYTHON_COPY_FRAME_BYTES - 1)));
}

/*
 * The loops are functions of their own, with numbers as arguments: so the verifier goes through each once, and not
 * through one for every end of the other. They write to this CPU's copy.
 */
static __always_inline struct python_copy *own_copy(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&copies, &zero);
}

/* How many links there are now, and flags << 16. */
__noinline int copy_python_links(uint32_t tgid, uint64_t frame)
{
	struct python_copy_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct python_copy *c = own_copy();
	uint64_t bytes;
	uint32_t count;

	if (!p || !c)
		return 0;
	bytes = (((uint64_t)p->bytes - 1) & (PYTHON_COPY_FRAME_BYTES - 1)) + 1;
	for (count = 0; count < PYTHON_COPY_LINKS; count++) {
		struct python_copy_link *link = (struct python_copy_link *)&c->words[count * 4];

		if (!frame)
			return (int)count;
		if (bpf_probe_read_user(c->frame, (uint32_t)bytes, (void *)frame))
			return (int)(count | PYTHON_COPY_UNREADABLE << 16);
		link->at = frame;
		link->code = frame_word(c, p->code);
		link->position = frame_word(c, p->position);
		link->marks = frame_word(c, p->marks);
		frame = frame_word(c, p->previous);
	}
	return (int)(count | (frame ? PYTHON_COPY_CUT << 16 : 0));
}

/* How many cframes there are now, behind the links. The last one lies within the thread state, and is of no call. */
__noinline int copy_python_cframes(uint32_t tgid, uint64_t state, uint32_t links)
{
	struct python_copy_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct python_copy *c = own_copy();
	uint64_t at;
	uint32_t count;

	if (!p || !c || links > PYTHON_COPY_LINKS)
		return 0;
	at = user_word(state + p->cframe_entry);
	for (count = 0; count < PYTHON_COPY_CFRAMES; count++) {
		uint64_t index = (uint64_t)links * 4 + count;

		/* The verifier has to see it checked, whatever the compiler knows of it. */
		asm volatile("" : "+r"(index));
		if (!at || at - state < PYTHON_COPY_STATE_BYTES || index >= PYTHON_COPY_WORDS)
			break;
		c->words[index] = at;
		at = user_word(at + p->cframe_previous);
	}
	return (int)count;
}

static __always_inline bool holds_gil(const struct python_copy_process *p, uint64_t state, uint64_t gil)
{
	return gil && user_word(gil) == state &&
		(uint32_t)user_word(gil + (int64_t)p->gil_locked) == 1;
}

/* The size of a copy that is not empty, for a helper: by a mask, for compilers make such code of comparisons that old
 * verifiers do not see the bounds. */
static __always_inline uint64_t copied_bytes(uint32_t bytes)
{
	return (((uint64_t)bytes - 1) & (PYTHON_COPY_BYTES - 1)) + 1;
}

/* Copies the chain of that state of the thread that runs, but for who it is. 0: nothing could be. Its bytes
 * otherwise. */
__noinline int copy_python_chain(uint32_t tgid, uint64_t state, uint64_t gil)
{
	struct python_copy_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct python_copy *c = own_copy();
	uint32_t links, flags, cframes = 0;
	uint64_t frame;

	if (!p || !c)
		return 0;
	frame = user_word(state + p->entry);
	if (p->by_cframe && frame)
		frame = user_word(frame + p->cframe_frame);
	links = (uint32_t)copy_python_links(tgid, frame);
	flags = links >> 16;
	links &= 0xffff;
	if (links > PYTHON_COPY_LINKS)
		return 0;
	if (p->cframes)
		cframes = (uint32_t)copy_python_cframes(tgid, state, links);
	if (cframes > PYTHON_COPY_CFRAMES)
		return 0;
	if (holds_gil(p, state, gil))
		flags |= PYTHON_COPY_GIL;
	c->head.state = state;
	c->head.flags = flags;
	c->head.links = (uint16_t)links;
	c->head.cframes = (uint16_t)cframes;
	return (int)(sizeof(c->head) + links * sizeof(struct python_copy_link) +
		cframes * sizeof(uint64_t));
}

#endif
