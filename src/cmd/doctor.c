/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sonde doctor [PID]: what works here, what does not, what that costs, and the command that fixes
 * it. The facts and their words come from os/rights.h; the files of a process are looked at here,
 * because only the commands may know about both processes and object files.
 *
 * Exit status 0: recording one's own processes (or the process asked for) works.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/term.h"
#include "base/vec.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "elf/elf_file.h"
#include "os/proc.h"
#include "os/rights.h"

struct doctor_args {
	bool json;
};

static const struct option_spec options[] = {
	OPTION_FLAG('j', "json", struct doctor_args, json, "the same for programs"),
	OPTIONS_END,
};

static const struct options_usage usage = {
	.command = "doctor",
	.arguments = "[PID]",
	.about = "Tries what recording needs on this machine (and on the process PID), and says "
		 "what does not work, what that costs, and which command fixes it.",
	.options = options,
	.examples = {
		{"What can sonde do here?", "sonde doctor"},
		{"Will the stacks of process 812 have names?", "sonde doctor 812"},
	},
	.max_arguments = 1,
};

/* Where the names of a mapped file would come from. */
enum file_names {
	NAMES_DEBUG,   /* DWARF: functions, inlined functions, file and line */
	NAMES_SYMTAB,  /* functions */
	NAMES_DYNAMIC, /* only what the file exports */
	NAMES_NONE,
	NAMES_UNREADABLE,
};

static const char *const names_text[] = {
	[NAMES_DEBUG] = "debug info",
	[NAMES_SYMTAB] = "symbols",
	[NAMES_DYNAMIC] = "exported names only",
	[NAMES_NONE] = "no names",
	[NAMES_UNREADABLE] = "cannot be read",
};

struct mapped_file {
	uint64_t inode, device;
	enum file_names names;
	bool has_cfi;
	char build_id[2 * 64 + 1];
	char path[256];
};
VEC_TYPE(file_vec, struct mapped_file);

struct diagnosis {
	struct right_vec machine, process;
	struct file_vec files;
	pid_t pid; /* 0: only the machine */
};

/* ---- the files of a process ---- */

static int count_symbol(void *ctx, const struct elf_symbol *sym)
{
	enum file_names *names = ctx;

	if (!sym->dynamic) {
		*names = NAMES_SYMTAB;
		return 1;
	}
	*names = NAMES_DYNAMIC;
	return 0;
}

static enum file_names names_in(struct elf_file *f)
{
	struct elf_section section;
	enum file_names names = NAMES_NONE;

	if (elf_file_section(f, ".debug_info", &section))
		return NAMES_DEBUG;
	(void)elf_file_each_symbol(f, count_symbol, &names);
	return names;
}

/* The better of the file itself, its separate debug file, and its .gnu_debugdata. */
static enum file_names names_around(struct elf_file *f, const char *root)
{
	enum file_names best = names_in(f);
	struct elf_file *debug = NULL;

	if (best != NAMES_DEBUG && !elf_file_open_debug(f, root, &debug, NULL) && debug) {
		enum file_names there = names_in(debug);

		best = there < best ? there : best;
		elf_file_free(debug);
	}
	debug = NULL;
	if (best > NAMES_SYMTAB && !elf_file_open_minidebug(f, &debug, NULL) && debug) {
		enum file_names there = names_in(debug);

		best = there < best ? there : best;
		elf_file_free(debug);
	}
	return best;
}

static void put_build_id(struct mapped_file *file, const struct elf_file *f)
{
	const uint8_t *id;
	size_t len = elf_file_build_id(f, &id);

	for (size_t i = 0; i < len && i < 64; i++)
		snprintf(file->build_id + 2 * i, 3, "%02x", id[i]);
}

static void look_into(pid_t pid, const struct proc_mapping *m, struct mapped_file *file)
{
	char root[32];
	struct elf_file *f = NULL;
	struct elf_section section;
	int fd = proc_open_mapped_file(pid, m, NULL);

	file->names = NAMES_UNREADABLE;
	if (fd < 0 || elf_file_open_fd(fd, m->path, &f, NULL))
		return;
	snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
	file->names = names_around(f, root);
	file->has_cfi = elf_file_section(f, ".eh_frame", &section) ||
			elf_file_section(f, ".debug_frame", &section);
	put_build_id(file, f);
	elf_file_free(f);
}

struct file_walk {
	pid_t pid;
	struct file_vec *files;
};

static int add_file(void *ctx, const struct proc_mapping *m)
{
	struct file_walk *walk = ctx;
	struct mapped_file file = {.inode = m->inode, .device = m->device};

	if (!m->exec || *m->path != '/')
		return 0;
	vec_each(walk->files, known)
		if (known->inode == m->inode && known->device == m->device)
			return 0;
	snprintf(file.path, sizeof(file.path), "%s%s", m->path, m->deleted ? " (deleted)" : "");
	look_into(walk->pid, m, &file);
	return vec_push(walk->files, file);
}

/* ---- what to do about missing names ---- */

