#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much slower the target gets at 999 Hz: CPU time of a fixed amount of work."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ, RUNS, ROUNDS = 999, 9, "900000"


def target_cpu(recorder):
    """CPU ns as the target itself counts them."""
    command = recorder + [compile_c("work"), ROUNDS]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return int(done.stdout.split()[-1])


def main():
    need("perf", "gcc")
    modes = {
        "alone": [],
        "sonde record": sonde_record(HZ, scratch("s"), "--"),
        "perf record, addresses only": ["perf", "record", "-q", "-F", str(HZ), "-o", scratch("p0"), "--"],
        "perf record dwarf,16384": perf_record(HZ, scratch("p"), "--"),
        "perf record dwarf,65528": perf_record(HZ, scratch("p1"), "--", dump=65528),
    }
    times = {name: [] for name in modes}
    for run in range(RUNS):
        for name, command in modes.items():
            times[name].append(target_cpu(command))
    base = statistics.median(times["alone"])
    rows = []
    for name in modes:
        t = statistics.median(times[name])
        rows.append([name, "%.1f" % (t / 1e6), "%.4f" % (t / base)])
    ours, theirs = (statistics.median(times[n]) / base for n in
                    ("sonde record", "perf record dwarf,16384"))
    rows.append(["sonde / perf dwarf,16384", "", ratio(ours, theirs)])
    table("CPU time of fixed work, %d Hz, median of %d interleaved runs" % (HZ, RUNS),
          ["", "ms", "against alone"], rows)


main()
