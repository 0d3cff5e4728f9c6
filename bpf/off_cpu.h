/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What off_cpu.bpf.c and sample/bpf/ share: one slot a watched thread, in memory that both see, and
 * the events in the ring.
 *
 * The program only copies and adds up. It keeps exact times by state, and at the moment when an
 * interval off the CPU ends it decides whether that is worth an event:
 *
 *	at least keep_ns long    an event that stands for itself
 *	shorter, mark_ns is set  marks are drawn mark_ns apart on the clock of the thread's short intervals;
 *	                         an interval with a mark in it is an event that stands for mark_ns
 *	shorter otherwise        none: it is in the times alone
 *
 * The user's stack can only be copied while the thread leaves the CPU. So it is copied, into a buffer
 * of the thread, when the interval may become worth an event: see wants_copy() in off_cpu.bpf.c.
 */
#ifndef SONDE_BPF_OFF_CPU_H
#define SONDE_BPF_OFF_CPU_H

#include <stdint.h>

#include "capture/records.h" /* enum thread_state */

#include "python_copy.h"
#include "user_regs.h"

#define OFF_CPU_THREADS 16384u     /* watched at a time */
#define OFF_CPU_TIDS 65536u        /* entries of the way from a thread's id to its slot; 2^n */
#define OFF_CPU_BUFFERS 512u       /* 2^n; threads beyond that many share them */
#define OFF_CPU_STACK_BYTES 16384u /* of a stack at most; a multiple of the page size */
#define OFF_CPU_WAKER_BYTES 4096u  /* the same of the thread that woke another */
#define OFF_CPU_KERNEL_FRAMES 64u
#define OFF_CPU_RING_BYTES (4u << 20)

/* States of a slot beyond enum thread_state. */
#define OFF_CPU_FREE 0xfeu    /* no thread */
#define OFF_CPU_UNKNOWN 0xfdu /* ran or slept before we came, and has not been seen since */
#define OFF_CPU_EXITED 0xfcu  /* the thread is gone, the slot not yet read */

/* One thread. The program writes all of it but the last two fields. */
struct off_cpu_thread {
	uint32_t tid, tgid;
	uint32_t seq; /* counts when it leaves and when it enters a CPU, from 1 */
	uint8_t state;
	uint8_t flags; /* OFF_CPU_KERNEL_ONLY */
	uint16_t cpu;  /* that it left */
	int32_t syscall; /* that it is blocked in; -1: none */
	uint32_t copied_seq; /* when its buffer was filled */
	uint64_t since_ns;   /* when it began to be watched */
	uint64_t changed_ns; /* when it left or entered a CPU */
	uint64_t wake_ns;    /* when it was last woken; before changed_ns: it was not woken since */
	uint64_t ns[8];      /* by enum thread_state, up to changed_ns */
	int64_t mark_ns;     /* of short intervals, to its next mark */
	/* The longest of its recent intervals, in the run queue and blocked: falls by 1/64 with each. */
	uint64_t recent_ns[2];
	uint64_t copied_ns;  /* when its stack was last copied */
	uint32_t stack_bytes; /* to copy */
	uint32_t taken_seq;   /* the stack of this interval is known: no need to send it */
};
_Static_assert(sizeof(struct off_cpu_thread) == 152, "the same for both sides");

enum off_cpu_kind {
	OFF_CPU_INTERVAL = 1,
	OFF_CPU_WAKER = 2,
	OFF_CPU_EXIT = 3,
	OFF_CPU_PYTHON = 4,
};

/* What is known of a thread or an interval. */
#define OFF_CPU_KERNEL_ONLY 1u /* an io_uring worker or the like: it has no user stack */
#define OFF_CPU_COMPAT 2u      /* 32-bit code */
#define OFF_CPU_WAS_OPEN 4u    /* it began before we came */
#define OFF_CPU_HAS_USER 8u    /* registers, and stack bytes if any, are there */
#define OFF_CPU_ON_CPU 16u     /* it is running at this moment */
#define OFF_CPU_INTERRUPT 32u  /* the waker is an interrupt, and the thread only what it came upon */

/* First in each event. */
struct off_cpu_head {
	uint32_t kind, slot; /* the slot of the thread that was off the CPU */
	uint32_t tid, tgid;  /* that thread */
	uint32_t seq;        /* of the interval */
	uint32_t flags;
	uint64_t time_ns;
};

/* OFF_CPU_INTERVAL: it ended at time_ns. OFF_CPU_WAKER: the thread was woken at time_ns; registers and
 * stack are the waker's; the kernel's frames are there when an interrupt came upon a system call. Cut after
 * stack_bytes of bytes[]. */
struct off_cpu_event {
	struct off_cpu_head head;
	uint64_t start_ns;
	uint64_t blocked_ns, queued_ns; /* weights, as in struct record_off_cpu */
	int32_t syscall;                /* of the sleeper; OFF_CPU_WAKER: of the waker */
	uint16_t cpu;
	uint8_t state, pad;
	uint32_t waker_tid, waker_tgid;
	uint32_t kernel_count, stack_bytes;
	uint32_t owner; /* while the event is a buffer: 1 + the slot whose copy it holds */
	uint32_t pad2;
	uint64_t kernel_ips[OFF_CPU_KERNEL_FRAMES];
	uint64_t regs[USER_REGS];
	uint8_t bytes[OFF_CPU_STACK_BYTES];
};

/* OFF_CPU_PYTHON: the thread's Python frames, copied with its stack; comes before the interval with this seq. Cut
 * behind what its links and cframes take. */
struct off_cpu_python {
	struct off_cpu_head head;
	struct python_copy_head chain;
	uint64_t words[PYTHON_COPY_WORDS];
	uint32_t bytes; /* of chain and words; in a buffer alone */
	uint32_t owner; /* as in struct off_cpu_event */
};

struct off_cpu_exit {
	struct off_cpu_head head;
	uint64_t since_ns;
	uint64_t ns[8];
};

/* What the iterator writes for a thread that is off the CPU: its registers; its stack stays where it
 * is, and does not change while `seq` of its slot does not. */
struct off_cpu_look {
	uint32_t slot, tid, tgid, seq;
	uint32_t flags, state;
	int32_t syscall;
	uint32_t kernel_count;
	uint64_t regs[USER_REGS];
	uint64_t kernel_ips[OFF_CPU_KERNEL_FRAMES];
};

enum off_cpu_scope {
	OFF_CPU_PROCESSES, /* in the map `watched`, and what they start */
	OFF_CPU_CGROUP,
	OFF_CPU_ALL,
};

/* Values of the map `watched`. */
#define OFF_CPU_NOW 1u
#define OFF_CPU_AT_EXEC 2u /* from its next exec on */

#endif
