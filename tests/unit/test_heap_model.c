/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of allocations (src/heap/model.h) against the plainest way to make them. */
#include "heap_reference.h"

#include "capture/reader.h"
#include "recording.h"
#include "test.h"

static bool near(double a, double b)
{
	double most = fabs(a) > fabs(b) ? fabs(a) : fabs(b);

	return a == b || fabs(a - b) <= 1e-9 * most + 1e-7;
}

#define check_near(got, want)                                                                                          \
	do {                                                                                                           \
		double got_ = (got), want_ = (want);                                                                   \
		if (!near(got_, want_)) {                                                                              \
			test_fail_(__FILE__, __LINE__);                                                                \
			printf("%s is %.17g, not %.17g\n", #got, got_, want_);                                         \
		}                                                                                                      \
	} while (0)

/* ---- streams of events ---- */

struct snap {
	struct ref_site sites[REF_SITES];
	uint32_t site_count;
	double living, left, peak, allocated;
};

struct run {
	struct heap_model *m;
	struct ref *r;
	struct stream s;
	struct capture_writer *w;
	int fd;
	struct snap *snaps;
	uint32_t snap_count, processes;
	bool exact_filter;
};

#define MOMENTS 40u

static void new_process(struct run *r)
{
	uint32_t slot = r->processes % 3, number = (r->processes / 3) << 16 | slot;

	check(!heap_model_process(r->m, number, 1000 + slot, r->s.sampled ? HEAP_SAMPLED : HEAP_EXACT, NULL));
	r->processes++;
	r->s.process = number;
}

static void moment(struct run *r, bool last)
{
	struct snap *n = &r->snaps[r->snap_count++];

	memcpy(n->sites, r->r->sites, sizeof(n->sites));
	n->site_count = r->r->site_count;
	n->living = ref_living(r->r);
	for (uint32_t i = 0; i < n->site_count; i++) {
		n->left += n->sites[i].ended ? ref_live_of(&n->sites[i], true) : 0;
		n->allocated += n->sites[i].number[HEAP_ALLOCATED];
	}
	n->peak = r->r->peak;
	heap_model_write(r->m, r->w, r->s.now_ns, 0, last);
}

static void run_events(struct run *r, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint32_t stack, processes = r->processes < 3 ? r->processes : 3;

		/* Any of those that run: the last ones of their slots. */
		r->s.process = (r->processes - 1) - (uint32_t)stream_random(&r->s, processes);
		r->s.process = (r->s.process / 3) << 16 | r->s.process % 3;

		struct heap_event e = stream_next(&r->s, &stack);

		heap_model_prefetch(r->m, &e);
		ref_take(r->r, &e, stack);
		heap_model_take(r->m, &e, stack);
	}
}

static struct run run_start(bool sampled, uint64_t seed)
{
	struct run r = {.r = ref_new(sampled), .s = {.state = seed, .sampled = sampled, .now_ns = 1000}};

	r.snaps = calloc(MOMENTS + 1, sizeof(*r.snaps));
	check(!heap_model_new(&r.m, NULL));
	r.w = recording_start(&r.fd);
	new_process(&r);
	new_process(&r);
	new_process(&r);
	for (unsigned i = 0; i < MOMENTS; i++) {
		run_events(&r, 700);
		if (i % 9 == 8) {
			uint32_t oldest = r.processes - 3, number = (oldest / 3) << 16 | oldest % 3;

			ref_ended(r.r, number);
			heap_model_process_ended(r.m, i % 2 ? r.w : NULL, number, r.s.now_ns);
			new_process(&r);
		}
		moment(&r, i == MOMENTS - 1);
	}
	return r;
}

static void run_end(struct run *r)
{
	heap_model_free(r->m);
	ref_free(r->r);
	free(r->snaps);
}

/* ---- what stands in the recording ---- */

struct read_back {
	struct record_heap_site sites[REF_SITES];
	struct record_heap_state states[REF_SITES];
	double shapes[REF_SITES][6][HEAP_BUCKETS];
	uint64_t live_ns[REF_SITES];
	uint32_t site_count, moments, flows, threads;
};

static void compare_sites(const struct read_back *b, const struct snap *n)
{
	check_u64(b->site_count, n->site_count);
	for (uint32_t i = 0; i < n->site_count; i++) {
		const struct ref_site *s = &n->sites[i];

		check_u64(b->sites[i].id, i);
		check_u64(b->sites[i].pid, 1000 + HEAP_SLOT(s->process));
		check_u64(b->sites[i].tid, s->tid);
		check_u64(b->sites[i].stack, s->stack);
		for (size_t k = 0; k < HEAP_NUMBERS; k++)
			check_near(b->states[i].number[k], s->number[k]);
		for (size_t k = 0; k < HEAP_VARIANCES; k++)
			check(near(b->states[i].variance[k], s->variance[k]) ||
				fabs(s->variance[k]) < 1e-9 * s->variance[HEAP_VAR_ALLOCATED_BYTES]);
	}
}

