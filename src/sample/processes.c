/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "sample/python/known.h"
#include "sample/text_copy.h"

#define BUCKETS 4096u

/* More executable mappings than this are not copied at a fork. */
#define MAX_COPIED_MAPPINGS 4096u

struct process_table {
	struct module_store *modules;
	mapping_added added;
	void *ctx;
	struct process *processes[BUCKETS];
	struct thread *threads[BUCKETS];
	size_t count;
};

static unsigned bucket_of(pid_t id)
{
	return (unsigned)hash_u64((uint64_t)id) % BUCKETS;
}

int process_table_new(struct module_store *modules, mapping_added added, void *ctx,
	struct process_table **ret, struct err *err)
{
	struct process_table *t = calloc(1, sizeof(*t));

	if (!t)
		return err_nomem(err);
	t->modules = modules;
	t->added = added;
	t->ctx = ctx;
	*ret = t;
	return 0;
}

static void process_free(struct process *p)
{
	python_of_process_free(p->python);
	vec_release(&p->mappings);
	free(p->command);
	free(p);
}

void process_table_free(struct process_table *t)
{
	if (!t)
		return;
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct process *p = t->processes[i], *next; p; p = next) {
			next = p->next;
			process_free(p);
		}
		for (struct thread *th = t->threads[i], *next; th; th = next) {
			next = th->next;
			free(th);
		}
	}
	free(t);
}

struct process *process_find(struct process_table *t, pid_t pid)
{
	for (struct process *p = t->processes[bucket_of(pid)]; p; p = p->next)
		if (p->pid == pid)
			return p;
	return NULL;
}

struct process *process_get(struct process_table *t, pid_t pid)
{
	struct process *p = process_find(t, pid);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->next = t->processes[bucket_of(pid)];
	t->processes[bucket_of(pid)] = p;
	t->count++;
	return p;
}

static void process_remove(struct process_table *t, struct process *p)
{
	struct process **at = &t->processes[bucket_of(p->pid)];

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	t->count--;
	module_store_jit_over(t->modules, p->pid);
	process_free(p);
}

