/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * perf records -> session calls. Layouts: perf_event_open(2), "MMAP layout", and
 * include/uapi/linux/perf_event.h.
 */
#include "sample/perf/perf_priv.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/cursor.h"

#define TRAILER_BYTES sizeof(struct perf_trailer)

bool perf_trailer(const struct perf_event_header *header, struct perf_trailer *ret)
{
	if (header->size < sizeof(*header) + TRAILER_BYTES)
		return false;
	memcpy(ret, (const uint8_t *)header + header->size - TRAILER_BYTES, TRAILER_BYTES);
	return true;
}

uint64_t perf_record_time(const struct perf_sampler *s, const struct perf_event_header *header)
{
	struct cursor c = cursor_over(header, header->size);

	if (header->type == PERF_RECORD_SAMPLE) /* header, IDENTIFIER, IP, TID */
		cursor_skip(&c, sizeof(*header) + 24);
	else if (header->size >= sizeof(*header) + TRAILER_BYTES)
		cursor_skip(&c, header->size - TRAILER_BYTES + 8u);
	else
		return 0;
	return cursor_u64(&c);
}

static void read_regs(struct cursor *c, struct unwind_regs *regs)
{
#if defined(__x86_64__)
	/* perf's order (bits of the mask, ascending) -> DWARF numbers; -1: flags, not wanted */
	static const int8_t dwarf[] = {0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15};
	_Static_assert(sizeof(dwarf) == PERF_REG_COUNT, "the mask in event.c");
	for (unsigned i = 0; i < PERF_REG_COUNT; i++)
		regs->value[dwarf[i]] = cursor_u64(c);
	regs->known = (1ULL << PERF_REG_COUNT) - 1;
#else
	for (unsigned i = 0; i < UNWIND_MAX_REGS; i++)
		regs->value[i] = cursor_u64(c);
	regs->known = (1ULL << UNWIND_MAX_REGS) - 1;
#endif
}

/* The kernel's callchain without its context markers, which are huge numbers. */
static size_t kernel_chain(struct cursor *c, uint64_t *ips, size_t limit)
{
	uint64_t nr = cursor_u64(c);
	size_t kept = 0;

	if (nr > cursor_left(c) / sizeof(uint64_t)) {
		c->bad = true;
		return 0;
	}
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t ip = cursor_u64(c);

		if (ip < PERF_CONTEXT_MAX && kept < limit)
			ips[kept++] = ip;
	}
	return kept;
}

/* At least 1: a period that is not known at all would be taken for the mean. */
static uint64_t cycles_ns(const struct perf_sampler *s, uint64_t cycles)
{
	uint64_t ps;

	if (!s->cycle_ps || __builtin_mul_overflow(cycles, s->cycle_ps, &ps))
		return 0;
	return ps / 1000 ? ps / 1000 : 1;
}

/* The fields of a sample from CALLCHAIN on; `ips` has room for PERF_KERNEL_FRAMES. */
static void decode_stack(
	struct cursor *c, uint64_t sample_type, uint64_t *ips, struct raw_stack *stack)
{
	uint64_t abi, size;

	stack->kernel_ips = ips;
	if (sample_type & PERF_SAMPLE_CALLCHAIN)
		stack->kernel_count = kernel_chain(c, ips, PERF_KERNEL_FRAMES);
	abi = cursor_u64(c);
	if (abi != PERF_SAMPLE_REGS_ABI_NONE)
		read_regs(c, &stack->regs);
	size = cursor_u64(c);
	if (size) { /* without a stack there is no dyn_size either */
		stack->dump.bytes = cursor_bytes(c, size);
		uint64_t valid = cursor_u64(c);
		stack->dump.size = (size_t)(valid < size ? valid : size);
	}
	/* The kernel gives none exactly for its own threads (perf_get_regs_user). */
	stack->kernel_thread = abi == PERF_SAMPLE_REGS_ABI_NONE;
	stack->has_regs = abi == PERF_SAMPLE_REGS_ABI_64;
#if defined(__x86_64__)
	stack->dump.start = stack->regs.value[UNWIND_X86_RSP];
#else
	stack->dump.start = stack->regs.value[UNWIND_A64_SP];
#endif
}

