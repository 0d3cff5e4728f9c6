/* SPDX-License-Identifier: BSD-2-Clause */
#include "elf/core_file.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cursor.h"

/* Notes hold a few KB a thread. */
#define MAX_NOTES_BYTES ((uint64_t)1 << 30)
#define NOTE_ALIGN 4u

struct core_file {
	const uint8_t *image;
	size_t image_size;
	bool mapped; /* munmap it */
	char *name;
	VEC(uint8_t *) notes; /* copies, into which paths point */
	struct core_info info;
};

static const uint8_t *image_range(const struct core_file *f, uint64_t offset, uint64_t len)
{
	if (offset > f->image_size || len > f->image_size - offset)
		return NULL;
	return f->image + offset;
}

/* ---- notes ---- */

static size_t reg_count(const struct core_file *f)
{
	return f->info.machine == EM_AARCH64 ? 34 : 27;
}

static void read_text(struct cursor *c, char *buf, size_t len)
{
	const uint8_t *bytes = cursor_bytes(c, len);

	for (size_t i = 0; bytes && i < len && bytes[i]; i++)
		buf[i] = bytes[i] < 0x20 || bytes[i] == 0x7f ? '?' : (char)bytes[i];
}

/* struct elf_prstatus */
static int read_thread(struct core_file *f, struct cursor c)
{
	struct core_thread t = {0};

	cursor_skip(&c, 12);
	t.signal = cursor_u16(&c);
	cursor_skip(&c, 18);
	t.tid = cursor_s32(&c);
	cursor_skip(&c, 76);
	for (size_t i = 0; i < reg_count(f); i++)
		t.regs[i] = cursor_u64(&c);
	if (c.bad || t.tid <= 0)
		return 0;
	return vec_push(&f->info.threads, t);
}

/* struct elf_prpsinfo */
static void read_process(struct core_file *f, struct cursor c)
{
	pid_t pid, ppid;

	cursor_skip(&c, 24);
	pid = cursor_s32(&c);
	ppid = cursor_s32(&c);
	cursor_skip(&c, 8);
	if (cursor_left(&c) < 96 || pid <= 0)
		return;
	f->info.pid = pid;
	f->info.ppid = ppid;
	read_text(&c, f->info.name, 16);
	read_text(&c, f->info.arguments, 80);
	for (size_t i = strlen(f->info.arguments); i && f->info.arguments[i - 1] == ' '; i--)
		f->info.arguments[i - 1] = '\0';
}

/* siginfo_t of one thread. Debuggers write it for each, the kernel for the one that got the signal. */
static void read_signal(struct core_file *f, struct cursor c)
{
	struct core_info *i = &f->info;
	int signal = cursor_s32(&c), code;
	struct cursor sender;

	cursor_skip(&c, 4);
	code = cursor_s32(&c);
	cursor_skip(&c, 4);
	sender = c;
	if (cursor_left(&c) < sizeof(uint64_t) || i->has_signal || i->threads.len != 1)
		return;
	i->has_signal = true;
	i->signal = signal;
	i->signal_code = code;
	if (code > 0)
		i->signal_address = cursor_u64(&c);
	else
		i->signal_sender = cursor_s32(&sender);
}

static void read_auxv(struct core_file *f, struct cursor c)
{
	while (cursor_left(&c) >= 16) {
		uint64_t type = cursor_u64(&c), value = cursor_u64(&c);

		if (type == AT_SYSINFO_EHDR)
			f->info.vdso = value;
		else if (type == AT_RANDOM)
			f->info.on_stack = value;
	}
}

/* NT_FILE: how many, the size of a page, for each start, end and offset in pages; then their names. */
static int read_mappings(struct core_file *f, struct cursor c)
{
	uint64_t count = cursor_u64(&c), page_bytes = cursor_u64(&c);
	struct cursor ranges, names = c;

	if (c.bad || count > cursor_left(&c) / 24)
		return 0;
	ranges = cursor_sub(&names, count * 24);
	for (uint64_t i = 0; i < count; i++) {
		struct core_mapping m = {cursor_u64(&ranges), cursor_u64(&ranges), 0, NULL};
		uint64_t page = cursor_u64(&ranges);

		m.path = cursor_cstr(&names);
		if (names.bad)
			return 0;
		if (m.start >= m.end || __builtin_mul_overflow(page, page_bytes, &m.offset) ||
			m.offset + (m.end - m.start) < m.offset)
			continue;
		if (vec_push(&f->info.mappings, m))
			return -ENOMEM;
	}
	return 0;
}

static int read_note(struct core_file *f, uint32_t type, struct cursor desc)
{
	switch (type) {
	case NT_PRSTATUS:
		return read_thread(f, desc);
	case NT_PRPSINFO:
		read_process(f, desc);
		return 0;
	case NT_SIGINFO:
		read_signal(f, desc);
		return 0;
	case NT_AUXV:
		read_auxv(f, desc);
		return 0;
	case NT_FILE:
		return f->info.mappings.len ? 0 : read_mappings(f, desc);
	default:
		return 0;
	}
}

