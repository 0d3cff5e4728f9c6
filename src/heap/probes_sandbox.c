/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels since 6.11 let a probed function return by a system call. Some of them ask the seccomp filter whether that is
 * allowed, and end the program when it is not. So a child of ours locks itself in, returns from a probed function, and we see
 * whether it lives.
 */
#include "heap/probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/proc.h"
#include "os/rights.h"
#include "sample/bpf/common.h"

#include <heap_probes.skel.h>

#define SURVIVED 7

static __attribute__((noinline)) int probed(int value)
{
	__asm__ volatile("" : "+r"(value));
	return value;
}

/* No compiler knows what is called: it makes no copy of the function for this caller. */
static int (*volatile call_probed)(int value) = probed;

static int find_offset(void *ctx, const struct proc_mapping *m)
{
	uint64_t at = (uintptr_t)probed;

	if (at < m->start || at >= m->end)
		return 0;
	*(uint64_t *)ctx = at - m->start + m->offset;
	return 1;
}

/* Nothing but the end is allowed. Never returns. */
static void live_in_sandbox(int gate)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
	char go;

	if (read(gate, &go, 1) != 1 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(1);
	_exit(call_probed(SURVIVED));
}

static int load(struct heap_probes_bpf **ret, struct err *err)
{
	struct heap_probes_bpf *skeleton;
	struct bpf_program *program;
	struct bpf_map *map;
	int rc;

	bpf_keep_quiet();
	skeleton = heap_probes_bpf__open();
	if (!skeleton)
		return err_errno(err, errno, "opening the BPF program");
	bpf_object__for_each_program(program, skeleton->obj)
		bpf_program__set_autoload(program, program == skeleton->progs.nothing);
	bpf_object__for_each_map(map, skeleton->obj)
		if (!bpf_map__is_internal(map))
			bpf_map__set_autocreate(map, false);
	rc = heap_probes_bpf__load(skeleton);
	if (rc) {
		heap_probes_bpf__destroy(skeleton);
		return rights_bpf_refused(-rc, err);
	}
	*ret = skeleton;
	return 0;
}

/* What became of the child; -errno when it could not be tried. */
static int try_child(struct heap_probes_bpf *skeleton, uint64_t offset, int *ret_status, struct err *err)
{
	autoclose int out = -1;
	int gate[2], status = 0, rc;
	pid_t child;

	if (pipe2(gate, O_CLOEXEC))
		return err_errno(err, errno, "pipe2");
	child = fork();
	if (!child)
		live_in_sandbox(gate[0]);
	rc = child < 0 ? errno : 0;
	close(gate[0]);
	out = gate[1];
	if (rc)
		return err_errno(err, rc, "fork");
	skeleton->links.nothing = bpf_program__attach_uprobe(skeleton->progs.nothing, true, child, "/proc/self/exe", offset);
	rc = skeleton->links.nothing ? 0 : errno;
	if (rc || write(out, "", 1) != 1)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	*ret_status = status;
	return rc ? err_errno(err, rc, "placing a probe in ourselves") : 0;
}

int heap_probes_try_sandbox(struct err *err)
{
	struct heap_probes_bpf *skeleton = NULL;
	uint64_t offset = 0;
	int status = 0, rc = heap_probes_possible(err);

	if (!rc && proc_each_mapping(getpid(), find_offset, &offset, err) != 1)
		rc = err_set(err, EOPNOTSUPP, "our own code is not in a file");
	if (!rc)
		rc = load(&skeleton, err);
	if (rc)
		return rc;
	rc = try_child(skeleton, offset, &status, err);
	heap_probes_bpf__destroy(skeleton);
	if (rc || (WIFEXITED(status) && WEXITSTATUS(status) == SURVIVED))
		return rc;
	return err_set(err, EOPNOTSUPP, "on this kernel a seccomp filter ends programs that return from a probed function (seen with "
		"a child of ours; newer kernels let them pass)");
}
