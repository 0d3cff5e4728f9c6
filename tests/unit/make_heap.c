/* SPDX-License-Identifier: BSD-2-Clause */
/* make_heap FILE [sampled]: writes the recording of small_heap.h, for tests of commands. */
#include <math.h>
#include <stdio.h>

#include "small_heap.h"

int main(int argc, char **argv)
{
	struct bytes bytes = heap_recording(argc == 3, argc == 3 ? END_DURATION : END_TARGET_EXITED);
	FILE *out = argc >= 2 ? fopen(argv[1], "wb") : NULL;
	size_t written = out ? fwrite(bytes.data, 1, bytes.len, out) : 0;

	free(bytes.data);
	return !out || fclose(out) || written != bytes.len || !written;
}
