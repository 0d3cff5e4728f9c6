/* SPDX-License-Identifier: BSD-2-Clause */
/* Made by scripts/python-layouts from layout.list. Not to be edited. */
/* Part of layout.h; each member is a uint32_t. */
#ifndef SONDE_PYTHON_LAYOUT_FIELDS_H
#define SONDE_PYTHON_LAYOUT_FIELDS_H

#include <stdint.h>

struct python_layout {
	struct {
		uint32_t head;
		uint32_t main;
		uint32_t main_thread; /* its pthread_t */
		uint32_t bytes;
		uint32_t initialized; /* int */
		uint32_t gil; /* 3.8 to 3.11: the struct itself */
		uint32_t gc;
	} runtime;
	struct {
		uint32_t next;
		uint32_t id;
		uint32_t threads; /* 3.8 to 3.10: newest first */
		uint32_t runtime; /* from 3.9 on: back to _PyRuntime */
		uint32_t bytes;
		uint32_t gil; /* from 3.12 on: a pointer */
		uint32_t tasks; /* from 3.14 on: those of threads that have ended */
		uint32_t modules;
		uint32_t sysdict;
		uint32_t builtins;
		uint32_t gc;
	} interpreter;
	struct {
		uint32_t next;
		uint32_t interpreter;
		uint32_t frame;
		uint32_t cframe;
		uint32_t pthread;
		uint32_t native_id;
		uint32_t bytes;
		uint32_t dict;
		uint32_t running_loop;
		uint32_t tasks; /* from 3.14 on: a ring: next, previous */
	} thread;
	struct {
		uint32_t previous;
		uint32_t frame;
	} cframe;
	struct {
		uint32_t previous;
		uint32_t code;
		uint32_t position; /* 3.8 to 3.10: int; code units in 3.10, bytes before */
		uint32_t locals;
		uint32_t value_stack;
		/*
		 * 3.8 to 3.9: pointer; NULL while it runs; 3.10: int; -1 while it runs;
		 * 3.11 to 3.13: int, from locals on; -1 while it runs; from 3.14 on:
		 * pointer; NULL while it runs
		 */
		uint32_t stack_top;
		uint32_t owner; /* from 3.11 on: char */
		uint32_t is_entry; /* 3.11: bool */
		uint32_t tlbc_index; /* from 3.14 on: int32 */
		uint32_t bytes;
		uint32_t blocks; /* 3.8 to 3.10: of {int type, handler, level} */
		uint32_t block_count; /* 3.8 to 3.10: int */
		uint32_t globals;
	} frame;
	struct {
		uint32_t arguments;
		uint32_t keyword_only;
		uint32_t flags;
		uint32_t first_line;
		uint32_t file;
		uint32_t name;
		uint32_t qualname;
		uint32_t line_table;
		uint32_t code; /* 3.8 to 3.10: a bytes object */
		uint32_t bytecode; /* from 3.11 on: itself, at the end */
		uint32_t tlbc; /* from 3.14 on: array of copies of the bytecode */
		uint32_t local_count; /* from 3.11 on: with cells and free variables */
		uint32_t local_names;
		uint32_t local_kinds;
		uint32_t cell_names;
		uint32_t free_names;
		uint32_t bytes;
		uint32_t exceptions; /* from 3.11 on: bytes */
		uint32_t names;
		uint32_t stack_slots; /* int */
	} code;
	struct {
		uint32_t bytes;
		uint32_t type;
	} object;
	struct {
		uint32_t size;
	} var_object;
	struct {
		uint32_t name;
		uint32_t basic_bytes;
		uint32_t item_bytes;
		uint32_t flags;
		uint32_t bytes;
		uint32_t base;
		uint32_t dict; /* of classes; 0 in what C made of 3.12 and later */
		uint32_t members;
		uint32_t dict_offset;
		uint32_t weak_offset;
		uint32_t bases;
		uint32_t mro;
	} type;
	struct {
		uint32_t length;
		uint32_t state;
		/*
		 * 3.8 to 3.13: bits of `state` in front of kind:3, compact:1, ascii:1
		 */
		uint32_t kind_shift;
		uint32_t ascii_data;
		uint32_t data; /* of compact ones that are not ASCII */
	} unicode;
	struct {
		uint32_t size;
		uint32_t data;
	} bytes;
	struct {
		uint32_t size;
		uint32_t items;
	} tuple;
	struct {
		uint32_t holder;
		uint32_t locked; /* int */
		uint32_t switches;
		uint32_t enabled; /* from 3.13 on: int */
		uint32_t bytes;
	} gil;
	struct {
		uint32_t qualname;
		uint32_t cached_keys;
		uint32_t bytes;
	} heap_type;
	struct {
		uint32_t items; /* a pointer to the first */
		uint32_t allocated;
	} list;
	struct {
		uint32_t digits;
	} integer;
	struct {
		uint32_t value;
	} real;
	struct {
		uint32_t used;
		uint32_t keys;
		uint32_t values; /* 0: combined */
	} dict;
	struct {
		uint32_t size; /* 3.8 to 3.10: slots */
		/*
		 * from 3.11 on: with log2_index_bytes and kind behind it
		 */
		uint32_t log2_size;
		uint32_t usable; /* from 3.11 on: entries that can be added */
		uint32_t count;
		uint32_t indices;
	} dict_keys;
	struct {
		uint32_t first;
		uint32_t capacity;
		uint32_t valid;
	} dict_values;
	struct {
		/*
		 * 3.11 to 3.12: before the object; of 3.12: either, values are odd
		 */
		uint32_t dict;
		uint32_t values;
	} managed;
	struct {
		uint32_t used;
		uint32_t mask; /* slots less one */
		uint32_t table;
		uint32_t small;
	} set;
	struct {
		uint32_t allocated;
	} bytearray;
	struct {
		uint32_t contents;
	} cell;
	struct {
		uint32_t globals;
		uint32_t defaults;
		uint32_t kwdefaults;
		uint32_t closure;
		uint32_t dict;
		uint32_t code;
		uint32_t qualname;
	} function;
	struct {
		uint32_t function;
		uint32_t self;
	} method;
	struct {
		uint32_t self;
		uint32_t definition; /* begins with its name */
	} builtin;
	struct {
		uint32_t callback;
	} weakref;
	struct {
		/*
		 * 3.8 to 3.10: a frame object; 3.11 to 3.13: itself; from 3.14 on: itself
		 */
		uint32_t frame;
		uint32_t state; /* 3.11 to 3.13: signed char; from 3.14 on: signed char */
	} generator;
	struct {
		uint32_t frame;
	} frame_object;
	struct {
		uint32_t generations; /* 3.8 to 3.13: 3 lists; from 3.14 on: 3 lists */
		uint32_t permanent; /* what gc.freeze() set aside */
		uint32_t collecting; /* int */
		uint32_t generation_bytes;
	} gc;
	struct {
		uint32_t bytes; /* from 3.8 on: before each object that it knows */
	} gc_head;
	struct {
		uint32_t name;
	} descriptor;
};

#define PYTHON_LAYOUT_FIELDS 139
#define PYTHON_LAYOUT_COLUMNS 11

#endif
