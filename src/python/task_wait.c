/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a suspended task waits for, in words: docs/heuristics/await-chain.md.
 *
 * The innermost frames are the library's own mostly, and the `self` of such a frame is what is waited for:
 * a Lock in Lock.acquire(). Where the innermost frame is somebody else's, the future that the task waits for
 * is looked at: another task, what gather() has made, one that an executor will set.
 */
#include "python/tasks_priv.h"

#include <inttypes.h>
#include <string.h>

#include "python/locals.h"

#define NS_PER_S 1e9

struct wait {
	struct tasks_look *look;
	struct python *p;
	const struct python_frame *frames;
	size_t frame_count;
	struct future self;      /* the task */
	struct future future;    /* that it waits for; address 0: none */
	struct python_task_wait *ret;
	struct buf words;
	struct addresses *waits_for;
	uint64_t not_done; /* of the tasks and futures that were pushed or counted */
	bool failed;
};

/* ---- what frames tell ---- */

struct local_search {
	const char *name;
	uint64_t value;
};

static bool is_local(void *ctx, const struct python_local *local)
{
	struct local_search *search = (struct local_search *)ctx;

	if (strcmp(local->name, search->name) != 0)
		return false;
	search->value = local->value;
	return true;
}

uint64_t python_local(struct python *p, const struct python_frame *frame, const char *name)
{
	struct local_search search = {.name = name};

	return python_locals_each(p, frame, is_local, &search) ? search.value : 0;
}

static bool ends_with(const char *path, const char *folder, const char *file)
{
	size_t len = strlen(path), a = strlen(folder), b = strlen(file);

	return len >= a + b && !memcmp(path + len - a - b, folder, a) && !memcmp(path + len - b, file, b);
}

bool is_asyncio(const struct python_frame *frame, const char *file)
{
	return ends_with(frame->code->file, "asyncio/", file);
}

static bool is_library(const struct python_frame *frame)
{
	const char *slash = strrchr(frame->code->file, '/');

	return slash && is_asyncio(frame, slash + 1);
}

/* "acquire" of "Lock.acquire", which up to 3.10 is all there is. */
static const char *bare_name(const struct python_frame *frame)
{
	const char *dot = strrchr(frame->code->name, '.');

	return dot ? dot + 1 : frame->code->name;
}

/* ---- values ---- */

static uint64_t attribute(struct wait *w, uint64_t object, const char *name)
{
	uint64_t value = python_attribute(w->p, object, name);

	return value && !python_is(w->p, value, "NoneType") ? value : 0;
}

static bool attribute_int(struct wait *w, uint64_t object, const char *name, int64_t *ret)
{
	uint64_t value = attribute(w, object, name);

	return value && python_int(w->p, value, ret);
}

static bool read_float(struct python *p, uint64_t object, double *ret)
{
	uint64_t bits;
	int64_t number;

	if (python_int(p, object, &number)) {
		*ret = (double)number;
		return true;
	}
	if (!python_is(p, object, "float") || !python_read_u64(p, object + p->layout.real.value, &bits))
		return false;
	memcpy(ret, &bits, sizeof(*ret));
	return true;
}

/* Length of a deque, list or tuple. */
static uint64_t length_of(struct python *p, uint64_t object)
{
	uint64_t length;

	return object && python_read_u64(p, object + p->layout.var_object.size, &length) && length < UINT32_MAX
		? length
		: 0;
}

/* PyMemberDef: name, type, offset, flags, words. */
#define MEMBER_BYTES 40u
#define MOST_MEMBERS 256u

static bool name_is(struct python *p, uint64_t at, const char *name)
{
	char here[64];
	size_t len = strlen(name) + 1;

	return len <= sizeof(here) && python_read(p, at, here, len) && !memcmp(here, name, len);
}

/* The value of one of a class's __slots__; 0: it has none such. */
static uint64_t slot(struct python *p, uint64_t object, const char *name)
{
	const struct python_type *type = python_type_of_object(p, object);
	uint64_t members, member[3], value;

	for (unsigned depth = 0; type && depth < 16; depth++, type = python_base(p, type)) {
		if (!python_read_u64(p, type->address + p->layout.type.members, &members) || !members)
			continue;
		for (unsigned i = 0; i < MOST_MEMBERS; i++) {
			if (!python_read(p, members + i * MEMBER_BYTES, member, sizeof(member)) || !member[0])
				break;
			if (name_is(p, member[0], name) && member[2] < type->basic_bytes)
				return python_read_u64(p, object + member[2], &value) ? value : 0;
		}
	}
	return 0;
}

