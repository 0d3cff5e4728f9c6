/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stack samples of a real process and the modules it maps, for programs that measure the walk.
 *
 * Registers and stack come from perf_event (cpu-clock, user space only); the process is stopped
 * while samples_take() returns, so that mappings and code stay what they were. Children started
 * here are killed by samples_release(); a process that was there before is only looked at.
 */
#ifndef SONDE_BENCH_SAMPLES_H
#define SONDE_BENCH_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"
#include "elf/elf_file.h"
#include "unwind/unwind.h"

#define SAMPLE_STACK_BYTES 65528

struct stack_sample {
	pid_t tid;
	struct unwind_regs regs;
	uint64_t stack_start;
	uint8_t *stack;
	size_t stack_size;
};

struct sampled_module {
	char *path;
	struct elf_file *elf; /* NULL: not a file that could be opened */
	struct unwind_module *module;
};

struct sampled_process {
	pid_t pid;
	bool ours; /* started here */
	VEC(struct stack_sample) samples;
	VEC(struct unwind_mapping) maps;
	VEC(struct sampled_module) modules; /* by unwind_mapping.id, less one; 0: no file */
	struct unwind_target target;
};

/* Samples `argv` (NULL: the process `pid`) until `want` samples are there or `seconds` are over.
 * Prints what is wrong and returns false. */
bool samples_take(struct sampled_process *p, const char *const *argv, pid_t pid, size_t want,
	unsigned seconds, size_t stack_bytes);
void samples_release(struct sampled_process *p);

#endif
