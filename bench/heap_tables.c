/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the unwind tables of watched programs cost to make (src/heap/table_blob.h): time, rows and bytes of each file, and how
 * many rows its call frame information has.
 *
 *	heap_tables FILE...
 *
 * Reach: a file that takes more than 50 ms is made in slices; none of those may take much longer than was asked for.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/writer.h"
#include "heap/table_blob.h"
#include "heap/tables_layout.h"
#include "sample/modules.h"
#include "unwind/table.h"

#define SLICE_NS 2000000ull

struct result {
	uint64_t new_ns, work_ns, longest_ns, take_ns;
	struct tables_blob head;
	size_t bytes;
};

static bool build(const struct unwind_module *m, struct result *ret)
{
	uint64_t began = clock_own_cpu_ns(), now;
	struct blob_builder *b;
	void *blob;
	int rc;

	*ret = (struct result){0};
	if (blob_builder_new(m, &b, NULL))
		return false;
	now = clock_own_cpu_ns();
	ret->new_ns = now - began;
	do {
		uint64_t from = now;

		rc = blob_builder_work(b, SLICE_NS);
		now = clock_own_cpu_ns();
		ret->work_ns += now - from;
		if (now - from > ret->longest_ns)
			ret->longest_ns = now - from;
	} while (!rc);
	if (rc < 0 || blob_builder_take(b, &blob, &ret->bytes))
		return false;
	ret->take_ns = clock_own_cpu_ns() - now;
	memcpy(&ret->head, blob, sizeof(ret->head));
	free(blob);
	blob_builder_free(b);
	return true;
}

static bool measure(struct module_store *store, const char *path)
{
	struct proc_mapping mapping = {.start = 0x1000, .end = 0x2000, .exec = true};
	struct module *m;
	struct unwind_module_stats stats;
	struct result r;
	struct stat st;

	if (stat(path, &st))
		return false;
	mapping.path = path;
	mapping.inode = st.st_ino;
	mapping.device = st.st_dev;
	m = module_store_mapped(store, getpid(), &mapping);
	if (!m || !m->unwind || !build(m->unwind, &r) || !build(m->unwind, &r)) {
		printf("%s: not a file with call frame information\n", path);
		return false;
	}
	unwind_module_expand_all(m->unwind);
	unwind_module_stats(m->unwind, &stats);
	printf("%s\n  %zu FDEs, %zu rows; kept %u rows, %u rules, %.2f MB; %.1f ms: list %.1f, rows %.1f, copy %.1f; "
	       "longest slice of %.0f: %.1f ms\n",
		path, stats.fdes, stats.rows, r.head.rows, r.head.rules, (double)r.bytes / 1e6,
		(double)(r.new_ns + r.work_ns + r.take_ns) / 1e6, (double)r.new_ns / 1e6, (double)r.work_ns / 1e6,
		(double)r.take_ns / 1e6, (double)SLICE_NS / 1e6, (double)r.longest_ns / 1e6);
	return true;
}

int main(int argc, char **argv)
{
	struct capture_writer *writer;
	struct module_store *store;
	bool good = argc > 1;

	if (capture_writer_to_fd(open("/dev/null", O_WRONLY), "null", &writer, NULL) ||
		module_store_new(writer, &source_live, &store, NULL))
		return 1;
	if (!good)
		fprintf(stderr, "usage: heap_tables FILE...\n");
	for (int i = 1; i < argc; i++)
		good &= measure(store, argv[i]);
	module_store_free(store);
	capture_writer_abandon(writer);
	return good ? 0 : 1;
}
