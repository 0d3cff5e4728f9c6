/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pprof's profile.proto (github.com/google/pprof/proto/profile.proto), compressed with gzip.
 *
 * One Location a frame, with a Line for each inlined function and the real one last; one Mapping
 * a module, the main program first. Samples of the same thread, stack and end are one Sample with
 * two values, the number and the CPU time; with time off the CPU there are two more, that time and the
 * sum of both, which is what `go tool pprof` then shows first. Of allocations there are the four values that Go's own
 * heap profiles have, under their names. Field numbers are those of the .proto; messages that are not samples fit in memory,
 * samples are compressed as they are made.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/intern.h"
#include "format/format_priv.h"
#include "profile/heap.h"

/* ---- the wire format (protobuf.dev/programming-guides/encoding) ---- */

enum wire {
	WIRE_VARINT = 0,
	WIRE_BYTES = 2,
};

static void field(struct buf *b, unsigned number, enum wire wire)
{
	buf_uleb(b, number << 3 | wire);
}

/* Zero is the default and is not written. */
static void integer(struct buf *b, unsigned number, uint64_t value)
{
	if (!value)
		return;
	field(b, number, WIRE_VARINT);
	buf_uleb(b, value);
}

static void bytes(struct buf *b, unsigned number, const void *data, size_t len)
{
	field(b, number, WIRE_BYTES);
	buf_uleb(b, len);
	buf_add(b, data, len);
}

/* ---- gzip into a FILE ---- */

struct gzip {
	z_stream z;
	FILE *out;
	bool failed;
};

/* deflateInit2: 15 bits of window, plus 16 for a gzip header instead of zlib's. */
#define GZIP_WINDOW (15 + 16)

static int gzip_open(struct gzip *g, FILE *out)
{
	*g = (struct gzip){.out = out};
	return deflateInit2(&g->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8,
		       Z_DEFAULT_STRATEGY) == Z_OK
		       ? 0
		       : -ENOMEM;
}

static void gzip_add(struct gzip *g, const void *data, size_t len, int flush)
{
	unsigned char chunk[16 << 10];

	g->z.next_in = (unsigned char *)data;
	g->z.avail_in = (unsigned)len;
	do {
		g->z.next_out = chunk;
		g->z.avail_out = sizeof(chunk);
		if (deflate(&g->z, flush) == Z_STREAM_ERROR) {
			g->failed = true;
			return;
		}
		fwrite(chunk, 1, sizeof(chunk) - g->z.avail_out, g->out);
	} while (!g->z.avail_out);
}

/* ---- the profile ---- */

struct pprof {
	const struct profile *p;
	struct gzip gzip;
	struct intern strings;
	struct buf message, inner; /* one message on its way out; a part of it */
	uint32_t *mapping_ids;     /* by module */
	bool failed;
};

static uint64_t string_id(struct pprof *w, const char *s)
{
	uint32_t id = intern_str(&w->strings, s);

	w->failed |= id == INTERN_NONE;
	return id == INTERN_NONE ? 0 : id;
}

/* Profile's fields, by their numbers. */
enum profile_field {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING_TABLE = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_COMMENT = 13,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14,
};

static void flush(struct pprof *w)
{
	w->failed |= w->message.failed || w->inner.failed;
	if (!w->failed)
		gzip_add(&w->gzip, w->message.data, w->message.len, Z_NO_FLUSH);
	buf_clear(&w->message);
}

/* Sends `inner` as one field of the profile. */
static void send(struct pprof *w, enum profile_field number)
{
	if (!w->inner.failed)
		bytes(&w->message, number, w->inner.data, w->inner.len);
	w->failed |= w->inner.failed;
	buf_clear(&w->inner);
	flush(w);
}

static void send_value_type(
	struct pprof *w, enum profile_field number, const char *type, const char *unit)
{
	integer(&w->inner, 1, string_id(w, type));
	integer(&w->inner, 2, string_id(w, unit));
	send(w, number);
}

