/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of threads that run: by perf, by stopping them, and what neither may do to them. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/proc.h"
#include "sample/snapshot/running.h"

#include "../live/programs/refuse.h"

#if defined(__x86_64__)
#define REG_PC UNWIND_X86_PC
#define REG_SP UNWIND_X86_RSP
#else
#define REG_PC UNWIND_A64_PC
#define REG_SP UNWIND_A64_SP
#endif

/* ---- whom to look at ---- */

extern const char __start_spinning[], __stop_spinning[];

static struct shared {
	atomic_int tids[4], signals, interrupted;
	atomic_bool stop;
} *shared;

/* Its instructions are in a section of their own, so a sample can be told to be of it. */
#if defined(__clang__)
/* What sanitizers put in would call out of it. */
#define PLAIN __attribute__((no_sanitize("address", "undefined", "coverage")))
#else
#define PLAIN
#endif
static __attribute__((noinline, section("spinning"))) PLAIN void spin(void)
{
	while (!shared->stop)
		;
}

static void *spin_in_thread(void *arg)
{
	*(atomic_int *)arg = gettid();
	spin();
	return NULL;
}

static bool share(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	return shared != MAP_FAILED;
}

static void unshare_it(void)
{
	munmap(shared, sizeof(*shared));
}

/* A process of ours that ends with us. */
static pid_t child_that(void (*does)(void))
{
	pid_t child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	does();
	_exit(0);
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static char state_of(pid_t pid, pid_t *ret_tracer)
{
	struct proc_status st = {0};

	check(!proc_status_read(pid, &st, NULL));
	*ret_tracer = st.tracer;
	return st.state;
}

static void wait_for_state(pid_t pid, char state)
{
	pid_t tracer;

	for (int i = 0; i < 2000 && state_of(pid, &tracer) != state; i++)
		usleep(5000);
}

/* ---- what was seen ---- */

struct seen {
	struct running_samples samples;
	struct running_cost cost;
	struct err err;
	int rc;
};

static struct seen look(const struct running_thread *threads, size_t count, struct running_options options)
{
	struct seen s = {0};

	s.rc = running_sample(threads, count, &options, &s.samples, &s.cost, &s.err);
	return s;
}

static struct seen look_at_one(pid_t pid, struct running_options options)
{
	struct running_thread thread = {pid, pid};

	return look(&thread, 1, options);
}

/* Looks again where another process had the CPU all the time that a look lasts. */
static struct seen see_one(pid_t pid, struct running_options options)
{
	struct seen s = look_at_one(pid, options);

	for (int i = 0; i < 200 && !s.rc && !s.samples.len; i++) {
		running_release(&s.samples);
		usleep(5000);
		s = look_at_one(pid, options);
	}
	return s;
}

static uint32_t count_of(const struct seen *s, pid_t tid)
{
	uint32_t count = 0;

	vec_each(&s->samples, it)
		count += it->tid == tid;
	return count;
}

static bool both_seen(const struct seen *s, const struct running_thread *threads)
{
	return count_of(s, threads[0].tid) && count_of(s, threads[1].tid);
}

/* In spin(), with the stack that its sp points to. */
static void check_spinning(const struct seen *s)
{
	vec_each(&s->samples, it) {
		uint64_t pc = it->stack.regs.value[REG_PC];

		check(it->stack.has_regs);
		check(pc >= (uintptr_t)__start_spinning && pc < (uintptr_t)__stop_spinning);
		check_u64(it->stack.dump.start, it->stack.regs.value[REG_SP]);
		check(it->stack.dump.size >= 64);
		if (it != s->samples.data && it[-1].tid == it->tid)
			check(it[-1].time_ns <= it->time_ns);
	}
}

/* ---- perf ---- */

TEST(threads_by_perf)
{
	struct running_thread threads[3];
	pthread_t started[2];
	struct seen s;

	if (!share())
		return;
	for (int i = 0; i < 2; i++) {
		check(!pthread_create(&started[i], NULL, spin_in_thread, &shared->tids[i]));
		while (!shared->tids[i])
			usleep(1000);
		threads[i] = (struct running_thread){getpid(), shared->tids[i]};
	}
	threads[2] = (struct running_thread){0x3fffffff, 0x3fffffff};
	s = look(threads, 3, (struct running_options){.never_stop = true});
	for (int i = 0; i < 200 && !s.rc && !both_seen(&s, threads); i++) {
		running_release(&s.samples);
		usleep(5000);
		s = look(threads, 3, (struct running_options){.never_stop = true});
	}
	shared->stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(started[i], NULL);
	if (s.rc == -EPERM || s.rc == -EACCES) {
		skip("perf is refused here");
	} else {
		check_u64(s.rc, 0);
		check(s.cost.perf && !s.cost.stop && !s.cost.stops && !s.cost.pause_ns);
		for (int i = 0; i < 2; i++) {
			uint32_t count = count_of(&s, threads[i].tid);

			check(count >= 1 && count <= RUNNING_SAMPLES);
		}
		check_u64(count_of(&s, threads[2].tid), 0);
		check_spinning(&s);
	}
	running_release(&s.samples);
	unshare_it();
}

/* ---- stops ---- */

TEST(one_by_stops)
{
	pid_t child, tracer;
	struct seen s;

	if (!share())
		return;
	child = child_that(spin);
	wait_for_state(child, 'R');
	usleep(20000); /* to get there */
	s = see_one(child, (struct running_options){.stop = true});
	check_u64(s.rc, 0);
	check_str(s.err.text, "");
	check(s.samples.len >= 1 && s.samples.len <= RUNNING_STOPS);
	check(s.cost.stop && !s.cost.perf && s.cost.stops >= s.samples.len);
	check(s.cost.pause_ns >= s.cost.longest_ns && s.cost.longest_ns > 0);
	check_spinning(&s);
	check(state_of(child, &tracer) == 'R' && !tracer);
	running_release(&s.samples);
	end(child);
	unshare_it();
}

static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

static void stop_oneself(void)
{
	raise(SIGSTOP);
}

/* Whoever does not run is left alone. */
TEST(sleepers_are_not_stopped)
{
	void (*const does[])(void) = {sleep_for_ever, stop_oneself};
	const char states[] = {'S', 'T'};
	pid_t child, tracer;
	struct seen s;

	for (int i = 0; i < 2; i++) {
		child = child_that(does[i]);
		wait_for_state(child, states[i]);
		s = look_at_one(child, (struct running_options){.stop = true});
		check_u64(s.rc, 0);
		check(!s.samples.len && !s.cost.stops && !s.cost.stop);
		check(state_of(child, &tracer) == states[i] && !tracer);
		end(child);
	}
	s = look_at_one(0x3fffffff, (struct running_options){.stop = true});
	check(!s.rc && !s.samples.len);
}

static void be_traced_and_spin(void)
{
	ptrace(PTRACE_TRACEME, 0, 0, 0);
	raise(SIGSTOP);
	spin();
}

TEST(another_tracer)
{
	pid_t child, tracer;
	struct seen s;

	if (!share())
		return;
	child = child_that(be_traced_and_spin);
	check(waitpid(child, NULL, 0) == child);
	check(!ptrace(PTRACE_CONT, child, 0, 0));
	wait_for_state(child, 'R');
	s = look_at_one(child, (struct running_options){.stop = true});
	check_u64(s.rc, -EPERM);
	check(s.err.text[0]);
	check(!s.samples.len && !s.cost.stops);
	check(state_of(child, &tracer) == 'R' && tracer == getpid());
	end(child);
	unshare_it();
}

static void count_signal(int signal)
{
	shared->signals++;
}

static void spin_and_count(void)
{
	signal(SIGUSR1, count_signal);
	shared->tids[0] = getpid();
	spin();
}

static void *send_signals(void *arg)
{
	for (int sent = 0; sent < 300; sent++) {
		kill(*(pid_t *)arg, SIGUSR1);
		for (int i = 0; i < 10000 && shared->signals <= sent; i++)
			usleep(200);
	}
	return NULL;
}

/* All signals arrive, and nothing stands still afterwards. */
TEST(signals_come_through)
{
	pid_t child, tracer;
	pthread_t sender;

	if (!share())
		return;
	child = child_that(spin_and_count);
	while (!shared->tids[0])
		usleep(1000);
	check(!pthread_create(&sender, NULL, send_signals, &child));
	for (int i = 0; i < 20; i++) {
		struct seen s = look_at_one(child, (struct running_options){.stop = true});

		check_u64(s.rc, 0);
		running_release(&s.samples);
	}
	pthread_join(sender, NULL);
	check_u64(shared->signals, 300);
	check(state_of(child, &tracer) == 'R' && !tracer);
	end(child);
	unshare_it();
}

static void wait_often(void)
{
	int epoll = epoll_create1(0);
	struct epoll_event event;

	shared->tids[0] = getpid();
	for (;;) {
		if (epoll_wait(epoll, &event, 1, 1) < 0 && errno == EINTR)
			shared->interrupted++;
		for (volatile int i = 0; i < 300000; i++)
			;
	}
}

/* One that goes to sleep just as it is to stop. */
TEST(no_call_is_interrupted)
{
	pid_t child;
	uint32_t stops = 0;

	if (!share())
		return;
	child = child_that(wait_often);
	while (!shared->tids[0])
		usleep(1000);
	for (int i = 0; i < 50; i++) {
		struct seen s = look_at_one(child, (struct running_options){.stop = true});

		check_u64(s.rc, 0);
		stops += s.cost.stops;
		running_release(&s.samples);
	}
	check(stops > 0);
#if defined(__x86_64__)
	check_u64(shared->interrupted, 0);
#endif
	end(child);
	unshare_it();
}

static void look_without_perf(void)
{
	struct seen s;

	if (!refuse(SYS_perf_event_open))
		_exit(3);
	s = look_at_one(shared->tids[0], (struct running_options){.never_stop = true});
	if (s.rc != -EPERM || !s.err.text[0] || s.samples.len)
		_exit(1);
	s = see_one(shared->tids[0], (struct running_options){0});
	_exit(s.rc || !s.samples.len || !s.cost.stop ? 2 : 0);
}

TEST(where_perf_is_refused)
{
	pid_t child, looker;
	int status = -1;

	if (!share())
		return;
	child = child_that(spin);
	shared->tids[0] = child;
	usleep(50000);
	looker = child_that(look_without_perf);
	check(waitpid(looker, &status, 0) == looker);
	check_u64(status, 0);
	end(child);
	unshare_it();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(threads_by_perf), T(one_by_stops), T(sleepers_are_not_stopped),
		T(another_tracer), T(signals_come_through), T(no_call_is_interrupted),
		T(where_perf_is_refused));
}
