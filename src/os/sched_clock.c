/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread of ours runs on the CPU in question for an instant. Where that CPU is busy, it may have to wait for
 * long; we do not, and leave it to itself.
 */
#include "os/sched_clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/usage.h"

/* What was seen is good for so long: a CPU does not lose more than a tenth of that to interrupts. */
#define GOOD_NS NS_PER_S
/* For one CPU, and for all in all. */
#define PATIENCE_NS (5 * NS_PER_MS)
#define MOST_NS (50 * NS_PER_MS)

void sched_clock_release(struct sched_clock *c)
{
	vec_release(&c->cpus);
}

/* Freed by whoever is the last to leave it. */
struct visit {
	pthread_mutex_t lock;
	pthread_cond_t done;
	int64_t ahead_ns;
	bool over, left;
};

static void leave(struct visit *v)
{
	bool last = v->left;

	v->left = true;
	pthread_mutex_unlock(&v->lock);
	if (last)
		free(v);
}

/* Its clock as of now: the kernel brings our own time up to date when it puts us on a CPU. */
static void *be_there(void *arg)
{
	struct visit *v = arg;
	struct usage_sched own = {0};
	int64_t ahead = INT64_MIN;

	sched_yield();
	if (!usage_sched(getpid(), gettid(), &own, NULL) && own.last_ns)
		ahead = (int64_t)(clock_monotonic_ns() - own.last_ns);
	pthread_mutex_lock(&v->lock);
	v->ahead_ns = ahead;
	v->over = true;
	pthread_cond_signal(&v->done);
	leave(v);
	return NULL;
}

static struct visit *send_visitor(int cpu)
{
	struct visit *v = calloc(1, sizeof(*v));
	pthread_condattr_t clock;
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t there;
	int rc;

	if (!v)
		return NULL;
	v->ahead_ns = INT64_MIN;
	pthread_mutex_init(&v->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&v->done, &clock);
	CPU_ZERO(&there);
	CPU_SET(cpu, &there);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, (size_t)64 << 10);
	rc = pthread_attr_setaffinity_np(&attr, sizeof(there), &there);
	if (!rc)
		rc = pthread_create(&thread, &attr, be_there, v);
	pthread_attr_destroy(&attr);
	if (!rc)
		return v;
	free(v);
	return NULL;
}

static int64_t look(int cpu)
{
	struct visit *v = cpu >= 0 && cpu < CPU_SETSIZE ? send_visitor(cpu) : NULL;
	uint64_t end = clock_monotonic_ns() + PATIENCE_NS;
	struct timespec until = {(time_t)(end / NS_PER_S), (long)(end % NS_PER_S)};
	int64_t ahead;
	int rc = 0;

	if (!v)
		return INT64_MIN;
	pthread_mutex_lock(&v->lock);
	while (!v->over && !rc)
		rc = pthread_cond_timedwait(&v->done, &v->lock, &until);
	ahead = v->ahead_ns;
	leave(v);
	return ahead;
}

static struct sched_clock_cpu *entry(struct sched_clock *c, int cpu)
{
	vec_each(&c->cpus, it)
		if (it->cpu == cpu)
			return it;
	return vec_push(&c->cpus, (struct sched_clock_cpu){.cpu = cpu}) ? NULL
									 : &c->cpus.data[c->cpus.len - 1];
}

uint64_t sched_clock_ago(struct sched_clock *c, int cpu, uint64_t at_ns)
{
	struct sched_clock_cpu *e = entry(c, cpu);
	uint64_t now = clock_monotonic_ns();
	int64_t ago;

	if (!e)
		return UINT64_MAX;
	if ((!e->asked_ns || now - e->asked_ns > GOOD_NS) && c->spent_ns < MOST_NS) {
		e->ahead_ns = look(cpu);
		e->asked_ns = clock_monotonic_ns();
		c->spent_ns += e->asked_ns - now;
		now = e->asked_ns;
	}
	if (!e->asked_ns || e->ahead_ns == INT64_MIN)
		return UINT64_MAX;
	ago = (int64_t)(now - at_ns) - e->ahead_ns;
	return ago > 0 ? (uint64_t)ago : 0;
}
