/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs say themselves (sonde/capture.h), from events of their rings to records. Texts and numbers are the
 * target's choice: they are bounded, and what goes beyond is counted as LOSS_NOTE.
 */
#ifndef SONDE_HEAP_NOTES_H
#define SONDE_HEAP_NOTES_H

#include "capture/writer.h"
#include "heap/reader.h"
#include "sample/session.h"

/* Counters and pools, of all processes together. */
#define HEAP_MOST_DEFINED 65536u

struct heap_notes;

/* Writer and session are borrowed. */
int heap_notes_new(struct capture_writer *w, struct session *s, struct heap_notes **ret, struct err *err);
void heap_notes_free(struct heap_notes *n); /* NULL is fine */

/* Takes SHARE_MARK, _COUNTER, _VALUE, _CODE, _LOG and _POOL of a process and thread as we see them; false for all others. */
bool heap_note(struct heap_notes *n, const struct heap_event *e, pid_t pid, pid_t tid);

/* The name of a pool of a process (by its number of heap/reader.h); NULL: it has none. Valid until heap_notes_free(). */
const char *heap_notes_pool(const struct heap_notes *n, uint32_t process, uint32_t pool);

struct heap_notes_stats {
	uint64_t marks, messages, counters, values, code;
};
void heap_notes_stats(const struct heap_notes *n, struct heap_notes_stats *ret);

#endif