static void skip_padding(struct cursor *c, uint32_t len)
{
	uint64_t fill = -(uint64_t)len & (NOTE_ALIGN - 1);

	cursor_skip(c, fill < cursor_left(c) ? fill : cursor_left(c));
}

static int read_notes(struct core_file *f, struct cursor c)
{
	int rc = 0;

	while (!rc && cursor_left(&c) >= sizeof(Elf64_Nhdr)) {
		uint32_t name_len = cursor_u32(&c);
		uint32_t desc_len = cursor_u32(&c);
		uint32_t type = cursor_u32(&c);
		const uint8_t *name = cursor_bytes(&c, name_len);

		skip_padding(&c, name_len);
		struct cursor desc = cursor_sub(&c, desc_len);
		skip_padding(&c, desc_len);
		if (!c.bad && name_len == 5 && !memcmp(name, "CORE", 5))
			rc = read_note(f, type, desc);
	}
	return rc;
}

/* ---- headers ---- */

static int add_notes(struct core_file *f, const Elf64_Phdr *p)
{
	uint64_t left = p->p_offset < f->image_size ? f->image_size - p->p_offset : 0;
	uint64_t size = p->p_filesz < left ? p->p_filesz : left;
	uint8_t *copy;

	if (!size || size > MAX_NOTES_BYTES)
		return 0;
	copy = malloc(size);
	if (!copy || vec_push(&f->notes, copy)) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, f->image + p->p_offset, size);
	return read_notes(f, cursor_over(copy, size));
}

static int add_segment(struct core_file *f, const Elf64_Phdr *p)
{
	uint64_t wanted = p->p_filesz < p->p_memsz ? p->p_filesz : p->p_memsz;
	uint64_t left = p->p_offset < f->image_size ? f->image_size - p->p_offset : 0;
	struct core_segment s = {
		.start = p->p_vaddr,
		.end = p->p_vaddr + p->p_memsz,
		.offset = p->p_offset,
		.kept = wanted < left ? wanted : left,
		.read = p->p_flags & PF_R,
		.write = p->p_flags & PF_W,
		.exec = p->p_flags & PF_X,
	};

	if (s.end <= s.start)
		return 0;
	if (__builtin_add_overflow(f->info.missing_bytes, wanted - s.kept, &f->info.missing_bytes))
		f->info.missing_bytes = UINT64_MAX;
	return vec_push(&f->info.segments, s);
}

/* More than 16 bits can count: the first section header has the number (gABI, "Program Header"). */
static uint64_t program_headers(const struct core_file *f, const Elf64_Ehdr *h)
{
	const uint8_t *at = image_range(f, h->e_shoff, sizeof(Elf64_Shdr));
	Elf64_Shdr first;

	if (h->e_phnum != PN_XNUM || !h->e_shoff || !at)
		return h->e_phnum;
	memcpy(&first, at, sizeof(first));
	return first.sh_info;
}

static int read_program_headers(struct core_file *f, const Elf64_Ehdr *h)
{
	uint64_t count = program_headers(f, h);
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		const uint8_t *at = h->e_phoff < f->image_size
			? image_range(f, h->e_phoff + i * sizeof(Elf64_Phdr), sizeof(Elf64_Phdr))
			: NULL;
		Elf64_Phdr p;

		if (!at) /* the file is cut off */
			break;
		memcpy(&p, at, sizeof(p));
		if (p.p_type == PT_LOAD)
			rc = add_segment(f, &p);
		else if (p.p_type == PT_NOTE)
			rc = add_notes(f, &p);
	}
	return rc;
}

static int compare_segments(const void *x, const void *y)
{
	const struct core_segment *a = x, *b = y;

	return (a->start > b->start) - (a->start < b->start);
}

static int compare_mappings(const void *x, const void *y)
{
	const struct core_mapping *a = x, *b = y;

	return (a->start > b->start) - (a->start < b->start);
}

/* Sorts, and drops what overlaps the one before. */
#define put_in_order(v, compare)                                                                   \
	do {                                                                                       \
		size_t kept_ = 0;                                                                  \
		if ((v)->len)                                                                      \
			qsort((v)->data, (v)->len, sizeof(*(v)->data), compare);                   \
		vec_each((v), it_)                                                                 \
			if (!kept_ || it_->start >= (v)->data[kept_ - 1].end)                      \
				(v)->data[kept_++] = *it_;                                         \
		(v)->len = kept_;                                                                  \
	} while (0)

