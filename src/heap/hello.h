/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How programs that are to be watched meet their collector: an abstract socket with a random name, and a token that
 * only they are told (heap/share.h). A program says hello once, hands over a descriptor, and hears nothing back.
 *
 * Anybody may connect: what does not know the token, takes its time, or sends what is no hello is closed and counted.
 */
#ifndef SONDE_HEAP_HELLO_H
#define SONDE_HEAP_HELLO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "heap/share.h"

struct hello;

int hello_new(struct hello **ret, struct err *err);
void hello_free(struct hello *h);

/* Readable when hello_next() has something to do. The socket's own. */
int hello_fd(const struct hello *h);

/* What programs are asked for, as they find it in their environment. */
struct hello_wish {
	enum share_mode mode;
	enum share_clock clock;
	uint64_t rate;    /* 0: exact */
	uint64_t options; /* SHARE_OPTION_... */
};
/* The value of SHARE_ENVIRONMENT: `size` of HELLO_VALUE_BYTES is enough. */
#define HELLO_VALUE_BYTES 256u
void hello_environment(const struct hello *h, const struct hello_wish *wish, char *buf, size_t size);

/* A program that said hello. */
struct hello_program {
	int fd;        /* its memory, the caller's; a file, of which nothing is known yet */
	pid_t pid;     /* as we see it; the kernel says so */
	pid_t own_pid; /* as it sees itself */
};

/* The next one, 1; 0: there is none now. Never waits. */
int hello_next(struct hello *h, struct hello_program *ret);

/* How many were sent away. */
uint64_t hello_refused(const struct hello *h);

#endif
