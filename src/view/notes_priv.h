/* SPDX-License-Identifier: BSD-2-Clause */
/* Views of what programs say themselves (profile/notes.h). */
#ifndef SONDE_VIEW_NOTES_PRIV_H
#define SONDE_VIEW_NOTES_PRIV_H

#include "profile/notes.h"
#include "view/view.h"

/* `,"marks":[...],"counters":[...],"messages":[...]` of a profile with notes. */
void notes_json(const struct profile *p, struct buf *out);

#endif