static int check_header(const struct core_file *f, Elf64_Ehdr *h, struct err *err)
{
	static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd}, lz4[] = {0x04, 0x22, 0x4d, 0x18},
			     xz[] = {0xfd, '7', 'z', 'X'}, gzip[] = {0x1f, 0x8b};
	const uint8_t *at = image_range(f, 0, sizeof(*h));

	if (!at)
		return err_set(err, ENOEXEC, "%s is too short for a core file", f->name);
	memcpy(h, at, sizeof(*h));
	if (!memcmp(at, zstd, 4) || !memcmp(at, lz4, 4) || !memcmp(at, xz, 4) || !memcmp(at, gzip, 2))
		return err_set(err, ENOEXEC, "%s is compressed: unpack it first (unzstd, unlz4, unxz, gunzip; "
			"of systemd's: coredumpctl -o FILE dump)", f->name);
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_type != ET_CORE)
		return err_set(err, ENOEXEC, "%s is not a core file", f->name);
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
		(h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64) ||
		h->e_phentsize != sizeof(Elf64_Phdr))
		return err_set(err, ENOEXEC,
			"%s is the core of a program that is not 64-bit x86-64 or aarch64", f->name);
	return 0;
}

static int read_core(struct core_file *f, struct err *err)
{
	Elf64_Ehdr h;
	int rc = check_header(f, &h, err);

	if (rc)
		return rc;
	f->info.machine = h.e_machine;
	if (read_program_headers(f, &h))
		return err_nomem(err);
	put_in_order(&f->info.segments, compare_segments);
	put_in_order(&f->info.mappings, compare_mappings);
	if (!f->info.threads.len)
		return err_set(err, ENOEXEC, "%s says nothing of threads: it was cut off before that, or is "
			"not the core of a process", f->name);
	if (!f->info.pid)
		f->info.pid = f->info.threads.data[0].tid;
	return 0;
}

/* ---- life ---- */

static int open_image(const void *image, size_t size, bool mapped, const char *name,
	struct core_file **ret, struct err *err)
{
	struct core_file *f = calloc(1, sizeof(*f));
	int rc = f ? 0 : err_nomem(err);

	if (!f) {
		if (mapped)
			munmap((void *)image, size);
		return rc;
	}
	f->image = image;
	f->image_size = size;
	f->mapped = mapped;
	f->name = strdup(name);
	rc = f->name ? read_core(f, err) : err_nomem(err);
	if (rc)
		core_file_free(f);
	else
		*ret = f;
	return rc;
}

int core_file_open_fd(int fd, const char *name, struct core_file **ret, struct err *err)
{
	autoclose int owned = fd;
	struct stat st;

	if (fstat(owned, &st))
		return err_errno(err, errno, "%s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ENOEXEC, "%s is not a regular file", name);
	if (!st.st_size)
		return err_set(err, ENOEXEC, "%s is empty", name);

	void *image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, owned, 0);

	if (image == MAP_FAILED)
		return err_errno(err, errno, "cannot map %s", name);
	return open_image(image, (size_t)st.st_size, true, name, ret, err);
}

int core_file_open_memory(
	const void *bytes, size_t size, const char *name, struct core_file **ret, struct err *err)
{
	return open_image(bytes, size, false, name, ret, err);
}

void core_file_free(struct core_file *f)
{
	if (!f)
		return;
	vec_each(&f->notes, n)
		free(*n);
	vec_release(&f->notes);
	vec_release(&f->info.threads);
	vec_release(&f->info.segments);
	vec_release(&f->info.mappings);
	if (f->mapped)
		munmap((void *)f->image, f->image_size);
	free(f->name);
	free(f);
}

const struct core_info *core_file_info(const struct core_file *f)
{
	return &f->info;
}

/* ---- memory ---- */

/* The last that begins at or below `addr`, if it holds it. */
#define find_holding(v, addr)                                                                      \
	({                                                                                         \
		size_t low_ = 0, high_ = (v)->len;                                                 \
		while (low_ < high_) {                                                             \
			size_t middle_ = low_ + (high_ - low_) / 2;                                \
			if ((v)->data[middle_].end <= (addr))                                      \
				low_ = middle_ + 1;                                                \
			else                                                                       \
				high_ = middle_;                                                   \
		}                                                                                  \
		low_ < (v)->len && (v)->data[low_].start <= (addr) ? &(v)->data[low_] : NULL;      \
	})

const struct core_segment *core_file_segment(const struct core_file *f, uint64_t addr)
{
	return find_holding(&f->info.segments, addr);
}

const struct core_mapping *core_file_mapping(const struct core_file *f, uint64_t addr)
{
	return find_holding(&f->info.mappings, addr);
}

size_t core_file_read(const struct core_file *f, uint64_t addr, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		const struct core_segment *s = core_file_segment(f, addr + done);
		uint64_t skip = s ? addr + done - s->start : 0, left;

		if (!s || skip >= s->kept || addr + done < addr)
			break;
		left = s->kept - skip;
		left = left < len - done ? left : len - done;
		memcpy((uint8_t *)buf + done, f->image + s->offset + skip, left);
		done += left;
	}
	return done;
}
