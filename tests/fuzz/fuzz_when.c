/* SPDX-License-Identifier: BSD-2-Clause */
/* Any text as a condition of the flight recorder, judged against a few facts. */
#include <stdlib.h>
#include <string.h>

#include "cmd/record/when.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

	/* The pattern is libc's to parse; short ones keep it from taking its time. */
	if (size > 64)
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
