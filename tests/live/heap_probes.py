#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap for programs that take no library: static ones, and those with an allocator of their own."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

SOURCE = os.path.join(PROGRAMS, "heap_own.c")
PLAIN = ["-O1", "-g", "-fno-optimize-sibling-calls", "-fno-builtin"]
STEPS = 40


def build(name):
    """The program with one of several allocators."""
    jemalloc = (glob.glob("/usr/lib/*/libjemalloc_pic.a") or [None])[0]
    if name == "jemalloc" and not jemalloc:
        skip("there is no static jemalloc (libjemalloc-dev)")
    if name == "musl":
        need("musl-gcc")
    command = {
        "glibc": ["gcc", "-static", SOURCE],
        "musl": ["musl-gcc", "-static", SOURCE],
        "jemalloc": ["gcc", SOURCE, jemalloc, "-lpthread", "-lm", "-ldl", "-lstdc++"],
        "prefix": ["gcc", "-DOWN", "-DPREFIX=_rjem_", SOURCE],
        "other-prefix": ["gcc", "-DOWN", "-DPREFIX=acme_", SOURCE],
        "shared": ["gcc", SOURCE],
    }[name]
    out = work("own-" + name)
    done = run(command[:1] + PLAIN + command[1:] + ["-o", out])
    check(done.returncode == 0, done.stderr.decode())
    return out


def need_probes():
    need_root()
    done = sonde("heap", "-o", work("probe.sonde"), "--", build("glibc"), "1", "0")
    if b"not possible" in done.stderr:
        skip("no probes here: " + done.stderr.decode().strip())


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def sites(heap):
    found = {}
    for s in heap["sites"]:
        found.setdefault(s["name"], []).append(s)
    return found


def within(site, key, ci, truth, what):
    """The interval has the truth; twice as wide, so that one run in 10 000 fails and not one in 20."""
    low, high = site[ci]
    middle = site[key]
    check(middle - 2 * (middle - low) <= truth <= middle + 2 * (high - middle),
          "%s: %s is not %s (%s to %s)" % (what, middle, truth, low, high))


def check_truth(path, steps, how="probes"):
    heap = heap_of(path)
    check(heap["processes"][0]["how"] == how, "%s" % heap["processes"])
    by_name = sites(heap)
    for name in ("keeps", "drops", "grows"):
        check(name in by_name and len(by_name[name]) == 1, "no %s: %s" % (name, list(by_name)))
    keeps, drops, grows = (by_name[name][0] for name in ("keeps", "drops", "grows"))
    within(keeps, "live_bytes", "ci95", steps * 1000 * 1000, "keeps, live")
    within(keeps, "total_count", "ci95_total_count", steps * 1000, "keeps, blocks")
    within(drops, "total_bytes", "ci95_total", steps * 1000 * 500, "drops")
    within(grows, "total_bytes", "ci95_total", steps * 1000 * 2500, "grows")
    check(drops["live_bytes"] < 0.05 * drops["total_bytes"] and grows["live_bytes"] < 0.05 * grows["total_bytes"],
          "drops %s, grows %s" % (drops["live_bytes"], grows["live_bytes"]))
    # What grows to 2000 bytes is freed as the last block that its thread has allocated.
    check(0.85 * steps * 1000 < grows["temporary_count"] < 1.15 * steps * 1000, "temporary: %s" % grows["temporary_count"])
    check(keeps["stacks"][0]["stack"][0] == "keeps" and "main" in keeps["stacks"][0]["stack"], "%s" % keeps["stacks"][0])
    return heap


def counted(words):
    return int(re.search("have seen ([0-9]+) calls", words).group(1))


def add(name, *arguments, how="probes"):
    def body():
        need_probes()
        path = work("out.sonde")
        done = sonde("heap", "--sample", "16K", *arguments, "-o", path, "--", build(name), STEPS, 1000, timeout=60)
        expect(done, 0)
        words = done.stderr.decode()
        print("   " + done.stdout.decode().splitlines()[-1])
        check_truth(path, STEPS, how)
        # Each call once, also where one function of the allocator calls another; and some of the C library's start.
        check(4000 * STEPS <= counted(words) <= 4000 * STEPS + 50, words)
        check("could not be seen" not in words and "were not written down" not in words, words)
    body.__name__ = "every_call_once_" + name.replace("-", "_")
    test(body)


add("glibc")
add("musl")
add("jemalloc")
add("prefix", how="launched")
add("other-prefix", "--allocator", "acme_", how="launched")


def attached(child, *arguments):
    watcher = start([SONDE, "heap", "-p", str(child.pid), "-o", work("out.sonde")] + list(arguments), ready=False,
                    stderr=subprocess.PIPE)
    for _ in range(500):
        if os.path.exists(work("out.sonde")) and probes():
            break
        time.sleep(0.02)
    else:
        check(False, "it was not attached to")
    time.sleep(0.2)
    return watcher


def step(child):
    child.stdin.write(b".")
    child.stdin.flush()
    check(child.stdout.readline() == b"done\n", "it does not go on")


def probes():
    """Programs of ours in the kernel."""
    need("bpftool")
    listed = json.loads(run(["bpftool", "-j", "prog", "list"]).stdout or b"[]")
    return [p for p in listed if p.get("name") == "on_call"]


