/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/record/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "capture/output.h"
#include "cmd/cmd.h"
#include "cmd/record/record_priv.h"
#include "cmd/record/watch.h"
#include "sample/blocked.h"

#define COST_POINTS_A_WINDOW 32
#define MOST_FILES 100000u
#define COOL_DOWN_MIN_NS (10 * NS_PER_S)

/* What recording had cost at a moment. */
struct cost_point {
	uint64_t time_ns;
	struct record_cost cost;
};

struct flight {
	const struct record_args *args;
	struct watch *watch; /* NULL without --when */
	unsigned next_file;  /* the lowest number that may be free */
	uint64_t windows;    /* written, or begun to be */
	unsigned failed;     /* that could not be */
	bool asked;
	char why[512];
	pid_t writer; /* a child that writes a window; 0: none */
	int writer_fd;
	VEC(struct cost_point) costs; /* of the last window, by time */
};

/* ---- life ---- */

/* Of the directory of the file that does not exist yet; what is missing is better told now. */
static int check_directory(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	autofree char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");

	if (!directory)
		return err_nomem(err);
	if (access(directory, W_OK | X_OK))
		return err_errno(err, errno, "%s: cannot create files there", directory);
	return 0;
}

static int check_output(const char *path, struct err *err)
{
	struct stat st;

	if (!lstat(path, &st) && !S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "%s: with --last, -o names files that are made", path);
	return check_directory(path, err);
}

int flight_new(const struct record_args *args, struct flight **ret, struct err *err)
{
	struct flight *f = calloc(1, sizeof(*f));
	uint64_t cool_down_ns = args->last_ns > COOL_DOWN_MIN_NS ? args->last_ns : COOL_DOWN_MIN_NS;
	int rc = f ? check_output(args->output, err) : err_nomem(err);

	if (f) {
		f->args = args;
		f->next_file = 1;
		f->writer_fd = -1;
	}
	if (!rc && args->when.len)
		rc = watch_new(&args->when, cool_down_ns, &f->watch, err);
	if (rc)
		flight_free(f);
	else
		*ret = f;
	return rc;
}

void flight_free(struct flight *f)
{
	if (!f)
		return;
	watch_free(f->watch);
	vec_release(&f->costs);
	if (f->writer_fd >= 0)
		close(f->writer_fd);
	free(f);
}

int flight_open_window(struct recording *r, struct err *err)
{
	struct capture_window_options options = {
		.length_ns = r->args->last_ns,
		.limit_bytes = r->args->memory_bytes,
	};

	return capture_window_new(&options, clock_monotonic_ns(), &r->writer, err);
}

int flight_start(struct recording *r, struct err *err)
{
	struct watch *watch = r->flight->watch;
	int rc = 0;

	vec_each(&r->pids, pid)
		if (watch && !rc)
			rc = watch_add(watch, *pid, err);
	if (watch && !rc && r->child.pid)
		rc = watch_add(watch, r->child.pid, err);
	if (!rc && !r->args->quiet)
		fprintf(stderr,
			"keeping the last %g s; kill -USR2 %d writes them, Ctrl-C writes them and "
			"ends\n",
			(double)r->args->last_ns / 1e9, (int)getpid());
	return rc;
}

/* ---- files ---- */

/* FILE, FILE.2, FILE.3...; NULL when out of memory. */
static char *numbered(const char *path, unsigned number)
{
	static const char suffix[] = ".sonde";
	size_t len = strlen(path), stem = len;
	char *text;

	if (number == 1)
		return strdup(path);
	if (len > sizeof(suffix) - 1 && !strcmp(path + len - (sizeof(suffix) - 1), suffix))
		stem -= sizeof(suffix) - 1;
	if (asprintf(&text, "%.*s.%u%s", (int)stem, path, number, path + stem) < 0)
		return NULL;
	return text;
}

/* A descriptor of a new file, whose name is *ret_path (malloc'ed); or -errno. */
static int next_file(struct flight *f, char **ret_path, struct err *err)
{
	for (; f->next_file <= MOST_FILES; f->next_file++) {
		autofree char *path = numbered(f->args->output, f->next_file);
		int fd = path ? output_create(path, err) : err_nomem(err);

		if (fd == -EEXIST)
			continue;
		if (fd >= 0) {
			*ret_path = take_ptr(path);
			f->next_file++;
		}
		return fd;
	}
	return err_set(err, EEXIST, "%s: that and all names up to number %u exist",
		f->args->output, MOST_FILES);
}

/* ---- costs ---- */

static void note_cost(struct recording *r, uint64_t now_ns)
{
	struct flight *f = r->flight;
	uint64_t step_ns = r->args->last_ns / COST_POINTS_A_WINDOW;
	struct cost_point p = {.time_ns = now_ns};
	size_t old = 0;

	if (f->costs.len && now_ns - f->costs.data[f->costs.len - 1].time_ns < step_ns)
		return;
	record_cost_now(r, &p.cost);
	(void)vec_push(&f->costs, p);
	while (old + 1 < f->costs.len &&
		f->costs.data[old + 1].time_ns + r->args->last_ns <= now_ns)
		old++;
	f->costs.len -= old;
	memmove(f->costs.data, f->costs.data + old, f->costs.len * sizeof(p));
}

