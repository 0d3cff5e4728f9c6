#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much slower a program gets that switches threads as often as it can, when its time off the CPU is
recorded: the time of a round trip between two threads through pipes.

Round trips are wall time, for that is what such a program is about. All ways are interleaved, and the best
of several runs counts: what else the machine does only ever adds."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

RUNS, ROUNDS = 7, "200000"
PROBE = "tracepoint:sched:sched_switch /pid == cpid/ { @[kstack, ustack] = count(); }"


def sonde(sampler, *options):
    return [SONDE, "record", "-q", "--off-cpu", "--sampler", sampler, *options, "-o", scratch("s"), "--"]


def ways():
    """name -> what stands before the program, as words or as a function of it."""
    yield "alone", lambda program: program
    for sampler in ("perf", "bpf"):
        if not measured(sonde(sampler) + ["true"]).status:
            yield "sonde --off-cpu, " + sampler, lambda program, s=sampler: sonde(s) + program
            yield ("sonde --off-cpu --min-block 1ms, " + sampler,
                   lambda program, s=sampler: sonde(s, "--min-block", "1ms") + program)
    if have("perf"):
        yield "perf sched record", lambda program: ["perf", "sched", "record", "-o", scratch("p"), "--"] + program
    if have("bpftrace"):
        yield ("bpftrace sched_switch, both stacks",
               lambda program: ["bpftrace", "-o", scratch("b"), "-e", PROBE, "-c", " ".join(program)])


def round_trip_ns(command):
    """None: it was refused."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    words = [w for w in done.stdout.split() if w.isdigit()]
    return int(words[0]) if words and not done.returncode else None


def main():
    need("gcc")
    program = [compile_c("pingpong", folder="tests/live/programs"), ROUNDS]
    commands = {name: make(program) for name, make in ways()}
    times = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            times[name].append(round_trip_ns(command))
    times = {name: [t for t in all_times if t] for name, all_times in times.items()}
    base = min(times["alone"])
    rows = []
    for name, all_times in times.items():
        if not all_times:
            rows.append([name, "refused", "", ""])
            continue
        t = min(all_times)
        rows.append([name, "%.2f" % (t / 1e3), "%.2f" % (statistics.median(all_times) / 1e3),
                     "%+.0f %%" % (100 * t / base - 100)])
    table("a round trip of two threads, %s times, %d interleaved runs" % (ROUNDS, RUNS),
          ["", "best, us", "median, us", "slower by"], rows)


main()
