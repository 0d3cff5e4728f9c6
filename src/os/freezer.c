/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/freezer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "os/proc_priv.h"

#define MOUNTED "/sys/fs/cgroup"
#define MOST_TEXT 65536u

/* Lines are "ID:CONTROLLERS:PATH" (cgroups(7)); those of v2 are "0::PATH". */
bool freezer_path(const char *text, bool v1, char *buf, size_t size)
{
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t len = strcspn(line, "\n");
		const char *list = memchr(line, ':', len);
		const char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;

		if (!path)
			continue;
		list++;

		static const char freezer[] = "freezer";
		size_t list_len = (size_t)(path - list);
		const char *found = list_len ? memmem(list, list_len, freezer, sizeof(freezer) - 1) : NULL;

		if (v1 ? !found : list_len != 0)
			continue;
		path++;

		int n = (int)(len - (size_t)(path - line));

		return snprintf(buf, size, "%.*s", n, path) < (int)size;
	}
	return false;
}

bool freezer_events_frozen(const char *text)
{
	return strstr(text, "frozen 1") != NULL;
}

static bool file_has(const char *mount, const char *path, const char *file, bool v1)
{
	autofree char *text = NULL;
	char name[PATH_MAX];

	if (snprintf(name, sizeof(name), "%s%s/%s", mount, path, file) >= (int)sizeof(name) ||
		proc_read_whole(name, MOST_TEXT, &text))
		return false;
	/* FREEZING: some of its threads are still on their way. */
	return v1 ? !strncmp(text, "FR", 2) : freezer_events_frozen(text);
}

bool freezer_frozen(pid_t pid, char *buf, size_t size)
{
	char text[8192];

	*buf = '\0';
	if (proc_read_small(pid, "cgroup", text, sizeof(text)) <= 0)
		return false;
	if (freezer_path(text, true, buf, size) &&
		file_has(MOUNTED "/freezer", buf, "freezer.state", true))
		return true;
	if (freezer_path(text, false, buf, size) &&
		(file_has(MOUNTED, buf, "cgroup.events", false) ||
			file_has(MOUNTED "/unified", buf, "cgroup.events", false)))
		return true;
	*buf = '\0';
	return false;
}
