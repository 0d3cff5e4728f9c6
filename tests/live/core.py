#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Core files, the kernel's and gdb's: stacks, waits, and files that are not what they were."""
import os
import re
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from waits import *


def stacks(*arguments):
    done = sonde("stack", "--json", *arguments)
    expect(done, 0)
    return json.loads(done.stdout)


def by_tid(got):
    return {t["tid"]: t for t in got["threads"]}


def gcore(pid):
    need("gcore")
    done = run(["gcore", "-o", work("gcore"), str(pid)], timeout=120)
    path = work("gcore.%d" % pid)
    check(os.path.exists(path), "gcore wrote nothing: %s" % done.stderr)
    return path


def hang(scenario, kind, build="gcc-O2", path=None):
    """A program that hangs as it should by now, and what sonde says of it while it lives."""
    child = start([path or program("hang", build), scenario])
    return child, why_until(child.pid, kind)


def kernel_core(how, build="gcc-O2", signal_number=None):
    """Lets crash.c die, and gives the core that the kernel wrote, and the pid."""
    with open("/proc/sys/kernel/core_pattern") as f:
        pattern = f.read().strip()
    if pattern.startswith("|") or "/" in pattern or "%" in pattern:
        skip("cores go elsewhere: core_pattern is %s" % pattern)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        skip("the limit for cores cannot be raised")
    child = start([program("crash", build), how], cwd=work())
    if signal_number:
        time.sleep(0.2)
        child.send_signal(signal_number)
    child.wait(timeout=30)
    for name in ("core", "core.%d" % child.pid):
        if os.path.exists(work(name)):
            return work(name), child.pid
    skip("the kernel wrote no core here")


def core_text(*arguments):
    done = sonde("stack", *arguments)
    expect(done, 0)
    return done.stdout.decode()


# ---- what a debugger has written ----

@test
def a_circle_in_a_core():
    child, live = hang("cycle-3", "deadlock")
    path = gcore(child.pid)
    child.kill()
    child.wait()
    got = Why("--core=" + path)
    got.check("deadlock")
    check(got.json["method"] == "core" and got.json["core"]["pid"] == child.pid, got.json["core"])
    check(sorted(got.json["cycles"][0]) == sorted(live.json["cycles"][0]), got.json["cycles"])
    check("signal" not in got.json["core"], "killed by whom? %s" % got.json["core"])
    done = sonde("why", "--core", path)
    expect(done, 0)
    words = done.stdout.decode()
    check(words.startswith("core of hang[%d]" % child.pid), words)
    check("from memory alone" in words and "deadlock of 3 threads" in words, words)


@test
def a_holder_in_a_core():
    child, live = hang("mutex", "lock_holder")
    got = Why("--core=" + gcore(child.pid))
    got.check("lock_holder", focus=child.pid, root=live.verdict["root"])


@test
def a_thread_that_is_joined_in_a_core():
    child, live = hang("join", "lock_holder")
    got = Why("--core=" + gcore(child.pid))
    check(got.verdict["root"] == live.verdict["root"], "%s, live: %s" % (got.sentence, live.sentence))
    check(got.threads[child.pid]["wait"]["kind"] == "join", got.threads[child.pid]["wait"])


@test
def a_pool_in_a_core_is_idle():
    child, _ = hang("pool", "idle")
    check(Why("--core=" + gcore(child.pid)).kind == "idle", "a pool of workers is no trouble")


def same_as_live(build):
    """All stacks are those of the living process, and whole."""
    child, _ = hang("cycle-3", "deadlock", build)
    live = by_tid(stacks(child.pid))
    kept = by_tid(stacks("--core", gcore(child.pid)))
    check(live.keys() == kept.keys(), "threads %s, not %s" % (kept.keys(), live.keys()))
    for tid, thread in kept.items():
        check(thread["stack"] == live[tid]["stack"], "%s\nlive: %s" % (thread["stack"], live[tid]["stack"]))
        check(thread["whole"] and thread["stack"], "%d: %s" % (tid, thread))
        check(thread["doing"] == live[tid]["doing"], "%s, live: %s" % (thread["doing"], live[tid]["doing"]))


