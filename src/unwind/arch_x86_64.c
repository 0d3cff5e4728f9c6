/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * x86-64: the System V psABI (register numbers: figure 3.36; preserved registers: 3.2.1), the
 * kernel's rt_sigframe, and the instruction forms that matter to a walk (Intel SDM volume 2).
 */
#include "unwind/arch.h"

#include <string.h>

#define BIT(n) (1ULL << (n))

static bool begins(const uint8_t *code, size_t len, const char *bytes, size_t n)
{
	return len >= n && !memcmp(code, bytes, n);
}
#define BEGINS(code, len, literal) begins(code, len, literal, sizeof(literal) - 1)

static int32_t disp32(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Bytes of the instruction `ff /2` with this ModRM (and SIB) byte; 0 when it is not a call. */
static size_t indirect_call_len(const uint8_t *insn, size_t len)
{
	if (len < 2 || insn[0] != 0xff || ((insn[1] >> 3) & 7) != 2)
		return 0;

	unsigned mod = insn[1] >> 6, rm = insn[1] & 7;
	size_t n = 2;

	if (mod == 3)
		return n;
	if (rm == 4) {
		if (len < 3)
			return 0;
		n++;
		if (mod == 0 && (insn[2] & 7) == 5)
			n += 4;
	}
	if (mod == 1)
		n += 1;
	else if (mod == 2 || (mod == 0 && rm == 5))
		n += 4;
	return n;
}

static struct call_site x86_call_before(const uint8_t *code, size_t len, uint64_t ra)
{
	static const uint8_t lengths[] = {2, 3, 6, 4, 7};

	if (len >= 5 && code[len - 5] == 0xe8)
		return (struct call_site){
			CALL_DIRECT, ra + (uint64_t)(int64_t)disp32(code + len - 4)};
	for (size_t i = 0; i < sizeof(lengths); i++) {
		size_t n = lengths[i];

		if (len < n || indirect_call_len(code + len - n, n) != n)
			continue;
		if (n == 6 && code[len - 5] == 0x15) /* call *disp(%rip) */
			return (struct call_site){
				CALL_SLOT, ra + (uint64_t)(int64_t)disp32(code + len - 4)};
		return (struct call_site){CALL_INDIRECT, 0};
	}
	return (struct call_site){CALL_NONE, 0};
}

static size_t skip_endbr(const uint8_t *code, size_t len)
{
	return BEGINS(code, len, "\xf3\x0f\x1e\xfa") ? 4 : 0;
}

static enum frame_state x86_frame_state(const uint8_t *code, size_t len)
{
	size_t skip = skip_endbr(code, len);

	code += skip;
	len -= skip;
	if (skip || BEGINS(code, len, "\x55")) /* push %rbp */
		return FRAME_ENTRY;
	if (BEGINS(code, len, "\xc3") || BEGINS(code, len, "\xc2") ||
		BEGINS(code, len, "\xf3\xc3") || BEGINS(code, len, "\xf2\xc3")) /* ret */
		return FRAME_ENTRY;
	if (BEGINS(code, len, "\x48\x89\xe5") || BEGINS(code, len, "\x48\x8b\xec"))
		return FRAME_PUSHED; /* mov %rsp,%rbp */
	return FRAME_SET_UP;
}

/* mov $15,%rax; syscall. Compilers have used both encodings of the move. */
static bool x86_is_sigreturn(const uint8_t *code, size_t len)
{
	return BEGINS(code, len, "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05") ||
	       BEGINS(code, len, "\xb8\x0f\x00\x00\x00\x0f\x05");
}

/* mov %eax,%edi; eax = 60 (exit); syscall: musl's clone in the child, older glibc's as well. */
static bool x86_is_thread_exit(const uint8_t *code, size_t len)
{
	return BEGINS(code, len, "\x89\xc7\x31\xc0\xb0\x3c\x0f\x05") ||
	       BEGINS(code, len, "\x89\xc7\xb8\x3c\x00\x00\x00\x0f\x05") ||
	       BEGINS(code, len, "\x48\x89\xc7\xb8\x3c\x00\x00\x00\x0f\x05");
}

/* mov disp8(%reg),%rsp, not from the stack itself */
static bool x86_changes_stack(const uint8_t *code, size_t len)
{
	for (size_t i = 0; i + 4 <= len; i++)
		if ((code[i] & 0xfe) == 0x48 && code[i + 1] == 0x8b && code[i + 2] >> 3 == 0x0c &&
			(code[i + 2] & 7) != 4 && ((code[i + 2] & 7) != 5 || code[i] & 1))
			return true;
	return false;
}

/* push %rbp; mov %rsp,%rbp, in both encodings. */
static bool x86_keeps_frame_pointer(const uint8_t *code, size_t len)
{
	return memmem(code, len, "\x55\x48\x89\xe5", 4) || memmem(code, len, "\x55\x48\x8b\xec", 4);
}

/* [endbr64] [bnd] jmp *disp(%rip) */
static uint64_t x86_plt_slot(const uint8_t *code, size_t len, uint64_t at)
{
	size_t n = skip_endbr(code, len);

	if (n < len && code[n] == 0xf2)
		n++;
	if (len < n + 6 || code[n] != 0xff || code[n + 1] != 0x25)
		return 0;
	return at + n + 6 + (uint64_t)(int64_t)disp32(code + n + 2);
}

/* jmp rel32, jmp rel8 */
static uint64_t x86_jump(const uint8_t *code, size_t len, uint64_t at)
{
	if (len >= 5 && code[0] == 0xe9)
		return at + 5 + (uint64_t)(int64_t)disp32(code + 1);
	if (len >= 2 && code[0] == 0xeb)
		return at + 2 + (uint64_t)(int64_t)(int8_t)code[1];
	return 0;
}

/* struct rt_sigframe (arch/x86/include/asm/sigframe.h): when the handler has returned, sp points
 * at the ucontext, whose struct sigcontext begins 40 bytes in: r8-r15 rdi rsi rbp rbx rdx rax rcx
 * rsp rip. */
static const uint16_t x86_sigframe[] = {
	144, 136, 152, 128, 112, 104, 120, 160, /* rax rdx rcx rbx rsi rdi rbp rsp */
	40, 48, 56, 64, 72, 80, 88, 96,		/* r8-r15 */
	168,					/* rip */
};

static const uint8_t x86_followed[] = {UNWIND_X86_RSP, UNWIND_X86_RBP, 3, 12, 13, 14, 15};

const struct arch arch_x86_64 = {
	.sp = UNWIND_X86_RSP,
	.fp = UNWIND_X86_RBP,
	.pc = UNWIND_X86_PC,
	.lr = ARCH_NO_REG,
	.code_align = 1,
	.preserved = BIT(3) | BIT(6) | BIT(12) | BIT(13) | BIT(14) | BIT(15),
	.address_mask = ~0ULL,
	.call_before = x86_call_before,
	.frame_state = x86_frame_state,
	.is_sigreturn = x86_is_sigreturn,
	.is_thread_exit = x86_is_thread_exit,
	.changes_stack = x86_changes_stack,
	.keeps_frame_pointer = x86_keeps_frame_pointer,
	.plt_slot = x86_plt_slot,
	.jump = x86_jump,
	.decode = insn_x86_64,
	.followed = x86_followed,
	.followed_count = sizeof(x86_followed),
	.sigframe = x86_sigframe,
	.sigframe_count = sizeof(x86_sigframe) / sizeof(x86_sigframe[0]),
};
