/* SPDX-License-Identifier: BSD-2-Clause */
/* What `why` and `stack` have in common: which process, and how it is looked at. */
#ifndef SONDE_CMD_TARGET_H
#define SONDE_CMD_TARGET_H

#include <sys/types.h>

#include "base/err.h"
#include "cmd/options.h"
#include "sample/snapshot/snapshot.h"

/* A process by its number, or by the name that it alone has. -ESRCH, or -EINVAL with the choice. */
int target_find(const char *text, pid_t *ret, struct err *err);

struct target_options {
	const char *look, *core, *root;
};

#define OPTIONS_TARGET(type, member)                                                               \
	OPTION_STRING(0, "look", type, member.look, "HOW",                                         \
		"proc (what anybody may read), bpf (all registers), or auto"),                     \
		OPTION_STRING(0, "core", type, member.core, "FILE",                                \
			"look at a core file instead of a process"),                               \
		OPTION_STRING(0, "root", type, member.root, "DIR",                                 \
			"with --core: where the files that were mapped are found")

/* Which process is meant, and how it is looked at: fills that into *options, and the pid, 0 for that of a
 * core. OPTIONS_RUN, or the complaint has been made and this is the exit status. */
int target_choose(const struct options_usage *usage, const struct target_options *t,
	const struct options_rest *rest, struct snapshot_options *options, pid_t *ret_pid);

#endif
