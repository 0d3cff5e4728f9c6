/* SPDX-License-Identifier: BSD-2-Clause */
/* Names: of the programs of fixtures/make-symbols, of the kernel, of JIT maps, and demangled. */
#include "symbol_fixtures.h"
#include "test.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf/elf_file.h"
#include "symbol/debuginfod.h"
#include "symbol/name_table.h"
#include "symbol/symbol.h"

struct opened {
	struct elf_file *file;
	struct symbol_source *source;
};

static struct opened open_with(const char *name, struct symbol_elf_options options)
{
	struct opened o = {0};
	struct err err = {0};
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", FIXTURES, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0);
	if (elf_file_open_fd(fd, path, &o.file, &err) ||
		symbol_source_elf(o.file, &options, &o.source, &err)) {
		printf("%s: %s\n", path, err.text);
		exit(1);
	}
	return o;
}

static void close_opened(struct opened *o)
{
	symbol_source_free(o->source);
	elf_file_free(o->file);
}

struct wanted {
	const char *name;
	uint64_t start;
};

static int note_start(void *ctx, const struct elf_symbol *sym)
{
	struct wanted *w = ctx;

	if (strcmp(sym->name, w->name))
		return 0;
	w->start = sym->start;
	return 1;
}

/* The address of a symbol in a fixture that still has its .symtab. */
static uint64_t address_in(const char *fixture, const char *symbol)
{
	struct opened o = open_with(fixture, (struct symbol_elf_options){.no_inlines = true});
	struct wanted w = {.name = symbol};

	check(elf_file_each_symbol(o.file, note_start, &w) == 1);
	close_opened(&o);
	return w.start;
}

static bool ends_with(const char *text, const char *end)
{
	size_t a = text ? strlen(text) : 0, b = strlen(end);

	return a >= b && !strcmp(text + a - b, end);
}

static void check_level(struct symbol_level level, const char *name, uint32_t line)
{
	check_str(level.name, name);
	check_u64(level.line, line);
	check(ends_with(level.file, "/chain.c"));
}

/* outer() > middle() > inner() with the lines of chain.c; `marks` has the symbols. */
static void check_chain(const char *fixture, const char *marks, struct symbol_elf_options options)
{
	struct opened o = open_with(fixture, options);
	struct symbol_answer a = symbol_resolve(o.source, address_in(marks, "mark_inner"));

	check_u64(a.count, 3);
	check(a.reason == SYMBOL_OK);
	if (a.count == 3) {
		check_level(a.levels[0], "inner", 10);
		check_level(a.levels[1], "middle", 17);
		check_level(a.levels[2], "outer", 22);
	}
	a = symbol_resolve(o.source, address_in(marks, "mark_outer"));
	check_u64(a.count, 1);
	if (a.count == 1)
		check_level(a.levels[0], "outer", 24);
	a = symbol_resolve(o.source, address_in(marks, "mark_hidden"));
	check_u64(a.count, 1);
	if (a.count == 1)
		check_level(a.levels[0], "hidden", 33);
	close_opened(&o);
}

TEST(inline_chains)
{
	struct symbol_elf_options plain = {.root = ""};

	check_chain("chain", "chain", plain);
	check_chain("chain-dwarf4", "chain-dwarf4", plain);
	check_chain("chain-zlib", "chain", plain);
	check_chain("chain-zlib-gnu", "chain", plain);
	check_chain("links/chain", "chain", plain);
	check_chain("split/chain", "split/chain", plain);
	plain.debug_dir = FIXTURES "/debug";
	check_chain("chain-build-id", "debug/.build-id/01/23456789abcdef.debug", plain);
}

TEST(shared_dwz_file)
{
	struct symbol_elf_options plain = {.root = ""};

	if (access(FIXTURES "/dwz/common", R_OK)) {
		skip("built without dwz");
		return;
	}
	check_chain("dwz/chain", "chain", plain);
}

/* Off unless asked for, also when the environment names a server. */
TEST(debuginfod_server)
{
	struct symbol_elf_options options = {.root = ""};
	char cache[] = "/tmp/sonde-test-XXXXXX", command[64];

	check(mkdtemp(cache) != NULL);
	setenv("DEBUGINFOD_URLS", "file://" FIXTURES "/debuginfod/", 1);
	setenv("DEBUGINFOD_CACHE_PATH", cache, 1);
	const char *marks = "debug/.build-id/01/23456789abcdef.debug";
	struct opened o = open_with("chain-build-id", options);
	check(!symbol_resolve(o.source, address_in(marks, "mark_hidden")).count);
	close_opened(&o);
	options.debuginfod = true;
	if (debuginfod_is_there())
		check_chain("chain-build-id", marks, options);
	else
		skip("libdebuginfod is not installed");
	snprintf(command, sizeof(command), "rm -rf %s", cache);
	check(!system(command));
}

