#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Memory of the flight recorder that keeps ten minutes of 99 Hz x 4 threads.

As many samples are taken in less time, at a higher rate: 237,600 of them. `flight_memory.py --long`
takes the ten minutes (of CPU time of each thread: with fewer than 4 CPUs they take longer).
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

THREADS, SECONDS, HZ = 4, 600, 99
LONG = "--long" in sys.argv[1:]
RATE = HZ if LONG else 1999
EACH_MS = SECONDS * 1000 * HZ // RATE
GOAL_MB = 64


def status_mb(pid, *keys):
    try:
        with open("/proc/%d/status" % pid) as f:
            text = f.read()
        return [int(re.search(key + r":\s+(\d+)", text).group(1)) / 1024 for key in keys]
    except (OSError, AttributeError):
        return [0.0 for _ in keys]


def fly(target):
    """Records `target` until it ends; (while recording: all, anonymous; at the end: all)."""
    path = scratch("flight.sonde")
    if os.path.exists(path):
        os.unlink(path)
    child = start([SONDE, "record", "-F", str(RATE), "--last", "1h", "-o", path, "-p",
                   str(target.pid)])
    rss = anonymous = 0
    while target.poll() is None:
        now = status_mb(child.pid, "VmRSS", "RssAnon")
        if target.poll() is None: # else it may be writing already
            rss, anonymous = max(rss, now[0]), max(anonymous, now[1])
        time.sleep(0.1)
    return rss, anonymous, cost_of(child).max_rss_mb, path


def row(name, target):
    rss, anonymous, end, path = fly(target)
    report = report_json(path)
    return [name, "%d" % report["samples"], "%.0f" % (os.path.getsize(path) / 1024),
            "%.0f" % rss, "%.0f" % anonymous, "%.0f" % end,
            "cut to %.0f %%" % (100 * report["samples"] / (THREADS * SECONDS * HZ))
            if "limited" in report["meta"] else "all"]


def stacks(kind):
    program = compile_c("stacks")
    child = start([program, str(THREADS), str(EACH_MS), kind], stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


def compilers():
    """Four clangs at once, again and again, for about as much CPU time as the threads above. They are
    started when the recorder is there."""
    seconds = EACH_MS // 1000 * max(1, THREADS // os.cpu_count())
    once = "timeout %d sh -c 'while :; do %s; done' &" % (seconds, " ".join(clang_compile()))
    return start(["sh", "-c", "sleep 2; %s wait" % (once * THREADS)])


def main():
    need("gcc")
    rows = [row("stacks of 10 to 60 frames, few of them", stacks("same")),
            row("the same, every one another path", stacks("new"))]
    if have("clang++"):
        rows.append(row("four times clang++ -O2 regex.cc", compilers()))
    table("Flight recorder, %d s of %d Hz x %d threads%s; at most %d MiB is the goal"
          % (SECONDS, HZ, THREADS, "" if LONG else ", as many samples at %d Hz" % RATE, GOAL_MB),
          ["", "samples", "file, KB", "MiB", "anonymous", "when written", "window"], rows)
    print("  (MiB: resident while recording; the part that is not anonymous is pages of the target's\n"
          "  object files, which lie in the page cache anyway and are given back ten times a second when\n"
          "  they are more than 24 MiB. At a higher rate more of them are touched meanwhile.)")


main()
