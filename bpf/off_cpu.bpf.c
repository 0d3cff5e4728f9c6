// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Threads leaving and entering CPUs.
 *
 *	sched_switch         leave(prev), enter(next): states, times, and the event when it is worth one
 *	sched_waking         in the context of the waker: when, and for long sleeps who and from where
 *	sched_process_fork   what watched threads start is watched
 *	sched_process_exec   a command that is watched from its exec on; a thread that takes its leader's id
 *	sched_process_exit   the last word about a thread
 *	iter/task            threads that were there before, and registers of those asleep
 *
 * The first two run with interrupts off, so one CPU never has two of them at once, and for one thread
 * leave, waking and enter follow each other; but a waker may come while leave() runs on another CPU.
 * Each then writes fields that the other only reads.
 *
 * Written for every kernel since 5.10 with type information: no atomics that return a value, no helper
 * that is newer without a way around it.
 */
#include "task.h"

#include "off_cpu.h"
#include "python_chain.h"

#define EARLY_WAKE_NS 50000u /* between a waker's look and the sleeper's leave(), on two CPUs */
#define FIRST_STACK_BYTES 2048u
#define RING_WAKE_BYTES (OFF_CPU_RING_BYTES / 32)

char LICENSE[] SEC("license") = "GPL"; /* helpers that read other memory ask for it */

/* Set before loading. */
const volatile uint64_t keep_ns = 1000000, mark_ns = 0, copy_spacing_ns = 50000;

/* Written by user space while it runs. */
uint32_t scope = OFF_CPU_PROCESSES;
uint32_t reader_sleeps = 1; /* it reads only when it is woken */

/* Written here. */
uint64_t lost_events, lost_threads;
uint32_t slots_used; /* slots above were never given away */
bool ids_collided;   /* two watched threads met in by_tid */
bool copies_skipped; /* there may be sleepers without a copy; user space takes it back */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OFF_CPU_THREADS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, uint32_t);
	__type(value, struct off_cpu_thread);
} threads SEC(".maps");

/* Slots to give away: taken here, given back by user space. A stack, so that the lowest are in use. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, OFF_CPU_THREADS);
	__type(value, uint32_t);
} free_slots SEC(".maps");

/* A thread's id to its slot. by_tid is the fast way, and a place for one of the threads that meet in
 * it: an array of tid << 32 | slot. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OFF_CPU_THREADS);
	__type(key, uint32_t);
	__type(value, uint32_t);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OFF_CPU_TIDS);
	__type(key, uint32_t);
	__type(value, uint64_t);
} by_tid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OFF_CPU_BUFFERS);
	__type(key, uint32_t);
	__type(value, struct off_cpu_event);
} buffers SEC(".maps");

/* What Python keeps of the thread in the buffer of that number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OFF_CPU_BUFFERS);
	__type(key, uint32_t);
	__type(value, struct off_cpu_python);
} python_buffers SEC(".maps");

/* For events of threads without a buffer, and of wakers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct off_cpu_event);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct off_cpu_look);
} look_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, OFF_CPU_RING_BYTES);
} ring SEC(".maps");

/* Processes that were asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, uint32_t);
	__type(value, uint32_t);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint32_t);
} cgroups SEC(".maps");

/* ---- the kernel ---- */

#if defined(__TARGET_ARCH_x86)
/* Where the C library keeps what belongs to the thread: on top of a thread's stack. */
static __always_inline uint64_t thread_pointer(struct task_struct *task)
{
	return task->thread.fsbase;
}

#define NR_FUTEX 202
#else
static __always_inline uint64_t thread_pointer(struct task_struct *task)
{
	return task->thread.uw.tp_value;
}

#define NR_FUTEX 98
#endif
#define NR_FUTEX_WAITV 449
#define NR_FUTEX_WAIT 455

/* ---- threads and their slots ---- */

static __always_inline struct off_cpu_thread *slot_at(uint32_t slot)
{
	return bpf_map_lookup_elem(&threads, &slot);
}

static __noinline uint64_t find_slowly(uint32_t tid)
{
	uint32_t *slot = bpf_map_lookup_elem(&slots, &tid);

	return slot ? (uint64_t)tid << 32 | *slot : 0;
}

