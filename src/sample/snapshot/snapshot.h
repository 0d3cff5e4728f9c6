/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes at one moment: threads, what each is in, and its stack.
 *
 * Nothing is stopped, unless the caller asks for it. Processes are added as they are needed, so a
 * snapshot can follow whoever waits for whom. Nothing here waits without a deadline, whatever state
 * a thread is in.
 *
 * Pointers to processes and threads stay valid until snapshot_free() or snapshot_renew(). Not for two
 * threads at once.
 */
#ifndef SONDE_SAMPLE_SNAPSHOT_H
#define SONDE_SAMPLE_SNAPSHOT_H

#include "sample/live_names.h"
#include "sample/python/known.h"
#include "sample/snapshot/look.h"
#include "sample/state.h"

struct core; /* core.h */
struct snapshot;

/* Of a stack, copied at once; what lies beyond is read when the walk gets there. */
#define SNAPSHOT_STACK_BYTES 16384u

enum snapshot_method {
	SNAPSHOT_AUTO, /* /proc, and BPF where that tells more and is permitted */
	SNAPSHOT_PROC,
	SNAPSHOT_BPF,
};

struct snapshot_options {
	enum snapshot_method method;
	bool stop_running;   /* threads that run are stopped for some microseconds, for their stack */
	bool no_running;     /* threads that run get no stack, but by snapshot_running_stack() */
	bool never_stop;     /* not even where perf is refused */
	bool often;          /* there will be many looks: by BPF from the first, which is cheaper then; what a
				thread was in stays, also when it has moved before its stack was read */
	bool debuginfod;
	const char *core;    /* a core file, which is looked at instead of the live system; NULL */
	const char *root;    /* of files, for that; NULL: our own */
	bool locals;         /* of Python frames as well */
	bool plain_runtime, plain_beside_python; /* as in struct naming_options: much faster */
};

/* How far what was read of a thread is of one moment. */
enum snapshot_faith {
	SNAPSHOT_ASLEEP,  /* it has slept all the while, or is in a core: exact */
	SNAPSHOT_SAMPLED, /* it runs; the stack, if any, is one of those it had */
	SNAPSHOT_MOVED,   /* it ran meanwhile: what it waited in is true, the stack is not told */
	SNAPSHOT_REFUSED, /* not ours to read: name, state and kernel function alone */
};

struct snapshot_frame {
	uint32_t id;             /* for snapshot_name() */
	struct unwind_frame at;
};

/* A frame of a whole stack: of machine code or of Python, the other is NULL. */
struct snapshot_step {
	uint32_t id; /* for snapshot_name() */
	const struct snapshot_frame *native;
	const struct placed_frame *python;
};

/* A variable of a Python frame. */
struct snapshot_local {
	size_t frame;  /* index into the thread's `python` */
	bool argument; /* else it was assigned */
	char *text;    /* "name = 'value'" */
};

struct snapshot_process;

struct snapshot_thread {
	struct thread_look look;
	struct snapshot_process *process;
	struct off_cpu_reason reason;
	enum snapshot_faith faith;
	bool named;              /* by Python: `look.name` is not what the kernel knows */
	bool stack_read;         /* snapshot_stack() was here */
	bool again, running_tried; /* its own: the stack is to be tried again; it was sampled */
	bool has_stack;
	enum unwind_end end;     /* of the stack: UNWIND_ROOT where it is whole */
	struct snapshot_frame *frames; /* leaf first; machine code alone, */
	size_t frame_count;
	struct placed_frame *python;   /* and the Python frames that these run, innermost first */
	size_t python_count;
	uint8_t python_marks;          /* SAMPLE_PYTHON_... */
	VEC(struct snapshot_local) locals; /* ascending by frame; where options.locals asks for them */
	struct snapshot_step *steps;   /* both, in the order of calls, the innermost first */
	size_t step_count;
	bool one_place;          /* SNAPSHOT_SAMPLED: seen several times, and always in the same few instructions */
	/* snapshot_again(): */
	bool seen_again, moved_since; /* it is still there; it has run since, or is gone */
	struct thread_look later;     /* what it was in then */
};

VEC_TYPE(snapshot_threads, struct snapshot_thread *);

struct snapshot_mapping {
	uint64_t start, end, offset, inode, device;
	bool write, exec, shared;
	const char *path; /* "" for anonymous memory */
};

struct snapshot_process {
	pid_t pid;
	const struct source *source; /* of its memory; a still one: nothing may be asked of the live system */
	int refused;      /* errno where memory and calls are not ours to read, 0: they are */
	struct proc_status status;
	char *command;
	pid_t reader;     /* the thread by which memory and descriptors are read: the first may have ended */
	struct snapshot_threads threads; /* ascending by tid */
	VEC(struct snapshot_mapping) mappings; /* ascending; read when first asked for */
	bool mappings_read, stacks_read;
	bool registers_read; /* snapshot_registers() was here */
	uint64_t mappings_ns; /* when the mappings were read */
	bool stale;          /* its own: to be looked at again when it is asked for */
};

