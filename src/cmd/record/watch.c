/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "capture/id_table.h"
#include "cmd/record/when.h"
#include "os/proc.h"
#include "os/usage.h"

/* Looking costs at most one part in so many. */
#define COST_PARTS 100u
/* Threads that no condition is about are looked at too, for their stacks in the recording. */
#define ALL_THREADS_NS NS_PER_S

struct idle_thread {
	pid_t pid, tid;
	struct usage_marks marks;
	uint64_t since_ns; /* it has not run since */
	uint64_t seen_ns;  /* when it was looked at last */
	uint64_t named_ns; /* since_ns of when its name was read */
	bool dead;         /* a zombie: it will never run again */
	char name[PROC_NAME_BYTES];
};

struct busy_process {
	pid_t pid;
	uint64_t cpu_ns;
};

struct watch {
	VEC(struct when) conditions;
	uint64_t cool_down_ns;
	bool threads_matter, all_threads_matter, names_matter; /* to conditions */
	bool cpu_matters, rss_matters, count_matters;
	struct pid_vec named;
	uint64_t interval_ns, next_ns, last_ns, all_threads_ns;

	VEC(struct idle_thread) threads;
	struct id_table thread_ids;
	VEC(struct busy_process) processes; /* with what they had used the last time */
	VEC(struct when_thread) facts;
	struct pid_vec found; /* scratch: the session's processes */
};

static void note_what_matters(struct watch *w, const struct when *c)
{
	bool blocked = c->kind == WHEN_BLOCKED;

	w->threads_matter |= blocked;
	w->all_threads_matter |= blocked && (c->who == WHEN_ANY || c->who == WHEN_NAME);
	w->names_matter |= blocked && c->who == WHEN_NAME;
	w->cpu_matters |= c->kind == WHEN_CPU;
	w->rss_matters |= c->kind == WHEN_RSS;
	w->count_matters |= c->kind == WHEN_THREADS;
	if (when_interval_ns(c) < w->interval_ns)
		w->interval_ns = when_interval_ns(c);
}

int watch_new(const struct option_list *conditions, uint64_t cool_down_ns, struct watch **ret,
	struct err *err)
{
	struct watch *w = calloc(1, sizeof(*w));
	int rc = w ? 0 : err_nomem(err);

	if (w) {
		w->cool_down_ns = cool_down_ns;
		w->interval_ns = UINT64_MAX;
	}
	for (size_t i = 0; !rc && i < conditions->len; i++) {
		struct when c;

		rc = when_parse(conditions->data[i], &c, err);
		if (!rc && vec_push(&w->conditions, c)) {
			when_release(&c);
			rc = err_nomem(err);
		}
		if (!rc)
			note_what_matters(w, &w->conditions.data[i]);
	}
	if (rc)
		watch_free(w);
	else
		*ret = w;
	return rc;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	vec_each(&w->conditions, c)
		when_release(c);
	vec_release(&w->conditions);
	vec_release(&w->named);
	vec_release(&w->threads);
	id_table_release(&w->thread_ids);
	vec_release(&w->processes);
	vec_release(&w->facts);
	vec_release(&w->found);
	free(w);
}

int watch_add(struct watch *w, pid_t pid, struct err *err)
{
	return vec_push(&w->named, pid) ? err_nomem(err) : 0;
}

uint64_t watch_next_ns(const struct watch *w)
{
	return w->conditions.len ? w->next_ns : UINT64_MAX;
}

/* ---- threads ---- */

static uint64_t thread_hash_of(const void *ctx, uint32_t id)
{
	return hash_u64((uint64_t)((const struct watch *)ctx)->threads.data[id].tid);
}

/* A thread is taken as having run when it is first seen. NULL when out of memory. */
static struct idle_thread *thread_of(struct watch *w, pid_t pid, pid_t tid, uint64_t now_ns)
{
	uint64_t hash = hash_u64((uint64_t)tid);
	struct id_probe probe = id_probe_start(&w->thread_ids, hash);
	struct idle_thread added = {.pid = pid, .tid = tid, .since_ns = now_ns};

	while (id_probe_next(&w->thread_ids, &probe))
		if (w->threads.data[probe.id].tid == tid)
			return &w->threads.data[probe.id];
	if (id_table_reserve(&w->thread_ids, thread_hash_of, w) || vec_push(&w->threads, added))
		return NULL;
	id_table_add(&w->thread_ids, hash, (uint32_t)w->threads.len - 1);
	return &w->threads.data[w->threads.len - 1];
}

