/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom memory is for: the innermost code that is not the allocator's. docs/heuristics/heap-sites.md */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "profile/heap_priv.h"
#include "symbol/interpreter.h"

/* Functions that hand out memory, as a whole name; a name that goes on with '(' or '<' is the same one. */
static const char *const allocators[] = {"malloc", "calloc", "realloc", "reallocarray", "free", "cfree", "memalign",
	"aligned_alloc", "posix_memalign", "valloc", "pvalloc", "free_sized", "free_aligned_sized", "__libc_malloc",
	"__libc_calloc", "__libc_realloc", "__libc_reallocarray", "__libc_memalign", "__libc_valloc", "__libc_pvalloc",
	"__libc_free", "__posix_memalign", "_mid_memalign", "mallocx", "rallocx", "xallocx", "operator new", "operator new[]",
	"operator delete", "operator delete[]", "g_malloc", "g_malloc0", "g_malloc_n", "g_malloc0_n", "g_realloc",
	"g_realloc_n", "g_try_malloc", "g_try_malloc0", "g_try_malloc_n", "g_try_malloc0_n", "g_try_realloc",
	"g_try_realloc_n", "g_slice_alloc", "g_slice_alloc0", "__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc",
	"__rust_dealloc", "pymalloc_alloc", "pymalloc_realloc", "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc",
	"_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc"};

static const char *const pool_start = "[pool ", *const mapped_start = "[mapped";

/* The same by how they begin. */
static const char *const allocator_starts[] = {"mi_", "_mi_", "je_", "_rjem_", "tc_malloc", "tc_calloc", "tc_realloc",
	"tc_new", "tc_memalign", "__rdl_", "__rg_", "__rustc::__r", "PyMem_", "_PyMem_", "alloc::alloc::",
	"[pool ", "[mapped"};

/* What stands between the one who wants memory and the allocator: the C++ and Rust standard libraries. */
static const char *const library_starts[] = {"std::", "__gnu_cxx::", "alloc::raw_vec::", "<alloc::", "<T as alloc::",
	"hashbrown::raw::"};

/* Wrappers of programs and libraries say so at the end of their names: ngx_alloc, os::malloc, CRYPTO_zalloc, __strdup. In C++ also
 * at the beginning: node::NodeArrayBufferAllocator::AllocateUninitialized. */
static const char *const wrapper_ends[] = {"alloc", "memalign", "strdup", "strndup", "memdup"};
static const char wrapper_start[] = "allocate";

/* CPython's allocator has a file of its own. */
static const char allocator_file[] = "obmalloc.c";

/* Rust's, by the file of the source: as a path inside the compiler's tree. */
static const char *const library_files[] = {"/library/alloc/src/", "/library/core/src/", "/library/std/src/"};

static const char *const allocator_modules[] = {"libjemalloc", "libtcmalloc", "libmimalloc", "libsonde-heap", "libhoard",
	"libsnmalloc", "librpmalloc", "libumem", "libtbbmalloc"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool starts_with(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strncmp(name, list[i], strlen(list[i])))
			return true;
	return false;
}

/* The whole name, up to its parameters. */
static bool is_one_of(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(list[i]);

		if (!strncmp(name, list[i], len) && (!name[len] || strchr("(<@", name[len])))
			return true;
	}
	return false;
}

static bool is_allocator(const struct profile *p, const struct profile_function *f)
{
	if (f->module != PROFILE_NONE && starts_with(p->modules.data[f->module].name, allocator_modules, COUNT(allocator_modules)))
		return true;
	if (f->unresolved)
		return false;
	if (f->file && strlen(f->file) >= strlen(allocator_file) &&
		!strcmp(f->file + strlen(f->file) - strlen(allocator_file), allocator_file))
		return true;
	return is_one_of(f->name, allocators, COUNT(allocators)) || starts_with(f->name, allocator_starts, COUNT(allocator_starts));
}

