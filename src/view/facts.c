/* SPDX-License-Identifier: BSD-2-Clause */
/* What was recorded, how far it may be believed, and what would make it better. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "view/heap_priv.h"
#include "view/view_priv.h"

/* ---- losses ---- */

static const struct {
	const char *name, *words;
} losses[LOSS_KIND_COUNT] = {
	[LOSS_RING] = {"ring_samples", "samples dropped by the kernel: the ring was full"},
	[LOSS_THROTTLE] = {"throttled", "times the kernel throttled the event"},
	[LOSS_NO_REGS] = {"no_registers", "samples of 32-bit code, not unwound"},
	[LOSS_MALFORMED] = {"malformed", "ring records that made no sense"},
	[LOSS_FILE] = {"unreadable_files", "mapped files that could not be opened"},
	[LOSS_THREAD] = {"unattached_threads", "threads that could not be attached"},
	[LOSS_LATE_MAPPING] = {"late_mappings", "samples unwound before their mapping was known"},
	[LOSS_RING_RECORDS] = {"ring_records", "records of mappings, forks and Python frames dropped by the kernel"},
	[LOSS_OFF_CPU_STACK] = {"off_cpu_stacks", "intervals off the CPU without a stack"},
	[LOSS_HEAP] = {"heap_events", "allocations and frees that were not written down"},
	[LOSS_HEAP_EARLY] = {"heap_early", "calls of the allocator before there was anything to write to"},
	[LOSS_HEAP_STACK] = {"heap_stacks", "allocations whose stack is cut for want of room"},
	[LOSS_NOTE] = {"notes", "marks, counters or messages of programs for which there was no room"},
};

const char *loss_name(enum loss_kind kind)
{
	return losses[kind].name;
}

const char *loss_words(enum loss_kind kind)
{
	return losses[kind].words;
}

uint64_t losses_total(const struct profile *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < LOSS_KIND_COUNT; i++)
		sum += p->quality.losses[i];
	return sum;
}

/* ---- the headline ---- */

static const char *separator(const struct term *t)
{
	return t->unicode ? " · " : " - ";
}

/* What ran: the command line, or the processes that were looked at. */
static void what_ran(const struct profile *p, struct buf *out)
{
	const char *command = profile_meta(p, "command");
	const struct profile_thread *first = p->threads.len ? p->threads.data : NULL;

	if (command && *command) {
		words_text(out, command);
	} else if (first) {
		words_text(out, first->process);
		buf_printf(out, " (pid %u)", first->pid);
	} else {
		buf_str(out, "nothing");
	}
}

static void counted(struct buf *out, uint64_t n, const char *one)
{
	words_count(out, n);
	buf_printf(out, n == 1 ? " %s" : " %ss", one);
}

/* Samples on the CPU, with their rate; intervals off it. */
static void how_many(
	const struct profile *p, const struct term *t, const char *event, struct buf *out)
{
	const struct profile_quality *q = &p->quality;
	const char *hz = profile_meta(p, "frequency_hz");

	if (p->of_tasks) {
		buf_str(out, separator(t));
		buf_str(out, "tasks of asyncio");
		return;
	}
	if (p->mode == PROFILE_CPU || q->samples > q->intervals) {
		buf_str(out, separator(t));
		counted(out, q->samples - q->intervals, "sample");
		if (hz) {
			buf_str(out, " at ");
			words_text(out, hz);
			buf_str(out, " Hz");
		}
		if (event) {
			buf_str(out, " (");
			words_text(out, event);
			buf_char(out, ')');
		}
	}
	if (q->intervals) {
		buf_str(out, separator(t));
		counted(out, q->intervals, "wait");
	}
}

static void how_much(
	const struct profile *p, const struct term *t, const char *event, struct buf *out)
{
	buf_str(out, separator(t));
	words_duration(out, p->end_ns > p->start_ns ? p->end_ns - p->start_ns : 0);
	how_many(p, t, event, out);
	if (p->cpu_ns && !p->of_tasks) {
		buf_str(out, separator(t));
		words_duration(out, p->cpu_ns);
		buf_str(out, " CPU");
	}
}

#define MIN_COMMAND_COLUMNS 20

