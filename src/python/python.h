/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CPython's memory -> interpreters, threads, frames.
 *
 * It opens no file, reads no /proc, stops nobody and prints nothing: the caller says where the runtime is
 * and hands over a way to read memory. So the same code serves a live process, a core file and a fuzzer.
 *
 * CPython 3.8 to 3.15 on x86-64 and aarch64, also free-threaded and debug builds, but those with Py_TRACE_REFS.
 * Where things are says the process itself from 3.13 on (_Py_DebugOffsets, layout_own.c) and a table for each minor version
 * before (layout_tables.c, made by scripts/python-layouts from the headers of that version). What is not
 * known for certain is refused in words; the nearest table is never taken instead.
 *
 * Everything that is read may be a lie, and may change while it is read: lengths and pointers are checked,
 * every loop has a bound, and what was seen to be torn is told. All memory goes through pages that are kept
 * until python_refresh(): call that before each new look at a process that runs.
 *
 * Layers, each in its own files:
 *   memory   pages of the target, kept for one look                 (memory.h)
 *   layout   where each field is in this version                    (layout.h)
 *   object   strings, types, containers                             (object.h)
 *   code     code objects: names, line tables                       (code.h)
 *   python   runtime, interpreters, threads, frames                 (this header)
 *   census, locks, tasks, locals: what is made of these
 *
 * Not for two threads at once. What a function returns by pointer is valid until python_free(), unless
 * its comment says otherwise.
 */
#ifndef SONDE_PYTHON_PYTHON_H
#define SONDE_PYTHON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/vec.h"

struct python_memory {
	void *ctx;
	/* Copies `len` bytes at `addr`; false when they cannot all be read. */
	bool (*read)(void *ctx, uint64_t addr, void *buf, size_t len);
};

/* Where the runtime is, as the mapped files of the process tell. */
struct python_place {
	uint64_t runtime;       /* _PyRuntime: its symbol, or the section ".PyRuntime" */
	uint64_t version_at;    /* Py_Version (3.11 and later); 0: not known */
	uint64_t data_start, data_end; /* writable data of the same file, where 3.8 to 3.10 keep their version
					  as text; 0, 0: not known */
	unsigned minor;         /* of 3.MINOR, as the file's name has it; 0: it does not. Only a hint. */
	bool aarch64;
};

struct python;

/*
 * -EOPNOTSUPP with words: a version or a kind of build that is not known, or memory that contradicts its
 * layout. -EFAULT: it cannot be read. -EAGAIN: the interpreter is not initialised yet, or was finalised.
 * -ENOMEM. The place and the memory's struct are copied; its ctx must live as long as *ret.
 */
int python_new(const struct python_memory *memory, const struct python_place *place,
	struct python **ret, struct err *err);
void python_free(struct python *p);

/* Everything read before is forgotten, so that what follows is of now. Code objects that were seen are
 * checked once before they are believed again. */
void python_refresh(struct python *p);

struct python_layout;
const struct python_layout *python_layout(const struct python *p);

uint32_t python_version(const struct python *p);      /* PY_VERSION_HEX: 0x030c01f0 is 3.12.1 */
const char *python_version_text(const struct python *p); /* "3.12.1", "3.13.5 free-threaded" */

bool python_free_threaded(const struct python *p);

/* PyCode_Type; 0: no code object was seen so far. */
uint64_t python_code_type(const struct python *p);

/* ---- threads ---- */

struct python_thread {
	uint64_t address;    /* its PyThreadState */
	uint64_t interpreter; /* PyInterpreterState */
	int64_t interpreter_id; /* 0: the main one */
	uint64_t pthread;    /* pthread_t; 0: not started yet */
	uint32_t native_id;  /* its thread id in the pid namespace of the process; 0: not told */
	bool main;           /* of its interpreter: the first thread it had */
};
VEC_TYPE(python_threads, struct python_thread);

#define PYTHON_MOST_THREADS 65536u
#define PYTHON_MOST_INTERPRETERS 1024u

/*
 * All threads of all interpreters, the main interpreter's first, in no other order. One operating system
 * thread may be in it several times: it may have been in several interpreters.
 *
 * CPython up to 3.10 does not keep native ids. They are looked for in the C library's struct behind pthread_t:
 * `tids` are those of the process's threads as it knows them itself, of which each must be one; without them
 * (NULL, 0) native_id stays 0 there. -EFAULT: lists that cannot be read; what was found until then is in
 * *ret. -ENOMEM.
 */
int python_threads(struct python *p, const uint32_t *tids, size_t tid_count, struct python_threads *ret,
	struct err *err);

/* Whether a state that python_threads() told is still that thread's: it may have been freed, and another's may
 * stand in its place. */
bool python_thread_stands(struct python *p, const struct python_thread *thread);

/* ---- frames as they stand in memory ---- */

/*
 * One link of a thread's chain of frames, words as stored: what a BPF program copies, without thinking,
 * and python_chain_read() does as well. Innermost first.
 */
struct python_link {
	uint64_t at;       /* where the frame is */
	uint64_t code;     /* f_code, f_executable; tagged, maybe */
	uint64_t position; /* f_lasti (an int), prev_instr, instr_ptr */
	uint64_t marks;    /* the 8 bytes at chain_layout.marks: owner, is_entry, tlbc_index are in it */
};

