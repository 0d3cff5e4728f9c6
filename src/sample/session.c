/* SPDX-License-Identifier: BSD-2-Clause */
/* The middle of `sonde record`: time-ordered events in, records out. */
#include "sample/session_priv.h"
#include "sample/jit.h"
#include "sample/python/known.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "capture/window.h"
#include "os/syscalls.h"

/* Of one sample. Periods of perf events need 2; where CPU times are read, as many as there are between
 * two times that the kernel brings them up to date. */
#define MOST_REPEATS 32u
/* Names of a thread that are written down when they are told; later ones with its next sample. */
#define NAMES_AT_ONCE 4u
/* So many threads and processes may well be alive; more are looked through for dead ones. */
#define SWEEP_ABOVE 4096u

void session_tell_mapping(struct session *s, const struct process *p, struct space_mapping *m)
{
	struct record_mapping record = {
		.time_ns = s->now_ns,
		.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.pid = (uint32_t)p->pid,
		.module = m->module->capture_id,
	};

	m->told_in = capture_segment(s->writer);
	capture_record(s->writer, RECORD_MAPPING, &record, sizeof(record));
}

static void mapping_is_new(void *ctx, struct process *p, struct space_mapping *m)
{
	struct session *s = ctx;

	if (!capture_segment(s->writer))
		session_tell_mapping(s, p, m);
	if (m->module->jit)
		jit_announced(s, p, m->module);
	if (m->module->refused && m->module->refused != ENOEXEC && !m->module->loss_counted) {
		m->module->loss_counted = true;
		session_lost(s, LOSS_FILE, 1);
	}
}

