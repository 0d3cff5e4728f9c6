/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The answers of the machine that is not there. The linker sends calls of X to __wrap_X (ld(1), --wrap); the list is
 * in meson.build. Where the real function only understands text or numbers, it is left in place.
 */
#include "made_up.h"

#include <errno.h>
#include <linux/major.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "os/cgroup.h"
#include "os/children.h"
#include "os/fdinfo.h"
#include "os/freezer.h"
#include "os/in_namespace.h"
#include "os/sched_clock.h"
#include "os/sockets.h"
#include "os/sysv.h"
#include "os/usage.h"
#include "sample/snapshot/core.h"
#include "sample/snapshot/running.h"
#include "sample/source.h"

/* The linker's names; nobody else calls these. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* ---- memory and mappings ---- */

static size_t read_made(const struct source *s, pid_t id, uint64_t addr, void *buf, size_t len)
{
	return made_read(addr, buf, len);
}

static int each_made_mapping(const struct source *s, pid_t pid,
	int (*each)(void *ctx, const struct proc_mapping *m), void *ctx, struct err *err)
{
	const struct proc_mapping mappings[] = {
		{.start = MADE_HEAP, .end = MADE_HEAP + MADE_PAGES * MADE_PAGE_BYTES / 2, .read = true,
			.write = true, .path = ""},
		{.start = MADE_HEAP + MADE_PAGES * MADE_PAGE_BYTES / 2,
			.end = MADE_HEAP + MADE_PAGES * MADE_PAGE_BYTES, .read = true, .write = true,
			.shared = true, .inode = 7, .device = 8, .path = "/dev/shm/\x1b[31mred"},
		{.start = MADE_TEXT, .end = MADE_TEXT + (made_file_size() + 4095) / 4096 * 4096, .read = true,
			.exec = true, .inode = 9, .device = 8,
			.path = made.world & 2 ? "/usr/lib/libc.so.6" : "/opt/\x1b[2J\"quoted\"\tprog"},
		{.start = MADE_STACKS, .end = MADE_STACKS + MADE_THREADS * MADE_STACK_BYTES, .read = true,
			.write = true, .path = "[stack]"},
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(mappings) / sizeof(mappings[0]) && !rc; i++)
		rc = each(ctx, &mappings[i]);
	return rc;
}

static int open_made_file(const struct source *s, pid_t pid, const struct proc_mapping *m, struct err *err)
{
	int fd = m->inode == 9 ? made_file() : -1;

	return fd < 0 ? err_set(err, ENOENT, "%s", m->path) : fd;
}

static int made_status(pid_t id, struct proc_status *ret, struct err *err)
{
	struct made_thread *t = made_thread(id);
	struct made_process *p = made_process(t ? t->look.pid : id);

	if (!p || ((p->moods & MADE_GOES) && made.turn > 64u * (p->moods >> 5)))
		return err_set(err, ESRCH, "no process %d", (int)id);
	*ret = p->status;
	if (t && p->status.ns_pid != p->status.tgid)
		ret->ns_pid = t->look.tid - p->status.tgid + 7;
	else if (t)
		ret->ns_pid = id;
	return 0;
}

static int source_status(const struct source *s, pid_t id, struct proc_status *ret, struct err *err)
{
	return made_status(id, ret, err);
}

static int made_title(pid_t pid, char *buf, size_t size, struct err *err)
{
	struct made_process *p = made_process(pid);

	if (!p)
		return err_set(err, ESRCH, "no process %d", (int)pid);
	snprintf(buf, size, "%s", p->title);
	return 0;
}

static int source_command(const struct source *s, pid_t pid, char *buf, size_t size, struct err *err)
{
	return made_title(pid, buf, size, err);
}

static int source_name(const struct source *s, pid_t pid, pid_t tid, char *buf, size_t size, struct err *err)
{
	struct made_thread *t = made_thread(tid);

	if (!t)
		return err_set(err, ESRCH, "no thread %d", (int)tid);
	snprintf(buf, size, "%s", t->look.name);
	return 0;
}

