/* SPDX-License-Identifier: BSD-2-Clause */
/* What is read of memory that a target writes (src/heap/reader.h): all of it, in order, and nothing of it believed. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#include "heap_writer.h"

#include "base/vec.h"
#include "heap/counter.h"
#include "heap/reader.h"
#include "test.h"

/* ---- what came ---- */

struct seen {
	struct heap_event e;
	char text[3][40];
	uint64_t cpu_ns, calls, value, raw_bytes;
	uint8_t raw_first;
};

struct all {
	VEC(struct seen) seen;
	bool backwards;
	struct heap_readers *set;
};

static void collect(void *ctx, const struct heap_event *events, size_t count)
{
	struct all *a = ctx;

	check(count >= 1 && count <= HEAP_BATCH);
	for (size_t i = 0; i < count; i++) {
		struct seen s = {.e = events[i]};
		const struct heap_event_more *m = events[i].more;

		for (unsigned k = 0; m && k < 3; k++) {
			check_u64(strlen(m->text[k]), m->text_bytes[k]);
			snprintf(s.text[k], sizeof(s.text[k]), "%s", m->text[k]);
		}
		if (m) {
			s.cpu_ns = m->cpu_ns;
			s.calls = m->calls;
			s.value = m->value;
			s.raw_bytes = m->raw ? m->raw->stack_bytes : 0;
			s.raw_first = s.raw_bytes ? m->raw_stack[0] : 0;
		}
		if (a->seen.len && s.e.time_ns < a->seen.data[a->seen.len - 1].e.time_ns)
			a->backwards = true;
		check(!vec_push(&a->seen, s));
	}
}

static const struct heap_reader_ops ops = {.events = collect};

static struct all all_new(void)
{
	return (struct all){0};
}

/* The set reads `s`; its number. */
static uint32_t watch(struct all *a, const struct shared *s)
{
	uint32_t number = UINT32_MAX;
	struct err err;

	if (!a->set)
		check(!heap_readers_new(&ops, a, &a->set, NULL));
	if (heap_readers_add(a->set, dup(s->fd), 1234, &number, &err)) {
		check(false);
		printf("%s\n", err.text);
	}
	return number;
}

static void all_free(struct all *a)
{
	heap_readers_free(a->set);
	vec_release(&a->seen);
}

static struct heap_losses losses(struct all *a, uint32_t number)
{
	struct heap_losses l;

	heap_readers_losses(a->set, number, &l);
	return l;
}

#define drain(a) heap_readers_drain((a)->set, 1000000)

/* ---- what is taken ---- */

static int try_add(int fd)
{
	struct heap_readers *set;
	uint32_t number;
	struct err err = {0};
	int rc;

	check(!heap_readers_new(&ops, NULL, &set, NULL));
	rc = heap_readers_add(set, fd, 1, &number, &err);
	check(!rc || err.text[0]);
	heap_readers_free(set);
	return rc;
}

TEST(only_memory_that_cannot_shrink)
{
	int fds[2], unsealable = memfd_create("x", 0);
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);

	check(!pipe(fds));
	check(try_add(fds[0]) == -EINVAL);
	close(fds[1]);
	check(!ftruncate(unsealable, (off_t)SHARE_BYTES));
	check(try_add(unsealable) == -EINVAL);
	check(try_add(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) == -EINVAL);

	check(try_add(dup(s.fd)) == 0);
	check(ftruncate(s.fd, 0) < 0 && errno == EPERM);
	shared_free(&s);
}

TEST(headers_are_checked)
{
	struct share_header good;
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);

#define wrong(field, value)                                                                                            \
	do {                                                                                                           \
		good = *s.header;                                                                                      \
		s.header->field = (value);                                                                             \
		check(try_add(dup(s.fd)) == -EINVAL);                                                                  \
		*s.header = good;                                                                                      \
	} while (0)
	wrong(magic[0], 'X');
	wrong(version, 77);
	wrong(ready, 0);
	wrong(bytes, SHARE_BYTES - 1);
	wrong(mode, 0);
	wrong(mode, 5);
	wrong(clock, 2);
	wrong(arch, 9);
	check(try_add(dup(s.fd)) == 0);
	shared_free(&s);

	int small = memfd_create("x", MFD_ALLOW_SEALING);

	check(!ftruncate(small, 4096));
	check(try_add(small) == -EINVAL);
}