/* Where the debug info of a distribution's files is. */
struct debug_source {
	const char *id;       /* ID of /etc/os-release */
	const char *server;   /* its public debuginfod */
	const char *packages; /* "": it has none */
};

#define DBGSYM "apt install PACKAGE-dbgsym (libc: libc6-dbg); dpkg -S FILE names the package"

/* That of the distribution we run on, NULL when we know none. */
static const struct debug_source *debug_source(void)
{
	static const struct debug_source sources[] = {
		{"debian", "https://debuginfod.debian.net", DBGSYM},
		{"ubuntu", "https://debuginfod.ubuntu.com", DBGSYM},
		{"fedora", "https://debuginfod.fedoraproject.org",
			"dnf debuginfo-install PACKAGE; rpm -qf FILE names the package"},
		{"arch", "https://debuginfod.archlinux.org", ""},
	};
	autofclose FILE *f = fopen("/etc/os-release", "re");
	char line[256], id[64] = "";

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "ID=%63[a-z]", id) == 1)
			break;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (!strcmp(id, sources[i].id))
			return &sources[i];
	return NULL;
}

static bool lacks_names(const struct mapped_file *file)
{
	return file->names == NAMES_DYNAMIC || file->names == NAMES_NONE;
}

/* The command that fetches the debug info of one file; "" when there is no way we know. */
static void names_fix(const struct mapped_file *file, char *buf, size_t size)
{
	const struct debug_source *source = debug_source();

	*buf = 0;
	if (!lacks_names(file) || !*file->build_id || !source)
		return;
	snprintf(buf, size, "DEBUGINFOD_URLS=%s debuginfod-find debuginfo %s", source->server,
		file->build_id);
}

/* ---- as text ---- */

static const char *state_word(enum right_state state)
{
	return state == RIGHT_YES ? "yes" : state == RIGHT_PARTLY ? "partly" : "no";
}

static const char *state_colour(enum right_state state)
{
	return state == RIGHT_YES ? "\033[32m" : state == RIGHT_PARTLY ? "\033[33m" : "\033[31m";
}

#define TEXT_INDENT 30
#define MIN_TEXT_COLUMNS 20

/* Bytes of `text` that go on a line: up to a space, or a word that is longer than the line. */
static size_t line_bytes(const char *text, size_t columns)
{
	size_t len = term_fit(text, columns);

	if (!text[len])
		return len;
	while (len && text[len] != ' ')
		len--;
	while (len && text[len - 1] == ' ')
		len--;
	return len ? len : strcspn(text, " ");
}

/* The rest of a line that stands at column `indent`, and as many lines below as it takes. */
static void print_wrapped(const char *text, size_t indent, const struct term *term)
{
	size_t columns = term->columns > indent + MIN_TEXT_COLUMNS ? term->columns - indent
								   : MIN_TEXT_COLUMNS;

	for (text += strspn(text, " "); *text;) {
		size_t len = line_bytes(text, columns);

		printf("%.*s\n", (int)len, text);
		text += len + strspn(text + len, " ");
		if (*text)
			printf("%*s", (int)indent, "");
	}
}

static void print_note(const char *what, const char *text, const struct term *term)
{
	if (!*text)
		return;
	printf("%9s  %-18s ", "", what);
	print_wrapped(text, TEXT_INDENT, term);
}

static void print_state(enum right_state state, const char *what, const struct term *term)
{
	const char *on = term->colour ? state_colour(state) : "";
	const char *off = term->colour ? "\033[0m" : "";

	printf("  %s%-7s%s%-20s ", on, state_word(state), off, what);
}

static void print_right(const struct right *r, const struct term *term)
{
	print_state(r->state, r->id, term);
	print_wrapped(*r->found ? r->found : "-", TEXT_INDENT, term);
	print_note("costs", r->cost, term);
	print_note("fix", r->fix, term);
}

static void print_file(const struct mapped_file *file, const struct term *term)
{
	bool bad = file->names == NAMES_UNREADABLE || file->names == NAMES_NONE;
	char text[320];

	print_state(bad ? RIGHT_NO : lacks_names(file) ? RIGHT_PARTLY : RIGHT_YES,
		names_text[file->names], term);
	snprintf(text, sizeof(text), "%s%s", file->path,
		file->has_cfi ? "" : " (no unwind tables)");
	print_wrapped(text, TEXT_INDENT, term);
}

/* One way for all of the files, where print_json() has a command for each. */
static void print_names_fix(const struct diagnosis *d, const struct term *term)
{
	const struct debug_source *source = debug_source();
	char text[200];
	size_t lacking = 0;

	vec_each(&d->files, file)
		lacking += lacks_names(file);
	if (!lacking || !source)
		return;
	snprintf(text, sizeof(text), "%zu file%s without debug info: sonde fetches it when told to%s",
		lacking, lacking == 1 ? "" : "s",
		*source->packages ? ", or install the packages that have it:" : ":");
	printf("\n  ");
	print_wrapped(text, 2, term);
	printf("    export DEBUGINFOD_URLS=%s\n", source->server);
	printf("    sonde record --debuginfod -p %d\n", (int)d->pid);
	if (*source->packages)
		printf("    %s\n", source->packages);
}

