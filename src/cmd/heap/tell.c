/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/heap/record_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "profile/heap.h"

#define SIZE_TEXT_BYTES 48

/* "1.5 MB" */
static const char *size_text(double bytes, char *buf)
{
	static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
	size_t i = 0;

	for (; bytes >= 9999.5 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
		bytes /= 1024;
	snprintf(buf, SIZE_TEXT_BYTES, i && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, units[i]);
	return buf;
}

/* "1.5 MB", or with what it may be: "1.5 MB (+- 0.2 MB)". */
static void tell_estimate(double bytes, double variance)
{
	char text[SIZE_TEXT_BYTES];

	fputs(size_text(bytes, text), stderr);
	if (variance > 0)
		fprintf(stderr, " (+- %s)", size_text(heap_model_ci95(variance), text));
}

static void tell_totals(const struct heap_recording *r)
{
	const struct record_heap_total *t = &r->stats.totals.total;

	if (!r->args->every_calls) {
		fputs("  live     ", stderr);
		tell_estimate(t->live_bytes, t->variance_live_bytes);
		fprintf(stderr, " in %.0f blocks%s\n  peak     ", t->live,
			r->stats.processes > 1 ? " at the end of each process" : "");
		tell_estimate(t->peak_bytes, t->variance_peak_bytes);
		if (r->stats.processes > 1)
			fputs(" of all together", stderr);
		if (t->peak_ns > r->start_ns)
			fprintf(stderr, ", after %.2f s", (double)(t->peak_ns - r->start_ns) / 1e9);
		fputc('\n', stderr);
	}
	fputs("  in all   ", stderr);
	tell_estimate(t->allocated_bytes, t->variance_allocated_bytes);
	fprintf(stderr, " in %.0f blocks", t->allocated);
	if (t->allocated > 0 && !r->told)
		fprintf(stderr, ", %.0f %% temporary", 100 * t->temporary / t->allocated);
	fputc('\n', stderr);
}

static void tell_turned_away(const struct heap_recording *r)
{
	if (r->stats.turned_away)
		fprintf(stderr, "  %llu process%s could not be watched: %s\n", (unsigned long long)r->stats.turned_away,
			r->stats.turned_away == 1 ? "" : "es", r->stats.why);
}

static void tell_losses(const struct heap_recording *r)
{
	static const struct {
		enum loss_kind kind;
		const char *words;
	} losses[] = {
		{LOSS_HEAP, "allocations or frees were not written down: the numbers are too low"},
		{LOSS_HEAP_EARLY, "calls of the allocator came before there was anything to write to"},
		{LOSS_HEAP_STACK, "allocations have a cut stack, for want of room"},
		{LOSS_NOTE, "marks, counters or messages of programs found no room"},
	};

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		uint64_t count = r->session_stats.losses[losses[i].kind];

		if (count)
			fprintf(stderr, "  %llu %s\n", (unsigned long long)count, losses[i].words);
	}
	unsigned unseen = r->stats.uncovered - (r->cover.kind == HEAP_OWN_ALLOCATOR && !r->probes_wanted && r->stats.uncovered);

	if (unseen)
		fprintf(stderr, "  %u process%s could not be seen, or not wholly: sonde report says which and why\n", unseen,
			unseen == 1 ? "" : "es");
	if (r->stats.gave_up)
		fprintf(stderr, "  %u process%s took sonde for dead, as nothing was read for %u s: what %s did after that is missing\n",
			r->stats.gave_up, r->stats.gave_up == 1 ? "" : "es", SHARE_GIVE_UP_MS / 1000,
			r->stats.gave_up == 1 ? "it" : "they");
	if (r->stats.rings_abandoned)
		fprintf(stderr, "  what %llu threads wrote made no sense: the rest of it is missing\n",
			(unsigned long long)r->stats.rings_abandoned);
	if (r->stats.totals.no_memory)
		fputs("  out of memory: some blocks were not counted\n", stderr);
	tell_turned_away(r);
}

/* Its small objects are not asked for one by one, unless it is told to. */
static void tell_python(const struct heap_recording *r)
{
	const char *allocator = getenv("PYTHONMALLOC");

	if (r->stats.no_python[0])
		fprintf(stderr, "  no Python frames in stacks: %s\n", r->stats.no_python);
	if (r->stats.pythons && (r->pid || !allocator || strncmp(allocator, "malloc", 6) != 0))
		fputs("  Python's objects of up to 512 bytes are in arenas, which are mapped and not seen here: to see them, "
		      "PYTHONMALLOC=malloc; by type, sonde heap --census PID\n", stderr);
}

/* ---- where the memory is ---- */

#define SPOTS 5u /* enough to go on from; the report has all of them */

