/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/model.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "heap/model_priv.h"

#define SITES_ROOM (3ull * HEAP_MOST_SITES + 1)
#define RARES_ROOM (SITES_ROOM + 1)
#define SIZE_MOST ((1ull << LIVE_SIZE_BITS) - 1)

/* ---- made and freed ---- */

/* Pages are there once they are used. */
static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int heap_model_new(struct heap_model **ret, struct err *err)
{
	struct heap_model *m = calloc(1, sizeof(*m));

	if (!m)
		return err_nomem(err);
	m->sites = reserve(SITES_ROOM * sizeof(*m->sites));
	m->rares = reserve(RARES_ROOM * sizeof(*m->rares));
	m->hints = calloc(HINTS, sizeof(*m->hints));
	m->classes = calloc(CLASSES, sizeof(*m->classes));
	if (!m->sites || !m->rares || !m->hints || !m->classes || vec_push(&m->rates, ((struct rate){.precision = HEAP_EXACT}))) {
		heap_model_free(m);
		return err_nomem(err);
	}
	m->merged_site = NO_SITE;
	if (getrandom(&m->seed, sizeof(m->seed), GRND_NONBLOCK) != (ssize_t)sizeof(m->seed))
		m->seed = clock_monotonic_ns();
	*ret = m;
	return 0;
}

static void watched_free(struct watched *p)
{
	if (!p)
		return;
	live_release(&p->live);
	told_sizes_free(p->told);
	maps_free(p->maps);
	free(p);
}

void heap_model_free(struct heap_model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < HEAP_PROCESSES; i++)
		watched_free(m->processes[i]);
	for (uint32_t i = 0; i < m->site_count; i++) {
		shape_release(&m->sites[i].sizes);
		shape_release(&m->sites[i].lifetimes);
	}
	if (m->sites)
		munmap(m->sites, SITES_ROOM * sizeof(*m->sites));
	if (m->rares)
		munmap(m->rares, RARES_ROOM * sizeof(*m->rares));
	vec_each(&m->threads, t)
		thread_free(*t);
	vec_release(&m->threads);
	vec_release(&m->flows);
	vec_release(&m->rates);
	free(m->hints);
	free(m->classes);
	id_table_release(&m->site_index);
	id_table_release(&m->thread_index);
	id_table_release(&m->flow_index);
	free(m);
}

int heap_model_process(
	struct heap_model *m, uint32_t number, uint32_t pid, enum heap_precision precision, struct err *err)
{
	uint32_t slot = HEAP_SLOT(number);
	struct watched *p;

	if (slot >= HEAP_PROCESSES)
		return err_set(err, EINVAL, "more than %u programs at once are not watched", HEAP_PROCESSES);
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_nomem(err);
	if (m->processes[slot])
		heap_model_process_ended(m, NULL, m->processes[slot]->number, 0);
	p->number = number;
	p->pid = pid;
	p->precision = (uint8_t)precision;
	p->live.seed = m->seed;
	p->first_site = p->merged_site = NO_SITE;
	m->processes[slot] = p;
	return 0;
}

void heap_model_apart(struct heap_model *m, uint32_t number)
{
	struct watched *p = watched_of(m, number);

	if (p)
		p->apart = true;
}

void sums_keep(const struct heap_model *m, struct kept_sums *ret)
{
	*ret = (struct kept_sums){m->living, m->ended, m->allocated, m->temporary, m->freed_unknown, m->peak_bytes,
		m->peak_variance, m->peak_ns, m->epoch, m->samples, m->live_blocks, m->missed_frees};
}

void sums_put_back(struct heap_model *m, const struct kept_sums *kept)
{
	m->living = kept->living;
	m->ended = kept->ended;
	m->allocated = kept->allocated;
	m->temporary = kept->temporary;
	m->freed_unknown = kept->freed_unknown;
	m->peak_bytes = kept->peak_bytes;
	m->peak_variance = kept->peak_variance;
	m->peak_ns = kept->peak_ns;
	m->epoch = kept->epoch;
	m->samples = kept->samples;
	m->live_blocks = kept->live_blocks;
	m->missed_frees = kept->missed_frees;
}

