/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/probes.h"

#define IN_PROBES __attribute__((section(".probes"), used, visibility("hidden")))

IN_PROBES volatile uint16_t otel_memory_alloc_semaphore;
IN_PROBES volatile uint16_t otel_memory_free_semaphore;

/* An instruction that does nothing, and a note that says where it is, where its semaphore is, and which registers
 * its arguments are in. Addresses are those of the file: readers move them by where .stapsdt.base has come to lie. */
#define PROBE(name, arguments, ...)                                                                \
	__asm__ volatile("990: nop\n"                                                              \
			 "	.pushsection .note.stapsdt,\"\",\"note\"\n"                        \
			 "	.balign 4\n"                                                       \
			 "	.4byte 992f-991f, 994f-993f, 3\n"                                  \
			 "991:	.asciz \"stapsdt\"\n"                                              \
			 "992:	.balign 4\n"                                                       \
			 "993:	.8byte 990b\n"                                                     \
			 "	.8byte _.stapsdt.base\n"                                           \
			 "	.8byte otel_memory_" #name "_semaphore\n"                          \
			 "	.asciz \"otel_memory\"\n"                                          \
			 "	.asciz \"" #name "\"\n"                                            \
			 "	.asciz \"" arguments "\"\n"                                        \
			 "994:	.balign 4\n"                                                       \
			 "	.popsection\n"                                                     \
			 "	.ifndef _.stapsdt.base\n"                                          \
			 "	.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
			 "	.weak _.stapsdt.base\n"                                            \
			 "	.hidden _.stapsdt.base\n"                                          \
			 "_.stapsdt.base: .space 1\n"                                              \
			 "	.size _.stapsdt.base,1\n"                                          \
			 "	.popsection\n"                                                     \
			 "	.endif\n"                                                          \
			 :                                                                         \
			 : __VA_ARGS__                                                             \
			 : "memory")

/* 1 - exp(-x) for x >= 0: of a small part of x by its series, then doubled. */
static double hit(double x)
{
	int doublings = 0;
	double f;

	for (; x > 0x1p-7; x /= 2)
		doublings++;
	f = -x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
	while (doublings--)
		f *= f + 2;
	return -f;
}

__attribute__((noinline)) void probe_alloc(const void *block, uint64_t size, uint64_t rate)
{
	double s = size ? (double)size : 1, x = rate ? s / (double)rate : 64;
	uint64_t weight = x >= 64 ? size : (uint64_t)((double)size / hit(x) + 0.5);

	PROBE(alloc, "8@%0 8@%1 8@%2", "r"((uint64_t)(uintptr_t)block), "r"(size), "r"(weight));
}

__attribute__((noinline)) void probe_free(const void *block)
{
	PROBE(free, "8@%0", "r"((uint64_t)(uintptr_t)block));
}
