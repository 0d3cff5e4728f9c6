#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Time off the CPU of programs that say themselves how long they slept and waited.

Durations are compared with what the program's own clocks said, for a busy machine lengthens every sleep;
shares are compared with what the program is made to do only where that does not matter."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from clocks import *
from harness import *

STATES = ("on-cpu", "run-queue", "throttled", "futex", "syscall", "page-fault", "stopped", "blocked")
SAMPLERS = os.environ.get("SONDE_OFF_CPU_SAMPLERS", "perf bpf ptrace").split()
sampler = None


def each_sampler(function):
    """The test with each of the samplers that see switches."""
    def of(name):
        def body():
            global sampler
            sampler = name
            done = sonde("record", "--off-cpu", "--sampler", name, "-o", work("probe.sonde"), "--", "true")
            if done.returncode:
                skip(done.stderr.decode(errors="replace").partition("\n")[0])
            function()
        body.__name__ = "%s_%s" % (function.__name__, name)
        return body
    for name in SAMPLERS:
        test(of(name))


class OffCpu:
    """Times by thread and intervals of a recording, with the names of their stacks, from its dump."""

    def __init__(self, path):
        self.times, self.intervals = {}, []
        self.strings, self.frames, self.stacks = {}, {}, {}
        done = sonde("report", path, "--dump", timeout=120)
        expect(done, 0)
        for line in done.stdout.decode(errors="replace").splitlines():
            self.take(line)

    def take(self, line):
        kind, _, rest = line.partition(" ")
        if kind == "string":
            self.strings[rest.split("id=")[1].split(" ")[0]] = json.loads(rest.partition(" text=")[2])
        if kind not in ("times", "off-cpu", "stack", "symbol", "sample"):
            return
        words = [word.partition("=")[::2] for word in rest.split()]
        fields = dict(words)
        if kind == "times":
            self.times[int(fields["tid"])] = fields
        elif kind == "stack":
            self.stacks[fields["id"]] = (fields["parent"], fields["frame"])
        elif kind == "symbol":
            self.frames[fields["frame"]] = [value for key, value in words if key in ("name", "in")]
        else:
            fields["state"] = "on-cpu" if kind == "sample" else fields["state"]
            self.intervals.append(fields)

    def ns(self, tid, *states):
        return sum(int(self.times[tid].get(state, 0)) for state in states)

    def of(self, tid):
        return [i for i in self.intervals if int(i["tid"]) == tid and i["state"] != "on-cpu"]

    def names(self, stack):
        while stack in self.stacks:
            stack, frame = self.stacks[stack]
            for name in self.frames.get(frame, []):
                yield self.strings.get(name, "")

    def weight(self, function, state, syscall=None):
        """ns in this state, with a frame that has `function` in its name."""
        sum_ns, known = 0, {}
        for i in self.intervals:
            if i["state"] != state or (syscall and i.get("syscall") != str(syscall)):
                continue
            stack = i["stack"]
            if stack not in known:
                known[stack] = any(function in name for name in self.names(stack))
            if known[stack]:
                sum_ns += int(i["weight_ns"] if state == "on-cpu" else i["blocked_ns"])
                sum_ns += int(i["queued_ns"]) if state in ("run-queue", "throttled") else 0
        return sum_ns


def watch(arguments, **options):
    path = work("out.sonde")
    done = sonde("record", "--sampler", sampler, "-o", path, *arguments, timeout=120, **options)
    expect(done, 0)
    return OffCpu(path)


def main_thread(seen):
    """The one that began first."""
    return min(seen.times)


def phases(arguments, build="gcc-O2", command=(), path=None):
    """Records the program; what was seen, and what its clocks said."""
    path = path or work("out.sonde")
    done = run([*command, SONDE, "record", *arguments, "-o", path, "--", program("phases", build), "12"],
               timeout=120)
    expect(done, 0)
    return OffCpu(path), clocks_of(done.stdout.decode().split())


def check_phases(seen, clocks, points=3):
    """In what it waited, and for how long. Late wake-ups count as waiting for the clocks, too."""
    tid = main_thread(seen)
    wall, stolen = clocks["wall"], clocks["stolen"]
    late = sum(int(i["queued_ns"]) for i in seen.of(tid) if i["state"] in ("futex", "syscall"))
    near("on the CPU", seen.ns(tid, "on-cpu"), clocks["cpu"], wall, 2, more=stolen)
    near("off the CPU", seen.ns(tid, *STATES[1:]), wall - clocks["cpu"], wall, 2, less=stolen)
    near("asleep", seen.ns(tid, "syscall") + late, clocks["sleep"] + late, wall + late, points)
    for function in ("wait_for_the_lock", "pthread_mutex_lock"):
        got = seen.weight(function, "futex")
        # Looks of ptrace may lay a wait that they did not see on the next one.
        above = points if sampler == "ptrace" else 1
        check(got <= clocks["lock"] + above * wall / 100, "%.1f ms in %s" % (got / 1e6, function))
        near(function, got + late, clocks["lock"] + late, wall + late, points)
    near("take_a_nap", seen.weight("take_a_nap", "syscall") + late, clocks["sleep"] + late, wall + late, points)


