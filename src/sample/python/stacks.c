/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/intern.h"
#include "sample/python/chains.h"
#include "sample/python/interleave.h"
#include "sample/python/known.h"
#include "sample/python/place.h"
#include "sample/session_priv.h"
#include "symbol/interpreter.h"

#define MOST_CFRAMES 16384u
#define MOST_LINKS 16384u /* of a stack; what is outside of them is told as cut */

/* An address of a Python frame in the recording: which function, line, column. */
#define FUNCTION_SHIFT 40
#define LINE_SHIFT 16
#define LINE_MASK 0xffffffu
#define COLUMN_MASK 0xffffu
#define MOST_FUNCTIONS (1u << 24)

/* A function is its name, its file and its first line: frames of it in all processes are the same. */
struct function {
	const char *name, *file;
	uint32_t module, segment; /* the file's id in the recording, written in this segment of it */
};

struct python_stacks {
	struct intern identities; /* "file\0line\0name\0" */
	VEC(struct function) functions;
	struct python_link *links, *again;
	uint64_t *cframes;
	struct python_frames frames;
	VEC(size_t) before;
	VEC(struct placed_frame) placed;
	uint8_t marks;
	size_t told; /* frames of the recording whose names were written */
	struct symbol_level level;
};

int python_stacks_new(struct python_stacks **ret, struct err *err)
{
	struct python_stacks *p = calloc(1, sizeof(*p));

	if (!p)
		return err_nomem(err);
	p->links = calloc(MOST_LINKS, sizeof(*p->links));
	p->again = calloc(MOST_LINKS, sizeof(*p->again));
	p->cframes = calloc(MOST_CFRAMES, sizeof(*p->cframes));
	if (!p->links || !p->again || !p->cframes) {
		python_stacks_free(p);
		return err_nomem(err);
	}
	*ret = p;
	return 0;
}

void python_stacks_free(struct python_stacks *p)
{
	if (!p)
		return;
	intern_release(&p->identities);
	vec_release(&p->functions);
	vec_release(&p->frames);
	vec_release(&p->before);
	vec_release(&p->placed);
	free(p->links);
	free(p->again);
	free(p->cframes);
	free(p);
}

/* ---- chains ---- */

/* Outside of what could be had. */
static const struct python_code missing = {.name = "[missing Python frames]", .file = "", .serial = UINT32_MAX};

static void add_chain(struct session *s, struct python *python, struct python_chain *chain)
{
	struct python_stacks *p = s->python;

	if (!python_frames(python, chain, &p->frames) && !python_chain_has_root(python, chain)) {
		(void)vec_push(&p->frames, (struct python_frame){.code = &missing, .missing = true});
		if (chain->torn == PYTHON_WHOLE)
			chain->torn = PYTHON_TORN;
	}
	if (chain->torn == PYTHON_TORN || chain->torn == PYTHON_UNREADABLE)
		p->marks |= SAMPLE_PYTHON_TORN;
	else if (chain->torn == PYTHON_CUT)
		p->marks |= SAMPLE_PYTHON_CUT;
}

static void note_gil(struct session *s, struct python *python, const struct python_thread *thread)
{
	struct python_gil gil;

	if (!python_gil(python, thread, &gil, NULL) && gil.locked && gil.holder == thread->address)
		s->python->marks |= SAMPLE_PYTHON_GIL;
}

/* What was read for another look is not of now. */
static void refresh(struct python_of_process *of, const struct raw_stack *raw)
{
	if (of->look == raw->look && raw->look)
		return;
	of->look = raw->look;
	python_refresh(of->python);
}

static struct python_chain room_for_chain(struct python_stacks *p)
{
	return (struct python_chain){
		.links = p->links,
		.limit = MOST_LINKS,
		.cframes = p->cframes,
		.cframe_limit = MOST_CFRAMES,
	};
}

/* From the thread's memory, as it is now. */
static void read_chains(struct session *s, const struct thread *th, const struct raw_stack *raw)
{
	struct python *python = python_of_process(s, th->process, th->tid);
	struct python_thread states[PYTHON_MOST_STATES];
	size_t count;

	if (!python)
		return;
	refresh(th->process->python, raw);
	count = python_thread_states(s, th, states, PYTHON_MOST_STATES);
	for (size_t i = 0; i < count; i++) {
		struct python_chain chain = room_for_chain(s->python);

		if (raw->python == PYTHON_LIVE)
			python_chain_read_live(python, states[i].address, &chain, s->python->again);
		else
			python_chain_read(python, states[i].address, &chain);
		add_chain(s, python, &chain);
		note_gil(s, python, &states[i]);
	}
}

