/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which event samples: hardware cycles where there is a PMU, else the CPU clock (virtual
 * machines); with kernel code where we may see it, else user code alone. Found by opening.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/rights.h"

#if defined(__x86_64__)
/* ax bx cx dx si di bp sp ip, r8-r15: bits of enum perf_event_x86_regs in asm/perf_regs.h */
#define USER_REGS 0xff01ffULL
#elif defined(__aarch64__)
/* x0-x30 sp pc */
#define USER_REGS 0x1ffffffffULL
#else
#error "sonde samples x86-64 and aarch64"
#endif

/* Each sample wakes us, so that its stack can be finished before the thread returns from it; at
 * higher rates this many times a second and CPU. */
#define WAKEUPS_HZ 1000u

static void set_common(struct perf_event_attr *attr)
{
	attr->size = sizeof(*attr);
	attr->sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
		PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
	attr->sample_id_all = 1;
	attr->use_clockid = 1;
	attr->clockid = CLOCK_MONOTONIC;
	attr->exclude_hv = 1;
}

struct perf_event_attr perf_dummy_attr(void)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	set_common(&attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.exclude_kernel = 1;
	attr.disabled = 1;
	return attr;
}

void perf_set_tracking(struct perf_event_attr *attr)
{
	attr->mmap = attr->mmap2 = 1;
	attr->comm = attr->comm_exec = 1;
	attr->task = 1;
}

void perf_set_user_stack(struct perf_event_attr *attr, uint32_t stack_bytes)
{
	attr->sample_type |= PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	attr->exclude_callchain_user = 1;
	attr->sample_regs_user = USER_REGS;
	attr->sample_stack_user = stack_bytes;
}

static void set_sampling(struct perf_event_attr *attr, const struct sampler_options *o)
{
	memset(attr, 0, sizeof(*attr));
	set_common(attr);
	perf_set_user_stack(attr, o->stack_bytes ? o->stack_bytes : stack_size_bytes(STACK_SIZE_FIRST));
	attr->sample_type |= PERF_SAMPLE_PERIOD;
	attr->wakeup_events = 1 + (o->frequency_hz - 1) / WAKEUPS_HZ;
}

static void set_cycles(struct perf_event_attr *attr, const struct sampler_options *o)
{
	attr->type = PERF_TYPE_HARDWARE;
	attr->config = PERF_COUNT_HW_CPU_CYCLES;
	attr->freq = 1;
	attr->sample_freq = o->frequency_hz;
}

static void set_clock(struct perf_event_attr *attr, const struct sampler_options *o)
{
	attr->type = PERF_TYPE_SOFTWARE;
	attr->config = PERF_COUNT_SW_CPU_CLOCK;
	attr->freq = 0;
	attr->sample_period = NS_PER_S / o->frequency_hz;
}

static void set_user_only(struct perf_event_attr *attr)
{
	attr->exclude_kernel = 1;
	attr->exclude_callchain_kernel = 1;
	attr->sample_type &= ~(uint64_t)PERF_SAMPLE_CALLCHAIN;
}

int perf_try_open(const struct perf_event_attr *attr)
{
	struct perf_event_attr probe = *attr;

	probe.disabled = 1;
	int fd = perf_event_open(&probe, 0, -1, -1);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int perf_choose_event(struct perf_sampler *s, struct err *err)
{
	static const struct {
		const char *name;
		void (*set)(struct perf_event_attr *attr, const struct sampler_options *o);
	} events[] = {{"cycles", set_cycles}, {"cpu-clock", set_clock}};
	int rc = 0;

	for (int user_only = 0; user_only < 2; user_only++) {
		for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
			set_sampling(&s->attr, &s->options);
			events[i].set(&s->attr, &s->options);
			perf_set_tracking(&s->attr);
			s->attr.inherit = 1;
			if (user_only)
				set_user_only(&s->attr);
			rc = perf_try_open(&s->attr);
			if (rc)
				continue;
			s->event_name = events[i].name;
			s->kernel = !user_only;
			return 0;
		}
	}
	return rights_perf_refused(-rc, 0, err);
}

int perf_choose_clock(
	const struct sampler_options *options, struct perf_event_attr *ret, struct err *err)
{
	struct perf_event_attr attr;
	int rc;

	set_sampling(&attr, options);
	set_clock(&attr, options);
	rc = perf_try_open(&attr);
	if (rc) {
		set_user_only(&attr);
		rc = perf_try_open(&attr);
	}
	if (rc)
		return rights_perf_refused(-rc, 0, err);
	*ret = attr;
	return 0;
}
