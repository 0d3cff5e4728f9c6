/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of the ptrace sampler that need no target, and os/ptrace.c with a child of our own. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/proc.h"
#include "os/ptrace.h"
#include "sample/ptrace/dump_size.h"
#include "sample/ptrace/pause.h"
#include "sample/ptrace/ring.h"

/* ---- the ring ---- */

TEST(ring_gives_what_was_put_in)
{
	struct note_ring r;
	uint64_t *at;

	check(!note_ring_init(&r, 4096));
	check(!note_ring_peek(&r));
	at = note_ring_reserve(&r, 100);
	check(at && !((uintptr_t)at & 7));
	check(!note_ring_peek(&r)); /* not before it is committed */
	*at = 42;
	check(note_ring_commit(&r, 8));
	*(uint64_t *)note_ring_reserve(&r, 8) = 43;
	check(!note_ring_commit(&r, 8)); /* it was not empty */
	check_u64(*(const uint64_t *)note_ring_peek(&r), 42);
	note_ring_pop(&r);
	check_u64(*(const uint64_t *)note_ring_peek(&r), 43);
	note_ring_pop(&r);
	check(!note_ring_peek(&r));
	note_ring_release(&r);
}

TEST(ring_refuses_when_full)
{
	struct note_ring r;
	size_t taken = 0;

	check(!note_ring_init(&r, 4096));
	check(!note_ring_reserve(&r, 4096));
	while (note_ring_reserve(&r, 248) && taken < 100) {
		note_ring_commit(&r, 248);
		taken++;
	}
	check_u64(taken, 16); /* 248 and the size make 256 */
	note_ring_peek(&r);
	note_ring_pop(&r);
	check(note_ring_reserve(&r, 248));
	note_ring_release(&r);
}

enum { RING_ROUNDS = 200000 };

static void *fill_ring(void *arg)
{
	struct note_ring *r = arg;

	for (uint64_t i = 0; i < RING_ROUNDS; i++) {
		size_t words = 1 + i * 7919 % 60;
		uint64_t *at;

		while (!(at = note_ring_reserve(r, 60 * sizeof(*at))))
			sched_yield();
		for (size_t k = 0; k < words; k++)
			at[k] = i;
		note_ring_commit(r, words * sizeof(*at));
	}
	return NULL;
}

TEST(ring_between_two_threads)
{
	struct note_ring r;
	pthread_t thread;
	uint64_t bad = 0;

	check(!note_ring_init(&r, 4096));
	check(!pthread_create(&thread, NULL, fill_ring, &r));
	for (uint64_t i = 0; i < RING_ROUNDS; i++) {
		size_t words = 1 + i * 7919 % 60;
		const uint64_t *at;

		while (!(at = note_ring_peek(&r)))
			sched_yield();
		for (size_t k = 0; k < words; k++)
			bad += at[k] != i;
		note_ring_pop(&r);
	}
	check_u64(bad, 0);
	pthread_join(thread, NULL);
	note_ring_release(&r);
}

/* ---- pauses ---- */

TEST(pauses_have_percentiles)
{
	static struct pauses p;

	check_u64(pauses_permille(&p, 500), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		pauses_add(&p, i * 1000);
	check_u64(p.count, 1000);
	check_u64(p.max_ns, 1000000);
	uint64_t p50 = pauses_permille(&p, 500), p99 = pauses_permille(&p, 990);
	check(p50 >= 500000 && p50 < 535000);
	check(p99 >= 990000 && p99 <= 1000000);
	check_u64(pauses_permille(&p, 1000), 1000000);
}

TEST(pauses_of_any_length)
{
	static struct pauses p;

	pauses_add(&p, 0);
	check_u64(pauses_permille(&p, 990), 0);
	pauses_add(&p, 15);
	pauses_add(&p, 16);
	pauses_add(&p, UINT64_MAX);
	check_u64(pauses_permille(&p, 750), 16);
	check_u64(pauses_permille(&p, 1000), UINT64_MAX);
}

/* ---- how much is copied ---- */

TEST(dump_sizes_follow_the_stacks)
{
	static struct dump_sizes d;

	check_u64(dump_size_of(&d, 77), DUMP_FIRST_BYTES);
	dump_size_learn(&d, 77, 100, false);
	check(dump_size_of(&d, 77) < DUMP_FIRST_BYTES);
	for (int i = 0; i < 100; i++)
		dump_size_learn(&d, 77, 100, false);
	check_u64(dump_size_of(&d, 77), DUMP_LEAST_BYTES);
	dump_size_learn(&d, 77, 20000, false);
	check(dump_size_of(&d, 77) >= 25000 && dump_size_of(&d, 77) <= 27000);
	dump_size_learn(&d, 77, 26000, true);
	check(dump_size_of(&d, 77) >= 50000);
	for (int i = 0; i < 10; i++)
		dump_size_learn(&d, 77, 65536, true);
	check_u64(dump_size_of(&d, 77), DUMP_MOST_BYTES);
	check_u64(dump_size_of(&d, 78), DUMP_FIRST_BYTES);
	d.most = 9000;
	check_u64(dump_size_of(&d, 77), 9000);
}

/* ---- ptrace ---- */

/* A child that does what it is told; in `pipe` it says how its call ended. */
static pid_t start_child(void (*body)(int out), int *ret_in)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return -1;
	pid = fork();
	if (!pid) {
		close(fds[0]);
		body(fds[1]);
		_exit(0);
	}
	close(fds[1]);
	*ret_in = fds[0];
	return pid;
}

