/* SPDX-License-Identifier: BSD-2-Clause */
/* Address spaces as kernel records change them, and the recording session fed by hand. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/reader.h"
#include "capture/writer.h"
#include "sample/modules.h"
#include "sample/processes.h"
#include "sample/session.h"
#include "sample/tail.h"
#include "sample/text_copy.h"

/* Beyond the largest pid, so nobody's. */
#define NOBODY 4194305

struct world {
	struct capture_writer *writer;
	struct module_store *modules;
	struct process_table *table;
	unsigned added;
};

static void count_added(void *ctx, struct process *p, struct space_mapping *m)
{
	((struct world *)ctx)->added++;
}

static void world_init(struct world *w)
{
	*w = (struct world){0};
	check(!capture_writer_to_fd(open("/dev/null", O_WRONLY), "null", &w->writer, NULL));
	check(!module_store_new(w->writer, &source_live, &w->modules, NULL));
	check(!process_table_new(w->modules, count_added, w, &w->table, NULL));
}

static void world_release(struct world *w)
{
	process_table_free(w->table);
	module_store_free(w->modules);
	capture_writer_abandon(w->writer);
}

static void map(struct world *w, struct process *p, uint64_t start, uint64_t end)
{
	struct proc_mapping m = {.start = start, .end = end, .exec = true, .path = "//anon"};

	check(!process_map(w->table, p, &m));
}

/* "10-20 30-40": the mappings of a process, for reading by eye. */
static const char *drawn(const struct process *p)
{
	static char text[512];
	size_t used = 0;

	text[0] = '\0';
	vec_each(&p->mappings, m)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIx64 "-%" PRIx64,
			used ? " " : "", m->start, m->end);
	return text;
}

TEST(a_new_mapping_replaces_what_it_overlaps)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, 4194305);
	map(&w, p, 0x10, 0x20);
	map(&w, p, 0x30, 0x40);
	map(&w, p, 0x20, 0x30);
	check_str(drawn(p), "10-20 20-30 30-40");
	map(&w, p, 0x18, 0x38); /* cuts both neighbours, swallows the middle */
	check_str(drawn(p), "10-18 18-38 38-40");
	map(&w, p, 0x20, 0x28); /* splits one */
	check_str(drawn(p), "10-18 18-20 20-28 28-38 38-40");
	map(&w, p, 0x20, 0x28); /* the same again */
	check_str(drawn(p), "10-18 18-20 20-28 28-38 38-40");
	map(&w, p, 0x00, 0x100);
	check_str(drawn(p), "0-100");
	map(&w, p, 0x200, 0x300);
	map(&w, p, 0x150, 0x160);
	check_str(drawn(p), "0-100 150-160 200-300");
	check_u64(w.added, 9);

	check(!process_mapping(p, 0x100));
	check(process_mapping(p, 0xff)->start == 0);
	check(process_mapping(p, 0x150)->end == 0x160);
	check(!process_mapping(p, 0x300));
	world_release(&w);
}

/* Else the next program of that pid would have the names of the last one's code. */
TEST(generated_code_is_of_one_program)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, NOBODY);
	map(&w, p, 0x10, 0x20);
	struct module *first = process_mapping(p, 0x10)->module;

	map(&w, p, 0x40, 0x50);
	check(process_mapping(p, 0x40)->module == first);
	process_exec(w.table, p, NOBODY);
	map(&w, p, 0x10, 0x20);
	struct module *second = process_mapping(p, 0x10)->module;

	check(second != first && first->over && !second->over);
	check(thread_get(w.table, p, NOBODY));
	thread_exit(w.table, NOBODY, NOBODY);
	p = process_get(w.table, NOBODY);
	map(&w, p, 0x10, 0x20);
	check(process_mapping(p, 0x10)->module != second && second->over);
	world_release(&w);
}

TEST(fork_copies_and_exec_forgets)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, 4194305);
	map(&w, p, 0x10, 0x20);
	struct process *child = process_fork(w.table, p, 4194306, 1);
	map(&w, child, 0x18, 0x30);
	check_str(drawn(child), "10-18 18-30");
	check_str(drawn(p), "10-20");
	process_exec(w.table, child, 4194306);
	check_str(drawn(child), "");
	check_str(drawn(p), "10-20");
	world_release(&w);
}

