/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * .gnu_debugdata: an xz-compressed ELF image that holds a .symtab (GDB manual, "MiniDebugInfo").
 * Its few hundred kilobytes unpack into a few megabytes; the bounds below are far above that and
 * far below what would hurt.
 */
#include <lzma.h>

#include "base/buf.h"
#include "elf/elf_priv.h"

#define MAX_OUT_BYTES (256u << 20)
#define MAX_DECODER_BYTES (128u << 20)
#define STEP_BYTES (256u << 10)

static bool unpack_xz(const struct elf_section *packed, struct buf *out)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret rc = lzma_stream_decoder(&stream, MAX_DECODER_BYTES, 0);

	stream.next_in = packed->bytes;
	stream.avail_in = packed->size;
	while (rc == LZMA_OK && out->len < MAX_OUT_BYTES) {
		stream.next_out = buf_reserve(out, STEP_BYTES);
		if (!stream.next_out)
			break;
		stream.avail_out = STEP_BYTES;
		rc = lzma_code(&stream, LZMA_FINISH);
		out->len += STEP_BYTES - stream.avail_out;
	}
	lzma_end(&stream);
	return rc == LZMA_STREAM_END;
}

int elf_file_open_minidebug(struct elf_file *f, struct elf_file **ret, struct err *err)
{
	struct elf_section packed;
	struct buf plain = {0};

	*ret = NULL;
	if (!elf_file_section(f, ".gnu_debugdata", &packed))
		return 0;
	if (!unpack_xz(&packed, &plain)) {
		buf_release(&plain);
		return err_set(err, EINVAL, "%s: .gnu_debugdata does not decompress", f->name);
	}
	return elf_file_open_owned((uint8_t *)plain.data, plain.len, f->name, ret, err);
}
