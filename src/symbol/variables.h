/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables of an object file: what is in scope at an address and where it is kept, what types are made of,
 * and which global variable an address is part of. All of it from DWARF but for the names of globals.
 *
 * Nothing here reads a process: the caller brings the registers of a frame and a way to read memory. The
 * files are untrusted: every walk over them is bounded, and what makes no sense is left out. What was asked
 * once about an address or a type is kept.
 *
 * Everything returned belongs to the struct variables and lives as long as it. Not for two threads at once.
 */
#ifndef SONDE_SYMBOL_VARIABLES_H
#define SONDE_SYMBOL_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "elf/elf_file.h"
#include "unwind/unwind.h"

struct variables;

struct variables_options {
	const char *root;      /* "/proc/PID/root"; NULL or "": our own */
	const char *debug_dir; /* instead of /usr/lib/debug; NULL for that (tests) */
	bool debuginfod;       /* ask debuginfod servers (network) */
	bool symbols_only;     /* globals by their symbols; no DWARF is opened */
};

/* `file` is borrowed and must outlive the result. Debug files are opened when first needed. */
int variables_new(struct elf_file *file, const struct variables_options *options,
	struct variables **ret, struct err *err);
void variables_free(struct variables *v);

/* ---- types ---- */

enum variable_kind {
	VARIABLE_PLAIN, /* numbers, enumerations, functions */
	VARIABLE_POINTER, /* and references */
	VARIABLE_STRUCT, /* class, struct or union */
	VARIABLE_ARRAY,
};

/* Typedefs and qualifiers are seen through; an anonymous type has the name of its typedef. */
struct variable_type {
	enum variable_kind kind;
	bool declared_only; /* its members are not known in this file */
	bool qualified;     /* of a language that writes a::b */
	const char *name;   /* without scopes, with template arguments; "" */
	uint64_t size;      /* in bytes; 0: not known */
};

/* What a pointer points at, and what an array is made of; NULL: nothing known (void). */
const struct variable_type *variable_target(struct variables *v, const struct variable_type *t);

/* The name with its scopes: "std::lock_guard<std::mutex>". Never NULL. */
const char *variable_type_name(struct variables *v, const struct variable_type *t);

struct variable_member {
	const char *name; /* "" for what has none, base classes among them */
	uint64_t offset;
	const struct variable_type *type;
	bool base;
};

/* Members and base classes in the order of the source; bit fields, static ones and the variants of Rust's
 * enums are left out. */
size_t variable_members(
	struct variables *v, const struct variable_type *t, const struct variable_member **ret);

/* Where member `m` of `t` is declared; 0 and NULL: not known. */
uint32_t variable_member_line(struct variables *v, const struct variable_type *t,
	const struct variable_member *m, const char **ret_file);

/* ---- variables in scope ---- */

struct variable_scope;

struct variable {
	const struct variable_scope *scope; /* for this module alone */
	const char *name; /* "" */
	const struct variable_type *type;
	uint32_t depth;   /* calls inlined around it; 0: of the function itself */
	bool parameter;
};

/* What is in scope at the address in the file (of the call, for return addresses), in the order of the tree:
 * what is around comes first. */
size_t variables_at(struct variables *v, uint64_t address, const struct variable **ret);

/* Where it is declared; 0 and NULL: not known. */
uint32_t variable_line(struct variables *v, const struct variable *var, const char **ret_file);

/* The function, inlined or not, that it belongs to, with its scopes: "std::mutex::lock"; "". */
const char *variable_function(struct variables *v, const struct variable *var);

/* A function by the beginning of its name without scopes ("drop<"), words in its template arguments
 * ("MutexGuard<"), and a part of its symbol ("3mem4drop"), a static string. */
struct variable_call {
	const char *name, *argument, *symbol;
};

/* Whether it is called between the declaration of the variable and where the code is (at `until_line` of the
 * function the variable belongs to): inlined or directly. Which branch the code has taken is not looked at. */
bool variable_called_since(struct variables *v, const struct variable *var, const struct variable_call *call,
	uint32_t until_line);

/* One frame of a thread, as the unwinder leaves it. */
struct variable_frame {
	const struct unwind_regs *regs;
	uint64_t cfa;  /* 0: not known */
	uint64_t bias; /* of the file in memory */
	/* Copies `len` bytes of the target; false when it cannot. */
	bool (*read)(void *ctx, uint64_t addr, void *buf, size_t len);
	void *ctx;
};

enum variable_at {
	VARIABLE_LOST,   /* optimised away, or in a register whose value is not known in this frame */
	VARIABLE_MEMORY, /* at `value` */
	VARIABLE_VALUE,  /* it is `value`, in a register or nowhere */
	VARIABLE_BYTES,  /* it is a constant of `size` bytes */
};

struct variable_piece {
	enum variable_at at;
	uint64_t size; /* UINT64_MAX: all there is */
	uint64_t value;
	const uint8_t *bytes;
};

#define VARIABLE_MOST_PIECES 16u

struct variable_place {
	struct variable_piece pieces[VARIABLE_MOST_PIECES]; /* in order of their offset in the variable */
	size_t count;                                       /* 0: nothing of it is kept here */
};

/* Where the variable is kept, at the address it was asked for. False when all of it is lost. */
bool variable_place(struct variables *v, const struct variable *var, const struct variable_frame *f,
	struct variable_place *ret);

/* Copies `len` bytes from `offset` in the variable on; false when one of them is lost or cannot be read. */
bool variable_read(const struct variable_place *p, const struct variable_frame *f, uint64_t offset,
	void *buf, size_t len);

/* The address of the whole variable; false when it is not in memory, in one piece. */
bool variable_address(const struct variable_place *p, uint64_t *ret);

/* ---- parts of objects ---- */

struct variable_part {
	const struct variable_type *type;    /* of the part */
	const struct variable_type *holder;  /* of the innermost struct that it is a named member of; NULL: none */
	const struct variable_member *member; /* there; NULL: none */
	uint64_t offset;                     /* of the part in the object */
};

/*
 * The outermost part of an object of type `t` that holds the byte at `offset` and of which `stop` says that it
 * is what is looked for; the object itself may be it. `path`, which may be NULL, gets the members on the way,
 * as in ".cache.rw" or "[2].lock". False: there is none.
 */
bool variable_find_part(struct variables *v, const struct variable_type *t, uint64_t offset,
	bool (*stop)(void *ctx, const struct variable_type *t), void *ctx, struct variable_part *ret,
	struct buf *path);

/* ---- globals ---- */

struct variable_global {
	const char *name;      /* qualified: "Cache::shared"; for a symbol without DWARF it is demangled */
	uint64_t offset;       /* of the address in it */
	const struct variable_type *type; /* NULL: not known */
	const char *file;      /* of the declaration; NULL */
	uint32_t line;
};

/* The variable with a fixed address that holds the byte at `address` in the file. */
bool variables_global_at(struct variables *v, uint64_t address, struct variable_global *ret);

#endif