int snapshot_new(const struct snapshot_options *options, struct snapshot **ret, struct err *err);
void snapshot_free(struct snapshot *s);

/* What it was made with. */
const struct snapshot_options *snapshot_asked(const struct snapshot *s);

/*
 * The process, looked at the first time it is asked for. `pid` may be the id of any of its threads.
 * -ESRCH: there is none. A process that is not ours to read gives 0 and `refused`.
 */
int snapshot_process(struct snapshot *s, pid_t pid, struct snapshot_process **ret, struct err *err);

/* The core that is looked at; NULL: the live system is. */
const struct core *snapshot_core(const struct snapshot *s);

/* One that snapshot_process() has found; NULL. */
struct snapshot_process *snapshot_known(struct snapshot *s, pid_t pid);
size_t snapshot_process_count(const struct snapshot *s);
struct snapshot_process *snapshot_process_at(const struct snapshot *s, size_t index);

/* A thread of the process, by its id; NULL: it has none such. */
struct snapshot_thread *snapshot_thread(const struct snapshot_process *p, pid_t tid);

/* The same by the id that the process itself knows the thread by, in its own pid namespace. */
struct snapshot_thread *snapshot_thread_inside(const struct snapshot_process *p, pid_t inner);

/* The CPython in a process, as it is now; NULL: it has none, or none that can be read: *ret_refusal (may be NULL) then says why,
 * or is "". Valid until snapshot_free() or snapshot_renew(). */
struct python *snapshot_python(struct snapshot *s, const struct snapshot_process *p, const char **ret_refusal);

/* Its threads, ascending by tid, and how many: read now, together with whatever is read of that CPython afterwards. Valid
 * until the next call for the process. */
size_t snapshot_python_threads(
	struct snapshot *s, const struct snapshot_process *p, const struct known_python_thread **ret);

/* Reads and walks the stack of one thread, or of all that sleep, where that was not done yet. */
void snapshot_stack(struct snapshot *s, struct snapshot_thread *t);
void snapshot_stacks(struct snapshot *s, struct snapshot_process *p);

/* The stack that a thread has now and then while it runs, by perf within RUNNING_DEADLINE_NS. */
void snapshot_running_stack(struct snapshot *s, struct snapshot_thread *t);

/* Samples those that run, which takes 20 ms (running.h). */
void snapshot_running(struct snapshot *s, struct snapshot_process *p);

/* Registers of the thread's frames, as far as they are known, into regs[0 .. limit): the stack is walked
 * again. How many; 0 where there is no stack, or it is not what it was. */
size_t snapshot_frame_regs(struct snapshot *s, struct snapshot_thread *t, struct unwind_regs *regs,
	size_t limit);

/* Where /proc was read, which has two of the registers, and BPF is permitted: has all of them from here on, for
 * snapshot_frame_regs(). Of threads that have slept since. */
void snapshot_registers(struct snapshot *s, struct snapshot_process *p);

/* Memory of the process as it is now; all of it or false. */
bool snapshot_read(
	struct snapshot *s, const struct snapshot_process *p, uint64_t addr, void *buf, size_t len);

/* The mapping that holds `addr`; NULL. */
const struct snapshot_mapping *snapshot_mapping(struct snapshot_process *p, uint64_t addr);

/* The name of a frame; valid until the next call. */
struct live_name snapshot_name(struct snapshot *s, uint32_t frame);

/* The object file that the frame is in (NULL: none), and the address there. */
struct elf_file *snapshot_frame_file(struct snapshot *s, uint32_t frame);

/* Looks at all threads again: `moved_since` of each. */
void snapshot_again(struct snapshot *s);

/*
 * What was seen of threads is of the past from here on, and pointers to processes and threads are not valid any
 * more: a process is looked at again when it is asked for. Names and unwind tables are kept, and stacks of
 * threads that have slept until then. Processes that nobody has asked for since the last call are dropped.
 */
void snapshot_renew(struct snapshot *s);

/* What looking has cost. */
struct snapshot_cost {
	const char *method;   /* "proc", "bpf", "proc+bpf", ..., "core" */
	uint64_t pause_ns;    /* for which threads stood still because of us, all of them together */
	uint64_t longest_ns;  /* the longest of these */
	uint32_t stops;
	uint64_t elapsed_ns;
};
struct snapshot_cost snapshot_cost(const struct snapshot *s);

#endif
