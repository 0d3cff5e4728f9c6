#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Everything at once: the whole machine, one cgroup, and what is gone before anyone can look."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def cgroup():
    """A new cgroup (v2) of this test, as a path; empty again when the test has ended."""
    need_root()
    for mounted in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(mounted + "/cgroup.controllers"):
            path = "%s/sonde-test-%d" % (mounted, os.getpid())
            os.makedirs(path + "/inner", exist_ok=True)
            return path
    skip("no cgroup v2 is mounted")


def start_in(path, command):
    return start(["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', path] + command)


def leave(path, *children):
    for child in children:
        child.kill()
        child.wait()
    os.rmdir(path + "/inner")
    os.rmdir(path)


@test
def one_cgroup_and_those_below_it():
    path = cgroup()
    inside = start_in(path, [program("split"), "10000000", "20000"])
    below = start_in(path + "/inner", [program("recurse"), "50", "20000"])
    outside = start([program("split"), "10000000", "20000"])
    try:
        got = recording(["-F", "499", "--cgroup", os.path.basename(path), "-d", "2"])
    finally:
        leave(path, inside, below)
    pids = {thread["pid"] for thread in got.json["threads"] if thread["samples"]}
    check(pids == {inside.pid, below.pid}, "%s, inside %d, below %d, outside %d"
          % (pids, inside.pid, below.pid, outside.pid))
    check(got.count("heavy") and got.deepest("descend") == 50, "stacks are missing")
    check(got.json["quality"]["rooted_pct"] > 97, str(got.json["quality"]))


@test
def a_process_that_enters_the_cgroup_later():
    path = cgroup()
    late = start(["sh", "-c", 'sleep 1; echo $$ > "$0/cgroup.procs" && exec "$@"', path,
                  program("split"), "10000000", "20000"], ready=False)
    try:
        got = recording(["-F", "499", "--cgroup", path, "-d", "3"])
    finally:
        leave(path, late)
    check(abs(got.share("heavy") - 70) < 6, "heavy has %.1f %%" % got.share("heavy"))


@test
def not_a_cgroup():
    need_root()
    done = sonde("record", "--cgroup", "no/such/group", "-d", "1", "-o", work("out.sonde"))
    expect(done, 1, "no/such/group", "/sys/fs/cgroup")
    check(not os.path.exists(work("out.sonde")), "an empty recording stays behind")


def short_ones(path, count):
    """A shell that runs the program `count` times, 20 ms of CPU time each, one after another."""
    return ["sh", "-c", 'i=0; while [ $i -lt %d ]; do "%s" 1000000 20 >/dev/null; i=$((i + 1)); done'
            % (count, path)]


def check_named(got, module):
    """Of what was sampled in the module's own code, all has names, and it is as much as it ran."""
    inside = [f for f in got.json["functions"] if f["module"] == module and f["self"]]
    total = sum(f["self"] for f in inside)
    named = sum(f["self"] for f in inside if "unresolved" not in f)
    check(total > 100, "%d samples in %s" % (total, module))
    check(named >= 0.98 * total, "%d of %d in %s have a name" % (named, total, module))


@test
def short_processes_of_the_whole_machine():
    """Each is gone before its samples are looked at; and so is the program's file, in the end."""
    need_root()
    path = work("short-lived")
    shutil.copy(program("split"), path)
    child = start(short_ones(path, 60), ready=False)
    got = recording(["-F", "999", "-a", "-d", "1.5"])
    child.kill()
    os.unlink(path)
    check_named(got, "short-lived")
    check(got.json["quality"]["rooted_pct"] > 97, str(got.json["quality"]))


@test
def short_processes_in_a_container():
    """The same in a mount namespace of its own, with a file that exists only there."""
    need_mount_namespace()
    os.mkdir(work("mnt"))
    script = ('mount -t tmpfs none "%s" && cp "%s" "%s/only-here" && exec "$@"'
              % (work("mnt"), program("split"), work("mnt")))
    child = start(["unshare", "-m", "sh", "-c", script, "sh"] +
                  short_ones(work("mnt/only-here"), 60), ready=False)
    got = recording(["-F", "999", "-a", "-d", "1.5"])
    child.kill()
    check_named(got, "only-here")


main()
