/* SPDX-License-Identifier: BSD-2-Clause */
/* How watched programs begin and end, what they have mapped, and who their threads are. */
#include "heap/collect_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/cover.h"
#include "os/children.h"
#include "os/proc.h"

/* A program waits for its first tables, SHARE_WAIT_START_MS at most; what is not done by then comes later. */
#define FIRST_TABLES_NS (NS_PER_S / 2)

struct watched *collect_find(struct heap_collector *c, pid_t pid)
{
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i] && c->watched[i]->pid == pid && !c->watched[i]->says)
			return c->watched[i];
	return NULL;
}

/* More memory of the same process. */
static bool has_another(const struct heap_collector *c, const struct watched *w)
{
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->watched[i] && c->watched[i] != w && c->watched[i]->pid == w->pid)
			return true;
	return false;
}

/* ---- mappings ---- */

static void add_module(void *ctx, const struct unwind_mapping *m)
{
	struct heap_collector *c = ctx;

	if (m->module)
		vec_push(&c->modules, (struct heap_tables_module){m->start, m->end, m->bias, m->module});
}

/* What the program has counted, before its mappings are read. */
struct counted {
	uint32_t wanted, gone;
};

static struct counted count_modules(struct heap_collector *c, const struct watched *w)
{
	const struct share_header *header = heap_readers_shared(c->readers, w->number);

	return (struct counted){
		heap_readers_modules_wanted(c->readers, w->number), __atomic_load_n(&header->modules_gone, __ATOMIC_ACQUIRE)};
}

static void publish(struct heap_collector *c, struct watched *w, struct counted counted, uint64_t ns)
{
	c->modules.len = 0;
	session_each_mapping(c->session, w->pid, add_module, c);
	heap_tables_set(w->tables, c->modules.data, c->modules.len, counted.wanted, counted.gone, ns, NULL);
	w->modules_done = counted.wanted;
}

void collect_modules(struct heap_collector *c, struct watched *w, uint64_t ns)
{
	struct counted counted = count_modules(c, w);

	if (counted.wanted == w->modules_done)
		return;
	session_read_maps(c->session, w->pid, NULL);
	publish(c, w, counted, ns);
}

void collect_modules_again(struct heap_collector *c, struct watched *w, uint64_t ns)
{
	struct counted counted = count_modules(c, w);

	session_read_maps(c->session, w->pid, NULL);
	publish(c, w, counted, ns);
}

/* ---- what is not seen ---- */

/* A short program may be gone as soon as it may go on: what it is is looked up before. */
struct identity {
	char allocator[256];
	int exe_fd;
};

static void identify(const struct watched *w, struct identity *ret)
{
	char exe[48];

	*ret = (struct identity){0};
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)w->pid);
	ret->exe_fd = open(exe, O_RDONLY | O_CLOEXEC);
	heap_cover_allocator(w->pid, ret->allocator, sizeof(ret->allocator));
}

static void write_heap(struct heap_collector *c, struct watched *w, const struct identity *who, enum heap_how how,
	uint64_t now_ns)
{
	struct heap_cover cover = {0};
	char exe[48];

	snprintf(exe, sizeof(exe), "/proc/self/fd/%d", who->exe_fd);
	if (who->exe_fd >= 0 && !(c->probes && heap_probes_watches(c->probes, w->pid)))
		heap_cover_file(exe, &cover);

	struct record_heap record = {
		.time_ns = now_ns,
		.rate = c->rate,
		.pid = (uint32_t)w->pid,
		.precision = (uint8_t)c->options.precision,
		.how = (uint8_t)how,
		.maps = (c->options.share_options & SHARE_OPTION_MAPS) != 0,
		.allocator = capture_string(c->writer, who->allocator[0] ? who->allocator : NULL),
		.uncovered = capture_string(c->writer, cover.kind == HEAP_OWN_ALLOCATOR ? cover.words : NULL),
	};
	w->record = record;
	if (collect_of_memory(c))
		capture_record(c->writer, RECORD_HEAP, &record, sizeof(record));
	c->stats.uncovered += cover.kind == HEAP_OWN_ALLOCATOR;
}

