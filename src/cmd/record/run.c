/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/record_priv.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "os/priority.h"

#define FLUSH_NS NS_PER_S /* what a kill -9 can cost at most */

bool record_take_signal(struct recording *r)
{
	struct signalfd_siginfo info;

	if (read(r->signal_fd, &info, sizeof(info)) != sizeof(info))
		return false;
	if (r->flight && info.ssi_signo == SIGUSR2) {
		flight_ask(r->flight);
		return false;
	}
	if ((int)info.ssi_signo == r->on_signal.number) { /* $! of a shell is our pid, not the command's */
		on_signal_now(r->samplers[0], NULL);
		return false;
	}
	/* Ctrl-C reaches the command by itself; a signal sent to us alone does not. */
	if (info.ssi_code <= 0) /* sent by a process: kill, sigqueue, tgkill */
		r->forward_signal = (int)info.ssi_signo;
	r->reason = END_INTERRUPTED;
	return true;
}

/* Drops the targets that have ended; true when none is left. */
static bool all_ended(struct recording *r)
{
	for (size_t i = 0; i < r->pid_fds.len;) {
		struct pollfd p = {.fd = r->pid_fds.data[i], .events = POLLIN};

		if (poll(&p, 1, 0) == 1) {
			close(p.fd);
			r->pid_fds.data[i] = r->pid_fds.data[--r->pid_fds.len];
		} else {
			i++;
		}
	}
	r->reason = END_TARGET_EXITED;
	return !r->pid_fds.len;
}

static void show_progress(struct recording *r, uint64_t now)
{
	struct session_stats stats;

	if (!r->term.interactive || r->args->quiet || r->command)
		return;
	session_stats(r->session, &stats);
	if (r->flight) {
		fprintf(stderr, "\rrecording %.0f s, %llu samples ", (double)(now - r->start_ns) / 1e9,
			(unsigned long long)stats.samples);
		return;
	}
	fprintf(stderr, "\rrecording %.0f s, %llu samples, %llu KB; Ctrl-C ends it ",
		(double)(now - r->start_ns) / 1e9, (unsigned long long)stats.samples,
		(unsigned long long)capture_writer_bytes(r->writer) / 1024);
}

/* What there is to do besides draining. */
struct work {
	bool signal, ended;
};

/* Sleeps until there is something to do, at most until `until_ns`. */
static struct work wait_for_work(struct recording *r, uint64_t until_ns)
{
	uint64_t now = clock_monotonic_ns(), ns = until_ns > now ? until_ns - now : 0;
	struct timespec timeout = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	struct pollfd fds[3 + RECORD_MAX_SAMPLERS] = {
		{.fd = r->signal_fd, .events = POLLIN},
		/* One target is enough to wake up for: the flush interval bounds the rest. */
		{.fd = r->pid_fds.len ? r->pid_fds.data[0] : -1, .events = POLLIN},
		{.fd = r->flight ? flight_fd(r->flight) : -1, .events = POLLIN},
	};

	for (size_t i = 0; i < r->sampler_count; i++)
		fds[3 + i] = (struct pollfd){
			.fd = r->samplers[i]->ops->fd(r->samplers[i]), .events = POLLIN};
	if (ppoll(fds, 3 + r->sampler_count, &timeout, NULL) < 0)
		return (struct work){.signal = true};
	r->wakeups++;
	return (struct work){.signal = fds[0].revents, .ended = fds[1].revents};
}

/* When to drain again though nothing is readable. */
static uint64_t drain(struct recording *r)
{
	uint64_t wait_ns = samplers_drain(r->samplers, r->sampler_count, false);

	return wait_ns == UINT64_MAX ? wait_ns : clock_monotonic_ns() + wait_ns;
}

static bool is_all_over(struct recording *r)
{
	return !r->args->all && !r->args->cgroup && all_ended(r);
}

static void run(struct recording *r)
{
	uint64_t flush_ns = r->start_ns + FLUSH_NS;
	uint64_t drain_ns = 0; /* at once: samplers look at what is there before anything happens */

	for (;;) {
		uint64_t until = r->end_ns && r->end_ns < flush_ns ? r->end_ns : flush_ns;

		if (r->flight && flight_next_ns(r->flight) < until)
			until = flight_next_ns(r->flight);

		if (r->tasks && task_times_next_ns(r->tasks) < until)
			until = task_times_next_ns(r->tasks);

		struct work work = wait_for_work(r, drain_ns < until ? drain_ns : until);

		drain_ns = drain(r);

		uint64_t now = clock_monotonic_ns();

		if (r->tasks)
			task_times_step(r->tasks, now);
		if (now >= flush_ns) {
			session_flush(r->session, now);
			show_progress(r, now);
			flush_ns = now + FLUSH_NS;
			work.ended = true; /* perhaps */
		}
		if (capture_writer_error(r->writer, NULL) || r->on_signal.failed.code) {
			r->reason = END_ERROR;
			return;
		}
		if ((work.signal && record_take_signal(r)) || (work.ended && is_all_over(r)))
			return;
		if (r->flight && flight_step(r, now)) {
			r->reason = END_TRIGGER;
			return;
		}
		if (r->end_ns && now >= r->end_ns) {
			r->reason = END_DURATION;
			return;
		}
	}
}

void record_run(struct recording *r)
{
	struct priority before;

	/* The tail of a stack is gone when its thread runs on; naming has time. */
	priority_raise(&before);
	run(r);
	priority_restore(&before);
}
