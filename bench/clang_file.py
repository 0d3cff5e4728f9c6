#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""clang++ -O2 over a file full of <regex>: size of the recording, and speed of reading it back."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ = 999


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
    script = measured(["perf", "script", "-i", theirs]).cpu_s
    no_inline = measured(["perf", "script", "--no-inline", "-i", theirs]).cpu_s
    table("Reading it back, CPU seconds",
          ["", "sonde report --folded", "perf script", "perf / sonde"],
          [["with inlined functions", "%.3f" % folded, "%.2f" % script, "%.0f" % (script / folded)],
           ["without", "%.3f" % plain, "%.2f" % no_inline, "%.0f" % (no_inline / plain)]])


main()
