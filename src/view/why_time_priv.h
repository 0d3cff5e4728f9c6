/* SPDX-License-Identifier: BSD-2-Clause */
/* Words that the text and the JSON of wait/over_time.h have in common. */
#ifndef SONDE_VIEW_WHY_TIME_PRIV_H
#define SONDE_VIEW_WHY_TIME_PRIV_H

#include "view/why_priv.h"
#include "view/why_time.h"

/* "main[812] in 5.0 s: 62 % behind std::mutex Cache::rw (held by worker-7[815], which ...), 12 % ran" */
void over_sentence(const struct over_time *o, struct buf *out);

/* "behind std::mutex Cache::rw", "waiting to read from a pipe" */
void over_cause_words(const struct over_time *o, const struct over_cause *c, struct buf *out);

/* "std::mutex Cache::rw", "a mutex at 0x7f...", "waiting to read from a pipe" */
void over_lock_words(const struct over_lock *l, struct buf *out);

#endif