/* What the ring's thread has read of the stack, and how late it was. */
static void find_early(struct perf_sampler *s, struct cpu_ring *r, struct raw_sample *raw)
{
	const struct early_entry *e = early_store_find(&r->early, r->ring.tail);
	uint64_t read_ns = e ? e->read_ns : clock_monotonic_ns();

	if (e) {
		raw->stack.early = (struct unwind_dump){e->start, e->bytes, e->size};
		raw->stack.other = (struct unwind_dump){
			e->other_start, e->bytes + e->size, e->other_size};
	}
	histogram_add(&s->delays, read_ns > raw->time_ns ? read_ns - raw->time_ns : 0);
}

static void note_wants(
	struct perf_sampler *s, const struct raw_sample *raw, const struct stored_stack *stored)
{
	size_t copied = raw->stack.dump.size;
	bool cut = stored->end == UNWIND_TRUNCATED || stored->end == UNWIND_CHANGED;

	uint32_t beyond = stored->used_bytes > copied ? stored->used_bytes - copied : 0;

	early_wants_note(&s->wants, raw->tid, stored->switched ? stored->other_bytes : beyond, cut,
		stored->switched);
}

/* A thread on a CPU. */
static void take_sample(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e,
	struct raw_sample *raw, uint64_t period)
{
	bool copy = e && perf_is_copy(s, e, raw->tid, period);
	struct perf_thread *th;
	struct stored_stack stored;

	raw->weight_ns = s->period_ns;
	if (e && !copy && !r->has_thread)
		perf_note_sample(r, e, raw->time_ns);
	if (copy && !s->attr.freq)
		raw->period_ns = period;
	if (s->attr.freq)
		raw->period_ns = cycles_ns(s, period);
	if (raw->pid <= 0)
		return;
	th = perf_sampled_thread(s, e, raw->tid, raw->time_ns);
	if (!th)
		return;
	find_early(s, r, raw);
	perf_python_take(s, r, raw);
	if (session_sample(s->session, raw, &stored)) {
		note_wants(s, raw, &stored);
		perf_adapt(s, th, e, &stored);
	}
	early_store_drop(&r->early, r->ring.tail);
}

void perf_read_sample(struct cursor *c, uint64_t sample_type, uint64_t *ips, struct raw_sample *ret,
	uint64_t *ret_period)
{
	cursor_skip(c, 8); /* ip: in the registers, or first in the chain */
	ret->pid = (pid_t)cursor_u32(c); /* 0: the idle task; -1: one that is no process any more */
	ret->tid = (pid_t)cursor_u32(c);
	ret->time_ns = cursor_u64(c);
	ret->cpu = (uint16_t)cursor_u32(c);
	cursor_skip(c, 4);
	if (sample_type & PERF_SAMPLE_PERIOD)
		*ret_period = cursor_u64(c);
	decode_stack(c, sample_type, ips, &ret->stack);
}

static void decode_sample(struct perf_sampler *s, struct cpu_ring *r, struct cursor *c)
{
	uint64_t ips[PERF_KERNEL_FRAMES], period = 0;
	struct raw_sample raw = {0};
	uint64_t id = cursor_u64(c);
	struct watched_event *e = perf_event_of(r, id);
	bool off_cpu = e && e->off_cpu;

	if (!e && perf_python_record(s, r, id, c))
		return;

	perf_read_sample(c, off_cpu ? s->off_attr.sample_type : s->attr.sample_type, ips, &raw, &period);
	if (c->bad)
		session_lost(s->session, LOSS_MALFORMED, 1);
	else if (!off_cpu)
		take_sample(s, r, e, &raw, period);
	else if (raw.pid > 0)
		perf_off_cpu_sample(s, r, e, &raw);
}

/* Names in records end with a NUL inside the record, before the trailer. */
static const char *record_name(struct cursor *c, char *buf, size_t size)
{
	size_t left = cursor_left(c);
	struct cursor body = cursor_sub(c, left > TRAILER_BYTES ? left - TRAILER_BYTES : 0);
	const char *name = cursor_cstr(&body);
	size_t len = strlen(name);

	if (len >= size)
		len = size - 1;
	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
	buf[len] = '\0';
	return buf;
}

/* Whether an event of the process is to be told. */
static bool is_of_interest(const struct perf_sampler *s, pid_t pid)
{
	return !s->tracks_known || session_knows(s->session, pid);
}

