/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that a watched program shares with its collector: one sparse memfd a process, made by the code in the
 * target (the preload, or the capture library of programs) and mapped by both. It is made with MFD_ALLOW_SEALING: the
 * collector seals it, so that it cannot shrink, and takes no other.
 *
 * Everything here is plain memory that the target can write at any time, so the collector trusts nothing of it:
 * every index is checked, every loop is bounded, and what it has to remember it keeps elsewhere. The target waits
 * for nothing: what finds no room is counted (enum share_loss).
 *
 *	header     one page
 *	filter     counters by hashed address: is a sampled block freed?
 *	rings      one a thread: who owns it, and its first chunk
 *	index      hash table of the nodes, in levels
 *	nodes      the tree of stacks, each node once
 *	tables     unwind tables, written by the collector; the target maps them read-only (heap/tables.h)
 *	chunks     the bytes of the rings
 *
 * A ring is a list of chunks. Its thread appends events to the last one and links a new one when that is full; the
 * collector reads from the first one and gives back those that it has read. So a ring grows while the collector is
 * slow, and shrinks again.
 *
 * Events carry a time that orders them across rings: of a free it is taken before the block is given back, of an
 * allocation after it was got, and an event is visible before its call goes on. So whoever takes the
 * time T and only then looks at the rings has, up to T, every event that another one there depends on.
 *
 * Shared by code that may link nothing: no function here is called, all are inline, none allocates.
 */
#ifndef SONDE_HEAP_SHARE_H
#define SONDE_HEAP_SHARE_H

#include <stdint.h>

#define SHARE_MAGIC "SONDSHM\n"
#define SHARE_VERSION 1u

#define SHARE_PAGE 4096u
#define SHARE_FILTER_SLOTS (1u << 16)   /* one byte each */
#define SHARE_RINGS 4096u
#define SHARE_INDEX_LEVELS 5u           /* of 1 << (14 + 2 * level) slots */
#define SHARE_INDEX_WINDOW 8u           /* slots that are looked at in a level */
#define SHARE_INDEX_WINDOW_LAST 64u     /* in the last one, so that all nodes find a place */
#define SHARE_NODES (1u << 22)
#define SHARE_CHUNK_BYTES 16384u
#define SHARE_CHUNKS 32768u             /* indices 1 .. SHARE_CHUNKS - 1; 0: none */
#define SHARE_TABLES_BYTES (1ull << 30)

/* ---- where what is, in the file ---- */

#define SHARE_FILTER_AT ((uint64_t)SHARE_PAGE)
#define SHARE_RINGS_AT (SHARE_FILTER_AT + SHARE_FILTER_SLOTS)
#define SHARE_INDEX_AT (SHARE_RINGS_AT + SHARE_RINGS * sizeof(struct share_ring))
#define SHARE_INDEX_SLOTS ((((1ull << (2 * SHARE_INDEX_LEVELS)) - 1) / 3) << 14) /* of all levels */
#define SHARE_NODES_AT (SHARE_INDEX_AT + SHARE_INDEX_SLOTS * sizeof(uint32_t))
#define SHARE_CHUNKS_AT (SHARE_NODES_AT + SHARE_NODES * sizeof(struct share_node))
#define SHARE_TABLES_AT (SHARE_CHUNKS_AT + (uint64_t)SHARE_CHUNKS * SHARE_CHUNK_BYTES)
#define SHARE_BYTES (SHARE_TABLES_AT + SHARE_TABLES_BYTES)
/* The target maps [0, SHARE_TABLES_AT) for reading and writing, the rest for reading. */

enum share_mode {
	SHARE_EXACT = 1,   /* every event */
	SHARE_SAMPLED = 2, /* Poisson over bytes: a block of S bytes with 1 - exp(-S / rate) */
	SHARE_EVERY = 3,   /* of calls, one in `rate` on average */
	SHARE_PROGRAM = 4, /* what the program says itself (include/sonde/capture.h), no allocations */
};

enum share_clock {
	SHARE_CLOCK_MONOTONIC = 0, /* ns */
	SHARE_CLOCK_COUNTER = 1,   /* the CPU's: rdtsc, cntvct_el0; the collector finds out how fast it is */
};

/* What was not written down. */
enum share_loss {
	SHARE_LOST_CHUNK = 0,    /* events: no chunk was free */
	SHARE_LOST_NODE = 1,     /* events whose stack is cut because there was no room for its nodes */
	SHARE_LOST_RING = 2,     /* events of threads for which there was no ring */
	SHARE_LOST_REENTERED = 3, /* calls from a signal handler that interrupted us */
	SHARE_LOST_EARLY = 4,    /* calls before there was anything to write to */
	SHARE_LOST_COUNT = 5,
};

