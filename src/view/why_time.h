/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the time of a slow process's threads went: wait/over_time.h in one screen, and for scripts. */
#ifndef SONDE_VIEW_WHY_TIME_H
#define SONDE_VIEW_WHY_TIME_H

#include "view/why.h"
#include "wait/over_time.h"

/* After over_time_finish(). One sentence on the thread in focus, what its time went to and who was to blame, the
 * other threads (folded where they are alike; `all`: each), and what was waited for. 0 or -ENOMEM. */
int view_why_time(
	const struct over_time *o, const struct why_options *options, struct buf *out, struct err *err);

/* One object: docs/JSON.md. */
int view_why_time_json(const struct over_time *o, struct buf *out, struct err *err);

#endif