/* ---- words ---- */

/* "asyncio.Lock" for asyncio.locks.Lock; others by their full name. */
static void add_type_name(struct wait *w, uint64_t object)
{
	const struct python_type *type = python_type_of_object(w->p, object);
	const char *name = type ? type->full_name : "", *dot = strrchr(name, '.');

	if (!strncmp(name, "asyncio.", 8) && dot && dot > name + 7)
		buf_printf(&w->words, "asyncio%s", dot);
	else
		buf_str(&w->words, name);
}

static void add_waiters(struct wait *w, uint64_t object)
{
	uint64_t waiters = length_of(w->p, attribute(w, object, "_waiters"));

	if (waiters > 1)
		buf_printf(&w->words, ", %" PRIu64 " wait for it", waiters);
}

static void lock_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	int64_t locked;

	(void)frame;
	add_type_name(w, object);
	add_waiters(w, object);
	if (attribute_int(w, object, "_locked", &locked))
		buf_str(&w->words, locked ? ", held" : ", free");
}

static void event_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	int64_t set;

	(void)frame;
	add_type_name(w, object);
	if (attribute_int(w, object, "_value", &set))
		buf_str(&w->words, set ? ", set" : ", not set");
	add_waiters(w, object);
}

static void semaphore_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	int64_t value;

	(void)frame;
	add_type_name(w, object);
	if (attribute_int(w, object, "_value", &value))
		buf_printf(&w->words, ", %" PRId64 " left", value);
	add_waiters(w, object);
}

static void plain_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	(void)frame;
	add_type_name(w, object);
	add_waiters(w, object);
}

static void barrier_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	int64_t parties, there;

	(void)frame;
	add_type_name(w, object);
	if (attribute_int(w, object, "_parties", &parties) && attribute_int(w, object, "_count", &there))
		buf_printf(&w->words, ", %" PRId64 " of %" PRId64 " are there", there, parties);
}

static void queue_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	const char *function = bare_name(frame);
	int64_t unfinished;
	uint64_t items = length_of(w->p, attribute(w, object, "_queue"));

	add_type_name(w, object);
	buf_printf(&w->words, ".%s()", function);
	if (!strcmp(function, "join") && attribute_int(w, object, "_unfinished_tasks", &unfinished))
		buf_printf(&w->words, ", %" PRId64 " not done", unfinished);
	else if (items)
		buf_printf(&w->words, ", %" PRIu64 " in it", items);
	else
		buf_str(&w->words, ", empty");
}

/* Where a transport of asyncio's own loops keeps its descriptor. */
static int descriptor_of(struct wait *w, uint64_t transport)
{
	int64_t fd;

	if (transport && (attribute_int(w, transport, "_sock_fd", &fd) || attribute_int(w, transport, "_fileno", &fd)) &&
		fd >= 0 && fd < INT32_MAX)
		return (int)fd;
	return -1;
}

static void add_descriptor(struct wait *w, int fd)
{
	w->ret->fd = fd;
	if (fd >= 0)
		buf_printf(&w->words, " of fd %d", fd);
}

static void stream_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	add_type_name(w, object);
	buf_printf(&w->words, ".%s()", bare_name(frame));
	add_descriptor(w, descriptor_of(w, attribute(w, object, "_transport")));
}

/* loop.sock_recv(sock, ...): the socket begins with its descriptor. */
static void socket_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	uint64_t sock = python_local(w->p, frame, "sock");
	const struct python_type *type = python_type_of_object(w->p, sock);
	uint32_t fd;

	(void)object;
	buf_printf(&w->words, "loop.%s()", bare_name(frame));
	if (type && python_derives(w->p, type, "_socket.socket") &&
		python_read_u32(w->p, sock + w->p->layout.object.bytes, &fd) && fd < INT32_MAX)
		add_descriptor(w, (int)fd);
}

static void process_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	uint64_t transport = attribute(w, object, "_transport");

	(void)frame;
	buf_str(&w->words, "the end of a child process");
	if (attribute_int(w, transport ? transport : object, "_pid", &w->ret->pid) && w->ret->pid > 0)
		buf_printf(&w->words, ", pid %" PRId64, w->ret->pid);
	else
		w->ret->pid = 0;
}

/* ---- tasks that are waited for ---- */

