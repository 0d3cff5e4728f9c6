/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/record_priv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cmd/cmd.h"

static void show_naming(void *ctx, size_t done, size_t all)
{
	struct recording *r = ctx;

	if (r->term.interactive && !r->args->quiet && all > 20000)
		fprintf(stderr, "\rnaming %zu of %zu addresses ", done, all);
}

/* Up to this much may be missing, by chance and by what ran before the first sample. */
#define FAIR_UNSAMPLED_NS (200 * NS_PER_MS)

/* Each new process gets a whole period before its first sample, so those that end earlier have
 * none: a script of a thousand commands can seem to use no time. The kernel counted their time. */
static void check_coverage(struct recording *r)
{
	struct session_stats stats;
	uint64_t cpu_ns = r->on_cpu && r->reason == END_TARGET_EXITED && r->child.pid && !r->selection.name &&
			!r->selection.main_only
		? child_cpu_ns(&r->child)
		: 0;

	session_stats(r->session, &stats);
	if (cpu_ns < stats.weight_ns + stats.weight_ns / 4 + FAIR_UNSAMPLED_NS)
		return;
	snprintf(r->unsampled, sizeof(r->unsampled),
		"used %.1f s of CPU time, sampled %.1f s: processes shorter than a period are "
		"missed; raise -F",
		(double)cpu_ns / 1e9, (double)stats.weight_ns / 1e9);
	capture_meta(r->writer, "unsampled", r->unsampled);
}

static uint64_t ring_bytes(const struct recording *r)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->sampler_count; i++) {
		struct sampler_facts facts;

		r->samplers[i]->ops->facts(r->samplers[i], &facts);
		sum += facts.ring_bytes_read;
	}
	return sum;
}

static void write_number(struct recording *r, const char *key, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	capture_meta(r->writer, key, text);
}

/* How stale the target's memory was when stacks were read on in it. */
static void write_delays(struct recording *r)
{
	struct sampler_facts facts;

	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	if (!facts.delay_mean_ns)
		return;
	write_number(r, "delay_mean_ns", facts.delay_mean_ns);
	write_number(r, "delay_p99_ns", facts.delay_p99_ns);
}

/* "BYTES:THREADS ..." */
static void write_stack_sizes(struct recording *r)
{
	struct sampler_facts facts;
	char text[SAMPLER_STACK_SIZES * 32] = "";
	size_t len = 0;

	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	for (size_t i = 0; i < SAMPLER_STACK_SIZES; i++)
		if (facts.stack_sizes[i].threads)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u:%zu",
				len ? " " : "", facts.stack_sizes[i].bytes,
				facts.stack_sizes[i].threads);
	if (len)
		capture_meta(r->writer, "stack_sizes", text);
}

/* What stopping threads has cost them, by the sampler that does; once in words and once in numbers. */
void record_note_pauses(struct recording *r)
{
	for (size_t i = 0; i < r->sampler_count; i++) {
		struct sampler_facts f;

		r->samplers[i]->ops->facts(r->samplers[i], &f);
		if (!f.stops)
			continue;
		snprintf(r->pauses, sizeof(r->pauses),
			"threads were stopped %llu times: p50 %.0f us, p99 %.0f us, max %.0f us",
			(unsigned long long)f.stops, (double)f.pause_p50_ns / 1e3,
			(double)f.pause_p99_ns / 1e3, (double)f.pause_max_ns / 1e3);
		capture_meta(r->writer, "pauses", r->pauses);
		write_number(r, "pause_count", f.stops);
		write_number(r, "pause_p50_ns", f.pause_p50_ns);
		write_number(r, "pause_p99_ns", f.pause_p99_ns);
		write_number(r, "pause_max_ns", f.pause_max_ns);
		write_number(r, "late_stops", f.late_stops);
		write_number(r, "restarted_calls", f.restarted_calls);
	}
}

/* Which Pythons there were, "3.12.1, 3.13.0 (4 processes)"; and why some were refused. */
static void write_pythons(struct recording *r)
{
	const struct session_python *pythons;
	size_t count = session_pythons(r->session, &pythons);
	struct buf versions = {0}, refused = {0};
	struct sampler_facts facts;

	for (size_t i = 0; i < count; i++) {
		struct buf *to = pythons[i].refused ? &refused : &versions;

		buf_printf(to, "%s%s", to->len ? ", " : "", pythons[i].text);
		if (pythons[i].processes > 1)
			buf_printf(to, " (%u processes)", pythons[i].processes);
	}
	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	if (versions.len && !versions.failed)
		capture_meta(r->writer, "python", versions.data);
	if (versions.len && facts.python)
		capture_meta(r->writer, "python_frames", facts.python);
	if (refused.len && !refused.failed)
		capture_meta(r->writer, "python_refused", refused.data);
	buf_release(&versions);
	buf_release(&refused);
}

