/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/loaded_image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

#define CHUNK_BYTES (1u << 20)

struct piece {
	uint64_t start, end, offset;
};

struct image {
	const struct proc_mapping *of;
	VEC(struct piece) pieces;
	uint64_t bytes;   /* the end of the last of them in the file */
	uint64_t address; /* of the file's first byte */
	bool has_start;
};

/* A file may be mapped several times; the pieces of one are in the order of the file. */
static int collect(void *ctx, const struct proc_mapping *m)
{
	struct image *image = ctx;
	uint64_t end;

	if (m->inode != image->of->inode || m->device != image->of->device ||
		strcmp(m->path, image->of->path) ||
		__builtin_add_overflow(m->offset, m->end - m->start, &end))
		return 0;
	if (!m->offset && m->start <= image->of->start) {
		image->address = m->start;
		image->has_start = true;
		image->pieces.len = 0;
		image->bytes = 0;
	}
	if (!m->offset && m->start > image->of->start)
		return 1;
	if (vec_push(&image->pieces, (struct piece){m->start, m->end, m->offset}))
		return -ENOMEM;
	image->bytes = end > image->bytes ? end : image->bytes;
	return 0;
}

static bool starts_with_elf(const struct source *s, pid_t pid, uint64_t address)
{
	char magic[SELFMAG];

	return source_read(s, pid, address, magic, sizeof(magic)) &&
	       !memcmp(magic, ELFMAG, SELFMAG);
}

/* What cannot be read stays zero: the last page may lie beyond the end of the file. */
static void fill(const struct source *s, uint8_t *bytes, pid_t pid, const struct piece *p)
{
	for (uint64_t at = p->start, len; at < p->end; at += len) {
		len = p->end - at < CHUNK_BYTES ? p->end - at : CHUNK_BYTES;
		source_read(s, pid, at, bytes + p->offset + (at - p->start), len);
	}
}

static int put_together(
	const struct source *s, pid_t pid, const struct image *image, struct elf_file **ret)
{
	uint8_t *bytes = calloc(1, image->bytes);

	if (!bytes)
		return -ENOMEM;
	vec_each(&image->pieces, p)
		fill(s, bytes, pid, p);
	return elf_file_open_loaded(
		bytes, image->bytes, image->address, image->of->path, ret, NULL);
}

int loaded_image_open(const struct source *s, pid_t pid, const struct proc_mapping *m, uint64_t limit,
	struct elf_file **ret, uint64_t *ret_bytes)
{
	struct image image = {.of = m};
	int rc = s->ops->each_mapping(s, pid, collect, &image, NULL);
	char first;

	rc = rc > 0 ? 0 : rc;
	if (!rc && (!image.has_start || !source_read(s, pid, m->start, &first, 1)))
		rc = -ENOENT;
	if (!rc && !starts_with_elf(s, pid, image.address))
		rc = -ENOEXEC;
	if (!rc && image.bytes > limit)
		rc = -EFBIG;
	if (!rc)
		rc = put_together(s, pid, &image, ret);
	if (!rc)
		*ret_bytes = image.bytes;
	vec_release(&image.pieces);
	return rc;
}
