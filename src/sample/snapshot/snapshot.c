/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes there are in a snapshot, and what their threads are in. */
#include "sample/snapshot/snapshot_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/usage.h"

/* Above this many threads reading /proc takes longer than loading a BPF program. */
#define MANY_THREADS 400u

/* How long mappings are believed when a process is looked at again and again. */
#define MAPPINGS_NS NS_PER_S

/* ---- life ---- */

/* What is looked at, and how. */
static int open_source(struct snapshot *s, struct err *err)
{
	int rc;

	s->source = &source_live;
	if (!s->options.core) {
		rc = look_proc.open(&s->proc, err);
		return !rc && s->options.method == SNAPSHOT_BPF ? look_bpf.open(&s->bpf, err) : rc;
	}
	s->options.method = SNAPSHOT_PROC;
	rc = core_open(s->options.core, s->options.root, &s->core, err);
	if (rc)
		return rc;
	s->source = core_source(s->core);
	s->proc = core_look(s->core);
	return 0;
}

int snapshot_new(const struct snapshot_options *options, struct snapshot **ret, struct err *err)
{
	struct naming_options naming = {
		.debuginfod = options->debuginfod, .plain_runtime = options->plain_runtime,
		.plain_beside_python = options->plain_beside_python};
	struct snapshot *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_nomem(err);
	s->options = *options;
	s->began_ns = clock_monotonic_ns();
	s->bytes = malloc(SNAPSHOT_STACK_BYTES);
	rc = s->bytes ? open_source(s, err) : err_nomem(err);
	if (!rc)
		rc = session_new_unrecorded(&s->all_threads, s->source, &s->writer, &s->session, err);
	if (!rc) {
		if (!s->core)
			session_maps_untold(s->session);
		s->names = live_names_new(s->session, &naming);
		rc = s->names ? 0 : err_nomem(err);
	}
	if (rc)
		snapshot_free(s);
	else
		*ret = s;
	return rc;
}

const struct snapshot_options *snapshot_asked(const struct snapshot *s)
{
	return &s->options;
}

static void free_threads(struct snapshot_threads *threads)
{
	vec_each(threads, t) {
		free((*t)->frames);
		free((*t)->python);
		free((*t)->steps);
		snapshot_forget_locals(*t);
		vec_release(&(*t)->locals);
		free(*t);
	}
	vec_release(threads);
}

static void free_mappings(struct snapshot_process *p)
{
	vec_each(&p->mappings, m)
		free((char *)m->path);
	vec_release(&p->mappings);
	p->mappings_read = false;
}

static void free_process(struct snapshot_process *p)
{
	free_threads(&p->threads);
	free_mappings(p);
	free(p->command);
	free(p);
}

void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	vec_each(&s->processes, p)
		free_process(*p);
	vec_release(&s->processes);
	vec_release(&s->looks);
	live_names_free(s->names);
	session_free(s->session);
	python_stopped_free(s->python);
	if (s->writer)
		capture_writer_abandon(s->writer);
	if (s->bpf)
		s->bpf->ops->free(s->bpf);
	if (s->proc)
		s->proc->ops->free(s->proc);
	core_free(s->core);
	free(s->bytes);
	free(s);
}

struct python *snapshot_python(struct snapshot *s, const struct snapshot_process *p, const char **ret_refusal)
{
	const char *refusal;
	struct python *python = session_python(s->session, p->pid, p->reader, &refusal);

	if (ret_refusal)
		*ret_refusal = refusal;
	return python;
}

size_t snapshot_python_threads(
	struct snapshot *s, const struct snapshot_process *p, const struct known_python_thread **ret)
{
	return session_python_threads(s->session, p->pid, p->reader, ret);
}

/* ---- looking ---- */

/* Whether BPF is at hand, loaded the first time; where it is refused, /proc it is. */
static bool have_bpf(struct snapshot *s)
{
	if (!s->bpf && !s->bpf_refused && s->options.method == SNAPSHOT_AUTO)
		s->bpf_refused = look_bpf.open(&s->bpf, &s->bpf_error);
	return s->bpf;
}

static int look_by(struct snapshot *s, struct look *look, pid_t pid, pid_t tid, struct err *err)
{
	int rc = look->ops->read(look, pid, tid, &s->looks, err);
	uint64_t now = clock_monotonic_ns();

	s->look_number++;
	*(look == s->bpf ? &s->used_bpf : &s->used_proc) = true;
	vec_each(&s->looks, l)
		l->at_ns = now;
	return rc;
}

