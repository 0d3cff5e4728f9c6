/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions nobody calls here, as compile errors. Included on the command line of every sonde
 * source file (see meson.build), after the system headers that declare them.
 */
#ifndef SONDE_BASE_BANNED_H
#define SONDE_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat stpcpy sprintf vsprintf strtok gets
#pragma GCC poison atoi atol atoll atof
#pragma GCC poison mktemp tmpnam tempnam localtime gmtime ctime asctime

#endif
