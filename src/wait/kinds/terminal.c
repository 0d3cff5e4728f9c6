/* SPDX-License-Identifier: BSD-2-Clause */
/* Terminals: the other end of a pseudo terminal is whoever holds its master; of a real one, a person. */
#include <inttypes.h>
#include <linux/major.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "wait/fd.h"

#define MOST_MASTERS 4096u

/* The number of a pseudo terminal; -1: it is no slave of one. */
static int slave_index(uint64_t device)
{
	unsigned major = major(device);

	if (major < UNIX98_PTY_SLAVE_MAJOR || major >= UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT)
		return -1;
	return (int)((major - UNIX98_PTY_SLAVE_MAJOR) * 256 + minor(device));
}

/* Those whose master has that number. Instances of devpts, as containers have them, each count from 0: where
 * there are several with the number, nobody can tell them apart. */
static void find_masters(struct wait_look *l, int index, struct wait_holders *h)
{
	const struct open_file *f;
	size_t n = open_files_find(wait_world_files(l->world), OPEN_PATH, open_path_key("/dev/ptmx"), &f);

	for (size_t i = 0; i < n && i < MOST_MASTERS; i++) {
		const struct fdinfo *info = wait_world_fdinfo(l->world, f[i].pid, f[i].fd);

		if (info && info->tty_index == index)
			wait_holders_add(h, l, f[i].pid);
	}
}

/* The waiting process is the one with the master: those with the slave are to act. */
static void on_master(struct wait_fd *f, struct wait *ret)
{
	const struct fdinfo *info = wait_world_fdinfo(f->l->world, f->file.pid, f->fd);
	struct wait_holders h = {0};
	char name[32];
	const struct open_file *at;
	size_t n;

	WAIT_SAY(ret->what, "to %s the master of a terminal", f->out ? "write to" : "read from");
	ret->nature = WAIT_EVENT;
	if (!info || info->tty_index < 0)
		return;
	snprintf(name, sizeof(name), "/dev/pts/%d", info->tty_index);
	WAIT_SAY(ret->object, "%s", name);
	n = open_files_find(wait_world_files(f->l->world), OPEN_PATH, open_path_key(name), &at);
	for (size_t i = 0; i < n; i++) {
		struct open_identity id;

		if (open_file_identity(at[i].pid, at[i].fd, &id) && id.mode == S_IFCHR &&
			slave_index(id.rdevice) == info->tty_index)
			wait_holders_add(&h, f->l, at[i].pid);
	}
	wait_blame_holders(f->l, &h, "it has the terminal open", ret);
	wait_holders_release(&h);
	/* A terminal's program waits for output of any of them, and for its user. */
	if (!f->out)
		ret->nature = WAIT_EVENT;
}

void wait_fd_tty(struct wait_fd *f, struct wait *ret)
{
	int index = slave_index(f->identity.rdevice);
	struct wait_holders h = {0};

	ret->kind = "terminal";
	if (f->identity.rdevice == makedev(TTYAUX_MAJOR, 0)) { /* /dev/tty: the controlling one */
		struct proc_family family;

		if (!proc_family_read(f->l->process->pid, &family))
			index = slave_index(family.terminal);
	} else if (f->identity.rdevice == makedev(TTYAUX_MAJOR, 2)) {
		on_master(f, ret);
		return;
	}
	WAIT_SAY(ret->what, "%s terminal %.60s", f->out ? "to write to" : "for input from", f->link);
	if (index < 0) {
		ret->nature = f->out ? WAIT_DEVICE : WAIT_EVENT;
		return;
	}
	WAIT_SAY(ret->object, "/dev/pts/%d", index);
	find_masters(f->l, index, &h);
	if (!h.others.len && h.self) {
		ret->nature = WAIT_EVENT;
		ret->own = true;
	} else {
		wait_blame_holders(f->l, &h, "it has the master of the terminal", ret);
	}
	wait_holders_release(&h);
}
