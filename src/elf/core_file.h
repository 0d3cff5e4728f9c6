/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A core file: what the kernel, or a debugger, has written down of a process's threads and memory.
 *
 * Facts alone; nothing is looked for outside the file. The file is mapped read-only and its notes are copied, so
 * that one that changes meanwhile changes no more than bytes of memory. Cores are untrusted: every count and
 * offset is checked; of one that is cut off, what is there is used. Formats: System V ABI, "Object Files";
 * struct elf_prstatus, elf_prpsinfo (linux/elfcore.h); core(5); NT_FILE is described in fs/binfmt_elf.c.
 *
 * Not thread-safe. All that is returned belongs to the core_file and lives as long as it does.
 */
#ifndef SONDE_ELF_CORE_FILE_H
#define SONDE_ELF_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

#define CORE_MOST_REGS 34

/* Registers as in struct user_regs_struct of the architecture: 27 on x86-64, 34 on aarch64. */
struct core_thread {
	pid_t tid;
	int signal; /* that it was getting; 0: none */
	uint64_t regs[CORE_MOST_REGS];
};

/* Memory [start, end), whose first `kept` bytes are in the file. */
struct core_segment {
	uint64_t start, end, offset, kept;
	bool read, write, exec;
};

/* A file that was mapped at [start, end) from its byte `offset` on. */
struct core_mapping {
	uint64_t start, end, offset;
	const char *path; /* as the process saw it; " (deleted)" may stand behind it */
};

VEC_TYPE(core_threads, struct core_thread);
VEC_TYPE(core_segments, struct core_segment);
VEC_TYPE(core_mappings, struct core_mapping);

struct core_info {
	unsigned machine;          /* EM_X86_64, EM_AARCH64 */
	pid_t pid, ppid;
	char name[17];             /* control characters are '?', here and in `arguments` */
	char arguments[81];        /* the first 80 bytes of them */
	bool has_signal;           /* the three below are known; of the first thread */
	int signal, signal_code;   /* si_signo, si_code */
	uint64_t signal_address;   /* si_addr, for those signals that have one and a code above 0 */
	pid_t signal_sender;       /* si_pid, for a code of 0 or below */
	uint64_t vdso;             /* AT_SYSINFO_EHDR, 0: not known */
	uint64_t on_stack;         /* an address in the first stack (AT_RANDOM), 0: not known */
	uint64_t missing_bytes;    /* of memory that the headers promise and the file does not hold: it is cut off */
	struct core_threads threads;   /* as they stand in the file: the first is the one that got the signal */
	struct core_segments segments; /* ascending, not overlapping */
	struct core_mappings mappings; /* the same */
};

struct core_file;

/* Takes ownership of `fd` on success and on failure. `name` is for messages. -ENOEXEC: it is no core file that
 * we read (64-bit little-endian, x86-64 or aarch64), or nothing is left in it of the threads. */
int core_file_open_fd(int fd, const char *name, struct core_file **ret, struct err *err);

/* The same over bytes in memory, which are borrowed. */
int core_file_open_memory(
	const void *bytes, size_t size, const char *name, struct core_file **ret, struct err *err);
void core_file_free(struct core_file *f);

const struct core_info *core_file_info(const struct core_file *f);

/* Copies memory from `addr` on, as far as the file holds it without a gap; how many bytes. */
size_t core_file_read(const struct core_file *f, uint64_t addr, void *buf, size_t len);

/* What holds `addr`; NULL. */
const struct core_segment *core_file_segment(const struct core_file *f, uint64_t addr);
const struct core_mapping *core_file_mapping(const struct core_file *f, uint64_t addr);

#endif
