/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/heap/record_priv.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "os/proc.h"

#define PRELOAD "LD_PRELOAD"
/* A program that is built with AddressSanitizer does not start when another library comes before its runtime, unless it is
 * told not to look. It works all the same: its allocator is then the next one after ours. */
#define ASAN "ASAN_OPTIONS"
#define ASAN_WORD "verify_asan_link_order=0"

/* What cannot be seen is said before anything is started. */
int heap_check_command(struct heap_recording *r, struct err *err)
{
	char path[PATH_MAX];
	int rc = child_find(r->command[0], path, sizeof(path), err);

	return rc ? rc : heap_choose_way_of_command(r, path, err);
}

static void nothing(int signal)
{
}

/* As for sonde record: a signal that our caller had ignored stays ignored. */
int heap_block_signals(struct heap_recording *r, struct err *err)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction old;
	sigset_t mask;

	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
		if (!sigaction(ending[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaddset(&mask, ending[i]);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	r->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return r->signal_fd < 0 ? err_errno(err, errno, "signalfd") : 0;
}

static void write_meta(const struct heap_recording *r)
{
	struct utsname uts = {0};
	struct buf text = {0};
	char line[4096];

	uname(&uts);
	if (r->pid && !proc_command_line(r->pid, line, sizeof(line), NULL))
		buf_printf(&text, "%s", line);
	for (char **arg = r->command; arg && *arg; arg++)
		buf_printf(&text, "%s%s", arg == r->command ? "" : " ", *arg);
	capture_meta(r->writer, "command", text.data ? text.data : "");
	buf_release(&text);
	capture_meta(r->writer, "sonde", SONDE_VERSION);
	capture_meta(r->writer, "host", uts.nodename);
	capture_meta(r->writer, "kernel", uts.release);
	capture_meta(r->writer, "arch", uts.machine);
	if (!r->args->time) {
		capture_meta(r->writer, "mode", "heap");
		return;
	}
	capture_meta(r->writer, "mode", "cpu");
	capture_meta(r->writer, "event", "allocations");
	capture_meta(r->writer, "kernel_frames", "no");
	capture_meta(r->writer, "note", "each sample is the CPU time that a thread has used between two of its calls of the allocator "
		"that were taken; what it used after the last one is in none");
}

static void choose(const struct heap_recording *r, struct heap_collect_options *ret)
{
	const struct heap_record_args *args = r->args;

	*ret = (struct heap_collect_options){
		.precision = args->exact ? HEAP_EXACT : args->every_calls ? HEAP_CALLS : HEAP_SAMPLED,
		.rate = args->exact ? 0 : args->every_calls ? args->every_calls : args->sample_bytes,
		.wish = args->wish,
		.probes_alone = r->probes_alone,
		.share_options = (args->free_stacks ? SHARE_OPTION_FREE_STACKS : 0) | (args->time ? SHARE_OPTION_TIMES : 0) |
			(args->maps ? SHARE_OPTION_MAPS : 0),
	};
}

int heap_open(struct heap_recording *r, struct err *err)
{
	/* A file that may not grow is an error of write(); a handler, which exec resets. */
	struct sigaction action = {.sa_handler = nothing};
	struct heap_collect_options options;
	int rc;

	sigaction(SIGXFSZ, &action, NULL);
	rc = r->pid ? 0 : heap_library_new(&r->library, err);
	choose(r, &options);
	if (!rc)
		rc = capture_writer_create(r->args->output, &r->writer, err);
	if (!rc)
		rc = session_new(r->writer, &r->selection, &r->session, err);
	if (!rc)
		rc = heap_collector_new(r->session, r->writer, &options, &r->collector, err);
	if (rc)
		return rc;
	session_maps_untold(r->session);
	write_meta(r);
	return 0;
}

/* ---- the environment of the command ---- */

/* What we change, as it was. NULL: not set. */
struct environment {
	char *preload, *asan;
};

static int save(const char *name, char **ret)
{
	const char *now = getenv(name);

	*ret = now ? strdup(now) : NULL;
	return now && !*ret ? -ENOMEM : 0;
}

/* `first`, and then what was there. */
static int put_before(const char *name, const char *first, const char *then)
{
	struct buf list = {0};
	int rc;

	buf_printf(&list, "%s%s%s", first, then && *then ? ":" : "", then ? then : "");
	rc = list.failed || setenv(name, list.data, 1) ? -ENOMEM : 0;
	buf_release(&list);
	return rc;
}

static int set_environment(struct heap_recording *r, const struct environment *e, struct err *err)
{
	char value[HELLO_VALUE_BYTES];

	heap_collector_environment(r->collector, value, sizeof(value));
	if (put_before(PRELOAD, heap_library_path(r->library), e->preload) || put_before(ASAN, ASAN_WORD, e->asan) ||
		setenv(SHARE_ENVIRONMENT, value, 1))
		return err_nomem(err);
	return 0;
}

static void put_back(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* We ourselves go on without. */
static int start_child(struct heap_recording *r, struct err *err)
{
	struct environment e = {0};
	int rc = save(PRELOAD, &e.preload) || save(ASAN, &e.asan) ? err_nomem(err) : set_environment(r, &e, err);

	if (!rc)
		rc = child_start(r->command, &r->inherits, &r->child, err);
	put_back(PRELOAD, e.preload);
	put_back(ASAN, e.asan);
	put_back(SHARE_ENVIRONMENT, NULL);
	free(e.preload);
	free(e.asan);
	return rc;
}

int heap_start(struct heap_recording *r, struct err *err)
{
	int rc;

	r->start_cpu_ns = clock_own_cpu_ns();
	r->start_ns = clock_monotonic_ns();
	if (r->args->duration_ns)
		r->end_ns = r->start_ns + r->args->duration_ns;
	rc = start_child(r, err);
	if (rc)
		return rc;
	if (r->args->no_children)
		heap_collector_only(r->collector, r->child.pid);
	r->pid_fd = (int)syscall(SYS_pidfd_open, r->child.pid, 0);
	if (r->pid_fd < 0)
		rc = err_errno(err, errno, "process %d", (int)r->child.pid);
	else if (r->probes_wanted)
		rc = heap_place_probes(r, r->child.pid, true, err);
	if (rc)
		child_abandon(&r->child);
	else
		rc = child_go(&r->child, r->command[0], err);
	if (rc)
		r->child.pid = 0;
	return rc;
}