/* ---- events ---- */

TEST(every_type_of_event)
{
	struct shared s = shared_new(SHARE_SAMPLED, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	struct writer w = writer_claim(&s, 7);

	s.header->rate = 512;
	uint32_t n = watch(&a, &s);

	check_u64(heap_readers_header(a.set, n)->rate, 512);
	writer_event(&w, 1, SHARE_WORD(SHARE_THREAD, 8), 0x64616572687421, 0);
	writer_alloc(&w, 2, 0x1000, 5, 77);
	writer_event(&w, 3, SHARE_WORD(SHARE_ALLOC, 0x2000), SHARE_STACK_AND_SIZE(6, 1ull << 40), 1ull << 40);
	writer_event(&w, 4, SHARE_WORD(SHARE_RATE, 0), 1024);
	writer_free(&w, 5, 0x1000);
	writer_event(&w, 6, SHARE_WORD(SHARE_FREE_STACK, 0x1001), 9);
	writer_event(&w, 7, SHARE_WORD(SHARE_REALLOC, 0x2000));
	writer_event(&w, 8, SHARE_WORD(SHARE_REALLOC_DONE, 0x3000), SHARE_STACK_AND_SIZE(SHARE_STACK_UNSAMPLED, 5));
	writer_event(&w, 9, SHARE_WORD(SHARE_CALL, 0x4000), SHARE_STACK_AND_SIZE(11, 12), 13, 14);
	writer_event(&w, 10, SHARE_WORD(SHARE_MODULES, 3));
	writer_event(&w, 11, SHARE_WORD(SHARE_MAP, 0x5000), 4096, 15 | (uint64_t)SHARE_MAP_BREAK << 32);
	writer_event(&w, 12, SHARE_WORD(SHARE_UNMAP, 0x5000), 8192);
	writer_event(&w, 13, SHARE_WORD(SHARE_FREE_LAST, 0x6000));
	writer_event(&w, 14, SHARE_WORD(SHARE_FREE_STACK_LAST, 0x6000), 16);
	writer_event(&w, 15, SHARE_WORD(SHARE_MARK, 99), 56, 0, 3ull | 2ull << 32, 1, 0x0000666564636261);
	writer_event(&w, 16, SHARE_WORD(SHARE_VALUE, 4), 55);
	writer_event(&w, 17, SHARE_WORD(SHARE_OWN_ALLOC, 0x7000), SHARE_STACK_AND_SIZE(17, 18), 19);
	writer_event(&w, 18, SHARE_WORD(SHARE_OWN_FREE, 0x7000), 19);
	writer_event(&w, 19, SHARE_WORD(SHARE_PROCESS_END, 0));
	writer_alloc(&w, 20, 0x8000, SHARE_NODES, 1);
	writer_event(&w, 21, SHARE_WORD(SHARE_UNMAP_FAILED, 0));
	writer_event(&w, 22, SHARE_WORD(SHARE_MAP, 0x5000), 4096, 15 | (uint64_t)SHARE_MAP_KINDS << 32);
	writer_event(&w, 23, SHARE_WORD(SHARE_USABLE, 48), 41);
	check_u64(drain(&a), 23);
	check_u64(a.seen.len, 22);
	if (a.seen.len != 22)
		return;

	const struct seen *e = a.seen.data;

	check_u64(e[0].e.type, SHARE_THREAD);
	check_u64(e[0].e.tid, 8);
	check_str(e[0].text[0], "!thread");
	check_u64(e[1].e.tid, 8);
	check_u64(e[1].e.address, 0x1000);
	check_u64(e[1].e.node, 5);
	check_u64(e[1].e.size, 77);
	check_u64(e[1].e.rate, 512);
	check_u64(e[1].e.time_ns, 2);
	check_u64(e[1].e.process, n);
	check_u64(e[2].e.size, 1ull << 40);
	check_u64(e[3].e.type, SHARE_FREE);
	check_u64(e[3].e.rate, 1024);
	check_u64(e[4].e.node, 9);
	check_u64(e[6].e.node, SHARE_STACK_UNSAMPLED);
	check_u64(e[7].cpu_ns, 13);
	check_u64(e[7].calls, 14);
	check_u64(e[8].e.address, 3);
	check_u64(e[9].e.size, 4096);
	check_u64(e[9].e.node, 15);
	check_u64(e[9].value, SHARE_MAP_BREAK);
	check_u64(e[10].e.size, 8192);
	check_u64(e[12].e.node, 16);
	check_str(e[13].text[0], "abc");
	check_str(e[13].text[1], "de");
	check_str(e[13].text[2], "f");
	check_u64(e[13].e.address, 99);
	check_u64(e[14].value, 55);
	check_u64(e[15].value, 19);
	check_u64(e[15].e.size, 18);
	check_u64(e[16].value, 19);
	check_u64(e[18].e.node, SHARE_STACK_NONE);
	check_u64(e[19].e.type, SHARE_UNMAP_FAILED);
	check_u64(e[20].value, SHARE_MAP_MEMORY);
	check(e[21].e.type == SHARE_USABLE && e[21].e.address == 48 && e[21].e.size == 41);
	check_u64(losses(&a, n).nodes_wrong, 1);
	check_u64(losses(&a, n).rings_abandoned, 0);
	all_free(&a);
	shared_free(&s);
}

TEST(raw_stacks_come_with_their_allocation)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	struct writer w = writer_claim(&s, 7);
	uint64_t words[sizeof(struct share_raw_stack) / 8 + 2] = {0};
	struct share_raw_stack raw = {.time = 5, .word = SHARE_WORD(SHARE_RAW, 0), .bytes = sizeof(words), .stack_bytes = 11};

	memcpy(words, &raw, sizeof(raw));
	words[sizeof(raw) / 8] = 0x61;
	watch(&a, &s);
	writer_put(&w, words, sizeof(words) / 8);
	check_u64(drain(&a), 1);
	check_u64(a.seen.len, 0);
	writer_alloc(&w, 6, 0x1000, 0, 1);
	writer_alloc(&w, 7, 0x2000, 0, 1);
	drain(&a);
	check_u64(a.seen.len, 2);
	check_u64(a.seen.data[0].raw_bytes, 11);
	check_u64(a.seen.data[0].raw_first, 0x61);
	check_u64(a.seen.data[1].raw_bytes, 0);
	all_free(&a);
	shared_free(&s);
}

