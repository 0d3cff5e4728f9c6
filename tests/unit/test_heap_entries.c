/* SPDX-License-Identifier: BSD-2-Clause */
/* Where probes are put into an allocator: by names, and by instructions. */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "heap/entries.h"

static struct heap_probe probe_of(const char *name, const char *prefix)
{
	bool is_operator;

	return heap_entry_by_name(name, prefix, &is_operator);
}

TEST(functions_are_known_by_name)
{
	bool is_operator;
	struct heap_probe p = probe_of("calloc", NULL);

	check_u64(p.kind, HEAP_PROBE_ALLOC);
	check_u64(p.size + p.count, 1);
	check_u64(probe_of("_rjem_posix_memalign", NULL).kind, HEAP_PROBE_OUT);
	check_u64(probe_of("_rjem_posix_memalign", NULL).size, 2);
	check_u64(probe_of("je_rallocx", NULL).kind, HEAP_PROBE_REALLOC);
	check_u64(probe_of("tc_free_sized", NULL).kind, HEAP_PROBE_FREE);
	check_u64(probe_of("mi_new", NULL).throws, 1);
	check_u64(probe_of("my_malloc", NULL).kind, 0);
	check_u64(probe_of("my_malloc", "my_").kind, HEAP_PROBE_ALLOC);
	check_u64(probe_of("malloc_usable_size", NULL).kind, 0);
	check_u64(probe_of("", "").kind, 0);
	p = heap_entry_by_name("_Znam", NULL, &is_operator);
	check(is_operator && p.throws && p.kind == HEAP_PROBE_ALLOC);
	p = heap_entry_by_name("_ZnwmSt11align_val_tRKSt9nothrow_t", NULL, &is_operator);
	check(is_operator && !p.throws);
	check_u64(heap_entry_by_name("_ZdaPvm", NULL, &is_operator).kind, HEAP_PROBE_FREE);
}

struct code {
	const char *bytes;
	size_t len, where;
	bool emulated;
};
#define CODE(text) text, sizeof(text) - 1

static void look(const char *name, const struct code *codes, size_t count)
{
	struct heap_probe probe = probe_of(name, NULL);

	for (size_t i = 0; i < count; i++) {
		bool emulated = true;
		size_t where = heap_entry_place(&probe, (const uint8_t *)codes[i].bytes, codes[i].len, 0x1000, &emulated);

		if (where != codes[i].where || emulated != codes[i].emulated)
			printf("code %zu of %s: %zu %d\n", i, name, where, emulated);
		check_u64(where, codes[i].where);
		check(emulated == codes[i].emulated);
	}
}

TEST(probes_are_put_where_the_kernel_emulates)
{
	static const struct code of_malloc[] = {
		{CODE("\x55\x48\x89\xfd"), 0, true},             /* push %rbp */
		{CODE("\x41\x57\x90"), 0, true},                 /* push %r15 */
		{CODE("\xf3\x0f\x1e\xfa\x55"), 4, true},         /* endbr64, push */
		{CODE("\x48\x81\xff\x00\x10\x00\x00\x0f\x87\x93\x00\x00\x00"), 7, true}, /* cmp $4096, %rdi; ja */
		{CODE("\x80\x3d\x69\xeb\x08\x00\x00\x74\x07"), 7, true}, /* cmpb $0, there; je */
		{CODE("\xe9\x00\x01\x00\x00"), 0, true},         /* jmp */
		{CODE("\x48\x83\xec\x18\x55"), 0, false},        /* sub $24, %rsp: the stack pointer is another one */
		{CODE("\xbf\x01\x00\x00\x00\x55"), 0, false},    /* mov $1, %edi: the size is gone */
		{CODE("\x48\x8d\x47\x07\xe8\x00\x00\x00\x00\x55"), 0, false}, /* a call */
		{CODE("\xc3\x55"), 0, false},                    /* ret */
		{CODE("\xf3\xa4\x55"), 0, false},                /* rep movs: it changes what the decoder does not tell */
		{CODE("\x06\x55"), 0, false},                    /* nonsense */
		{CODE("\x48\x89"), 0, false},                    /* cut */
		{"", 0, 0, false},
	};
	static const struct code of_free[] = {
		{CODE("\x48\x85\xff\x0f\x84\xbf\x00\x00\x00"), 3, true}, /* test %rdi, %rdi; je */
		/* mov %rdi, %rax; mov $.., %rdx; mov %rdi, %rcx; shr $26, %rax; and $.., %eax; add %fs:0, %rax; jne */
		{CODE("\x48\x89\xf8\x48\xc7\xc2\xb8\xf5\xff\xff\x48\x89\xf9\x48\xc1\xe8\x1a\x25\xf0\x00\x00\x00"
		      "\x64\x48\x03\x04\x25\x00\x00\x00\x00\x75\x10"), 31, true},
		{CODE("\x48\x8b\x3f\x74\x02"), 0, false},        /* mov (%rdi), %rdi */
	};

	look("malloc", of_malloc, sizeof(of_malloc) / sizeof(of_malloc[0]));
	look("free", of_free, sizeof(of_free) / sizeof(of_free[0]));
	/* %rsi is nothing to free, but the size of calloc. */
	static const struct code writes_rsi[] = {{CODE("\x31\xf6\x55"), 2, true}};
	static const struct code writes_rsi_too[] = {{CODE("\x31\xf6\x55"), 0, false}};

	look("free", writes_rsi, 1);
	look("calloc", writes_rsi_too, 1);
}

TEST(any_code_has_an_end)
{
	uint64_t x = 88172645463325252u;
	struct heap_probe probe = probe_of("malloc", NULL);

	for (unsigned n = 0; n < 200000; n++) {
		uint8_t code[64];
		size_t len = n % sizeof(code);
		bool emulated;

		for (size_t i = 0; i < sizeof(code); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			code[i] = (uint8_t)x;
		}
		check(heap_entry_place(&probe, code, len, 0, &emulated) <= len);
	}
}

/* We ourselves have none of our own. */
TEST(a_file_without_an_allocator_is_refused)
{
	static struct heap_entries entries;
	struct elf_file *f = NULL;
	struct err err = {0};
	FILE *self = fopen("/proc/self/exe", "re");

	check(self && !elf_file_open_fd(dup(fileno(self)), "self", &f, &err));
	fclose(self);
	if (!HAS_ASAN) {
		check(heap_entries_find(f, NULL, NULL, &entries, &err) == -ENOENT);
		check(strstr(err.text, "--allocator") != NULL);
	}
	elf_file_free(f);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(functions_are_known_by_name), T(probes_are_put_where_the_kernel_emulates),
		T(any_code_has_an_end), T(a_file_without_an_allocator_is_refused));
}
