/* SPDX-License-Identifier: BSD-2-Clause */
/* Object files: those of this machine, those of fixtures/make-symbols, and damaged ones. */
#include "symbol_fixtures.h"
#include "test.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/in_root.h"
#include "elf/elf_file.h"

static struct elf_file *open_file(const char *path)
{
	struct elf_file *f = NULL;
	struct err err = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	check(fd >= 0);
	if (fd >= 0 && elf_file_open_fd(fd, path, &f, &err))
		printf("%s\n", err.text);
	check(f != NULL);
	return f;
}

static struct elf_file *open_fixture(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", FIXTURES, name);
	return open_file(path);
}

struct wanted {
	const char *name;
	struct elf_symbol found;
	int count;
};

static int note_symbol(void *ctx, const struct elf_symbol *sym)
{
	struct wanted *w = ctx;

	if (!strcmp(sym->name, w->name)) {
		w->found = *sym;
		w->count++;
	}
	return 0;
}

static struct wanted find_symbol(struct elf_file *f, const char *name)
{
	struct wanted w = {.name = name};

	check(!elf_file_each_symbol(f, note_symbol, &w));
	return w;
}

TEST(ourselves)
{
	struct elf_file *f = open_file("/proc/self/exe");
	const struct elf_segment *segments;
	struct elf_section text;
	uint64_t vaddr;

	if (!f)
		return;
	check(elf_file_is_executable(f));
	check(elf_file_machine(f) == EM_X86_64 || elf_file_machine(f) == EM_AARCH64);
	check(elf_file_segments(f, &segments) >= 2);
	check(elf_file_section(f, ".text", &text) && text.size);
	check(elf_file_bytes_at(f, text.vaddr, text.size) == text.bytes);
	check(elf_file_bytes_at(f, text.vaddr, 1ULL << 40) == NULL);
	size_t size;
	const uint8_t *image = elf_file_image(f, &size);
	check(elf_file_vaddr_of_offset(f, (uint64_t)(text.bytes - image), &vaddr));
	check_u64(vaddr, text.vaddr);
	check(!elf_file_vaddr_of_offset(f, size + 1, &vaddr));
	check(elf_file_same_section(f, text.vaddr, text.vaddr + text.size - 1));
	check(!elf_file_same_section(f, text.vaddr, text.vaddr + text.size));
	check(!elf_file_same_section(f, text.vaddr, text.vaddr - 1));
	check(!elf_file_section(f, ".no-such", &text));
	struct wanted w = find_symbol(f, "main");
	check_u64((uint64_t)w.count, 1);
	check(w.found.end > w.found.start && w.found.binding == STB_GLOBAL);
	elf_file_free(f);
}

TEST(not_elf)
{
	struct elf_file *f = NULL;
	struct err err = {0};

	check(elf_file_open_fd(open("/dev/null", O_RDONLY), "null", &f, &err) == -ENOEXEC);
	check(strstr(err.text, "null"));
	check(elf_file_open_fd(open("/etc/passwd", O_RDONLY), "passwd", &f, &err) == -ENOEXEC);
	check(elf_file_open_memory("\x7f" "ELF", 4, "short", &f, &err) == -ENOEXEC);
	check(f == NULL);
}

TEST(build_id)
{
	struct elf_file *f = open_fixture("chain-build-id");
	const uint8_t *id;

	if (!f)
		return;
	check_u64(elf_file_build_id(f, &id), 8);
	check(!memcmp(id, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8));
	elf_file_free(f);
	f = open_fixture("chain");
	check_u64(elf_file_build_id(f, &id), 0);
	elf_file_free(f);
}

TEST(compressed_sections)
{
	static const char *const names[] = {"chain-zlib", "chain-zlib-gnu"};
	struct elf_file *plain = open_fixture("chain");
	struct elf_section want, got;

	check(elf_file_section(plain, ".debug_info", &want));
	check(!elf_file_has_compressed_debug(plain));
	for (size_t i = 0; i < 2; i++) {
		struct elf_file *f = open_fixture(names[i]), *image;
		uint8_t *bytes;
		size_t size;

		check(elf_file_has_compressed_debug(f));
		check(elf_file_section(f, ".debug_info", &got));
		check_u64(got.size, want.size);
		check(got.size == want.size && !memcmp(got.bytes, want.bytes, want.size));
		check(!elf_file_plain_debug_image(f, &bytes, &size, NULL));
		check(!elf_file_open_memory(bytes, size, "image", &image, NULL));
		check(elf_file_section(image, ".debug_info", &got) && got.size == want.size &&
			!memcmp(got.bytes, want.bytes, want.size));
		check(!elf_file_has_compressed_debug(image));
		free(bytes);
		elf_file_free(image);
		elf_file_free(f);
	}
	elf_file_free(plain);
}

