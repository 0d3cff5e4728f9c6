#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How much stack is copied of which thread. Memory of the target cannot be read here, so a stack is
whole only when the copy holds it; and no sample may be lost or counted twice while sizes change."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

HZ, MS = 499, 1500
SHALLOW, DEEP = "5", "250"  # the second is some 25 KB of stack


def recorded(*arguments, **options):
    path = work("sizes.sonde")
    done = run([program("notail"), SONDE, "record", "-q", "-F", str(HZ), "-o", path, *arguments],
               timeout=300, **options)
    expect(done, 0)
    return Recording(path)


def sizes(got):
    """bytes -> threads"""
    check(got.json["meta"]["stack_bytes"] == "adaptive", got.json["meta"])
    return {int(b): int(n) for b, n in (s.split(":") for s in got.json["meta"]["stack_sizes"].split())}


def check_times(got, count, ms=MS):
    """Every thread has used the same, and its samples say so. A thread that changes its events may
    lose a period on each CPU. Where periods are drawn at random a few samples say little of one thread,
    and all of them together much."""
    depths = [t for t in got.threads if t["name"].startswith("depth-")]
    check(len(depths) == count, "%d threads: %s" % (len(depths), [t["name"] for t in got.threads]))
    have = [t["cpu_ns"] / 1e6 for t in depths]
    check(abs(sum(have) / count - ms) <= 0.04 * ms + 5,
          "%.0f ms a thread instead of %d: %s" % (sum(have) / count, ms, got.json["quality"]["losses"]))
    for time_ms in have:
        check(abs(time_ms - ms) <= 0.1 * ms + 60, "a thread has %.0f ms instead of %d" % (time_ms, ms))


def whole(got, name):
    done = sonde("report", got.path, "--json", "-t", "^%s$" % name)
    expect(done, 0)
    return json.loads(done.stdout)["quality"]["rooted_pct"]


def check_grown(got, shallow=3, deep=1):
    have = sizes(got)
    check(have.get(32768) == deep, "threads with 32 KB: %s" % have)
    check(have.get(8192, 0) >= shallow, "threads that stayed small: %s" % have)
    text = sonde("report", got.path).stdout.decode()
    check(" to 32 KiB copied\n" in text, text[:400])
    # It takes some stacks that are cut to see that they are.
    check(whole(got, "depth-" + DEEP) > 90, "%.1f %% of the deep stacks are whole" % whole(got, "depth-" + DEEP))
    check(whole(got, "depth-" + SHALLOW) > 99.5, "the shallow ones are not")


@test
def deep_thread_grows_alone():
    child = start([program("depths"), "before", str(MS), SHALLOW, DEEP, SHALLOW, SHALLOW])
    got = recorded("-p", str(child.pid))
    check_grown(got)


@test
def threads_started_later_grow_too():
    """They have inherited the events of the first thread, which go away when all have their own."""
    got = recorded("--", program("depths"), "after", str(MS), SHALLOW, DEEP, SHALLOW, SHALLOW)
    check_grown(got)
    check_times(got, 4)


@test
def chain_of_threads():
    """Each is started by one that is about to grow."""
    got = recorded("--", program("depths"), "chain", str(MS), *[DEEP] * 5)
    check_times(got, 5)
    check(sizes(got).get(32768) == 5, sizes(got))


@test
def processes_grow_too():
    got = recorded("--", program("depths"), "forks", str(MS), SHALLOW, DEEP, SHALLOW, SHALLOW)
    check_grown(got)
    check_times(got, 4)


@test
def families_of_many_threads():
    """More than settle: the inherited events stay, and do not count twice. Each thread has some 75 samples,
    and threads that trade copies of an event trade what is left of its period: one thread alone says nothing."""
    got = recorded("--", program("depths"), "after", "150", *[SHALLOW] * 70, *[DEEP] * 10)
    for name, count in ("depth-" + SHALLOW, 70), ("depth-" + DEEP, 10):
        have = [t["cpu_ns"] / 1e6 for t in got.threads if t["name"] == name]
        check(len(have) == count, "%d threads %s" % (len(have), name))
        check(abs(sum(have) / count - 150) <= 40, "%s: %.0f ms a thread" % (name, sum(have) / count))


@test
def whole_machine_grows_at_once():
    need_root()
    start([program("depths"), "before", "60000", DEEP, DEEP])
    got = recorded("-a", "-d", "4")
    check(max(sizes(got)) >= 32768, sizes(got))
    check(whole(got, "depth-" + DEEP) > 50, "%.1f %% whole" % whole(got, "depth-" + DEEP))


@test
def fixed_size_stays():
    got = recorded("--stack-size", "8192", "--", program("depths"), "after", "500", DEEP)
    check(got.json["meta"]["stack_bytes"] == "8192", got.json["meta"])
    check("stack_sizes" not in got.json["meta"], got.json["meta"])
    check(whole(got, "depth-" + DEEP) < 1, "whole stacks of 25 KB from 8 KB")


main()
