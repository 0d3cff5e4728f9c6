#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Time off the CPU as the BPF sampler sees it: who wakes whom, exact times, and what it leaves behind."""
import glob
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from clocks import *
from harness import *

STATES = ("on-cpu", "run-queue", "throttled", "futex", "syscall", "page-fault", "stopped", "blocked")
AS_NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


class Waits:
    """Intervals and times of a recording, from its dump, with their stacks by name, leaf first."""

    def __init__(self, path):
        done = sonde("report", path, "--dump")
        expect(done, 0)
        self.path = path
        self.strings, self.names, self.frames, self.stacks = {}, {}, {}, {}
        self.intervals, self.times = [], {}
        for line in done.stdout.decode(errors="replace").splitlines():
            kind, _, rest = line.partition(" ")
            if kind in ("string", "symbol", "frame", "stack", "off-cpu", "times"):
                self._add(kind, shlex.split(rest))

    def _add(self, kind, words):
        words = [w.partition("=")[::2] for w in words]
        f = dict(words)
        if kind == "string":
            self.strings[f["id"]] = f["text"]
        elif kind == "symbol":
            self.names[f["frame"]] = [self.strings.get(v, "?") for k, v in words if k in ("name", "in")]
        elif kind == "stack":
            self.stacks[f["id"]] = f
        elif kind == "off-cpu":
            self.intervals.append(f)
        elif kind == "times":
            self.times[int(f["tid"])] = f

    def stack(self, interval, key="stack"):
        names, at = [], interval.get(key)
        while at in self.stacks:
            names += self.names.get(self.stacks[at]["frame"], ["?"])
            at = self.stacks[at]["parent"]
        return names

    def of(self, tid, function="", state=None):
        return [i for i in self.intervals if int(i["tid"]) == tid and state in (None, i["state"]) and
                (not function or function in self.stack(i))]

    def ns(self, tid, *states):
        return sum(int(self.times[tid].get(state, 0)) for state in states)


def weight(intervals):
    return sum(int(i["blocked_ns"]) + int(i["queued_ns"]) for i in intervals)


def need_bpf():
    for right in json.loads(sonde("doctor", "--json").stdout)["machine"]:
        if right["id"] == "bpf" and right["state"] != "yes":
            skip("BPF: %s" % right["found"])


def watch(arguments, **options):
    """What was seen, and the words that the program printed."""
    need_bpf()
    path = work("out.sonde")
    done = sonde("record", "--sampler", "bpf", "-o", path, *arguments, timeout=120, **options)
    expect(done, 0)
    return Waits(path), done.stdout.decode().split()


def mostly(what, some, all_of_them):
    """By weight: a wait that only the run queue made long has no waker."""
    check(all_of_them, "no waits: %s" % what)
    check(weight(some) >= 0.85 * weight(all_of_them),
          "%s: %.1f of %.1f ms; the others: %s" % (what, weight(some) / 1e6, weight(all_of_them) / 1e6,
                                                [i for i in all_of_them if i not in some][:4]))


@test
def the_waker_of_a_lock_and_of_a_sleeper():
    """50 % on the CPU, 30 % asleep, 20 % behind a mutex, whose holder wakes the waiter as it unlocks."""
    seen, words = watch(["--wall", "--", program("phases"), "12"])
    clocks = clocks_of(words)
    main_thread, holder = sorted(seen.times)[:2]
    locked = seen.of(main_thread, "wait_for_the_lock")
    near("waiting for the lock", weight(locked), clocks["lock"], clocks["wall"], 3)
    check(all(i["state"] == "futex" for i in locked if int(i["blocked_ns"])), "not all in futex: %s" % locked)
    good = [i for i in locked if i["waker"] == "thread" and int(i.get("waker_tid", 0)) == holder and
            "holder" in seen.stack(i, "waker_stack") and
            any("pthread_mutex_unlock" in name for name in seen.stack(i, "waker_stack"))]
    mostly("woken by the holder in pthread_mutex_unlock", good, locked)
    asleep = seen.of(main_thread, "take_a_nap")
    near("asleep", weight(asleep), clocks["sleep"], clocks["wall"], 3)
    mostly("woken by a timer", [i for i in asleep if i["waker"] == "interrupt"], asleep)
    check(not [i for i in asleep if i["waker"] == "thread"], "a thread woke a sleeper")
    check(all(i["end"] == "root" for i in locked + asleep if int(i["blocked_ns"]) > 10000000), "cut stacks")