TEST(names_without_inlines)
{
	struct symbol_elf_options options = {.root = "", .no_inlines = true};
	struct opened o = open_with("chain", options);
	uint64_t address = address_in("chain", "mark_inner");
	struct symbol_answer a = symbol_resolve(o.source, address);

	check_u64(a.count, 1);
	check_str(a.levels[0].name, "outer");
	check(!a.levels[0].file && !a.levels[0].line);
	struct symbol_answer again = symbol_resolve(o.source, address);
	check(again.levels == a.levels && again.count == a.count);
	close_opened(&o);
}

TEST(lost_split_file)
{
	struct opened o = open_with("split-lost/chain", (struct symbol_elf_options){.root = ""});
	struct symbol_answer a =
		symbol_resolve(o.source, address_in("split-lost/chain", "mark_inner"));

	check_u64(a.count, 1);
	check_str(a.levels[0].name, "outer");
	check_u64(a.levels[0].line, 10); /* the line table is in the program itself */
	close_opened(&o);
}

TEST(symbols_of_minidebug)
{
	struct opened o = open_with("chain-mini", (struct symbol_elf_options){.root = ""});
	struct symbol_answer a = symbol_resolve(o.source, address_in("chain", "mark_hidden"));

	check_u64(a.count, 1);
	check(a.count && !strcmp(a.levels[0].name, "hidden"));
	close_opened(&o);
}

/* hidden() has no symbol: neither the unsized one before it nor the sized one after get it. */
TEST(neighbours_take_no_blame)
{
	struct opened o = open_with("chain-stripped", (struct symbol_elf_options){.root = ""});
	uint64_t address = address_in("chain-exported", "mark_hidden");
	struct symbol_answer a = symbol_resolve(o.source, address);

	check_u64(a.count, 0);
	check(a.reason == SYMBOL_NO_SYMBOLS);
	a = symbol_resolve(o.source, address_in("chain-exported", "bare") + 1);
	check_u64(a.count, 1);
	check(a.reason == SYMBOL_NEAREST && a.count && !strcmp(a.levels[0].name, "bare"));
	a = symbol_resolve(o.source, address_in("chain-exported", "mark_outer"));
	check(a.reason == SYMBOL_OK && a.count == 1 && !strcmp(a.levels[0].name, "outer"));
	a = symbol_resolve(o.source, 1ULL << 40);
	check(!a.count && a.reason == SYMBOL_NO_SYMBOLS);
	close_opened(&o);
}

/* _init has no size and .plt comes right behind its section. */
TEST(unsized_symbols_end_with_their_section)
{
	struct opened o = open_with("chain", (struct symbol_elf_options){.root = ""});
	uint64_t init = address_in("chain", "_init");
	struct elf_section s;

	struct symbol_answer a = symbol_resolve(o.source, init + 4);
	check(a.count == 1 && !strcmp(a.levels[0].name, "_init"));
	check(elf_file_section(o.file, ".plt", &s));
	a = symbol_resolve(o.source, s.vaddr);
	check(!a.count || strcmp(a.levels[0].name, "_init"));
	close_opened(&o);
}

TEST(stubs)
{
	static const char *const sections[] = {".plt", ".plt.sec", ".plt.got"};
	struct opened o = open_with("chain-stripped", (struct symbol_elf_options){.root = ""});
	struct elf_section s;
	int found = 0;

	for (size_t i = 0; i < 3; i++) {
		if (!elf_file_section(o.file, sections[i], &s))
			continue;
		for (size_t at = 0; at < s.size; at += 4) {
			struct symbol_answer a = symbol_resolve(o.source, s.vaddr + at);
			found += a.count && !strcmp(a.levels[0].name, "getppid@plt");
		}
	}
	check(found >= 2); /* several addresses of one stub */
	close_opened(&o);
}

TEST(scopes_and_templates)
{
	struct opened o = open_with("scopes", (struct symbol_elf_options){.root = ""});
	struct symbol_answer a = symbol_resolve(o.source, address_in("scopes", "mark_add"));

	check_u64(a.count, 2);
	if (a.count == 2) {
		check_str(a.levels[0].name, "shop::basket<long>::add(long)");
		check_u64(a.levels[0].line, 9);
		check_str(a.levels[1].name, "shop::fill(shop::basket<long>&, long)");
		check_u64(a.levels[1].line, 16);
	}
	close_opened(&o);
}

