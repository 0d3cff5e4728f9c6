/* SPDX-License-Identifier: BSD-2-Clause */
/* notail CMD ARGS...: runs CMD where the memory of other processes cannot be read, as Yama's
 * ptrace_scope has it for those who are not their parents. */
#include "refuse.h"

int main(int argc, char **argv)
{
	return run_without(SYS_process_vm_readv, argv);
}
