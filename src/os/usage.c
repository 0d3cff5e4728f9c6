/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/proc_priv.h"
#include "os/thread_wait.h"

/* Fields of proc_pid_stat(5), by the numbers there; the third is the first behind the name. */
enum {
	STAT_STATE = 3,
	STAT_UTIME = 14,
	STAT_STIME = 15,
	STAT_THREADS = 20,
	STAT_RSS = 24,
	STAT_CPU = 39,
};

/* The text of a field; NULL when there are not so many. A name may hold anything, also ')'. */
static const char *stat_field(const char *text, int number)
{
	const char *at = strrchr(text, ')');

	if (at)
		at++;
	for (int i = STAT_STATE; at && i < number; i++)
		at = strchr(at + 1, ' ');
	return at && *at == ' ' ? at + 1 : NULL;
}

static int read_stat(
	pid_t pid, const char *what, char *text, size_t size, const char *thing, struct err *err)
{
	ssize_t n = proc_read_small(pid, what, text, size);

	if (n == -ESRCH)
		return err_set(err, ESRCH, "%s is gone", thing);
	return n < 0 ? err_errno(err, (int)-n, "%s of %s", what, thing) : 0;
}

static int number_in_stat(pid_t pid, int field, uint64_t *ret, struct err *err)
{
	char text[1024], thing[32];
	const char *at;
	int rc;

	snprintf(thing, sizeof(thing), "process %d", (int)pid);
	rc = read_stat(pid, "stat", text, sizeof(text), thing, err);
	if (rc)
		return rc;
	at = stat_field(text, field);
	if (!at)
		return err_set(err, EBADMSG, "stat of %s makes no sense", thing);
	*ret = strtoull(at, NULL, 10);
	return 0;
}

/* Of a kernel that does not count when threads run: its clock ticks, and how often they left a CPU. */
static int thread_ticks(pid_t pid, pid_t tid, struct usage_marks *ret, struct err *err)
{
	char text[1024], thing[32], what[48];
	const char *user, *system, *state;
	int rc;

	snprintf(thing, sizeof(thing), "thread %d", (int)tid);
	snprintf(what, sizeof(what), "task/%d/stat", (int)tid);
	rc = read_stat(pid, what, text, sizeof(text), thing, err);
	if (!rc)
		rc = thread_switches(pid, tid, &ret->times, err);
	if (rc)
		return rc;
	user = stat_field(text, STAT_UTIME);
	system = stat_field(text, STAT_STIME);
	state = stat_field(text, STAT_STATE);
	if (!user || !system || !state)
		return err_set(err, EBADMSG, "stat of %s makes no sense", thing);
	ret->ran = strtoull(user, NULL, 10) + strtoull(system, NULL, 10);
	ret->running = *state == 'R';
	return 0;
}

int usage_thread(pid_t pid, pid_t tid, struct usage_marks *ret, struct err *err)
{
	char text[128], what[48];
	uint64_t waited;
	ssize_t n;

	*ret = (struct usage_marks){0};
	snprintf(what, sizeof(what), "task/%d/schedstat", (int)tid);
	n = proc_read_small(pid, what, text, sizeof(text));
	/* All zeros: switched off, or it has never run. */
	if (n > 0 &&
		sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ret->ran, &waited, &ret->times) ==
			3 &&
		(ret->ran || waited || ret->times))
		return 0;
	return thread_ticks(pid, tid, ret, err);
}

/* "se.exec_start   :   12345.678901" in milliseconds; 0: not there. */
static uint64_t sched_time(const char *text, const char *key)
{
	const char *at = strstr(text, key);
	uint64_t ms, ns;

	at = at ? strchr(at, ':') : NULL;
	return at && sscanf(at + 1, "%" SCNu64 ".%6" SCNu64, &ms, &ns) == 2 ? ms * NS_PER_MS + ns : 0;
}

static uint64_t sched_count(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	at = at ? strchr(at, ':') : NULL;
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

int usage_sched(pid_t pid, pid_t tid, struct usage_sched *ret, struct err *err)
{
	char text[8192], what[48];
	const char *cpu;
	uint64_t times;
	ssize_t n;

	*ret = (struct usage_sched){.cpu = -1};
	snprintf(what, sizeof(what), "task/%d/schedstat", (int)tid);
	n = proc_read_small(pid, what, text, sizeof(text));
	if (n == -ESRCH)
		return err_set(err, ESRCH, "thread %d is gone", (int)tid);
	if (n > 0)
		sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ret->ran_ns, &ret->queued_ns, &times);
	snprintf(what, sizeof(what), "task/%d/sched", (int)tid);
	if (proc_read_small(pid, what, text, sizeof(text)) > 0) {
		ret->last_ns = sched_time(text, "se.exec_start");
		ret->switches = sched_count(text, "nr_switches");
	}
	snprintf(what, sizeof(what), "task/%d/stat", (int)tid);
	cpu = proc_read_small(pid, what, text, sizeof(text)) > 0 ? stat_field(text, STAT_CPU) : NULL;
	if (cpu)
		ret->cpu = (int)strtol(cpu, NULL, 10);
	return 0;
}

int usage_cpu(pid_t pid, uint64_t *ret_ns, struct err *err)
{
	clockid_t clock;
	struct timespec ts;
	int rc = clock_getcpuclockid(pid, &clock);

	if (rc || clock_gettime(clock, &ts))
		return err_set(err, ESRCH, "process %d is gone", (int)pid);
	*ret_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
	return 0;
}

int usage_memory(pid_t pid, uint64_t *ret_resident_bytes, struct err *err)
{
	uint64_t pages;
	int rc = number_in_stat(pid, STAT_RSS, &pages, err);

	if (!rc)
		*ret_resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return rc;
}

uint64_t usage_own_files(void)
{
	char text[128];
	uint64_t size, resident, shared;

	if (proc_read_small(getpid(), "statm", text, sizeof(text)) <= 0 ||
		sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &size, &resident, &shared) != 3)
		return 0;
	return shared * (uint64_t)sysconf(_SC_PAGESIZE);
}

int usage_thread_count(pid_t pid, uint64_t *ret, struct err *err)
{
	return number_in_stat(pid, STAT_THREADS, ret, err);
}
