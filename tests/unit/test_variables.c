/* SPDX-License-Identifier: BSD-2-Clause */
/* Variables of fixtures/vars.cpp, which is loaded here and looked at in the middle of a call. */
#include "symbol_fixtures.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include "elf/elf_file.h"
#include "symbol/variables.h"

/* What the caller of capture_here() had in its registers. */
struct captured {
	uint64_t rbx, rbp, rsp, r12, r13, r14, r15, pc;
};
extern struct captured captured;
struct captured captured;
void capture_here(void);

#ifdef __x86_64__
__asm__(".text\n"
	".globl capture_here\n"
	".type capture_here, @function\n"
	"capture_here:\n"
	"	mov captured@GOTPCREL(%rip), %rax\n"
	"	mov %rbx, 0(%rax)\n"
	"	mov %rbp, 8(%rax)\n"
	"	lea 8(%rsp), %rcx\n"
	"	mov %rcx, 16(%rax)\n"
	"	mov %r12, 24(%rax)\n"
	"	mov %r13, 32(%rax)\n"
	"	mov %r14, 40(%rax)\n"
	"	mov %r15, 48(%rax)\n"
	"	mov (%rsp), %rcx\n"
	"	mov %rcx, 56(%rax)\n"
	"	ret\n"
	".size capture_here, . - capture_here\n");
#else
void capture_here(void)
{
}
#endif

struct world {
	void *library;
	struct elf_file *file;
	struct variables *variables;
	struct unwind_regs regs;
	struct variable_frame frame;
	uint64_t pc; /* in the file, of the call */
	uint8_t *object;
};

static bool read_own(void *ctx, uint64_t addr, void *buf, size_t len)
{
	memcpy(buf, (const void *)(uintptr_t)addr, len);
	return true;
}

static void set_reg(struct unwind_regs *r, unsigned reg, uint64_t value)
{
	r->value[reg] = value;
	r->known |= 1ULL << reg;
}

static bool open_file(struct world *w, const char *name)
{
	struct variables_options options = {.root = ""};
	struct err err = {0};
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", FIXTURES, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (elf_file_open_fd(fd, path, &w->file, &err) ||
		variables_new(w->file, &options, &w->variables, &err)) {
		printf("%s: %s\n", path, err.text);
		exit(1);
	}
	return true;
}

/* Runs vars_run(7) of the library up to the call in inlined(). */
static bool stop_in(struct world *w, const char *name)
{
	struct link_map *map;
	char path[512];

	*w = (struct world){0};
#ifndef __x86_64__
	skip("the registers are those of x86-64");
	return false;
#endif
	if (!open_file(w, name)) {
		skip("there is no compiler for it");
		return false;
	}
	snprintf(path, sizeof(path), "%s/%s", FIXTURES, name);
	w->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	check(w->library != NULL);
	if (!w->library)
		return false;
	dlinfo(w->library, RTLD_DI_LINKMAP, &map);
	int (*go)(int, void (*)(void)) = (int (*)(int, void (*)(void)))dlsym(w->library, "vars_run");
	w->object = dlsym(w->library, "vars_object");
	*(int *)w->object = 77;
	go(7, capture_here);
	set_reg(&w->regs, 3, captured.rbx);
	set_reg(&w->regs, 6, captured.rbp);
	set_reg(&w->regs, 7, captured.rsp);
	w->pc = captured.pc - map->l_addr - 1;
	w->frame = (struct variable_frame){&w->regs, captured.rbp + 16, map->l_addr, read_own, NULL};
	return true;
}

static void leave(struct world *w)
{
	variables_free(w->variables);
	elf_file_free(w->file);
	if (w->library)
		dlclose(w->library);
}

static const struct variable *find(struct world *w, const char *name)
{
	const struct variable *vars;
	size_t count = variables_at(w->variables, w->pc, &vars);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(vars[i].name, name))
			return &vars[i];
	return NULL;
}

/* The stack below the frame has been used again since, but not the frame of get(), which is gone too: so
 * places are checked, and values only where they still stand. */
static uint64_t place_of(struct world *w, const char *name)
{
	const struct variable *var = find(w, name);
	struct variable_place place;
	uint64_t at = 0;

	check(var != NULL);
	if (var && variable_place(w->variables, var, &w->frame, &place))
		check(variable_address(&place, &at));
	return at;
}

