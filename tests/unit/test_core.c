/* SPDX-License-Identifier: BSD-2-Clause */
/* Core files: what is in them, what is wrong with them, and which files belong to them. */
#include "core_bytes.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "elf/core_file.h"
#include "elf/elf_file.h"
#include "sample/snapshot/core.h"

#define TEXT 0x400000u
#define DATA 0x600000u
#define STACK 0x7ffe00000000u

static uint64_t regs[CORE_REGS];

/* Two threads, a file of which the core has the first page, data, and a stack that leaves out its end. */
static void make_plain(struct core_maker *m)
{
	static const uint8_t bytes[4096] = {1, 2, 3};

	core_add_process(m, 77, "na\nme", "./name -v  ");
	core_add_thread(m, 77, SIGSEGV, regs);
	core_add_signal(m, SIGSEGV, 1, 0xdead);
	core_add_file(m, TEXT, TEXT + 0x3000, 1, "/no/such/program");
	core_add_thread(m, 78, 0, regs);
	core_add_signal(m, SIGTERM, 0, 0);
	core_add_memory(m, STACK, 0x2000, PF_R | PF_W, bytes, 4096);
	core_add_memory(m, DATA, 0x1000, PF_R | PF_W, bytes, 4096);
	core_add_memory(m, DATA + 0x1000, 0x1000, PF_R, bytes, 4096);
	core_add_memory(m, TEXT, 0x3000, PF_R | PF_X, bytes, 0);
}

static struct core_file *open_bytes(const struct buf *bytes)
{
	struct core_file *f = NULL;
	struct err err = {0};

	if (core_file_open_memory(bytes->data, bytes->len, "test", &f, &err))
		printf("%s\n", err.text);
	check(f);
	return f;
}

TEST(what_is_in_it)
{
	struct core_maker m = {0};
	struct buf bytes = {0};
	uint8_t got[4096 * 3];

	regs[CORE_SP] = STACK + 64;
	make_plain(&m);
	core_make(&m, &bytes);
	struct core_file *f = open_bytes(&bytes);
	if (!f)
		return;
	const struct core_info *i = core_file_info(f);

	check_u64(i->pid, 77);
	check_str(i->name, "na?me");
	check_str(i->arguments, "./name -v");
	check_u64(i->threads.len, 2);
	check_u64(i->threads.data[1].tid, 78);
	check_u64(i->threads.data[0].regs[CORE_SP], STACK + 64);
	check(i->has_signal && i->signal == SIGSEGV && i->signal_code == 1);
	check_u64(i->signal_address, 0xdead);
	check_u64(i->missing_bytes, 0);
	check_u64(i->segments.len, 4);
	check_u64(i->segments.data[0].start, TEXT);
	check_u64(i->mappings.len, 1);
	check_u64(i->mappings.data[0].offset, 4096);
	check_str(i->mappings.data[0].path, "/no/such/program");
	/* On from one segment into the next, and no further; nothing where nothing was kept. */
	check_u64(core_file_read(f, DATA + 1, got, sizeof(got)), 8191);
	check(got[0] == 2 && got[4095] == 1);
	check_u64(core_file_read(f, STACK, got, sizeof(got)), 4096);
	check_u64(core_file_read(f, STACK + 0x1000, got, 1), 0);
	check_u64(core_file_read(f, TEXT, got, 1), 0);
	check_u64(core_file_read(f, UINT64_MAX, got, 16), 0);
	check(core_file_segment(f, TEXT - 1) == NULL && core_file_mapping(f, TEXT + 0x3000) == NULL);
	core_file_free(f);
	buf_release(&bytes);
}

TEST(cut_off_anywhere)
{
	struct core_maker m = {0};
	struct buf bytes = {0};
	uint64_t last = UINT64_MAX;
	size_t opened = 0;

	make_plain(&m);
	core_make(&m, &bytes);
	for (size_t len = 0; len <= bytes.len; len += len < 2048 || len + 64 > bytes.len ? 1 : 61) {
		uint8_t *cut = malloc(len + 1), got[64];
		struct core_file *f = NULL;

		memcpy(cut, bytes.data, len);
		cut = realloc(cut, len ? len : 1); /* so that a sanitizer sees the end */
		if (!core_file_open_memory(cut, len, "cut", &f, NULL)) {
			const struct core_info *i = core_file_info(f);

			opened++;
			check(i->missing_bytes <= last && (len < bytes.len) == (i->missing_bytes > 0));
			last = i->missing_bytes;
			core_file_read(f, STACK, got, sizeof(got));
			core_file_read(f, DATA + 0x1fc0, got, sizeof(got));
			core_file_free(f);
		}
		free(cut);
	}
	check(opened > 100);
	buf_release(&bytes);
}

