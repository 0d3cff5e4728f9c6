/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/ptrace/ptrace_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

static void ptrace_free(struct sampler *sampler)
{
	struct ptrace_sampler *s = ptrace_of(sampler);

	tracer_end(&s->tracer);
	tracer_release(&s->tracer);
	vec_release(&s->sleepers);
	throttling_free(s->throttling);
	python_stopped_free(s->tracer.python);
	free(s);
}

/* Half of the files we may open are for targets whose /proc files stay open. */
static size_t most_files(void)
{
	struct rlimit limit = {1024, 1024};

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur != limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			getrlimit(RLIMIT_NOFILE, &limit);
	}
	return limit.rlim_cur / 2;
}

/* A thread's CPU time is what its samples are weighed by. */
static int check_kernel(struct err *err)
{
	return access("/proc/thread-self/schedstat", R_OK)
		? err_set(err, ENOSYS,
			  "the ptrace sampler needs /proc/PID/schedstat, which this kernel was built "
			  "without (CONFIG_SCHED_INFO)")
		: 0;
}

static int ptrace_open(const struct sampler_options *options, struct sampler **ret, struct err *err)
{
	struct ptrace_sampler *s;
	int rc = check_kernel(err);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_nomem(err);
	s->sampler.ops = &sampler_ptrace;
	s->tracer.notes_fd = -1;
	s->tracer.options = *options;
	s->tracer.period_ns = options->frequency_hz ? NS_PER_S / options->frequency_hz : 0;
	s->tracer.sizes.most = options->stack_bytes;
	s->tracer.cpus = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
	s->tracer.most_files = most_files();
	rc = throttling_new(&s->throttling, err);
	if (!rc && !options->nonblocking)
		rc = python_stopped_new(&s->tracer.python, err);
	if (!rc)
		rc = tracer_init(&s->tracer, err);
	if (rc) {
		ptrace_free(&s->sampler);
		return rc;
	}
	*ret = &s->sampler;
	return 0;
}

static void ptrace_bind(struct sampler *sampler, struct session *session)
{
	struct ptrace_sampler *s = ptrace_of(sampler);

	s->session = session;
	s->tracer.selection = session_selection(session);
	session_maps_untold(session);
	if (s->tracer.python)
		python_copier_follow(python_stopped_copier(s->tracer.python), session);
}

static int ask(struct sampler *sampler, enum tracer_ask what, pid_t pid, pid_t tid, struct err *err)
{
	struct tracer *t = &ptrace_of(sampler)->tracer;
	struct tracer_request r = {.ask = what, .pid = pid, .tid = tid};
	int rc = tracer_start(t, err);

	if (!rc)
		rc = tracer_ask(t, &r, err);
	if (!rc && t->options.off_cpu)
		throttling_watch(ptrace_of(sampler)->throttling, pid, clock_monotonic_ns());
	return rc;
}

static int ptrace_watch_process(struct sampler *sampler, pid_t pid, struct err *err)
{
	return ask(sampler, ASK_PROCESS, pid, pid, err);
}

static int ptrace_watch_thread(struct sampler *sampler, pid_t pid, pid_t tid, struct err *err)
{
	return ask(sampler, ASK_THREAD, pid, tid, err);
}

static int ptrace_watch_child(struct sampler *sampler, pid_t pid, struct err *err)
{
	return ask(sampler, ASK_CHILD, pid, pid, err);
}

void on_signal_set(struct sampler *sampler, int signal, const struct on_signal_sink *sink)
{
	struct ptrace_sampler *s = ptrace_of(sampler);

	s->sink = *sink;
	s->tracer.on_signal = signal;
}

int on_signal_now(struct sampler *sampler, struct err *err)
{
	return ask(sampler, ASK_SNAPSHOT, 0, 0, err);
}

static int ptrace_fd(const struct sampler *sampler)
{
	return ((const struct ptrace_sampler *)sampler)->tracer.notes_fd;
}

static void ptrace_stop(struct sampler *sampler)
{
	tracer_end(&ptrace_of(sampler)->tracer);
}

static void ptrace_facts(const struct sampler *sampler, struct sampler_facts *ret)
{
	const struct ptrace_sampler *s = (const struct ptrace_sampler *)sampler;
	const struct tracer *t = &s->tracer;

	*ret = (struct sampler_facts){
		.event = "ptrace",
		.ring_bytes_read = s->bytes_read,
		.python = t->python ? "stopped" : "live",
		.stack_bytes = t->sizes.most ? t->sizes.most : DUMP_MOST_BYTES,
	};
	if (t->started) /* the rest is the tracer's, until it has ended */
		return;
	ret->threads = t->attached;
	ret->stops = t->pauses.count;
	ret->pause_p50_ns = pauses_permille(&t->pauses, 500);
	ret->pause_p99_ns = pauses_permille(&t->pauses, 990);
	ret->pause_max_ns = t->pauses.max_ns;
	ret->late_stops = t->late;
	ret->restarted_calls = t->restarted;
}

const struct sampler_ops sampler_ptrace = {
	.name = "ptrace",
	.open = ptrace_open,
	.free = ptrace_free,
	.bind = ptrace_bind,
	.watch_process = ptrace_watch_process,
	.watch_thread = ptrace_watch_thread,
	.watch_child = ptrace_watch_child,
	.fd = ptrace_fd,
	.drain = ptrace_drain,
	.stop = ptrace_stop,
	.facts = ptrace_facts,
};
