/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/why_over_time.h"

#include <errno.h>

#include "base/clock.h"
#include "cmd/until.h"

static int look_until(struct over_time *o, const struct until *until, uint64_t end_ns, struct err *err)
{
	uint64_t next_ns = 0;

	for (;;) {
		enum until_end why = until_ns(until, next_ns < end_ns ? next_ns : end_ns);
		int rc = why == UNTIL_ENDED ? 0 : over_time_look(o, &next_ns, err);

		if (why == UNTIL_ENDED || rc == -ESRCH) {
			o->target_ended = true;
			return 0;
		}
		/* The last look ends what is counted. */
		if (rc || why == UNTIL_SIGNAL || clock_monotonic_ns() >= end_ns)
			return rc;
	}
}

int why_over_time(const struct over_options *options, uint64_t duration_ns, struct over_time **ret,
	struct err *err)
{
	struct over_time *o;
	struct until until;
	int rc = until_new(options->pid, &until, err);

	if (rc)
		return rc;
	rc = over_time_new(options, &o, err);
	if (!rc) {
		rc = look_until(o, &until, clock_monotonic_ns() + duration_ns, err);
		if (!rc)
			rc = over_time_finish(o, err);
		if (rc)
			over_time_free(o);
		else
			*ret = o;
	}
	until_release(&until);
	return rc;
}