TEST(number_of_segments_elsewhere)
{
	struct core_maker m = {.extended = true};
	struct buf bytes = {0};

	make_plain(&m);
	core_make(&m, &bytes);
	struct core_file *f = open_bytes(&bytes);
	check(f && core_file_info(f)->segments.len == 4);
	core_file_free(f);
	buf_release(&bytes);
}

static void refused(const void *bytes, size_t len, const char *words)
{
	struct core_file *f = NULL;
	struct err err = {0};

	check(core_file_open_memory(bytes, len, "it", &f, &err) == -ENOEXEC && !f);
	if (!strstr(err.text, words))
		printf("%s\n", err.text);
	check(strstr(err.text, words));
}

TEST(not_a_core)
{
	struct core_maker m = {0};
	struct buf bytes = {0};
	uint8_t zeros[256] = {0}, *h;

	refused(zeros, 3, "too short");
	refused(zeros, sizeof(zeros), "not a core");
	memcpy(zeros, "\x28\xb5\x2f\xfd", 4);
	refused(zeros, sizeof(zeros), "unzstd");
	core_make(&m, &bytes);
	refused(bytes.data, bytes.len, "nothing of threads");
	h = (uint8_t *)bytes.data;
	h[EI_CLASS] = ELFCLASS32;
	refused(bytes.data, bytes.len, "64-bit");
	h[EI_CLASS] = ELFCLASS64;
	h[offsetof(Elf64_Ehdr, e_type)] = ET_DYN;
	refused(bytes.data, bytes.len, "not a core");
	buf_release(&bytes);
	struct core_file *f;
	check(core_file_open_fd(open("/dev/null", O_RDONLY), "null", &f, NULL) == -ENOEXEC);
}

/* Headers that lie about where things are, and how many. */
TEST(lies)
{
	static const uint8_t page[4096] = {7};
	uint64_t many[5] = {UINT64_MAX / 24 + 2, 4096, 1, 2, 3}, wide[5] = {1, UINT64_MAX, 0x1000, 0x2000, 9};
	struct core_maker m = {0};
	struct buf bytes = {0};
	uint8_t got[64];

	core_add_thread(&m, -5, 0, regs);
	core_add_thread(&m, 5, 0, regs);
	core_add_note(&m, NT_PRSTATUS, page, 40);
	core_add_note(&m, NT_FILE, many, sizeof(many));
	core_add_note(&m, NT_FILE, wide, sizeof(wide)); /* and its name is missing */
	core_add_note(&m, NT_AUXV, page, 24);
	core_add_memory(&m, UINT64_MAX - 100, 4096, PF_R, page, 4096);  /* wraps round */
	core_add_memory(&m, 0x1000, 0x2000, PF_R, page, 4096);
	core_add_memory(&m, 0x1800, 0x2000, PF_R, page, 4096);          /* overlaps */
	core_add_memory(&m, 0x9000, 16, PF_R, page, 4096);              /* more in the file than in memory */
	core_add_memory(&m, 0xb000, 0x1000, PF_R, page, 4096);
	m.segments[4].p_offset = UINT64_MAX - 0x20000;
	core_make(&m, &bytes);
	struct core_file *f = open_bytes(&bytes);
	if (!f)
		return;
	const struct core_info *i = core_file_info(f);

	check_u64(i->threads.len, 1);
	check_u64(i->pid, 5);
	check_u64(i->mappings.len, 0);
	check_u64(i->segments.len, 3);
	check_u64(core_file_read(f, 0x9000, got, sizeof(got)), 16);
	check_u64(core_file_read(f, 0xb000, got, sizeof(got)), 0);
	check_u64(i->missing_bytes, 4096);
	core_file_free(f);
	buf_release(&bytes);
}

/* ---- files ---- */

struct own {
	char path[256];
	uint8_t *head;
	size_t bytes;
	struct elf_file *file;
};

static void open_own(struct own *o)
{
	ssize_t len = readlink("/proc/self/exe", o->path, sizeof(o->path) - 1);
	const uint8_t *image;
	size_t size;

	o->path[len > 0 ? len : 0] = '\0';
	check(!elf_file_open_fd(open(o->path, O_RDONLY | O_CLOEXEC), o->path, &o->file, NULL));
	image = elf_file_image(o->file, &size);
	o->bytes = 4096;
	o->head = malloc(o->bytes);
	memcpy(o->head, image, o->bytes);
}

