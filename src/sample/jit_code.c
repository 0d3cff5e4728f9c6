/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/jit_code.h"

#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "sample/jit_unwind.h"

/* Bytes at an address that must be those of the dump. */
#define COMPARED_BYTES 16u

#define MAX_FUNCTION_BYTES (1u << 20) /* with unwind information of its own */
#define MAX_BYTES_IN_ALL (64u << 20)

struct jit_piece_unwind {
	struct unwind_module *module;
	uint8_t *bytes; /* what the module was made from: code, then unwind information */
	bool tried;
};

struct jit_code {
	struct jitdump *dump;
	VEC(struct jit_piece_unwind) pieces; /* by the dump's numbers */
	size_t bytes;
};

/* Only a file of the user that the process runs as is believed. */
static int check_owner(pid_t pid, int fd, const char *path, struct err *err)
{
	struct proc_status status;
	struct stat st;
	int rc = proc_status_read(pid, &status, err);

	if (rc)
		return rc;
	if (fstat(fd, &st))
		return err_errno(err, errno, "%s", path);
	if (st.st_uid != status.euid)
		return err_set(err, EPERM, "%s belongs to user %u, the process to user %u: ignored",
			path, (unsigned)st.st_uid, (unsigned)status.euid);
	return 0;
}

int jit_code_open(pid_t pid, const struct proc_mapping *m, struct jit_code **ret, struct err *err)
{
	struct jit_code *c;

	if (!jitdump_pid(m->path))
		return -ENOENT;

	autoclose int fd = proc_open_mapped_file(pid, m, err);
	int rc = fd < 0 ? fd : check_owner(pid, fd, m->path, err);

	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_nomem(err);
	rc = jitdump_open(take_fd(fd), &c->dump, err);
	if (rc) {
		free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void jit_code_free(struct jit_code *c)
{
	if (!c)
		return;
	vec_each(&c->pieces, p) {
		unwind_module_free(p->module);
		free(p->bytes);
	}
	vec_release(&c->pieces);
	jitdump_free(c->dump);
	free(c);
}

struct jitdump *jit_code_dump(const struct jit_code *c)
{
	return c->dump;
}

/* ---- unwind information ---- */

static void try_module(struct jit_code *c, struct jit_piece_unwind *piece, const struct jitdump_code *code)
{
	size_t code_bytes = code->end - code->start, all = code_bytes + code->unwind_bytes;

	piece->tried = true;
	if (!code->unwind_bytes || code_bytes > MAX_FUNCTION_BYTES || all > MAX_BYTES_IN_ALL - c->bytes)
		return;
	piece->bytes = malloc(all);
	if (!piece->bytes)
		return;
	if (jitdump_read(c->dump, code->offset, piece->bytes, code_bytes) &&
		jitdump_read(c->dump, code->unwind_offset, piece->bytes + code_bytes,
			code->unwind_bytes))
		piece->module = jit_unwind_new(&(struct jit_unwind_input){
			.code = piece->bytes,
			.code_bytes = code_bytes,
			.address = code->offset,
			.unwind = piece->bytes + code_bytes,
			.unwind_bytes = code->unwind_bytes,
			.hdr_bytes = code->unwind_hdr_bytes,
		});
	if (piece->module) {
		c->bytes += all;
	} else {
		free(piece->bytes);
		piece->bytes = NULL;
	}
}

static struct unwind_module *module_of(struct jit_code *c, const struct jitdump_code *code)
{
	size_t old = c->pieces.len, want = (size_t)code->number + 1;

	if (want > old) {
		if (vec_reserve(&c->pieces, want))
			return NULL;
		memset(c->pieces.data + old, 0, (want - old) * sizeof(*c->pieces.data));
		c->pieces.len = want;
	}

	struct jit_piece_unwind *piece = &c->pieces.data[code->number];

	if (!piece->tried)
		try_module(c, piece, code);
	return piece->module;
}

/* ---- looking up ---- */

/* Does the process have the dump's bytes there? When it has none any more, that is no reason to doubt. */
static bool is_there(
	const struct jit_code *c, pid_t pid, const struct jitdump_code *code, uint64_t addr)
{
	uint8_t told[COMPARED_BYTES], found[COMPARED_BYTES];
	uint64_t at = code->start + ((addr - code->start) & ~(uint64_t)(COMPARED_BYTES - 1));
	size_t len = code->end - at < sizeof(told) ? code->end - at : sizeof(told);

	if (!proc_read_memory(pid, at, found, len))
		return true;
	return jitdump_read(c->dump, code->offset + (at - code->start), told, len) &&
	       !memcmp(told, found, len);
}

bool jit_code_find(struct jit_code *c, pid_t pid, uint64_t addr, uint64_t time_ns,
	struct jit_function *ret)
{
	struct jitdump_code code;

	jitdump_follow(c->dump);
	if (!jitdump_find(c->dump, addr, time_ns, &code) || !is_there(c, pid, &code, addr))
		return false;
	*ret = (struct jit_function){
		.start = code.start,
		.end = code.end,
		.bias = code.start - code.offset,
		.unwind = module_of(c, &code),
	};
	return true;
}
