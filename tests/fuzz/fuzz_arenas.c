/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps of glibc in which anything may stand: the first byte says of which version, then come patches of 11 bytes: which
 * piece of memory, where in it (2 bytes), and 8 bytes.
 */
#include <stdint.h>

#include "../unit/arenas_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATCH_BYTES 11u
#define MOST_PATCHES 4096u

static void patch(struct image *m, const uint8_t *p)
{
	size_t segment = p[0] % IMAGE_SEGMENTS;
	uint64_t at = ((uint64_t)p[1] | (uint64_t)p[2] << 8) * (segment == 1 ? 2 : 1), value;

	memcpy(&value, p + 3, sizeof(value));
	if (m->segments[segment].bytes < sizeof(value))
		return;
	image_put(m, m->segments[segment].start + at % (m->segments[segment].bytes - 7), value);
}

static void examine(struct image *m, const struct arenas *a)
{
	uint64_t bytes = 0;

	/* The walk says of each byte once what it is. */
	for (size_t i = 0; i < ARENAS_STATES; i++)
		bytes += a->states[i].bytes;
	if (a->list.len == 0 || a->mapped.bytes != m->mapped || (bytes && !m->ended))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image m;
	struct arenas a;

	if (size < 1 || size > 1 + PATCH_BYTES * MOST_PATCHES)
		return 0;
	if (image_make(&m, &image_versions[data[0] % IMAGE_VERSIONS])) {
		for (size_t at = 1; at + PATCH_BYTES <= size; at += PATCH_BYTES)
			patch(&m, data + at);
		if (!image_walk(&m, &a, NULL)) {
			examine(&m, &a);
			arenas_release(&a);
		}
	}
	image_release(&m);
	return 0;
}
