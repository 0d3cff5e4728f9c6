/* SPDX-License-Identifier: BSD-2-Clause */
/* Jitdump files made by hand, in memory: a descriptor that records are appended to. */
#ifndef SONDE_TESTS_UNIT_JITDUMP_BYTES_H
#define SONDE_TESTS_UNIT_JITDUMP_BYTES_H

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"

#if defined(__aarch64__)
#define DUMP_MACHINE EM_AARCH64
#else
#define DUMP_MACHINE EM_X86_64
#endif

static inline void dump_flush(int fd, struct buf *b)
{
	check(write(fd, b->data, b->len) == (ssize_t)b->len);
	buf_release(b);
}

/* The file with its header; `pad`: the unused field, `flags`: 1 for times of the processor's own. */
static inline int dump_new(uint32_t pad, uint64_t flags)
{
	struct buf b = {0};
	int fd = memfd_create("jit-1.dump", MFD_CLOEXEC);

	buf_u32(&b, 0x4a695444);
	buf_u32(&b, 1);
	buf_u32(&b, 40);
	buf_u32(&b, DUMP_MACHINE);
	buf_u32(&b, pad);
	buf_u32(&b, 77); /* pid */
	buf_u64(&b, 123);
	buf_u64(&b, flags);
	dump_flush(fd, &b);
	return fd;
}

/* A record around `body`, which is released. */
static inline void dump_record(int fd, uint32_t id, uint64_t time_ns, struct buf *body)
{
	struct buf b = {0};

	buf_u32(&b, id);
	buf_u32(&b, (uint32_t)body->len + 16);
	buf_u64(&b, time_ns);
	buf_add(&b, body->data, body->len);
	buf_release(body);
	dump_flush(fd, &b);
}

static inline void dump_load_bytes(int fd, uint64_t time_ns, uint64_t address, const char *name,
	const void *code, size_t size)
{
	struct buf b = {0};

	buf_u32(&b, 77);
	buf_u32(&b, 77);
	buf_u64(&b, address);
	buf_u64(&b, address);
	buf_u64(&b, size);
	buf_u64(&b, 0);
	buf_add(&b, name, strlen(name) + 1);
	buf_add(&b, code, size);
	dump_record(fd, 0, time_ns, &b);
}

/* Code of `size` bytes 0x90. */
static inline void dump_load(int fd, uint64_t time_ns, uint64_t address, size_t size, const char *name)
{
	struct buf code = {0};

	memset(buf_reserve(&code, size), 0x90, size);
	dump_load_bytes(fd, time_ns, address, name, code.data, size);
	buf_release(&code);
}

static inline void dump_move(int fd, uint64_t time_ns, uint64_t from, uint64_t to, uint64_t size)
{
	struct buf b = {0};

	buf_u32(&b, 77);
	buf_u32(&b, 77);
	buf_u64(&b, to);
	buf_u64(&b, from);
	buf_u64(&b, to);
	buf_u64(&b, size);
	buf_u64(&b, 0);
	dump_record(fd, 1, time_ns, &b);
}

struct dump_line {
	uint64_t address;
	uint32_t line;
	const char *file;
};

static inline void dump_lines(int fd, uint64_t address, const struct dump_line *lines, size_t count)
{
	struct buf b = {0};

	buf_u64(&b, address);
	buf_u64(&b, count);
	for (size_t i = 0; i < count; i++) {
		buf_u64(&b, lines[i].address);
		buf_u32(&b, lines[i].line);
		buf_u32(&b, 0);
		buf_add(&b, lines[i].file, strlen(lines[i].file) + 1);
	}
	dump_record(fd, 2, 1, &b);
}

static inline void dump_unwind(
	int fd, const void *bytes, uint64_t size, uint64_t hdr_size, uint64_t mapped)
{
	struct buf b = {0};

	buf_u64(&b, size);
	buf_u64(&b, hdr_size);
	buf_u64(&b, mapped);
	buf_add(&b, bytes, size);
	dump_record(fd, 4, 1, &b);
}

#endif
