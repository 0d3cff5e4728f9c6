/* SPDX-License-Identifier: BSD-2-Clause */
/* /proc and perf rings, as far as this process itself is the answer. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/child.h"
#include "os/perf_event.h"
#include "os/proc.h"
#include "os/usage.h"

TEST(address_mask_covers_code_and_stack)
{
	uint64_t mask = proc_address_mask(), local = (uint64_t)(uintptr_t)&mask;
	uint64_t code = (uint64_t)(uintptr_t)proc_address_mask;

	check((mask & local) == local && (mask & code) == code);
	check(!(mask & (mask + 1)));
}

TEST(status_of_ourselves)
{
	struct proc_status st;
	struct err err = {0};

	check(!proc_status_read(getpid(), &st, &err));
	check(st.tgid == getpid() && st.ppid == getppid() && st.euid == geteuid());
	check(!st.kernel_thread);
	check(st.state == 'R');
	check(proc_status_read(4194305, &st, &err) == -ESRCH);
	check(strstr(err.text, "4194305"));
}

TEST(names_are_made_printable)
{
	char name[PROC_NAME_BYTES], before[17];

	prctl(PR_GET_NAME, before);
	prctl(PR_SET_NAME, "a\nb\x1b[1m) R");
	check(!proc_thread_name(getpid(), gettid(), name, sizeof(name), NULL));
	check(!strchr(name, '\x1b'));
	struct proc_status st;
	check(!proc_status_read(getpid(), &st, NULL));
	check(st.tgid == getpid());
	check(proc_stack_start(getpid()) > 0x1000);
	prctl(PR_SET_NAME, before);
}

static int find_stack(void *ctx, const struct proc_mapping *m)
{
	uint64_t here = (uint64_t)(uintptr_t)&here;

	if (m->start <= here && here < m->end) {
		*(bool *)ctx = m->read && m->write && !m->exec;
		return 7;
	}
	return 0;
}

TEST(mappings_of_ourselves)
{
	bool stack_ok = false;

	check(proc_each_mapping(getpid(), find_stack, &stack_ok, NULL) == 7);
	check(stack_ok);
}

struct code {
	uint64_t addr;
	struct stat exe;
	int opened;
	bool same;
};

static int open_code(void *ctx, const struct proc_mapping *m)
{
	struct code *c = ctx;
	struct stat st;

	if (c->addr < m->start || c->addr >= m->end)
		return 0;
	c->opened = proc_open_mapped_file(getpid(), m, NULL);
	c->same = c->opened >= 0 && !fstat(c->opened, &st) && st.st_ino == c->exe.st_ino;
	return 1;
}

TEST(mapped_file_is_the_executable)
{
	struct code c = {.addr = (uint64_t)(uintptr_t)open_code};

	check(!stat("/proc/self/exe", &c.exe));
	check(proc_each_mapping(getpid(), open_code, &c, NULL) == 1);
	check(c.opened >= 0 && c.same);
	if (c.opened >= 0)
		close(c.opened);
}

TEST(a_file_of_another_inode_is_refused)
{
	struct proc_mapping m = {.start = 0x1000, .end = 0x2000, .inode = 1, .path = "/proc/self/exe"};

	/* map_files has no such range, and the path is not that inode (nor a path to follow). */
	check(proc_open_mapped_file(getpid(), &m, NULL) < 0);
	m.path = "/dev/zero";
	check(proc_open_mapped_file(getpid(), &m, NULL) == -ENOEXEC);
	m.path = "/etc/passwd";
	check(proc_open_mapped_file(getpid(), &m, NULL) == -ESTALE);
}