static void decode_mmap2(struct perf_sampler *s, struct cursor *c, uint64_t time_ns)
{
	char path[4096];
	struct proc_mapping m = {.exec = true};
	pid_t pid = (pid_t)cursor_u32(c);
	uint32_t major, minor;

	cursor_skip(c, 4); /* tid */
	m.start = cursor_u64(c);
	uint64_t len = cursor_u64(c);
	m.offset = cursor_u64(c);
	major = cursor_u32(c);
	minor = cursor_u32(c);
	m.device = makedev(major, minor);
	m.inode = cursor_u64(c);
	cursor_skip(c, 8); /* inode generation */
	uint32_t prot = cursor_u32(c);
	cursor_skip(c, 4); /* flags */
	m.path = record_name(c, path, sizeof(path));
	m.deleted = proc_cut_deleted(path);
	if (c->bad || !len || __builtin_add_overflow(m.start, len, &m.end)) {
		session_lost(s->session, LOSS_MALFORMED, 1);
		return;
	}
	if (prot & PROT_EXEC && is_of_interest(s, pid))
		session_mapped(s->session, pid, time_ns, &m);
}

static void decode_comm(struct perf_sampler *s, struct cursor *c, bool exec, uint64_t time_ns)
{
	char name[PROC_NAME_BYTES];
	pid_t pid = (pid_t)cursor_u32(c), tid = (pid_t)cursor_u32(c);

	record_name(c, name, sizeof(name));
	if (c->bad || !is_of_interest(s, pid))
		return;
	session_renamed(s->session, pid, tid, name, exec, time_ns);
	if (exec)
		perf_off_cpu_exec(s, pid, time_ns);
}

static void decode_task(struct perf_sampler *s, struct cursor *c, bool fork, uint64_t time_ns)
{
	pid_t pid = (pid_t)cursor_u32(c), ppid = (pid_t)cursor_u32(c);
	pid_t tid = (pid_t)cursor_u32(c), ptid = (pid_t)cursor_u32(c);

	if (c->bad || !is_of_interest(s, fork ? ppid : pid))
		return;
	if (fork) {
		session_forked(s->session, ppid, pid, ptid, tid, time_ns);
		perf_off_cpu_forked(s, pid, tid, time_ns);
		perf_thread_forked(s, ptid, tid, time_ns);
		return;
	}
	if (s->off_cpu)
		off_cpu_exit(s->off_cpu, tid, time_ns);
	session_exited(s->session, pid, tid, time_ns);
	perf_thread_exited(s, tid);
}

/* The ring was full. */
static void take_loss(struct perf_sampler *s, const struct cpu_ring *r, uint64_t count)
{
	if (r->copies) { /* no more than if they had not been made */
		off_cpu_leaves_out(s->off_cpu);
		return;
	}
	if (s->off_cpu && r->handled_ns)
		off_cpu_lost(s->off_cpu, r->handled_ns, r->next_ns);
	session_lost(s->session, LOSS_RING, count);
}

void perf_decode(struct perf_sampler *s, struct cpu_ring *r)
{
	const struct perf_event_header *header = r->next;
	struct cursor c = cursor_over(header, header->size);
	uint64_t time_ns = r->next_ns;

	cursor_skip(&c, sizeof(*header));
	switch (header->type) {
	case PERF_RECORD_SAMPLE:
		decode_sample(s, r, &c);
		break;
	case PERF_RECORD_MMAP2:
		decode_mmap2(s, &c, time_ns);
		break;
	case PERF_RECORD_COMM:
		decode_comm(s, &c, header->misc & PERF_RECORD_MISC_COMM_EXEC, time_ns);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		decode_task(s, &c, header->type == PERF_RECORD_FORK, time_ns);
		break;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		perf_off_cpu_switch(s, r);
		break;
	case PERF_RECORD_LOST: /* id, lost */
		cursor_skip(&c, 8);
		take_loss(s, r, cursor_u64(&c));
		break;
	case PERF_RECORD_LOST_SAMPLES:
		session_lost(s->session, LOSS_RING, cursor_u64(&c));
		break;
	case PERF_RECORD_THROTTLE:
		session_lost(s->session, LOSS_THROTTLE, 1);
		break;
	default: /* UNTHROTTLE, and kinds that were not asked for */
		break;
	}
}
