#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
"""What src/python reads out of every CPython of this machine, against what that knows of itself."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import pythons

READER = os.path.join(os.path.dirname(SONDE), "tests", "unit", "read_python")
GROUPS = ["blocked", "running", "deep", "calls", "lines", "names", "native", "async"]


def started(python, groups):
    script = os.path.join(work(), "known_stacks.py")  # /tmp is the same in the roots of other distributions
    shutil.copyfile(os.path.join(PROGRAMS, "known_stacks.py"), script)
    child = start(python.command + [script] + groups, ready=False, stdin=subprocess.PIPE, env=python.environment())
    line = child.stdout.readline()
    check(line, "%s: known_stacks.py said nothing" % python.label)
    return child, json.loads(line)


def look(pid, rounds=1):
    done = run([READER, str(pid), str(rounds)])
    check(done.returncode == 0, "read_python failed: %s" % done.stderr)
    return json.loads(done.stdout)


def same_frame(python, got, want):
    """Up to 3.10 there are no qualified names."""
    names = (want["qualname"],) if python.version >= (3, 11) else (want["name"],)
    # What is no UTF-8 in the name of a file cannot be told apart any more.
    file = re.sub("[\ud800-\udfff]", "\ufffd", want["file"])
    lines = want["lines"] if "lines" in want else [want["line"]]
    return (got["qualname"] in names and got["file"] == file and got["line"] in lines
            and ("span" not in want or python.version < (3, 11) or got["span"] == want["span"]))


def same_stack(python, got, want):
    return len(got) == len(want) and all(same_frame(python, g, w) for g, w in zip(got, want))


def stacks_of(got, tid):
    """One thread may have been in several interpreters: the stack of the one goes on in that of the other."""
    parts = [t["frames"] for t in got["threads"] if t["id"] == tid and t["frames"]]
    yield sum(parts, [])
    yield sum(reversed(parts), [])


def brief(frames):
    return [(f["qualname"], f.get("line", f.get("lines")), f.get("span")) for f in frames][:12]


def wrong_threads(python, known, got):
    wrong = []
    for want in known["threads"]:
        stacks = want.get("either") or [want["frames"]]
        found = list(stacks_of(got, want["id"]))
        if not any(same_stack(python, one, stack) for one in found for stack in stacks):
            wrong.append("%s %s: %s, not %s" % (want["group"], want["what"], brief(found[0]), brief(stacks[0])))
    return wrong


def check_groups(python, groups):
    child, known = started(python, groups)
    for attempt in range(3):  # What runs may be caught between two frames.
        got = look(known["pid"])
        wrong = wrong_threads(python, known, got)
        if not wrong:
            break
    check(not wrong, "%s:\n%s" % (python.label, "\n".join(wrong)))
    check(got["version"].split()[0] == known["version"], "%s is called %s" % (python.label, got["version"]))
    check(any(t["main"] and t["id"] == known["pid"] for t in got["threads"]), "no main thread in %s" % python.label)
    child.kill()


def one_of_each():
    """One build of each version and kind: what a name of a file or a symbol could change is python_stacks.py's."""
    seen = set()
    for python in pythons():
        key = (python.version[:2], python.kinds & {"free-threaded", "musl"} == set() or python.label)
        if not python.kinds & {"later", "bare"} and key not in seen:
            seen.add(key)
            yield python


def of_one(python):
    def stacks():
        check_groups(python, GROUPS)

    def several():
        if (3, 13, 0) <= python.version < (3, 13, 6):
            skip("this CPython dies of it by itself")
        check_groups(python, ["interpreters"])

    name = re.sub("[-.]", "_", python.label)
    stacks.__name__, several.__name__ = "read_" + name, "interpreters_" + name
    test(stacks)
    test(several)


if os.path.exists(READER):
    for one in one_of_each():
        of_one(one)
else:
    @test
    def stacks_are_read():
        skip("read_python is not built")
main()