/* To open a device is to do something to it. */
TEST(what_is_no_file_is_not_even_opened)
{
	char dir[] = "/tmp/sonde-os-XXXXXX", path[64];
	struct proc_mapping m = {.start = 0x1000, .end = 0x2000, .path = path};
	char events[512];
	struct stat st;

	check(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/fifo", dir);
	check(!mkfifo(path, 0600) && !stat(path, &st));
	m.inode = st.st_ino;
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	check(inotify_add_watch(watch, path, IN_OPEN) >= 0);
	check(proc_open_mapped_file(getpid(), &m, NULL) == -ENOEXEC);
	check(read(watch, events, sizeof(events)) < 0 && errno == EAGAIN);
	close(open(path, O_RDONLY | O_NONBLOCK)); /* this would have been seen */
	check(read(watch, events, sizeof(events)) > 0);
	close(watch);
	unlink(path);
	rmdir(dir);
}

static int first_file(void *ctx, const struct proc_mapping *m)
{
	struct proc_mapping *found = ctx;

	if (!m->exec || m->path[0] != '/')
		return 0;
	*found = *m;
	return 1;
}

/* A process maps one file over another before we look: its code is not that of the first one. */
TEST(a_mapping_that_was_replaced_is_refused)
{
	struct proc_mapping m = {0};
	struct statfs fs;

	check(proc_each_mapping(getpid(), first_file, &m, NULL) == 1);
	if (statfs("/proc/self/exe", &fs) || fs.f_type == OVERLAYFS_SUPER_MAGIC) {
		skip("overlayfs does not tell which file is mapped");
		return;
	}
	m.path = "/nonexistent";
	int fd = proc_open_mapped_file(getpid(), &m, NULL);
	if (fd == -ENOENT) {
		skip("map_files is not for this user");
		return;
	}
	check(fd >= 0);
	close(fd);
	m.inode++;
	check(proc_open_mapped_file(getpid(), &m, NULL) == -ENOENT);
}

/* The pid of a process that was: nobody has it until the numbers come round again. */
static pid_t a_pid_that_is_gone(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

TEST(the_file_of_a_process_that_is_gone_is_ours_or_none)
{
	struct proc_mapping m = {.start = 0x1000, .end = 0x2000, .path = "/etc/passwd"};
	pid_t pid = a_pid_that_is_gone();
	struct stat st;

	check(!stat(m.path, &st));
	m.inode = st.st_ino;
	m.device = st.st_dev;

	int fd = proc_open_mapped_file(pid, &m, NULL);

	check(fd >= 0);
	if (fd >= 0)
		close(fd);
	m.device++; /* that inode of another filesystem: of a container's, say */
	check(proc_open_mapped_file(pid, &m, NULL) == -ESRCH);
	m.path = "/nonexistent";
	check(proc_open_mapped_file(pid, &m, NULL) == -ESRCH);
}

static void *sleep_until(void *arg)
{
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	return NULL;
}

TEST(threads_are_listed)
{
	pthread_barrier_t barrier;
	pthread_t th[5];
	struct pid_vec tids = {0};

	pthread_barrier_init(&barrier, NULL, 6);
	for (int i = 0; i < 5; i++)
		pthread_create(&th[i], NULL, sleep_until, &barrier);
	pthread_barrier_wait(&barrier);
	check(!proc_threads(getpid(), &tids, NULL));
	check(tids.len >= 6); /* sanitizers have threads of their own */
	for (size_t i = 1; i < tids.len; i++)
		check(tids.data[i - 1] < tids.data[i]);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 5; i++)
		pthread_join(th[i], NULL);
	vec_release(&tids);
	check(proc_threads(4194305, &tids, NULL) == -ESRCH);
}

TEST(memory_is_read_whole_or_not)
{
	char there[32] = "peek", here[32];

	check(proc_read_memory(getpid(), (uint64_t)(uintptr_t)there, here, sizeof(here)));
	check_str(here, "peek");
	check(!proc_read_memory(getpid(), 8, here, sizeof(here)));
	char *pages = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(pages + 4096, 4096);
	check(!proc_read_memory(getpid(), (uint64_t)(uintptr_t)pages + 4090, here, 16));
	munmap(pages, 4096);
}

static int run_child(const char *shell)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)shell, NULL};
	struct child_inherits inherits;
	struct child c;

	child_inherits_now(&inherits);
	check(!child_start(argv, &inherits, &c, NULL));
	check(!child_go(&c, "sh", NULL));
	return child_wait(&c);
}

