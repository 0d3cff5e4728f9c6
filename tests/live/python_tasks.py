#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde stack --tasks on every CPython that can be had: what it says of tasks, against what the program itself knows."""
import os
import select
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import missing, pythons

SHOWN = 8  # differences that a failure prints


def known_pythons():
    return [p for p in pythons() if p.version >= (3, 8) and "later" not in p.kinds]


def each_python(function):
    """The test with each interpreter that sonde should know."""
    def of(python):
        def body():
            if "bare" in python.kinds:
                skip("it has no extension modules, and so no asyncio")
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)
    for python in known_pythons():
        of(python)


def script(python, name):
    path = work(name)
    if "chroot" in python.kinds and not path.startswith("/tmp/"):
        skip("only /tmp is the same inside")
    shutil.copy(os.path.join(PROGRAMS, name), path)
    return path


def line_of(child):
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(child.stdout.fileno(), 1 << 20) if select.select([child.stdout], [], [], 60)[0] else b""
        check(more, "it has nothing to say: %s" % child.poll())
        data += more
    return data


def started(python, name, *arguments):
    child = start(python.command + [script(python, name)] + list(arguments), ready=False, stdin=subprocess.PIPE,
                  env=python.environment())
    return child, json.loads(line_of(child))


def tasks_of(*arguments):
    done = sonde("stack", "--tasks", "--json", *arguments)
    expect(done, 0)
    return json.loads(done.stdout.decode())


def differences(python, told, got):
    """What of a task's frames is not as the interpreter has it."""
    key = "qualname" if python.version >= (3, 11) else "name"
    want = [(f[key], f["file"], f["line"]) for f in told["frames"]]
    have = [(f["function"], f["file"], f["line"]) for f in got["frames"]]
    if told["running"]:
        have = [f[0] for f in have]
        return [] if have == ["read_to_the_end", "main"] else ["its frames are %s" % have]
    if want == have:
        return []
    for i, (a, b) in enumerate(zip(want, have)):
        if a != b:
            return ["frame %d is %s, not %s" % (i, b, a)]
    return ["%d frames, not %d: %s" % (len(have), len(want), have)]


def names_of(found, ids):
    return sorted(found[i]["name"] if i in found else "?" for i in ids)


def compare(told, got, found, known):
    """State, reason and neighbours."""
    wrong, wait = [], got["wait"] or {}
    state = "running" if told["running"] else "ready" if told.get("ready") else "waiting"
    if told["kind"] is None and state == "waiting":
        return []
    if got["state"] != state:
        wrong.append("it is %s, not %s" % (got["state"], state))
    if state == "waiting" and wait.get("kind") != told["kind"]:
        wrong.append("it waits for %s, not %s" % (wait, told["kind"]))
    awaits = sorted(n if n in known else "?" for n in names_of(found, got["awaits"]))
    if awaits != sorted(told["awaits"]):
        wrong.append("it awaits %s, not %s" % (awaits, told["awaits"]))
    if names_of(found, wait.get("held_by", [])) != told["held_by"]:
        wrong.append("held by %s, not %s" % (names_of(found, wait.get("held_by", [])), told["held_by"]))
    if "fd" in told and wait.get("fd") != told["fd"]:
        wrong.append("fd %s, not %d" % (wait.get("fd"), told["fd"]))
    if "left" in told and not told["left"] - 120 < wait.get("left_ns", 0) / 1e9 <= told["left"]:
        wrong.append("%s is left of %d s" % (wait.get("left_ns"), told["left"]))
    if "worker" in told and (told["worker"] not in wait["what"] or "tid" not in wait):
        wrong.append("no worker that runs %s: %s" % (told["worker"], wait))
    for i in got["awaits"]:
        if got["id"] not in found[i]["awaited_by"]:
            wrong.append("%s does not know that it is awaited" % found[i]["name"])
    return wrong


def check_tasks(python, truth, said, core=False):
    found = {t["id"]: t for t in said["tasks"]}
    by_name = {t["name"]: t for t in said["tasks"]}
    known = {t["name"] for t in truth["tasks"]}
    loops = {l.get("tid") for l in said["loops"]}
    wrong = []
    check(said["complete"] and not said["lost"] and not said["torn"], "losses: %s" % {k: said[k] for k in
                                                                                      ("complete", "lost", "torn")})
    for told in truth["tasks"]:
        got = by_name.get(told["name"])
        if not got:
            wrong.append("%s: it is not there" % told["name"])
            continue
        if core:
            told = dict(told)
            told.pop("left", None)
        both = differences(python, told, got) + compare(told, got, found, known)
        tid = said["loops"][got["loop"]].get("tid")
        if tid != told.get("thread", truth["thread"]):
            both.append("its thread is %s, not %s" % (tid, told.get("thread", truth["thread"])))
        wrong += ["%s: %s" % (told["name"], words) for words in both]
    here = sorted(t["name"] for t in said["tasks"] if said["loops"][t["loop"]].get("tid") == truth["thread"])
    if here != truth["names"]:
        wrong.append("tasks %s, not %s" % (set(here) ^ set(truth["names"]), "those of asyncio.all_tasks()"))
    check(len(loops) == 2, "loops of %s" % loops)
    check(not wrong, "%d differences in %d tasks of %s:\n%s"
          % (len(wrong), len(truth["tasks"]), python.label, "\n".join(wrong[:SHOWN])))


@test
def interpreters():
    """Not a test: which are missing."""
    for label, reason in missing():
        print("missing: %s: %s" % (label, reason))


@each_python
def known_tasks(python):
    child, truth = started(python, "known_tasks.py")
    if truth["missing"]:
        print("not on %s: %s" % (python.label, ", ".join("%s (%s)" % m for m in sorted(truth["missing"].items()))))
    check_tasks(python, truth, tasks_of(truth["pid"]))


@each_python
def of_a_core(python):
    need("gcore")
    child, truth = started(python, "known_tasks.py")
    path = work("core")
    done = run(["gcore", "-o", path, str(truth["pid"])], timeout=120)
    check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
    check_tasks(python, truth, tasks_of("--core", "%s.%d" % (path, truth["pid"])), core=True)


main()
