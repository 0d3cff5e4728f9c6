#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much slower a program gets that switches threads as often as it can, when its time off the CPU is
recorded: the time of a round trip between two threads through pipes.

Where each of the two has a CPU of its own, a round trip is mostly waking these up, and recording may well make it
faster, because it keeps them awake: so once with both threads on one CPU, and once as it comes.

Round trips are wall time, for that is what such a program is about; the best of several interleaved runs counts,
for what else the machine does only ever adds. On a machine that is busy look at the CPU time of a round trip: what
is recorded at a switch is done in the thread that leaves."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

RUNS, ROUNDS = 9, "150000"
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
    """(wall, CPU) of one round trip; None: it was refused."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    words = [int(w) for w in done.stdout.split() if w.isdigit()]
    return tuple(words[:2]) if len(words) >= 2 and not done.returncode else None


def measure(title, program):
    commands = {name: make(program) for name, make in ways()}
    times = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            times[name].append(round_trip_ns(command))
    times = {name: [t for t in all_times if t] for name, all_times in times.items()}
    base = [min(t[i] for t in times["alone"]) for i in (0, 1)]
    rows = []
    for name, all_times in times.items():
        if not all_times:
            rows.append([name, "refused", "", "", ""])
            continue
        best = [min(t[i] for t in all_times) for i in (0, 1)]
        rows.append([name] + [text for i in (0, 1) for text in
                              ("%.2f" % (best[i] / 1e3), "%+.0f %%" % (100 * best[i] / base[i] - 100))])
    table("a round trip of two threads%s, %s times, best of %d interleaved runs" % (title, ROUNDS, RUNS),
          ["", "us", "", "CPU us", ""], rows)


def main():
    need("gcc", "taskset")
    program = [compile_c("pingpong", folder="tests/live/programs"), ROUNDS]
    measure(" on one CPU", [shutil.which("taskset"), "-c", "1", *program])
    measure(" wherever the kernel puts them", program)


main()