static const struct source_ops made_ops = {
	.read = read_made,
	.each_mapping = each_made_mapping,
	.open_file = open_made_file,
	.status = source_status,
	.command_line = source_command,
	.thread_name = source_name,
};

extern const struct source __wrap_source_live;
const struct source __wrap_source_live = {.ops = &made_ops, .root_fd = -1};
static const struct source still_source = {.ops = &made_ops, .still = true, .root_fd = -1};

/* ---- threads ---- */

static bool is_there(const struct made_thread *t)
{
	unsigned when = t->moods >> 5;

	if (made.still)
		return true;
	return !((t->moods & MADE_GOES) && t->looks > when) && !((t->moods & MADE_COMES) && made.lists < when);
}

static struct thread_wait wait_now(const struct made_thread *t)
{
	struct thread_wait w = t->look.wait;

	if ((t->moods & MADE_CHANGES) && !made.still)
		w.args[2] ^= t->looks;
	if ((t->moods & MADE_PARTLY) && t->looks > 1) {
		w = (struct thread_wait){.syscall = -1};
		w.state = 'R';
	}
	return w;
}

int __wrap_proc_threads(pid_t pid, struct pid_vec *ret, struct err *err)
{
	ret->len = 0;
	made.lists++;
	for (size_t i = 0; i < made.thread_count; i++)
		if (made.threads[i].look.pid == pid && is_there(&made.threads[i]) &&
			vec_push(ret, made.threads[i].look.tid))
			return err_nomem(err);
	return ret->len ? 0 : err_set(err, ESRCH, "no process %d", (int)pid);
}

/* A look at a thread begins with this. */
int __wrap_usage_sched(pid_t pid, pid_t tid, struct usage_sched *ret, struct err *err)
{
	struct made_thread *t = made_thread(tid);
	bool moves = t && (t->moods & MADE_CHANGES);

	if (!t || !is_there(t))
		return err_set(err, ESRCH, "no thread %d", (int)tid);
	t->looks++;
	*ret = (struct usage_sched){.ran_ns = t->look.ran_ns + (moves ? t->looks * 3000000 : 0),
		.queued_ns = t->look.queued_ns + t->looks, .switches = t->look.switches + (moves ? t->looks : 0),
		.last_ns = t->look.idle_ns, .cpu = 0};
	return 0;
}

uint64_t __wrap_sched_clock_ago(struct sched_clock *c, int cpu, uint64_t last_ns)
{
	return last_ns;
}

int __wrap_thread_switches(pid_t pid, pid_t tid, uint64_t *ret, struct err *err)
{
	*ret = made.turn;
	return 0;
}

int __wrap_thread_wait_read(pid_t pid, pid_t tid, struct thread_wait *ret, struct err *err)
{
	struct made_thread *t = made_thread(tid);
	struct made_process *p = made_process(pid);

	made.turn++;
	if (!t || !p || !is_there(t))
		return err_set(err, ESRCH, "no thread %d", (int)tid);
	*ret = wait_now(t);
	if (!p->refused)
		return 0;
	ret->blocked = false;
	return err_set(err, p->refused, "not ours to read");
}

int __wrap_proc_thread_name(pid_t pid, pid_t tid, char *buf, size_t size, struct err *err)
{
	return source_name(NULL, pid, tid, buf, size, err);
}