/* Records of a process that has ended are still to come when /proc knows it no more. */
TEST(a_failed_snapshot_forgets_nothing)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, NOBODY);
	map(&w, p, 0x10, 0x20);
	check(process_snapshot(w.table, p, 77, NULL) == -ESRCH);
	check_str(drawn(p), "10-20");
	check_u64(p->snapshot_ns, 0);
	check_u64(p->refresh_ns, 77);
	world_release(&w);
}

TEST(a_process_goes_with_its_last_thread)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, 100);
	thread_get(w.table, p, 100);
	thread_get(w.table, p, 101);
	thread_exit(w.table, 100, 100); /* the first thread may leave before the others */
	check(process_find(w.table, 100) == p);
	check(!thread_find(w.table, 100));
	thread_exit(w.table, 100, 101);
	check(!process_find(w.table, 100));
	thread_exit(w.table, 100, 101); /* told twice: events and inherited events */

	/* A thread id that another process took over without our seeing the exit. */
	struct process *a = process_get(w.table, 200), *b = process_get(w.table, 300);
	thread_get(w.table, a, 200);
	thread_get(w.table, a, 301);
	check(thread_get(w.table, b, 301)->process == b);
	check_u64(a->threads, 1);
	world_release(&w);
}

TEST(exec_leaves_one_thread)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, 100);
	for (pid_t tid = 100; tid < 120; tid++)
		thread_get(w.table, p, tid);
	process_exec(w.table, p, 100);
	check_u64(p->threads, 1);
	check(thread_find(w.table, 100) && !thread_find(w.table, 101) && !thread_find(w.table, 119));
	thread_exit(w.table, 100, 100);
	check(!process_find(w.table, 100));
	check_u64(process_table_count(w.table), 0);
	world_release(&w);
}

/* Known for a mapping; none of its threads ever ran while we looked. */
TEST(a_process_without_known_threads_goes_too)
{
	struct world w;

	world_init(&w);
	map(&w, process_get(w.table, 100), 0x10, 0x20);
	thread_exit(w.table, 100, 100);
	check(!process_find(w.table, 100));
	world_release(&w);
}


TEST(the_dead_are_swept_once_their_records_are_read)
{
	struct world w;

	world_init(&w);
	for (pid_t pid = NOBODY; pid < NOBODY + 50; pid++) {
		struct process *p = process_get(w.table, pid);

		thread_get(w.table, p, pid);
		thread_get(w.table, p, pid + 1000);
		process_get(w.table, pid + 2000);
	}
	struct process *own = process_get(w.table, getpid());
	thread_get(w.table, own, getpid());
	check(process_table_sweep(w.table));
	check_u64(process_table_count(w.table), 202);
	process_table_sweep(w.table);
	check_u64(process_table_count(w.table), 2);
	check(process_find(w.table, getpid()) == own);
	check(!process_table_sweep(w.table));
	world_release(&w);
}

/* What is mapped and unmapped for ever: munmap is not told. */
TEST(mappings_are_bounded)
{
	struct world w;
	struct proc_mapping m = {.exec = true, .path = "//anon"};

	world_init(&w);
	struct process *p = process_get(w.table, NOBODY);
	for (uint64_t i = 0; i < PROCESS_MAX_MAPPINGS; i++) {
		m.start = i << 13;
		m.end = m.start + 4096;
		if (process_map(w.table, p, &m))
			break;
	}
	check_u64(p->mappings.len, PROCESS_MAX_MAPPINGS);
	m.start += 1 << 13;
	m.end += 1 << 13;
	check(process_map(w.table, p, &m) == -ENOMEM);
	check_u64(process_fork(w.table, p, NOBODY + 1, 1)->mappings.len, 0);
	world_release(&w);
}

static size_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* A command that is gone before its file is opened, over and over; then one that stays. */
TEST(a_file_is_opened_once_whoever_was_gone)
{
	struct world w;
	struct stat st;

	world_init(&w);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	check(!fstat(fd, &st));
	/* No path in our own tree leads to it, so only a process that lives can give it. */
	struct proc_mapping m = {.start = 0x1000, .end = 0x2000, .exec = true,
		.inode = st.st_ino, .device = st.st_dev + 1, .path = "/proc/self/exe"};
	struct module *gone = module_store_mapped(w.modules, NOBODY, &m);
	check(gone && !gone->file);
	check_u64(gone->refused, ESRCH);
	for (pid_t pid = NOBODY + 1; pid < NOBODY + 20; pid++)
		check(module_store_mapped(w.modules, pid, &m) == gone);
	check_u64(module_store_count(w.modules), 1);
	close(fd);
	world_release(&w);
}