/* Cache lines by who writes them. Sizes are of the stored layout. */
struct share_header {
	/* The target, once. `ready` is the last thing that is set. */
	char magic[8];
	uint32_t version, mode, clock, ready;
	uint32_t pid, arch;         /* arch: enum unwind_arch */
	uint64_t bytes;             /* SHARE_BYTES */
	uint64_t began;             /* by `clock` */
	uint64_t options;           /* SHARE_OPTION_... */
	uint32_t sizes;             /* enum share_sizes */
	uint32_t forked_from;       /* `pid` of the process whose memory it had before; 0: it was not forked from a watched one */

	/* The target, whenever. */
	uint32_t ring_count;        /* descriptors that were ever claimed: a prefix */
	uint32_t chunk_count;       /* chunks that were ever used: a prefix, counted from 1 */
	uint32_t node_count;        /* nodes that were ever used: a prefix, counted from 0 */
	uint32_t modules_wanted;    /* + 1 whenever code was mapped or unmapped (dlopen, dlclose) */
	uint64_t lost[SHARE_LOST_COUNT];
	uint32_t modules_gone;      /* + 1 right after code was unmapped (dlclose), before modules_wanted: its
				     * addresses may mean other code from then on (SHARE_FIRST_PC) */
	uint32_t gave_up;           /* enum share_left; else it is off for good */

	/* Both: chunks given back, a list through `next`. Low half: the first one; high half: + 1 with each change. */
	uint64_t free_chunks;
	/* The target, once: so many bytes of the tables area are a copy of its parent's, and `directory` is set. */
	uint32_t tables_kept;
	uint8_t pad3[52];

	/* The collector, whenever. */
	uint64_t rate;              /* bytes or calls; the target takes it over with its next draw */
	uint64_t directory;         /* where the newest struct tables_directory is (tables_layout.h); 0: nowhere yet */
	uint32_t modules_done;      /* modules_wanted that `directory` has; a futex */
	uint32_t stop;              /* 1: write nothing any more */
	uint32_t chunk_limit;       /* no more than so many chunks may be used */
	uint8_t pad4[36];
};

/* How large the blocks are that the allocator makes of what it is asked for. */
enum share_sizes {
	SHARE_SIZES_UNKNOWN = 0,
	SHARE_SIZES_GLIBC = 1, /* as glibc does */
	SHARE_SIZES_TOLD = 2,  /* USABLE tells, before the first block of a size */
};

#define SHARE_OPTION_FREE_STACKS 1u /* frees have stacks as well */
#define SHARE_OPTION_TIMES 2u       /* CPU time of the thread between sampled calls */
#define SHARE_OPTION_MAPS 4u        /* MAP, UNMAP: what the program maps itself, whatever the mode is */
/* From this bit on: how many filters of system calls (seccomp) the collector has itself, as a container's programs do. A program
 * with more was put into a sandbox, where a system call of ours may be its end: it says no hello. */
#define SHARE_OPTION_FILTERS_AT 8u
#define SHARE_OPTION_FILTERS_MOST 255u

/* Why a target writes nothing more. */
enum share_left {
	SHARE_LEFT_NOT = 0,
	SHARE_LEFT_UNREAD = 1,  /* nothing was read for SHARE_GIVE_UP_MS while rings grew; what was in the rings, nodes and
				 * index is gone */
	SHARE_LEFT_SANDBOX = 2, /* it has forbidden itself system calls (seccomp), ours among them */
	SHARE_LEFT_LIMIT = 3,   /* it has set itself a limit on address space that leaves no room for this memory */
};

enum share_ring_state {
	SHARE_RING_NEVER = 0,
	SHARE_RING_OWNED = 1,    /* by the thread `tid` */
	SHARE_RING_RELEASED = 2, /* its thread has ended: another may go on with it, at its end */
};

struct share_ring {
	uint32_t state; /* changed by compare-and-swap alone; the collector releases rings of threads that are gone */
	uint32_t tid;
	uint32_t first; /* chunk: set once, by the first owner */
	uint32_t last;  /* chunk: of the owner, for whoever comes after it */
	uint8_t pad[48];
};

