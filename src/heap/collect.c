/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The collector's loop: what is there is read every few milliseconds while programs allocate, less often while they do
 * not. Nothing tells us that a program has written something; it would have to make a system call.
 */
#include "heap/collect_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/proc.h"
#include "os/usage.h"

/* Events of one drain, so that hellos and signals do not wait for long. */
#define DRAIN_EVENTS 50000u
/* With so many at once programs are busy. */
#define BUSY_EVENTS 2000u
#define WAIT_LEAST_NS NS_PER_MS
#define WAIT_EVENTS_NS (10 * NS_PER_MS)
#define WAIT_IDLE_NS (40 * NS_PER_MS)
/* A process that has ended writes no more; what is there is soon read. */
#define MOST_DRAINS 100000u

/* Moments: one a second, then as often as 2 % more time has passed, so that their number grows by the logarithm of the time. */
#define MOMENT_NS NS_PER_S
#define MOMENT_PART 50u
/* Points between: ten a second, for ten minutes. */
#define POINT_NS (100 * NS_PER_MS)
#define POINT_PART 6000u

#define RATE_NS (200 * NS_PER_MS)

/* Object files whose rules are not done yet. */
#define RULES_NS (2 * NS_PER_MS)
#define LOAD_NS (10 * NS_PER_MS)

#define HELLO UINT64_MAX
#define MOST_ENDINGS 64

/* ---- events ---- */

static struct watched *of_event(const struct heap_collector *c, const struct heap_event *e)
{
	struct watched *w = c->watched[HEAP_SLOT(e->process)];

	return w && w->number == e->process ? w : NULL;
}

static void thread_began(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	pid_t tid = collect_tid(w, (uint32_t)e->address);
	const char *name = e->more && e->more->text[0] ? e->more->text[0] : "", *known;

	if ((pid_t)e->address != w->own_pid)
		vec_push(&w->tids, (pid_t)e->address);
	known = session_thread_name(c->session, tid);
	if (*name && (!known || strcmp(known, name)))
		session_renamed(c->session, w->pid, tid, name, false, e->time_ns);
}

static bool has_stack(uint32_t type)
{
	return type == SHARE_ALLOC || type == SHARE_FREE_STACK || type == SHARE_FREE_STACK_LAST ||
		type == SHARE_REALLOC_DONE || type == SHARE_CALL;
}

static bool records_time(const struct heap_collector *c)
{
	return c->options.precision == HEAP_CALLS && c->options.share_options & SHARE_OPTION_TIMES;
}

static void write_time(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	bool raw = e->more && e->more->raw;
	struct record_sample record = {
		.time_ns = e->time_ns,
		.weight = e->more ? e->more->cpu_ns : 0,
		.pid = (uint32_t)w->pid,
		.tid = (uint32_t)collect_tid(w, e->tid),
		.stack = collect_stack(c, w, e),
		.end = !raw && collect_is_cut(c, w, e) ? UNWIND_TRUNCATED : UNWIND_ROOT,
	};

	capture_record(c->writer, RECORD_SAMPLE, &record, sizeof(record));
	c->stats.time_samples++;
	c->stats.time_ns += record.weight;
}

static void take(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	uint64_t gone;

	if (e->type == SHARE_THREAD) {
		thread_began(c, w, e);
		return;
	}
	if (e->type == SHARE_PYTHON_CODE) {
		collect_python_code(c, w, e);
		return;
	}
	if (e->type == SHARE_PYTHON_CALL) {
		collect_python_call(w, e->address);
		return;
	}
	if (w->says) {
		collect_said(c, w, e);
		return;
	}
	if (e->type == SHARE_MODULES) {
		/* Unless they were read since, for the tables. */
		if ((int32_t)((uint32_t)e->address - w->modules_done) > 0)
			session_read_maps(c->session, w->pid, NULL);
		return;
	}
	if (records_time(c)) {
		if (e->type == SHARE_CALL)
			write_time(c, w, e);
		return;
	}
	if (e->type == SHARE_USABLE) {
		heap_model_usable(c->model, e);
		return;
	}
	if (e->type == SHARE_MAP || e->type == SHARE_UNMAP || e->type == SHARE_UNMAP_FAILED) {
		collect_mapped(c, w, e);
		return;
	}
	if (w->own_pid == w->pid) {
		gone = heap_model_take(c->model, e, has_stack(e->type) ? collect_stack(c, w, e) : CAPTURE_NONE);
	} else {
		struct heap_event as_we_see = *e;

		as_we_see.tid = (uint32_t)collect_tid(w, e->tid);
		gone = heap_model_take(
			c->model, &as_we_see, has_stack(e->type) ? collect_stack(c, w, e) : CAPTURE_NONE);
	}
	if (gone)
		heap_readers_unfilter(c->readers, e->process, gone);
}