static int first_file(void *ctx, const struct proc_mapping *m)
{
	struct proc_mapping *found = ctx;

	if (!m->exec || m->path[0] != '/')
		return 0;
	*found = *m;
	found->path = strdup(m->path);
	return 1;
}

TEST(a_file_that_opens_later_is_kept)
{
	struct world w;
	struct proc_mapping m = {0}, elsewhere;

	world_init(&w);
	proc_each_mapping(getpid(), first_file, &m, NULL);
	elsewhere = m;
	elsewhere.device++; /* another filesystem's as far as our own tree can tell */
	struct module *gone = module_store_mapped(w.modules, NOBODY, &elsewhere);
	check(gone && gone->refused == ESRCH);
	struct module *kept = module_store_mapped(w.modules, getpid(), &elsewhere);
	check(kept && kept != gone && kept->file);
	size_t before = open_descriptors();
	for (pid_t pid = NOBODY; pid < NOBODY + 20; pid++)
		check(module_store_mapped(w.modules, pid, &elsewhere) == kept);
	check_u64(module_store_count(w.modules), 2);
	check_u64(open_descriptors(), before);
	free((char *)m.path);
	world_release(&w);
}

TEST(object_files_leave_descriptors_for_others)
{
	struct world w;
	struct rlimit old, low;
	struct proc_mapping m = {0};
	int fds[65] = {0}, count = 0;

	proc_each_mapping(getpid(), first_file, &m, NULL);
	getrlimit(RLIMIT_NOFILE, &old);
	low = (struct rlimit){64, old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	world_init(&w);
	while (count < 64 && fds[count] < 55)
		fds[++count] = dup(0);
	struct module *module = module_store_mapped(w.modules, getpid(), &m);
	check(module && !module->file);
	check_u64(module->refused, EMFILE);
	check_u64(open("/dev/null", O_RDONLY | O_CLOEXEC), 56); /* nothing of it stays open */
	close(56);
	while (count)
		close(fds[count--]);
	setrlimit(RLIMIT_NOFILE, &old);
	free((char *)m.path);
	world_release(&w);
}

/* Our own text, somewhere else. */
TEST(text_that_was_copied)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, getpid());
	check(!process_snapshot(w.table, p, 1, NULL));
	uint64_t us = (uint64_t)(uintptr_t)world_init;
	const struct space_mapping *text = process_mapping(p, us);
	size_t len = text->end - text->start;
	uint8_t *copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t start = (uint64_t)(uintptr_t)copy, addr = start + (us - text->start);
	struct space_mapping replaced = *text, m = {
		.start = start,
		.end = start + len,
		.module = module_store_jit(w.modules, getpid()),
	}, other = m;

	replaced.bias = start - (text->start - text->bias);
	text_copy_replaces(&m, &replaced);
	check(m.copied_from == text->module && m.module != text->module);
	check(!text_copy_settle(&source_live, &m, getpid(), addr)); /* still empty */
	memcpy(copy, (const void *)(uintptr_t)text->start, len);
	copy[addr - start] ^= 1;
	check(!text_copy_settle(&source_live, &m, getpid(), addr));
	copy[addr - start] ^= 1;
	check(text_copy_settle(&source_live, &m, getpid(), addr));
	check(m.module == text->module && m.bias == replaced.bias && !m.copied_from);

	/* What is a file's, or replaces nothing of one, is no candidate. */
	text_copy_replaces(&m, &replaced);
	text_copy_replaces(&other, &other);
	text_copy_replaces(&other, NULL);
	check(!m.copied_from && !other.copied_from);
	munmap(copy, len);
	world_release(&w);
}

TEST(shared_files_are_one_module)
{
	struct world w;
	struct err err = {0};

	world_init(&w);
	struct process *p = process_get(w.table, getpid());
	check(!process_snapshot(w.table, p, 1, &err));
	check(p->mappings.len >= 2);
	check(p->stack_end > (uint64_t)(uintptr_t)&w);
	size_t modules = module_store_count(w.modules);
	const struct space_mapping *here =
		process_mapping(p, (uint64_t)(uintptr_t)world_init);
	check(here && here->module->unwind && here->module->file && !here->meaningless);

	struct process *child = process_fork(w.table, p, 4194306, 1);
	check(process_mapping(child, here->start)->module == here->module);
	check_u64(module_store_count(w.modules), modules);
	world_release(&w);
}

