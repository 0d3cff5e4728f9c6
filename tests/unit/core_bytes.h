/* SPDX-License-Identifier: BSD-2-Clause */
/* Core files made in memory, for the tests of their parser. */
#ifndef SONDE_TESTS_UNIT_CORE_BYTES_H
#define SONDE_TESTS_UNIT_CORE_BYTES_H

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#if defined(__aarch64__)
#define CORE_MACHINE EM_AARCH64
#define CORE_REGS 34
#define CORE_SP 31
#define CORE_PC 32
#else
#define CORE_MACHINE EM_X86_64
#define CORE_REGS 27
#define CORE_RAX 10
#define CORE_RDI 14
#define CORE_ORIG_RAX 15
#define CORE_PC 16
#define CORE_SP 19
#endif

#define CORE_MOST_SEGMENTS 16

struct core_maker {
	struct buf notes, memory;
	Elf64_Phdr segments[CORE_MOST_SEGMENTS];
	size_t segment_count;
	bool extended; /* the number of segments stands in a section header */
};

static inline void core_add_note(struct core_maker *m, uint32_t type, const void *desc, size_t len)
{
	static const char zeros[8];
	uint32_t head[3] = {5, (uint32_t)len, type};

	buf_add(&m->notes, head, sizeof(head));
	buf_add(&m->notes, "CORE\0\0\0", 8);
	buf_add(&m->notes, desc, len);
	buf_add(&m->notes, zeros, -len & 3);
}

/* `regs` has CORE_REGS of them. */
static inline void core_add_thread(struct core_maker *m, int tid, int signal, const uint64_t *regs)
{
	uint8_t desc[112 + CORE_REGS * 8 + 8] = {0};
	uint16_t got = (uint16_t)signal;

	memcpy(desc + 12, &got, sizeof(got));
	memcpy(desc + 32, &tid, sizeof(tid));
	memcpy(desc + 112, regs, CORE_REGS * 8);
	core_add_note(m, NT_PRSTATUS, desc, sizeof(desc));
}

static inline void core_add_process(struct core_maker *m, int pid, const char *name, const char *arguments)
{
	uint8_t desc[136] = {0};

	memcpy(desc + 24, &pid, sizeof(pid));
	memcpy(desc + 40, name, strlen(name));
	memcpy(desc + 56, arguments, strlen(arguments));
	core_add_note(m, NT_PRPSINFO, desc, sizeof(desc));
}

static inline void core_add_signal(struct core_maker *m, int signal, int code, uint64_t address)
{
	uint8_t desc[128] = {0};

	memcpy(desc, &signal, 4);
	memcpy(desc + 8, &code, 4);
	memcpy(desc + 16, &address, 8);
	core_add_note(m, NT_SIGINFO, desc, sizeof(desc));
}

/* One mapping; `offset` in pages of 4096. */
static inline void core_add_file(
	struct core_maker *m, uint64_t start, uint64_t end, uint64_t offset, const char *path)
{
	uint64_t head[5] = {1, 4096, start, end, offset};
	struct buf desc = {0};

	buf_add(&desc, head, sizeof(head));
	buf_add(&desc, path, strlen(path) + 1);
	core_add_note(m, NT_FILE, desc.data, desc.len);
	buf_release(&desc);
}

static inline void core_add_memory(struct core_maker *m, uint64_t start, uint64_t mem_bytes, unsigned flags,
	const void *bytes, size_t len)
{
	m->segments[m->segment_count++] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = flags,
		.p_offset = m->memory.len, .p_vaddr = start, .p_filesz = len, .p_memsz = mem_bytes};
	buf_add(&m->memory, bytes, len);
}

/* Puts the file together: header, program headers, notes, memory. What was in `m` is released. */
static inline void core_make(struct core_maker *m, struct buf *ret)
{
	size_t headers = m->segment_count + 1, at = sizeof(Elf64_Ehdr) + headers * sizeof(Elf64_Phdr);
	Elf64_Shdr first = {.sh_info = (uint32_t)headers};
	Elf64_Phdr note = {.p_type = PT_NOTE, .p_filesz = m->notes.len};
	Elf64_Ehdr h = {.e_type = ET_CORE, .e_machine = CORE_MACHINE, .e_version = 1,
		.e_phoff = sizeof(h), .e_ehsize = sizeof(h), .e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = m->extended ? PN_XNUM : (uint16_t)headers};

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	if (m->extended)
		h.e_shoff = at;
	at += m->extended ? sizeof(first) : 0;
	note.p_offset = at;
	buf_add(ret, &h, sizeof(h));
	buf_add(ret, &note, sizeof(note));
	for (size_t i = 0; i < m->segment_count; i++) {
		m->segments[i].p_offset += at + m->notes.len;
		buf_add(ret, &m->segments[i], sizeof(m->segments[i]));
	}
	if (m->extended)
		buf_add(ret, &first, sizeof(first));
	buf_add(ret, m->notes.data, m->notes.len);
	buf_add(ret, m->memory.data, m->memory.len);
	buf_release(&m->notes);
	buf_release(&m->memory);
}

#endif
