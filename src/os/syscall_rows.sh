#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# syscall_rows.sh CC...: one "[__NR_name] = "name"," for each system call of the architecture the
# compiler builds for, out of its own <asm/unistd.h>. The compiler puts the numbers in.
echo '#include <asm/unistd.h>' | "$@" -E -dM -x c - |
	sed -n 's/^#define __NR_\([a-z][a-z0-9_]*\) .*/\1/p' |
	grep -vxE 'syscalls|arch_specific_syscall' | sort |
	sed 's/.*/[__NR_&] = "&",/'