/* ---- the live tail, of ourselves ---- */

TEST(tail_of_frames_that_still_stand)
{
	static struct tail tail;
	const struct tail_stack own = {.tid = getpid()};
	uint64_t stack[8] = {0, 0x1111, 0, 0x2222, 5, 6, 7, 8};
	uint64_t at = (uint64_t)(uintptr_t)stack;
	struct unwind_frame frames[3] = {{.pc = 9}, {.pc = 0x1111, .slot = at + 8},
		{.pc = 0x2222, .slot = at + 24}};
	struct unwind_dump got = {0};

	check(tail_read(&tail, &own, frames, 3, at + 32, &got) == UNWIND_TAIL_OK);
	check_u64(got.start, at + 32);
	check(got.size >= 32 && got.size <= TAIL_BYTES && !memcmp(got.bytes, stack + 4, 32));
	stack[1]++;
	check(tail_read(&tail, &own, frames, 3, at + 32, &got) == UNWIND_TAIL_CHANGED);
	/* No return address to look at: no proof. */
	check(tail_read(&tail, &own, frames, 1, at + 32, &got) == UNWIND_TAIL_UNREADABLE);
	check(tail_read(&tail, &own, frames, 3, 8, &got) == UNWIND_TAIL_UNREADABLE);
}

/* aarch64: the word on the stack carries a signature, the frame does not. */
TEST(tail_of_signed_frames)
{
	static struct tail tail;
	const struct tail_stack own = {.tid = getpid()};
	const struct tail_stack masked = {.tid = getpid(), .address_mask = 0xffffffffffff};
	uint64_t word = 0x2aaaaaab1234 | 0x5aULL << 48;
	struct unwind_frame frame = {
		.pc = 0x2aaaaaab1234, .slot = (uint64_t)(uintptr_t)&word};
	struct unwind_dump got = {0};

	check(tail_read(&tail, &masked, &frame, 1, frame.slot, &got) == UNWIND_TAIL_OK);
	check(tail_read(&tail, &own, &frame, 1, frame.slot, &got) == UNWIND_TAIL_CHANGED);
	word ^= 0x100;
	check(tail_read(&tail, &masked, &frame, 1, frame.slot, &got) ==
		UNWIND_TAIL_CHANGED);
}

/* Read right after the sample: two frames of the dump, and 64 bytes beyond it. */
TEST(tail_that_was_read_early)
{
	uint64_t words[12] = {0, 0x1111, 0, 0x2222, 5, 6, 7, 8, 9, 10, 11, 12};
	const struct tail_early early = {.near = {0x7000, words, sizeof(words)}};
	struct unwind_frame frames[3] = {{.pc = 9}, {.pc = 0x1111, .slot = 0x7008},
		{.pc = 0x2222, .slot = 0x7018}};
	struct unwind_dump got = {0};

	check(tail_from_early(&early, 0, frames, 3, 0x7020, &got) == UNWIND_TAIL_OK);
	check(got.start == 0x7020 && got.size == 64 && got.bytes == words + 4);
	check(tail_from_early(&early, 0, frames, 3, 0x7058, &got) == UNWIND_TAIL_OK);
	check_u64(got.size, 8);
	check(tail_from_early(&early, 0, frames, 3, 0x7059, &got) == UNWIND_TAIL_UNREADABLE);
	check(tail_from_early(&early, 0, frames, 3, 0x6ff8, &got) == UNWIND_TAIL_UNREADABLE);
	words[3]++;
	check(tail_from_early(&early, 0, frames, 3, 0x7020, &got) == UNWIND_TAIL_CHANGED);
	check(tail_from_early(&early, 0xff00, frames, 3, 0x7020, &got) == UNWIND_TAIL_OK);
	/* A frame below what was read cannot be looked at; no frame at all proves nothing. */
	frames[1].slot = 0x6ff8;
	check(tail_from_early(&early, 0xff00, frames, 3, 0x7020, &got) == UNWIND_TAIL_UNREADABLE);
	check(tail_from_early(&early, 0, frames, 1, 0x7020, &got) == UNWIND_TAIL_UNREADABLE);
	check(tail_from_early(&(struct tail_early){0}, 0, frames, 3, 0x7020, &got) ==
		UNWIND_TAIL_UNREADABLE);
}

