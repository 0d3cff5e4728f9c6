/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names as people wrote them, by libiberty: C++ with parameters and without the return type,
 * Rust (legacy and v0) without the hash, D. Cython's are in cython.c.
 *
 * A mangled name refers back to parts of itself, so 200 bytes can stand for a terabyte. Recursion
 * is limited by libiberty; output is limited here, by leaving its printer from inside the callback
 * once MAX_SHOWN bytes are there. That is the one longjmp in sonde: libiberty offers no other way
 * out, and the frames skipped hold no memory (C++) or at most one identifier (Rust). D has no
 * callback, so names with too many back references stay as they are.
 */
#include <libiberty/demangle.h>
#include <setjmp.h>

#include "base/buf.h"
#include "symbol/symbol_priv.h"

#define MAX_MANGLED 16384
#define MAX_SHOWN 4096
#define CUT_MARK "..."
#define MAX_D_MANGLED 1000
#define MAX_D_BACK_REFERENCES 24
#define OPTIONS (DMGL_PARAMS | DMGL_ANSI | DMGL_RET_DROP)

struct output {
	jmp_buf full;
	size_t len;
	char text[MAX_SHOWN + 1];
};

static void take_piece(const char *piece, size_t len, void *context)
{
	struct output *out = context;
	size_t room = MAX_SHOWN - strlen(CUT_MARK) - out->len;

	memcpy(out->text + out->len, piece, len < room ? len : room);
	if (len <= room) {
		out->len += len;
		return;
	}
	memcpy(out->text + out->len + room, CUT_MARK, sizeof(CUT_MARK));
	out->len = MAX_SHOWN;
	longjmp(out->full, 1);
}

typedef int demangler(const char *mangled, int options, demangle_callbackref take, void *context);

/* False when `mangled` is not of this language. */
static bool demangle_with(demangler *run, const char *mangled, struct output *out)
{
	out->len = 0;
	if (setjmp(out->full))
		return true;
	if (!run(mangled, OPTIONS, take_piece, out) || !out->len)
		return false;
	out->text[out->len] = '\0';
	return true;
}

static char *demangle_d(const char *mangled, size_t len)
{
	size_t back_references = 0;

	for (size_t i = 0; i < len; i++)
		back_references += mangled[i] == 'Q';
	if (len > MAX_D_MANGLED || back_references > MAX_D_BACK_REFERENCES)
		return NULL;
	char *plain = dlang_demangle(mangled, OPTIONS);

	if (plain && strlen(plain) > MAX_SHOWN)
		memcpy(plain + MAX_SHOWN - strlen(CUT_MARK), CUT_MARK, sizeof(CUT_MARK));
	return plain;
}

static bool may_be_mangled(const char *name)
{
	if (name[0] != '_')
		return false;
	return name[1] == 'Z' || name[1] == 'R' || name[1] == 'D' || !strncmp(name, "_GLOBAL_", 8);
}

static char *demangle_cython(const char *mangled)
{
	struct buf plain = {0};

	if (strlen(mangled) <= MAX_SHOWN && cython_name(mangled, &plain))
		return plain.data;
	buf_release(&plain);
	return strdup(mangled);
}

char *symbol_demangle(const char *mangled)
{
	size_t len = strlen(mangled);
	struct output out;
	char *plain;

	if (!strncmp(mangled, "__pyx_", 6))
		return demangle_cython(mangled);

	if (!may_be_mangled(mangled) || len > MAX_MANGLED)
		return strdup(mangled);
	if (demangle_with(rust_demangle_callback, mangled, &out) ||
		demangle_with(cplus_demangle_v3_callback, mangled, &out))
		return strdup(out.text);
	plain = mangled[1] == 'D' ? demangle_d(mangled, len) : NULL;
	return plain ? plain : strdup(mangled);
}
