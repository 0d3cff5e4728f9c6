#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""clang++ -O2 over a file full of <regex> at 999 Hz: how many stacks are whole, and what goes through the
rings for it; by the size of the copy, against perf with the same and with larger ones."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ = 999
ROOTS = ("_start", "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "start_thread",
         "_dl_start", "_dl_start_user", "execve", "[unknown]")


def sonde_row(name, *arguments):
    path = scratch("clang.sonde")
    subprocess.run(sonde_record(HZ, path, *arguments, "--", *clang_compile()), check=True)
    got = report_json(path)
    meta, ends = got["meta"], got["quality"]["ends"]
    why = ["%s %.2f" % (end, 100.0 * n / got["samples"])
           for end, n in sorted(ends.items(), key=lambda e: -e[1]) if n and end != "root"]
    if "stack_sizes" in meta:
        name += ", " + meta["stack_sizes"]
    return {"name": name, "samples": got["samples"], "rooted": got["quality"]["rooted_pct"],
            "ring": got["cost"]["ring_bytes"], "lost": got["quality"]["lost_samples"],
            "delay": "%.2f / %.1f" % (int(meta["delay_mean_ns"]) / 1e6, int(meta["delay_p99_ns"]) / 1e6),
            "why": ", ".join(why), "cpu": got["cost"]["sampler_cpu_ns"] / 1e9}


def perf_row(dump):
    """The bytes of the samples' records are those that went through the rings."""
    path = scratch("clang.data")
    cost = measured(perf_record(HZ, path, "--", *clang_compile(), dump=dump))
    script = subprocess.Popen(["perf", "script", "--no-inline", "-F", "comm,ip,sym", "-i", path],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    samples = rooted = 0
    last = None
    for line in script.stdout:
        if line.strip():
            last = line
        elif last:
            samples += 1
            words = last.split()
            symbol = words[1].decode(errors="replace") if len(words) > 1 else ""
            rooted += symbol.split("+")[0].split("@")[0] in ROOTS[:-1]
            last = None
    script.wait()
    lost = subprocess.run(["perf", "report", "--stats", "-i", path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout.decode(errors="replace")
    found = re.search(r"LOST_SAMPLES events:\s+(\d+)", lost)
    return {"name": "perf dwarf,%d" % dump, "samples": samples, "rooted": 100.0 * rooted / max(1, samples),
            "ring": os.path.getsize(path), "lost": int(found.group(1)) if found else 0, "delay": "", "why": "",
            "cpu": 0}


def main():
    need("perf", "clang++")
    rows = [sonde_row("sonde"), perf_row(65528), sonde_row("sonde --stack-size 16384", "--stack-size", 16384),
            perf_row(16384), sonde_row("sonde --stack-size 4096", "--stack-size", 4096), perf_row(8192)]
    full = next(r for r in rows if r["name"] == "perf dwarf,65528")
    per = full["ring"] / max(1, full["samples"])
    table("Whole stacks of clang++ -O2 regex.cc, %d Hz" % HZ,
          ["", "samples", "rooted %", "ring MB", "a sample, against perf dwarf,65528", "delay ms, mean / p99", "lost",
           "the others, %"],
          [[r["name"], r["samples"], "%.2f" % r["rooted"], "%.0f" % (r["ring"] / 1e6),
            "1/%.1f" % (per / (r["ring"] / max(1, r["samples"]))), r["delay"], r["lost"], r["why"]] for r in rows])
    print("  perf's rings hold what its file does (perf.data); a stack is rooted when its outermost frame is of")
    print("  the C library's start of a program or thread.")


main()