/* ---- samples ---- */

static void label_string(struct pprof *w, const char *key, const char *value)
{
	struct buf label = {0};

	integer(&label, 1, string_id(w, key));
	integer(&label, 2, string_id(w, value));
	bytes(&w->inner, 3, label.data, label.len);
	w->failed |= label.failed;
	buf_release(&label);
}

static void label_number(struct pprof *w, const char *key, uint64_t value)
{
	struct buf label = {0};

	integer(&label, 1, string_id(w, key));
	integer(&label, 3, value);
	bytes(&w->inner, 3, label.data, label.len);
	w->failed |= label.failed;
	buf_release(&label);
}

/* In the order of send_types(). */
static void add_values(const struct pprof *w, const struct sample_group *g, struct buf *packed)
{
	bool on_cpu = g->state == STATE_ON_CPU;

	buf_uleb(packed, g->samples);
	if (w->p->mode != PROFILE_OFF_CPU)
		buf_uleb(packed, on_cpu ? g->weight : 0);
	if (w->p->mode != PROFILE_CPU)
		buf_uleb(packed, on_cpu ? 0 : g->weight);
	if (w->p->mode == PROFILE_WALL)
		buf_uleb(packed, g->weight);
}

/* What the thread was in, and who ended it: "holder (server)". */
static void label_wait(struct pprof *w, const struct sample_group *g)
{
	struct buf who = {0};

	if (w->p->mode == PROFILE_CPU)
		return;
	label_string(w, "state", profile_state_name((enum thread_state)g->state));
	if (g->waker_kind == WAKER_INTERRUPT)
		label_string(w, "waker", "interrupt");
	if (g->waker == PROFILE_NONE)
		return;
	buf_printf(&who, "%s (%s)", w->p->wakers.data[g->waker].name,
		w->p->wakers.data[g->waker].process);
	w->failed |= who.failed;
	if (!who.failed)
		label_string(w, "waker", who.data);
	buf_release(&who);
}

static void send_sample(struct pprof *w, const struct sample_group *g)
{
	const struct profile *p = w->p;
	const struct profile_thread *t = &p->threads.data[g->thread];
	struct buf packed = {0};

	for (uint32_t n = g->stack; n != PROFILE_NONE; n = p->nodes.data[n].parent)
		buf_uleb(&packed, (uint64_t)p->nodes.data[n].frame + 1);
	if (packed.len)
		bytes(&w->inner, 1, packed.data, packed.len);
	buf_clear(&packed);
	add_values(w, g, &packed);
	bytes(&w->inner, 2, packed.data, packed.len);
	label_string(w, "thread", t->name);
	label_number(w, "tid", t->tid);
	label_string(w, "process", t->process);
	label_number(w, "pid", t->pid);
	if (g->end != UNWIND_ROOT && g->end < UNWIND_END_COUNT)
		label_string(w, "stack", unwind_end_name((enum unwind_end)g->end));
	label_wait(w, g);
	w->failed |= packed.failed;
	buf_release(&packed);
	send(w, PROFILE_SAMPLE);
}

/* Whole, and in the order of send_types(). */
static void send_site(struct pprof *w, const struct heap_site *s)
{
	const struct profile *p = w->p;
	const struct profile_thread *t = &p->threads.data[s->thread];
	double values[] = {s->sum.number[HEAP_ALLOCATED], s->sum.number[HEAP_ALLOCATED_BYTES], s->sum.live, s->sum.live_bytes};
	struct buf packed = {0};

	for (uint32_t n = s->stack; n != PROFILE_NONE; n = p->nodes.data[n].parent)
		buf_uleb(&packed, (uint64_t)p->nodes.data[n].frame + 1);
	if (packed.len)
		bytes(&w->inner, 1, packed.data, packed.len);
	buf_clear(&packed);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		buf_uleb(&packed, (uint64_t)round(fmin(values[i], 1e18)));
	bytes(&w->inner, 2, packed.data, packed.len);
	label_string(w, "thread", t->name);
	label_number(w, "tid", t->tid);
	label_string(w, "process", t->process);
	label_number(w, "pid", t->pid);
	w->failed |= packed.failed;
	buf_release(&packed);
	send(w, PROFILE_SAMPLE);
}

