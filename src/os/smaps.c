/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/smaps.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "os/proc_priv.h"
#include "os/rights.h"

/* 65,530 mappings, which a process has at most as Linux comes, are about 50 MB of text. */
#define MOST_TEXT ((size_t)512 << 20)

/* Which lines add to what. */
static const struct {
	const char *key;
	size_t at;
} fields[] = {
	{"Rss", offsetof(struct smaps_sizes, rss)},
	{"Pss", offsetof(struct smaps_sizes, pss)},
	{"Shared_Clean", offsetof(struct smaps_sizes, shared)},
	{"Shared_Dirty", offsetof(struct smaps_sizes, shared)},
	{"Private_Clean", offsetof(struct smaps_sizes, private)},
	{"Private_Dirty", offsetof(struct smaps_sizes, private)},
	{"Anonymous", offsetof(struct smaps_sizes, anonymous)},
	{"AnonHugePages", offsetof(struct smaps_sizes, anon_huge)},
	{"ShmemPmdMapped", offsetof(struct smaps_sizes, shmem_huge)},
	{"FilePmdMapped", offsetof(struct smaps_sizes, file_huge)},
	{"LazyFree", offsetof(struct smaps_sizes, lazy_free)},
	{"Locked", offsetof(struct smaps_sizes, locked)},
	{"Swap", offsetof(struct smaps_sizes, swap)},
	{"Shared_Hugetlb", offsetof(struct smaps_sizes, hugetlb)},
	{"Private_Hugetlb", offsetof(struct smaps_sizes, hugetlb)},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void add_field(struct smaps_mapping *m, const char *key, const char *value)
{
	uint64_t bytes = strtoull(value, NULL, 10) * 1024;

	if (!strcmp(key, "Shared_Dirty") || !strcmp(key, "Private_Dirty"))
		m->sizes.dirty += bytes;
	for (size_t i = 0; i < FIELDS; i++)
		if (!strcmp(key, fields[i].key))
			*(uint64_t *)((char *)&m->sizes + fields[i].at) += bytes;
}

static bool has_flag(const char *flags, const char *name)
{
	for (const char *at = flags; (at = strstr(at, name)); at++)
		if ((at == flags || at[-1] == ' ') && (at[2] == ' ' || !at[2]))
			return true;
	return false;
}

/* "Key: value": false when it is not one, as the first line of a mapping is not. */
static bool take_line(struct smaps_mapping *m, char *line)
{
	size_t key = strcspn(line, ": ");

	if (line[key] != ':' || !line[0] || line[0] < 'A' || line[0] > 'Z')
		return false;
	line[key] = '\0';
	if (!strcmp(line, "VmFlags")) {
		m->grows_down = has_flag(line + key + 1, "gd");
		m->huge_advised = has_flag(line + key + 1, "hg");
	} else {
		add_field(m, line, line + key + 1);
	}
	return true;
}

int smaps_parse(char *text, smaps_each_fn each, void *ctx)
{
	struct smaps_mapping m;
	bool any = false;
	int rc = 0;

	for (char *line = text, *next; !rc && line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (any && take_line(&m, line))
			continue;
		if (any)
			rc = each(ctx, &m);
		m = (struct smaps_mapping){0};
		any = proc_parse_mapping(line, &m.m);
	}
	return !rc && any ? each(ctx, &m) : rc;
}

int smaps_read(pid_t pid, smaps_each_fn each, void *ctx, struct err *err)
{
	char path[48];
	autofree char *text = NULL;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	rc = proc_read_whole(path, MOST_TEXT, &text);
	if (rc == -ENOMEM)
		return err_nomem(err);
	if (rc == -ESRCH)
		return err_set(err, ESRCH, "process %d is gone", (int)pid);
	if (rc)
		return rights_read_refused(-rc, pid, "memory map", err);
	return smaps_parse(text, each, ctx);
}

static uint64_t status_bytes(const char *text, const char *key)
{
	const char *at = proc_status_field(text, key);

	return at ? strtoull(at, NULL, 10) * 1024 : 0;
}

int smaps_process_read(pid_t pid, struct smaps_process *ret, struct err *err)
{
	char text[8192];
	ssize_t n = proc_read_small(pid, "status", text, sizeof(text));

	if (n == -ESRCH)
		return err_set(err, ESRCH, "there is no process %d", (int)pid);
	if (n < 0)
		return err_errno(err, (int)-n, "/proc/%d/status", (int)pid);
	*ret = (struct smaps_process){
		.rss = status_bytes(text, "VmRSS"),
		.anonymous = status_bytes(text, "RssAnon"),
		.file = status_bytes(text, "RssFile"),
		.shared = status_bytes(text, "RssShmem"),
		.page_tables = status_bytes(text, "VmPTE"),
		.swap = status_bytes(text, "VmSwap"),
		.locked = status_bytes(text, "VmLck"),
		.hugetlb = status_bytes(text, "HugetlbPages"),
		.peak_rss = status_bytes(text, "VmHWM"),
		.threads = status_bytes(text, "Threads") / 1024,
	};
	return 0;
}
