/* SPDX-License-Identifier: BSD-2-Clause */
#include "symbol/name_table.h"

#include <elf.h>
#include <string.h>

#define MAX_NESTING 256
#define MAX_COMPARED 1024 /* bytes of a name; hostile ones are as long as the file */

/* Smaller is better. */
static uint32_t rank_of(const struct elf_symbol *sym)
{
	uint32_t binding = sym->binding == STB_GLOBAL ? 0 : sym->binding == STB_WEAK ? 1 : 2;

	return (uint32_t)(sym->end == sym->start) << 3 | (uint32_t)(sym->type == STT_NOTYPE) << 2 |
		binding;
}

/* The prefix of a mangled name is no underscore somebody chose. */
static size_t underscores(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R') ? 0 : strspn(name, "_");
}

static int compare_names(const char *a, const char *b)
{
	size_t la = underscores(a), lb = underscores(b);

	if (la != lb)
		return (la > lb) - (la < lb);
	la = strnlen(a, MAX_COMPARED);
	lb = strnlen(b, MAX_COMPARED);
	if (la != lb)
		return (la > lb) - (la < lb);
	return strncmp(a, b, MAX_COMPARED);
}

static int compare_entries(const void *va, const void *vb)
{
	const struct name_entry *a = va, *b = vb;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	if (a->up != b->up)
		return (a->up > b->up) - (a->up < b->up);
	return a->name == b->name ? 0 : compare_names(a->name, b->name);
}

int name_table_add(struct name_table *t, const struct elf_symbol *sym)
{
	uint64_t size = sym->end - sym->start;
	uint32_t size32 = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
	struct name_entry e = {sym->start, sym->name, size32, rank_of(sym)};

	if (t->entries.len >= NAME_NONE)
		return -ENOMEM;
	return vec_push(&t->entries, e);
}

static void drop_aliases(struct name_table *t)
{
	size_t kept = 0;

	vec_each(&t->entries, e)
		if (!kept || t->entries.data[kept - 1].start != e->start)
			t->entries.data[kept++] = *e;
	t->entries.len = kept;
}

static uint64_t end_of(const struct name_entry *e)
{
	return e->start + e->size;
}

/* The chain of `up` links from the entry before is the stack of symbols that are still open. */
static void link_nested(struct name_table *t)
{
	struct name_entry *all = t->entries.data;

	for (uint32_t i = 0; i < t->entries.len; i++) {
		uint32_t around = i ? i - 1 : NAME_NONE;

		while (around != NAME_NONE &&
			(!all[around].size || end_of(&all[around]) <= all[i].start))
			around = all[around].up;
		all[i].up = around;
	}
}

void name_table_finish(struct name_table *t)
{
	if (!t->entries.len)
		return;
	qsort(t->entries.data, t->entries.len, sizeof(*t->entries.data), compare_entries);
	drop_aliases(t);
	link_nested(t);

	struct name_entry *fit =
		realloc(t->entries.data, t->entries.len * sizeof(*t->entries.data));
	if (fit) {
		t->entries.data = fit;
		t->entries.cap = t->entries.len;
	}
}

/* Index of the last entry that starts at or before the address. */
static uint32_t last_before(const struct name_table *t, uint64_t address)
{
	size_t low = 0, high = t->entries.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (t->entries.data[mid].start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? (uint32_t)(low - 1) : NAME_NONE;
}

const struct name_entry *name_table_find(const struct name_table *t, uint64_t address)
{
	const struct name_entry *all = t->entries.data;
	const uint32_t nearest = last_before(t, address);
	uint32_t i = nearest;

	for (int depth = 0; i != NAME_NONE && depth < MAX_NESTING; depth++) {
		if (address - all[i].start < all[i].size)
			return &all[i];
		i = all[i].up;
	}
	return nearest != NAME_NONE && !all[nearest].size ? &all[nearest] : NULL;
}

void name_table_release(struct name_table *t)
{
	vec_release(&t->entries);
}
