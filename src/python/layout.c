/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/layout.h"

#include <string.h>

_Static_assert(sizeof(struct python_layout) == PYTHON_LAYOUT_FIELDS * sizeof(uint32_t),
	"all members are a uint32_t");

int python_layout_column_of(uint32_t version, bool free_threaded)
{
	int best = -1;

	for (int i = 0; i < PYTHON_LAYOUT_COLUMNS; i++) {
		const struct python_layout_column *c = &python_layout_columns[i];

		if (version >> 24 == 3 && c->minor == (version >> 16 & 0xff) &&
			c->free_threaded == free_threaded && c->from_version <= version)
			best = i;
	}
	return best;
}

bool python_layout_of(uint32_t version, bool free_threaded, bool aarch64, struct python_layout *ret)
{
	const uint32_t(*table)[PYTHON_LAYOUT_COLUMNS] =
		aarch64 ? python_layout_aarch64 : python_layout_x86_64;
	int column = python_layout_column_of(version, free_threaded);
	uint32_t numbers[PYTHON_LAYOUT_FIELDS];

	if (column < 0)
		return false;
	for (size_t i = 0; i < PYTHON_LAYOUT_FIELDS; i++)
		numbers[i] = table[i][column];
	memcpy(ret, numbers, sizeof(*ret));
	return true;
}

size_t python_layout_own_bytes(uint32_t version, bool free_threaded)
{
	int column = python_layout_column_of(version, free_threaded);

	return column < 0 ? 0 : python_layout_columns[column].own_bytes;
}
