#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How soon it is clear why a process hangs: sonde why, and stacks of all threads, against gdb and eu-stack.

The target has N threads that wait for one mutex, 13 calls deep. Its first thread looks at the clock all the
time: the longest gap that it sees while a tool works is told beside the gaps that it sees without. Wall times,
best of some runs, since that is what somebody waits; on a busy machine they mean little."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

RUNS = 5
GDB = ["gdb", "-q", "-nx", "-batch", "-p", "PID", "-ex", "set pagination off", "-ex", "thread apply all bt"]
TOOLS = {
    "sonde why": [SONDE, "why", "PID"],
    "sonde why --look proc": [SONDE, "why", "--look", "proc", "PID"],
    "sonde why --look bpf": [SONDE, "why", "--look", "bpf", "PID"],
    "sonde stack": [SONDE, "stack", "PID"],
    "eu-stack": ["eu-stack", "-p", "PID"],
    "gdb, all backtraces": GDB,
}
BUILDS = {
    "-O0": ("-O0", "-g"),
    "-O2": ("-O2", "-fomit-frame-pointer"),
    "-O2, frame pointers": ("-O2", "-fno-omit-frame-pointer"),
}


class Target:
    def __init__(self, threads, flags=BUILDS["-O2"]):
        self.child = start([compile_c("blocked", flags), str(threads)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()

    def gap_us(self):
        """The longest since it was last asked."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())

    def under(self, command):
        """Wall seconds, the target's longest gap, the output."""
        self.gap_us()
        before = time.monotonic()
        done = subprocess.run([a.replace("PID", str(self.child.pid)) for a in command], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, errors="replace")
        return time.monotonic() - before, self.gap_us(), done.stdout


def cold():
    """No file is in memory any more, ours included."""
    try:
        subprocess.run(["sync"])
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3\n")
        return True
    except OSError:
        return False


def alone(target):
    target.gap_us()
    time.sleep(1)
    return target.gap_us()


def compare(threads):
    target = Target(threads)
    rows, best = [], {}
    for name, command in TOOLS.items():
        if not have(command[0]):
            continue
        runs = [target.under(command) for _ in range(RUNS if "sonde" in name else 2)]
        best[name] = min(r[0] for r in runs)
        rows.append([name, "%.0f" % (1e3 * best[name]),
                     "%.1f" % (best[name] / best["sonde why"]),
                     "%.1f" % (min(r[1] for r in runs) / 1e3)])
    if cold():
        took = min((target.under(TOOLS["sonde why"])[0] for _ in range(3) if cold()))
        rows.insert(1, ["sonde why, nothing cached", "%.0f" % (1e3 * took), "%.1f" % (took / best["sonde why"]), ""])
    rows.append(["(nobody looks)", "", "", "%.1f" % (alone(target) / 1e3)])
    table("%d threads behind one mutex" % threads, ["", "ms", "times sonde why", "longest gap, ms"], rows)
    stop(target.child)


def whole(pid, method):
    done = subprocess.run([SONDE, "stack", "--json", "--look", method, str(pid)], stdout=subprocess.PIPE, check=True)
    asleep = [t for t in json.loads(done.stdout)["threads"] if t["state"] != "R"]
    return 100.0 * sum(t["whole"] for t in asleep) / len(asleep)


def completeness():
    rows = []
    for name, flags in BUILDS.items():
        target = Target(100, flags)
        rows.append([name] + ["%.1f" % whole(target.child.pid, m) for m in ("proc", "bpf", "auto")])
        stop(target.child)
    python = start([sys.executable, "-c", """
import threading, time
def deep(n):
    return deep(n - 1) if n else time.sleep(1000)
for _ in range(20):
    threading.Thread(target=deep, args=(10,), daemon=True).start()
deep(10)"""])
    time.sleep(1)
    rows.append(["CPython"] + ["%.1f" % whole(python.pid, m) for m in ("proc", "bpf", "auto")])
    stop(python)
    table("stacks that are whole, without a stop, %", ["", "proc", "bpf", "auto"], rows)


def main():
    need("gcc")
    for threads in (100, 1000):
        compare(threads)
    completeness()


main()
