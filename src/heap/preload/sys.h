/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls without libc: they leave errno alone and return -errno. For code inside watched programs, which calls no
 * function of libc that could allocate, lock or be replaced.
 */
#ifndef SONDE_HEAP_PRELOAD_SYS_H
#define SONDE_HEAP_PRELOAD_SYS_H

#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long sys_call6(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	register uint64_t r10 __asm__("r10") = d;
	register uint64_t r8 __asm__("r8") = e;
	register uint64_t r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
		: "=a"(ret)
		: "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static inline long sys_call6(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	register uint64_t x8 __asm__("x8") = (uint64_t)number;
	register uint64_t x0 __asm__("x0") = a;
	register uint64_t x1 __asm__("x1") = b;
	register uint64_t x2 __asm__("x2") = c;
	register uint64_t x3 __asm__("x3") = d;
	register uint64_t x4 __asm__("x4") = e;
	register uint64_t x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
		: "+r"(x0)
		: "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		: "memory");
	return (long)x0;
}
#else
#error "system calls of this architecture are not known here"
#endif

#define SYS_ARG(a) ((uint64_t)(uintptr_t)(a))
#define sys3(number, a, b, c) sys_call6(number, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), 0, 0, 0)
#define sys6(number, a, b, c, d, e, f)                                                             \
	sys_call6(number, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), SYS_ARG(d), SYS_ARG(e), SYS_ARG(f))

#endif
