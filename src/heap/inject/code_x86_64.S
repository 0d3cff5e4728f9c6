/* SPDX-License-Identifier: BSD-2-Clause */
/* See code.h. r12: the memory, r13: the memfd, r15: extended state, ebx: finish is to meet. */
#if defined(__x86_64__)
#include "heap/inject/code.h"

#define SYS_CLOSE 3
#define SYS_MMAP 9
#define SYS_MUNMAP 11
#define SYS_RT_SIGPROCMASK 14
#define SYS_GETPID 39
#define SYS_SCHED_SETSCHEDULER 144
#define SYS_GETTID 186
#define SYS_TGKILL 234
#define SYS_MEMFD_CREATE 319

#define BLOCK(at) inject_code_end + (at)(%rip)
#define RESUME(n) BLOCK(BLOCK_RESUME_AT + 8 * (n))

	.section .rodata
	.balign 16
	.globl inject_code_start, inject_code_prepare, inject_code_call, inject_code_finish, inject_code_met
	.globl inject_code_end
inject_code_start:
inject_code_prepare:
	mov	$SYS_MMAP, %eax
	xor	%edi, %edi
	mov	BLOCK(BLOCK_BYTES_AT), %rsi
	mov	$3, %edx		/* PROT_READ | PROT_WRITE */
	mov	$0x22, %r10d		/* MAP_PRIVATE | MAP_ANONYMOUS */
	mov	$-1, %r8
	xor	%r9d, %r9d
	syscall
	mov	%rax, %r12
	xor	%r15d, %r15d
	mov	$-1, %r13
	cmpb	$0, BLOCK(BLOCK_NAME_AT)
	je	meet			/* no memfd is wanted */
	mov	$SYS_MEMFD_CREATE, %eax
	lea	BLOCK(BLOCK_NAME_AT), %rdi
	mov	$1, %esi		/* MFD_CLOEXEC */
	syscall
	mov	%rax, %r13
	jmp	meet

inject_code_call:			/* rsp: 16-byte aligned */
	call	*CALL_ERRNO_AT(%r12)
	mov	%rax, %rbp
	mov	(%rax), %ebx
	mov	CALL_ARGS_AT(%r12), %rdi
	mov	CALL_ARGS_AT + 8(%r12), %rsi
	mov	CALL_ARGS_AT + 16(%r12), %rdx
	mov	CALL_ARGS_AT + 24(%r12), %rcx
	mov	CALL_ARGS_AT + 32(%r12), %r8
	mov	CALL_ARGS_AT + 40(%r12), %r9
	xor	%eax, %eax
	call	*(%r12)
	mov	%rax, CALL_RESULT_AT(%r12)
	mov	%ebx, (%rbp)
meet:
	mov	$SYS_GETPID, %eax
	syscall
	mov	%eax, %edi
	mov	$SYS_GETTID, %eax
	syscall
	mov	%eax, %esi
	mov	BLOCK(BLOCK_SIGNAL_AT), %edx
	mov	$SYS_TGKILL, %eax
	syscall
inject_code_met:
	xor	%ebx, %ebx		/* nobody is there: home */
inject_code_finish:
	mov	RESUME(7), %rsp
	sub	$256, %rsp		/* the red zone stays as it is */
	test	%r13, %r13
	js	1f
	mov	%r13, %rdi
	mov	$SYS_CLOSE, %eax
	syscall
1:	mov	$-1, %r13
	test	%ebx, %ebx
	jnz	2f
	test	%r15, %r15
	jz	5f
	mov	$-1, %eax
	mov	$-1, %edx
	xrstor64 (%r15)
5:	/* Of signals and of the scheduler before the memory: as long as that is there, somebody is here. */
	mov	BLOCK(BLOCK_POLICY_AT), %rsi
	test	%rsi, %rsi
	js	4f
	mov	$SYS_SCHED_SETSCHEDULER, %eax
	xor	%edi, %edi
	lea	BLOCK(BLOCK_PRIORITY_AT), %rdx
	syscall
4:	mov	$SYS_RT_SIGPROCMASK, %eax
	mov	$2, %edi		/* SIG_SETMASK */
	lea	BLOCK(BLOCK_MASK_AT), %rsi
	xor	%edx, %edx
	mov	$8, %r10d
	syscall
2:	xor	%r15d, %r15d
	cmp	$-4096, %r12
	ja	3f
	mov	%r12, %rdi
	mov	BLOCK(BLOCK_BYTES_AT), %rsi
	mov	$SYS_MUNMAP, %eax
	syscall
3:	mov	$-1, %r12
	test	%ebx, %ebx
	jnz	meet
	pushq	RESUME(17)
	popfq				/* no flag changes from here on */
	mov	RESUME(0), %rax
	mov	RESUME(1), %rbx
	mov	RESUME(2), %rcx
	mov	RESUME(3), %rdx
	mov	RESUME(4), %rsi
	mov	RESUME(5), %rdi
	mov	RESUME(6), %rbp
	mov	RESUME(8), %r8
	mov	RESUME(9), %r9
	mov	RESUME(10), %r10
	mov	RESUME(11), %r11
	mov	RESUME(12), %r12
	mov	RESUME(13), %r13
	mov	RESUME(14), %r14
	mov	RESUME(15), %r15
	mov	RESUME(7), %rsp
	jmp	*RESUME(16)
	.balign 16
inject_code_end:
	.section .note.GNU-stack, "", @progbits
#endif
