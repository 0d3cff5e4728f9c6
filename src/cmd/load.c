/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading a recording for a command: the filter from its options, the damage to stderr. */
#include "cmd/load.h"

#include <string.h>

#include "base/buf.h"
#include "view/view.h"
#include "cmd/cmd.h"

/* What the file lacks, a line each. */
static void tell_damage(const char *command, const char *path, const struct profile *p)
{
	struct buf words = {0};

	view_damage(p, &words);
	for (char *line = words.data; line && *line;) {
		size_t len = strcspn(line, "\n");

		cmd_note(command, "%s: %.*s", path, (int)len, line);
		line += len + (line[len] == '\n');
	}
	buf_release(&words);
}

/* Damage that left nothing to report is a failure; a recording in which nothing ran is not. */
static int check_anything(const char *path, const struct profile *p, bool filtered, struct err *err)
{
	const struct capture_damage *d = &p->damage;
	bool broken = d->bad_blocks || d->missing_blocks || d->bad_records || d->truncated;

	if (p->samples.len || filtered || !broken)
		return 0;
	return err_set(err, EBADMSG, "%s: no sample is readable in this damaged recording", path);
}

int load_profile(const char *command, const char *path, const struct load_request *request,
	struct profile **ret, struct err *err)
{
	struct profile_load_options options = {.name_locally = true};
	struct profile *p = NULL;
	regex_t pattern;
	bool given;
	int rc = thread_options_regex(&request->threads, &pattern, &given, err);

	if (rc)
		return rc;
	options.filter = (struct profile_filter){
		.thread = given ? &pattern : NULL,
		.main_only = request->threads.main_only,
		.tid = (uint32_t)request->threads.tid,
		.no_inline = request->no_inline,
	};
	rc = profile_load(path, &options, &p, err);
	if (given)
		regfree(&pattern);
	if (rc)
		return rc;
	tell_damage(command, path, p);
	rc = check_anything(
		path, p, given || request->threads.main_only || request->threads.tid, err);
	if (rc) {
		profile_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}
