#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""CPU time of the recorder itself: one busy thread at 999 Hz, for 5 seconds."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ, SECONDS, RUNS = 999, 5, 3


def recorder_cpu(command):
    target = start([compile_c("work"), "0"])
    time.sleep(0.3)
    cost = measured([a.replace("PID", str(target.pid)) for a in command])
    stop(target)
    return cost.cpu_s / SECONDS * 100


def main():
    need("perf", "gcc")
    ours, theirs, sampling = [], [], []
    for run in range(RUNS):
        ours.append(recorder_cpu(sonde_record(HZ, scratch("s"), "-p", "PID", "-d", SECONDS)))
        cost = report_json(scratch("s"))["cost"]
        sampling.append(cost["sampler_cpu_ns"] / 1e9 / SECONDS * 100)
        theirs.append(recorder_cpu(perf_record(HZ, scratch("p"), "-p", "PID", "--", "sleep", SECONDS)))
    a, b, c = map(statistics.median, (ours, theirs, sampling))
    table("CPU of the recorder, %% of one CPU, %d Hz, %d s, median of %d" % (HZ, SECONDS, RUNS),
          ["", "sonde", "perf dwarf,16384", "ratio"],
          [["whole run, with start and naming", "%.2f" % a, "%.2f" % b, ratio(a, b)],
           ["while sampling alone", "%.2f" % c, "", ""]])


main()
