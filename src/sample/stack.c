/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From what was copied of a thread to a stack in the recording.
 *
 * The user part is unwound here and now, while the process and its files are there. Each frame is (module,
 * address in it), so a stack that two processes share is stored once.
 */
#include "sample/session_priv.h"
#include "sample/jit.h"

#include "base/clock.h"

/* An address outside every known mapping makes us read /proc/PID/maps again, this often at most. */
#define REFRESH_NS (100 * NS_PER_MS)

/* More than this between two frames is another stack. */
#define STACK_GAP_BYTES 65536u

struct walk_ctx {
	struct session *session;
	struct process *process;
	pid_t tid; /* memory is read by thread: the first one of its process may have ended */
	const struct raw_stack *raw;
	uint64_t other; /* where the walk asked for another stack first, 0: nowhere */
};

/* /proc/PID/maps again, unless that was done a moment ago. */
static bool refresh(struct session *s, struct process *p)
{
	uint64_t now = clock_monotonic_ns();

	if (p->maps_refused || now - p->refresh_ns < REFRESH_NS)
		return false;
	/* Records older than this moment are in what we read now. */
	return !process_snapshot(s->processes, p, now, NULL);
}

static struct space_mapping *refreshed_code(struct session *s, struct process *p, uint64_t addr)
{
	struct space_mapping *m = refresh(s, p) ? process_code(s->processes, p, addr) : NULL;

	if (m && s->maps_untold) /* not in vain: the next time need not wait */
		p->refresh_ns = 0;
	return m;
}

static bool find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	struct walk_ctx *w = ctx;
	struct space_mapping *m = process_code(w->session->processes, w->process, addr);

	if (!m && (w->session->sampled_pc == addr || w->session->maps_untold))
		m = refreshed_code(w->session, w->process, addr);
	if (!m)
		return false;
	if (m->told_in != capture_segment(w->session->writer))
		session_tell_mapping(w->session, w->process, m);
	if (m->module->kind == MODULE_JIT && !m->module->jit) {
		jit_mapping(w->session, w->process, m, addr, ret);
		return true;
	}
	*ret = (struct unwind_mapping){
		.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.module = m->meaningless ? NULL : m->module->unwind,
		.id = m->module->capture_id,
		.executable = true,
		.uretprobes = module_is_uprobes(m->module),
	};
	return true;
}

static bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct walk_ctx *w = ctx;

	return source_read(w->session->source, w->tid, addr, buf, len);
}

/* Where nothing changes there is nothing to compare. */
static enum unwind_tail read_kept(struct walk_ctx *w, uint64_t addr, struct unwind_dump *ret)
{
	struct tail *tail = &w->session->tail;
	size_t got = source_read_some(w->session->source, w->tid, addr, tail->bytes, TAIL_BYTES);

	if (got < sizeof(uint64_t))
		return UNWIND_TAIL_UNREADABLE;
	*ret = (struct unwind_dump){addr, tail->bytes, got};
	return UNWIND_TAIL_OK;
}

static enum unwind_tail read_tail(void *ctx, const struct unwind_frame *frames, size_t count,
	uint64_t addr, struct unwind_dump *ret)
{
	struct walk_ctx *w = ctx;
	uint64_t last = frames[count - 1].slot ? frames[count - 1].slot : w->raw->dump.start;
	const struct tail_early early = {w->raw->early, w->raw->other};
	enum unwind_tail got =
		tail_from_early(&early, proc_address_mask(), frames, count, addr, ret);
	struct tail_stack stack = {
		.tid = w->tid,
		.address_mask = proc_address_mask(),
		.end = w->process->stack_end,
	};

	if (!w->other && addr - last >= w->raw->dump.size + STACK_GAP_BYTES)
		w->other = addr;
	if (got != UNWIND_TAIL_UNREADABLE)
		return got;
	if (w->session->source->still)
		return read_kept(w, addr, ret);
	return tail_read(&w->session->tail, &stack, frames, count, addr, ret);
}

/* The kernel's part of the stack on top of `parent`; its leaf node. */
static uint32_t push_kernel(struct session *s, const struct raw_stack *raw, uint32_t parent)
{
	struct module *kernel = raw->kernel_count ? module_store_kernel(s->modules) : NULL;

	for (size_t i = raw->kernel_count; kernel && i-- > 0;) {
		struct record_frame frame = {
			.address = raw->kernel_ips[i],
			.module = kernel->capture_id,
			.kind = FRAME_KERNEL,
			.how = i ? UNWIND_FP : UNWIND_SAMPLED,
			.source = UNWIND_FROM_REGS,
			.is_return = i > 0,
		};
		parent = capture_stack(s->writer, parent, capture_frame(s->writer, &frame));
	}
	return parent;
}

/* Python frames that native frame `before` runs, on top of `parent`; *at counts them down. */
static uint32_t push_python(struct session *s, const struct thread *th, size_t before, size_t *at,
	uint32_t parent)
{
	struct placed_frame *placed;

	python_stacks_last(s->python, &placed);
	for (; *at && placed[*at - 1].before == before; (*at)--) {
		struct placed_frame *f = &placed[*at - 1];

		f->id = python_stacks_push(s, th, &f->frame);
		parent = capture_stack(s->writer, parent, f->id);
	}
	return parent;
}

