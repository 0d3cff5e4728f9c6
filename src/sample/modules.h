/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The object files that sampled processes map, each opened once for all of them.
 *
 * A file is opened when a mapping of it is first seen, so that it is still there to unwind with
 * and to name from when the process, or the file's path, is gone. Modules live until the store is
 * freed or swept; pointers to them stay valid that long. However many files are mapped, an eighth
 * of the descriptors we may open stays free: what comes beyond that is refused with EMFILE.
 */
#ifndef SONDE_SAMPLE_MODULES_H
#define SONDE_SAMPLE_MODULES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "capture/writer.h"
#include "elf/elf_file.h"
#include "os/proc.h"
#include "sample/source.h"
#include "sample/told_code.h"
#include "unwind/unwind.h"

struct module {
	struct elf_file *file;         /* NULL: not ELF, not readable, kernel or JIT */
	struct unwind_module *unwind;  /* NULL: no file */
	uint32_t capture_id;           /* in the recording */
	uint32_t kind;                 /* enum module_kind */
	pid_t pid;                     /* MODULE_JIT: whose memory */
	int root_fd;                   /* O_PATH of the / of the process that mapped it, the store's;
	                                * -1: ours */
	int refused;                   /* errno of opening it; 0 when that worked */
	bool loss_counted;             /* LOSS_FILE was reported for it */
	struct python_file *python;    /* sample/python/place.h; NULL: not looked at yet */
	/* MODULE_JIT: */
	struct jit_code *jit;          /* a jitdump's, whose offsets are the module's addresses; else NULL */
	struct module *described_by;   /* the jitdump that may cover code of this one; NULL: none */
	struct module *parent;         /* of the process that this one was forked from; NULL: none */
	struct told_code told;         /* what the process itself has said of it */
	int map_fd;                    /* its perf map, -errno, or MAP_UNTRIED; the module's */
	bool over;                     /* that program is gone, its pid may be another's */
	bool needed;                   /* as of module_store_sweep() */
	uint64_t mapped_bytes, image_bytes; /* of the file, by us; one of them is 0 */
	uint64_t device, inode;        /* identity; 0, 0 for those without a file */
	char *path;                    /* as the process sees it */
	struct module *next;           /* hash chain */
};

#define MAP_UNTRIED INT_MIN

struct module_store;

/* The writer is borrowed; each new module is written to it. So is the source of files and memory. */
int module_store_new(struct capture_writer *w, const struct source *source, struct module_store **ret,
	struct err *err);
void module_store_free(struct module_store *s);

const struct source *module_store_source(const struct module_store *s);

/* The module behind a mapping of `pid`. Never fails but for memory (NULL): a file that cannot be
 * opened gives a module without `file`. */
struct module *module_store_mapped(struct module_store *s, pid_t pid, const struct proc_mapping *m);

/* Executable memory of `pid` without a file. */
struct module *module_store_jit(struct module_store *s, pid_t pid);

/* The program of `pid` is no more: what it has there next is another's. */
void module_store_jit_over(struct module_store *s, pid_t pid);

/* Whether it is the page that the kernel maps into processes with uprobes, "[uprobes]"; its address
 * stands where a uretprobe has taken the return address away. */
bool module_is_uprobes(const struct module *m);

/* The running kernel. */
struct module *module_store_kernel(struct module_store *s);

/* Gives back memory that files take only because they were looked at once. */
void module_store_rest(const struct module_store *s);

/*
 * Frees the modules that nobody needs: those not marked `needed` by the caller, nor referred to by one
 * that is. `gone` is called for each, before any is freed. The marks are cleared. Where `s` writes to a file
 * nobody may do this: all modules are needed for naming.
 */
void module_store_sweep(
	struct module_store *s, void (*gone)(void *ctx, const struct module *m), void *ctx);

size_t module_store_count(const struct module_store *s);
struct module *module_store_at(const struct module_store *s, size_t index);

/* Address space bias of `m` mapped as said: address - bias = address in the module. False when
 * the mapping lies in no segment of the file (then no address in it means anything). JIT memory
 * has bias 0; a file that could not be read counts in file offsets. */
bool module_bias(const struct module *m, const struct proc_mapping *mapping, uint64_t *ret);

#endif