TEST(child_status)
{
	char *missing[] = {(char *)"/nowhere/no-such-program", NULL};
	struct child_inherits inherits;
	struct child c;
	struct err err = {0};

	check_u64(run_child("exit 7"), 7);
	check_u64(run_child("kill -9 $$"), 137);
	child_inherits_now(&inherits);
	check(!child_start(missing, &inherits, &c, &err));
	check(child_go(&c, missing[0], &err) == -ENOENT);
	check(strstr(err.text, "no-such-program"));
	check(!child_start(missing, &inherits, &c, &err));
	child_abandon(&c); /* returns, so the child ended without exec */
}

TEST(commands_are_looked_for_as_execvp_does)
{
	char *old = strdup(getenv("PATH"));
	struct err err = {0};

	check(!child_check("sh", NULL));
	check(!child_check("/bin/sh", NULL));
	check(child_check("no-such-command", &err) == -ENOENT);
	check(strstr(err.text, "no-such-command"));
	check(child_check("/etc/passwd", NULL) == -EACCES);
	check(child_check("/etc", NULL) == -EACCES);
	check(!proc_is_32bit_file("/bin/sh") && !proc_is_32bit_file("/nonexistent"));
	check(child_check("", NULL) == -ENOENT);
	setenv("PATH", "/nowhere:/etc:/proc/self/exe", 1);
	check(child_check("passwd", NULL) == -EACCES);
	check(child_check("sh", NULL) == -ENOENT);
	setenv("PATH", "/nowhere:/bin", 1);
	check(!child_check("sh", NULL));
	setenv("PATH", old, 1);
	free(old);
}

/* A ring made by hand: the control page and four pages of data. */
struct made_ring {
	struct perf_ring ring;
	struct perf_event_mmap_page *page;
	uint8_t *data;
};

static void make_ring(struct made_ring *m)
{
	m->page = calloc(1, 5 * 4096);
	m->data = (uint8_t *)m->page + 4096;
	m->ring = (struct perf_ring){
		.page = m->page, .data = m->data, .data_bytes = 4 * 4096, .linear = malloc(65536)};
}

static void put(struct made_ring *m, uint32_t type, uint16_t size)
{
	struct perf_event_header h = {.type = type, .size = size};
	size_t mask = m->ring.data_bytes - 1;

	for (size_t i = 0; i < size; i++) {
		uint8_t byte = i < sizeof(h) ? ((uint8_t *)&h)[i] : (uint8_t)type;
		m->data[(m->page->data_head + i) & mask] = byte;
	}
	m->page->data_head += size;
}

TEST(ring_wraps_and_gives_back)
{
	struct made_ring m;
	bool malformed = false;

	make_ring(&m);
	for (uint32_t n = 1; n < 200; n++) {
		put(&m, n, (uint16_t)(8 + n * 8));
		check_u64(perf_ring_begin(&m.ring), 8 + n * 8);
		const struct perf_event_header *h = perf_ring_peek(&m.ring, &malformed);
		check(h && h->type == n && h->size == 8 + n * 8);
		check(h && ((const uint8_t *)h)[h->size - 1] == (uint8_t)n);
		check(m.page->data_tail != m.page->data_head);
		perf_ring_pop(&m.ring);
		check_u64(m.page->data_tail, m.page->data_head);
		check(!perf_ring_peek(&m.ring, &malformed));
	}
	check(!malformed);
	free(m.page);
	free(m.ring.linear);
}

