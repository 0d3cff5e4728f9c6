#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (minutes)
"""Our BPF programs on other kernels: Debian's of four releases, emulated. One object has to load on all of them."""
import functools
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
import guest
from pythons import pythons

# Suite -> whether its kernel lets a program look at the thread it runs in, which tells who wakes (5.11),
# and whether it keeps the lock that a thread sleeps on (6.15).
SUITES = {"bullseye": (False, False), "bookworm": (True, False), "trixie": (True, False), "sid": (True, True)}
TEST_LOOK = os.path.join(os.path.dirname(SONDE), "tests", "unit", "test_look")


def loaded_files(program):
    """A program of ours and its libraries: path in the guest -> file."""
    files = {"/bin/" + os.path.basename(program): program}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", run(["ldd", program]).stdout.decode(), re.M):
        files["/lib/" + name] = path
    files["/lib64/ld-linux-x86-64.so.2"] = "/lib64/ld-linux-x86-64.so.2"
    return files


def static_program(name):
    out = work(name)
    made = run(["gcc", "-O2", "-fno-optimize-sibling-calls", "-fno-builtin", "-static", "-D_GNU_SOURCE", "-o", out, os.path.join(PROGRAMS, name + ".c"), "-pthread"])
    check(made.returncode == 0, made.stderr.decode())
    return out


def boot(suite, parts):
    """What the commands of each part print on that suite's kernel, booted once. parts: (files, commands) each; the
    answer has lines and received files of each."""
    wanted = ["linux", "busybox-static"]  # bullseye's has no base64
    root = guest.packages("amd64", suite, wanted)
    busybox = guest.packages("amd64", "bookworm", wanted) + "/bin/busybox"
    files, commands = {}, ["cat /proc/version"]
    for number, part in enumerate(parts):
        files.update(part[0])
        commands += ["echo part %d" % number] + part[1]
    lines = guest.boot("amd64", guest.kernel(root), busybox, files, commands, work())
    starts = [lines.index("part %d" % number) for number in range(len(parts))] + [len(lines)]
    return lines[0].partition(" (")[0], [lines[begin + 1:end] for begin, end in zip(starts, starts[1:])]


def once_a_suite(function):
    """The function's answer, or what it raised, is that of its first call with this suite."""
    answers = {}

    def get(suite):
        if suite not in answers:
            try:
                answers[suite] = (function(suite), None)
            except Exception as e:
                answers[suite] = (None, e)
        answer, failure = answers[suite]
        if failure:
            raise failure
        return answer
    return get


@once_a_suite
def booted(suite):
    """Everything that this file wants of a kernel: name of the part -> its lines."""
    if os.uname().machine != "x86_64":
        skip("emulates x86-64 with what runs here")
    parts = {"waits": waits_part(), "heap": heap_part()}
    if os.path.exists(TEST_LOOK):
        parts["look"] = look_part()
    if python_311():
        parts["python"] = python_part()
    version, lines = boot(suite, list(parts.values()))
    print(version)
    return dict(zip(parts, lines))


def received(lines, name):
    path = guest.received(lines, work()).get(name)
    check(path and os.path.getsize(path), "nothing was recorded:\n" + "\n".join(lines)[-3000:])
    return Recording(path)


def waits_part():
    """A program that sleeps, computes and waits for a lock."""
    return (dict(loaded_files(SONDE), **{"/bin/phases": static_program("phases")}),
            ["sonde record --wall --sampler bpf -o w.sonde -- phases 4 2>&1", guest.send("w.sonde")])


def add(suite, wakers):
    def body():
        got = received(booted(suite)["waits"], "w.sonde")
        threads = [t for t in got.threads if t["name"] == "phases"]
        check(len(threads) == 2, "%s" % got.threads)
        first = min(threads, key=lambda t: t["tid"])["states"]
        for state in ("on-cpu", "futex", "syscall"):
            check(first[state] > 20e6, "%s: %s" % (state, first))
        check(got.quality["on_cpu_rooted_pct"] >= 95 and got.quality["off_cpu_rooted_pct"] >= 85, "%s" % got.quality)
        text = sonde("report", got.path).stdout.decode()
        check(not wakers or re.search(r"woken by phases .*(unlock|lll_lock_wake)", text), text)
    body.__name__ = "one_object_on_the_kernel_of_" + suite
    test(body)


def heap_part():
    return (dict(loaded_files(SONDE), **{"/bin/heap_own": static_program("heap_own")}),
            ["sonde heap --sample 16K -o h.sonde -- heap_own 20 1000 2>&1; echo status $?", guest.send("h.sonde")])


