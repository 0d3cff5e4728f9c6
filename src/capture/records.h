/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What stands in a recording. docs/FORMAT.md is the specification; these structs are its layout.
 *
 * A file is a header and then blocks; a block is a header and zstd-compressed (or plain) payload;
 * the payload is whole records, each 8-byte aligned with its size in front. Little-endian. Record
 * types a reader does not know are skipped by size; a known record may grow at its end, and readers
 * take the fields they know. Numbers of enums stored here never change meaning.
 *
 * Ids (strings, modules, frames, stacks) are written out and count up from 0, so that a damaged
 * block leaves holes instead of shifting what follows. Padding is written as zeros and ignored.
 */
#ifndef SONDE_CAPTURE_RECORDS_H
#define SONDE_CAPTURE_RECORDS_H

#include <stdint.h>

#define CAPTURE_MAGIC "\x89SONDE\r\n" /* 8 bytes: high bit and line ends show a mangled transfer */
#define CAPTURE_VERSION 1
#define CAPTURE_BLOCK_MAGIC 0x4b4c4253u /* "SBLK" */
#define CAPTURE_NONE UINT32_MAX         /* no string, module, frame or stack */

struct capture_file_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes; /* the first block starts here */
	uint64_t start_monotonic_ns;
	uint64_t start_realtime_ns;
	uint8_t reserved[24];
	uint64_t checksum; /* XXH64 of the 56 bytes before it */
};
_Static_assert(sizeof(struct capture_file_header) == 64, "part of the format");

enum capture_codec {
	CAPTURE_PLAIN = 0,
	CAPTURE_ZSTD = 1,
};

struct capture_block_header {
	uint32_t magic;
	uint32_t codec;        /* enum capture_codec */
	uint32_t stored_bytes; /* follow this header; at most CAPTURE_MAX_BLOCK_BYTES */
	uint32_t plain_bytes;  /* after decompression; at most CAPTURE_MAX_BLOCK_BYTES */
	uint64_t sequence;     /* 0, 1, 2... */
	uint64_t checksum;     /* XXH64 of the 24 bytes before and the XXH64 of what is stored */
};
_Static_assert(sizeof(struct capture_block_header) == 32, "part of the format");

#define CAPTURE_MAX_BLOCK_BYTES (4u << 20)
#define CAPTURE_MAX_STRING_BYTES (1u << 20) /* the writer cuts longer ones */
#define CAPTURE_MAX_LEVELS 64                /* of a symbol; more are cut, the outermost kept */

/* A new type also has its place in replay.c, or it is not in the window of a flight recorder. */
enum record_type {
	RECORD_META = 1,
	RECORD_STRING = 2,
	RECORD_MODULE = 3,
	RECORD_PROCESS = 4,
	RECORD_THREAD = 5,
	RECORD_EXIT = 6,
	RECORD_MAPPING = 7,
	RECORD_FRAME = 8,
	RECORD_STACK = 9,
	RECORD_SAMPLE = 10,
	RECORD_LOSS = 11,
	RECORD_SYMBOL = 12,
	RECORD_COST = 13,
	RECORD_END = 14,
	RECORD_OFF_CPU = 15,
	RECORD_THREAD_TIMES = 16,
	RECORD_TASK_TIME = 17,
	RECORD_HEAP = 18,
	RECORD_HEAP_SITE = 19,
	RECORD_HEAP_STATE = 20,
	RECORD_HEAP_SHAPE = 21,
	RECORD_HEAP_FLOW = 22,
	RECORD_HEAP_THREAD = 23,
	RECORD_HEAP_TOTAL = 24,
	RECORD_MARK = 25,
	RECORD_COUNTER = 26,
	RECORD_COUNTER_VALUE = 27,
	RECORD_HEAP_CLASS = 28,
};

struct record_header {
	uint16_t type;  /* enum record_type */
	uint16_t flags; /* 0 */
	uint32_t bytes; /* with this header; a multiple of 8 */
};

/* A fact about the recording: "command", "host", "kernel", "sonde", "event", "frequency_hz",
 * "stack_bytes", "reader_note"... Both strings. */
struct record_meta {
	struct record_header header;
	uint32_t key, value;
};

struct record_string {
	struct record_header header;
	uint32_t id, len;
	/* char bytes[len], zero padding to 8 */
};