/* The frames of the signal stack, or of a runtime's own stack, and a piece of the one it left. */
TEST(tail_of_another_stack_that_was_read_early)
{
	uint64_t near[4] = {0, 0x1111, 0, 0x2222}, other[3] = {0x9020, 0x3333, 7};
	const struct tail_early early = {.near = {0x7000, near, sizeof(near)},
		.other = {0xc0001000, other, sizeof(other)}};
	struct unwind_frame frames[4] = {{.pc = 9}, {.pc = 0x1111, .slot = 0x7008},
		{.pc = 0x2222, .slot = 0x7018}, {.pc = 0x3333, .slot = 0xc0001008}};
	struct unwind_dump got = {0};

	check(tail_from_early(&early, 0, frames, 3, 0xc0001008, &got) == UNWIND_TAIL_OK);
	check(got.start == 0xc0001008 && got.size == 16 && got.bytes == other + 1);
	check(tail_from_early(&early, 0, frames, 4, 0xc0001010, &got) == UNWIND_TAIL_OK);
	check(tail_from_early(&early, 0, frames, 4, 0xc0001018, &got) == UNWIND_TAIL_UNREADABLE);
	near[1]++;
	check(tail_from_early(&early, 0, frames, 3, 0xc0001008, &got) == UNWIND_TAIL_CHANGED);
}

TEST(tail_ends_with_its_mapping)
{
	static struct tail tail;
	const struct tail_stack own = {.tid = getpid()};
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t word = 0x3333;
	struct unwind_frame frame = {.pc = word, .slot = (uint64_t)(uintptr_t)&word};
	struct unwind_dump got = {0};

	munmap(pages + 4096, 4096);
	check(tail_read(&tail, &own, &frame, 1, (uint64_t)(uintptr_t)pages + 4000, &got) ==
		UNWIND_TAIL_OK);
	check_u64(got.size, 96);
	/* Known to end, though what follows is mapped. */
	const struct tail_stack first = {.tid = getpid(), .end = (uint64_t)(uintptr_t)pages + 3000};
	check(tail_read(&tail, &first, &frame, 1, (uint64_t)(uintptr_t)pages + 1000, &got) ==
		UNWIND_TAIL_OK);
	check_u64(got.size, 2000);
	frame.slot = 8;
	check(tail_read(&tail, &own, &frame, 1, (uint64_t)(uintptr_t)pages, &got) ==
		UNWIND_TAIL_UNREADABLE);
	munmap(pages, 4096);
}

/* ---- a session without a kernel: events by hand, the recording read back ---- */

struct session_world {
	struct thread_selection selection;
	struct capture_writer *writer;
	struct session *session;
	FILE *file;
};

static void session_init(struct session_world *w)
{
	w->file = tmpfile();
	check(!capture_writer_to_fd(dup(fileno(w->file)), "tmp", &w->writer, NULL));
	check(!session_new(w->writer, &w->selection, &w->session, NULL));
}

static struct record_sample *samples_of(struct session_world *w, size_t *ret_count)
{
	static struct record_sample found[40];
	static char bytes[1 << 20];
	struct capture_reader *r;
	const struct record_header *h;

	session_flush(w->session, 1);
	check(!capture_writer_finish(w->writer, END_DURATION, clock_monotonic_ns(), NULL));
	session_free(w->session);
	rewind(w->file);
	size_t n = fread(bytes, 1, sizeof(bytes), w->file);
	fclose(w->file);
	*ret_count = 0;
	check(!capture_reader_open_memory(bytes, n, &r, NULL));
	while (capture_reader_next(r, &h, NULL) > 0)
		if (h->type == RECORD_SAMPLE && *ret_count < 40)
			memcpy(&found[(*ret_count)++], h, sizeof(found[0]));
	capture_reader_free(r);
	return found;
}

