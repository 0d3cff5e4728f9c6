/* SPDX-License-Identifier: BSD-2-Clause */
/* In the place of probes.c, where BPF could not be built. */
#include "heap/probes.h"

#include <errno.h>

int heap_probes_possible(struct err *err)
{
	return err_set(err, EOPNOTSUPP, "cannot use BPF: this sonde was built without libbpf 1.0 or later, clang and bpftool");
}

int heap_probes_try_sandbox(struct err *err)
{
	return heap_probes_possible(err);
}

int heap_probes_new(const struct heap_probes_options *options, struct heap_probes **ret, struct err *err)
{
	return heap_probes_possible(err);
}

/* There is none that these could be asked of. */
void heap_probes_free(struct heap_probes *p)
{
}

int heap_probes_watch(struct heap_probes *p, pid_t pid, bool at_exec, struct err *err)
{
	return heap_probes_possible(err);
}

void heap_probes_unwatch(struct heap_probes *p, pid_t pid)
{
}

bool heap_probes_watches(const struct heap_probes *p, pid_t pid)
{
	return false;
}

int heap_probes_fd(const struct heap_probes *p)
{
	return -1;
}

size_t heap_probes_drain(struct heap_probes *p, size_t limit,
	void (*take)(void *ctx, const struct heap_probe_event *e, const struct heap_probe_sample *sample), void *ctx)
{
	return 0;
}

bool heap_probes_regs(const struct heap_probe_sample *sample, struct unwind_regs *ret)
{
	return false;
}

void heap_probes_set_rate(struct heap_probes *p, uint64_t rate)
{
}

void heap_probes_stop(struct heap_probes *p)
{
}

void heap_probes_stats(const struct heap_probes *p, struct heap_probes_stats *ret)
{
	*ret = (struct heap_probes_stats){0};
}
