/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The guards of threads.
 *
 * What is in scope at an address is found once an address, whatever the number of threads in it, and most
 * addresses have no guard at all: only threads with one get their registers worked out frame by frame.
 *
 * A variable in scope need not be alive. Without optimisation DWARF has it in its place from the beginning of
 * the block, with whatever an earlier call has left there; so a guard that is declared below the line which
 * the frame is at does not count. One that Rust code has given away looks as before: to a condition variable's
 * wait, which is recognised, or to drop(), which is not.
 */
#include "wait/guards_priv.h"

#include <stdio.h>
#include <string.h>

#include "sample/runtime_library.h"

int guards_new(struct snapshot *s, struct guards **ret, struct err *err)
{
	struct guards *g = calloc(1, sizeof(*g));

	if (!g)
		return err_nomem(err);
	g->snapshot = s;
	*ret = g;
	return 0;
}

/* Frees what a table holds; `release` may be NULL. */
static void release_all(struct table *t, void (*release)(struct table_node *node))
{
	struct table_node *next;

	for (struct table_node *at = table_next(t, NULL); at; at = next) {
		next = table_next(t, at);
		if (release)
			release(at);
		free(at);
	}
	table_release(t);
}

static void release_module(struct table_node *node)
{
	variables_free(((struct guard_module *)node)->variables);
}

static void release_code(struct table_node *node)
{
	vec_release(&((struct guard_code *)node)->guards);
}

static void release_thread(struct table_node *node)
{
	vec_release(&((struct guard_thread *)node)->held);
	vec_release(&((struct guard_thread *)node)->lost);
}

static void release_process(struct table_node *node)
{
	vec_release(&((struct guard_process *)node)->places);
}

void guards_forget_threads(struct guards *g)
{
	release_all(&g->threads, release_thread);
	release_all(&g->processes, release_process);
}

void guards_free(struct guards *g)
{
	if (!g)
		return;
	release_all(&g->codes, release_code);
	guards_forget_threads(g);
	release_all(&g->types, NULL);
	release_all(&g->modules, release_module);
	free(g);
}

/* ---- code ---- */

/* Of the C and C++ libraries nothing but the names of globals is wanted: their guards guard themselves. */
static struct guard_module *module_of(struct guards *g, const struct snapshot_process *p,
	struct elf_file *file, bool symbols_only)
{
	struct guard_module *m = (struct guard_module *)table_find(&g->modules, (uintptr_t)file);
	char root[32];
	struct variables_options options = {
		.root = root,
		.debuginfod = snapshot_asked(g->snapshot)->debuginfod && !symbols_only,
		.symbols_only = symbols_only,
	};

	if (m)
		return m;
	source_root(p->source, p->pid, root, sizeof(root));
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->file = file;
	if (variables_new(file, &options, &m->variables, NULL) ||
		table_add(&g->modules, &m->node, (uintptr_t)file)) {
		variables_free(m->variables);
		free(m);
		return NULL;
	}
	return m;
}

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Where the frame is, in the function that the variable belongs to. */
static struct symbol_level level_of(
	struct guards *g, const struct variable *var, const struct snapshot_frame *frame)
{
	const struct live_name name = snapshot_name(g->snapshot, frame->id);

	if (var->depth >= name.answer.count)
		return (struct symbol_level){0};
	return name.answer.levels[name.answer.count - 1 - var->depth];
}

/* Whether the frame is at a line above the variable's declaration, so that it does not exist yet. */
static bool is_yet_to_come(
	struct variables *v, const struct variable *var, const struct symbol_level *level)
{
	const char *file;
	uint32_t line = variable_line(v, var, &file);

	return line && file && level->line && level->file && level->line < line &&
	       !strcmp(last_component(level->file), last_component(file));
}

/* Whether Rust's drop() gets a guard of this type before the frame's line. What it was given looks the same
 * afterwards. */
static bool may_be_dropped(
	struct variables *v, const struct variable *var, const struct symbol_level *level)
{
	const struct variable_call drop = {"drop<", var->type->name, "3mem4drop"};

	return strstr(var->type->name, "Guard<") &&
	       variable_called_since(v, var, &drop, level->line ? level->line : UINT32_MAX);
}

static bool is_condition_wait(const char *name)
{
	return (strstr(name, "ondvar") || strstr(name, "ondition") || strstr(name, "pthread_cond_")) &&
	       strstr(name, "wait");
}

/* Whether one of the functions that the frame stands for is one. Names cost more than all the rest here, so
 * only frames of threads with guards are asked for theirs; and waits that take a guard are not in the C
 * library. */
static bool waits_for_condition(
	struct guards *g, struct guard_code *code, const struct snapshot_frame *frame)
{
	struct live_name name;

