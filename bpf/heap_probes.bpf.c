// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * The allocator's functions of a program, seen by probes in the kernel: bpf/heap_probes.h.
 *
 *	on_call     the entry of a function; where the kernel asks at the entry whether the return is of interest
 *	            (6.13), it runs at the return as well
 *	on_return   the return, where all returns have to be seen
 *	on_told     a probe that the program has of its own
 *	on_fork     what a watched process starts is watched, and
 *	on_exec     is not any more when it becomes another program
 *
 * A program of a probe may be interrupted and taken off its CPU, but not moved. All that is kept by thread is of the
 * thread it runs in.
 */
#include "kernel_types.h"

#include "heap_probes.h"

char LICENSE[] SEC("license") = "GPL"; /* helpers that read other memory ask for it */

/* Set before loading. */
const volatile uint64_t own_ns_device = 0, own_ns_inode = 0; /* of another pid namespace than the first */
const volatile uint32_t log2_table[(1u << HEAP_PROBE_LOG_BITS) + 1] = {0}; /* log2(1 + i / 256) * 2^32, 1 as 2^32 - 1 */
const volatile struct heap_probe probes[HEAP_PROBES_MOST] = {0};
const volatile struct heap_probe_range ranges[HEAP_PROBE_RANGES] = {0};
const volatile uint32_t range_count = 0;
const volatile struct heap_told_probe told[HEAP_TOLD_MOST] = {0};
const volatile uint32_t sees_all_returns = 0;
const volatile uint64_t throw_most = 0; /* a larger block may be refused, and an exception is thrown */

/* Written by user space while it runs. */
uint64_t rate = 512u << 10;
uint32_t deep; /* copy more of each stack */
uint32_t stopped;

/* Written here. */
uint64_t lost_room, lost_table, lost_throwing;

struct heap_thread {
	int64_t left; /* bytes to its next sample, */
	uint64_t rate; /* drawn with that rate */
	uint64_t sp, back; /* of its last call: the stack pointer, where it returns to */
	uint64_t size, old, out; /* of a call whose return is awaited */
	uint64_t last; /* the last block that it allocated, if that is a sampled one */
	uint32_t function; /* of its last call; 0: none yet */
	uint8_t awaited; /* 0, or AWAIT_... */
	uint8_t pad[3];
};

#define AWAIT_NOTHING 1u /* only that it is over */
#define AWAIT_SAMPLE 2u
#define AWAIT_MOVE 4u

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, HEAP_PROBE_THREADS);
	__type(key, uint32_t);
	__type(value, struct heap_thread);
} threads SEC(".maps");

struct block {
	uint64_t address;
	uint32_t tgid, pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HEAP_PROBE_LIVE);
	__type(key, struct block);
	__type(value, uint32_t);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HEAP_PROBE_PROCESSES);
	__type(key, uint32_t);
	__type(value, uint32_t);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HEAP_PROBES_MOST);
	__type(key, uint32_t);
	__type(value, struct heap_probe_calls);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HEAP_PROBE_RING_BYTES);
} ring SEC(".maps");

/* ---- registers ---- */

#if defined(__TARGET_ARCH_x86)
#define REG_RESULT 10
#define REG_FIRST 14 /* arguments are in registers that stand one before the other */
#define REG_STEP -1

/* Where the call returns to, at the function's entry. */
static __always_inline uint64_t return_address(const uint64_t *regs)
{
	uint64_t address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)regs[USER_REG_SP]);
	return address;
}
#define RETURN_BYTES 8u
#else
#define REG_RESULT 0
#define REG_FIRST 0
#define REG_STEP 1

static __always_inline uint64_t return_address(const uint64_t *regs)
{
	return regs[30];
}
#define RETURN_BYTES 0u
#endif

/* All are loaded, for the verifier wants to know at which distance. */
static __always_inline uint64_t argument(const uint64_t *regs, uint32_t n)
{
	const volatile uint64_t *from = regs;
	uint64_t a = from[REG_FIRST], b = from[REG_FIRST + REG_STEP], c = from[REG_FIRST + 2 * REG_STEP];

	return n == 0 ? a : n == 1 ? b : c;
}

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

/* ---- chance ---- */

/* log2 of a number that is not 0, times 2^32. */
static __always_inline uint64_t log2_of(uint64_t x)
{
	uint64_t whole = 63, low, high;
	uint32_t i;

	for (uint32_t step = 32; step; step /= 2)
		if (!(x >> (64 - step))) {
			x <<= step;
			whole -= step;
		}
	i = (uint32_t)(x >> (63 - HEAP_PROBE_LOG_BITS)) & ((1u << HEAP_PROBE_LOG_BITS) - 1);
	low = log2_table[i];
	high = log2_table[i + 1];
	return (whole << 32) + low + ((high - low) * (x >> (31 - HEAP_PROBE_LOG_BITS) & 0xffffffff) >> 32);
}