int snapshot_look(struct snapshot *s, pid_t pid, pid_t tid, struct err *err)
{
	if (s->options.method != SNAPSHOT_BPF && (tid || !s->prefer_bpf))
		return look_by(s, s->proc, pid, tid, err);
	return look_by(s, s->bpf, pid, tid, err);
}

int snapshot_look_bpf(struct snapshot *s, pid_t pid, pid_t tid, struct err *err)
{
	if (have_bpf(s))
		return look_by(s, s->bpf, pid, tid, err);
	return s->bpf_refused ? s->bpf_refused : err_set(err, EPERM, "BPF is not to be used");
}

const struct thread_look *snapshot_looked(const struct snapshot *s, pid_t tid)
{
	vec_each(&s->looks, l)
		if (l->tid == tid)
			return l;
	return NULL;
}

void snapshot_take_look(struct snapshot_thread *t, const struct thread_look *look)
{
	char name[PROC_NAME_BYTES];

	memcpy(name, t->look.name, sizeof(name));
	t->look = *look;
	if (t->named)
		memcpy(t->look.name, name, sizeof(name));
	t->reason = state_of_wait(&look->wait);
	if (t->process->refused)
		t->faith = SNAPSHOT_REFUSED;
	else if (look->wait.blocked || t->process->source->still)
		t->faith = SNAPSHOT_ASLEEP;
	else
		t->faith = strchr("SD", look->wait.state) ? SNAPSHOT_MOVED : SNAPSHOT_SAMPLED;
}

void snapshot_take_registers(struct snapshot_thread *t, const struct thread_look *by_bpf)
{
	t->look.regs = by_bpf->regs;
	t->look.kernel_lock = by_bpf->kernel_lock;
	t->look.kernel_holder = by_bpf->kernel_holder;
	t->look.kernel_holder_pid = by_bpf->kernel_holder_pid;
	t->look.kernel_holder_sure = by_bpf->kernel_holder_sure;
}

static int add_thread(struct snapshot_process *p, const struct thread_look *look)
{
	struct snapshot_thread *t = calloc(1, sizeof(*t));

	if (!t || vec_push(&p->threads, t)) {
		free(t);
		return -ENOMEM;
	}
	t->process = p;
	snapshot_take_look(t, look);
	return 0;
}

/* Who holds a lock in the kernel only BPF tells. */
static void find_kernel_holders(struct snapshot *s, struct snapshot_process *p)
{
	bool any = false;

	vec_each(&p->threads, t)
		any |= (*t)->look.wait.state == 'D';
	if (!any || s->options.method != SNAPSHOT_AUTO || snapshot_look_bpf(s, p->pid, 0, NULL))
		return;
	vec_each(&p->threads, t) {
		const struct thread_look *now = snapshot_looked(s, (*t)->look.tid);

		if ((*t)->look.wait.state == 'D' && now && look_same(&(*t)->look, now))
			snapshot_take_registers(*t, now);
	}
}

static int look_at_process(struct snapshot *s, struct snapshot_process *p, struct err *err)
{
	uint64_t threads = 0;
	int rc;

	if (!s->core)
		usage_thread_count(p->pid, &threads, NULL);
	s->prefer_bpf = (s->options.often || threads > MANY_THREADS) && have_bpf(s);
	rc = snapshot_look(s, p->pid, 0, err);
	if (rc == -EPERM || rc == -EACCES) {
		p->refused = -rc;
		rc = 0;
	}
	vec_each(&s->looks, l)
		if (!rc && add_thread(p, l))
			rc = err_nomem(err);
	if (!rc && !p->refused)
		find_kernel_holders(s, p);
	return rc;
}

static void take_name(void *ctx, pid_t tid, const char *name)
{
	struct snapshot_thread *t = snapshot_thread(ctx, tid);

	if (!t)
		return;
	snprintf(t->look.name, sizeof(t->look.name), "%s", name);
	t->named = true;
}

/* Whether it runs Python, most likely: to look at the files of all processes for it would take too long. */
static bool seems_python(const struct snapshot_process *p)
{
	return strstr(p->status.name, "python") || (p->command && strstr(p->command, "python"));
}

/* Threads of Python programs are all called like the program by the kernel. `asked`: the process that all is about. */
static void name_threads(struct snapshot *s, struct snapshot_process *p, bool asked)
{
	if (!p->refused && p->threads.len > 1 && (asked || seems_python(p)))
		session_python_names(s->session, p->pid, p->reader, take_name, p);
}

