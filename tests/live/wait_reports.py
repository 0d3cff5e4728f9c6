#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Reports of programs that say themselves how long they slept and waited, and for whom."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from clocks import *
from harness import *


class Waits(Recording):
    """A recording of tests/live/programs/phases.c, and what its clocks said, in ns."""

    def __init__(self, *options):
        path = work("out.sonde")
        done = sonde("record", "--wall", *options, "-o", path, "--", program("phases"), "12", timeout=120)
        if done.returncode:
            skip(done.stderr.decode(errors="replace").partition("\n")[0])
        self.clocks = clocks_of(done.stdout.decode().split())
        super().__init__(path)
        self.tree = json.loads(self.report("--json", "--tree"))["tree"]

    def report(self, *options):
        env = dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="100")
        done = sonde("report", self.path, *options, env=env)
        expect(done, 0)
        return done.stdout.decode()

    def nodes(self, name, below=None):
        """All nodes of the call tree with this name."""
        below = below or self.tree
        if below["name"] == name:
            yield below
        for child in below["children"]:
            yield from self.nodes(name, child)

    def near(self, function, clock):
        """What the function took on the CPU and off it is what the clock said."""
        got = sum(n["total_ns"] for n in self.nodes(function))
        near(function, got, self.clocks[clock], self.clocks["wall"], 3)


@test
def paths_of_what_the_program_does():
    got = Waits()
    for function, clock in (("compute", None), ("take_a_nap", "sleep"), ("wait_for_the_lock", "lock")):
        check(list(got.nodes(function)), "%s is not in the tree" % function)
        if clock:
            got.near(function, clock)
    slept = [n for nap in got.nodes("take_a_nap") for n in got.nodes("[syscall clock_nanosleep]", nap)]
    check(slept, "nobody slept in take_a_nap")
    for words, text in (
            (r"wait_for_the_lock › pthread_mutex_lock › \[futex\]\n", got.report("--state", "futex")),
            (r"\n100% is [\d.]+ m?s: 2 threads watched\n", got.report()),
            (r"  on-cpu +run-queue +futex +syscall +thread\n", got.report())):
        check(re.search(words, text), "no %r in\n%s" % (words, text))


@test
def blocked_is_what_was_not_on_the_cpu():
    got = Waits()
    for thread in got.threads:
        check(thread["measured"], "%s has no times" % thread["name"])
        check(sum(thread["states"].values()) == thread["watched_ns"], thread)
    main = min(got.threads, key=lambda t: t["tid"])
    wall, cpu = got.clocks["wall"], got.clocks["cpu"]
    off = main["watched_ns"] - main["states"]["on-cpu"]
    near("off the CPU", off, wall - cpu, wall, 2, less=got.clocks["stolen"])
    # What is in the tree is what was measured: nothing is told twice, and little is left out.
    told = main["off_cpu_ns"]
    check(abs(told - off) <= 0.02 * wall, "%d ns in intervals, %d measured" % (told, off))


@test
def who_held_the_lock():
    got = Waits()
    if "who ended the waits is not known" in got.report():
        skip("only the BPF sampler sees who wakes whom, and it is not permitted or not built here")
    leaves = [n for lock in got.nodes("wait_for_the_lock") for n in got.nodes("[futex]", lock)]
    wakers = [w for leaf in leaves for w in leaf["wakers"]]
    held = [w for w in wakers if w["by"] == "thread" and "holder" in w.get("path", [])]
    check(sum(w["ns"] for w in held) >= 0.9 * sum(w["ns"] for w in wakers), wakers)
    naps = [n for nap in got.nodes("take_a_nap") for n in got.nodes("[syscall clock_nanosleep]", nap)]
    by = [w for leaf in naps for w in leaf["wakers"]]
    timer = sum(w["ns"] for w in by if w["by"] == "interrupt")
    check(timer >= 0.9 * sum(w["ns"] for w in by), by)
    text = got.report("--main", "--state", "futex")
    check(re.search(r"wait_for_the_lock › pthread_mutex_lock › \[futex\]\n"
                    r" +[\d.]+% .*woken by \S+ \(phases\): holder › ", text), text)


@test
def folded_and_main():
    got = Waits()
    done = sonde("report", got.path, "--folded", "--main", "--state", "futex")
    expect(done, 0)
    lines = [line.rpartition(" ") for line in done.stdout.decode().splitlines()]
    check(lines and all(stack.endswith(";[futex]") for stack, _, _ in lines), lines)
    main = min(got.threads, key=lambda t: t["tid"])
    sums = sum(int(ns) for _, _, ns in lines)
    check(abs(sums - main["states"]["futex"]) <= 0.02 * got.clocks["wall"], "%d ns, not %s" % (sums, main))


main()
