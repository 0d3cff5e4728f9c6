/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inject_into PID LIBRARY ROUNDS SYMBOL... : loads a library into a process and calls functions of it, as often as told, for
 * tests. Each round opens the process anew and calls all symbols with the text "NUMBER" and the number of the round; a
 * symbol as NAME=TEXT is called with that text.
 * One line of JSON a round: results of the calls, stops and their times in ns. Status 1: a round failed, and its words are on stderr.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "elf/elf_file.h"
#include "heap/inject/inject.h"

static void *read_file(const char *path, size_t *ret_size)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes;

	if (fd < 0 || fstat(fd, &st))
		return NULL;
	bytes = malloc((size_t)st.st_size);
	*ret_size = (size_t)st.st_size;
	if (bytes && read(fd, bytes, *ret_size) != (ssize_t)*ret_size) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

static int calls(struct inject *i, char **symbols, unsigned long round, struct err *err)
{
	char text[32];
	int rc = 0;

	snprintf(text, sizeof(text), "%lu", round);
	printf("{\"results\": [");
	for (char **s = symbols; *s && !rc; s++) {
		const char *own = strchr(*s, '=');
		int64_t result = 0;
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*s, "="), *s);
		rc = inject_call(i, name, own ? own + 1 : text, round, &result, err);
		printf("%s%" PRId64, s == symbols ? "" : ", ", result);
	}
	return rc;
}

static int one_round(pid_t pid, const void *library, size_t size, char **symbols, unsigned long round, struct err *err)
{
	const struct inject_options options = {.search_ns = 5000000000u};
	struct inject *i = NULL;
	struct inject_stats st;
	int rc = inject_open(pid, &options, &i, err);

	if (rc)
		return rc;
	rc = inject_load(i, "test", library, size, err);
	if (!rc)
		rc = calls(i, symbols, round, err);
	inject_stats(i, &st);
	if (!rc)
		printf("], \"stops\": %" PRIu32 ", \"diversions\": %" PRIu32 ", \"longest_ns\": %" PRIu64 ", \"total_ns\": %" PRIu64
			", \"last_ns\": %" PRIu64 ", \"tid\": %d, \"ran\": %d}\n", st.stops, st.diversions, st.longest_ns,
			st.total_ns, st.last_ns, (int)st.last_tid, st.last_ran);
	fflush(stdout);
	inject_close(i);
	return rc;
}

int main(int argc, char **argv)
{
	size_t size = 0;
	autofree void *library = argc > 4 ? read_file(argv[2], &size) : NULL;
	unsigned long rounds = argc > 4 ? strtoul(argv[3], NULL, 10) : 0;

	if (!library)
		return 2;
	elf_guard_sigbus();
	for (unsigned long n = 1; n <= rounds; n++) {
		struct err err = {0};

		if (one_round((pid_t)strtol(argv[1], NULL, 10), library, size, argv + 4, n, &err)) {
			fprintf(stderr, "round %lu: %s\n", n, err.text);
			return 1;
		}
	}
	return 0;
}