void facts_headline(const struct profile *p, const struct term *t, struct buf *out)
{
	struct buf what = {0}, much = {0};
	size_t columns = 0;

	if (p->heap && (p->mode == PROFILE_HEAP || !p->samples.len)) {
		heap_headline(p, t, out);
		return;
	}

	what_ran(p, &what);
	how_much(p, t, profile_meta(p, "event"), &much);
	if (t->columns && !what.failed && !much.failed &&
		term_width(what.data) + term_width(much.data) > t->columns) {
		buf_clear(&much);
		how_much(p, t, NULL, &much);
	}
	out->failed |= what.failed || much.failed;
	if (!out->failed) {
		size_t used = term_width(much.data);

		if (t->columns)
			columns = t->columns > used + MIN_COMMAND_COLUMNS ? t->columns - used
									  : MIN_COMMAND_COLUMNS;
		paint_on(out, t, PAINT_TITLE);
		words_command(out, what.data, columns, t->unicode);
		paint_off(out, t, PAINT_TITLE);
		buf_str(out, much.data);
		buf_char(out, '\n');
	}
	buf_release(&what);
	buf_release(&much);
}

/* ---- states ---- */

struct state_share {
	enum thread_state state;
	uint64_t ns;
};

static int heavier(const void *left, const void *right)
{
	const struct state_share *a = left, *b = right;

	if (a->ns != b->ns)
		return a->ns < b->ns ? 1 : -1;
	return (a->state > b->state) - (a->state < b->state);
}

/* What percentages are of. Where nobody measured for how long threads were watched, of the time
 * that there is a record of. */
static void whole_words(const struct profile *p, struct buf *out)
{
	uint64_t apart = 0;

	vec_each(&p->threads, thread)
		apart += thread->apart;
	buf_str(out, "100% is ");
	words_duration(out, share_base(p));
	if (p->of_tasks) {
		buf_str(out, " of tasks in the loops of ");
		counted(out, p->watched_threads, "thread");
		buf_char(out, '\n');
		return;
	}
	buf_str(out, ": ");
	counted(out, p->watched_threads, "thread");
	buf_str(out, " watched");
	if (apart) {
		buf_str(out, "; ");
		words_count(out, apart);
		buf_str(out, apart == 1 ? " that only waited is apart" : " that only waited are apart");
	}
	buf_char(out, '\n');
}

void facts_states(const struct profile *p, const struct term *t, struct buf *out)
{
	struct state_share shares[STATE_COUNT];
	struct buf line = {0}, one = {0};

	if (p->mode == PROFILE_CPU || !p->watched_ns)
		return;
	whole_words(p, out);
	for (enum thread_state s = 0; s < STATE_COUNT; s++)
		shares[s] = (struct state_share){s, p->state_ns[s]};
	qsort(shares, STATE_COUNT, sizeof(*shares), heavier);
	buf_str(&line, "Time: ");
	for (size_t i = 0; i < STATE_COUNT && shares[i].ns; i++) {
		buf_clear(&one);
		buf_str(&one, i ? ", " : "");
		words_share(&one, percent_of(shares[i].ns, p->watched_ns));
		buf_printf(&one, " %s", profile_state_name(shares[i].state));
		if (one.failed || line.failed ||
			(t->columns && term_width(line.data) + term_width(one.data) > t->columns))
			break;
		buf_add(&line, one.data, one.len);
	}
	out->failed |= one.failed || line.failed;
	if (!out->failed)
		buf_add(out, line.data, line.len);
	buf_char(out, '\n');
	buf_release(&line);
	buf_release(&one);
}

/* ---- stack quality ---- */

static void graded(struct buf *out, const struct term *t, enum paint how, double percent,
	const char *words)
{
	paint_on(out, t, how);
	words_share(out, percent);
	buf_printf(out, " %s", words);
	paint_off(out, t, how);
}

/* Thresholds: what the hints below act on, and what calls for a second look. */
static enum paint grade_high(double percent, double good, double fair)
{
	return percent >= good ? PAINT_GOOD : percent >= fair ? PAINT_WARN : PAINT_BAD;
}

static enum paint grade_low(double percent, double fair, double bad)
{
	return percent >= bad ? PAINT_BAD : percent >= fair ? PAINT_WARN : PAINT_NONE;
}

#define FAIR_PERCENT 2
#define BAD_PERCENT 10

/* How much of its stack each thread had copied a sample; ", 8.0 KiB to 64 KiB copied". Nothing where that is
 * what --stack-size says. */
static void copied_words(const struct profile *p, struct buf *out)
{
	const char *sizes = profile_meta(p, "stack_sizes"), *last;
	uint64_t least, most;

	if (!sizes)
		return;
	last = strrchr(sizes, ' ');
	least = strtoull(sizes, NULL, 10);
	most = last ? strtoull(last, NULL, 10) : least;
	buf_str(out, ", ");
	if (most > least) {
		words_bytes(out, least);
		buf_str(out, " to ");
	}
	words_bytes(out, most);
	buf_str(out, " copied");
}