static int add_process(
	struct snapshot *s, const struct proc_status *status, struct snapshot_process **ret, struct err *err)
{
	struct snapshot_process *p = calloc(1, sizeof(*p));
	char command[4096];
	int rc;

	if (!p)
		return err_nomem(err);
	p->pid = status->tgid;
	p->source = s->source;
	p->status = *status;
	p->reader = status->state == 'Z' ? proc_surviving_thread(p->pid) : p->pid;
	if (!s->source->ops->command_line(s->source, p->pid, command, sizeof(command), NULL))
		p->command = strdup(command);
	rc = look_at_process(s, p, err);
	if (!rc && vec_push(&s->processes, p))
		rc = err_nomem(err);
	if (rc) {
		free_process(p);
		return rc;
	}
	name_threads(s, p, s->processes.len == 1);
	*ret = p;
	return 0;
}

static void keep_name(struct snapshot_thread *t, const struct snapshot_thread *old)
{
	t->named = old->named;
	if (old->named)
		memcpy(t->look.name, old->look.name, sizeof(t->look.name));
}

/* What a thread had on its stack when it went to sleep is there still. */
static void keep_stack(struct snapshot_thread *t, struct snapshot_thread *old)
{
	if (!old->stack_read || old->faith != SNAPSHOT_ASLEEP || !look_same(&old->look, &t->look))
		return;
	t->stack_read = true;
	t->has_stack = old->has_stack;
	t->end = old->end;
	t->frames = take_ptr(old->frames);
	t->frame_count = old->frame_count;
	t->python = take_ptr(old->python);
	t->python_count = old->python_count;
	t->python_marks = old->python_marks;
	t->steps = take_ptr(old->steps);
	t->step_count = old->step_count;
	memcpy(&t->locals, &old->locals, sizeof(t->locals));
	memset(&old->locals, 0, sizeof(old->locals));
	if (__builtin_popcountll(old->look.regs.known) > __builtin_popcountll(t->look.regs.known))
		t->look.regs = old->look.regs;
}

/* Looks at a process again that was looked at before. */
static int renew_process(struct snapshot *s, struct snapshot_process *p, struct err *err)
{
	struct snapshot_threads old = p->threads;
	size_t at = 0, new = 0;
	int rc = s->source->ops->status(s->source, p->pid, &p->status, err);

	if (rc)
		return rc;
	p->threads = (struct snapshot_threads){0};
	p->reader = p->status.state == 'Z' ? proc_surviving_thread(p->pid) : p->pid;
	p->refused = 0;
	p->stacks_read = p->registers_read = false;
	if (clock_monotonic_ns() - p->mappings_ns > MAPPINGS_NS)
		free_mappings(p);
	rc = look_at_process(s, p, err);
	vec_each(&p->threads, t) {
		/* Both are ascending. */
		while (at < old.len && old.data[at]->look.tid < (*t)->look.tid)
			at++;
		if (at == old.len || old.data[at]->look.tid != (*t)->look.tid) {
			new++;
			continue;
		}
		keep_name(*t, old.data[at]);
		keep_stack(*t, old.data[at]);
	}
	if (new)
		name_threads(s, p, p == s->processes.data[0]);
	free_threads(&old);
	p->stale = rc != 0;
	return rc;
}

int snapshot_process(struct snapshot *s, pid_t pid, struct snapshot_process **ret, struct err *err)
{
	struct snapshot_process *known = snapshot_known(s, pid);
	struct proc_status status;
	int rc = 0;

	if (!known) {
		rc = s->source->ops->status(s->source, pid, &status, err);
		if (rc)
			return rc;
		known = snapshot_known(s, status.tgid);
	}
	if (!known)
		return add_process(s, &status, ret, err);
	if (known->stale)
		rc = renew_process(s, known, err);
	if (!rc)
		*ret = known;
	return rc;
}

void snapshot_renew(struct snapshot *s)
{
	size_t kept = 0;

	vec_each(&s->processes, p) {
		if ((*p)->stale) {
			free_process(*p);
			continue;
		}
		(*p)->stale = true;
		s->processes.data[kept++] = *p;
	}
	s->processes.len = kept;
}

struct snapshot_process *snapshot_known(struct snapshot *s, pid_t pid)
{
	vec_each(&s->processes, p)
		if ((*p)->pid == pid)
			return *p;
	return NULL;
}

const struct core *snapshot_core(const struct snapshot *s)
{
	return s->core;
}

