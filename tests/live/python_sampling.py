#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (it takes minutes)
"""Recordings of Python programs whose profile is known: by BPF, by ptrace, and read while they run."""
import os
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import pythons

SCRIPT = os.path.join(PROGRAMS, "python_sampled.py")
LINES = {w: n for n, line in enumerate(open(SCRIPT), 1) for w in re.findall(r"# LINE (\d+)", line)}
WAYS = {"bpf": ["--sampler", "perf"], "ptrace": ["--sampler", "ptrace"], "nonblocking": ["--nonblocking"]}


class Stacks:
    """Samples of a recording, each the list of (function, line) of its Python frames, outermost first."""

    def __init__(self, recorded):
        frames, names, nodes, texts = {}, {}, {}, {}
        self.samples, self.meta = [], {}
        for line in recorded.dump().splitlines():
            kind = line.split(" ", 1)[0]
            values = dict(re.findall(r'(\w+)=("[^"]*"|\S*)', line))
            if kind == "string":
                texts[values["id"]] = values["text"].strip('"')
            elif kind == "meta":
                self.meta[texts.get(values["key"])] = texts.get(values["value"])
            elif kind == "frame":
                frames[values["id"]] = values["kind"]
            elif kind == "symbol" and values["frame"] not in names:
                names[values["frame"]] = (texts.get(values.get("name")), int(values.get("at", ":0").rpartition(":")[2]))
            elif kind == "stack":
                nodes[values["id"]] = (values["parent"], values["frame"])
            elif kind == "sample":
                self.samples.append(values["stack"])
        self.stacks = [self._stack(s, nodes, frames, names) for s in self.samples]

    def _stack(self, node, nodes, frames, names):
        out = []
        while node in nodes:
            node, frame = nodes[node]
            if frames.get(frame) == "python":
                out.append(names[frame])
        return out[::-1]

    def share(self, of, function, line=None):
        """Percent of the samples in `of` that are in the function, or on that line of it."""
        among = [s for s in self.stacks if any(f == of for f, _ in s)] if of else self.stacks
        hit = [s for s in among if any(f == function and line in (None, n) for f, n in s)]
        return 100.0 * len(hit) / max(1, len(among))


def whole(python):
    return not python.kinds & {"chroot", "bare", "later", "musl"}


def usual():
    found = {}
    for python in pythons():
        if whole(python) and "free-threaded" not in python.kinds:
            found.setdefault(python.version[:2], python)
    if not found:
        skip("there is no CPython from 3.8 to 3.14 here")
    return [found[v] for v in sorted(found)]


def every():
    """The others as well: of distributions, stripped, without symbols, free-threaded, with another C library."""
    found = [p for p in pythons() if p.version[:2] >= (3, 8)]
    if not found:
        skip("there is no CPython from 3.8 on here")
    return found


def newest():
    return usual()[-1]


def need_bpf():
    done = sonde("record", "--wall", "--sampler", "bpf", "-d", "0.1", "-o", work("try.sonde"), "-p", os.getpid())
    if done.returncode:
        skip("no BPF here: " + done.stderr.decode().partition("\n")[0])


def started(python, what, seconds):
    script = os.path.join(work(), "python_sampled.py")
    shutil.copyfile(SCRIPT, script)
    return start(python.command + [script, what, str(seconds)], env=python.environment())


def recorded(python, what, way, rate=499, least=300):
    """(what `record` said, its samples) of the program, which is running already. A machine with other things to do
    gives it less time than it wants: so it is looked at until there are `least` samples."""
    child = started(python, what, 60)
    seconds = 1.2
    while True:
        got = recording(WAYS[way] + ["-F", str(rate), "-d", str(seconds), "-p", str(child.pid)])
        check(alive(child), "the program ended")
        if got.samples >= least or seconds > 12:
            break
        seconds *= 3
    child.kill()
    return got, Stacks(got)


def python_share(got):
    return 100.0 * got.quality["python_stacks"] / max(1, got.samples)


