/* SPDX-License-Identifier: BSD-2-Clause */
/* write_python_heap DIR: the made-up heaps of test_python_heap as fuzz_python takes them, one of each version. */
#include <stdio.h>

#include "python_heap_image.h"

#define PIECE 16u

static bool is_empty(const uint8_t *bytes)
{
	static const uint8_t zero[PIECE];

	return !memcmp(bytes, zero, PIECE);
}

/* Something that refers in every way there is, so that each has a place where bytes can be changed. */
static void add_containers(struct heap_image *h, const uint64_t *instances)
{
	uint64_t keys[2] = {image_str(h->im, "key"), image_str(h->im, "\xe9t\xe9")}, dict, set, tuple;

	dict = heap_dict(h, HEAP_GENERAL, keys, instances, 2);
	set = heap_set(h, instances, 2);
	tuple = heap_tuple(h, (const uint64_t[]){dict, set, instances[2]}, 3);
	heap_list(h, &tuple, 1);
}

static void write_span(const struct image *im, size_t from, size_t to, FILE *out)
{
	uint64_t addr = IMAGE_BASE + from;
	uint32_t len = (uint32_t)(to - from);

	fwrite(&addr, sizeof(addr), 1, out);
	fwrite(&len, sizeof(len), 1, out);
	fwrite(im->bytes + from, 1, len, out);
}

static void write_image(const struct image *im, FILE *out)
{
	uint64_t place[] = {im->runtime, IMAGE_BASE + IMAGE_BYTES - 8, 0, 0, im->minor};
	size_t from = 0;

	fwrite(place, sizeof(place), 1, out);
	for (size_t at = 0; at <= IMAGE_BYTES; at += PIECE) {
		bool ends = at == IMAGE_BYTES || is_empty(im->bytes + at);

		if (ends && from < at)
			write_span(im, from, at, out);
		if (ends)
			from = at + PIECE;
	}
}

static void write_heap(uint32_t version, const char *dir)
{
	struct heap_image h;
	uint64_t instances[3];
	char path[4096];
	FILE *out;

	heap_init(&h, image_new(version, false), 0);
	heap_populate(&h, instances);
	add_containers(&h, instances);
	image_put(h.im, IMAGE_BASE + IMAGE_BYTES - 8, &version, sizeof(version));
	snprintf(path, sizeof(path), "%s/heap-3.%u", dir, h.im->minor);
	out = fopen(path, "w");
	if (!out)
		exit(1);
	write_image(h.im, out);
	fclose(out);
	image_free(h.im);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 1;
	EACH_VERSION(v)
		if (!versions[v].free_threaded) /* they have no heap that could be walked */
			write_heap(versions[v].version, argv[1]);
	return 0;
}
