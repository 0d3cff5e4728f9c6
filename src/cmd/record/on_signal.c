/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sonde record --on-signal: each time the target gets a signal, one sample of all its threads, appended
 * to a file of folded stacks at once, with names. There is no recording.
 */
#include "cmd/record/record_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/output.h"
#include "format/folded.h"

/* ---- the signal ---- */

/* "USR2", "SIGUSR2", "RTMIN+3" or a number; 0: none of them. */
static int signal_named(const char *text)
{
	uint64_t number;
	const char *name = strncasecmp(text, "SIG", 3) ? text : text + 3;

	if (!option_number(text, &number, NULL))
		return number < NSIG ? (int)number : 0;
	if (!strncasecmp(name, "RTMIN+", 6) && !option_number(name + 6, &number, NULL))
		return number <= (uint64_t)(SIGRTMAX - SIGRTMIN) ? SIGRTMIN + (int)number : 0;
	for (int i = 1; i < NSIG; i++) {
		const char *known = sigabbrev_np(i);

		if (known && !strcasecmp(known, name))
			return i;
	}
	return 0;
}

int on_signal_parse(const char *text, int *ret, struct err *err)
{
	int number = signal_named(text);

	switch (number) {
	case 0:
		return err_set(err, EINVAL, "'%s' is not a signal: give a name (USR2) or a number",
			text);
	case SIGKILL:
	case SIGSTOP:
		return err_set(err, EINVAL, "SIG%s cannot be caught by anybody", sigabbrev_np(number));
	case SIGSEGV:
	case SIGBUS:
	case SIGFPE:
	case SIGILL:
	case SIGTRAP:
	case SIGCHLD:
		return err_set(err, EINVAL,
			"SIG%s is something the program has to know of: it cannot be swallowed; take "
			"SIGUSR2",
			sigabbrev_np(number));
	default:
		*ret = number;
		return 0;
	}
}

/* ---- lines ---- */

/* Appends "outer;inner" for the levels of one frame. */
static void add_frame(struct buf *line, struct live_names *names, uint32_t frame)
{
	struct live_name name = live_name_of(names, frame);
	char text[512];

	for (size_t i = name.answer.count; i-- > 0;) {
		buf_char(line, ';');
		folded_add_name(line, name.answer.levels[i].name);
	}
	if (name.answer.count)
		return;
	if (name.generated)
		snprintf(text, sizeof(text), "%.480s", name.module);
	else
		snprintf(text, sizeof(text), "%.480s+0x%" PRIx64,
			name.module ? name.module : "[unmapped]", name.start);
	buf_char(line, ';');
	folded_add_name(line, text);
}

/* The name of the thread, then its frames, outermost first. */
static void take_thread(void *ctx, pid_t pid, pid_t tid, const struct stored_stack *stack)
{
	struct recording *r = ctx;
	const char *name = session_thread_name(r->session, tid);
	struct folded_thread th = {.tid = tid};
	const uint32_t *frames;
	size_t count = stack ? session_last_frames(r->session, &frames) : 0;

	folded_add_name(&th.line, name && *name ? name : "?");
	if (!stack)
		buf_str(&th.line, ";[not stopped in time]");
	else if (stack->end != UNWIND_ROOT)
		buf_str(&th.line, ";[truncated]");
	while (count-- > 0)
		add_frame(&th.line, r->on_signal.names, frames[count]);
	buf_str(&th.line, " 1\n");
	if (th.line.failed || vec_push(&r->on_signal.threads, th)) {
		buf_release(&th.line);
		err_nomem(&r->on_signal.failed);
	}
}

static int compare_threads(const void *a, const void *b)
{
	const struct folded_thread *x = a, *y = b;

	return (x->tid > y->tid) - (x->tid < y->tid);
}

static void forget_threads(struct recording *r)
{
	vec_each(&r->on_signal.threads, th)
		buf_release(&th->line);
	r->on_signal.threads.len = 0;
}

