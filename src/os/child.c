/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/proc.h"

/* The child's side: wait for the gate, then become the command. */
__attribute__((noreturn)) static void run(
	char *const *argv, const struct child_inherits *inherits, int gate_fd, int error_fd)
{
	char byte;
	ssize_t n;

	do
		n = read(gate_fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0);
	signal(SIGPIPE, SIG_DFL); /* ignored signals stay ignored over exec */
	if (inherits->ignores_child)
		signal(SIGCHLD, SIG_IGN);
	sigprocmask(SIG_SETMASK, &inherits->mask, NULL);
	setrlimit(RLIMIT_NOFILE, &inherits->files);
	execvp(argv[0], argv);

	int code = errno;
	n = write(error_fd, &code, sizeof(code));
	_exit(n == sizeof(code) ? 127 : 126);
}

static int check_file(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || access(path, X_OK))
		return -EACCES;
	return proc_is_32bit_file(path) ? -ENOEXEC : 0;
}

/* An empty directory is the current one, as for execvp. */
static int find_in_path(const char *dirs, const char *name, char *path, size_t size)
{
	int rc = -ENOENT;

	for (;; dirs++) {
		int len = (int)strcspn(dirs, ":");
		int n = snprintf(path, size, "%.*s%s%s", len, dirs, len ? "/" : "", name);
		int found = n < (int)size ? check_file(path) : -ENAMETOOLONG;

		if (!found || found == -ENOEXEC)
			return found;
		if (found == -EACCES)
			rc = found;
		dirs += len;
		if (!*dirs)
			return rc;
	}
}

int child_find(const char *name, char *buf, size_t size, struct err *err)
{
	const char *dirs = getenv("PATH");
	int rc;

	if (!dirs) /* execvp has a default of its own, and so has the C library */
		dirs = "/bin:/usr/bin";
	if (!*name || strchr(name, '/'))
		rc = (size_t)snprintf(buf, size, "%s", name) < size ? check_file(name) : -ENAMETOOLONG;
	else
		rc = find_in_path(dirs, name, buf, size);
	if (rc == -ENOEXEC)
		return err_set(err, ENOEXEC,
			"'%s' is a 32-bit program: sonde unwinds stacks of 64-bit code only", name);
	return rc ? err_errno(err, -rc, "cannot run '%s'", name) : 0;
}

int child_check(const char *name, struct err *err)
{
	char path[PATH_MAX];

	return child_find(name, path, sizeof(path), err);
}

void child_inherits_now(struct child_inherits *ret)
{
	struct sigaction child = {0};

	sigaction(SIGCHLD, NULL, &child);
	ret->ignores_child = child.sa_handler == SIG_IGN;
	sigprocmask(SIG_SETMASK, NULL, &ret->mask);
	getrlimit(RLIMIT_NOFILE, &ret->files);
}

int child_start(char *const *argv, const struct child_inherits *inherits, struct child *ret,
	struct err *err)
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

	signal(SIGCHLD, SIG_DFL); /* who ignores it cannot wait for children */

	pid_t pid = fork();

	if (!pid) {
		close(gate[1]); /* so that our death closes the gate for good */
		run(argv, inherits, gate[0], error[1]);
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

/* The last child that a tracer has waited for; there is one at a time. The pid is stored last. */
static struct {
	_Atomic pid_t pid;
	int status;
	uint64_t cpu_ns;
} ended;

void child_has_ended(pid_t pid, int status, uint64_t cpu_ns)
{
	ended.status = status;
	ended.cpu_ns = cpu_ns;
	ended.pid = pid;
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_usec * 1000;
}

uint64_t child_cpu_ns(const struct child *c)
{
	struct rusage usage;
	siginfo_t info = {0};

	if (c->pid == ended.pid)
		return ended.cpu_ns;
	/* The libraries' waitid() has no rusage, and their wait4() no WNOWAIT. */
	if (syscall(SYS_waitid, P_PID, c->pid, &info, WEXITED | WNOHANG | WNOWAIT, &usage) ||
		!info.si_pid)
		return 0;
	return timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime);
}

int child_wait(const struct child *c)
{
	int status = 0;
	pid_t got;

	do
		got = waitpid(c->pid, &status, 0);
	while ((got < 0 && errno == EINTR) || (got > 0 && WIFSTOPPED(status)));
	if (got < 0 && c->pid == ended.pid)
		status = ended.status;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
