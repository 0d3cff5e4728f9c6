// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * One look at threads, running or asleep, as they are. Nothing is attached to anything: the program
 * runs when its iterator is read, and for one reader at a time.
 *
 * A thread may come on a CPU while it is looked at. So its switches are counted first, and when it is
 * found on a CPU in the end, or has been counted again, it is said to have moved.
 */
#include "task.h"

#include "snapshot.h"

char LICENSE[] SEC("license") = "GPL"; /* helpers that read other memory ask for it */

/* Written by user space. */
struct snapshot_wish wish;

/* Ours alone. All of it is in .bss, for each map costs time when the program is loaded. */
struct snapshot_task record;
uint32_t our_level;           /* of the reader's pid namespace, */
struct pid_namespace *our_ns; /* and that */
uint64_t our_now_ns;          /* of the scheduler's clock */

/* ---- ids ---- */

static __always_inline void read_upid(struct pid *pid, uint32_t level, struct upid *ret)
{
	bpf_probe_read_kernel(ret, sizeof(*ret),
		(void *)((uint64_t)pid + bpf_core_field_offset(struct pid, numbers) +
			level * sizeof(*ret)));
}

/* The thread's id in the reader's pid namespace; 0: it has none there. */
static __always_inline uint32_t id_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid id = {0};

	if (!pid || BPF_CORE_READ(pid, level) < our_level)
		return 0;
	read_upid(pid, our_level, &id);
	return id.ns == our_ns ? (uint32_t)id.nr : 0;
}

/* ---- the scheduler's clock ---- */

/* exec_start is of a clock that counts a CPU's time for threads: for how long that of the thread's CPU has
 * stood still, in interrupts and the like. */
static __always_inline uint64_t clock_lag(struct task_struct *task)
{
	struct rq *rq;

	if (!bpf_core_field_exists(task->se.cfs_rq) ||
		!bpf_core_field_exists(struct cfs_rq, rq))
		return 0;
	rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	return BPF_CORE_READ(rq, clock) - BPF_CORE_READ(rq, clock_task);
}

/* When it was last seen on a CPU by the scheduler, which looks when it leaves, and at ticks. */
static __always_inline uint64_t ran_at(struct task_struct *task)
{
	uint64_t at = BPF_CORE_READ(task, se.exec_start);

	return at ? at + clock_lag(task) : 0;
}

static __always_inline uint64_t idle_ns(struct task_struct *task)
{
	uint64_t at = ran_at(task);

	if (record.flags & SNAPSHOT_ON_CPU)
		return 0;
	if (!at || !our_now_ns)
		return UINT64_MAX;
	return our_now_ns > at ? our_now_ns - at : 0;
}

/* ---- kernel locks ---- */

/* Whether this is a task: that of a semaphore may long be gone. */
static __always_inline bool is_task(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid id = {0};

	if (!pid)
		return false;
	read_upid(pid, 0, &id);
	return id.nr && id.nr == (int)BPF_CORE_READ(task, pid);
}

static __always_inline void held_by(uint32_t lock, uint64_t owner)
{
	struct task_struct *task = (struct task_struct *)(owner & ~LOCK_OWNER_FLAGS);

	record.lock = lock;
	if (!task || !is_task(task))
		return;
	record.holder_tid = id_of(task);
	record.holder_tgid = id_of(BPF_CORE_READ(task, group_leader));
}

