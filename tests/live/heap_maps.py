#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap --maps: what programs map themselves, beside what malloc gives."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from attached import watched_from_now_on

NUMBERS = ("total_count", "total_bytes", "live_count", "live_bytes")


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def compare(text, heap, others=None):
    """What the program says, with the sites of what is mapped: all of them, and nothing else but those of `others`."""
    wanted = {}
    for line in text.decode().splitlines():
        words = line.split()
        if words and words[0] == "truth":
            wanted[words[1]] = dict(zip(NUMBERS, map(int, words[2:])))
    got = collections.defaultdict(collections.Counter)
    for site in heap["sites"]:
        if site["kind"] != "mapped":
            check(site["name"] not in wanted, "%s is %s" % (site["name"], site["kind"]))
            continue
        if others and site["name"].startswith(others):
            continue
        check(site["allocator"].startswith("[mapped"), site["allocator"])
        for key in NUMBERS:
            got[site["name"]][key] += site[key]
    check({name: dict(numbers) for name, numbers in got.items()} == wanted, "said: %s\nseen: %s" % (wanted, dict(got)))
    for key in NUMBERS if not others else ():
        check(heap["mapped"][key] == sum(w[key] for w in wanted.values()), "%s of all is %s" % (key, heap["mapped"][key]))
    return heap


def allocator_of(heap, name):
    found = [s["allocator"] for s in heap["sites"] if s["name"] == name]
    check(len(found) == 1, "%s: %s" % (name, found))
    return found[0]


def malloc_has(heap, least):
    """The block that libc has mapped is malloc's, and counted once."""
    blocks = [s for s in heap["sites"] if s["name"] == "allocates"]
    check(len(blocks) == 1 and blocks[0]["kind"] == "malloc" and blocks[0]["total_bytes"] == 10 << 20, "%s" % blocks)
    check(least <= heap["live_bytes"] < least + (1 << 18), "live are %s" % heap["live_bytes"])


@test
def what_is_mapped_is_known():
    for how in (["--exact"], ["--sample", "1"], ["--exact", "--free-stacks"]):
        done = sonde("heap", "--maps", *how, "-o", work("m.sonde"), "--", program("heap_maps"))
        expect(done, 0)
        heap = compare(done.stdout, heap_of(work("m.sonde")))
        malloc_has(heap, 10 << 20)
        check(heap["processes"][0]["maps"] is True, "%s" % heap["processes"])
        check("not written down" not in done.stderr.decode(), done.stderr.decode())
        check("mapped by the program itself" in done.stderr.decode(), done.stderr.decode())
        for name, kind in (("keeps", "[mapped]"), ("maps_file", "[mapped file]"), ("reserves", "[mapped, reserved]"),
                           ("moves_break", "[mapped by brk]"), ("grown", "[mapped]")):
            check(allocator_of(heap, name) == kind, "%s: %s" % (name, allocator_of(heap, name)))
        temporary = [s["temporary_count"] for s in heap["sites"] if s["name"] == "drops"]
        check(temporary == [100], "temporary: %s" % temporary)


@test
def builds():
    for build in ("gcc-O0", "gcc-O2-fp", "clang-O2"):
        done = sonde("heap", "--maps", "--exact", "-o", work("m.sonde"), "--", program("heap_maps", build))
        expect(done, 0)
        compare(done.stdout, heap_of(work("m.sonde")))


@test
def texts_tell_it_apart():
    expect(sonde("heap", "--maps", "--exact", "-o", work("m.sonde"), "--", program("heap_maps")), 0)
    for options in ([], ["--text"], ["--sort", "total"], ["--folded"]):
        text = sonde("report", work("m.sonde"), *options).stdout.decode()
        check("[mapped" in text, "%s: %s" % (options, text))
        lines = [line for line in text.splitlines() if "allocates" in line and "›" not in line and ";" not in line]
        check(not any("[mapped" in line for line in lines), "%s" % lines)
    text = sonde("report", work("m.sonde")).stdout.decode()
    check("Mapped" in text and "not malloc" in text, text)


@test
def off_unless_asked_for():
    expect(sonde("heap", "--exact", "-o", work("m.sonde"), "--", program("heap_maps")), 0)
    heap = heap_of(work("m.sonde"))
    check("mapped" not in heap and not any(s["kind"] == "mapped" for s in heap["sites"]), "%s" % heap.get("mapped"))
    check(heap["processes"][0]["maps"] is False, "%s" % heap["processes"])
    malloc_has(heap, 10 << 20)
    done = sonde("heap", "--maps", "--every", "10", "--", "true")
    check(done.returncode == 2 and b"--every" in done.stderr, "%s" % done)


@test
def of_a_program_that_runs():
    text, _ = watched_from_now_on([program("heap_maps"), "attached"], work("m.sonde"), "--maps", "--exact")
    malloc_has(compare(text, heap_of(work("m.sonde"))), 10 << 20)


@test
def memory_of_allocators_is_theirs():
    """They map it by the functions that programs use, and malloc gives it out."""
    found = False
    for name in ("libjemalloc.so.2", "libtcmalloc.so.4", "libmimalloc.so.2"):
        path = "/usr/lib/x86_64-linux-gnu/" + name
        if not os.path.exists(path):
            print("not installed: %s" % name)
            continue
        found = True
        for how in ("--exact", "--sample=1M"):
            done = sonde("heap", "--maps", how, "-o", work("m.sonde"), "--", program("heap_maps"),
                         env=dict(os.environ, LD_PRELOAD=path))
            expect(done, 0)
            compare(done.stdout, heap_of(work("m.sonde")), others="libunwind")  # which maps memory of its own for tcmalloc
            check("not written down" not in done.stderr.decode(), "%s: %s" % (name, done.stderr.decode()))
    if not found:
        skip("no other allocator is installed")


@test
def python_maps_its_arenas():
    done = sonde("heap", "--maps", "--exact", "-o", work("m.sonde"), "--", "/usr/bin/python3", "-c",
                 "import mmap; a = [object() for _ in range(200000)]; m = mmap.mmap(-1, 1 << 20)")
    expect(done, 0)
    heap = heap_of(work("m.sonde"))
    sizes = [s for s in heap["sites"] if s["kind"] == "mapped" and s["total_bytes"] >= 1 << 20]
    check(sizes and heap["mapped"]["total_bytes"] > 200000 * 16, "%s" % heap["mapped"])


main()
