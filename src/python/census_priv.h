/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the census share. */
#ifndef SONDE_PYTHON_CENSUS_PRIV_H
#define SONDE_PYTHON_CENSUS_PRIV_H

#include "python/census.h"

/* Types by address, while a census is made: looking one up takes no reading. */
struct census_type {
	uint64_t address;
	const struct python_type *type;
	size_t row; /* of ret->rows */
};

struct census {
	struct python *p;
	struct python_census *ret;
	uint64_t most;
	struct census_type *types; /* open addressing */
	size_t type_slots, type_count;
};

/* NULL: it is no type, or there is no memory. Valid until the next call. */
struct census_type *census_type(struct census *c, uint64_t type);

/* Finds what the objects of the lists refer to, and counts what is not in them. -ENOMEM. */
int census_loose(struct census *c);

#endif