/* tid << 32 | slot of a watched thread, or 0. This is all that happens for most threads. */
static __always_inline uint64_t find(uint32_t tid)
{
	uint32_t key = tid & (OFF_CPU_TIDS - 1);
	uint64_t *entry = bpf_map_lookup_elem(&by_tid, &key);

	if (entry && *entry >> 32 == tid)
		return *entry;
	return ids_collided ? find_slowly(tid) : 0;
}

static __always_inline void remember(uint32_t tid, uint32_t slot)
{
	uint32_t key = tid & (OFF_CPU_TIDS - 1);
	uint64_t *entry = bpf_map_lookup_elem(&by_tid, &key);

	if (!entry)
		return;
	if (*entry && *entry >> 32 != tid)
		ids_collided = true;
	*entry = (uint64_t)tid << 32 | slot;
}

static __always_inline void forget(uint32_t tid)
{
	uint32_t key = tid & (OFF_CPU_TIDS - 1);
	uint64_t *entry = bpf_map_lookup_elem(&by_tid, &key);

	if (entry && *entry >> 32 == tid)
		*entry = 0;
	bpf_map_delete_elem(&slots, &tid);
}

/* A new slot, or the one that the thread has already; OFF_CPU_THREADS: none is free. */
static __noinline uint32_t begin(
	uint32_t tid, uint32_t tgid, uint32_t state, uint32_t flags, uint64_t now)
{
	uint32_t slot, *known;
	struct off_cpu_thread *t;

	if (bpf_map_pop_elem(&free_slots, &slot)) {
		__sync_fetch_and_add(&lost_threads, 1);
		return OFF_CPU_THREADS;
	}
	t = slot_at(slot);
	if (!t)
		return OFF_CPU_THREADS;
	if (slot >= slots_used)
		slots_used = slot + 1;
	__builtin_memset(t, 0, sizeof(*t));
	t->state = OFF_CPU_FREE;
	t->tid = tid;
	t->tgid = tgid;
	t->seq = 1;
	t->flags = (uint8_t)flags;
	t->syscall = -1;
	t->since_ns = t->changed_ns = now;
	t->mark_ns = (int64_t)(mark_ns * bpf_get_prandom_u32() >> 32);
	t->recent_ns[0] = t->recent_ns[1] = keep_ns;
	t->stack_bytes = FIRST_STACK_BYTES;
	if (bpf_map_update_elem(&slots, &tid, &slot, BPF_NOEXIST)) {
		bpf_map_push_elem(&free_slots, &slot, 0);
		known = bpf_map_lookup_elem(&slots, &tid);
		return known ? *known : OFF_CPU_THREADS;
	}
	t->state = (uint8_t)state;
	remember(tid, slot);
	return slot;
}

static __always_inline uint32_t flags_of(struct task_struct *task)
{
	return task->flags & (PF_IO_WORKER | PF_USER_WORKER) ? OFF_CPU_KERNEL_ONLY : 0;
}

/* ---- the ring ---- */

static __always_inline uint64_t ring_flags(void)
{
	if (reader_sleeps)
		return BPF_RB_FORCE_WAKEUP;
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > RING_WAKE_BYTES ? BPF_RB_FORCE_WAKEUP
									     : BPF_RB_NO_WAKEUP;
}

static __always_inline void send(struct off_cpu_event *e, uint32_t stack_bytes)
{
	if (stack_bytes > OFF_CPU_STACK_BYTES)
		stack_bytes = OFF_CPU_STACK_BYTES;
	e->stack_bytes = stack_bytes;
	if (bpf_ringbuf_output(&ring, e, offsetof(struct off_cpu_event, bytes) + stack_bytes,
		    ring_flags()))
		__sync_fetch_and_add(&lost_events, 1);
}

/* ---- copies of stacks ---- */

/* Where the stack ends at the latest, as far as that is known: what lies above the first frame of a
 * program, or above a thread's own data, is not needed and may not be mapped. */
static __always_inline uint64_t bounded(struct task_struct *task, uint64_t sp, uint64_t bytes)
{
	uint64_t tp = thread_pointer(task), first = 0;
	struct mm_struct *mm = task->mm;

	if (mm)
		first = mm->start_stack + 64;
	if (tp > sp && tp - sp < bytes)
		bytes = tp - sp;
	if (first > sp && first - sp < bytes)
		bytes = first - sp;
	return bytes;
}

