/* SPDX-License-Identifier: BSD-2-Clause */
/* Names for recordings that were cut short: from the files and the kernel of this machine. */
#include "test.h"

#include <errno.h>

#include "alloc_fail.h"
#include "elf/elf_file.h"
#include "letters.h"

static void __attribute__((noinline)) known_function(void)
{
	__asm__ volatile("");
}

/* The frame of an address in this very program; its mapping is looked up. */
static bool own_frame(
	struct rec *r, const void *code, uint64_t inode_skew, struct record_frame *ret)
{
	struct record_module m = {0};
	char line[512], path[256];
	unsigned long start, end, offset, inode;
	FILE *maps = fopen("/proc/self/maps", "re");
	struct stat st;
	bool found = false;

	while (!found && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx %*s %lu %255s", &start, &end, &offset, &inode,
			    path) != 5)
			continue;
		if ((uintptr_t)code < start || (uintptr_t)code >= end)
			continue;
		found = !stat(path, &st);
	}
	fclose(maps);
	m.path = capture_string(r->w, path);
	m.inode = st.st_ino + inode_skew;
	m.device = st.st_dev;

	struct elf_file *f = NULL;
	const uint8_t *id;
	uint64_t vaddr = 0;

	if (!found || elf_file_open_fd(open(path, O_RDONLY | O_CLOEXEC), path, &f, NULL))
		return false;
	m.build_id_bytes = (uint8_t)elf_file_build_id(f, &id);
	memcpy(m.build_id, id, m.build_id_bytes);
	m.build_id[0] ^= (uint8_t)inode_skew;
	found = elf_file_vaddr_of_offset(f, (uintptr_t)code - start + offset, &vaddr);
	elf_file_free(f);
	*ret = (struct record_frame){.address = vaddr, .module = capture_module(r->w, &m)};
	return found;
}

TEST(names_from_local_files)
{
	struct profile_load_options o = {.name_locally = true};

	for (uint64_t skew = 0; skew < 2; skew++) {
		struct rec r = rec_start();
		struct record_frame f;

		known_function();
		check(own_frame(&r, known_function, skew, &f));
		rec_sample(&r, 100, capture_stack(r.w, CAPTURE_NONE, capture_frame(r.w, &f)),
			UNWIND_ROOT);
		struct profile *p = rec_load(&r, &o);
		/* Another build of the same path names nothing. */
		if (skew) {
			check(function_named(p, "known_function") == PROFILE_NONE);
			check_u64(p->functions.data[0].reason, SYMBOL_NO_FILE);
		} else {
			check(function_named(p, "known_function") != PROFILE_NONE);
		}
		profile_free(p);
	}
}

/* The first function of the kernel whose address we may know, 0 when none. */
static uint64_t kernel_function(char *ret_name)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	unsigned long address = 0;
	char line[512], type = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx %c %127s", &address, &type, ret_name) == 3 && type == 'T' &&
			address)
			break;
	if (f)
		fclose(f);
	return type == 'T' ? address : 0;
}

/* Kernel addresses mean something until the next start of the machine. */
TEST(kernel_names_of_this_boot)
{
	struct profile_load_options o = {.name_locally = true};
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	char boot_id[64] = "", name[128];
	uint64_t address = kernel_function(name);

	if (!f || !fgets(boot_id, sizeof(boot_id), f) || !address) {
		skip("the kernel hides its addresses or its boot id");
		if (f)
			fclose(f);
		return;
	}
	fclose(f);
	boot_id[strcspn(boot_id, "\n")] = '\0';
	for (int same = 0; same < 2; same++) {
		struct rec r = rec_start();
		struct record_module m = {.kind = MODULE_KERNEL};
		struct record_frame frame = {.address = address, .kind = FRAME_KERNEL};

		capture_meta(r.w, "boot_id", same ? boot_id : "another");
		m.path = capture_string(r.w, "[kernel]");
		frame.module = capture_module(r.w, &m);
		rec_sample(&r, 100, capture_stack(r.w, CAPTURE_NONE, capture_frame(r.w, &frame)),
			UNWIND_ROOT);

		struct profile *p = rec_load(&r, &o);

		check(p->functions.data[0].kernel);
		check(p->functions.data[0].unresolved == !same);
		if (!same)
			check_u64(p->functions.data[0].reason, SYMBOL_NO_FILE);
		profile_free(p);
	}
}

/* Naming gives up on names before it gives up on the profile, and never falls over. */
TEST(no_memory_to_name)
{
	struct profile_load_options o = {.name_locally = true};
	struct rec r = rec_start();
	struct record_frame f;

	check(own_frame(&r, known_function, 0, &f));
	rec_sample(&r, 100, capture_stack(r.w, CAPTURE_NONE, capture_frame(r.w, &f)), UNWIND_ROOT);
	struct bytes b = rec_bytes(&r);
	for (uint64_t n = 0; n < 150; n++) {
		struct profile *p = NULL;

		alloc_fail_begin(n);
		int rc = profile_load_memory(b.data, b.len, &o, &p, NULL);
		alloc_fail_end();
		check(rc == -ENOMEM || (!rc && p));
		profile_free(p);
	}
	free(b.data);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(names_from_local_files), T(kernel_names_of_this_boot),
		T(no_memory_to_name));
}
