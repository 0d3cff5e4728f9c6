#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Python frames in stacks, on every CPython that can be had: the interpreter's own word is what they are compared
with, frame by frame and line by line."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from known import *
from pythons import missing, pythons

# Functions of the interpreter that nobody wants to see between the frames of a program.
MACHINERY = ("_PyEval_EvalFrame", "PyEval_EvalCode", "_PyEval_Vector", "_PyFunction_Vectorcall", "_PyObject_Vectorcall",
             "PyObject_Vectorcall", "_PyObject_MakeTpCall", "pymain_run", "Py_RunMain", "Py_BytesMain")


def each_python(function):
    """The test with each interpreter that sonde should know."""
    def of(python):
        def body():
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)
    for python in pythons():
        if "later" not in python.kinds:
            of(python)


@test
def interpreters():
    """Not a test: which there are."""
    for python in pythons():
        print(python)
    for label, reason in missing():
        print("missing: %s: %s" % (label, reason))


@each_python
def known_stacks(python):
    with Known(python, "all") as known:
        if known.missing:
            print("not on %s: %s (%s)" % (python.label, " ".join(sorted(known.missing)),
                                          sorted(set(known.missing.values()))[0]))
        known.check_stacks(stacks_of(known.pid))


@each_python
def interpreter_hidden(python):
    """Its own functions are shown on request only, and the Python frames are the same then."""
    with Known(python, "native", "calls") as known:
        plain, full = stacks_of(known.pid), stacks_of(known.pid, "--show-interpreter")
        known.check_stacks(full)
        shown = {f["function"] for stack in plain.values() for f in stack["frames"] if "kind" not in f}
        bad = sorted(name for name in shown if name.startswith(MACHINERY))
        check(not bad, "shown without having been asked for: %s" % bad)
        more = sum(len(s["frames"]) for s in full.values()) - sum(len(s["frames"]) for s in plain.values())
        check(more >= len(known.threads), "--show-interpreter shows %d frames more" % more)


@each_python
def after_fork(python):
    """Child and parent have the same addresses, and stacks of their own."""
    with Known(python, "fork", "calls", processes=2) as known:
        for process in known.processes:
            known.check_stacks(stacks_of(process["pid"]), process)


@each_python
def after_exec(python):
    with Known(python, "exec", "blocked") as known:
        known.check_stacks(stacks_of(known.pid))


@each_python
def in_a_signal_handler(python):
    with Known(python, "signal") as known:
        stacks = stacks_of(known.pid)
        known.check_stacks(stacks)
        names = [f["function"] for f in stacks[known.pid]["frames"] if f.get("kind") == "python"]
        check("handler" in names, "%s" % names)


@each_python
def changes_are_seen(python):
    """One look after the other at threads that run: every stack is one that the program can have."""
    with Known(python, "running") as known:
        seen = set()
        for _ in range(20):
            stacks = stacks_of(known.pid)
            known.check_stacks(stacks)
            seen |= {f["function"] for s in stacks.values() for f in s["frames"][:3]}
        check("crunch" in seen, "crunch is in none of: %s" % sorted(seen))
        known.check_looks(60)


@each_python
def running_threads_stopped(python):
    with Known(python, "running") as known:
        for _ in range(10):
            known.check_stacks(stacks_of(known.pid, "--stop-running"))
        known.check_looks(30)


@each_python
def of_a_core(python):
    need("gcore")
    with Known(python, "calls", "native") as known:
        path = work("core")
        done = run(["gcore", "-o", path, str(known.pid)], timeout=120)
        check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
        if "chroot" in python.kinds:
            known.check_stacks(stacks_of(None, "--core", "%s.%d" % (path, known.pid), "--root", python.root))
        else:
            known.check_stacks(stacks_of(None, "--core", "%s.%d" % (path, known.pid)))


def unknown_versions():
    def of(python):
        def body():
            with Known(python, "blocked") as known:
                done = sonde("stack", "--json", known.pid)
                expect(done, 0, "3.%d" % python.version[1])
                frames = [f for t in json.loads(done.stdout)["threads"] for f in t["frames"]]
                check(frames and not any("kind" in f for f in frames), "frames of a version that is not known")
        body.__name__ = "refused_%s" % python.label.replace("-", "_").replace(".", "_")
        test(body)
    for python in pythons():
        if "later" in python.kinds:
            of(python)


unknown_versions()
main()
