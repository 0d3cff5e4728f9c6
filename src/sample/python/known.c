/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/known.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "python/thread_names.h"
#include "sample/python/place.h"
#include "sample/session_priv.h"

/* A thread that is not in the list may have begun just now: the list is read again, this often at most. */
#define THREADS_AGAIN_NS (20 * NS_PER_MS)
/* A thread that is known may have come to another interpreter, of which nothing tells. */
#define THREADS_LATER_NS NS_PER_S
/* An interpreter that is not ready yet; one that could not be read. */
#define NOT_READY_NS (2 * NS_PER_MS)
#define OPEN_AGAIN_NS (50 * NS_PER_MS)

/* ---- a process ---- */


void python_of_process_free(struct python_of_process *p)
{
	if (!p)
		return;
	python_free(p->python);
	vec_release(&p->threads);
	vec_release(&p->functions);
	free(p);
}

bool python_of_process_read(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct python_of_process *p = ctx;

	return source_read(p->source, p->reader, addr, buf, len) ||
		(p->reader != p->pid && source_read(p->source, p->pid, addr, buf, len));
}

static const struct python_file *file_of(struct module *m)
{
	if (!m->file || m->kind != MODULE_FILE)
		return NULL;
	if (!m->python) {
		m->python = calloc(1, sizeof(*m->python));
		if (m->python) {
			python_file_look(m->file, m->python);
			elf_file_rest(m->file);
		}
	}
	return m->python && m->python->there ? m->python : NULL;
}

/* Which of the mapped files holds a runtime. ctypes may map a program a second time: the first one counts, which
 * has the memory that it runs with. */
static const struct space_mapping *find_runtime(const struct process *p)
{
	vec_each(&p->mappings, m)
		if (!m->meaningless && file_of(m->module))
			return m;
	return NULL;
}

struct naming_threads {
	const struct python_of_process *of;
	pid_t pid;
	void (*each)(void *ctx, pid_t tid, const char *name);
	void *ctx;
};

static void give_name(void *ctx, uint64_t pthread, const char *name)
{
	const struct naming_threads *n = ctx;

	vec_each(&n->of->threads, t)
		if (t->thread.pthread == pthread && t->tid && t->tid != n->pid) {
			n->each(n->ctx, t->tid, name);
			return;
		}
}

static void each_name(struct python_of_process *of, pid_t pid,
	void (*each)(void *ctx, pid_t tid, const char *name), void *ctx)
{
	struct naming_threads n = {of, pid, each, ctx};
	uint64_t done = 0;

	vec_each(&of->threads, t) {
		if (t->thread.interpreter_id || t->thread.interpreter == done)
			continue;
		done = t->thread.interpreter;
		python_thread_names(of->python, done, give_name, &n);
	}
}

static void tell_name(void *ctx, pid_t tid, const char *name)
{
	session_name_thread(ctx, tid, name);
}

static void read_threads(struct session *s, struct process *p);

/* For those who are told at the end what there was. */
static void note_python(struct session *s, const char *text, bool refused)
{
	vec_each(&s->pythons, p)
		if (p->refused == refused && !strcmp(p->text, text)) {
			p->processes++;
			return;
		}

	struct session_python new = {.text = strdup(text), .refused = refused, .processes = 1};

	if (new.text && vec_push(&s->pythons, new))
		free((char *)(uintptr_t)new.text);
}

static void open_python(struct session *s, struct process *p, uint64_t now)
{
	struct python_of_process *of = p->python;
	const struct space_mapping *m = find_runtime(p);
	struct python_place place;

	of->looked_mappings = p->mappings.len;
	if (!m)
		return;
	of->module = m->module;
	place = python_place_at(m->module->python, m->bias);
	if (python_new(&(struct python_memory){of, python_of_process_read}, &place, &of->python, &of->refusal)) {
		of->open_again_ns = of->refusal.code == EOPNOTSUPP ? UINT64_MAX
			: of->refusal.code == EAGAIN		    ? now + NOT_READY_NS
								    : now + OPEN_AGAIN_NS;
		if (of->refusal.code == EOPNOTSUPP)
			note_python(s, of->refusal.text, true);
		return;
	}
	s->runs_python = true;
	note_python(s, python_version_text(of->python), false);
	vec_each(&s->followers, f)
		f->ops->process(f->ctx, p->pid, of->python);
	if (s->followers.len)
		read_threads(s, p);
}