/* ---- order ---- */

TEST(rings_and_processes_in_order_of_time)
{
	struct shared s[2] = {shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC), shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC)};
	struct all a = all_new();
	struct writer w[6];
	uint64_t now = clock_monotonic_ns() - 1000000, x = 12345;
	uint32_t n[2] = {watch(&a, &s[0]), watch(&a, &s[1])};

	check(n[0] != n[1]);
	for (unsigned i = 0; i < 6; i++)
		w[i] = writer_claim(&s[i % 2], 10 + i);
	for (unsigned i = 0; i < 20000; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		writer_alloc(&w[x % 6], now + i, 0x10000 + i, 3, i);
		if (x % 997 == 0)
			heap_readers_drain(a.set, 100);
	}
	while (heap_readers_drain(a.set, 333) >= 333)
		;
	check_u64(a.seen.len, 20000);
	for (unsigned i = 0; i < a.seen.len && i < 20000; i++)
		if (a.seen.data[i].e.address != 0x10000 + i) {
			check_u64(a.seen.data[i].e.address, 0x10000 + i);
			break;
		}
	check(!a.backwards);
	check_u64(losses(&a, n[0]).late + losses(&a, n[1]).late, 0);
	all_free(&a);
	shared_free(&s[0]);
	shared_free(&s[1]);
}

