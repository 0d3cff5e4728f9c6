/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks of threads. A thread that sleeps says where its stack pointer is; around it is a mapping with a guard below
 * it, which is its stack. Who runs is found by the block that the C library keeps of a thread at the upper end of
 * its stack: it points at itself and has the thread's number. docs/heuristics/rss-stacks.md
 */
#include <errno.h>
#include <string.h>

#include "heap/rss_priv.h"
#include "os/thread_wait.h"

#define BLOCK_BYTES 16384u   /* the thread's block is within so much of the upper end */
#define STEP 8u

/* struct pthread of glibc on x86-64 (nptl/descr.h: header, list, tid), and of musl (src/internal/pthread_impl.h): where the
 * thread's number is; its first word points at itself. */
static const uint32_t tid_at[] = {0x2d0, 0x30};

#define BLOCK_SIZE 0x900u    /* of that of glibc, which is the longer one */
#define BLOCK_OVERLAP 1024u  /* what is known of a block stands within so much */
#define MOST_STACK_BYTES ((uint64_t)64 << 20)
#define PAGE 4096u
#if defined(__x86_64__)
#define HAVE_BLOCKS true
#else
#define HAVE_BLOCKS false
#endif

struct thread {
	pid_t tid, inner; /* inner: as the process knows it */
	bool found;
};

struct search {
	struct rss_work *w;
	VEC(struct thread) threads;
};

/* ---- which mapping ---- */

/* A stack has memory below it that may not be touched; the first stack has the kernel's flag. */
static bool is_stack(const struct rss_work *w, const struct rss_mapping *m)
{
	const struct rss_mapping *below = m > w->mappings.data ? m - 1 : NULL;

	if (m->grows_down)
		return true;
	return m->m.write && !m->m.shared && !m->m.inode && below && below->m.end == m->m.start &&
		!below->m.read && !below->m.write && !below->m.exec;
}

static void add_stack(struct search *s, struct thread *t, struct rss_mapping *m, uint64_t sp, uint64_t end)
{
	struct rss_work *w = s->w;
	uint64_t page = w->pages.page_bytes ? w->pages.page_bytes : 4096, from = sp ? sp & ~(page - 1) : m->m.start;
	struct rss_stack stack = {.tid = t->tid, .start = m->m.start, .end = end, .sp = sp};
	struct rss_claim used, deeper;

	if (proc_thread_name(w->reader, t->tid, stack.name, sizeof(stack.name), NULL))
		snprintf(stack.name, sizeof(stack.name), "?");
	used = rss_claim(w, from, end, RSS_STACK_USED, "");
	deeper = rss_claim(w, m->m.start, from, RSS_STACK_DEEPER, "");
	stack.used = used.bytes;
	stack.deeper = deeper.bytes;
	stack.swap = used.swap + deeper.swap;
	t->found = m->taken = true;
	if (vec_push(&w->ret->stacks, stack))
		w->failed = true;
}

/* ---- the thread's block ---- */

static struct thread *thread_of(struct search *s, uint32_t inner)
{
	vec_each(&s->threads, t)
		if ((uint32_t)t->inner == inner)
			return t;
	return NULL;
}

/* Whose block it is that stands at `at`, NULL: it is none. */
static struct thread *whose_block(struct search *s, const uint8_t *bytes, size_t len, uint64_t address, size_t at)
{
	uint64_t self;

	memcpy(&self, bytes + at, sizeof(self));
	for (size_t i = 0; self == address + at && i < sizeof(tid_at) / sizeof(tid_at[0]); i++) {
		struct thread *t;
		uint32_t tid;

		if (len - at < tid_at[i] + sizeof(tid))
			continue;
		memcpy(&tid, bytes + at + tid_at[i], sizeof(tid));
		t = thread_of(s, tid);
		if (t)
			return t;
	}
	return NULL;
}

/* In the bytes that stand at `address`, the last one. */
static struct thread *find_block(struct search *s, const uint8_t *bytes, size_t len, uint64_t address, uint64_t *ret_at)
{
	for (size_t at = len / STEP * STEP; at >= STEP;) {
		struct thread *t;

		at -= STEP;
		t = whose_block(s, bytes, len, address, at);
		if (t) {
			*ret_at = address + at;
			return t;
		}
	}
	return NULL;
}

