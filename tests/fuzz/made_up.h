/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A machine that is not there: processes, threads, memory, descriptors, all drawn from the bytes that a
 * fuzzer makes. The fuzz target is linked so that what asks the system (os/, sample/source.h, cores) asks this
 * instead: see made_up_system.c. No process has such ids, so what would get past that finds nothing.
 *
 *	made_up.c         the bytes become processes, threads, memory
 *	made_up_file.c    the object file that is mapped in all of them
 *	made_up_system.c  what the tool asks, and is told
 *
 * Memory changes while it is read, and goes away; threads move, end and begin between two looks.
 */
#ifndef SONDE_TESTS_FUZZ_MADE_UP_H
#define SONDE_TESTS_FUZZ_MADE_UP_H

#include "elf/core_file.h"
#include "os/open_files.h"
#include "sample/snapshot/look.h"

#define MADE_PROCESSES 3u
#define MADE_THREADS 16u /* of all of them */
#define MADE_FDS 8u      /* of each */
#define MADE_PAGES 16u
#define MADE_PAGE_BYTES 1024u
#define MADE_LOCKS 4u
#define MADE_SOCKETS 6u
#define MADE_FRAMES 8u

#define MADE_HEAP 0x550000000000u
#define MADE_STACKS 0x7ffd00000000u
#define MADE_STACK_BYTES 4096u
#define MADE_TEXT 0x7f0000000000u

/* What may happen to a page or to a thread, as bits. */
enum {
	MADE_CHANGES = 1,  /* at every look */
	MADE_GOES = 2,     /* after some looks it is not there */
	MADE_PARTLY = 4,   /* only the first half can be read */
	MADE_COMES = 8,    /* at first it is not there */
};

struct made_page {
	uint8_t kind, param, moods;
	bool set; /* by a thread that needs it so */
	unsigned reads;
};

struct made_thread {
	struct thread_look look;
	unsigned looks; /* at it, so far */
	uint8_t moods, depth, functions[MADE_FRAMES];
};

struct made_process {
	struct proc_status status;
	int refused;   /* errno */
	char title[48];
	uint8_t moods, sort;
};

struct made_fd {
	uint8_t link, param, bits;
};

struct made {
	const uint8_t *tape;
	size_t size, at;
	bool still;       /* a core; else a live machine */
	uint8_t world;    /* bits: what of the machine is refused */
	unsigned turn;    /* counts what was asked so far */
	unsigned lists;   /* of the threads of a process, so far */
	size_t process_count, thread_count;
	struct made_process processes[MADE_PROCESSES];
	struct made_thread threads[MADE_THREADS];
	struct made_page pages[MADE_PAGES];
	struct made_fd fds[MADE_PROCESSES][MADE_FDS];
	uint8_t sockets[MADE_SOCKETS][4], locks[MADE_LOCKS][4];
	struct core_info core;
};

extern struct made made;

/* A new machine of these bytes, borrowed until the next one. */
void made_begin(const uint8_t *bytes, size_t size);

struct made_process *made_process(pid_t pid);
struct made_thread *made_thread(pid_t tid);
size_t made_read(uint64_t addr, void *buf, size_t len);

/* Some thread's id: of that number, as they are counted. */
pid_t made_tid(unsigned number);

/* The next byte; 0 when there are none left. */
uint8_t made_byte(void);

/* The object file: a descriptor of it (-1: none), and where its functions are. It is the same always. */
int made_file(void);
size_t made_function_count(void);
uint64_t made_function_pc(unsigned number);
size_t made_file_size(void);
size_t made_file_read(uint64_t offset, void *buf, size_t len);

#endif
