/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0)))
static void err_write(struct err *err, int code, const char *fmt, va_list ap)
{
	err->code = code;
	if (vsnprintf(err->text, sizeof(err->text), fmt, ap) < 0)
		err->text[0] = '\0';
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;

		va_start(ap, fmt);
		err_write(err, code, fmt, ap);
		va_end(ap);
	}
	return -code;
}

int err_errno(struct err *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;

		va_start(ap, fmt);
		err_write(err, code, fmt, ap);
		va_end(ap);
		size_t used = strlen(err->text);
		snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerrordesc_np(code));
	}
	return -code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	if (!err)
		return 0;

	struct err before = *err;
	va_list ap;

	va_start(ap, fmt);
	err_write(err, before.code, fmt, ap);
	va_end(ap);
	size_t used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", before.text);
	return -err->code;
}

int err_nomem(struct err *err)
{
	return err_set(err, ENOMEM, "out of memory");
}