static void wait_in_epoll(int out)
{
	int epoll = epoll_create1(0), n;
	struct epoll_event event;
	char answer;

	n = epoll_wait(epoll, &event, 1, 300);
	answer = n == 0 ? 't' : errno == EINTR ? 'i' : '?';
	n = (int)write(out, &answer, 1);
	_exit(n != 1);
}

static char answer_of(pid_t pid, int in)
{
	char answer = 0;
	ssize_t n = read(in, &answer, 1);

	close(in);
	waitpid(pid, NULL, __WALL);
	return n == 1 ? answer : 0;
}

static void wait_for_state(pid_t pid, char state)
{
	struct proc_status st = {0};

	for (int i = 0; i < 2000 && st.state != state; i++) {
		usleep(1000);
		if (proc_status_read(pid, &st, NULL))
			return;
	}
}

/* Waits for a stop of the child; false when none comes. */
static bool wait_for_stop(pid_t pid, struct ptrace_event *ret)
{
	for (int i = 0; i < 2000; i++) {
		if (ptrace_next(pid, ret))
			return false;
		if (ret->what != PTRACE_NOTHING)
			return true;
		usleep(1000);
	}
	return false;
}

static char stop_in_epoll(bool restart, bool slept, bool *ret_changed)
{
	struct ptrace_event e;
	ptrace_gregs g;
	int in = -1;
	pid_t pid = start_child(wait_in_epoll, &in);

	wait_for_state(pid, 'S');
	if (ptrace_seize(pid, false)) {
		skip("ptrace is refused here");
		kill(pid, SIGKILL);
		return answer_of(pid, in);
	}
	check(!ptrace_next(pid, &e) && e.what == PTRACE_NOTHING); /* seizing stops nobody */
	check(!ptrace_interrupt(pid));
	check(wait_for_stop(pid, &e) && e.what == PTRACE_STOPPED && e.tid == pid);
	check(!ptrace_get_regs(pid, &g));
	*ret_changed = restart && ptrace_restart(&g, slept);
	if (*ret_changed)
		check(!ptrace_set_regs(pid, &g));
	check(!ptrace_go(pid, 0));
	return answer_of(pid, in);
}

TEST(a_stop_interrupts_epoll_wait)
{
	bool changed = false;
	char answer = stop_in_epoll(false, false, &changed);

	if (!test_skip_)
		check_u64(answer, 'i');
}

TEST(a_restarted_call_does_not_notice)
{
#if defined(__x86_64__)
	bool changed = false;
	char answer = stop_in_epoll(true, false, &changed);

	if (test_skip_)
		return;
	check(changed);
	check_u64(answer, 't');
	answer = stop_in_epoll(true, true, &changed);
	check(!changed); /* it has a time limit, of which a part has passed */
	check_u64(answer, 'i');
#else
	skip("x86-64 alone");
#endif
}

static void *seize_and_end(void *arg)
{
	pid_t pid = *(pid_t *)arg;

	return (void *)(intptr_t)ptrace_seize(pid, true);
}

TEST(the_end_of_the_tracer_lets_go_of_all)
{
	struct proc_status st = {0};
	pthread_t thread;
	void *rc;
	int in = -1;
	pid_t pid = start_child(wait_in_epoll, &in);

	wait_for_state(pid, 'S');
	check(!pthread_create(&thread, NULL, seize_and_end, &pid));
	pthread_join(thread, &rc);
	for (int i = 0; i < 1000 && !proc_status_read(pid, &st, NULL) && st.tracer; i++)
		usleep(100);
	check_u64(st.tracer, 0);
	if (rc)
		skip("ptrace is refused here");
	check_u64(answer_of(pid, in), 't'); /* not interrupted */
}

static void raise_signals(int out)
{
	char byte;

	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_DFL);
	if (write(out, "r", 1) == 1 && read(out, &byte, 1) < 0)
		pause();
}

TEST(events_say_what_happened)
{
	struct ptrace_event e;
	char ready;
	int in = -1;
	pid_t pid = start_child(raise_signals, &in);

	check(read(in, &ready, 1) == 1);
	if (ptrace_seize(pid, true)) {
		skip("ptrace is refused here");
	} else {
		kill(pid, SIGUSR2);
		check(wait_for_stop(pid, &e) && e.what == PTRACE_SIGNALLED && e.signal == SIGUSR2);
		check(!ptrace_go(pid, 0)); /* swallowed: it lives */
		kill(pid, SIGSTOP);
		check(wait_for_stop(pid, &e) && e.what == PTRACE_SIGNALLED && e.signal == SIGSTOP);
		check(!ptrace_go(pid, SIGSTOP));
		check(wait_for_stop(pid, &e) && e.what == PTRACE_GROUP_STOP && e.signal == SIGSTOP);
		check(!ptrace_stay(pid));
		kill(pid, SIGCONT);
		check(wait_for_stop(pid, &e) && e.what == PTRACE_STOPPED);
		check(!ptrace_go(pid, 0));
		check(wait_for_stop(pid, &e) && e.what == PTRACE_SIGNALLED && e.signal == SIGCONT);
		check(!ptrace_go(pid, SIGCONT));
	}
	kill(pid, SIGKILL);
	check(wait_for_stop(pid, &e) && e.what == PTRACE_ENDED && WIFSIGNALED(e.status));
	close(in);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(ring_gives_what_was_put_in), T(ring_refuses_when_full),
		T(ring_between_two_threads), T(pauses_have_percentiles), T(pauses_of_any_length),
		T(dump_sizes_follow_the_stacks), T(a_stop_interrupts_epoll_wait),
		T(a_restarted_call_does_not_notice), T(the_end_of_the_tracer_lets_go_of_all),
		T(events_say_what_happened));
}
