/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a lock is called. In this order:
 *
 *	a global (or part of one), of a file that some stack of the process leads through
 *	a member of an object that a function on the waiter's stack works on: this, an argument, a local
 *	variable, or what these point at
 *	a local variable of a function on another thread's stack
 *	the variable by which a function on the waiter's stack knows it
 *
 * Functions and types of the lock's own library do not count: that a mutex is __m to its guard helps nobody.
 */
#include "wait/guards_priv.h"

#include <stdio.h>
#include <string.h>

/* More than any thread's stack has in use. */
#define MOST_STACK_BYTES (64u << 20)

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

static bool is_library_name(const char *qualified)
{
	static const char *const scopes[] = {"std::", "core::", "alloc::", "__gnu_cxx::", "boost::",
		"parking_lot", "lock_api::", "absl::", "__gthread", "pthread_", NULL};

	for (const char *const *scope = scopes; *scope; scope++)
		if (begins(qualified, *scope))
			return true;
	return false;
}

/* Cut where it does not fit. */
static void say(char *to, size_t size, const char *a, const char *b, const char *c)
{
	(void)(snprintf(to, size, "%s%s%s", a, b, c) >= (int)size);
}

/* ---- globals ---- */

static void name_global(struct guard_module *m, const struct variable_global *global,
	struct wait_lock_name *ret)
{
	struct variable_part part;
	struct buf path = {0};
	char offset[32] = "";

	ret->file = global->file;
	ret->line = global->line;
	if (global->type && guard_find_lock(m->variables, global->type, global->offset, &part, &path)) {
		say(ret->type, sizeof(ret->type), variable_type_name(m->variables, part.type), "", "");
		if (part.member)
			ret->line = variable_member_line(
				m->variables, part.holder, part.member, &ret->file);
	} else if (global->offset) {
		snprintf(offset, sizeof(offset), "+%llu", (unsigned long long)global->offset);
	}
	say(ret->name, sizeof(ret->name), global->name, path.data ? path.data : "", offset);
	buf_release(&path);
}

static bool in_segments(struct elf_file *file, uint64_t address)
{
	const struct elf_segment *segments;
	size_t count = elf_file_segments(file, &segments);

	for (size_t i = 0; i < count; i++)
		if (address - segments[i].vaddr < segments[i].mem_size)
			return true;
	return false;
}

/* True: the address is the file's, and *ret_found says whether it has a name. */
static bool is_of(struct guard_module *m, uint64_t bias, uint64_t address, struct wait_lock_name *ret,
	bool *ret_found)
{
	struct variable_global global;

	if (!in_segments(m->file, address - bias))
		return false;
	*ret_found = variables_global_at(m->variables, address - bias, &global);
	if (*ret_found)
		name_global(m, &global, ret);
	return true;
}

/* Whether a file is mapped there, or right before it: what begins as zeros has no bytes in the file. */
static bool is_beside_file(struct snapshot_process *p, uint64_t address)
{
	const struct snapshot_mapping *m = snapshot_mapping(p, address);
	const struct snapshot_mapping *before = m && !*m->path ? snapshot_mapping(p, m->start - 1) : NULL;

	return (m && *m->path == '/') || (before && *before->path == '/');
}

/* Mostly the waiter's own code uses it; all other stacks of the process are read only when there is need. */
static bool find_global(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	struct wait_lock_name *ret)
{
	const struct guard_process *known;
	bool found = false;

	if (!is_beside_file(waiter->process, address))
		return false;
	for (size_t i = 0; i < waiter->frame_count && i < GUARDS_MOST_FRAMES; i++) {
		const struct guard_code *code = guards_code(g, waiter, i);
		uint64_t bias = waiter->frames[i].at.pc - waiter->frames[i].at.vaddr;

		if (code && code->module && is_of(code->module, bias, address, ret, &found))
			return found;
	}
	known = guards_process(g, waiter->process);
	if (!known)
		return false;
	vec_each(&known->places, place)
		if (is_of(place->module, place->bias, address, ret, &found))
			return found;
	return false;
}

/* ---- variables ---- */

struct name_search {
	struct guards *g;
	uint64_t address;
	struct variables *v; /* of the frame that is looked at */
	const struct variable *variable;
	struct variable_frame frame;
	struct wait_lock_name *ret;
	bool objects_only;   /* what variables point at does not count */
	bool bare;           /* *ret is only the name of a variable */
};

static void name_member(struct name_search *s, const struct variable_part *part)
{
	say(s->ret->name, sizeof(s->ret->name), variable_type_name(s->v, part->holder),
		part->holder->qualified ? "::" : ".", part->member->name);
	say(s->ret->type, sizeof(s->ret->type), variable_type_name(s->v, part->type), "", "");
	s->ret->line = variable_member_line(s->v, part->holder, part->member, &s->ret->file);
}

static void name_variable(struct name_search *s, const struct variable_part *part)
{
	char where[128];

	say(where, sizeof(where), variable_function(s->v, s->variable), "()", "");
	say(s->ret->name, sizeof(s->ret->name), s->variable->name, " in ", where);
	say(s->ret->type, sizeof(s->ret->type), variable_type_name(s->v, part->type), "", "");
	s->ret->line = variable_line(s->v, s->variable, &s->ret->file);
	s->bare = true;
}

