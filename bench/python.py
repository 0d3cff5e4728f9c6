#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Python targets: sonde against py-spy, austin and pystack, which come from PyPI into a directory of their own.

What the target loses, how often native and Python frames are one stack, what a sample costs, how many stacks are
impossible, and how long it takes to show all threads. `bench/python.py NAME...` runs only those tables."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

sys.path.insert(0, os.path.join(ROOT, "tests", "live", "programs"))
from python_flutter import MISSING, possible

PROGRAMS = os.path.join(ROOT, "tests", "live", "programs")
TARGETS = os.path.join(ROOT, "bench", "programs", "python_targets.py")
FLUTTER = os.path.join(PROGRAMS, "python_flutter.py")
ENVIRONMENT = os.path.expanduser("~/.cache/sonde-bench/python")
# The newest austin whose program starts with this machine's C library.
PEERS = ("py-spy", "pystack", "numpy", "cython", "setuptools")
AUSTINS = ("austin-dist", "austin-dist==3.7.0")
CYTHON = """
cdef object middle_in_cython(object function, int n):
    cdef int i
    for i in range(n):
        function(i)

def through_cython(object function, int n):
    return middle_in_cython(function, n)
"""


# ---- the environment ----

def base_python():
    """3.12 where there is one, since all of the peers know it."""
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/3.12.*/bin/python3.12"))
    return found[0] if found else shutil.which("python3.12") or sys.executable


def in_environment(name):
    return os.path.join(ENVIRONMENT, "bin", name)


def quietly(*command, **options):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL, **options).returncode == 0


def install():
    if os.path.exists(ENVIRONMENT + "/done"):
        return
    if not quietly(base_python(), "-m", "venv", "--clear", ENVIRONMENT):
        print("skipped: no virtual environment can be made with " + base_python())
        sys.exit(0)
    for package in PEERS:
        if not quietly(in_environment("pip"), "install", package):
            print("not to be had: " + package)
    for package in AUSTINS:
        quietly(in_environment("pip"), "install", package)
        if starts("austin"):
            break
    open(ENVIRONMENT + "/done", "w").close()


def starts(name):
    path = in_environment(name)
    return os.path.exists(path) and quietly(path, "--version")


def extension():
    out = scratch("known_extension.so")
    include = subprocess.run([in_environment("python"), "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-I" + include, "-o", out,
                    os.path.join(PROGRAMS, "known_extension.c")], check=True)
    return out


def cython():
    folder = scratch("cython")
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/known_cython.pyx", "w") as f:
        f.write(CYTHON)
    return folder if quietly(in_environment("cythonize"), "-i", "-3", "known_cython.pyx", cwd=folder) else None


# ---- tools ----

class Stacks:
    """Stacks of a recording: names, outermost first, and how often; and the samples that failed."""

    def __init__(self, stacks, failed=0):
        self.stacks, self.failed = stacks, failed
        self.count = sum(n for _, n in stacks)


def folded(path, separator=";"):
    with open(path, errors="replace") as f:
        for line in f:
            stack, _, count = line.rstrip("\n").rpartition(" ")
            if stack and count.isdigit() and not line.startswith("#"):
                yield stack.split(separator), int(count)


class Sonde:
    def __init__(self, name, *options):
        self.name, self.options = name, options

    def record(self, pid, hz, seconds):
        return sonde_record(hz, scratch("sonde"), *self.options, "-d", seconds, "-p", pid)

    def read(self, words):
        done = subprocess.run([SONDE, "report", scratch("sonde"), "--folded"], stdout=subprocess.PIPE)
        with open(scratch("sonde.folded"), "wb") as f:
            f.write(done.stdout)
        return Stacks(list(folded(scratch("sonde.folded"))))


class PySpy:
    def __init__(self, name, *options):
        self.name, self.options = name, options

    def record(self, pid, hz, seconds):
        return [in_environment("py-spy"), "record", *self.options, "-r", str(hz), "-d", str(seconds), "-f", "raw",
                "-o", scratch("spy"), "-p", str(pid)]

    def read(self, words):
        failed = re.findall(r"Errors: (\d+)", words)
        stacks = [([name.partition(" (")[0] for name in names], n) for names, n in folded(scratch("spy"))]
        return Stacks(stacks, int(failed[-1]) if failed else 0)