enum module_kind {
	MODULE_FILE = 0,
	MODULE_VDSO = 1, /* or other code that the kernel maps: "[uprobes]" */
	MODULE_KERNEL = 2,
	/* Executable memory of one process without a file; `pid` says which. With an inode: the code that
	 * the jitdump at `path` describes, at its offset in that file. */
	MODULE_JIT = 3,
	/* A file of Python source, by the path that its code objects have. It is not opened, and its frames
	 * (FRAME_PYTHON) have names from the start. */
	MODULE_PYTHON = 4,
};

struct record_module {
	struct record_header header;
	uint32_t id, path; /* path: string; "[vdso]", "[kernel]", "[jit]" for the others */
	uint32_t kind;     /* enum module_kind */
	uint32_t pid;      /* MODULE_JIT, else 0 */
	uint64_t inode, device;
	uint8_t build_id_bytes, pad[7];
	uint8_t build_id[64];
};

struct record_process {
	struct record_header header;
	uint64_t time_ns;
	uint32_t pid, ppid;
	uint32_t command; /* string: the command line, arguments joined by spaces */
	uint32_t pad;
};

/* A thread seen, or renamed. */
struct record_thread {
	struct record_header header;
	uint64_t time_ns;
	uint32_t pid, tid;
	uint32_t name; /* string */
	uint32_t pad;
};

struct record_exit {
	struct record_header header;
	uint64_t time_ns;
	uint32_t pid, tid; /* tid == pid: the process */
};

struct record_mapping {
	struct record_header header;
	uint64_t time_ns, start, end;
	uint64_t bias; /* address - bias = address in the module */
	uint32_t pid, module;
};

enum frame_kind {
	FRAME_USER = 0,
	FRAME_KERNEL = 1,
	/* Of Python code: `address` says nothing but that other frames of the file are others. */
	FRAME_PYTHON = 2,
};

/* One code address. The stored enums are those of unwind.h, by the same numbers. */
struct record_frame {
	struct record_header header;
	uint64_t address; /* in the module; absolute for MODULE_KERNEL, MODULE_JIT "[jit]", none */
	uint32_t id;
	uint32_t module;   /* CAPTURE_NONE: not mapped */
	uint8_t kind;      /* enum frame_kind */
	uint8_t how;       /* enum unwind_how */
	uint8_t source;    /* enum unwind_source */
	uint8_t is_return; /* the call is the instruction before `address` */
	uint8_t role;      /* enum frame_role of symbol/interpreter.h, by the same numbers */
	uint8_t pad[3];
};

/* A node of the tree of stacks: this frame, called by `parent`. A whole stack is named by the node
 * of its leaf. Parents come before their children. */
struct record_stack {
	struct record_header header;
	uint32_t id, parent; /* parent CAPTURE_NONE: outermost frame */
	uint32_t frame, pad;
};

enum sample_python {
	SAMPLE_PYTHON_GIL = 1,  /* the thread held the interpreter's lock */
	SAMPLE_PYTHON_TORN = 2, /* its Python frames changed while they were read: some are missing */
	SAMPLE_PYTHON_CUT = 4,  /* there were more of them than are kept, outermost ones */
};

struct record_sample {
	struct record_header header;
	uint64_t time_ns;
	uint64_t weight;     /* ns of CPU time this sample stands for */
	uint32_t pid, tid;
	uint32_t stack;      /* leaf node; CAPTURE_NONE: no frame at all */
	uint16_t cpu;
	uint8_t end;         /* enum unwind_end of the user part */
	uint8_t python;      /* SAMPLE_PYTHON_... */
	uint32_t used_bytes; /* stack bytes that were needed, for choosing --stack-size */
	/* So many of the outermost frames were not in the copy: they were read from the target's
	 * memory a moment later, after a check that the frames below them still stood. */
	uint32_t live_frames;
};

/* What a thread is doing. */
enum thread_state {
	STATE_ON_CPU = 0,
	STATE_RUN_QUEUE = 1,  /* could run, and waits for a CPU */
	STATE_THROTTLED = 2,  /* the same, and its cgroup has used up its CPU bandwidth */
	STATE_FUTEX = 3,      /* blocked in futex(2): a lock, a condition variable, a join... */
	STATE_SYSCALL = 4,    /* blocked in another system call */
	STATE_PAGE_FAULT = 5, /* blocked until a page of its memory is there */
	STATE_STOPPED = 6,    /* by a signal, a tracer or a freezer */
	STATE_BLOCKED = 7,    /* off the CPU, and why is not known */
	STATE_COUNT,
};