/* One of those that gather() and the like wait for. Futures that are no tasks only count. */
static bool take_task(void *ctx, uint64_t object)
{
	struct wait *w = (struct wait *)ctx;
	struct future f;

	if (!future_look(w->look, object, &f) || f.done)
		return false;
	w->not_done++;
	if (f.task && object != w->self.address && vec_push(w->waits_for, object))
		w->failed = true;
	return w->failed || w->not_done >= PYTHON_MOST_TASKS;
}

/* "asyncio.gather(), 2 not done" */
static void take_tasks(struct wait *w, uint64_t container, const char *what)
{
	w->ret->kind = PYTHON_WAIT_TASK;
	python_each_item(w->p, container, take_task, w);
	buf_printf(&w->words, "%s, %" PRIu64 " not done", what, w->not_done);
}

static void group_words(struct wait *w, uint64_t object, const struct python_frame *frame)
{
	(void)frame;
	add_type_name(w, object);
	take_tasks(w, attribute(w, object, "_tasks"), "");
}

/* A future that is no task says no more. */
static void one_task(struct wait *w, uint64_t task, const char *what)
{
	struct future f;

	buf_str(&w->words, what);
	w->ret->kind = PYTHON_WAIT_FUTURE;
	if (!future_look(w->look, task, &f))
		return;
	take_task(w, task);
	if (f.task)
		w->ret->kind = PYTHON_WAIT_TASK;
	if (f.task)
		task_name(w->look, &f, &w->words);
	else
		buf_str(&w->words, "a future");
}

/* ---- by the object whose method is waited in ---- */

struct waited_in {
	const char *type;
	enum python_wait_kind kind;
	void (*words)(struct wait *w, uint64_t object, const struct python_frame *frame);
};

static const struct waited_in by_self[] = {
	{"asyncio.locks.Lock", PYTHON_WAIT_LOCK, lock_words},
	{"asyncio.locks.Event", PYTHON_WAIT_EVENT, event_words},
	{"asyncio.locks.Condition", PYTHON_WAIT_CONDITION, plain_words},
	{"asyncio.locks.Semaphore", PYTHON_WAIT_SEMAPHORE, semaphore_words},
	{"asyncio.locks.Barrier", PYTHON_WAIT_BARRIER, barrier_words},
	{"asyncio.queues.Queue", PYTHON_WAIT_QUEUE, queue_words},
	{"asyncio.streams.StreamReader", PYTHON_WAIT_STREAM, stream_words},
	{"asyncio.streams.StreamWriter", PYTHON_WAIT_STREAM, stream_words},
	{"asyncio.streams.FlowControlMixin", PYTHON_WAIT_STREAM, stream_words},
	{"asyncio.subprocess.Process", PYTHON_WAIT_PROCESS, process_words},
	{"asyncio.base_subprocess.BaseSubprocessTransport", PYTHON_WAIT_PROCESS, process_words},
	{"asyncio.taskgroups.TaskGroup", PYTHON_WAIT_TASK, group_words},
	{"asyncio.base_events.Server", PYTHON_WAIT_SERVER, plain_words},
};

static const struct waited_in *of_object(struct python *p, uint64_t object)
{
	const struct python_type *type = object ? python_type_of_object(p, object) : NULL;

	for (size_t i = 0; type && i < sizeof(by_self) / sizeof(by_self[0]); i++)
		if (python_derives(p, type, by_self[i].type))
			return &by_self[i];
	return NULL;
}

/* Of the library's frames around the innermost one the outermost says best what it is (a Barrier, that waits by
 * a Condition), but who waits for a Condition's Lock waits for that. */
static bool by_library_frame(struct wait *w)
{
	const struct waited_in *best = NULL;
	size_t at = 0;

	for (size_t i = 0; i < w->frame_count && is_library(&w->frames[i]); i++) {
		uint64_t self = python_local(w->p, &w->frames[i], "self");
		const struct waited_in *row = of_object(w->p, self);

		if (!row || (best && best->kind == PYTHON_WAIT_LOCK))
			continue;
		/* Of several methods of one object the outermost was called. */
		best = row;
		at = i;
		w->ret->object = self;
	}
	if (!best)
		return false;
	w->ret->kind = best->kind;
	best->words(w, w->ret->object, &w->frames[at]);
	return true;
}

/* ---- by the function that is waited in ---- */

