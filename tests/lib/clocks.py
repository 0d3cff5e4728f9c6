# SPDX-License-Identifier: BSD-2-Clause
"""What a program's own clocks said, and whether what was seen is near that.

A hypervisor that takes a CPU away from the machine takes it from a thread that has not left it: the time is in no
thread's CPU time, and in what was seen on the CPU. Programs say how much that was ("stolen"), of all CPUs."""
from harness import *


def clocks_of(words):
    """The words that a program printed, "ready" first, as a dictionary of ns."""
    check(words and words[0] == "ready", "it said %r" % words)
    return {words[i]: int(words[i + 1]) for i in range(1, len(words), 2)}


def near(what, got, want, whole, points, more=0, less=0):
    """Within so many percent of the whole; what was stolen from the machine may make it `more`, or `less`."""
    check(want - less - whole * points / 100 <= got <= want + more + whole * points / 100,
          "%s: %.1f ms, not %.1f ms, of %.1f ms" % (what, got / 1e6, want / 1e6, whole / 1e6))