def add_heap(suite, has_cookies):
    def body():
        lines = booted(suite)["heap"]
        text = "\n".join(lines)
        if not has_cookies:
            check("Linux 5.15 can" in text and "status 1" in lines, text[-3000:])
            return
        got = received(lines, "h.sonde")
        check("have seen" in text, text[-3000:])
        seen = json.loads(sonde("report", got.path, "--json").stdout)["heap"]
        live = [s["live_bytes"] for s in seen["sites"] if s["name"] == "keeps"]
        check(live and 15e6 < live[0] < 25e6, "%s\n%s" % (live, text[-3000:]))
    body.__name__ = "probes_at_an_allocator_on_the_kernel_of_" + suite
    test(body)


def look_part():
    return (loaded_files(TEST_LOOK),
            ["mount -t cgroup2 none /sys/fs/cgroup", "echo +cpu > /sys/fs/cgroup/cgroup.subtree_control",
             "test_look 2>&1; echo status $?"])


def add_look(suite, locks):
    def body():
        if not os.path.exists(TEST_LOOK):
            skip("the unit tests are not built (ninja -C build tests)")
        lines = booted(suite)["look"]
        text = "\n".join(lines)
        skipped = [line for line in lines if line.startswith("skip ")]
        check("status 0" in lines and "ok as_proc_has_it" in lines and not skipped, text[-3000:])
        known = "kernel lock %s, holder %s" % (("known",) * 2 if locks else ("unknown",) * 2)
        check(known in lines, text[-3000:])
    body.__name__ = "threads_at_one_moment_on_the_kernel_of_" + suite
    test(body)


SCRIPT = """
import time

def spin(n):
    x = 0
    for i in range(n):
        x += i * i

def seventy(): spin(70000)
def thirty(): spin(30000)

end = time.time() + 6
rounds = 0
while time.time() < end or rounds < 150:
    seventy()
    thirty()
    time.sleep(0.002)
    rounds += 1
"""


@functools.lru_cache()
def python_311():
    for python in pythons():
        if not python.kinds & {"chroot", "bare", "later", "musl", "free-threaded"} and python.version[:2] == (3, 11):
            return python
    return None


def python_files():
    """A CPython, as much of its library as it needs to start, and a program; their paths in the guest -> files."""
    python = python_311()
    about = run(python.command + ["-S", "-c", "import sys, encodings; print(sys.executable); print(encodings.__file__)"],
                env=python.environment()).stdout.decode().split()
    files = {("/bin/python3" if path.startswith("/bin/") else path): f for path, f in loaded_files(about[0]).items()}
    folder = os.path.dirname(about[1])
    for name in ("__init__.py", "aliases.py", "utf_8.py", "ascii.py", "latin_1.py"):
        files["/lib/python3.11/encodings/" + name] = os.path.join(folder, name)
    script = work("guest.py")
    with open(script, "w") as f:
        f.write(SCRIPT)
    files["/bin/guest.py"] = script
    return files


def python_part():
    return (dict(loaded_files(SONDE), **python_files()),
            ["PYTHONHOME=/ sonde record --wall --sampler bpf -F 99 -o p.sonde -- python3 -S /bin/guest.py 2>&1",
             guest.send("p.sonde")])


def add_python(suite):
    def body():
        if not python_311():
            skip("there is no CPython 3.11 here")
        lines = booted(suite)["python"]
        got = received(lines, "p.sonde")
        check("value=" in got.dump() and 'text="copied"' in got.dump(), "no BPF program:\n" + "\n".join(lines)[-3000:])
        on = off = 0
        for line in sonde("report", "--folded", got.path).stdout.decode().splitlines():
            stack, _, ns = line.rpartition(" ")
            on += int(ns) if "spin" in stack else 0
            off += int(ns) if ";[syscall" in stack and "<module>" in stack else 0
        check(on > 1e9 and off > 10e6 and got.quality["python_torn"] <= got.samples / 20,
              "%d %d %s\n%s\n%s" % (on, off, got.quality, got.stacks[:40], "\n".join(lines)[:600]))
        check(got.share("seventy") > 1.6 * got.share("thirty"), "%s" % got.stacks)
        print("%d samples, %d with Python frames" % (got.samples, got.quality["python_stacks"]))
    body.__name__ = "python_frames_on_the_kernel_of_" + suite
    test(body)


for each, (tells_wakers, tells_locks) in SUITES.items():
    add(each, tells_wakers)
    add_look(each, tells_locks)
    add_python(each)
    add_heap(each, tells_wakers)
main()