static void look_at_thread(struct watch *w, pid_t pid, pid_t tid, uint64_t now_ns)
{
	struct usage_marks marks;
	struct idle_thread *t;

	if (usage_thread(pid, tid, &marks, NULL))
		return;
	t = thread_of(w, pid, tid, now_ns);
	if (!t)
		return;
	if (t->pid != pid || marks.running || marks.ran != t->marks.ran ||
		marks.times != t->marks.times) {
		t->pid = pid;
		t->since_ns = now_ns;
		t->dead = false;
	}
	t->marks = marks;
	t->seen_ns = now_ns;
}

/* Those that were not seen this time are gone. */
static void forget_threads(struct watch *w, uint64_t now_ns)
{
	size_t kept = 0;

	vec_each(&w->threads, t)
		if (t->seen_ns == now_ns)
			w->threads.data[kept++] = *t;
	if (kept == w->threads.len)
		return;
	w->threads.len = kept;
	w->thread_ids.used = 0;
	memset(w->thread_ids.slots, 0, w->thread_ids.slot_count * sizeof(*w->thread_ids.slots));
	for (uint32_t i = 0; i < kept; i++)
		id_table_add(&w->thread_ids, thread_hash_of(w, i), i);
}

static void look_at_all_threads(struct watch *w, uint64_t now_ns)
{
	struct pid_vec tids = {0};

	vec_each(&w->found, pid) {
		tids.len = 0;
		if (!proc_threads(*pid, &tids, NULL))
			vec_each(&tids, tid)
				look_at_thread(w, *pid, *tid, now_ns);
	}
	vec_release(&tids);
	forget_threads(w, now_ns);
	w->all_threads_ns = now_ns;
}

/* The process of a thread that a condition names. */
static pid_t process_of(const struct watch *w, pid_t tid)
{
	vec_each(&w->threads, t)
		if (t->tid == tid)
			return t->pid;
	return 0;
}

static void look_at_threads(struct watch *w, uint64_t now_ns)
{
	if (w->all_threads_matter || now_ns - w->all_threads_ns >= ALL_THREADS_NS) {
		look_at_all_threads(w, now_ns);
		return;
	}
	vec_each(&w->named, pid)
		look_at_thread(w, *pid, *pid, now_ns);
	vec_each(&w->conditions, c) {
		pid_t pid = c->kind == WHEN_BLOCKED && c->who == WHEN_TID ? process_of(w, c->tid)
									 : 0;

		if (pid)
			look_at_thread(w, pid, c->tid, now_ns);
	}
}

static bool is_named(const struct watch *w, pid_t pid)
{
	vec_each(&w->named, named)
		if (*named == pid)
			return true;
	return false;
}

/* Who does not run cannot be renamed (but by another thread), nor die: asked once is enough. */
static void name_thread(struct idle_thread *t)
{
	struct proc_status status;

	if (t->named_ns == t->since_ns)
		return;
	t->named_ns = t->since_ns;
	/* A thread that has ended before the others of its process does stay as a zombie. */
	t->dead = proc_status_read(t->tid, &status, NULL) || strchr("ZX", status.state);
	if (proc_thread_name(t->pid, t->tid, t->name, sizeof(t->name), NULL))
		snprintf(t->name, sizeof(t->name), "%d", (int)t->tid);
}

/* Whether the thread has been idle for long enough for any condition. */
static bool may_count(const struct watch *w, uint64_t idle_ns)
{
	vec_each(&w->conditions, c)
		if (c->kind == WHEN_BLOCKED && idle_ns > c->duration_ns)
			return true;
	return false;
}

static void gather_threads(struct watch *w, uint64_t now_ns)
{
	w->facts.len = 0;
	vec_each(&w->threads, t) {
		uint64_t idle_ns = t->seen_ns - t->since_ns;

		/* What was not looked at now says nothing about now. */
		if (t->seen_ns != now_ns || !may_count(w, idle_ns))
			continue;
		name_thread(t);
		if (t->dead)
			continue;
		if (vec_push(&w->facts,
			    (struct when_thread){
				    .pid = t->pid,
				    .tid = t->tid,
				    .is_main = t->pid == t->tid && is_named(w, t->pid),
				    .idle_ns = idle_ns,
				    .name = t->name,
			    }))
			return;
	}
}

/* ---- processes ---- */

static void add_found(void *ctx, pid_t pid)
{
	struct watch *w = ctx;

	if (pid > 0)
		(void)vec_push(&w->found, pid);
}

