/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking at threads by BPF: what is made of a record, and threads of known states on this kernel. The
 * kernels tests run this program on other ones.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sample/snapshot/bpf_task.h"

/* ---- records ---- */

static struct thread_look look_of(const struct snapshot_task *t)
{
	struct thread_look l;

	check(bpf_task_look(t, &l));
	return l;
}

TEST(letters_of_states)
{
	static const struct {
		uint32_t state, exit_state;
		char letter;
		bool blocked;
	} rows[] = {
		{1, 0, 'S', true},
		{2, 0, 'D', true},
		{0x102, 0, 'D', true}, /* killable */
		{0x402, 0, 'I', false},
		{0x104, 0, 'T', true},
		{0x8, 0, 't', true},
		{0x108, 0, 't', true},
		{0x8000, 0, 'D', true},
		{0x1000, 0, 'D', true},
		{0x40, 0, 'P', false},
		{0x80, 0x20, 'Z', false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct snapshot_task t = {
			.tid = 1, .state = rows[i].state, .exit_state = rows[i].exit_state};
		struct thread_look l = look_of(&t);

		check_u64(l.wait.state, rows[i].letter);
		check_u64(l.wait.blocked, rows[i].blocked);
		t.flags = SNAPSHOT_MOVED;
		check(!look_of(&t).wait.blocked);
		t.flags = SNAPSHOT_QUEUED;
		check(!look_of(&t).wait.blocked);
	}
}

TEST(one_that_is_gone)
{
	struct snapshot_task t = {.tid = 1, .state = 0x80, .exit_state = 0x10};
	struct thread_look l;

	check(!bpf_task_look(&t, &l));
}

static void number_regs(struct snapshot_task *t)
{
	for (uint64_t i = 0; i < USER_REGS; i++)
		t->regs[i] = 0x100000000 + i;
	t->flags |= SNAPSHOT_HAS_REGS;
}

TEST(registers_and_arguments)
{
	struct snapshot_task t = {.state = 1, .syscall = 7, .first_arg = 0x100000063};
	struct thread_look l;

	number_regs(&t);
	l = look_of(&t);
	check_u64(l.wait.syscall, 7);
	check_u64(l.wait.sp, 0x100000000 + USER_REG_SP);
	check_u64(l.wait.pc, 0x100000000 + USER_REG_PC);
#if defined(__x86_64__)
	check_u64(l.wait.args[0], 0x10000000e); /* rdi */
	check_u64(l.wait.args[3], 0x100000007); /* r10 */
	check_u64(l.regs.value[6], 0x100000004); /* rbp */
	check_u64(l.regs.known, (1 << 17) - 1);
#else
	check_u64(l.wait.args[0], 0x100000063);
	check_u64(l.wait.args[1], 0x100000001);
	check_u64(l.regs.value[29], 0x10000001d);
	check_u64(l.regs.known, (1ull << 33) - 1);
#endif
	t.flags |= SNAPSHOT_COMPAT;
	l = look_of(&t);
	check(l.compat && !l.regs.known);
	check_u64(l.wait.syscall, 7);
#if defined(__x86_64__)
	check_u64(l.wait.args[0], 5); /* ebx */
	check_u64(l.wait.args[5], 4); /* ebp */
#endif
	t.flags = SNAPSHOT_HAS_REGS | SNAPSHOT_QUEUED;
	l = look_of(&t);
	check(l.queued && l.regs.known && !l.wait.sp && l.wait.syscall == -1);
	t.flags = SNAPSHOT_HAS_REGS | SNAPSHOT_MOVED;
	check(!look_of(&t).regs.known);
	t.flags = SNAPSHOT_HAS_REGS;
	t.syscall = -38;
	check_u64(look_of(&t).wait.syscall, -1);
}

TEST(locks_and_names)
{
	struct snapshot_task t = {.state = 2,
		.comm = "a\nb\x7f 0123456789",
		.lock = SNAPSHOT_MUTEX,
		.holder_tid = 6,
		.holder_tgid = 5};
	struct thread_look l = look_of(&t);

	check_str(l.name, "a?b? 0123456789");
	check_u64(l.kernel_lock, KERNEL_LOCK_MUTEX);
	check(l.kernel_holder == 6 && l.kernel_holder_pid == 5 && l.kernel_holder_sure);
	t.lock = SNAPSHOT_RWSEM_READERS;
	l = look_of(&t);
	check(l.kernel_lock == KERNEL_LOCK_RWSEM && l.kernel_holder == 6 && !l.kernel_holder_sure);
	t.lock = 77;
	check_u64(look_of(&t).kernel_lock, KERNEL_LOCK_NONE);
	t.lock = SNAPSHOT_MUTEX;
	t.flags = SNAPSHOT_QUEUED;
	check_u64(look_of(&t).kernel_lock, KERNEL_LOCK_NONE);
}

/* ---- this kernel ---- */

static struct look *bpf, *proc;
static struct thread_looks seen, seen_by_proc;

static bool have_bpf(void)
{
	struct err err = {0};
	int rc = bpf ? 0 : look_bpf.open(&bpf, &err);

	if (!proc)
		check(!look_proc.open(&proc, NULL));
	if (rc == -EPERM || rc == -EACCES) {
		skip("BPF is refused here");
		return false;
	}
	if (rc)
		printf("%s\n", err.text);
	check(!rc);
	return !rc;
}

static const struct thread_look *look_at(struct look *by, pid_t pid, pid_t tid)
{
	struct thread_looks *to = by == bpf ? &seen : &seen_by_proc;
	struct err err = {0};

	check(!by->ops->read(by, pid, tid, to, &err));
	if (err.text[0])
		printf("%s\n", err.text);
	vec_each(to, l)
		if (l->tid == tid)
			return l;
	return NULL;
}

/* Waits until it sleeps, and has since the look before; what /proc says of it then. */
static struct thread_look asleep(pid_t pid, pid_t tid, char state)
{
	struct thread_look before = {0};
	const struct thread_look *l;

	for (int i = 0; i < 2000; i++, usleep(5000)) {
		l = look_at(proc, pid, tid);
		if (l && l->wait.state == state && (look_same(&before, l) || state == 'Z'))
			return *l;
		before = l ? *l : before;
	}
	check(!"it did not come to that state");
	return (struct thread_look){0};
}

static void check_same(const struct thread_look *want, const struct thread_look *got)
{
	check(got);
	if (!got)
		return;
	check_u64(got->pid, want->pid);
	check_u64(got->tid, want->tid);
	check_str(got->name, want->name);
	check_u64(got->wait.state, want->wait.state);
	check_u64(got->wait.blocked, want->wait.blocked);
	check_u64(got->wait.syscall, want->wait.syscall);
	for (int i = 0; i < 6; i++)
		check_u64(got->wait.args[i], want->wait.args[i]);
	check_u64(got->wait.sp, want->wait.sp);
	check_u64(got->wait.pc, want->wait.pc);
	check_str(got->wait.where, want->wait.where);
	check_u64(got->switches, want->switches);
	check(look_same(want, got) || !want->wait.blocked);
}

static atomic_int tid_of_thread;
static int pipe_ends[2];
static atomic_bool stop;

static void *sleep_in_read(void *arg)
{
	char byte;

	tid_of_thread = gettid();
	return read(pipe_ends[0], &byte, 1) < 0 ? NULL : arg;
}

static void *sleep_in_futex(void *arg)
{
	tid_of_thread = gettid();
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
	return arg;
}

static void *spin(void *arg)
{
	tid_of_thread = gettid();
	while (!stop)
		;
	return arg;
}

static pid_t start(pthread_t *thread, void *(*body)(void *), void *arg)
{
	tid_of_thread = 0;
	check(!pthread_create(thread, NULL, body, arg));
	while (!tid_of_thread)
		usleep(1000);
	return tid_of_thread;
}

/* Threads that were joined, and visitors of a CPU that was too busy to be asked, are not gone at once. */
static void wait_for_threads(unsigned int count)
{
	struct stat task;

	while (!stat("/proc/self/task", &task) && task.st_nlink > 2 + count)
		usleep(1000);
}

TEST(as_proc_has_it)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_t reader, locker;
	struct thread_look want;
	pid_t in_read, in_futex;

	if (!have_bpf())
		return;
	check(!pipe(pipe_ends));
	wait_for_threads(1);
	pthread_mutex_lock(&mutex);
	in_read = start(&reader, sleep_in_read, &mutex);
	in_futex = start(&locker, sleep_in_futex, &mutex);
	pthread_setname_np(locker, "a locker");
	want = asleep(getpid(), in_read, 'S');
	check_same(&want, look_at(bpf, getpid(), in_read));
	check_u64(want.wait.syscall, SYS_read);
	check_u64(seen.len, 1);
	want = asleep(getpid(), in_futex, 'S');
	check_same(&want, look_at(bpf, getpid(), in_futex));
	check_u64(want.wait.syscall, SYS_futex);
	check_u64(seen.data[0].wait.args[0], (uintptr_t)&mutex);
	wait_for_threads(3);
	look_at(bpf, getpid(), 0);
	check_u64(seen.len, 3);
	check(seen.data[0].tid == getpid() && seen.data[1].tid == in_read &&
		seen.data[2].tid == in_futex);
	check(!seen.data[0].wait.blocked && seen.data[0].wait.state == 'R' && !seen.data[0].regs.known);
	pthread_mutex_unlock(&mutex);
	check(write(pipe_ends[1], "", 1) == 1);
	pthread_join(reader, NULL);
	pthread_join(locker, NULL);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

TEST(nobody_there)
{
	struct err err = {0};

	if (!have_bpf())
		return;
	check_u64(bpf->ops->read(bpf, 0x3fffffff, 0, &seen, &err), -ESRCH);
	check(strstr(err.text, "1073741823"));
	check_u64(bpf->ops->read(bpf, getpid(), 0x3fffffff, &seen, NULL), -ESRCH);
}

/* Registers that callees save have known values in the call. */
static void *sleep_with_values(void *arg)
{
	char byte;

	tid_of_thread = gettid();
#if defined(__x86_64__)
	register long rax __asm__("rax") = SYS_read;
	register long rdi __asm__("rdi") = pipe_ends[0];
	register char *rsi __asm__("rsi") = &byte;
	register long rdx __asm__("rdx") = 1;

	__asm__ volatile("mov $0x1111, %%rbx\n mov $0x2222, %%r12\n mov $0x3333, %%r13\n"
			 "mov $0x4444, %%r14\n mov $0x5555, %%r15\n push %%rbp\n mov $0x6666, %%rbp\n"
			 "syscall\n pop %%rbp"
			 : "+r"(rax)
			 : "r"(rdi), "r"(rsi), "r"(rdx)
			 : "rbx", "rcx", "r11", "r12", "r13", "r14", "r15", "memory");
#else
	register long x8 __asm__("x8") = SYS_read;
	register long x0 __asm__("x0") = pipe_ends[0];
	register char *x1 __asm__("x1") = &byte;
	register long x2 __asm__("x2") = 1;

	__asm__ volatile("mov x19, #0x1111\n mov x20, #0x2222\n mov x28, #0x3333\n svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2)
			 : "x19", "x20", "x28", "memory");
#endif
	return arg;
}

TEST(all_registers)
{
	const struct thread_look *l;
	pthread_t thread;
	pid_t tid;

	if (!have_bpf())
		return;
	check(!pipe(pipe_ends));
	tid = start(&thread, sleep_with_values, NULL);
	asleep(getpid(), tid, 'S');
	l = look_at(bpf, getpid(), tid);
	check(l);
	if (l) {
#if defined(__x86_64__)
		check_u64(l->regs.value[3], 0x1111);
		check_u64(l->regs.value[12], 0x2222);
		check_u64(l->regs.value[13], 0x3333);
		check_u64(l->regs.value[14], 0x4444);
		check_u64(l->regs.value[15], 0x5555);
		check_u64(l->regs.value[6], 0x6666);
#else
		check_u64(l->regs.value[19], 0x1111);
		check_u64(l->regs.value[20], 0x2222);
		check_u64(l->regs.value[28], 0x3333);
#endif
		check_u64(l->wait.args[0], pipe_ends[0]);
	}
	check(write(pipe_ends[1], "", 1) == 1);
	pthread_join(thread, NULL);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

#if defined(__x86_64__)
/* A call of the other table: 64-bit code may make it as well. */
static void *sleep_in_32_bit_call(void *arg)
{
	long nr = 3; /* read */

	tid_of_thread = gettid();
	__asm__ volatile("int $0x80"
			 : "+a"(nr)
			 : "b"((long)pipe_ends[0]), "c"(arg), "d"(1l)
			 : "memory", "r8", "r9", "r10", "r11");
	return NULL;
}

TEST(a_32_bit_call)
{
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct thread_look want;
	const struct thread_look *l;
	pthread_t thread;
	pid_t tid;

	if (!have_bpf())
		return;
	check(!pipe(pipe_ends));
	tid = start(&thread, sleep_in_32_bit_call, low);
	for (int i = 0; i < 100 && !look_at(proc, getpid(), tid)->wait.blocked; i++)
		usleep(5000);
	if (look_at(proc, getpid(), tid) && seen_by_proc.data[0].wait.blocked) {
		want = asleep(getpid(), tid, 'S');
		for (int i = 0; i < 6; i++)
			want.wait.args[i] = (uint32_t)want.wait.args[i];
		l = look_at(bpf, getpid(), tid);
		check_same(&want, l);
		check(l && l->compat && !l->regs.known && l->wait.syscall == 3);
		check_u64(l ? l->wait.args[1] : 0, (uintptr_t)low);
	} else {
		skip("this kernel has no 32-bit calls");
	}
	check(write(pipe_ends[1], "", 1) == 1);
	pthread_join(thread, NULL);
	munmap(low, 4096);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}
#endif

/* Two of them are on a CPU or wait for one. */
TEST(threads_that_run)
{
	const struct thread_look *l;
	uint64_t ran, began = clock_monotonic_ns();
	pthread_t threads[2];
	pid_t tid = 0;

	if (!have_bpf())
		return;
	stop = false;
	for (int i = 0; i < 2; i++)
		tid = start(&threads[i], spin, NULL);
	l = look_at(bpf, getpid(), tid);
	check(l && l->wait.state == 'R' && !l->wait.blocked && !l->wait.where[0]);
	ran = l ? l->ran_ns : 0;
	do {
		usleep(20000);
		l = look_at(bpf, getpid(), tid);
	} while (l && l->ran_ns == ran && clock_monotonic_ns() - began < 10 * NS_PER_S);
	check(l && l->ran_ns > ran);
	check(l && (!l->regs.known || l->queued));
	check(l && (l->queued || !l->idle_ns));
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Compared with how long it slept by our clock; the scheduler's is as of the last tick, and not known
 * while the CPU is busy. */
TEST(since_when_it_sleeps)
{
	uint64_t slack_ns = 100 * NS_PER_MS, began_ns, least_ns;
	const struct thread_look *l;
	pthread_t thread;
	pid_t tid;

	if (!have_bpf())
		return;
	check(!pipe(pipe_ends));
	began_ns = clock_monotonic_ns();
	tid = start(&thread, sleep_in_read, NULL);
	asleep(getpid(), tid, 'S');
	least_ns = clock_monotonic_ns();
	usleep(700000);
	least_ns = clock_monotonic_ns() - least_ns;
	l = look_at(bpf, getpid(), tid);
	for (int i = 0; i < 50 && l && l->idle_ns == LOOK_UNKNOWN; i++) {
		usleep(10000);
		l = look_at(bpf, getpid(), tid);
	}
	check(l && l->idle_ns + slack_ns >= least_ns);
	check(l && l->idle_ns <= clock_monotonic_ns() - began_ns + slack_ns);
	check(write(pipe_ends[1], "", 1) == 1);
	pthread_join(thread, NULL);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* ---- states of processes ---- */

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

TEST(stopped_and_traced)
{
	struct thread_look want;
	pid_t child;

	if (!have_bpf())
		return;
	for (int traced = 0; traced < 2; traced++) {
		child = fork();
		if (!child) {
			if (traced)
				ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
			_exit(0);
		}
		waitpid(child, NULL, WUNTRACED);
		want = asleep(child, child, traced ? 't' : 'T');
		check_same(&want, look_at(bpf, child, child));
		end(child);
	}
}

/* The parent of a vfork() sleeps, and nothing interrupts it, until the child is another program. */
TEST(uninterruptible)
{
	struct thread_look want;
	pid_t child;

	if (!have_bpf())
		return;
	child = fork();
	if (!child) {
		if (!vfork()) {
			for (int i = 0; i < 100; i++)
				usleep(100000);
			_exit(0);
		}
		_exit(0);
	}
	want = asleep(child, child, 'D');
	check_same(&want, look_at(bpf, child, child));
	end(child);
}

static void *outlive(void *arg)
{
	for (;;)
		pause();
	return arg;
}

TEST(the_first_thread_has_ended)
{
	pthread_t thread;
	pid_t child;

	if (!have_bpf())
		return;
	child = fork();
	if (!child) {
		pthread_create(&thread, NULL, outlive, NULL);
		syscall(SYS_exit, 0);
	}
	asleep(child, child, 'Z');
	look_at(bpf, child, 0);
	check_u64(seen.len, 2);
	if (seen.len == 2)
		asleep(child, seen.data[1].tid, 'S');
	look_at(bpf, child, 0);
	check(seen.data[0].tid == child && seen.data[0].wait.state == 'Z' &&
		!seen.data[0].wait.blocked && !seen.data[0].regs.known);
	check(seen.len < 2 || (seen.data[1].pid == child && seen.data[1].wait.state == 'S'));
	end(child);
}

static void write_to(const char *dir, const char *file, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "w");
	check(f && fputs(text, f) >= 0 && !fclose(f));
}

/* A cgroup in a hierarchy of that kind, and how it is told to do something to those in it. */
struct control {
	const char *root, *file, *on, *off;
};

static void check_freezer(const struct control *c, const char *dir, pid_t child)
{
	const struct thread_look *l;

	asleep(child, child, 'S');
	l = look_at(bpf, child, child);
	check(l && !l->frozen);
	write_to(dir, c->file, c->on);
	for (int i = 0; i < 2000 && !(l && l->frozen); i++, usleep(5000))
		l = look_at(bpf, child, child);
	check(l && l->frozen && l->wait.blocked && l->regs.known);
	write_to(dir, c->file, c->off);
}

static void check_throttled(const struct control *c, const char *dir, pid_t child)
{
	const struct thread_look *l = NULL;

	write_to(dir, c->file, c->on);
	for (int i = 0; i < 20000 && !(l && l->throttled); i++, usleep(500))
		l = look_at(bpf, child, child);
	check(l && l->throttled && l->queued && !l->wait.blocked && l->regs.known && l->wait.state == 'R');
	write_to(dir, c->file, c->off);
}

/* What is no such hierarchy is passed over. */
static bool try_control(const struct control *c, void *(*body)(void *),
	void (*look)(const struct control *c, const char *dir, pid_t child))
{
	char dir[96], path[128], text[16];
	pid_t child;
	bool there;

	snprintf(dir, sizeof(dir), "%s/sonde-test-XXXXXX", c->root);
	if (!mkdtemp(dir))
		return false;
	snprintf(path, sizeof(path), "%s/%s", dir, c->file);
	there = !access(path, W_OK);
	if (there) {
		child = fork();
		if (!child)
			body(NULL);
		snprintf(text, sizeof(text), "%d", (int)child);
		write_to(dir, "cgroup.procs", text);
		look(c, dir, child);
		end(child);
	}
	for (int i = 0; i < 100 && rmdir(dir); i++)
		usleep(5000);
	return there;
}

TEST(throttled_by_a_cgroup)
{
	static const struct control controls[] = {
		{"/sys/fs/cgroup", "cpu.max", "1000 100000", "max 100000"},
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "1000", "-1"},
	};
	int tried = 0;

	if (!have_bpf())
		return;
	stop = false;
	for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++)
		tried += try_control(&controls[i], spin, check_throttled);
	if (!tried)
		skip("no cgroup can be made that limits CPU time");
}

TEST(frozen_by_a_cgroup)
{
	static const struct control controls[] = {
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
	};
	int tried = 0;

	if (!have_bpf())
		return;
	for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++)
		tried += try_control(&controls[i], outlive, check_freezer);
	if (!tried)
		skip("no cgroup can be made that freezes");
}