/* Stack bytes of the address space that is loaded, up to what is not there; how many. */
static __always_inline uint32_t copy_bytes(uint8_t *to, uint64_t sp, uint64_t bytes, uint32_t most)
{
	uint64_t got = 0;

	if (bytes > most)
		bytes = most;
	if (!bpf_probe_read_user(to, (uint32_t)bytes, (void *)sp))
		return (uint32_t)bytes;
	for (uint32_t i = 0; i <= OFF_CPU_STACK_BYTES / PAGE_BYTES; i++) {
		uint64_t n = PAGE_BYTES - ((sp + got) & (PAGE_BYTES - 1));

		if (got >= bytes || got > most - PAGE_BYTES)
			break;
		if (bpf_probe_read_user(to + got, (uint32_t)n, (void *)(sp + got)))
			break;
		got += n;
	}
	return (uint32_t)got;
}

static __always_inline struct off_cpu_event *buffer_of(uint32_t slot)
{
	uint32_t index = slot & (OFF_CPU_BUFFERS - 1);

	return bpf_map_lookup_elem(&buffers, &index);
}

/* Whether the buffer holds the copy of a thread that still sleeps. */
static __always_inline bool in_use(const struct off_cpu_event *b, uint32_t slot)
{
	struct off_cpu_thread *owner =
		b->owner && b->owner != slot + 1 ? slot_at(b->owner - 1) : NULL;

	return owner && owner->copied_seq && owner->copied_seq == owner->seq;
}

static __always_inline struct off_cpu_python *python_buffer_of(uint32_t slot)
{
	uint32_t index = slot & (OFF_CPU_BUFFERS - 1);

	return bpf_map_lookup_elem(&python_buffers, &index);
}

/* Python's frames into the buffer. Of a thread that is in several interpreters, those in one. */
__noinline int copy_python(uint32_t tgid, uint32_t tid, uint64_t pointer, uint32_t slot)
{
	struct python_copy_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct python_copy_thread *known = bpf_map_lookup_elem(&python_threads, &tid);
	struct off_cpu_python *b = python_buffer_of(slot);
	struct python_copy *c = own_copy();
	uint64_t state = 0, gil;
	int bytes;

	if (!b)
		return 0;
	b->owner = 0;
	if (!p || !c)
		return 0;
	if (p->has_slot && pointer)
		state = user_word(pointer + (int64_t)p->slot);
	gil = p->gil;
	if (known && known->tgid == tgid && (!state || known->states[0].address == state)) {
		state = known->states[0].address;
		gil = known->states[0].gil;
	}
	if (!state)
		return 0;
	bytes = copy_python_chain(tgid, state, gil);
	if (!bytes ||
		bpf_probe_read_kernel(&b->chain, copied_bytes((uint32_t)bytes), c))
		return 0;
	b->chain.tid = tid;
	b->chain.tgid = tgid;
	b->chain.pointer = pointer;
	b->bytes = (uint32_t)bytes;
	b->owner = slot + 1;
	return 0;
}

/* Into the buffer of the thread, whose address space must be the one that is loaded. */
static __noinline int copy_stack(
	struct task_struct *task, struct off_cpu_thread *t, uint32_t slot, uint64_t now)
{
	struct off_cpu_event *b = buffer_of(slot);
	uint64_t sp;

	if (!b || in_use(b, slot) || !copy_regs(task, b->regs))
		return 0;
	b->owner = slot + 1;
	sp = b->regs[USER_REG_SP];
	b->stack_bytes = copy_bytes(
		b->bytes, sp, bounded(task, sp, t->stack_bytes), OFF_CPU_STACK_BYTES);
	if (python_processes)
		copy_python(t->tgid, t->tid, thread_pointer(task), slot);
	t->copied_seq = t->seq;
	t->copied_ns = now;
	return 0;
}

/* A copy costs as much as a switch. It is made when the interval will be worth an event, going by the
 * thread's recent ones, and now and then in any case: so a thread has to leave the CPU thousands of times a
 * second before the stack of an unexpectedly long interval can be missing. */
static __always_inline bool wants_copy(const struct off_cpu_thread *t, uint64_t now)
{
	uint64_t likely_ns = 4 * t->recent_ns[t->state >= STATE_FUTEX];

	if (t->flags & OFF_CPU_KERNEL_ONLY)
		return false;
	return likely_ns >= keep_ns || (mark_ns && (int64_t)likely_ns >= t->mark_ns) ||
		now - t->copied_ns >= copy_spacing_ns;
}

/* ---- off and on ---- */

