/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/told.h"

#include <elf.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "elf/probe_notes.h"
#include "os/proc.h"

#define PROVIDER "otel_memory"
#define OWN_LIBRARY "sonde-heap" /* libsonde-heap..., memfd:sonde-heap-... */

/* ---- arguments ---- */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
/* Where a register is in pt_regs, by its DWARF number. */
static const uint8_t words[] = {10, 12, 11, 5, 13, 14, 4, USER_REG_SP, 9, 8, 7, 6, 3, 2, 1, 0};

static uint8_t word_of(uint8_t reg)
{
	return reg < sizeof(words) ? words[reg] : 0;
}
#else
#define OWN_MACHINE EM_AARCH64
static uint8_t word_of(uint8_t reg)
{
	return reg <= USER_REG_SP ? reg : 0;
}
#endif

static bool convert(const struct elf_operand *o, struct heap_told_arg *ret)
{
	static const uint8_t from[] = {
		[ELF_OPERAND_OTHER] = HEAP_TOLD_NOTHING,
		[ELF_OPERAND_CONSTANT] = HEAP_TOLD_CONSTANT,
		[ELF_OPERAND_REGISTER] = HEAP_TOLD_REGISTER,
		[ELF_OPERAND_MEMORY] = HEAP_TOLD_MEMORY,
	};
	int bytes = o->size < 0 ? -o->size : o->size;

	if (o->kind >= sizeof(from) || !from[o->kind] || bytes < 1 || bytes > 8)
		return false;
	*ret = (struct heap_told_arg){
		.from = from[o->kind],
		.bits = (uint8_t)(64 - 8 * bytes),
		.sign = o->size < 0,
		.reg = word_of(o->reg),
		.value = o->value,
	};
	return true;
}

/* ---- the probes of a file ---- */

static bool offset_of(const struct elf_file *f, uint64_t vaddr, uint64_t *ret)
{
	const struct elf_segment *s;
	size_t n = elf_file_segments(f, &s);

	for (size_t i = 0; i < n; i++)
		if (vaddr >= s[i].vaddr && vaddr - s[i].vaddr < s[i].file_size) {
			*ret = vaddr - s[i].vaddr + s[i].offset;
			return true;
		}
	return false;
}

struct finder {
	struct elf_file *file;
	struct heap_told *found;
	unsigned allocs, frees;
	char odd[96]; /* arguments that are not read */
};

static int take(void *ctx, const struct elf_probe *p)
{
	struct finder *f = ctx;
	bool frees = !strcmp(p->name, "free");
	struct heap_told_site site = {.probe.frees = frees};
	unsigned wanted = frees ? 1 : HEAP_TOLD_ARGS;
	bool good = p->count >= wanted && offset_of(f->file, p->at, &site.offset);

	if (strcmp(p->provider, PROVIDER) || (!frees && strcmp(p->name, "alloc")))
		return 0;
	if (good && p->semaphore)
		good = offset_of(f->file, p->semaphore, &site.semaphore);
	for (unsigned i = 0; good && i < wanted; i++)
		good = convert(&p->operands[i], &site.probe.args[i]);
	if (!good) {
		snprintf(f->odd, sizeof(f->odd), "%s(%s)", p->name, p->arguments);
		return 0;
	}
	if (f->found->count == HEAP_TOLD_MOST) {
		f->found->left_out++;
		return 0;
	}
	f->found->sites[f->found->count++] = site;
	*(frees ? &f->frees : &f->allocs) += 1;
	return 0;
}

int heap_told_find_in(struct elf_file *file, struct heap_told *ret, struct err *err)
{
	struct finder f = {.file = file, .found = ret};

	*ret = (struct heap_told){0};
	elf_file_each_probe(file, take, &f);
	if (f.odd[0])
		return err_set(err, EOPNOTSUPP, "arguments of " PROVIDER ":%s are not where they can be read", f.odd);
	if (!f.allocs || !f.frees)
		return err_set(err, ENOENT, "it has no probes " PROVIDER ":alloc and " PROVIDER ":free");
	if (elf_file_machine(file) != OWN_MACHINE)
		return err_set(err, EOPNOTSUPP, "it is a program of another machine");
	return 0;
}

void heap_told_release(struct heap_told *t)
{
	elf_file_free(t->file);
	*t = (struct heap_told){0};
}

/* ---- of a process ---- */

struct search {
	pid_t pid;
	uint64_t inode; /* of the last file, whose mappings follow each other */
	struct heap_told *found;
	struct err err; /* of a file that has probes, but not as we can use them */
};

static int look(void *ctx, const struct proc_mapping *m)
{
	struct search *s = ctx;
	const char *slash = strrchr(m->path, '/');
	struct elf_file *file = NULL;
	struct err err = {0};
	int fd, rc;

	if (!m->exec || !slash || m->inode == s->inode || strstr(slash + 1, OWN_LIBRARY))
		return 0;
	s->inode = m->inode;
	fd = proc_open_mapped_file(s->pid, m, NULL);
	if (fd < 0 || elf_file_open_fd(fd, m->path, &file, NULL))
		return 0;
	rc = heap_told_find_in(file, s->found, &err);
	if (!rc) {
		s->found->file = file;
		snprintf(s->found->shown, sizeof(s->found->shown), "%s", m->path);
		return 1;
	}
	if (rc != -ENOENT) {
		s->err = err;
		err_prefix(&s->err, "%s", m->path);
	}
	elf_file_free(file);
	return 0;
}

int heap_told_find(pid_t pid, struct heap_told *ret, struct err *err)
{
	struct search s = {.pid = pid, .found = ret};
	int rc = proc_each_mapping(pid, look, &s, err);

	if (rc > 0)
		return 0;
	*ret = (struct heap_told){0};
	if (rc < 0)
		return rc;
	if (s.err.code)
		return err_set(err, s.err.code, "%s", s.err.text);
	return err_set(err, ENOENT, "no probes " PROVIDER ":alloc and " PROVIDER ":free are in it");
}

/* ---- weights ---- */

static double weight_at(double size, uint64_t rate)
{
	return size / -expm1(-size / (double)rate);
}

uint64_t heap_told_rate(uint64_t size, uint64_t weight, uint64_t last)
{
	double s = (double)size, rate;

	if (!size)
		return last ? last : 1;
	if (last && fabs(weight_at(s, last) - (double)weight) <= 1)
		return last;
	if (weight <= size)
		return 1;
	rate = -s / log1p(-s / (double)weight);
	return rate < 1 ? 1 : rate > (double)HEAP_PROBE_RATE_MOST ? HEAP_PROBE_RATE_MOST : (uint64_t)(rate + 0.5);
}