/* An object of the type stands at `start`. True: the name is found and no better one will be. */
static bool look_at_object(struct name_search *s, const struct variable_type *t, uint64_t start)
{
	struct variable_part part;

	if (!t || !start || s->address - start >= t->size ||
		!guard_find_lock(s->v, t, s->address - start, &part, NULL) ||
		is_library_name(variable_function(s->v, s->variable)))
		return false;
	if (part.member && !is_library_name(variable_type_name(s->v, part.holder))) {
		name_member(s, &part);
		return true;
	}
	if (!s->bare && *s->variable->name && strcmp(s->variable->name, "this"))
		name_variable(s, &part);
	return false;
}

/* Smart pointers and the like: what the pointers in it lead to. */
static bool look_behind(struct name_search *s, const struct variable_place *place)
{
	const struct guard_type *type = guards_type(s->g, s->v, s->variable->type);
	uint64_t pointer;

	if (!type || type->is_guard)
		return false;
	for (size_t i = 0; i < type->pointer_count; i++) {
		const struct guard_pointer *p = &type->pointers[i];

		if (p->target && p->target->kind == VARIABLE_STRUCT &&
			variable_read(place, &s->frame, p->offset, &pointer, sizeof(pointer)) &&
			look_at_object(s, p->target, pointer))
			return true;
	}
	return false;
}

static bool look_at_variable(struct name_search *s)
{
	const struct variable_type *t = s->variable->type;
	struct variable_place place;
	uint64_t start;

	if (t->kind == VARIABLE_PLAIN || !variable_place(s->v, s->variable, &s->frame, &place))
		return false;
	if (t->kind == VARIABLE_POINTER)
		return !s->objects_only && variable_read(&place, &s->frame, 0, &start, sizeof(start)) &&
		       look_at_object(s, variable_target(s->v, t), start);
	if (variable_address(&place, &start) && look_at_object(s, t, start))
		return true;
	return !s->objects_only && t->kind == VARIABLE_STRUCT && look_behind(s, &place);
}

static bool look_at_frame(struct name_search *s, const struct snapshot_thread *t, size_t frame)
{
	const struct guard_code *code = guards_code(s->g, t, frame);
	const struct variable *vars;
	size_t count;

	if (!code || !code->module || code->system)
		return false;
	s->v = code->module->variables;
	count = variables_at(s->v, code->address, &vars);
	/* What is innermost comes last, and is nearest to the lock. */
	while (count--) {
		s->variable = &vars[count];
		if (look_at_variable(s))
			return true;
	}
	return false;
}

/* Frames [from, to) of the thread, leaf first. */
static bool look_at_frames(
	struct name_search *s, struct snapshot_thread *t, size_t from, size_t to)
{
	struct guard_memory memory = {s->g->snapshot, t->process};
	struct unwind_regs *regs = calloc(to, sizeof(*regs));
	bool found = false;

	if (!regs)
		return false;
	to = snapshot_frame_regs(s->g->snapshot, t, regs, to);
	for (size_t i = from; i < to && !found; i++) {
		s->frame = guards_frame(&memory, &t->frames[i], &regs[i]);
		found = look_at_frame(s, t, i);
	}
	free(regs);
	return found;
}

static bool look_at_thread(struct name_search *s, struct snapshot_thread *t)
{
	size_t count = t->frame_count < GUARDS_MOST_FRAMES ? t->frame_count : GUARDS_MOST_FRAMES;

	return count && look_at_frames(s, t, 0, count);
}

/* The thread on whose stack the address is, if it is on any: stacks begin below, and nearest is the own one. */
static struct snapshot_thread *owner_of_stack(struct snapshot_process *p, uint64_t address)
{
	struct snapshot_thread *best = NULL;

	vec_each(&p->threads, it) {
		uint64_t sp = (*it)->look.wait.sp;

		if ((*it)->look.wait.blocked && sp && sp <= address && address - sp < MOST_STACK_BYTES &&
			(!best || sp > best->look.wait.sp))
			best = *it;
	}
	return best;
}

/* The frame whose part of the stack the lock is in. */
static bool look_at_owner_of_stack(struct name_search *s, struct snapshot_process *p)
{
	struct snapshot_thread *t = owner_of_stack(p, s->address);
	uint64_t below;

	if (!t)
		return false;
	snapshot_stack(s->g->snapshot, t);
	below = t->look.wait.sp;
	for (size_t i = 0; i < t->frame_count && i < GUARDS_MOST_FRAMES; i++) {
		uint64_t cfa = t->frames[i].at.cfa;

		if (cfa <= below)
			return false;
		if (s->address >= below && s->address < cfa)
			return look_at_frames(s, t, i, i + 1);
		below = cfa;
	}
	return false;
}

static bool look_in_variables(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	struct wait_lock_name *ret)
{
	struct wait_lock_name known = {0}, on_stack = {0};
	struct name_search by_waiter = {.g = g, .address = address, .ret = &known};
	struct name_search by_stack = {.g = g, .address = address, .ret = &on_stack, .objects_only = true};

	if (look_at_thread(&by_waiter, waiter)) {
		*ret = known;
		return true;
	}
	if (look_at_owner_of_stack(&by_stack, waiter->process) || by_stack.bare) {
		*ret = on_stack;
		return true;
	}
	if (by_waiter.bare)
		*ret = known;
	return false;
}

bool wait_lock_name(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	struct wait_lock_name *ret)
{
	struct wait_lock_name known = {0};

	snapshot_stack(g->snapshot, waiter);
	if (find_global(g, waiter, address, &known) ||
		look_in_variables(g, waiter, address, &known)) {
		*ret = known;
		return true;
	}
	if (!waiter->process->registers_read) {
		snapshot_registers(g->snapshot, waiter->process);
		(void)look_in_variables(g, waiter, address, &known);
	}
	if (*known.name)
		*ret = known;
	return *known.name;
}