/* What this very process calls resolves to what it is called. */
TEST(c_library)
{
	struct elf_file *f;
	struct symbol_source *s;
	struct symbol_elf_options options = {.root = ""};
	int fd = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		skip("no /lib/x86_64-linux-gnu/libc.so.6");
		return;
	}
	check(!elf_file_open_fd(fd, "/lib/x86_64-linux-gnu/libc.so.6", &f, NULL));
	check(!symbol_source_elf(f, &options, &s, NULL));
	struct wanted w = {.name = "qsort"};
	check(elf_file_each_symbol(f, note_start, &w) == 1);
	struct symbol_answer a = symbol_resolve(s, w.start + 4);
	check(a.count >= 1 && !strcmp(a.levels[a.count - 1].name, "qsort"));
	symbol_source_free(s);
	elf_file_free(f);
}

static int add_symbol(struct name_table *t, uint64_t start, uint64_t size, const char *name,
	uint8_t binding, uint8_t type)
{
	struct elf_symbol sym = {start, start + size, name, type, binding, STV_DEFAULT, false};

	return name_table_add(t, &sym);
}

static const char *found_name(const struct name_table *t, uint64_t address)
{
	const struct name_entry *e = name_table_find(t, address);

	return e ? e->name : "(none)";
}

TEST(table_of_names)
{
	struct name_table t = {0};

	check(sizeof(struct name_entry) <= 24);
	check_str(found_name(&t, 5), "(none)");
	check(!add_symbol(&t, 100, 50, "local_name", STB_LOCAL, STT_FUNC));
	check(!add_symbol(&t, 100, 50, "__global_name", STB_GLOBAL, STT_FUNC));
	check(!add_symbol(&t, 100, 50, "global_name", STB_GLOBAL, STT_FUNC));
	check(!add_symbol(&t, 100, 50, "a_weak", STB_WEAK, STT_FUNC));
	check(!add_symbol(&t, 100, 0, "a", STB_GLOBAL, STT_FUNC));
	check(!add_symbol(&t, 110, 0, "label", STB_GLOBAL, STT_NOTYPE));
	check(!add_symbol(&t, 120, 10, "inside", STB_LOCAL, STT_FUNC));
	check(!add_symbol(&t, 200, 0, "unsized", STB_LOCAL, STT_FUNC));
	check(!add_symbol(&t, 300, 10, "last", STB_LOCAL, STT_FUNC));
	check(!add_symbol(&t, ~0ULL - 5, 5, "top", STB_LOCAL, STT_FUNC));
	name_table_finish(&t);
	check_str(found_name(&t, 99), "(none)");
	check_str(found_name(&t, 100), "global_name");
	check_str(found_name(&t, 112), "global_name");
	check_str(found_name(&t, 125), "inside");
	check_str(found_name(&t, 130), "global_name");
	check_str(found_name(&t, 149), "global_name");
	check_str(found_name(&t, 150), "(none)");
	check_str(found_name(&t, 250), "unsized");
	check_str(found_name(&t, 309), "last");
	check_str(found_name(&t, 310), "(none)");
	check_str(found_name(&t, ~0ULL - 1), "top");
	name_table_release(&t);
}

static const char *name_at(struct symbol_source *s, uint64_t address)
{
	struct symbol_answer a = symbol_resolve(s, address);

	return a.count ? a.levels[0].name : symbol_reason_text(a.reason);
}

TEST(kernel_text)
{
	static const char text[] = "0000000000000000 A __per_cpu_start\n"
				   "ffffffff81000000 T _stext\n"
				   "ffffffff81000100 t do_one\n"
				   "ffffffff81000100 T do_one_alias\n"
				   "garbage line\n"
				   "ffffffff81000200 W weak_one\n"
				   "ffffffff81000300 D data_begins\n"
				   "ffffffffc0000000 t helper\t[loop]\n"
				   "ffffffffc0000100 t last_one\t[loop]";
	struct symbol_source *s = NULL;
	struct err err = {0};

	check(!symbol_source_kernel_text(text, sizeof(text) - 1, &s, &err));
	check_str(name_at(s, 0xffffffff81000180), "do_one");
	check_str(name_at(s, 0xffffffff81000200), "weak_one");
	check_str(name_at(s, 0xffffffff81000300), "stripped");
	check_str(name_at(s, 0xffffffffc00000ff), "helper [loop]");
	check_str(name_at(s, 0xffffffffc0000101), "last_one [loop]");
	check_str(name_at(s, 0xffffffffd0000000), "stripped");
	check_str(name_at(s, 0x1000), "stripped");
	symbol_source_free(s);

	static const char hidden[] = "0000000000000000 T _stext\n0000000000000000 T do_one\n";
	check(symbol_source_kernel_text(hidden, sizeof(hidden) - 1, &s, &err) == -EPERM);
	check(strstr(err.text, "kptr_restrict"));
	check(symbol_source_kernel_text("", 0, &s, &err) == -ENOENT);
}

