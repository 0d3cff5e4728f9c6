/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of src/symbol/: what every source is made of. */
#ifndef SONDE_SYMBOL_SYMBOL_PRIV_H
#define SONDE_SYMBOL_SYMBOL_PRIV_H

#include "base/intern.h"
#include "base/vec.h"
#include "symbol/symbol.h"

/* A number -> a number, open addressing. All-zero is the empty map. */
struct number_map {
	struct number_slot {
		uint64_t key, value; /* value 0 = empty */
	} *slots;
	size_t slot_count, used; /* slot_count: a power of two, or 0 */
};
uint64_t number_map_get(const struct number_map *m, uint64_t key); /* 0 = absent */
int number_map_put(struct number_map *m, uint64_t key, uint64_t value); /* value is not 0 */
void number_map_release(struct number_map *m);

struct symbol_ops {
	/* Fills at most SYMBOL_MAX_LEVELS levels, innermost first, and returns their number; 0 with
	 * a reason in *ret_reason. Names and files live as long as the source. */
	size_t (*resolve)(struct symbol_source *s, uint64_t address, struct symbol_level *levels,
		enum symbol_reason *ret_reason);
	void (*free)(struct symbol_source *s);
};

/* The first member of every source. */
struct symbol_source {
	const struct symbol_ops *ops;
	struct intern strings;
	struct number_map demangled; /* mangled name's pointer -> shown name's pointer */
	struct number_map answers;   /* address -> index into `known`, plus one */
	VEC(struct known_answer) known;
	VEC(struct symbol_level *) level_chunks;
	size_t level_room; /* levels left in the last chunk */
};

struct known_answer {
	const struct symbol_level *levels;
	uint32_t count;
	uint32_t reason;
};

void symbol_source_release(struct symbol_source *s);

/* A copy that lives as long as the source; NULL when out of memory. */
const char *symbol_keep(struct symbol_source *s, const char *text);

/* `name` (which outlives the source) as it is shown: demangled, without a symbol version. Each
 * pointer is worked on once. Never NULL. */
const char *symbol_shown_name(struct symbol_source *s, const char *name);

/* The same for names that never have a version, in which an @ is part of a path. */
const char *symbol_shown_name_whole(struct symbol_source *s, const char *name);

/* Appends the name that a C function of Cython's has in its .pyx file; false: it is none of those. */
struct buf;
bool cython_name(const char *name, struct buf *ret);

#endif
