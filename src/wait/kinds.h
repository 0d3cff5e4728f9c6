/* SPDX-License-Identifier: BSD-2-Clause */
/* All kinds of waits, one file in kinds/ each. The order they are asked in is that of kinds.c. */
#ifndef SONDE_WAIT_KINDS_H
#define SONDE_WAIT_KINDS_H

#include "wait/kind.h"

/* Threads that were made to stand still. */
extern const struct wait_kind wait_kind_traced;    /* by a debugger */
extern const struct wait_kind wait_kind_stopped;   /* by a signal */
extern const struct wait_kind wait_kind_frozen;    /* by a cgroup's freezer */
extern const struct wait_kind wait_kind_coredump;  /* while its core is written */

/* Futexes: docs/heuristics/futex-fingerprint.md. */
extern const struct wait_kind wait_kind_stdio;     /* the lock of a FILE, glibc's */
extern const struct wait_kind wait_kind_mutex;     /* glibc's, of all types */
extern const struct wait_kind wait_kind_join;      /* for a thread to end */
extern const struct wait_kind wait_kind_rwlock;    /* glibc's */
extern const struct wait_kind wait_kind_once;      /* pthread_once, statics of C++ */
extern const struct wait_kind wait_kind_musl;      /* musl's mutexes and FILE locks */
extern const struct wait_kind wait_kind_internal;  /* bare locks of the C library: malloc and others */
extern const struct wait_kind wait_kind_rust;      /* std::sync */
extern const struct wait_kind wait_kind_java;      /* HotSpot's monitors */
extern const struct wait_kind wait_kind_condition; /* condition variables, semaphores, barriers, idle */
extern const struct wait_kind wait_kind_futex;     /* any other */

/* CPython's, futexes as well: docs/heuristics/python-locks.md. */
extern const struct wait_kind wait_kind_python_gil;
/* A thread that was running a moment ago: whether it had woken up just to ask for the GIL. */
bool wait_asks_for_gil(struct wait_look *l, struct wait *ret);
extern const struct wait_kind wait_kind_python_wait; /* threading, queue, concurrent.futures, imports */
extern const struct wait_kind wait_kind_python_tasks; /* asyncio's, in a circle */
extern const struct wait_kind wait_kind_python_lock; /* Lock, RLock, multiprocessing's */

/* Inside the kernel, in state D mostly. */
extern const struct wait_kind wait_kind_kernel_thread;
extern const struct wait_kind wait_kind_kernel_lock; /* where the kernel tells who holds it */
extern const struct wait_kind wait_kind_userfault;   /* a page another is to supply */
extern const struct wait_kind wait_kind_vfork;
extern const struct wait_kind wait_kind_page_fault;
extern const struct wait_kind wait_kind_device;      /* state D, and nothing else is known */

/* Other processes. */
extern const struct wait_kind wait_kind_child;       /* wait4() and its like */
extern const struct wait_kind wait_kind_file_lock;   /* flock(), fcntl() */
extern const struct wait_kind wait_kind_fifo_open;
extern const struct wait_kind wait_kind_connect;
extern const struct wait_kind wait_kind_descriptor;  /* read(), write() and their like: fd.h */
extern const struct wait_kind wait_kind_poll;
extern const struct wait_kind wait_kind_select;
extern const struct wait_kind wait_kind_epoll;
extern const struct wait_kind wait_kind_uring;
extern const struct wait_kind wait_kind_queue;       /* of POSIX */
extern const struct wait_kind wait_kind_sysv_semaphore;
extern const struct wait_kind wait_kind_sysv_queue;

/* Locks that the kernel knows nothing of. */
extern const struct wait_kind wait_kind_postgres;    /* PostgreSQL's */
extern const struct wait_kind wait_kind_lock_poll;   /* on files, tried for again and again */

/* Nobody. */
extern const struct wait_kind wait_kind_sleep;
extern const struct wait_kind wait_kind_signal;
extern const struct wait_kind wait_kind_other;       /* whatever is left; the last of all */

#endif
