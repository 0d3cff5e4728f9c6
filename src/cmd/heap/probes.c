/* SPDX-License-Identifier: BSD-2-Clause */
/* Which way a program is seen: by our library inside it, by probes in the kernel, or both. */
#include "cmd/heap/record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cmd/cmd.h"
#include "os/proc.h"

/* What probes cannot do; NULL: nothing of it was asked for. */
static const char *beyond_probes(const struct heap_record_args *a)
{
	return a->exact                ? "--exact"
		: a->time || a->every_calls ? "--every"
		: a->free_stacks       ? "--free-stacks"
		: a->maps              ? "--maps"
				       : NULL;
}

static int find_entries(struct heap_recording *r, const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
	struct elf_file *file = NULL, *symbols = NULL;

	rc = fd < 0 ? err_errno(err, errno, "%s", path) : elf_file_open_fd(fd, path, &file, err);
	if (!rc)
		rc = heap_entries_find(file, NULL, r->args->allocator, r->entries, err);
	/* Without symbols of its own, those of its debug file, if that is here. */
	if (rc == -ENOENT && file && !elf_file_open_debug(file, "", &symbols, NULL) && symbols) {
		struct err other = {0};

		if (!heap_entries_find(file, symbols, r->args->allocator, r->entries, &other))
			rc = 0;
	}
	elf_file_free(symbols);
	elf_file_free(file);
	return rc;
}

int heap_plan_probes(struct heap_recording *r, const char *path, const char *shown, struct err *err)
{
	const char *beyond = beyond_probes(r->args);
	int rc;

	if (beyond)
		return err_set(err, EOPNOTSUPP, "probes take samples by bytes: leave out %s", beyond);
	rc = heap_probes_possible(err);
	if (rc)
		return rc;
	if (!r->entries)
		r->entries = calloc(1, sizeof(*r->entries));
	if (!r->entries)
		return err_nomem(err);
	rc = find_entries(r, path, err);
	if (rc)
		return rc;
	snprintf(r->probed_path, sizeof(r->probed_path), "%s", path);
	snprintf(r->probed_shown, sizeof(r->probed_shown), "%s", shown);
	r->probes_wanted = true;
	return 0;
}

/* Probes that the program has of its own: nothing is sampled a second time. -ENOENT: none are known. */
static int plan_told(struct heap_recording *r, struct err *err)
{
	int rc;

	r->told = calloc(1, sizeof(*r->told));
	if (!r->told)
		return err_nomem(err);
	rc = heap_told_find(r->pid, r->told, err);
	if (rc && rc != -EOPNOTSUPP) /* a process that cannot be looked at has its words later */
		rc = -ENOENT;
	if (!rc)
		rc = heap_probes_possible(err);
	if (rc) {
		heap_told_release(r->told);
		free(r->told);
		r->told = NULL;
		return rc;
	}
	/* The very file that is mapped, whatever its path leads to now. */
	snprintf(r->probed_path, sizeof(r->probed_path), "/proc/%d/fd/%d", (int)getpid(), elf_file_fd(r->told->file));
	snprintf(r->probed_shown, sizeof(r->probed_shown), "%s", r->told->shown);
	r->probes_wanted = r->probes_alone = true;
	return 0;
}

/* ---- placing them ---- */

/* The number in a file of the kernel's. */
static long sysctl_number(const char *path)
{
	autofclose FILE *f = fopen(path, "re");
	char line[32];

	return f && fgets(line, sizeof(line), f) ? strtol(line, NULL, 10) : -1;
}

/* Blocks of this size the kernel does not refuse: docs/heuristics/heap-probes.md. */
static uint64_t never_refused(pid_t pid)
{
	static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
	struct sysinfo machine;
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (prlimit(pid, (enum __rlimit_resource)limits[i], NULL, &limit) || limit.rlim_cur != RLIM_INFINITY)
			return 0;
	if (sysinfo(&machine) || sysctl_number("/proc/sys/vm/overcommit_memory") == 2)
		return 0;
	return (uint64_t)machine.totalram * machine.mem_unit / 4;
}

int heap_place_probes(struct heap_recording *r, pid_t pid, bool at_exec, struct err *err)
{
	struct heap_probes_options options = {
		.path = r->probed_path,
		.entries = r->entries,
		.told = r->told,
		/* A library is shared with the whole machine. */
		.only_pid = r->args->no_children || r->probes_in_library || r->told ? pid : 0,
		.rate = r->args->sample_bytes,
		.throw_most = never_refused(pid),
	};
	struct heap_probes *probes;
	int rc = heap_probes_new(&options, &probes, err);

	if (rc)
		return rc;
	rc = heap_collector_probe(r->collector, probes, r->probed_shown, r->told);
	if (rc)
		return err_errno(err, -rc, "waiting for a BPF ring");
	return heap_collector_probe_process(r->collector, pid, at_exec, err);
}

/* ---- which way ---- */

/* Whether it has a seccomp filter that does not let our library in; with the words of that. */
static bool is_locked(pid_t pid, struct err *ret)
{
	struct proc_status status;

	return !proc_status_read(pid, &status, NULL) && status.seccomp && heap_attach_possible(pid, ret) == -EACCES;
}

