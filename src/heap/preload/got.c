/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects come and go by other threads while we look, and an object that is being loaded has words that the loader is
 * about to write, and pages that it is about to protect. So we look with the loader's lock held, and that is had in a
 * roundabout way: dlsym() calls the resolver of a symbol that has one (STT_GNU_IFUNC), and holds the lock then. musl
 * knows no such symbols; there the objects are walked as they are.
 *
 * A word is believed to be a call of malloc by its relocation, whose symbol has that name, and by what it holds: the
 * function that is called next, or, not bound yet, a place in the object's own code.
 */
#include "heap/preload/got.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#include "heap/preload/operators.h"
#include "heap/preload/own.h"
#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/sys.h"

#pragma weak dlsym
#pragma weak dl_iterate_phdr
#pragma weak getauxval

#if defined(__x86_64__)
#define RELOC_SLOT R_X86_64_JUMP_SLOT
#define RELOC_DATA R_X86_64_GLOB_DAT
#define RELOC_ADDRESS R_X86_64_64
#else
#define RELOC_SLOT R_AARCH64_JUMP_SLOT
#define RELOC_DATA R_AARCH64_GLOB_DAT
#define RELOC_ADDRESS R_AARCH64_ABS64
#endif

#define PATCHES 65536u

struct patch {
	void **slot;
	void *old;
};

/* ---- the functions ---- */

static void *next_reallocarray, *next_cfree, *next_dlsym;
static bool patched, pending;
static bool has_operators; /* the allocator does, and they lead to us */
static bool launched; /* with the library: its names lead to us, but for operators */

static void *own_dlsym(void *handle, const char *name)
{
	if (__atomic_load_n(&pending, __ATOMIC_RELAXED))
		got_loaded();
	/* A jump: the loader looks at who has called it. */
	return ((void *(*)(void *, const char *))next_dlsym)(handle, name);
}

