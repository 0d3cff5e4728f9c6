#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde report` and `sonde convert` make of a recording with time off the CPU, whose content is known
(tests/unit/small_wall.h)."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403

MS = 1000000


def made():
    """The recording; every test gets a copy of its own."""
    path = work("in.sonde")
    done = run([os.path.join(os.path.dirname(SONDE), "tests", "unit", "make_wall"), path])
    check(done.returncode == 0, "make_wall: %r" % done.stderr)
    return path


def out(*arguments, status=0, **options):
    options.setdefault("env", dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="80"))
    done = sonde(*arguments, **options)
    expect(done, status)
    return done.stdout.decode()


def loaded(*arguments):
    return json.loads(out("report", made(), "--json", *arguments))


def check_same(got, want):
    if got != want:
        print("got:\n%s" % got)
        raise Failure("not what it was")


@test
def summary():
    check_same(out("report", made()), """\
server --port 80 · 100 ms · 14 samples at 200 Hz (cpu-clock) · 8 waits · 70 ms CPU
100% is 200 ms: 2 threads watched; 3 that only waited are apart
Time: 55.0% syscall, 35.0% on-cpu, 9.0% futex, 1.0% run-queue
Stacks: 100% rooted on-cpu, 87.5% off-cpu, 0% truncated, 0% guessed, 0% unresolved, 0 lost
  → 12.5% of waits have no stack: where the threads waited then is not known

  on-cpu  run-queue   futex  syscall  thread
   50.0%       2.0%   18.0%    30.0%  server 100
   20.0%          -       -    80.0%  holder 101
       -          -  100.0%        -  3 × bio_* in bio_wait

 total  paths on and off the CPU
 50.0%  clone › worker
 40.0%  ├ [syscall read]
 40.0%  │   not woken before the recording ended
 10.0%  └ memcpy
 49.0%  _start › main
 25.8%  ├ serve › parse<int; char> (inl)
  0.8%  │ └ [run queue]
 14.2%  ├ clock_nanosleep › [syscall clock_nanosleep]
 14.0%  │   woken by a timer or a device
  9.0%  └ pthread_mutex_lock › [futex]
  7.5%      woken by holder (server): worker › pthread_mutex_unlock
  1.5%      woken by client (client): post_request › pthread_mutex_unlock
  1.0%  [truncated] › [syscall poll]
  1.0%    who woke it is not known

on-cpu   total  function          in
 25.0%   25.8%  parse<int; char>  server
 10.0%   10.0%  memcpy            libc.so.6
""")


@test
def one_state_of_one_thread():
    check_same(out("report", made(), "--main", "--state", "futex", "--tree"), """\
 18.0%  _start
 18.0%  main
 18.0%  pthread_mutex_lock
 18.0%  do_futex
 18.0%  schedule
 18.0%  [futex]
 15.0%    woken by holder (server): worker › pthread_mutex_unlock
  3.0%    woken by client (client): post_request › pthread_mutex_unlock
""")


@test
def folded_in_nanoseconds():
    check_same(out("report", made(), "--folded", "--no-idle"), """\
clone;worker;ksys_read;[syscall read] 80000000
clone;worker;memcpy 20000000
_start;main;serve;parse<int: char> 50000000
_start;main;serve;parse<int: char>;[run queue] 1500000
_start;main;clock_nanosleep;[syscall clock_nanosleep] 28000000
_start;main;clock_nanosleep;[run queue] 500000
_start;main;pthread_mutex_lock;do_futex;schedule;[futex] 18000000
[truncated];[syscall poll] 2000000
""")


@test
def states_are_selected():
    path = made()
    for words, ns in ((["futex"], 318), (["on-cpu"], 70), (["off-cpu"], 430), (["run-queue"], 2),
                      (["futex,syscall"], 428), (["futex", "syscall"], 428), (["stopped"], 0)):
        options = [o for word in words for o in ("--state", word)]
        got = json.loads(out("report", path, "--json", *options))
        check(got["cpu_ns"] + got["off_cpu_ns"] == ns * MS, "%s: %s" % (words, got["off_cpu_ns"]))
        check(got["watched_ns"] == 500 * MS, "percentages are of something else")
        expect(sonde("convert", path, work("x.folded"), *options), 0)
        with open(work("x.folded")) as lines:
            sums = sum(int(line.rsplit(" ", 1)[1]) for line in lines)
        check(sums == ns * MS, "%s: %d ns converted" % (words, sums))


@test
def wrong_states_are_status_2():
    path = made()
    for word in ("sleeping", "", "futex,", ",", "futex,on cpu", "x" * 100):
        for command in (["report", path], ["convert", path, work("x.folded")]):
            expect(sonde(*command, "--state", word), 2, "there is no state")
    expect(sonde("report", path, "--idle", "--no-idle"), 2, "at the same time")


@test
def who_is_idle_is_asked_for():
    path = made()
    check("3 that only waited are apart" in out("report", path), "not apart")
    check("5 threads watched\n" in out("report", path, "--idle"), "apart in spite of --idle")
    check("bio_wait" not in out("report", path, "--tree"), "in the tree")
    check("bio_wait" in out("report", path, "--tree", "--idle"), "not in the tree")
    for option, threads in (([], 500), (["--idle"], 500), (["--no-idle"], 200)):
        got = json.loads(out("report", path, "--json", *option))
        check(got["watched_ns"] == threads * MS, "%s: %s" % (option, got["watched_ns"]))
        check(len(got["threads"]) == 6, "threads are missing")
    # Alone they are what there is to see.
    check("100.0%" in out("report", path, "-t", "^bio", "--tree"), "nothing of bio")


@test
def views_agree():
    path = made()
    got = loaded("--tree")
    check(sum(f["self"] for f in got["functions"]) == got["samples"], "functions do not add up")
    check(sum(f["self_ns"] for f in got["functions"]) == 500 * MS, "their time neither")
    check(got["tree"]["total_ns"] == 500 * MS, "tree: %s" % got["tree"]["total_ns"])
    for thread in got["threads"]:
        check(sum(thread["states"].values()) == thread["watched_ns"], thread)
    for state, ns in got["states"].items():
        check(sum(t["states"][state] for t in got["threads"]) == ns, state)
    dump = out("report", path, "--dump")
    check(len(re.findall(r"^off-cpu ", dump, re.M)) == got["quality"]["intervals"], "intervals")
    check(len(re.findall(r"^times ", dump, re.M)) == 4, "times")


@test
def fits_terminals():
    path = made()
    need("script")
    for columns in (80, 120):
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        env.update(TERM="xterm", LC_ALL="C.UTF-8", NO_COLOR="1")
        done = run(["script", "-qec", "stty rows 24 cols %d; %s report %s" % (columns, SONDE, path),
                    "/dev/null"], env=env)
        if b"failed to create pseudo-terminal" in done.stderr + done.stdout:
            skip("there are no pseudo-terminals here")
        lines = done.stdout.decode().replace("\r\n", "\n").splitlines()
        check(len(lines) < 24, "%d lines" % len(lines))
        check(max(map(len, lines)) <= columns, "a line is too long: %s" % max(lines, key=len))


main()