struct share_chunk {
	uint32_t used; /* bytes after this header that hold whole events; only grows while it is in a ring */
	uint32_t next; /* in the ring, set once `used` has reached its end; in the list of free chunks */
	uint8_t pad[56];
	/* uint8_t bytes[SHARE_CHUNK_ROOM] */
};
#define SHARE_CHUNK_ROOM (SHARE_CHUNK_BYTES - sizeof(struct share_chunk))

/* ---- stacks ---- */

/* A frame, called by `parent`. Parents have smaller numbers. Nodes never change once their number is known. */
struct share_node {
	uint64_t pc; /* a return address; of the innermost frame, too: it is the caller of malloc */
	uint32_t parent;
	uint32_t detail; /* 0; of a node that is no native frame SHARE_DETAIL() */
};

/*
 * Nodes of Python: a chain of frames is a path of its own, and a stack that has both is one node PAIR whose parent is
 * the innermost native frame and whose pc is the number of the innermost Python frame.
 */
enum share_detail {
	SHARE_NATIVE = 0,
	SHARE_PYTHON_FRAME = 1, /* pc: SHARE_CODE_KEY; value: its instruction, see SHARE_PYTHON_OFFSET_ADDED */
	SHARE_PYTHON_ENTRY = 2, /* the same, the outermost frame that its call of the evaluation function runs. pc 0: a call
				 * that runs none at this moment. */
	SHARE_PAIR = 3,
};
#define SHARE_DETAIL(kind, value) ((uint32_t)(value) << 2 | (kind))
#define SHARE_DETAIL_KIND(detail) ((detail) & 3u)
#define SHARE_DETAIL_VALUE(detail) ((detail) >> 2)
#define SHARE_PYTHON_OFFSET_ADDED 2 /* f_lasti, or the distance from the first instruction in bytes, and so much */

/* A code object: its address, and above it 16 bits of what tells it from others that stood there before. */
#define SHARE_CODE_KEY(address, print) ((uint64_t)(print) << 48 | (address))
#define SHARE_CODE_MOST (1ull << 48)

/* Numbers of nodes that are always there. */
enum share_stack {
	SHARE_STACK_NONE = 0, /* no stack was taken */
	SHARE_STACK_ROOT = 1, /* parent of the outermost frame of a whole stack */
	SHARE_STACK_CUT = 2,  /* parent of a frame whose callers are not known */
	SHARE_STACK_FIRST = 3,
};
/* Instead of a node, in REALLOC_DONE: the new block is not a sampled one (the old one may have been). */
#define SHARE_STACK_UNSAMPLED UINT32_MAX
/* Whose pc is below this is no frame: between the outermost frame and ROOT or CUT it says (modules_gone % (SHARE_FIRST_PC - 1) + 1)
 * that code was unmapped since, so that an address means other code than in stacks without it. */
#define SHARE_FIRST_PC 4096u

static inline uint32_t share_node_hash(uint32_t parent, uint64_t pc, uint32_t detail)
{
	uint64_t h = (pc + (uint64_t)parent * 0xd6e8feb86659fd93u + (uint64_t)detail * 0xff51afd7ed558ccdu) * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	return (uint32_t)(h >> 32);
}

/* First slot of a level of the index. A level's window starts at hash % slots and wraps around in the level; a node is in the
 * first level whose window had a free slot, so the first free slot that is met says that there is none. */
static inline uint64_t share_index_level(uint32_t level)
{
	return (((1ull << (2 * level)) - 1) / 3) << 14;
}

/* Whether a block may be a sampled one: not when the counter is 0. The target adds 1 for a sampled block, the
 * collector takes 1 away when it has seen it freed; one that has reached 255 stays. */
static inline uint32_t share_filter_slot(uint64_t address)
{
	return (uint32_t)(((address >> 3) * 0x9e3779b97f4a7c15u) >> 48);
}

/* ---- events ---- */

/*
 * An event is `time`, then a word with its type in the top 8 bits and an address below, then what its
 * type says; all words of 8 bytes.
 */
