/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Types: read when they are first met, kept by the DIE that named them.
 *
 * A type may lead back to itself in any way a file likes. So nothing here recurses over types but
 * variable_find_part(), which counts its steps; sizes are the file's word and only compared, never allocated.
 */
#include "symbol/variables_priv.h"

#include <string.h>

#define MAX_TYPES (1u << 20)
#define MAX_PEEL 32
#define MAX_NESTED_ARRAYS 16
#define MAX_MEMBERS 4096u
#define MAX_SCOPES 16
#define MAX_SIBLINGS (1u << 22)
#define MAX_PART_STEPS 4096u
#define MAX_PART_DEPTH 24

bool variables_follow(Dwarf_Die *die, unsigned attribute)
{
	Dwarf_Attribute attr;
	Dwarf_Die target;

	if (!dwarf_attr(die, attribute, &attr) || !dwarf_formref_die(&attr, &target))
		return false;
	*die = target;
	return true;
}

const char *variables_die_name(Dwarf_Die *die)
{
	Dwarf_Attribute attr;
	const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &attr));

	return name ? name : "";
}

/* dwarf_decl_file() takes it for granted that there are files. The number counts in the unit of the DIE that
 * has the attribute. */
static const char *die_file(Dwarf_Die *die)
{
	Dwarf_Attribute attr;
	Dwarf_Files *files;
	Dwarf_Die unit;
	Dwarf_Word index;
	size_t count;

	if (!dwarf_attr_integrate(die, DW_AT_decl_file, &attr) || dwarf_formudata(&attr, &index) ||
		!dwarf_cu_die(attr.cu, &unit, NULL, NULL, NULL, NULL, NULL, NULL) ||
		dwarf_getsrcfiles(&unit, &files, &count) || index >= count)
		return NULL;
	return dwarf_filesrc(files, index, NULL, NULL);
}

uint32_t variables_die_line(Dwarf_Die *die, const char **ret_file)
{
	int line;

	*ret_file = die_file(die);
	return !dwarf_decl_line(die, &line) && line > 0 ? (uint32_t)line : 0;
}

bool variables_number(Dwarf_Die *die, unsigned attribute, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;

	if (dwarf_formudata(dwarf_attr_integrate(die, attribute, &attr), &value))
		return false;
	*ret = value;
	return true;
}

/* ---- names ---- */

/* The DIEs around one, outermost first, without the unit. Children follow their parent in the file, so it
 * is below the last sibling that does not come after it. */
static size_t scopes_around(Dwarf_Die *die, Dwarf_Die *chain, size_t max)
{
	Dwarf_Off wanted = dwarf_dieoffset(die);
	Dwarf_Die at, next;
	size_t count = 0, steps = 0;

	if (!dwarf_diecu(die, &at, NULL, NULL))
		return 0;
	while (count < max && !dwarf_child(&at, &at)) {
		next = at;
		while (dwarf_next_sibling(&next) && dwarf_dieoffset(&next) <= wanted &&
			steps++ < MAX_SIBLINGS)
			at = next;
		if (dwarf_dieoffset(&at) >= wanted)
			break;
		chain[count++] = at;
	}
	return count;
}

static bool is_scope(int tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
		return true;
	default:
		return false;
	}
}

/* An inline namespace (DW_AT_export_symbols) is not written: std::mutex, not std::__1::mutex. */
static void add_scope(struct buf *text, Dwarf_Die *scope)
{
	const char *name = dwarf_diename(scope);

	if (dwarf_tag(scope) == DW_TAG_namespace && dwarf_hasattr(scope, DW_AT_export_symbols) && name)
		return;
	buf_str(text, name ? name : "(anonymous)");
	buf_str(text, "::");
}

