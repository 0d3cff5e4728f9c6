/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a table of unwind rules costs: time to open a file, time to expand all its rows, memory a
 * row, time of a lookup.
 *
 *	unwind_table FILE...
 *
 * Times are the best of several passes in CPU time; the bars are 110 ns and 4.5 bytes a row.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "bench/cfi_file.h"
#include "unwind/table.h"

#define PASSES 7
#define LOOKUPS 2000000

struct result {
	uint64_t open_ns, expand_ns;
	struct unwind_module_stats stats;
};

static bool measure_once(const struct unwind_module_input *input, struct result *ret)
{
	struct unwind_module *m;
	uint64_t begin = clock_own_cpu_ns();

	if (unwind_module_new(input, &m, NULL))
		return false;

	uint64_t opened = clock_own_cpu_ns();
	bool good = !unwind_module_expand_all(m);
	uint64_t done = clock_own_cpu_ns();

	ret->open_ns = opened - begin;
	ret->expand_ns = done - begin;
	unwind_module_stats(m, &ret->stats);
	unwind_module_free(m);
	return good;
}

/* Random addresses all over the code: cold caches, the worst that the walk's own cache of rules
 * leaves to do. */
static double lookup_ns(const struct cfi_file *f, size_t *ret_found)
{
	struct unwind_module *m;

	*ret_found = 0;
	if (!f->text.size || unwind_module_new(&f->input, &m, NULL))
		return 0;
	unwind_module_expand_all(m);

	uint64_t begin = clock_own_cpu_ns();

	for (uint64_t i = 0; i < LOOKUPS; i++)
		*ret_found +=
			unwind_module_rule(m, f->text.vaddr + hash_u64(i) % f->text.size) != NULL;

	uint64_t spent = clock_own_cpu_ns() - begin;

	unwind_module_free(m);
	return (double)spent / LOOKUPS;
}

static bool measure(const char *path)
{
	struct cfi_file f;
	struct result best = {.expand_ns = UINT64_MAX}, now;
	size_t found = 0;
	bool good = cfi_file_open(&f, path);

	for (int pass = 0; good && pass < PASSES; pass++) {
		good = measure_once(&f.input, &now);
		if (good && now.expand_ns < best.expand_ns)
			best = now;
	}
	if (good) {
		size_t rows = best.stats.rows ? best.stats.rows : 1;

		printf("%s\n  %zu FDEs, %zu rows, %zu rules; open %.2f ms; expand all %.1f ns a "
		       "row; "
		       "%.2f bytes a row; lookup %.0f ns",
			path, best.stats.fdes, best.stats.rows, best.stats.rules,
			(double)best.open_ns / 1e6, (double)best.expand_ns / (double)rows,
			(double)best.stats.table_bytes / (double)rows, lookup_ns(&f, &found));
		printf(" (%.0f %% of addresses covered)\n", 100.0 * (double)found / LOOKUPS);
	} else {
		printf("%s: not a file with call frame information\n", path);
	}
	cfi_file_close(&f);
	return good;
}

int main(int argc, char **argv)
{
	bool good = argc > 1;

	elf_version(EV_CURRENT);
	if (!good)
		fprintf(stderr, "usage: unwind_table FILE...\n");
	for (int i = 1; i < argc; i++)
		good &= measure(argv[i]);
	return good ? 0 : 1;
}
