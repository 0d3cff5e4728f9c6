/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of kinds, and what they share. */
#include "wait/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct wait_kind *const wait_kinds[] = {
	&wait_kind_kernel_thread,
	&wait_kind_traced,
	&wait_kind_stopped,
	&wait_kind_coredump,
	&wait_kind_frozen,
	&wait_kind_python_gil,
	&wait_kind_python_wait,
	&wait_kind_python_lock,
	&wait_kind_stdio,
	&wait_kind_mutex,
	&wait_kind_join,
	&wait_kind_rwlock,
	&wait_kind_once,
	&wait_kind_musl,
	&wait_kind_internal,
	&wait_kind_rust,
	&wait_kind_java,
	&wait_kind_condition,
	&wait_kind_futex,
	&wait_kind_kernel_lock,
	&wait_kind_userfault,
	&wait_kind_vfork,
	&wait_kind_child,
	&wait_kind_file_lock,
	&wait_kind_fifo_open,
	&wait_kind_connect,
	&wait_kind_postgres,
	&wait_kind_descriptor,
	&wait_kind_python_tasks,
	&wait_kind_poll,
	&wait_kind_select,
	&wait_kind_epoll,
	&wait_kind_uring,
	&wait_kind_queue,
	&wait_kind_sysv_semaphore,
	&wait_kind_sysv_queue,
	&wait_kind_lock_poll,
	&wait_kind_sleep,
	&wait_kind_signal,
	&wait_kind_page_fault,
	&wait_kind_device,
	&wait_kind_other,
	NULL,
};

const char *wait_grade_name(enum wait_grade grade)
{
	static const char *const names[] = {"proven", "observed", "inferred", "candidate"};

	return names[grade];
}

/* U+0080 to U+009F are controls as well. */
void wait_make_printable(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at; at++)
		if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0))
			*at = '?';
}

void wait_say(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, size, fmt, ap);
	va_end(ap);
	wait_make_printable(buf);
}

void wait_add_blocker(struct wait *w, pid_t pid, pid_t tid, enum wait_grade grade, const char *how)
{
	for (size_t i = 0; i < w->blocker_count; i++)
		if (w->blockers[i].pid == pid && w->blockers[i].tid == tid)
			return;
	if (w->blocker_count == WAIT_MOST_BLOCKERS) {
		w->blockers_more++;
		return;
	}
	w->blockers[w->blocker_count++] =
		(struct wait_blocker){.pid = pid, .tid = tid, .grade = grade, .how = how};
}

const char *wait_function(struct wait_look *l, struct snapshot_thread *t, size_t index)
{
	struct live_name name;

	snapshot_stack(l->snapshot, t);
	if (index >= t->frame_count)
		return "";
	name = snapshot_name(l->snapshot, t->frames[index].id);
	return name.answer.count ? name.answer.levels[name.answer.count - 1].name : "";
}

bool wait_is_name(const char *function, const char *name)
{
	size_t len = strlen(name);

	if (len && name[len - 1] == '*')
		return !strncmp(function, name, len - 1);
	return !strcmp(function, name);
}

int wait_find_function(struct wait_look *l, struct snapshot_thread *t, const char *const *names,
	size_t limit)
{
	snapshot_stack(l->snapshot, t);
	for (size_t i = 0; i < limit && i < t->frame_count; i++) {
		const char *function = wait_function(l, t, i);

		for (const char *const *name = names; *name && *function; name++)
			if (wait_is_name(function, *name))
				return (int)i;
	}
	return -1;
}