def add_split(way):
    def body():
        for python in every() if way == "bpf" else usual():
            for attempt in (1, 2):
                got, stacks = recorded(python, "split", way)
                n = len(stacks.stacks)
                seventy = stacks.share(None, "seventy") / 0.5 if n else 0
                line = stacks.share("by_line", "by_line", LINES["70"])
                words = "%s by %s: %d samples, %.1f %% Python, seventy %.1f, line %.1f, %s" % (
                    python.label, way, n, python_share(got), seventy, line, got.quality)
                if n >= 300 and 61 < seventy < 79 and 58 < line < 82:
                    break
                check(attempt == 1, words)
            check(python_share(got) >= 99, words)
            check(way == "nonblocking" or got.quality["python_torn"] <= n / 100, words)
            check(stacks.meta.get("python", "").startswith("%d.%d." % python.version[:2]), "%s" % stacks.meta)
            print(words.partition(", {")[0])
    body.__name__ = "70_to_30_by_function_and_line_with_" + way
    test(body)


CALLERS = {"leaf": {"left_inner", "right_inner", "left_values", "right_values"},
           "left_inner": {"left_outer"}, "right_inner": {"right_outer"},
           "left_values": {"left_generator"}, "right_values": {"right_generator"},
           "left_generator": {"use_left"}, "right_generator": {"use_right"},
           "left_outer": {"flutter"}, "right_outer": {"flutter"}, "use_left": {"flutter"}, "use_right": {"flutter"}}


def impossible(stacks):
    bad = []
    for stack in stacks:
        names = [f.rpartition(".")[2] for f, _ in stack]
        if any(inner in CALLERS and outer not in CALLERS[inner] and not outer.startswith("[missing")
               for outer, inner in zip(names, names[1:])):
            bad.append(names)
    return bad


def add_flutter(way):
    def body():
        for python in usual():
            got, stacks = recorded(python, "flutter", way, rate=997)
            bad, torn = impossible(stacks.stacks), got.quality["python_torn"]
            words = "%s by %s: %d samples, %d impossible, %d torn" % (
                python.label, way, len(stacks.stacks), len(bad), torn)
            print(words)
            check(len(stacks.stacks) >= 300, words)
            check(len(bad) <= (torn if way == "nonblocking" else 0), words + "\n%s" % bad[:3])
            # One that was sampled before its process was known.
            check(way == "nonblocking" or torn <= len(stacks.stacks) / 50, words)
    body.__name__ = "no_impossible_stack_with_" + way
    test(body)


def add_young_threads(way):
    def body():
        for python in usual():
            got, stacks = recorded(python, "threads", way)
            among = [s for s in stacks.stacks if any(f in ("only_here", "spin") for f, _ in s)]
            words = "%s by %s: %.1f %% of %d samples Python, %d in threads that had just begun" % (
                python.label, way, python_share(got), got.samples, len(among))
            print(words)
            # Those that are read while they run have to be found first, and may have ended by then.
            check(len(among) >= 200 and len(among) >= (0.5 if way == "nonblocking" else 0.95) * got.samples, words)
    body.__name__ = "threads_that_begin_have_python_frames_with_" + way
    test(body)