/* ---- what a block stands for ---- */

/* The number of a rate. There are few, unless a target says nonsense: then it gets the last one. */
static uint32_t rate_number(struct heap_model *m, uint8_t precision, uint64_t rate)
{
	struct rate is = {.rate = (double)rate, .precision = precision};

	if (precision == HEAP_EXACT || !rate)
		return 0;
	for (size_t i = 0, n = m->last_rate; i < m->rates.len && i < 64; i++, n = n ? n - 1 : m->rates.len - 1) {
		if (m->rates.data[n].precision == precision && m->rates.data[n].rate == is.rate) {
			m->last_rate = (uint32_t)n;
			return m->last_rate;
		}
	}
	if (m->rates.len < RATES_MOST && !vec_push(&m->rates, is))
		m->last_rate = (uint32_t)m->rates.len - 1;
	return m->last_rate;
}

struct weight weigh_sampled(const struct rate *r, uint64_t size)
{
	double s = (double)size, p = 1 / r->rate;

	if (r->precision == HEAP_SAMPLED)
		p = -expm1(-(size ? s : 1) / r->rate);
	return (struct weight){
		.count = 1 / p,
		.bytes = s / p,
		.variance = (1 - p) / (p * p),
		.variance_bytes = s * s * (1 - p) / (p * p),
	};
}

/* ---- sums ---- */

static inline void sums_add(struct sums *to, const struct weight *w)
{
	to->count += w->count;
	to->bytes += w->bytes;
	if (w->variance > 0) {
		to->variance += w->variance;
		to->variance_bytes += w->variance_bytes;
	}
}

static inline void sums_take(struct sums *from, const struct weight *w)
{
	from->count -= w->count;
	from->bytes -= w->bytes;
	if (w->variance > 0) {
		from->variance -= w->variance;
		from->variance_bytes -= w->variance_bytes;
	}
}

static inline void look_for_peak(struct heap_model *m, uint64_t time_ns)
{
	if (m->living.bytes <= m->peak_bytes)
		return;
	m->peak_bytes = m->living.bytes;
	m->peak_variance = m->living.variance_bytes;
	m->peak_ns = time_ns;
	m->epoch++;
}

static inline void count_allocated(struct heap_model *m, struct site *s, struct thread *t, const struct weight *w, uint64_t size,
	bool sampled)
{
	site_note_peak(m, s);
	s->allocated += w->count;
	s->allocated_bytes += w->bytes;
	if (w->variance > 0) {
		double *variance = rare_of(m, s)->variance;

		variance[HEAP_VAR_ALLOCATED] += w->variance;
		variance[HEAP_VAR_ALLOCATED_BYTES] += w->variance_bytes;
		variance[HEAP_VAR_LIVE] += w->variance;
		variance[HEAP_VAR_LIVE_BYTES] += w->variance_bytes;
	}
	if (sampled)
		rare_of(m, s)->live_blocks++;
	s->samples++;
	m->live_blocks++;
	s->changed = s->reshaped = true;
	if (!shape_add(&s->sizes, shape_bucket(size), w->count))
		m->no_memory = true;
	t->allocated += w->count;
	t->allocated_bytes += w->bytes;
	t->changed = true;
	m->samples++;
	sums_add(&m->allocated, w);
	sums_add(&m->living, w);
}

/* Sums of weights that are no integers may miss 0 by a little, when all that was added was taken away again. */
static void none_live(struct heap_model *m, struct site *s)
{
	if (!--rare_of(m, s)->live_blocks) {
		s->freed = s->allocated;
		s->freed_bytes = s->allocated_bytes;
		rare_of(m, s)->variance[HEAP_VAR_LIVE] = rare_of(m, s)->variance[HEAP_VAR_LIVE_BYTES] = 0;
	}
	if (!m->live_blocks)
		m->living = (struct sums){0};
}

