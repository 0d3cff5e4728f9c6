/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program says, as events of its ring (heap/share.h). */
#ifndef SONDE_HEAP_PROGRAM_NOTE_H
#define SONDE_HEAP_PROGRAM_NOTE_H

#include <stdint.h>

#include "heap/preload/preload.h"

struct note {
	enum share_event type;
	uint64_t address, value;
	const char *text[3]; /* NULL: as "" */
};

/* Bytes of a text that are kept: SHARE_TEXT_MOST at most, and no part of a character. */
uint32_t note_text_bytes(const char *text);

/* Bytes that the note takes; *ret gets all of it but its time, and its texts' lengths. */
uint32_t note_measure(const struct note *note, struct share_note *ret);

/* Writes what note_measure() has found to `at`, which has room for it, with the time. */
void note_write(const struct note *note, const struct share_note *measured, uint64_t time_ns, void *at);

/* Appends it to the thread's ring, which is busy. */
void note_put(struct thread *t, const struct note *note);

/* ---- defined.c: what forked children have to say again ---- */

/* Keeps a definition. Its number, from 1 on, which becomes the address of the note; 0: there is no room. */
uint32_t defined_keep(struct note *note);

/* Says all of them. */
void defined_tell(struct thread *t);

#endif
