/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which samplers answer what was asked for, here and with these rights.
 *
 *	on the CPU    perf; ptrace where that is refused
 *	off the CPU   bpf, with perf beside it for mappings and names; perf alone where that is
 *	              refused; ptrace where that is refused too
 */
#include "cmd/record/record_priv.h"

#include <errno.h>
#include <string.h>

#include "cmd/cmd.h"
#include "os/perf_event.h"
#include "os/rights.h"
#include "sample/python/place.h"

static const struct sampler_ops *const all_samplers[] = {
	&sampler_perf,
	&sampler_bpf,
	&sampler_ptrace,
};

static const struct sampler_ops *sampler_named(const char *name)
{
	for (size_t i = 0; i < sizeof(all_samplers) / sizeof(all_samplers[0]); i++)
		if (!strcmp(all_samplers[i]->name, name))
			return all_samplers[i];
	return NULL;
}

static int open_one(struct recording *r, const struct sampler_ops *ops,
	const struct sampler_options *options, struct err *err)
{
	int rc = ops->open(options, &r->samplers[r->sampler_count], err);

	if (!rc)
		r->sampler_count++;
	return rc;
}

/* Everything that runs cannot be traced: nothing else would. */
static bool can_trace(const struct recording *r)
{
	return r->pids.len || r->command;
}

/* Says why, and what is different: it stops threads, and nobody asked for that. */
static int fall_back(struct recording *r, const struct sampler_options *options, struct err *err)
{
	const char *why = strstr(err->text, ": ");
	struct err refused = *err;
	int rc;

	why = why ? why + 2 : refused.text;
	rc = open_one(r, &sampler_ptrace, options, err);
	if (rc) { /* what is refused first is what to change */
		*err = refused;
		return -refused.code;
	}
	if (!r->args->quiet)
		cmd_note(NAME, "perf events are refused (%.*s); sampling with ptrace instead, which "
			"stops running threads for some microseconds a sample and sees no kernel frames",
			(int)strcspn(why, "\n"), why);
	return 0;
}

/* BPF for time off the CPU; perf beside it for what BPF does not tell. */
static int open_bpf(struct recording *r, const struct sampler_options *options, struct err *err)
{
	struct sampler_options perf = *options;
	struct sampler *bpf;
	int rc = sampler_bpf.open(options, &bpf, err);

	if (rc)
		return rc;
	perf.off_cpu = false;
	rc = open_one(r, &sampler_perf, &perf, err);
	if (rc)
		sampler_free(bpf);
	else
		r->samplers[r->sampler_count++] = bpf;
	return rc;
}

/* The first line of a refusal, without what was tried. */
static void tell_without_bpf(const struct recording *r, const struct err *refused)
{
	const char *why = strstr(refused->text, ": ");

	why = why ? why + 2 : refused->text;
	if (!r->args->quiet)
		cmd_note(NAME, "who wakes a thread is not recorded, and recording costs more: no BPF (%.*s)",
			(int)strcspn(why, "\n"), why);
}

/* ---- Python ---- */

/* A debugger that is there already would be in the way. */
static bool is_python(pid_t pid)
{
	struct python_process *python;
	struct proc_status status;

	if (proc_status_read(pid, &status, NULL) || status.tracer ||
		python_process_open(&source_live, pid, &python, NULL))
		return false;
	python_process_close(python);
	return true;
}

/* Running processes that have Python frames, which perf cannot copy here: no BPF. */
static bool wants_stops(const struct recording *r)
{
	struct sampler_facts facts;

	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	if (!r->on_cpu || !facts.python || strcmp(facts.python, "live") != 0)
		return false;
	vec_each(&r->pids, pid)
		if (is_python(*pid))
			return true;
	return false;
}

/* Where it cannot be, what is open already goes on. */
static void stop_for_python(struct recording *r, const struct sampler_options *options)
{
	struct sampler *tracer;

	if (sampler_ptrace.open(options, &tracer, NULL))
		return;
	while (r->sampler_count)
		sampler_free(r->samplers[--r->sampler_count]);
	r->samplers[r->sampler_count++] = tracer;
	if (!r->args->quiet)
		cmd_note(NAME, "no BPF here: for the Python frames of a sample its thread is stopped, for some "
			"microseconds, by ptrace, which sees no kernel frames; --nonblocking does without");
}

/* perf events without the kernel's side know when threads leave CPUs, and not where. */
static void tell_without_kernel(const struct recording *r)
{
	struct sampler_facts facts;
	char note[600];

	r->samplers[0]->ops->facts(r->samplers[0], &facts);
	rights_off_cpu_note(note, sizeof(note));
	if (r->samplers[0]->ops == &sampler_perf && !facts.kernel && note[0] && !r->args->quiet)
		cmd_note(NAME, "%s", note);
}

int record_open_samplers(struct recording *r, struct err *err)
{
	const struct sampler_ops *asked = NULL;
	int rc;
	struct sampler_options o = {
		.frequency_hz = (uint32_t)r->args->frequency_hz,
		.stack_bytes = (uint32_t)r->args->stack_bytes & ~7u,
		.on_cpu = r->on_cpu,
		.off_cpu = r->off_cpu,
		.min_block_ns = r->args->min_block_ns,
		.nonblocking = r->args->nonblocking,
	};

	if (o.stack_bytes > PERF_MAX_STACK_BYTES)
		o.stack_bytes = PERF_MAX_STACK_BYTES;
	if (r->args->sampler) {
		asked = sampler_named(r->args->sampler);
		if (!asked)
			return err_set(err, EINVAL, "there is no sampler '%s'", r->args->sampler);
	}
	if (asked == &sampler_bpf || (!asked && r->off_cpu)) {
		rc = open_bpf(r, &o, err);
		if (!rc || asked)
			return rc;
		tell_without_bpf(r, err);
	}
	rc = open_one(r, asked ? asked : &sampler_perf, &o, err);
	if (!rc && r->off_cpu)
		tell_without_kernel(r);
	if ((rc == -EACCES || rc == -EPERM || rc == -ENOSYS) && !asked && can_trace(r))
		return fall_back(r, &o, err);
	if (!rc && !asked && !o.nonblocking && wants_stops(r))
		stop_for_python(r, &o);
	return rc;
}
