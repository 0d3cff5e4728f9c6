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


def own_calls(frames):
    """The functions of switches.c on a stack, outermost first."""
    names = ("main", "run_raised", "run_interrupting", "run_ucontext", "run_switch", "run_fcontext",
             "send_signals", "computation", "on_signal", "handler_work", "generator", "level_one",
             "level_two", "level_three", "spin_until")
    return [f for f in frames if f in names]


def check_switches(how, *full):
    """Of the stacks that end in spin_until those that are whole are `full`, one of them."""
    got = recording(["-F", "499", "--", program("switches"), how, "1000"])
    check(got.samples >= 200, "%d samples" % got.samples)
    good = bad = 0
    wrong = []
    for frames, n in got.stacks:
        if frames[0] == "[truncated]" or "spin_until" not in frames:
            continue
        calls = own_calls(frames)
        if calls in [list(f) for f in full]:
            good += n
        else:
            bad += n
            wrong.append(calls)
    check(good >= 150 and bad <= (good + bad) * 0.01, "of %d: %s" % (good + bad, wrong[:3]))
    return got


@test
def signal_stacks():
    got = check_switches("raised", ("main", "run_raised", "send_signals", "on_signal",
                                    "handler_work", "spin_until"))
    check(got.quality["rooted_pct"] >= 97, "%s" % got.quality)


@test
def signal_stacks_below_a_computation():
    start = ("main", "run_interrupting", "computation", "spin_until")
    got = check_switches("interrupting", start, start + ("on_signal", "handler_work", "spin_until"))
    # What the handler interrupted goes on as soon as it returns, which may be before it is read.
    check(got.quality["rooted_pct"] + got.quality["truncated_pct"] >= 99.5, "%s" % got.quality)
    check(got.quality["rooted_pct"] >= 80, "%s" % got.quality)
    check(got.count("handler_work") >= 100, "handler_work is on %d stacks" % got.count("handler_work"))


COROUTINE = ("generator", "level_one", "level_two", "level_three", "spin_until")


@test
def coroutines_of_the_c_library():
    got = check_switches("ucontext", COROUTINE)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def coroutines_of_a_switch():
    got = check_switches("switch", COROUTINE)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def coroutines_entered_by_a_jump():
    got = check_switches("fcontext", COROUTINE)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


def check_garbage(*link):
    need("go")
    env = dict(os.environ, GOCACHE=work("cache"), GO111MODULE="off", CGO_ENABLED="0")
    built = run(["go", "build", "-o", work("garbage"), *link,
                 os.path.join(PROGRAMS, "garbage.go")], env=env, timeout=120)
    if built.returncode:
        skip("go cannot build here: %r" % built.stderr[:200])
    child = start([work("garbage")])
    got = recording(["-F", "499", "-p", str(child.pid), "-d", "3"])
    check(got.samples >= 200, "%d samples" % got.samples)
    # On a busy machine a goroutine may go on before its stack is read, and then it is cut.
    check(got.quality["rooted_pct"] >= 85, "%s" % got.quality)
    check(got.quality["rooted_pct"] + got.quality["truncated_pct"] >= 99, "%s" % got.quality)
    return got


@test
def go_on_the_stacks_of_its_runtime():
    got = check_garbage()
    switched = whole = between = 0
    for frames, n in got.stacks:
        if "runtime.systemstack.abi0" not in frames and "runtime.systemstack" not in frames:
            continue
        switched += n
        # For three instructions it stands on the other stack, at a zero: docs/heuristics/stack-bottom.md.
        between += n if frames[0].startswith("runtime.systemstack") else 0
        check(len(frames) == 1 or not frames[0].startswith("runtime.systemstack"),
              "the stack is whole, and its callers are missing: %s" % frames)
        if frames[0] in ("runtime.goexit.abi0", "runtime.goexit"):
            whole += n
    check(between <= got.samples * 0.01, "%d of %d have no callers" % (between, got.samples))
    check(switched >= 20 and whole >= switched * 0.5,
          "%d of %d stacks go back to the goroutine" % (whole, switched))


@test
def go_without_symbols():
    check_garbage("-ldflags=-s -w")


main()
