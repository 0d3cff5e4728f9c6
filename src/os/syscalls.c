/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/syscalls.h"

#include <asm/unistd.h>
#include <stddef.h>
#include <string.h>

static const char *const names[] = {
#include "os/syscall_rows.h"
};

#define COUNT ((int)(sizeof(names) / sizeof(names[0])))

const char *syscall_name(int number)
{
	return number >= 0 && number < COUNT ? names[number] : NULL;
}

int syscall_number(const char *name)
{
	for (int i = 0; i < COUNT; i++)
		if (names[i] && !strcmp(names[i], name))
			return i;
	return -1;
}
