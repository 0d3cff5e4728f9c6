#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde heap` costs a program that does little but allocate, against heaptrack, jemalloc's profiler and
tcmalloc's: 15 calls deep, sizes mixed, one thread and four, with frame pointers and without.

The program says itself what a pair of malloc and free took; every way is compared with the same program and the same
allocator alone, in interleaved rounds. "CPU" is the program's; "wall" is what its user waits for, with whatever helps on the same
CPUs. `bench/heap.py NAME...` runs only those tables: cost, opening, memory."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

ROUNDS = 5
PAIRS = {1: 4000000, 4: 1000000} # of each thread
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
BUILDS = {"frame pointers": "-fno-omit-frame-pointer", "none": "-fomit-frame-pointer"}


def library(name):
    found = [p for folder in LIBRARIES for p in glob.glob("%s/%s" % (folder, name))]
    return found[0] if found else None


def preloaded(path, **variables):
    return ["env", "LD_PRELOAD=" + path] + ["%s=%s" % v for v in variables.items()]


def ways():
    """name -> (words before the program, the way that it is compared with, the file that it leaves)"""
    out = {"alone": ([], None, None)}
    for option in ("--sample 512K", "--sample 32K", "--exact"):
        path = scratch("sonde" + option.split()[-1])
        out["sonde heap " + option] = ([SONDE, "heap", *option.split(), "-o", path, "--"], "alone", path)
    if have("heaptrack"):
        out["heaptrack"] = (["heaptrack", "-r", "-o", scratch("track")], "alone", scratch("track*"))
    jemalloc = library("libjemalloc.so.2")
    if jemalloc:
        out["jemalloc alone"] = (preloaded(jemalloc), None, None)
        out["jemalloc, 512K"] = (preloaded(
            jemalloc, MALLOC_CONF="prof:true,lg_prof_sample:19,prof_prefix:" + scratch("je")), "jemalloc alone", None)
    tcmalloc = library("libtcmalloc.so.4")
    if tcmalloc:
        out["tcmalloc alone"] = (preloaded(tcmalloc), None, None)
        out["tcmalloc, 512K"] = (preloaded(tcmalloc, TCMALLOC_SAMPLE_PARAMETER=1 << 19), "tcmalloc alone", None)
    return out


def files_bytes(pattern):
    return sum(os.path.getsize(p) for p in glob.glob(pattern)) if pattern else 0


def run(command):
    """(CPU ns a pair, wall ns a pair, MB of the largest process); None: it failed."""
    child = start(command, stdout=subprocess.PIPE)
    words = child.stdout.read().split()
    cost = cost_of(child)
    if b"cpu" not in words:
        return None
    at = words.index(b"cpu")
    return float(words[at + 1]), float(words[at + 3]), cost.max_rss_mb


def cost():
    for build, flag in BUILDS.items():
        program = compile_c("heap_pairs", flags=("-O2", flag))
        for threads, pairs in PAIRS.items():
            rounds, sizes = {}, {}
            for _ in range(ROUNDS):
                for name, (words, _, files) in ways().items():
                    for path in glob.glob(files) if files else ():
                        os.unlink(path)
                    got = run([*words, program, str(threads), str(pairs)])
                    if got:
                        rounds.setdefault(name, []).append(got)
                        sizes[name] = files_bytes(files)
            print_cost(build, threads, pairs, rounds, sizes)


def print_cost(build, threads, pairs, rounds, sizes):
    rows = []
    for name, (_, base, files) in ways().items():
        if name not in rounds:
            rows.append([name, "failed", "", "", "", "", ""])
            continue
        cpu, wall, rss = (statistics.median(r[i] for r in rounds[name]) for i in range(3))
        ratios = ["", ""]
        if base in rounds:
            ratios = ["%.2f" % (value / statistics.median(r[i] for r in rounds[base]))
                      for i, value in ((0, cpu), (1, wall))]
        rows.append([name, "%.0f" % cpu, ratios[0], "%.0f" % wall, ratios[1], "%.0f" % rss,
                     "%.2f" % (sizes[name] / threads / pairs) if files else ""])
    table("a pair of malloc and free, %d thread%s, built with frame pointers: %s; median of %d"
          % (threads, "s"[:threads - 1], "yes" if build != "none" else "no", ROUNDS),
          ["", "CPU ns", "x", "wall ns", "x", "largest MB", "bytes on disk"], rows)


def opening():
    """100 million events: how long until the first numbers are there, and in how much memory."""
    program, path = compile_c("heap_pairs"), scratch("large")
    measured([SONDE, "heap", "--exact", "-o", path, "--", program, "1", "50000000"])
    before = time.monotonic()
    cost = measured([SONDE, "report", path])
    table("a recording of 100 million events", ["", "MB", "s to open", "CPU s", "MB of memory"],
          [["sonde report", "%.1f" % (files_bytes(path) / 1e6), "%.2f" % (time.monotonic() - before),
            "%.2f" % cost.cpu_s, "%.0f" % cost.max_rss_mb]])


def peak_mb(pid):
    """The most that a process had resident so far; 0: it is gone."""
    try:
        with open("/proc/%d/status" % pid) as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return 0


def collector_mb(command):
    """The most that the process needed that is started."""
    most, child = 0, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        most = max(most, peak_mb(child.pid))
        time.sleep(0.005)
    return most


def memory():
    """What collects, names included: the most that it had resident. Without a peer: heaptrack's interpreter grew to 18.5 GB
    within a million pairs of heap_pairs."""
    pairs = compile_c("heap_pairs", flags=("-O2", "-fno-omit-frame-pointer"))
    source = scratch("large.cc")
    with open(source, "w") as f:
        f.write("#include <regex>\n#include <map>\n#include <iostream>\nint main() { std::map<std::string, int> m; "
                "std::regex r(\"a+b\"); std::cout << std::regex_match(\"aab\", r) << m.size(); }\n")
    workloads = {
        "heap_pairs, 1 thread": [pairs, "1", "2000000"],
        "heap_pairs, 900,000 blocks live": [pairs, "1", "2000000", "900000"],
        "python3 -m test test_json": ["python3", "-m", "test", "test_json"],
    }
    if have("clang++"):
        workloads["clang++ -O2, a file with <regex>"] = ["clang++", "-O2", "-c", "-o", scratch("large.o"), source]
    rows = []
    for name, command in workloads.items():
        own = collector_mb([SONDE, "heap", "--exact", "-o", scratch("memory.sonde"), "--", *command])
        rows.append([name, "%.0f" % own])
    table("memory of the collector, exact: the most that was resident", ["", "sonde MB"], rows)


def main():
    need("gcc")
    for name in sys.argv[1:] or ("cost", "opening", "memory"):
        {"cost": cost, "opening": opening, "memory": memory}[name]()


main()
