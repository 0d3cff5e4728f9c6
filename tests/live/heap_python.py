#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap of Python programs: which line of Python asks for the memory, with every CPython that can be had."""
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import missing, pythons

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "known_memory.py")
# What stands inside of what, innermost first.
INSIDE = {
    "plain": ["<genexpr>", "turn", "<module>"],
    "deep": ["deep"] * 20 + ["turn", "<module>"],
    "key": ["turn", "<module>"],
    "inner_generator": ["outer_generator", "turn", "<module>"],
    "__del__": ["by_objects", "turn", "<module>"],
    "called_back": ["by_ctypes", "turn", "<module>"],
    "in_thread": ["run"],
    "awaited": ["awaits", "by_coroutine", "turn", "<module>"],
}


def known_sites(python):
    """{(name, line): (count, size)}, for one turn."""
    found = {}
    name = None
    with open(PROGRAM, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            start_of = re.match(r"\s*(?:async )?def (\w+)", line)
            if start_of:
                name = start_of.group(1)
            takes = re.search(r"# takes (\d+) (\d+)( ctypes)?", line)
            if takes and not (takes.group(3) and {"bare", "musl"} & python.kinds):
                found[name, number] = int(takes.group(1)), int(takes.group(2))
    return found


def short(name):
    return name.split(".")[-1]


def seen_sites(heap):
    found = {}
    for site in heap["sites"]:
        if os.path.basename(site.get("file", "")) == "known_memory.py":
            entry = found.setdefault((short(site["name"]), site["line"]), {"count": 0, "bytes": 0, "stacks": []})
            entry["count"] += site["total_count"]
            entry["bytes"] += site["total_bytes"]
            entry["stacks"] += [s["stack"] for s in site["stacks"]]
    return found


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def supported():
    for label, why in missing():
        print("without %s: %s" % (label, why))
    return [p for p in pythons() if not {"later", "free-threaded"} & p.kinds]


def copied():
    """Where programs in another root see it as well."""
    return shutil.copy(PROGRAM, work("known_memory.py"))


def compare(python, heap, turns, exact=True):
    known, seen = known_sites(python), seen_sites(heap)
    for site, (count, size) in known.items():
        check(site in seen, "%s: nothing at %s: %s" % (python.label, site, sorted(seen)))
        if exact:
            got = seen[site]
            check(got["count"] >= count * turns, "%s: %d at %s, not %d" % (python.label, got["count"], site, count * turns))
            more = got["bytes"] - count * size * turns
            # What a bytearray has besides, and lists that grow.
            check(0 <= more < size, "%s: %d bytes at %s" % (python.label, got["bytes"], site))
        for stack in seen[site]["stacks"]:
            check_stack(python, site[0], [short(name) for name in stack])


def check_stack(python, name, stack):
    """Python's own frames are in the order in which they were called."""
    rest = iter(stack)
    for wanted in [name] + INSIDE.get(name, []):
        check(wanted in rest, "%s: no %s where it should be in %s" % (python.label, wanted, stack))


def launched(python, *options):
    path = work(python.label + ".sonde")
    done = sonde("heap", *options, "-o", path, "--", *python.command, copied(), input=b"go\n" * 2,
                 env=python.environment())
    expect(done, 0)
    return heap_of(path), done.stderr.decode()


@test
def lines_of_python_with_every_allocation():
    for python in supported():
        heap, words = launched(python, "--exact")
        compare(python, heap, 2)
        check("no Python frames" not in words, words)
        check("PYTHONMALLOC=malloc" in words, words)


@test
def lines_of_python_in_samples():
    for python in supported():
        heap, _ = launched(python, "--sample", "1000")
        compare(python, heap, 2, exact=False)


def is_attached(pid):
    """The memory is shared, and its descriptor is closed again."""
    with open("/proc/%d/maps" % pid) as f:
        shared = re.search("rw-s .*/memfd:sonde-heap ", f.read())
    folder = "/proc/%d/fd" % pid
    try:
        return shared and not any("memfd:sonde" in os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder))
    except OSError:
        return False


@test
def lines_of_python_of_programs_that_run_already():
    for python in supported():
        if "musl" in python.kinds:
            print("%s: a thread that waits in musl cannot be diverted" % python.label)
            continue
        child = start(python.command + [copied()], stdin=subprocess.PIPE, env=python.environment())
        path = work(python.label + ".sonde")
        watcher = start([SONDE, "heap", "--exact", "-p", str(child.pid), "-o", path], ready=False, stderr=subprocess.PIPE)
        for _ in range(400):
            if is_attached(child.pid):
                break
            time.sleep(0.02)
        check(is_attached(child.pid), "%s: it was not attached to" % python.label)
        for _ in range(2):
            child.stdin.write(b"go\n")
            child.stdin.flush()
            check(child.stdout.readline() == b"done\n", "it does not go on")
        watcher.send_signal(2)
        _, words = watcher.communicate(timeout=30)
        check(watcher.returncode == 0, words.decode())
        compare(python, heap_of(path), 2)
        child.stdin.close()
        check(child.wait(timeout=30) == 0, "it ended with %d" % child.returncode)


@test
def small_objects_with_pythons_allocator_out_of_the_way():
    script = work("small.py")
    with open(script, "w") as f:
        f.write("kept = []\ndef small():\n    kept.append(bytes(100))\nfor i in range(1000):\n    small()\n")
    for python in supported():
        path = work(python.label + ".sonde")
        environment = python.environment(PYTHONMALLOC="malloc")
        done = sonde("heap", "--exact", "-o", path, "--", *python.command, script, env=environment)
        expect(done, 0)
        check("PYTHONMALLOC" not in done.stderr.decode(), done.stderr.decode())
        count = sum(s["total_count"] for s in heap_of(path)["sites"]
                    if short(s["name"]) == "small" and s["line"] == 3)
        check(1000 <= count <= 1100, "%s: %d" % (python.label, count))


@test
def what_is_not_understood_is_told():
    for python in pythons():
        if {"later", "free-threaded"} & python.kinds:
            heap, words = launched(python, "--exact")
            check("no Python frames in stacks: " in words, "%s: %s" % (python.label, words))
            check(not seen_sites(heap), "%s has frames" % python.label)


main()