TEST(ring_garbage_is_dropped)
{
	static const uint16_t sizes[] = {0, 4, 7, 12, 4096};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct made_ring m;
		bool malformed = false;

		make_ring(&m);
		put(&m, 9, 64);
		((struct perf_event_header *)m.data)->size = sizes[i];
		perf_ring_begin(&m.ring);
		check(!perf_ring_peek(&m.ring, &malformed));
		check(malformed);
		check_u64(m.page->data_tail, m.page->data_head);
		free(m.page);
		free(m.ring.linear);
	}
}

/* ---- usage ---- */

static bool ran_between(const struct usage_marks *a, const struct usage_marks *b)
{
	return a->ran != b->ran || a->times != b->times;
}

/* Uses CPU time of this thread until the clock of the process says `ns` more. */
static void use_cpu(uint64_t ns)
{
	uint64_t start, now = 0;

	check(!usage_cpu(getpid(), &start, NULL));
	for (now = start; now < start + ns;)
		check(!usage_cpu(getpid(), &now, NULL));
}

static void *wait_for_line(void *arg)
{
	char byte;

	check(read(*(int *)arg, &byte, 1) == 1);
	return NULL;
}

TEST(who_runs_is_told_from_who_does_not)
{
	struct usage_marks first, then;
	struct pid_vec tids = {0};
	uint64_t threads = 0, bytes = 0;
	pthread_t thread;
	int fds[2];
	pid_t other = 0;

	check(!pipe(fds));
	check(!pthread_create(&thread, NULL, wait_for_line, &fds[0]));
	check(!proc_threads(getpid(), &tids, NULL));
	vec_each(&tids, tid)
		if (*tid != gettid())
			other = *tid;
	check(!usage_thread_count(getpid(), &threads, NULL));
	check_u64(threads, 2);
	check(!usage_memory(getpid(), &bytes, NULL));
	check(bytes > 100000 && bytes < 1ULL << 32);

	check(!usage_thread(getpid(), gettid(), &first, NULL));
	use_cpu(30000000);
	usleep(1000);
	check(!usage_thread(getpid(), gettid(), &then, NULL));
	check(ran_between(&first, &then));

	/* It has come to its read by now, or comes to it; then it runs no more. */
	for (int tries = 0; tries < 200; tries++) {
		check(!usage_thread(getpid(), other, &first, NULL));
		usleep(20000);
		check(!usage_thread(getpid(), other, &then, NULL));
		if (!ran_between(&first, &then))
			break;
	}
	check(!ran_between(&first, &then));
	check(write(fds[1], "x", 1) == 1);
	check(!pthread_join(thread, NULL));
	close(fds[0]);
	close(fds[1]);
	vec_release(&tids);
}

TEST(usage_of_nobody)
{
	struct usage_marks marks;
	struct err err = {0};
	uint64_t n;

	const pid_t nobody = 4194304; /* the kernel's limit, which it never reaches */

	check(usage_thread(nobody, nobody, &marks, &err) == -ESRCH);
	check(usage_cpu(nobody, &n, &err) == -ESRCH);
	check(usage_memory(nobody, &n, &err) == -ESRCH);
	check(usage_thread_count(nobody, &n, &err) == -ESRCH);
	check(strstr(err.text, "gone"));
	check(usage_own_files() > 100000);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(address_mask_covers_code_and_stack),
		T(status_of_ourselves), T(names_are_made_printable),
		T(mappings_of_ourselves), T(mapped_file_is_the_executable),
		T(a_file_of_another_inode_is_refused),
		T(the_file_of_a_process_that_is_gone_is_ours_or_none), T(threads_are_listed),
		T(memory_is_read_whole_or_not), T(child_status),
		T(what_is_no_file_is_not_even_opened), T(a_mapping_that_was_replaced_is_refused),
		T(commands_are_looked_for_as_execvp_does), T(ring_wraps_and_gives_back),
		T(ring_garbage_is_dropped), T(who_runs_is_told_from_who_does_not),
		T(usage_of_nobody));
}