static void close_own(struct own *o)
{
	elf_file_free(o->file);
	free(o->head);
}

static struct core *open_made(struct core_maker *m, const char *root)
{
	struct buf bytes = {0};
	struct core *c = NULL;
	struct err err = {0};
	int fd = memfd_create("core", MFD_CLOEXEC);
	char path[64];

	core_make(m, &bytes);
	check(write(fd, bytes.data, bytes.len) == (ssize_t)bytes.len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (core_open(path, root, &c, &err))
		printf("%s\n", err.text);
	check(c);
	close(fd);
	buf_release(&bytes);
	return c;
}

struct seen {
	struct proc_mapping mappings[8];
	size_t count;
	enum core_found found; /* CORE_NOT_LOOKED_FOR: nobody told */
	size_t read;           /* of what the core leaves out */
};

static int note_mapping(void *ctx, const struct proc_mapping *m)
{
	struct seen *s = ctx;

	if (s->count < 8)
		s->mappings[s->count++] = *m;
	return 0;
}

static void note_found(void *ctx, const char *path, enum core_found found)
{
	(void)path;
	((struct seen *)ctx)->found = found;
}

/* A core in which that file is mapped, and of which so much is kept. */
static struct seen find(const char *path, const void *head, size_t head_bytes, const char *root)
{
	struct core_maker m = {0};
	struct seen seen = {0};
	uint8_t got[256];

	core_add_thread(&m, 5, 0, regs);
	core_add_file(&m, TEXT, TEXT + 0x3000, 0, path);
	core_add_memory(&m, TEXT, 0x3000, PF_R | PF_X, head, head_bytes);
	struct core *c = open_made(&m, root);
	if (!c)
		return seen;
	const struct source *s = core_source(c);

	check(!s->ops->each_mapping(s, 5, note_mapping, &seen, NULL));
	check(seen.count == 1 && seen.mappings[0].exec && seen.mappings[0].inode);
	seen.read = source_read_some(s, 5, TEXT + 0x2000 - 128, got, sizeof(got));
	core_each_file(c, note_found, &seen);
	core_free(c);
	return seen;
}

TEST(which_file)
{
	const uint8_t *image, *id;
	char deleted[300];
	struct own o;
	size_t size;

	open_own(&o);
	image = elf_file_image(o.file, &size);
	snprintf(deleted, sizeof(deleted), "%s (deleted)", o.path);

	struct seen s = find(o.path, o.head, o.bytes, NULL);
	check(s.found == CORE_FOUND && s.read == 256);
	s = find(deleted, o.head, o.bytes, NULL);
	check(s.found == CORE_FOUND && s.read == 256);
	s = find(o.path, "", 0, NULL);
	check(s.found == CORE_UNCHECKED && s.read == 256);
	s = find(deleted, "", 0, NULL);
	check(s.found == CORE_ANOTHER && s.read == 0);
	s = find("/no/such/file", o.head, o.bytes, NULL);
	check(s.found == CORE_MISSING && s.read == 0);
	s = find("/dev/null", "", 0, NULL);
	check(s.found == CORE_NOT_LOOKED_FOR && s.read == 0);
	s = find(o.path, o.head, o.bytes, "/proc/self/fdinfo");
	check(s.found == CORE_MISSING && s.read == 0);
	s = find(o.path, "no ELF file, and long enough to be the header of one, if one looks at nothing else", 80, NULL);
	check(s.found == CORE_ANOTHER && s.read == 0);

	/* Another build: another id, or where there is none other headers. */
	if (elf_file_build_id(o.file, &id) && id - image < 4096)
		o.head[id - image] ^= 1;
	o.head[sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_memsz)] ^= 8;
	s = find(o.path, o.head, o.bytes, NULL);
	check(s.found == CORE_ANOTHER && s.read == 0);
	close_own(&o);
}

/* What a process could write to is not what the file says. */
TEST(written_memory_is_not_the_files)
{
	struct core_maker m = {0};
	struct own o;
	uint8_t got;

	open_own(&o);
	core_add_thread(&m, 5, 0, regs);
	core_add_file(&m, DATA, DATA + 0x2000, 0, o.path);
	core_add_memory(&m, DATA, 0x2000, PF_R | PF_W, o.head, o.bytes);
	struct core *c = open_made(&m, NULL);
	check(c && source_read(core_source(c), 5, DATA + 4095, &got, 1));
	check(c && !source_read(core_source(c), 5, DATA + 4096, &got, 1));
	core_free(c);
	close_own(&o);
}