int __wrap_running_sample(const struct running_thread *threads, size_t count,
	const struct running_options *options, struct running_samples *ret, struct running_cost *cost,
	struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		struct made_thread *t = made_thread(threads[i].tid);
		uint64_t stack = MADE_STACKS + (uint64_t)(t - made.threads) * MADE_STACK_BYTES;
		struct running_sample s = {
			.pid = threads[i].pid, .tid = threads[i].tid, .held = malloc(MADE_STACK_BYTES)};

		if (!s.held || (t->moods & MADE_PARTLY)) {
			free(s.held);
			continue;
		}
		s.stack.has_regs = true;
		s.stack.regs.known = 1u << UNWIND_X86_RSP | 1u << UNWIND_X86_PC;
		s.stack.regs.value[UNWIND_X86_RSP] = stack;
		s.stack.regs.value[UNWIND_X86_PC] = made_function_pc(t->functions[0]);
		s.stack.dump = (struct unwind_dump){stack, s.held, made_read(stack, s.held, MADE_STACK_BYTES)};
		for (size_t n = 0; n < 5; n++)
			if (vec_push(ret, s))
				return err_nomem(err);
			else
				s.held = NULL;
	}
	cost->perf = true;
	return 0;
}

/* ---- a core ---- */

static void leave(struct look *l)
{
}

static int look_at_core(struct look *l, pid_t pid, pid_t tid, struct thread_looks *ret, struct err *err)
{
	ret->len = 0;
	for (size_t i = 0; i < made.thread_count; i++) {
		const struct thread_look *look = &made.threads[i].look;

		if (look->pid == pid && (!tid || look->tid == tid) && vec_push(ret, *look))
			return err_nomem(err);
	}
	return ret->len ? 0 : err_set(err, ESRCH, "the core has no thread %d", (int)tid);
}

static const struct look_ops core_ops = {.name = "core", .free = leave, .read = look_at_core};
static struct look core = {&core_ops};

int __wrap_core_open(const char *path, const char *root, struct core **ret, struct err *err)
{
	*ret = (struct core *)&core;
	return 0;
}

void __wrap_core_free(struct core *c)
{
}

const struct core_info *__wrap_core_info(const struct core *c)
{
	return &made.core;
}

const struct source *__wrap_core_source(const struct core *c)
{
	return &still_source;
}

struct look *__wrap_core_look(struct core *c)
{
	return &core;
}

int __wrap_core_signal(const struct core *c)
{
	return made.core.signal == 11 ? 11 : 0;
}

void __wrap_core_each_file(const struct core *c,
	void (*each)(void *ctx, const char *path, enum core_found found), void *ctx)
{
	for (unsigned i = 0; i < 9; i++)
		each(ctx, i % 2 ? "/lib/\x1b[31mred" : "/lib/\xff\"\\", made.world % 4 + 1);
}

/* ---- processes ---- */

int __wrap_proc_status_read(pid_t pid, struct proc_status *ret, struct err *err)
{
	return made_status(pid, ret, err);
}

int __wrap_proc_command_line(pid_t pid, char *buf, size_t size, struct err *err)
{
	return made_title(pid, buf, size, err);
}

int __wrap_proc_family_read(pid_t pid, struct proc_family *ret)
{
	struct made_process *p = made_process(pid);

	if (!p)
		return -ESRCH;
	*ret = (struct proc_family){.ppid = p->status.ppid, .group = made.processes[0].status.tgid,
		.terminal = p->sort & 4 ? makedev(UNIX98_PTY_SLAVE_MAJOR, p->sort / 8 % 4) : 0,
		.foreground = p->sort & 64 ? pid : made.processes[0].status.tgid, .state = p->status.state};
	return 0;
}

static int list_processes(pid_t ppid, pid_t tracer, struct pid_vec *ret, struct err *err)
{
	ret->len = 0;
	for (size_t i = 0; i < made.process_count; i++) {
		const struct proc_status *s = &made.processes[i].status;

		if ((!ppid || s->ppid == ppid) && (!tracer || s->tracer == tracer) && vec_push(ret, s->tgid))
			return err_nomem(err);
	}
	return 0;
}

int __wrap_proc_all(struct pid_vec *ret, struct err *err)
{
	return list_processes(0, 0, ret, err);
}

