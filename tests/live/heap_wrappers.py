#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Functions that only hand on what malloc gives are passed over, and named where that is asked for."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def heap(*options):
    done = sonde("report", work("heap.sonde"), "--json", *options)
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


@test
def callers_are_named_and_not_wrappers():
    expect(sonde("heap", "--exact", "-o", work("heap.sonde"), "--", program("wrappers")), 0)
    h = heap()
    names = {s["name"] for s in h["sites"]}
    # The others say so in their names.
    check(h["wrappers"] == ["obtain"], h["wrappers"])
    check({"caller_" + c for c in "abcdefghijklmn"} <= names, names)
    # One size, and two callers: neither only hands on.
    check({"new_node", "alloc_two"} <= names, names)
    check(not names & {"base_alloc", "obtain", "text_alloc"}, names)
    node = sum(s["total_count"] for s in h["sites"] if s["name"] == "new_node")
    check(node == 140, node)
    text = sonde("report", work("heap.sonde")).stdout.decode()
    line = [l for l in text.splitlines() if l.startswith("Through ")]
    check(len(line) == 1 and all(n in line[0] for n in h["wrappers"]), text)


@test
def they_are_named_when_that_is_asked_for():
    if not os.path.exists(work("heap.sonde")):
        expect(sonde("heap", "--exact", "-o", work("heap.sonde"), "--", program("wrappers")), 0)
    h = heap("--show-wrappers")
    count = lambda name: sum(s["total_count"] for s in h["sites"] if s["name"] == name)
    check(h["wrappers"] == [], h["wrappers"])
    check((count("base_alloc"), count("obtain"), count("new_node")) == (280, 140, 140), [s["name"] for s in h["sites"]])


main()