const char *variables_full_name(struct variables *v, Dwarf_Die die, const char *name, bool *in_function)
{
	Dwarf_Die chain[MAX_SCOPES], unit;
	struct buf text = {0};
	size_t count;

	*in_function = false;
	for (int i = 0; i < MAX_PEEL && (variables_follow(&die, DW_AT_abstract_origin) ||
						variables_follow(&die, DW_AT_specification)); i++)
		;
	if (!*name || !dwarf_diecu(&die, &unit, NULL, NULL))
		return variables_keep(v, name);
	count = scopes_around(&die, chain, MAX_SCOPES);
	for (size_t i = 0; i < count; i++) {
		if (is_scope(dwarf_tag(&chain[i])) && dwarf_has_namespaces(&unit))
			add_scope(&text, &chain[i]);
		*in_function |= dwarf_tag(&chain[i]) == DW_TAG_subprogram;
	}
	buf_str(&text, name);
	name = text.failed ? "" : variables_keep(v, text.data);
	buf_release(&text);
	return name;
}

/* ---- types ---- */

/* Sees through typedefs and qualifiers, and from a declaration to the type unit that has it. Gives the
 * typedef nearest to the type itself. False: void, or a circle. */
static bool peel(Dwarf_Die *die, Dwarf_Die *ret_typedef)
{
	ret_typedef->addr = NULL;
	for (int i = 0; i < MAX_PEEL; i++) {
		switch (dwarf_tag(die)) {
		case DW_TAG_typedef:
			*ret_typedef = *die;
			break;
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
			break;
		default:
			if (!dwarf_hasattr(die, DW_AT_signature) ||
				!variables_follow(die, DW_AT_signature))
				return true;
			continue;
		}
		if (!variables_follow(die, DW_AT_type))
			return false;
	}
	return false;
}

static enum variable_kind kind_of(int tag)
{
	switch (tag) {
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		return VARIABLE_POINTER;
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		return VARIABLE_STRUCT;
	case DW_TAG_array_type:
		return VARIABLE_ARRAY;
	default:
		return VARIABLE_PLAIN;
	}
}

/* Of an array: how many elements, all dimensions together; 0: not known. */
static uint64_t element_count(Dwarf_Die *array)
{
	uint64_t count = 1, n;
	bool any = false;
	Dwarf_Die die;

	if (dwarf_child(array, &die))
		return 0;
	for (int i = 0; i < MAX_PEEL; i++) {
		if (dwarf_tag(&die) == DW_TAG_subrange_type) {
			if (!variables_number(&die, DW_AT_count, &n)) {
				if (!variables_number(&die, DW_AT_upper_bound, &n) || n == UINT64_MAX)
					return 0;
				n++;
			}
			if (__builtin_mul_overflow(count, n, &count))
				return 0;
			any = true;
		}
		if (!dwarf_next_sibling(&die))
			break;
	}
	return any ? count : 0;
}

static uint64_t size_of(struct variables *v, struct type_node *t)
{
	const struct variable_type *element;
	uint64_t size;

	if (variables_number(&t->die, DW_AT_byte_size, &size))
		return size;
	if (t->shown.kind == VARIABLE_POINTER)
		return 8;
	if (t->shown.kind != VARIABLE_ARRAY)
		return 0;
	/* Arrays of arrays are mostly one DIE, but for those behind a typedef. */
	if (v->nested_arrays == MAX_NESTED_ARRAYS)
		return 0;
	v->nested_arrays++;
	element = variable_target(v, &t->shown);
	v->nested_arrays--;
	if (!element || __builtin_mul_overflow(element->size, element_count(&t->die), &size))
		return 0;
	return size;
}

/* By the typedef that led here. g++ also says in the mangled name which one that is. */
static void name_anonymous(struct variables *v, struct type_node *t, Dwarf_Die *alias)
{
	Dwarf_Attribute attr;
	const char *mangled = dwarf_formstring(dwarf_attr(&t->die, DW_AT_linkage_name, &attr));
	struct buf text = {0};
	bool in_function;

	if (alias->addr) {
		t->shown.name = variables_die_name(alias);
		t->full_name = variables_full_name(v, *alias, t->shown.name, &in_function);
		return;
	}
	buf_printf(&text, "_Z%s", mangled ? mangled : "");
	char *plain = mangled && !text.failed ? symbol_demangle(text.data) : NULL;
	if (plain && strcmp(plain, text.data)) {
		t->full_name = variables_keep(v, plain);
		const char *last = strrchr(t->full_name, ':');
		t->shown.name = last ? last + 1 : t->full_name;
	}
	free(plain);
	buf_release(&text);
}