enum waker_kind {
	WAKER_UNKNOWN = 0,   /* nobody looked, or it still sleeps */
	WAKER_THREAD = 1,    /* in a system call of its own */
	WAKER_INTERRUPT = 2, /* a timer or a device; the thread below it was only interrupted */
};

/*
 * A thread that was off the CPU, from start_ns for duration_ns: first it was blocked in `state`, then
 * it could run and waited in the run queue. A thread that was preempted was only queued: `state` is
 * then RUN_QUEUE or THROTTLED. The stack is where it went off the CPU.
 *
 * blocked_ns and queued_ns are weights: the time that this interval stands for in a profile. Their
 * sum is duration_ns, but for threads that go off and on so often that only some of the intervals
 * are kept; each of these then stands for more. What the exact sums are says RECORD_THREAD_TIMES.
 */
struct record_off_cpu {
	struct record_header header;
	uint64_t start_ns, duration_ns;
	uint64_t blocked_ns, queued_ns;
	uint32_t pid, tid;
	uint32_t stack;        /* leaf node; CAPTURE_NONE: not known */
	int32_t syscall;       /* number, on the recording machine; -1: none, or not known */
	uint32_t waker_pid, waker_tid; /* 0 when not known */
	uint32_t waker_stack;  /* what the waker was doing; CAPTURE_NONE: not known */
	uint32_t used_bytes, live_frames; /* as in record_sample */
	uint16_t cpu;          /* that it left */
	uint8_t state;         /* enum thread_state, never ON_CPU */
	uint8_t waker;         /* enum waker_kind */
	uint8_t end;           /* enum unwind_end of the user part */
	uint8_t open;          /* 1: it began before the recording, 2: it was not over at its end, 3: both */
	uint8_t python;        /* SAMPLE_PYTHON_... */
	uint8_t pad;
	uint32_t syscall_name; /* string; CAPTURE_NONE: no system call, or one without a name */
};

/* How long a thread was in which state since `since_ns`, exactly. The last one of a thread counts. */
struct record_thread_times {
	struct record_header header;
	uint64_t since_ns, until_ns;
	uint64_t ns[8]; /* by enum thread_state; they sum up to until_ns - since_ns */
	uint32_t pid, tid;
};

/* What tasks of an event loop were doing; they are no threads, and many at a time. */
enum task_doing {
	TASK_RUNS = 0,  /* a thread was in them */
	TASK_READY = 1, /* they waited for their loop to go on with them */
	TASK_WAITS = 2, /* `what` says for what */
};

/* Tasks of one loop that were in the same place, at time_ns. */
struct record_task_time {
	struct record_header header;
	uint64_t time_ns;
	uint64_t weight_ns;  /* how long they were there, all of them together */
	uint32_t pid, tid;   /* of the thread that runs the loop; tid == pid: none does */
	uint32_t stack;      /* leaf node of the innermost coroutine; CAPTURE_NONE: not known */
	uint32_t what;       /* string: "asyncio.Lock"; CAPTURE_NONE */
	uint32_t count;      /* how many tasks */
	uint8_t doing;       /* enum task_doing */
	uint8_t python;      /* SAMPLE_PYTHON_... */
	uint8_t pad[2];
};

/*
 * ---- allocations ----
 *
 * They are added up while they are recorded: a site is a stack that allocates, of one thread of one process, and its
 * numbers so far are written whenever it had something to do since they were last written, at the same moments
 * for all (RECORD_HEAP_TOTAL says when). What happened between two moments is the difference.
 *
 * Numbers are doubles, which hold every integer that a count or a sum of bytes comes to. Exact ones are integers, and
 * their variances are 0; of sampled allocations they are estimates without bias (enum heap_precision says which).
 */
enum heap_precision {
	HEAP_EXACT = 1,
	HEAP_SAMPLED = 2, /* by bytes: `rate` is their mean between two samples */
	HEAP_CALLS = 3,   /* by calls: one in `rate`, on average. What is freed is not known: nothing is live or freed */
};