static struct thread *block_in(struct search *s, const struct rss_mapping *m, uint64_t *ret_at)
{
	uint8_t bytes[BLOCK_BYTES];
	uint64_t len = m->m.end - m->m.start < BLOCK_BYTES ? m->m.end - m->m.start : BLOCK_BYTES;
	uint64_t address = m->m.end - len;

	if (rss_read(s->w, address, bytes, len) < len)
		return NULL;
	return find_block(s, bytes, len, address, ret_at);
}

/* ---- all threads ---- */

/*
 * Where the stack ends whose thread is at `sp`: behind its block, 0: there is none. Mostly the block is at the end of the
 * mapping; where that was joined with its neighbour it is found from `sp` on.
 */
static uint64_t stack_end(struct search *s, const struct thread *t, const struct rss_mapping *m, uint64_t sp)
{
	uint64_t most = m->m.end - sp < MOST_STACK_BYTES ? m->m.end : sp + MOST_STACK_BYTES, at = 0;
	uint8_t bytes[BLOCK_BYTES];

	if (block_in(s, m, &at) == t)
		return m->m.end;
	for (uint64_t from = sp & ~(uint64_t)(STEP - 1); from < most; from += BLOCK_BYTES - BLOCK_OVERLAP) {
		size_t len = most - from < BLOCK_BYTES ? most - from : BLOCK_BYTES;

		if (rss_read(s->w, from, bytes, len) < len)
			return 0;
		if (find_block(s, bytes, len, from, &at) == t) {
			at = (at + BLOCK_SIZE + PAGE - 1) & ~(uint64_t)(PAGE - 1);
			return at < m->m.end ? at : m->m.end;
		}
	}
	return 0;
}

static void by_stack_pointer(struct search *s, struct thread *t)
{
	struct thread_wait wait;
	struct rss_mapping *m;
	uint64_t end;

	if (thread_wait_read(s->w->reader, t->tid, &wait, NULL) || !wait.blocked || !wait.sp)
		return;
	m = rss_mapping_at(s->w, wait.sp);
	if (!m || !is_stack(s->w, m) || m->taken)
		return;
	end = m->grows_down || !HAVE_BLOCKS ? m->m.end : stack_end(s, t, m, wait.sp);
	if (end)
		add_stack(s, t, m, wait.sp, end);
}

static void by_block(struct search *s)
{
	vec_each(&s->w->mappings, m) {
		struct thread *t;
		uint64_t at;

		if (m->grows_down || !m->sizes.rss || !is_stack(s->w, m) || m->taken)
			continue;
		t = block_in(s, m, &at);
		if (t && !t->found)
			add_stack(s, t, m, 0, m->m.end);
	}
}

/* The first thread, while it runs: its stack is the one that the kernel made. */
static void first_stack(struct search *s)
{
	struct thread *first = s->threads.len ? &s->threads.data[0] : NULL;

	if (!first || first->found || first->tid != s->w->pid)
		return;
	vec_each(&s->w->mappings, m)
		if (m->grows_down && !first->found && !m->taken)
			add_stack(s, first, m, 0, m->m.end);
}

void rss_find_stacks(struct rss_work *w)
{
	struct search s = {.w = w};
	struct pid_vec tids = {0};

	if (proc_threads(w->pid, &tids, NULL))
		return;
	vec_each(&tids, tid) {
		struct proc_status status;

		if (proc_status_read(*tid, &status, NULL) || status.state == 'Z' || status.state == 'X')
			continue;
		if (vec_push(&s.threads, (struct thread){.tid = *tid, .inner = status.ns_pid}))
			w->failed = true;
	}
	vec_each(&s.threads, t)
		by_stack_pointer(&s, t);
	first_stack(&s);
	by_block(&s);
	vec_each(&s.threads, t)
		w->ret->stackless += !t->found;
	vec_release(&s.threads);
	vec_release(&tids);
}