static void write_tasks(struct recording *r)
{
	const struct task_times_stats *stats = r->tasks ? task_times_stats(r->tasks) : NULL;

	if (!stats)
		return;
	write_number(r, "task_looks", stats->looks);
	write_number(r, "task_look_ns", stats->elapsed_ns);
	write_number(r, "tasks_torn", stats->torn);
	write_number(r, "tasks_lost", stats->lost);
}

void record_write_sampler_facts(struct recording *r)
{
	write_tasks(r);
	write_delays(r);
	write_stack_sizes(r);
	write_pythons(r);
	record_note_pauses(r);
}

void record_cost_now(const struct recording *r, struct record_cost *ret)
{
	*ret = (struct record_cost){
		.sampler_cpu_ns = clock_own_cpu_ns() - r->start_cpu_ns,
		.wakeups = r->wakeups,
		.ring_bytes = ring_bytes(r),
	};
}

int record_write_rest(struct recording *r, struct record_cost *cost, struct err *err)
{
	struct naming_options naming = {
		.debuginfod = r->args->debuginfod, .progress = show_naming, .ctx = r};
	uint64_t named_cpu_ns = clock_own_cpu_ns();

	session_name_frames(r->session, &naming);
	cost->symbol_cpu_ns = clock_own_cpu_ns() - named_cpu_ns;
	capture_record(r->writer, RECORD_COST, cost, sizeof(*cost));
	if (r->term.interactive && !r->args->quiet)
		fputs("\r\033[K", stderr);
	capture_writer_flush(r->writer);
	r->file_bytes = capture_writer_bytes(r->writer);
	return capture_writer_finish(take_ptr(r->writer), r->reason, r->end_ns, err);
}

int record_finish(struct recording *r, struct err *err)
{
	uint64_t stop_ns = clock_monotonic_ns();
	struct record_cost cost;

	for (size_t i = 0; i < r->sampler_count; i++)
		r->samplers[i]->ops->stop(r->samplers[i]);
	samplers_drain(r->samplers, r->sampler_count, true);
	if (r->off_cpu) /* what was not over is told up to now */
		stop_ns = clock_monotonic_ns();
	if (r->flight)
		return flight_finish(r, stop_ns, err);
	record_write_sampler_facts(r);
	check_coverage(r);
	session_flush(r->session, stop_ns);
	r->end_ns = stop_ns;
	record_cost_now(r, &cost);
	session_stats(r->session, &r->stats);
	return record_write_rest(r, &cost, err);
}

/* What is counted, one of it; and what is wrong with it. */
struct loss_words {
	const char *one, *rest;
};

static struct loss_words loss_words(const struct recording *r, enum loss_kind kind)
{
	static const struct loss_words words[LOSS_KIND_COUNT] = {
		[LOSS_RING] = {"sample", "lost, the ring was full: try a lower -F or --stack-size"},
		[LOSS_THROTTLE] = {"time", "throttled by the kernel (perf_cpu_time_max_percent)"},
		[LOSS_NO_REGS] = {"sample", "of 32-bit code, whose stacks sonde does not unwind"},
		[LOSS_MALFORMED] = {"record", "of the kernel that made no sense"},
		[LOSS_FILE] = {"mapped file", "that could not be opened"},
		[LOSS_THREAD] = {"thread", "not attached: too many open files (ulimit -n)"},
		[LOSS_LATE_MAPPING] = {"sample", "older than the mapping of its code"},
		[LOSS_OFF_CPU_STACK] = {"interval", "off the CPU without a stack"},
		[LOSS_HEAP] = {"allocation or free", "not written down"},
		[LOSS_HEAP_EARLY] = {"call", "of the allocator before there was anything to write to"},
		[LOSS_HEAP_STACK] = {"allocation", "whose stack is cut for want of room"},
		[LOSS_NOTE] = {"mark", "or counter or message of programs for which there was no room"},
		[LOSS_RING_RECORDS] = {"record", "of mappings, threads and Python frames lost, the ring was full"},
	};

	if (kind == LOSS_RING && r->off_cpu)
		return (struct loss_words){"record",
			"lost, the ring was full: threads switch too often; times and stacks of those "
			"moments are missing"};
	return words[kind];
}

/* "512 samples" */
static void tell_count(uint64_t count, const char *one, const char *before)
{
	fprintf(stderr, "%s%llu %s%s", before, (unsigned long long)count, one, count == 1 ? "" : "s");
}