enum heap_how {
	HEAP_LAUNCHED = 1, /* from the first allocation on */
	HEAP_ATTACHED = 2, /* what was allocated before is not known */
	HEAP_PROBES = 3,   /* by probes in the kernel */
	HEAP_TOLD = 4,     /* by samples that it takes itself and has probes for; none of its blocks counts as temporary */
};

/* A process whose allocations are watched from now on (again after exec). */
struct record_heap {
	struct record_header header;
	uint64_t time_ns;
	uint64_t rate;      /* bytes or calls; 0: exact */
	uint32_t pid;
	uint8_t precision;  /* enum heap_precision */
	uint8_t how;        /* enum heap_how */
	uint8_t maps;       /* 1: what it maps itself is in sites of its own (stacks end in "[mapped") */
	uint8_t pad;
	uint32_t allocator; /* string: the file whose malloc it is, CAPTURE_NONE: not known */
	uint32_t uncovered; /* string: what is not seen, in words; CAPTURE_NONE: nothing is known to be missing */
};

struct record_heap_site {
	struct record_header header;
	uint32_t id;       /* counted up from 0 */
	uint32_t pid, tid; /* tid 0: of threads that were too many to tell apart */
	uint32_t stack;    /* leaf node: the caller of malloc; CAPTURE_NONE: not known */
};

/* Numbers of a site, since it was first seen. */
enum heap_number {
	HEAP_ALLOCATED = 0,   /* blocks allocated */
	HEAP_ALLOCATED_BYTES,
	HEAP_FREED,           /* and freed again, by whomever */
	HEAP_FREED_BYTES,
	HEAP_TEMPORARY,       /* freed by the thread that allocated them, before it allocated anything else */
	HEAP_TEMPORARY_BYTES,
	HEAP_CROSS_FREED,     /* freed by another thread */
	HEAP_CROSS_FREED_BYTES,
	HEAP_REALLOCATED,     /* of `allocated`: got from realloc with an old block */
	HEAP_REALLOCATED_BYTES, /* sizes that those had before */
	HEAP_MOVED,           /* of `reallocated`: to another address */
	HEAP_PEAK,            /* live when all processes together had most bytes live */
	HEAP_PEAK_BYTES,
	HEAP_LIFETIME_NS,     /* of those that were freed, added up */
	HEAP_NUMBERS,
};

/* Variances of estimates: of what is live, of what was allocated, and of what was live at the peak. That of what was freed is the
 * difference of the first two. */
enum heap_variance {
	HEAP_VAR_LIVE = 0,
	HEAP_VAR_LIVE_BYTES,
	HEAP_VAR_ALLOCATED,
	HEAP_VAR_ALLOCATED_BYTES,
	HEAP_VAR_PEAK_BYTES,
	HEAP_VARIANCES,
};

struct record_heap_state {
	struct record_header header;
	uint64_t time_ns;
	uint32_t site, samples;  /* samples: blocks that the numbers are made from, in all */
	double number[HEAP_NUMBERS];
	double variance[HEAP_VARIANCES];
};

/* Sizes: bucket i counts blocks of at least 1 << (i - 1) and less than 1 << i bytes, bucket 0 those of none. Ages and
 * lifetimes the same in microseconds. The last bucket has all that is larger. */
#define HEAP_BUCKETS 40u
enum heap_shape {
	HEAP_SIZES = 0,     /* of all that were allocated */
	HEAP_LIVE_SIZES = 1,
	HEAP_LIFETIMES = 2, /* of those that were freed */
	HEAP_AGES = 3,      /* of those that are live, by the time of this record */
	HEAP_LIVE_BYTES_BY_AGE = 4,
	HEAP_USABLE = 5,    /* bytes that the allocator gave above those asked for, of live blocks by size */
};

/* The last one of a site and kind counts. */
struct record_heap_shape {
	struct record_header header;
	uint64_t time_ns;
	uint32_t site;
	uint16_t kind;          /* enum heap_shape */
	uint8_t first, buckets; /* those that are not zero lie in these */
	/* double count[buckets] */
};

/* Blocks of a site that one other thread freed. The last one of its key counts. */
struct record_heap_flow {
	struct record_header header;
	uint64_t time_ns;
	uint32_t site;
	uint32_t pid, tid;     /* who freed */
	uint32_t stack;        /* where; CAPTURE_NONE: stacks of frees were not taken */
	double count, bytes;
};

