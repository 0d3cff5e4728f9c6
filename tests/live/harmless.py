#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: early (it takes minutes)
"""The target never notices: no call of its is interrupted, and it outlives whatever becomes of sonde."""
import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

# All samplers in their default modes.
SAMPLERS = {
    "perf": ["--sampler", "perf"],
    "perf-wall": ["--sampler", "perf", "--wall"],
    "bpf-wall": ["--sampler", "bpf", "--wall"],
    "ptrace": ["--sampler", "ptrace"],
    "ptrace-wall": ["--sampler", "ptrace", "--wall"],
}

KILLS = 50
STOPPED = "Tt"


def record(sampler, *arguments):
    return sonde("record", *SAMPLERS[sampler], *arguments)


def need_sampler(sampler):
    done = record(sampler, "-o", work("probe.sonde"), "--", "true")
    if done.returncode:
        skip(done.stderr.decode(errors="replace").partition("\n")[0])


def each_sampler(function):
    """The test with each of them."""
    def of(name):
        def body():
            need_sampler(name)
            function(name)
        body.__name__ = "%s_%s" % (function.__name__, name.replace("-", "_"))
        test(body)
    for name in SAMPLERS:
        of(name)


@each_sampler
def no_call_is_interrupted(sampler):
    """Threads that wait in seventeen system calls, two hundred times a second each, count EINTRs."""
    child = start([program("eintr")], stdin=subprocess.PIPE)
    for _ in range(2):
        done = record(sampler, "-F", "1999", "-p", child.pid, "-d", "2", "-o", work("out.sonde"))
        expect(done, 0)
    got = Recording(work("out.sonde"))
    check(got.samples > 100, "%d samples" % got.samples)
    child.stdin.close()
    said = child.stdout.read().decode()
    check(child.wait() == 0, "interrupted:\n%s" % said)
    counts = {line.split()[0]: int(line.split()[1]) for line in said.splitlines()}
    idle = [name for name, calls in counts.items() if calls < 50]
    check(set(idle) <= {"io_uring_enter", "io_getevents"}, "hardly ever called: %s" % idle)
    if idle:
        print("not to be had here: %s" % " ".join(idle))
    if "restarted_calls" in got.json["meta"]:
        print("%s: %s of %s stops came upon such a call" % (
            sampler, got.json["meta"]["restarted_calls"], got.json["meta"]["pause_count"]))


def threads_of(pid):
    """tid -> (state, tracer)"""
    found = {}
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, tid)) as f:
            fields = dict(line.split(":\t", 1) for line in f if ":\t" in line)
        found[int(tid)] = (fields["State"].strip(), int(fields["TracerPid"]))
    return found


class Target:
    def __init__(self, name):
        self.path = work(name)
        self.child = start([program("beats"), self.path])
        self.pid = self.child.pid

    def beats(self):
        with open(self.path, "rb") as f:
            data = f.read()
        return struct.unpack("%dQ" % (len(data) // 8), data)

    def check_goes_on(self):
        """Every thread has counted on since now; none is traced or stopped."""
        before, deadline = self.beats(), time.monotonic() + 20
        while any(a <= b for a, b in zip(self.beats(), before)):
            check(alive(self.child), "the target is gone: status %s" % self.child.poll())
            check(time.monotonic() < deadline, "threads stand: %s, %s -> %s" % (
                threads_of(self.pid), before, self.beats()))
            time.sleep(0.005)
        for tid, (state, tracer) in threads_of(self.pid).items():
            check(tracer == 0, "thread %d is traced by %d" % (tid, tracer))
            check(state[0] not in STOPPED, "thread %d is in state %s" % (tid, state))


def check_readable(path):
    """True when there were samples in it."""
    if not os.path.exists(path):
        return False
    done = sonde("report", path, "--json")
    if done.returncode == 0:
        return json.loads(done.stdout)["samples"] > 0
    expect(done, 1)
    check(done.stderr.strip(), "no word about it")
    check(os.path.getsize(path) <= 64, "cannot be read: %r" % done.stderr)
    return False


def wait_for_flush(path):
    deadline = time.monotonic() + 30
    while not os.path.exists(path) or os.path.getsize(path) < 1000:
        check(time.monotonic() < deadline, "nothing is written")
        time.sleep(0.01)


@each_sampler
def kill_9(sampler):
    """kill -9 of sonde at random moments, from the first milliseconds on to after the first flush."""
    target = Target("beats")
    random.seed(sampler)
    readable = 0
    for i in range(KILLS):
        path = work("killed.sonde")
        if os.path.exists(path):
            os.unlink(path)
        child = start([SONDE, "record", *SAMPLERS[sampler], "-q", "-F", "4999", "-p",
                       str(target.pid), "-o", path], ready=False, stderr=subprocess.PIPE)
        if i % 10 == 9:
            wait_for_flush(path)
        time.sleep(random.random() * 0.25)
        if not alive(child):
            raise Failure("sonde ended by itself: %r" % child.stderr.read())
        child.kill()
        child.wait()
        target.check_goes_on()
        readable += check_readable(path)
    check(readable >= KILLS / 10, "%d recordings of %d have samples" % (readable, KILLS))


@test
def kill_9_of_ptrace_and_its_command():
    """What sonde has started runs on without it as well."""
    path = work("beats")
    child = start([SONDE, "record", "--sampler", "ptrace", "-q", "-F", "4999", "-o", work("x.sonde"),
                   "--", program("beats"), path])
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout)
    try:
        time.sleep(0.3)
        child.kill()
        child.wait()
        time.sleep(0.2)
        with open(path, "rb") as f:
            before = f.read()
        time.sleep(0.5)
        with open(path, "rb") as f:
            after = f.read()
        check(all(before[i:i + 8] != after[i:i + 8] for i in range(0, len(before), 8)),
              "threads stand: %s" % threads_of(pid))
        check(all(tracer == 0 for _, tracer in threads_of(pid).values()), "still traced")
    finally:
        os.kill(pid, signal.SIGKILL)


main()
