#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Command lines: what is printed where, and the three exit statuses."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

COMMANDS = ("why", "stack", "record", "report", "convert", "doctor")


def usage_error(*arguments, words=()):
    done = sonde(*arguments)
    expect(done, 2, *words)
    check(b"--help" in done.stderr, "no way to help is named: %r" % done.stderr)
    check(not done.stdout, "stdout has %r" % done.stdout)


@test
def help_goes_to_stdout():
    for arguments in (["--help"], ["help"], *([c, "--help"] for c in COMMANDS)):
        done = sonde(*arguments)
        expect(done, 0)
        check(done.stdout and not done.stderr, "%s: %r" % (arguments, done.stderr))


@test
def views_of_python():
    usage_error("report", "--python-only", "--native-only", words=["--python-only and --native-only"])
    path = work("plain.sonde")
    expect(sonde("record", "-q", "-d", "0.3", "-o", path, "--", program("split"), "100000000", "100"), 0)
    for option in ("--python-only", "--gil"):  # there is no Python in it
        done = sonde("report", option, "--folded", path)
        expect(done, 0)
        check(not done.stdout, "%s: %r" % (option, done.stdout))
    check(b"heavy" in sonde("report", "--native-only", "--folded", path).stdout, "it is left out")


@test
def every_command_shows_two_examples():
    for command in COMMANDS:
        said = sonde(command, "--help").stdout.decode()
        check(len(re.findall(r"^ +sonde %s" % command, said, re.M)) >= 2, "%s: %s" % (command, said))


@test
def help_fits_the_terminal():
    for command in COMMANDS:
        done = sonde(command, "--help", env=dict(os.environ, COLUMNS="80"))
        wide = [line for line in done.stdout.decode().splitlines() if len(line) > 80]
        check(not wide, "%s: %s" % (command, wide))


@test
def version():
    done = sonde("--version")
    expect(done, 0)
    check(re.match(rb"sonde \d+\.\d+\.\d+\n$", done.stdout), "%r" % done.stdout)


@test
def nonsense_is_status_2():
    usage_error("no-such-command", words=["no-such-command"])
    for command in COMMANDS:
        usage_error(command, "--no-such-option", words=["no-such-option"])


@test
def record_needs_one_target():
    usage_error("record")
    usage_error("record", "4711", words=["4711", "-p PID"])
    usage_error("record", "-p", "1", "-a")
    usage_error("record", "-p", "1", "--", "true")
    usage_error("record", "--", words=["command"])


@test
def record_refuses_bad_values():
    for bad in (["-F", "0"], ["-F", "x"], ["-F", "-5"], ["-F", "999999999"], ["-d", "0"], ["-d", "soon"],
                ["--stack-size", "10"], ["--stack-size", "1G"], ["--tid", "0"], ["-p", "x"],
                ["-p", "-3"], ["-p", "0"]):
        usage_error("record", "-o", work("x"), *bad, "--", "true")
        check(not os.path.exists(work("x")), "%s wrote a file" % bad)


@test
def samples_at_a_signal_exclude_the_rest():
    for more, words in ((["--wall"], ["--wall"]), (["-F", "99"], ["-F"]), (["-a"], ["-p PID"]),
                        (["--sampler", "perf"], ["ptrace"])):
        usage_error("record", "-o", work("x"), "--on-signal", "USR2", *more,
                    *([] if "-a" in more else ["--", "true"]), words=words)
    for bad in ("KILL", "SIGSTOP", "19", "NOSUCH", "0", "9999", "SEGV", "CHLD", "RTMIN+99"):
        usage_error("record", "-o", work("x"), "--on-signal", bad, "--", "true",
                    words=["--on-signal"])
    for good in ("usr2", "SIGUSR2", "12", "RTMIN+1", "winch"):
        check(sonde("record", "-o", work("x"), "--on-signal", good, "--", "true").returncode == 0,
              good)


@test
def a_bad_regex_is_status_2():
    usage_error("record", "-o", work("x"), "-t", "(", "--", "true", words=["("])
    usage_error("report", "-t", "[", work("x"), words=["["])


@test
def views_exclude_each_other():
    usage_error("report", "--json", "--svg", work("x"))


@test
def convert_names_its_formats():
    done = sonde("convert", work("a"), work("b"), "--to", "no-such-format")
    expect(done, 2, "no-such-format", "pprof", "speedscope", "folded")


@test
def a_reader_that_leaves_is_no_failure():
    path = work("a.sonde")
    expect(sonde("record", "-o", path, "--", program("split"), "10000000", "100"), 0)
    done = run(["sh", "-c", "'%s' report '%s' --dump | head -n 1; exit ${PIPESTATUS:-0}" % (SONDE, path)])
    expect(done, 0)
    check(not done.stderr, "%r" % done.stderr)


@test
def no_colour_outside_terminals():
    path = work("a.sonde")
    expect(sonde("record", "-o", path, "--", program("split"), "10000000", "100"), 0)
    for view in ([], ["--text"], ["--tree"], ["--json"], ["--folded"]):
        done = sonde("report", path, *view)
        expect(done, 0)
        check(b"\x1b[" not in done.stdout, "%s has colours" % view)


main()