static struct type_node *read_type(struct variables *v, Dwarf_Die named)
{
	struct type_node *t;
	Dwarf_Die die = named, alias, unit;

	if (!peel(&die, &alias) || v->type_list.len >= MAX_TYPES)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t || vec_push(&v->type_list, t)) {
		free(t);
		return NULL;
	}
	t->die = die;
	t->shown.kind = kind_of(dwarf_tag(&die));
	t->shown.declared_only = dwarf_hasattr(&die, DW_AT_declaration);
	t->shown.qualified = dwarf_diecu(&die, &unit, NULL, NULL) && dwarf_has_namespaces(&unit);
	t->shown.name = variables_die_name(&die);
	if (!*t->shown.name && t->shown.kind == VARIABLE_STRUCT)
		name_anonymous(v, t, &alias);
	(void)number_map_put(&v->types, (uintptr_t)named.addr, (uintptr_t)t);
	t->shown.size = size_of(v, t);
	return t;
}

const struct variable_type *variables_type_of(struct variables *v, Dwarf_Die *die)
{
	Dwarf_Attribute attr;
	Dwarf_Die named;

	if (!dwarf_attr_integrate(die, DW_AT_type, &attr) || !dwarf_formref_die(&attr, &named))
		return NULL;

	uint64_t known = number_map_get(&v->types, (uintptr_t)named.addr);
	struct type_node *t = known ? (struct type_node *)(uintptr_t)known : read_type(v, named);

	return t ? &t->shown : NULL;
}

const struct variable_type *variable_target(struct variables *v, const struct variable_type *shown)
{
	struct type_node *t = (struct type_node *)shown;

	if (t->shown.kind != VARIABLE_POINTER && t->shown.kind != VARIABLE_ARRAY)
		return NULL;
	if (!t->target_read) {
		t->target_read = true;
		t->target = variables_type_of(v, &t->die);
	}
	return t->target;
}

const char *variable_type_name(struct variables *v, const struct variable_type *shown)
{
	struct type_node *t = (struct type_node *)shown;
	bool in_function;

	if (!t->full_name)
		t->full_name = variables_full_name(v, t->die, t->shown.name, &in_function);
	return t->full_name;
}

/* ---- members ---- */

/* A constant, or as DWARF 2 wrote it, an expression that adds one. */
static bool member_offset(Dwarf_Die *die, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Op *ops;
	size_t count;

	*ret = 0;
	if (!dwarf_attr(die, DW_AT_data_member_location, &attr))
		return true; /* of a union */
	if (variables_number(die, DW_AT_data_member_location, ret))
		return true;
	if (dwarf_getlocation(&attr, &ops, &count) || count != 1 || ops[0].atom != DW_OP_plus_uconst)
		return false;
	*ret = ops[0].number;
	return true;
}

static void add_member(struct variables *v, struct type_node *t, Dwarf_Die *die)
{
	struct variable_member m = {.base = dwarf_tag(die) == DW_TAG_inheritance};

	if (dwarf_hasattr(die, DW_AT_external) || dwarf_hasattr(die, DW_AT_declaration) ||
		dwarf_hasattr(die, DW_AT_bit_size) || !member_offset(die, &m.offset))
		return;
	m.type = variables_type_of(v, die);
	m.name = m.base ? "" : variables_die_name(die);
	if (!m.type || vec_push(&t->member_dies, *die))
		return;
	if (vec_push(&t->members, m))
		t->member_dies.len--;
}

static void read_members(struct variables *v, struct type_node *t)
{
	Dwarf_Die die;

	t->members_read = true;
	if (t->shown.kind != VARIABLE_STRUCT || dwarf_child(&t->die, &die))
		return;
	do {
		int tag = dwarf_tag(&die);

		if (tag == DW_TAG_member || tag == DW_TAG_inheritance)
			add_member(v, t, &die);
	} while (t->members.len < MAX_MEMBERS && dwarf_next_sibling(&die));
}

