#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
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


@each_version
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


@later_versions
def refused(python):
    child = start(python.command + ["-c", "print('ready', flush=True); import time; time.sleep(1000)"],
                  env=python.environment())
    done = sonde("stack", "--json", child.pid)
    expect(done, 0, "3.%d" % python.version[1])
    frames = [f for t in json.loads(done.stdout)["threads"] for f in t["frames"]]
    check(frames and not any("kind" in f for f in frames), "frames of a version that is not known")


main()