#define LN_2 2977044472u /* times 2^32 */

/* Exp(mean `of`), rounded up. */
static __always_inline int64_t draw(uint64_t of)
{
	uint64_t random = ((uint64_t)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32()) | 1;
	uint64_t bits = (64ull << 32) - log2_of(random); /* up to 2^38 */
	uint64_t x = (bits >> 6) * (LN_2 >> 6) >> 32;    /* -ln(random / 2^64) times 2^20 */

	return (int64_t)((of * x >> 20) + 1);
}

/* ---- events ---- */

#define RING_WAKE_BYTES (HEAP_PROBE_RING_BYTES / 4)

static __always_inline uint64_t ring_flags(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > RING_WAKE_BYTES ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline void send(uint32_t type, uint64_t ids, uint64_t address, uint64_t flags)
{
	struct heap_probe_event e = {
		.type = type,
		.tgid = (uint32_t)(ids >> 32),
		.tid = (uint32_t)ids,
		.time_ns = bpf_ktime_get_ns(),
		.address = address,
	};

	if (bpf_ringbuf_output(&ring, &e, sizeof(e), flags))
		__sync_fetch_and_add(&lost_room, 1);
}

/* Stack bytes up to what is not there, `most` at most, a multiple of the page size; how many. */
static __always_inline uint32_t copy_stack(uint8_t *to, uint64_t sp, uint32_t most)
{
	uint64_t got = 0;

	if (!bpf_probe_read_user(to, most, (void *)sp))
		return most;
	for (uint32_t i = 0; i <= HEAP_PROBE_DEEP_BYTES / PAGE_BYTES; i++) {
		uint64_t n = PAGE_BYTES - ((sp + got) & (PAGE_BYTES - 1));

		if (got > most - PAGE_BYTES)
			break;
		if (bpf_probe_read_user(to + got, (uint32_t)n, (void *)(sp + got)))
			break;
		got += n;
	}
	return (uint32_t)got;
}

struct sampled {
	uint32_t type;
	uint64_t address, size, rate;
};

static __always_inline void fill(
	struct heap_probe_sample *e, const void *ctx, uint64_t ids, const struct sampled *s, uint32_t most)
{
	e->head = (struct heap_probe_event){
		.type = s->type,
		.tgid = (uint32_t)(ids >> 32),
		.tid = (uint32_t)ids,
		.time_ns = bpf_ktime_get_ns(),
		.address = s->address,
		.size = s->size,
		.rate = s->rate,
	};
	bpf_probe_read_kernel(e->regs, sizeof(e->regs), ctx);
	e->head.stack_bytes = copy_stack(e->bytes, e->regs[USER_REG_SP], most);
}

#define SAMPLE_BYTES(stack) (sizeof(struct heap_probe_sample) + (stack))

/* Whether it was told. */
static __always_inline bool send_sample(const void *ctx, uint64_t ids, const struct sampled *s)
{
	struct heap_probe_sample *e;

	if (deep) {
		e = bpf_ringbuf_reserve(&ring, SAMPLE_BYTES(HEAP_PROBE_DEEP_BYTES), 0);
		if (!e)
			return false;
		fill(e, ctx, ids, s, HEAP_PROBE_DEEP_BYTES);
	} else {
		e = bpf_ringbuf_reserve(&ring, SAMPLE_BYTES(HEAP_PROBE_STACK_BYTES), 0);
		if (!e)
			return false;
		fill(e, ctx, ids, s, HEAP_PROBE_STACK_BYTES);
	}
	bpf_ringbuf_submit(e, ring_flags());
	return true;
}

/* ---- blocks ---- */

static __always_inline bool forget(uint32_t tgid, uint64_t address)
{
	struct block key = {.address = address, .tgid = tgid};

	return address && !bpf_map_delete_elem(&live, &key);
}

static __always_inline bool remember(uint32_t tgid, uint64_t address)
{
	struct block key = {.address = address, .tgid = tgid};
	uint32_t value = 0;

	return !bpf_map_update_elem(&live, &key, &value, BPF_ANY);
}

/* A sampled block that is live now. */
static __always_inline bool keep(const void *ctx, uint64_t ids, const struct sampled *s)
{
	uint32_t tgid = (uint32_t)(ids >> 32);

	if (!remember(tgid, s->address)) {
		__sync_fetch_and_add(&lost_table, 1);
		return false;
	}
	if (!send_sample(ctx, ids, s)) {
		forget(tgid, s->address);
		__sync_fetch_and_add(&lost_room, 1);
		return false;
	}
	return true;
}

static __always_inline struct heap_thread *thread_of(uint32_t tid)
{
	struct heap_thread *t = bpf_map_lookup_elem(&threads, &tid), first = {0};

	if (t)
		return t;
	bpf_map_update_elem(&threads, &tid, &first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void freed(uint64_t ids, uint64_t address)
{
	uint32_t tid = (uint32_t)ids;
	struct heap_thread *t;
	bool last;

	if (!forget((uint32_t)(ids >> 32), address))
		return;
	t = bpf_map_lookup_elem(&threads, &tid);
	last = t && t->last == address;
	if (last)
		t->last = 0;
	send(last ? HEAP_PROBE_FREED_LAST : HEAP_PROBE_FREED, ids, address, ring_flags());
}

/* ---- calls ---- */

/* Whether the return is awaited. */
static __always_inline bool is_awaited_return(const uint64_t *regs, const struct heap_thread *t)
{
	return t && t->awaited && regs[USER_REG_PC] == t->back && regs[USER_REG_SP] == t->sp + RETURN_BYTES;
}

static __always_inline void returned(const uint64_t *regs, const void *ctx, uint64_t ids, struct heap_thread *t)
{
	uint32_t tgid = (uint32_t)(ids >> 32);
	uint64_t address = regs[REG_RESULT];
	bool kept = false;

	if (t->out) {
		uint64_t at = t->out;

		t->out = 0;
		if ((uint32_t)address || bpf_probe_read_user(&address, sizeof(address), (void *)at))
			address = 0;
	}
	if (t->awaited & AWAIT_SAMPLE && address) {
		struct sampled s = {
			.type = t->awaited & AWAIT_MOVE ? HEAP_PROBE_MOVED_SAMPLED : HEAP_PROBE_ALLOCATED,
			.address = address,
			.size = t->size,
			.rate = t->rate,
		};

		kept = keep(ctx, ids, &s);
		if (kept)
			t->last = address;
	}
	if (t->awaited & AWAIT_MOVE && !kept) {
		if (!address && t->size) /* the old block is where it was */
			remember(tgid, t->old);
		else
			address = 1; /* anywhere */
		send(HEAP_PROBE_MOVED, ids, address, ring_flags());
	}
	t->awaited = 0;
}

/* Part of another call: made by code of the allocator, or while one is not over, or as the last thing of one, which jumps
 * there. */
static __always_inline bool is_inner(
	const uint64_t *regs, const struct heap_thread *t, const volatile struct heap_probe *p, uint32_t function, uint64_t back)
{
	uint64_t sp = regs[USER_REG_SP], at = back - regs[USER_REG_PC] + p->at;

	if (t->awaited && sp <= t->sp && t->sp - sp < 1u << 20)
		return true;
	if (sp == t->sp && back == t->back && t->function != function && t->function)
		return true;
	for (uint32_t i = 0; i < HEAP_PROBE_RANGES && i < range_count; i++)
		if (at >= ranges[i].start && at < ranges[i].end)
			return true;
	return false;
}

static __always_inline uint64_t size_of(const uint64_t *regs, const volatile struct heap_probe *p)
{
	uint64_t size = argument(regs, p->size), count;

	if (p->count == HEAP_PROBE_NO_ARG)
		return size;
	count = argument(regs, p->count);
	if (size >> 32 || count >> 32) /* most likely refused; what is sure is that it is large */
		return size > count ? size : count;
	return size * count;
}

/* Whether the call is a sampled one. */
static __always_inline bool take_bytes(struct heap_thread *t, uint64_t size)
{
	uint64_t now = rate, bytes = size & (~0ull >> 2);

	if (t->rate != now) { /* what is left is forgotten: it makes no difference to chance */
		t->rate = now;
		t->left = draw(now);
	}
	t->left -= (int64_t)(bytes + !bytes);
	if (t->left > 0)
		return false;
	t->left = draw(now);
	return true;
}

/* Whether the return is of interest. */
static __always_inline bool called(const uint64_t *regs, uint64_t ids, struct heap_thread *t,
	const volatile struct heap_probe *p, uint32_t function, uint64_t back)
{
	t->sp = regs[USER_REG_SP];
	t->back = back;
	t->function = function;
	t->last = 0;
	t->out = 0;
	t->size = size_of(regs, p);
	t->awaited = sees_all_returns ? AWAIT_NOTHING : 0;
	if (take_bytes(t, t->size)) {
		if (p->throws && t->size > throw_most)
			__sync_fetch_and_add(&lost_throwing, 1);
		else
			t->awaited |= AWAIT_SAMPLE;
	}
	if (p->kind == HEAP_PROBE_OUT)
		t->out = argument(regs, 0);
	if (p->kind == HEAP_PROBE_REALLOC) {
		t->old = argument(regs, 0);
		if (forget((uint32_t)(ids >> 32), t->old)) {
			send(HEAP_PROBE_MOVING, ids, t->old, ring_flags());
			t->awaited |= AWAIT_MOVE;
		}
	}
	return t->awaited;
}

/* Where all returns are seen there is nothing to answer; else 0: the return is of interest. */
#define NO_RETURN (!sees_all_returns)

SEC("uprobe")
int on_call(void *ctx)
{
	const uint64_t *regs = ctx;
	uint64_t ids = own_ids(), back;
	uint32_t tid = (uint32_t)ids, tgid = (uint32_t)(ids >> 32);
	uint32_t function = (uint32_t)bpf_get_attach_cookie(ctx) & (HEAP_PROBES_MOST - 1);
	uint32_t *how = bpf_map_lookup_elem(&watched, &tgid);
	const volatile struct heap_probe *p = &probes[function];
	struct heap_probe_calls *counts;
	struct heap_thread *t;

	if (!how || *how != HEAP_PROBE_NOW || stopped)
		return NO_RETURN;
	if (p->kind == HEAP_PROBE_FREE) {
		freed(ids, argument(regs, 0));
		return NO_RETURN;
	}
	t = thread_of(tid);
	counts = bpf_map_lookup_elem(&calls, &function);
	if (!t || !counts)
		return NO_RETURN;
	if (!sees_all_returns && is_awaited_return(regs, t)) {
		returned(regs, ctx, ids, t);
		return NO_RETURN;
	}
	counts->calls++;
	back = return_address(regs);
	if (is_inner(regs, t, p, function, back)) {
		counts->inner++;
		return NO_RETURN;
	}
	return called(regs, ids, t, p, function, back) ? 0 : NO_RETURN;
}

SEC("uprobe")
int on_return(void *ctx)
{
	const uint64_t *regs = ctx;
	uint64_t ids = own_ids();
	uint32_t tid = (uint32_t)ids;
	struct heap_thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (is_awaited_return(regs, t))
		returned(regs, ctx, ids, t);
	return 0;
}

/* ---- probes of the program's own ---- */

static __always_inline uint64_t told_argument(const void *ctx, const volatile struct heap_told_arg *a)
{
	uint64_t value = (uint64_t)a->value, reg = a->reg < USER_REGS ? a->reg : 0, from = 0;

	if (a->from == HEAP_TOLD_REGISTER || a->from == HEAP_TOLD_MEMORY)
		bpf_probe_read_kernel(&from, sizeof(from), ctx + reg * sizeof(from));
	if (a->from == HEAP_TOLD_REGISTER)
		value = from;
	else if (a->from == HEAP_TOLD_MEMORY && bpf_probe_read_user(&value, sizeof(value), (void *)(from + value)))
		value = 0;
	value <<= a->bits & 63;
	return a->sign ? (uint64_t)((int64_t)value >> (a->bits & 63)) : value >> (a->bits & 63);
}

SEC("uprobe")
int on_told(void *ctx)
{
	uint64_t ids = own_ids();
	uint32_t tgid = (uint32_t)(ids >> 32), *how = bpf_map_lookup_elem(&watched, &tgid);
	const volatile struct heap_told_probe *p = &told[bpf_get_attach_cookie(ctx) & (HEAP_TOLD_MOST - 1)];
	struct sampled s = {.type = HEAP_PROBE_TOLD};

	if (!how || *how != HEAP_PROBE_NOW || stopped)
		return 0;
	s.address = told_argument(ctx, &p->args[0]);
	if (p->frees) {
		freed(ids, s.address);
		return 0;
	}
	s.size = told_argument(ctx, &p->args[1]);
	s.rate = told_argument(ctx, &p->args[2]);
	if (s.address)
		keep(ctx, ids, &s);
	return 0;
}

/* ---- processes ---- */

SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0], *child = (struct task_struct *)ctx->args[1];
	uint32_t from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	uint32_t *how = own_ns_inode ? NULL : bpf_map_lookup_elem(&watched, &from), now = HEAP_PROBE_NOW;

	if (how && *how == HEAP_PROBE_NOW && from != to)
		bpf_map_update_elem(&watched, &to, &now, BPF_ANY);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int on_exec(void *ctx)
{
	uint64_t ids = own_ids();
	uint32_t tgid = (uint32_t)(ids >> 32), *how = bpf_map_lookup_elem(&watched, &tgid);

	if (!how)
		return 0;
	if (*how == HEAP_PROBE_AT_EXEC) {
		*how = HEAP_PROBE_NOW;
		send(HEAP_PROBE_BEGAN, ids, 0, BPF_RB_FORCE_WAKEUP);
	} else {
		bpf_map_delete_elem(&watched, &tgid);
		send(HEAP_PROBE_EXEC, ids, 0, BPF_RB_FORCE_WAKEUP);
	}
	return 0;
}

/* Of a trial: whether a program survives its probe. */
SEC("uprobe")
int nothing(void *ctx)
{
	return 0;
}