/* `brief`: without what is zero. */
static void quality_words(
	const struct profile *p, const struct term *t, bool brief, struct buf *out)
{
	const struct profile_quality *q = &p->quality;
	const struct {
		double percent;
		const char *words;
	} flaws[] = {
		{q->truncated_pct, "truncated, "},
		{q->guessed_frames_pct, "guessed, "},
		{q->unresolved_frames_pct, "unresolved, "},
	};
	uint64_t lost = q->losses[LOSS_RING];

	buf_str(out, "Stacks: ");
	if (q->intervals && q->intervals < q->samples) {
		graded(out, t, grade_high(q->on_cpu_rooted_pct, 97, 90), q->on_cpu_rooted_pct,
			"rooted on-cpu, ");
		graded(out, t, grade_high(q->off_cpu_rooted_pct, 97, 90), q->off_cpu_rooted_pct,
			"off-cpu, ");
	} else {
		graded(out, t, grade_high(q->rooted_pct, 97, 90), q->rooted_pct, "rooted, ");
	}
	for (size_t i = 0; i < sizeof(flaws) / sizeof(flaws[0]); i++)
		if (!brief || flaws[i].percent > 0)
			graded(out, t,
				grade_low(flaws[i].percent, FAIR_PERCENT, BAD_PERCENT),
				flaws[i].percent, flaws[i].words);
	paint_on(out, t, lost ? PAINT_BAD : PAINT_NONE);
	words_count(out, lost);
	buf_str(out, " lost");
	paint_off(out, t, lost ? PAINT_BAD : PAINT_NONE);
	if (!brief)
		copied_words(p, out);
	buf_char(out, '\n');
}

void facts_quality(const struct profile *p, const struct term *t, struct buf *out)
{
	struct term plain = *t;
	struct buf line = {0};

	if (p->mode == PROFILE_HEAP)
		heap_weight_line(p, out);
	if (!p->quality.samples || p->mode == PROFILE_HEAP)
		return;
	plain.colour = false;
	quality_words(p, &plain, false, &line);
	out->failed |= line.failed;
	if (line.data)
		quality_words(p, t, t->columns && term_width(line.data) > t->columns, out);
	buf_release(&line);
}

/* ---- hints ---- */

void hints_release(struct hints *h)
{
	vec_each(h, it)
		free(*it);
	vec_release(h);
}

static int hint(struct hints *h, struct buf *words)
{
	struct buf clean = {0};
	char *text = NULL;

	if (!words->failed)
		words_text(&clean, words->data);
	if (!clean.failed && clean.data)
		text = strdup(clean.data);
	buf_release(&clean);
	buf_release(words);
	if (!text || vec_push(h, text)) {
		free(text);
		return -ENOMEM;
	}
	return 0;
}

/* The most the kernel copies of a stack: one page less than 64 KB fits its 16-bit record size. */
#define MAX_STACK_BYTES 65528

/* Whether a frame of the program is in the stack. During execve the old mappings are gone before
 * the new ones are there: all that such a stack has is frames of the kernel and one address without
 * a mapping, and no size of copy would add to it. */
static bool has_mapped_frame(const struct profile *p, uint32_t node)
{
	for (; node != PROFILE_NONE; node = p->nodes.data[node].parent) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[node].frame];

		if (f->kind == FRAME_USER && f->module != PROFILE_NONE)
			return true;
	}
	return false;
}

/* Percent of samples whose stack was cut because it did not fit; 0 when most of the cut ones were
 * cut for another reason. */
static double too_deep_pct(const struct profile *p)
{
	uint64_t cut = 0, deep = 0;

	vec_each(&p->samples, s) {
		if (s->end != UNWIND_TRUNCATED && s->end != UNWIND_CHANGED)
			continue;
		cut++;
		deep += has_mapped_frame(p, s->stack);
	}
	return deep * 2 > cut ? 100.0 * (double)deep / (double)p->samples.len : 0;
}

static int hint_truncated(const struct profile *p, struct hints *h)
{
	const char *size = profile_meta(p, "stack_bytes");
	double percent = too_deep_pct(p);
	struct buf b = {0};

	if (percent < FAIR_PERCENT)
		return 0;
	words_share(&b, percent);
	buf_str(&b, " of stacks are cut short");
	if (size && strtoul(size, NULL, 10) >= MAX_STACK_BYTES)
		buf_str(&b, ": deeper than the kernel copies, and gone before the rest was read");
	else
		buf_printf(&b, ": record with --stack-size %d", MAX_STACK_BYTES);
	return hint(h, &b);
}

