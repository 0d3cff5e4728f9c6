/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/target.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "cmd/cmd.h"

#define MOST_CHOICES 12u

static int ambiguous(const char *name, const struct pid_vec *pids, struct err *err)
{
	struct buf list = {0};

	for (size_t i = 0; i < pids->len && i < MOST_CHOICES; i++) {
		char command[64];

		if (proc_command_line(pids->data[i], command, sizeof(command), NULL))
			continue;
		buf_printf(&list, "\n  %7d  %s", (int)pids->data[i], command);
	}
	err_set(err, EINVAL, "%zu processes are named '%s': give the number of one%s", pids->len, name,
		list.data ? list.data : "");
	buf_release(&list);
	return -EINVAL;
}

int target_find(const char *text, pid_t *ret, struct err *err)
{
	struct pid_vec pids = {0};
	struct proc_status status;
	uint64_t number;
	int rc;

	if (!option_number(text, &number, NULL)) {
		if (!number || number > INT32_MAX)
			return err_set(err, ESRCH, "there is no process %s", text);
		*ret = (pid_t)number;
		return proc_status_read(*ret, &status, err);
	}
	rc = proc_find_name(text, &pids, err);
	if (!rc && pids.len > 1)
		rc = ambiguous(text, &pids, err);
	if (!rc)
		*ret = pids.data[0];
	vec_release(&pids);
	return rc;
}

static int choose_look(const char *text, enum snapshot_method *ret, struct err *err)
{
	static const char *const names[] = {
		[SNAPSHOT_AUTO] = "auto", [SNAPSHOT_PROC] = "proc", [SNAPSHOT_BPF] = "bpf"};

	for (size_t i = 0; text && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*ret = (enum snapshot_method)i;
			return 0;
		}
	return text ? err_set(err, EINVAL, "--look '%s': it is auto, proc or bpf", text) : 0;
}

static int choose_core(const struct options_usage *usage, const struct target_options *t,
	const struct options_rest *rest, struct snapshot_options *options, pid_t *ret_pid)
{
	if (rest->count)
		return options_complain(usage, "a process or --core FILE, not both");
	if (t->look)
		return options_complain(usage, "--look is for processes that live, not for --core");
	options->core = t->core;
	options->root = t->root;
	*ret_pid = 0;
	return OPTIONS_RUN;
}

int target_choose(const struct options_usage *usage, const struct target_options *t,
	const struct options_rest *rest, struct snapshot_options *options, pid_t *ret_pid)
{
	struct err err = {0};

	if (t->core)
		return choose_core(usage, t, rest, options, ret_pid);
	if (!rest->count)
		return options_complain(usage, "which process? Give its number or its name");
	if (t->root)
		return options_complain(usage, "--root goes with --core");
	if (choose_look(t->look, &options->method, &err))
		return options_complain(usage, "%s", err.text);
	if (target_find(rest->args[0], ret_pid, &err))
		return cmd_failed(usage->command, &err);
	return OPTIONS_RUN;
}
