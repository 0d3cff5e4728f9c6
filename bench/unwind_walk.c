/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a walk costs, warm, from stack dumps of real processes; and how far walks get.
 *
 *	unwind_walk                  a small recursive program, then clang++ compiling <regex>
 *	unwind_walk [-s BYTES] [-n SAMPLES] [-d N] [-v] -p PID | -- CMD ARGS...
 *
 * Prints nanoseconds a frame beside libdwfl's on the same samples, how stacks ended and how frames
 * were found; -v adds where the unfinished ones stopped, -d N prints the first N stacks. Bars: 20
 *ns a frame on the small program, 120 ns on clang.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/samples.h"
#include "bench/walk_dwfl.h"

#define MAX_FRAMES 1024
#define PASSES 7
#define PASS_NS (200 * NS_PER_MS)

struct options {
	size_t samples, stack_bytes, show;
	bool verbose;
};

struct tally {
	size_t ends[UNWIND_END_COUNT], hows[UNWIND_HOW_COUNT], frames;
};

/* ---- the small program ---- */

static volatile uint64_t sink;

__attribute__((noinline)) static uint64_t odd(unsigned depth);

__attribute__((noinline)) static uint64_t even(unsigned depth)
{
	if (!depth)
		for (unsigned i = 0; i < 20000; i++)
			sink += i * i;
	return depth ? odd(depth - 1) + sink : sink;
}

__attribute__((noinline)) static uint64_t odd(unsigned depth)
{
	uint64_t before = sink;

	return even(depth ? depth - 1 : 0) ^ before;
}

static int recurse(void)
{
	for (unsigned i = 0;; i++)
		even(20 + i % 41);
	return 0;
}

/* ---- ours ---- */

static size_t walk_one(struct unwinder *u, const struct sampled_process *p,
	const struct stack_sample *s, struct unwind_frame *frames, enum unwind_end *end)
{
	struct unwind_dump dump = {s->stack_start, s->stack, s->stack_size};

	return unwinder_walk(u, &p->target, &s->regs, &dump, frames, MAX_FRAMES, end);
}

static void print_frame(
	const struct sampled_process *p, const struct unwind_frame *f, const char *word)
{
	const char *path = "(no file)";

	if (f->mapping_id && f->mapping_id <= p->modules.len)
		path = p->modules.data[f->mapping_id - 1].path;
	printf("    %-12s %s+0x%llx%s (%s)\n", word, path, (unsigned long long)f->vaddr,
		f->is_return ? "" : " exact", unwind_how_name((enum unwind_how)f->how));
}

static struct tally count_all(
	struct unwinder *u, const struct sampled_process *p, const struct options *o)
{
	static struct unwind_frame frames[MAX_FRAMES];
	struct tally t = {0};

	vec_each (&p->samples, s) {
		enum unwind_end end;
		size_t n = walk_one(u, p, s, frames, &end);

		t.ends[end]++;
		t.frames += n;
		for (size_t i = 0; i < n; i++)
			t.hows[frames[i].how]++;
		if (o->verbose && end != UNWIND_ROOT && n)
			print_frame(p, &frames[n - 1], unwind_end_name(end));
		if ((size_t)(s - p->samples.data) >= o->show)
			continue;
		for (size_t i = 0; i < n; i++)
			print_frame(p, &frames[i], i ? "" : "stack:");
	}
	return t;
}

/* Nanoseconds of CPU a pass over all samples, the best of PASSES. */
static double time_ours(struct unwinder *u, const struct sampled_process *p)
{
	static struct unwind_frame frames[MAX_FRAMES];
	double best = 0;

	for (unsigned pass = 0; pass < PASSES; pass++) {
		uint64_t begin = clock_own_cpu_ns(), now = begin;
		unsigned rounds = 0;

		while (now - begin < PASS_NS) {
			enum unwind_end end;

			vec_each (&p->samples, s)
				walk_one(u, p, s, frames, &end);
			rounds++;
			now = clock_own_cpu_ns();
		}

		double ns = (double)(now - begin) / rounds;

		if (!pass || ns < best)
			best = ns;
	}
	return best;
}

/* ---- libdwfl ---- */

/* Is each of the two stacks the beginning of the other, or the same? */
static bool same_as_ours(struct unwinder *u, const struct sampled_process *p,
	const struct stack_sample *s, const uint64_t *pcs, size_t count)
{
	static struct unwind_frame frames[MAX_FRAMES];
	enum unwind_end end;
	size_t n = walk_one(u, p, s, frames, &end);

	for (size_t i = 0; i < n && i < count; i++)
		if (frames[i].pc != pcs[i])
			return false;
	return true;
}