/* An ELF file with one SHF_COMPRESSED section of `packed`, which claims `plain_size`. */
static struct elf_file *with_compressed(
	uint32_t kind, const void *packed, size_t packed_size, uint64_t plain_size)
{
	static const char names[] = "\0.debug_info\0.shstrtab";
	struct buf b = {0};
	Elf64_Chdr c = {.ch_type = kind, .ch_size = plain_size, .ch_addralign = 1};
	Elf64_Ehdr e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN, .e_machine = EM_X86_64, .e_shoff = sizeof(e),
		.e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 2};
	const uint64_t at = sizeof(e) + 3 * sizeof(Elf64_Shdr);
	Elf64_Shdr s[3] = {{0},
		{.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_COMPRESSED,
			.sh_offset = at + sizeof(names), .sh_size = sizeof(c) + packed_size},
		{.sh_name = 13, .sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = sizeof(names)}};
	struct elf_file *f = NULL;

	buf_add(&b, &e, sizeof(e));
	buf_add(&b, s, sizeof(s));
	buf_add(&b, names, sizeof(names));
	buf_add(&b, &c, sizeof(c));
	buf_add(&b, packed, packed_size);
	check(!elf_file_open_memory(b.data, b.len, "crafted", &f, NULL));
	buf_release(&b);
	return f;
}

TEST(zstd_sections_and_bombs)
{
	char plain[5000], packed[6000];
	struct elf_section got;

	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] = (char)(i * i >> 5);
	size_t n = ZSTD_compress(packed, sizeof(packed), plain, sizeof(plain), 3);
	check(!ZSTD_isError(n) && n < sizeof(plain));
	struct elf_file *f = with_compressed(2, packed, n, sizeof(plain));
	check(elf_file_section(f, ".debug_info", &got) && got.size == sizeof(plain));
	check(got.size == sizeof(plain) && !memcmp(got.bytes, plain, got.size));
	elf_file_free(f);

	f = with_compressed(2, packed, n, 1ULL << 40); /* too much for what is there */
	check(!elf_file_section(f, ".debug_info", &got));
	elf_file_free(f);
	f = with_compressed(2, packed, n, 4000); /* less than it really is */
	check(!elf_file_section(f, ".debug_info", &got));
	elf_file_free(f);
	f = with_compressed(1, "garbage", 7, 7);
	check(!elf_file_section(f, ".debug_info", &got));
	check(!elf_file_section(f, ".debug_info", &got)); /* and stays broken */
	elf_file_free(f);
	f = with_compressed(77, "garbage", 7, 7);
	check(!elf_file_section(f, ".debug_info", &got));
	elf_file_free(f);
}

TEST(without_section_headers)
{
	struct elf_file *f = open_fixture("chain"), *bare = NULL;
	struct elf_section want, got;
	Elf64_Ehdr e;
	size_t size;
	const uint8_t *image = elf_file_image(f, &size);
	uint8_t *copy = malloc(size);

	memcpy(copy, image, size);
	memcpy(&e, copy, sizeof(e));
	e.e_shoff = 0;
	e.e_shnum = 0;
	memcpy(copy, &e, sizeof(e));
	check(!elf_file_open_memory(copy, size, "bare", &bare, NULL));
	free(copy);
	check(elf_file_section(f, ".eh_frame_hdr", &want));
	check(elf_file_section(bare, ".eh_frame_hdr", &got));
	check(got.vaddr == want.vaddr && got.size == want.size);
	check(!memcmp(got.bytes, want.bytes, want.size));
	check(elf_file_section(f, ".eh_frame", &want));
	check(elf_file_section(bare, ".eh_frame", &got));
	check(got.vaddr == want.vaddr && got.size >= want.size);
	check(!memcmp(got.bytes, want.bytes, want.size));
	check(!elf_file_section(bare, ".text", &got));
	elf_file_free(bare);
	elf_file_free(f);
}

/* A digest of the symbols that the loader knows, in the order of the file. */
struct digest {
	uint64_t count, sum;
};