bool collect_of_memory(const struct heap_collector *c)
{
	return !records_time(c);
}

static void take_events(void *ctx, const struct heap_event *events, size_t count)
{
	struct heap_collector *c = ctx;

	for (size_t i = 0; i < count; i++)
		if (events[i].type < SHARE_MARK)
			heap_model_prefetch(c->model, &events[i]);
	for (size_t i = 0; i < count; i++) {
		struct watched *w = of_event(c, &events[i]);

		if (w)
			take(c, w, &events[i]);
	}
	c->changed = true;
}

static const struct heap_reader_ops reader_ops = {take_events};

/* ---- from beginning to end ---- */

static int open_all(struct heap_collector *c, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = HELLO};
	int rc;

	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	rc = c->epoll_fd < 0 ? err_errno(err, errno, "epoll_create1") : hello_new(&c->hello, err);
	if (!rc && epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, hello_fd(c->hello), &event))
		rc = err_errno(err, errno, "epoll_ctl");
	if (!rc)
		rc = heap_readers_new(&reader_ops, c, &c->readers, err);
	if (!rc)
		rc = heap_rules_new(&c->rules, err);
	if (!rc)
		rc = heap_notes_new(c->writer, c->session, &c->notes, err);
	return rc ? rc : heap_model_new(&c->model, err);
}

int heap_collector_new(struct session *s, struct capture_writer *w, const struct heap_collect_options *options,
	struct heap_collector **ret, struct err *err)
{
	struct heap_collector *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return err_nomem(err);
	c->session = s;
	c->writer = w;
	c->options = *options;
	c->rate = options->rate;
	c->start_ns = clock_monotonic_ns();
	c->moment_ns = c->start_ns + MOMENT_NS;
	c->point_ns = c->start_ns;
	c->wait_ns = WAIT_LEAST_NS;
	rc = open_all(c, err);
	if (rc) {
		heap_collector_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void heap_collector_free(struct heap_collector *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->slots; i++) {
		struct watched *w = c->watched[i];

		if (!w)
			continue;
		if (w->pid_fd >= 0)
			close(w->pid_fd);
		heap_tables_free(w->tables);
		collect_python_free(c, w);
		vec_release(&w->stacks);
		vec_release(&w->path);
		vec_release(&w->tids);
		free(w);
	}
	collect_probes_free(c);
	heap_readers_free(c->readers);
	heap_rules_free(c->rules);
	heap_model_free(c->model);
	heap_notes_free(c->notes);
	hello_free(c->hello);
	vec_release(&c->modules);
	vec_release(&c->unseen);
	if (c->epoll_fd >= 0)
		close(c->epoll_fd);
	free(c);
}

/* The CPU's counter is read faster, where the kernel itself believes that it counts evenly on all CPUs. */
static enum share_clock choose_clock(void)
{
	autofclose FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	char name[32] = "";