	if (code->named || code->system)
		return code->waits;
	code->named = true;
	name = snapshot_name(g->snapshot, frame->id);
	for (size_t i = 0; i < name.answer.count; i++)
		code->waits |= is_condition_wait(name.answer.levels[i].name);
	return code->waits;
}

static void find_guards(
	struct guards *g, struct guard_code *code, const struct snapshot_frame *frame)
{
	struct variables *v = code->module->variables;
	const struct variable *vars;
	size_t count = variables_at(v, code->address, &vars);

	for (size_t i = 0; i < count; i++) {
		struct guard_variable found = {.variable = &vars[i]};
		struct symbol_level level;

		if (vars[i].type->kind != VARIABLE_STRUCT || !guard_name_is_guard(vars[i].type->name))
			continue;
		level = level_of(g, &vars[i], frame);
		if (is_yet_to_come(v, &vars[i], &level))
			continue;
		found.given = may_be_dropped(v, &vars[i], &level);
		found.type = guards_type(g, v, vars[i].type);
		found.waits = is_condition_wait(variable_function(v, &vars[i]));
		if (found.type && found.type->pointer_count)
			(void)vec_push(&code->guards, found);
	}
}

struct guard_code *guards_code(struct guards *g, const struct snapshot_thread *t, size_t frame)
{
	const struct snapshot_frame *f = &t->frames[frame];
	struct guard_code *code = (struct guard_code *)table_find(&g->codes, f->id);
	struct elf_file *file;

	if (code)
		return code;
	code = calloc(1, sizeof(*code));
	if (!code)
		return NULL;
	if (table_add(&g->codes, &code->node, f->id)) {
		free(code);
		return NULL;
	}
	file = snapshot_frame_file(g->snapshot, f->id);
	code->address = f->at.vaddr - f->at.is_return;
	code->system = !file || runtime_library(elf_file_name(file));
	code->module = file ? module_of(g, t->process, file, code->system) : NULL;
	if (code->module && !code->system)
		find_guards(g, code, f);
	return code;
}

static bool has_place(const struct guard_process *p, const struct guard_module *m, uint64_t bias)
{
	vec_each(&p->places, place)
		if (place->module == m && place->bias == bias)
			return true;
	return false;
}

const struct guard_process *guards_process(struct guards *g, struct snapshot_process *p)
{
	struct guard_process *known = (struct guard_process *)table_find(&g->processes, (uint64_t)p->pid);

	if (known)
		return known;
	known = calloc(1, sizeof(*known));
	if (!known || table_add(&g->processes, &known->node, (uint64_t)p->pid)) {
		free(known);
		return NULL;
	}
	snapshot_stacks(g->snapshot, p);
	vec_each(&p->threads, t) {
		for (size_t i = 0; i < (*t)->frame_count && i < GUARDS_MOST_FRAMES; i++) {
			const struct guard_code *code = guards_code(g, *t, i);
			uint64_t bias = (*t)->frames[i].at.pc - (*t)->frames[i].at.vaddr;

			if (code && code->module && !has_place(known, code->module, bias))
				(void)vec_push(&known->places, (struct guard_place){code->module, bias});
		}
	}
	return known;
}

/* ---- threads ---- */

static bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct guard_memory *m = ctx;

	return snapshot_read(m->snapshot, m->process, addr, buf, len);
}

struct variable_frame guards_frame(
	struct guard_memory *m, const struct snapshot_frame *frame, const struct unwind_regs *regs)
{
	return (struct variable_frame){
		.regs = regs,
		.cfa = frame->at.cfa,
		.bias = frame->at.pc - frame->at.vaddr,
		.read = read_memory,
		.ctx = m,
	};
}

enum guard_state {
	GUARD_HOLDS,
	GUARD_EMPTY, /* it has let go */
	GUARD_LOST,  /* not to be known */
};

/* What a guard's pointer is. */
static enum guard_state read_pointer(const struct guard_type *type, const struct guard_pointer *p,
	const struct variable_place *place, const struct variable_frame *frame, uint64_t *ret)
{
	uint8_t flag = 1;
	bool flag_known = !type->has_flag || variable_read(place, frame, type->flag_offset, &flag, 1);

	if (flag_known && flag != 1)
		return GUARD_EMPTY;
	if (!flag_known || !variable_read(place, frame, p->offset, ret, sizeof(*ret)))
		return GUARD_LOST;
	if (p->tagged && !(*ret & 1))
		return GUARD_EMPTY;
	if (p->tagged)
		*ret &= ~1ULL;
	return *ret ? GUARD_HOLDS : GUARD_EMPTY;
}

