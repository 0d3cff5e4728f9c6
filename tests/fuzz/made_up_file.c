/* SPDX-License-Identifier: BSD-2-Clause */
/* An object file with a function for every name that kinds of waits look for, and some that no compiler gives. All
 * have the same frame of two words, as its call frame information says. */
#include "made_up.h"

#include <dwarf.h>
#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"

#define TEXT_AT 0x1000u
#define FUNCTION_BYTES 16u

static const char *const functions[] = {
	"start_thread", "main", "pthread_mutex_lock", "pthread_rwlock_rdlock", "pthread_cond_wait",
	"pthread_once", "call_once", "__cxa_guard_acquire", "the_static", "malloc", "free", "_int_malloc",
	"exit", "localtime_r", "getaddrinfo", "setenv", "__restore_rt", "sem_wait", "pthread_barrier_wait",
	"std::__future_base::wait", "std::__atomic_wait", "_RNvMNtsys_mutex::futex::Mutex::lock_contended",
	"futex_mutex::Mutex::lock_contended", "RwLock::write_contended", "Condvar::wait", "Once::call",
	"thread::park", "ProcSleep", "worker", "a\x1b[31mred", "c1\302\23331m", "tab\tand\nnewline", "\xff\xfe\x80 not UTF-8",
	"\xe2\x80\xae""backwards", "__pthread_rwlock_wrlock", "a_name_that_is_very_long_a_name_that_is_very_long_"
	"a_name_that_is_very_long_a_name_that_is_very_long_a_name_that_is_very_long_a_name_that_is_very_long_"
	"a_name_that_is_very_long_a_name_that_is_very_long\"\\", "clone3",
};

#define COUNT (sizeof(functions) / sizeof(functions[0]))

static struct buf file;

size_t made_function_count(void)
{
	return COUNT;
}

uint64_t made_function_pc(unsigned number)
{
	return MADE_TEXT + TEXT_AT + number % COUNT * FUNCTION_BYTES + 5;
}

static void put_entry(struct buf *out, const void *body, size_t len)
{
	buf_u32(out, (uint32_t)len);
	buf_add(out, body, len);
}

/* One CIE and one FDE for all functions: CFA rsp + 16, the return address 8 below it. */
static void call_frames(uint64_t at, struct buf *out)
{
	static const uint8_t cie[] = {0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1,
		DW_EH_PE_pcrel | DW_EH_PE_sdata4, DW_CFA_def_cfa, 7, 16, DW_CFA_offset | 16, 1, 0, 0};
	struct buf fde = {0};

	put_entry(out, cie, sizeof(cie));
	buf_u32(&fde, sizeof(cie) + 8);
	buf_u32(&fde, (uint32_t)(TEXT_AT - (at + out->len + 8)));
	buf_u32(&fde, COUNT * FUNCTION_BYTES);
	buf_u32(&fde, 0);
	put_entry(out, fde.data, fde.len);
	buf_u32(out, 0);
	buf_release(&fde);
}

static void symbols(struct buf *table, struct buf *names)
{
	static const Elf64_Sym none;

	buf_add(table, &none, sizeof(none));
	buf_u8(names, 0);
	for (size_t i = 0; i < COUNT; i++) {
		Elf64_Sym s = {.st_name = (Elf64_Word)names->len,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1,
			.st_value = TEXT_AT + i * FUNCTION_BYTES, .st_size = FUNCTION_BYTES};

		buf_add(table, &s, sizeof(s));
		buf_add(names, functions[i], strlen(functions[i]) + 1);
	}
}

static Elf64_Shdr put_section(uint32_t name, uint32_t type, const struct buf *bytes)
{
	Elf64_Shdr s = {.sh_name = name, .sh_type = type, .sh_offset = file.len, .sh_size = bytes->len};

	buf_add(&file, bytes->data, bytes->len);
	buf_pad(&file, 8);
	return s;
}

static void build(void)
{
	static const char names[] = "\0.text\0.eh_frame\0.symtab\0.strtab";
	struct buf text = {0}, frames = {0}, table = {0}, strings = {0}, section_names = {0};
	Elf64_Ehdr h = {.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1, .e_phoff = sizeof(h),
		.e_ehsize = sizeof(h), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1,
		.e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 6, .e_shstrndx = 5};
	Elf64_Phdr load = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_align = 0x1000};
	Elf64_Shdr sections[6] = {0};

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	h.e_ident[EI_VERSION] = 1;
	buf_pad(&file, 1);
	memset(buf_reserve(&file, TEXT_AT), 0, TEXT_AT);
	file.len = TEXT_AT;
	for (size_t i = 0; i < COUNT * FUNCTION_BYTES; i++)
		buf_u8(&text, 0x90);
	symbols(&table, &strings);
	buf_add(&section_names, names, sizeof(names));
	sections[1] = put_section(1, SHT_PROGBITS, &text);
	call_frames(file.len, &frames);
	sections[2] = put_section(7, SHT_PROGBITS, &frames);
	sections[3] = put_section(17, SHT_SYMTAB, &table);
	sections[4] = put_section(25, SHT_STRTAB, &strings);
	sections[5] = put_section(25, SHT_STRTAB, &section_names);
	sections[1].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	sections[2].sh_flags = SHF_ALLOC;
	sections[1].sh_addr = sections[1].sh_offset;
	sections[2].sh_addr = sections[2].sh_offset;
	sections[3].sh_link = 4;
	sections[3].sh_info = 1;
	sections[3].sh_entsize = sizeof(Elf64_Sym);
	h.e_shoff = file.len;
	buf_add(&file, sections, sizeof(sections));
	load.p_filesz = load.p_memsz = file.len;
	memcpy(file.data, &h, sizeof(h));
	memcpy(file.data + sizeof(h), &load, sizeof(load));
	buf_release(&text);
	buf_release(&frames);
	buf_release(&table);
	buf_release(&strings);
	buf_release(&section_names);
}

size_t made_file_size(void)
{
	if (!file.len)
		build();
	return file.len;
}

size_t made_file_read(uint64_t offset, void *buf, size_t len)
{
	size_t size = made_file_size();

	if (offset >= size)
		return 0;
	len = len < size - offset ? len : size - offset;
	memcpy(buf, file.data + offset, len);
	return len;
}

int made_file(void)
{
	static int kept = -1;

	if (kept < 0) {
		kept = memfd_create("made-up", MFD_CLOEXEC);
		if (kept >= 0 && write(kept, file.data, made_file_size()) != (ssize_t)file.len)
			return -1;
	}
	return kept < 0 ? -1 : dup(kept);
}
