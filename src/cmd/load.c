/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading a recording for a command: the filter from its options, the damage to stderr. */
#include "cmd/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "view/view.h"
#include "cmd/cmd.h"

/* The bits of one word of --state; 0: there is no such state. */
static uint32_t state_bits(const char *word)
{
	enum thread_state state;

	if (!strcmp(word, "off-cpu"))
		return (1u << STATE_COUNT) - 1 - (1u << STATE_ON_CPU);
	return profile_state_by_name(word, &state) ? 0 : 1u << state;
}

/* "futex,syscall" */
static int add_states(
	const struct options_usage *usage, const char *words, struct load_request *request)
{
	char word[32];

	for (;;) {
		size_t len = strcspn(words, ",");
		uint32_t bits = 0;

		if (len < sizeof(word)) {
			memcpy(word, words, len);
			word[len] = '\0';
			bits = state_bits(word);
		}
		if (!bits)
			return options_complain(
				usage, "--state: there is no state '%.*s'", (int)len, words);
		request->states |= bits;
		if (!words[len])
			return STATUS_OK;
		words += len + 1;
	}
}

int load_check(const struct options_usage *usage, struct load_request *request)
{
	int status = thread_options_check(usage, &request->threads);

	vec_each(&request->state_words, words)
		if (status == STATUS_OK)
			status = add_states(usage, *words, request);
	vec_release(&request->state_words);
	if (status == STATUS_OK && request->idle && request->no_idle)
		return options_complain(usage, "--idle and --no-idle at the same time");
	if (status == STATUS_OK && request->python_only && request->native_only)
		return options_complain(usage, "--python-only and --native-only at the same time");
	if (status == STATUS_OK && request->to_ns && request->to_ns <= request->from_ns)
		return options_complain(usage, "--to is not after --from");
	return status;
}

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

	if (p->samples.len || p->heap || filtered || !broken)
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
		.states = request->states,
		.brief_waits = request->brief_waits,
		.interpreter = request->interpreter,
		.python_only = request->python_only,
		.native_only = request->native_only,
		.gil = request->gil,
		.tasks = request->tasks,
		.heap_from_ns = request->from_ns,
		.heap_to_ns = request->to_ns,
		.idle_apart = !request->idle && (request->no_idle || request->idle_apart),
	};
	rc = profile_load(path, &options, &p, err);
	if (given)
		regfree(&pattern);
	if (rc)
		return rc;
	tell_damage(command, path, p);
	if (request->tasks && !p->task_ns)
		rc = err_set(err, ENODATA, "%s has no time of tasks in it: record with --tasks", path);
	if (!rc && (request->from_ns || request->to_ns) && !p->heap)
		rc = err_set(err, EINVAL, "%s has no allocations in it, which --from and --to are of", path);
	rc = rc ? rc : check_anything(path, p,
		given || request->threads.main_only || request->threads.tid || request->states,
		err);
	if (rc) {
		profile_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}
