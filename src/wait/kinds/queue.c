/* SPDX-License-Identifier: BSD-2-Clause */
/* POSIX message queues: files of a file system of their own. */
#include <inttypes.h>
#include <sys/syscall.h>
#include <time.h>

#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

void wait_fd_queue(struct wait_fd *f, struct wait *ret)
{
	struct wait_holders h = {0};

	ret->kind = "posix_queue";
	WAIT_SAY(ret->object, "mqueue %" PRIx64 ":%" PRIu64, f->identity.device, f->identity.inode);
	WAIT_SAY(ret->what, f->out ? "to send to message queue %.80s, which is full"
				   : "to receive from message queue %.80s", f->link);
	wait_holders_find_file(&h, f->l, f->link, &f->identity, f->out, !f->out);
	wait_blame_holders(f->l, &h, "it has the queue open", ret);
	wait_holders_release(&h);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct wait_fd f = {.l = l};
	bool receives = l->call == SYS_mq_timedreceive;

	if (!wait_has_call(l) || (!receives && l->call != SYS_mq_timedsend))
		return false;
	f.fd = (int)l->args[0];
	f.out = !receives;
	ret->timeout_ns = wait_left_until(l, CLOCK_REALTIME, wait_timespec(l, l->args[4]));
	if (open_file_read(l->process->reader, f.fd, &f.file, f.link, sizeof(f.link)))
		return false;
	open_file_identity(l->process->reader, f.fd, &f.identity);
	wait_fd_queue(&f, ret);
	return true;
}

const struct wait_kind wait_kind_queue = {.name = "posix_queue", .look = look};