enum python_torn {
	PYTHON_WHOLE,
	PYTHON_TORN,      /* a frame was not what it should be; what is within it stands */
	PYTHON_UNREADABLE, /* the same because its memory could not be read */
	PYTHON_CUT,       /* there are more than was asked for; the innermost are there */
};

struct python_chain {
	struct python_link *links; /* innermost first */
	size_t count, limit;       /* `limit`: room there */
	/* 3.10 and 3.11: what each running call of the interpreter keeps on its C stack, innermost first;
	 * its C frames are found by it. */
	uint64_t *cframes;
	size_t cframe_count, cframe_limit;
	enum python_torn torn;
};

/* Where chains are, for whoever copies them himself (BPF). Offsets in bytes. */
struct python_chain_layout {
	uint16_t entry;        /* in the thread state: pointer to the innermost frame, or to the cframe */
	bool by_cframe;        /* it is a cframe: the innermost frame is a pointer in that */
	uint16_t cframe_frame, cframe_previous;
	bool cframes;          /* they are to be copied as well, from this one in the thread state on */
	uint16_t cframe_entry;
	uint16_t previous, code, position, marks; /* in the frame */
	uint16_t bytes;        /* of a frame that hold all of these */
	uint64_t pointer_mask; /* of `code`: tags are outside it */
};
const struct python_chain_layout *python_chain_layout(const struct python *p);

#define PYTHON_MOST_FRAMES 100000u /* more links than this are a circle, or not worth having */

/* Copies the chain of a thread. Fills links and cframes as far as there is room. `torn` says the rest. */
void python_chain_read(struct python *p, uint64_t thread, struct python_chain *ret);

/*
 * Whether the outermost frame of a thread's chain is there. It is not in chains that are PYTHON_CUT or PYTHON_UNREADABLE,
 * nor, from 3.11 on, in those of a thread that is just about to leave a generator: the link from that to its
 * caller is cut a few instructions before the caller is the innermost frame. Only for whole chains of threads.
 */
bool python_chain_has_root(const struct python *p, const struct python_chain *chain);

/* The same from a frame on: of a generator, a coroutine, a greenlet that does not run. cframes: none. */
void python_chain_read_from(struct python *p, uint64_t frame, struct python_chain *ret);

/* ---- frames for people ---- */

struct python_code {
	uint64_t address;
	uint32_t serial;       /* 0, 1, 2...: no two have the same, also when one is freed and another
				  stands in its place; unless that is the same in all that is here, and in its lines */
	const char *name;      /* qualified; up to 3.10 the bare name, "" where it cannot be read. UTF-8. */
	const char *file;      /* as the program gave it; "" where it cannot be read. UTF-8. */
	uint32_t first_line;
	uint32_t flags;        /* co_flags */
	uint16_t arguments;    /* positional ones, positional-only ones among them */
	uint16_t keyword_only;
};
#define PYTHON_CODE_GENERATOR 0x20u /* bits of co_flags */
#define PYTHON_CODE_COROUTINE 0x80u
#define PYTHON_CODE_ASYNC_GENERATOR 0x200u

/* 0 where it is not known. Columns count from 1, in bytes; the end is behind the last one. */
struct python_position {
	uint32_t line, end_line, column, end_column;
};

/* How a frame came to be. */
enum python_owner {
	PYTHON_OF_THREAD,
	PYTHON_OF_GENERATOR, /* of a coroutine, too */
	PYTHON_OF_OBJECT,    /* it has ended, and a frame object keeps it */
};

struct python_frame {
	const struct python_code *code; /* never NULL */
	struct python_position position; /* of the call that is in progress, or the instruction that runs */
	uint64_t at;
	int32_t offset;      /* of the instruction in the bytecode, in bytes; -1: it has not begun */
	enum python_owner owner;
	/*
	 * The outermost frame that its call of the interpreter's evaluation function runs; each frame is such
	 * up to 3.10. `marker`, where it is not 0, is an address in the C frame of that function: the frames from
	 * the one after the last entry up to this one belong there. 3.8 and 3.9 leave none.
	 */
	bool entry;
	uint64_t marker;
	bool missing; /* stands for frames that could not be had; never from python_frames() */
};
VEC_TYPE(python_frames, struct python_frame);

/* Frames of a chain, innermost first, appended to *ret. What the interpreter put in for itself is left out.
 * Lowers chain->torn to PYTHON_TORN where a link is no frame; what is within it is kept. -ENOMEM. */
int python_frames(struct python *p, struct python_chain *chain, struct python_frames *ret);

/* The interpreter lock of the thread's interpreter. */
struct python_gil {
	uint64_t address;    /* of its struct; [address, address + bytes) holds what its waiters wait on */
	uint32_t bytes;
	bool locked;
	bool off;            /* free-threaded, and there is none */
	uint64_t holder;     /* thread state of who holds it, or had it last; 0 */
	uint64_t switches;   /* how often it went from one thread to another so far */
};
/* -EFAULT: it cannot be read. */
int python_gil(struct python *p, const struct python_thread *thread, struct python_gil *ret,
	struct err *err);

#endif