def add_deep(way):
    def body():
        for python in usual():
            got, stacks = recorded(python, "deep", way, least=60)
            depths = sorted(len(s) for s in stacks.stacks)
            words = "%s by %s: %d samples, depth %d at least, %d torn, %d cut" % (
                python.label, way, len(depths), depths[0] if depths else 0,
                got.quality["python_torn"], got.quality["python_cut"])
            print(words)
            check(len(depths) > 50 and depths[len(depths) // 20] > 900, words)
    body.__name__ = "a_recursion_of_900_with_" + way
    test(body)


for each in WAYS:
    add_split(each)
    add_flutter(each)
    add_young_threads(each)
    add_deep(each)


def wall_clock(way):
    """Off the CPU, too: half of the time is slept in nap()."""
    if way == "bpf":
        need_bpf()
    for python in usual():
        child = started(python, "sleep", 30)
        sampler = {"perf": ["--sampler", "perf"], "bpf": ["--sampler", "bpf"]}.get(way) or WAYS[way]
        got = recording(["--wall", "-d", "2", "-p", str(child.pid)] + sampler)
        child.kill()
        done = sonde("report", "--python-only", "--folded", "--state", "syscall", "--state", "futex", got.path)
        slept = {"nap": 0, "other": 0}
        for line in done.stdout.decode().splitlines():
            slept["nap" if ";nap;" in line else "other"] += int(line.rpartition(" ")[2])
        words = "%s by %s: %.1f %% of stacks with Python frames, %.0f ms in nap, %.0f ms elsewhere" % (
            python.label, way, 100 * got.quality["python_stacks"] / max(1, got.quality["intervals"] + got.samples),
            slept["nap"] / 1e6, slept["other"] / 1e6)
        print(words)
        check(slept["nap"] > 400e6 and slept["other"] < 0.05 * slept["nap"], words)


@test
def time_off_the_cpu_with_bpf():
    wall_clock("bpf")


@test
def time_off_the_cpu_with_perf_events():
    wall_clock("perf")


@test
def time_off_the_cpu_with_ptrace():
    wall_clock("ptrace")


@test
def children_by_fork_and_spawn():
    for way in ("bpf", "ptrace"):
        python = newest()
        got = recording(WAYS[way] + ["-F", "499", "--"] + python.command + [SCRIPT, "fork", "2.5"],
                        env=python.environment())
        found = Stacks(got).stacks
        inside = [s for s in found if any(f == "in_child" for f, _ in s)]
        print("%s: %d samples, %d in children" % (way, len(found), len(inside)))
        check(len(inside) >= 300, "%d of %d" % (len(inside), len(found)))
        # Four children had the same time, and share CPUs.
        by_pid = {}
        for line in got.dump().splitlines():
            if line.startswith("sample"):
                pid = re.search(r" pid=(\d+)", line).group(1)
                by_pid[pid] = by_pid.get(pid, 0) + 1
        check(sum(n >= 50 for n in by_pid.values()) >= 4, "%s" % by_pid)


@test
def a_wrapper_that_starts_python():
    for way in ("bpf", "ptrace"):
        python = newest()
        child = start(["sh", "-c", "echo ready; sleep 0.7; \"$@\"; true", "sh"] + python.command + [SCRIPT, "split", "5"],
                      env=python.environment())
        got = recording(WAYS[way] + ["-F", "499", "-d", "7", "-p", str(child.pid)])
        stacks = Stacks(got)
        seventy = stacks.share(None, "seventy")
        check(got.samples > 300 and seventy > 25, "%s: %d samples, %.1f" % (way, got.samples, seventy))


@test
def interpreters_within_interpreters():
    for way in ("bpf", "ptrace"):
        for python in usual():
            got, stacks = recorded(python, "nested", way, least=60)
            names = [[f for f, _ in s] for s in stacks.stacks]
            inside = [n for n in names if "within" in n]  # what makes the interpreter comes first
            right = [n for n in inside if "outside" in n and n.index("outside") < n.index("within")]
            words = "%s by %s: %d right of %d of %d samples" % (python.label, way, len(right), len(inside), len(names))
            print(words)
            check(len(right) >= 0.97 * len(inside) and len(inside) >= 30, words + "\n%s" % names[:3])


@test
def no_call_is_interrupted():
    for way in ("bpf", "nonblocking"):
        child = started(newest(), "waits", 2.5)
        got = recording(WAYS[way] + ["-F", "997", "-d", "1.5", "-p", str(child.pid)])
        check(got.samples > 50, "%s" % got.samples)
        said = child.stdout.read().decode()
        check(said.strip() == "interrupted 0", "%s: %s" % (way, said))


@test
def a_killed_sonde_leaves_nothing_stopped():
    for way in WAYS:
        child = started(newest(), "split", 30)
        profiler = start([SONDE, "record", "-o", work("killed.sonde"), "-p", str(child.pid)] + WAYS[way], ready=False)
        time.sleep(0.7)
        profiler.kill()
        profiler.wait()
        before = cpu_ticks(child.pid)
        time.sleep(0.5)
        check(cpu_ticks(child.pid) > before, "%s: it stands still" % way)
        with open("/proc/%d/stat" % child.pid) as f:
            check(f.read().rpartition(")")[2].split()[0] in "RS", "%s: it is stopped" % way)


def cpu_ticks(pid):
    with open("/proc/%d/stat" % pid) as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13]))