TEST(samples_are_selected_by_thread)
{
	regex_t regex;
	struct session_world w = {.selection = {.name = &regex}};
	size_t count;

	check(!regcomp(&regex, "^work", REG_EXTENDED | REG_NOSUB));
	session_init(&w);
	session_renamed(w.session, 4194305, 4194305, "main", true, 10);
	session_forked(w.session, 4194305, 4194305, 4194305, 4194306, 11);
	session_renamed(w.session, 4194305, 4194306, "worker-1", false, 12);

	struct raw_sample raw = {.time_ns = 20, .pid = 4194305, .tid = 4194305, .weight_ns = 5};
	session_sample(w.session, &raw, NULL);
	raw.tid = 4194306;
	raw.time_ns = 21;
	session_sample(w.session, &raw, NULL);
	session_renamed(w.session, 4194305, 4194306, "idle", false, 22);
	raw.time_ns = 23;
	session_sample(w.session, &raw, NULL);

	const struct record_sample *found = samples_of(&w, &count);
	check_u64(count, 1);
	check_u64(found[0].tid, 4194306);
	check_u64(found[0].time_ns, 21);
	check_u64(found[0].end, UNWIND_NO_REGS);
	regfree(&regex);
}

#if defined(__aarch64__)
#define REG_PC UNWIND_A64_PC
#define REG_SP UNWIND_A64_SP
#else
#define REG_PC UNWIND_X86_PC
#define REG_SP UNWIND_X86_RSP
#endif

/* Between exec and the new program's first steps the registers are the old program's. */
TEST(samples_inside_exec_have_no_user_stack)
{
	struct session_world w = {0};
	const uint64_t kernel[] = {0xffffffff81000010, 0xffffffff81000020};
	const struct proc_mapping code = {.start = 0x10000, .end = 0x20000, .exec = true, .path = "//anon"};
	struct raw_sample raw = {.time_ns = 20, .pid = NOBODY, .tid = NOBODY, .weight_ns = 5,
		.stack = {.has_regs = true, .kernel_ips = kernel, .kernel_count = 2}};
	size_t count;

	raw.stack.regs.known = (1ULL << REG_PC) | (1ULL << REG_SP);
	raw.stack.regs.value[REG_PC] = 0x555500001000;
	raw.stack.regs.value[REG_SP] = 0x7fff00000000;
	session_init(&w);
	session_renamed(w.session, NOBODY, NOBODY, "new", true, 10);
	session_sample(w.session, &raw, NULL); /* 0: no mapping yet */
	session_mapped(w.session, NOBODY, 21, &code);
	raw.time_ns = 22;
	session_sample(w.session, &raw, NULL); /* 1: mapped, still the old registers */
	raw.stack.regs.value[REG_PC] = 0x10010;
	session_sample(w.session, &raw, NULL); /* 2: the new program */
	raw.stack.regs.value[REG_PC] = 0x555500001000;
	session_sample(w.session, &raw, NULL); /* 3: it has gone astray, and that is no exec */

	const struct record_sample *found = samples_of(&w, &count);
	check_u64(count, 4);
	check_u64(found[0].end, UNWIND_ROOT);
	check_u64(found[1].end, UNWIND_ROOT);
	check_u64(found[1].stack, found[0].stack);
	check(found[2].stack != found[0].stack);
	check(found[3].end != UNWIND_ROOT && found[3].stack != found[0].stack);
}

/* A thread whose event has a period of its own counts as much as its time is worth. */
TEST(samples_weigh_the_same)
{
	static const struct {
		uint64_t period_ns, samples, least, most;
	} rows[] = {{0, 10, 10, 10}, {100, 10, 10, 10}, {50, 10, 5, 5}, {150, 6, 9, 9}, {60, 10, 6, 6},
		{140, 5, 7, 7}, {30, 1, 0, 1}, {1000000, 1, 32, 32}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct session_world w = {0};
		struct raw_sample raw = {.pid = NOBODY, .tid = NOBODY, .weight_ns = 100,
			.period_ns = rows[i].period_ns};
		struct session_stats stats;
		size_t count;

		session_init(&w);
		session_renamed(w.session, NOBODY, NOBODY, "one", true, 10);
		for (uint64_t n = 0; n < rows[i].samples; n++) {
			raw.time_ns = 20 + n;
			session_sample(w.session, &raw, NULL);
		}
		session_stats(w.session, &stats);
		check(stats.samples >= rows[i].least && stats.samples <= rows[i].most);
		check_u64(stats.weight_ns, 100 * stats.samples);
		const struct record_sample *found = samples_of(&w, &count);
		check_u64(count, stats.samples);
		check(!count || found[count - 1].weight == 100);
	}
}