	if (!f || !fgets(name, sizeof(name), f))
		return SHARE_CLOCK_MONOTONIC;
	return !strcmp(name, "tsc\n") || !strcmp(name, "arch_sys_counter\n") ? SHARE_CLOCK_COUNTER : SHARE_CLOCK_MONOTONIC;
}

/* What programs are to know of ours. */
static uint64_t own_filters(void)
{
	struct proc_status status;
	uint64_t count = proc_status_read(getpid(), &status, NULL) ? 0 : status.seccomp_filters;

	return (count < SHARE_OPTION_FILTERS_MOST ? count : SHARE_OPTION_FILTERS_MOST) << SHARE_OPTION_FILTERS_AT;
}

void heap_collector_environment(const struct heap_collector *c, char *buf, size_t size)
{
	static const enum share_mode modes[] = {
		[HEAP_EXACT] = SHARE_EXACT, [HEAP_SAMPLED] = SHARE_SAMPLED, [HEAP_CALLS] = SHARE_EVERY};
	struct hello_wish wish = {
		.mode = modes[c->options.precision],
		.clock = choose_clock(),
		.rate = c->rate,
		.options = c->options.share_options | own_filters(),
	};

	hello_environment(c->hello, &wish, buf, size);
}

void heap_collector_only(struct heap_collector *c, pid_t pid)
{
	c->options.only_pid = pid;
}

int heap_collector_add(
	struct heap_collector *c, int fd, pid_t pid, pid_t own_pid, enum heap_how how, struct err *err)
{
	return collect_begin(c, fd, pid, own_pid, how, err);
}

int heap_collector_fd(const struct heap_collector *c)
{
	return c->epoll_fd;
}

const struct heap_model *heap_collector_model(const struct heap_collector *c)
{
	return c->model;
}

/* ---- a step ---- */

void collect_drain(struct heap_collector *c)
{
	for (unsigned i = 0; i < MOST_DRAINS && heap_readers_drain(c->readers, DRAIN_EVENTS) >= DRAIN_EVENTS; i++)
		;
	for (unsigned i = 0; i < MOST_DRAINS && collect_probes(c, DRAIN_EVENTS) >= DRAIN_EVENTS; i++)
		;
}

static void take_hellos(struct heap_collector *c)
{
	struct hello_program p;
	struct err err = {0};

	while (hello_next(c->hello, &p)) {
		/* What its program before exec has done comes first. */
		if (collect_find(c, p.pid))
			collect_drain(c);
		if (collect_begin(c, p.fd, p.pid, p.own_pid, HEAP_LAUNCHED, &err) && !c->stats.turned_away++)
			snprintf(c->stats.why, sizeof(c->stats.why), "%.*s", (int)sizeof(c->stats.why) - 1, err.text);
	}
}

static void end_processes(struct heap_collector *c, const struct epoll_event *events, int count, uint64_t now_ns)
{
	bool drained = false;

	for (int i = 0; i < count; i++) {
		struct watched *w = events[i].data.u64 == HELLO || events[i].data.u64 == COLLECT_PROBES
			? NULL
			: c->watched[HEAP_SLOT((uint32_t)events[i].data.u64)];

		if (!w || w->number != (uint32_t)events[i].data.u64)
			continue;
		if (!drained)
			collect_drain(c);
		drained = true;
		collect_end(c, w, false, now_ns);
	}
}

/* Where the kernel gave no descriptor for the end of a process: it was gone before, or there are none left. */
static void look_for_ends(struct heap_collector *c, uint64_t now_ns)
{
	for (uint32_t i = 0; i < c->slots; i++) {
		struct watched *w = c->watched[i];

		if (!w || w->pid_fd >= 0 || !kill(w->pid, 0) || errno != ESRCH)
			continue;
		collect_drain(c);
		collect_end(c, w, false, now_ns);
	}
}

/* Programs that say hello, and those that have ended. */
static void take_news(struct heap_collector *c, uint64_t now_ns)
{
	struct epoll_event events[MOST_ENDINGS];
	int count = epoll_wait(c->epoll_fd, events, MOST_ENDINGS, 0);

	for (int i = 0; i < count; i++)
		if (events[i].data.u64 == HELLO)
			take_hellos(c);
	end_processes(c, events, count, now_ns);
	look_for_ends(c, now_ns);
	collect_probes_ends(c, now_ns);
}

static uint64_t resident_bytes(const struct heap_collector *c)
{
	uint64_t sum = 0, bytes;

	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i] && !c->watched[i]->says && !usage_memory(c->watched[i]->pid, &bytes, NULL))
			sum += bytes;
	vec_each(&c->probed, it)
		if (!collect_find((struct heap_collector *)c, it->pid) && !usage_memory(it->pid, &bytes, NULL))
			sum += bytes;
	return sum;
}

static uint64_t longer(uint64_t least_ns, uint64_t elapsed_ns, unsigned part)
{
	return elapsed_ns / part > least_ns ? elapsed_ns / part : least_ns;
}

static void write_moment(struct heap_collector *c, uint64_t now_ns)
{
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i]) {
			collect_losses(c, c->watched[i]);
			collect_threads(c, c->watched[i], now_ns);
			collect_unseen(c, c->watched[i], now_ns);
		}
	collect_probes_losses(c);
	if (!records_time(c))
		heap_model_write(c->model, c->writer, now_ns, resident_bytes(c), false);
	c->moment_ns = now_ns + longer(MOMENT_NS, now_ns - c->start_ns, MOMENT_PART);
}

static void write_numbers(struct heap_collector *c, uint64_t now_ns)
{
	if (now_ns >= c->moment_ns)
		write_moment(c, now_ns);
	else if (records_time(c))
		return;
	else if (now_ns >= c->point_ns && c->changed)
		heap_model_point(c->model, c->writer, now_ns, resident_bytes(c));
	else
		return;
	c->changed = false;
	c->point_ns = now_ns + longer(POINT_NS, now_ns - c->start_ns, POINT_PART);
}