static void print_text(const struct diagnosis *d, bool works)
{
	struct term term = term_describe(STDOUT_FILENO);

	printf("This machine\n");
	vec_each(&d->machine, r)
		print_right(r, &term);
	if (d->pid) {
		printf("\nProcess %d\n", (int)d->pid);
		vec_each(&d->process, r)
			print_right(r, &term);
	}
	if (d->files.len) {
		printf("\nIts files: where names come from\n");
		vec_each(&d->files, file)
			print_file(file, &term);
		print_names_fix(d, &term);
	}
	if (d->pid)
		printf("\nRecording process %d %s.\n", (int)d->pid,
			works ? "works" : "does not work");
	else
		printf("\nRecording your own processes %s.\n", works ? "works" : "does not work");
}

/* ---- as JSON ---- */

static void put_member(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, ",\"%s\":", name);
	buf_json(b, value);
}

static void put_rights(struct buf *b, const char *name, const struct right_vec *rights)
{
	buf_printf(b, "\"%s\":[", name);
	vec_each(rights, r) {
		buf_str(b, r == rights->data ? "{\"id\":" : ",{\"id\":");
		buf_json(b, r->id);
		put_member(b, "state", state_word(r->state));
		buf_printf(b, ",\"needed\":%s", r->needed ? "true" : "false");
		put_member(b, "found", r->found);
		put_member(b, "cost", r->cost);
		put_member(b, "fix", r->fix);
		buf_char(b, '}');
	}
	buf_char(b, ']');
}

static void put_files(struct buf *b, const struct file_vec *files)
{
	char fix[320];

	buf_str(b, "\"files\":[");
	vec_each(files, file) {
		buf_str(b, file == files->data ? "{\"path\":" : ",{\"path\":");
		buf_json(b, file->path);
		put_member(b, "names", names_text[file->names]);
		put_member(b, "build_id", file->build_id);
		buf_printf(b, ",\"unwind_tables\":%s", file->has_cfi ? "true" : "false");
		names_fix(file, fix, sizeof(fix));
		put_member(b, "fix", fix);
		buf_char(b, '}');
	}
	buf_char(b, ']');
}

static int print_json(const struct diagnosis *d, bool works)
{
	struct buf b = {0};

	buf_printf(&b, "{\"works\":%s,\"pid\":%d,", works ? "true" : "false", (int)d->pid);
	put_rights(&b, "machine", &d->machine);
	buf_char(&b, ',');
	put_rights(&b, "process", &d->process);
	buf_char(&b, ',');
	put_files(&b, &d->files);
	buf_str(&b, "}\n");
	int rc = b.failed ? -ENOMEM : 0;
	if (!rc)
		fwrite(b.data, 1, b.len, stdout);
	buf_release(&b);
	return rc;
}

/* ---- the command ---- */

static bool all_needed_work(const struct right_vec *rights)
{
	vec_each(rights, r)
		if (r->needed && r->state == RIGHT_NO)
			return false;
	return true;
}

static int diagnose(struct diagnosis *d, struct err *err)
{
	struct file_walk walk = {.pid = d->pid, .files = &d->files};
	int rc = rights_probe_machine(&d->machine, err);

	if (rc || !d->pid)
		return rc;
	rc = rights_probe_process(d->pid, &d->process, err);
	if (rc)
		return rc;
	/* Maps that are closed to us are a finding, not a failure: the list of files stays empty. */
	rc = proc_each_mapping(d->pid, add_file, &walk, NULL);
	return rc == -ENOMEM ? err_nomem(err) : 0;
}

static int report(struct diagnosis *d, bool json)
{
	struct err err = {0};
	int rc = diagnose(d, &err);

	if (rc)
		return cmd_failed("doctor", &err);

	bool works = all_needed_work(d->pid ? &d->process : &d->machine);

	if (!json)
		print_text(d, works);
	else if (print_json(d, works))
		err_nomem(&err);
	if (err.code)
		return cmd_failed("doctor", &err);
	int status = cmd_finish_stdout("doctor");
	return status ? status : works ? STATUS_OK : STATUS_FAILED;
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_args args = {0};
	struct options_rest rest = {0};
	struct diagnosis d = {0};
	struct err err = {0};
	uint64_t pid = 0;
	int status = options_parse(&usage, argc, argv, &args, &rest);

	if (status != OPTIONS_RUN)
		return status;
	if (rest.count && (option_number(rest.args[0], &pid, &err) || !pid || pid > INT32_MAX))
		return options_complain(&usage, "\"%s\" is not a process id", rest.args[0]);
	d.pid = (pid_t)pid;
	status = report(&d, args.json);
	vec_release(&d.machine);
	vec_release(&d.process);
	vec_release(&d.files);
	return status;
}
