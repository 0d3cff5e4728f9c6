/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/heap_rss.h"

#include <errno.h>

#include "base/buf.h"
#include "base/term.h"
#include "cmd/cmd.h"
#include "heap/rss.h"
#include "view/rss.h"

static int render(const struct heap_rss_args *args, const struct rss *r, FILE *out, struct err *err)
{
	struct rss_options options = {.term = term_describe(fileno(out)), .top = args->top};
	struct buf text = {0};
	int rc = args->json ? view_rss_json(r, &text, err) : view_rss(r, &options, &text, err);

	if (!rc && text.len)
		fwrite(text.data, 1, text.len, out);
	buf_release(&text);
	return rc;
}

int heap_rss(const struct heap_rss_args *args, pid_t pid)
{
	struct rss r = {0};
	struct err err = {0};
	FILE *out = NULL;
	int closed = STATUS_OK, rc = rss_account(pid, &r, &err);

	if (rc == -EACCES || rc == -EPERM)
		rc = err_set(&err, -rc, "process %d is not ours to read (\"sonde doctor %d\" says what it takes)",
			(int)pid, (int)pid);
	if (!rc)
		rc = cmd_open_output(args->output, &out, &err);
	if (!rc) {
		rc = render(args, &r, out, &err);
		closed = cmd_close_output("heap", out, args->output);
	}
	rss_release(&r);
	return rc ? cmd_failed("heap", &err) : closed;
}