static void time_dwfl(struct unwinder *u, const struct sampled_process *p, double ours_ns_a_frame)
{
	static uint64_t pcs[MAX_FRAMES];
	struct dwfl_walker *w = dwfl_walker_new(p);
	uint64_t best = 0;
	size_t frames = 0, same = 0;

	if (!w)
		return;
	for (unsigned pass = 0; pass < 3; pass++) {
		uint64_t begin = clock_own_cpu_ns();

		frames = 0;
		vec_each (&p->samples, s)
			frames += dwfl_walker_walk(w, s, pcs, MAX_FRAMES);

		uint64_t ns = clock_own_cpu_ns() - begin;

		if (!pass || ns < best)
			best = ns;
	}
	vec_each (&p->samples, s) {
		size_t n = dwfl_walker_walk(w, s, pcs, MAX_FRAMES);

		same += same_as_ours(u, p, s, pcs, n < MAX_FRAMES ? n : MAX_FRAMES);
	}
	dwfl_walker_free(w);

	double ns_a_frame = (double)best / (double)(frames ? frames : 1);

	printf("  libdwfl     %8.1f ns/frame  %6.1f frames/stack  ratio %.1fx, same frames in "
	       "%.2f%% of stacks\n",
		ns_a_frame, (double)frames / (double)p->samples.len, ns_a_frame / ours_ns_a_frame,
		100.0 * (double)same / (double)p->samples.len);
}

/* ---- one process ---- */

static void print_tally(const struct tally *t, size_t samples)
{
	printf("  ends       ");
	for (size_t i = 0; i < UNWIND_END_COUNT; i++)
		if (t->ends[i])
			printf(" %s %.2f%%", unwind_end_name((enum unwind_end)i),
				100.0 * (double)t->ends[i] / (double)samples);
	printf("\n  frames     ");
	for (size_t i = 0; i < UNWIND_HOW_COUNT; i++)
		if (t->hows[i])
			printf(" %s %.2f%%", unwind_how_name((enum unwind_how)i),
				100.0 * (double)t->hows[i] / (double)t->frames);
	printf("\n");
}

static void report(const char *name, const struct sampled_process *p, const struct options *o)
{
	struct unwinder *u;
	struct unwinder_stats stats, warm;
	static const struct options quiet = {0};

	if (unwinder_new(&u, NULL))
		return;

	uint64_t begin = clock_own_cpu_ns();
	struct tally t = count_all(u, p, o);
	uint64_t cold = clock_own_cpu_ns() - begin;

	unwinder_stats(u, &stats);
	count_all(u, p, &quiet);
	unwinder_stats(u, &warm);

	double ns = time_ours(u, p) / (double)t.frames;
	uint64_t hits = warm.cache_hits - stats.cache_hits;
	uint64_t misses = warm.cache_misses - stats.cache_misses;
	size_t rows = 0;

	for (size_t i = 0; i < p->modules.len; i++) {
		struct unwind_module_stats m;

		unwind_module_stats(p->modules.data[i].module, &m);
		rows += m.rows;
	}
	printf("%s: %zu samples, %zu modules, %zu rows expanded\n", name, p->samples.len,
		p->modules.len, rows);
	printf("  sonde       %8.1f ns/frame  %6.1f frames/stack  first pass %.1f ns/frame, "
	       "cache hits %.1f%%\n",
		ns, (double)t.frames / (double)p->samples.len, (double)cold / (double)t.frames,
		100.0 * (double)hits / (double)(hits + misses ? hits + misses : 1));
	time_dwfl(u, p, ns);
	print_tally(&t, p->samples.len);
	unwinder_free(u);
}

static bool measure(const char *name, const char *const *argv, pid_t pid, const struct options *o)
{
	struct sampled_process p;
	bool good = samples_take(&p, argv, pid, o->samples, 20, o->stack_bytes);

	if (good)
		report(name, &p, o);
	samples_release(&p);
	return good;
}

static bool measure_clang(const struct options *o)
{
	char path[] = "/tmp/unwind_walk_XXXXXX.cc";
	int fd = mkstemps(path, 3);
	const char *const argv[] = {"clang++", "-O2", "-c", "-o", "/dev/null", path, NULL};
	static const char text[] = "#include <regex>\n#include <string>\n#include <map>\n"
				   "bool f(const std::string &s) { return std::regex_match(s, "
				   "std::regex(\"a+(b|c)*\")); }\n"
				   "std::string g(const std::string &s) {\n"
				   "	return std::regex_replace(s, std::regex(\"[a-z]+\"), "
				   "std::string(\"$&\"));\n}\n";

	if (fd < 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1)
		return false;
	close(fd);

	bool good = measure("clang++", argv, 0, o);

	unlink(path);
	return good;
}

int main(int argc, char **argv)
{
	struct options o = {.samples = 400, .stack_bytes = SAMPLE_STACK_BYTES};
	pid_t pid = 0;

	if (argc == 2 && !strcmp(argv[1], "--recurse"))
		return recurse();
	for (int c; (c = getopt(argc, argv, "+p:n:s:d:v")) != -1;) {
		if (c == 'p')
			pid = (pid_t)strtol(optarg, NULL, 10);
		else if (c == 'n')
			o.samples = strtoul(optarg, NULL, 10);
		else if (c == 's')
			o.stack_bytes = strtoul(optarg, NULL, 10) & ~7UL;
		else if (c == 'd')
			o.show = strtoul(optarg, NULL, 10);
		else if (c == 'v')
			o.verbose = true;
		else
			return 2;
	}
	if (pid || optind < argc)
		return !measure(pid ? "process" : argv[optind],
			pid ? NULL : (const char *const *)argv + optind, pid, &o);

	const char *const small[] = {"/proc/self/exe", "--recurse", NULL};
	bool good = measure("small program", small, 0, &o);

	return !(measure_clang(&o) && good);
}