@test
def times_are_exact():
    """On and off the CPU add up to the time that passed, for every thread, within 2 %."""
    seen, words = watch(["--off-cpu", "--", program("phases"), "12"])
    clocks = clocks_of(words)
    main_thread = min(seen.times)
    off = seen.ns(main_thread, *STATES[1:])
    near("on the CPU", seen.ns(main_thread, "on-cpu"), clocks["cpu"], clocks["wall"], 2,
         more=clocks["stolen"])
    near("off the CPU", off, clocks["wall"] - clocks["cpu"], clocks["wall"], 2, less=clocks["stolen"])
    for tid, times in seen.times.items():
        whole = round((float(times["until"]) - float(times["since"])) * 1e9)
        near("all states of thread %d" % tid, seen.ns(tid, *STATES), whole, whole, 0.01)


def check_pipe_or_tcp(how):
    seen, words = watch(["--off-cpu", "--", program("wakers"), how, "40"])
    child = int(words[1])
    heard = seen.of(min(seen.times), "hear")
    good = [i for i in heard if i["waker"] == "thread" and int(i.get("waker_pid", 0)) == child and
            "tell" in seen.stack(i, "waker_stack")]
    mostly("woken by the child in tell()", good, heard)
    mostly("in a system call", [i for i in heard if i["state"] == "syscall"], heard)


@test
def the_waker_is_another_process():
    check_pipe_or_tcp("pipe")


@test
def the_waker_is_the_peer_of_a_connection():
    """What the network delivers on this machine is delivered in the name of the sender."""
    if not any(" __local_bh_enable_ip" in line and not line.startswith("0000000000000000")
               for line in open("/proc/kallsyms")):
        skip("the names of the kernel are hidden, or other ones")
    check_pipe_or_tcp("tcp")


@test
def a_thread_that_replaces_its_process():
    """exec by a thread that is not the first: it goes on under the first one's id."""
    seen, words = watch(["--off-cpu", "--", program("wakers"), "exec", "20"])
    check(words.count("ready") == 1, "%r" % words)
    heard = seen.of(min(seen.times), "hear")
    check(weight(heard) > 0.4e9, "only %.1f ms in hear()" % (weight(heard) / 1e6))
    check(int(words[1]) in seen.times, "the child was not followed")


@test
def a_storm_of_switches():
    """Most of the intervals are not kept, and those that are stand for all of them."""
    seen, words = watch(["--off-cpu", "--", program("pingpong"), "200000"])
    size = os.path.getsize(seen.path)
    check(size < 1 << 20, "%d KB for 400,000 waits" % (size >> 10))
    for tid in list(seen.times)[:2]:
        off = seen.ns(tid, *STATES[1:])
        check(abs(weight(seen.of(tid)) - off) <= 0.15 * off, "thread %d: %.1f ms in intervals, %.1f ms in the times"
              % (tid, weight(seen.of(tid)) / 1e6, off / 1e6))


@test
def short_waits_only_count():
    seen, words = watch(["--off-cpu", "--min-block", "50ms", "--", program("phases"), "12"])
    clocks = clocks_of(words)
    short = [i for i in seen.intervals if int(i["duration_ns"]) < 50000000 and i["open"] == "no"]
    check(not short, "%d short intervals" % len(short))
    check(seen.ns(min(seen.times), "futex") > 0.9 * clocks["lock"], "the lock is not in the times")


@test
def threads_that_sleep_before_and_after():
    child = start([program("waits")], stdin=subprocess.PIPE)
    time.sleep(0.3)
    seen, words = watch(["--off-cpu", "-p", str(child.pid), "-d", "1"])
    for function, number in (("wait_epoll", 232), ("wait_socket", 45)):
        both = [i for i in seen.intervals if i["open"] == "both" and function in seen.stack(i)]
        check(len(both) == 1 and weight(both) > 0.95e9, "%s: %s" % (function, both))
        check(os.uname().machine != "x86_64" or int(both[0]["syscall"]) == number, "%s" % both)
        check(both[0]["end"] == "root", "%s" % both)
    child.stdin.close()
    check(child.wait(timeout=30) == 0, "a call returned EINTR")