static __always_inline uint32_t blocked_state(int32_t nr)
{
	if (nr == -1)
		return STATE_PAGE_FAULT;
	return nr == NR_FUTEX || nr == NR_FUTEX_WAITV || nr == NR_FUTEX_WAIT ? STATE_FUTEX
									     : STATE_SYSCALL;
}

/* Why a thread that is off the CPU, or about to leave it, is. */
static __always_inline uint32_t off_state(
	struct task_struct *task, bool kernel_only, bool preempted, int32_t *ret_syscall)
{
	uint32_t task_state = state_of(task);

	*ret_syscall = -1;
	if (preempted || task_state == TASK_RUNNING)
		return is_throttled(task) ? STATE_THROTTLED : STATE_RUN_QUEUE;
	if (task_state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN) ||
		task->jobctl & JOBCTL_TRAP_FREEZE)
		return STATE_STOPPED;
	if (kernel_only)
		return STATE_BLOCKED;
	*ret_syscall = syscall_of(task);
	return is_compat(task) ? STATE_SYSCALL : blocked_state(*ret_syscall);
}

static __always_inline void leave(struct task_struct *task, struct off_cpu_thread *t, uint32_t slot,
	bool preempted, uint64_t now)
{
	t->ns[STATE_ON_CPU] += now - t->changed_ns;
	t->changed_ns = now;
	t->cpu = (uint16_t)bpf_get_smp_processor_id();
	t->seq++;
	t->state = (uint8_t)off_state(
		task, t->flags & OFF_CPU_KERNEL_ONLY, preempted, &t->syscall);
	if (wants_copy(t, now))
		copy_stack(task, t, slot, now);
	else if (!copies_skipped) /* CPUs share it */
		copies_skipped = true;
}

/* Of an interval that ends, how much of it the thread was blocked. */
static __always_inline uint64_t blocked_part(
	const struct off_cpu_thread *t, uint32_t state, uint64_t now)
{
	if (state < STATE_FUTEX)
		return 0;
	if (t->wake_ns >= t->changed_ns)
		return t->wake_ns < now ? t->wake_ns - t->changed_ns : now - t->changed_ns;
	/* The waker came while the thread was leaving, or nobody saw it. */
	return t->wake_ns + EARLY_WAKE_NS > t->changed_ns ? 0 : now - t->changed_ns;
}

/* How many marks are in an interval of this length. */
static __always_inline uint32_t marks_in(struct off_cpu_thread *t, uint64_t ns)
{
	uint32_t marks = 0;

	t->mark_ns -= (int64_t)ns;
	/* Marks are at least half of mark_ns apart, and the interval is shorter than that. */
	for (int i = 0; i < 4 && t->mark_ns <= 0; i++) {
		t->mark_ns += (int64_t)(mark_ns / 2 + (mark_ns * bpf_get_prandom_u32() >> 32));
		marks++;
	}
	return marks;
}