TEST(what_is_later_than_the_drain_waits)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	struct writer w = writer_claim(&s, 7);
	uint32_t n = watch(&a, &s);
	uint64_t soon = clock_monotonic_ns() + 500000; /* within what clocks of CPUs may be apart */

	writer_alloc(&w, soon, 0x1000, 3, 1);
	while (!drain(&a))
		sched_yield();
	check(clock_monotonic_ns() >= soon);
	check_u64(losses(&a, n).times_backwards, 0);

	writer_alloc(&w, soon - 400000, 0x2000, 3, 1); /* backwards in its ring */
	writer_alloc(&w, UINT64_MAX, 0x3000, 3, 1);    /* never */
	drain(&a);
	check_u64(a.seen.len, 3);
	check(!a.backwards);
	check_u64(losses(&a, n).times_backwards, 2);
	all_free(&a);
	shared_free(&s);
}

TEST(late_events_get_the_time_of_the_last_one)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	struct writer w[2] = {writer_claim(&s, 7), writer_claim(&s, 8)};
	uint32_t n = watch(&a, &s);

	writer_alloc(&w[0], 1000, 0x1000, 3, 1);
	drain(&a);
	writer_alloc(&w[1], 900, 0x2000, 3, 1);
	drain(&a);
	check_u64(a.seen.len, 2);
	check_u64(a.seen.data[1].e.time_ns, 1000);
	check_u64(losses(&a, n).late, 1);
	all_free(&a);
	shared_free(&s);
}

/* ---- chunks ---- */

static uint64_t blocks_of(const struct shared *s)
{
	struct stat st;

	fstat(s->fd, &st);
	return (uint64_t)st.st_blocks * 512;
}

TEST(chunks_go_back)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	struct writer w = writer_claim(&s, 7);
	uint64_t most = 0, sum = 0;
	uint32_t n = watch(&a, &s);

	/* Read as fast as it is written: a few chunks go around. */
	for (uint64_t i = 1; i <= 200000; i++) {
		writer_free(&w, i, i);
		if (i % 500 == 0)
			drain(&a);
	}
	check(s.header->chunk_count < 8);
	check_u64(a.seen.len, 200000);

	/* Not read for long: it grows, and shrinks again. */
	for (uint64_t i = 200001; i <= 1200000; i++)
		writer_free(&w, i, i);
	most = blocks_of(&s);
	check(s.header->chunk_count > 900);
	while (drain(&a))
		;
	check(most > 15000000);
	check(blocks_of(&s) < 3000000);
	for (size_t i = 0; i < a.seen.len; i++)
		sum += a.seen.data[i].e.address;
	check_u64(a.seen.len, 1200000);
	check_u64(sum, 1200000ull * 1200001 / 2);

	/* What was kept is used again before the target runs out of chunks. */
	heap_readers_set_chunks(a.set, n, 1024);
	for (uint64_t i = 1200001; i <= 3200000; i++) {
		writer_free(&w, i, i);
		if (i % 20000 == 0)
			drain(&a);
	}
	drain(&a);
	check_u64(a.seen.len, 3200000);
	check_u64(s.header->lost[SHARE_LOST_CHUNK], 0);
	check(s.header->chunk_count <= 1024);
	all_free(&a);
	shared_free(&s);
}

TEST(losses_never_fall)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	uint32_t n = watch(&a, &s);

	s.header->lost[SHARE_LOST_EARLY] = 5;
	check_u64(losses(&a, n).lost[SHARE_LOST_EARLY], 5);
	s.header->lost[SHARE_LOST_EARLY] = 2;
	check_u64(losses(&a, n).lost[SHARE_LOST_EARLY], 5);
	all_free(&a);
	shared_free(&s);
}

/* ---- what a hostile target does ---- */

/* A ring with one event; `what` is then done to it. */
struct broken {
	struct shared s;
	struct all a;
	struct writer w;
	uint32_t n;
	struct share_chunk *c;
};

static struct broken broken_new(void)
{
	struct broken b = {.s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC), .a = all_new()};

	return b;
}

static void broken_start(struct broken *b)
{
	b->w = writer_claim(&b->s, 7);
	b->n = watch(&b->a, &b->s);
	b->c = shared_chunk_at(&b->s, b->w.chunk);
	writer_free(&b->w, 1, 0x1000);
}