static struct python_of_process *known(struct session *s, struct process *p, pid_t reader)
{
	if (!p->python) {
		p->python = calloc(1, sizeof(*p->python));
		if (!p->python)
			return NULL;
		p->python->source = s->source;
		p->python->pid = p->pid;
		p->python->looked_mappings = SIZE_MAX;
	}
	p->python->reader = reader;
	return p->python;
}

struct python *python_of_process(struct session *s, struct process *p, pid_t reader)
{
	struct python_of_process *of = known(s, p, reader);
	uint64_t now;

	if (!of || of->python)
		return of ? of->python : NULL;
	if (!of->refusal.code && of->looked_mappings == p->mappings.len)
		return NULL;
	now = clock_monotonic_ns();
	if (!of->refusal.code || now >= of->open_again_ns)
		open_python(s, p, now);
	return of->python;
}

const char *python_of_process_refusal(const struct process *p)
{
	return p->python && !p->python->python ? p->python->refusal.text : "";
}

/* ---- its threads ---- */

/* By id; of one thread the state in the newest interpreter first, for it was entered from the others. */
static int compare_threads(const void *a, const void *b)
{
	const struct known_python_thread *x = a, *y = b;

	if (x->tid != y->tid)
		return (x->tid > y->tid) - (x->tid < y->tid);
	return (x->thread.interpreter_id < y->thread.interpreter_id) -
		(x->thread.interpreter_id > y->thread.interpreter_id);
}

/* Ids of the process's threads as it knows them itself: in a pid namespace of its own these are others. */
struct ids {
	VEC(uint32_t) inner;
	bool outside; /* they are not ours */
	struct pid_vec ours;
};

static void read_ids(struct session *s, const struct process *p, struct ids *ret)
{
	struct proc_status status = {0};

	*ret = (struct ids){0};
	if (s->source->ops->threads(s->source, p->pid, &ret->ours, NULL))
		return;
	ret->outside = !s->source->still && !s->source->ops->status(s->source, p->pid, &status, NULL) &&
		status.ns_pid && status.ns_pid != p->pid;
	for (size_t i = 0; i < ret->ours.len; i++) {
		pid_t inner = ret->ours.data[i];

		if (ret->outside)
			inner = s->source->ops->status(s->source, inner, &status, NULL)
				? 0
				: status.ns_pid;
		if (vec_push(&ret->inner, (uint32_t)inner))
			return;
	}
}

static pid_t ours_of(const struct ids *ids, uint32_t inner)
{
	if (!ids->outside)
		return (pid_t)inner;
	for (size_t i = 0; i < ids->inner.len; i++)
		if (ids->inner.data[i] == inner)
			return ids->ours.data[i];
	return 0;
}

static void read_threads(struct session *s, struct process *p)
{
	struct python_of_process *of = p->python;
	struct python_threads threads = {0};
	struct ids ids;

	read_ids(s, p, &ids);
	python_threads(of->python, ids.inner.data, ids.inner.len, &threads, NULL);
	of->threads.len = 0;
	vec_each(&threads, t)
		if (vec_push(&of->threads, (struct known_python_thread){ours_of(&ids, t->native_id), *t}))
			break;
	if (of->threads.len)
		qsort(of->threads.data, of->threads.len, sizeof(*of->threads.data), compare_threads);
	vec_release(&threads);
	vec_release(&ids.inner);
	vec_release(&ids.ours);
	each_name(of, p->pid, tell_name, s);
	vec_each(&s->followers, f)
		f->ops->threads(f->ctx, p->pid, of->python, of->threads.data, of->threads.len);
}