TEST(mappings_in_order)
{
	uint64_t auxv[] = {AT_SYSINFO_EHDR, DATA + 0x1000, AT_RANDOM, STACK + 8, AT_NULL, 0};
	struct core_maker m = {0};
	struct seen seen = {0};

	core_add_thread(&m, 5, 0, regs);
	core_add_note(&m, NT_AUXV, auxv, sizeof(auxv));
	core_add_file(&m, TEXT + 0x1000, TEXT + 0x2000, 0, "/no/such/file");
	core_add_memory(&m, STACK, 0x1000, PF_R | PF_W, "", 0);
	core_add_memory(&m, TEXT, 0x3000, PF_R | PF_X, "", 0); /* around the file, which it cannot be */
	core_add_memory(&m, DATA + 0x1000, 0x1000, PF_R | PF_X, "", 0);
	struct core *c = open_made(&m, NULL);
	if (!c)
		return;
	const struct source *s = core_source(c);

	check(!s->ops->each_mapping(s, 5, note_mapping, &seen, NULL));
	check(s->ops->each_mapping(s, 6, note_mapping, &seen, NULL) == -ESRCH);
	check_u64(seen.count, 5);
	check(seen.mappings[0].start == TEXT && seen.mappings[0].end == TEXT + 0x1000);
	check(seen.mappings[1].start == TEXT + 0x1000 && !strcmp(seen.mappings[1].path, "/no/such/file"));
	check(seen.mappings[2].start == TEXT + 0x2000 && seen.mappings[2].end == TEXT + 0x3000);
	check_str(seen.mappings[3].path, "[vdso]");
	check_str(seen.mappings[4].path, "[stack]");
	core_free(c);
}

/* ---- threads ---- */

#if defined(__x86_64__)
static struct thread_look look_of(int64_t result, int64_t call)
{
	struct core_maker m = {0};
	struct thread_looks looks = {0};
	struct thread_look got = {0};

	regs[CORE_RAX] = (uint64_t)result;
	regs[CORE_ORIG_RAX] = (uint64_t)call;
	regs[CORE_RDI] = 0x1234;
	regs[CORE_PC] = TEXT;
	core_add_thread(&m, 9, SIGSTOP, regs);
	core_add_thread(&m, 7, 0, regs);
	core_add_thread(&m, 7, 0, regs); /* twice */
	struct core *c = open_made(&m, NULL);
	if (!c)
		return got;
	struct look *l = core_look(c);

	check(!l->ops->read(l, 9, 0, &looks, NULL) && looks.len == 2 && looks.data[0].tid == 7);
	got = looks.data[1];
	check(got.tid == 9 && !got.killed_by && got.regs.value[UNWIND_X86_PC] == TEXT);
	check(!l->ops->read(l, 9, 7, &looks, NULL) && looks.len == 1);
	check(l->ops->read(l, 9, 8, &looks, NULL) == -ESRCH);
	check(l->ops->read(l, 1, 0, &looks, NULL) == -ESRCH);
	vec_release(&looks);
	core_free(c);
	return got;
}

TEST(calls)
{
	struct thread_look t = look_of(-512, SYS_futex);

	check(t.wait.blocked && t.wait.state == 'S' && t.wait.syscall == SYS_futex);
	check_u64(t.wait.args[0], 0x1234);
	t = look_of(-EINTR, SYS_epoll_wait);
	check(t.wait.blocked && t.wait.syscall == SYS_epoll_wait);
	t = look_of(0, SYS_tgkill); /* it has returned */
	check(!t.wait.blocked && t.wait.state == 'R' && t.wait.syscall == -1);
	t = look_of(-512, -1); /* in no call */
	check(!t.wait.blocked);
}
#else
TEST(calls)
{
	skip("a core tells no calls on this architecture");
}
#endif

TEST(who_was_killed)
{
	static const int signals[] = {SIGSEGV, SIGSTOP, 0, SIGABRT};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct core_maker m = {0};

		core_add_thread(&m, 9, signals[i], regs);
		core_add_thread(&m, 10, signals[i], regs);
		struct core *c = open_made(&m, NULL);
		check_u64(c ? core_signal(c) : 99, signals[i] == SIGSTOP ? 0 : signals[i]);
		core_free(c);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(what_is_in_it), T(cut_off_anywhere),
		T(number_of_segments_elsewhere), T(not_a_core), T(lies), T(which_file),
		T(written_memory_is_not_the_files), T(mappings_in_order), T(calls), T(who_was_killed));
}
