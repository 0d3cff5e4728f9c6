#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""clang++ -O2 over a file full of <regex>: size of the recording, and speed of reading it back."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ, PATIENCE_S = 999, 90


def best_cpu(command, runs=3):
    return min(measured(command).cpu_s for _ in range(runs))


def main():
    need("perf", "clang++")
    ours, theirs = scratch("clang.sonde"), scratch("clang.data")
    subprocess.run(sonde_record(HZ, ours, "--stack-size", "65528", "--", *clang_compile()), check=True)
    subprocess.run(perf_record(HZ, theirs, "--", *clang_compile()), check=True,
                   stderr=subprocess.DEVNULL)
    got = report_json(ours)
    a, b = os.path.getsize(ours), os.path.getsize(theirs)
    table("File size, clang++ -O2 regex.cc at %d Hz (%d samples)" % (HZ, got["samples"]),
          ["", "sonde", "perf dwarf,16384", "ratio"],
          [["KiB", a // 1024, b // 1024, "1/%.0f" % (b / a)]])

    folded = best_cpu([SONDE, "report", ours, "--folded"])
    plain = best_cpu([SONDE, "report", ours, "--folded", "--no-inline"])
    no_inline = measured(["perf", "script", "--no-inline", "-i", theirs]).cpu_s
    script, done = measured_within(["perf", "script", "-i", theirs], PATIENCE_S)
    more = "" if done else ">"
    table("Reading it back, CPU seconds",
          ["", "sonde report --folded", "perf script", "perf / sonde"],
          [["with inlined functions", "%.3f" % folded, "%s%.2f" % (more, script),
            "%s%.0f" % (more, script / folded)],
           ["without", "%.3f" % plain, "%.2f" % no_inline, "%.0f" % (no_inline / plain)]])
    if not done:
        print("  (perf script with inlined functions was stopped after %d s.)" % PATIENCE_S)


main()
