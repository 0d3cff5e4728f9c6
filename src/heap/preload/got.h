/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Standing in front of the allocator of a program that runs already: the words by which each loaded object calls malloc
 * and its like (or points to them in its data) are made to point to our hooks, and back.
 *
 * What a word held before is what our hook calls next. When another profiler has done the same before us, that is its
 * hook, so the two see the same calls. Words that hold anything else are left alone and counted.
 */
#ifndef SONDE_HEAP_PRELOAD_GOT_H
#define SONDE_HEAP_PRELOAD_GOT_H

#include <stdbool.h>
#include <stdint.h>

struct got_counts {
	uint32_t slots;   /* words that point to us now */
	uint32_t objects; /* in so many files */
	uint32_t others;  /* words of the same names that hold something else, or that could not be written */
};

/* Finds the real functions (real.h). False: there is no malloc, or no way to look for it. */
bool got_find_real(void);

/*
 * Of a program that was launched with the library, when the real functions are known: an allocator's operator new and delete are
 * called by words that lead to us from now on, where it defines them. Once a process; nothing where it does not.
 */
void got_patch_operators(void);

/* All objects that are loaded; those that were seen before are only looked at. Calls the loader: not from within malloc. */
void got_patch(struct got_counts *ret);

/* What still points to us is put back; the library stays, for threads that are in it. */
void got_restore(void);

/* Something was loaded, or may have been: its words as well, where the others are patched. */
void got_loaded(void);

/* The same, when the loader is called next: now it is too early. */
void got_loads(void);

#endif
