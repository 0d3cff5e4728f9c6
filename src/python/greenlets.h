/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Greenlets (and gevent's, which are such): the Python stacks of those that are switched out.
 *
 * The package greenlet keeps no list of them; they are found among all objects that the collector knows of, so a
 * look costs a census. Where it keeps a greenlet's frame and stack has changed with nearly each of its releases and is
 * told nowhere: both are recognised by what they are (docs/heuristics/greenlets.md), and where that does not
 * succeed the greenlet is counted as unknown. Native frames of a greenlet are not told.
 */
#ifndef SONDE_PYTHON_GREENLETS_H
#define SONDE_PYTHON_GREENLETS_H

#include "python/object.h"
#include "python/python.h"

struct python_greenlet {
	uint64_t address;
	const struct python_type *type; /* "greenlet.greenlet", "gevent._gevent_cgreenlet.Greenlet" */
	uint64_t thread;        /* PyThreadState of the thread whose stack it runs on; 0: not known */
	size_t first_frame, frame_count; /* in struct python_greenlets.frames, the innermost first */
	enum python_torn torn;
};

struct python_greenlets {
	VEC(struct python_greenlet) greenlets; /* switched out, ascending by address */
	struct python_frames frames;
	uint64_t others;   /* that run, have not begun, or have ended */
	uint64_t unknown;  /* whose parts were not recognised */
	uint64_t gaps;     /* places where lists of objects could not be followed: greenlets may be missing */
	bool imported;     /* some interpreter has imported the package */
};

/*
 * *ret is zero before, and to be released after any return. A process that has not imported greenlet has none: 0, and no
 * census is made. Others as python_census(): -EOPNOTSUPP: a free-threaded build; -EAGAIN: the collector is at work.
 * Calls python_refresh().
 */
int python_greenlets(struct python *p, const struct python_threads *threads, struct python_greenlets *ret,
	struct err *err);

/* The same of one object that is at hand, added to *ret as it is found; nothing where it is no greenlet. -ENOMEM. */
int python_greenlet(struct python *p, const struct python_threads *threads, uint64_t object,
	struct python_greenlets *ret);

void python_greenlets_release(struct python_greenlets *g);

#endif