/* The ring is given up, and nothing comes of it any more. */
static void broken_end(struct broken *b, size_t seen)
{
	struct heap_losses l;

	drain(&b->a);
	drain(&b->a);
	l = losses(&b->a, b->n);
	check_u64(l.rings_abandoned, 1);
	check_u64(b->a.seen.len, seen);
	all_free(&b->a);
	shared_free(&b->s);
}

TEST(wrong_chunks)
{
	static const uint32_t used[] = {SHARE_CHUNK_ROOM + 8, UINT32_MAX, UINT32_MAX - 7, 17, 12};
	static const uint32_t next[] = {SHARE_CHUNKS, UINT32_MAX, 1};

	for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
		struct broken b = broken_new();

		broken_start(&b);
		b.c->used = used[i];
		broken_end(&b, 0);
	}
	for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
		struct broken b = broken_new();

		broken_start(&b); /* chunk 1: the last one goes on in itself */
		b.c->next = next[i];
		broken_end(&b, 1);
	}

	struct broken b = broken_new();

	broken_start(&b);
	drain(&b.a);
	b.c->used = 8; /* backwards */
	broken_end(&b, 1);

	b = broken_new();
	broken_start(&b);
	b.c->next = 2; /* an empty one, that goes on in the first */
	shared_chunk_at(&b.s, 2)->next = b.w.chunk;
	broken_end(&b, 1);
}

/* Chunks that go around, each with an event: a drain ends all the same. */
TEST(circles_end)
{
	struct broken b = broken_new();

	broken_start(&b);
	for (uint32_t i = 1; i <= 3; i++) {
		struct share_chunk *c = shared_chunk_at(&b.s, i);

		memcpy(c + 1, b.c + 1, 16);
		c->used = 16;
		c->next = i % 3 + 1;
	}
	for (unsigned i = 0; i < 20; i++)
		check(heap_readers_drain(b.a.set, 5000) <= 5000);
	all_free(&b.a);
	shared_free(&b.s);
}

TEST(two_rings_in_one_chunk)
{
	struct broken b = broken_new();

	broken_start(&b);
	b.s.header->ring_count = 2;
	shared_rings(&b.s)[1] = (struct share_ring){.state = SHARE_RING_OWNED, .tid = 9, .first = b.w.chunk};
	broken_end(&b, 1);

	b = broken_new();
	broken_start(&b);
	b.s.header->ring_count = UINT32_MAX; /* more than there are */
	drain(&b.a);
	check_u64(b.a.seen.len, 1);
	all_free(&b.a);
	shared_free(&b.s);
}

TEST(wrong_events)
{
	static const struct {
		uint64_t words[8];
		uint32_t count;
	} wrong[] = {
		{{2, SHARE_WORD(0, 1)}, 2},
		{{2, SHARE_WORD(200, 1)}, 2},
		{{2}, 1},
		{{2, SHARE_WORD(SHARE_ALLOC, 1)}, 2},
		{{2, SHARE_WORD(SHARE_ALLOC, 1), SHARE_STACK_AND_SIZE(3, 1ull << 33)}, 3},
		{{2, SHARE_WORD(SHARE_THREAD, 1), 0}, 3},
		{{2, SHARE_WORD(SHARE_CALL, 1), 0, 0}, 4},
		{{2, SHARE_WORD(SHARE_RAW, 1), 64, 0, 0, 0, 0, 0}, 8},
		{{2, SHARE_WORD(SHARE_RAW, 1), UINT64_MAX, 0, 0, 0, 0, 0}, 8},
		{{2, SHARE_WORD(SHARE_MARK, 1), 56, 0, 0, 0}, 6},
		{{2, SHARE_WORD(SHARE_MARK, 1), 40, 0, 0, 0}, 6},
		{{2, SHARE_WORD(SHARE_MARK, 1), 44, 0, 0, 0}, 6},
		{{2, SHARE_WORD(SHARE_MARK, 1), 48, 0, UINT64_MAX, 0}, 6},
		{{2, SHARE_WORD(SHARE_MARK, 1), 56, 0, 8ull << 32 | 1, 0, 0}, 7},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct broken b = broken_new();

		broken_start(&b);
		writer_put(&b.w, wrong[i].words, wrong[i].count);
		broken_end(&b, 1);
	}
}

