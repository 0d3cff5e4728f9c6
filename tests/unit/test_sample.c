/* SPDX-License-Identifier: BSD-2-Clause */
/* Address spaces as kernel records change them, and the recording session fed by hand. */
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/reader.h"
#include "capture/writer.h"
#include "sample/modules.h"
#include "sample/processes.h"
#include "sample/session.h"

struct world {
	struct capture_writer *writer;
	struct module_store *modules;
	struct process_table *table;
	unsigned added;
};

static void count_added(void *ctx, const struct process *p, const struct space_mapping *m)
{
	((struct world *)ctx)->added++;
}

static void world_init(struct world *w)
{
	*w = (struct world){0};
	check(!capture_writer_to_fd(open("/dev/null", O_WRONLY), "null", &w->writer, NULL));
	check(!module_store_new(w->writer, &w->modules, NULL));
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

TEST(fork_copies_and_exec_forgets)
{
	struct world w;

	world_init(&w);
	struct process *p = process_get(w.table, 4194305);
	map(&w, p, 0x10, 0x20);
	struct process *child = process_fork(w.table, p, 4194306);
	map(&w, child, 0x18, 0x30);
	check_str(drawn(child), "10-18 18-30");
	check_str(drawn(p), "10-20");
	process_exec(w.table, child, 4194306);
	check_str(drawn(child), "");
	check_str(drawn(p), "10-20");
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

	struct process *child = process_fork(w.table, p, 4194306);
	check(process_mapping(child, here->start)->module == here->module);
	check_u64(module_store_count(w.modules), modules);
	world_release(&w);
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
	static struct record_sample found[16];
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
		if (h->type == RECORD_SAMPLE && *ret_count < 16)
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
	session_sample(w.session, &raw);
	raw.tid = 4194306;
	raw.time_ns = 21;
	session_sample(w.session, &raw);
	session_renamed(w.session, 4194305, 4194306, "idle", false, 22);
	raw.time_ns = 23;
	session_sample(w.session, &raw);

	const struct record_sample *found = samples_of(&w, &count);
	check_u64(count, 1);
	check_u64(found[0].tid, 4194306);
	check_u64(found[0].time_ns, 21);
	check_u64(found[0].end, UNWIND_NO_REGS);
	regfree(&regex);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(a_new_mapping_replaces_what_it_overlaps),
		T(fork_copies_and_exec_forgets), T(a_process_goes_with_its_last_thread),
		T(shared_files_are_one_module), T(samples_are_selected_by_thread));
}
