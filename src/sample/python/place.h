/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where CPython's runtime is in a process: in which of its mapped files, and at which address.
 *
 * A file is known by what is in it (a symbol, or a section that survives stripping), never by its name:
 * programs embed the interpreter under any name.
 */
#ifndef SONDE_SAMPLE_PYTHON_PLACE_H
#define SONDE_SAMPLE_PYTHON_PLACE_H

#include "elf/elf_file.h"
#include "python/python.h"
#include "sample/source.h"

#define PYTHON_MOST_EVAL_RANGES 8u

/* What an object file holds of CPython; addresses are the file's own. */
struct python_file {
	bool there;              /* it holds a runtime */
	uint64_t runtime;        /* _PyRuntime */
	uint64_t version;        /* Py_Version, 0: no such symbol */
	uint64_t data_start, data_end;
	unsigned minor;          /* as its name says, 0: it does not */
	bool aarch64;
	/* The function that runs Python code, and the parts that the compiler has split from it. */
	struct {
		uint64_t start, end;
	} eval[PYTHON_MOST_EVAL_RANGES];
	size_t eval_count;
};

void python_file_look(struct elf_file *f, struct python_file *ret);

/* The same as addresses of a process that has the file mapped with that bias. */
struct python_place python_place_at(const struct python_file *file, uint64_t bias);

/* Whether an address of the file is in the function that runs Python code. */
bool python_file_evaluates(const struct python_file *file, uint64_t vaddr);

/*
 * The runtime of one process, for whoever has no session. -ENOENT: nothing that it has mapped holds
 * one. -EACCES and others: the process cannot be read. `memory_of` of the result reads by `reader`, a thread
 * of the process that is alive (the first may have ended). To be freed with python_process_close().
 */
struct python_process {
	const struct source *source;
	pid_t reader;
	struct python_place place;
	struct python *python;
};
int python_process_open(const struct source *source, pid_t pid, struct python_process **ret,
	struct err *err);
void python_process_close(struct python_process *p);

#endif
