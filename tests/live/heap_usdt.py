#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Probes for other tools in watched programs (otel_memory), as bpftrace sees them."""
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

SIZE, RATE = 1000, 1 << 16


def allocator():
    with open(work("a.c"), "w") as f:
        f.write("#include <stdlib.h>\n#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts(\"ready\"); fflush(stdout);\n"
                "for (int i = 0; i < 60000; i++) { for (int k = 0; k < 100; k++) { char *volatile p = malloc(%d); *p = 1; free(p); }\n"
                "usleep(1000); } return 0; }\n" % SIZE)
    done = run(["gcc", "-O1", "-g", "-o", work("a"), work("a.c")])
    check(done.returncode == 0, done.stderr)
    return work("a")


@test
def bpftrace_sees_sampled_blocks():
    need_root()
    if not shutil.which("bpftrace"):
        skip("no bpftrace")
    watcher = start([SONDE, "heap", "-q", "--sample", str(RATE), "-o", work("p.sonde"), "--", allocator()], stderr=subprocess.PIPE)
    child = None
    for _ in range(200):
        found = run(["pgrep", "-P", str(watcher.pid)]).stdout.split()
        if found and b"libsonde-heap" in open("/proc/%d/maps" % int(found[0]), "rb").read():
            child = int(found[0])
            break
        time.sleep(0.05)
    check(child, "the command was not found")
    library = re.search(r"\S*libsonde-heap\S*", open("/proc/%d/maps" % child).read()).group()
    where = "usdt:%s:otel_memory" % library
    script = ("%s:alloc { @allocs = count(); @size[arg1] = count(); @weight = sum(arg2); @last = arg0 } %s:free { @frees = count(); "
              "@same = sum(arg0 == @last) } interval:s:4 { exit() }" % (where, where))
    traced = run(["bpftrace", "-p", str(child), "-e", script], timeout=60)
    os.kill(child, 15)
    watcher.wait(timeout=20)
    text = traced.stdout.decode()
    if traced.returncode or "@allocs" not in text:
        words = traced.stderr.decode()
        if re.search("denied|not supported|not permitted|BTF|uprobe", words):
            skip("bpftrace cannot trace here: %s" % words.splitlines()[0])
        check(False, text + words)
    values = dict((name, int(value)) for name, value in re.findall(r"@(\w+): (-?\d+)", text))
    check(re.findall(r"@size\[(\d+)\]", text) == [str(SIZE)], "sizes: %s" % text)
    p = 1 - 2.718281828459045 ** (-SIZE / RATE)
    check(values["allocs"] > 20, text)
    check(abs(values["weight"] / values["allocs"] - SIZE / p) <= 1, "a block stands for %s" % (values["weight"] / values["allocs"]))
    # One of the two probes is attached some milliseconds before the other.
    check(0.5 * values["allocs"] < values["frees"] <= values["allocs"] + 50, text)
    check(values["same"] >= values["frees"] - 1, text)


@test
def the_notes_say_where_they_are():
    if not shutil.which("readelf"):
        skip("no readelf")
    library = os.path.join(os.path.dirname(SONDE), "src", "heap", "preload", "libsonde-heap.so")
    text = run(["readelf", "-nW", library]).stdout.decode()
    for name, count in (("alloc", 3), ("free", 1)):
        found = re.search(r"Provider: otel_memory\s+Name: %s\s+Location: (\S+), Base: (\S+), Semaphore: (\S+)\s+Arguments: (.*)" % name, text)
        check(found, text)
        check(all(int(found.group(i), 16) for i in (1, 2, 3)), found.group())
        check(len(found.group(4).split()) == count and all(a.startswith("8@") for a in found.group(4).split()), found.group(4))


main()
