#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Memory of the recorder on a process with 2.5 million unwind rows: clang++ -O2."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ = 999


def recorder_memory(command):
    """The target is not its child, whose memory would count too."""
    target = start(["sh", "-c", "sleep 0.5; exec \"$@\"", "sh"] + clang_compile())
    cost = measured([a.replace("PID", str(target.pid)) for a in command])
    stop(target)
    return cost.max_rss_mb


def main():
    need("perf", "clang++")
    ours = recorder_memory(sonde_record(HZ, scratch("s"), "-p", "PID"))
    theirs = recorder_memory(perf_record(HZ, scratch("p"), "-p", "PID"))
    table("Memory of the recorder, clang++ -O2 regex.cc at %d Hz" % HZ,
          ["", "sonde", "perf record", "ratio"],
          [["largest, MiB", "%.0f" % ours, "%.0f" % theirs, ratio(ours, theirs)]])
    print("  (perf record stores stacks as they are and unwinds later; sonde has unwound them.)")


main()
