/* SPDX-License-Identifier: BSD-2-Clause */
/* Any text as a condition of the flight recorder, judged against a few facts. */
#include <stdlib.h>
#include <string.h>

#include "cmd/record/when.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t repetitions(const uint8_t *data, size_t size)
{
	size_t count = 0;

	for (size_t i = 0; i < size; i++)
		count += data[i] && strchr("*+?{", data[i]);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct when_thread threads[] = {
		{.pid = 7, .tid = 7, .is_main = true, .idle_ns = 1000000000, .name = "main"},
		{.pid = 7, .tid = 8, .idle_ns = UINT64_MAX, .name = "a"},
	};
	struct when_facts facts = {
		.now_ns = 2000000000,
		.since_ns = 1000000000,
		.cpu_percent = 50,
		.threads = threads,
		.known_threads = 2,
	};
	struct when w;
	size_t which;

	/* The pattern is libc's to parse, and each repetition of a repetition doubles what it keeps: short ones with
	 * few of them keep it from taking all memory. Patterns come from the user's own command line. */
	if (size > 64 || repetitions(data, size) > 8)
		return 0;

	char *text = strndup((const char *)data, size);

	if (!when_parse(text, &w, NULL)) {
		for (int i = 0; i < 3; i++, facts.now_ns += facts.since_ns)
			if (when_fires(&w, &facts, 1, &which) && w.kind == WHEN_BLOCKED &&
				which > 1)
				abort();
		if (when_interval_ns(&w) < 10000000)
			abort();
		when_release(&w);
	}
	free(text);
	return 0;
}
