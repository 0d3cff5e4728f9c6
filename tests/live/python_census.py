#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (it takes minutes)
"""sonde heap: counts of a Python program's objects, against those of its own collector, and what keeps them alive."""
import ast
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import pythons

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "programs", "python_heap.py")
# What each of these classes has one object of is kept by: the root, how it is named, and references from there.
KEPT = {
    "InModule": ("module", "__main__", [".CACHE", "['key']", "[3]"]),
    "InClosure": ("module", "__main__", [".closure", ".__closure__", " variable kept", ".cell_contents"]),
    "InChain": ("module", "__main__", [".registry", ".items", ".child"]),
    "InFrame": ("frame", "thread_body (python_heap.py:", ["local"]),
    "InSlot": ("module", "__main__", [".slotted", ".thing"]),
    "InClass": ("module", "__main__", [".Class", ".attribute"]),
}


class Heap:
    """The program, started and asked. Files are in /tmp: that is where interpreters in a root of their own see them."""

    def __init__(self, python, *arguments, stderr=subprocess.DEVNULL):
        self.told_path = work("told.txt")
        copy = work("python_heap.py")
        with open(PROGRAM) as source, open(copy, "w") as out:
            out.write(source.read())
        os.chmod(os.path.dirname(copy), 0o755)
        self.child = start(python.command + [copy, self.told_path] + list(arguments), env=python.environment(),
                           stdin=subprocess.PIPE, stderr=stderr)
        self.pid = self.child.pid
        with open(self.told_path) as told:
            self.told = ast.literal_eval(told.read())

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.child.kill()
        self.child.wait()

    def census(self, *options):
        done = sonde("heap", "--json", "-n", "1000000", *options, str(self.pid))
        expect(done, 0)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def why_alive(self, kind):
        done = sonde("heap", "--json", "--why-alive", kind, str(self.pid))
        expect(done, 0)
        return json.loads(done.stdout)

    def leak(self):
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        check(self.child.stdout.readline() == b"leaked\n", "it does not answer")


def each_python(function):
    def of(python):
        def body():
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)
    for python in pythons():
        # 3.8 and 3.9 leave nothing to be found by in a file without any symbol.
        unfindable = "bare" in python.kinds and python.version < (3, 10)
        if not python.kinds & {"later", "free-threaded"} and not unfindable:
            of(python)


def says(done, words):
    expect(done, 0)
    check(words in done.stdout.decode(), "%r is not in %r" % (words, done.stdout))


def near(one, other, share=0.01):
    return abs(one - other) <= max(share * other, 2)


@each_python
def counts(python):
    """Objects by type within one percent of gc.get_objects(), and bytes of sys.getsizeof()."""
    with Heap(python) as heap:
        census, = heap.census()
        check(not census["gaps"] and not census["cut"], "%(gaps)d gaps, cut: %(cut)s" % census)
        mine = {row["name"]: row for row in census["types"]}
        # Frozen objects are in the census and not in get_objects().
        slack = census["frozen"]
        for name, (objects, size) in heap.told.items():
            got = mine.get(name, {"objects": 0, "bytes": 0})
            # What stdio and json have made since is young; the rest must be there.
            check(near(got["objects"], objects) or 0 <= got["objects"] - objects <= 10 + slack,
                  "%s: %d, and the collector says %d" % (name, got["objects"], objects))
        total = sum(objects for objects, size in heap.told.values())
        check(near(census["objects"] - slack, total), "%d objects, the collector says %d" % (census["objects"], total))
        for name, many in (("__main__.Many", 5000), ("__main__.Slotted", 3001), ("__main__.Outer.Inner", 700),
                           ("__main__.Few", 7)):
            check(mine[name]["objects"] == many, "%s: %d" % (name, mine[name]["objects"]))
        # From 3.13 on getsizeof() counts values of an instance's dict that stand in the instance.
        for name, share in (("__main__.Slotted", 0), ("list", 0.01), ("dict", 0.05), ("set", 0.01), ("function", 0.01)):
            check(near(mine[name]["bytes"], heap.told[name][1], share),
                  "%s: %d bytes, getsizeof() says %d" % (name, mine[name]["bytes"], heap.told[name][1]))


@each_python
def pools(python):
    """What the allocator of small blocks says of itself."""
    with open(work("stats"), "w") as stats, Heap(python, stderr=stats) as heap:
        census, = heap.census()
        with open(work("stats")) as stats:
            text = stats.read()
        said = re.search(r"# bytes in allocated blocks += +([\d,]+)", text)
        arenas = re.search(r"# arenas allocated current += +([\d,]+)", text)
        if not said:
            skip("%s tells nothing: %r" % (python.label, text[:200]))
        used, count = int(said[1].replace(",", "")), int(arenas[1].replace(",", ""))
        mine = census["pools"]
        check(near(mine["used_bytes"], used, 0.02), "%d bytes in use, the allocator says %d" % (mine["used_bytes"], used))
        check(near(mine["arenas"], count, 0.02), "%d arenas, the allocator says %d" % (mine["arenas"], count))
        check(mine["used_bytes"] <= mine["pool_bytes"] <= mine["arena_bytes"], "%r" % mine)


@each_python
def untracked(python):
    """str and int have no list; --all finds them behind what has."""
    with Heap(python) as heap:
        plain, = heap.census()
        full, = heap.census("--all")
        mine = {row["name"]: row for row in full["types"]}
        check(not plain["loose"] and not plain["loose_counted"], "counted without --all: %d" % plain["loose"])
        check(5000 <= mine["str"]["loose"] < 60000 and not mine["str"]["objects"], "str: %r" % mine["str"])
        check(4500 <= mine["int"]["loose"] < 60000, "int: %r" % mine["int"])
        check(mine["__main__.Many"]["objects"] == 5000 and not mine["__main__.Many"]["loose"],
              "Many: %r" % mine["__main__.Many"])