int __wrap_proc_children(pid_t pid, pid_t tid, struct pid_vec *ret, struct err *err)
{
	return list_processes(pid, 0, ret, err);
}

int __wrap_proc_tracees(pid_t pid, struct pid_vec *ret, struct err *err)
{
	return list_processes(0, pid, ret, err);
}

pid_t __wrap_proc_surviving_thread(pid_t pid)
{
	return pid;
}

pid_t __wrap_proc_outside_tid(pid_t pid, pid_t inner)
{
	return inner % 3 ? made_tid((unsigned)inner) : 0;
}

pid_t __wrap_pid_seen_by(pid_t observer, pid_t pid)
{
	return pid;
}

uint64_t __wrap_namespace_of(pid_t pid, const char *which)
{
	return made.world & 4 ? (uint64_t)pid : 1;
}

int __wrap_usage_thread_count(pid_t pid, uint64_t *ret, struct err *err)
{
	*ret = made.world & 8 ? 1000 : made.thread_count;
	return 0;
}

bool __wrap_freezer_frozen(pid_t pid, char *buf, size_t size)
{
	struct made_process *p = made_process(pid);
	bool frozen = p && p->sort >= 0xf8;

	snprintf(buf, size, "%s", frozen ? "/a/\x1b[31mred" : "");
	return frozen;
}

bool __wrap_cgroup_cpu_directory(pid_t pid, char *buf, size_t size)
{
	snprintf(buf, size, "%s", made.world & 16 ? "/made/up" : "");
	return made.world & 16;
}

bool __wrap_cgroup_throttling_read(const char *directory, struct cgroup_throttling *ret)
{
	*ret = (struct cgroup_throttling){made.turn++, 1};
	return true;
}

/* ---- descriptors ---- */

static const char *const links[] = {"pipe:[1]", "pipe:[2]", "socket:[1]", "socket:[2]", "socket:[3]", "socket:[4]",
	"anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[pidfd]", "anon_inode:[timerfd]",
	"anon_inode:[signalfd]", "anon_inode:inotify", "anon_inode:[io_uring]", "anon_inode:[userfaultfd]",
	"anon_inode:[made-up]", "/tmp/fifo", "/dev/pts/1", "/dev/tty", "/dev/ptmx", "/var/lock/\"\\",
	"/mqueue", "/dev/pts/2", "/dev/pts/ptmx", "/tmp/file (deleted)"};

static const struct made_fd *find_fd(pid_t pid, int fd)
{
	struct made_process *p = made_process(pid);

	if (!p || fd < 0 || fd >= (int)MADE_FDS)
		return NULL;
	return &made.fds[p - made.processes][fd];
}

static const char *link_of(const struct made_fd *f)
{
	unsigned number = f->link + (f->bits & 128 ? made.turn : 0);

	return links[number % (sizeof(links) / sizeof(links[0]))];
}

int __wrap_open_file_read(pid_t pid, int fd, struct open_file *ret, char *link, size_t size)
{
	const struct made_fd *f = find_fd(pid, fd);

	made.turn++;
	if (!f || f->link >= 250)
		return -ESRCH;
	*ret = (struct open_file){.pid = pid, .fd = fd};
	snprintf(link, size, "%s", link_of(f));
	ret->what = open_file_classify(link, &ret->key);
	return 0;
}

static int compare_files(const void *x, const void *y)
{
	const struct open_file *a = x, *b = y;

	if (a->what != b->what)
		return (a->what > b->what) - (a->what < b->what);
	if (a->key != b->key)
		return (a->key > b->key) - (a->key < b->key);
	if (a->pid != b->pid)
		return (a->pid > b->pid) - (a->pid < b->pid);
	return (a->fd > b->fd) - (a->fd < b->fd);
}