static void tell_spot(const struct profile *p, const struct heap_spot *spot, enum heap_order order)
{
	const struct profile_function *f = spot->function == PROFILE_NONE ? NULL : &p->functions.data[spot->function];
	const struct heap_sum *sum = &spot->sum;
	enum heap_variance variance = order == HEAP_BY_LIVE ? HEAP_VAR_LIVE_BYTES
		: order == HEAP_BY_PEAK                     ? HEAP_VAR_PEAK_BYTES
							    : HEAP_VAR_ALLOCATED_BYTES;
	struct heap_interval i =
		heap_interval(heap_measure(sum, order), sum->variance[variance], heap_weight(p->heap, sum, true));
	const char *slash = spot->file ? strrchr(spot->file, '/') : NULL;
	char text[SIZE_TEXT_BYTES];

	fprintf(stderr, "  %12s", size_text(heap_measure(sum, order), text));
	if (i.high > i.low) {
		fprintf(stderr, "  (%s", size_text(i.low, text));
		fprintf(stderr, " to %s)", size_text(i.high, text));
	}
	fprintf(stderr, "  %s", f ? f->name : "[no stack]");
	if (spot->file && spot->line)
		fprintf(stderr, " (%s:%u)", slash ? slash + 1 : spot->file, spot->line);
	fputc('\n', stderr);
}

/* What is live, unless a program has freed most of it by its end. */
static enum heap_order choose_order(const struct heap_recording *r)
{
	const struct record_heap_total *t = &r->stats.totals.total;

	if (r->args->every_calls)
		return HEAP_BY_TOTAL;
	return t->live_bytes >= t->peak_bytes / 2 ? HEAP_BY_LIVE : HEAP_BY_PEAK;
}

/* What malloc has nothing to do with. */
static void tell_mapped(const struct heap_sum *s)
{
	char text[SIZE_TEXT_BYTES];

	fprintf(stderr, "  mapped by the program itself: %s", size_text(s->number[HEAP_ALLOCATED_BYTES], text));
	fprintf(stderr, " in %.0f calls, %s of that at the end\n", s->number[HEAP_ALLOCATED], size_text(s->live_bytes, text));
}

/* The recording is read as anybody would read it. */
static void tell_spots(const struct heap_recording *r)
{
	static const char *const words[] = {[HEAP_BY_LIVE] = "who holds most of what is live:",
		[HEAP_BY_PEAK] = "who held most at the peak:", [HEAP_BY_TOTAL] = "who allocates most:"};
	enum heap_order order = choose_order(r);
	struct heap_spots spots = {0};
	struct profile *p = NULL;
	struct stat st;

	/* A pipe has been read by somebody else. */
	if (stat(r->args->output, &st) || !S_ISREG(st.st_mode) ||
		profile_load(r->args->output, &(struct profile_load_options){0}, &p, NULL))
		return;
	if (p->heap && p->heap->maps)
		tell_mapped(&p->heap->mapped);
	if (p->heap && !heap_spots_build(p, order, &spots, NULL)) {
		if (spots.spots.len && heap_measure(&spots.spots.data[0].sum, order) > 0)
			fprintf(stderr, "%s\n", words[order]);
		for (size_t i = 0; i < spots.spots.len && i < SPOTS; i++)
			if (heap_measure(&spots.spots.data[i].sum, order) > 0)
				tell_spot(p, &spots.spots.data[i], order);
	}
	heap_spots_release(&spots);
	profile_free(p);
}

void heap_tell(const struct heap_recording *r)
{
	const struct heap_record_args *a = r->args;
	uint64_t ns = r->end_ns - r->start_ns;
	char size[SIZE_TEXT_BYTES];

	if (a->quiet)
		return;
	fprintf(stderr, "%s: ", a->output);
	if (a->exact)
		fputs("every allocation", stderr);
	else if (a->every_calls)
		fprintf(stderr, "one call in %llu", (unsigned long long)a->every_calls);
	else if (r->told)
		fprintf(stderr, "%llu samples", (unsigned long long)r->stats.totals.samples);
	else
		fprintf(stderr, "%llu samples, one in %s", (unsigned long long)r->stats.totals.samples,
			size_text((double)a->sample_bytes, size));
	if (!a->exact && !a->every_calls && !r->told && r->stats.rate != a->sample_bytes)
		fprintf(stderr, " at first and %s at the end", size_text((double)r->stats.rate, size));
	fprintf(stderr, ", %u process%s, %.1f s, %llu KB; sonde used %.1f %% of a CPU\n", r->stats.processes,
		r->stats.processes == 1 ? "" : "es", (double)ns / 1e9, (unsigned long long)(r->file_bytes + 1023) / 1024,
		ns ? 100 * (double)r->cost.sampler_cpu_ns / (double)ns : 0);
	if (r->attach.slots)
		fprintf(stderr, "  attached to %u calls and pointers of %u files; no thread stood still for longer than %.2f ms, "
			"%u times %.2f ms in all\n", r->attach.slots, r->attach.objects, (double)r->attach.longest_stop_ns / 1e6,
			r->attach.stops, (double)r->attach.stopped_ns / 1e6);
	heap_tell_probes(r);
	if (!r->stats.processes) {
		tell_turned_away(r);
		if (r->told)
			fputs("  nothing was told by them: --sample 512K takes samples itself\n", stderr);
		else if (!r->stats.turned_away)
			fputs("  nothing was seen: the program has not allocated anything, or could not share memory with us (a "
			      "limit on its address space, a sandbox, an environment that it was started without)\n", stderr);
		return;
	}
	if (a->time)
		fprintf(stderr, "  %.2f s of CPU time in %llu samples\n", (double)r->stats.time_ns / 1e9,
			(unsigned long long)r->stats.time_samples);
	else
		tell_totals(r);
	tell_losses(r);
	tell_python(r);
	if (!a->time)
		tell_spots(r);
	fprintf(stderr, "see it: sonde report %s\n", a->output);
}