TEST(kernel_of_this_machine)
{
	struct symbol_source *s = NULL;
	struct err err = {0};
	int rc = symbol_source_kernel(&s, &err);

	if (rc) {
		check((rc == -EPERM && strstr(err.text, "kptr_restrict")) || rc == -ENOENT);
		skip("kernel addresses are hidden here");
		return;
	}
	symbol_source_free(s);
}

static struct symbol_source *map_of(const char *text)
{
	struct symbol_source *s = NULL;

	check(!symbol_source_perf_map_text(text, strlen(text), &s, NULL));
	return s;
}

TEST(perf_map_overlaps)
{
	struct symbol_source *s = map_of("1000 100 old\n"
					 "1040 20 new one\n"
					 "2000 10 first\n"
					 "2000 20 second\n"
					 "3000 100 outer\n"
					 "2ff0 20 late\n"
					 "0x4000 0x10 prefixed\n"
					 "5000 10 _ZN3foo3barEv\n"
					 "6000 10 JS:*f /app/node_modules/@x/y.js:1:2");

	check_str(name_at(s, 0xfff), "stripped");
	check_str(name_at(s, 0x103f), "old");
	check_str(name_at(s, 0x1040), "new one");
	check_str(name_at(s, 0x105f), "new one");
	check_str(name_at(s, 0x1060), "old");
	check_str(name_at(s, 0x10ff), "old");
	check_str(name_at(s, 0x1100), "stripped");
	check_str(name_at(s, 0x2005), "second");
	check_str(name_at(s, 0x201f), "second");
	check_str(name_at(s, 0x2ff0), "late");
	check_str(name_at(s, 0x300f), "late");
	check_str(name_at(s, 0x3010), "outer");
	check_str(name_at(s, 0x4001), "prefixed");
	check_str(name_at(s, 0x500f), "foo::bar()");
	check_str(name_at(s, 0x6000), "JS:*f /app/node_modules/@x/y.js:1:2");
	symbol_source_free(s);
}

TEST(perf_map_garbage)
{
	struct symbol_source *s = map_of("\n\n1000\n1000 10\n1000 10 \nzz 10 x\n1000 zz x\n"
					 "fffffffffffffff0 20 wraps\n1000 0 empty\n"
					 "11112222333344445 1 too long\n6000 8 good\r\n7000 8 cut");

	check_str(name_at(s, 0x1000), "stripped");
	check_str(name_at(s, 0xfffffffffffffff8), "stripped");
	check_str(name_at(s, 0x6000), "good\r");
	check_str(name_at(s, 0x7007), "cut");
	symbol_source_free(s);
	s = map_of("");
	check_str(name_at(s, 0), "stripped");
	symbol_source_free(s);
}

/* Against the obvious slow way: the last line that covers each address. */
TEST(perf_map_random)
{
	struct {
		unsigned start, size;
	} lines[200];
	char text[200 * 32];
	size_t len = 0;
	unsigned seed = 7;

	for (unsigned i = 0; i < 200; i++) {
		seed = seed * 1103515245 + 12345;
		lines[i].start = 16 + (seed >> 16) % 1000;
		seed = seed * 1103515245 + 12345;
		lines[i].size = 1 + (seed >> 16) % 60;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%x %x f%u\n",
			lines[i].start, lines[i].size, i);
	}
	struct symbol_source *s = map_of(text);

	for (unsigned address = 0; address < 1100; address++) {
		char want[16] = "stripped";

		for (unsigned i = 0; i < 200; i++)
			if (address - lines[i].start < lines[i].size)
				snprintf(want, sizeof(want), "f%u", i);
		check_str(name_at(s, address), want);
	}
	symbol_source_free(s);
}

static int write_map(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);

	return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd);
}