static uint64_t cpu_before(const struct watch *w, pid_t pid, uint64_t now_ns)
{
	vec_each(&w->processes, p)
		if (p->pid == pid)
			return p->cpu_ns < now_ns ? p->cpu_ns : now_ns;
	return now_ns; /* a new one: it counts from now on */
}

/* In percent of one CPU, since the last look; below 0: there was none. What a process used between
 * the last look and its end is not counted. */
static double cpu_percent(struct watch *w, uint64_t since_ns, uint64_t now_ns)
{
	VEC(struct busy_process) now = {0};
	uint64_t used = 0;

	vec_each(&w->found, pid) {
		struct busy_process p = {.pid = *pid};

		if (usage_cpu(*pid, &p.cpu_ns, NULL) || vec_push(&now, p))
			continue;
		used += p.cpu_ns - cpu_before(w, *pid, p.cpu_ns);
	}
	vec_release(&w->processes);
	w->processes.data = now.data;
	w->processes.len = now.len;
	w->processes.cap = now.cap;
	return since_ns && now_ns > since_ns ? 100.0 * (double)used / (double)(now_ns - since_ns)
					     : -1;
}

static uint64_t sum_of(
	const struct watch *w, int (*get)(pid_t pid, uint64_t *ret, struct err *err))
{
	uint64_t sum = 0, one;

	vec_each(&w->found, pid)
		if (!get(*pid, &one, NULL))
			sum += one;
	return sum;
}

/* ---- looking ---- */

static struct when_facts gather(struct watch *w, struct session *s, uint64_t now_ns)
{
	struct when_facts f = {.now_ns = now_ns, .since_ns = w->last_ns, .cpu_percent = -1};

	w->found.len = 0;
	session_each_process(s, add_found, w);
	if (w->threads_matter) {
		look_at_threads(w, now_ns);
		gather_threads(w, now_ns);
	}
	if (w->cpu_matters)
		f.cpu_percent = cpu_percent(w, w->last_ns, now_ns);
	if (w->rss_matters)
		f.rss_bytes = sum_of(w, usage_memory);
	if (w->count_matters)
		f.thread_count = sum_of(w, usage_thread_count);
	f.threads = w->facts.data;
	f.known_threads = w->facts.len;
	return f;
}

static void say_why(const struct when *c, const struct when_facts *f, size_t thread, char *why,
	size_t size)
{
	const struct when_thread *t = c->kind == WHEN_BLOCKED ? &f->threads[thread] : NULL;

	switch (c->kind) {
	case WHEN_BLOCKED:
		snprintf(why, size, "%s: thread %s (%d) has not run for %.1f s", c->text, t->name,
			(int)t->tid, (double)t->idle_ns / 1e9);
		break;
	case WHEN_CPU:
		snprintf(why, size, "%s: %.0f %% now", c->text, f->cpu_percent);
		break;
	case WHEN_RSS:
		snprintf(why, size, "%s: %.0f MB now", c->text, (double)f->rss_bytes / 1048576);
		break;
	case WHEN_THREADS:
		snprintf(why, size, "%s: %llu now", c->text, (unsigned long long)f->thread_count);
		break;
	}
}

bool watch_look(struct watch *w, struct session *s, uint64_t now_ns, char *why, size_t size)
{
	uint64_t cpu_ns = clock_own_cpu_ns(), wait_ns = w->interval_ns;
	bool fires = false;
	size_t thread = 0;

	if (!w->conditions.len || now_ns < w->next_ns)
		return false;

	struct when_facts f = gather(w, s, now_ns);

	vec_each(&w->conditions, c) {
		if (!when_fires(c, &f, w->cool_down_ns, &thread))
			continue;
		if (!fires)
			say_why(c, &f, thread, why, size);
		fires = true;
	}
	cpu_ns = clock_own_cpu_ns() - cpu_ns;
	if (wait_ns < cpu_ns * COST_PARTS)
		wait_ns = cpu_ns * COST_PARTS;
	w->last_ns = now_ns;
	w->next_ns = now_ns + wait_ns;
	return fires;
}

void watch_each_idle(struct watch *w, struct session *s, uint64_t now_ns,
	void (*fn)(void *ctx, pid_t pid, pid_t tid, uint64_t since_ns), void *ctx)
{
	if (!w->threads_matter)
		return;
	w->found.len = 0;
	session_each_process(s, add_found, w);
	look_at_all_threads(w, now_ns);
	vec_each(&w->threads, t)
		if (t->since_ns < now_ns)
			fn(ctx, t->pid, t->tid, t->since_ns);
}