/* Its allocator is in a library, but ours may not be put beside it. */
static int probe_library(struct heap_recording *r, struct err *err)
{
	char library[PATH_MAX], path[PATH_MAX + 32];
	int rc = heap_cover_allocator(r->pid, library, sizeof(library));

	if (rc)
		return err_set(err, ENOENT, "process %d has no C library that is known", (int)r->pid);
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)r->pid, library);
	rc = heap_plan_probes(r, path, library, err);
	r->probes_in_library = !rc;
	return rc;
}

int heap_choose_way(struct heap_recording *r, struct err *err)
{
	char path[48], shown[PATH_MAX] = "";
	struct err why = {0}, lock = {0};
	struct proc_status status;
	bool locked;
	int rc = -ENOENT;

	if (!beyond_probes(r->args) && !r->args->own_sampling && !r->args->allocator)
		rc = plan_told(r, &why);
	if (!rc)
		return 0;
	if (rc != -ENOENT)
		cmd_note(NAME, "process %d has probes of its own for its allocations, which are not used: %s", (int)r->pid, why.text);
	why = (struct err){0};
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)r->pid);
	heap_cover_file(path, &r->cover);
	locked = r->cover.kind != HEAP_STATIC && is_locked(r->pid, &lock);
	if (r->cover.kind == HEAP_NOT_PRELOADED || (r->cover.kind == HEAP_COVERED && !locked && !r->args->allocator))
		return 0; /* the injection has the words for what cannot be */
	if (readlink(path, shown, sizeof(shown) - 1) < 0)
		snprintf(shown, sizeof(shown), "%s", path);
	rc = !proc_status_read(r->pid, &status, NULL) && status.seccomp ? heap_probes_try_sandbox(&why) : 0;
	if (!rc)
		rc = r->cover.kind == HEAP_COVERED && !r->args->allocator ? probe_library(r, &why)
									 : heap_plan_probes(r, path, shown, &why);
	if (rc && r->cover.kind == HEAP_STATIC)
		return err_set(err, -rc, "process %d %s, and probes in the kernel are not possible: %s", (int)r->pid, r->cover.words,
			why.text);
	if (rc && locked)
		return err_set(err, -rc, "%.200s; and probes in the kernel are not possible: %.200s", lock.text, why.text);
	if (rc) {
		cmd_note(NAME, "process %d %s. Probes in the kernel would see it: %s", (int)r->pid, r->cover.words, why.text);
		return 0;
	}
	r->probes_alone = locked || r->cover.kind == HEAP_STATIC || r->cover.own_malloc;
	return 0;
}

int heap_choose_way_of_command(struct heap_recording *r, const char *path, struct err *err)
{
	char program[PATH_MAX];
	struct err why = {0};
	int rc;

	heap_cover_file(path, &r->cover);
	if (r->cover.kind == HEAP_NOT_PRELOADED)
		return err_set(err, EOPNOTSUPP, "%s %s", path, r->cover.words);
	if (r->cover.kind == HEAP_COVERED && !r->args->allocator)
		return 0;
	heap_cover_program(path, program, sizeof(program));
	rc = heap_plan_probes(r, program, program, &why);
	if (rc && r->cover.kind == HEAP_STATIC)
		return err_set(err, -rc, "%s %s, and probes in the kernel are not possible: %s", path, r->cover.words, why.text);
	if (rc)
		cmd_note(NAME, "%s %s. Probes in the kernel would see it: %s", path, r->cover.words, why.text);
	else
		r->probes_alone = r->cover.kind == HEAP_STATIC || r->cover.own_malloc;
	return 0;
}

/* ---- what is said of it ---- */

void heap_tell_probes(const struct heap_recording *r)
{
	const struct heap_probes_stats *s = &r->stats.probes;
	const char *slash = strrchr(r->probed_shown, '/');

	if (!r->stats.probed)
		return;
	if (r->told) {
		fprintf(stderr, "  the program's own otel_memory probes in %s are used: %llu samples that it has taken itself, each with the bytes "
			"it stands for; which blocks are temporary they do not say, and processes that it forks are not seen\n",
			slash ? slash + 1 : r->probed_shown, (unsigned long long)s->told);
		if (r->told->left_out)
			fprintf(stderr, "  %zu more of these probes are not used, for want of room\n", r->told->left_out);
		return;
	}
	fprintf(stderr, "  probes at %u functions of the allocator in %s have seen %llu calls that allocate, which is all of those by "
		"name; what the compiler has put into its callers is not among them\n",
		s->functions, slash ? slash + 1 : r->probed_shown, (unsigned long long)(s->calls - s->inner));
	if (s->slow)
		fprintf(stderr, "  %u of them have no instruction that the kernel emulates, and cost some 16 us a call in a virtual "
			"machine\n", s->slow);
	if (s->all_returns)
		fputs("  this kernel stops at every return as well, which makes allocations dearer by half (Linux 6.13 does not)\n", stderr);
	if (s->left_out)
		fprintf(stderr, "  %u functions that throw exceptions are not probed, as this kernel could not let one pass: what they "
			"allocate is not seen\n", s->left_out);
	if (r->entries->left_out)
		fprintf(stderr, "  %zu more functions of the allocator are not probed, for want of room\n", r->entries->left_out);
	if (!r->probes_alone)
		fputs("  what is allocated elsewhere our library has seen\n", stderr);
	else if (r->probes_in_library)
		fputs("  processes that it has forked were not seen\n", stderr);
}
