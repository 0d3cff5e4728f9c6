/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks that were walked elsewhere, by code inside the program: each frame is placed in its module and stored.
 *
 * They come frame by frame, so that what many stacks share is looked up once.
 */
#include "sample/session_priv.h"
#include "sample/jit.h"
#include "sample/python/in_process.h"
#include "sample/python/known.h"
#include "symbol/interpreter.h"

#include "base/clock.h"

/* An address outside every known mapping makes us read /proc/PID/maps again, this often at most. */
#define REREAD_NS (20 * NS_PER_MS)

static struct process *process_by_pid(struct session *s, pid_t pid)
{
	return process_find(s->processes, pid);
}

int session_read_maps(struct session *s, pid_t pid, struct err *err)
{
	struct process *p = process_by_pid(s, pid);

	if (!p)
		return err_set(err, ESRCH, "process %d is not known", (int)pid);
	s->now_ns = clock_monotonic_ns();
	return process_snapshot(s->processes, p, s->now_ns, err);
}

static void describe(const struct space_mapping *m, struct unwind_mapping *ret)
{
	*ret = (struct unwind_mapping){
		.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.module = m->meaningless ? NULL : m->module->unwind,
		.id = m->module->capture_id,
		.executable = true,
		.uretprobes = module_is_uprobes(m->module),
	};
}

void session_each_mapping(struct session *s, pid_t pid,
	void (*fn)(void *ctx, const struct unwind_mapping *m), void *ctx)
{
	const struct process *p = process_by_pid(s, pid);

	for (size_t i = 0; p && i < p->mappings.len; i++) {
		struct unwind_mapping m;

		describe(&p->mappings.data[i], &m);
		fn(ctx, &m);
	}
}

static bool reread(struct session *s, struct process *p)
{
	uint64_t now = clock_monotonic_ns();

	if (p->maps_refused || now - p->refresh_ns < REREAD_NS)
		return false;
	return !process_snapshot(s->processes, p, now, NULL);
}

/* The mapping that a frame lies in; the last byte of the call counts, for a call may be the last of its function. */
static bool find(struct session *s, struct process *p, uint64_t call, struct unwind_mapping *ret)
{
	struct space_mapping *m = process_code(s->processes, p, call);

	if (!m && reread(s, p))
		m = process_code(s->processes, p, call);
	if (!m)
		return false;
	if (m->told_in != capture_segment(s->writer))
		session_tell_mapping(s, p, m);
	if (m->module->kind == MODULE_JIT && !m->module->jit)
		jit_mapping(s, p, m, call, ret);
	else
		describe(m, ret);
	return true;
}

struct placed {
	uint64_t pc;
	enum unwind_how how;
	bool is_return;
	bool beside_python, evaluates;
};

static enum frame_role role_of(const struct process *p, const struct placed *f, const struct unwind_mapping *m)
{
	if (!f->beside_python)
		return FRAME_OTHER;
	if (f->evaluates)
		return FRAME_EVALUATES;
	return p && p->python && p->python->module && p->python->module->capture_id == m->id ? FRAME_OF_RUNTIME : FRAME_OTHER;
}

static uint32_t place(struct session *s, struct process *p, uint32_t parent, const struct placed *f)
{
	struct unwind_mapping m = {.id = CAPTURE_NONE};
	bool found = p && f->pc && find(s, p, f->pc - f->is_return, &m);
	struct record_frame frame = {
		.address = found ? f->pc - m.bias : f->pc,
		.module = found ? m.id : CAPTURE_NONE,
		.kind = FRAME_USER,
		.how = (uint8_t)f->how,
		.source = UNWIND_FROM_DUMP, /* as of stacks that we walk: equal ones are one */
		.is_return = f->is_return,
		.role = (uint8_t)role_of(p, f, &m),
	};
	uint32_t id = capture_frame(s->writer, &frame);

	if (p)
		jit_seen(s, p, id);
	return capture_stack(s->writer, parent, id);
}