int __wrap_open_files_read(pid_t without, uint64_t deadline_ns, struct open_files *ret, struct err *err)
{
	char link[OPEN_MOST_NAME];

	*ret = (struct open_files){.processes = made.process_count, .refused = made.world & 32 ? 3 : 0,
		.cut = made.world & 64};
	for (size_t i = 0; i < made.process_count; i++)
		for (int fd = 0; fd < (int)MADE_FDS; fd++) {
			struct open_file f;

			if (!__wrap_open_file_read(made.processes[i].status.tgid, fd, &f, link, sizeof(link)) &&
				vec_push(&ret->files, f))
				return err_nomem(err);
		}
	if (ret->files.len)
		qsort(ret->files.data, ret->files.len, sizeof(*ret->files.data), compare_files);
	return 0;
}

bool __wrap_open_file_identity(pid_t pid, int fd, struct open_identity *ret)
{
	static const struct {
		const char *link;
		unsigned mode, major, minor;
	} special[] = {
		{"/tmp/fifo", S_IFIFO, 0, 0},
		{"/dev/pts/1", S_IFCHR, UNIX98_PTY_SLAVE_MAJOR, 1},
		{"/dev/pts/2", S_IFCHR, UNIX98_PTY_SLAVE_MAJOR, 2},
		{"/dev/tty", S_IFCHR, TTYAUX_MAJOR, 0},
		{"/dev/ptmx", S_IFCHR, TTYAUX_MAJOR, 2},
		{"/dev/pts/ptmx", S_IFCHR, TTYAUX_MAJOR, 2},
	};
	const struct made_fd *f = find_fd(pid, fd);

	if (!f)
		return false;
	*ret = (struct open_identity){.device = 8, .inode = f->param % 4, .mode = S_IFREG};
	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (!strcmp(link_of(f), special[i].link)) {
			ret->mode = special[i].mode;
			ret->rdevice = makedev(special[i].major, special[i].minor);
		}
	return true;
}

static struct file_lock lock_of(const uint8_t bytes[4])
{
	return (struct file_lock){.id = bytes[0] % 2, .waits = bytes[0] & 4, .type = bytes[1] % 4,
		.write = bytes[1] & 4, .pid = bytes[2] & 1 ? made_tid(bytes[2] / 2) : bytes[2] - 2, .device = 8,
		.inode = bytes[3] % 4, .start = bytes[3] / 64, .end = bytes[3] & 32 ? UINT64_MAX : 9};
}

int __wrap_file_locks_read(struct file_locks *ret, struct err *err)
{
	ret->len = 0;
	for (size_t i = 0; i < MADE_LOCKS; i++)
		if (vec_push(ret, lock_of(made.locks[i])))
			return err_nomem(err);
	return 0;
}

int __wrap_fdinfo_read(pid_t pid, int fd, struct fdinfo *ret, struct err *err)
{
	static const uint32_t events[] = {1, 4, 5, 0x2001, 0, 0x4000001d};
	const struct made_fd *f = find_fd(pid, fd);

	if (!f)
		return err_set(err, ESRCH, "no descriptor %d", fd);
	*ret = (struct fdinfo){.flags = f->bits % 4, .inode = f->param % 4, .eventfd_id = (int)(f->param % 4) - 1,
		.eventfd_count = f->bits / 4 % 2, .pidfd = f->bits & 8 ? made_tid(f->param) : (int)(f->param % 2) - 1,
		.timer = true, .timer_clock = f->bits % 3, .timer_ns = f->param * 1000000u,
		.tty_index = (int)(f->param % 4) - 1, .uring = true, .uring_submitted = f->param % 3,
		.uring_taken = f->bits % 3, .uffd = true, .uffd_pending = f->param % 2, .uffd_total = f->bits % 2};
	for (unsigned i = 0; i < f->param % 16u; i++)
		if (vec_push(&ret->watches, (struct fdinfo_watch){.fd = (int)((f->bits + i) % 12),
						    .events = events[(f->bits + i) % 6], .inode = i % 3}))
			return err_nomem(err);
	if ((f->bits & 64) && vec_push(&ret->locks, lock_of(made.locks[f->param % MADE_LOCKS])))
		return err_nomem(err);
	return 0;
}