static uint64_t part(uint64_t now, uint64_t before, double share)
{
	return (uint64_t)((double)(now - before) * share);
}

/* Of the window alone: what it was since the last point before it, in proportion. */
static struct record_cost cost_since(struct recording *r, uint64_t from_ns, uint64_t now_ns)
{
	const struct cost_point *p = r->flight->costs.data;
	struct record_cost c;
	double share;

	record_cost_now(r, &c);
	if (!p || p->time_ns >= now_ns)
		return c;
	share = (double)(now_ns - from_ns) / (double)(now_ns - p->time_ns);
	share = share < 1 ? share : 1;
	c.sampler_cpu_ns = part(c.sampler_cpu_ns, p->cost.sampler_cpu_ns, share);
	c.wakeups = part(c.wakeups, p->cost.wakeups, share);
	c.ring_bytes = part(c.ring_bytes, p->cost.ring_bytes, share);
	return c;
}

/* ---- writing a window ---- */

struct dump {
	char *path;
	int fd;
	const char *why;
	bool clear_line; /* of the terminal, where the parent shows how far it is */
	bool last;       /* recording is over, and memory can be given back on the way */
	uint64_t now_ns; /* the end of the window */
	struct record_cost cost;
};

struct idle_ctx {
	struct session *session;
	struct blocked_thread *thread;
	uint64_t now_ns;
};

/* A thread that has not run since: where it is now, if it is blocked. */
static void tell_idle(void *ctx, pid_t pid, pid_t tid, uint64_t since_ns)
{
	struct idle_ctx *c = ctx;
	struct off_cpu_interval i = {
		.start_ns = since_ns,
		.pid = pid,
		.tid = tid,
		.still_open = true,
		.stack = {.leaf = CAPTURE_NONE},
		.waker_stack = CAPTURE_NONE,
	};

	if (since_ns >= c->now_ns || blocked_read(pid, tid, c->thread, NULL))
		return;
	i.duration_ns = i.blocked_ns = c->now_ns - since_ns;
	i.state = c->thread->reason.state;
	i.syscall = c->thread->reason.syscall;
	if (c->thread->stack.has_regs)
		session_stack(c->session, pid, tid, c->now_ns, &c->thread->stack, &i.stack);
	if (blocked_still(pid, tid, c->thread))
		session_off_cpu(c->session, &i);
}

/* What is not over: known to the sampler, or found out now. */
static void tell_open(struct recording *r, const struct dump *d)
{
	struct idle_ctx ctx = {.session = r->session, .now_ns = d->now_ns};

	if (r->off_cpu) {
		if (!d->last) /* else the sampler has told */
			session_tell_open(r->session, d->now_ns);
		return;
	}
	if (!r->flight->watch)
		return;
	ctx.thread = malloc(sizeof(*ctx.thread));
	if (ctx.thread)
		watch_each_idle(r->flight->watch, r->session, d->now_ns, tell_idle, &ctx);
	free(ctx.thread);
}