for _build in ("gcc-O0", "gcc-O2", "no-pie", "stripped", "static", "static-pie", "musl-static", "no-cfi-fp", "debuglink"):
    def _body(build=_build):
        same_as_live(build)
    _body.__name__ = "same_as_live_" + _build.replace("-", "_")
    test(_body)


def gdb_frames(path, core, source):
    """Functions and lines of that source file, by thread."""
    need("gdb")
    done = run(["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "thread apply all bt",
                path, core], timeout=120)
    threads, tid = {}, None
    for line in done.stdout.decode(errors="replace").splitlines():
        thread = re.match(r"Thread \d+ \(.*?(?:LWP |process )(\d+)\)", line)
        frame = re.match(r"#\d+ +(?:0x[0-9a-f]+ in )?(\S+) .* at (\S+):(\d+)$", line)
        if thread:
            tid = int(thread.group(1))
            threads[tid] = []
        elif frame and tid and os.path.basename(frame.group(2)) == source:
            threads[tid].append((frame.group(1), int(frame.group(3))))
    return threads


@test
def the_same_functions_as_gdb():
    child, _ = hang("cycle-5", "deadlock", "gcc-O0")
    core = gcore(child.pid)
    wanted = gdb_frames(program("hang", "gcc-O0"), core, "hang.c")
    kept = by_tid(stacks("--core", core))
    check(len(wanted) == len(kept) == 5, "%d threads, gdb has %d" % (len(kept), len(wanted)))
    for tid, thread in kept.items():
        got = [(f["function"], f["line"]) for f in thread["frames"] if f.get("file") == "hang.c"]
        check(got and got == wanted[tid], "%d: %s, gdb: %s" % (tid, got, wanted[tid]))


# ---- what the kernel has written ----

@test
def a_bad_pointer():
    path, pid = kernel_core("segv", "gcc-O0")
    text = core_text("--core", path)
    first = text.partition("\n")[0]
    check(first.startswith("core of crash[%d], killed by SIGSEGV at 0x10: " % pid), first)
    got = stacks("--core", path)
    check(got["core"]["signal"] == "SIGSEGV" and got["core"]["tid"] == pid, got["core"])
    check(got["core"]["address"] == "0x10" and got["core"]["missing_bytes"] == 0, got["core"])
    threads = by_tid(got)
    check(threads[pid]["stack"][:3] == ["crash_here", "fail", "main"], threads[pid]["stack"])
    check(threads[pid]["killed_by"] == "SIGSEGV" and threads[pid]["whole"], threads[pid])
    other = next(t for t in got["threads"] if t["tid"] != pid)
    check("wait_for_it" in other["stack"] and other["whole"] and "killed_by" not in other, other)
    check(other["doing"] == "asleep in futex", other["doing"])
    wanted = gdb_frames(program("crash", "gcc-O0"), path, "crash.c")
    for tid, thread in threads.items():
        mine = [(f["function"], f["line"]) for f in thread["frames"] if f.get("file") == "crash.c"]
        check(mine and mine == wanted[tid], "%d: %s, gdb: %s" % (tid, mine, wanted[tid]))


@test
def a_call_of_nothing():
    path, pid = kernel_core("null")
    thread = by_tid(stacks("--core", path))[pid]
    check(thread["stack"][1:4] == ["call_it", "fail", "main"] and thread["whole"], thread["stack"])
    check(" at 0x0: " in core_text("--core", path), core_text("--core", path))


@test
def who_waits_behind_the_dead():
    path, pid = kernel_core("abort")
    got = Why("--core=" + path)
    got.check("lock_holder", root=pid)
    check("was killed by SIGABRT" in got.sentence, got.sentence)


@test
def killed_while_it_waits():
    path, pid = kernel_core("hang", signal_number=signal.SIGQUIT)
    first = core_text("--core", path).partition("\n")[0]
    check("killed by SIGQUIT from process %d" % os.getpid() in first, first)
    thread = by_tid(stacks("--core", path))[pid]
    check(thread["doing"] == "killed by SIGQUIT, asleep in pause", thread["doing"])
    check("fail" in thread["stack"] and thread["whole"], thread)