@test
def without_bpf_running_processes_are_stopped_for_it():
    need_root()
    need("setpriv")
    child = started(newest(), "split", 1)
    child.kill()
    script = os.path.join(work(), "python_sampled.py")
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    child = start(bare + newest().command + [script, "split", "30"], env=newest().environment())
    for extra, how in (([], "stopped"), (["--nonblocking"], "live")):
        path = work("bare.sonde")
        done = run(bare + [SONDE, "record", "-d", "1", "-o", path, "-p", str(child.pid)] + extra)
        expect(done, 0)
        stacks = Stacks(Recording(path))
        check(stacks.meta.get("python_frames") == how, "%s: %s\n%s" % (extra, stacks.meta, done.stderr.decode()))
        check(("by ptrace" in done.stderr.decode()) == (how == "stopped"), done.stderr.decode())
        check(stacks.share(None, "seventy") > 10, "%s" % stacks.stacks[:3])


@test
def two_capabilities_are_enough_for_it():
    need_root()
    need("setpriv")
    python = "/usr/bin/python3"
    done = run(["setpriv", "--reuid", "65534", "--clear-groups", python, "-S", "-c", "import sys; print(sys.version_info[1])"])
    if done.returncode or not 8 <= int(done.stdout or 0) <= 14:
        skip("no CPython that everybody may run")
    script, binary = work("python_sampled.py"), work("sonde")
    shutil.copyfile(SCRIPT, script)
    shutil.copy(SONDE, binary)
    os.chmod(work(), 0o777)
    few = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all,+bpf,+perfmon",
           "--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"]
    if run(few + ["true"]).returncode:
        skip("capabilities cannot be given away here")
    child = start(few + [python, "-S", script, "split", "30"])
    done = run(few + [binary, "record", "--wall", "-d", "1.5", "-p", str(child.pid), "-o", work("few.sonde")])
    expect(done, 0)
    got = Recording(work("few.sonde"))
    stacks = Stacks(got)
    check(stacks.meta.get("python_frames") == "copied", "%s\n%s" % (stacks.meta, done.stderr.decode()))
    check(stacks.share(None, "split") > 90, "%s" % stacks.stacks[:3])


@test
def the_lock_is_told():
    got, _ = recorded(newest(), "split", "bpf")
    done = sonde("report", "--gil", "--json", got.path)
    expect(done, 0)
    held = json.loads(done.stdout)["samples"]
    check(held >= 0.95 * got.samples, "%d of %d samples hold the lock" % (held, got.samples))


@test
def views_of_python_alone_and_without():
    got, _ = recorded(newest(), "split", "bpf")
    for option, there, not_there in (("--python-only", "seventy", "_start"), ("--native-only", "_start", "seventy")):
        text = sonde("report", "--folded", option, got.path).stdout.decode()
        check(there in text and not_there not in text, "%s\n%s" % (option, text[:2000]))
    check("_PyEval_EvalFrameDefault" not in sonde("report", "--folded", got.path).stdout.decode(), "it is shown")
    shown = sonde("report", "--folded", "--show-interpreter", got.path).stdout.decode()
    check("_PyEval_EvalFrameDefault" in shown, "it is not shown:\n" + shown[:2000])


@test
def what_record_says():
    child = started(newest(), "split", 30)
    done = sonde("record", "-d", "0.7", "-o", work("said.sonde"), "-p", child.pid)
    expect(done, 0, "Python %d.%d" % newest().version[:2], "stacks with its frames")


main()
