#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
"""sonde record --tasks: the time of tasks of a program that knows how many of them wait for what."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import pythons

PROGRAM = """
import asyncio
async def leaf():
    await asyncio.sleep(1000)
async def want(lock):
    async with lock:
        pass
async def spin():
    while True:
        sum(range(200000))
        await asyncio.sleep(0)
async def main():
    lock = asyncio.Lock()
    await lock.acquire()
    tasks = [asyncio.ensure_future(leaf()) for _ in range(6)] + [asyncio.ensure_future(want(lock)) for _ in range(3)]
    tasks.append(asyncio.ensure_future(spin()))
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.wait([tasks[-1]])
asyncio.run(main())
"""


def each_python(function):
    """With one interpreter of each version."""
    seen = set()
    for python in pythons():
        key = python.version[:2], "free-threaded" in python.kinds
        if key in seen or python.version < (3, 8) or python.kinds & {"bare", "later", "musl"}:
            continue
        seen.add(key)

        def body(python=python):
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)


def recorded(python, *options):
    """A recording of two seconds of the program, and what was said of it."""
    child = start(python.command + ["-c", PROGRAM], env=python.environment())
    path = work("tasks.sonde")
    done = sonde("record", "--tasks", "-p", child.pid, "-d", "2", "-o", path, *options)
    expect(done, 0)
    return path, done.stderr.decode()


def report(path, *options):
    done = sonde("report", "--json", *options, path)
    expect(done, 0)
    return json.loads(done.stdout.decode())


@each_python
def time_of_tasks(python):
    path, words = recorded(python)
    check("tasks: looked at 11 of them" in words, words)
    got = report(path, "--tasks")
    self_ns = {f["name"]: f["self_ns"] for f in got["functions"]}
    total = sum(self_ns.values())
    for name, tasks in (("[asyncio.sleep]", 6), ("[asyncio.Lock]", 3), ("[another task]", 1)):
        share = self_ns.get(name, 0) / total * 11
        check(abs(share - tasks) < 0.2, "%s is of %.2f tasks, not of %d: %s" % (name, share, tasks, self_ns))
    # The one that is left runs, or waits for its turn.
    check("spin" in {f["name"].split(".")[-1] for f in got["functions"]}, "%s" % sorted(self_ns))
    check(abs(total / 11 / 2e9 - 1) < 0.25, "%d ns are not two seconds of 11 tasks" % total)


@each_python
def threads_are_not_mixed_with_tasks(python):
    path, _ = recorded(python)
    names = {f["name"] for f in report(path)["functions"]}
    check(names and not any(name.startswith("[asyncio") for name in names), "%s" % sorted(names))
    text = sonde("report", "--text", path)
    expect(text, 0)
    check(b"--tasks shows what they waited for" in text.stdout, "the report does not tell that there are tasks")


@test
def without_tasks():
    path = work("none.sonde")
    expect(sonde("record", "-o", path, "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"), 0)
    done = sonde("report", "--tasks", path)
    expect(done, 1, "record with --tasks")


@test
def in_a_flight_recorder():
    """The window that is written has the tasks of its time."""
    python = next(p for p in pythons() if p.version >= (3, 11) and not p.kinds & {"bare", "chroot", "musl"})
    path, _ = recorded(python, "--last", "1s")
    got = report(path, "--tasks")
    self_ns = {f["name"]: f["self_ns"] for f in got["functions"]}
    total = sum(self_ns.values())
    check(abs(self_ns["[asyncio.Lock]"] / total * 11 - 3) < 0.2, "%s" % self_ns)
    check(total < 11 * 1.6e9, "%d ns are more than a second of 11 tasks" % total)


main()
