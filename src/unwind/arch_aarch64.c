/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * aarch64: aapcs64 (preserved registers 6.1.1, frame records 6.4.6), the kernel's rt_sigframe, and
 * the A64 encodings that matter to a walk (Arm ARM, C6.2).
 */
#include "unwind/arch.h"

#include <string.h>

static uint32_t insn_at(const uint8_t *code)
{
	return (uint32_t)code[0] | (uint32_t)code[1] << 8 | (uint32_t)code[2] << 16 |
	       (uint32_t)code[3] << 24;
}

#define INSN_MOV_X29_SP 0x910003fdu
#define INSN_SVC_0 0xd4000001u
#define INSN_MOV_X8_SIGRETURN 0xd2801168u /* mov x8, #139 */
#define INSN_MOV_X8_EXIT 0xd2800ba8u	  /* mov x8, #93 */
#define INSN_PACIASP 0xd503233fu
#define INSN_PACIBSP 0xd503237fu
#define INSN_AUTIASP 0xd50323bfu
#define INSN_AUTIBSP 0xd50323ffu

static bool is_ret(uint32_t insn)
{
	return (insn & 0xfffffc1f) == 0xd65f0000 || insn == 0xd65f0bff || insn == 0xd65f0fff;
}

/* stp x29, x30, [sp, #-n]! */
static bool is_push_record(uint32_t insn)
{
	return (insn & 0xffc07fff) == 0xa9807bfd;
}

/* b, bl: a signed offset of 26 bits, in words */
static uint64_t branch_offset(uint32_t insn)
{
	return (uint64_t)((int64_t)((uint64_t)insn << 38) >> 36);
}

static struct call_site a64_call_before(const uint8_t *code, size_t len, uint64_t ra)
{
	uint32_t insn = len >= 4 ? insn_at(code + len - 4) : 0;

	if ((insn & 0xfc000000) == 0x94000000) /* bl */
		return (struct call_site){CALL_DIRECT, ra - 4 + branch_offset(insn)};
	if ((insn & 0xfffffc1f) == 0xd63f0000 ||   /* blr */
		(insn & 0xfefff800) == 0xd63f0800) /* blraa blrab blraaz blrabz */
		return (struct call_site){CALL_INDIRECT, 0};
	return (struct call_site){CALL_NONE, 0};
}

static enum frame_state a64_frame_state(const uint8_t *code, size_t len)
{
	uint32_t insn = len >= 4 ? insn_at(code) : 0;

	if ((insn & 0xffffff3f) == 0xd503241f) /* bti */
		return FRAME_ENTRY;
	if (insn == INSN_PACIASP || insn == INSN_PACIBSP || insn == INSN_AUTIASP ||
		insn == INSN_AUTIBSP || is_push_record(insn) || is_ret(insn))
		return FRAME_ENTRY;
	return insn == INSN_MOV_X29_SP ? FRAME_PUSHED : FRAME_SET_UP;
}

static bool a64_is_sigreturn(const uint8_t *code, size_t len)
{
	return len >= 8 && insn_at(code) == INSN_MOV_X8_SIGRETURN &&
	       insn_at(code + 4) == INSN_SVC_0;
}

static bool a64_is_thread_exit(const uint8_t *code, size_t len)
{
	return len >= 8 && insn_at(code) == INSN_MOV_X8_EXIT && insn_at(code + 4) == INSN_SVC_0;
}

/* ldr xN, [xM, #off]; mov sp, xN: Go's assembler has no load of sp */
static bool a64_changes_stack(const uint8_t *code, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 4) {
		uint32_t ldr = insn_at(code + i), mov = insn_at(code + i + 4);

		if ((ldr & 0xffc00000) == 0xf9400000 && ((ldr >> 5) & 31) != 31 &&
			mov == (0x9100001fu | (ldr & 31) << 5))
			return true;
	}
	return false;
}

static bool a64_keeps_frame_pointer(const uint8_t *code, size_t len)
{
	static const uint8_t mov_x29_sp[] = {0xfd, 0x03, 0x00, 0x91};

	return memmem(code, len, mov_x29_sp, sizeof(mov_x29_sp)) != NULL;
}

/* adrp x16, page; ldr x17, [x16, #off]; ..., after an optional bti */
static uint64_t a64_plt_slot(const uint8_t *code, size_t len, uint64_t at)
{
	if (len >= 4 && (insn_at(code) & 0xffffff3f) == 0xd503241f) {
		code += 4;
		len -= 4;
		at += 4;
	}
	if (len < 8)
		return 0;

	uint32_t adrp = insn_at(code), ldr = insn_at(code + 4);

	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return 0;

	uint64_t low = (adrp >> 29) & 3, high = (adrp >> 5) & 0x7ffff;
	int64_t pages = (int64_t)((high << 2 | low) << 43) >> 43;

	return (at & ~0xfffULL) + ((uint64_t)pages << 12) + ((ldr >> 10) & 0xfff) * 8;
}

static uint64_t a64_jump(const uint8_t *code, size_t len, uint64_t at)
{
	uint32_t insn = len >= 4 ? insn_at(code) : 0;

	return (insn & 0xfc000000) == 0x14000000 ? at + branch_offset(insn) : 0;
}

/* struct rt_sigframe (arch/arm64/kernel/signal.c): siginfo 128 bytes, then the ucontext, whose
 * sigcontext begins 176 bytes in: fault address, x0-x30, sp, pc. */
#define X(n) (312 + 8 * (n))
static const uint16_t a64_sigframe[] = {
	X(0),
	X(1),
	X(2),
	X(3),
	X(4),
	X(5),
	X(6),
	X(7),
	X(8),
	X(9),
	X(10),
	X(11),
	X(12),
	X(13),
	X(14),
	X(15),
	X(16),
	X(17),
	X(18),
	X(19),
	X(20),
	X(21),
	X(22),
	X(23),
	X(24),
	X(25),
	X(26),
	X(27),
	X(28),
	X(29),
	X(30),
	X(31),
	X(32),
};

static const uint8_t a64_followed[] = {UNWIND_A64_SP, UNWIND_A64_FP, UNWIND_A64_LR};

const struct arch arch_aarch64 = {
	.sp = UNWIND_A64_SP,
	.fp = UNWIND_A64_FP,
	.pc = UNWIND_A64_PC,
	.lr = UNWIND_A64_LR,
	.code_align = 4,
	.preserved = 0x3ff80000ULL, /* x19-x29 */
	.address_mask = 0x0000ffffffffffffULL,
	.call_before = a64_call_before,
	.frame_state = a64_frame_state,
	.is_sigreturn = a64_is_sigreturn,
	.is_thread_exit = a64_is_thread_exit,
	.changes_stack = a64_changes_stack,
	.keeps_frame_pointer = a64_keeps_frame_pointer,
	.plt_slot = a64_plt_slot,
	.jump = a64_jump,
	.decode = insn_aarch64,
	.followed = a64_followed,
	.followed_count = sizeof(a64_followed),
	.sigframe = a64_sigframe,
	.sigframe_count = sizeof(a64_sigframe) / sizeof(a64_sigframe[0]),
};