static int add_dynamic(void *ctx, const struct elf_symbol *sym)
{
	struct digest *d = ctx;

	if (!sym->dynamic)
		return 0;
	d->count++;
	d->sum = d->sum * 31 + sym->start + sym->end;
	for (const char *at = sym->name; *at; at++)
		d->sum = d->sum * 31 + (unsigned char)*at;
	return 0;
}

static struct digest dynamic_digest(struct elf_file *f)
{
	struct digest d = {0};

	elf_file_each_symbol(f, add_dynamic, &d);
	return d;
}

/* The segments of the C library as they would be mapped, with and without the loader's hand in them. */
TEST(symbols_of_a_loaded_image)
{
	void *here = (void *)(uintptr_t)gnu_get_libc_version;
	Dl_info info;

	check(dladdr(here, &info));
	struct elf_file *f = open_file(info.dli_fname), *loaded;
	const struct elf_segment *s;
	size_t size, count = elf_file_segments(f, &s);
	const uint8_t *image = elf_file_image(f, &size);
	struct digest want = dynamic_digest(f);

	check(want.count > 1000);
	for (int from_memory = 0; from_memory < 2; from_memory++) {
		uint8_t *copy = calloc(1, size);

		for (size_t i = 0; i < count; i++) {
			struct iovec to = {copy + s[i].offset, s[i].file_size};
			struct iovec from = {(uint8_t *)info.dli_fbase + s[i].vaddr, s[i].file_size};

			if (from_memory)
				check(process_vm_readv(getpid(), &to, 1, &from, 1, 0) ==
					(ssize_t)s[i].file_size);
			else
				memcpy(to.iov_base, image + s[i].offset, s[i].file_size);
		}
		check(!elf_file_open_loaded(
			copy, size, (uint64_t)(uintptr_t)info.dli_fbase, "libc", &loaded, NULL));
		struct digest got = dynamic_digest(loaded);
		struct elf_section eh;

		check_u64(got.count, want.count);
		check_u64(got.sum, want.sum);
		check(elf_file_section(loaded, ".eh_frame", &eh) && eh.size > 1000);
		elf_file_free(loaded);
	}
	elf_file_free(f);
}

TEST(debug_file_by_link)
{
	struct elf_file *f = open_fixture("links/chain"), *debug = NULL;

	check(!find_symbol(f, "hidden").count);
	check(!elf_file_open_debug(f, "", &debug, NULL));
	check(debug != NULL);
	if (debug) {
		check_u64((uint64_t)find_symbol(debug, "hidden").count, 1);
		check(elf_file_has_section(debug, ".debug_info"));
	}
	elf_file_free(debug);
	elf_file_free(f);
}

static int copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ssize_t n;

	while ((n = sendfile(out, in, NULL, 1 << 20)) > 0)
		;
	return close(in) | close(out) | (n != 0);
}

/* Below a root of its own, a file of the right name and the wrong contents is not taken, and
 * neither is what a symlink points to outside. */
TEST(debug_file_by_link_in_root)
{
	char dir[] = "/tmp/sonde-test-XXXXXX", path[128], name[128];
	struct elf_file *f = NULL, *debug = NULL;

	check(mkdtemp(dir) != NULL);
	int fd = open(FIXTURES "/links/chain", O_RDONLY | O_CLOEXEC);
	check(!elf_file_open_fd(fd, "/bin/chain", &f, NULL));
	snprintf(path, sizeof(path), "%s/bin", dir);
	check(!mkdir(path, 0700));
	snprintf(name, sizeof(name), "%s/bin/chain.debug", dir);
	fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	check(write(fd, "\x7f" "ELF", 4) == 4 && !close(fd));
	check(!elf_file_open_debug(f, dir, &debug, NULL) && !debug);
	check(!unlink(name) && !symlink(FIXTURES "/links/.debug/chain.debug", name));
	check(!elf_file_open_debug(f, dir, &debug, NULL) && !debug);
	check(!elf_file_open_debug(f, "", &debug, NULL) && !debug);
	check(!unlink(name) && !copy_file(FIXTURES "/links/.debug/chain.debug", name));
	check(!elf_file_open_debug(f, dir, &debug, NULL) && debug);
	elf_file_free(debug);
	elf_file_free(f);
	check(!unlink(name) && !rmdir(path) && !rmdir(dir));
}