TEST(perf_map_of_ourselves)
{
	struct symbol_source *s = NULL;
	struct err err = {0};
	char path[64], target[80];

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	snprintf(target, sizeof(target), "%s.target", path);
	unlink(path);
	check(symbol_perf_map_open(getpid(), &err) == -ENOENT);
	check(!write_map(path, "1000 10 jitted\n"));
	int fd = symbol_perf_map_open(getpid(), &err);
	check(fd >= 0);
	check(!symbol_source_perf_map(fd, &s, &err));
	check_str(name_at(s, 0x1001), "jitted");
	symbol_source_free(s);
	check(!symbol_source_perf_map(fd, &s, &err)); /* and once more from its start */
	check_str(name_at(s, 0x1001), "jitted");
	symbol_source_free(s);
	close(fd);

	if (!geteuid()) {
		check(!chown(path, 12345, 12345));
		check(symbol_perf_map_open(getpid(), &err) == -EPERM);
		check(strstr(err.text, "12345"));
	}
	check(!rename(path, target) && !symlink(target, path));
	check(symbol_perf_map_open(getpid(), &err) == -EPERM);
	check(!unlink(path) && !unlink(target) && !mkfifo(path, 0600));
	check(symbol_perf_map_open(getpid(), &err) == -EPERM);
	check(!unlink(path));
}

TEST(demangling)
{
	static const struct {
		const char *mangled, *plain;
	} rows[] = {
		{"main", "main"},
		{"", ""},
		{"_start", "_start"},
		{"_Z", "_Z"},
		{"_Znonsense", "_Znonsense"},
		{"_Z3fooi", "foo(int)"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi",
			"std::vector<int, std::allocator<int> >::push_back(int const&)"},
		{"_Z3maxIiET_S0_S0_", "max<int>(int, int)"},
		{"_ZN3fooC2Ev", "foo::foo()"},
		{"_ZZN1aC4EvENKUlvE_clEv.cold",
			"a::a()::{lambda()#1}::operator()() const [clone .cold]"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"},
		{"_RNvMCsdYIDT8dqzgw_4demoNtB2_3Foo3bar", "<demo::Foo>::bar"},
		{"_D4test3fooFiZi", "test.foo(int)"},
		{"__pyx_pw_4demo_5Klass_1meth", "demo.Klass.meth"},
		{"__pyx_pw_4demo_1fact_helper", "demo.fact_helper"},
		{"__pyx_pf_4demo_5outer_inner", "demo.outer.inner"},
		{"__pyx_f_4demo_cfib", "demo.cfib"},
		{"__pyx_pymod_create", "__pyx_pymod_create"},
		{"__pyx_f_", "__pyx_f_"},
		{"__pyx_f_4demo_", "__pyx_f_4demo_"},
		{"__pyx_f_99999999999999999999999_x", "__pyx_f_99999999999999999999999_x"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *plain = symbol_demangle(rows[i].mangled);
		check_str(plain, rows[i].plain);
		free(plain);
	}
}

/* f(P0, P1, ...) with each parameter a function of two of the one before: doubles 22 times. */
TEST(demangling_is_bounded)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char mangled[20000] = "_Z1fPFvvE";
	size_t len = strlen(mangled);

	for (unsigned i = 0; i < 22; i++) {
		char ref[4] = {0};
		unsigned n = 2 * i;

		if (n >= 36)
			snprintf(ref, sizeof(ref), "%c%c", digits[n / 36], digits[n % 36]);
		else
			snprintf(ref, sizeof(ref), "%c", digits[n]);
		len += (size_t)snprintf(mangled + len, sizeof(mangled) - len, "PFvS%s_S%s_E",
			i ? ref : "0", i ? ref : "0");
	}
	char *plain = symbol_demangle(mangled);
	check_u64(strlen(plain), 4096);
	check(!strncmp(plain, "f(void (*)()", 12) && ends_with(plain, "..."));
	free(plain);

	memset(mangled + 2, 'P', 17000);
	mangled[17002] = '\0';
	plain = symbol_demangle(mangled);
	check_str(plain, mangled);
	free(plain);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(inline_chains), T(shared_dwz_file),
		T(debuginfod_server), T(names_without_inlines), T(lost_split_file),
		T(symbols_of_minidebug), T(neighbours_take_no_blame),
		T(unsized_symbols_end_with_their_section), T(stubs),
		T(scopes_and_templates), T(c_library), T(table_of_names), T(kernel_text),
		T(kernel_of_this_machine), T(perf_map_overlaps), T(perf_map_garbage),
		T(perf_map_random), T(perf_map_of_ourselves), T(demangling),
		T(demangling_is_bounded));
}
