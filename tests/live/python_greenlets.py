#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
"""Greenlets that are switched out, of several releases of greenlet on several versions of CPython: the frames that
sonde finds are those that each greenlet has seen itself. The packages come from PyPI, once a machine."""
import fcntl
import glob
import os
import select
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

STORE = os.environ.get("SONDE_PYTHONS") or os.path.expanduser("~/.cache/sonde-tests/pythons")
# Minor version, and which greenlet. Without gevent where that wants a later one.
ROWS = [
    ("3.8", "greenlet<2"), ("3.8", "gevent"), ("3.9", "gevent"), ("3.10", "greenlet<2"), ("3.10", "gevent"),
    ("3.11", "greenlet<3"), ("3.11", "gevent"), ("3.12", "gevent"), ("3.13", "gevent"),
]


def environment(minor, package):
    """The interpreter of a virtual environment with that package in it."""
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/%s.*/bin/python%s" % (minor, minor)))
    if not found:
        skip("pyenv has no %s" % minor)
    folder = os.path.join(STORE, "greenlets", "%s-%s" % (minor, package.replace("<", "-before-")))
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(folder + "/.done"):
            shutil.rmtree(folder, ignore_errors=True)
            for command in ([sorted(found)[-1], "-m", "venv", folder],
                            [folder + "/bin/pip", "install", "-q", "--only-binary=:all:", package]):
                done = run(command, timeout=240)
                if done.returncode:
                    skip("%s cannot be had for %s: %s" % (package, minor, done.stderr.decode()[-200:]))
            open(folder + "/.done", "w").close()
    return folder + "/bin/python"


def started(python, *arguments):
    child = start([python, os.path.join(PROGRAMS, "known_greenlets.py")] + list(arguments), ready=False,
                  stdin=subprocess.PIPE)
    check(select.select([child.stdout], [], [], 60)[0], "it has nothing to say")
    return child, json.loads(child.stdout.readline())


def said(*arguments):
    done = sonde("stack", "--tasks", "--json", *arguments)
    expect(done, 0)
    return json.loads(done.stdout.decode())


def words(frames, key):
    return [(f[key], f["file"], f["line"]) for f in frames]


def check_greenlets(minor, truth, got):
    key = "qualname" if int(minor.split(".")[1]) >= 11 else "name"
    want = sorted((t["thread"], words(t["frames"], key)) for t in truth["greenlets"])
    have = sorted((g.get("tid"), words(g["frames"], "function")) for g in got["greenlets"])
    check(got["greenlets_unknown"] == 0, "%d of greenlet %s are unknown" % (got["greenlets_unknown"],
                                                                        truth["version"]))
    check(all(g["whole"] for g in got["greenlets"]), "not whole: %s" % [g for g in got["greenlets"]
                                                                    if not g["whole"]])
    for a, b in zip(want, have):
        check(a == b, "greenlet %s: %s is not %s" % (truth["version"], b, a))
    check(len(want) == len(have), "%d greenlets, not %d" % (len(have), len(want)))
    check(got["greenlets_not_out"] >= 2, "%d others" % got["greenlets_not_out"])


def each_row(function):
    def of(minor, package):
        def body():
            function(minor, package)
        name = package.replace("<", "_before_")
        body.__name__ = "%s_%s_%s" % (function.__name__, minor.replace(".", "_"), name)
        test(body)
    for row in ROWS:
        of(*row)


@each_row
def greenlets(minor, package):
    child, truth = started(environment(minor, package))
    check_greenlets(minor, truth, said(truth["pid"]))


@each_row
def of_a_core(minor, package):
    need("gcore")
    child, truth = started(environment(minor, package))
    done = run(["gcore", "-o", work("core"), str(truth["pid"])], timeout=120)
    check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
    check_greenlets(minor, truth, said("--core", "%s.%d" % (work("core"), truth["pid"])))


@each_row
def of_gevent(minor, package):
    if package != "gevent":
        skip("%s is without gevent" % package)
    child, truth = started(environment(minor, package), "gevent")
    got = said(truth["pid"])
    for told in truth["greenlets"]:
        found = [g for g in got["greenlets"] if any(f["function"].endswith(told["outer"]) for f in g["frames"])]
        check(len(found) == 1, "%d greenlets are in %s" % (len(found), told["outer"]))
        check(found[0]["type"].endswith("Greenlet"), found[0]["type"])
        check(found[0]["frames"][-1]["function"].endswith(told["outer"]), "%s" % found[0]["frames"])
    hubs = [g for g in got["greenlets"] if g["type"].endswith("Hub")]
    check(len(hubs) <= 1, "hubs that are switched out: %s" % hubs)


main()
