/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/sampler.h"

#include "base/clock.h"

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

/* Before the caller gets its turn, though new events keep coming. */
#define MAX_ROUNDS 16

/* Whoever has the oldest event goes on until another one's is older. Until everyone has handed over
 * what there was when we began. Whether there was anything. */
static bool take_turns(struct sampler *const *samplers, size_t count, bool last)
{
	uint64_t now_ns = last ? UINT64_MAX : clock_monotonic_ns();

	for (bool any = false;; any = true) {
		uint64_t oldest_ns = UINT64_MAX, next_ns = now_ns;
		struct sampler *first = NULL;

		for (size_t i = 0; i < count; i++) {
			uint64_t ns = samplers[i]->ops->oldest_ns(samplers[i]);

			if (ns < oldest_ns) {
				next_ns = oldest_ns < next_ns ? oldest_ns : next_ns;
				oldest_ns = ns;
				first = samplers[i];
			} else if (ns < next_ns) {
				next_ns = ns;
			}
		}
		if (!first || oldest_ns > now_ns)
			return any;
		first->ops->drain_until(first, next_ns);
	}
}

static uint64_t drain_together(struct sampler *const *samplers, size_t count, bool last)
{
	uint64_t wait_ns = UINT64_MAX;
	int rounds = 0;

	while (take_turns(samplers, count, last) && ++rounds < MAX_ROUNDS)
		;
	for (size_t i = 0; i < count; i++) {
		uint64_t ns = samplers[i]->ops->settle(samplers[i], last);

		wait_ns = ns < wait_ns ? ns : wait_ns;
	}
	return rounds < MAX_ROUNDS ? wait_ns : 0;
}

uint64_t samplers_drain(struct sampler *const *samplers, size_t count, bool last)
{
	return count > 1 ? drain_together(samplers, count, last)
			 : samplers[0]->ops->drain(samplers[0], last);
}