/* What was copied of Python's with the thread's stack. */
static __noinline int tell_python(const struct off_cpu_thread *t, uint32_t slot, uint64_t now)
{
	struct off_cpu_python *b = python_buffer_of(slot);
	if (!b || b->owner != slot + 1)
		return 0;
	b->head = (struct off_cpu_head){
		.kind = OFF_CPU_PYTHON,
		.slot = slot,
		.tid = t->tid,
		.tgid = t->tgid,
		.seq = t->seq,
		.time_ns = now,
	};
	if (bpf_ringbuf_output(&ring, b, sizeof(b->head) + copied_bytes(b->bytes),
		    BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost_events, 1);
	return 0;
}

/* Tells of the interval that ends now, and for how much time it stands. */
static __noinline int tell(struct task_struct *task, uint32_t slot, uint64_t now,
	uint64_t blocked_ns, uint64_t queued_ns)
{
	struct off_cpu_thread *t = slot_at(slot);
	struct off_cpu_event *e;
	uint32_t zero = 0;
	bool copied;
	long got;

	if (!t)
		return 0;
	copied = t->copied_seq == t->seq && t->taken_seq != t->seq;
	e = copied ? buffer_of(slot) : bpf_map_lookup_elem(&scratch, &zero);
	if (!e)
		return 0;
	if (copied && python_processes)
		tell_python(t, slot, now);
	if (!copied)
		e->stack_bytes = 0;
	/* One that never ran is where it was created, with an empty stack or a copy of one. */
	if (t->seq == 1 && !(t->flags & (OFF_CPU_WAS_OPEN | OFF_CPU_KERNEL_ONLY)))
		copied = copy_regs(task, e->regs);
	e->head = (struct off_cpu_head){
		.kind = OFF_CPU_INTERVAL,
		.slot = slot,
		.tid = t->tid,
		.tgid = t->tgid,
		.seq = t->seq,
		.flags = t->flags | (copied ? OFF_CPU_HAS_USER : 0u) |
			(is_compat(task) ? OFF_CPU_COMPAT : 0u),
		.time_ns = now,
	};
	e->start_ns = t->changed_ns;
	e->blocked_ns = blocked_ns;
	e->queued_ns = queued_ns;
	e->syscall = t->syscall;
	e->cpu = t->cpu;
	e->state = t->state;
	got = bpf_get_task_stack(task, e->kernel_ips, sizeof(e->kernel_ips), 0);
	e->kernel_count = got > 0 ? (uint32_t)got / 8 : 0;
	send(e, e->stack_bytes);
	return 0;
}

/* What a thread did that was there before us and now runs for the first time since. */
static __always_inline void classify_unseen(struct task_struct *task, struct off_cpu_thread *t)
{
	t->flags |= OFF_CPU_WAS_OPEN;
	t->syscall = -1;
	if (t->wake_ns < t->changed_ns)
		t->state = STATE_RUN_QUEUE;
	else if (t->flags & OFF_CPU_KERNEL_ONLY || is_compat(task))
		t->state = STATE_BLOCKED;
	else {
		t->syscall = syscall_of(task);
		t->state = (uint8_t)blocked_state(t->syscall);
	}
}

static __always_inline void enter(
	struct task_struct *task, struct off_cpu_thread *t, uint32_t slot, uint64_t now)
{
	uint64_t ns = now - t->changed_ns, weight_ns = 0, blocked_ns, share_ns, *recent;
	bool unseen = t->state == OFF_CPU_UNKNOWN;
	uint32_t state;

	if (unseen)
		classify_unseen(task, t);
	state = t->state;
	blocked_ns = blocked_part(t, state, now);
	t->ns[state & 7] += state < STATE_FUTEX ? ns : blocked_ns;
	if (state >= STATE_FUTEX)
		t->ns[STATE_RUN_QUEUE] += ns - blocked_ns;
	recent = &t->recent_ns[state >= STATE_FUTEX];
	*recent -= *recent / 64;
	if (ns > *recent)
		*recent = ns;
	if (ns >= keep_ns || unseen)
		weight_ns = ns;
	else if (mark_ns && ns)
		weight_ns = mark_ns * marks_in(t, ns);
	if (weight_ns) {
		share_ns = weight_ns == ns ? blocked_ns : weight_ns * blocked_ns / ns;
		tell(task, slot, now, share_ns, weight_ns - share_ns);
	}
	t->flags &= (uint8_t)~OFF_CPU_WAS_OPEN;
	t->state = STATE_ON_CPU;
	t->changed_ns = now;
	t->seq++;
}

/* A thread without a slot that leaves a CPU, when not only processes that were named are watched. */
static __noinline uint64_t begin_unseen(struct task_struct *task, uint64_t now)
{
	uint32_t tid = (uint32_t)task->pid, slot;

	/* One that exits has had its end told, and leaves its last CPU. */
	if (!tid || task->flags & (PF_KTHREAD | PF_EXITING) || task->exit_state)
		return 0;
	if (scope == OFF_CPU_CGROUP && bpf_current_task_under_cgroup(&cgroups, 0) != 1)
		return 0;
	slot = begin(tid, (uint32_t)task->tgid, STATE_ON_CPU, flags_of(task), now);
	return slot < OFF_CPU_THREADS ? (uint64_t)tid << 32 | slot : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	uint64_t left = find((uint32_t)prev->pid), entered = find((uint32_t)next->pid);
	struct off_cpu_thread *t;
	uint64_t now;

	if (!left && scope != OFF_CPU_PROCESSES)
		left = begin_unseen(prev, bpf_ktime_get_ns());
	if (!(left | entered))
		return 0;
	now = bpf_ktime_get_ns();
	t = left ? slot_at((uint32_t)left) : NULL;
	if (t)
		leave(prev, t, (uint32_t)left, preempted, now);
	t = entered ? slot_at((uint32_t)entered) : NULL;
	if (t)
		enter(next, t, (uint32_t)entered, now);
	return 0;
}

/* ---- who wakes whom ---- */

/* A sleeper of whom there is no copy, woken by a thread of its own process: its stack can still be
 * read from here. */
static __always_inline void copy_late(struct task_struct *task, struct off_cpu_thread *t,
	uint32_t slot, struct task_struct *waker, uint64_t now)
{
	if (t->copied_seq == t->seq || t->taken_seq == t->seq ||
		t->flags & OFF_CPU_KERNEL_ONLY || !waker->mm || waker->mm != task->mm)
		return;
	copy_stack(task, t, slot, now);
}

/* The thread that does what interrupts have put off. */
static __always_inline bool is_ksoftirqd(const struct task_struct *task)
{
	uint64_t name = 0;

	bpf_probe_read_kernel(&name, sizeof(name), task->comm);
	return name == *(const uint64_t *)"ksoftirq";
}

/* Interrupts that came while the kernel ran, and soft interrupts, have a stack of their own; the
 * arguments of a tracepoint lie on the stack that is used. Those that came while user code ran use the
 * thread's; then it is in no system call. */
static __always_inline bool is_interrupt(void *ctx, struct task_struct *current, int32_t nr)
{
	void *volatile spilled = ctx;
	uint64_t at = 0;

	bpf_probe_read_kernel(&at, sizeof(at), (void *)&spilled);
	if (!current->pid || at < (uint64_t)current->stack || at >= regs_address(current))
		return true;
	return current->flags & PF_KTHREAD ? is_ksoftirqd(current) : nr == -1;
}

static __noinline int tell_waker_of(
	void *ctx, struct task_struct *task, struct off_cpu_thread *t, uint32_t slot, uint64_t now)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	bool has_user = !(waker->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)), interrupt;
	int32_t nr = has_user ? syscall_of(waker) : -1;
	uint32_t zero = 0, bytes = 0;
	struct off_cpu_event *e = bpf_map_lookup_elem(&scratch, &zero);
	long got;

	if (!e)
		return 0;
	interrupt = is_interrupt(ctx, waker, nr);
	copy_late(task, t, slot, waker, now);
	has_user = has_user && nr != -1 && copy_regs(waker, e->regs);
	e->head = (struct off_cpu_head){
		.kind = OFF_CPU_WAKER,
		.slot = slot,
		.tid = t->tid,
		.tgid = t->tgid,
		.seq = t->seq,
		.flags = (has_user ? OFF_CPU_HAS_USER : 0u) |
			(is_compat(waker) ? OFF_CPU_COMPAT : 0u) |
			(interrupt ? OFF_CPU_INTERRUPT : 0u),
		.time_ns = now,
	};
	e->waker_tid = (uint32_t)waker->pid;
	e->waker_tgid = (uint32_t)waker->tgid;
	e->syscall = nr;
	e->kernel_count = 0;
	if (has_user) {
		/* Whose interrupt it is says the kernel's stack. */
		got = interrupt ? bpf_get_stack(ctx, e->kernel_ips, sizeof(e->kernel_ips), 0) : 0;
		e->kernel_count = got > 0 ? (uint32_t)got / 8 : 0;
		bytes = copy_bytes(e->bytes, e->regs[USER_REG_SP],
			bounded(waker, e->regs[USER_REG_SP], OFF_CPU_WAKER_BYTES),
			OFF_CPU_WAKER_BYTES);
	}
	send(e, bytes);
	return 0;
}