size_t snapshot_process_count(const struct snapshot *s)
{
	return s->processes.len;
}

struct snapshot_process *snapshot_process_at(const struct snapshot *s, size_t index)
{
	return s->processes.data[index];
}

struct snapshot_thread *snapshot_thread(const struct snapshot_process *p, pid_t tid)
{
	size_t low = 0, high = p->threads.len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->threads.data[middle]->look.tid < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->threads.len && p->threads.data[low]->look.tid == tid ? p->threads.data[low]
									     : NULL;
}

struct snapshot_thread *snapshot_thread_inside(const struct snapshot_process *p, pid_t inner)
{
	struct proc_status status;

	if (p->status.ns_pid == p->pid)
		return snapshot_thread(p, inner);
	vec_each(&p->threads, t)
		if (!p->source->ops->status(p->source, (*t)->look.tid, &status, NULL) &&
			status.ns_pid == inner)
			return *t;
	return NULL;
}

/* ---- what is asked of processes ---- */

bool snapshot_read(
	struct snapshot *s, const struct snapshot_process *p, uint64_t addr, void *buf, size_t len)
{
	return !p->refused && source_read(s->source, p->reader, addr, buf, len);
}

static int add_mapping(void *ctx, const struct proc_mapping *m)
{
	struct snapshot_process *p = ctx;
	struct snapshot_mapping mapping = {
		.start = m->start,
		.end = m->end,
		.offset = m->offset,
		.inode = m->inode,
		.device = m->device,
		.write = m->write,
		.exec = m->exec,
		.shared = m->shared,
		.path = strdup(m->path),
	};

	if (!mapping.path || vec_push(&p->mappings, mapping)) {
		free((char *)mapping.path);
		return -ENOMEM;
	}
	return 0;
}

const struct snapshot_mapping *snapshot_mapping(struct snapshot_process *p, uint64_t addr)
{
	size_t low = 0, high;

	if (!p->mappings_read) {
		p->mappings_read = true;
		p->mappings_ns = clock_monotonic_ns();
		p->source->ops->each_mapping(p->source, p->pid, add_mapping, p, NULL);
	}
	high = p->mappings.len;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->mappings.data[middle].end <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->mappings.len && p->mappings.data[low].start <= addr ? &p->mappings.data[low]
									    : NULL;
}

struct live_name snapshot_name(struct snapshot *s, uint32_t frame)
{
	return live_name_of(s->names, frame);
}

struct elf_file *snapshot_frame_file(struct snapshot *s, uint32_t frame)
{
	return live_name_file(s->names, frame);
}

/* ---- again ---- */

static void compare(struct snapshot_thread *t, const struct thread_look *now)
{
	/* Of one that is not ours to read there is only its count. */
	t->moved_since = !now ||
		(t->process->refused ? t->look.switches != now->switches : !look_same(&t->look, now));
	if (!now)
		return;
	t->later = *now;
	t->seen_again = true;
}

void snapshot_again(struct snapshot *s)
{
	vec_each(&s->processes, it) {
		struct snapshot_process *p = *it;
		size_t at = 0;
		int rc;

		if (p->stale)
			continue;
		rc = snapshot_look(s, p->pid, 0, NULL);
		if (rc && rc != -EPERM && rc != -EACCES)
			s->looks.len = 0;
		vec_each(&p->threads, t) {
			/* Both are ascending. */
			while (at < s->looks.len && s->looks.data[at].tid < (*t)->look.tid)
				at++;
			compare(*t, at < s->looks.len && s->looks.data[at].tid == (*t)->look.tid
					? &s->looks.data[at]
					: NULL);
		}
	}
}

struct snapshot_cost snapshot_cost(const struct snapshot *s)
{
	static const char *const methods[2][2][3] = {
		/* without BPF, with it; without /proc, with it */
		{{"none", "perf", "stop"}, {"proc", "proc+perf", "proc+stop"}},
		{{"bpf", "bpf+perf", "bpf+stop"}, {"proc+bpf", "proc+bpf+perf", "proc+bpf+stop"}},
	};

	return (struct snapshot_cost){
		.method = s->core ? "core" : methods[s->used_bpf][s->used_proc][s->running.stop ? 2 : s->running.perf],
		.pause_ns = s->running.pause_ns,
		.longest_ns = s->running.longest_ns,
		.stops = s->running.stops,
		.elapsed_ns = clock_monotonic_ns() - s->began_ns,
	};
}