class Austin:
    def __init__(self, name, program="austin", *options):
        self.name, self.program, self.options = name, program, options

    def record(self, pid, hz, seconds):
        return [in_environment(self.program), *self.options, "-i", "%dus" % (1000000 // hz), "-x", str(seconds),
                "-o", scratch("austin"), "-p", str(pid)]

    def read(self, words):
        stacks = []
        for names, _ in folded(scratch("austin")):
            parts = [name.split(":") for name in names[2:]]
            stacks.append(([part[1] for part in parts if len(part) > 1], 1))
        return Stacks(stacks)


class Target:
    def __init__(self, *command):
        self.child = start([in_environment("python"), *map(str, command)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        stop(self.child)


def recorded(tool, target, hz, seconds):
    """(stacks, its CPU seconds), or None when it does not work."""
    for name in ("sonde", "spy", "austin"):
        if os.path.exists(scratch(name)):
            os.unlink(scratch(name))
    with open(scratch("words"), "w") as words:
        child = start(tool.record(target.child.pid, hz, seconds), stdout=words, stderr=words)
        try:
            child_deadline = time.monotonic() + 6 * seconds + 20
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
                    break
                if time.monotonic() > child_deadline:
                    stop(child)
                    return None
                time.sleep(0.05)
        finally:
            stop(child)
    with open(scratch("words"), errors="replace") as f:
        said = f.read()
    try:
        return tool.read(said), Cost(usage, 0).cpu_s
    except OSError:
        return None


def recorders():
    tools = [Sonde("sonde record"), Sonde("sonde record --sampler ptrace", "--sampler", "ptrace"),
             Sonde("sonde record --nonblocking", "--nonblocking")]
    if starts("py-spy"):
        tools.append(PySpy("py-spy record"))
        tools.append(PySpy("py-spy record --nonblocking", "--nonblocking"))
    if starts("austin"):
        tools.append(Austin("austin"))
    return tools


# ---- the tables ----

def slow_down(hz=100, threads=150, rounds=25000000, runs=3):
    """Wall time of fixed work, since that is what its users wait for."""
    for mode in ("waiting", "switching"):
        tools = [None] + recorders()
        if starts("py-spy"):
            tools.append(PySpy("py-spy record --native", "--native"))
        times = {}
        for _ in range(runs):
            for tool in tools:
                times.setdefault(tool.name if tool else "alone", []).append(_one_slow_down(
                    tool, mode, hz, threads, rounds))
        base = statistics.median(times["alone"])
        rows = []
        for name, seconds in times.items():
            seconds = [s for s in seconds if s]
            rows.append([name, "%.2f" % statistics.median(seconds), "%.3f" % (statistics.median(seconds) / base)]
                        if seconds else [name, "-", "-"])
        table("%d threads, %s, %d Hz: seconds for a fixed amount of work, median of %d"
              % (threads, {"waiting": "one works", "switching": "all work and wait"}[mode], hz, runs),
              ["", "s", "against alone"], rows)


def _one_slow_down(tool, mode, hz, threads, rounds):
    with Target(TARGETS, mode, threads, rounds) as target:
        recorder = None
        if tool:
            recorder = start(tool.record(target.child.pid, hz, 120))
            time.sleep(2)
            if recorder.poll() is not None:
                return None
        target.child.stdin.write("go\n")
        target.child.stdin.flush()
        answer = target.child.stdout.readline()
        if recorder:
            recorder.send_signal(signal.SIGINT)
            try:
                recorder.wait(30)
            except subprocess.TimeoutExpired:
                stop(recorder)
        return float(answer) if answer else None


def in_order(names, chain):
    """Whether the chain's parts are in the stack in this order; each is a choice of texts that a name may have in
    it."""
    at = 0
    for name in names:
        if at < len(chain) and any(part in name for part in chain[at]):
            at += 1
    return at == len(chain)


def merges():
    found = {
        "ctypes, 4 threads": (("by_qsort", 4), [["caller"], ["qsort"], ["callback"], ["compute"]]),
        "numpy": (("by_numpy",), [["caller"], ["umath", "ufunc", "UFunc"], ["callback"], ["compute"]]),
        "an extension": (("by_extension", extension()), [["caller"], ["known_middle"], ["callback"], ["compute"]]),
    }
    folder = cython()
    if folder:
        found["Cython"] = (("by_cython", folder), [["caller"], ["through_cython"], ["callback"], ["compute"]])
    return found


def merge(hz=100, seconds=5):
    tools = [Sonde("sonde record"), Sonde("sonde record --sampler ptrace", "--sampler", "ptrace")]
    if starts("py-spy"):
        tools.append(PySpy("py-spy record --native", "--native"))
    if starts("austinp"):
        tools.append(Austin("austinp", "austinp"))
    rows = {tool.name: [] for tool in tools}
    rows["pystack remote --native"] = []
    head = [""]
    for name, (command, chain) in merges().items():
        head.append(name)
        with Target(TARGETS, *command) as target:
            for tool in tools:
                rows[tool.name].append(_merged(recorded(tool, target, hz, seconds), chain))
            rows["pystack remote --native"].append(_pystack_merged(target.child.pid, chain))
    table("samples in which Python, C and Python again are one stack, in %", head,
          [[name] + cells for name, cells in rows.items()])


def _merged(got, chain):
    if not got or got[0].count + got[0].failed == 0:
        return "-"
    stacks = got[0]
    working = [(names, n) for names, n in stacks.stacks if not _only_waits(names)]
    whole = sum(n for names, n in working if in_order(names, chain))
    return "%.1f" % (100.0 * whole / (sum(n for _, n in working) + stacks.failed))


def _only_waits(names):
    """The first thread of a target whose other threads work."""
    return "by_qsort" in names


def _pystack_merged(pid, chain, times=20):
    if not starts("pystack"):
        return "-"
    whole = count = 0
    for _ in range(times):
        done = subprocess.run([in_environment("pystack"), "remote", "--native", str(pid)], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, errors="replace")
        for thread in done.stdout.split("Traceback for thread ")[1:]:
            names = re.findall(r'(?:in|at) (\S+)', thread)
            if "by_qsort" in names:
                continue
            count += 1
            whole += in_order(thread.splitlines(), chain)
    return "%.1f" % (100.0 * whole / count) if count else "0.0"


def cost(hz=1000, seconds=(4, 16), depth=20):
    """Starting up and finding names is a cost of each run; what a longer run costs more is that of the samples."""
    rows = []
    for tool in recorders():
        with Target(TARGETS, "busy", depth) as target:
            got = [recorded(tool, target, hz, s) for s in seconds]
        if not all(got):
            rows.append([tool.name] + ["-"] * 5)
            continue
        (short, short_cpu), (stacks, cpu) = got
        more = (stacks.count - short.count) / max(0.001, cpu - short_cpu)
        deepest = max([len(names) for names, _ in stacks.stacks] or [0])
        rows.append([tool.name, stacks.count, "%.2f" % cpu, "%.0f" % (stacks.count / cpu), "%.0f" % more, deepest])
    table("%d Hz, %d calls deep, %d s; and by what it costs more than %d s" % (hz, depth, seconds[1], seconds[0]),
          ["", "samples", "its CPU s", "samples a CPU s", "a further one", "deepest"], rows)


def flutter(hz=1000, seconds=10):
    rows = []
    for tool in recorders():
        with Target(FLUTTER) as target:
            got = recorded(tool, target, hz, seconds)
        if got:
            wrong = sum(n for names, n in got[0].stacks if not possible(names))
            torn = sum(n for names, n in got[0].stacks if MISSING in names) + got[0].failed
            rows.append([tool.name, got[0].count, wrong, "%.2f" % (100.0 * wrong / max(1, got[0].count)), torn])
        else:
            rows.append([tool.name] + ["-"] * 4)
    table("%d Hz on call chains that change: impossible stacks, and those of which the tool says that they failed" % hz,
          ["", "samples", "impossible", "%", "said"], rows)


def stacks(threads=500, runs=5):
    tools = {"sonde stack": [SONDE, "stack", "PID"], "sonde stack --json": [SONDE, "stack", "--json", "PID"]}
    if starts("py-spy"):
        tools["py-spy dump"] = [in_environment("py-spy"), "dump", "--pid", "PID"]
        tools["py-spy dump --native"] = tools["py-spy dump"] + ["--native"]
    if starts("pystack"):
        tools["pystack remote"] = [in_environment("pystack"), "remote", "PID"]
        tools["pystack remote --native-all"] = tools["pystack remote"] + ["--native-all"]
    rows, best = [], {}
    with Target(TARGETS, "many", threads) as target:
        for name, command in tools.items():
            command = [a.replace("PID", str(target.child.pid)) for a in command]
            walls = []
            for _ in range(runs):
                before = time.monotonic()
                done = measured(command)
                walls.append(time.monotonic() - before)
            best[name] = min(walls)
            rows.append([name, "%.0f" % (1e3 * best[name]), "%.1f" % (best[name] / best["sonde stack"]), done.status])
    table("all stacks of %d Python threads that wait, best of %d" % (threads, runs),
          ["", "ms", "times sonde", "exit status"], rows)


TABLES = {"slow_down": slow_down, "merge": merge, "cost": cost, "flutter": flutter, "stacks": stacks}


def main():
    need("gcc")
    install()
    for name in sys.argv[1:] or TABLES:
        TABLES[name]()


main()
