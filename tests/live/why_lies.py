#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Processes whose memory lies, changes and goes away while it is looked at: sonde answers all the same, in time,
and they never notice. With the sanitizers where there is such a build."""
import json
import os
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import harness
from harness import *

SANITIZED = os.path.join(ROOT, "build-test", "asan", "sonde")
if os.path.exists(SANITIZED) and "SONDE" not in os.environ:
    harness.SONDE = SANITIZED

ROUNDS = 10 # for each of five sorts of lies
COMMANDS = [["why"], ["why", "--all"], ["why", "--json", "--all"], ["why", "--dot", "--all"], ["stack"],
            ["stack", "--json"]]

# What a terminal may take for a command: all controls but the end of a line, also those of U+0080 to U+009F.
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
STRING = re.compile(r'"(?:[^"\\\n]|\\[n"\\])*"')


def check_output(command, out):
    text = out.decode() # it is UTF-8, or else this fails
    bad = CONTROLS.search(text)
    check(not bad, "%s prints %r" % (command, text[max(0, bad.start() - 40):bad.start() + 40] if bad else ""))
    check(text.strip(), "%s says nothing" % command)
    if "--json" in command:
        got = json.loads(out.decode())
        check(got["threads"], "%s" % got)
    if "--dot" in command:
        rest = STRING.sub("", text)
        check('"' not in rest and rest.count("{") == rest.count("}") == 1, text)


def look_often(pid):
    for _ in range(ROUNDS):
        for command in COMMANDS:
            # The deadline is the harness's: one that does not end fails.
            done = sonde(*command, pid, timeout=30)
            expect(done, 0)
            check_output(command, done.stdout)


def lie(what):
    def body():
        # What is in the name of the program is in the names of its mappings.
        path = work("\x1b[31mli\xc2\x9bar\n\"")
        shutil.copy(program("liar"), path)
        child = start([path, what], stdin=subprocess.PIPE)
        look_often(child.pid)
        check(alive(child), "the process has ended with status %s" % child.poll())
        child.stdin.close()
        said = child.stdout.read().decode()
        check(child.wait() == 0, "interrupted, or ended in another way (%s): %s" % (child.returncode, said))
        if what != "exec":
            check(int(said.split()[0]) > 100, "it has made %s calls" % said)
    body.__name__ = "a_process_that_lies_by_" + what
    test(body)


for what in ("locks", "lists", "pages", "storm", "exec"):
    lie(what)

main()