static const struct name {
	const char *name;
	void *ours;
	void **next;
	bool maps;     /* only where it was asked for */
	bool operator; /* only where the allocator defines it and `sister` */
	void **sister;
} names[] = {
	{"malloc", (void *)own_malloc, (void **)&real.malloc},
	{"free", (void *)own_free, (void **)&real.free},
	{"calloc", (void *)own_calloc, (void **)&real.calloc},
	{"realloc", (void *)own_realloc, (void **)&real.realloc},
	{"reallocarray", (void *)own_reallocarray, &next_reallocarray},
	{"memalign", (void *)own_memalign, (void **)&real.memalign},
	{"posix_memalign", (void *)own_posix_memalign, (void **)&real.posix_memalign},
	{"aligned_alloc", (void *)own_aligned_alloc, (void **)&real.aligned_alloc},
	{"valloc", (void *)own_valloc, (void **)&real.valloc},
	{"pvalloc", (void *)own_pvalloc, (void **)&real.pvalloc},
	{"cfree", (void *)own_cfree, &next_cfree},
	{"free_sized", (void *)own_free_sized, (void **)&real.free_sized},
	{"free_aligned_sized", (void *)own_free_aligned_sized, (void **)&real.free_aligned_sized},
	{"dlopen", (void *)own_dlopen, (void **)&real.dlopen},
	{"dlmopen", (void *)own_dlmopen, (void **)&real.dlmopen},
	{"dlclose", (void *)own_dlclose, (void **)&real.dlclose},
	{"dlsym", (void *)own_dlsym, &next_dlsym},
	{"mmap", (void *)own_mmap, (void **)&real.mmap, .maps = true},
	{"mmap64", (void *)own_mmap64, (void **)&real.mmap64, .maps = true},
	{"munmap", (void *)own_munmap, (void **)&real.munmap, .maps = true},
	{"mremap", (void *)own_mremap, (void **)&real.mremap, .maps = true},
	{"brk", (void *)own_brk, (void **)&real.brk, .maps = true},
	{"sbrk", (void *)own_sbrk, (void **)&real.sbrk, .maps = true},
#define OPERATOR_NAME(as, symbol, by)                                                              \
	{symbol, (void *)own_##as, (void **)&operators.as, .operator = true, .sister = (void **)&operators.by},
	OPERATORS_NEW(OPERATOR_NAME) OPERATORS_DELETE(OPERATOR_NAME)
#undef OPERATOR_NAME
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static const struct name *name_of(const char *symbol)
{
	for (uint32_t i = 0; i < NAMES; i++)
		if (*symbol == *names[i].name && same(symbol, names[i].name))
			return &names[i];
	return NULL;
}

/* Of those that operators_find() has found: which are the allocator's. */
static void choose_operators(void)
{
	for (uint32_t i = 0; i < NAMES; i++)
		if (names[i].operator && !real_has((uint64_t)*names[i].next))
			__atomic_store_n(names[i].next, NULL, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < NAMES; i++) {
		if (names[i].operator && !*names[i].sister)
			__atomic_store_n(names[i].next, NULL, __ATOMIC_RELEASE);
		has_operators |= names[i].operator && *names[i].next;
	}
}

bool got_find_real(void)
{
	if (!dlsym || !dl_iterate_phdr || !dlsym(RTLD_DEFAULT, "malloc") || !dlsym(RTLD_DEFAULT, "free"))
		return false;
	*(void **)&real.usable_size = dlsym(RTLD_DEFAULT, "malloc_usable_size");
	/* malloc last: it says that all are there. */
	for (uint32_t i = NAMES; i-- > 0;) {
		void *next = names[i].operator ? NULL : dlsym(RTLD_DEFAULT, names[i].name);

		if (names[i].operator)
			continue;

		/* Where nobody else has it, our own is found. */
		__atomic_store_n(names[i].next, next == names[i].ours ? NULL : next, __ATOMIC_RELEASE);
	}
	real_find_object();
	operators_find();
	choose_operators();
	return true;
}

enum { NOTHING, LOOK, PATCH, RESTORE };
/* With the loader's lock. Volatile: the compiler does not see that dlsym() leads back here. */
static volatile int job;

/* ---- objects ---- */

#define WANTED 48u

struct object {
	uint64_t base, low, high;         /* [low, high): its memory */
	uint64_t code_low, code_high;
	uint64_t sealed_low, sealed_high; /* pages that the loader has made read-only */
	const Elf64_Sym *symbols;
	const char *strings;
	const uint32_t *hash;             /* DT_GNU_HASH; NULL: it has none */
	const Elf64_Rela *tables[2];
	uint64_t bytes[2];
	uint64_t relative;                /* the first ones of tables[0] are of no symbol */
	/* Its symbols of our names, by number, where `hash` told; the bits are those of their numbers modulo 64. */
	struct { uint32_t symbol; const struct name *name; } wanted[WANTED];
	uint32_t wanted_count;
	uint64_t wanted_bits;
	bool open;    /* what was sealed is writable for now */
	bool touched;
};

static uint64_t page_bytes(void)
{
	uint64_t page = getauxval ? getauxval(AT_PAGESZ) : 0;

	return page ? page : 4096;
}

/* glibc keeps addresses in the dynamic section where the file has offsets, musl does not. */
static uint64_t at(const struct object *o, uint64_t value)
{
	return value >= o->low && value < o->high ? value : value + o->base;
}

static void read_dynamic(struct object *o, const Elf64_Dyn *d)
{
	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			o->symbols = (const Elf64_Sym *)at(o, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			o->strings = (const char *)at(o, d->d_un.d_ptr);
			break;
		case DT_RELA:
			o->tables[0] = (const Elf64_Rela *)at(o, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			o->bytes[0] = d->d_un.d_val;
			break;
		case DT_JMPREL:
			o->tables[1] = (const Elf64_Rela *)at(o, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			o->bytes[1] = d->d_un.d_val;
			break;
		case DT_RELACOUNT:
			o->relative = d->d_un.d_val;
			break;
		case DT_GNU_HASH:
			o->hash = (const uint32_t *)at(o, d->d_un.d_ptr);
			break;
		default:
			break;
		}
	}
}

static void read_segment(struct object *o, const Elf64_Phdr *p, const Elf64_Phdr **dynamic)
{
	uint64_t start = o->base + p->p_vaddr, end = start + p->p_memsz, page = page_bytes();

	if (p->p_type == PT_DYNAMIC)
		*dynamic = p;
	if (p->p_type == PT_GNU_RELRO) {
		o->sealed_low = start & ~(page - 1);
		o->sealed_high = end & ~(page - 1);
	}
	if (p->p_type != PT_LOAD)
		return;
	o->low = start < o->low ? start : o->low;
	o->high = end > o->high ? end : o->high;
	if (p->p_flags & PF_X) {
		o->code_low = start < o->code_low ? start : o->code_low;
		o->code_high = end > o->code_high ? end : o->code_high;
	}
}

/* ---- symbols ---- */

static bool want(struct object *o, uint32_t symbol, const struct name *name)
{
	if (o->wanted_count == WANTED)
		return false;
	o->wanted[o->wanted_count].symbol = symbol;
	o->wanted[o->wanted_count++].name = name;
	o->wanted_bits |= 1ull << (symbol & 63);
	return true;
}

static uint32_t hash_of(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* Those that it defines. What is hashed: bucket by bucket, the last of each with bit 0. */
static bool want_defined(struct object *o, const struct name *name)
{
	uint32_t buckets = o->hash[0], first = o->hash[1], words = o->hash[2], h = hash_of(name->name);
	const uint64_t *bloom = (const uint64_t *)(const void *)(o->hash + 4);
	const uint32_t *bucket = (const uint32_t *)(const void *)(bloom + words), *chain = bucket + buckets;
	uint64_t word;
	uint32_t i;

	if (!buckets || !words)
		return true;
	word = bloom[h / 64 % words];
	i = bucket[h % buckets];
	if (!(word >> (h & 63) & word >> (h >> o->hash[3] & 63) & 1) || i < first)
		return true;
	for (;; i++) {
		uint32_t its = chain[i - first];

		if ((its | 1) == (h | 1) && same(o->strings + o->symbols[i].st_name, name->name) && !want(o, i, name))
			return false;
		if (its & 1)
			return true;
	}
}

/* Big libraries have tens of thousands of relocations, and a look at the name of each is a cache miss or two. So the symbols are
 * found first: what is not defined stands before all that is hashed. */
static void find_symbols(struct object *o)
{
	bool all = true;

	if (!o->hash)
		return;
	for (uint32_t i = 1; i < o->hash[1] && all; i++) {
		const struct name *name = name_of(o->strings + o->symbols[i].st_name);

		all = !name || want(o, i, name);
	}
	for (uint32_t i = 0; i < NAMES && all; i++)
		all = want_defined(o, &names[i]);
	if (!all)
		o->hash = NULL; /* more than anybody has: each is looked at */
}

static const struct name *name_of_symbol(const struct object *o, uint32_t symbol)
{
	if (!o->hash)
		return name_of(o->strings + o->symbols[symbol].st_name);
	if (!(o->wanted_bits >> (symbol & 63) & 1))
		return NULL;
	for (uint32_t i = 0; i < o->wanted_count; i++)
		if (o->wanted[i].symbol == symbol)
			return o->wanted[i].name;
	return NULL;
}

/* ---- one object ---- */

static bool holds(const struct object *o, const void *address)
{
	return (uint64_t)address >= o->low && (uint64_t)address < o->high;
}

/* False: it is the loader, the kernel's page, ourselves, or nothing can be found in it. */
static bool read_object(struct object *o, const struct dl_phdr_info *info)
{
	const Elf64_Phdr *dynamic = NULL;
	uint64_t loader = getauxval ? getauxval(AT_BASE) : 0;

	*o = (struct object){.base = info->dlpi_addr, .low = UINT64_MAX, .code_low = UINT64_MAX};
	for (uint32_t i = 0; i < info->dlpi_phnum; i++)
		read_segment(o, &info->dlpi_phdr[i], &dynamic);
	if (!dynamic || holds(o, &preload) || (getauxval && holds(o, (void *)getauxval(AT_SYSINFO_EHDR))))
		return false;
	/* musl's loader is its libc. */
	if (loader && holds(o, (void *)loader) && !holds(o, *(void **)&real.malloc))
		return false;
	read_dynamic(o, (const Elf64_Dyn *)(o->base + dynamic->p_vaddr));
	if (!o->symbols || !o->strings)
		return false;
	if (job != RESTORE)
		find_symbols(o);
	return true;
}

/* ---- words ---- */

static void seal(struct object *o, bool open)
{
	if (o->open == open || o->sealed_high <= o->sealed_low)
		return;
	if (!sys3(SYS_mprotect, o->sealed_low, o->sealed_high - o->sealed_low, open ? PROT_READ | PROT_WRITE : PROT_READ))
		o->open = open;
}

static bool set(struct object *o, void **slot, void *value)
{
	if ((uint64_t)slot >= o->sealed_low && (uint64_t)slot < o->sealed_high) {
		seal(o, true);
		if (!o->open)
			return false;
	}
	__atomic_store_n(slot, value, __ATOMIC_RELEASE);
	return true;
}

/* The word of a relocation, and its name; NULL: none of ours. */
static const struct name *word_of(const struct object *o, const Elf64_Rela *r, void ***ret_slot, bool *ret_lazy)
{
	uint32_t type = ELF64_R_TYPE(r->r_info), symbol = ELF64_R_SYM(r->r_info);
	uint64_t slot = o->base + r->r_offset;

	if (!symbol || (type != RELOC_SLOT && type != RELOC_DATA && (type != RELOC_ADDRESS || r->r_addend)) ||
		slot < o->low || slot > o->high - sizeof(void *) || slot % sizeof(void *))
		return NULL;
	*ret_slot = (void **)slot;
	*ret_lazy = type == RELOC_SLOT;
	return name_of_symbol(o, symbol);
}

typedef void visit(struct object *o, const struct name *name, void **slot, bool lazy);

static void each_word(struct object *o, visit *fn)
{
	for (int table = 0; table < 2; table++) {
		uint64_t count = o->tables[table] ? o->bytes[table] / sizeof(Elf64_Rela) : 0;

		for (uint64_t i = table ? 0 : o->relative; i < count; i++) {
			void **slot;
			bool lazy;
			const struct name *name = word_of(o, &o->tables[table][i], &slot, &lazy);

			if (name)
				fn(o, name, slot, lazy);
		}
	}
}

/* ---- the other one that was here before ---- */

/* What most words of a name hold that is not the function by its name. */
static struct {
	void *other;
	uint32_t plain, others;
	/* An executable with a fixed address that takes the function's address has an entry of its own for it, which jumps
	 * through the word there; for everybody that is the function by its name. */
	void *entry;
} held[NAMES];

static void look(struct object *o, const struct name *name, void **slot, bool lazy)
{
	void *value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
	uint32_t i = (uint32_t)(name - names);

	if (lazy && *name->next && holds(o, *name->next) && !holds(o, value)) {
		held[i].entry = *name->next;
		__atomic_store_n(name->next, value, __ATOMIC_RELEASE);
	}
	if (value == *name->next)
		held[i].plain++;
	else if (value && value != held[i].entry && !((uint64_t)value >= o->code_low && (uint64_t)value < o->code_high) && (uint64_t)value > 65536) {
		if (!held[i].other)
			held[i].other = value;
		held[i].others += value == held[i].other;
	}
}

static void choose_next(void)
{
	for (uint32_t i = 0; i < NAMES; i++)
		if (held[i].others > held[i].plain && !names[i].operator)
			__atomic_store_n(names[i].next, held[i].other, __ATOMIC_RELEASE);
}

/* ---- patching ---- */

static struct patch *patches;
static uint32_t patch_count;
static struct got_counts counts;

/* What the allocator frees may be from others (a string of the C++ library's), and is no harm when it is not known. */
static bool frees(const struct name *name)
{
	return name->next == (void **)&real.free || name->next == &next_cfree ||
		(name->operator && (uintptr_t)name->next >= (uintptr_t)&operators.delete);
}

/* What it allocates for itself is not the program's; and where its operators call malloc by name, their blocks have been
 * seen already. */
static void leave_allocator_alone(struct object *o, const struct name *name, void **slot)
{
	if (launched && real_has((uint64_t)*name->next))
		set(o, slot, *name->next);
}

static void patch(struct object *o, const struct name *name, void **slot, bool lazy)
{
	void *value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
	bool unbound = lazy && (uint64_t)value >= o->code_low && (uint64_t)value < o->code_high;

	if (has_operators && holds(o, *(void **)&real.malloc) && !frees(name)) {
		leave_allocator_alone(o, name, slot);
		return;
	}
	if (value == name->ours || !*name->next)
		return;
	if (launched && !name->operator && name->next != &next_dlsym)
		return;
	if (name->maps && !(preload.memory.header->options & SHARE_OPTION_MAPS))
		return;
	if ((value != *name->next && !unbound) || patch_count == PATCHES) {
		counts.others++;
		return;
	}
	patches[patch_count] = (struct patch){slot, value};
	if (!set(o, slot, name->ours)) {
		counts.others++;
		return;
	}
	patch_count++;
	counts.slots++;
	o->touched = true;
}

/* From the newest to the oldest: of two patches of one address, the older one is of an object that is gone. */
static void restore(struct object *o)
{
	for (uint32_t i = patch_count; i-- > 0;) {
		struct patch *p = &patches[i];
		bool ours = false;

		if (!p->slot || !holds(o, p->slot))
			continue;
		for (uint32_t n = 0; n < NAMES; n++)
			ours |= __atomic_load_n(p->slot, __ATOMIC_ACQUIRE) == names[n].ours;
		if (ours)
			set(o, p->slot, p->old);
		p->slot = NULL;
	}
}

/* ---- with the loader's lock ---- */

static int one_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct object o;

	if (!read_object(&o, info))
		return 0;
	if (job == LOOK)
		each_word(&o, look);
	else if (job == PATCH)
		each_word(&o, patch);
	else if (job == RESTORE)
		restore(&o);
	seal(&o, false);
	counts.objects += o.touched;
	return 0;
}

static void work(void)
{
	if (job != NOTHING)
		dl_iterate_phdr(one_object, NULL);
	job = NOTHING;
}

__attribute__((used)) static void (*resolve(void))(void)
{
	work();
	return NULL;
}

/* Never called: looking for it is what counts. */
PRELOAD_EXPORT void sonde_heap_locked(void) __attribute__((ifunc("resolve")));

static uint32_t busy;

static bool run(int what)
{
	if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
		return false;
	job = what;
	dlsym(RTLD_DEFAULT, "sonde_heap_locked");
	work();
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
	return true;
}

static bool make_room(void)
{
	long memory = (long)patches;

	if (!memory)
		memory = sys6(SYS_mmap, 0, PATCHES * sizeof(*patches), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory > -4096 && memory < 0)
		return false;
	patches = (struct patch *)memory;
	return true;
}

void got_patch_operators(void)
{
	if (launched || !dlsym || !dl_iterate_phdr)
		return;
	choose_operators();
	if (!has_operators || !make_room())
		return;
	next_dlsym = dlsym(RTLD_DEFAULT, "dlsym");
	launched = true;
	run(PATCH);
	__atomic_store_n(&patched, true, __ATOMIC_RELEASE);
}

void got_patch(struct got_counts *ret)
{
	if (!make_room())
		return;
	/* Attached again without having been detached: what it was attached to is gone. */
	if (patched) {
		run(PATCH);
		*ret = counts;
		return;
	}
	patch_count = 0;
	counts = (struct got_counts){0};
	for (uint32_t i = 0; i < NAMES; i++)
		held[i].other = NULL, held[i].plain = held[i].others = 0;
	run(LOOK);
	choose_next();
	run(PATCH);
	__atomic_store_n(&patched, true, __ATOMIC_RELEASE);
	*ret = counts;
}

void got_restore(void)
{
	const struct timespec pause = {.tv_nsec = 20000};

	__atomic_store_n(&patched, false, __ATOMIC_RELEASE);
	/* Another thread patches what it has loaded: that takes microseconds, and the CPU that we may have before it. */
	while (!run(RESTORE))
		sys3(SYS_nanosleep, &pause, 0, 0);
}

void got_loaded(void)
{
	if (!__atomic_load_n(&patched, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&pending, false, __ATOMIC_RELAXED);
	if (!run(PATCH))
		__atomic_store_n(&pending, true, __ATOMIC_RELAXED);
}

void got_loads(void)
{
	if (__atomic_load_n(&patched, __ATOMIC_ACQUIRE))
		__atomic_store_n(&pending, true, __ATOMIC_RELAXED);
}