static bool ends_with(const char *text, const char *end)
{
	size_t a = text ? strlen(text) : 0, b = strlen(end);

	return a >= b && !strcmp(text + a - b, end);
}

static bool is_lock(void *ctx, const struct variable_type *t)
{
	return !strcmp(t->name, "Lock");
}

static void check_scopes(struct world *w)
{
	const struct variable *var = find(w, "box");
	const char *file;

	check(find(w, "not_in_scope") == NULL);
	check(var && var->depth == 0 && !var->parameter);
	if (var) {
		check_u64(variable_line(w->variables, var, &file), 36);
		check(ends_with(file, "/vars.cpp"));
		check_str(variable_type_name(w->variables, var->type), "app::Box<app::Cache>");
		check_str(variable_function(w->variables, var), "app::Cache::get");
	}
	var = find(w, "twice");
	check(var && var->depth == 1 && var->parameter);
	if (var)
		check_str(variable_function(w->variables, var), "inlined");
	check(find(w, "inner") != NULL);
}

static void check_places(struct world *w)
{
	uint64_t box = place_of(w, "box"), later = place_of(w, "later"), self = place_of(w, "this");

	check(box > captured.rsp && box < w->frame.cfa);
	check(later > captured.rsp && later < w->frame.cfa && later != box);
	check(self > captured.rsp && self < w->frame.cfa && self != box);
	check(place_of(w, "sum") != place_of(w, "inner"));
}

/* "this" leads to the object, and 0x2c bytes in there is what the source calls rw. */
static void check_parts(struct world *w)
{
	const struct variable *self = find(w, "this");
	const struct variable_type *t = self ? variable_target(w->variables, self->type) : NULL;
	struct variable_part part;
	struct buf path = {0};
	const char *file;

	check(t && t->kind == VARIABLE_STRUCT && !strcmp(t->name, "Cache"));
	if (!t)
		return;
	check(variable_find_part(w->variables, t, 28, is_lock, NULL, &part, &path));
	check_str(path.data, ".rw");
	check_str(variable_type_name(w->variables, part.holder), "app::Cache");
	check_u64(variable_member_line(w->variables, part.holder, part.member, &file), 10);
	buf_clear(&path);
	check(variable_find_part(w->variables, t, 5, is_lock, NULL, &part, &path));
	check_str(path.data, ".base_lock");
	check_str(part.holder->name, "Base");
	check_u64(part.offset, 4);
	buf_clear(&path);
	/* pairs at 32, the union at 64, shards of 8 bytes at 68. */
	check(variable_find_part(w->variables, t, 68 + 8 + 6, is_lock, NULL, &part, &path));
	check_str(path.data, ".shards[1].lock");
	check(!variable_find_part(w->variables, t, 40, is_lock, NULL, &part, NULL));
	check(!variable_find_part(w->variables, t, 1 << 20, is_lock, NULL, &part, NULL));
	buf_release(&path);
}

/* get() calls drop(box) in its own scope, before the block that inner stands in. */
static void check_calls(struct world *w)
{
	const struct variable_call dropped = {"drop<", "Box<", "4drop"};
	const struct variable_call other = {"drop<", "Shard", "4drop"};
	const struct variable_call unheard = {"leave<", "", "5leave"};
	const struct variable *box = find(w, "box"), *inner = find(w, "inner");

	check(box && variable_called_since(w->variables, box, &dropped, 100));
	check(box && !variable_called_since(w->variables, box, &other, 100));
	check(box && !variable_called_since(w->variables, box, &unheard, 100));
	check(inner && !variable_called_since(w->variables, inner, &dropped, 100));
}

/* inlined() is called by that name in the block of inner. */
static void check_inlined_calls(struct world *w)
{
	const struct variable_call inlined = {"inlined", "", "nothing"};
	const struct variable *box = find(w, "box");

	check(box && variable_called_since(w->variables, box, &inlined, 41));
	check(box && !variable_called_since(w->variables, box, &inlined, 40));
}