size_t variable_members(
	struct variables *v, const struct variable_type *shown, const struct variable_member **ret)
{
	struct type_node *t = (struct type_node *)shown;

	if (!t->members_read)
		read_members(v, t);
	*ret = t->members.data;
	return t->members.len;
}

uint32_t variable_member_line(struct variables *v, const struct variable_type *shown,
	const struct variable_member *m, const char **ret_file)
{
	struct type_node *t = (struct type_node *)shown;
	Dwarf_Die die = t->member_dies.data[m - t->members.data];

	return variables_die_line(&die, ret_file);
}

/* ---- parts ---- */

struct part_search {
	struct variables *v;
	bool (*stop)(void *ctx, const struct variable_type *t);
	void *ctx;
	struct variable_part *ret;
	struct buf *path;
	unsigned steps;
};

static bool find_part(
	struct part_search *s, const struct variable_type *t, uint64_t offset, uint64_t at, int depth);

static void cut_path(struct part_search *s, size_t len)
{
	if (!s->path || !s->path->data || s->path->len <= len)
		return;
	s->path->len = len;
	s->path->data[len] = '\0';
}

static bool find_in_struct(
	struct part_search *s, const struct variable_type *t, uint64_t offset, uint64_t at, int depth)
{
	const struct variable_type *holder = s->ret->holder;
	const struct variable_member *member = s->ret->member, *members;
	size_t len = s->path ? s->path->len : 0, count = variable_members(s->v, t, &members);

	for (size_t i = 0; i < count; i++) {
		const struct variable_member *m = &members[i];

		if (offset < m->offset || offset - m->offset >= m->type->size)
			continue;
		if (*m->name) {
			s->ret->holder = t;
			s->ret->member = m;
			if (s->path)
				buf_printf(s->path, ".%s", m->name);
		}
		if (find_part(s, m->type, offset - m->offset, at + m->offset, depth + 1))
			return true;
		s->ret->holder = holder;
		s->ret->member = member;
		cut_path(s, len);
	}
	return false;
}

static bool find_in_array(
	struct part_search *s, const struct variable_type *t, uint64_t offset, uint64_t at, int depth)
{
	const struct variable_type *element = variable_target(s->v, t);
	size_t len = s->path ? s->path->len : 0;

	if (!element || !element->size)
		return false;
	if (s->path)
		buf_printf(s->path, "[%llu]", (unsigned long long)(offset / element->size));
	if (find_part(s, element, offset % element->size, at + offset - offset % element->size, depth + 1))
		return true;
	cut_path(s, len);
	return false;
}

static bool find_part(
	struct part_search *s, const struct variable_type *t, uint64_t offset, uint64_t at, int depth)
{
	if (s->steps++ > MAX_PART_STEPS || depth > MAX_PART_DEPTH)
		return false;
	if (offset < t->size && s->stop(s->ctx, t)) {
		s->ret->type = t;
		s->ret->offset = at;
		return true;
	}
	if (t->kind == VARIABLE_STRUCT)
		return find_in_struct(s, t, offset, at, depth);
	return t->kind == VARIABLE_ARRAY && find_in_array(s, t, offset, at, depth);
}

bool variable_find_part(struct variables *v, const struct variable_type *t, uint64_t offset,
	bool (*stop)(void *ctx, const struct variable_type *t), void *ctx, struct variable_part *ret,
	struct buf *path)
{
	struct variable_part part = {0};
	struct part_search s = {v, stop, ctx, &part, path, 0};

	if (!find_part(&s, t, offset, 0, 0))
		return false;
	*ret = part;
	return true;
}

void variables_release_types(struct variables *v)
{
	vec_each(&v->type_list, t) {
		vec_release(&(*t)->members);
		vec_release(&(*t)->member_dies);
		free(*t);
	}
	vec_release(&v->type_list);
	number_map_release(&v->types);
}