static __always_inline uint64_t word_at(uint64_t address)
{
	uint64_t value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

static __always_inline void look_at_mutex(uint64_t mutex)
{
	uint64_t owner = 0;

	if (bpf_core_field_exists(struct mutex, owner))
		owner = word_at(mutex + bpf_core_field_offset(struct mutex, owner));
	held_by(SNAPSHOT_MUTEX, owner);
}

static __always_inline void look_at_rwsem(uint64_t rwsem)
{
	uint64_t owner = 0;

	if (bpf_core_field_exists(struct rw_semaphore, owner))
		owner = word_at(rwsem + bpf_core_field_offset(struct rw_semaphore, owner));
	held_by(owner & RWSEM_READER_OWNED ? SNAPSHOT_RWSEM_READERS : SNAPSHOT_RWSEM, owner);
}

static __always_inline void look_at_semaphore(uint64_t semaphore)
{
	uint64_t owner = 0;

	if (bpf_core_field_exists(struct semaphore, last_holder))
		owner = word_at(semaphore + bpf_core_field_offset(struct semaphore, last_holder));
	held_by(SNAPSHOT_SEMAPHORE, owner);
}

/* What is told of hung tasks: type and address of the lock. */
static __always_inline void look_at_blocker(uint64_t blocker)
{
	uint64_t lock = blocker & ~BLOCKER_TYPE;

	if ((blocker & BLOCKER_TYPE) == BLOCKER_TYPE_MUTEX)
		look_at_mutex(lock);
	else if ((blocker & BLOCKER_TYPE) == BLOCKER_TYPE_SEM)
		look_at_semaphore(lock);
	else
		look_at_rwsem(lock);
}

static __always_inline void look_at_locks(struct task_struct *task)
{
	uint64_t blocker = 0, mutex = 0;

	if (bpf_core_field_exists(task->blocker))
		blocker = BPF_CORE_READ(task, blocker);
	if (bpf_core_field_exists(task->blocked_on))
		mutex = (uint64_t)BPF_CORE_READ(task, blocked_on);
	if (blocker)
		look_at_blocker(blocker);
	else if (mutex)
		look_at_mutex(mutex);
}

/* ---- one thread ---- */

static __always_inline uint64_t switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

/* Off the CPU, and still in the run queue; one whose leaving it was put off does sleep. */
static __always_inline bool is_queued(struct task_struct *task)
{
	if (!state_of(task))
		return true;
	if (!task->on_rq)
		return false;
	if (bpf_core_field_exists(task->se.sched_delayed))
		return !task->se.sched_delayed;
	return true;
}

static __always_inline uint32_t flags_of(struct task_struct *task)
{
	uint32_t flags = is_compat(task) ? SNAPSHOT_COMPAT : 0;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		flags |= SNAPSHOT_KERNEL_ONLY;
	if (task->jobctl & JOBCTL_TRAP_FREEZE)
		flags |= SNAPSHOT_FROZEN;
	if (task->on_cpu)
		return flags | SNAPSHOT_ON_CPU;
	if (is_queued(task))
		flags |= SNAPSHOT_QUEUED | (is_throttled(task) ? SNAPSHOT_THROTTLED : 0);
	return flags;
}

/* Of a thread that has left its CPU: where, and why. */
static __always_inline void look_inside(struct task_struct *task)
{
	if (!(record.flags & SNAPSHOT_QUEUED)) {
		bpf_get_task_stack(task, &record.kernel_ip, sizeof(record.kernel_ip), 0);
		look_at_locks(task);
	}
	if (record.flags & SNAPSHOT_KERNEL_ONLY)
		return;
	if (copy_regs(task, record.regs))
		record.flags |= SNAPSHOT_HAS_REGS;
#if defined(__TARGET_ARCH_arm64)
	record.syscall = syscall_of(task);
	bpf_probe_read_kernel(&record.first_arg, sizeof(record.first_arg),
		(void *)(regs_address(task) + bpf_core_field_offset(struct pt_regs, orig_x0)));
#else
	record.syscall = (int32_t)record.regs[USER_REG_ORIG_AX];
#endif
}

static __always_inline void look_at(struct task_struct *task)
{
	record.flags = flags_of(task);
	barrier();
	record.switches = switches_of(task);
	record.state = state_of(task);
	record.exit_state = task->exit_state;
	record.run_ns = task->se.sum_exec_runtime;
	record.queued_ns = UINT64_MAX;
	if (bpf_core_field_exists(task->sched_info))
		record.queued_ns = task->sched_info.run_delay;
	bpf_probe_read_kernel(record.comm, sizeof(record.comm), task->comm);
	record.idle_ns = idle_ns(task);
	record.syscall = -1;
	record.kernel_ip = record.first_arg = 0;
	record.lock = SNAPSHOT_NO_LOCK;
	record.holder_tid = record.holder_tgid = 0;
	if (record.flags & SNAPSHOT_ON_CPU || record.exit_state)
		return;
	look_inside(task);
	barrier();
	if (task->on_cpu || switches_of(task) != record.switches)
		record.flags |= SNAPSHOT_MOVED;
}

/* Who reads, at the first thread. */
static __always_inline void look_at_reader(void)
{
	struct task_struct *reader = (struct task_struct *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(reader, thread_pid);
	struct upid id = {0};

	our_level = BPF_CORE_READ(pid, level);
	read_upid(pid, our_level, &id);
	our_ns = id.ns;
	our_now_ns = ran_at(reader);
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	if (!ctx->meta->seq_num)
		look_at_reader();
	record.tgid = id_of(BPF_CORE_READ(task, group_leader));
	if (!record.tgid || (wish.tgid && record.tgid != wish.tgid))
		return 0;
	record.tid = id_of(task);
	if (wish.tid && record.tid != wish.tid)
		return 0;
	look_at(task);
	bpf_seq_write(seq, &record, sizeof(record));
	return 0;
}
