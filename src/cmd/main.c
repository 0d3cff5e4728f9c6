/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "elf/elf_file.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{"why", cmd_why, "what a process waits for, who has it, and what that one is doing"},
	{"stack", cmd_stack, "the stack of every thread, once"},
	{"heap", cmd_heap, "what holds the memory: who allocated it, what leaks, what is only churn"},
	{"record", cmd_record, "sample programs and write down where they spend their time"},
	{"report", cmd_report, "show where the time went, or the memory: text, JSON, a flame graph"},
	{"diff", cmd_diff, "what two recordings of allocations have different"},
	{"convert", cmd_convert, "write a recording in the format of another tool"},
	{"doctor", cmd_doctor, "what works on this machine, what does not, and what fixes it"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	fputs("Usage: sonde PID\n       sonde COMMAND [OPTIONS]\n\n"
	      "sonde shows where any running Linux program spends its time, and why it hangs.\n\n"
	      "Commands:\n", out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\nsonde help COMMAND explains one; sonde --version prints the version.\n"
	      "\nExamples:\n"
	      "  # A program hangs: why? (the same as sonde why 1234)\n"
	      "  sonde 1234\n"
	      "  # Ten seconds of a running program, then the answer\n"
	      "  sonde record -p 1234 -d 10 && sonde report\n"
	      "  # A flame graph of a program from its start to its end\n"
	      "  sonde record -- make && sonde report --svg -o make.svg\n",
		out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	fprintf(stderr, "sonde: unknown command '%s'\nTry \"sonde --help\".\n", name);
	return STATUS_USAGE;
}

static int help(const char *name)
{
	const struct command *command = name ? find_command(name) : NULL;

	if (name && !command)
		return unknown_command(name);
	if (command)
		return command->run(2, (char *[]){(char *)command->name, (char *)"--help", NULL});
	print_help(stdout);
	return cmd_finish_stdout("help");
}

static void nothing(int signal)
{
}

/*
 * A pipe whose reader has left must not kill us: `record` has a file to finish, and for `report |
 * head` enough has been said. A handler instead of SIG_IGN, because exec() resets handlers and
 * keeps SIG_IGN: the programs that `record` starts get the signal as they expect it.
 */
static void survive_closed_pipes(void)
{
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};

	sigaction(SIGPIPE, &action, NULL);
}

int main(int argc, char **argv)
{
	elf_guard_sigbus();
	survive_closed_pipes();
	if (argc < 2) {
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
		puts("sonde " SONDE_VERSION);
		return cmd_finish_stdout("version");
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(argc > 2 ? argv[2] : NULL);

	const struct command *command = find_command(argv[1]);

	if (argv[1][0] >= '0' && argv[1][0] <= '9')
		return cmd_why(argc, argv);
	return command ? command->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