@each_sampler
def sleeps_computes_and_waits():
    """30 % asleep, 50 % on the CPU, 20 % behind a mutex, as far as a busy machine lets it."""
    seen, clocks = phases(["--wall", "--sampler", sampler])
    check_phases(seen, clocks)
    near("sampled in compute", seen.weight("compute", "on-cpu"), clocks["cpu"], clocks["wall"], 3,
         more=clocks["stolen"])


@each_sampler
def without_samples_of_the_cpu():
    seen, clocks = phases(["--off-cpu", "--sampler", sampler])
    check_phases(seen, clocks)
    check(not any(i["state"] == "on-cpu" for i in seen.intervals), "there are samples")


@each_sampler
def whole_stacks_of_waits():
    for build in ("gcc-O2", "gcc-O0", "gcc-O2-fp"):
        seen, clocks = phases(["--off-cpu", "--sampler", sampler], build)
        long = [i for i in seen.intervals if int(i["duration_ns"]) > 10000000]
        check(len(long) >= 20, "%d long waits" % len(long))
        cut = [i for i in long if i["end"] != "root"]
        check(len(cut) <= len(long) / 20, "%s: %d of %d stacks are not whole" % (build, len(cut), len(long)))


@each_sampler
def short_waits_only_count():
    seen, clocks = phases(["--off-cpu", "--min-block", "50ms", "--sampler", sampler])
    short = [i for i in seen.intervals if int(i["duration_ns"]) < 50000000 and i["open"] == "no"]
    check(not short, "%d short intervals" % len(short))
    tid = main_thread(seen)
    near("off the CPU", seen.ns(tid, *STATES[1:]), clocks["wall"] - clocks["cpu"], clocks["wall"], 2,
         less=clocks["stolen"])


@each_sampler
def threads_that_sleep_all_the_time():
    """They slept before we came, and still do: no event ever tells of them."""
    for build in ("gcc-O2", "gcc-O0", "gcc-O2-fp"):
        child = start([program("waits", build)], stdin=subprocess.PIPE)
        time.sleep(0.5)
        seen = watch(["--off-cpu", "-p", str(child.pid), "-d", "1"])
        for function in ("wait_epoll", "wait_socket", "wait_signal", "wait_semaphore"):
            ns = seen.weight(function, "syscall")
            check(ns > 0.8e9, "%s: %.1f ms in %s" % (build, ns / 1e6, function))
        whole = [i for i in seen.intervals if i["open"] == "both"]
        check(len(whole) >= 4, "%d intervals are open at both ends" % len(whole))
        check(all(i["end"] == "root" for i in whole), "a stack is not whole: %s" % whole)
        child.stdin.close()
        check(child.wait(timeout=30) == 0, "a call returned EINTR: %s" % child.stdout.read())


@each_sampler
def blocked_by_page_faults():
    if run([program("faulting"), "1"]).returncode == 77:
        skip("userfaultfd is not allowed here")
    seen = watch(["--off-cpu", "--", program("faulting"), "20"])
    ns = seen.ns(main_thread(seen), "page-fault")
    check(ns >= 0.95 * 20 * 50e6, "%.1f ms in page faults" % (ns / 1e6))
    ns = seen.weight("touch", "page-fault")
    check(ns >= 0.95 * 20 * 50e6, "%.1f ms in touch" % (ns / 1e6))


@each_sampler
def stopped_by_a_signal():
    path = work("out.sonde")
    done = sonde("record", "--off-cpu", "--sampler", sampler, "-o", path, "--", program("stops"), "8")
    expect(done, 0)
    stood = int(done.stdout.split()[1])
    seen = OffCpu(path)
    tid = main_thread(seen)
    late = sum(int(i["queued_ns"]) for i in seen.of(tid))
    ns = seen.ns(tid, "stopped")
    # Looks of ptrace may lay a wait that they did not see on the next one.
    most = stood * 1.15 if sampler == "ptrace" else stood
    check(0.8e9 <= ns <= most, "stopped for %.1f ms, stood for %.1f" % (ns / 1e6, stood / 1e6))
    check(seen.weight("stop", "stopped") >= 0.8e9, "not in stop()")