/* One that was cut gets the room for the rest. */
static struct python_chain whole_chain(struct session *s, struct python *python,
	const struct raw_chain *raw)
{
	struct python_chain chain = raw->chain;

	if (chain.torn != PYTHON_CUT || chain.count >= MOST_LINKS)
		return chain;
	memcpy(s->python->links, chain.links, chain.count * sizeof(*chain.links));
	chain.links = s->python->links;
	chain.limit = MOST_LINKS;
	python_chain_complete(python, &chain);
	return chain;
}

/* The interpreter that a thread runs in now comes first, for its chain has the innermost frames: the one that it came to
 * last. Where frames leave no markers nothing else tells; the lock does not change hands from one to the other. */
static void order_chains(const struct python_of_process *of, pid_t tid, const struct raw_stack *raw,
	size_t count, size_t *order)
{
	size_t places[PYTHON_MOST_STATES];

	for (size_t i = 0; i < count; i++) {
		size_t place = python_state_place(of, tid, raw->chains[i].state), at = i;

		for (; at && places[at - 1] > place; at--) {
			places[at] = places[at - 1];
			order[at] = order[at - 1];
		}
		places[at] = place;
		order[at] = i;
	}
}

/* As a sampler has copied them. */
static void take_chains(struct session *s, const struct thread *th, const struct raw_stack *raw)
{
	struct python *python = python_of_process(s, th->process, th->tid);
	size_t count = raw->chain_count < PYTHON_MOST_STATES ? raw->chain_count : PYTHON_MOST_STATES;
	size_t order[PYTHON_MOST_STATES];

	if (!python)
		return;
	refresh(th->process->python, raw);
	order_chains(th->process->python, th->tid, raw, count, order);
	for (size_t i = 0; i < count; i++) {
		const struct raw_chain *copied = &raw->chains[order[i]];
		struct python_chain chain = whole_chain(s, python, copied);

		add_chain(s, python, &chain);
		if (copied->holds_gil)
			s->python->marks |= SAMPLE_PYTHON_GIL;
		python_thread_met(s, th, copied->state);
	}
}

/* ---- their places ---- */

static bool evaluates(void *ctx, const struct unwind_frame *frame)
{
	const struct python_of_process *of = ctx;

	return frame->mapping_id == of->module->capture_id &&
		python_file_evaluates(of->module->python, frame->vaddr - frame->is_return);
}

static int compare_placed(const void *a, const void *b)
{
	const struct placed_frame *x = a, *y = b;

	if (x->before != y->before)
		return (x->before > y->before) - (x->before < y->before);
	return (x->order > y->order) - (x->order < y->order);
}

static void place(struct session *s, const struct thread *th, const struct raw_stack *raw, size_t count,
	enum unwind_end end)
{
	struct python_stacks *p = s->python;
	const struct native_stack native = {
		.frames = s->frames,
		.count = count,
		.sp = raw->has_regs ? raw->regs.value[SESSION_SP] : 0,
		.rooted = end == UNWIND_ROOT,
		.evaluates = evaluates,
		.ctx = th->process->python,
	};

	if (vec_reserve(&p->before, p->frames.len) || vec_reserve(&p->placed, p->frames.len))
		return;
	if (python_interleave(&native, p->frames.data, p->frames.len, p->before.data))
		p->marks |= SAMPLE_PYTHON_TORN;
	for (size_t i = 0; i < p->frames.len; i++)
		if (p->before.data[i] != PYTHON_STALE)
			p->placed.data[p->placed.len++] = (struct placed_frame){
				.before = p->before.data[i],
				.order = i,
				.id = CAPTURE_NONE,
				.frame = p->frames.data[i],
			};
	if (p->placed.len)
		qsort(p->placed.data, p->placed.len, sizeof(*p->placed.data), compare_placed);
}

void python_stacks_find(struct session *s, const struct thread *th, const struct raw_stack *raw, size_t count,
	enum unwind_end end)
{
	struct python_stacks *p = s->python;

	p->frames.len = p->placed.len = 0;
	p->marks = 0;
	if (raw->kernel_thread)
		return;
	if (raw->chain_count)
		take_chains(s, th, raw);
	else if (raw->python != PYTHON_NOT_NOW)
		read_chains(s, th, raw);
	if (p->frames.len)
		place(s, th, raw, count, end);
}

size_t python_stacks_last(const struct python_stacks *p, struct placed_frame **ret)
{
	*ret = p->placed.data;
	return p->placed.len;
}

uint8_t python_stacks_marks(const struct python_stacks *p)
{
	return p->marks;
}

static bool runs_python(const struct python_stacks *p, size_t index)
{
	size_t low = 0, high = p->placed.len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->placed.data[middle].before < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->placed.len && p->placed.data[low].before == index;
}

uint8_t python_stacks_role(const struct session *s, const struct thread *th, size_t index)
{
	const struct python_of_process *of = th->process->python;
	const struct space_mapping *m;

	if (!s->python->placed.len || !of || !of->module)
		return FRAME_OTHER;
	if (runs_python(s->python, index))
		return FRAME_EVALUATES;
	if (s->frames[index].mapping_id == of->module->capture_id)
		return FRAME_OF_RUNTIME;
	m = process_mapping(th->process, s->frames[index].pc);
	return m && m->module->kind == MODULE_JIT ? FRAME_GENERATED : FRAME_OTHER;
}

