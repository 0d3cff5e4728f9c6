/* SPDX-License-Identifier: BSD-2-Clause */
/* make_wall FILE: writes the recording of small_wall.h, for tests of commands. */
#include <stdio.h>

#include "small_wall.h"

int main(int argc, char **argv)
{
	struct bytes bytes = wall_recording();
	FILE *out = argc == 2 ? fopen(argv[1], "wb") : NULL;
	size_t written = out ? fwrite(bytes.data, 1, bytes.len, out) : 0;

	free(bytes.data);
	return !out || fclose(out) || written != bytes.len || !written;
}