/* Since 5.11; before, a program cannot look at the thread it runs in as it can at others. */
static __always_inline void tell_waker(
	void *ctx, struct task_struct *task, struct off_cpu_thread *t, uint32_t slot, uint64_t now)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		tell_waker_of(ctx, task, t, slot, now);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	uint64_t woken = find((uint32_t)task->pid), now, ns;
	struct off_cpu_thread *t = woken ? slot_at((uint32_t)woken) : NULL;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	t->wake_ns = now;
	ns = now - t->changed_ns;
	/* Not for one that is still on its way to sleep, nor for one that could run anyway. */
	if (t->state < STATE_FUTEX)
		return 0;
	if (ns >= keep_ns || (mark_ns && (int64_t)ns >= t->mark_ns))
		tell_waker(ctx, task, t, (uint32_t)woken, now);
	return 0;
}

/* ---- beginnings and ends ---- */

static __always_inline bool is_watched(uint32_t tgid, uint32_t how)
{
	uint32_t *value = bpf_map_lookup_elem(&watched, &tgid);

	return value && *value == how;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (!find((uint32_t)parent->pid) && scope != OFF_CPU_ALL &&
		!is_watched((uint32_t)parent->tgid, OFF_CPU_NOW))
		return 0;
	if (child->flags & PF_KTHREAD)
		return 0;
	begin((uint32_t)child->pid, (uint32_t)child->tgid, STATE_RUN_QUEUE, flags_of(child),
		bpf_ktime_get_ns());
	return 0;
}

