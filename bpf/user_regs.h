/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread's registers in user code, as they lie in the kernel's pt_regs; for both sides. */
#ifndef SONDE_BPF_USER_REGS_H
#define SONDE_BPF_USER_REGS_H

#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)
#define USER_REGS 21 /* r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss */
#define USER_REG_SP 19
#define USER_REG_ORIG_AX 15
#define USER_REG_PC 16
#define USER_REG_CS 17
#else
#define USER_REGS 34 /* x0-x30 sp pc pstate */
#define USER_REG_SP 31
#define USER_REG_PC 32
#endif

#endif