@each_python
def kept_alive(python):
    with Heap(python) as heap:
        for kind, (root, name, references) in KEPT.items():
            answer = heap.why_alive(kind)
            check(answer["instances"] == 1 and len(answer["ways"]) == 1, "%s: %r" % (kind, answer))
            way = answer["ways"][0]
            # An object may be referred to in two ways that are as short.
            check(way["root"] == root and way["root_name"].startswith(name), "%s: %r" % (kind, way))
            check([step["reference"] for step in way["steps"]] == references, "%s: %r" % (kind, way))
            check(way["steps"][-1]["type"] == "__main__." + kind, "%s: %r" % (kind, way))
            if root == "frame":
                check(way["tid"] and way["tid"] != heap.pid, "tid %d of process %d" % (way["tid"], heap.pid))


@each_python
def kept_by_a_generator(python):
    with Heap(python) as heap:
        way, = heap.why_alive("InGenerator")["ways"]
        references = [step["reference"] for step in way["steps"] if step["reference"] != ".gi_frame"]
        check(references == [".generator", "held"], "%r" % way)


@each_python
def kept_by_a_cache(python):
    """functools.lru_cache has it in objects that are in no list, behind a dict that is in none either."""
    with Heap(python) as heap:
        answer = heap.why_alive("InCache")
        way, = answer["ways"]
        check(way["root"] == "module" and way["steps"][0]["reference"] == ".cached", "%r" % way)
        check(not answer["unseen"] and way["steps"][-1]["type"] == "__main__.InCache", "%r" % answer)


@each_python
def kept_by_many(python):
    """Objects that are kept alike are told once."""
    with Heap(python) as heap:
        answer = heap.why_alive("Many")
        way, = answer["ways"]
        check(way["instances"] == 5000 and way["steps"][0]["reference"] == ".MANY", "%r" % way)
        check(way["steps"][0]["count"] == 5000, "%r" % way["steps"])


@each_python
def kept_by_nobody(python):
    """Two objects that refer to each other, and a collector that is off."""
    with Heap(python) as heap:
        answer = heap.why_alive("Nobody")
        check(answer["garbage"] == 2 and not answer["ways"] and not answer["unseen"], "%r" % answer)
        says(sonde("heap", "--why-alive", "Nobody", heap.pid), "2 are garbage")


@each_python
def growth(python):
    with Heap(python, "leak") as heap:
        asked = start([SONDE, "heap", "--json", "-n", "10000", "--every", "700ms", "--times", "3", str(heap.pid)],
                      ready=False)
        censuses = [json.loads(asked.stdout.readline())]
        for i in range(2):
            heap.leak()
            censuses.append(json.loads(asked.stdout.readline()))
        check(asked.wait(30) == 0, "status %d" % asked.returncode)
        check("growth" not in censuses[0], "the first one has grown")
        for census in censuses[1:]:
            top = {row["name"]: row["objects"] for row in census["growth"][:4]}
            check(top.get("__main__.Leaky") == 100, "%r" % census["growth"][:5])


@each_python
def of_a_core(python):
    need("gcore")
    with Heap(python) as heap:
        path = work("core")
        done = run(["gcore", "-o", path, str(heap.pid)], timeout=120)
        check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
        # gcore writes down paths as they are here, also of who has another root.
        done = sonde("heap", "--json", "--core", "%s.%d" % (path, heap.pid))
        expect(done, 0)
        mine = {row["name"]: row["objects"] for row in json.loads(done.stdout)["types"]}
        check(mine["__main__.Many"] == 5000, "%r" % mine)


def first(*kinds):
    for python in pythons():
        if set(kinds) <= python.kinds and "later" not in python.kinds:
            return python
    skip("there is no %s CPython" % " ".join(kinds))


@test
def free_threaded():
    """Has no lists, and is refused in words."""
    python = first("free-threaded")
    child = start(python.command + ["-c", "import time; print('ready', flush=True); time.sleep(1000)"],
                  env=python.environment())
    expect(sonde("heap", str(child.pid)), 1, "free-threaded build")


@test
def while_it_runs():
    """A program that makes and frees objects all the time: what it keeps is counted all the same."""
    for python in pythons():
        if python.kinds & {"later", "free-threaded", "chroot", "stripped"}:
            continue
        child = start(python.command + ["-c", """if True:
            class Kept: pass
            class Young: pass
            kept = [Kept() for i in range(20000)]
            print("ready", flush=True)
            while True:
                young = [[Young()] for i in range(300)]
                pairs = {i: {} for i in range(50)}
            """], env=python.environment())
        for i in range(10):
            done = sonde("heap", "--json", str(child.pid))
            expect(done, 0)
            census = json.loads(done.stdout)
            mine = {row["name"]: row["objects"] for row in census["types"]}
            check(mine["__main__.Kept"] == 20000 or census["gaps"],
                  "%s: %d of 20,000, %d gaps" % (python.label, mine["__main__.Kept"], census["gaps"]))
        child.kill()


@test
def type_names():
    python = first("shared")
    with Heap(python) as heap:
        says(sonde("heap", "--why-alive", "Outer.Inner", heap.pid), "700 objects of type __main__.Outer.Inner")
        expect(sonde("heap", "--why-alive", "Slott", heap.pid), 1, "no object of type Slott", "__main__.Slotted")
        says(sonde("heap", "--why-alive", "bytes", heap.pid), "objects of type bytes")


@test
def other_programs():
    child = start(["sleep", "1000"], ready=False)
    expect(sonde("heap", str(child.pid)), 1, "no CPython")


main()
