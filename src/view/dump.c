/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every record of a recording as one line: its name, then key=value. Ids are printed as they stand
 * in the file (s5: string 5, m: module, f: frame, k: stack, h: site of allocations, c: counter), times in seconds since its start.
 * One row in `printers` a record type.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "capture/reader.h"
#include "view/view_priv.h"

struct dump {
	struct buf line;
	uint64_t start_ns;
};

static void ref(struct dump *d, const char *name, char kind, uint32_t id)
{
	if (id == CAPTURE_NONE)
		buf_printf(&d->line, " %s=none", name);
	else
		buf_printf(&d->line, " %s=%c%u", name, kind, id);
}

static void number(struct dump *d, const char *name, uint64_t value)
{
	buf_printf(&d->line, " %s=%" PRIu64, name, value);
}

static void address(struct dump *d, const char *name, uint64_t value)
{
	buf_printf(&d->line, " %s=0x%" PRIx64, name, value);
}

static void moment_named(struct dump *d, const char *name, uint64_t time_ns)
{
	int64_t since = (int64_t)(time_ns - d->start_ns);
	uint64_t size = since < 0 ? 0 - (uint64_t)since : (uint64_t)since;

	buf_printf(&d->line, " %s=%s%" PRIu64 ".%09" PRIu64, name, since < 0 ? "-" : "",
		(uint64_t)(size / NS_PER_S), (uint64_t)(size % NS_PER_S));
}

static void moment(struct dump *d, uint64_t time_ns)
{
	moment_named(d, "time", time_ns);
}

/* The name of an enum's value, or the number where this version knows none. */
static void word(
	struct dump *d, const char *name, const char *const *words, size_t count, uint64_t v)
{
	if (v < count)
		buf_printf(&d->line, " %s=%s", name, words[v]);
	else
		number(d, name, v);
}
#define WORD(d, name, words, v) word(d, name, words, sizeof(words) / sizeof((words)[0]), v)

static const char *const module_kinds[] = {"file", "vdso", "kernel", "jit", "python"};
static const char *const frame_kinds[] = {"user", "kernel", "python"};
static const char *const sources[] = {"dump", "live", "regs"};
static const char *const wakers[] = {"unknown", "thread", "interrupt"};
static const char *const openings[] = {"no", "began-before", "not-over", "both"};
static const char *const end_reasons[] = {"target-exited", "duration", "interrupted", "error",
	"trigger"};

static void print_meta(struct dump *d, const void *record)
{
	const struct record_meta *r = record;

	ref(d, "key", 's', r->key);
	ref(d, "value", 's', r->value);
}

static void print_string(struct dump *d, const void *record)
{
	const struct record_string *r = record;
	size_t room = r->header.bytes - sizeof(*r), len = r->len < room ? r->len : room;
	struct buf text = {0};

	ref(d, "id", 's', r->id);
	buf_str(&d->line, " text=");
	buf_add(&text, r + 1, len);
	if (text.failed)
		d->line.failed = true;
	else
		buf_json(&d->line, text.data);
	if (len != r->len)
		buf_str(&d->line, " (cut short)");
	buf_release(&text);
}

static void print_module(struct dump *d, const void *record)
{
	const struct record_module *r = record;
	size_t len =
		r->build_id_bytes < sizeof(r->build_id) ? r->build_id_bytes : sizeof(r->build_id);

	ref(d, "id", 'm', r->id);
	ref(d, "path", 's', r->path);
	WORD(d, "kind", module_kinds, r->kind);
	if (r->pid)
		number(d, "pid", r->pid);
	number(d, "inode", r->inode);
	address(d, "device", r->device);
	buf_str(&d->line, " build_id=");
	for (size_t i = 0; i < len; i++)
		buf_printf(&d->line, "%02x", r->build_id[i]);
	if (!len)
		buf_str(&d->line, "none");
}

static void print_process(struct dump *d, const void *record)
{
	const struct record_process *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	number(d, "ppid", r->ppid);
	ref(d, "command", 's', r->command);
}

