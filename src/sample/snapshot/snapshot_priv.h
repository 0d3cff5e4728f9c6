/* SPDX-License-Identifier: BSD-2-Clause */
/* What snapshot.c (processes and looks) and stacks.c share. */
#ifndef SONDE_SAMPLE_SNAPSHOT_PRIV_H
#define SONDE_SAMPLE_SNAPSHOT_PRIV_H

#include "sample/snapshot/core.h"
#include "sample/snapshot/running.h"
#include "sample/snapshot/snapshot.h"

#if defined(__aarch64__)
#define SNAPSHOT_REG_PC UNWIND_A64_PC
#else
#define SNAPSHOT_REG_PC UNWIND_X86_PC
#endif

struct snapshot {
	struct snapshot_options options;
	uint64_t began_ns;
	struct core *core;       /* NULL: the live system is looked at */
	const struct source *source;
	struct look *proc, *bpf; /* proc: of a core, its look; bpf: NULL until it is needed, and where it is refused */
	int bpf_refused;         /* -errno, 0: it was not */
	struct err bpf_error;
	bool prefer_bpf;         /* for looks at whole processes: there are many threads */
	struct thread_looks looks; /* of the last look */
	struct thread_selection all_threads;
	struct capture_writer *writer;
	struct session *session;
	struct live_names *names;
	VEC(struct snapshot_process *) processes;
	uint64_t look_number;    /* of the last look, from 1 */
	uint8_t *bytes;          /* a copy of a stack */
	struct running_cost running;
	struct python_stopped *python; /* NULL until threads are sampled */
	bool used_proc, used_bpf;
};

/* Looks at all threads of a process (tid 0), or at one; into s->looks. As look_ops.read. */
int snapshot_look(struct snapshot *s, pid_t pid, pid_t tid, struct err *err);

/* The same by BPF, which is loaded if need be. -errno where it is refused. */
int snapshot_look_bpf(struct snapshot *s, pid_t pid, pid_t tid, struct err *err);

/* locals.c: the variables of the thread's Python frames, read when its stack was; and to forget them. */
void snapshot_take_locals(struct snapshot *s, struct snapshot_thread *t);
void snapshot_forget_locals(struct snapshot_thread *t);

/* The thread in the last look; NULL. */
const struct thread_look *snapshot_looked(const struct snapshot *s, pid_t tid);

/* What the thread is from now on. */
void snapshot_take_look(struct snapshot_thread *t, const struct thread_look *look);

/* What BPF knows beyond /proc, of a thread that has not moved between the two looks. */
void snapshot_take_registers(struct snapshot_thread *t, const struct thread_look *by_bpf);

#endif