static int new_session(struct capture_writer *w, const struct thread_selection *selection,
	const struct source *source, struct session **ret, struct err *err)
{
	struct session *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_nomem(err);
	s->writer = w;
	s->source = source;
	s->selection = selection;
	s->sweep_above = SWEEP_ABOVE;
	s->truncated = CAPTURE_NONE;
	s->now_ns = clock_monotonic_ns();
	s->frames = calloc(FRAME_LIMIT, sizeof(*s->frames));
	s->frame_ids = calloc(FRAME_LIMIT, sizeof(*s->frame_ids));
	rc = s->frames && s->frame_ids ? module_store_new(w, source, &s->modules, err) : err_nomem(err);
	if (!rc)
		rc = process_table_new(s->modules, mapping_is_new, s, &s->processes, err);
	if (!rc)
		rc = unwinder_new(&s->unwinder, err);
	if (!rc)
		rc = python_stacks_new(&s->python, err);
	if (rc) {
		session_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int session_new(struct capture_writer *w, const struct thread_selection *selection,
	struct session **ret, struct err *err)
{
	return new_session(w, selection, &source_live, ret, err);
}

int session_new_unrecorded(const struct thread_selection *selection, const struct source *source,
	struct capture_writer **ret_writer, struct session **ret, struct err *err)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return err_errno(err, errno, "/dev/null");
	rc = capture_writer_to_fd(fd, "/dev/null", ret_writer, err);
	return rc ? rc : new_session(*ret_writer, selection, source, ret, err);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	unwinder_free(s->unwinder);
	python_stacks_free(s->python);
	process_table_free(s->processes);
	module_store_free(s->modules);
	vec_release(&s->seen_ns);
	vec_release(&s->named);
	vec_release(&s->keepers);
	vec_release(&s->followers);
	vec_each(&s->pythons, p)
		free((char *)(uintptr_t)p->text);
	vec_release(&s->pythons);
	free(s->frame_ids);
	free(s->frames);
	free(s);
}

/* ---- processes and threads ---- */

static void select_thread(struct session *s, struct thread *th)
{
	const struct thread_selection *want = s->selection;

	th->selected = (!want->tid || want->tid == th->tid) &&
		(!want->main_only || th->process->pid == th->tid) &&
		(!want->name || !regexec(want->name, th->name, 0, NULL, 0));
}

static void write_name(struct session *s, struct thread *th)
{
	struct record_thread record = {
		.time_ns = s->now_ns,
		.pid = (uint32_t)th->process->pid,
		.tid = (uint32_t)th->tid,
		.name = capture_string(s->writer, th->name),
	};

	th->told_in = capture_segment(s->writer);
	th->name_pending = false;
	th->names++;
	capture_record(s->writer, RECORD_THREAD, &record, sizeof(record));
}

static void write_process(
	struct session *s, struct process *p, pid_t ppid, const char *command)
{
	struct record_process record = {
		.time_ns = s->now_ns,
		.pid = (uint32_t)p->pid,
		.ppid = (uint32_t)ppid,
		.command = capture_string(s->writer, command),
	};

	p->told_in = capture_segment(s->writer);
	capture_record(s->writer, RECORD_PROCESS, &record, sizeof(record));
}

void session_tell(struct session *s, struct thread *th)
{
	uint32_t segment = capture_segment(s->writer);

	if (th->process->told_in != segment)
		write_process(s, th->process, th->process->ppid, th->process->command);
	if (th->name_pending || th->told_in != segment)
		write_name(s, th);
}

/* A thread may call itself something new a million times a second. What it was called when it was
 * not sampled is of interest only while it is new. */
static void name_thread(struct session *s, struct thread *th, const char *name)
{
	snprintf(th->name, sizeof(th->name), "%s", name);
	select_thread(s, th);
	if (th->names < NAMES_AT_ONCE && !capture_segment(s->writer))
		write_name(s, th);
	else
		th->name_pending = true;
}

void session_name_thread(struct session *s, pid_t tid, const char *name)
{
	struct thread *th = thread_find(s->processes, tid);

	if (th && strcmp(th->name, name))
		name_thread(s, th, name);
}

/* It is new, or another program from now on. A file is told at once, a window with its next sample:
 * by then the process may be gone, so its command line is kept. */
static void name_process(struct session *s, struct process *p, pid_t ppid)
{
	char command[4096];

	if (s->source->ops->command_line(s->source, p->pid, command, sizeof(command), NULL))
		command[0] = '\0';
	if (!capture_segment(s->writer)) {
		write_process(s, p, ppid, command);
		return;
	}
	free(p->command);
	p->command = strdup(command);
	p->ppid = ppid ? ppid : p->ppid;
	p->told_in = 0;
}

/* A thread that no record announced: it ran before we came. */
static struct thread *adopt_thread(struct session *s, struct process *p, pid_t tid)
{
	char name[PROC_NAME_BYTES];
	struct thread *th = thread_get(s->processes, p, tid);

	if (!th)
		return NULL;
	if (!s->source->ops->thread_name(s->source, p->pid, tid, name, sizeof(name), NULL)) {
		name_thread(s, th, name);
		return th;
	}
	/* It is gone, and what it did is told late. There is nothing to write: readers know the name
	 * that it had before it ended, or call it by its number as well. */
	snprintf(th->name, sizeof(th->name), "%d", (int)tid);
	select_thread(s, th);
	th->told_in = capture_segment(s->writer);
	return th;
}

static struct process *adopt_process(struct session *s, pid_t pid, struct err *err)
{
	struct process *p = process_get(s->processes, pid);
	struct proc_status status = {0};

	if (!p) {
		err_nomem(err);
		return NULL;
	}
	s->source->ops->status(s->source, pid, &status, NULL);
	name_process(s, p, status.ppid);
	process_snapshot(s->processes, p, clock_monotonic_ns(), err);
	return p;
}

int session_adopt(struct session *s, pid_t pid, struct err *err)
{
	struct pid_vec tids = {0};
	struct err why = {0};
	int rc = proc_threads(pid, &tids, err);

	s->now_ns = clock_monotonic_ns();
	struct process *p = rc ? NULL : adopt_process(s, pid, &why);
	if (!rc && (!p || why.code == ENOMEM))
		rc = err_nomem(err);
	for (size_t i = 0; !rc && i < tids.len; i++)
		if (!adopt_thread(s, p, tids.data[i]))
			rc = err_nomem(err);
	if (!rc && tids.len)
		python_tell_process(s, p, tids.data[0]);
	vec_release(&tids);
	return rc;
}

void session_expect_exec(struct session *s, pid_t pid)
{
	struct process *p = process_get(s->processes, pid);

	if (p)
		p->in_exec = true;
}

static struct process *known_process(struct session *s, pid_t pid)
{
	struct process *p = process_find(s->processes, pid);

	return p ? p : adopt_process(s, pid, NULL);
}

static struct thread *known_thread(struct session *s, pid_t pid, pid_t tid)
{
	struct thread *th = thread_find(s->processes, tid);

	if (th && th->process->pid == pid)
		return th;

	struct process *p = known_process(s, pid);

	return p ? adopt_thread(s, p, tid) : NULL;
}

struct thread *session_thread(struct session *s, pid_t pid, pid_t tid)
{
	return known_thread(s, pid, tid);
}

void session_mapped(struct session *s, pid_t pid, uint64_t time_ns, const struct proc_mapping *m)
{
	s->now_ns = time_ns;

	struct process *p = known_process(s, pid);

	if (!p || time_ns < p->snapshot_ns)
		return;
	if (p->mappings.len >= PROCESS_MAX_MAPPINGS) /* most of them were unmapped long ago */
		process_snapshot(s->processes, p, clock_monotonic_ns(), NULL);
	else if (process_map(s->processes, p, m))
		session_lost(s, LOSS_FILE, 1);
}

void session_renamed(
	struct session *s, pid_t pid, pid_t tid, const char *name, bool exec, uint64_t time_ns)
{
	s->now_ns = time_ns;

	struct process *p = exec ? process_get(s->processes, pid) : known_process(s, pid);
	struct thread *th = p ? thread_get(s->processes, p, tid) : NULL;

	if (!th)
		return;
	name_thread(s, th, name);
	if (exec && time_ns >= p->snapshot_ns) {
		python_tell_gone(s, pid, 0);
		process_exec(s->processes, p, tid);
		name_process(s, p, 0);
	}
}

void session_forked(
	struct session *s, pid_t ppid, pid_t pid, pid_t ptid, pid_t tid, uint64_t time_ns)
{
	struct process *parent, *p;
	struct thread *th, *from = thread_find(s->processes, ptid);
	char name[PROC_NAME_BYTES];

	s->now_ns = time_ns;
	snprintf(name, sizeof(name), "%s", from ? from->name : "");
	parent = known_process(s, ppid);
	p = parent && pid != ppid ? process_fork(s->processes, parent, pid, time_ns) : parent;
	if (!p)
		return;
	if (pid != ppid) {
		name_process(s, p, ppid);
		python_tell_fork(s, ppid, pid);
	}
	th = thread_get(s->processes, p, tid);
	if (th && !th->name[0]) /* a new thread bears its creator's name until it is given one */
		name_thread(s, th, name);
}

void session_exited(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns)
{
	struct record_exit record = {
		.time_ns = time_ns,
		.pid = (uint32_t)pid,
		.tid = (uint32_t)tid,
	};

	s->now_ns = time_ns;
	capture_record(s->writer, RECORD_EXIT, &record, sizeof(record));
	thread_exit(s->processes, pid, tid);
	python_tell_gone(s, pid, tid);
	if (!process_find(s->processes, pid))
		python_tell_gone(s, pid, 0);
}

const struct thread_selection *session_selection(const struct session *s)
{
	return s->selection;
}

void session_maps_untold(struct session *s)
{
	s->maps_untold = true;
}

struct each_process {
	void (*fn)(void *ctx, pid_t pid);
	void *ctx;
};

static void give_process(void *ctx, struct process *p)
{
	struct each_process *each = ctx;

	each->fn(each->ctx, p->pid);
}

void session_each_process(struct session *s, void (*fn)(void *ctx, pid_t pid), void *ctx)
{
	struct each_process each = {fn, ctx};

	process_table_each_process(s->processes, give_process, &each);
}

bool session_knows(const struct session *s, pid_t pid)
{
	return process_find(s->processes, pid);
}

const char *session_thread_name(struct session *s, pid_t tid)
{
	const struct thread *th = thread_find(s->processes, tid);

	return th ? th->name : NULL;
}

bool session_selects(struct session *s, pid_t tid)
{
	const struct thread *th = thread_find(s->processes, tid);

	return !th || th->selected;
}

/* ---- samples ---- */

/* How many samples this one makes. Threads that inherited their event run at a period of their own,
 * from half to one and a half of the mean: counts of samples would not compare. The first credit is
 * drawn by chance, so that also of threads with few samples as many are kept as are due. */
static uint64_t samples_due(struct thread *th, const struct raw_sample *raw)
{
	uint64_t due;

	if (!raw->period_ns || raw->period_ns == raw->weight_ns)
		return 1;
	th->credit_ns = th->credit_ns % raw->weight_ns + raw->period_ns;
	due = th->credit_ns / raw->weight_ns;
	return due < MOST_REPEATS ? due : MOST_REPEATS;
}

static void count_python(struct session *s, const struct stored_stack *stack, uint64_t times)
{
	s->stats.python += stack->has_python ? times : 0;
	s->stats.python_torn += stack->python & SAMPLE_PYTHON_TORN ? times : 0;
	s->stats.python_cut += stack->python & SAMPLE_PYTHON_CUT ? times : 0;
}

bool session_sample(struct session *s, const struct raw_sample *raw, struct stored_stack *ret)
{
	struct thread *th = known_thread(s, raw->pid, raw->tid);
	struct stored_stack stack;

	session_roll(s, raw->time_ns);
	s->now_ns = raw->time_ns;
	if (!th || !th->selected)
		return false;

	uint64_t due = samples_due(th, raw);

	if (!due)
		return false;
	session_tell(s, th);
	session_store_stack(s, th, &raw->stack, &stack);

	struct record_sample record = {
		.time_ns = raw->time_ns,
		.weight = raw->weight_ns,
		.pid = (uint32_t)raw->pid,
		.tid = (uint32_t)raw->tid,
		.stack = stack.leaf,
		.cpu = raw->cpu,
		.end = (uint8_t)stack.end,
		.used_bytes = stack.used_bytes,
		.live_frames = stack.live_frames,
		.python = stack.python,
	};
	for (uint64_t i = 0; i < due; i++)
		capture_record(s->writer, RECORD_SAMPLE, &record, sizeof(record));
	s->stats.samples += due;
	s->stats.weight_ns += due * raw->weight_ns;
	s->stats.frames += due * s->walked;
	s->stats.ends[stack.end] += due;
	count_python(s, &stack, due);
	if (ret)
		*ret = stack;
	return true;
}

/* ---- off the CPU ---- */

bool session_stack(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns,
	const struct raw_stack *raw, struct stored_stack *ret)
{
	struct thread *th = known_thread(s, pid, tid);

	s->now_ns = time_ns;
	if (!th)
		return false;
	session_tell(s, th);
	session_store_stack(s, th, raw, ret);
	return true;
}

/* A number that was not carried over into this segment names another stack now. */
size_t session_last_frames(const struct session *s, const uint32_t **ret)
{
	*ret = s->frame_ids;
	return s->walked;
}

struct python *session_python(struct session *s, pid_t pid, pid_t reader, const char **ret_refusal)
{
	struct process *p = known_process(s, pid);
	struct python *python = p ? python_of_process(s, p, reader) : NULL;

	*ret_refusal = p ? python_of_process_refusal(p) : "";
	return python;
}

void session_python_names(struct session *s, pid_t pid, pid_t reader,
	void (*each)(void *ctx, pid_t tid, const char *name), void *ctx)
{
	struct process *p = known_process(s, pid);

	if (p && python_of_process(s, p, reader))
		python_each_name(s, p, each, ctx);
}

size_t session_python_threads(struct session *s, pid_t pid, pid_t reader, const struct known_python_thread **ret)
{
	struct process *p = known_process(s, pid);

	*ret = NULL;
	return p ? python_threads_now(s, p, reader, ret) : 0;
}

size_t session_last_python(const struct session *s, const struct placed_frame **ret)
{
	struct placed_frame *placed;
	size_t count = python_stacks_last(s->python, &placed);

	*ret = placed;
	return count;
}

const struct unwind_frame *session_last_walk(const struct session *s)
{
	return s->frames;
}

size_t session_frame_regs(struct session *s, pid_t pid, pid_t tid, const struct raw_stack *raw,
	struct unwind_regs *regs, size_t limit)
{
	struct thread *th = known_thread(s, pid, tid);

	s->walked = th ? session_walk_regs(s, th, raw, regs, limit) : 0;
	return s->walked;
}

static uint32_t known_stack(struct session *s, uint32_t leaf)
{
	if (leaf == CAPTURE_NONE || capture_window_knows(s->writer, leaf))
		return leaf;
	session_lost(s, LOSS_OFF_CPU_STACK, 1);
	return CAPTURE_NONE;
}

void session_off_cpu(struct session *s, const struct off_cpu_interval *i)
{
	struct thread *th = known_thread(s, i->pid, i->tid);
	struct record_off_cpu record = {
		.start_ns = i->start_ns,
		.duration_ns = i->duration_ns,
		.blocked_ns = i->blocked_ns,
		.queued_ns = i->queued_ns,
		.pid = (uint32_t)i->pid,
		.tid = (uint32_t)i->tid,
		.stack = i->stack.leaf,
		.syscall = i->syscall,
		.syscall_name = capture_string(s->writer, syscall_name(i->syscall)),
		.waker_pid = (uint32_t)i->waker_pid,
		.waker_tid = (uint32_t)i->waker_tid,
		.waker_stack = i->waker_stack,
		.used_bytes = i->stack.used_bytes,
		.live_frames = i->stack.live_frames,
		.cpu = i->cpu,
		.state = (uint8_t)i->state,
		.waker = (uint8_t)i->waker,
		.end = (uint8_t)i->stack.end,
		.open = (uint8_t)(i->was_open | i->still_open << 1),
		.python = i->stack.python,
	};

	if (!th || !th->selected)
		return;
	session_tell(s, th);
	record.stack = known_stack(s, record.stack);
	record.waker_stack = known_stack(s, record.waker_stack);
	capture_record(s->writer, RECORD_OFF_CPU, &record, sizeof(record));
	s->stats.off_cpu++;
	s->stats.off_cpu_ns += i->blocked_ns + i->queued_ns;
	s->stats.off_cpu_rooted += i->stack.end == UNWIND_ROOT;
	count_python(s, &i->stack, 1);
}

void session_thread_times(struct session *s, pid_t pid, pid_t tid, const struct thread_times *t)
{
	struct thread *th = known_thread(s, pid, tid);
	struct record_thread_times record = {
		.since_ns = t->since_ns,
		.until_ns = t->until_ns,
		.pid = (uint32_t)pid,
		.tid = (uint32_t)tid,
	};

	if (!th || !th->selected)
		return;
	session_tell(s, th);
	memcpy(record.ns, t->ns, sizeof(t->ns));
	capture_record(s->writer, RECORD_THREAD_TIMES, &record, sizeof(record));
}

/* ---- losses and flushing ---- */

void session_lost(struct session *s, enum loss_kind kind, uint64_t count)
{
	s->pending_losses[kind] += count;
}

/* After a sweep that finds nobody dead, the next one waits until there are twice as many. */
static void sweep(struct session *s)
{
	size_t known = process_table_count(s->processes);

	if (known <= s->sweep_above || process_table_sweep(s->processes))
		return;
	s->sweep_above = 2 * known;
}

void session_flush(struct session *s, uint64_t now_ns)
{
	for (uint32_t kind = 0; kind < LOSS_KIND_COUNT; kind++) {
		struct record_loss record = {
			.time_ns = now_ns,
			.count = s->pending_losses[kind],
			.kind = kind,
		};

		if (!record.count)
			continue;
		capture_record(s->writer, RECORD_LOSS, &record, sizeof(record));
		s->stats.losses[kind] += record.count;
		s->pending_losses[kind] = 0;
	}
	capture_writer_flush(s->writer);
	session_roll(s, now_ns);
	sweep(s);
}

bool session_runs_python(struct session *s, pid_t pid)
{
	struct process *p = process_find(s->processes, pid);

	return p && python_of_process(s, p, pid);
}

size_t session_pythons(const struct session *s, const struct session_python **ret)
{
	*ret = s->pythons.data;
	return s->pythons.len;
}

void session_stats(const struct session *s, struct session_stats *ret)
{
	*ret = s->stats;
}