@each_sampler
def busy_threads_wait_for_a_cpu():
    """Four threads that compute, on one CPU: each waits three quarters of the time, or more."""
    need("taskset")
    seen = watch(["--wall", "--", "taskset", "-c", "0", program("threads"), "3", "400"])
    busy = [tid for tid in seen.times if seen.ns(tid, "on-cpu") > 0.3e9]
    check(len(busy) == 4, "%d threads were busy: %s" % (len(busy), seen.times))
    on = sum(seen.ns(tid, "on-cpu") for tid in busy)
    queued = sum(seen.ns(tid, "run-queue") for tid in busy)
    check(queued > 1.2 * on, "%.1f ms queued, %.1f ms on the CPU" % (queued / 1e6, on / 1e6))
    ns = seen.weight("spin_until", "run-queue")
    check(ns > 0.8 * queued, "only %.1f of %.1f ms queued in spin_until" % (ns / 1e6, queued / 1e6))


@each_sampler
def throttled_by_its_cgroup():
    need_root()
    group = limited_cgroup("sonde-test-%d" % os.getpid())
    try:
        child = start([program("split"), "100000000", "100000"], ready=False)
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(child.pid))
        time.sleep(0.3)
        sums = lambda: dict(line.split() for line in open(os.path.join(group, "cpu.stat")))
        before = sums()
        seen = watch(["--off-cpu", "-p", str(child.pid), "-d", "2"])
        after = sums()
        child.kill()
        child.wait()
    finally:
        os.rmdir(group)
    key = "throttled_time" if "throttled_time" in after else "throttled_usec"
    most = (int(after[key]) - int(before[key])) * (1 if key == "throttled_time" else 1000)
    ns = seen.ns(child.pid, "throttled")
    check(0.4 * most < ns < 1.5 * most, "%.1f ms throttled, the kernel counts %.1f" % (ns / 1e6, most / 1e6))
    check(seen.weight("spin_until", "throttled") > 0.8 * ns, "not in spin_until")


@each_sampler
def one_thread_alone():
    child = start([program("phases"), "1000"])
    seen = watch(["--off-cpu", "-p", str(child.pid), "--tid", str(child.pid), "-d", "1"])
    check(set(seen.times) == {child.pid}, "seen: %s" % sorted(seen.times))
    known = seen.ns(child.pid, *STATES)
    check(known > 0.9e9, "only %.1f ms are known" % (known / 1e6))


@each_sampler
def threads_of_the_whole_machine():
    need_root()
    if sampler == "ptrace":
        skip("ptrace does not watch the whole machine")
    child = start([program("phases"), "1000"])
    seen = watch(["--off-cpu", "-a", "-d", "3", "--min-block", "1ms"])
    known = seen.ns(child.pid, *STATES)
    check(known > 2e9, "only %.1f ms are known" % (known / 1e6))
    # On a busy machine it may compute for a second and more until it waits for the lock, 40 ms.
    check(seen.ns(child.pid, "futex") > 35e6, "no wait for the lock")
    check(seen.weight("wait_for_the_lock", "futex") > 35e6, "no stack of it")
    check(seen.weight("kthread", "blocked") == 0, "there are threads of the kernel")


@each_sampler
def a_storm_of_switches():
    """However many there are, times are right and the recording stays small."""
    seen = watch(["--off-cpu", "--", program("pingpong"), "200000"])
    size = os.path.getsize(work("out.sonde"))
    check(size < 2 << 20, "%d KB for 400,000 waits" % (size >> 10))
    for tid in seen.times:
        weights = sum(int(i["blocked_ns"]) + int(i["queued_ns"]) for i in seen.of(tid))
        off = seen.ns(tid, *STATES[1:])
        # Stacks of the last moments stand for less than they should.
        check(abs(weights - off) <= 0.15 * off + 0.5e9,
              "thread %d: %.1f ms in intervals, %.1f ms in the times" % (tid, weights / 1e6, off / 1e6))


@each_sampler
def the_first_thread_has_ended():
    """/proc shows no memory, no mappings and no files of such a process."""
    child = start([program("headless")])
    seen = watch(["--off-cpu", "-p", str(child.pid), "-d", "1"])
    ns = seen.weight("go_on", "syscall")
    check(ns > 0.3e9, "only %.1f ms in go_on" % (ns / 1e6))
    check(all(i["end"] == "root" for i in seen.intervals if int(i["duration_ns"]) > 10000000),
          "a stack is not whole")


@test
def sees_switches_where_the_kernel_is_hidden():
    """Without the right to kernel events the switches are told all the same, to the owner."""
    need_root()
    need("setpriv")
    if int(open("/proc/sys/kernel/perf_event_paranoid").read()) < 2:
        skip("kernel.perf_event_paranoid is below 2: nothing is hidden")
    os.chmod(work(), 0o777)
    seen, clocks = phases(["--off-cpu", "--sampler", "perf"],
                          command=["setpriv", "--reuid", "65534", "--clear-groups"])
    check_phases(seen, clocks, 5)


main()
