/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One object file: sections, load segments, build id, symbols, and where its debug file is.
 *
 * libelf stands behind this door and nothing above it calls libelf. The file is mapped read-only;
 * pages that are never touched cost no memory. A file that shrinks while mapped reads as zeros
 * instead of killing us (elf_guard_sigbus). Files are untrusted: every count and offset is checked,
 * symlinks are the opener's concern (os/proc.h), nothing is ever executed.
 *
 * Not thread-safe. Strings and bytes returned belong to the elf_file and live as long as it does.
 */
#ifndef SONDE_ELF_ELF_FILE_H
#define SONDE_ELF_ELF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct elf_file;

/* Takes ownership of `fd` on success and on failure. `name` is copied; it is the path of the file
 * as the process knows it: messages show it and debug files are looked for beside it.
 * -ENOEXEC: not an ELF file of a kind we read (64-bit little-endian x86-64 or aarch64). */
int elf_file_open_fd(int fd, const char *name, struct elf_file **ret, struct err *err);

/* The same over bytes in memory (a vDSO, a fuzzer's input); the bytes are copied. */
int elf_file_open_memory(
	const void *bytes, size_t size, const char *name, struct elf_file **ret, struct err *err);

/* The same over what a process has mapped of a file that cannot be opened: each byte at its offset in
 * the file, zeros where nothing was mapped, with the address that offset 0 has in memory. Takes
 * ownership of the malloc'ed bytes, on failure too. It has no section headers, so symbols are those
 * that the loader knows. */
int elf_file_open_loaded(uint8_t *bytes, size_t size, uint64_t address, const char *name,
	struct elf_file **ret, struct err *err);
void elf_file_free(struct elf_file *f);

/* Gives back the memory that looking at a mapped file has taken so far; what is looked at again comes
 * from the page cache again. Pointers into the file stay good. */
void elf_file_rest(const struct elf_file *f);

/* Installs a SIGBUS handler that puts a page of zeros under any read of a mapped file that was
 * truncated meanwhile. Call once, from main(). */
void elf_guard_sigbus(void);

/* How many pages it had to invent so far, in this process. */
uint64_t elf_guard_zeroed_pages(void);

const char *elf_file_name(const struct elf_file *f);
int elf_file_fd(const struct elf_file *f);   /* -1 for memory; stays ours */
/* The whole file, for libdw. */
const uint8_t *elf_file_image(const struct elf_file *f, size_t *ret_size);
unsigned elf_file_machine(const struct elf_file *f); /* EM_X86_64, EM_AARCH64 */
bool elf_file_is_executable(const struct elf_file *f); /* ET_EXEC, or ET_DYN with an interpreter
                                                          or an entry and DF_1_PIE */
bool elf_file_has_interpreter(const struct elf_file *f); /* PT_INTERP: a loader puts it together */
uint64_t elf_file_entry(const struct elf_file *f);

/* Build id bytes and their number (at most 64), from the notes; 0 when there is none. */
size_t elf_file_build_id(const struct elf_file *f, const uint8_t **ret);

/* A PT_LOAD segment. Bytes [offset, offset + file_size) of the file stand at
 * [vaddr, vaddr + mem_size). */
struct elf_segment {
	uint64_t offset, vaddr, file_size, mem_size;
	bool executable;
};
size_t elf_file_segments(const struct elf_file *f, const struct elf_segment **ret);

/* File offset -> address in the file's own address space. False when no segment maps it. */
bool elf_file_vaddr_of_offset(const struct elf_file *f, uint64_t offset, uint64_t *ret);

/* Bytes of the file behind [vaddr, vaddr + len); NULL when they are not all inside one segment. */
const uint8_t *elf_file_bytes_at(const struct elf_file *f, uint64_t vaddr, uint64_t len);

struct elf_section {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
};
/* A section by name, decompressed when SHF_COMPRESSED (or .zdebug_ for .debug_ names). False when
 * absent, NOBITS or broken. Falls back to PT_GNU_EH_FRAME for ".eh_frame_hdr" (and to the address
 * in it for ".eh_frame") when the section headers are stripped. */
bool elf_file_section(struct elf_file *f, const char *name, struct elf_section *ret);

/* Whether it has bytes, without decompressing them. */
bool elf_file_has_section(const struct elf_file *f, const char *name);

/* Whether two addresses lie in one section; without section headers, in one segment. */
bool elf_file_same_section(const struct elf_file *f, uint64_t a, uint64_t b);

/* One function symbol, half-open [start, end). `end == start` when the size is unknown. */
struct elf_symbol {
	uint64_t start, end;
	const char *name;
	uint8_t type, binding, visibility; /* STT_, STB_, STV_ */
	bool dynamic; /* from .dynsym */
};
/* Calls `each` for every defined FUNC / IFUNC / NOTYPE-in-text symbol of .symtab, then of .dynsym
 * ("absent" is no error). Stops and returns its value when `each` returns non-zero. */
int elf_file_each_symbol(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx);

/* The same for data: OBJECT symbols, without thread-local storage, whose values are no addresses. */
int elf_file_each_object(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx);

/* Of these only the ones of .dynsym, which are few beside those of .symtab. */
int elf_file_each_exported_object(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx);

/* The file that holds this one's debug sections or symbols, opened through `root` (the directory
 * that stands for / of the process, "" for our own): build id, then .gnu_debuglink with its CRC
 * checked. *ret NULL (and 0) when there is none. */
int elf_file_open_debug(
	struct elf_file *f, const char *root, struct elf_file **ret, struct err *err);

/* The same with `debug_dir` instead of /usr/lib/debug (NULL for that). */
int elf_file_open_debug_in(struct elf_file *f, const char *root, const char *debug_dir,
	struct elf_file **ret, struct err *err);

/* The file that .gnu_debugaltlink names (what dwz moved out of a debug file), by build id, then by
 * path. *ret NULL (and 0) when there is none. */
int elf_file_open_alt(struct elf_file *f, const char *root, const char *debug_dir,
	struct elf_file **ret, struct err *err);

/* The debug sections alone, decompressed, as a malloc'ed ELF image: for readers that do not know
 * every kind of compression. */
bool elf_file_has_compressed_debug(const struct elf_file *f);
int elf_file_plain_debug_image(
	const struct elf_file *f, uint8_t **ret, size_t *ret_size, struct err *err);

/* The ELF image inside .gnu_debugdata (LZMA), *ret NULL when there is none. */
int elf_file_open_minidebug(struct elf_file *f, struct elf_file **ret, struct err *err);

#endif