/* The name alone: without scopes, parameters, and what compilers append (".part.0"). */
static const char *own_name(const char *name, size_t *ret_len)
{
	const char *start = name, *end = NULL, *at;
	unsigned depth = 0;

	for (at = name; *at; at++) {
		if (*at == '(' || *at == '<') {
			end = depth++ || end ? end : at;
		} else if (*at == ')' || *at == '>') {
			depth -= depth > 0;
		} else if (!depth && at[0] == ':' && at[1] == ':') {
			start = ++at + 1;
			end = NULL;
		} else if (!depth && *at == '.' && !end) {
			end = at;
		}
	}
	*ret_len = (size_t)((end ? end : at) - start);
	return start;
}

static bool is_wrapper(const char *name)
{
	size_t len, all;
	const char *own = own_name(name, &len);

	all = len;
	/* sqlite3_malloc64, g_malloc0_n */
	while (len > 1 && (isdigit((unsigned char)own[len - 1]) || own[len - 1] == '_' || !strncmp(own + len - 2, "_n", 2)))
		len--;
	for (size_t i = 0; i < COUNT(wrapper_ends); i++) {
		size_t end = strlen(wrapper_ends[i]);

		if (len >= end && !strncasecmp(own + len - end, wrapper_ends[i], end))
			return true;
	}
	/* Of C++: "allocate_stack" of libc is what it says. */
	return (own > name || own[all] == '(') && all >= strlen(wrapper_start) &&
		!strncasecmp(own, wrapper_start, strlen(wrapper_start));
}

static bool is_library(const struct profile *p, const struct profile_function *f)
{
	if (f->unresolved)
		return false;
	if (p->heap && p->heap->wrappers && p->heap->wrappers[f - p->functions.data])
		return true;
	for (size_t i = 0; f->file && i < COUNT(library_files); i++)
		if (strstr(f->file, library_files[i]))
			return true;
	return (!(p->heap && p->heap->show_wrappers) && is_wrapper(f->name)) || starts_with(f->name, library_starts, COUNT(library_starts));
}

uint8_t heap_role_of(const struct profile *p, const struct profile_function *f)
{
	return is_allocator(p, f) ? HEAP_ROLE_ALLOCATOR : is_library(p, f) ? HEAP_ROLE_LIBRARY : HEAP_ROLE_USER;
}

/* The innermost level of the highest role on the path. */
uint32_t heap_find_level(const struct profile *p, uint32_t stack, const uint8_t *roles, uint32_t *ret_node)
{
	uint32_t best = PROFILE_NONE, best_node = PROFILE_NONE;
	uint8_t best_role = 0;

	for (uint32_t n = stack; n != PROFILE_NONE && best_role < HEAP_ROLE_USER; n = p->nodes.data[n].parent) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[n].frame];

		for (uint32_t i = f->first_level; i < f->first_level + f->level_count && best_role < HEAP_ROLE_USER; i++) {
			uint32_t function = p->levels.data[i].function;
			uint8_t role = f->role == FRAME_OF_RUNTIME || f->role == FRAME_EVALUATES ? HEAP_ROLE_ALLOCATOR
				: roles ? roles[function] : heap_role_of(p, &p->functions.data[function]);

			if (best != PROFILE_NONE && role <= best_role)
				continue;
			best = i;
			best_node = n;
			best_role = role;
		}
	}
	*ret_node = best_node;
	return best;
}

uint32_t heap_pool_of(const struct profile *p, uint32_t stack)
{
	const struct profile_function *f;
	uint32_t function;

	if (stack == PROFILE_NONE)
		return PROFILE_NONE;
	function = p->levels.data[p->frames.data[p->nodes.data[stack].frame].first_level].function;
	f = &p->functions.data[function];
	if (f->module == PROFILE_NONE && (starts_with(f->name, &pool_start, 1) || starts_with(f->name, &mapped_start, 1)))
		return function;
	return PROFILE_NONE;
}

enum heap_kind heap_kind_of(const struct profile *p, uint32_t pool)
{
	if (pool == PROFILE_NONE)
		return HEAP_MALLOC;
	return starts_with(p->functions.data[pool].name, &mapped_start, 1) ? HEAP_MAPPED : HEAP_POOL;
}

uint32_t heap_site_level(const struct profile *p, uint32_t stack, uint32_t *ret_node)
{
	return heap_find_level(p, stack, NULL, ret_node);
}