static bool is_heap(const struct profile *p)
{
	return p->heap && (p->mode == PROFILE_HEAP || !p->samples.len);
}

static int send_samples(struct pprof *w, struct err *err)
{
	struct sample_groups groups = {0};
	int rc = 0;

	if (is_heap(w->p)) {
		vec_each(&w->p->heap->sites, s)
			send_site(w, s);
		return 0;
	}
	rc = group_samples(w->p, &groups, err);

	vec_each(&groups, g)
		send_sample(w, g);
	vec_release(&groups);
	return rc;
}

/* ---- mappings ---- */

/* The module at the bottom of most first threads' stacks holds _start: the main program. */
static uint32_t main_module(const struct profile *p, uint32_t *bottom, uint64_t *votes)
{
	uint32_t best = PROFILE_NONE;

	for (uint32_t i = 0; i < p->nodes.len; i++) {
		uint32_t parent = p->nodes.data[i].parent;

		bottom[i] = parent == PROFILE_NONE ? p->frames.data[p->nodes.data[i].frame].module
						   : bottom[parent];
	}
	vec_each(&p->samples, s) {
		const struct profile_thread *t = &p->threads.data[s->thread];
		uint32_t module = s->stack == PROFILE_NONE ? PROFILE_NONE : bottom[s->stack];

		if (module == PROFILE_NONE || t->pid != t->tid || s->end != UNWIND_ROOT ||
			p->modules.data[module].kind != MODULE_FILE)
			continue;
		votes[module]++;
		if (best == PROFILE_NONE || votes[module] > votes[best])
			best = module;
	}
	return best;
}

/* What a mapping's frames have been given, which tells pprof not to look for names itself. */
struct known {
	bool functions, files, lines, inlines;
};

static void find_known(const struct profile *p, struct known *known)
{
	vec_each(&p->frames, f) {
		struct known *k = f->module == PROFILE_NONE ? NULL : &known[f->module];

		for (uint32_t i = 0; k && i < f->level_count; i++) {
			const struct profile_level *l = &p->levels.data[f->first_level + i];

			k->functions |= !p->functions.data[l->function].unresolved;
			k->files |= l->file != NULL;
			k->lines |= l->line != 0;
			k->inlines |= l->inlined;
		}
	}
}

static void send_mapping(struct pprof *w, uint32_t module, uint32_t id, const struct known *k)
{
	const struct profile_module *m = &w->p->modules.data[module];
	struct buf hex = {0};

	w->mapping_ids[module] = id;
	integer(&w->inner, 1, id);
	integer(&w->inner, 2, m->start);
	integer(&w->inner, 3, m->end);
	/* The offset is not recorded; files are nearly always linked so that it is the address. */
	integer(&w->inner, 4, m->start - m->bias);
	integer(&w->inner, 5, string_id(w, m->path));
	for (size_t i = 0; i < m->build_id_bytes && i < sizeof(m->build_id); i++)
		buf_printf(&hex, "%02x", m->build_id[i]);
	w->failed |= hex.failed;
	if (hex.len && !hex.failed)
		integer(&w->inner, 6, string_id(w, hex.data));
	buf_release(&hex);
	integer(&w->inner, 7, k->functions);
	integer(&w->inner, 8, k->files);
	integer(&w->inner, 9, k->lines);
	integer(&w->inner, 10, k->inlines);
	send(w, PROFILE_MAPPING);
}

