/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names that Cython gives to C functions, as the function was called in the .pyx file:
 * "__pyx_pw_4demo_5Klass_1meth" is demo.Klass.meth.
 *
 * Behind the prefix stand the module and its scopes, each with its length in front and '_' behind, and then the
 * function, in front of which stands a counter where there are several of its kind (Compiler/Naming.py and
 * the names of scopes in Compiler/Symtab.py). A counter that happens to be the length of a word of the
 * function's name is taken for a scope; the name is as readable with the wrong separator.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "symbol/symbol_priv.h"

static const char *behind_prefix(const char *name)
{
	/* the function, its wrapper for Python, one of C, the body of a generator */
	static const char *const prefixes[] = {"__pyx_pf_", "__pyx_pw_", "__pyx_f_", "__pyx_gb_"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return name + strlen(prefixes[i]);
	return NULL;
}

/* The length of a scope at `at`, which begins behind *ret; 0: there is none. */
static size_t scope_at(const char *at, const char **ret)
{
	char *end;
	unsigned long len = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;

	if (!len || strlen(end) <= len || end[len] != '_')
		return 0;
	*ret = end;
	return len;
}

bool cython_name(const char *name, struct buf *ret)
{
	const char *at = behind_prefix(name), *scope;
	size_t len, scopes = 0;

	if (!at)
		return false;
	for (; (len = scope_at(at, &scope)) > 0; scopes++) {
		buf_add(ret, scope, len);
		buf_char(ret, '.');
		at = scope + len + 1;
	}
	at += strspn(at, "0123456789");
	buf_str(ret, at);
	return scopes && *at && !ret->failed;
}
