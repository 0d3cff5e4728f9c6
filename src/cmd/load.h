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
	struct option_list state_words; /* as given: names, or several with commas between them */
	bool idle, no_idle;
	bool no_inline;
	bool interpreter, python_only, native_only, gil, tasks; /* as in struct profile_filter */
	bool idle_apart; /* what the command does when neither --idle nor --no-idle is given */
	bool brief_waits; /* as in struct profile_filter */
	uint32_t states;  /* set by load_check() */
	uint64_t from_ns, to_ns; /* of allocations, since the recording began; to_ns 0: to its end */
};

/* The rows of a command's options that select what is loaded. */
#define OPTIONS_LOAD(type, member)                                                                 \
	OPTIONS_THREADS(type, member.threads),                                                     \
		OPTION_LIST(0, "state", type, member.state_words, "STATE",                         \
			"only time in this state: on-cpu, run-queue, throttled, futex, syscall, "  \
			"page-fault, stopped, blocked, or off-cpu for all but the first; may be "  \
			"repeated"),                                                               \
		OPTION_FLAG(0, "idle", type, member.idle,                                          \
			"count threads that only waited like all others"),                         \
		OPTION_FLAG(0, "no-idle", type, member.no_idle,                                    \
			"leave out the stacks of threads that only waited"),                       \
		OPTION_FLAG(0, "no-inline", type, member.no_inline,                                \
			"leave out inlined functions: their time is their caller's"),              \
		OPTION_FLAG(0, "show-interpreter", type, member.interpreter,                       \
			"Python's own C functions as well, beside the Python frames that they run"), \
		OPTION_FLAG(0, "python-only", type, member.python_only,                            \
			"Python frames alone, and only samples that have some"),                   \
		OPTION_FLAG(0, "native-only", type, member.native_only,                            \
			"leave out Python frames"),                                                \
		OPTION_FLAG(0, "gil", type, member.gil,                                            \
			"only samples of threads that held Python's interpreter lock"),            \
		OPTION_FLAG(0, "tasks", type, member.tasks,                                        \
			"time of asyncio's tasks instead of threads: of what was recorded with --tasks")

/* What is shown of allocations; of recordings that have some. */
#define OPTIONS_RANGE(type, member)                                                                \
	OPTION_DURATION(0, "from", type, member.from_ns, "TIME", 0, UINT64_MAX,                    \
		"of allocations: only what happened after so much time of the recording"),         \
		OPTION_DURATION(0, "to", type, member.to_ns, "TIME", 1, UINT64_MAX,                \
			"of allocations: only what happened before that")

/* STATUS_OK, or the complaint about the options has been made and this is the exit status. */
int load_check(const struct options_usage *usage, struct load_request *request);

/* Says on stderr what is damaged or missing. Fails when the file cannot be read, when a pattern
 * is wrong, or when damage left no sample. The caller frees *ret with profile_free(). */
int load_profile(const char *command, const char *path, const struct load_request *request,
	struct profile **ret, struct err *err);

#endif