static int send_mappings(struct pprof *w)
{
	const struct profile *p = w->p;
	uint32_t *bottom = calloc(p->nodes.len + 1, sizeof(*bottom)), id = 1;
	uint64_t *votes = calloc(p->modules.len + 1, sizeof(*votes));
	struct known *known = calloc(p->modules.len + 1, sizeof(*known));
	int rc = bottom && votes && known ? 0 : -ENOMEM;

	if (!rc) {
		uint32_t first = main_module(p, bottom, votes);

		find_known(p, known);
		if (first != PROFILE_NONE)
			send_mapping(w, first, id++, &known[first]);
		for (uint32_t i = 0; i < p->modules.len; i++)
			if (i != first)
				send_mapping(w, i, id++, &known[i]);
	}
	free(bottom);
	free(votes);
	free(known);
	return rc;
}

/* ---- locations and functions ---- */

/* pprof wants the address of the call instruction, in the address space of the mapping. */
static uint64_t location_address(const struct profile *p, const struct profile_frame *f)
{
	uint64_t bias = f->module == PROFILE_NONE ? 0 : p->modules.data[f->module].bias;

	return f->address + bias - (f->is_return && f->address);
}

static void send_locations(struct pprof *w)
{
	const struct profile *p = w->p;
	struct buf line = {0};

	for (uint32_t i = 0; i < p->frames.len; i++) {
		const struct profile_frame *f = &p->frames.data[i];

		integer(&w->inner, 1, (uint64_t)i + 1);
		if (f->module != PROFILE_NONE)
			integer(&w->inner, 2, w->mapping_ids[f->module]);
		integer(&w->inner, 3, location_address(p, f));
		for (uint32_t l = 0; l < f->level_count; l++) {
			const struct profile_level *level = &p->levels.data[f->first_level + l];

			buf_clear(&line);
			integer(&line, 1, (uint64_t)level->function + 1);
			integer(&line, 2, level->line);
			bytes(&w->inner, 4, line.data, line.len);
			w->failed |= line.failed;
		}
		send(w, PROFILE_LOCATION);
	}
	buf_release(&line);
}

static void send_functions(struct pprof *w)
{
	const struct profile *p = w->p;

	for (uint32_t i = 0; i < p->functions.len; i++) {
		const struct profile_function *f = &p->functions.data[i];
		uint64_t name = string_id(w, f->name);

		integer(&w->inner, 1, (uint64_t)i + 1);
		integer(&w->inner, 2, name);
		integer(&w->inner, 3, name);
		if (f->file)
			integer(&w->inner, 4, string_id(w, f->file));
		send(w, PROFILE_FUNCTION);
	}
}

/* ---- the rest ---- */

