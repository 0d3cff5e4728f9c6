/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a name costs: `symbols FILE [N]` resolves N random addresses of the file's functions, names
 * only and with inline chains, each in a process of its own so that memory can be told apart, and
 * gives the same list to eu-addr2line and addr2line in the same run.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/vec.h"
#include "symbol/symbol.h"

VEC_TYPE(address_list, uint64_t);

struct picker {
	struct address_list list;
	uint64_t seen, want, seed;
};

/* Reservoir of random addresses inside sized symbols. */
static int pick(void *ctx, const struct elf_symbol *sym)
{
	struct picker *p = ctx;
	uint64_t random = hash_u64(p->seed++);

	if (sym->end <= sym->start)
		return 0;
	uint64_t address = sym->start + random % (sym->end - sym->start);
	p->seen++;
	if (p->list.len < p->want)
		return vec_push(&p->list, address);
	uint64_t slot = hash_u64(random) % p->seen;
	if (slot < p->want)
		p->list.data[slot] = address;
	return 0;
}

static struct elf_file *open_file(const char *path)
{
	struct elf_file *f;
	struct err err;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || elf_file_open_fd(fd, path, &f, &err)) {
		fprintf(stderr, "%s: %s\n", path, fd < 0 ? "cannot open" : err.text);
		exit(1);
	}
	return f;
}

static int compare_addresses(const void *va, const void *vb)
{
	uint64_t a = *(const uint64_t *)va, b = *(const uint64_t *)vb;

	return (a > b) - (a < b);
}

/* Ascending, as a recording asks for them. */
static void pick_addresses(const char *path, struct picker *p)
{
	struct elf_file *f = open_file(path), *debug = NULL;

	if (!elf_file_has_section(f, ".symtab"))
		(void)elf_file_open_debug(f, "", &debug, NULL);
	elf_file_each_symbol(debug ? debug : f, pick, p);
	if (p->list.len)
		qsort(p->list.data, p->list.len, sizeof(uint64_t), compare_addresses);
	elf_file_free(debug);
	elf_file_free(f);
}

/* The processor time is that of the whole process, start and end included. */
static void print_cost(
	const char *who, const struct address_list *list, uint64_t ns, const struct rusage *usage)
{
	double cpu_s = (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
		(double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;

	printf("%-22s %9.3f s %9.3f cpu s %9.1f us/address %6ld MB\n", who, (double)ns / 1e9, cpu_s,
		(double)ns / 1e3 / (double)list->len, usage->ru_maxrss >> 10);
}

static void resolve_all(const char *path, const struct address_list *list, bool no_inlines)
{
	struct symbol_elf_options options = {.root = "", .no_inlines = no_inlines};
	struct elf_file *f = open_file(path);
	struct symbol_source *s;
	size_t named = 0, levels = 0;
	struct rusage usage;

	if (symbol_source_elf(f, &options, &s, NULL))
		exit(1);
	uint64_t start = clock_monotonic_ns();
	vec_each(list, address) {
		struct symbol_answer answer = symbol_resolve(s, *address);
		named += answer.count != 0;
		levels += answer.count;
	}
	uint64_t ns = clock_monotonic_ns() - start;

	getrusage(RUSAGE_SELF, &usage);
	print_cost(no_inlines ? "sonde, names" : "sonde, inlines", list, ns, &usage);
	printf("%-22s %zu named, %zu levels\n", "", named, levels);
	symbol_source_free(s);
	elf_file_free(f);
}

static void in_child(const char *path, const struct address_list *list, bool no_inlines)
{
	fflush(stdout);
	pid_t pid = fork();

	if (!pid) {
		resolve_all(path, list, no_inlines);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void feed_peer(const char *peer, const char *path, const struct address_list *list)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return;
	fflush(stdout);
	uint64_t start = clock_monotonic_ns();
	pid_t pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_WRONLY);
		dup2(ends[0], 0);
		dup2(null, 1);
		dup2(null, 2);
		execlp(peer, peer, "-i", "-f", "-C", "-e", path, (char *)NULL);
		_exit(127);
	}
	close(ends[0]);
	FILE *in = fdopen(ends[1], "w");
	vec_each(list, address)
		fprintf(in, "0x%llx\n", (unsigned long long)*address);
	fclose(in);

	int status;
	struct rusage usage;
	wait4(pid, &status, 0, &usage);
	uint64_t ns = clock_monotonic_ns() - start;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		printf("%-22s not installed\n", peer);
	else
		print_cost(peer, list, ns, &usage);
}

int main(int argc, char **argv)
{
	struct picker p = {.want = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000, .seed = 1};

	if (argc < 2) {
		fprintf(stderr, "usage: symbols FILE [N] [--no-peers]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	pick_addresses(argv[1], &p);
	if (!p.list.len) {
		fprintf(stderr, "%s: no sized functions to pick from\n", argv[1]);
		return 1;
	}
	printf("%s: %zu addresses out of %llu functions\n", argv[1], p.list.len,
		(unsigned long long)p.seen);
	in_child(argv[1], &p.list, true);
	in_child(argv[1], &p.list, false);
	if (argc < 4) {
		feed_peer("eu-addr2line", argv[1], &p.list);
		feed_peer("addr2line", argv[1], &p.list);
	}
	vec_release(&p.list);
	return 0;
}
