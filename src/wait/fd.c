/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/fd.h"

#include <linux/major.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void other(struct wait_fd *f, struct wait *ret)
{
	ret->kind = "descriptor";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "%s %.100s", f->out ? "to write to" : "to read from", f->link);
}

static bool is_terminal(const struct open_identity *i)
{
	unsigned major = major(i->rdevice);

	return i->mode == S_IFCHR &&
		(major == TTY_MAJOR || major == TTYAUX_MAJOR ||
			(major >= UNIX98_PTY_MASTER_MAJOR &&
				major < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT));
}

static void with_path(struct wait_fd *f, struct wait *ret)
{
	if (f->identity.mode == S_IFIFO)
		wait_fd_pipe(f, ret);
	else if (is_terminal(&f->identity))
		wait_fd_tty(f, ret);
	else
		wait_fd_file(f, ret);
}

static const struct {
	enum open_what what;
	void (*look)(struct wait_fd *f, struct wait *ret);
} sorts[] = {
	{OPEN_PIPE, wait_fd_pipe},
	{OPEN_SOCKET, wait_fd_socket},
	{OPEN_EVENTFD, wait_fd_eventfd},
	{OPEN_EPOLL, wait_fd_epoll},
	{OPEN_PIDFD, wait_fd_pidfd},
	{OPEN_TIMERFD, wait_fd_timer},
	{OPEN_SIGNALFD, wait_fd_events},
	{OPEN_INOTIFY, wait_fd_events},
	{OPEN_URING, wait_fd_uring},
	{OPEN_USERFAULTFD, wait_fd_uffd},
	{OPEN_PATH, with_path},
	{OPEN_ANON, other},
};

bool wait_on_fd(struct wait_look *l, int fd, bool out, struct wait *ret)
{
	struct wait_fd f = {.l = l, .fd = fd, .out = out};
	pid_t reader = l->process->reader;

	if (open_file_read(reader, fd, &f.file, f.link, sizeof(f.link)))
		return false;
	if (f.file.what == OPEN_PATH)
		open_file_identity(reader, fd, &f.identity);
	for (size_t i = 0; i < sizeof(sorts) / sizeof(sorts[0]); i++)
		if (sorts[i].what == f.file.what) {
			sorts[i].look(&f, ret);
			return true;
		}
	return false;
}

/* ---- many of them ---- */

/* More are not looked at one by one: who watches that many is an event loop. */
#define MOST_WATCHED 64u

struct many {
	struct wait first;  /* the first that somebody else is to act on */
	size_t peers;       /* of such */
	bool same;          /* all of them lead to one process */
	size_t events;      /* descriptors by which anybody may come: then nobody is waited for */
	size_t own;         /* by which only the process itself wakes itself */
};

static bool is_same_peer(const struct wait *a, const struct wait *b)
{
	return a->blocker_count == 1 && b->blocker_count == 1 &&
		a->blockers[0].pid == b->blockers[0].pid;
}

static void take(struct many *m, const struct wait *w)
{
	bool has_peer = w->nature != WAIT_EVENT && w->nature != WAIT_TIME &&
		(w->blocker_count || w->trouble == WAIT_REMOTE);

	if (w->trouble == WAIT_OWN_PIPE || w->own) {
		m->own++;
	} else if (!has_peer) {
		m->events++;
	} else if (!m->peers++) {
		m->first = *w;
		m->same = true;
	} else {
		m->same = m->same && is_same_peer(&m->first, w);
	}
}

static void look_at(struct wait_look *l, const struct wait_watched *w, struct many *m)
{
	struct wait one = {.timeout_ns = LOOK_UNKNOWN};
	struct open_file f;
	char link[OPEN_MOST_NAME];

	if (!w->in && !w->out)
		return;
	if (w->inode && !open_file_read(l->process->reader, w->fd, &f, link, sizeof(link)) &&
		(f.what == OPEN_PIPE || f.what == OPEN_SOCKET) && f.key != w->inode) {
		m->events++; /* the number stands for something else by now */
		return;
	}
	if (wait_on_fd(l, w->fd, !w->in, &one))
		take(m, &one);
	else
		m->events++;
}

void wait_on_many(struct wait_look *l, const struct wait_watched *watched, size_t count,
	const char *verb, struct wait *ret)
{
	uint64_t timeout_ns = ret->timeout_ns;
	struct many m = {0};

	for (size_t i = 0; i < count && count <= MOST_WATCHED; i++)
		look_at(l, &watched[i], &m);
	if (m.peers && m.same && !m.events) {
		const char *kind = ret->kind;

		*ret = m.first;
		ret->kind = kind;
		ret->timeout_ns = timeout_ns;
		if (ret->grade < WAIT_INFERRED && (m.peers > 1 || m.own))
			ret->grade = WAIT_INFERRED;
		for (size_t i = 0; i < ret->blocker_count; i++)
			if (ret->blockers[i].grade < ret->grade)
				ret->blockers[i].grade = ret->grade;
		WAIT_APPEND(ret->detail, "in %s", verb);
		return;
	}
	ret->nature = WAIT_EVENT;
	ret->grade = WAIT_PROVEN;
	WAIT_SAY(ret->what, "in %s for one of %zu descriptors", verb, count);
	if (count == 1)
		WAIT_SAY(ret->what, "in %s for a descriptor", verb);
}
