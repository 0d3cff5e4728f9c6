/* SPDX-License-Identifier: BSD-2-Clause */
/* Why objects of a Python program are alive, as text and as JSON. They append to a buffer. 0 or -ENOMEM. */
#ifndef SONDE_VIEW_ALIVE_H
#define SONDE_VIEW_ALIVE_H

#include "base/term.h"
#include "python/alive.h"
#include "view/census.h"

int view_alive(const struct python_alive *a, const struct census_facts *f, const struct term *t,
	struct buf *out, struct err *err);

/* One object: docs/JSON.md. */
int view_alive_json(
	const struct python_alive *a, const struct census_facts *f, struct buf *out, struct err *err);

#endif