TEST(nodes_go_towards_the_root)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	uint32_t n = watch(&a, &s);
	struct heap_node node = {0};

	shared_nodes(&s)[3] = (struct share_node){.pc = 77, .parent = SHARE_STACK_ROOT, .detail = 9};
	shared_nodes(&s)[4] = (struct share_node){.pc = 78, .parent = 4};
	shared_nodes(&s)[5] = (struct share_node){.pc = 79, .parent = UINT32_MAX};
	check(heap_readers_node(a.set, n, 3, &node));
	check_u64(node.parent, SHARE_STACK_ROOT);
	check_u64(node.pc, 77);
	check_u64(node.detail, 9);
	for (uint32_t i = 0; i < 3; i++)
		check(!heap_readers_node(a.set, n, i, &node));
	check(!heap_readers_node(a.set, n, 4, &node));
	check(!heap_readers_node(a.set, n, 5, &node));
	check(!heap_readers_node(a.set, n, SHARE_NODES, &node));
	check(!heap_readers_node(a.set, n + 1, 3, &node));
	all_free(&a);
	shared_free(&s);
}

TEST(filter_rates_and_numbers)
{
	struct shared s = shared_new(SHARE_SAMPLED, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	uint32_t n = watch(&a, &s), again;
	uint8_t *slot = s.memory + SHARE_FILTER_AT + share_filter_slot(0x1230);
	struct writer w = writer_claim(&s, 70);

	drain(&a);
	*slot = 2;
	for (unsigned i = 0; i < 4; i++)
		heap_readers_unfilter(a.set, n, 0x1230);
	check_u64(*slot, 0);
	*slot = 255;
	heap_readers_unfilter(a.set, n, 0x1230);
	check_u64(*slot, 255);
	heap_readers_set_rate(a.set, n, 99);
	check_u64(s.header->rate, 99);
	heap_readers_publish(a.set, n, 4096, 3);
	check_u64(s.header->directory, 4096);
	check_u64(s.header->modules_done, 3);
	heap_readers_stop(a.set, n);
	check_u64(s.header->stop, 1);
	heap_readers_thread_gone(a.set, n, 71);
	check_u64(shared_rings(&s)[w.ring].state, SHARE_RING_OWNED);
	heap_readers_thread_gone(a.set, n, 70);
	check_u64(shared_rings(&s)[w.ring].state, SHARE_RING_RELEASED);
	check(blocks_of(&s) > 3 * SHARE_PAGE);
	heap_readers_remove(a.set, n);
	check(blocks_of(&s) <= SHARE_PAGE && s.header->stop == 1);
	again = watch(&a, &s);
	check(again != n && HEAP_SLOT(again) == HEAP_SLOT(n));
	check(!heap_readers_header(a.set, n) && !heap_readers_tables(a.set, n));
	all_free(&a);
	shared_free(&s);
}

/* ---- at the same time ---- */

#define THREADS 4
#define PER_THREAD 60000u
#define TOKENS 64u

/* Blocks go from thread to thread: each is freed before it is allocated again. */
struct hand_over {
	struct shared *s;
	uint32_t *free_tokens; /* 1: free */
	uint32_t seed;
};

static void *work(void *arg)
{
	struct hand_over *h = arg;
	struct writer w = writer_claim(h->s, h->seed);
	uint32_t held[TOKENS], count = 0, x = h->seed * 2654435761u, done = 0;

	while (done < PER_THREAD) {
		uint32_t token = (x = x * 1664525 + 1013904223) >> 26, one = 1;

		if (x & 0x2000 ? count > 0 : count == TOKENS / THREADS) {
			uint32_t t = held[--count];

			writer_free(&w, clock_monotonic_ns(), t + 1);
			__atomic_store_n(&h->free_tokens[t], 1, __ATOMIC_RELEASE);
			done++;
		} else if (__atomic_compare_exchange_n(&h->free_tokens[token], &one, 0, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			writer_alloc(&w, clock_monotonic_ns(), token + 1, 3, h->seed);
			held[count++] = token;
			done++;
		}
		if (done % 4096 == 0) { /* and other threads go on with our ring */
			writer_release(&w);
			w = writer_claim(h->s, h->seed);
		}
	}
	writer_release(&w);
	return NULL;
}

TEST(threads_write_while_we_read)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct all a = all_new();
	uint32_t tokens[TOKENS], n = watch(&a, &s), wrong = 0;
	struct hand_over h[THREADS];
	pthread_t threads[THREADS];
	bool live[TOKENS + 1] = {0};

	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = 1;
	for (uint32_t i = 0; i < THREADS; i++) {
		h[i] = (struct hand_over){.s = &s, .free_tokens = tokens, .seed = i + 1};
		pthread_create(&threads[i], NULL, work, &h[i]);
	}
	while (a.seen.len < THREADS * PER_THREAD / 2)
		if (heap_readers_drain(a.set, 5000) < 100)
			sched_yield();
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (drain(&a))
		;
	check_u64(a.seen.len, THREADS * PER_THREAD);
	check(!a.backwards);
	for (size_t i = 0; i < a.seen.len; i++) {
		const struct heap_event *e = &a.seen.data[i].e;

		wrong += live[e->address] == (e->type == SHARE_ALLOC);
		live[e->address] = e->type == SHARE_ALLOC;
	}
	check_u64(wrong, 0);
	check_u64(losses(&a, n).rings_abandoned, 0);
	check_u64(losses(&a, n).times_backwards, 0);
	check_u64(s.header->lost[SHARE_LOST_CHUNK], 0);
	all_free(&a);
	shared_free(&s);
}

/* ---- the counter ---- */

TEST(counters_become_times)
{
	struct counter c = {0};
	uint64_t last = 0;

	/* 2.5 counts a ns, readings that are off by up to 100 ns. */
	for (uint64_t i = 1; i <= 4000; i++)
		counter_update_to(&c, i * 2500000, 1000000000 + i * 1000000 + (i * 7919) % 100);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t at = 3999ull * 2500000 + i * 5000, ns = counter_ns(&c, at), want = 1000000000 + 3999ull * 1000000 + i * 2000;

		check(ns >= last && (ns > want ? ns - want : want - ns) < 300);
		last = ns;
	}
	check(counter_ns(&c, UINT64_MAX) > last);
	check_u64(counter_ns(&c, 0) / 10000, 100000);
	counter_update_to(&c, 1, 1); /* backwards: not taken */
	check(counter_ns(&c, 4000ull * 2500000) > 4000000000);

	struct counter own = {0};
	uint64_t before, at, after;

	counter_update(&own);
	before = clock_monotonic_ns();
	at = counter_read();
	after = clock_monotonic_ns();
	counter_update(&own);
	check(counter_ns(&own, at) + 20000 > before && counter_ns(&own, at) < after + 20000);
}

