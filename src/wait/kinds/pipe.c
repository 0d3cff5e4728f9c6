/* SPDX-License-Identifier: BSD-2-Clause */
/* Pipes and FIFOs: whoever can do the opposite with it is in the way. */
#include <inttypes.h>
#include <sys/stat.h>

#include "wait/fd.h"

void wait_fd_pipe(struct wait_fd *f, struct wait *ret)
{
	static const char writer[] = "it has the pipe open for writing";
	static const char reader[] = "it has the pipe open for reading";
	bool fifo = f->file.what == OPEN_PATH;
	struct wait_holders h = {0};

	ret->kind = fifo ? "fifo" : "pipe";
	if (fifo) {
		WAIT_SAY(ret->object, "fifo %" PRIx64 ":%" PRIu64, f->identity.device,
			f->identity.inode);
		WAIT_SAY(ret->what, "to %s FIFO %.120s", f->out ? "write to" : "read from", f->link);
		wait_holders_find_file(&h, f->l, f->link, &f->identity, f->out, !f->out);
	} else {
		WAIT_SAY(ret->object, "pipe:[%" PRIu64 "]", f->file.key);
		WAIT_SAY(ret->what, f->out ? "to write to a pipe that is full" : "to read from a pipe");
		wait_holders_find(&h, f->l, OPEN_PIPE, f->file.key, f->out, !f->out);
	}
	wait_blame_holders(f->l, &h, f->out ? reader : writer, ret);
	wait_holders_release(&h);
}
