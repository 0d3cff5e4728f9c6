/* SPDX-License-Identifier: BSD-2-Clause */
/* All kinds of waits, one file in kinds/ each. The order they are asked in is that of kinds.c. */
#ifndef SONDE_WAIT_KINDS_H
#define SONDE_WAIT_KINDS_H

#include "wait/kind.h"

/* Futexes: docs/heuristics/futex-fingerprint.md. */
extern const struct wait_kind wait_kind_stdio;     /* the lock of a FILE, glibc's */
extern const struct wait_kind wait_kind_mutex;     /* glibc's, of all types */
extern const struct wait_kind wait_kind_join;      /* for a thread to end */
extern const struct wait_kind wait_kind_rwlock;    /* glibc's */
extern const struct wait_kind wait_kind_once;      /* pthread_once, statics of C++ */
extern const struct wait_kind wait_kind_musl;      /* musl's mutexes and FILE locks */
extern const struct wait_kind wait_kind_internal;  /* bare locks of the C library: malloc and others */
extern const struct wait_kind wait_kind_rust;      /* std::sync */
extern const struct wait_kind wait_kind_condition; /* condition variables, semaphores, barriers, idle */
extern const struct wait_kind wait_kind_futex;     /* any other */

#endif
