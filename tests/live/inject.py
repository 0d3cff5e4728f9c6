#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A library is put into running programs, and they notice nothing."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

INJECTOR = os.path.join(os.path.dirname(SONDE), "tests", "unit", "inject_into")
# An hour of it: SONDE_INJECT_CYCLES=1000
CYCLES = int(os.environ.get("SONDE_INJECT_CYCLES", "300"))


def library(build="gcc-O2"):
    return program("injected", build)


def command(pid, rounds, *symbols, **options):
    if not os.path.exists(INJECTOR):
        skip("inject_into is not built")
    lib = options.pop("lib", None) or library()
    return [INJECTOR, str(pid), lib, str(rounds)] + list(symbols or ("count_call", "allocate"))


def inject(pid, rounds, *symbols, **options):
    """Its rounds, each as a dict."""
    done = run(command(pid, rounds, *symbols, **options), timeout=240)
    check(done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr.decode()))
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def check_counts(rounds, first=1):
    for n, got in enumerate(rounds):
        check(got["results"][:1] == [first + n], "round %d counted %s" % (n + 1, got["results"]))


def refused(pid, *words):
    done = run(command(pid, 1))
    check(done.returncode == 1, "status %d" % done.returncode)
    for word in words:
        check(word in done.stderr.decode(), "%r is not said: %s" % (word, done.stderr.decode()))


def left_clean(pid):
    """Nothing of ours is left but the library: no descriptor, no memory, no tracer."""
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except OSError:
            continue
        check("memfd:sonde" not in target, "descriptor %s is left" % fd)
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            status = open("/proc/%d/task/%s/status" % (pid, tid)).read()
        except OSError:
            continue
        check("TracerPid:\t0" in status, "thread %s is traced" % tid)


@test
def a_sleeping_program():
    """Every call that a program can wait in, over and over: none returns EINTR."""
    child = start([program("eintr")], stdin=subprocess.PIPE)
    rounds = inject(child.pid, 50)
    check_counts(rounds)
    left_clean(child.pid)
    child.stdin.close()
    out = child.stdout.read().decode()
    check(child.wait() == 0, out)


main()
