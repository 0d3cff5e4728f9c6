/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/text_copy.h"

#include <string.h>
#include <unistd.h>

/* Looked at around the sampled address, and at as many places between start and end. */
#define WINDOW_BYTES 64u
#define WINDOWS 4u

/* Samples that may come while the copy is being made. */
#define TRIES 3u

static bool is_code_of_no_file(const struct space_mapping *m)
{
	return !m->module->file && !m->module->jit &&
	       (m->module->kind == MODULE_JIT || m->module->kind == MODULE_FILE);
}

static void make_candidate(struct space_mapping *m, struct module *module, uint64_t bias)
{
	m->copied_from = module;
	m->copied_bias = bias;
	m->copy_tries = TRIES;
}

/* Does code of the file lie at module address `vaddr`? The last page of a segment is mapped whole. */
static bool has_code_at(const struct elf_file *f, uint64_t vaddr)
{
	const uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	const struct elf_segment *s;
	size_t count = elf_file_segments(f, &s);

	for (size_t i = 0; i < count; i++)
		if (s[i].executable && vaddr >= (s[i].vaddr & page_mask) &&
			vaddr - s[i].vaddr < s[i].mem_size)
			return true;
	return false;
}

/* Any segment of the neighbour may be the one that it maps, as far as the page goes; that which makes
 * the copy a piece of code is right. What else there may be, the bytes will tell. */
void text_copy_beside(struct space_mapping *added, struct module *beside,
	const struct proc_mapping *mapped)
{
	const uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	const struct elf_segment *s;

	if (!is_code_of_no_file(added) || !beside || !beside->file || beside->kind != MODULE_FILE)
		return;

	size_t count = elf_file_segments(beside->file, &s);

	for (size_t i = 0; i < count; i++) {
		uint64_t page = s[i].offset & page_mask;

		if (s[i].executable != mapped->exec || mapped->offset < page ||
			mapped->offset - page >= s[i].file_size + (s[i].offset - page))
			continue;

		uint64_t bias = mapped->start - (s[i].vaddr + (mapped->offset - s[i].offset));

		if (!has_code_at(beside->file, added->start - bias))
			continue;
		make_candidate(added, beside, bias);
		return;
	}
}

void text_copy_replaces(struct space_mapping *added, const struct space_mapping *replaced)
{
	if (!is_code_of_no_file(added) || !replaced)
		return;
	if (replaced->module->file && !replaced->meaningless)
		make_candidate(added, replaced->module, replaced->bias);
	else if (replaced->copied_from)
		make_candidate(added, replaced->copied_from, replaced->copied_bias);
}

/* Zeros are in many places: only what the file has something at counts. */
static bool same_bytes(const struct source *s, const struct space_mapping *m, pid_t pid, uint64_t addr,
	bool *ret_differ)
{
	static const uint8_t zeros[WINDOW_BYTES];
	uint8_t found[WINDOW_BYTES];
	const uint8_t *want =
		elf_file_bytes_at(m->copied_from->file, addr - m->copied_bias, sizeof(found));

	if (!want || !memcmp(want, zeros, sizeof(zeros)) ||
		!source_read(s, pid, addr, found, sizeof(found)))
		return false;
	if (memcmp(found, want, sizeof(found))) {
		*ret_differ = true;
		return false;
	}
	return true;
}

bool text_copy_settle(
	const struct source *s, struct space_mapping *m, pid_t pid, uint64_t addr)
{
	const uint64_t window_mask = ~(uint64_t)(WINDOW_BYTES - 1);
	uint64_t step = (m->end - m->start) / WINDOWS;
	bool differ = false;

	if (!m->copied_from || !m->copy_tries)
		return false;
	m->copy_tries--;
	if (!same_bytes(s, m, pid, addr & window_mask, &differ))
		return false;
	for (unsigned i = 0; i < WINDOWS; i++)
		same_bytes(s, m, pid, (m->start + i * step) & window_mask, &differ);
	if (differ)
		return false;
	m->module = m->copied_from;
	m->bias = m->copied_bias;
	m->copied_from = NULL;
	return true;
}