static void add_comment(struct pprof *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add_comment(struct pprof *w, const char *fmt, ...)
{
	struct buf text = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	w->failed |= text.failed;
	if (!text.failed)
		integer(&w->message, PROFILE_COMMENT, string_id(w, text.data));
	buf_release(&text);
}

/* What readers show when they are not asked for anything else. */
static const char *main_type(const struct profile *p)
{
	if (is_heap(p))
		return "inuse_space";
	return p->mode == PROFILE_CPU ? "cpu" : p->mode == PROFILE_WALL ? "wall" : "off_cpu";
}

static void send_types(struct pprof *w)
{
	if (is_heap(w->p)) {
		send_value_type(w, PROFILE_SAMPLE_TYPE, "alloc_objects", "count");
		send_value_type(w, PROFILE_SAMPLE_TYPE, "alloc_space", "bytes");
		send_value_type(w, PROFILE_SAMPLE_TYPE, "inuse_objects", "count");
		send_value_type(w, PROFILE_SAMPLE_TYPE, "inuse_space", "bytes");
		send_value_type(w, PROFILE_PERIOD_TYPE, "space", "bytes");
		return;
	}
	send_value_type(w, PROFILE_SAMPLE_TYPE, "samples", "count");
	if (w->p->mode != PROFILE_OFF_CPU)
		send_value_type(w, PROFILE_SAMPLE_TYPE, "cpu", "nanoseconds");
	if (w->p->mode != PROFILE_CPU)
		send_value_type(w, PROFILE_SAMPLE_TYPE, "off_cpu", "nanoseconds");
	if (w->p->mode == PROFILE_WALL)
		send_value_type(w, PROFILE_SAMPLE_TYPE, "wall", "nanoseconds");
	/* Intervals off the CPU have no period. */
	if (w->p->mode != PROFILE_OFF_CPU)
		send_value_type(w, PROFILE_PERIOD_TYPE, "cpu", "nanoseconds");
}

/* Bytes between two samples; 1: all of them. */
static uint64_t heap_period(const struct profile_heap *h)
{
	return h->least_rate > 1 ? (uint64_t)fmin(h->least_rate, 1e18) : 1;
}

static void send_facts(struct pprof *w)
{
	const struct profile *p = w->p;
	const struct profile_quality *q = &p->quality;
	const char *hz = profile_meta(p, "frequency_hz"), *command = profile_meta(p, "command");
	uint64_t rate = hz ? strtoull(hz, NULL, 10) : 0;

	integer(&w->message, PROFILE_TIME_NANOS, p->start_realtime_ns);
	integer(&w->message, PROFILE_DURATION_NANOS,
		p->end_ns > p->start_ns ? p->end_ns - p->start_ns : 0);
	integer(&w->message, PROFILE_PERIOD, is_heap(p) ? heap_period(p->heap)
		: rate && p->mode != PROFILE_OFF_CPU ? NS_PER_S / rate : 0);
	integer(&w->message, PROFILE_DEFAULT_SAMPLE_TYPE, string_id(w, main_type(p)));
	add_comment(w, "recorded by sonde%s%s", command ? ": " : "", command ? command : "");
	if (is_heap(p)) {
		flush(w);
		return;
	}
	add_comment(w, "stacks: %.1f%% rooted, %.1f%% truncated", q->rooted_pct, q->truncated_pct);
	add_comment(w, "frames: %.1f%% guessed, %.1f%% unresolved", q->guessed_frames_pct,
		q->unresolved_frames_pct);
	add_comment(w, "samples lost: %" PRIu64, q->losses[LOSS_RING]);
	flush(w);
}

/* Last, when all strings are known; the reader resolves them when it has read everything. */
static void send_strings(struct pprof *w)
{
	for (uint32_t i = 0; i < intern_count(&w->strings); i++) {
		size_t len;
		const char *s = intern_get(&w->strings, i, &len);

		bytes(&w->message, PROFILE_STRING_TABLE, s, len);
		flush(w);
	}
}

static int write_messages(struct pprof *w, struct err *err)
{
	int rc;

	string_id(w, ""); /* string 0 */
	send_types(w);
	rc = send_samples(w, err);
	if (rc)
		return rc;
	rc = send_mappings(w);
	if (rc)
		return rc;
	send_locations(w);
	send_functions(w);
	send_facts(w);
	send_strings(w);
	gzip_add(&w->gzip, "", 0, Z_FINISH);
	return 0;
}

static int write_pprof(const struct profile *p, FILE *out, struct err *err)
{
	struct pprof w = {.p = p};
	int rc = -ENOMEM;

	w.mapping_ids = calloc(p->modules.len + 1, sizeof(*w.mapping_ids));
	if (w.mapping_ids && !gzip_open(&w.gzip, out)) {
		rc = write_messages(&w, err);
		deflateEnd(&w.gzip.z);
	}
	if (w.failed || w.gzip.failed)
		rc = -ENOMEM;
	intern_release(&w.strings);
	buf_release(&w.message);
	buf_release(&w.inner);
	free(w.mapping_ids);
	return rc ? err_nomem(err) : 0;
}

const struct format_ops format_pprof = {
	.name = "pprof",
	.extensions = {".pb.gz", ".pprof", ".pb"},
	.help = "go tool pprof, Pyroscope, Parca, Grafana",
	.loses = "the time of each sample, the CPU it ran on, which frames are guessed, the stacks "
		 "of threads that woke others",
	.binary = true,
	.write = write_pprof,
};