static void evaluate(struct guard_thread *ret, const struct guard_variable *guard,
	const struct variable_frame *frame, struct guard_held held)
{
	const struct guard_type *type = guard->type;
	struct variable_place place;

	held.variable = guard->variable;
	held.waits = guard->waits;
	held.unsure |= guard->given;
	if (!variable_place(held.module->variables, guard->variable, frame, &place))
		place.count = 0;
	for (size_t i = 0; i < type->pointer_count; i++) {
		held.target = type->pointers[i].target;
		switch (read_pointer(type, &type->pointers[i], &place, frame, &held.pointer)) {
		case GUARD_HOLDS:
			(void)vec_push(&ret->held, held);
			break;
		case GUARD_LOST:
			(void)vec_push(&ret->lost, held);
			break;
		case GUARD_EMPTY:
			break;
		}
	}
}

static void find_held(struct guards *g, struct snapshot_thread *t, struct guard_thread *ret, size_t count)
{
	struct guard_memory memory = {g->snapshot, t->process};
	struct unwind_regs *regs = calloc(count, sizeof(*regs));
	bool may_wait = false;

	if (regs)
		count = snapshot_frame_regs(g->snapshot, t, regs, count);
	for (size_t i = 0; regs && i < count; i++) {
		struct guard_code *code = guards_code(g, t, i);
		struct variable_frame frame = guards_frame(&memory, &t->frames[i], &regs[i]);

		if (!code)
			continue;
		may_wait |= waits_for_condition(g, code, &t->frames[i]);
		vec_each(&code->guards, guard) {
			struct guard_held held = {
				.frame = i, .module = code->module, .unsure = may_wait};

			evaluate(ret, guard, &frame, held);
		}
	}
	free(regs);
}

static const struct guard_thread *guards_of(struct guards *g, struct snapshot_thread *t)
{
	struct guard_thread *known = (struct guard_thread *)table_find(&g->threads, (uint64_t)t->look.tid);
	size_t count;
	bool any = false;

	if (known)
		return known;
	known = calloc(1, sizeof(*known));
	if (!known || table_add(&g->threads, &known->node, (uint64_t)t->look.tid)) {
		free(known);
		return NULL;
	}
	snapshot_stack(g->snapshot, t);
	count = t->frame_count < GUARDS_MOST_FRAMES ? t->frame_count : GUARDS_MOST_FRAMES;
	for (size_t i = 0; i < count; i++) {
		const struct guard_code *code = guards_code(g, t, i);

		any |= code && code->guards.len;
	}
	if (any)
		find_held(g, t, known, count);
	if (known->lost.len && !t->process->registers_read) {
		snapshot_registers(g->snapshot, t->process);
		known->held.len = known->lost.len = 0;
		find_held(g, t, known, count);
	}
	return known;
}

/* ---- holders ---- */

static bool is_waiter(pid_t tid, const pid_t *waiters, size_t count)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (waiters[mid] == tid)
			return true;
		if (waiters[mid] < tid)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

static void describe(
	const struct guard_held *held, struct snapshot_thread *t, struct guard_holder *ret)
{
	struct variables *v = held->module->variables;

	*ret = (struct guard_holder){
		.thread = t,
		.frame = held->frame,
		.grade = held->unsure ? WAIT_CANDIDATE : WAIT_INFERRED,
		.type = variable_type_name(v, held->variable->type),
		.variable = held->variable->name,
	};
	ret->line = variable_line(v, held->variable, &ret->file);
}

bool guards_taken(
	struct guards *g, struct snapshot_thread *t, uint64_t address, struct guard_holder *ret)
{
	const struct guard_thread *guards = guards_of(g, t);
	const struct guard_held *found = NULL;

	if (!guards)
		return false;
	vec_each(&guards->held, held) {
		if (!guard_leads_to(held->module->variables, held->target, held->pointer, address))
			continue;
		if (held->waits)
			return false; /* given back for the time of the wait */
		/* A parameter is where it was handed to. */
		if (!found || (found->unsure && !held->unsure) ||
			(found->unsure == held->unsure && found->variable->parameter &&
				!held->variable->parameter))
			found = held;
	}
	if (found)
		describe(found, t, ret);
	return found != NULL;
}

/* Guards of several threads at a time. */
static bool is_shared(const struct guard_holder *h)
{
	size_t len = strcspn(h->type, "<");

	for (size_t i = 0; i < len; i++)
		if (!strncmp(h->type + i, "Read", 4) || !strncmp(h->type + i, "shared", 6))
			return true;
	return false;
}

/* Only one thread can have what is not shared: who is sure to have it clears those who are not, and of several
 * who are sure nobody is. */
static size_t settle(struct guard_holder *h, size_t count)
{
	size_t sure = 0, exclusive = 0, kept = 0;

	for (size_t i = 0; i < count; i++) {
		sure += h[i].grade == WAIT_INFERRED;
		exclusive += h[i].grade == WAIT_INFERRED && !is_shared(&h[i]);
	}
	for (size_t i = 0; i < count; i++) {
		if (exclusive && sure > 1)
			h[i].grade = WAIT_CANDIDATE;
		else if (exclusive && h[i].grade == WAIT_CANDIDATE)
			continue;
		h[kept++] = h[i];
	}
	return kept;
}