/* What a thread did. The last one counts. */
struct record_heap_thread {
	struct record_header header;
	uint64_t time_ns;
	uint32_t pid, tid;
	double allocated, allocated_bytes, freed, freed_bytes;
	double freed_unknown; /* blocks that we did not see allocated */
};

/* All processes together, at a moment; states of sites that are written after the one before it belong to its moment. */
struct record_heap_total {
	struct record_header header;
	uint64_t time_ns;
	double live, live_bytes, peak_bytes, allocated, allocated_bytes, temporary;
	uint64_t peak_ns;
	double variance_live_bytes, variance_allocated_bytes, variance_peak_bytes;
	uint64_t rss_bytes;  /* resident memory of the processes; 0: not known */
	uint32_t with_sites; /* 1: sites were written for this moment; else it is a point between */
	uint32_t pad;
	double ended, ended_bytes; /* of live: what processes that have ended had at their end; no part of a peak after that */
};

/* Blocks of about one size, of all processes whose allocator's sizes are known: what was asked for, and what was given. The last one of
 * a `usable` counts. */
struct record_heap_class {
	struct record_header header;
	uint64_t time_ns;
	uint64_t usable;                       /* bytes of the largest block in it; 0: of blocks whose size is not known */
	double live, live_bytes, live_usable;  /* blocks, what was asked for, what they have */
	double peak, peak_bytes, peak_usable;  /* the same when all processes together had most bytes live */
	double variance_wasted;                /* of live_usable - live_bytes */
};

/* ---- what programs say themselves (sonde/capture.h) ---- */

enum mark_severity {
	MARK_NO_MESSAGE = 0, /* a mark */
	MARK_DEBUG = 1,
	MARK_INFO = 2,
	MARK_MESSAGE = 3,
	MARK_WARNING = 4,
	MARK_CRITICAL = 5,
	MARK_ERROR = 6,
};

/* Something took from time_ns for duration_ns, in the words of the program; or it says something: then `group` is the
 * part of the program that does, and `name` is none. Records stand in the order in which the marks ended. */
struct record_mark {
	struct record_header header;
	uint64_t time_ns, duration_ns;
	uint32_t pid, tid;
	uint32_t group, name, message; /* strings; CAPTURE_NONE: empty */
	uint8_t severity;              /* enum mark_severity */
	uint8_t pad[3];
};

enum counter_kind {
	COUNTER_INT64 = 0,
	COUNTER_DOUBLE = 1,
};

/* A counter of a process. Values may stand before it. */
struct record_counter {
	struct record_header header;
	uint32_t id; /* counted up from 0, by first mention */
	uint32_t pid;
	uint32_t group, name, description; /* strings; CAPTURE_NONE: empty */
	uint8_t kind;                      /* enum counter_kind */
	uint8_t pad[3];
};

/* The value of a counter from time_ns on. */
struct record_counter_value {
	struct record_header header;
	uint64_t time_ns;
	uint64_t value;   /* an int64_t, or the bits of a double */
	uint32_t counter; /* id */
	uint32_t tid;     /* who set it */
};

enum loss_kind {
	LOSS_RING = 0,          /* samples the kernel dropped because the ring was full */
	LOSS_THROTTLE = 1,      /* times the kernel throttled the event */
	LOSS_NO_REGS = 2,       /* samples of 32-bit code: their user part is not unwound */
	LOSS_MALFORMED = 3,     /* ring records that made no sense */
	LOSS_FILE = 4,          /* mapped files that could not be opened */
	LOSS_THREAD = 5,        /* threads that could not be attached */
	LOSS_LATE_MAPPING = 6,  /* samples unwound before their mapping was known */
	LOSS_RING_RECORDS = 7,  /* other records (mappings, forks, Python frames) the kernel dropped */
	LOSS_OFF_CPU_STACK = 8, /* intervals off the CPU whose stack could not be taken */
	LOSS_HEAP = 9,          /* allocations and frees that were not written down */
	LOSS_HEAP_EARLY = 10,   /* calls of the allocator before there was anything to write to */
	LOSS_HEAP_STACK = 11,   /* allocations without a whole stack, for want of room */
	LOSS_NOTE = 12,         /* things that programs said and for which there was no room */
	LOSS_KIND_COUNT,
};

