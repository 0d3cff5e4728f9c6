/* SPDX-License-Identifier: BSD-2-Clause */
/* In place of all the others, where there is no code for the architecture: nothing is ever opened. */
#include <errno.h>

#include "heap/inject/inject.h"

int inject_open(pid_t pid, const struct inject_options *options, struct inject **ret, struct err *err)
{
	return err_set(err, ENOTSUP, "putting a library into a running process is built for x86-64 alone; start the program "
		"by sonde instead");
}

void inject_close(struct inject *i)
{
}

int inject_load(struct inject *i, const char *name, const void *bytes, size_t size, struct err *err)
{
	return err_set(err, ENOTSUP, "not on this architecture");
}

int inject_call(struct inject *i, const char *symbol, const char *text, uint64_t number, int64_t *ret_value,
	struct err *err)
{
	return err_set(err, ENOTSUP, "not on this architecture");
}

void inject_stats(const struct inject *i, struct inject_stats *ret)
{
	*ret = (struct inject_stats){0};
}