static int hint_lost(const struct profile *p, struct hints *h)
{
	uint64_t lost = p->quality.losses[LOSS_RING];
	struct buf b = {0};

	if (!lost || lost * 100 < p->samples.len)
		return 0;
	words_count(&b, lost);
	buf_str(&b, " samples were lost: lower the rate (-F) or record fewer processes");
	return hint(h, &b);
}

/* What record had to say, in its own words. */
static int hint_recorded(
	const struct profile *p, const char *key, const char *prefix, struct hints *h)
{
	const char *words = profile_meta(p, key);
	struct buf b = {0};

	if (!words)
		return 0;
	buf_str(&b, prefix);
	buf_str(&b, words);
	return hint(h, &b);
}

static int hint_stackless(const struct profile *p, struct hints *h)
{
	const struct profile_quality *q = &p->quality;
	double percent = percent_of(q->intervals_without_stack, q->intervals);
	struct buf b = {0};

	if (percent < FAIR_PERCENT)
		return 0;
	words_share(&b, percent);
	buf_str(&b, " of waits have no stack: where the threads waited then is not known");
	return hint(h, &b);
}

static int hint_tasks(const struct profile *p, struct hints *h)
{
	struct buf b = {0};

	if (p->of_tasks || !p->task_ns)
		return 0;
	words_duration(&b, p->task_ns);
	buf_str(&b, " of asyncio's tasks are in the recording as well: --tasks shows what they waited for");
	return hint(h, &b);
}

static int hint_wakers(const struct profile *p, struct hints *h)
{
	struct buf b = {0};

	if (p->wakers_known || !p->quality.intervals || p->of_tasks)
		return 0;
	buf_str(&b, "who ended the waits is not known: that needs BPF, ask sonde doctor");
	return hint(h, &b);
}

/* The module and the reason behind most unresolved frames. */
struct hole {
	uint64_t samples;
	uint32_t module;
	enum symbol_reason reason;
};

static int worst_hole(const struct profile *p, struct hole *ret, struct err *err)
{
	size_t slots = p->modules.len + 1;
	struct profile_count *counts = NULL;
	int rc = profile_count_functions(p, &counts, err);
	uint64_t *sums = rc ? NULL : calloc(slots, sizeof(*sums));

	if (!rc && !sums)
		rc = err_nomem(err);
	*ret = (struct hole){.module = PROFILE_NONE};
	for (uint32_t f = 0; f < p->functions.len && !rc; f++) {
		const struct profile_function *fn = &p->functions.data[f];
		size_t slot = fn->module == PROFILE_NONE ? slots - 1 : fn->module;

		if (!fn->unresolved)
			continue;
		sums[slot] += counts[f].total;
		if (sums[slot] > ret->samples)
			*ret = (struct hole){sums[slot], fn->module, fn->reason};
	}
	free(sums);
	free(counts);
	return rc;
}

#define GENERATOR_JAVA 0

/* What makes a generator of code tell names, found by a file that it maps; the last fits all. */
static const struct generator {
	const char *file, *names;
} generators[] = {
	[GENERATOR_JAVA] = {"libjvm.so", "java: jcmd PID Compiler.perfmap"},
	{"python", "python3 -X perf"},
	{"", "node --perf-basic-prof"},
};

static const struct generator *generator_of(const struct profile *p)
{
	const struct generator *g = generators;

	for (; *g->file; g++)
		vec_each(&p->modules, m)
			if (strstr(m->name, g->file))
				return g;
	return g;
}

static int hint_unresolved(const struct profile *p, struct hints *h, struct err *err)
{
	struct hole hole;
	struct buf b = {0};

	if (p->quality.unresolved_frames_pct < FAIR_PERCENT)
		return 0;
	if (worst_hole(p, &hole, err))
		return -ENOMEM;
	if (!hole.samples)
		return 0;

	const char *where = hole.module == PROFILE_NONE ? NULL : p->modules.data[hole.module].name;

	switch (hole.reason) {
	case SYMBOL_ANONYMOUS:
		buf_printf(&b, "most unnamed frames are JIT code: let it write a perf map (%s)",
			generator_of(p)->names);
		break;
	case SYMBOL_REFUSED:
		buf_printf(&b, "names of %s are hidden from this user: ask sonde doctor",
			where ? where : "some frames");
		break;
	case SYMBOL_NO_FILE:
		buf_printf(&b, "most unnamed frames are in %s, which could not be opened",
			where ? where : "a file");
		break;
	case SYMBOL_NOT_MAPPED:
		buf_str(&b, "most unnamed frames lie outside every mapping");
		break;
	default:
		if (!where)
			return 0;
		buf_printf(&b, "most unnamed frames are in %s: install its debug symbols", where);
	}
	return hint(h, &b);
}