/* ---- names ---- */

static uint32_t add_function(struct python_stacks *p, const struct python_code *code)
{
	struct buf identity = {0};
	struct function function = {.module = CAPTURE_NONE, .segment = UINT32_MAX};
	uint32_t id;

	buf_printf(&identity, "%s%c%u%c%s%c", code->file, 0, code->first_line, 0,
		*code->name ? code->name : "<unnamed>", 0);
	id = identity.failed ? INTERN_NONE : intern_add(&p->identities, identity.data, identity.len);
	buf_release(&identity);
	if (id < p->functions.len)
		return id;
	if (id != p->functions.len || id >= MOST_FUNCTIONS)
		return INTERN_NONE;
	function.file = intern_get(&p->identities, id, NULL);
	function.name = function.file + strlen(function.file) + 1;
	function.name += strlen(function.name) + 1;
	return vec_push(&p->functions, function) ? INTERN_NONE : id;
}

/* The number of a code object's function. */
static uint32_t function_of(struct python_stacks *p, struct python_of_process *of,
	const struct python_code *code)
{
	uint32_t id;

	if (code->serial < of->functions.len && of->functions.data[code->serial])
		return of->functions.data[code->serial] - 1;
	id = add_function(p, code);
	if (id >= p->functions.len || code == &missing || vec_reserve(&of->functions, (size_t)code->serial + 1))
		return id;
	while (of->functions.len <= code->serial)
		of->functions.data[of->functions.len++] = 0;
	of->functions.data[code->serial] = id + 1;
	return id;
}

static uint32_t module_of(struct session *s, struct function *f)
{
	uint32_t segment = capture_segment(s->writer);

	if (f->segment != segment) {
		struct record_module module = {
			.path = capture_string(s->writer, *f->file ? f->file : "<python>"),
			.kind = MODULE_PYTHON,
		};

		f->module = capture_module(s->writer, &module);
		f->segment = segment;
	}
	return f->module;
}

/* A recording that is not ended in order has the names of what is not in any file. */
static void tell_name(struct session *s, uint32_t id, const struct record_frame *frame)
{
	const char *file;
	struct symbol_answer answer;
	struct record_symbol_level level;

	if (id < s->python->told || id == CAPTURE_NONE || capture_segment(s->writer))
		return;
	s->python->told = (size_t)id + 1;
	answer = python_stacks_name(s->python, frame, &file);
	level = (struct record_symbol_level){
		.name = capture_string(s->writer, answer.levels->name),
		.file = capture_string(s->writer, answer.levels->file),
		.line = answer.levels->line,
		.column = answer.levels->column,
	};
	capture_symbol(s->writer, id, SYMBOL_OK, &level, 1);
}

bool python_stacks_has_name(const struct python_stacks *p, uint32_t frame)
{
	return frame < p->told;
}

static uint32_t push(struct session *s, uint32_t function, struct python_position position)
{
	struct python_stacks *p = s->python;
	struct record_frame record = {.kind = FRAME_PYTHON, .module = CAPTURE_NONE};
	uint32_t id;

	if (function < p->functions.len) {
		record.module = module_of(s, &p->functions.data[function]);
		record.address = (uint64_t)function << FUNCTION_SHIFT | (uint64_t)(position.line & LINE_MASK) << LINE_SHIFT |
			(position.column <= COLUMN_MASK ? position.column : 0);
	}
	id = capture_frame(s->writer, &record);
	if (function < p->functions.len)
		tell_name(s, id, &record);
	return id;
}

uint32_t python_stacks_push(struct session *s, const struct thread *th, const struct python_frame *frame)
{
	return push(s, function_of(s->python, th->process->python, frame->code), frame->position);
}

uint32_t python_stacks_told(struct session *s, const struct python_code *code, struct python_position position)
{
	return push(s, add_function(s->python, code), position);
}

struct symbol_answer python_stacks_name(
	struct python_stacks *p, const struct record_frame *frame, const char **ret_file)
{
	uint64_t function = frame->address >> FUNCTION_SHIFT;

	*ret_file = "";
	if (frame->module == CAPTURE_NONE || function >= p->functions.len)
		return (struct symbol_answer){.reason = SYMBOL_NOT_MAPPED};
	*ret_file = p->functions.data[function].file;
	p->level = (struct symbol_level){
		.name = p->functions.data[function].name,
		.file = *ret_file,
		.line = (uint32_t)(frame->address >> LINE_SHIFT) & LINE_MASK,
		.column = (uint32_t)frame->address & COLUMN_MASK,
	};
	return (struct symbol_answer){&p->level, 1, SYMBOL_OK};
}
