#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (it takes minutes)
"""Python stacks of processes that fork, exec, handle signals, run while they are looked at, or are dead."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from known import *


@each_version
def after_fork(python):
    """Child and parent have the same addresses, and stacks of their own."""
    with Known(python, "fork", "calls", processes=2) as known:
        for process in known.processes:
            known.check_stacks(stacks_of(process["pid"]), process)


@each_version
def after_exec(python):
    with Known(python, "exec", "blocked") as known:
        known.check_stacks(stacks_of(known.pid))


@each_version
def in_a_signal_handler(python):
    with Known(python, "signal") as known:
        stacks = stacks_of(known.pid)
        known.check_stacks(stacks)
        names = [f["function"] for f in stacks[known.pid]["frames"] if f.get("kind") == "python"]
        check("handler" in names, "%s" % names)


@each_version
def changes_are_seen(python):
    """One look after the other at threads that run: every stack is one that the program can have."""
    with Known(python, "running") as known:
        seen = set()
        for _ in range(10):
            stacks = stacks_of(known.pid)
            known.check_stacks(stacks)
            seen |= {f["function"] for s in stacks.values() for f in s["frames"][:3]}
        check("crunch" in seen, "crunch is in none of: %s" % sorted(seen))
        known.check_looks(30 if "free-threaded" in python.kinds else 60)


@each_version
def running_threads_stopped(python):
    with Known(python, "running") as known:
        for _ in range(10):
            known.check_stacks(stacks_of(known.pid, "--stop-running"))
        known.check_looks(30)


def inner_id(outer):
    """The id that a thread has in its own pid namespace; None when it has ended, as the one that reports does."""
    try:
        with open("/proc/%s/status" % outer) as f:
            return int(re.search(r"^NSpid:.*\s(\d+)$", f.read(), re.M).group(1))
    except (FileNotFoundError, ProcessLookupError):
        return None


@each_version
def in_a_pid_namespace(python):
    """Python knows its threads by ids that mean others outside: there they are 1, 2, 3..."""
    need_root()
    need("unshare")
    with Known(python, "calls", "blocked", within=["unshare", "-p", "-f", "--mount-proc", "--kill-child"]) as known:
        with open("/proc/%d/task/%d/children" % (known.child.pid, known.child.pid)) as f:
            pid = int(f.read().split()[0])
        known.check_stacks({inner_id(tid): stack for tid, stack in stacks_of(pid).items()})


@each_version
def of_a_core(python):
    need("gcore")
    if "chroot" in python.kinds:
        skip("gcore names no files of a process with another root")
    with Known(python, "calls", "native") as known:
        path = work("core")
        done = run(["gcore", "-o", path, str(known.pid)], timeout=120)
        check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
        known.check_stacks(stacks_of(None, "--core", "%s.%d" % (path, known.pid)))


main()