struct record_loss {
	struct record_header header;
	uint64_t time_ns;
	uint64_t count; /* since the last record of this kind */
	uint32_t kind;  /* enum loss_kind */
	uint32_t pad;
};

struct record_symbol_level {
	uint32_t name, file; /* strings; file CAPTURE_NONE when unknown */
	uint32_t line, column; /* 0 when unknown; a column counts from 1 */
};

/* The name of one frame, innermost inlined function first. Written when recording ends. */
struct record_symbol {
	struct record_header header;
	uint32_t frame;
	uint16_t level_count; /* 0: no name, and `reason` says why */
	uint8_t reason;       /* enum symbol_reason, by the same numbers */
	uint8_t pad;
	/* Without a name: where the function starts, in the module, when that is known all the
	 * same (from unwind information); else 0. */
	uint64_t function_start;
	/* struct record_symbol_level levels[level_count] */
};

/* What the recording itself has cost so far; the last one counts. */
struct record_cost {
	struct record_header header;
	uint64_t sampler_cpu_ns; /* CPU time of sonde while sampling, without naming */
	uint64_t symbol_cpu_ns;  /* CPU time of naming the addresses at the end */
	uint64_t wakeups;
	uint64_t ring_bytes; /* read from the kernel */
};

enum end_reason {
	END_TARGET_EXITED = 0,
	END_DURATION = 1,
	END_INTERRUPTED = 2,
	END_ERROR = 3, /* such as a full disk; META "end_error" has the words */
	END_TRIGGER = 4, /* a window of a flight recorder, which goes on; META "trigger" says why */
};

/* The last record of a recording that ended in order. */
struct record_end {
	struct record_header header;
	uint64_t time_ns;
	uint32_t reason; /* enum end_reason */
	uint32_t pad;
};

_Static_assert(sizeof(struct record_header) == 8, "part of the format");
_Static_assert(sizeof(struct record_meta) == 16, "part of the format");
_Static_assert(sizeof(struct record_string) == 16, "part of the format");
_Static_assert(sizeof(struct record_module) == 112, "part of the format");
_Static_assert(sizeof(struct record_process) == 32, "part of the format");
_Static_assert(sizeof(struct record_thread) == 32, "part of the format");
_Static_assert(sizeof(struct record_exit) == 24, "part of the format");
_Static_assert(sizeof(struct record_mapping) == 48, "part of the format");
_Static_assert(sizeof(struct record_frame) == 32, "part of the format");
_Static_assert(sizeof(struct record_stack) == 24, "part of the format");
_Static_assert(sizeof(struct record_sample) == 48, "part of the format");
_Static_assert(sizeof(struct record_off_cpu) == 88, "part of the format");
_Static_assert(sizeof(struct record_thread_times) == 96, "part of the format");
_Static_assert(STATE_COUNT <= 8, "room in record_thread_times");
_Static_assert(sizeof(struct record_task_time) == 48, "part of the format");
_Static_assert(sizeof(struct record_heap) == 40, "part of the format");
_Static_assert(sizeof(struct record_heap_site) == 24, "part of the format");
_Static_assert(sizeof(struct record_heap_state) == 176, "part of the format");
_Static_assert(sizeof(struct record_heap_shape) == 24, "part of the format");
_Static_assert(sizeof(struct record_heap_flow) == 48, "part of the format");
_Static_assert(sizeof(struct record_heap_thread) == 64, "part of the format");
_Static_assert(sizeof(struct record_heap_class) == 80, "part of the format");
_Static_assert(sizeof(struct record_heap_total) == 128, "part of the format");
_Static_assert(sizeof(struct record_mark) == 48, "part of the format");
_Static_assert(sizeof(struct record_counter) == 32, "part of the format");
_Static_assert(sizeof(struct record_counter_value) == 32, "part of the format");
_Static_assert(sizeof(struct record_loss) == 32, "part of the format");
_Static_assert(sizeof(struct record_symbol_level) == 16, "part of the format");
_Static_assert(sizeof(struct record_symbol) == 24, "part of the format");
_Static_assert(sizeof(struct record_cost) == 40, "part of the format");
_Static_assert(sizeof(struct record_end) == 24, "part of the format");

#endif