size_t guards_holders(struct guards *g, struct snapshot_process *p, uint64_t address,
	const pid_t *waiters, size_t waiter_count, struct guard_holder *ret, size_t limit)
{
	size_t count = 0;

	snapshot_stacks(g->snapshot, p); /* much less than one after the other */
	vec_each(&p->threads, t) {
		if (count == limit)
			break;
		if (!is_waiter((*t)->look.tid, waiters, waiter_count))
			count += guards_taken(g, *t, address, &ret[count]);
	}
	return settle(ret, count);
}

/* ---- candidates ---- */

/* The function at the frame as a number: equal for equal functions. 0: it has no name. */
static uint64_t function_at(struct guards *g, const struct snapshot_frame *frame)
{
	const struct live_name name = snapshot_name(g->snapshot, frame->id);

	if (!name.module || !name.answer.count)
		return 0;
	return (uintptr_t)name.answer.levels[name.answer.count - 1].name;
}

/* The innermost function that is not of the C or C++ library. */
static uint64_t caller_of_lock(struct guards *g, const struct snapshot_thread *t)
{
	for (size_t i = 0; i < t->frame_count && i < GUARDS_MOST_FRAMES; i++) {
		const struct guard_code *code = guards_code(g, t, i);
		uint64_t function = code && !code->system ? function_at(g, &t->frames[i]) : 0;

		if (function)
			return function;
	}
	return 0;
}

static bool is_in_function(
	struct guards *g, struct snapshot_thread *t, uint64_t function, struct guard_holder *ret)
{
	snapshot_stack(g->snapshot, t);
	for (size_t i = 0; i < t->frame_count && i < GUARDS_MOST_FRAMES; i++) {
		if (function_at(g, &t->frames[i]) != function)
			continue;
		*ret = (struct guard_holder){.thread = t, .frame = i, .grade = WAIT_CANDIDATE};
		return true;
	}
	return false;
}

/* "<std::shared_mutex>" of std::shared_lock<std::shared_mutex>; "". */
static const char *arguments_of(const char *type)
{
	const char *at = strchr(type, '<');

	return at ? at : "";
}

/* Whether a guard is for locks of the type: std::shared_lock<std::shared_mutex> for std::shared_mutex,
 * RwLockReadGuard<T> for RwLock<T>. */
static bool fits(const char *guard, const char *lock)
{
	const char *arguments = arguments_of(guard);
	size_t len = strlen(lock);

	if (*arguments && !strcmp(arguments, arguments_of(lock)))
		return true;
	return *arguments && !strncmp(arguments + 1, lock, len) &&
	       (arguments[1 + len] == '>' || arguments[1 + len] == ',');
}

/* The thread has a guard of which all that is left is its type, and that fits. */
static bool has_lost_guard(
	struct guards *g, struct snapshot_thread *t, const char *lock_type, struct guard_holder *ret)
{
	const struct guard_thread *guards = guards_of(g, t);

	if (!guards)
		return false;
	vec_each(&guards->lost, lost) {
		if (lost->waits || lost->unsure || !fits(variable_type_name(lost->module->variables, lost->variable->type),
					   lock_type))
			continue;
		describe(lost, t, ret);
		ret->grade = WAIT_CANDIDATE;
		return true;
	}
	return false;
}

/* Those threads of the waiter's process of which one of the two says yes. */
static size_t candidates(struct guards *g, struct snapshot_thread *waiter, const char *lock_type,
	uint64_t function, const pid_t *waiters, size_t waiter_count, struct guard_holder *ret, size_t limit)
{
	size_t count = 0;

	vec_each(&waiter->process->threads, t) {
		if (count == limit)
			break;
		if (*t == waiter || is_waiter((*t)->look.tid, waiters, waiter_count))
			continue;
		count += lock_type ? has_lost_guard(g, *t, lock_type, &ret[count])
				   : is_in_function(g, *t, function, &ret[count]);
	}
	return count;
}

size_t guards_candidates(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	const pid_t *waiters, size_t waiter_count, struct guard_holder *ret, size_t limit)
{
	struct wait_lock_name name;
	uint64_t function;
	size_t count = 0;

	snapshot_stacks(g->snapshot, waiter->process);
	if (wait_lock_name(g, waiter, address, &name) && *name.type)
		count = candidates(g, waiter, name.type, 0, waiters, waiter_count, ret, limit);
	if (count)
		return count;
	function = caller_of_lock(g, waiter);
	return function ? candidates(g, waiter, NULL, function, waiters, waiter_count, ret, limit) : 0;
}
