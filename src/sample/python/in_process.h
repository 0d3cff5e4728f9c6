/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For code that runs inside a program with CPython and reads the frames of its own thread there: where they are, and
 * what it tells of them into the recording.
 */
#ifndef SONDE_SAMPLE_PYTHON_IN_PROCESS_H
#define SONDE_SAMPLE_PYTHON_IN_PROCESS_H

#include "python/python.h"
#include "sample/python/place.h"
#include "sample/session.h"

struct python_in_process {
	struct python *python; /* NULL: not yet */
	int64_t state_at;      /* from its pthread_t to where a thread keeps its PyThreadState */
	uint64_t lock;         /* of the main interpreter */
	/* Addresses of the function that runs Python code, and of its parts; known before the interpreter runs. */
	struct {
		uint64_t start, end;
	} evals[PYTHON_MOST_EVAL_RANGES];
	size_t eval_count;
};

/*
 * 0. -ENOENT: nothing that the process has mapped holds a runtime. -EAGAIN: one does, but it does not run yet; `evals` are there.
 * -EOPNOTSUPP with words: it is not understood. Others: it cannot be read.
 *
 * `young`: it may be starting just now, when its memory makes no sense for some instructions: not understood is -EAGAIN.
 */
int session_python_in_process(struct session *s, pid_t pid, bool young, struct python_in_process *ret, struct err *err);

/* As session_called(), of a stack that has Python frames; `evaluates`: it runs those that are called by it next. */
uint32_t session_called_beside_python(struct session *s, pid_t pid, uint32_t parent, uint64_t pc, bool evaluates);

/* A Python frame called by `parent`; of `code` name, file and first line count. NULL: frames that could not be had. */
uint32_t session_called_python(
	struct session *s, uint32_t parent, const struct python_code *code, struct python_position position);

#endif