static void read_shape(struct read_back *b, const struct record_heap_shape *s)
{
	const double *counts = (const double *)(const void *)(s + 1);

	memset(b->shapes[s->site][s->kind], 0, sizeof(b->shapes[0][0]));
	memcpy(b->shapes[s->site][s->kind] + s->first, counts, s->buckets * sizeof(*counts));
	b->live_ns[s->site] = s->time_ns;
}

static void compare_flow(struct read_back *b, const struct ref *r, const struct record_heap_flow *f, bool last)
{
	const struct ref_flow *want = r->flows;

	while (want < r->flows + r->flow_count &&
		!(want->site == f->site && want->tid == f->tid && want->stack == f->stack))
		want++;
	check(want < r->flows + r->flow_count);
	if (last && want < r->flows + r->flow_count && near(want->count, f->count) && near(want->bytes, f->bytes))
		b->flows++;
}

static void read_record(struct read_back *b, const struct run *r, const struct record_header *h)
{
	const struct snap *n = &r->snaps[b->moments];

	if (h->type == RECORD_HEAP_SITE) {
		b->sites[b->site_count++] = *(const struct record_heap_site *)(const void *)h;
	} else if (h->type == RECORD_HEAP_STATE) {
		const struct record_heap_state *s = (const void *)h;

		b->states[s->site] = *s;
	} else if (h->type == RECORD_HEAP_SHAPE) {
		read_shape(b, (const void *)h);
	} else if (h->type == RECORD_HEAP_FLOW) {
		compare_flow(b, r->r, (const void *)h, true);
	} else if (h->type == RECORD_HEAP_TOTAL) {
		const struct record_heap_total *t = (const void *)h;

		check_near(t->live_bytes, n->living + n->left);
		check_near(t->ended_bytes, n->left);
		check_near(t->peak_bytes, n->peak);
		check_near(t->allocated, n->allocated);
		compare_sites(b, n);
		b->moments++;
	}
}

/* Shapes of the sites of processes that run, at the end. */
static void compare_shapes(const struct read_back *b, const struct run *r)
{
	double (*live)[2][HEAP_BUCKETS] = calloc(REF_SITES, sizeof(*live));

	for (uint32_t i = 0; i < r->r->block_count; i++) {
		const struct ref_block *k = &r->r->blocks[i];

		if (k->where != REF_LIVE)
			continue;
		live[k->site][0][ref_bucket(k->size)] += k->weight;
		live[k->site][1][ref_bucket((r->s.now_ns - ref_time(k->time_ns)) / 1000)] += k->weight;
	}
	for (uint32_t i = 0; i < r->r->site_count; i++) {
		const struct ref_site *s = &r->r->sites[i];

		for (unsigned k = 0; k < HEAP_BUCKETS; k++) {
			check_near(b->shapes[i][HEAP_SIZES][k], s->shape[k]);
			check_near(b->shapes[i][HEAP_LIFETIMES][k], s->lifetimes[k]);
			if (s->ended)
				continue;
			check_near(b->shapes[i][HEAP_LIVE_SIZES][k], live[i][0][k]);
			check_near(b->shapes[i][HEAP_AGES][k], live[i][1][k]);
		}
	}
	free(live);
}

static void compare(struct run *r)
{
	struct read_back *b = calloc(1, sizeof(*b));
	struct capture_reader *reader;
	const struct record_header *h;
	struct bytes file;
	struct heap_totals totals;

	capture_writer_finish(r->w, END_DURATION, 0, NULL);
	file = recording_bytes(r->fd);
	check(!capture_reader_open_memory(file.data, file.len, &reader, NULL));
	while (capture_reader_next(reader, &h, NULL) == 1)
		read_record(b, r, h);
	check_u64(b->moments, MOMENTS);
	check(b->flows >= r->r->flow_count);
	compare_shapes(b, r);
	capture_reader_free(reader);
	free(file.data);
	free(b);

	heap_model_totals(r->m, &totals);
	check_near(totals.freed_unknown, r->r->unknown);
	check_u64(totals.missed_frees, (uint64_t)r->r->missed);
	check_near(totals.total.temporary, r->r->temporary);
	check_u64(totals.total.peak_ns, (uint64_t)r->r->peak_ns);
	check(!totals.no_memory);
	check(r->r->missed > 0 && r->r->temporary > 0 && r->r->flow_count > 10);
}

TEST(exact_numbers)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct run r = run_start(false, seed * 7919);

		compare(&r);
		run_end(&r);
	}
}

TEST(sampled_numbers)
{
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct run r = run_start(true, seed * 104729);

		compare(&r);
		run_end(&r);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(exact_numbers), T(sampled_numbers));
}