/* The same program as its parent. */
static void write_heap_of_child(
	struct heap_collector *c, struct watched *w, const struct watched *parent, uint64_t now_ns)
{
	w->record = parent->record;
	w->record.pid = (uint32_t)w->pid;
	w->record.time_ns = now_ns;
	w->record.rate = c->rate;
	if (collect_of_memory(c))
		capture_record(c->writer, RECORD_HEAP, &w->record, sizeof(w->record));
	c->stats.uncovered += w->record.uncovered != CAPTURE_NONE;
}

/* ---- begin and end ---- */

static void free_watched(struct heap_collector *c, struct watched *w)
{
	if (w->pid_fd >= 0)
		close(w->pid_fd);
	heap_tables_free(w->tables);
	collect_python_free(c, w);
	vec_release(&w->stacks);
	vec_release(&w->path);
	vec_release(&w->tids);
	c->watched[HEAP_SLOT(w->number)] = NULL;
	heap_readers_remove(c->readers, w->number);
	free(w);
}

static void watch_end(struct heap_collector *c, struct watched *w)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = w->number};

	w->pid_fd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	if (w->pid_fd >= 0)
		epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, w->pid_fd, &event);
}

/* Whom a child was forked from, when that is watched and no other has its number. Such a child did not wait for us, and may be
 * another program by now, or gone. */
static const struct watched *parent_of(const struct heap_collector *c, const struct watched *w)
{
	uint32_t from = heap_readers_shared(c->readers, w->number)->forked_from;
	const struct watched *found = NULL;

	for (uint32_t i = 0; from && i < c->slots; i++) {
		const struct watched *other = c->watched[i];

		if (!other || other == w || other->says || (uint32_t)other->own_pid != from)
			continue;
		if (found)
			return NULL;
		found = other;
	}
	return found && found->pid != w->pid && found->record.pid ? found : NULL;
}

/* In the session: new, or the same process with another program. */
static void enter_session(
	struct heap_collector *c, const struct watched *w, const struct watched *parent, bool exec, uint64_t now_ns)
{
	char name[PROC_NAME_BYTES];

	if (parent) {
		session_forked(c->session, parent->pid, w->pid, parent->pid, w->pid, now_ns);
		if (session_knows(c->session, w->pid))
			return;
	}
	if (exec && !proc_thread_name(w->pid, w->pid, name, sizeof(name), NULL))
		session_renamed(c->session, w->pid, w->pid, name, true, now_ns);
	session_adopt(c->session, w->pid, NULL);
}

static int prepare(struct heap_collector *c, struct watched *w, struct err *err)
{
	int rc = heap_model_process(
		c->model, w->number, (uint32_t)w->pid, w->says ? HEAP_EXACT : c->options.precision, err);

	if (!rc && w->says)
		heap_model_apart(c->model, w->number);
	else if (!rc && c->options.precision != HEAP_CALLS)
		heap_model_sizes(c->model, w->number, heap_readers_header(c->readers, w->number)->sizes);
	if (!rc)
		rc = heap_tables_new(c->rules, heap_readers_tables(c->readers, w->number),
			heap_readers_shared(c->readers, w->number), 0, &w->tables, err);
	if (!rc)
		heap_tables_keep(w->tables, heap_readers_shared(c->readers, w->number)->tables_kept);
	return rc;
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_ino;
}

/* It is told to do nothing, and not to wait for us. */
static void turn_away(struct heap_collector *c, uint32_t number)
{
	heap_readers_stop(c->readers, number);
	heap_readers_publish(c->readers, number, 0, heap_readers_modules_wanted(c->readers, number));
	heap_readers_remove(c->readers, number);
}

/* What it is, and its tables, which it may be waiting for. */
static void tell_program(struct heap_collector *c, struct watched *w, const struct watched *parent, struct counted counted,
	enum heap_how how, uint64_t now_ns)
{
	struct identity who;

