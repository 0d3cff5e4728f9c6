/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/sampler.h"

void sampler_free(struct sampler *s)
{
	if (s)
		s->ops->free(s);
}

static int cannot(const struct sampler *s, const char *what, struct err *err)
{
	return err_set(err, EOPNOTSUPP, "the %s sampler cannot watch %s", s->ops->name, what);
}

int sampler_watch_process(struct sampler *s, pid_t pid, struct err *err)
{
	return s->ops->watch_process ? s->ops->watch_process(s, pid, err)
				     : cannot(s, "a running process", err);
}

int sampler_watch_thread(struct sampler *s, pid_t pid, pid_t tid, struct err *err)
{
	return s->ops->watch_thread ? s->ops->watch_thread(s, pid, tid, err)
				    : cannot(s, "one thread alone", err);
}

int sampler_watch_child(struct sampler *s, pid_t pid, struct err *err)
{
	return s->ops->watch_child ? s->ops->watch_child(s, pid, err)
				   : cannot(s, "a command from its start", err);
}

int sampler_watch_all(struct sampler *s, struct err *err)
{
	return s->ops->watch_all ? s->ops->watch_all(s, err) : cannot(s, "the whole machine", err);
}

int sampler_watch_cgroup(struct sampler *s, int cgroup_fd, struct err *err)
{
	return s->ops->watch_cgroup ? s->ops->watch_cgroup(s, cgroup_fd, err)
				    : cannot(s, "a cgroup", err);
}
