/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recording reader and everything that is computed from a recording.
 *
 * The checksums would keep a fuzzer outside: inputs that begin with the magic are read as they are,
 * all others are taken as records and put into a block with the right checksum.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "capture/block.h"
#include "profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t touched; /* keeps the compiler from leaving the reads out */

static void wrap_records(struct buf *b, const uint8_t *records, size_t len)
{
	struct capture_file_header file = {
		.magic = CAPTURE_MAGIC,
		.version = CAPTURE_VERSION,
		.header_bytes = sizeof(file),
	};
	struct capture_block_header block = {
		.magic = CAPTURE_BLOCK_MAGIC,
		.stored_bytes = (uint32_t)len,
		.plain_bytes = (uint32_t)len,
	};

	file.checksum = file_header_checksum(&file);
	block.checksum = block_checksum(&block, records);
	buf_add(b, &file, sizeof(file));
	buf_add(b, &block, sizeof(block));
	buf_add(b, records, len);
}

/* Every index the model promises to be good is followed; strings are read to their end. */
static size_t touch_model(const struct profile *p)
{
	size_t sink = 0;
	uint32_t levels[64];

	for (size_t i = 0; i < p->samples.len; i++) {
		const struct profile_sample *s = &p->samples.data[i];
		size_t n = profile_stack_levels(p, s->stack, levels, 64);

		sink += strlen(p->threads.data[s->thread].process) + p->quality.ends[s->end];
		for (size_t k = 0; k < n && k < 64; k++) {
			const struct profile_level *l = &p->levels.data[levels[k]];
			const struct profile_function *f = &p->functions.data[l->function];

			sink += strlen(f->name) + (f->file ? strlen(f->file) : 0);
			sink += f->module != PROFILE_NONE ?
				strlen(p->modules.data[f->module].name) :
				0;
		}
		/* Long stacks are walked once; what they hold does not depend on the sample. */
		if (n > 1024)
			break;
	}
	return sink + (profile_meta(p, "host") != NULL);
}

static void touch_tree(const struct profile *p, bool inverted)
{
	struct profile_tree t;
	uint64_t self = 0;

	if (profile_tree_build(p, inverted, &t, NULL))
		return;
	for (size_t i = 0; i < t.nodes.len; i++)
		self += t.nodes.data[i].self;
	if (self != p->samples.len || t.nodes.data[0].total != self)
		__builtin_trap();
	profile_tree_release(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char magic[] = CAPTURE_MAGIC;
	struct profile *p;
	struct profile_count *counts;
	struct buf b = {0};

	if (size >= 8 && !memcmp(data, magic, 8))
		buf_add(&b, data, size);
	else
		wrap_records(&b, data, size);
	if (!profile_load_memory(b.data, b.len, NULL, &p, NULL)) {
		touched += touch_model(p);
		touch_tree(p, false);
		touch_tree(p, true);
		if (!profile_count_functions(p, &counts, NULL))
			free(counts);
		profile_free(p);
	}
	buf_release(&b);
	return 0;
}
