/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/walk_dwfl.h"

#include <elfutils/libdwfl.h>
#include <string.h>

struct dwfl_walker {
	Dwfl *dwfl;
	const struct sampled_process *process;
	const struct stack_sample *sample;
	uint64_t *pcs;
	size_t count, limit;
};

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	struct dwfl_walker *w = (struct dwfl_walker *)arg;

	if (*thread_arg)
		return 0;
	*thread_arg = w;
	return w->process->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	*thread_arg = arg;
	return true;
}

static bool memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *ret, void *arg)
{
	const struct dwfl_walker *w = (const struct dwfl_walker *)arg;
	uint64_t offset = addr - w->sample->stack_start;

	if (offset < w->sample->stack_size && w->sample->stack_size - offset >= 8) {
		memcpy(ret, w->sample->stack + offset, 8);
		return true;
	}
	return w->process->target.read_memory(w->process->target.ctx, addr, ret, 8);
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	const struct dwfl_walker *w = (const struct dwfl_walker *)arg;
	Dwarf_Word words[17];

	for (unsigned i = 0; i < 17; i++)
		words[i] = w->sample->regs.value[i];
	dwfl_thread_state_register_pc(thread, words[16]);
	return dwfl_thread_state_registers(thread, 0, 17, words);
}

static int each_frame(Dwfl_Frame *frame, void *arg)
{
	struct dwfl_walker *w = (struct dwfl_walker *)arg;
	Dwarf_Addr pc;
	bool exact;

	if (!dwfl_frame_pc(frame, &pc, &exact))
		return DWARF_CB_ABORT;
	if (w->count < w->limit)
		w->pcs[w->count] = pc;
	w->count++;
	return w->count < w->limit ? DWARF_CB_OK : DWARF_CB_ABORT;
}

struct dwfl_walker *dwfl_walker_new(const struct sampled_process *p)
{
	static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo};
	static const Dwfl_Thread_Callbacks threads = {
		.next_thread = next_thread,
		.get_thread = get_thread,
		.memory_read = memory_read,
		.set_initial_registers = set_registers,
	};
	struct dwfl_walker *w = (struct dwfl_walker *)calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->process = p;
	w->dwfl = dwfl_begin(&callbacks);
	if (!w->dwfl || dwfl_linux_proc_report(w->dwfl, p->pid) ||
		dwfl_report_end(w->dwfl, NULL, NULL) ||
		!dwfl_attach_state(w->dwfl, NULL, p->pid, &threads, w)) {
		fprintf(stderr, "libdwfl: %s\n", dwfl_errmsg(-1));
		dwfl_walker_free(w);
		return NULL;
	}
	return w;
}

void dwfl_walker_free(struct dwfl_walker *w)
{
	if (w)
		dwfl_end(w->dwfl);
	free(w);
}

size_t dwfl_walker_walk(
	struct dwfl_walker *w, const struct stack_sample *s, uint64_t *pcs, size_t limit)
{
	w->sample = s;
	w->pcs = pcs;
	w->count = 0;
	w->limit = limit;
	dwfl_getthread_frames(w->dwfl, w->process->pid, each_frame, w);
	return w->count;
}
