/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/snapshot/look.h"

#include <errno.h>

static int no_open(struct look **ret, struct err *err)
{
	return err_set(err, ENOSYS, "not built in");
}

const struct look_ops look_bpf = {.name = "bpf", .open = no_open};