for _build in ("stripped", "static", "musl-static", "static-pie"):
    def _body(build=_build):
        path, _ = kernel_core("abort", build)
        for thread in stacks("--core", path)["threads"]:
            check(thread["whole"], "%s" % thread)
    _body.__name__ = "whole_stacks_" + _build.replace("-", "_")
    test(_body)


# ---- what is wrong ----

@test
def cut_off():
    path, pid = kernel_core("segv", "gcc-O0")
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.truncate(size * 9 // 10)
    text = core_text("--core", path)
    check("The file is cut off: " in text, text)
    got = stacks("--core", path)
    check(got["core"]["missing_bytes"] >= size // 20, got["core"])
    check(by_tid(got)[pid]["stack"][:1] == ["crash_here"], by_tid(got)[pid]["stack"])
    for kept in (0, 10, 64, 200, 1000, 4096, 30000):
        with open(path, "r+b") as f:
            f.truncate(kept)
        done = sonde("stack", "--core", path)
        check(done.returncode in (0, 1) and (done.stdout or path.encode() in done.stderr),
              "%d bytes: %s" % (kept, done.stderr))


@test
def another_file():
    path = work("hang")
    shutil.copy(program("hang", "gcc-O2"), path)
    child, _ = hang("cycle-3", "deadlock", path=path)
    core = gcore(child.pid)
    child.kill()
    os.unlink(path)
    shutil.copy(program("hang", "gcc-O0"), path)
    text = core_text("--core", core)
    check("Not the files that ran, so not used: %s\n" % path in text, text)
    got = stacks("--core", core)
    check({"path": path, "found": "another"} in got["core"]["files"], got["core"]["files"])
    check("take_two" not in json.dumps(got), "names of another file")
    os.unlink(path)
    text = core_text("--core", core)
    check("Not found, so nothing is known of code there: %s\n" % path in text, text)


@test
def below_another_root():
    path = work("hang")
    shutil.copy(program("hang", "static"), path)
    child, _ = hang("cycle-3", "deadlock", path=path)
    core = gcore(child.pid)
    child.kill()
    root = work("root")
    os.makedirs(root + os.path.dirname(path))
    os.rename(path, root + path)
    got = stacks("--core", core, "--root", root)
    check({"path": path, "found": "found"} in got["core"]["files"], got["core"]["files"])
    check(all("want_lock" in t["stack"] for t in got["threads"]), got["threads"])
    # A link that leads out of the root leads nowhere.
    os.rename(root + path, work("elsewhere"))
    os.symlink(work("elsewhere"), root + path)
    got = stacks("--core", core, "--root", root)
    check({"path": path, "found": "missing"} in got["core"]["files"], got["core"]["files"])


@test
def refused():
    os.mkfifo(work("fifo"))
    with open(work("packed"), "wb") as f:
        f.write(b"\x28\xb5\x2f\xfd" + bytes(100))
    for path, words in (("/etc/passwd", "not a core file"), (work("fifo"), "not a regular file"),
                        (work("nothing"), "No such file"), (SONDE, "not a core file"),
                        (work("packed"), "unzstd"), (work(), "not a regular file")):
        for command in ("stack", "why"):
            expect(sonde(command, "--core", path, timeout=10), 1, words)
    for arguments, words in ((["1", "--core", "x"], "not both"), (["--core", "x", "--look", "proc"], "--look"),
                             (["1", "--root", "/"], "--root goes with --core")):
        for command in ("stack", "why"):
            expect(sonde(command, *arguments), 2, words)
    expect(sonde("stack", "--core", "x", "--stop-running"), 2, "--stop-running")


@test
def nothing_is_asked_of_the_living():
    need("strace")
    child, _ = hang("mutex", "lock_holder")
    core = gcore(child.pid)
    done = run(["strace", "-f", "-o", work("log"), SONDE, "why", "--core", core])
    expect(done, 0)
    with open(work("log"), errors="replace") as f:
        log = f.read()
    check("openat" in log, "strace saw nothing")
    for words in ("/proc/%d" % child.pid, "process_vm_readv", "get_robust_list", "perf_event_open", "bpf(", "ptrace("):
        check(words not in log, "it used %s" % words)


main()