/* The block is no more: by `t`, or (NULL) nobody saw by whom. */
static void count_freed(struct heap_model *m, const struct watched *p, const struct live_block *b, struct thread *t, uint64_t time_ns)
{
	struct site *s = &m->sites[b->site];
	struct weight w = block_weight(m, b);
	uint64_t lived_ns = time_ns > b->time_ns ? live_time(time_ns) - live_time(b->time_ns) : 0;

	if (p->sizes && s->process == p->number)
		class_count(m, p, b->size, b->address, &w, -1);
	site_note_peak(m, s);
	s->freed += w.count;
	s->freed_bytes += w.bytes;
	s->lifetime_ns += w.count * (double)lived_ns;
	if (w.variance > 0) {
		rare_of(m, s)->variance[HEAP_VAR_LIVE] -= w.variance;
		rare_of(m, s)->variance[HEAP_VAR_LIVE_BYTES] -= w.variance_bytes;
	}
	s->changed = s->reshaped = true;
	if (!shape_add(&s->lifetimes, shape_bucket(lived_ns / NS_PER_US), w.count))
		m->no_memory = true;
	sums_take(&m->living, &w);
	m->live_blocks--;
	if (b->rate)
		none_live(m, s);
	if (!t)
		return;
	t->freed += w.count;
	t->freed_bytes += w.bytes;
	t->changed = true;
}

/* ---- sites ---- */

static uint32_t *hint_of(const struct heap_model *m, const struct heap_event *e)
{
	uint64_t h = ((uint64_t)e->process << 32 ^ (uint64_t)e->tid << 16 ^ e->node) * 0x9e3779b97f4a7c15u;

	return &m->hints[h >> 51];
}
_Static_assert(HINTS == 1u << (64 - 51), "as many as there are");

static struct site *site_by_hint(struct heap_model *m, struct watched *p, const struct heap_event *e, uint32_t stack)
{
	uint32_t *hint = hint_of(m, e);
	struct site *s = &m->sites[*hint];

	if (s->stack == stack && s->tid == e->tid && s->process == p->number && *hint < m->site_count)
		return s;
	s = site_of(m, p, e->tid, stack);
	if (s)
		*hint = (uint32_t)(s - m->sites);
	return s;
}

/* ---- allocations ---- */

/* NULL: it could not be taken. *ret_missed: a block of that address was live; its free was not seen, and it is counted as freed. */
static struct site *allocated(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e, uint32_t stack,
	bool *ret_missed)
{
	struct site *s = site_by_hint(m, p, e, stack);
	uint32_t rate = e->rate ? rate_number(m, p->precision, e->rate) : 0;
	uint64_t size = e->size < SIZE_MOST ? e->size : SIZE_MOST;
	struct weight w = weigh(m, rate, size);
	struct live_block old;

	t->last_address = e->address;
	if (!s) {
		m->no_memory = true;
		return NULL;
	}

	struct live_block block = {
		.address = e->address,
		.time_ns = e->time_ns,
		.size = size,
		.rate = rate,
		.site = (uint32_t)(s - m->sites),
		.tid = e->tid == s->tid ? LIVE_TID_OF_SITE : e->tid,
	};
	bool there = !live_put(&p->live, &block, &old);

	if (old.address) {
		*ret_missed = true;
		count_freed(m, p, &old, NULL, e->time_ns);
		m->missed_frees++;
	}
	if (!there) {
		m->no_memory = true;
		return NULL;
	}
	if (p->sizes && s->process == p->number)
		class_count(m, p, size, e->address, &w, 1);
	count_allocated(m, s, t, &w, size, rate != 0);
	look_for_peak(m, e->time_ns);
	return s;
}

/* One call in some: what is freed is not known, so nothing is live. */
static void called(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e, uint32_t stack)
{
	struct weight w = weigh(m, rate_number(m, HEAP_CALLS, e->rate), e->size);
	struct site *s;

	if (!e->address) {
		t->freed += w.count;
		t->changed = true;
		return;
	}
	s = site_of(m, p, e->tid, stack);
	if (!s) {
		m->no_memory = true;
		return;
	}
	s->ended = true; /* no part of a peak */
	count_allocated(m, s, t, &w, e->size, false);
	sums_take(&m->living, &w);
	m->live_blocks--;
	rare_of(m, s)->variance[HEAP_VAR_LIVE] -= w.variance;
	rare_of(m, s)->variance[HEAP_VAR_LIVE_BYTES] -= w.variance_bytes;
}

