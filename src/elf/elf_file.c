/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Headers of an object file, read once at opening.
 *
 * The file is one read-only mapping (or one block of memory) and all that is kept are the program
 * headers we use, the section headers that lie inside the file, and pointers into it. A header that
 * names bytes outside the file is dropped here, so that nothing behind this file checks again.
 * Formats: System V ABI, "Object Files"; the ELF-64 Object File Format.
 */
#include "elf/elf_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/cursor.h"
#include "elf/elf_priv.h"

#define MAX_BUILD_ID 64
/* Far more than linked files have; a sparse file may claim a thousand million. */
#define MAX_SECTIONS (1u << 17)

/* [offset, offset + len) of the file, NULL when it is not all there. */
static const uint8_t *image_range(const struct elf_file *f, uint64_t offset, uint64_t len)
{
	if (offset > f->image_size || len > f->image_size - offset)
		return NULL;
	return f->image + offset;
}

static bool header_is_ours(const Elf64_Ehdr *h)
{
	return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64 &&
		h->e_ident[EI_DATA] == ELFDATA2LSB &&
		(h->e_machine == EM_X86_64 || h->e_machine == EM_AARCH64) &&
		(h->e_type == ET_EXEC || h->e_type == ET_DYN || h->e_type == ET_REL);
}

/* Notes (gABI, "Note Section"): name and descriptor are padded to `align`. */
static void read_build_id(struct elf_file *f, const uint8_t *bytes, uint64_t size, uint64_t align)
{
	struct cursor c = cursor_over(bytes, size);
	const uint64_t pad = align == 8 ? 7 : 3;

	while (!f->build_id && cursor_left(&c) >= sizeof(Elf64_Nhdr)) {
		uint32_t name_len = cursor_u32(&c);
		uint32_t desc_len = cursor_u32(&c);
		uint32_t type = cursor_u32(&c);
		const uint8_t *name = cursor_bytes(&c, name_len);

		cursor_skip(&c, -(sizeof(Elf64_Nhdr) + name_len) & pad);
		const uint8_t *desc = cursor_bytes(&c, desc_len);
		if (c.bad)
			return;
		if (type == NT_GNU_BUILD_ID && name_len == 4 && !memcmp(name, "GNU", 4) &&
			desc_len && desc_len <= MAX_BUILD_ID) {
			f->build_id = desc;
			f->build_id_len = desc_len;
		}
		uint64_t fill = -(uint64_t)desc_len & pad;
		cursor_skip(&c, fill < cursor_left(&c) ? fill : cursor_left(&c));
	}
}

static bool dynamic_says_pie(const uint8_t *bytes, uint64_t size)
{
	struct cursor c = cursor_over(bytes, size);

	while (cursor_left(&c) >= sizeof(Elf64_Dyn)) {
		int64_t tag = cursor_s64(&c);
		uint64_t value = cursor_u64(&c);

		if (tag == DT_NULL)
			break;
		if (tag == DT_FLAGS_1)
			return value & DF_1_PIE;
	}
	return false;
}

static int read_segments(struct elf_file *f)
{
	bool interp = false, pie = false;

	if (f->ehdr.e_phentsize != sizeof(Elf64_Phdr))
		return 0;
	for (uint64_t i = 0; i < f->ehdr.e_phnum; i++) {
		Elf64_Phdr p;
		const uint8_t *at = image_range(f, f->ehdr.e_phoff + i * sizeof(p), sizeof(p));

		if (!at)
			break;
		memcpy(&p, at, sizeof(p));
		const uint8_t *bytes = image_range(f, p.p_offset, p.p_filesz);

		interp |= p.p_type == PT_INTERP;
		if (p.p_type == PT_LOAD && p.p_vaddr + p.p_memsz >= p.p_vaddr) {
			struct elf_segment s = {p.p_offset, p.p_vaddr, p.p_filesz, p.p_memsz,
				p.p_flags & PF_X};
			if (vec_push(&f->segments, s))
				return -ENOMEM;
		} else if (p.p_type == PT_GNU_EH_FRAME) {
			f->eh_frame_hdr_vaddr = p.p_vaddr;
			f->eh_frame_hdr_size = p.p_filesz;
		} else if (p.p_type == PT_NOTE && bytes) {
			read_build_id(f, bytes, p.p_filesz, p.p_align);
		} else if (p.p_type == PT_DYNAMIC && bytes) {
			f->dynamic_vaddr = p.p_vaddr;
			pie = dynamic_says_pie(bytes, p.p_filesz);
		}
	}
	f->interpreted = interp;
	f->executable = f->ehdr.e_type == ET_EXEC ||
		(f->ehdr.e_type == ET_DYN && (interp || (f->ehdr.e_entry && pie)));
	return 0;
}

