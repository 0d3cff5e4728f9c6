/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Python frames in the stacks of watched programs. The program reads them itself, by offsets that it is told here, and tells
 * of each code object before the first stack that has it; what is put together here is the stack: which Python frames
 * are run by which native frame.
 */
#include "heap/collect_priv.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/table.h"
#include "python/layout.h"
#include "python/line_table.h"
#include "sample/python/in_process.h"

/* An interpreter that does not run yet is looked for so often, when nobody asks; and in the beginning closely. */
#define LOOK_NS (20 * NS_PER_MS)
#define YOUNG_NS NS_PER_S
#define LOOK_CLOSELY_NS (2 * NS_PER_MS)
#define CLOSELY_NS (2 * NS_PER_S)

#define MOST_DEEP 40000u
#define MOST_WALKED 4096u /* frames of a stack that is walked here */
#define MOST_CODES (1u << 20) /* code objects of a process; those after them have no name */
#define MOST_CALLS 4096u /* different ones that are remembered */

struct code_told {
	struct table_node node; /* key: SHARE_CODE_KEY */
	char *texts;            /* name and file */
	struct python_code code;
	struct python_ranges ranges;
	bool cut;
	uint32_t known; /* bytes of bytecode whose lines are known, where it is cut */
	struct code_told *next;
};

struct node_of_python {
	uint64_t key;
	uint32_t detail;
};

struct watched_python {
	bool done;              /* it was told, or never will be */
	uint32_t modules;       /* w->modules_done when it was looked for */
	uint64_t begin_ns, look_ns; /* when it was met first; when to look again */
	unsigned minor;
	char why[200];          /* it was not told, the last time */
	uint32_t asked;         /* as it was before it was looked for the last time */
	struct python_in_process in;
	struct table codes;
	VEC(uint64_t) calls;    /* return addresses in the function that runs Python code, beyond its known parts */
	struct code_told *all;
	uint32_t code_count;
	VEC(uint64_t) native;   /* of the stack that is put together: pcs, innermost first */
	VEC(struct node_of_python) python; /* the same */
	VEC(uint32_t) before;   /* of each native frame: the number of Python frames that are further in than those of its caller */
};

static struct watched_python *python_of(struct watched *w)
{
	if (!w->python)
		w->python = calloc(1, sizeof(*w->python));
	return w->python;
}

/* ---- the layout ---- */

/* Offsets that do not fit make the layout useless. */
static bool put(uint16_t *to, uint32_t offset)
{
	*to = offset == PYTHON_ABSENT ? SHARE_PYTHON_NONE : (uint16_t)offset;
	return offset == PYTHON_ABSENT || offset < SHARE_PYTHON_NONE;
}

static bool put_frames(struct share_python *to, const struct python_in_process *in)
{
	const struct python_layout *l = python_layout(in->python);
	const struct python_chain_layout *c = python_chain_layout(in->python);

	to->code_mask = c->pointer_mask;
	return put(&to->thread_pthread_at, l->thread.pthread) && put(&to->thread_frame_at, c->entry) &&
		put(&to->cframe_frame_at, c->by_cframe ? c->cframe_frame : PYTHON_ABSENT) &&
		put(&to->previous_at, c->previous) && put(&to->code_at, c->code) && put(&to->position_at, c->position) &&
		put(&to->thread_cframe_at, c->cframes ? c->cframe_entry : PYTHON_ABSENT) &&
		put(&to->cframe_previous_at, c->cframes ? c->cframe_previous : PYTHON_ABSENT) &&
		put(&to->owner_at, l->frame.owner) &&
		put(&to->entry_at, to->minor == 11 ? l->frame.is_entry : PYTHON_ABSENT);
}

static bool put_objects(struct share_python *to, const struct python_in_process *in)
{
	const struct python_layout *l = python_layout(in->python);

	return put(&to->lock_holder_at, l->gil.holder) && put(&to->lock_locked_at, l->gil.locked) &&
		put(&to->type_at, l->object.type) && put(&to->code_bytecode_at, l->code.bytecode) &&
		put(&to->code_line_at, l->code.first_line) &&
		put(&to->code_name_at, to->minor >= 11 ? l->code.qualname : l->code.name) &&
		put(&to->code_file_at, l->code.file) && put(&to->code_table_at, l->code.line_table) &&
		put(&to->str_length_at, l->unicode.length) && put(&to->str_state_at, l->unicode.state) &&
		put(&to->str_kind_shift, l->unicode.kind_shift) && put(&to->str_ascii_at, l->unicode.ascii_data) &&
		put(&to->str_data_at, l->unicode.data) && put(&to->bytes_size_at, l->bytes.size) &&
		put(&to->bytes_data_at, l->bytes.data);
}

