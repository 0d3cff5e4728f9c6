/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose interrupt is it? docs/heuristics/soft-interrupt.md.
 *
 * What one thread sends to another of this machine is delivered by a soft interrupt that the kernel
 * runs in the middle of the sender's system call, as it enables them again. That one belongs to the
 * sender. One that runs at the end of a device's interrupt belongs to nobody.
 */
#include "sample/bpf/bpf_priv.h"

#include <string.h>

#include "symbol/symbol.h"

/* Functions through which every interrupt of a device or a timer comes. */
static const char *const entries[] = {
	"asm_", "sysvec_", "common_interrupt", "irq_exit", "__irq_exit", "el1", "el0"};

static const char *name_of(struct bpf_sampler *s, uint64_t ip)
{
	struct symbol_answer answer;

	if (!s->kernel_names && !s->kernel_names_refused)
		s->kernel_names_refused = symbol_source_kernel(&s->kernel_names, NULL);
	if (!s->kernel_names)
		return "";
	answer = symbol_resolve(s->kernel_names, ip);
	return answer.count ? answer.levels[answer.count - 1].name : "";
}

bool bpf_is_the_threads_own(struct bpf_sampler *s, const uint64_t *ips, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *name = name_of(s, ips[i]);

		if (!strcmp(name, "__local_bh_enable_ip"))
			return true;
		for (size_t j = 0; j < sizeof(entries) / sizeof(entries[0]); j++)
			if (!strncmp(name, entries[j], strlen(entries[j])))
				return false;
	}
	return false;
}