enum share_event {
	SHARE_ALLOC = 1,       /* word 2: SHARE_STACK_AND_SIZE; word 3 is the size where that says so */
	SHARE_FREE = 2,        /* nothing more */
	SHARE_FREE_STACK = 3,  /* word 2: node */
	SHARE_REALLOC = 4,     /* a block is about to be moved or resized: address of the old one */
	SHARE_REALLOC_DONE = 5, /* in the same ring, its end: the new address, and as ALLOC; address 0: it failed */
	SHARE_CALL = 6,        /* SHARE_EVERY: as ALLOC (address 0: a free), then CPU ns of the thread since its last
				  one, and how many calls it was since */
	SHARE_RATE = 7,        /* word 2: of the ring's following events */
	SHARE_THREAD = 8,      /* the ring's new owner: address: tid; words 2, 3: its name, zero padded */
	SHARE_MODULES = 9,     /* code was mapped or unmapped; address: modules_wanted, then */
	SHARE_RAW = 10,        /* stack of the ALLOC that comes next: struct share_raw_stack; word 2: all its bytes */
	SHARE_MAP = 11,        /* mmap, mremap's new place, brk: address; word 2: bytes; word 3: node, and in its upper half
				* enum share_map. Whatever was there is mapped no more */
	SHARE_UNMAP = 12,      /* munmap, mremap's old place, brk: address; word 2: bytes, which are about to go */
	SHARE_PROCESS_END = 13,
	SHARE_FREE_LAST = 14,  /* as FREE, of a sampled block that is the last one its thread allocated, sampled or not */
	SHARE_FREE_STACK_LAST = 15, /* the same, as FREE_STACK */
	SHARE_UNMAP_FAILED = 16, /* the last UNMAP of this ring did not happen: what it took is where it was */
	SHARE_USABLE = 17,     /* address: what malloc makes of word 2: bytes */
	/* Of programs themselves. With texts: struct share_note; word 2: all its bytes; word 3: its `value`. Memory of
	 * SHARE_PROGRAM has the clock SHARE_CLOCK_MONOTONIC. */
	SHARE_MARK = 32,       /* address: how long it took, ns; word 3: when it began; then group, name, message */
	SHARE_COUNTER = 33,    /* address: number of the counter; word 3: 1: its values are doubles, 0: int64_t; then group,
				* name, description */
	SHARE_VALUE = 34,      /* address: number of the counter; word 2: its value, int64_t or double */
	SHARE_CODE = 35,       /* address: where code was made; word 3: its bytes; then its name and file */
	SHARE_OWN_ALLOC = 36,  /* as ALLOC, of an allocator of the program's; then its pool's number, 0: none */
	SHARE_OWN_FREE = 37,   /* as FREE; then its pool's number */
	SHARE_LOG = 38,        /* word 3: severity, 1 (debug) to 6 (error); then domain, message */
	SHARE_POOL = 39,       /* address: number of the pool; then its name */
	/* Before the first stack of its thread that has a frame of it. address: the first line, and SHARE_PYTHON_CODE_CUT;
	 * word 3: SHARE_CODE_KEY; then its name, its file and its line table, which may be of SHARE_PYTHON_TABLE_MOST
	 * bytes. */
	SHARE_PYTHON_CODE = 40,
	SHARE_PYTHON_CALL = 41, /* the same: a return address in the function that runs Python code */
};

/* What is mapped. */
enum share_map {
	SHARE_MAP_MEMORY = 0,
	SHARE_MAP_FILE = 1,
	SHARE_MAP_RESERVED = 2, /* memory that may not be used yet (PROT_NONE) */
	SHARE_MAP_BREAK = 3,    /* behind the program's data (brk, sbrk) */
	SHARE_MAP_SAME = 4,     /* what the ring's last UNMAP took (mremap) */
	SHARE_MAP_KINDS = 5,
};

#define SHARE_WORD(type, address) ((uint64_t)(type) << 56 | ((uint64_t)(address) & ((1ull << 56) - 1)))
#define SHARE_TYPE(word) ((uint32_t)((word) >> 56))
#define SHARE_ADDRESS(word) ((word) & ((1ull << 56) - 1))

/* Node in the upper half, size in the lower one; a size that does not fit there is SHARE_LARGE, and in the next word. */
#define SHARE_LARGE UINT32_MAX
#define SHARE_STACK_AND_SIZE(node, size)                                                           \
	((uint64_t)(node) << 32 | ((size) < SHARE_LARGE ? (uint64_t)(size) : SHARE_LARGE))

/* Registers and stack bytes, for a stack that the target could not walk. */
struct share_raw_stack {
	uint64_t time, word, bytes;
	uint64_t stack_start, stack_bytes;
	uint64_t regs[33], known; /* as struct unwind_regs */
	/* stack_bytes bytes, padded to 8 */
};

/* Texts follow each other, of `text_bytes` each; all is padded to 8. */
struct share_note {
	uint64_t time, word, bytes, value;
	uint32_t text_bytes[3], pad;
	/* char texts[] */
};

#define SHARE_TEXT_MOST 4096u /* longer ones are cut */