/* All lines of a sample with one call, so that who reads the file finds whole lines. */
static void take_whole(void *ctx, pid_t pid)
{
	struct recording *r = ctx;
	struct on_signal *o = &r->on_signal;
	struct buf text = {0};

	if (o->threads.len)
		qsort(o->threads.data, o->threads.len, sizeof(*o->threads.data), compare_threads);
	vec_each(&o->threads, th)
		buf_add(&text, th->line.data, th->line.len);
	o->samples += o->threads.len > 0;
	o->stacks += o->threads.len;
	forget_threads(r);
	if (text.failed)
		err_nomem(&o->failed);
	else if (text.len && !o->failed.code)
		output_write(o->fd, r->args->output, text.data, text.len, &o->failed);
	buf_release(&text);
}

/* ---- from beginning to end ---- */

/* Without O_APPEND a second writer, or the user's own `>file`, would leave holes. */
static int open_output(struct recording *r, struct err *err)
{
	struct on_signal *o = &r->on_signal;
	int flags;

	o->fd = output_open(r->args->output, err);
	if (o->fd < 0)
		return o->fd;
	flags = fcntl(o->fd, F_GETFL);
	if (flags >= 0)
		fcntl(o->fd, F_SETFL, flags | O_APPEND);
	return 0;
}

static int open_session(struct recording *r, struct err *err)
{
	struct naming_options naming = {.debuginfod = r->args->debuginfod};
	int rc = session_new_unrecorded(&r->selection, &source_live, &r->writer, &r->session, err);

	if (rc)
		return rc;
	r->on_signal.names = live_names_new(r->session, &naming);
	return r->on_signal.names ? 0 : err_nomem(err);
}

int on_signal_open(struct recording *r, struct err *err)
{
	struct sampler_options options = {
		.stack_bytes = (uint32_t)r->args->stack_bytes & ~7u,
	};
	struct on_signal_sink sink = {.ctx = r, .thread = take_thread, .whole = take_whole};
	int rc = open_output(r, err);

	if (!rc)
		rc = sampler_ptrace.open(&options, &r->samplers[0], err);
	if (rc)
		return rc;
	r->sampler_count = 1;
	rc = open_session(r, err);
	if (rc)
		return rc;
	r->samplers[0]->ops->bind(r->samplers[0], r->session);
	on_signal_set(r->samplers[0], r->on_signal.number, &sink);
	return 0;
}

int on_signal_finish(struct recording *r, struct err *err)
{
	struct on_signal *o = &r->on_signal;

	r->samplers[0]->ops->stop(r->samplers[0]);
	r->samplers[0]->ops->drain(r->samplers[0], true);
	session_flush(r->session, r->start_ns);
	session_stats(r->session, &r->stats);
	record_note_pauses(r);
	if (close(take_fd(o->fd)) && !o->failed.code)
		err_errno(&o->failed, errno, "%s", r->args->output);
	if (!o->failed.code)
		return 0;
	*err = o->failed;
	return -err->code;
}

void on_signal_tell(const struct recording *r)
{
	const struct on_signal *o = &r->on_signal;

	if (r->args->quiet)
		return;
	fprintf(stderr, "%s: %" PRIu64 " sample%s, %" PRIu64 " stacks\n", r->args->output, o->samples,
		o->samples == 1 ? "" : "s", o->stacks);
	if (r->pauses[0])
		fprintf(stderr, "  %s\n", r->pauses);
	if (!o->samples)
		fprintf(stderr, "  the signal %s (SIG%s) did not come\n", r->args->on_signal,
			sigabbrev_np(o->number) ? sigabbrev_np(o->number) : "RT");
	record_tell_losses(r);
}

void on_signal_release(struct recording *r)
{
	forget_threads(r);
	vec_release(&r->on_signal.threads);
	live_names_free(r->on_signal.names);
	if (r->on_signal.fd >= 0)
		close(r->on_signal.fd);
}