static void write_facts(struct recording *r, const struct dump *d,
	const struct capture_window_stats *stats)
{
	char text[700], when[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	snprintf(text, sizeof(text), "%s, %s", d->why, when);
	capture_meta(r->writer, "trigger", text);
	if (!stats->limited)
		return;
	snprintf(text, sizeof(text), "%.1f of the last %g s: more did not fit into %llu MB (--memory)",
		(double)(d->now_ns - stats->since_ns) / 1e9, (double)r->args->last_ns / 1e9,
		(unsigned long long)(r->args->memory_bytes >> 20));
	capture_meta(r->writer, "limited", text);
}

static void take_counts(struct recording *r, const struct capture_window_counts *counts)
{
	r->stats = (struct session_stats){.samples = counts->samples, .off_cpu = counts->off_cpu,
		.off_cpu_ns = counts->off_cpu_ns, .off_cpu_rooted = counts->off_cpu_rooted};
	for (size_t i = 0; i < UNWIND_END_COUNT; i++)
		r->stats.ends[i] = counts->samples_ended[i];
	memcpy(r->stats.losses, counts->losses, sizeof(r->stats.losses));
}

/*
 * Afterwards the recording is of this window: its writer, times, counts and file name are those of
 * the file. So this is done once, at the end, or in a child.
 */
static int write_window(struct recording *r, struct dump *d, struct err *err)
{
	struct capture_writer *window = r->writer;
	struct capture_window_map map = {0};
	struct capture_window_counts counts;
	struct capture_window_stats stats;
	int rc;

	tell_open(r, d);
	record_write_sampler_facts(r);
	session_flush(r->session, d->now_ns);
	capture_window_stats(window, d->now_ns, &stats);
	d->cost = cost_since(r, stats.since_ns, d->now_ns);
	r->writer = NULL;
	rc = capture_writer_to_fd_since(d->fd, d->path, stats.since_ns,
		clock_read_ns(CLOCK_REALTIME) - (clock_monotonic_ns() - stats.since_ns), &r->writer,
		err);
	if (!rc)
		rc = capture_window_write(
			window, stats.since_ns, d->last, r->writer, &map, &counts, err);
	if (!rc) {
		write_facts(r, d, &stats);
		session_move(r->session, r->writer, &map);
		take_counts(r, &counts);
		r->start_ns = stats.since_ns;
		r->end_ns = d->now_ns;
		rc = record_write_rest(r, &d->cost, err);
	}
	capture_window_map_release(&map);
	capture_writer_abandon(window);
	return rc;
}

static int write_and_tell(struct recording *r, struct dump *d, struct err *err)
{
	struct record_args args = *r->args;
	int rc;

	args.output = d->path;
	r->args = &args;
	rc = write_window(r, d, err);
	if (!rc && !args.quiet)
		fprintf(stderr, "%swritten because: %s\n", d->clear_line ? "\r\033[K" : "",
			d->why);
	if (!rc)
		record_tell(r);
	r->args = r->flight->args;
	return rc;
}

/* ---- while recording ---- */

/* The child has all there is, as it is now. It leaves the samplers alone: they are its parent's. */
static int write_in_child(struct recording *r, struct dump *d)
{
	struct err err = {0};

	r->reason = END_TRIGGER;
	d->clear_line = r->term.interactive && !r->args->quiet;
	r->term.interactive = false; /* it has enough to show */
	return write_and_tell(r, d, &err) ? cmd_failed(NAME, &err) : STATUS_OK;
}

static void begin_writing(struct recording *r, uint64_t now_ns)
{
	struct flight *f = r->flight;
	struct dump d = {.why = f->why, .now_ns = now_ns};
	struct err err = {0};

	f->asked = false;
	d.fd = next_file(f, &d.path, &err);
	if (d.fd < 0) {
		cmd_note(NAME, "%s: %s", f->why, err.text);
		return;
	}
	f->writer = fork();
	if (!f->writer)
		_exit(write_in_child(r, &d));
	close(d.fd);
	if (f->writer < 0) {
		cmd_note(NAME, "%s: not written: %s", f->why, strerrordesc_np(errno));
		unlink(d.path);
		f->writer = 0;
	} else {
		f->writer_fd = (int)syscall(SYS_pidfd_open, f->writer, 0);
		f->windows++;
	}
	free(d.path);
}

/* A child that died has said nothing. */
static void reap(struct flight *f, int flags)
{
	int status;

	if (!f->writer || waitpid(f->writer, &status, flags) <= 0)
		return;
	f->failed += status != 0;
	if (WIFSIGNALED(status))
		cmd_note(NAME, "the process that wrote a window was killed: %s",
			sigdescr_np(WTERMSIG(status)));
	f->writer = 0;
	if (f->writer_fd >= 0)
		close(take_fd(f->writer_fd));
}

uint64_t flight_next_ns(const struct flight *f)
{
	return f->watch ? watch_next_ns(f->watch) : UINT64_MAX;
}

int flight_fd(const struct flight *f)
{
	return f->writer_fd;
}

void flight_ask(struct flight *f)
{
	f->asked = true;
	snprintf(f->why, sizeof(f->why), "SIGUSR2");
}

bool flight_step(struct recording *r, uint64_t now_ns)
{
	struct flight *f = r->flight;
	char why[sizeof(f->why)];

	reap(f, WNOHANG);
	note_cost(r, now_ns);
	if (f->watch && watch_look(f->watch, r->session, now_ns, why, sizeof(why))) {
		snprintf(f->why, sizeof(f->why), "%s", why);
		f->asked = true;
	}
	if (f->asked && !f->writer)
		begin_writing(r, now_ns);
	return r->args->windows && f->windows >= r->args->windows;
}

/* ---- the end ---- */

static const char *why_it_ends(const struct recording *r)
{
	switch (r->reason) {
	case END_TARGET_EXITED:
		return "the target has ended";
	case END_DURATION:
		return "the time is over";
	case END_INTERRUPTED:
		return "interrupted";
	default:
		return "recording failed";
	}
}

int flight_finish(struct recording *r, uint64_t stop_ns, struct err *err)
{
	struct flight *f = r->flight;
	struct dump d = {.why = why_it_ends(r), .last = true, .now_ns = stop_ns};
	int rc;

	reap(f, 0);
	if (r->args->windows && f->windows >= r->args->windows)
		return f->failed ? err_set(err, EIO, "%u of %llu windows could not be written",
					   f->failed, (unsigned long long)f->windows)
				 : 0;
	d.fd = next_file(f, &d.path, err);
	if (d.fd < 0)
		return d.fd;
	rc = write_and_tell(r, &d, err);
	free(d.path);
	return rc;
}
