/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/in_process.h"

#include <errno.h>

#include "os/proc.h"
#include "sample/python/known.h"
#include "sample/python/slot.h"
#include "sample/python/stacks.h"
#include "sample/session_priv.h"

/* From this version on each call of the function that runs Python code can be told by what it keeps on the stack. */
#define FIRST_WITH_MARKS 10

static void find_evals(const struct process *p, const struct python_of_process *of, struct python_in_process *ret)
{
	const struct python_file *file = of->module->python;

	vec_each(&p->mappings, m) {
		if (m->module != of->module)
			continue;
		for (; ret->eval_count < file->eval_count; ret->eval_count++) {
			ret->evals[ret->eval_count].start = file->eval[ret->eval_count].start + m->bias;
			ret->evals[ret->eval_count].end = file->eval[ret->eval_count].end + m->bias;
		}
		return;
	}
}

static int refused(struct python_of_process *of, bool young, struct err *err)
{
	int code = of->refusal.code ? of->refusal.code : EAGAIN;

	if (code == EOPNOTSUPP && young) {
		of->open_again_ns = 0;
		code = EAGAIN;
	}
	return err_set(err, code, "%s", of->refusal.code ? of->refusal.text : "the interpreter has not started yet");
}

/* A thread that was in several interpreters has several states, and keeps one of them. */
static bool has_others(const struct known_python_thread *threads, size_t count, size_t i)
{
	for (size_t j = 0; j < count; j++)
		if (j != i && threads[j].thread.pthread == threads[i].thread.pthread)
			return true;
	return false;
}

static int find_state(struct python_of_process *of, const struct known_python_thread *threads, size_t count,
	struct python_in_process *ret, struct err *err)
{
	const struct python_memory memory = {of, python_of_process_read};
	struct python_slots slots = {0};
	int32_t offset;
	bool found;

	for (size_t i = 0; i < count; i++)
		if (threads[i].thread.pthread && !has_others(threads, count, i))
			python_slots_see(&slots, &memory, threads[i].thread.pthread, threads[i].thread.address);
	found = python_slots_best(&slots, &offset);
	python_slots_release(&slots);
	if (!found)
		return err_set(err, EAGAIN, "where threads of Python %s keep their state was not found",
			python_version_text(ret->python));
	ret->state_at = offset;
	return 0;
}

/* The type of code objects is known by the first that was read. */
static bool see_code(struct python *python, const struct known_python_thread *threads, size_t count)
{
	struct python_link links[16];
	struct python_frames frames = {0};

	for (size_t i = 0; i < count && !python_code_type(python); i++) {
		struct python_chain chain = {.links = links, .limit = 16};

		python_chain_read(python, threads[i].thread.address, &chain);
		(void)python_frames(python, &chain, &frames);
	}
	vec_release(&frames);
	return python_code_type(python);
}

int session_python_in_process(struct session *s, pid_t pid, bool young, struct python_in_process *ret, struct err *err)
{
	struct process *p = process_find(s->processes, pid);
	const struct known_python_thread *threads;
	struct python *python;
	struct python_gil gil;
	size_t count;

	*ret = (struct python_in_process){0};
	if (!p)
		return err_set(err, ESRCH, "process %d is not known", (int)pid);
	python = python_of_process(s, p, proc_surviving_thread(pid));
	if (!p->python || !p->python->module)
		return err_set(err, ENOENT, "process %d has no CPython in it", (int)pid);
	find_evals(p, p->python, ret);
	if (!python)
		return refused(p->python, young, err);
	if (python_free_threaded(python))
		return err_set(err, EOPNOTSUPP, "Python %s is not supported here: its threads run at the same time",
			python_version_text(python));
	if (!ret->eval_count && (python_version(python) >> 16 & 0xff) < FIRST_WITH_MARKS)
		return err_set(err, EOPNOTSUPP, "Python %s has no symbol for the function that runs Python code",
			python_version_text(python));
	count = python_threads_now(s, p, proc_surviving_thread(pid), &threads);
	if (!see_code(python, threads, count))
		return err_set(err, EAGAIN, "Python %s runs nothing yet", python_version_text(python));
	if (python_gil(python, &threads[0].thread, &gil, NULL))
		return err_set(err, EAGAIN, "the interpreter lock of Python %s cannot be read", python_version_text(python));
	ret->python = python;
	ret->lock = gil.address;
	return find_state(p->python, threads, count, ret, err);
}

uint32_t session_called_python(
	struct session *s, uint32_t parent, const struct python_code *code, struct python_position position)
{
	static const struct python_code missing = {.name = "[missing Python frames]", .file = ""};

	return capture_stack(s->writer, parent, python_stacks_told(s, code ? code : &missing, position));
}
