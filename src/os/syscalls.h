/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names and numbers of system calls, of the architecture sonde is built for. The table is made from
 * the headers it is built with (syscall_rows.sh), so calls younger than those have numbers only.
 */
#ifndef SONDE_OS_SYSCALLS_H
#define SONDE_OS_SYSCALLS_H

/* "read", or NULL where the number has no name. Static. */
const char *syscall_name(int number);

/* -1 where there is no such call. */
int syscall_number(const char *name);

#endif
