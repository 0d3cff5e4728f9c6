/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/until.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

int until_new(pid_t pid, struct until *ret, struct err *err)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction old;
	sigset_t mask;

	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
		if (!sigaction(ending[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaddset(&mask, ending[i]);
	ret->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (ret->pid_fd < 0 && errno == ESRCH)
		return err_set(err, ESRCH, "there is no process %d", (int)pid);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	ret->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ret->signal_fd >= 0)
		return 0;
	err_errno(err, errno, "signalfd");
	until_release(ret);
	return -EMFILE;
}

void until_release(struct until *u)
{
	if (u->signal_fd >= 0)
		close(u->signal_fd);
	if (u->pid_fd >= 0)
		close(u->pid_fd);
	u->signal_fd = u->pid_fd = -1;
}

enum until_end until_ns(const struct until *u, uint64_t time_ns)
{
	struct pollfd fds[] = {
		{.fd = u->signal_fd, .events = POLLIN},
		{.fd = u->pid_fd, .events = POLLIN},
	};
	uint64_t now_ns;

	do {
		now_ns = clock_monotonic_ns();

		uint64_t left_ns = time_ns > now_ns ? time_ns - now_ns : 0;
		struct timespec left = {(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};

		if (ppoll(fds, 2, &left, NULL) > 0)
			return fds[0].revents ? UNTIL_SIGNAL : UNTIL_ENDED;
	} while (clock_monotonic_ns() < time_ns);
	return UNTIL_TIME;
}
