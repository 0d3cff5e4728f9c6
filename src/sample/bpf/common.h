/* SPDX-License-Identifier: BSD-2-Clause */
/* What all users of our BPF programs need. */
#ifndef SONDE_SAMPLE_BPF_COMMON_H
#define SONDE_SAMPLE_BPF_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/user_regs.h"
#include "unwind/unwind.h"

/* Registers as the programs copy them, USER_REGS of them. `compat`: in a 32-bit system call. False: of
 * 32-bit code, which is not walked; *ret is untouched. */
bool bpf_user_regs(const uint64_t *regs, bool compat, struct unwind_regs *ret);

/* libbpf prints nothing from now on. */
void bpf_keep_quiet(void);

#endif