static void check_typedef(struct world *w)
{
	const struct variable *self = find(w, "this");
	const struct variable_type *t = self ? variable_target(w->variables, self->type) : NULL;
	const struct variable_member *m;
	size_t count = t ? variable_members(w->variables, t, &m) : 0;
	bool seen = false;

	for (size_t i = 0; i < count; i++) {
		check(strcmp(m[i].name, "shared") != 0);
		if (strcmp(m[i].name, "pairs"))
			continue;
		seen = true;
		check(m[i].type->kind == VARIABLE_ARRAY);
		check_u64(m[i].type->size, 32);
		check_str(variable_target(w->variables, m[i].type)->name, "pair_t");
	}
	check(seen);
}

static void check_global(struct world *w, const char *symbol, const char *name, uint32_t line)
{
	struct variable_global g;
	uint64_t address = (uint64_t)(uintptr_t)dlsym(w->library, symbol) - w->frame.bias;

	check(variables_global_at(w->variables, address + 1, &g));
	check_str(g.name, name);
	check_u64(g.offset, 1);
	/* clang tells of the declaration in the class alone. */
	check_u64(g.line == 14 ? 17 : g.line, line);
	check(!line || (g.type && ends_with(g.file, "/vars.cpp")));
}

static void check_all(const char *name)
{
	struct world w;

	if (stop_in(&w, name)) {
		check_scopes(&w);
		check_places(&w);
		check_parts(&w);
		check_typedef(&w);
		check_calls(&w);
		check_inlined_calls(&w);
		check_global(&w, "vars_object", "vars_object", 51);
		check_global(&w, "_ZN3app5Cache6sharedE", "app::Cache::shared", 17);
	}
	leave(&w);
}

TEST(in_scope)
{
	check_all("vars.so");
}

TEST(in_scope_dwarf4)
{
	check_all("vars-dwarf4.so");
}

TEST(in_scope_type_units)
{
	check_all("vars-types.so");
}

TEST(in_scope_split)
{
	check_all("vars-split/vars.so");
}

TEST(in_scope_debug_file)
{
	check_all("vars-link/vars.so");
}

TEST(in_scope_clang)
{
	check_all("vars-clang.so");
}

/* Symbols of the dynamic table are all there is. */
TEST(stripped)
{
	const struct variable *vars;
	struct world w;

	if (stop_in(&w, "vars-stripped.so")) {
		check_u64(variables_at(w.variables, w.pc, &vars), 0);
		check_global(&w, "vars_object", "vars_object", 0);
		check_global(&w, "_ZN3app5Cache6sharedE", "app::Cache::shared", 0);
	}
	leave(&w);
}

TEST(unknown_registers)
{
	struct variable_place place;
	struct world w;

	if (stop_in(&w, "vars.so")) {
		w.frame.cfa = 0;
		w.regs.known = 0;
		check(!variable_place(w.variables, find(&w, "box"), &w.frame, &place));
	}
	leave(&w);
}

TEST(pieces)
{
	struct variable_place place = {.count = 3};
	const struct variable_frame frame = {.read = read_own};
	static const uint8_t constant[] = {9, 8};
	uint64_t memory = 0x1122334455667788, got = 0;

	place.pieces[0] = (struct variable_piece){VARIABLE_VALUE, 8, 0x0102030405060708, NULL};
	place.pieces[1] = (struct variable_piece){VARIABLE_MEMORY, 4, (uintptr_t)&memory, NULL};
	place.pieces[2] = (struct variable_piece){VARIABLE_BYTES, 2, 0, constant};
	check(variable_read(&place, &frame, 0, &got, 8));
	check_u64(got, 0x0102030405060708);
	got = 0;
	check(variable_read(&place, &frame, 6, &got, 4)); /* over the edge */
	check_u64(got, 0x77880102);
	got = 0;
	check(variable_read(&place, &frame, 12, &got, 2));
	check_u64(got, 0x0809);
	check(!variable_read(&place, &frame, 12, &got, 3));
	place.pieces[1].at = VARIABLE_LOST;
	check(!variable_read(&place, &frame, 6, &got, 4));
	check(variable_read(&place, &frame, 4, &got, 4));
	check(!variable_address(&place, &got));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(in_scope), T(in_scope_dwarf4), T(in_scope_type_units),
		T(in_scope_split), T(in_scope_debug_file), T(in_scope_clang), T(stripped),
		T(unknown_registers), T(pieces));
}