TEST(events_by_the_counter)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_COUNTER);
	struct all a = all_new();
	struct writer w = writer_claim(&s, 7);
	uint64_t before = clock_monotonic_ns();

	watch(&a, &s);
	for (unsigned i = 0; i < 1000; i++)
		writer_free(&w, counter_read(), i + 1);
	while (drain(&a))
		;
	check_u64(a.seen.len, 1000);
	check(!a.backwards);
	for (size_t i = 0; i < a.seen.len; i++)
		check(a.seen.data[i].e.time_ns + 100000 > before && a.seen.data[i].e.time_ns < clock_monotonic_ns());
	all_free(&a);
	shared_free(&s);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(only_memory_that_cannot_shrink), T(headers_are_checked), T(every_type_of_event),
		T(raw_stacks_come_with_their_allocation), T(rings_and_processes_in_order_of_time),
		T(what_is_later_than_the_drain_waits), T(late_events_get_the_time_of_the_last_one), T(chunks_go_back),
		T(losses_never_fall), T(wrong_chunks), T(circles_end), T(two_rings_in_one_chunk), T(wrong_events),
		T(nodes_go_towards_the_root), T(filter_rates_and_numbers), T(threads_write_while_we_read), T(counters_become_times),
		T(events_by_the_counter));
}
