/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The child's side: wait for the gate, then become the command. */
__attribute__((noreturn)) static void run(
	char *const *argv, const sigset_t *mask, int gate_fd, int error_fd)
{
	char byte;
	ssize_t n;

	do
		n = read(gate_fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0);
	signal(SIGPIPE, SIG_DFL); /* ignored signals stay ignored over exec */
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(argv[0], argv);

	int code = errno;
	n = write(error_fd, &code, sizeof(code));
	_exit(n == sizeof(code) ? 127 : 126);
}

int child_start(char *const *argv, const sigset_t *mask, struct child *ret, struct err *err)
{
	int gate[2] = {-1, -1}, error[2] = {-1, -1};

	if (pipe2(gate, O_CLOEXEC))
		return err_errno(err, errno, "pipe");
	if (pipe2(error, O_CLOEXEC)) {
		int code = errno;
		close(gate[0]);
		close(gate[1]);
		return err_errno(err, code, "pipe");
	}

	pid_t pid = fork();

	if (!pid) {
		close(gate[1]); /* so that our death closes the gate for good */
		run(argv, mask, gate[0], error[1]);
	}
	int code = errno;
	close(gate[0]);
	close(error[1]);
	if (pid < 0) {
		close(gate[1]);
		close(error[0]);
		return err_errno(err, code, "fork");
	}
	*ret = (struct child){.pid = pid, .gate_fd = gate[1], .error_fd = error[0]};
	return 0;
}

int child_go(struct child *c, const char *name, struct err *err)
{
	autoclose int gate = take_fd(c->gate_fd), error = take_fd(c->error_fd);
	int code = 0;
	ssize_t n;

	if (write(gate, "g", 1) != 1)
		return err_errno(err, errno, "%s", name);
	do
		n = read(error, &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(code)) /* closed by exec */
		return 0;
	child_wait(c);
	return err_errno(err, code, "cannot run '%s'", name);
}

void child_abandon(struct child *c)
{
	if (c->gate_fd < 0)
		return;
	close(take_fd(c->gate_fd));
	close(take_fd(c->error_fd));
	child_wait(c);
}

int child_wait(const struct child *c)
{
	int status = 0;

	while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