def check_gone(before):
    """The kernel takes a moment."""
    for _ in range(100):
        if len(probes()) <= before:
            return
        time.sleep(0.05)
    check(False, "probes stay: %s" % probes())


def add_attach(name):
    def body():
        need_probes()
        child = start([build(name)], stdin=subprocess.PIPE)
        step(child)
        before = len(probes())
        for steps in (40, 20):
            watcher = attached(child, "--sample", "16K")
            for _ in range(steps):
                step(child)
            watcher.send_signal(signal.SIGINT)
            words = watcher.communicate(timeout=30)[1].decode()
            check(watcher.returncode == 0, words)
            check_truth(work("out.sonde"), steps)
            check_gone(before)
            os.remove(work("out.sonde"))
            step(child)
        child.stdin.close()
        check(child.wait() == 0, "it ended with %s" % child.returncode)
    body.__name__ = "attached_to_" + name.replace("-", "_")
    test(body)


add_attach("glibc")
add_attach("musl")
add_attach("jemalloc")


@test
def a_recorder_that_is_killed_leaves_nothing():
    need_probes()
    child = start([build("jemalloc")], stdin=subprocess.PIPE)
    before = len(probes())
    for _ in range(3):
        watcher = attached(child, "--sample", "4K")
        step(child)
        watcher.kill()
        watcher.wait()
        step(child)
        os.remove(work("out.sonde"))
    check_gone(before)
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def a_program_in_a_sandbox():
    """Its filter ends it for the calls that our library makes; its allocator is glibc's."""
    need_probes()
    out = work("locked")
    done = run(["gcc"] + PLAIN + [os.path.join(PROGRAMS, "heap_locked.c"), "-o", out])
    check(done.returncode == 0, done.stderr.decode())
    child = start([out], stdin=subprocess.PIPE)
    watcher = attached(child, "--sample", "16K")
    for _ in range(40):
        step(child)
    watcher.send_signal(signal.SIGINT)
    words = watcher.communicate(timeout=30)[1].decode()
    check(watcher.returncode == 0 and "libc.so.6" in words, words)
    check(counted(words) == 80000, words)
    keeps = sites(heap_of(work("out.sonde")))["keeps"][0]
    within(keeps, "live_bytes", "ci95", 40 * 1000 * 1000, "keeps, live")
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def exceptions_pass_and_children_are_seen():
    """operator new of jemalloc throws; a forked child allocates as much as its parent."""
    need_probes()
    jemalloc = (glob.glob("/usr/lib/*/libjemalloc_pic.a") or [None])[0]
    if not jemalloc:
        skip("there is no static jemalloc (libjemalloc-dev)")
    out, path = work("operators"), work("out.sonde")
    done = run(["g++", "-O1", "-g", "-fno-optimize-sibling-calls", os.path.join(PROGRAMS, "heap_operators.cc"), "-Wl,-u,_Znwm",
                jemalloc, "-lpthread", "-lm", "-ldl", "-o", out])
    check(done.returncode == 0, done.stderr.decode())
    for rate in ("4K", "16K"):
        done = sonde("heap", "--sample", rate, "-o", path, "--", out, timeout=60)
        expect(done, 0)
        check(done.stdout == b"thrown 10, child 7\n", "%s" % done.stdout)
        heap = heap_of(path)
        check(len(heap["processes"]) == 2, "%s" % heap["processes"])
        keeps = sites(heap)["keeps()"]
        for pid in (p["pid"] for p in heap["processes"]):
            own = sum(t["total_bytes"] for s in keeps for t in s["threads"] if t["pid"] == pid)
            check(0.85 * 20e6 < own < 1.15 * 20e6, "%d: %s" % (pid, own))


@test
def growth_names_the_function():
    need_probes()
    path = work("out.sonde")
    expect(sonde("heap", "--sample", "16K", "-o", path, "--", build("jemalloc"), 80, 100000, timeout=120), 0)
    text = sonde("report", path).stdout.decode()
    check(re.search(r"→ keeps .* grows all the time", text), text)


@test
def what_probes_cannot_do_is_said():
    need_probes()
    static = build("glibc")
    for option in (["--exact"], ["--every", "10"], ["--free-stacks"]):
        done = sonde("heap", *option, "-o", work("x"), "--", static, "1", "0")
        expect(done, 1, "statically linked")
        check("leave out %s" % option[0] in done.stderr.decode(), done.stderr.decode())
        check(not os.path.exists(work("x")) and not done.stdout, "it was started")
    run(["strip", static])
    done = sonde("heap", "-o", work("x"), "--", static, "1", "0")
    expect(done, 1, "no symbols")
    expect(sonde("heap", "-o", work("x"), "--allocator", "nobody_", "--", build("musl"), "1", "0"), 0)


@test
def without_rights_it_is_said_what_is_needed():
    need_root()
    need("setpriv")
    os.chmod(work(), 0o777)
    program = build("glibc")
    done = run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", SONDE, "heap", "-o", work("x"), "--",
                program, "1", "0"])
    expect(done, 1, "cap_bpf")


main()