/* ---- frees ---- */

/* Takes back what was counted of the block that `t` freed, by who it was and when. */
static void look_at_freed(struct heap_model *m, const struct watched *p, struct thread *t, const struct live_block *b,
	const struct heap_event *e, uint32_t stack)
{
	struct site *s = &m->sites[b->site];
	struct weight w = block_weight(m, b);
	bool last = t->last_address == b->address && b->tid == e->tid;

	if (last)
		t->last_address = 0;
	if (p->precision == HEAP_SAMPLED)
		last = b->tid == e->tid && (e->type == SHARE_FREE_LAST || e->type == SHARE_FREE_STACK_LAST);
	if (last && e->type != SHARE_REALLOC_DONE) {
		s->temporary += w.count;
		s->temporary_bytes += w.bytes;
		m->temporary += w.count;
	}
	if (b->tid == e->tid)
		return;
	rare_of(m, s)->cross_freed += w.count;
	rare_of(m, s)->cross_freed_bytes += w.bytes;
	flow_add(m, t, b->site, stack, &w);
}

static void unknown(struct heap_model *m, const struct watched *p, struct thread *t)
{
	if (p->precision != HEAP_EXACT)
		return; /* one that was not sampled */
	t->freed_unknown++;
	t->changed = true;
	m->freed_unknown++;
}

static bool take_block(struct heap_model *m, struct watched *p, uint64_t address, struct live_block *ret)
{
	if (!live_take(&p->live, address, ret))
		return false;
	if (ret->tid == LIVE_TID_OF_SITE)
		ret->tid = m->sites[ret->site].tid;
	return true;
}

static bool freed(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e, uint32_t stack)
{
	struct live_block b;

	if (!take_block(m, p, e->address, &b)) {
		unknown(m, p, t);
		return false;
	}
	count_freed(m, p, &b, t, e->time_ns);
	look_at_freed(m, p, t, &b, e, stack);
	return true;
}

/* ---- realloc ---- */

/* From here until it is done the block has no address: another thread may get the old one. It stays live. */
static void moving(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e)
{
	t->moving = e->address;
	if (!take_block(m, p, e->address, &t->moved))
		t->moved = (struct live_block){0};
}

/* What came of a block that was being moved was not written down: most likely it is no more. */
static void settle(struct heap_model *m, const struct watched *p, struct thread *t, uint64_t time_ns)
{
	if (!t->moving)
		return;
	t->moving = 0;
	if (t->moved.address)
		count_freed(m, p, &t->moved, NULL, time_ns);
	t->moved.address = 0;
}

/* It failed, and the block is where it was. Nobody else can have its address; when somebody says so, it is no more. */
static void not_moved(struct heap_model *m, struct watched *p, const struct live_block *b, uint64_t time_ns)
{
	struct live_block again = *b, old;

	if (b->tid == m->sites[b->site].tid)
		again.tid = LIVE_TID_OF_SITE;
	if (live_has(&p->live, b->address) || live_put(&p->live, &again, &old))
		count_freed(m, p, b, NULL, time_ns);
}

static void count_moved(struct heap_model *m, struct site *s, const struct live_block *old, const struct weight *w, bool elsewhere)
{
	rare_of(m, s)->reallocated += w->count;
	if (old->address)
		rare_of(m, s)->reallocated_bytes += w->count * block_weight(m, old).bytes;
	if (elsewhere)
		rare_of(m, s)->moved += w->count;
}

