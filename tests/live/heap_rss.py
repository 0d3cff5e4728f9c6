#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap --rss: an account of resident memory that adds up, of a program that knows what it has."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

MB = 1 << 20


def account(pid, *options):
    done = sonde("heap", "--rss", "--json", *options, str(pid))
    expect(done, 0)
    return json.loads(done.stdout)


def rollup(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return int(next(line for line in f if line.startswith("Rss:")).split()[1]) << 10


def adds_up(got, pid, slack=0):
    """Its rows are RSS to the byte; and that is what the kernel says, but for what has changed since."""
    rows = sum(row["bytes"] for row in got["rows"])
    check(rows == got["rss_bytes"], "rows add up to %d, RSS is %d" % (rows, got["rss_bytes"]))
    check(sum(got["kinds"].values()) == got["rss_bytes"], "kinds do not add up")
    now = rollup(pid)
    check(abs(now - got["rss_bytes"]) <= slack, "%d resident, the kernel says %d" % (got["rss_bytes"], now))


def row(got, kind, name=None):
    return sum(r["bytes"] for r in got["rows"] if r["kind"] == kind and (name is None or r["name"] == name))


def resident(build="gcc-O2"):
    child = start([program("resident", build)])
    return child.pid


@test
def each_kind_of_memory_has_its_size():
    got = account(resident())
    adds_up(got, got["pid"])
    check(got["shrunk_bytes"] == 0, "pages came while it stood still")
    # Where the kernel has no names for memory it is nobody's.
    named = row(got, "anonymous", "known cache") or row(got, "anonymous", "")
    check(5 * MB <= named <= 5 * MB + 64 * 1024, "named memory: %d" % named)
    check(row(got, "shared", "/memfd:known") == 2 * MB, "shared memory: %d" % row(got, "shared"))
    zeroes = sum(r["bytes"] for r in got["rows"] if r["kind"] == "file_bss" and r["name"].endswith("/resident"))
    # Its first page may begin with variables that are in the file.
    check(3 * MB - 4096 <= zeroes <= 3 * MB + 8192, "zeroed variables: %d" % zeroes)


@test
def stacks_are_divided_at_where_threads_are():
    got = account(resident())
    stacks = {s["name"]: s for s in got["stacks"]}
    check(set(stacks) == {"resident", "first", "second"}, "stacks of %s" % sorted(stacks))
    for name in ("first", "second"):
        s = stacks[name]
        check(MB <= s["deeper_bytes"] <= MB + 65536, "%s: %d below" % (name, s["deeper_bytes"]))
        check(4096 <= s["used_bytes"] <= 32768, "%s: %d in use" % (name, s["used_bytes"]))
        check(s["size_bytes"] == 4 * MB, "%s: of %d" % (name, s["size_bytes"]))
    check(got["stacks_not_found"] == 0, "stacks were not found")
    check(row(got, "stack_deeper") == sum(s["deeper_bytes"] for s in got["stacks"]), "rows and stacks differ")


@test
def the_text_says_the_same():
    pid = resident()
    done = sonde("heap", "--rss", str(pid))
    expect(done, 0)
    for words in ("/memfd:known", "stacks of 3 threads", "all of it", "page tables"):
        check(words.encode() in done.stdout, "no '%s' in\n%s" % (words, done.stdout.decode()))


def other_builds(build):
    def body():
        got = account(resident(build))
        adds_up(got, got["pid"])
        check(row(got, "shared") == 2 * MB, "shared memory: %d" % row(got, "shared"))
        check({s["name"] for s in got["stacks"]} == {"resident", "first", "second"}, "stacks: %s" % got["stacks"])
    body.__name__ = "adds_up_built_" + build.replace("-", "_")
    test(body)


for build in ("static", "static-pie", "stripped", "musl-static", "musl-dynamic"):
    other_builds(build)


def as_mallinfo(build, threads):
    """A program that stands still: to the byte what its own allocator says."""
    def body():
        command = [program("heap_known", build), str(threads)]
        child = start(command, ready=False)
        info = json.loads(child.stdout.readline())
        check(child.stdout.readline() == b"ready\n", "it is not ready")
        got = account(child.pid)
        adds_up(got, got["pid"])
        heap = got["glibc"]
        check(heap["arenas"] == threads + 1, "%d arenas" % heap["arenas"])
        check(heap["unseen_bytes"] == 0 and heap["walks"] == threads + 1, "it lost its way")
        for what, ours, theirs in (
                ("system", sum(a["system_bytes"] for a in heap["list"]), info["arena"]),
                ("used", heap["used_bytes"] + heap["cached_bytes"] + heap["own_bytes"], info["used"]),
                ("free", heap["free_bytes"] + heap["fast_bytes"] + heap["top_bytes"], info["free"]),
                ("fast", heap["fast_bytes"], info["fast"]), ("fast blocks", heap["fast_count"], info["fast_count"]),
                ("free blocks", heap["free_count"] + heap["top_count"], info["free_count"]),
                ("mapped", heap["mapped_bytes"], info["mapped"]),
                ("mapped blocks", heap["mapped_count"], info["mapped_count"]),
                ("main top", heap["list"][0]["top_bytes"], info["top"])):
            check(ours == theirs, "%s: %d, mallinfo2 says %d" % (what, ours, theirs))
        check(heap["thread_caches"] == threads + 1, "%d caches of threads" % heap["thread_caches"])
        check(heap["cached_count"] > 100 * (threads + 1), "%d blocks in caches" % heap["cached_count"])
        # Of two blocks one was never written to: not all of the heap is in memory, and no more than there is.
        inside = sum(got["kinds"]["heap_" + kind] for kind in ("used", "cached", "free", "top", "bookkeeping", "unseen"))
        check(0 < inside <= info["arena"] + 4096 * (threads + 1), "%d bytes of %d" % (inside, info["arena"]))
        check(got["kinds"]["heap_mapped"] >= 3 * 100000, "large blocks: %d" % got["kinds"]["heap_mapped"])
    body.__name__ = "as_mallinfo_%s_%d" % (build.replace("-", "_"), threads)
    test(body)


for build in ("gcc-O2", "static", "static-pie", "stripped"):
    as_mallinfo(build, 4)
as_mallinfo("gcc-O2", 0)
as_mallinfo("gcc-O2", 12)


@test
def a_kernel_thread_has_no_memory():
    if not os.path.exists("/proc/2") or open("/proc/2/cmdline").read():
        skip("no threads of the kernel are seen here")
    done = sonde("heap", "--rss", "2")
    expect(done, 1)
    check(b"no memory of its own" in done.stderr, done.stderr)


@test
def not_with_what_counts_objects():
    expect(sonde("heap", "--rss", "--census", str(os.getpid())), 2)
    expect(sonde("heap", "--rss", "--core", "x"), 2)


main()