static void put_evals(struct share_python *to, const struct python_in_process *in)
{
	for (size_t i = 0; i < in->eval_count && i < SHARE_PYTHON_EVALS; i++) {
		to->evals[i][0] = in->evals[i].start;
		to->evals[i][1] = in->evals[i].end;
	}
}

static void set_state(struct share_python *to, uint32_t state)
{
	__atomic_store_n(&to->state, state, __ATOMIC_RELEASE);
}

static void answer(struct share_python *to, uint32_t asked)
{
	__atomic_store_n(&to->answered, asked, __ATOMIC_RELEASE);
	syscall(SYS_futex, &to->answered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct share_python *shared(struct heap_collector *c, const struct watched *w)
{
	return share_python_of(heap_readers_shared(c->readers, w->number));
}

static bool publish(struct heap_collector *c, struct watched *w)
{
	struct watched_python *p = w->python;
	struct share_python *to = shared(c, w);

	to->state_at = p->in.state_at;
	to->lock = p->in.lock;
	to->code_type = python_code_type(p->in.python);
	to->minor = (uint16_t)p->minor;
	if (!put_frames(to, &p->in) || !put_objects(to, &p->in))
		return false;
	put_evals(to, &p->in);
	set_state(to, SHARE_PYTHON_READY);
	c->stats.pythons++;
	return true;
}

static void tell_refusal(struct heap_collector *c, const char *why)
{
	if (!c->stats.no_python[0])
		snprintf(c->stats.no_python, sizeof(c->stats.no_python), "%.*s", (int)sizeof(c->stats.no_python) - 1, why);
}

static void refuse(struct heap_collector *c, struct watched *w, const char *why)
{
	w->python->done = true;
	set_state(shared(c, w), SHARE_PYTHON_ABSENT);
	tell_refusal(c, why);
}

/* It ran Python code, and was never understood. */
static void tell_the_rest(struct heap_collector *c, const struct watched *w)
{
	const struct watched_python *p = w->python;

	if (!p->done && p->why[0] && p->asked)
		tell_refusal(c, p->why);
}

void collect_python_free(struct heap_collector *c, struct watched *w)
{
	struct watched_python *p = w->python;

	if (!p)
		return;
	tell_the_rest(c, w);
	while (p->all) {
		struct code_told *next = p->all->next;

		vec_release(&p->all->ranges);
		free(p->all->texts);
		free(p->all);
		p->all = next;
	}
	table_release(&p->codes);
	vec_release(&p->native);
	vec_release(&p->calls);
	vec_release(&p->python);
	vec_release(&p->before);
	free(p);
	w->python = NULL;
}

static bool is_due(struct heap_collector *c, const struct watched *w, uint64_t now_ns)
{
	const struct watched_python *p = w->python;

	if (!p)
		return true;
	if (p->done || w->says)
		return false;
	if (!p->begin_ns)
		return p->modules != w->modules_done;
	return now_ns >= p->look_ns || __atomic_load_n(&shared(c, w)->asked, __ATOMIC_RELAXED) != p->asked;
}

static void look(struct heap_collector *c, struct watched *w, uint64_t now_ns)
{
	struct watched_python *p = w->python;
	struct err err = {0};
	int rc;

	p->modules = w->modules_done;
	rc = session_python_in_process(
		c->session, w->pid, !p->begin_ns || now_ns < p->begin_ns + YOUNG_NS, &p->in, &err);
	if (rc == -ENOENT || rc == -ESRCH)
		return;
	if (!p->begin_ns)
		p->begin_ns = now_ns;
	p->look_ns = now_ns + (now_ns < p->begin_ns + CLOSELY_NS ? LOOK_CLOSELY_NS : LOOK_NS);
	if (rc == -EOPNOTSUPP) {
		refuse(c, w, err.text);
	} else if (rc) {
		snprintf(p->why, sizeof(p->why), "%.*s", (int)sizeof(p->why) - 1, err.text);
		put_evals(shared(c, w), &p->in);
		set_state(shared(c, w), SHARE_PYTHON_LIKELY);
	} else {
		p->minor = python_version(p->in.python) >> 16 & 0xff;
		p->done = true;
		if (!publish(c, w))
			refuse(c, w, "the layout of this Python is not understood");
	}
}

void collect_python(struct heap_collector *c, struct watched *w, uint64_t now_ns)
{
	uint32_t asked;

	if (w->says || !is_due(c, w, now_ns) || !python_of(w))
		return;
	asked = __atomic_load_n(&shared(c, w)->asked, __ATOMIC_ACQUIRE);
	look(c, w, now_ns);
	if (asked != w->python->asked)
		answer(shared(c, w), asked);
	w->python->asked = asked;
}

bool collect_python_waits(const struct watched *w, uint64_t now_ns)
{
	return w->python && w->python->begin_ns && !w->python->done && now_ns < w->python->begin_ns + CLOSELY_NS;
}

/* ---- code objects ---- */

static bool same(const struct code_told *a, const struct heap_event *e)
{
	return a->code.first_line == (uint32_t)e->address && !strcmp(a->code.name, e->more->text[0]) &&
		!strcmp(a->code.file, e->more->text[1]);
}

static bool fill(struct code_told *t, const struct watched_python *p, const struct heap_event *e)
{
	const struct heap_event_more *more = e->more;
	enum python_line_form form = p->minor >= 11 ? PYTHON_LOCATIONS : p->minor == 10 ? PYTHON_LINETABLE : PYTHON_LNOTAB;

	t->texts = malloc((size_t)more->text_bytes[0] + more->text_bytes[1] + 2);
	if (!t->texts)
		return false;
	memcpy(t->texts, more->text[0], (size_t)more->text_bytes[0] + 1);
	memcpy(t->texts + more->text_bytes[0] + 1, more->text[1], (size_t)more->text_bytes[1] + 1);
	t->code = (struct python_code){
		.name = t->texts,
		.file = t->texts + more->text_bytes[0] + 1,
		.first_line = (uint32_t)e->address,
	};
	if (python_ranges_decode(form, (const uint8_t *)more->text[2], more->text_bytes[2], t->code.first_line, &t->ranges))
		return false;
	t->cut = e->address & SHARE_PYTHON_CODE_CUT;
	t->known = t->ranges.len ? t->ranges.data[t->ranges.len - 1].start : 0;
	return true;
}

void collect_python_code(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	struct watched_python *p = w->python;
	struct code_told *t, *old;

	(void)c;
	if (!p || !p->done || !e->more)
		return;
	old = (struct code_told *)table_find(&p->codes, e->more->value);
	if ((old && same(old, e)) || p->code_count >= MOST_CODES)
		return;
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	if (old)
		table_remove(&p->codes, &old->node);
	t->next = p->all;
	p->all = t;
	p->code_count++;
	if (fill(t, p, e))
		(void)table_add(&p->codes, &t->node, e->more->value);
}

static bool evaluates(const struct watched_python *p, uint64_t pc)
{
	for (size_t i = 0; i < p->in.eval_count; i++)
		if (pc - 1 >= p->in.evals[i].start && pc - 1 < p->in.evals[i].end)
			return true;
	vec_each(&p->calls, it)
		if (*it == pc)
			return true;
	return false;
}

void collect_python_call(struct watched *w, uint64_t pc)
{
	struct watched_python *p = w->python;

	if (p && p->calls.len < MOST_CALLS && !evaluates(p, pc))
		(void)vec_push(&p->calls, pc);
}

/* Which byte of the bytecode; -1: it has not begun. */
static int32_t offset_of(const struct watched_python *p, uint32_t detail)
{
	int32_t offset = (int32_t)SHARE_DETAIL_VALUE(detail) - SHARE_PYTHON_OFFSET_ADDED;

	if (offset < 0)
		return -1;
	return p->minor == 10 ? offset * 2 : offset;
}

static struct python_position position_of(const struct watched_python *p, const struct code_told *t, uint32_t detail)
{
	int32_t offset = offset_of(p, detail);

	if (offset < 0)
		return (struct python_position){.line = t->code.first_line};
	if (t->cut && (uint32_t)offset >= t->known)
		return (struct python_position){0};
	return python_ranges_find(&t->ranges, (uint32_t)offset);
}

/* ---- stacks ---- */

/* Innermost first; where the path ends. */
static uint32_t read_native(struct heap_collector *c, struct watched *w, uint32_t node)
{
	struct watched_python *p = w->python;
	struct heap_node at;

	for (p->native.len = 0; node >= SHARE_STACK_FIRST; node = at.parent) {
		if (p->native.len >= MOST_DEEP || !heap_readers_node(c->readers, w->number, node, &at))
			return SHARE_STACK_CUT;
		if (at.pc >= SHARE_FIRST_PC && !at.detail && vec_push(&p->native, at.pc))
			return SHARE_STACK_CUT;
	}
	return node;
}

static uint32_t read_python(struct heap_collector *c, struct watched *w, uint64_t node)
{
	struct watched_python *p = w->python;
	struct heap_node at;

	for (p->python.len = 0; node >= SHARE_STACK_FIRST; node = at.parent) {
		unsigned kind;

		if (node >= SHARE_NODES || p->python.len >= MOST_DEEP ||
			!heap_readers_node(c->readers, w->number, (uint32_t)node, &at))
			return SHARE_STACK_CUT;
		kind = SHARE_DETAIL_KIND(at.detail);
		if ((kind != SHARE_PYTHON_FRAME && kind != SHARE_PYTHON_ENTRY) ||
			vec_push(&p->python, (struct node_of_python){at.pc, at.detail}))
			return SHARE_STACK_CUT;
	}
	return (uint32_t)node;
}

/*
 * The calls of the evaluation function and the groups of frames that they run stand in the same order, innermost first. From
 * there they are counted: further out a greenlet's stack goes on in one that is not its own, and either chain may be cut.
 * No call is without its frame when memory is allocated, or else an entry without a frame stands for it.
 */
static bool pair_calls(struct watched_python *p)
{
	size_t next = 0;

	if (vec_reserve(&p->before, p->native.len + 1))
		return false;
	p->before.len = 0;
	vec_each(&p->native, pc) {
		if (evaluates(p, *pc)) {
			while (next < p->python.len &&
				SHARE_DETAIL_KIND(p->python.data[next].detail) != SHARE_PYTHON_ENTRY)
				next++;
			next += next < p->python.len;
		}
		p->before.data[p->before.len++] = (uint32_t)next;
	}
	return true;
}

/* Frames [from, to) of the innermost first, upon `stack`. */
static uint32_t put_python(struct heap_collector *c, struct watched *w, uint32_t stack, size_t from, size_t to)
{
	static const struct python_code unknown = {.name = "[unknown Python function]", .file = ""};
	const struct watched_python *p = w->python;

	while (to-- > from) {
		const struct node_of_python *f = &p->python.data[to];
		const struct code_told *t = f->key ? (const struct code_told *)table_find(&p->codes, f->key) : NULL;

		if (t)
			stack = session_called_python(c->session, stack, &t->code, position_of(p, t, f->detail));
		else if (f->key)
			stack = session_called_python(c->session, stack, &unknown, (struct python_position){0});
	}
	return stack;
}

/* Of both, as they were read. */
static uint32_t put_together(struct heap_collector *c, struct watched *w, bool native_whole, bool python_whole)
{
	struct watched_python *p = w->python;
	uint32_t stack = native_whole ? CAPTURE_NONE : session_truncated(c->session);
	size_t placed;

	if (!pair_calls(p))
		return session_truncated(c->session);
	if (!python_whole)
		stack = session_called_python(c->session, stack, NULL, (struct python_position){0});
	placed = p->before.len ? p->before.data[p->before.len - 1] : 0;
	stack = put_python(c, w, stack, placed, p->python.len);
	for (size_t i = p->native.len; i-- > 0;) {
		uint64_t pc = p->native.data[i];

		stack = session_called_beside_python(c->session, w->pid, stack, pc, evaluates(p, pc));
		stack = put_python(c, w, stack, i ? p->before.data[i - 1] : 0, p->before.data[i]);
	}
	return stack;
}

uint32_t collect_python_stack(struct heap_collector *c, struct watched *w, uint32_t node, const struct heap_node *at)
{
	bool pair = SHARE_DETAIL_KIND(at->detail) == SHARE_PAIR, native_whole, python_whole;

	if (!w->python || !w->python->done)
		return session_truncated(c->session);
	/* Alone: what came with it was lost. */
	native_whole = read_native(c, w, pair ? at->parent : SHARE_STACK_CUT) == SHARE_STACK_ROOT;
	python_whole = read_python(c, w, pair ? at->pc : node) == SHARE_STACK_ROOT;
	return put_together(c, w, native_whole, python_whole);
}

uint32_t collect_python_walked(
	struct heap_collector *c, struct watched *w, const struct heap_event *e, const struct raw_stack *raw)
{
	struct watched_python *p = w->python;
	bool native_whole, python_whole;

	if (!p || !p->done || vec_reserve(&p->native, MOST_WALKED))
		return session_walk_called(c->session, w->pid, collect_tid(w, e->tid), e->time_ns, raw);
	p->native.len = session_walk_only(c->session, w->pid, collect_tid(w, e->tid), e->time_ns, raw, p->native.data,
		MOST_WALKED, &native_whole);
	python_whole = read_python(c, w, e->node) == SHARE_STACK_ROOT;
	return put_together(c, w, native_whole, python_whole);
}