#define SHARE_PYTHON_CODE_CUT (1ull << 40) /* the line table is longer than what is there of it */
#define SHARE_PYTHON_NAME_MOST 1024u
#define SHARE_PYTHON_TABLE_MOST 12288u

/* ---- Python ---- */

#define SHARE_PYTHON_AT 256ull /* in the page of the header */
#define SHARE_PYTHON_EVALS 8u
#define SHARE_PYTHON_NONE UINT16_MAX /* this version does not have it */
#define SHARE_PYTHON_WAIT_MS 100u
#define SHARE_PYTHON_ASKED_EVERY 256u /* stacks, while it is SHARE_PYTHON_LIKELY, */
#define SHARE_PYTHON_ASKS 16u         /* so often at most */

enum share_python_state {
	SHARE_PYTHON_ABSENT = 0,  /* no Python frames: there is no CPython, or none that is understood */
	SHARE_PYTHON_LIKELY = 1,  /* there is one that was not running when it was looked for; `evals` are set */
	SHARE_PYTHON_READY = 2,   /* all is set */
};

/*
 * How to find a thread's Python frames: written by the collector, `state` last; all but `asked`. Names that say `_at` are
 * offsets. A target counts `asked` up when it has met the evaluation function, and now and then before (its parts need not
 * be known), and waits until the collector has looked once more: SHARE_PYTHON_WAIT_MS at most.
 */
struct share_python {
	uint32_t state, asked;
	uint32_t answered;    /* the value of `asked` before it was looked; a futex */
	uint32_t pad;
	int64_t state_at;     /* from pthread_self() to where the thread keeps its PyThreadState */
	uint64_t code_type;   /* PyCode_Type */
	uint64_t code_mask;   /* of pointers to code objects: tags are outside it */
	uint64_t lock;        /* the main interpreter's lock */
	uint16_t lock_holder_at, lock_locked_at;
	uint16_t minor;       /* of 3.MINOR */
	uint16_t thread_pthread_at, thread_frame_at;
	uint16_t cframe_frame_at; /* what thread_frame_at leads to has the frame; NONE: it is the frame */
	/* Of 3.10 and 3.11: what is in the C frame of each running call of the evaluation function; innermost first. */
	uint16_t thread_cframe_at, cframe_previous_at;
	uint16_t previous_at, code_at, position_at, owner_at, entry_at; /* in frames */
	uint16_t type_at;     /* in objects */
	uint16_t code_bytecode_at, code_line_at, code_name_at, code_file_at, code_table_at;
	uint16_t str_length_at, str_state_at, str_kind_shift, str_ascii_at, str_data_at;
	uint16_t bytes_size_at, bytes_data_at;
	uint64_t evals[SHARE_PYTHON_EVALS][2]; /* [start, end) of the evaluation function's parts; 0, 0: no more */
};

static inline struct share_python *share_python_of(struct share_header *header)
{
	return (struct share_python *)(void *)((uint8_t *)header + SHARE_PYTHON_AT);
}

/* ---- how they meet ---- */

/*
 * A watched program finds SHARE_ENVIRONMENT in its environment: decimal numbers and words with ':' between,
 *
 *	version:mode:clock:rate:options:token:address
 *
 * `token` is 32 hex digits and `address` the name of an abstract socket (SOCK_SEQPACKET) of the collector's. The
 * program makes its memory and sends struct share_hello with the memfd as SCM_RIGHTS; nothing comes back. Then, and
 * whenever it has loaded code, it waits until `modules_done` has reached `modules_wanted`, but never for longer than
 * SHARE_WAIT_START_MS and SHARE_WAIT_LOAD_MS. A forked child with a copy of its parent's tables does not wait.
 */
#define SHARE_KEPT_MOST (16u << 20)
#define SHARE_ENVIRONMENT "SONDE_HEAP"
#define SHARE_WAIT_START_MS 2000
#define SHARE_WAIT_LOAD_MS 20

/* A target whose rings grow and to which no chunk is given back for so long takes its collector for dead. */
#define SHARE_GIVE_UP_MS 3000

struct share_hello {
	char magic[8];
	uint32_t version, pid;
	char token[32];
};

_Static_assert(sizeof(struct share_header) == 256, "part of the layout");
_Static_assert(sizeof(struct share_ring) == 64, "part of the layout");
_Static_assert(sizeof(struct share_chunk) == 64, "part of the layout");
_Static_assert(sizeof(struct share_node) == 16, "part of the layout");
_Static_assert(sizeof(struct share_python) <= SHARE_PAGE - SHARE_PYTHON_AT, "fits into the header's page");

#endif
