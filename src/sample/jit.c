/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/jit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/proc.h"
#include "sample/jit_code.h"
#include "symbol/jitdump.h"

/* Maps that are kept open; in system-wide mode processes come and go without end. */
#define MAX_PERF_MAPS 256u

/* Of a jitdump that is read at the end: a gigabyte in steps of jitdump_follow(). */
#define MAX_STEPS 128u

/* ---- while recording ---- */

void jit_announced(struct session *s, struct process *p, struct module *m)
{
	struct proc_status status;

	if (p->jitdump == m)
		return;
	p->jitdump = m;
	p->jitdump_until_ns = UINT64_MAX;
	/* Mapped before a fork, by the parent: what that compiles from now on is its own. */
	if (!proc_status_read(p->pid, &status, NULL) &&
		status.ns_pid != jitdump_pid(m->path))
		p->jitdump_until_ns = s->now_ns;
}

/* The map file is opened at the first sample in the code: at the end of the recording the process,
 * and with it the way to its /tmp, may be gone. */
static void note_perf_map(struct session *s, struct module *m)
{
	if (m->map_fd != MAP_UNTRIED)
		return;
	m->map_fd = -EMFILE;
	if (s->source->still || s->perf_maps >= MAX_PERF_MAPS)
		return;
	s->perf_maps++;
	m->map_fd = symbol_perf_map_open(m->pid, NULL);
}

/* After a fork the child runs code that its parent has compiled, and soon some of its own. */
static struct module *module_of(struct session *s, const struct process *p, struct module *mapped)
{
	if (mapped->pid == p->pid)
		return mapped;

	struct module *own = module_store_jit(s->modules, p->pid);

	if (!own)
		return mapped;
	if (!own->parent)
		own->parent = mapped;
	return own;
}

void jit_mapping(struct session *s, struct process *p, const struct space_mapping *m, uint64_t addr,
	struct unwind_mapping *ret)
{
	struct module *own = module_of(s, p, m->module);
	uint64_t time_ns = s->now_ns < p->jitdump_until_ns ? s->now_ns : p->jitdump_until_ns;
	struct jit_function f;

	*ret = (struct unwind_mapping){
		.start = m->start,
		.end = m->end,
		.id = own->capture_id,
		.executable = true,
	};
	note_perf_map(s, own);
	if (own->parent)
		note_perf_map(s, own->parent);
	if (!p->jitdump)
		return;
	own->described_by = p->jitdump;
	ret->holds_other_code = true;
	if (!jit_code_find(p->jitdump->jit, p->pid, addr, time_ns, &f))
		return;
	*ret = (struct unwind_mapping){
		.start = f.start,
		.end = f.end,
		.bias = f.bias,
		.module = f.unwind,
		.id = p->jitdump->capture_id,
		.executable = true,
	};
}

void jit_seen(struct session *s, const struct process *p, uint32_t frame)
{
	size_t old = s->seen_ns.len, want = (size_t)frame + 1;

	/* A window tells when it is written. */
	if ((!p->jitdump && !p->told_code) || frame == CAPTURE_NONE || capture_segment(s->writer))
		return;
	if (want > old) {
		if (vec_reserve(&s->seen_ns, want))
			return;
		memset(s->seen_ns.data + old, 0, (want - old) * sizeof(*s->seen_ns.data));
		s->seen_ns.len = want;
	}
	if (!s->seen_ns.data[frame])
		s->seen_ns.data[frame] =
			!p->jitdump || s->now_ns < p->jitdump_until_ns ? s->now_ns : p->jitdump_until_ns;
}

void session_told_code(
	struct session *s, pid_t pid, uint64_t time_ns, uint64_t address, uint64_t bytes, const char *name)
{
	struct process *p = process_find(s->processes, pid);
	struct module *m = p && *name ? module_store_jit(s->modules, pid) : NULL;
	struct proc_mapping mapping = {.start = address & ~(uint64_t)4095, .read = true, .exec = true, .path = ""};

	/* It may be unmapped again before anybody reads the mappings. */
	if (p && !process_mapping(p, address) && bytes && !__builtin_add_overflow(address, bytes + 4095, &mapping.end)) {
		mapping.end &= ~(uint64_t)4095;
		if (process_map(s->processes, p, &mapping))
			session_lost(s, LOSS_FILE, 1);
	}
	if (!m || told_code_add(&m->told, time_ns, address, bytes, name)) {
		session_lost(s, LOSS_NOTE, 1);
		return;
	}
	p->told_code = true;
}