	if (parent) {
		collect_python(c, w, now_ns);
		publish(c, w, counted, FIRST_TABLES_NS);
		write_heap_of_child(c, w, parent, now_ns);
		return;
	}
	identify(w, &who);
	collect_python(c, w, now_ns);
	publish(c, w, counted, FIRST_TABLES_NS);
	write_heap(c, w, &who, how, now_ns);
	if (who.exe_fd >= 0)
		close(who.exe_fd);
}

int collect_begin(struct heap_collector *c, int fd, pid_t pid, pid_t own_pid, enum heap_how how, struct err *err)
{
	struct watched *before = collect_find(c, pid), *w;
	uint64_t now = clock_monotonic_ns(), inode = inode_of(fd);
	const struct watched *parent;
	struct counted counted;
	uint32_t number;
	int rc = heap_readers_add(c->readers, fd, (uint32_t)pid, &number, err);
	bool says = !rc && heap_readers_header(c->readers, number)->mode == SHARE_PROGRAM;

	if (rc)
		return rc;
	if (c->probes && c->options.probes_alone && !says && heap_probes_watches(c->probes, pid)) {
		turn_away(c, number);
		return 0;
	}
	if (c->probes && HEAP_SLOT(number) >= HEAP_PROCESSES - HEAP_PROBED_MOST) {
		turn_away(c, number);
		return err_set(err, EMFILE, "too many programs at once");
	}
	w = c->options.only_pid && c->options.only_pid != pid ? NULL : calloc(1, sizeof(*w));
	if (!w) {
		turn_away(c, number);
		return c->options.only_pid && c->options.only_pid != pid ? 0 : err_nomem(err);
	}
	if (before && !says)
		collect_end(c, before, true, now);
	*w = (struct watched){
		.number = number, .pid = pid, .own_pid = own_pid, .says = says, .inode = inode, .pid_fd = -1};
	c->watched[HEAP_SLOT(number)] = w;
	if (HEAP_SLOT(number) >= c->slots)
		c->slots = HEAP_SLOT(number) + 1;
	watch_end(c, w); /* while it waits for its tables */
	counted = count_modules(c, w);
	parent = parent_of(c, w);
	if (says)
		collect_said_over(c, w);
	if (!says || !has_another(c, w))
		enter_session(c, w, parent, before, now);
	else
		session_read_maps(c->session, pid, NULL);
	rc = prepare(c, w, err);
	if (rc) {
		heap_readers_stop(c->readers, number);
		free_watched(c, w);
		return rc;
	}
	if (says) {
		publish(c, w, counted, FIRST_TABLES_NS);
		return 0;
	}
	tell_program(c, w, parent, counted, how, now);
	/* What it found in its environment is what the rate was when the first program began. */
	if (c->rate != c->options.rate)
		heap_readers_set_rate(c->readers, w->number, c->rate);
	c->stats.processes++;
	return 0;
}

/* It writes nothing more. For another reason than ours the report says so of the process. */
static void tell_left(struct heap_collector *c, struct watched *w, uint32_t left)
{
	const char *words = left == SHARE_LEFT_SANDBOX
		? "has put itself into a sandbox (seccomp), which may end a program for a system call of ours: what it did "
		  "after that is not seen"
		: left == SHARE_LEFT_LIMIT ? "has set itself a limit on address space (ulimit -v), which leaves no room for the memory "
					     "shared with sonde: what it did after that is not seen"
					   : NULL;

	w->left = left;
	c->stats.gave_up += left == SHARE_LEFT_UNREAD;
	if (!words || w->says || !w->record.pid)
		return;
	w->record.uncovered = capture_string(c->writer, words);
	if (collect_of_memory(c))
		capture_record(c->writer, RECORD_HEAP, &w->record, sizeof(w->record));
	c->stats.uncovered++;
}