static int hint_guessed(const struct profile *p, struct hints *h)
{
	const struct profile_quality *q = &p->quality;
	struct buf b = {0};

	/* A guess that found _start, as in static programs, cost nothing. */
	if (!q->frames ||
		(q->guessed_frames - q->guessed_roots) * 100 < q->frames * FAIR_PERCENT)
		return 0;
	words_share(&b, q->guessed_frames_pct);
	buf_printf(&b, " of frames are guesses (marked ?): %s",
		generator_of(p) == &generators[GENERATOR_JAVA]
			? "start java with -XX:+PreserveFramePointer"
			: "code without unwind information");
	return hint(h, &b);
}

/* Stacks that lack Python frames. */
static int hint_python(const struct profile *p, struct hints *h)
{
	const struct profile_quality *q = &p->quality;
	double torn = percent_of(q->python_torn, q->samples), cut = percent_of(q->python_cut, q->samples);
	const char *how = profile_meta(p, "python_frames");
	struct buf b = {0};

	if (torn < FAIR_PERCENT && cut < FAIR_PERCENT)
		return 0;
	words_share(&b, torn + cut);
	buf_str(&b, " of stacks lack Python frames");
	if (torn >= cut)
		buf_printf(&b, ", which changed while they were read%s",
			how && !strcmp(how, "live") ? ": BPF or --sampler ptrace read them in time" : "");
	else
		buf_str(&b, ": there are too many of them");
	return hint(h, &b);
}

int facts_hints(const struct profile *p, struct hints *ret, struct err *err)
{
	struct hints h = {0};

	if (hint_recorded(p, "limited", "the window is short: ", &h) || hint_truncated(p, &h) ||
		hint_lost(p, &h) || hint_recorded(p, "unsampled", "", &h) || hint_stackless(p, &h) ||
		hint_recorded(p, "python_refused", "no Python frames: ", &h) || hint_python(p, &h) ||
		hint_wakers(p, &h) || hint_tasks(p, &h) || hint_unresolved(p, &h, err) ||
		hint_guessed(p, &h)) {
		hints_release(&h);
		return err_nomem(err);
	}
	*ret = h;
	return 0;
}

/* ---- why there is a recording ---- */

size_t facts_trigger(const struct profile *p, const struct term *t, struct buf *out)
{
	const char *why = profile_meta(p, "trigger");
	struct buf b = {0};

	if (!why)
		return 0;
	buf_str(&b, "Written because: ");
	words_text(&b, why);
	out->failed |= b.failed;
	if (!b.failed) {
		size_t len = t->columns ? term_fit(b.data, t->columns - 2) : b.len;

		buf_add(out, b.data, len);
		if (b.data[len])
			buf_str(out, t->unicode ? "…" : "..");
		buf_char(out, '\n');
	}
	buf_release(&b);
	return 1;
}

/* ---- damage ---- */

void view_damage(const struct profile *p, struct buf *out)
{
	const struct capture_damage *d = &p->damage;

	if (d->bad_header)
		buf_str(out, "the header is damaged: times of day are not to be trusted\n");
	if (d->bad_blocks)
		buf_printf(out, "%" PRIu64 " damaged block%s left out\n", d->bad_blocks,
			d->bad_blocks == 1 ? " was" : "s were");
	if (d->missing_blocks)
		buf_printf(out, "%" PRIu64 " block%s missing\n", d->missing_blocks,
			d->missing_blocks == 1 ? " is" : "s are");
	if (d->skipped_bytes && !d->truncated)
		buf_printf(
			out, "%" PRIu64 " bytes between blocks were skipped\n", d->skipped_bytes);
	if (d->bad_records)
		buf_printf(out, "%" PRIu64 " damaged record%s left out\n", d->bad_records,
			d->bad_records == 1 ? " was" : "s were");
	if (d->truncated)
		buf_str(out,
			"the file ends in the middle of a block: its last samples are missing\n");
	else if (d->no_end)
		buf_str(out,
			"the recording did not end in order (killed, or still running): the last "
			"moments may be missing\n");
}
