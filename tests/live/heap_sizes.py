#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What allocators give above what they are asked for, against what they say themselves."""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc.so.4", "libmimalloc.so.2")


def class_size(usable):
    """As docs/heuristics/heap-classes.md says."""
    if usable <= 1024:
        return (usable + 7) // 8 * 8
    step = 1 << ((usable - 1).bit_length() - 1 - 3)
    return (usable + step - 1) // step * step


def truth(text):
    sites, classes = {}, collections.defaultdict(lambda: [0, 0, 0])
    for words in (line.split() for line in text.decode().splitlines()):
        if words[0] == "site":
            sites[words[1]] = (int(words[2]), int(words[3]))
        else:
            usable, count, asked = map(int, words[1:])
            for i, n in enumerate((count, asked, usable * count)):
                classes[class_size(usable)][i] += n
    check(sites and classes, "the program said nothing")
    return sites, classes


def recorded(*options, env=None):
    done = sonde("heap", *options, "-o", work("s.sonde"), "--", program("heap_sizes"), env=env)
    expect(done, 0)
    report = sonde("report", work("s.sonde"), "--json")
    expect(report, 0)
    return truth(done.stdout), json.loads(report.stdout)["heap"]


def compare_sites(sites, heap):
    for name, (asked, wasted) in sites.items():
        got = [s for s in heap["sites"] if s["name"] == name]
        have = sum(s["live_bytes"] for s in got), sum(s["wasted_bytes"] for s in got)
        check(have == (asked, wasted), "%s: %s, not %s" % (name, have, (asked, wasted)))
    check(not any(s["wasted_bytes"] for s in heap["sites"] if s["name"] == "short_ones"), "of blocks that are gone")
    total = sum(c["wasted_bytes"] for c in heap["size_classes"])
    check(total == sum(s["wasted_bytes"] for s in heap["sites"]) == heap["wasted_bytes"], "classes and sites differ")


@test
def of_glibc():
    (sites, classes), heap = recorded("--exact")
    compare_sites(sites, heap)
    got = {c["size"]: [c["live_count"], c["live_bytes"], c["usable_bytes"]] for c in heap["size_classes"] if c["live_count"]}
    check(got == dict(classes), "classes: %s\nnot: %s" % (got, dict(classes)))
    peak = sum(c["peak_bytes"] for c in heap["size_classes"])
    check(peak == heap["peak_bytes"], "at the peak there were %d, not %d" % (peak, heap["peak_bytes"]))
    for c in heap["size_classes"]:
        check(c["ci95_wasted"] == [c["wasted_bytes"]] * 2, "%s" % c)


@test
def of_other_allocators():
    found = False
    for name in ALLOCATORS:
        path = "/usr/lib/x86_64-linux-gnu/" + name
        if not os.path.exists(path):
            print("not installed: %s" % name)
            continue
        found = True
        (sites, classes), heap = recorded("--exact", env=dict(os.environ, LD_PRELOAD=path))
        compare_sites(sites, heap)
        got = {c["size"]: [c["live_count"], c["live_bytes"], c["usable_bytes"]] for c in heap["size_classes"]}
        # Libraries of C++ keep some memory of their own.
        more = sum(got[size][1] - asked for size, (_, asked, _) in classes.items())
        check(all(got[size][0] >= count for size, (count, _, _) in classes.items()), "%s: %s" % (name, got))
        check(0 <= more < 200000, "%s: %d bytes more than were asked for" % (name, more))
        # tcmalloc cannot say before main how large the one is that libstdc++ keeps for exceptions.
        check(got.get(0, [0])[0] <= 1, "%s: blocks whose size is not known: %s" % (name, got.get(0)))
    if not found:
        skip("no other allocator is installed")


@test
def samples_tell_about_as_much():
    (sites, classes), heap = recorded("--sample", "256")
    asked = sum(c[1] for c in classes.values())
    usable = sum(c[2] for c in classes.values())
    worst = [c for c in heap["size_classes"] if c["size"] == 56]
    count = classes[56][0]
    check(worst and abs(worst[0]["live_count"] - count) < 0.25 * count, "%s, not %d" % (worst, count))
    check(worst[0]["ci95_wasted"][0] < worst[0]["ci95_wasted"][1], "%s" % worst)
    wasted = sum(c["wasted_bytes"] for c in heap["size_classes"])
    check(abs(wasted - (usable - asked)) < 0.25 * (usable - asked), "%d, not %d" % (wasted, usable - asked))


@test
def the_text_says_the_same():
    recorded("--exact")
    text = sonde("report", work("s.sonde")).stdout.decode()
    check(re.search(r"Wasted .* of .*, most of it in blocks of 56 bytes", text), text)
    text = sonde("report", work("s.sonde"), "--text").stdout.decode()
    check("Size classes" in text, text)
    text = sonde("report", work("s.sonde"), "--sort", "wasted").stdout.decode()
    first = re.search(r"^  1 .*", text, re.M)
    check(first and ("wasteful" in first.group() or "large_ones" in first.group()), text)


main()
