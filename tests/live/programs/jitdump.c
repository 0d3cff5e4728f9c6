/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tiny compiler: functions made in anonymous memory, and a jitdump that tells of them.
 *
 *	jitdump stacks MS      jit_outer calls jit_middle calls jit_inner, which has all the time; none
 *	                       keeps a frame pointer: rbp is overwritten
 *	jitdump tenants MS     half the time in first_tenant, then in second_tenant at the same address
 *	jitdump moved MS       half the time in mover, then in it at another address, where its_place lay
 *	jitdump late MS        half the time in early_bird, then in late_riser; the dump arrives in the
 *	                       file when all is over, and says what came to the first place afterwards
 *	jitdump forked MS      as stacks, in a child that has the dump from its parent
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#if !defined(__x86_64__)
int main(void)
{
	puts("unsupported");
	return 77;
}
#else

static FILE *dump;
static char *memory;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(const void *bytes, size_t len)
{
	fwrite(bytes, 1, len, dump);
}

static void put_u32(uint32_t v)
{
	put(&v, 4);
}

static void put_u64(uint64_t v)
{
	put(&v, 8);
}

static void put_record(uint32_t id, size_t body)
{
	put_u32(id);
	put_u32((uint32_t)body + 16);
	put_u64(now_ns());
}

static void open_dump(void)
{
	char path[64];

	snprintf(path, sizeof(path), "jit-%d.dump", (int)getpid());
	dump = fopen(path, "w+");
	if (!dump || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
		exit(1);
	setvbuf(dump, NULL, _IOFBF, 1 << 20);
	put_u32(0x4a695444);
	put_u32(1);
	put_u32(40);
	put_u32(EM_X86_64);
	put_u32(0);
	put_u32((uint32_t)getpid());
	put_u64(now_ns());
	put_u64(0);
}

static const char source_file[] = "made/up.lang";

/* Lines 10, 11, ... for every byte of the code. */
static void tell_lines(const char *code, size_t size, unsigned first_line)
{
	put_record(2, 16 + size * (16 + sizeof(source_file)));
	put_u64((uint64_t)code);
	put_u64(size);
	for (size_t i = 0; i < size; i++) {
		put_u64((uint64_t)code + i);
		put_u32(first_line);
		put_u32(0);
		put(source_file, sizeof(source_file));
	}
}

/* CIE: CFA is rsp + 8, the return address below it. FDE: `program` after its 17 fixed bytes. */
static void tell_unwind(size_t code_size, const uint8_t *program, size_t program_size)
{
	static const uint8_t cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b,
		12, 7, 8, 0x80 | 16, 1, 0, 0};
	uint8_t fde[64] = {0}, hdr[20] = {1, 0x1b, 3, 0x3b};
	size_t fde_size = (17 + program_size + 7) & ~(size_t)7, gap = (code_size + 7) & ~(size_t)7;
	uint32_t fields[4] = {(uint32_t)fde_size - 4, sizeof(cie) + 4,
		(uint32_t) - (int32_t)(gap + sizeof(cie) + 8), (uint32_t)code_size};

	memcpy(fde, fields, sizeof(fields));
	memcpy(fde + 17, program, program_size);
	put_record(4, 24 + sizeof(cie) + fde_size + sizeof(hdr));
	put_u64(sizeof(cie) + fde_size + sizeof(hdr));
	put_u64(sizeof(hdr));
	put_u64(sizeof(cie) + fde_size + sizeof(hdr));
	put(cie, sizeof(cie));
	put(fde, fde_size);
	put(hdr, sizeof(hdr));
}

static void tell_load(const char *name, const char *code, size_t size)
{
	put_record(0, 40 + strlen(name) + 1 + size);
	put_u32((uint32_t)getpid());
	put_u32((uint32_t)syscall(SYS_gettid));
	put_u64((uint64_t)code);
	put_u64((uint64_t)code);
	put_u64(size);
	put_u64((uint64_t)code);
	put(name, strlen(name) + 1);
	put(code, size);
}