static void print_thread(struct dump *d, const void *record)
{
	const struct record_thread *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	ref(d, "name", 's', r->name);
}

static void print_exit(struct dump *d, const void *record)
{
	const struct record_exit *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
}

static void print_mapping(struct dump *d, const void *record)
{
	const struct record_mapping *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	ref(d, "module", 'm', r->module);
	address(d, "start", r->start);
	address(d, "end", r->end);
	address(d, "bias", r->bias);
}

static void print_frame(struct dump *d, const void *record)
{
	const struct record_frame *r = record;

	ref(d, "id", 'f', r->id);
	ref(d, "module", 'm', r->module);
	address(d, "address", r->address);
	WORD(d, "kind", frame_kinds, r->kind);
	if (r->how < UNWIND_HOW_COUNT)
		buf_printf(&d->line, " how=%s", unwind_how_name((enum unwind_how)r->how));
	else
		number(d, "how", r->how);
	WORD(d, "source", sources, r->source);
	number(d, "return", r->is_return);
}

static void print_stack(struct dump *d, const void *record)
{
	const struct record_stack *r = record;

	ref(d, "id", 'k', r->id);
	ref(d, "parent", 'k', r->parent);
	ref(d, "frame", 'f', r->frame);
}

static void stack_end(struct dump *d, uint8_t end)
{
	if (end < UNWIND_END_COUNT)
		buf_printf(&d->line, " end=%s", unwind_end_name((enum unwind_end)end));
	else
		number(d, "end", end);
}

static void print_sample(struct dump *d, const void *record)
{
	const struct record_sample *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	number(d, "cpu", r->cpu);
	ref(d, "stack", 'k', r->stack);
	stack_end(d, r->end);
	number(d, "weight_ns", r->weight);
	number(d, "used_bytes", r->used_bytes);
	if (r->live_frames)
		number(d, "live_frames", r->live_frames);
}

static void state(struct dump *d, uint8_t value)
{
	if (value < STATE_COUNT)
		buf_printf(&d->line, " state=%s", profile_state_name((enum thread_state)value));
	else
		number(d, "state", value);
}

