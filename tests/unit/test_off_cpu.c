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
#include "os/syscalls.h"
#include "sample/blocked.h"
#include "sample/session.h"
#include "sample/state.h"

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
	check_str(syscall_name(blocked.reason.syscall), "pause");
	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	check(!blocked_read(child, child, &blocked, NULL));
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
	return test_main(argc, argv, T(reasons_from_proc), T(a_sleeper_is_read_and_not_woken), T(the_one_who_asks_does_not_sleep), T(a_thread_that_goes_on_is_told_apart), T(a_stopped_process_says_so), T(a_sleeper_has_a_whole_stack), T(a_lost_frame_pointer_is_found_again), T(a_process_whose_first_thread_has_ended));
}
