#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How often a stack that was completed from the running target is wrong, with whole copies of the same stacks
as the truth (live_tail.c). Small cuts, so that there is something to complete."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *
from workloads import *

HZ, SECONDS = 999, 8
SORT = "SELECT count(*), sum(hashtext(i::text)) FROM (SELECT i FROM generate_series(1, 20000) i ORDER BY i % 997) t;"
PROGRAM = os.path.join(os.environ.get("SONDE_BUILD", os.path.join(ROOT, "build")), "bench", "sonde_live_tail")


def counted(cut, *arguments):
    done = subprocess.run([PROGRAM, "record", "-q", "-F", str(HZ), "--stack-size", "65528", "-o", scratch("l"),
                           *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env=dict(os.environ, SONDE_BENCH_CUT=str(cut)))
    return [int(n) for n in done.stderr.split()[-5:]]


def running(command):
    def count(cut):
        child = background(command)
        numbers = counted(cut, "-p", child.pid, "-d", SECONDS)
        stop_group(child)
        return numbers
    return count


def clang(cut):
    return counted(cut, "--", *clang_compile())


def postgres(cut):
    folder, server = postgres_server()
    client, backend = postgres_backend(folder, SORT)
    numbers = counted(cut, "-p", backend, "-d", SECONDS)
    stop_group(client)
    stop_group(server)
    return numbers


ROWS = [
    ("clang++ -O2 regex.cc", ["clang++"], 8192, clang),
    ("clang++ -O2 regex.cc", ["clang++"], 2048, clang),
    ("python3", ["python3"], 1024, lambda cut: running(["python3", "-c", PYTHON])(cut)),
    ("postgres, a sort", ["psql", "runuser", "pg_ctlcluster"], 1024, postgres),
    ("node, JIT", ["node"], 1024, lambda cut: running(["node", written("load.js", NODE)])(cut)),
    ("coroutines", ["gcc"], 2048, lambda cut: running([compile_c("coroutines")])(cut)),
    ("coroutines", ["gcc"], 512, lambda cut: running([compile_c("coroutines")])(cut)),
]


def row(name, commands, cut, count):
    missing = [c for c in commands if not have(c)]
    if missing:
        return [name, cut, "%s is not installed" % missing[0], "", "", "", "", ""]
    samples, inside, right, wrong, short = count(cut)
    return [name, cut, samples, inside, right, wrong, "%.3f" % (100 * wrong / max(1, right + wrong)), short]


def main():
    subprocess.run(["ninja", "-C", os.path.dirname(os.path.dirname(PROGRAM)), "bench/sonde_live_tail"], check=True,
                   stdout=subprocess.DEVNULL)
    table("Stacks completed from the running target, %d Hz, against whole copies of the same" % HZ,
          ["", "copied", "samples", "inside", "completed", "wrong", "wrong %", "cut"],
          [row(*r) for r in ROWS if not sys.argv[1:] or any(w in r[0] for w in sys.argv[1:])])


main()
