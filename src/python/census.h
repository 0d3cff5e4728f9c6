/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many objects of each type there are, and the bytes they take.
 *
 * CPython's collector has every object that can be part of a circle in lists: instances, dicts, lists, functions, types.
 * What cannot refer to others (str, bytes, int, float), and tuples and dicts that only hold such, are not in
 * them; they are found through the objects that are, when that is asked for, and told apart. Memory that is no
 * Python object is not seen at all: buffers of numpy, C libraries, the allocator's free blocks.
 *
 * The process may run meanwhile. Its lists are linked both ways, so each step is checked by the way back.
 * Where they do not agree, memory is looked at anew and the walk resumes at the last place that still holds;
 * where that does not help, the rest is walked from the other end, and what may be missing is counted as a gap.
 * docs/heuristics/census.md
 */
#ifndef SONDE_PYTHON_CENSUS_H
#define SONDE_PYTHON_CENSUS_H

#include "python/marks.h"
#include "python/object.h"

struct python_census_row {
	const char *name; /* of the type, with its module; valid until python_free() */
	uint64_t objects, bytes;
	uint64_t loose, loose_bytes; /* not in the collector's lists */
};

#define PYTHON_CENSUS_MOST (1ULL << 28) /* objects: some 4 GiB of the collector's heads alone */

struct python_census_options {
	bool loose;           /* objects that are not in the lists, too */
	uint64_t most_objects; /* end there; 0: PYTHON_CENSUS_MOST */
};

struct python_census {
	VEC(struct python_census_row) rows; /* most bytes first */
	uint64_t objects, bytes;
	uint64_t loose, loose_bytes;
	uint64_t frozen;     /* of `objects`: set aside by gc.freeze() */
	uint64_t interpreters;
	uint64_t again;      /* how often memory was looked at anew, because it had changed */
	uint64_t gaps;       /* places where lists could not be followed: objects may be missing */
	uint64_t lost;       /* objects that were gone, or no objects, when they were looked at */
	bool cut;            /* there are more than was asked for */
	struct marks objects_at; /* where the objects of the lists are */
};

/*
 * *ret is zero before the first census, and holds what was counted until then after -EFAULT (nothing can be
 * read) and -ENOMEM. -EOPNOTSUPP: a free-threaded build, which has no lists. -EAGAIN: the
 * collector is at work, and its lists are taken apart; try again after some milliseconds.
 * Calls python_refresh().
 */
int python_census(struct python *p, const struct python_census_options *options, struct python_census *ret,
	struct err *err);
void python_census_release(struct python_census *c);

/* What has become more, or less, of a type. */
struct python_growth {
	const char *name; /* as in rows */
	int64_t objects, bytes;   /* later less earlier; loose ones are in it when both have them */
	uint64_t now, now_bytes;
};
VEC_TYPE(python_growths, struct python_growth);

/* Types whose numbers differ, most additional bytes first. Names are of the same python. -ENOMEM. */
int python_census_growth(const struct python_census *earlier, const struct python_census *later,
	struct python_growths *ret);

#endif