static uint32_t push_user(struct session *s, const struct thread *th,
	const struct unwind_frame *frames, size_t count)
{
	struct placed_frame *placed;
	size_t python = python_stacks_last(s->python, &placed);
	uint32_t parent = push_python(s, th, count, &python, CAPTURE_NONE);

	for (size_t i = count; i-- > 0;) {
		struct record_frame frame = {
			.address = frames[i].vaddr,
			.module = frames[i].mapping_id,
			.kind = FRAME_USER,
			.how = frames[i].how,
			/* How much was read live differs from sample to sample; it stands there, so
			 * that equal stacks are one. */
			.source = frames[i].source == UNWIND_FROM_LIVE ? UNWIND_FROM_DUMP
								       : frames[i].source,
			.is_return = frames[i].is_return,
			.role = python_stacks_role(s, th, i),
		};
		uint32_t id = capture_frame(s->writer, &frame);

		jit_seen(s, th->process, id);
		s->frame_ids[i] = id;
		parent = capture_stack(s->writer, parent, id);
		parent = push_python(s, th, i, &python, parent);
	}
	return parent;
}

/* `regs` may be NULL: nobody wants those of the frames. */
static size_t walk_for(struct session *s, const struct thread *th, const struct raw_stack *raw,
	struct unwind_regs *regs, size_t regs_limit, enum unwind_end *ret_end)
{
	struct walk_ctx ctx = {s, th->process, th->tid, raw, 0};
	size_t count;

	struct unwind_target target = {
		.arch = UNWIND_X86_64,
		.ctx = &ctx,
		.find_mapping = find_mapping,
		.read_memory = read_memory,
		.read_tail = read_tail,
		.address_mask = proc_address_mask(),
		.stack_end = th->process->stack_end,
		.frame_regs = regs,
		.frame_regs_limit = regs_limit,
	};

#if defined(__aarch64__)
	target.arch = UNWIND_AARCH64;
#endif
	s->sampled_pc = raw->regs.value[SESSION_PC];
	count = unwinder_walk(
		s->unwinder, &target, &raw->regs, &raw->dump, s->frames, FRAME_LIMIT, ret_end);
	s->other_stack = ctx.other;
	return count;
}

static size_t walk(struct session *s, const struct thread *th, const struct raw_stack *raw,
	enum unwind_end *ret_end)
{
	return walk_for(s, th, raw, NULL, 0, ret_end);
}

size_t session_walk_regs(struct session *s, const struct thread *th, const struct raw_stack *raw,
	struct unwind_regs *regs, size_t limit)
{
	enum unwind_end end;

	return raw->has_regs ? walk_for(s, th, raw, regs, limit, &end) : 0;
}

/* Bytes of the stack that the walk went through: what a dump would have had to hold. */
static uint32_t used_bytes(const struct raw_stack *raw, const struct unwind_frame *f, size_t n)
{
	uint64_t top = raw->dump.start;

	for (size_t i = 0; i < n && f[i].cfa >= top && f[i].cfa - top < STACK_GAP_BYTES; i++)
		top = f[i].cfa;
	return top - raw->dump.start < UINT32_MAX ? (uint32_t)(top - raw->dump.start) : UINT32_MAX;
}

/* The same of the other stack that the walk came to. */
static uint32_t other_bytes(uint64_t other, const struct unwind_frame *f, size_t n)
{
	uint64_t top = other;

	for (size_t i = 0; other && i < n; i++)
		if (f[i].slot > top && f[i].slot - top < STACK_GAP_BYTES)
			top = f[i].slot;
	return (uint32_t)(top - other);
}

/* The outermost frames that come from the live tail. */
static uint32_t live_frames(const struct unwind_frame *f, size_t n)
{
	uint32_t live = 0;

	while (live < n && f[n - 1 - live].source == UNWIND_FROM_LIVE)
		live++;
	return live;
}

/* Inside execve the registers are still those of the program that is gone, and lead nowhere: there
 * is no user stack, until the new program is seen. */
static bool is_inside_exec(const struct session *s, struct process *p, const struct raw_stack *raw,
	size_t count)
{
	if (!p->in_exec)
		return false;
	p->in_exec = !count || s->frames[0].mapping_id == UINT32_MAX;
	return p->in_exec && raw->kernel_count;
}

/* The user part of the stack into s->frames; how many frames, and why it ended. */
static size_t unwind_user(struct session *s, const struct thread *th, const struct raw_stack *raw,
	enum unwind_end *ret_end)
{
	size_t count;

	*ret_end = UNWIND_ROOT;
	if (raw->kernel_thread)
		return 0;
	if (!raw->has_regs) {
		s->pending_losses[LOSS_NO_REGS]++;
		*ret_end = UNWIND_NO_REGS;
		return 0;
	}
	count = walk(s, th, raw, ret_end);
	/* What was mapped there may have made place for something else. */
	if (*ret_end != UNWIND_ROOT && s->maps_untold && refresh(s, th->process))
		count = walk(s, th, raw, ret_end);
	if (!is_inside_exec(s, th->process, raw, count))
		return count;
	*ret_end = UNWIND_ROOT;
	return 0;
}

size_t session_walk(struct session *s, const struct thread *th, const struct raw_stack *raw, enum unwind_end *ret_end)
{
	return unwind_user(s, th, raw, ret_end);
}

void session_store_stack(struct session *s, const struct thread *th, const struct raw_stack *raw,
	struct stored_stack *ret)
{
	enum unwind_end end;
	size_t count = unwind_user(s, th, raw, &end);
	struct placed_frame *placed;

	python_stacks_find(s, th, raw, count, end);
	*ret = (struct stored_stack){
		.leaf = push_kernel(s, raw, push_user(s, th, s->frames, count)),
		.end = end,
		.used_bytes = used_bytes(raw, s->frames, count),
		.live_frames = live_frames(s->frames, count),
		.python = python_stacks_marks(s->python),
		.has_python = python_stacks_last(s->python, &placed),
		.switched = count && s->other_stack,
		.other_bytes = other_bytes(s->other_stack, s->frames, count),
	};
	s->walked = count;
}
