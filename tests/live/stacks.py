#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stacks through code without unwind tables, and stacks that go on elsewhere: compared call by call."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def wrong_calls(frames):
    """What is wrong with a stack of callbacks.c; None when nothing is."""
    own = [f for f in frames if f in ("all_ways", "work", "spin_until") or f[:3] in ("by_", "in_")]
    if own[:1] != ["all_ways"]:
        return "all_ways is not at the bottom of %s" % own
    rest = own[1:]
    if not rest:
        return None
    way = rest[0][3:]
    full = ["by_" + way, "in_" + way, "work", "spin_until"]
    return None if rest == full[:len(rest)] else " > ".join(own)


def check_callbacks(build):
    got = recording(["-F", "499", "--", program("callbacks", build), "4"])
    check(got.samples >= 200, "%d samples" % got.samples)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check(got.quality["guessed_frames_pct"] <= 0.5, "%s" % got.quality)
    wrong = [(wrong_calls(frames), n, frames) for frames, n in got.stacks
             if "spin_until" in frames and wrong_calls(frames)]
    all_of_them = sum(n for frames, n in got.stacks if "spin_until" in frames)
    check(all_of_them >= 150, "%d stacks end in spin_until" % all_of_them)
    check(sum(n for _, n, _ in wrong) <= all_of_them * 0.01, "of %d: %s" % (all_of_them, wrong[:3]))
    for way in ("qsort", "bsearch", "lfind", "tsearch", "nftw", "stdio", "once"):
        check(got.count("in_" + way) > 0, "in_%s is on no stack" % way)


@test
def callbacks():
    check_callbacks("gcc-O2")


@test
def callbacks_of_musl():
    check_callbacks("musl-dynamic")


@test
def callbacks_of_musl_static():
    check_callbacks("musl-static")


@test
def callbacks_without_unwind_tables():
    check_callbacks("bare-static")


JAVA = """
import java.util.*;
public class Load {
  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  static int sorted(int n) {
    List<Integer> v = new ArrayList<>();
    for (int i = 0; i < n; i++) v.add(i * 7919 % 100003);
    v.sort((a, b) -> b - a);
    return v.get(0);
  }
  static long deep(int d) { return d == 0 ? fib(18) + sorted(300) : deep(d - 1) + 1; }
  public static void main(String[] a) {
    System.out.println("ready");
    for (long s = 0; s >= 0;) s += fib(20) + sorted(5000) + deep(30);
  }
}
"""


def java_stacks(*options):
    need("javac")
    need("java")
    with open(work("Load.java"), "w") as f:
        f.write(JAVA)
    built = run(["javac", "-d", work(), work("Load.java")], timeout=120)
    if built.returncode:
        skip("javac cannot build here: %r" % built.stderr[:200])
    child = start(["java", *options, "-cp", work(), "Load"])
    time.sleep(2)
    got = recording(["-F", "499", "-p", str(child.pid), "-d", "2"])
    check(got.samples >= 100, "%d samples" % got.samples)
    return got


@test
def java_without_frame_pointers():
    got = java_stacks()
    check(got.quality["rooted_pct"] >= 95, "%s" % got.quality)
    check(got.quality["guessed_frames_pct"] <= 2, "%s" % got.quality)
    check(got.quality["prologue_frames_pct"] >= 10, "%s" % got.quality)


@test
def java_with_frame_pointers():
    got = java_stacks("-XX:+PreserveFramePointer")
    check(got.quality["rooted_pct"] >= 97, "%s" % got.quality)


main()
