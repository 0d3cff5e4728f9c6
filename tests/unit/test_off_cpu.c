/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads off the CPU: what they do, and their stacks while they sleep. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/cgroup.h"
#include "os/syscalls.h"
#include "sample/blocked.h"
#include "sample/session.h"
#include "sample/state.h"
#include "sample/throttling.h"

#define NOINLINE __attribute__((noinline))

TEST(reasons_from_proc)
{
	int futex = syscall_number("futex"), read = syscall_number("read");
	int restart = syscall_number("restart_syscall");
	const struct {
		struct thread_wait wait;
		enum thread_state state;
		int syscall;
	} rows[] = {
		{{.state = 'R', .syscall = -1}, STATE_RUN_QUEUE, -1},
		{{.state = 'S', .blocked = true, .syscall = futex}, STATE_FUTEX, futex},
		{{.state = 'D', .blocked = true, .syscall = read}, STATE_SYSCALL, read},
		{{.state = 'S', .blocked = true, .syscall = 4000}, STATE_SYSCALL, 4000},
		{{.state = 'D', .blocked = true, .syscall = -1}, STATE_PAGE_FAULT, -1},
		{{.state = 'T', .blocked = true, .syscall = read}, STATE_STOPPED, read},
		{{.state = 't', .blocked = true, .syscall = -1}, STATE_STOPPED, -1},
		{{.state = 'S', .blocked = true, .syscall = read, .where = "do_freezer_trap"},
			STATE_STOPPED, read},
		{{.state = 'D', .blocked = true, .syscall = -1, .where = "__refrigerator"},
			STATE_STOPPED, -1},
		{{.state = 'S', .blocked = true, .syscall = restart, .where = "futex_do_wait"},
			STATE_FUTEX, futex},
		{{.state = 'S', .blocked = true, .syscall = restart, .where = "hrtimer_nanosleep"},
			STATE_SYSCALL, restart},
		/* Not ours to trace: only that it sleeps is known. */
		{{.state = 'S', .syscall = -1}, STATE_BLOCKED, -1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct off_cpu_reason r = state_of_wait(&rows[i].wait);

		check_u64(r.state, rows[i].state);
		check_u64(r.syscall, rows[i].syscall);
	}
}

/* ---- the kernel's functions ---- */

static const char kallsyms[] = "ffffffff81000000 T entry_SYSCALL_64_after_hwframe\n"
			       "ffffffff81001000 T do_syscall_64\n"
			       "ffffffff81002000 T x64_sys_call\n"
			       "ffffffff81003000 T __x64_sys_futex\n"
			       "ffffffff81004000 t do_futex\n"
			       "ffffffff81005000 T schedule\n"
			       "ffffffff81006000 T ksys_read\n"
			       "ffffffff81007000 t __do_sys_newfstatat.isra.0\n"
			       "ffffffff81008000 T kernel_wait4\n"
			       "ffffffff81009000 t do_epoll_pwait.part.0\n"
			       "ffffffff8100a000 T ksys_pread64\n"
			       "ffffffff8100b000 T asm_exc_page_fault\n"
			       "ffffffff8100c000 T handle_mm_fault\n"
			       "ffffffff8100d000 T get_signal\n"
			       "ffffffff8100e000 t do_signal_stop\n"
			       "ffffffff8100f000 T exit_to_user_mode_loop\n"
			       "ffffffff81010000 T do_exit\n"
			       "ffffffff81011000 T copy_to_user\n"
			       "ffffffff81012000 T ret_from_fork\n"
			       "ffffffff81013000 T kthread\n"
			       "ffffffff81014000 T __x64_sys_unheard_of\n";

enum { ENTRY, SYSCALL, X64, FUTEX, DO_FUTEX, SCHEDULE, READ, FSTATAT, WAIT4, EPOLL, PREAD, FAULT_ENTRY,
       FAULT, SIGNAL, STOP, EXIT_LOOP, EXIT, COPY, FORK, KTHREAD, UNHEARD };

/* Leaf first; every function is left in its middle. */
static struct off_cpu_reason of_chain(struct kernel_roles *roles, const int *functions, size_t count)
{
	uint64_t ips[16];

	for (size_t i = 0; i < count; i++)
		ips[i] = 0xffffffff81000000 + 0x1000 * (uint64_t)functions[i] + 0x20;
	return state_of_chain(roles, ips, count, NULL);
}
#define CHAIN(roles, ...)                                                                          \
	of_chain(roles, (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static void check_reason(
	struct off_cpu_reason r, enum thread_state state, const char *name, const char *what)
{
	const char *got = syscall_name(r.syscall);

	if (r.state != state || (name ? !got || strcmp(got, name) : r.syscall >= 0))
		printf("%s is state %d, %s\n", what, (int)r.state, got ? got : "no call");
	check_u64(r.state, state);
	check(name ? got && !strcmp(got, name) : r.syscall < 0);
}

TEST(reasons_from_kernel_functions)
{
	struct kernel_roles *roles;

	check(!kernel_roles_new_text(kallsyms, sizeof(kallsyms) - 1, &roles, NULL));
#define CHECK(state, name, ...) check_reason(CHAIN(roles, __VA_ARGS__), state, name, #__VA_ARGS__)
	CHECK(STATE_FUTEX, "futex", SCHEDULE, DO_FUTEX, FUTEX, SYSCALL, ENTRY);
	CHECK(STATE_FUTEX, "futex", SCHEDULE, DO_FUTEX, X64, SYSCALL, ENTRY);
	CHECK(STATE_SYSCALL, "read", SCHEDULE, READ, SYSCALL, ENTRY);
	CHECK(STATE_SYSCALL, "newfstatat", SCHEDULE, FSTATAT, SYSCALL, ENTRY);
	CHECK(STATE_SYSCALL, "wait4", SCHEDULE, WAIT4, SYSCALL, ENTRY);
	CHECK(STATE_SYSCALL, "epoll_pwait", SCHEDULE, EPOLL, SYSCALL, ENTRY);
	CHECK(STATE_SYSCALL, "pread64", SCHEDULE, PREAD, SYSCALL, ENTRY);
	CHECK(STATE_PAGE_FAULT, NULL, SCHEDULE, FAULT, FAULT_ENTRY);
	CHECK(STATE_PAGE_FAULT, NULL, SCHEDULE, FAULT, FAULT_ENTRY, COPY, READ, SYSCALL, ENTRY);
	CHECK(STATE_STOPPED, NULL, SCHEDULE, STOP, SIGNAL, EXIT_LOOP, SYSCALL, ENTRY);
	CHECK(STATE_STOPPED, NULL, SCHEDULE, SIGNAL, EXIT_LOOP, SYSCALL, ENTRY);
	CHECK(STATE_BLOCKED, NULL, SCHEDULE, EXIT, SIGNAL, EXIT_LOOP, SYSCALL, ENTRY);
	CHECK(STATE_BLOCKED, NULL, SCHEDULE, KTHREAD, FORK);
	CHECK(STATE_BLOCKED, NULL, SCHEDULE, UNHEARD, SYSCALL, ENTRY);
	CHECK(STATE_BLOCKED, NULL, SCHEDULE);
	check_reason(state_of_chain(roles, NULL, 0, NULL), STATE_BLOCKED, NULL, "nothing");
	for (int i = 0; i < 2000; i++) /* more addresses than it has room for at first */
		state_of_chain(roles, &(uint64_t){0xffffffff81000000 + (uint64_t)i}, 1, NULL);
	CHECK(STATE_SYSCALL, "read", SCHEDULE, READ, SYSCALL, ENTRY);
	kernel_roles_free(roles);
}

TEST(without_kernel_symbols_registers_tell)
{
#if defined(__x86_64__)
	struct unwind_regs regs = {.known = (1ULL << 17) - 1};
	uint64_t ip = 0xffffffff81000020;

	regs.value[UNWIND_X86_PC] = regs.value[2] = 0x401000;
	regs.value[0] = (uint64_t)-38;
	check_u64(state_of_chain(NULL, &ip, 1, &regs).state, STATE_SYSCALL);
	regs.value[2]++;
	check_u64(state_of_chain(NULL, &ip, 1, &regs).state, STATE_BLOCKED);
	regs.value[2]--;
	regs.known = 0;
	check_u64(state_of_chain(NULL, &ip, 1, &regs).state, STATE_BLOCKED);
#else
	skip("registers do not tell on this architecture");
#endif
}

/* ---- cgroups ---- */

TEST(cgroups_that_limit_cpus)
{
	const struct {
		const char *text, *path; /* NULL: none */
		bool v1;
	} rows[] = {
		{"0::/a/b\n", "/a/b", false},
		{"9:name=systemd:/x\n2:cpuacct:/acct\n1:cpu:/limited\n0::/v2\n", "/limited", true},
		{"0::/v2\n4:cpu,cpuacct:/both\n", "/both", true},
		{"3:cpuset:/set\n0::/\n", "/", false},
		{"3:cpuset:/set\n", NULL, false},
		{"3:cpu", NULL, false},
		{"", NULL, false},
		{":::", NULL, false},
		{"::\n\n:", "", false},
	};
	char path[64];
	bool v1;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool found = cgroup_cpu_path(rows[i].text, path, sizeof(path), &v1);

		if (rows[i].path)
			check_str(found ? path : "none", rows[i].path);
		check(!found || v1 == rows[i].v1);
	}
	check(!cgroup_cpu_path("0::/a-path-that-does-not-fit\n", path, 8, &v1));
}

TEST(sums_of_throttling)
{
	struct cgroup_throttling sums = {0};

	check(cgroup_throttling_parse("usage_usec 7\nnr_periods 10\nnr_throttled 3\nthrottled_usec 250\n", &sums));
	check_u64(sums.periods, 3);
	check_u64(sums.ns, 250000);
	check(cgroup_throttling_parse("nr_periods 1\nnr_throttled 4\nthrottled_time 99\n", &sums));
	check_u64(sums.ns, 99);
	check(!cgroup_throttling_parse("usage_usec 7\n", &sums)); /* the topmost cgroup */
	check(!cgroup_throttling_parse("", &sums));
}

TEST(nobody_is_throttled_who_is_not_limited)
{
	struct throttling *t;
	uint64_t now = clock_monotonic_ns();

	check(!throttling_new(&t, NULL));
	throttling_watch(t, getpid(), now);
	throttling_watch(t, 4194305, now);
	throttling_refresh(t, now + 2 * NS_PER_S);
	check(!throttling_covers(t, getpid(), now + 1000, clock_monotonic_ns()));
	check(!throttling_covers(t, 4194305, now + 1000, clock_monotonic_ns()));
	throttling_free(t);
}

/* ---- sleepers ---- */

static int pipe_fds[2];
static atomic_int sleeper_tid;
static struct blocked_thread blocked;

/* Each level has a frame, and none is a tail call. */
NOINLINE static int sleep_deep(int levels)
{
	volatile char byte = 0;

	if (levels)
		byte = (char)sleep_deep(levels - 1);
	else if (read(pipe_fds[0], (char *)&byte, 1) != 1)
		byte = 2;
	return byte + 1;
}

static void *sleeper(void *arg)
{
	sleeper_tid = gettid();
	sleep_deep((int)(intptr_t)arg);
	return NULL;
}

static void await_sleep(pid_t pid, pid_t tid)
{
	struct thread_wait wait = {0};
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;

	while (!wait.blocked && clock_monotonic_ns() < until) {
		check(!thread_wait_read(pid, tid, &wait, NULL));
		usleep(1000);
	}
	check(wait.blocked);
}

static pthread_t start_sleeper(int levels)
{
	pthread_t thread;

	sleeper_tid = 0;
	check(!pipe(pipe_fds));
	check(!pthread_create(&thread, NULL, sleeper, (void *)(intptr_t)levels));
	while (!sleeper_tid)
		usleep(100);
	await_sleep(getpid(), sleeper_tid);
	return thread;
}

static void end_sleeper(pthread_t thread)
{
	check(write(pipe_fds[1], "x", 1) == 1);
	pthread_join(thread, NULL);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TEST(a_sleeper_is_read_and_not_woken)
{
	pthread_t thread = start_sleeper(3);
	pid_t tid = sleeper_tid;
	uint64_t before = 0, after = 0;

	check(!thread_switches(getpid(), tid, &before, NULL));
	check(!blocked_read(getpid(), tid, &blocked, NULL));
	check_u64(blocked.reason.state, STATE_SYSCALL);
	check_str(syscall_name(blocked.reason.syscall), "read");
	check_u64(blocked.wait.args[0], pipe_fds[0]);
	check(blocked.stack.has_regs && blocked.stack.dump.size > 256);
	check(blocked.stack.dump.start == blocked.wait.sp);
	check(blocked_still(getpid(), tid, &blocked));
	check(!thread_switches(getpid(), tid, &after, NULL));
	check_u64(after, before);
	end_sleeper(thread);
	check(!blocked_still(getpid(), tid, &blocked));
	/* A thread that was joined may be there a little longer. */
	for (int i = 0; i < 1000 && !syscall(SYS_tgkill, getpid(), tid, 0); i++)
		usleep(1000);
	check(blocked_read(getpid(), tid, &blocked, NULL) == -ESRCH);
}

TEST(the_one_who_asks_does_not_sleep)
{
	check(blocked_read(getpid(), gettid(), &blocked, NULL) == -EAGAIN);
	check_u64(blocked.reason.state, STATE_RUN_QUEUE);
	check(blocked_read(4194305, 4194305, &blocked, NULL) == -ESRCH);
}

/* Wakes up the whole time: what is read must never pass for one moment when it was two. */
static atomic_bool stop_blinking;
static void *blinker(void *arg)
{
	sleeper_tid = gettid();
	while (!stop_blinking)
		sleep_deep(atomic_load(&sleeper_tid) & 1);
	return NULL;
}

TEST(a_thread_that_goes_on_is_told_apart)
{
	pthread_t thread;
	unsigned whole = 0;

	sleeper_tid = 0;
	check(!pipe(pipe_fds));
	check(!pthread_create(&thread, NULL, blinker, NULL));
	while (!sleeper_tid)
		usleep(100);
	for (unsigned i = 0; i < 300; i++) {
		uint64_t before, after;

		check(!thread_switches(getpid(), sleeper_tid, &before, NULL));
		if (i % 2)
			check(write(pipe_fds[1], "x", 1) == 1);

		int rc = blocked_read(getpid(), sleeper_tid, &blocked, NULL);

		check(!thread_switches(getpid(), sleeper_tid, &after, NULL));
		check(!rc || rc == -EAGAIN);
		whole += !rc;
		check(rc || (blocked.switches >= before && blocked.switches <= after));
	}
	check(whole > 0);
	stop_blinking = true;
	end_sleeper(thread);
}

TEST(a_stopped_process_says_so)
{
	pid_t child = fork();
	int status;

	if (!child)
		for (;;)
			pause();
	await_sleep(child, child);
	check(!blocked_read(child, child, &blocked, NULL));
	check_u64(blocked.reason.state, STATE_SYSCALL);
	/* aarch64 has no pause(2); there it is a ppoll. */
	check_str(syscall_name(blocked.reason.syscall),
		syscall_number("pause") >= 0 ? "pause" : "ppoll");
	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	/* That it has stopped is told before it has left its CPU. */
	for (unsigned i = 0; i < 5000 && blocked_read(child, child, &blocked, NULL); i++)
		usleep(1000);
	check_u64(blocked.reason.state, STATE_STOPPED);
	check(blocked.stack.has_regs);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

/* ---- their stacks ---- */

struct stack_world {
	struct capture_writer *writer;
	struct thread_selection selection;
	struct session *session;
};

static void world_init(struct stack_world *w, pid_t pid)
{
	struct err err = {0};

	*w = (struct stack_world){0};
	check(!capture_writer_to_fd(open("/dev/null", O_WRONLY), "null", &w->writer, &err));
	check(!session_new(w->writer, &w->selection, &w->session, &err));
	check(!session_adopt(w->session, pid, &err));
}

static void world_release(struct stack_world *w)
{
	session_free(w->session);
	capture_writer_abandon(w->writer);
}

static struct stored_stack stack_of(struct stack_world *w, pid_t pid, pid_t tid)
{
	struct stored_stack stack = {.leaf = CAPTURE_NONE};

	check(!blocked_read(pid, tid, &blocked, NULL));
	check(session_stack(w->session, pid, tid, clock_monotonic_ns(), &blocked.stack, &stack));
	return stack;
}

/* 2,000 levels do not fit into what is copied: the rest is read where it stands. */
TEST(a_sleeper_has_a_whole_stack)
{
	for (int levels = 3; levels < 3000; levels += 1997) {
		pthread_t thread = start_sleeper(levels);
		struct stack_world w;

		world_init(&w, getpid());
		struct stored_stack stack = stack_of(&w, getpid(), sleeper_tid);
		check_u64(stack.end, UNWIND_ROOT);
		check(levels < 1000 || stack.live_frames > 0);
		world_release(&w);
		end_sleeper(thread);
	}
}

/* The size is not known to the compiler, so the frame is found by the frame pointer alone. */
NOINLINE static int sleep_framed(int levels)
{
	volatile char *room = __builtin_alloca((size_t)levels * 24 + 1);

	room[0] = (char)(levels ? sleep_framed(levels - 1) : sleep_deep(1));
	return room[0] + 1;
}

static void *framed_sleeper(void *arg)
{
	sleeper_tid = gettid();
	sleep_framed((int)(intptr_t)arg);
	return NULL;
}

TEST(a_lost_frame_pointer_is_found_again)
{
	pthread_t thread;
	struct stack_world w;

	sleeper_tid = 0;
	check(!pipe(pipe_fds));
	check(!pthread_create(&thread, NULL, framed_sleeper, (void *)20));
	while (!sleeper_tid)
		usleep(100);
	await_sleep(getpid(), sleeper_tid);
	world_init(&w, getpid());
	check_u64(stack_of(&w, getpid(), sleeper_tid).end, UNWIND_ROOT);
	world_release(&w);
	end_sleeper(thread);
}

static void *outlive_the_first(void *arg)
{
	sleeper(arg);
	_exit(0);
}

/* /proc shows no memory and no mappings of a process whose first thread has ended. */
TEST(a_process_whose_first_thread_has_ended)
{
	struct stack_world w;
	atomic_int *shared = &sleeper_tid;
	int tids[2], status;
	pid_t child, tid = 0;

	check(!pipe(tids) && !pipe(pipe_fds));
	child = fork();
	if (!child) {
		pthread_t thread;

		*shared = 0;
		if (pthread_create(&thread, NULL, outlive_the_first, (void *)3))
			_exit(1);
		while (!*shared)
			usleep(100);
		tid = *shared;
		if (write(tids[1], &tid, sizeof(tid)) != sizeof(tid))
			_exit(1);
		syscall(SYS_exit, 0);
	}
	check(read(tids[0], &tid, sizeof(tid)) == sizeof(tid));
	await_sleep(child, tid);
	for (struct proc_status st = {0}; st.state != 'Z'; usleep(1000))
		check(!proc_status_read(child, &st, NULL));
	world_init(&w, child);
	check(blocked_read(child, child, &blocked, NULL) == -ESRCH);
	check_u64(stack_of(&w, child, tid).end, UNWIND_ROOT);
	world_release(&w);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(reasons_from_proc), T(reasons_from_kernel_functions),
		T(without_kernel_symbols_registers_tell), T(cgroups_that_limit_cpus),
		T(sums_of_throttling), T(nobody_is_throttled_who_is_not_limited),
		T(a_sleeper_is_read_and_not_woken), T(the_one_who_asks_does_not_sleep),
		T(a_thread_that_goes_on_is_told_apart), T(a_stopped_process_says_so),
		T(a_sleeper_has_a_whole_stack), T(a_lost_frame_pointer_is_found_again),
		T(a_process_whose_first_thread_has_ended));
}
