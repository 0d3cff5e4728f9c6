/* SPDX-License-Identifier: BSD-2-Clause */
/* Generated code as the unwinder gets it: our own memory, described by a jitdump that we have mapped. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "jitdump_bytes.h"
#include "sample/jit_code.h"
#include "sample/jit_unwind.h"
#include "unwind/table.h"

#define CODE_BYTES 40u

/* A CIE and an FDE that covers CODE_BYTES, for a place right behind the code: the CFA is
 * rsp + 8 and from byte 4 on rsp + 16. `encoding`: 0x1b counts from where it stands. */
static size_t make_table(uint8_t *out, uint8_t encoding)
{
	const uint8_t cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, encoding, 12, 7,
		8, 0x80 | 16, 1, 0, 0};
	const uint8_t program[] = {0x44, 14, 16, 0, 0, 0, 0};
	int32_t words[] = {20, sizeof(cie) + 4, -(int32_t)(CODE_BYTES + sizeof(cie) + 8), CODE_BYTES};

	memcpy(out, cie, sizeof(cie));
	memcpy(out + sizeof(cie), words, sizeof(words));
	out[sizeof(cie) + 16] = 0;
	memcpy(out + sizeof(cie) + 17, program, sizeof(program));
	return sizeof(cie) + 24;
}

static const uint8_t hdr[20] = {1, 0x1b, 3, 0x3b};

/* "8 16": how far the CFA is above rsp at the first byte and at the last. */
static const char *offsets(struct unwind_module *m, uint64_t address)
{
	static char text[32];
	const struct unwind_rule *first = unwind_module_rule(m, address);
	const struct unwind_rule *last = unwind_module_rule(m, address + CODE_BYTES - 1);

	snprintf(text, sizeof(text), "%d %d", first ? first->cfa_offset : -1,
		last ? last->cfa_offset : -1);
	return text;
}

TEST(where_the_table_is)
{
	static const uint8_t code[CODE_BYTES];
	uint8_t behind[128], before[128], counted[128];
	size_t size = make_table(behind, 0x1b);
	struct jit_unwind_input in = {
		.code = code,
		.code_bytes = sizeof(code),
		.address = 0x1000,
		.unwind = behind,
		.unwind_bytes = size + sizeof(hdr),
		.hdr_bytes = sizeof(hdr),
	};

	memcpy(before, hdr, sizeof(hdr));
	memcpy(before + sizeof(hdr), behind, size);
	memcpy(behind + size, hdr, sizeof(hdr));
	for (int i = 0; i < 2; i++) {
		in.unwind = i ? before : behind;
		struct unwind_module *m = jit_unwind_new(&in);

		check(m != NULL);
		if (m)
			check_str(offsets(m, 0x1000), "8 16");
		check(!m || !unwind_module_rule(m, 0x1000 + CODE_BYTES));
		unwind_module_free(m);
	}
	make_table(counted, 0x03); /* absolute: nobody knows from what */
	in.unwind = counted;
	check(!jit_unwind_new(&in));
	in.unwind = hdr;
	in.unwind_bytes = in.hdr_bytes = sizeof(hdr);
	check(!jit_unwind_new(&in));
	in.unwind_bytes = in.hdr_bytes = 0;
	check(!jit_unwind_new(&in));
}

/* ---- in a process ---- */

struct announced {
	char directory[64], path[128];
	int fd;
	uint8_t *code; /* a page of ours */
	struct proc_mapping mapping;
	char mapped_path[4096];
};

static int note_mapping(void *ctx, const struct proc_mapping *m)
{
	struct announced *a = ctx;

	if (strcmp(m->path, a->path))
		return 0;
	a->mapping = *m;
	a->mapping.path = memcpy(a->mapped_path, m->path, strlen(m->path) + 1);
	return 1;
}

static void announce(struct announced *a)
{
	char byte;
	int header = dump_new(0, 0);

	*a = (struct announced){.directory = "/tmp/sonde-test-XXXXXX"};
	check(mkdtemp(a->directory) != NULL);
	snprintf(a->path, sizeof(a->path), "%s/jit-%d.dump", a->directory, (int)getpid());
	a->fd = open(a->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	for (off_t at = 0; pread(header, &byte, 1, at) == 1; at++)
		check(write(a->fd, &byte, 1) == 1);
	close(header);
	check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, a->fd, 0) != MAP_FAILED);
	a->code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(a->code, 0x90, 4096);
	check(proc_each_mapping(getpid(), note_mapping, a, NULL) == 1);
}

static void forget(struct announced *a)
{
	unlink(a->path);
	rmdir(a->directory);
	munmap((void *)(uintptr_t)a->mapping.start, 4096);
	munmap(a->code, 4096);
	close(a->fd);
}

TEST(code_of_a_process)
{
	struct announced a;
	struct jit_code *c = NULL;
	struct jit_function f;
	uint8_t table[128];

	announce(&a);
	uint64_t at = (uint64_t)(uintptr_t)a.code;
	size_t size = make_table(table, 0x1b);

	memcpy(table + size, hdr, sizeof(hdr));
	check(!jit_code_open(getpid(), &a.mapping, &c, NULL));
	check(!jit_code_find(c, getpid(), at, 5, &f));
	dump_unwind(a.fd, table, size + sizeof(hdr), sizeof(hdr), size + sizeof(hdr));
	dump_load(a.fd, 1, at, CODE_BYTES, "with");
	dump_load(a.fd, 1, at + 64, CODE_BYTES, "without");

	check(jit_code_find(c, getpid(), at + 7, 5, &f));
	check(f.start == at && f.end == at + CODE_BYTES && f.unwind);
	if (f.unwind)
		check_str(offsets(f.unwind, f.start - f.bias), "8 16");
	check(jit_code_find(c, getpid(), at + 64 + 39, 5, &f));
	check(f.start == at + 64 && !f.unwind);

	/* Other code lies there by now, of which the dump does not know yet. */
	a.code[20] = 0xcc;
	check(!jit_code_find(c, getpid(), at + 17, 5, &f));
	check(jit_code_find(c, getpid(), at + 35, 5, &f)); /* as far as it was looked at */
	jit_code_free(c);
	forget(&a);
}

TEST(whose_dump_it_is)
{
	struct announced a;
	struct jit_code *c = NULL;

	announce(&a);
	check(jit_code_open(getpid(), &(struct proc_mapping){.path = "/tmp/other"}, &c, NULL) == -ENOENT);
	if (geteuid()) {
		skip("a file can be given away by root only");
	} else {
		check(!fchown(a.fd, 65533, (gid_t)-1));
		check(jit_code_open(getpid(), &a.mapping, &c, NULL) == -EPERM);
	}
	forget(&a);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(where_the_table_is), T(code_of_a_process), T(whose_dump_it_is));
}
