/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading a recording the way every command that reads one does it. */
#ifndef SONDE_CMD_LOAD_H
#define SONDE_CMD_LOAD_H

#include <stdbool.h>

#include "base/err.h"
#include "cmd/options.h"
#include "profile/profile.h"

struct load_request {
	struct thread_options threads;
	bool no_inline;
};

/* Says on stderr what is damaged or missing. Fails when the file cannot be read, when a pattern
 * is wrong, or when damage left no sample. The caller frees *ret with profile_free(). */
int load_profile(const char *command, const char *path, const struct load_request *request,
	struct profile **ret, struct err *err);

#endif