static void print_off_cpu(struct dump *d, const void *record)
{
	const struct record_off_cpu *r = record;

	moment(d, r->start_ns);
	number(d, "duration_ns", r->duration_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	number(d, "cpu", r->cpu);
	state(d, r->state);
	if (r->syscall >= 0)
		number(d, "syscall", (uint64_t)r->syscall);
	ref(d, "stack", 'k', r->stack);
	stack_end(d, r->end);
	number(d, "blocked_ns", r->blocked_ns);
	number(d, "queued_ns", r->queued_ns);
	WORD(d, "waker", wakers, r->waker);
	if (r->waker_tid) {
		number(d, "waker_pid", r->waker_pid);
		number(d, "waker_tid", r->waker_tid);
		ref(d, "waker_stack", 'k', r->waker_stack);
	}
	WORD(d, "open", openings, r->open);
	if (r->syscall_name != CAPTURE_NONE)
		ref(d, "syscall_name", 's', r->syscall_name);
	number(d, "used_bytes", r->used_bytes);
	if (r->live_frames)
		number(d, "live_frames", r->live_frames);
}

static void print_thread_times(struct dump *d, const void *record)
{
	const struct record_thread_times *r = record;

	moment_named(d, "since", r->since_ns);
	moment_named(d, "until", r->until_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	for (size_t i = 0; i < STATE_COUNT; i++)
		number(d, profile_state_name((enum thread_state)i), r->ns[i]);
}

static void print_loss(struct dump *d, const void *record)
{
	const struct record_loss *r = record;

	moment(d, r->time_ns);
	if (r->kind < LOSS_KIND_COUNT)
		buf_printf(&d->line, " kind=%s", loss_name((enum loss_kind)r->kind));
	else
		number(d, "kind", r->kind);
	number(d, "count", r->count);
}

static void print_symbol(struct dump *d, const void *record)
{
	const struct record_symbol *r = record;
	const struct record_symbol_level *levels = (const void *)(r + 1);
	size_t room = (r->header.bytes - sizeof(*r)) / sizeof(*levels);

	ref(d, "frame", 'f', r->frame);
	if (r->reason <= SYMBOL_REFUSED)
		buf_printf(&d->line, " reason=\"%s\"",
			symbol_reason_text((enum symbol_reason)r->reason));
	else
		number(d, "reason", r->reason);
	if (r->function_start)
		address(d, "function_start", r->function_start);
	for (size_t i = 0; i < r->level_count && i < room; i++) {
		ref(d, i ? "in" : "name", 's', levels[i].name);
		if (levels[i].file != CAPTURE_NONE)
			buf_printf(&d->line, " at=s%u:%u", levels[i].file, levels[i].line);
	}
}

static void print_cost(struct dump *d, const void *record)
{
	const struct record_cost *r = record;

	number(d, "sampler_cpu_ns", r->sampler_cpu_ns);
	number(d, "symbol_cpu_ns", r->symbol_cpu_ns);
	number(d, "wakeups", r->wakeups);
	number(d, "ring_bytes", r->ring_bytes);
}

static void print_task_time(struct dump *d, const void *record)
{
	static const char *const doing[] = {"runs", "ready", "waits"};
	const struct record_task_time *r = record;

	moment(d, r->time_ns);
	number(d, "weight_ns", r->weight_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	ref(d, "stack", 'k', r->stack);
	WORD(d, "doing", doing, r->doing);
	if (r->what != CAPTURE_NONE)
		ref(d, "what", 's', r->what);
	number(d, "count", r->count);
	number(d, "python", r->python);
}

static void print_end(struct dump *d, const void *record)
{
	const struct record_end *r = record;

	moment(d, r->time_ns);
	WORD(d, "reason", end_reasons, r->reason);
}

static void print_heap(struct dump *d, const void *record)
{
	static const char *const precisions[] = {"none", "exact", "sampled", "calls"};
	static const char *const hows[] = {"none", "launched", "attached", "probes", "told"};
	const struct record_heap *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	WORD(d, "precision", precisions, r->precision);
	number(d, "rate", r->rate);
	WORD(d, "how", hows, r->how);
	if (r->maps)
		number(d, "maps", r->maps);
	ref(d, "allocator", 's', r->allocator);
	ref(d, "uncovered", 's', r->uncovered);
}

static void print_heap_site(struct dump *d, const void *record)
{
	const struct record_heap_site *r = record;

	ref(d, "id", 'h', r->id);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	ref(d, "stack", 'k', r->stack);
}

/* Exact ones are integers, and estimates need no more digits. */
static void real(struct dump *d, const char *name, double value)
{
	buf_printf(&d->line, " %s=%.15g", name, value);
}

static void reals(struct dump *d, const char *const *names, const double *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (values[i] != 0)
			real(d, names[i], values[i]);
}

static void print_heap_state(struct dump *d, const void *record)
{
	static const char *const numbers[HEAP_NUMBERS] = {"allocated", "allocated_bytes", "freed", "freed_bytes",
		"temporary", "temporary_bytes", "cross_freed", "cross_freed_bytes", "reallocated", "reallocated_bytes",
		"moved", "peak", "peak_bytes", "lifetime_ns"};
	static const char *const variances[HEAP_VARIANCES] = {"var_live", "var_live_bytes", "var_allocated",
		"var_allocated_bytes", "var_peak_bytes"};
	const struct record_heap_state *r = record;

	moment(d, r->time_ns);
	ref(d, "site", 'h', r->site);
	number(d, "samples", r->samples);
	reals(d, numbers, r->number, HEAP_NUMBERS);
	reals(d, variances, r->variance, HEAP_VARIANCES);
}

static void print_heap_shape(struct dump *d, const void *record)
{
	static const char *const kinds[] = {"sizes", "live-sizes", "lifetimes", "ages", "live-bytes-by-age", "usable"};
	const struct record_heap_shape *r = record;
	const double *counts = (const void *)(r + 1);

	moment(d, r->time_ns);
	ref(d, "site", 'h', r->site);
	WORD(d, "kind", kinds, r->kind);
	number(d, "first", r->first);
	buf_str(&d->line, " counts=");
	for (unsigned i = 0; i < r->buckets; i++)
		buf_printf(&d->line, "%s%.15g", i ? "," : "", counts[i]);
}

static void print_heap_flow(struct dump *d, const void *record)
{
	const struct record_heap_flow *r = record;

	moment(d, r->time_ns);
	ref(d, "site", 'h', r->site);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	ref(d, "stack", 'k', r->stack);
	real(d, "count", r->count);
	real(d, "bytes", r->bytes);
}

static void print_heap_thread(struct dump *d, const void *record)
{
	const struct record_heap_thread *r = record;

	moment(d, r->time_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	real(d, "allocated", r->allocated);
	real(d, "allocated_bytes", r->allocated_bytes);
	real(d, "freed", r->freed);
	real(d, "freed_bytes", r->freed_bytes);
	real(d, "freed_unknown", r->freed_unknown);
}

static void print_heap_class(struct dump *d, const void *record)
{
	static const char *const names[] = {
		"live", "live_bytes", "live_usable", "peak", "peak_bytes", "peak_usable", "var_wasted"};
	const struct record_heap_class *r = record;

	moment(d, r->time_ns);
	number(d, "usable", r->usable);
	reals(d, names, &r->live, 7);
}

static void print_heap_total(struct dump *d, const void *record)
{
	const struct record_heap_total *r = record;

	moment(d, r->time_ns);
	real(d, "live", r->live);
	real(d, "live_bytes", r->live_bytes);
	real(d, "peak_bytes", r->peak_bytes);
	moment_named(d, "peak_time", r->peak_ns);
	real(d, "allocated", r->allocated);
	real(d, "allocated_bytes", r->allocated_bytes);
	real(d, "temporary", r->temporary);
	real(d, "var_live_bytes", r->variance_live_bytes);
	real(d, "var_allocated_bytes", r->variance_allocated_bytes);
	real(d, "var_peak_bytes", r->variance_peak_bytes);
	number(d, "rss_bytes", r->rss_bytes);
	number(d, "with_sites", r->with_sites);
}

static void print_mark(struct dump *d, const void *record)
{
	static const char *const severities[] = {"none", "debug", "info", "message", "warning", "critical", "error"};
	const struct record_mark *r = record;

	moment(d, r->time_ns);
	number(d, "duration_ns", r->duration_ns);
	number(d, "pid", r->pid);
	number(d, "tid", r->tid);
	ref(d, "group", 's', r->group);
	ref(d, "name", 's', r->name);
	ref(d, "message", 's', r->message);
	WORD(d, "severity", severities, r->severity);
}

static void print_counter(struct dump *d, const void *record)
{
	static const char *const kinds[] = {"int64", "double"};
	const struct record_counter *r = record;

	ref(d, "id", 'c', r->id);
	number(d, "pid", r->pid);
	ref(d, "group", 's', r->group);
	ref(d, "name", 's', r->name);
	ref(d, "description", 's', r->description);
	WORD(d, "kind", kinds, r->kind);
}

/* Which kind its counter is of need not be known yet. */
static void print_counter_value(struct dump *d, const void *record)
{
	const struct record_counter_value *r = record;
	double value;

	memcpy(&value, &r->value, sizeof(value));
	moment(d, r->time_ns);
	ref(d, "counter", 'c', r->counter);
	buf_printf(&d->line, " int64=%" PRId64, (int64_t)r->value);
	real(d, "double", value);
	number(d, "tid", r->tid);
}

static const struct {
	const char *name;
	void (*print)(struct dump *d, const void *record);
} printers[] = {
	[RECORD_META] = {"meta", print_meta},
	[RECORD_STRING] = {"string", print_string},
	[RECORD_MODULE] = {"module", print_module},
	[RECORD_PROCESS] = {"process", print_process},
	[RECORD_THREAD] = {"thread", print_thread},
	[RECORD_EXIT] = {"exit", print_exit},
	[RECORD_MAPPING] = {"mapping", print_mapping},
	[RECORD_FRAME] = {"frame", print_frame},
	[RECORD_STACK] = {"stack", print_stack},
	[RECORD_SAMPLE] = {"sample", print_sample},
	[RECORD_LOSS] = {"loss", print_loss},
	[RECORD_SYMBOL] = {"symbol", print_symbol},
	[RECORD_COST] = {"cost", print_cost},
	[RECORD_END] = {"end", print_end},
	[RECORD_OFF_CPU] = {"off-cpu", print_off_cpu},
	[RECORD_THREAD_TIMES] = {"times", print_thread_times},
	[RECORD_TASK_TIME] = {"tasks", print_task_time},
	[RECORD_HEAP] = {"heap", print_heap},
	[RECORD_HEAP_SITE] = {"heap-site", print_heap_site},
	[RECORD_HEAP_STATE] = {"heap-state", print_heap_state},
	[RECORD_HEAP_SHAPE] = {"heap-shape", print_heap_shape},
	[RECORD_HEAP_CLASS] = {"heap-class", print_heap_class},
	[RECORD_HEAP_FLOW] = {"heap-flow", print_heap_flow},
	[RECORD_HEAP_THREAD] = {"heap-thread", print_heap_thread},
	[RECORD_HEAP_TOTAL] = {"heap-total", print_heap_total},
	[RECORD_MARK] = {"mark", print_mark},
	[RECORD_COUNTER] = {"counter", print_counter},
	[RECORD_COUNTER_VALUE] = {"value", print_counter_value},
};

static void print_record(struct dump *d, const struct record_header *h)
{
	bool known = h->type < sizeof(printers) / sizeof(printers[0]) && printers[h->type].print;

	if (!known) {
		buf_printf(&d->line, "unknown type=%u bytes=%u", h->type, h->bytes);
		return;
	}
	buf_printf(&d->line, "%-8s", printers[h->type].name);
	printers[h->type].print(d, h);
}

static void print_damage(const struct capture_damage *c, FILE *out)
{
	if (c->bad_blocks || c->missing_blocks || c->bad_records || c->skipped_bytes ||
		c->truncated || c->no_end || c->bad_header)
		fprintf(out,
			"damage   bad_blocks=%" PRIu64 " missing_blocks=%" PRIu64
			" bad_records=%" PRIu64 " skipped_bytes=%" PRIu64
			" truncated=%d no_end=%d bad_header=%d\n",
			c->bad_blocks, c->missing_blocks, c->bad_records, c->skipped_bytes,
			c->truncated, c->no_end, c->bad_header);
}

int view_dump(const char *path, FILE *out, struct err *err)
{
	struct capture_reader *reader;
	const struct record_header *record;
	struct dump d = {0};
	int rc = capture_reader_open(path, &reader, err);

	if (rc)
		return rc;

	const struct capture_file_header *h = capture_reader_header(reader);

	d.start_ns = h->start_monotonic_ns;
	fprintf(out,
		"recording version=%u start_monotonic_ns=%" PRIu64
		" start_realtime_ns=%" PRIu64 "\n",
		h->version, h->start_monotonic_ns, h->start_realtime_ns);
	while ((rc = capture_reader_next(reader, &record, err)) > 0) {
		buf_clear(&d.line);
		print_record(&d, record);
		if (d.line.failed) {
			rc = err_nomem(err);
			break;
		}
		fwrite(d.line.data, 1, d.line.len, out);
		fputc('\n', out);
	}
	if (!rc)
		print_damage(capture_reader_damage(reader), out);
	buf_release(&d.line);
	capture_reader_free(reader);
	return rc;
}