static bool section_header(const struct elf_file *f, uint64_t index, Elf64_Shdr *ret)
{
	uint64_t offset;

	if (__builtin_add_overflow(f->ehdr.e_shoff, index * sizeof(*ret), &offset))
		return false;
	const uint8_t *at = image_range(f, offset, sizeof(*ret));
	if (at)
		memcpy(ret, at, sizeof(*ret));
	return at;
}

/* A string table whose last byte is not NUL ends at its last NUL; then every offset inside names a
 * string that ends inside. */
uint64_t elf_string_table_size(const uint8_t *table, uint64_t size)
{
	const uint8_t *nul = table ? memrchr(table, 0, size) : NULL;

	return nul ? (uint64_t)(nul - table) + 1 : 0;
}

static int read_sections(struct elf_file *f)
{
	Elf64_Shdr first, names;
	uint64_t count = f->ehdr.e_shnum, names_index = f->ehdr.e_shstrndx;

	if (!f->ehdr.e_shoff || f->ehdr.e_shentsize != sizeof(Elf64_Shdr) ||
		!section_header(f, 0, &first))
		return 0;
	if (!count) /* too many for 16 bits: gABI, "Extended section header" */
		count = first.sh_size;
	if (names_index == SHN_XINDEX)
		names_index = first.sh_link;
	if (count > MAX_SECTIONS || count > f->image_size / sizeof(Elf64_Shdr) || !section_header(f, names_index, &names))
		return 0;
	const uint8_t *table = names.sh_type == SHT_STRTAB
		? image_range(f, names.sh_offset, names.sh_size)
		: NULL;
	uint64_t table_size = elf_string_table_size(table, names.sh_size);

	for (uint64_t i = 0; i < count; i++) {
		struct section_entry s = {0};

		if (!section_header(f, i, &s.hdr))
			break;
		if (s.hdr.sh_type != SHT_NOBITS && s.hdr.sh_type != SHT_NULL)
			s.bytes = image_range(f, s.hdr.sh_offset, s.hdr.sh_size);
		s.name = s.hdr.sh_name < table_size ? (const char *)table + s.hdr.sh_name : "";
		if (vec_push(&f->sections, s))
			return -ENOMEM;
		if (s.hdr.sh_type == SHT_NOTE && s.bytes)
			read_build_id(f, s.bytes, s.hdr.sh_size, s.hdr.sh_addralign);
	}
	return 0;
}

static int read_headers(struct elf_file *f, struct err *err)
{
	const uint8_t *at = image_range(f, 0, sizeof(Elf64_Ehdr));

	if (at)
		memcpy(&f->ehdr, at, sizeof(f->ehdr));
	if (!at || !header_is_ours(&f->ehdr))
		return err_set(err, ENOEXEC,
			"%s is not a 64-bit little-endian ELF file for x86-64 or aarch64", f->name);
	if (read_segments(f) || read_sections(f))
		return err_nomem(err);
	return 0;
}

