#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The BPF sampler on other kernels: Debian's of four releases, emulated. One object has to load on all of them."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
import guest

# Suite -> whether its kernel lets a program look at the thread it runs in, which tells who wakes (5.11).
SUITES = {"bullseye": False, "bookworm": True, "trixie": True, "sid": True}


def loaded_files():
    """sonde and its libraries: path in the guest -> file."""
    files = {"/bin/sonde": SONDE}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", run(["ldd", SONDE]).stdout.decode(), re.M):
        files["/lib/" + name] = path
    files["/lib64/ld-linux-x86-64.so.2"] = "/lib64/ld-linux-x86-64.so.2"
    return files


def static_program(name):
    out = work(name)
    made = run(["gcc", "-O2", "-static", "-D_GNU_SOURCE", "-o", out, os.path.join(PROGRAMS, name + ".c"), "-pthread"])
    check(made.returncode == 0, made.stderr.decode())
    return out


def recorded(suite):
    """(lines, recording) of a program that sleeps, computes and waits for a lock, on that suite's kernel."""
    wanted = ["linux", "busybox-static"]  # bullseye's has no base64
    root = guest.packages("amd64", suite, wanted)
    busybox = guest.packages("amd64", "bookworm", wanted) + "/bin/busybox"
    files = dict(loaded_files(), **{"/bin/phases": static_program("phases")})
    commands = ["cat /proc/version", "sonde record --wall --sampler bpf -o w.sonde -- phases 4 2>&1",
                guest.send("w.sonde")]
    lines = guest.boot("amd64", guest.kernel(root), busybox, files, commands, work())
    got = guest.received(lines, work()).get("w.sonde")
    check(got, "nothing was recorded:\n" + "\n".join(lines)[-2000:])
    return lines, got


def add(suite, wakers):
    def body():
        if os.uname().machine != "x86_64":
            skip("emulates x86-64 with what runs here")
        lines, path = recorded(suite)
        print(next(line for line in lines if line.startswith("Linux version")).partition(" (")[0])
        check(os.path.getsize(path), "nothing was recorded:\n" + "\n".join(lines)[:2000])
        got = Recording(path)
        threads = [t for t in got.threads if t["name"] == "phases"]
        check(len(threads) == 2, "%s" % got.threads)
        first = min(threads, key=lambda t: t["tid"])["states"]
        for state in ("on-cpu", "futex", "syscall"):
            check(first[state] > 20e6, "%s: %s" % (state, first))
        check(got.quality["on_cpu_rooted_pct"] >= 95 and got.quality["off_cpu_rooted_pct"] >= 85, "%s" % got.quality)
        text = sonde("report", path).stdout.decode()
        check(not wakers or re.search(r"woken by phases .*(unlock|lll_lock_wake)", text), text)
    body.__name__ = "one_object_on_the_kernel_of_" + suite
    test(body)


for each in SUITES.items():
    add(*each)
main()