TEST(a_storm_of_names_is_not_written_down)
{
	struct session_world w = {0};
	char name[32] = "";
	size_t count;

	session_init(&w);
	session_renamed(w.session, NOBODY, NOBODY, "one", true, 10);
	uint64_t before = 0;
	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "name-%d", i);
		session_renamed(w.session, NOBODY, NOBODY, name, false, 11);
		if (i == 10) {
			capture_writer_flush(w.writer);
			before = capture_writer_bytes(w.writer);
		}
	}
	capture_writer_flush(w.writer);
	check_u64(capture_writer_bytes(w.writer), before);

	/* The last one is, with the next sample. */
	struct raw_sample raw = {.time_ns = 20, .pid = NOBODY, .tid = NOBODY, .weight_ns = 5};
	session_sample(w.session, &raw, NULL);
	uint32_t fresh = capture_string(w.writer, "never a name");
	check(capture_string(w.writer, name) < fresh);
	samples_of(&w, &count);
	check_u64(count, 1);
}

/* No kernel says so. */
TEST(a_thread_started_by_itself)
{
	struct session_world w = {0};
	size_t count;

	session_init(&w);
	session_renamed(w.session, NOBODY, NOBODY, "one", true, 10);
	session_forked(w.session, NOBODY, NOBODY + 1, NOBODY, NOBODY, 11);
	samples_of(&w, &count);
	check_u64(count, 0);
}

struct told {
	uint64_t pc;
	bool found;
	uint32_t module;
	uint64_t bias;
};

static void note_mapping(void *ctx, const struct unwind_mapping *m)
{
	struct told *told = ctx;

	if (told->pc >= m->start && told->pc < m->end) {
		told->found = true;
		told->module = m->id;
		told->bias = m->bias;
	}
}

/* Frames that were walked elsewhere are placed as those that we walk; equal stacks are one. */
TEST(stacks_that_were_walked_elsewhere)
{
	struct session_world w = {0};
	struct told told = {.pc = (uint64_t)(uintptr_t)note_mapping};
	pid_t pid = getpid();

	session_init(&w);
	check(!session_adopt(w.session, pid, NULL));
	session_each_mapping(w.session, pid, note_mapping, &told);
	check(told.found);

	uint32_t outer = session_called(w.session, pid, CAPTURE_NONE, told.pc + 9, UNWIND_CFI);
	uint32_t inner = session_called(w.session, pid, outer, told.pc + 5, UNWIND_CFI);
	uint32_t nowhere = session_called(w.session, pid, outer, 4, UNWIND_CFI);
	uint32_t cut = session_called(w.session, pid, session_truncated(w.session), told.pc + 9, UNWIND_CFI);

	check_u64(session_called(w.session, pid, CAPTURE_NONE, told.pc + 9, UNWIND_CFI), outer);
	check(inner != outer && nowhere != inner && cut != outer);
	check_u64(session_truncated(w.session), session_truncated(w.session));

	struct record_frame frame = capture_frame_get(w.writer, 0);

	check_u64(frame.module, told.module);
	check_u64(frame.address, told.pc + 9 - told.bias);
	check(frame.is_return);
	check_u64(capture_frame_get(w.writer, 2).module, CAPTURE_NONE);
	check(!session_read_maps(w.session, pid, NULL));
	check(session_read_maps(w.session, NOBODY, NULL) == -ESRCH);
	session_name_frames(w.session, &(struct naming_options){0});
	session_free(w.session);
	check(!capture_writer_finish(w.writer, END_DURATION, clock_monotonic_ns(), NULL));
	fclose(w.file);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(a_new_mapping_replaces_what_it_overlaps),
		T(generated_code_is_of_one_program), T(fork_copies_and_exec_forgets),
		T(a_failed_snapshot_forgets_nothing), T(a_process_goes_with_its_last_thread),
		T(exec_leaves_one_thread), T(a_process_without_known_threads_goes_too),
		T(the_dead_are_swept_once_their_records_are_read), T(mappings_are_bounded),
		T(a_file_is_opened_once_whoever_was_gone), T(a_file_that_opens_later_is_kept),
		T(object_files_leave_descriptors_for_others), T(a_thread_started_by_itself),
		T(a_storm_of_names_is_not_written_down), T(samples_weigh_the_same),
		T(samples_inside_exec_have_no_user_stack),
		T(text_that_was_copied), T(shared_files_are_one_module),
		T(tail_of_frames_that_still_stand), T(tail_of_signed_frames), T(tail_that_was_read_early),
		T(tail_of_another_stack_that_was_read_early),
		T(tail_ends_with_its_mapping),
		T(samples_are_selected_by_thread), T(stacks_that_were_walked_elsewhere));
}