/* Index of the first mapping that ends above `addr`. */
static size_t lower_bound(const struct process *p, uint64_t addr)
{
	size_t lo = 0, hi = p->mappings.len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->mappings.data[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct space_mapping *process_mapping(const struct process *p, uint64_t addr)
{
	size_t i = lower_bound(p, addr);

	if (i == p->mappings.len || p->mappings.data[i].start > addr)
		return NULL;
	return &p->mappings.data[i];
}

/* Opens a gap at [start, end): what overlaps it is cut, split or dropped. The index of the gap,
 * with room for one more mapping and for the second half of a split; -ENOMEM. */
static ssize_t make_gap(struct process *p, uint64_t start, uint64_t end)
{
	if (vec_reserve(&p->mappings, p->mappings.len + 2))
		return -ENOMEM;

	struct space_mapping *all = p->mappings.data;
	size_t first = lower_bound(p, start), last = first;

	if (first < p->mappings.len && all[first].start < start) {
		struct space_mapping tail = all[first];

		all[first].end = start;
		first++;
		if (tail.end > end) {
			memmove(all + first + 1, all + first,
				(p->mappings.len - first) * sizeof(*all));
			tail.start = end;
			all[first] = tail;
			p->mappings.len++;
			return (ssize_t)first;
		}
		last = first;
	}
	while (last < p->mappings.len && all[last].end <= end)
		last++;
	if (last < p->mappings.len && all[last].start < end)
		all[last].start = end;
	memmove(all + first, all + last, (p->mappings.len - last) * sizeof(*all));
	p->mappings.len -= last - first;
	return (ssize_t)first;
}

struct space_mapping *process_code(struct process_table *t, struct process *p, uint64_t addr)
{
	size_t i = lower_bound(p, addr);

	if (i == p->mappings.len || p->mappings.data[i].start > addr)
		return NULL;

	struct space_mapping *m = &p->mappings.data[i];

	if (m->copied_from && text_copy_settle(module_store_source(t->modules), m, p->pid, addr))
		t->added(t->ctx, p, m);
	return m;
}

int process_map(struct process_table *t, struct process *p, const struct proc_mapping *m)
{
	if (p->mappings.len >= PROCESS_MAX_MAPPINGS)
		return -ENOMEM;

	struct module *module = module_store_mapped(t->modules, p->pid, m);

	if (!module)
		return -ENOMEM;

	struct space_mapping added = {.start = m->start, .end = m->end, .module = module};

	added.meaningless = !module_bias(module, m, &added.bias);
	text_copy_replaces(&added, process_mapping(p, m->start));

	ssize_t at = make_gap(p, m->start, m->end);

	if (at < 0)
		return -ENOMEM;

	struct space_mapping *all = p->mappings.data;

	memmove(all + at + 1, all + at, (p->mappings.len - (size_t)at) * sizeof(*all));
	all[at] = added;
	p->mappings.len++;
	t->added(t->ctx, p, &added);
	return 0;
}

struct snapshot {
	struct process_table *table;
	struct process *process;
	/* The mapping before, when it is of a file: what it may be text of, if that was copied. */
	struct proc_mapping before;
	char before_path[4096];
	bool has_before;
	size_t waiting; /* index + 1 of a mapping that ends where the next begins; 0: none */
};

/* An executable mapping without a file was added between two mappings of a file, or after another of
 * its kind. */
static void look_beside(struct snapshot *s, const struct proc_mapping *m)
{
	size_t last = s->process->mappings.len - 1;
	struct space_mapping *all = s->process->mappings.data, *added = &all[last];

	if (s->has_before && s->before.end == m->start)
		text_copy_beside(added,
			module_store_mapped(s->table->modules, s->process->pid, &s->before),
			&s->before);
	else if (last && all[last - 1].end == m->start)
		text_copy_replaces(added, &all[last - 1]);
	s->waiting = added->copied_from ? 0 : last + 1;
}

static bool is_file(const struct proc_mapping *m)
{
	return m->path[0] == '/' && m->inode;
}

static int snapshot_mapping(void *ctx, const struct proc_mapping *m)
{
	struct snapshot *s = ctx;
	int rc = m->exec ? process_map(s->table, s->process, m) : 0;

	if (!strcmp(m->path, "[stack]"))
		s->process->stack_end = m->end;
	if (rc)
		return rc;
	if (s->waiting && is_file(m) && m->offset) {
		struct space_mapping *copy = &s->process->mappings.data[s->waiting - 1];

		if (copy->end == m->start)
			text_copy_beside(copy,
				module_store_mapped(s->table->modules, s->process->pid, m), m);
	}
	s->waiting = 0;
	if (m->exec && !is_file(m) && m->path[0] != '[')
		look_beside(s, m);
	s->has_before = is_file(m);
	if (s->has_before) {
		s->before = *m;
		snprintf(s->before_path, sizeof(s->before_path), "%s", m->path);
		s->before.path = s->before_path;
	}
	return 0;
}

int process_snapshot(struct process_table *t, struct process *p, uint64_t now_ns, struct err *err)
{
	struct snapshot s = {t, p};
	__typeof__(p->mappings) before = p->mappings;

	memset(&p->mappings, 0, sizeof(p->mappings));
	p->refresh_ns = now_ns;
	const struct source *source = module_store_source(t->modules);
	int rc = source->ops->each_mapping(source, p->pid, snapshot_mapping, &s, err);
	p->maps_refused = rc == -EACCES || rc == -EPERM;
	if (!rc && p->mappings.len) {
		p->snapshot_ns = now_ns;
		vec_release(&before);
	} else {
		/* It is gone meanwhile: what was known holds for the records it has left behind. */
		vec_release(&p->mappings);
		p->mappings = before;
	}
	return rc;
}

struct process *process_fork(
	struct process_table *t, struct process *parent, pid_t child, uint64_t time_ns)
{
	struct process *p = process_get(t, child);
	size_t count = parent->mappings.len <= MAX_COPIED_MAPPINGS ? parent->mappings.len : 0;

	if (!p || vec_reserve(&p->mappings, count))
		return NULL;
	if (count)
		memcpy(p->mappings.data, parent->mappings.data,
			count * sizeof(*p->mappings.data));
	p->mappings.len = count;
	vec_each(&p->mappings, m)
		m->told_in = 0;
	p->stack_end = parent->stack_end;
	p->snapshot_ns = p->refresh_ns = 0;
	p->told_code = parent->told_code;
	p->jitdump = parent->jitdump;
	p->jitdump_until_ns =
		time_ns < parent->jitdump_until_ns ? time_ns : parent->jitdump_until_ns;
	return p;
}

/* Takes the thread out; its process goes with the last one. */
static void thread_remove(struct process_table *t, struct thread **at)
{
	struct thread *th = *at;

	*at = th->next;
	t->count--;
	if (!--th->process->threads)
		process_remove(t, th->process);
	free(th);
}

void process_exec(struct process_table *t, struct process *p, pid_t survivor)
{
	for (unsigned i = 0; p->threads > 1 && i < BUCKETS; i++)
		for (struct thread **at = &t->threads[i]; *at && p->threads > 1;)
			if ((*at)->process == p && (*at)->tid != survivor)
				thread_remove(t, at);
			else
				at = &(*at)->next;
	p->mappings.len = 0;
	p->stack_end = 0;
	p->snapshot_ns = p->refresh_ns = 0;
	p->in_exec = true;
	p->told_code = false;
	p->jitdump = NULL;
	python_of_process_free(p->python);
	p->python = NULL;
	module_store_jit_over(t->modules, p->pid);
}

struct thread *thread_find(struct process_table *t, pid_t tid)
{
	for (struct thread *th = t->threads[bucket_of(tid)]; th; th = th->next)
		if (th->tid == tid)
			return th;
	return NULL;
}

struct thread *thread_get(struct process_table *t, struct process *p, pid_t tid)
{
	struct thread *th = thread_find(t, tid);

	if (th && th->process == p)
		return th;
	if (th) /* the id was taken over by a thread of another process */
		thread_exit(t, th->process->pid, tid);
	th = calloc(1, sizeof(*th));
	if (!th)
		return NULL;
	th->tid = tid;
	th->process = p;
	th->selected = true;
	th->credit_ns = hash_u64((uint64_t)tid);
	th->next = t->threads[bucket_of(tid)];
	t->threads[bucket_of(tid)] = th;
	t->count++;
	p->threads++;
	return th;
}

void thread_exit(struct process_table *t, pid_t pid, pid_t tid)
{
	struct thread **at = &t->threads[bucket_of(tid)];

	while (*at && (*at)->tid != tid)
		at = &(*at)->next;
	if (*at) {
		thread_remove(t, at);
		return;
	}

	/* One that never ran while we looked, of a process known for its mappings alone. */
	struct process *p = process_find(t, pid);

	if (p && !p->threads)
		process_remove(t, p);
}

void process_table_each_process(
	struct process_table *t, void (*fn)(void *ctx, struct process *p), void *ctx)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct process *p = t->processes[i]; p; p = p->next)
			fn(ctx, p);
}

