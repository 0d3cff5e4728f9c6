/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/world.h"

#include <stdlib.h>

struct wait_world {
	int unused;
};

int wait_world_new(struct wait_world **ret, struct err *err)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : err_nomem(err);
}

void wait_world_free(struct wait_world *w)
{
	free(w);
}
