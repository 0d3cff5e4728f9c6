#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs whose profile is known: the split between two call paths, however they were built."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

LEAST_ROOTED = 99.0


def check_split(got, least_samples):
    check(got.samples >= least_samples, "only %d samples" % got.samples)
    for function, share in (("heavy", 70), ("light", 30)):
        check(abs(got.share(function) - share) <= 3,
              "%s has %.1f %%, not %d (%d samples)" % (function, got.share(function), share, got.samples))


def check_build(build, rooted=LEAST_ROOTED):
    """3 s of CPU time at 997 Hz; whole stacks, from heavy() to the root."""
    got = recording(["-F", "997", "--", program("split", build), "100000000", "2500"])
    check_split(got, 2000)
    quality = got.quality
    check(quality["rooted_pct"] >= rooted, "%.2f %% rooted" % quality["rooted_pct"])
    lost = quality["lost_samples"] / got.samples  # a busy machine may not let the reader run in time
    check(lost <= 0.02, "%d samples lost of %d" % (quality["lost_samples"], got.samples))
    under_main = sum(n for frames, n in got.stacks
                     if "main" in frames and ("heavy" in frames or "light" in frames))
    check(under_main >= 0.97 * got.samples, "main stands above %d of %d" % (under_main, got.samples))


def split_of(build):
    def body():
        check_build(build)
    body.__name__ = "split_" + build.replace("-", "_")
    return body


for build in BUILDS:
    test(split_of(build))


@test
def phases_in_step_with_199_hz():
    """A fixed sampling period would always see the same phase."""
    got = recording(["-F", "199", "--", program("split"), "5025125", "14000"])
    check_split(got, 2300)


@test
def phases_in_step_with_997_hz():
    got = recording(["-F", "997", "--", program("split"), "1003009", "5000"])
    check_split(got, 4000)


@test
def time_and_sample_counts_agree():
    """Weights and the number of samples say the same: 2 s of CPU time at 499 Hz."""
    got = recording(["-F", "499", "--", program("split"), "50000000", "2000"])
    check(abs(got.samples - 998) <= 60, "%d samples, not 998" % got.samples)
    check(1.9e9 <= got.json["duration_ns"] <= 30e9, "duration %d ns" % got.json["duration_ns"])


@test
def functions_are_ranked_by_self():
    got = recording(["-F", "499", "--", program("split"), "50000000", "1000"])
    functions = got.json["functions"]
    counts = [f["self"] for f in functions]
    check(counts == sorted(counts, reverse=True), "functions are not sorted: %s" % counts[:8])
    check(sum(counts) == got.samples, "self counts add up to %d of %d" % (sum(counts), got.samples))
    by_name = {f["name"]: f for f in functions}
    check(by_name["main"]["total"] >= 0.97 * got.samples, "main has %s" % by_name["main"])
    check(by_name["main"]["module"].endswith("split"), "main is in %s" % by_name["main"]["module"])


@test
def recursion_of_300_levels_is_whole():
    for build in ("gcc-O0", "gcc-O2", "static", "clang-O2"):
        got = recording(["-F", "499", "--", program("recurse", build), "300", "600"])
        inside = sum(n for frames, n in got.stacks if "bottom" in frames)
        whole = sum(n for frames, n in got.stacks
                    if frames.count("descend") == 300 and "main" in frames and "bottom" in frames)
        check(inside >= 200, "%s: only %d samples at the bottom" % (build, inside))
        check(whole >= 0.99 * inside, "%s: %d of %d stacks have 300 levels, the deepest %d"
              % (build, whole, inside, got.deepest("descend")))


@test
def stacks_deeper_than_the_copy_are_whole():
    """3,000 levels are 350 KB of stack at -O0: the part beyond the copy is read live."""
    for build, size in (("gcc-O0", "65528"), ("gcc-O2", "65528"), ("gcc-O2", "8192")):
        got = recording(["-F", "499", "--stack-size", size, "--", program("recurse", build), "3000", "600"])
        inside = sum(n for frames, n in got.stacks if "bottom" in frames)
        whole = sum(n for frames, n in got.stacks
                    if frames.count("descend") == 3000 and "main" in frames and "bottom" in frames)
        check(inside >= 200, "%s: only %d samples at the bottom" % (build, inside))
        check(whole >= 0.97 * inside, "%s, %s bytes: %d of %d stacks have 3,000 levels, the deepest %d"
              % (build, size, whole, inside, got.deepest("descend")))
        check(got.quality["live_frames_pct"] > 50, "%s" % got.quality)


@test
def recursion_without_end_is_cut_honestly():
    """50,000 levels are more than a walk goes: what is missing is said, nothing hangs."""
    got = recording(["-F", "199", "--", program("recurse", "gcc-O0"), "50000", "500"])
    check(got.samples >= 60, "%d samples" % got.samples)
    check(got.quality["truncated_pct"] > 95, "%s" % got.quality)


main()
