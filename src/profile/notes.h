/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs say themselves (sonde/capture.h): marks, counters, log messages, as a recording has them. */
#ifndef SONDE_PROFILE_NOTES_H
#define SONDE_PROFILE_NOTES_H

#include "profile/profile.h"

struct profile_mark {
	uint64_t time_ns, duration_ns;
	const char *group, *name, *message; /* never NULL */
	uint32_t pid, tid;
	uint8_t severity; /* enum mark_severity; MARK_NO_MESSAGE: it is a mark */
};

struct profile_value {
	uint64_t time_ns;
	uint64_t value; /* by the kind of its counter: an int64_t, or the bits of a double */
};

struct profile_counter {
	const char *group, *name, *description; /* never NULL */
	uint32_t pid;
	uint8_t kind; /* enum counter_kind */
	bool defined; /* else only its values are known, and it has no name */
	VEC(struct profile_value) values; /* ascending times */
};

struct profile_notes {
	VEC(struct profile_mark) marks;       /* in the order of the recording: of when they ended */
	VEC(struct profile_counter) counters; /* by id */
};

double profile_value(const struct profile_counter *c, const struct profile_value *v);

/* Marks of one group and name together. */
struct profile_mark_sum {
	const char *group, *name;
	uint64_t count, sum_ns, least_ns, most_ns;
};
VEC_TYPE(profile_mark_sums, struct profile_mark_sum);

/* The longest sums first; messages are not among them. 0 or -ENOMEM. */
int profile_mark_sums(const struct profile *p, struct profile_mark_sums *ret);

#endif