/* ---- names ---- */

struct jit_names {
	const struct session *session;
	struct told_code *told, *told_by_parent; /* NULL, or of the modules */
	struct symbol_level told_level;
	struct jitdump *dump;
	bool by_offset; /* the module is the dump's own, else its addresses are those of the process */
	struct symbol_source *from_dump, *from_map, *from_parent;
};

/* The map file may have been created after the first sample in the code: looks once more. */
static int open_perf_map(struct module *m, struct symbol_source **ret)
{
	if (m->map_fd == -ENOENT && !m->over)
		m->map_fd = symbol_perf_map_open(m->pid, NULL);
	return m->map_fd < 0 ? m->map_fd : symbol_source_perf_map(m->map_fd, ret, NULL);
}

static void open_dump(struct jit_names *n, const struct module *m)
{
	const struct module *of = m->jit ? m : m->described_by;

	if (!of || symbol_source_jitdump(jit_code_dump(of->jit), &n->from_dump, NULL))
		return;
	n->dump = jit_code_dump(of->jit);
	n->by_offset = m->jit;
	for (unsigned i = 0; i < MAX_STEPS && jitdump_follow(n->dump); i++)
		;
}

struct jit_names *jit_names_open(
	struct session *s, struct module *m, enum symbol_reason *ret_reason)
{
	struct jit_names *n = calloc(1, sizeof(*n));
	int rc = -ENOENT;

	*ret_reason = SYMBOL_ANONYMOUS;
	if (!n)
		return NULL;
	n->session = s;
	open_dump(n, m);
	if (m->told.functions.len)
		n->told = &m->told;
	if (m->parent && m->parent->told.functions.len)
		n->told_by_parent = &m->parent->told;
	if (!m->jit) {
		rc = open_perf_map(m, &n->from_map);
		if (m->parent)
			open_perf_map(m->parent, &n->from_parent);
	}
	if (n->told || n->told_by_parent || n->from_dump || n->from_map || n->from_parent)
		return n;
	if (rc == -EPERM)
		*ret_reason = SYMBOL_REFUSED;
	jit_names_free(n);
	return NULL;
}

static struct symbol_answer from_dump(
	struct jit_names *n, uint32_t frame_id, const struct record_frame *frame, uint64_t address)
{
	const struct session *s = n->session;
	struct symbol_answer none = {.reason = SYMBOL_NO_SYMBOLS};
	struct jitdump_code code;
	uint64_t seen = frame_id < s->seen_ns.len ? s->seen_ns.data[frame_id] : 0;

	if (!n->from_dump)
		return none;
	if (n->by_offset)
		return symbol_resolve(n->from_dump, address);
	if (!jitdump_find(n->dump, address, seen ? seen : UINT64_MAX, &code))
		return none;
	return symbol_resolve(n->from_dump, code.offset + (address - code.start));
}

/* What the program itself has said. */
static struct symbol_answer from_told(struct jit_names *n, uint32_t frame_id, uint64_t address)
{
	const struct session *s = n->session;
	uint64_t seen = frame_id < s->seen_ns.len ? s->seen_ns.data[frame_id] : 0;
	const char *name = n->told ? told_code_name(n->told, address, seen) : NULL;

	if (!name && n->told_by_parent)
		name = told_code_name(n->told_by_parent, address, seen);
	if (!name)
		return (struct symbol_answer){.reason = SYMBOL_NO_SYMBOLS};
	n->told_level = (struct symbol_level){.name = name};
	return (struct symbol_answer){.levels = &n->told_level, .count = 1, .reason = SYMBOL_OK};
}

struct symbol_answer jit_names_resolve(
	struct jit_names *n, uint32_t frame_id, const struct record_frame *frame)
{
	uint64_t address = frame->address - frame->is_return;
	struct symbol_answer a = n->by_offset ? (struct symbol_answer){0} : from_told(n, frame_id, address);

	if (!a.count)
		a = from_dump(n, frame_id, frame, address);
	if (!a.count && n->from_map)
		a = symbol_resolve(n->from_map, address);
	if (!a.count && n->from_parent)
		a = symbol_resolve(n->from_parent, address);
	return a;
}

void jit_names_free(struct jit_names *n)
{
	if (!n)
		return;
	symbol_source_free(n->from_dump);
	symbol_source_free(n->from_map);
	symbol_source_free(n->from_parent);
	free(n);
}
