/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/heap/record_priv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/priority.h"

#define FLUSH_NS NS_PER_S /* what a kill -9 can cost at most */

/* True: it was for us. */
static bool take_signal(struct heap_recording *r)
{
	struct signalfd_siginfo info;

	if (read(r->signal_fd, &info, sizeof(info)) != sizeof(info))
		return false;
	/* Ctrl-C reaches the command by itself; a signal sent to us alone does not. */
	if (info.ssi_code <= 0) /* sent by a process: kill, sigqueue, tgkill */
		r->forward_signal = (int)info.ssi_signo;
	r->reason = END_INTERRUPTED;
	return true;
}

struct work {
	bool signal, ended;
};

static struct work wait_for_work(struct heap_recording *r, uint64_t until_ns)
{
	uint64_t now = clock_monotonic_ns(), ns = until_ns > now ? until_ns - now : 0;
	struct timespec timeout = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	struct pollfd fds[3] = {
		{.fd = r->signal_fd, .events = POLLIN},
		{.fd = r->waits_for_daemons ? -1 : r->pid_fd, .events = POLLIN},
		{.fd = heap_collector_fd(r->collector), .events = POLLIN},
	};

	if (ppoll(fds, 3, &timeout, NULL) < 0)
		return (struct work){.signal = true};
	r->wakeups++;
	return (struct work){.signal = fds[0].revents, .ended = fds[1].revents};
}

/* The command has ended: is there nobody else whose end is to be waited for? */
static bool all_ended(struct heap_recording *r)
{
	r->waits_for_daemons = r->args->daemons && r->library && heap_library_in_use(heap_library_path(r->library));
	return !r->waits_for_daemons;
}

static void run(struct heap_recording *r)
{
	uint64_t flush_ns = r->start_ns + FLUSH_NS, step_ns = 0;

	for (;;) {
		uint64_t until = r->end_ns && r->end_ns < flush_ns ? r->end_ns : flush_ns;
		struct work work = wait_for_work(r, step_ns < until ? step_ns : until);
		uint64_t now = clock_monotonic_ns();

		step_ns = heap_collector_step(r->collector, now);
		if (now >= flush_ns) {
			session_flush(r->session, now);
			flush_ns = now + FLUSH_NS;
			work.ended |= r->waits_for_daemons;
		}
		if (capture_writer_error(r->writer, NULL)) {
			r->reason = END_ERROR;
			return;
		}
		if (work.signal && take_signal(r))
			return;
		if (work.ended && all_ended(r)) {
			r->reason = END_TARGET_EXITED;
			return;
		}
		if (r->end_ns && now >= r->end_ns) {
			r->reason = END_DURATION;
			return;
		}
	}
}

/* A program that allocates fast fills its rings while we wait for a CPU. */
void heap_run(struct heap_recording *r)
{
	struct priority before;

	priority_raise(&before);
	run(r);
	priority_restore(&before);
}

/* ---- the end ---- */

static void show_naming(void *ctx, size_t done, size_t all)
{
	const struct heap_recording *r = ctx;

	if (r->term.interactive && !r->args->quiet && all > 20000)
		fprintf(stderr, "\rnaming %zu of %zu addresses ", done, all);
}

int heap_finish(struct heap_recording *r, struct err *err)
{
	struct naming_options naming = {.debuginfod = r->args->debuginfod, .progress = show_naming, .ctx = r};
	uint64_t cpu_ns;

	heap_collector_finish(r->collector);
	r->end_ns = clock_monotonic_ns();
	session_flush(r->session, r->end_ns);
	heap_collector_stats(r->collector, &r->stats);
	session_stats(r->session, &r->session_stats);
	cpu_ns = clock_own_cpu_ns();
	r->cost = (struct record_cost){
		.sampler_cpu_ns = cpu_ns - r->start_cpu_ns,
		.wakeups = r->wakeups,
		.ring_bytes = r->stats.bytes,
	};
	session_name_frames(r->session, &naming);
	r->cost.symbol_cpu_ns = clock_own_cpu_ns() - cpu_ns;
	capture_record(r->writer, RECORD_COST, &r->cost, sizeof(r->cost));
	if (r->term.interactive && !r->args->quiet)
		fputs("\r\033[K", stderr);
	capture_writer_flush(r->writer);
	r->file_bytes = capture_writer_bytes(r->writer);
	return capture_writer_finish(take_ptr(r->writer), r->reason, r->end_ns, err);
}

int heap_leave_command(struct heap_recording *r)
{
	for (;;) {
		struct pollfd fds[2] = {
			{.fd = r->signal_fd, .events = POLLIN},
			{.fd = r->pid_fd, .events = POLLIN},
		};

		if (r->forward_signal)
			kill(r->child.pid, r->forward_signal);
		r->forward_signal = 0;
		if ((poll(fds, 2, -1) < 0 && errno != EINTR) || fds[1].revents)
			return child_wait(&r->child);
		take_signal(r);
	}
}