static void tell_move(const char *from, const char *to, size_t size)
{
	put_record(1, 48);
	put_u32((uint32_t)getpid());
	put_u32((uint32_t)syscall(SYS_gettid));
	put_u64((uint64_t)to);
	put_u64((uint64_t)from);
	put_u64((uint64_t)to);
	put_u64(size);
	put_u64((uint64_t)from);
}

/* mov $500000, %rax; 1: dec %rax; jnz 1b; `extra` nops; ret. */
static size_t make_loop(char *at, const char *name, unsigned extra)
{
	static const uint8_t loop[] = {0x48, 0xc7, 0xc0, 0x20, 0xa1, 7, 0, 0x48, 0xff, 0xc8, 0x75, 0xfb};

	memcpy(at, loop, sizeof(loop));
	memset(at + sizeof(loop), 0x90, extra);
	at[sizeof(loop) + extra] = (char)0xc3;
	tell_lines(at, sizeof(loop) + extra + 1, 30);
	tell_unwind(sizeof(loop) + extra + 1, NULL, 0);
	tell_load(name, at, sizeof(loop) + extra + 1);
	return sizeof(loop) + extra + 1;
}

/* push %rbp; mov $0x1001, %ebp; sub $72, %rsp; call callee; add $72, %rsp; pop %rbp; ret */
static void make_caller(char *at, const char *name, const char *callee, unsigned line)
{
	static const uint8_t code[] = {0x55, 0xbd, 1, 0x10, 0, 0, 0x48, 0x83, 0xec, 72, 0xe8, 0, 0, 0, 0,
		0x48, 0x83, 0xc4, 72, 0x5d, 0xc3};
	static const uint8_t program[] = {0x41, 14, 16, 0x86, 2, 0x49, 14, 88, 0x49, 14, 16, 0x41, 14, 8};
	int32_t distance = (int32_t)(callee - (at + 15));

	memcpy(at, code, sizeof(code));
	memcpy(at + 11, &distance, sizeof(distance));
	tell_lines(at, sizeof(code), line);
	tell_unwind(sizeof(code), program, sizeof(program));
	tell_load(name, at, sizeof(code));
}

NOINLINE static void run_for(const char *code, unsigned ms)
{
	uint64_t end = now_ns() + ms * 1000000ull;

	while (now_ns() < end)
		((void (*)(void))(uintptr_t)code)();
	NOT_A_TAIL_CALL;
}

static void stacks(unsigned ms)
{
	make_loop(memory + 0x340, "jit_inner", 0);
	make_caller(memory + 0x1100, "jit_middle", memory + 0x340, 20);
	make_caller(memory + 0x100, "jit_outer", memory + 0x1100, 10);
	fflush(dump);
	run_for(memory + 0x100, ms);
}

static void tenants(unsigned ms)
{
	make_loop(memory, "first_tenant", 0);
	fflush(dump);
	run_for(memory, ms / 2);
	make_loop(memory, "second_tenant", 2);
	fflush(dump);
	run_for(memory, ms / 2);
}

static void late(unsigned ms)
{
	make_loop(memory, "early_bird", 0);
	run_for(memory, ms / 2);
	make_loop(memory, "its_place_later", 2);
	make_loop(memory + 0x2000, "late_riser", 0);
	run_for(memory + 0x2000, ms / 2);
}

static void moved(unsigned ms)
{
	size_t size = make_loop(memory, "mover", 0);

	make_loop(memory + 0x2000, "its_place", 0);
	fflush(dump);
	run_for(memory, ms / 2);
	memcpy(memory + 0x2000, memory, size);
	tell_move(memory, memory + 0x2000, size);
	fflush(dump);
	run_for(memory + 0x2000, ms / 2);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "stacks";
	unsigned ms = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;

	memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	open_dump();
	if (!strcmp(mode, "tenants"))
		tenants(ms);
	else if (!strcmp(mode, "late"))
		late(ms);
	else if (!strcmp(mode, "moved"))
		moved(ms);
	else if (!strcmp(mode, "forked"))
		stacks(0);
	else
		stacks(ms);
	fclose(dump);
	if (!strcmp(mode, "forked") && !fork()) {
		run_for(memory + 0x100, ms);
		_exit(0);
	}
	wait(NULL);
	return 0;
}
#endif