TEST(debug_file_by_build_id)
{
	struct elf_file *f = open_fixture("chain-build-id"), *debug = NULL;

	check(!elf_file_open_debug(f, "", &debug, NULL) && !debug);
	check(!elf_file_open_debug_in(f, "", FIXTURES "/debug", &debug, NULL));
	check(debug && find_symbol(debug, "hidden").count == 1);
	elf_file_free(debug);
	check(!elf_file_open_debug_in(f, FIXTURES, "/debug", &debug, NULL));
	check(debug != NULL);
	elf_file_free(debug);
	elf_file_free(f);
}

TEST(minidebug)
{
	struct elf_file *f = open_fixture("chain-mini"), *mini = NULL;

	check(!elf_file_open_minidebug(f, &mini, NULL));
	check(mini && find_symbol(mini, "hidden").count == 1);
	elf_file_free(mini);
	elf_file_free(f);
	f = open_fixture("chain");
	check(!elf_file_open_minidebug(f, &mini, NULL) && !mini);
	elf_file_free(f);
}

TEST(opens_only_inside_the_root)
{
	char dir[] = "/tmp/sonde-test-XXXXXX", path[128];

	check(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/up", dir);
	check(!symlink("../../../../etc/passwd", path));
	check(in_root_open(dir, "/up", false) < 0);
	check(!unlink(path) && !mkfifo(path, 0600));
	check(in_root_open(dir, "/up", false) == -EINVAL); /* and does not block */
	check(!unlink(path));
	check(in_root_open(dir, "/../../etc/passwd", false) < 0);
	check(in_root_open(dir, "/none", false) == -ENOENT);
	check(in_root_open("", "/dev/null", false) == -EINVAL);
	int fd = in_root_open("", "/proc/self/maps", false);
	check(fd < 0 || !close(fd));
	check(!rmdir(dir));
}

/* Reads behind the end of a truncated file, in a child, guarded or not. */
static int read_truncated(bool guarded)
{
	char path[] = "/tmp/sonde-test-XXXXXX";
	int fd = mkstemp(path), status = 0;
	pid_t pid;

	if (fd < 0 || ftruncate(fd, 8192))
		return -1;
	unlink(path);
	pid = fork();
	if (!pid) {
		signal(SIGBUS, SIG_DFL);
		if (guarded)
			elf_guard_sigbus();
		volatile char *bytes = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes == MAP_FAILED || ftruncate(fd, 0))
			_exit(9);
		char got = bytes[5000];
		_exit(got == 0 && elf_guard_zeroed_pages() == 1 ? 0 : 8);
	}
	close(fd);
	waitpid(pid, &status, 0);
	return status;
}

TEST(truncated_while_mapped)
{
	int status = read_truncated(true);

	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	status = read_truncated(false);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* Every cut and a flip of every header byte: answers may differ, reads stay inside (ASan). */
TEST(damaged)
{
	struct elf_file *f = open_fixture("chain"), *broken;
	size_t size;
	const uint8_t *image = elf_file_image(f, &size);
	uint8_t *copy = malloc(size);
	struct elf_section s;

	for (size_t cut = 0; cut < size; cut += 97) {
		if (elf_file_open_memory(image, cut, "cut", &broken, NULL))
			continue;
		find_symbol(broken, "main");
		elf_file_section(broken, ".eh_frame", &s);
		elf_file_free(broken);
	}
	const uint64_t tables = size - 64 * 45;
	for (size_t i = 0; i < size; i = i == 64 + 56 * 13 ? tables : i + 1) {
		memcpy(copy, image, size);
		copy[i] ^= 0xff;
		if (elf_file_open_memory(copy, size, "flip", &broken, NULL))
			continue;
		find_symbol(broken, "main");
		elf_file_section(broken, ".eh_frame", &s);
		elf_file_section(broken, ".debug_info", &s);
		elf_file_free(broken);
	}
	check_u64((uint64_t)find_symbol(f, "main").count, 1);
	free(copy);
	elf_file_free(f);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(ourselves), T(not_elf), T(build_id), T(compressed_sections),
		T(zstd_sections_and_bombs), T(without_section_headers), T(symbols_of_a_loaded_image), T(debug_file_by_link),
		T(debug_file_by_link_in_root), T(debug_file_by_build_id), T(minidebug),
		T(opens_only_inside_the_root), T(truncated_while_mapped), T(damaged));
}
