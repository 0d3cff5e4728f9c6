/* SPDX-License-Identifier: BSD-2-Clause */
/* What all commands say in the same way. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/records.h"
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

void cmd_fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* The errno of a write that failed inside stdio may be gone by now; the pipe still knows. */
static bool reader_left(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* 0 when everything arrived. After a failure inside stdio, errno is still the last write's. */
static int flush_error(FILE *out)
{
	bool failed = ferror(out);

	if (!failed)
		errno = 0;
	if (!fflush(out) && !failed)
		return 0;
	return errno ? errno : EIO;
}

int cmd_finish_stdout(const char *command)
{
	int code = flush_error(stdout);

	if (!code)
		return STATUS_OK;

	if (code == EPIPE || reader_left(STDOUT_FILENO))
		return STATUS_OK;
	fprintf(stderr, "sonde %s: cannot write the output: %s\n", command, strerror(code));
	return STATUS_FAILED;
}

static bool is_stdout(const char *path)
{
	return !path || !strcmp(path, "-");
}

static bool is_recording(const char *path)
{
	char magic[8] = {0};
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	       !memcmp(magic, CAPTURE_MAGIC, sizeof(magic));
}

int cmd_open_output(const char *path, FILE **ret, struct err *err)
{
	if (is_stdout(path)) {
		*ret = stdout;
		return 0;
	}
	if (is_recording(path))
		return err_set(err, EEXIST, "%s is a recording and would be overwritten: remove it "
			"first, or name another file", path);

	FILE *out = fopen(path, "we");

	if (!out)
		return err_errno(err, errno, "cannot write %s", path);
	*ret = out;
	return 0;
}

int cmd_close_output(const char *command, FILE *out, const char *path)
{
	if (out == stdout)
		return cmd_finish_stdout(command);

	int code = flush_error(out);

	if (fclose(out) && !code)
		code = errno;
	if (!code)
		return STATUS_OK;
	fprintf(stderr, "sonde %s: cannot write %s: %s\n", command, path, strerror(code));
	return STATUS_FAILED;
}