/* Returns the address of a sampled block that is no more. */
static uint64_t moved(struct heap_model *m, struct watched *p, struct thread *t, const struct heap_event *e, uint32_t stack)
{
	uint64_t from = t->moving, gone = t->moved.address;
	struct live_block old = t->moved;

	t->moving = 0;
	t->moved.address = 0;
	if (!e->address) {
		if (gone)
			not_moved(m, p, &old, e->time_ns);
		return 0;
	}
	if (gone) {
		count_freed(m, p, &old, t, e->time_ns);
		look_at_freed(m, p, t, &old, e, CAPTURE_NONE);
	} else if (from) {
		unknown(m, p, t);
	}
	if (e->node == SHARE_STACK_UNSAMPLED)
		return gone;

	bool missed = false;
	struct site *s = allocated(m, p, t, e, stack, &missed);

	if (missed && !gone)
		gone = e->address;
	if (s && from) {
		struct weight w = weigh(m, rate_number(m, p->precision, e->rate), e->size);

		count_moved(m, s, &old, &w, e->address != from);
	}
	return gone;
}

/* ---- events ---- */

static void prefetch_site(const struct site *s)
{
	const char *lines = (const char *)s;

	__builtin_prefetch(lines, 1);
	__builtin_prefetch(lines + 64, 1);
}

/* The block of a free is here by now, and says which site it belongs to. */
static void prefetch_freed(const struct heap_model *m, const struct heap_event *e)
{
	const struct watched *p = watched_of(m, e->process);
	uint32_t site = p ? live_site(&p->live, e->address) : UINT32_MAX;

	if (site != UINT32_MAX)
		prefetch_site(&m->sites[site]);
}

/* Memory is slow, and all of it that an event needs is elsewhere: what an address and a node lead to is asked for at once, and what
 * that leads to some events later. */
void heap_model_prefetch(struct heap_model *m, const struct heap_event *e)
{
	const struct watched *p = watched_of(m, e->process);

	if (!p)
		return;
	live_prefetch(&p->live, e->address);
	if (e->type == SHARE_ALLOC || e->type == SHARE_REALLOC_DONE) {
		prefetch_site(&m->sites[*hint_of(m, e)]);
		return;
	}
	if (m->ahead_to - m->ahead_from == AHEAD)
		prefetch_freed(m, m->ahead[m->ahead_from++ % AHEAD]);
	m->ahead[m->ahead_to++ % AHEAD] = e;
}

static uint64_t take(struct heap_model *m, struct watched *p, const struct heap_event *e, uint32_t stack)
{
	struct thread *t = m->last_threads[e->tid % LAST_THREADS];
	uint64_t gone = 0;
	bool missed = false;

	if (!t || t->process != e->process || t->tid != e->tid)
		t = thread_of(m, p, e->tid);
	if (!t) {
		m->no_memory = true;
		return 0;
	}
	switch (e->type) {
	case SHARE_ALLOC:
		settle(m, p, t, e->time_ns);
		if (!e->address)
			break;
		allocated(m, p, t, e, stack, &missed);
		gone = missed ? e->address : 0;
		break;
	case SHARE_FREE:
	case SHARE_FREE_LAST:
	case SHARE_FREE_STACK:
	case SHARE_FREE_STACK_LAST:
		settle(m, p, t, e->time_ns);
		gone = e->address && freed(m, p, t, e, stack) ? e->address : 0;
		break;
	case SHARE_REALLOC:
		settle(m, p, t, e->time_ns);
		moving(m, p, t, e);
		break;
	case SHARE_REALLOC_DONE:
		gone = moved(m, p, t, e, stack);
		break;
	case SHARE_CALL:
		called(m, p, t, e, stack);
		break;
	default:
		break;
	}
	t->changed &= !p->apart;
	return p->precision == HEAP_EXACT ? 0 : gone;
}

uint64_t heap_model_take(struct heap_model *m, const struct heap_event *e, uint32_t stack)
{
	struct watched *p = watched_of(m, e->process);
	struct kept_sums kept;

	while (m->ahead_from != m->ahead_to)
		prefetch_freed(m, m->ahead[m->ahead_from++ % AHEAD]);
	if (!p || e->type > SHARE_FREE_STACK_LAST)
		return 0;
	if (!p->apart)
		return take(m, p, e, stack);
	sums_keep(m, &kept);
	take(m, p, e, stack);
	sums_put_back(m, &kept);
	return 0;
}