static void in_sleep(struct wait *w, const struct python_frame *frame)
{
	uint64_t delay = python_local(w->p, frame, "delay"), handle = python_local(w->p, frame, "h");
	double seconds;

	w->ret->kind = PYTHON_WAIT_SLEEP;
	buf_str(&w->words, "asyncio.sleep(");
	if (delay)
		python_show(w->p, delay, 40, 0, &w->words);
	buf_char(&w->words, ')');
	/* Loops of asyncio's count time by CLOCK_MONOTONIC, in seconds. */
	if (handle && read_float(w->p, slot(w->p, handle, "_when"), &seconds) && seconds > 0 && seconds < 1e9)
		w->ret->until_ns = (uint64_t)(seconds * NS_PER_S);
}

static void in_wait_for(struct wait *w, const struct python_frame *frame)
{
	one_task(w, python_local(w->p, frame, "fut"), "");
	buf_str(&w->words, " by asyncio.wait_for()");
}

static void in_wait(struct wait *w, const struct python_frame *frame)
{
	take_tasks(w, python_local(w->p, frame, "fs"), "asyncio.wait()");
}

static bool by_function(struct wait *w)
{
	static const struct {
		const char *file, *function;
		void (*in)(struct wait *w, const struct python_frame *frame);
	} rows[] = {
		{"tasks.py", "sleep", in_sleep},
		{"tasks.py", "wait_for", in_wait_for},
		{"tasks.py", "_wait", in_wait},
	};

	if (!w->frame_count)
		return false;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_asyncio(w->frames, rows[i].file) && !strcmp(bare_name(w->frames), rows[i].function)) {
			rows[i].in(w, w->frames);
			return true;
		}
	if (is_asyncio(w->frames, "selector_events.py") && !strncmp(bare_name(w->frames), "sock_", 5)) {
		w->ret->kind = PYTHON_WAIT_SOCKET;
		socket_words(w, 0, w->frames);
		return true;
	}
	return false;
}

/* ---- by the future ---- */

struct closure {
	struct wait *w;
	uint64_t executed; /* what an executor will set: a concurrent.futures.Future */
	uint64_t shielded; /* what shield() keeps going */
};

/* The object in a function's closure that is of this kind; 0. */
static uint64_t in_closure(struct python *p, uint64_t function,
	bool (*is)(struct wait *w, uint64_t object), struct wait *w)
{
	uint64_t closure, count, first, cell, object;

	if (!python_read_u64(p, function + p->layout.function.closure, &closure) ||
		!python_items(p, closure, &count, &first))
		return 0;
	for (uint64_t i = 0; i < count && i < 64; i++)
		if (python_read_u64(p, first + i * 8, &cell) && python_is(p, cell, "cell") &&
			python_read_u64(p, cell + p->layout.cell.contents, &object) && is(w, object))
			return object;
	return 0;
}

static bool is_executed(struct wait *w, uint64_t object)
{
	const struct python_type *type = python_type_of_object(w->p, object);

	return type && python_derives(w->p, type, "concurrent.futures._base.Future");
}

static bool is_other_future(struct wait *w, uint64_t object)
{
	struct future f;

	return object != w->future.address && object != w->self.address &&
		future_look(w->look, object, &f);
}

static bool look_at_callback(void *ctx, uint64_t callback)
{
	struct closure *c = (struct closure *)ctx;
	struct python *p = c->w->p;
	uint64_t name;

	if (!python_is(p, callback, "function") ||
		!python_read_u64(p, callback + p->layout.function.qualname, &name))
		return false;
#define IS(text) python_text_equals(p, name, text, sizeof(text) - 1)
	if (IS("_chain_future.<locals>._call_check_cancel"))
		c->executed = in_closure(p, callback, is_executed, c->w);
	else if (IS("shield.<locals>._outer_done_callback"))
		c->shielded = in_closure(p, callback, is_other_future, c->w);
#undef IS
	return c->executed || c->shielded;
}

/* The function that a _WorkItem is to call: from 3.14 on the first of three things in one tuple. */
static uint64_t work_function(struct python *p, uint64_t item)
{
	uint64_t count, first, function = python_attribute(p, item, "fn");

	if (function)
		return function;
	return python_items(p, python_attribute(p, item, "task"), &count, &first) && count &&
			python_read_u64(p, first, &function)
		? function
		: 0;
}

/* Which thread of a pool runs it: the one in whose _WorkItem.run() it is. */
static void find_worker(struct wait *w, uint64_t executed)
{
	vec_each(&w->look->by_thread, t)
		for (size_t i = 0; i < t->count; i++) {
			const struct python_frame *f = &w->look->stacks.data[t->first + i];
			uint64_t item, function;

			if (strcmp(bare_name(f), "run") != 0 || !ends_with(f->code->file, "futures/", "thread.py"))
				continue;
			item = python_local(w->p, f, "self");
			if (!item || python_attribute(w->p, item, "future") != executed)
				continue;
			w->ret->thread = t->thread->address;
			function = work_function(w->p, item);
			if (function) {
				python_show(w->p, function, 80, 0, &w->words);
				buf_str(&w->words, " in ");
			}
			return;
		}
}