def programs_of(pid):
    """BPF programs that a process holds: their ids, from its descriptors."""
    found = set()
    for path in glob.glob("/proc/%d/fdinfo/*" % pid):
        try:
            found.update(re.findall(r"^prog_id:\s*(\d+)", open(path).read(), re.M))
        except OSError:
            pass
    return found


def links_of(pid):
    links = 0
    for fd in glob.glob("/proc/%d/fd/*" % pid):
        try:
            links += "bpf_link" in os.readlink(fd)
        except FileNotFoundError:  # closed meanwhile
            pass
    return links


def attached(recorder):
    """Waits until it has all its programs; their ids."""
    for _ in range(200):
        held = programs_of(recorder.pid)
        links = links_of(recorder.pid)
        if len(held) >= 6 and links >= 6:
            return held
        time.sleep(0.05)
    check(False, "it holds %s" % held)


def loaded_programs():
    return {str(p["id"]) for p in json.loads(run(["bpftool", "prog", "list", "-j"]).stdout)}


@test
def a_thread_that_is_stopped():
    need_bpf()
    child = start([program("phases"), "1000"])
    recorder = start([SONDE, "record", "--off-cpu", "-q", "-o", work("out.sonde"), "-p", str(child.pid)], ready=False)
    attached(recorder)
    time.sleep(0.2)
    before = time.monotonic()
    child.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    child.send_signal(signal.SIGCONT)
    most = time.monotonic() - before
    time.sleep(0.2)
    recorder.send_signal(signal.SIGINT)
    check(recorder.wait(timeout=60) == 0, "record failed")
    stopped = Waits(work("out.sonde")).ns(child.pid, "stopped")
    check(0.5e9 <= stopped <= (most + 0.1) * 1e9, "stopped for %.1f of %.1f ms" % (stopped / 1e6, most * 1e3))


@test
def nothing_stays_attached_after_kill_9():
    need_bpf()
    need_root()
    need("bpftool")
    child = start([program("phases"), "1000"])
    for moment in (0, 0.1, 0.3, 0.8):
        recorder = start([SONDE, "record", "--off-cpu", "-q", "-o", work("out.sonde"), "-p", str(child.pid)],
                         ready=False)
        held = attached(recorder)
        time.sleep(moment)
        recorder.kill()
        recorder.wait()
        for _ in range(100):
            if not held & loaded_programs():
                break
            time.sleep(0.1)
        check(not held & loaded_programs(), "still loaded: %s" % (held & loaded_programs()))
    check(alive(child), "the target is gone")


@test
def two_capabilities_are_enough():
    need_root()
    need("setpriv")
    need_bpf()
    os.chmod(work(), 0o777)
    path = work("out.sonde")
    done = run(AS_NOBODY + ["--inh-caps", "-all,+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon",
                            "--bounding-set", "-all,+bpf,+perfmon", SONDE, "record", "--sampler", "bpf", "--off-cpu",
                            "-o", path, "--", program("phases"), "8"], timeout=120)
    if b"setpriv" in done.stderr:
        skip("setpriv: %s" % done.stderr.decode().strip())
    expect(done, 0)
    seen, clocks = Waits(path), clocks_of(done.stdout.decode().split())
    locked = seen.of(min(seen.times), "wait_for_the_lock")
    near("waiting for the lock", weight(locked), clocks["lock"], clocks["wall"], 3)
    mostly("woken by a thread", [i for i in locked if i["waker"] == "thread"], locked)


@test
def without_the_right_perf_does_it_and_record_says_so():
    need_root()
    need("setpriv")
    os.chmod(work(), 0o777)
    path = work("out.sonde")
    nobody = AS_NOBODY + [SONDE, "record", "-o", path]
    done = run(nobody + ["--off-cpu", "--", program("phases"), "4"], timeout=120)
    expect(done, 0, "who wakes a thread is not recorded", "CAP_BPF")
    check(Waits(path).times, "no times")
    expect(run(nobody + ["--sampler", "bpf", "--off-cpu", "--", "true"]), 1, "CAP_BPF", "setcap")
    expect(run(nobody + ["--sampler", "bpf", "--", "true"]), 1, "--wall")


main()