/* Ids are those of the reader's pid namespace, and nobody is seen outside of it. */
TEST(in_a_pid_namespace)
{
	int status = 0;
	pid_t child;

	if (!have_bpf())
		return;
	child = fork();
	if (!child) {
		struct look *own;

		if (unshare(CLONE_NEWPID))
			_exit(77);
		child = fork();
		if (child) {
			waitpid(child, &status, 0);
			_exit(WEXITSTATUS(status));
		}
		if (look_bpf.open(&own, NULL) || own->ops->read(own, 0, 0, &seen, NULL))
			_exit(1);
		_exit(seen.len == 1 && seen.data[0].pid == 1 && seen.data[0].tid == 1 ? 0 : 2);
	}
	waitpid(child, &status, 0);
	if (WEXITSTATUS(status) == 77)
		skip("no pid namespace can be made");
	else
		check_u64(status, 0);
}

/* ---- a lock of the kernel's ---- */

static char *page_that_blocks;

static void *write_what_blocks(void *arg)
{
	tid_of_thread = gettid();
	return write(pipe_ends[1], page_that_blocks, 1) == 1 ? arg : NULL;
}

static void *write_behind_it(void *arg)
{
	tid_of_thread = gettid();
	return write(pipe_ends[1], "", 1) == 1 ? arg : NULL;
}

