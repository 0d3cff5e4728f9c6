/* SPDX-License-Identifier: BSD-2-Clause */
/* operator new and delete of an allocator that defines them: operators.c. */
#ifndef SONDE_HEAP_PRELOAD_OPERATORS_H
#define SONDE_HEAP_PRELOAD_OPERATORS_H

#include "heap/preload/own.h"
#include "heap/preload/preload.h"

/* With as many arguments as any of them has; what one does not have is passed on all the same. */
typedef void *operator_new(size_t size, uint64_t b, uint64_t c);
typedef void operator_delete(void *block, uint64_t b, uint64_t c);

/* X(name here, name as the linker has it, the sister that it is called by): of 64-bit code, where size_t is unsigned long. */
#define OPERATORS_NEW(X)                                                                           \
	X(new, "_Znwm", new_nothrow)                                                               \
	X(new_array, "_Znam", new_array_nothrow)                                                   \
	X(new_nothrow, "_ZnwmRKSt9nothrow_t", new_nothrow)                                         \
	X(new_array_nothrow, "_ZnamRKSt9nothrow_t", new_array_nothrow)                             \
	X(new_aligned, "_ZnwmSt11align_val_t", new_aligned_nothrow)                                \
	X(new_array_aligned, "_ZnamSt11align_val_t", new_array_aligned_nothrow)                    \
	X(new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", new_aligned_nothrow)          \
	X(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", new_array_aligned_nothrow)

#define OPERATORS_DELETE(X)                                                                        \
	X(delete, "_ZdlPv", delete)                                                                \
	X(delete_array, "_ZdaPv", delete_array)                                                    \
	X(delete_sized, "_ZdlPvm", delete_sized)                                                   \
	X(delete_array_sized, "_ZdaPvm", delete_array_sized)                                       \
	X(delete_nothrow, "_ZdlPvRKSt9nothrow_t", delete_nothrow)                                  \
	X(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", delete_array_nothrow)                      \
	X(delete_aligned, "_ZdlPvSt11align_val_t", delete_aligned)                                 \
	X(delete_array_aligned, "_ZdaPvSt11align_val_t", delete_array_aligned)                     \
	X(delete_sized_aligned, "_ZdlPvmSt11align_val_t", delete_sized_aligned)                    \
	X(delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", delete_array_sized_aligned)        \
	X(delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", delete_aligned_nothrow)   \
	X(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", delete_array_aligned_nothrow)

/* The allocator's. NULL: it does not have it, or is not called by it (got_find_operators()). */
struct operators {
#define OPERATOR_NEXT(name, symbol, sister) operator_new *name;
	OPERATORS_NEW(OPERATOR_NEXT)
#undef OPERATOR_NEXT
#define OPERATOR_NEXT(name, symbol, sister) operator_delete *name;
	OPERATORS_DELETE(OPERATOR_NEXT)
#undef OPERATOR_NEXT
};
extern struct operators operators;

/* Finds all that there are, whoever has them. It may allocate, so it is a part of the search for the real functions. */
void operators_find(void);

#define OPERATOR_OWN(name, symbol, sister) OWN operator_new own_##name;
OPERATORS_NEW(OPERATOR_OWN)
#undef OPERATOR_OWN
#define OPERATOR_OWN(name, symbol, sister) OWN operator_delete own_##name;
OPERATORS_DELETE(OPERATOR_OWN)
#undef OPERATOR_OWN

#endif