/* ---- the rate ---- */

static uint64_t cpu_time(const struct heap_collector *c)
{
	uint64_t sum = 0, ns;

	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i] && !usage_cpu(c->watched[i]->pid, &ns, NULL))
			sum += ns;
	vec_each(&c->probed, it)
		if (!collect_find((struct heap_collector *)c, it->pid) && !usage_cpu(it->pid, &ns, NULL))
			sum += ns;
	return sum;
}

static void choose_rate(struct heap_collector *c, uint64_t now_ns)
{
	struct heap_totals totals;
	uint64_t cpu_ns = cpu_time(c), rate;

	heap_model_totals(c->model, &totals);

	struct heap_rate_seen seen = {
		.samples = totals.samples - c->rate_samples,
		/* Processes that have ended took theirs along. */
		.cpu_ns = cpu_ns > c->rate_cpu_ns ? cpu_ns - c->rate_cpu_ns : 0,
		.live_bytes = totals.total.live_bytes,
		.variance = totals.total.variance_live_bytes,
	};

	rate = heap_rate_next(&c->options.wish, &seen, c->rate);
	for (uint32_t i = 0; rate != c->rate && i < c->slots; i++)
		if (c->watched[i])
			heap_readers_set_rate(c->readers, c->watched[i]->number, rate);
	if (rate != c->rate && c->probes)
		heap_probes_set_rate(c->probes, rate);
	c->rate = rate;
	c->rate_samples = totals.samples;
	c->rate_cpu_ns = cpu_ns;
	c->rate_ns = now_ns + RATE_NS;
}

static bool chooses_rate(const struct heap_collector *c)
{
	return c->options.precision == HEAP_SAMPLED && (c->options.wish.overhead > 0 || c->options.wish.error > 0);
}

/* How long to wait, after so many events. */
static uint64_t next_wait(uint64_t wait_ns, size_t events)
{
	uint64_t most = events ? WAIT_EVENTS_NS : WAIT_IDLE_NS;

	if (events >= BUSY_EVENTS)
		return WAIT_LEAST_NS;
	return wait_ns * 2 < most ? wait_ns * 2 : most;
}

uint64_t heap_collector_step(struct heap_collector *c, uint64_t now_ns)
{
	bool unfinished, waits = false;
	size_t events;

	for (uint32_t i = 0; i < c->slots; i++) {
		if (!c->watched[i])
			continue;
		collect_modules(c, c->watched[i], LOAD_NS);
		collect_python(c, c->watched[i], now_ns);
		waits = waits || collect_python_waits(c->watched[i], now_ns);
	}
	events = heap_readers_drain(c->readers, DRAIN_EVENTS) + collect_probes(c, DRAIN_EVENTS);
	take_news(c, now_ns);
	unfinished = heap_rules_work(c->rules, RULES_NS);
	if (chooses_rate(c) && now_ns >= c->rate_ns)
		choose_rate(c, now_ns);
	write_numbers(c, clock_monotonic_ns());
	if (events >= DRAIN_EVENTS)
		return 0;
	c->wait_ns = unfinished || waits ? WAIT_LEAST_NS : next_wait(c->wait_ns, events);
	now_ns = clock_monotonic_ns() + c->wait_ns;
	return now_ns < c->moment_ns ? now_ns : c->moment_ns;
}

void heap_collector_finish(struct heap_collector *c)
{
	uint64_t now;

	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i])
			heap_readers_stop(c->readers, c->watched[i]->number);
	if (c->probes)
		heap_probes_stop(c->probes);
	take_news(c, clock_monotonic_ns());
	collect_drain(c);
	now = clock_monotonic_ns();
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i]) {
			collect_losses(c, c->watched[i]);
			collect_threads(c, c->watched[i], now);
		}
	collect_probes_losses(c);
	if (!records_time(c))
		heap_model_write(c->model, c->writer, now, resident_bytes(c), true);
}

void heap_collector_stats(const struct heap_collector *c, struct heap_collect_stats *ret)
{
	*ret = c->stats;
	heap_model_totals(c->model, &ret->totals);
	ret->rate = c->rate;
	ret->refused = hello_refused(c->hello);
	ret->bytes = heap_readers_bytes(c->readers);
	ret->probed = c->probes;
	if (c->probes) {
		heap_probes_stats(c->probes, &ret->probes);
		ret->bytes += ret->probes.bytes;
	}
}