/* A page whose first reader waits for us. */
static int block_on_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {
		.range = {.len = 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		return -1;
	page_that_blocks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (uintptr_t)page_that_blocks;
	check(!ioctl(fd, UFFDIO_API, &api));
	check(!ioctl(fd, UFFDIO_REGISTER, &range));
	return fd;
}

TEST(who_holds_a_mutex_of_the_kernel)
{
	struct uffdio_zeropage fill = {.range = {.len = 4096}};
	pthread_t first, second;
	const struct thread_look *l;
	pid_t holder, waiter;
	int fd;

	if (!have_bpf())
		return;
	fd = block_on_page();
	if (fd < 0) {
		skip("no userfaultfd");
		return;
	}
	check(!pipe(pipe_ends));
	holder = start(&first, write_what_blocks, NULL);
	for (int i = 0; i < 2000; i++, usleep(5000)) {
		l = look_at(proc, getpid(), holder);
		if (l && l->wait.blocked)
			break;
	}
	waiter = start(&second, write_behind_it, NULL);
	asleep(getpid(), waiter, 'D');
	l = look_at(bpf, getpid(), waiter);
	check(l && l->wait.state == 'D' && l->wait.syscall == SYS_write);
	if (l)
		printf("kernel lock %s, holder %s\n", l->kernel_lock ? "known" : "unknown",
			l->kernel_holder == holder ? "known" : "unknown");
	if (l && l->kernel_lock) {
		check_u64(l->kernel_lock, KERNEL_LOCK_MUTEX);
		check_u64(l->kernel_holder, holder);
		check_u64(l->kernel_holder_pid, getpid());
		check(l->kernel_holder_sure);
	}
	fill.range.start = (uintptr_t)page_that_blocks;
	check(!ioctl(fd, UFFDIO_ZEROPAGE, &fill));
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	munmap(page_that_blocks, 4096);
	close(fd);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

int main(int argc, char **argv)
{
	int rc = test_main(argc, argv, T(letters_of_states), T(one_that_is_gone),
		T(registers_and_arguments), T(locks_and_names), T(as_proc_has_it), T(nobody_there),
		T(all_registers),
#if defined(__x86_64__)
		T(a_32_bit_call),
#endif
		T(threads_that_run), T(since_when_it_sleeps), T(stopped_and_traced),
		T(uninterruptible), T(the_first_thread_has_ended), T(frozen_by_a_cgroup), T(throttled_by_a_cgroup),
		T(in_a_pid_namespace), T(who_holds_a_mutex_of_the_kernel));

	if (bpf)
		bpf->ops->free(bpf);
	if (proc)
		proc->ops->free(proc);
	vec_release(&seen);
	vec_release(&seen_by_proc);
	return rc;
}
