/* SPDX-License-Identifier: BSD-2-Clause */
/* What all commands say in the same way. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

int cmd_failed(const char *command, const struct err *err)
{
	fprintf(stderr, "sonde %s: %s\n", command, err->text);
	return STATUS_FAILED;
}

void cmd_note(const char *command, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sonde %s: ", command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* The errno of a write that failed inside stdio may be gone by now; the pipe still knows. */
static bool reader_left(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

int cmd_finish_stdout(const char *command)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return STATUS_OK;

	int code = errno ? errno : EIO;

	if (code == EPIPE || reader_left(STDOUT_FILENO))
		return STATUS_OK;
	fprintf(stderr, "sonde %s: cannot write the output: %s\n", command, strerror(code));
	return STATUS_FAILED;
}
