/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/cmd.h"
#include "cmd/heap/record_priv.h"
#include "os/proc.h"

/* The collector makes its tables while the program still runs as before. */
static int share(struct heap_recording *r, struct err *err)
{
	char wish[HELLO_VALUE_BYTES];
	struct proc_status status;
	int fd = -1, rc = proc_status_read(r->pid, &status, err);

	heap_collector_environment(r->collector, wish, sizeof(wish));
	if (!rc)
		rc = heap_attach_share(r->pid, wish, &fd, &r->attach, err);
	if (!rc)
		rc = heap_collector_add(r->collector, fd, r->pid, status.ns_pid, HEAP_ATTACHED, err);
	return rc;
}

int heap_attach(struct heap_recording *r, struct err *err)
{
	int rc;

	r->start_cpu_ns = clock_own_cpu_ns();
	r->start_ns = clock_monotonic_ns();
	if (r->args->no_children)
		heap_collector_only(r->collector, r->pid);
	r->pid_fd = (int)syscall(SYS_pidfd_open, r->pid, 0);
	if (r->pid_fd < 0)
		return err_errno(err, errno, "process %d", (int)r->pid);
	rc = r->probes_wanted ? heap_place_probes(r, r->pid, false, err) : 0;
	if (!rc && !r->probes_alone)
		rc = share(r, err);
	if (!rc && !r->probes_alone) {
		heap_collector_step(r->collector, clock_monotonic_ns());
		rc = heap_attach_begin(r->pid, &r->attach, err);
		r->attached = !rc;
		/* Its memory is made already: that is taken back as well. */
		if (rc && rc != -ESRCH)
			heap_attach_end(r->pid, &r->attach, NULL);
	}
	if (r->args->duration_ns)
		r->end_ns = clock_monotonic_ns() + r->args->duration_ns;
	return rc;
}

void heap_detach(struct heap_recording *r)
{
	struct err err = {0};

	if (!r->attached || r->reason == END_TARGET_EXITED)
		return;
	r->attached = false;
	if (heap_attach_end(r->pid, &r->attach, &err) && err.code != ESRCH)
		cmd_note(NAME, "%s: process %d still calls our library, which does nothing any more; sonde heap -p %d again "
			"takes it back", err.text, (int)r->pid, (int)r->pid);
}