/* Takes the slot from the thread and tells its times. */
static __noinline int end_thread(uint64_t found, uint64_t now)
{
	struct off_cpu_thread *t = slot_at((uint32_t)found);
	struct off_cpu_exit *e;

	if (!t)
		return 0;
	forget((uint32_t)(found >> 32));
	t->ns[STATE_ON_CPU] += now - t->changed_ns;
	t->changed_ns = now;
	e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (e) {
		e->head = (struct off_cpu_head){
			.kind = OFF_CPU_EXIT,
			.slot = (uint32_t)found,
			.tid = t->tid,
			.tgid = t->tgid,
			.seq = t->seq,
			.time_ns = now,
		};
		e->since_ns = t->since_ns;
		__builtin_memcpy(e->ns, t->ns, sizeof(e->ns));
		bpf_ringbuf_submit(e, ring_flags());
	} else {
		__sync_fetch_and_add(&lost_events, 1);
	}
	t->state = OFF_CPU_EXITED;
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid)
{
	uint32_t tid = (uint32_t)task->pid, tgid = (uint32_t)task->tgid, now_watched = OFF_CPU_NOW;
	bool starts = is_watched(tgid, OFF_CPU_AT_EXEC);
	uint64_t now = bpf_ktime_get_ns(), found;

	/* exec by a thread that was not the first: it goes on under the first one's id. */
	found = (uint32_t)old_pid != tid ? find((uint32_t)old_pid) : 0;
	if (found) {
		end_thread(found, now);
		starts = true;
	}
	if (!starts)
		return 0;
	if (is_watched(tgid, OFF_CPU_AT_EXEC))
		bpf_map_update_elem(&watched, &tgid, &now_watched, BPF_ANY);
	begin(tid, tgid, STATE_ON_CPU, flags_of(task), now);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	uint64_t found = find((uint32_t)task->pid);

	if (found)
		end_thread(found, bpf_ktime_get_ns());
	return 0;
}

/* ---- one look at all threads ---- */

/* The slot of a thread that is to be watched; OFF_CPU_THREADS: it is not. */
static __always_inline uint32_t slot_of(struct task_struct *task)
{
	uint64_t found = find((uint32_t)task->pid);

	if (found)
		return (uint32_t)found;
	if (task->flags & PF_EXITING)
		return OFF_CPU_THREADS;
	if (scope != OFF_CPU_ALL && !is_watched((uint32_t)task->tgid, OFF_CPU_NOW))
		return OFF_CPU_THREADS;
	return begin((uint32_t)task->pid, (uint32_t)task->tgid, OFF_CPU_UNKNOWN, flags_of(task),
		bpf_ktime_get_ns());
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct off_cpu_thread *t;
	struct off_cpu_look *l;
	uint32_t slot, zero = 0;
	long got;

	if (!task || task->flags & PF_KTHREAD || task->exit_state)
		return 0;
	slot = slot_of(task);
	t = slot_at(slot);
	l = bpf_map_lookup_elem(&look_scratch, &zero);
	if (!t || !l || t->state == STATE_ON_CPU || t->taken_seq == t->seq)
		return 0;
	l->slot = slot;
	l->tid = t->tid;
	l->tgid = t->tgid;
	l->seq = t->seq;
	l->flags = t->flags | (is_compat(task) ? OFF_CPU_COMPAT : 0u) |
		(task->on_cpu ? OFF_CPU_ON_CPU : 0u);
	l->state = off_state(task, t->flags & OFF_CPU_KERNEL_ONLY, false, &l->syscall);
	if (!(t->flags & OFF_CPU_KERNEL_ONLY) && copy_regs(task, l->regs))
		l->flags |= OFF_CPU_HAS_USER;
	got = bpf_get_task_stack(task, l->kernel_ips, sizeof(l->kernel_ips), 0);
	l->kernel_count = got > 0 ? (uint32_t)got / 8 : 0;
	bpf_seq_write(seq, l, sizeof(*l));
	return 0;
}