void record_tell_losses(const struct recording *r)
{
	for (unsigned i = 0; i < LOSS_KIND_COUNT; i++) {
		struct loss_words words = loss_words(r, (enum loss_kind)i);

		if (!r->stats.losses[i])
			continue;
		tell_count(r->stats.losses[i], words.one, "  ");
		fprintf(stderr, " %s\n", words.rest);
	}
}

/* Time that no sample stands for. */
static void tell_unsampled(const struct recording *r)
{
	if (r->unsampled[0])
		fprintf(stderr, "  %s\n", r->unsampled);
	else if (r->on_cpu && !r->stats.samples)
		fprintf(stderr, "  nothing ran on a CPU for a sampling period%s\n",
			r->selection.name || r->selection.main_only || r->selection.tid
				? " in the selected threads"
				: "");
}

/* "  Python 3.12.1: 1990 samples with its frames, 3 torn, 0 cut"; and those that sonde cannot read. */
static void tell_pythons(const struct recording *r)
{
	const struct session_python *pythons;
	size_t count = session_pythons(r->session, &pythons), versions = 0;

	for (size_t i = 0; i < count; i++)
		if (!pythons[i].refused)
			fprintf(stderr, "%s%s", versions++ ? ", " : "  Python ", pythons[i].text);
	/* Of a window it is not counted which of its stacks have some. */
	if (versions && r->flight)
		fputc('\n', stderr);
	else if (versions) {
		tell_count(r->stats.python, "stack", ": ");
		fprintf(stderr, " with its frames, %llu torn, %llu cut\n",
			(unsigned long long)r->stats.python_torn,
			(unsigned long long)r->stats.python_cut);
	}
	for (size_t i = 0; i < count; i++)
		if (pythons[i].refused)
			fprintf(stderr, "  no Python frames: %.*s\n", (int)strcspn(pythons[i].text, "\n"),
				pythons[i].text);
}

static void tell_tasks(const struct recording *r)
{
	const struct task_times_stats *s = r->tasks ? task_times_stats(r->tasks) : NULL;

	if (!s)
		return;
	if (s->tasks)
		fprintf(stderr, "  tasks: looked at %.0f of them at a time, %llu times, in %.1f ms each; see them: "
				"sonde report --tasks\n",
			(double)s->tasks / (double)s->looks, (unsigned long long)s->looks,
			(double)s->elapsed_ns / (double)s->looks / 1e6);
	else
		fprintf(stderr, "  tasks: none were seen%s%s\n", s->failed ? ": " : "", s->why);
}

void record_tell(const struct recording *r)
{
	const struct session_stats *stats = &r->stats;
	uint64_t stacks = stats->samples + stats->off_cpu;
	uint64_t whole = stats->ends[UNWIND_ROOT] + stats->off_cpu_rooted;

	if (r->args->quiet)
		return;
	fprintf(stderr, "%s: ", r->args->output);
	if (r->on_cpu)
		tell_count(stats->samples, "sample", "");
	if (r->off_cpu)
		tell_count(stats->off_cpu, "wait", r->on_cpu ? ", " : "");
	fprintf(stderr, " in %.1f s, ", (double)(r->end_ns - r->start_ns) / 1e9);
	if (stacks)
		fprintf(stderr, "%.1f %% of stacks whole, ", 100.0 * (double)whole / (double)stacks);
	fprintf(stderr, "%llu KB\n", (unsigned long long)(r->file_bytes + 1023) / 1024);
	if (r->pauses[0])
		fprintf(stderr, "  %s\n", r->pauses);
	tell_pythons(r);
	tell_tasks(r);
	record_tell_losses(r);
	tell_unsampled(r);
	if (stacks)
		fprintf(stderr, "see it: sonde report%s%s\n",
			strcmp(r->args->output, DEFAULT_RECORDING) ? " " : "",
			strcmp(r->args->output, DEFAULT_RECORDING) ? r->args->output : "");
}

int record_leave_command(struct recording *r)
{
	for (;;) {
		struct pollfd fds[2] = {
			{.fd = r->signal_fd, .events = POLLIN},
			{.fd = r->pid_fds.len ? r->pid_fds.data[0] : -1, .events = POLLIN},
		};

		if (r->forward_signal)
			kill(r->child.pid, r->forward_signal);
		r->forward_signal = 0;
		if (!r->pid_fds.len || (poll(fds, 2, -1) < 0 && errno != EINTR) || fds[1].revents)
			return child_wait(&r->child);
		record_take_signal(r);
	}
}