/* ---- sockets, System V ---- */

static struct socket_address address(unsigned number)
{
	struct socket_address a = {.ip = {[10] = 0xff, [11] = 0xff, [12] = number & 2 ? 127 : 10, [15] = 1}};

	a.port = (uint16_t)(number & 1);
	return a;
}

int __wrap_sockets_read(pid_t pid, uint64_t limit_ns, struct sockets *ret, struct err *err)
{
	*ret = (struct sockets){.cut = made.world & 64, .from_text = made.world & 128};
	if ((made.world & 0xc0) == 0xc0)
		return err_set(err, EACCES, "not ours");
	for (size_t i = 0; i < MADE_SOCKETS; i++) {
		const uint8_t *b = made.sockets[i];
		struct socket_info s = {.inode = b[0] % 5, .family = b[0] & 8 ? 1 : b[0] & 16 ? 2 : 10,
			.type = b[0] & 32 ? 2 : 1, .state = b[1] % 12, .peer = b[2] % 5, .peer_known = b[2] & 8,
			.received = b[2] & 16 ? SOCKET_UNKNOWN : b[2], .unsent = b[3], .local = address(b[3]),
			.remote = address(b[3] / 4), .heard_ms = b[1] & 16 ? SOCKET_UNKNOWN : b[1],
			.said_ms = b[2], .retransmits = b[1] / 32};

		snprintf(s.name, sizeof(s.name), "%s", b[1] & 64 ? "@name" : b[1] & 128 ? "/run/\x1b[31m" : "");
		if (vec_push(&ret->list, s) ||
			(b[0] & 64 && vec_push(&ret->pending, (struct socket_pending){b[2] % 5, b[3] % 5})))
			return err_nomem(err);
	}
	sockets_sort(ret);
	return 0;
}

int __wrap_sysv_sem_read(pid_t pid, int id, unsigned number, struct sysv_sem *ret, struct err *err)
{
	const uint8_t *b = made.locks[(unsigned)id % MADE_LOCKS];

	if (b[0] == 255)
		return err_set(err, EPERM, "not ours");
	*ret = (struct sysv_sem){.value = (int)((b[0] + number) % 3),
		.last = b[1] & 1 ? made_tid(b[1]) : b[1], .waiting = b[2], .waiting_for_0 = b[3]};
	return 0;
}

int __wrap_sysv_queue_read(pid_t pid, int id, struct sysv_queue *ret, struct err *err)
{
	const uint8_t *b = made.locks[(unsigned)id % MADE_LOCKS];

	if (b[0] == 255)
		return err_set(err, EPERM, "not ours");
	*ret = (struct sysv_queue){.messages = b[0], .bytes = b[1], .most_bytes = b[2],
		.last_sender = b[3] & 1 ? made_tid(b[3]) : 0, .last_receiver = b[3] & 2 ? made_tid(b[3] / 2) : b[3]};
	return 0;
}

/* ---- the system itself ---- */

long __real_syscall(long number, ...);

/* The heads of robust lists stand in struct pthread. */
static long robust_list(pid_t tid, uint64_t *ret_head)
{
	struct made_thread *t = made_thread(tid);

	if (!t || t->moods >= 240)
		return -1;
	*ret_head = MADE_HEAP + (uint64_t)(t - made.threads) * MADE_PAGE_BYTES + 720 + 16;
	return 0;
}

long __wrap_syscall(long number, ...)
{
	long a[5]; /* nobody here has a call with more */
	va_list ap;

	va_start(ap, number);
	for (size_t i = 0; i < 5; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_get_robust_list)
		return robust_list((pid_t)a[0], (uint64_t *)a[1]);
	if (number == SYS_kcmp)
		return made.world & 1;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4]);
}

/* Time passes by itself. */
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	made.turn++;
	return 0;
}