uint32_t session_called(
	struct session *s, pid_t pid, uint32_t parent, uint64_t pc, enum unwind_how how)
{
	return place(s, process_by_pid(s, pid), parent, &(struct placed){.pc = pc, .how = how, .is_return = true});
}

uint32_t session_called_beside_python(struct session *s, pid_t pid, uint32_t parent, uint64_t pc, bool evaluates)
{
	const struct placed f = {
		.pc = pc, .how = UNWIND_CFI, .is_return = true, .beside_python = true, .evaluates = evaluates};

	return place(s, process_by_pid(s, pid), parent, &f);
}

/* The rules are those of the call, not of what comes after it: that may be another function. */
static size_t walk_call(struct session *s, struct thread *th, uint64_t time_ns, const struct raw_stack *raw, enum unwind_end *ret_end)
{
	struct raw_stack call = *raw;

	s->now_ns = time_ns;
	call.regs.value[SESSION_PC] -= 1;
	return session_walk(s, th, &call, ret_end);
}

size_t session_walk_only(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns, const struct raw_stack *raw, uint64_t *pcs,
	size_t limit, bool *ret_rooted)
{
	struct thread *th = session_thread(s, pid, tid);
	enum unwind_end end = UNWIND_TRUNCATED;
	size_t count = th ? walk_call(s, th, time_ns, raw, &end) : 0;

	*ret_rooted = end == UNWIND_ROOT && count <= limit;
	if (count > limit)
		count = limit;
	for (size_t i = 0; i < count; i++)
		pcs[i] = s->frames[i].pc + (!i || !s->frames[i].is_return);
	s->walked = 0;
	return count;
}

uint32_t session_walk_called(
	struct session *s, pid_t pid, pid_t tid, uint64_t time_ns, const struct raw_stack *raw)
{
	struct thread *th = session_thread(s, pid, tid);
	enum unwind_end end;
	uint32_t stack;
	size_t count;

	if (!th)
		return CAPTURE_NONE;
	count = walk_call(s, th, time_ns, raw, &end);
	stack = end == UNWIND_ROOT ? CAPTURE_NONE : session_truncated(s);
	for (size_t i = count; i-- > 0;) {
		struct placed f = {
			.pc = i ? s->frames[i].pc : s->frames[i].pc + 1,
			.how = i ? s->frames[i].how : UNWIND_CFI,
			.is_return = !i || s->frames[i].is_return,
		};

		stack = place(s, th->process, stack, &f);
	}
	s->walked = 0;
	return stack;
}

/* It has its name from the start. */
uint32_t session_truncated(struct session *s)
{
	if (s->truncated == CAPTURE_NONE) {
		struct record_frame frame = {
			.module = CAPTURE_NONE, .kind = FRAME_USER, .how = UNWIND_SCAN, .source = UNWIND_FROM_REGS};
		struct record_symbol_level level = {
			.name = capture_string(s->writer, "[truncated]"), .file = CAPTURE_NONE};

		s->truncated = capture_frame(s->writer, &frame);
		capture_symbol(s->writer, s->truncated, 0, &level, 1);
	}
	return capture_stack(s->writer, CAPTURE_NONE, s->truncated);
}

uint32_t session_named(struct session *s, uint32_t parent, const char *name)
{
	uint32_t text = capture_string(s->writer, name);
	struct record_frame frame = {
		.address = text, /* names are told apart by it */
		.module = CAPTURE_NONE,
		.kind = FRAME_USER,
		.how = UNWIND_CFI,
		.source = UNWIND_FROM_REGS,
	};
	struct record_symbol_level level = {.name = text, .file = CAPTURE_NONE};
	uint32_t id = capture_frame(s->writer, &frame);
	size_t i = 0;

	while (i < s->named.len && s->named.data[i] != id)
		i++;
	if (i == s->named.len && !vec_push(&s->named, id))
		capture_symbol(s->writer, id, 0, &level, 1);
	return capture_stack(s->writer, parent, id);
}
