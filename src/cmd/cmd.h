/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands. Each lives in its own file as cmd_NAME() and has one row in the table of main.c;
 * docs/howto/add-a-command.md walks through adding one.
 *
 * A command parses (options.h), does its work through the libraries below, and talks: results to
 * stdout, everything else to stderr. It returns its exit status.
 */
#ifndef SONDE_CMD_CMD_H
#define SONDE_CMD_CMD_H

#include <stdio.h>

#include "base/err.h"

enum status {
	STATUS_OK = 0,
	STATUS_FAILED = 1, /* it was clear what to do, and it could not be done */
	STATUS_USAGE = 2,  /* the command line makes no sense */
};

/* Where `sonde record` writes and the other commands read when no file is named. */
#define DEFAULT_RECORDING "profile.sonde"

/* argv[0] is the command's own name; the value is the exit status of the process. */
int cmd_record(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_heap(int argc, char **argv);
int cmd_stack(int argc, char **argv);
int cmd_why(int argc, char **argv);

/* "sonde COMMAND: words" on stderr; returns STATUS_FAILED, so that `return cmd_failed(...)`. */
int cmd_failed(const char *command, const struct err *err);

/* The same form for something that does not stop the command. */
void cmd_note(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Descriptors 0 to 2 that we were started without are /dev/null from now on: what is opened first would be written to as
 * stdout or stderr. Commands that we start find them closed, as we did. */
void cmd_fill_standard_descriptors(void);

/* Opens where results go: stdout for NULL and "-", else a file that is made or replaced. Refuses to
 * replace a recording: it may not be possible to make that again. */
int cmd_open_output(const char *path, FILE **ret, struct err *err);

/* Closes it and tells whether everything arrived; for stdout as cmd_finish_stdout(). */
int cmd_close_output(const char *command, FILE *out, const char *path);

/* Flushes stdout and tells whether everything printed arrived. A reader that left early (`| head`)
 * is fine: STATUS_OK, silently. A full disk is not: STATUS_FAILED and words. */
int cmd_finish_stdout(const char *command);

#endif
