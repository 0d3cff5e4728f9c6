#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What sampling costs the machine: CPU time of the recorder and what it loses, at a low rate with many threads, at the
usual one, and at one that perf does not keep up with."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

SECONDS, RUNS = 5, 3
ROWS = [("99 Hz, 8 busy threads", 99, 8), ("999 Hz, 1 busy thread", 999, 1),
        ("4,999 Hz, 2 busy threads", 4999, 2), ("9,999 Hz, 2 busy threads", 9999, 2)]


def recorded(threads, make):
    """Cost of the recorder, in percent of one CPU."""
    target = start([compile_c("work"), "0", str(threads)])
    time.sleep(0.3)
    cost = measured(make(target.pid))
    stop(target)
    return cost.cpu_s / SECONDS * 100


def ours(hz, threads):
    whole = recorded(threads, lambda pid: sonde_record(hz, scratch("s"), "-p", pid, "-d", SECONDS))
    got = report_json(scratch("s"))
    return {"whole": whole, "sampling": got["cost"]["sampler_cpu_ns"] / 1e9 / SECONDS * 100,
            "samples": got["samples"], "lost": got["quality"]["lost_samples"]}


def theirs(hz, threads):
    whole = recorded(threads, lambda pid: perf_record(hz, scratch("p"), "-p", pid, "--", "sleep", SECONDS))
    stats = subprocess.run(["perf", "report", "--stats", "-i", scratch("p")], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL).stdout.decode(errors="replace")
    number = lambda kind: int((re.search(kind + r" events:\s+(\d+)", stats) or [0, 0])[1])
    return {"whole": whole, "samples": number(" SAMPLE"), "lost": number("LOST_SAMPLES")}


def row(name, hz, threads):
    runs = [(ours(hz, threads), theirs(hz, threads)) for _ in range(RUNS)]
    middle = lambda i, key: statistics.median(run[i][key] for run in runs)
    total = lambda i, key: sum(run[i][key] for run in runs)
    lost = lambda i: "%d of %d" % (total(i, "lost"), total(i, "samples") + total(i, "lost"))
    return [name, "%.2f" % middle(0, "sampling"), "%.2f" % middle(0, "whole"), "%.2f" % middle(1, "whole"),
            ratio(middle(0, "whole"), middle(1, "whole")), lost(0), lost(1)]


def main():
    need("perf", "gcc")
    table("CPU of the recorder, %% of one CPU, %d s, median of %d; stacks: sonde whole, perf dwarf,16384" %
          (SECONDS, RUNS),
          ["", "sonde, sampling", "with start and naming", "perf", "ratio", "sonde lost", "perf lost"],
          [row(*r) for r in ROWS])
    print("  A sample is lost when it was not recorded for want of room or time. perf names nothing while it records.")


main()
