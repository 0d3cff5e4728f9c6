# SPDX-License-Identifier: BSD-2-Clause
"""What the benches share: running things, counting what they cost, and printing tables.

Every bench measures sonde and its peer in the same run, interleaved, and prints both numbers and the
ratio. Costs are CPU times and bytes, never wall time: the machine may be busy with other things.
"""
import glob
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
SONDE = os.path.realpath(os.environ.get("SONDE", os.path.join(ROOT, "build", "sonde")))
REGEX_CC = os.path.join(ROOT, "bench", "programs", "regex.cc")

_scratch = tempfile.TemporaryDirectory(prefix="sonde-bench-")


def scratch(name):
    return os.path.join(_scratch.name, name)


def have(command):
    return shutil.which(command) is not None


class Cost:
    """What a process (with the children it waited for) has used."""

    def __init__(self, usage, status):
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.max_rss_mb = usage.ru_maxrss / 1024
        self.status = status


def start(command, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen(command, **options)


def cost_of(child):
    """Waits for a process started with start()."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Cost(usage, child.returncode)


def measured(command, **options):
    return cost_of(start(command, **options))


def measured_within(command, limit_s):
    """(CPU seconds, whether it came to its end within limit_s seconds). perf starts addr2line for
    inlined functions, which may take longer than anyone wants to wait."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = start(command, start_new_session=True)
    try:
        child.wait(limit_s)
        done = True
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        done = False
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def stop(child):
    if child.poll() is None:
        child.kill()
        child.wait()


def compile_c(name, flags=("-O2", "-fomit-frame-pointer"), compiler="gcc", folder="bench/programs"):
    out = scratch("%s-%s%s" % (name, compiler, "".join(flags).replace("/", "")))
    if not os.path.exists(out):
        subprocess.run([compiler, *flags, "-D_GNU_SOURCE", "-I" + os.path.join(ROOT, "tests/live/programs"),
                        "-o", out, os.path.join(ROOT, folder, name + ".c"), "-pthread"],
                       check=True)
    return out


def report_json(path):
    done = subprocess.run([SONDE, "report", path, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def perf_record(hz, output, *arguments, dump=16384):
    return ["perf", "record", "-q", "-F", str(hz), "--call-graph", "dwarf,%d" % dump, "-o", output,
            *map(str, arguments)]


def sonde_record(hz, output, *arguments):
    return [SONDE, "record", "-q", "-F", str(hz), "-o", output, *map(str, arguments)]


def clang_compile():
    """The classic: clang++ -O2 over a file full of <regex>."""
    return ["clang++", "-O2", "-std=c++17", "-c", "-o", scratch("regex.o"), REGEX_CC]


def need(*commands):
    missing = [c for c in commands if not have(c)]
    if missing:
        print("skipped: %s is not installed (scripts/setup --bench)" % ", ".join(missing))
        sys.exit(0)


def table(title, head, rows):
    rows = [[str(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [head] + rows) for i in range(len(head))]
    print("\n" + title)
    for row in [head] + rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def ratio(ours, theirs):
    return "%.2f" % (ours / theirs) if theirs else "-"