static int finish_open(struct elf_file *f, struct elf_file **ret, struct err *err)
{
	int rc = read_headers(f, err);

	if (rc < 0) {
		elf_file_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

static struct elf_file *new_file(const char *name)
{
	struct elf_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fd = -1;
	f->name = strdup(name);
	if (!f->name) {
		free(f);
		return NULL;
	}
	return f;
}

int elf_file_open_fd(int fd, const char *name, struct elf_file **ret, struct err *err)
{
	autoclose int owned = fd;
	struct stat st;

	if (fstat(fd, &st))
		return err_errno(err, errno, "%s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ENOEXEC, "%s is not a regular file", name);
	if (st.st_size < (off_t)sizeof(Elf64_Ehdr))
		return err_set(err, ENOEXEC, "%s is too short for an ELF file", name);
	void *image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		return err_errno(err, errno, "cannot map %s", name);

	struct elf_file *f = new_file(name);
	if (!f) {
		munmap(image, (size_t)st.st_size);
		return err_nomem(err);
	}
	f->fd = take_fd(owned);
	f->image = image;
	f->image_size = (size_t)st.st_size;
	f->mapped = true;
	return finish_open(f, ret, err);
}

int elf_file_open_owned(
	uint8_t *bytes, size_t size, const char *name, struct elf_file **ret, struct err *err)
{
	struct elf_file *f = new_file(name);

	if (!f) {
		free(bytes);
		return err_nomem(err);
	}
	f->image = bytes;
	f->image_size = size;
	return finish_open(f, ret, err);
}

int elf_file_open_memory(
	const void *bytes, size_t size, const char *name, struct elf_file **ret, struct err *err)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return err_nomem(err);
	if (size)
		memcpy(copy, bytes, size);
	return elf_file_open_owned(copy, size, name, ret, err);
}

int elf_file_open_loaded(uint8_t *bytes, size_t size, uint64_t address, const char *name,
	struct elf_file **ret, struct err *err)
{
	struct elf_file *f;
	uint64_t vaddr;

	if (size >= sizeof(Elf64_Ehdr)) /* they may lie where nothing was mapped, or something else */
		memset(bytes + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof(f->ehdr.e_shoff));

	int rc = elf_file_open_owned(bytes, size, name, &f, err);

	if (rc)
		return rc;
	if (elf_file_vaddr_of_offset(f, 0, &vaddr))
		f->load_bias = address - vaddr;
	*ret = f;
	return 0;
}

void elf_file_free(struct elf_file *f)
{
	if (!f)
		return;
	vec_each(&f->sections, s)
		free(s->inflated);
	vec_release(&f->sections);
	vec_release(&f->segments);
	if (f->mapped)
		munmap((void *)f->image, f->image_size);
	else
		free((void *)f->image);
	cleanup_close(&f->fd);
	free(f->name);
	free(f);
}

void elf_file_rest(const struct elf_file *f)
{
	if (f->mapped)
		(void)madvise((void *)f->image, f->image_size, MADV_DONTNEED);
}

const char *elf_file_name(const struct elf_file *f)
{
	return f->name;
}

int elf_file_fd(const struct elf_file *f)
{
	return f->fd;
}

const uint8_t *elf_file_image(const struct elf_file *f, size_t *ret_size)
{
	*ret_size = f->image_size;
	return f->image;
}

unsigned elf_file_machine(const struct elf_file *f)
{
	return f->ehdr.e_machine;
}

bool elf_file_is_executable(const struct elf_file *f)
{
	return f->executable;
}

bool elf_file_has_interpreter(const struct elf_file *f)
{
	return f->interpreted;
}

uint64_t elf_file_entry(const struct elf_file *f)
{
	return f->ehdr.e_entry;
}

size_t elf_file_build_id(const struct elf_file *f, const uint8_t **ret)
{
	*ret = f->build_id;
	return f->build_id_len;
}

size_t elf_file_segments(const struct elf_file *f, const struct elf_segment **ret)
{
	*ret = f->segments.data;
	return f->segments.len;
}

bool elf_file_vaddr_of_offset(const struct elf_file *f, uint64_t offset, uint64_t *ret)
{
	vec_each(&f->segments, s) {
		if (offset < s->offset || offset - s->offset >= s->file_size)
			continue;
		*ret = s->vaddr + (offset - s->offset);
		return true;
	}
	return false;
}

const uint8_t *elf_file_bytes_at(const struct elf_file *f, uint64_t vaddr, uint64_t len)
{
	vec_each(&f->segments, s) {
		uint64_t skip = vaddr - s->vaddr, offset;

		if (vaddr < s->vaddr || skip > s->file_size || len > s->file_size - skip)
			continue;
		if (__builtin_add_overflow(s->offset, skip, &offset))
			continue;
		return image_range(f, offset, len);
	}
	return NULL;
}