void process_table_each_thread(
	struct process_table *t, void (*fn)(void *ctx, struct thread *th), void *ctx)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct thread *th = t->threads[i]; th; th = th->next)
			fn(ctx, th);
}

size_t process_table_count(const struct process_table *t)
{
	return t->count;
}

/* Signal 0 only asks. What is not a pid (the kernel says -1 for the dead) would ask too many. */
static bool thread_is_gone(const struct thread *th)
{
	return th->process->pid <= 0 || th->tid <= 0 ||
		(syscall(SYS_tgkill, th->process->pid, th->tid, 0) && errno == ESRCH);
}

static bool process_is_gone(const struct process *p)
{
	return p->pid <= 0 || (kill(p->pid, 0) && errno == ESRCH);
}

static bool sweep_threads(struct process_table *t)
{
	bool found = false;

	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct thread **at = &t->threads[i]; *at;) {
			bool was_gone = (*at)->gone;

			(*at)->gone = thread_is_gone(*at);
			found |= (*at)->gone;
			if (was_gone && (*at)->gone)
				thread_remove(t, at);
			else
				at = &(*at)->next;
		}
	}
	return found;
}

/* Those without threads. */
static bool sweep_processes(struct process_table *t)
{
	bool found = false;

	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct process *p = t->processes[i], *next; p; p = next) {
			bool was_gone = p->gone;

			next = p->next;
			p->gone = !p->threads && process_is_gone(p);
			found |= p->gone;
			if (was_gone && p->gone)
				process_remove(t, p);
		}
	}
	return found;
}

bool process_table_sweep(struct process_table *t)
{
	bool threads = sweep_threads(t), processes = sweep_processes(t);

	return threads || processes;
}