static void executor_words(struct wait *w, uint64_t executed)
{
	uint64_t state = python_attribute(w->p, executed, "_state");

	w->ret->kind = PYTHON_WAIT_EXECUTOR;
	w->ret->object = executed;
	find_worker(w, executed);
	buf_str(&w->words, "an executor");
	if (state && python_text_equals(w->p, state, "PENDING", 7))
		buf_str(&w->words, ", not begun");
}

static void by_future(struct wait *w)
{
	const struct python_type *type = python_type_of_object(w->p, w->future.address);
	struct closure c = {.w = w};

	w->ret->kind = PYTHON_WAIT_FUTURE;
	if (w->future.task) {
		one_task(w, w->future.address, "");
		return;
	}
	if (type && python_derives(w->p, type, "asyncio.tasks._GatheringFuture")) {
		take_tasks(w, attribute(w, w->future.address, "_children"), "asyncio.gather()");
		return;
	}
	future_callbacks(w->look, &w->future, look_at_callback, &c);
	if (c.executed) {
		executor_words(w, c.executed);
		return;
	}
	if (c.shielded) {
		one_task(w, c.shielded, "asyncio.shield() of ");
		return;
	}
	buf_str(&w->words, "a future");
	if (type && strcmp(type->full_name, "_asyncio.Future") != 0 &&
		strcmp(type->full_name, "asyncio.futures.Future") != 0)
		buf_printf(&w->words, ", %s", type->full_name);
}

/* Frames of Future.__await__ in Python say nothing. */
static void skip_futures(struct wait *w)
{
	while (w->frame_count && is_asyncio(w->frames, "futures.py")) {
		w->frames++;
		w->frame_count--;
	}
}

static void set_state(struct wait *w, const struct await_chain *chain, struct python_task *task)
{
	uint64_t waiter = task_waiter(w->look, &w->self);

	if (chain->progress == PROGRESS_RUNS) {
		task->state = PYTHON_TASK_RUNS;
		return;
	}
	task->state = waiter ? PYTHON_TASK_WAITS : PYTHON_TASK_READY;
	w->ret->future = waiter;
	/* It was set already, and the loop is to wake the task. */
	if (waiter && future_look(w->look, waiter, &w->future) && w->future.done)
		task->state = PYTHON_TASK_READY;
}

int task_wait(struct tasks_look *look, const struct future *f, const struct await_chain *chain,
	struct python_task *task, struct addresses *waits_for)
{
	struct wait w = {
		.look = look,
		.p = look->p,
		.frames = look->ret->frames.data ? look->ret->frames.data + task->first_frame : NULL,
		.frame_count = task->frame_count,
		.self = *f,
		.ret = &task->wait,
		.waits_for = waits_for,
	};

	task->wait.fd = -1;
	set_state(&w, chain, task);
	if (task->state == PYTHON_TASK_WAITS) {
		skip_futures(&w);
		if (!by_library_frame(&w) && !by_function(&w)) {
			if (w.future.address)
				by_future(&w);
			else
				task->wait.kind = PYTHON_WAIT_UNKNOWN;
		}
	}
	task->wait.words = tasks_text(look, &w.words);
	buf_release(&w.words);
	return w.failed || !task->wait.words ? -ENOMEM : 0;
}

void python_task_label(const struct python_task *task, struct buf *ret)
{
	static const char *const labels[] = {
		[PYTHON_WAIT_UNKNOWN] = "await",
		[PYTHON_WAIT_FUTURE] = "a future",
		[PYTHON_WAIT_TASK] = "another task",
		[PYTHON_WAIT_SLEEP] = "asyncio.sleep",
		[PYTHON_WAIT_EXECUTOR] = "an executor",
		[PYTHON_WAIT_PROCESS] = "a child process",
	};
	const char *words = task->wait.words, *end = strstr(words, " of fd ");
	size_t len = strcspn(words, ",(");

	if (end && (size_t)(end - words) < len)
		len = (size_t)(end - words);
	if ((size_t)task->wait.kind < sizeof(labels) / sizeof(labels[0]) && labels[task->wait.kind])
		buf_str(ret, labels[task->wait.kind]);
	else
		buf_add(ret, words, len);
}
