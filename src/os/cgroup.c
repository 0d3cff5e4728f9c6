/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/proc_priv.h"

#define MOUNTED "/sys/fs/cgroup"

/* Whether `word` is one of those in a list with commas. */
static bool lists(const char *list, size_t len, const char *word)
{
	size_t want = strlen(word);

	for (const char *at = list, *end = list + len; at < end;) {
		size_t n = strcspn(at, ",:");

		if (n == want && !memcmp(at, word, n))
			return true;
		at += n + 1;
	}
	return false;
}

/* Lines are "ID:CONTROLLERS:PATH", cgroups(7); those of v2 are "0::PATH". A controller that v1 has is not
 * in v2. */
bool cgroup_cpu_path(const char *text, char *buf, size_t size, bool *ret_v1)
{
	bool found = false;

	*ret_v1 = false;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
		bool v1;

		if (!path || (size_t)(path - line) > strcspn(line, "\n"))
			continue;
		list++;
		v1 = lists(list, (size_t)(path - list), "cpu");
		path++;
		if ((!v1 && path - list > 1) || *ret_v1 || strcspn(path, "\n") >= size)
			continue;
		snprintf(buf, size, "%.*s", (int)strcspn(path, "\n"), path);
		*ret_v1 = v1;
		found = true;
	}
	return found;
}

static bool exists(const char *directory, const char *file)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", directory, file) < (int)sizeof(path) &&
		!access(path, F_OK);
}

bool cgroup_cpu_directory(pid_t pid, char *buf, size_t size)
{
	static const char *const v1_mounts[] = {MOUNTED "/cpu", MOUNTED "/cpu,cpuacct"};
	static const char *const v2_mounts[] = {MOUNTED, MOUNTED "/unified"};
	char text[4096], path[PATH_MAX / 2];
	bool v1;

	if (proc_read_small(pid, "cgroup", text, sizeof(text)) > 0 &&
		cgroup_cpu_path(text, path, sizeof(path), &v1))
		for (int i = 0; i < 2; i++) {
			snprintf(buf, size, "%s%s", v1 ? v1_mounts[i] : v2_mounts[i], path);
			if (exists(buf, "cpu.stat"))
				return true;
		}
	*buf = '\0';
	return false;
}

bool cgroup_parent(char *directory)
{
	char *slash = strrchr(directory, '/');

	if (!slash || strlen(directory) <= strlen(MOUNTED))
		return false;
	*slash = '\0';
	return exists(directory, "cpu.stat");
}

/* The number after `key` at the start of a line. */
static bool number_of(const char *text, const char *key, uint64_t *ret)
{
	size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) && line[len] == ' ') {
			*ret = strtoull(line + len + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

bool cgroup_throttling_parse(const char *text, struct cgroup_throttling *ret)
{
	uint64_t us;

	if (!number_of(text, "nr_throttled", &ret->periods))
		return false;
	if (number_of(text, "throttled_usec", &us)) /* v2 */
		ret->ns = us * 1000;
	else if (!number_of(text, "throttled_time", &ret->ns)) /* v1 */
		return false;
	return true;
}

bool cgroup_throttling_read(const char *directory, struct cgroup_throttling *ret)
{
	char path[PATH_MAX], text[2048];

	if (snprintf(path, sizeof(path), "%s/cpu.stat", directory) >= (int)sizeof(path))
		return false;

	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return cgroup_throttling_parse(text, ret);
}
