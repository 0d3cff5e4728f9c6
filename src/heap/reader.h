/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading what watched programs write (heap/share.h): the rings of all threads of all processes as one stream of events
 * in order of time.
 *
 * The memory is the target's, which may write anything into it at any time. Nothing of it is believed: what is checked
 * is copied first, every index has a bound, a drain does a bounded amount of work, and a ring that makes no sense is
 * counted and not read any more. The memory cannot shrink under us: it has to be a memfd that is sealed against that,
 * or that lets itself be sealed.
 *
 * Chunks that were read go back to the target; those beyond what it needs are given back to the machine.
 *
 * Not for two threads at once. Times are ns of CLOCK_MONOTONIC, whatever clock the target takes.
 */
#ifndef SONDE_HEAP_READER_H
#define SONDE_HEAP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "heap/share.h"

/* At most so many events are handed over at once. */
#define HEAP_BATCH 64u

/* A process is named by a number: its slot in the low 16 bits, above them how often that was in use before. So the slot
 * is an index for arrays, and a number does not come back before its slot was in use for 65,536 others. */
#define HEAP_PROCESSES 4096u
#define HEAP_SLOT(number) ((number) & 0xffffu)

/* What few events have. Valid until the call that got it returns. */
struct heap_event_more {
	/* Of an event with a stack: it could not be walked in the target. `raw->stack_bytes` bytes stand at `raw_stack`. */
	const struct share_raw_stack *raw;
	const uint8_t *raw_stack;
	uint64_t cpu_ns, calls; /* SHARE_CALL */
	uint64_t value;         /* SHARE_VALUE, SHARE_COUNTER, SHARE_CODE, pool of SHARE_OWN_...; of SHARE_MAP enum share_map */
	const char *text[3];    /* notes: "" for those it does not have; SHARE_THREAD: [0] its name. NUL behind them */
	uint32_t text_bytes[3];
};

struct heap_event {
	uint64_t time_ns; /* never before that of the event in front of it */
	uint64_t address; /* as share.h says of the type; of SHARE_MARK its duration in ns */
	uint64_t size;    /* bytes of what was allocated or (un)mapped */
	uint64_t rate;    /* that its ring says, or at first its header: bytes or calls; 0: exact */
	uint32_t process, tid;
	uint32_t node;    /* below SHARE_NODES, or SHARE_STACK_UNSAMPLED */
	uint32_t type;    /* enum share_event: all but SHARE_RATE and SHARE_RAW, which are part of others */
	const struct heap_event_more *more; /* NULL: nothing more */
};

struct heap_reader_ops {
	/* 1 to HEAP_BATCH of them. It may call everything below but heap_readers_drain, _remove and _free. */
	void (*events)(void *ctx, const struct heap_event *events, size_t count);
};

struct heap_readers;

/* `ops` has to outlive the set. 0, -ENOMEM. */
int heap_readers_new(const struct heap_reader_ops *ops, void *ctx, struct heap_readers **ret, struct err *err);
void heap_readers_free(struct heap_readers *set); /* NULL is fine */

/* The header of a process, as it was when it was added: copied and checked. */
struct heap_header {
	uint32_t pid; /* that the target says of itself: in its own namespace */
	uint32_t mode, clock, arch;
	uint32_t sizes; /* enum share_sizes */
	uint64_t rate, options, began_ns;
};

/*
 * One process more, by the memfd that it has sent; `fd` is taken in any case. `pid`: as the kernel knows it.
 * -EINVAL: it is not such memory, the words say why; -EMFILE: too many processes; -ENOMEM.
 */
int heap_readers_add(struct heap_readers *set, int fd, uint32_t pid, uint32_t *ret_number, struct err *err);
const struct heap_header *heap_readers_header(const struct heap_readers *set, uint32_t number);

/* Unmaps it; what was not read yet is lost. */
void heap_readers_remove(struct heap_readers *set, uint32_t number);

/*
 * Hands over what was written until now, at most about `limit` events. Returns how many: with fewer than `limit` there was
 * nothing left. What an event depends on comes before it.
 */
size_t heap_readers_drain(struct heap_readers *set, size_t limit);

/* A node of the process's tree of stacks. False for those that are not there, SHARE_STACK_NONE and _CUT and _ROOT, and
 * one whose parent does not have a smaller number. So a walk to the root ends. */
struct heap_node {
	uint64_t pc;
	uint32_t parent, detail; /* as in struct share_node */
};
bool heap_readers_node(const struct heap_readers *set, uint32_t number, uint32_t node, struct heap_node *ret);

/* The tables of the process, SHARE_TABLES_BYTES, for writing; no page of them is there before it is written. */
uint8_t *heap_readers_tables(struct heap_readers *set, uint32_t number);

/* The header as it is mapped, for heap/tables.h, which publishes there; whatever is in it the target may change at any time. */
struct share_header *heap_readers_shared(struct heap_readers *set, uint32_t number);

/* How often code was mapped or unmapped, by the header. */
uint32_t heap_readers_modules_wanted(const struct heap_readers *set, uint32_t number);
/* The tables up to `modules_done` are there, their directory at `directory`: wakes who waits for them. */
void heap_readers_publish(struct heap_readers *set, uint32_t number, uint64_t directory, uint32_t modules_done);

void heap_readers_set_rate(struct heap_readers *set, uint32_t number, uint64_t rate);
/* No more than so many chunks (of SHARE_CHUNK_BYTES) are used for rings. SHARE_CHUNKS - 1 at first. */
void heap_readers_set_chunks(struct heap_readers *set, uint32_t number, uint32_t chunks);
/* The target writes nothing any more. */
void heap_readers_stop(struct heap_readers *set, uint32_t number);

/* A sampled block at `address` is no more. */
void heap_readers_unfilter(struct heap_readers *set, uint32_t number, uint64_t address);

/* A thread is known to be gone: another may go on with its ring. `tid`: as the target says. */
void heap_readers_thread_gone(struct heap_readers *set, uint32_t number, uint32_t tid);

/* What is known to be missing, so far. Never less than before. */
struct heap_losses {
	uint64_t lost[SHARE_LOST_COUNT]; /* by enum share_loss, as the target says */
	uint64_t rings_abandoned;        /* because what they hold makes no sense */
	uint64_t times_backwards;        /* events that were earlier than the one before them in their ring, or in the future */
	uint64_t nodes_wrong;            /* events with a node that cannot be */
	uint64_t late;                   /* events that were handed over with a later time, because others had overtaken them */
};
void heap_readers_losses(struct heap_readers *set, uint32_t number, struct heap_losses *ret);

/* What was read so far: bytes of events, of all processes. */
uint64_t heap_readers_bytes(const struct heap_readers *set);

#endif