void collect_losses(struct heap_collector *c, struct watched *w)
{
	uint32_t left = __atomic_load_n(&heap_readers_shared(c->readers, w->number)->gave_up, __ATOMIC_RELAXED);
	struct heap_losses now;
	const uint64_t *old = w->losses.lost;

	heap_readers_losses(c->readers, w->number, &now);
	session_lost(c->session, w->says ? LOSS_NOTE : LOSS_HEAP,
		now.lost[SHARE_LOST_CHUNK] - old[SHARE_LOST_CHUNK] + now.lost[SHARE_LOST_RING] - old[SHARE_LOST_RING] +
			now.lost[SHARE_LOST_REENTERED] - old[SHARE_LOST_REENTERED]);
	session_lost(c->session, w->says ? LOSS_NOTE : LOSS_HEAP_EARLY, now.lost[SHARE_LOST_EARLY] - old[SHARE_LOST_EARLY]);
	session_lost(c->session, LOSS_HEAP_STACK,
		now.lost[SHARE_LOST_NODE] - old[SHARE_LOST_NODE] + now.nodes_wrong - w->losses.nodes_wrong);
	if (left != w->left)
		tell_left(c, w, left);
	c->stats.rings_abandoned += now.rings_abandoned - w->losses.rings_abandoned;
	w->losses = now;
}

void collect_end(struct heap_collector *c, struct watched *w, bool exec, uint64_t now_ns)
{
	collect_losses(c, w);
	heap_model_process_ended(c->model, collect_of_memory(c) ? c->writer : NULL, w->number, now_ns);
	if (!exec && !has_another(c, w))
		session_exited(c->session, w->pid, w->pid, now_ns);
	free_watched(c, w);
}

/* ---- children that say no hello ---- */

#define MOST_UNSEEN 1024u

static bool is_known(struct heap_collector *c, pid_t pid)
{
	vec_each(&c->unseen, it)
		if (*it == pid)
			return true;
	return collect_find(c, pid);
}

static void look_at_child(struct heap_collector *c, pid_t pid, uint64_t now_ns)
{
	struct heap_cover cover;
	char exe[48];

	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
	heap_cover_file(exe, &cover);
	/* Else it has not allocated anything yet, or changed its environment. */
	if ((cover.kind != HEAP_NOT_PRELOADED && cover.kind != HEAP_STATIC) || vec_push(&c->unseen, pid))
		return;

	struct record_heap record = {
		.time_ns = now_ns,
		.rate = c->rate,
		.pid = (uint32_t)pid,
		.precision = (uint8_t)c->options.precision,
		.how = HEAP_LAUNCHED,
		.allocator = CAPTURE_NONE,
		.uncovered = capture_string(c->writer, cover.words),
	};
	session_adopt(c->session, pid, NULL);
	if (collect_of_memory(c))
		capture_record(c->writer, RECORD_HEAP, &record, sizeof(record));
	c->stats.uncovered++;
}

void collect_unseen(struct heap_collector *c, const struct watched *w, uint64_t now_ns)
{
	struct pid_vec children = {0};

	if (c->options.only_pid || c->unseen.len >= MOST_UNSEEN)
		return;
	if (!proc_children(w->pid, 0, &children, NULL))
		vec_each(&children, pid)
			if (!is_known(c, *pid))
				look_at_child(c, *pid, now_ns);
	vec_release(&children);
}

/* ---- threads ---- */

/* Threads may be renamed at any time. */
static void rename_thread(struct heap_collector *c, const struct watched *w, pid_t tid, uint64_t now_ns)
{
	const char *known = session_thread_name(c->session, tid);
	char name[PROC_NAME_BYTES];

	if (!proc_thread_name(w->pid, tid, name, sizeof(name), NULL) && (!known || strcmp(known, name)))
		session_renamed(c->session, w->pid, tid, name, false, now_ns);
}

void collect_threads(struct heap_collector *c, struct watched *w, uint64_t now_ns)
{
	rename_thread(c, w, w->pid, now_ns);
	for (size_t i = w->tids.len; i-- > 0;) {
		pid_t own = w->tids.data[i], tid = collect_tid(w, (uint32_t)own);

		if (!syscall(SYS_tgkill, w->pid, tid, 0) || errno != ESRCH) {
			rename_thread(c, w, tid, now_ns);
			continue;
		}
		heap_readers_thread_gone(c->readers, w->number, (uint32_t)own);
		session_exited(c->session, w->pid, tid, now_ns);
		w->tids.data[i] = w->tids.data[--w->tids.len];
	}
}
