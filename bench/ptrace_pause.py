#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How long a thread stands still for a sampler that stops it: sonde --sampler ptrace against py-spy.

The target is a Python program of several threads with a native thread in it that does nothing but look at
the clock (programs/heartbeat.c): pauses are what that thread sees."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

HZ, SECONDS, RUNS, THREADS = 100, 5, 3, 4

TARGET = """
import ctypes, sys, threading
beat = ctypes.CDLL(sys.argv[1])
def deep(n):
    return deep(n - 1) if n else sum(i * i for i in range(20000))
def work():
    while True:
        deep(20)
for _ in range(%d):
    threading.Thread(target=work, daemon=True).start()
beat.heartbeat_start()
print("ready", flush=True)
for line in sys.stdin:
    beat.heartbeat_clear() if line == "clear\\n" else beat.heartbeat_print()
""" % THREADS


def py_spy():
    """Its program: from PATH, or fetched for this run."""
    if have("py-spy"):
        return shutil.which("py-spy")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", scratch("py-spy"), "py-spy"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = os.path.join(scratch("py-spy"), "bin", "py-spy")
    return path if os.path.exists(path) else None


class Target:
    def __init__(self):
        library = compile_c("heartbeat", ("-O2", "-shared", "-fPIC"))
        self.child = start([sys.executable, "-c", TARGET, library], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()
        time.sleep(0.3)

    def ask(self, word):
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()

    def pauses_under(self, command):
        """How many; p50, p99, max and p99 with the wait for a CPU, in us; and the recorder's CPU, % of one."""
        self.ask("clear")
        before = time.monotonic()
        cost = measured([a.replace("PID", str(self.child.pid)) for a in command])
        wall = time.monotonic() - before
        self.ask("print")
        count, *us = self.child.stdout.readline().split()
        return int(count), [float(x) for x in us], 100 * cost.cpu_s / wall


def main():
    need("gcc")
    spy = py_spy()
    modes = {
        "sonde record --sampler ptrace": sonde_record(HZ, scratch("s"), "--sampler", "ptrace", "-d", SECONDS,
                                                      "-p", "PID"),
        "sonde record (perf)": sonde_record(HZ, scratch("p"), "--sampler", "perf", "-d", SECONDS, "-p", "PID"),
    }
    if spy:
        modes["py-spy record"] = [spy, "record", "-r", str(HZ), "-d", str(SECONDS), "-f", "raw", "-t",
                                  "-o", scratch("spy"), "-p", "PID"]
        modes["py-spy record --native"] = modes["py-spy record"][:2] + ["--native"] + modes["py-spy record"][2:]
    else:
        print("py-spy cannot be had: there is nothing to compare with")
    target = Target()
    seen = {name: [] for name in modes}
    for _ in range(RUNS):
        for name, command in modes.items():
            seen[name].append(target.pauses_under(command))
    stop(target.child)
    rows, p99 = [], {}
    for name, runs in seen.items():
        p50, p99[name], most, gap = (statistics.median(r[1][i] for r in runs) for i in range(4))
        rows.append([name, statistics.median(r[0] for r in runs), "%.0f" % p50, "%.0f" % p99[name],
                     "%.0f" % most, "%.0f" % gap, "%.1f" % statistics.median(r[2] for r in runs)])
    table("Pauses of one thread as it sees them itself, %d Hz, %d s, %d Python threads beside it; median of %d"
          % (HZ, SECONDS, THREADS, RUNS), ["", "pauses", "p50 us", "p99 us", "max us", "p99 with wait for a CPU", "CPU %"], rows)
    if spy:
        print("  p99, sonde ptrace / py-spy: %s" % ratio(p99["sonde record --sampler ptrace"],
                                                        p99["py-spy record"]))
    meta = report_json(scratch("s"))["meta"]
    print("  sonde itself says: %s" % meta["pauses"])


main()