void python_each_name(struct session *s, struct process *p,
	void (*each)(void *ctx, pid_t tid, const char *name), void *ctx)
{
	python_refresh(p->python->python);
	read_threads(s, p);
	each_name(p->python, p->pid, each, ctx);
}

size_t python_threads_now(struct session *s, struct process *p, pid_t reader,
	const struct known_python_thread **ret)
{
	struct python *python = python_of_process(s, p, reader);

	*ret = NULL;
	if (!python)
		return 0;
	python_refresh(python);
	p->python->look = 0;
	read_threads(s, p);
	*ret = p->python->threads.data;
	return p->python->threads.len;
}

static size_t states_of(const struct python_of_process *of, pid_t tid, struct python_thread *ret,
	size_t limit)
{
	size_t low = 0, high = of->threads.len, count = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (of->threads.data[middle].tid < tid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < of->threads.len && of->threads.data[low].tid == tid && count < limit; low++)
		ret[count++] = of->threads.data[low].thread;
	return count;
}

/* States that were freed since the list was read: another thread's may stand there now. */
static bool still_there(const struct python_of_process *of, const struct python_thread *states, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!python_thread_stands(of->python, &states[i]))
			return false;
	return true;
}

size_t python_thread_states(struct session *s, const struct thread *th, struct python_thread *ret,
	size_t limit)
{
	struct python *python = python_of_process(s, th->process, th->tid);
	struct python_of_process *of = th->process->python;
	size_t count = python ? states_of(of, th->tid, ret, limit) : 0;
	uint64_t now;

	if (!python || (count && still_there(of, ret, count)))
		return count;
	now = clock_monotonic_ns();
	if (!count && now - of->threads_ns < THREADS_AGAIN_NS)
		return 0;
	of->threads_ns = now;
	python_refresh(python);
	read_threads(s, th->process);
	return states_of(of, th->tid, ret, limit);
}

size_t python_state_place(const struct python_of_process *of, pid_t tid, uint64_t state)
{
	struct python_thread states[PYTHON_MOST_STATES];
	size_t count = states_of(of, tid, states, PYTHON_MOST_STATES), i = 0;

	while (i < count && states[i].address != state)
		i++;
	return i < count ? i : PYTHON_NO_PLACE;
}

void python_thread_met(struct session *s, const struct thread *th, uint64_t state)
{
	struct python_of_process *of = th->process->python;
	size_t place = python_state_place(of, th->tid, state);
	uint64_t now = clock_monotonic_ns();

	if (now - of->threads_ns < (place == PYTHON_NO_PLACE ? THREADS_AGAIN_NS : THREADS_LATER_NS))
		return;
	of->threads_ns = now;
	python_refresh(of->python);
	read_threads(s, th->process);
}

/* ---- who follows ---- */

static void tell_known(void *ctx, struct process *p)
{
	struct session *s = ctx;
	const struct python_follower *f = &s->followers.data[s->followers.len - 1];

	if (!p->python || !p->python->python)
		return;
	f->ops->process(f->ctx, p->pid, p->python->python);
	read_threads(s, p);
}

int session_follow_python(struct session *s, const struct python_follower_ops *ops, void *ctx)
{
	int rc = vec_push(&s->followers, (struct python_follower){ops, ctx});

	if (!rc)
		process_table_each_process(s->processes, tell_known, s);
	return rc;
}

void python_tell_fork(struct session *s, pid_t parent, pid_t child)
{
	vec_each(&s->followers, f)
		f->ops->forked(f->ctx, parent, child);
}

void python_tell_gone(struct session *s, pid_t pid, pid_t tid)
{
	vec_each(&s->followers, f)
		f->ops->gone(f->ctx, pid, tid);
}

void python_tell_process(struct session *s, struct process *p, pid_t reader)
{
	if (s->followers.len)
		python_of_process(s, p, reader);
}
