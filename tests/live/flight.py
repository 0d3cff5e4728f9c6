#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: early (it takes minutes)
"""The flight recorder: what is in its window, when it is written, and what it keeps in memory."""
import os
import platform
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def record_in_background(*arguments):
    """Returns once recording has begun."""
    child = start([SONDE, "record", "-o", work("out.sonde"), *map(str, arguments)], ready=False,
                  stderr=subprocess.PIPE)
    line = child.stderr.readline().decode(errors="replace")
    check(line.startswith("keeping the last"), "sonde said %r" % line)
    return child


def finish(child, timeout=60):
    try:
        _, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failure("sonde did not end")
    err = err.decode(errors="replace")
    for bad in ("Sanitizer", "runtime error"):
        check(bad not in err, err)
    return err


def wait_for(what, words, timeout=60):
    deadline = time.monotonic() + timeout
    while not what():
        check(time.monotonic() < deadline, "never happened: " + words)
        time.sleep(0.05)


def is_whole(path):
    """It has come to its end: the writer is done with it."""
    done = sonde("report", path, "--dump")
    return done.returncode == 0 and b"\nend " in done.stdout


def wait_for_window(path, timeout=60):
    wait_for(lambda: os.path.exists(path) and is_whole(path), path + " is written", timeout)
    return Recording(path)


def monotonic_range(got):
    """[start, end) of a recording by the clock of the machine."""
    begin = int(re.search(r"start_monotonic_ns=(\d+)", got.dump()).group(1))
    return begin, begin + got.json["duration_ns"]


class Phases:
    """The program that prints when each of its phases began."""

    def __init__(self, ms=500):
        self.child = start([program("flight"), "phases", str(ms)])
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(tuple(map(int, line.split())))

    def stop(self):
        self.child.kill()
        self.reader.join(10)
        return self.lines

    def check_window(self, got):
        """Functions in the window are of phases in the window, and all that used CPU time there."""
        begin, end = monotonic_range(got)
        lines = list(self.lines)
        overlap, busy = set(), set()
        for (phase, at, cpu), (_, until, cpu_until) in zip(lines, lines[1:] + [(0, 1 << 62, 0)]):
            if at < end and until > begin:
                overlap.add("phase_%d" % phase)
            if at >= begin and until <= end and cpu_until - cpu > 100e6:
                busy.add("phase_%d" % phase)
        seen = {"phase_%d" % i for i in range(10) if got.count("phase_%d" % i)}
        check(seen <= overlap, "%s is in the window, which has only %s" % (seen, overlap))
        check(busy <= seen, "%s is missing in %s" % (busy - seen, seen))
        check(seen, "nothing is in the window: %s" % got.stacks[:3])
        return seen


def meta(got, key):
    return got.json["meta"].get(key, "")


@test
def the_window_holds_the_last_seconds():
    target = Phases()
    child = record_in_background("--last", "3", "-F", "499", "-p", target.child.pid)
    wait_for(lambda: len(target.lines) >= 17, "the program goes on")
    child.send_signal(signal.SIGINT)
    err = finish(child)
    check(child.returncode == 0, err)
    got = Recording(work("out.sonde"))
    check(2.9e9 < got.json["duration_ns"] <= 3.1e9, "it holds %d ns" % got.json["duration_ns"])
    check(alive(target.child), "the target is gone")
    target.stop()
    seen = target.check_window(got)
    check(len(seen) <= 8, "three seconds hold at most 8 phases of half a second: %s" % seen)
    check("interrupted" in meta(got, "trigger"), meta(got, "trigger"))
    check("written because: interrupted" in err, err)
    check(got.quality["rooted_pct"] > 95, "%s" % got.quality)


@test
def sigusr2_writes_and_goes_on():
    target = Phases(300)
    child = record_in_background("--last", "1", "-F", "499", "-p", target.child.pid)
    paths = [work("out.sonde"), work("out.2.sonde"), work("out.3.sonde")]
    for path in paths[:2]:
        wanted = len(target.lines) + 6
        wait_for(lambda: len(target.lines) >= wanted, "the program goes on")
        child.send_signal(signal.SIGUSR2)
        wait_for_window(path)
        check(alive(child), "sonde has ended")
    child.send_signal(signal.SIGTERM)
    err = finish(child)
    target.stop()
    ranges = []
    for path in paths:
        got = Recording(path)
        target.check_window(got)
        ranges.append(monotonic_range(got))
        check(not got.json["quality"]["damage"]["no_end"], "%s has no end" % path)
    check(ranges[0][1] <= ranges[1][0], "the second window begins before the first was written")
    check(ranges[1][1] < ranges[2][1], "the third window is not later")
    check(err.count("SIGUSR2") == 2, err)
    check("reason=trigger" in Recording(paths[0]).dump(), "what ended it is not in the file")


@test
def nothing_is_overwritten():
    target = Phases()
    with open(work("out.sonde"), "w") as f:
        f.write("precious")
    with open(work("out.2.sonde"), "w") as f:
        f.write("too")
    done = sonde("record", "--last", "1", "-d", "1", "-o", work("out.sonde"), "-p", target.child.pid)
    expect(done, 0, "out.3.sonde")
    with open(work("out.sonde")) as f:
        check(f.read() == "precious", "out.sonde was overwritten")
    Recording(work("out.3.sonde"))
    done = sonde("record", "--last", "1", "-d", "1", "-o", work("plain"), "-p", target.child.pid)
    done = sonde("record", "--last", "1", "-d", "1", "-o", work("plain"), "-p", target.child.pid)
    expect(done, 0, "plain.2")
    done = sonde("record", "--last", "1", "-o", "/dev/null", "-p", target.child.pid)
    expect(done, 2, "/dev/null")
    done = sonde("record", "--last", "1", "-o", work("missing/x"), "-p", target.child.pid)
    expect(done, 2, "missing")


@test
def a_window_that_cannot_be_written():
    """The words say so, recording goes on, and the exit status tells when a window was all that was wanted."""
    target = Phases()
    limit = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"]
    for more, status in ((["--windows", "1"], 1), (["-d", "4"], 1)):
        child = start(limit + [SONDE, "record", "--last", "1", "-F", "999", "-o", work("out.sonde"),
                               "-p", str(target.child.pid), *more], ready=False, stderr=subprocess.PIPE)
        child.stderr.readline()
        time.sleep(1)
        child.send_signal(signal.SIGUSR2)
        err = finish(child)
        check(child.returncode == status, "exit status %s: %s" % (child.returncode, err))
        check("file sizes" in err, err)
    check(alive(target.child), "the target is gone")


@test
def a_failed_start_removes_nothing():
    with open(work("out.sonde"), "w") as f:
        f.write("precious")
    done = sonde("record", "--last", "1", "-o", work("out.sonde"), "--", work("no-such-program"))
    check(done.returncode != 0, "it ran")
    with open(work("out.sonde")) as f:
        check(f.read() == "precious", "out.sonde was removed")


@test
def the_target_dies():
    target = Phases()
    child = record_in_background("--last", "2", "-F", "499", "-p", target.child.pid)
    wait_for(lambda: len(target.lines) >= 7, "the program goes on")
    target.stop()
    err = finish(child)
    check(child.returncode == 0, err)
    got = Recording(work("out.sonde"))
    target.check_window(got)
    check("the target has ended" in meta(got, "trigger"), meta(got, "trigger"))


@test
def a_command_and_its_status():
    done = sonde("record", "--last", "10", "-o", work("out.sonde"), "--", "sh", "-c", "exit 7")
    expect(done, 7, "the target has ended")
    check("sh -c exit 7" in meta(Recording(work("out.sonde")), "command"), "not the command")


@test
def written_when_main_is_blocked():
    """CPU samples alone, and yet the window says where main hangs and who else waits."""
    target = start([program("flight"), "hang", "700"])
    child = record_in_background("--last", "30", "-F", "499", "-p", target.pid, "--windows", "1",
                                 "--when", "blocked MAIN > 2s")
    err = finish(child)
    check(child.returncode == 0, err)
    got = Recording(work("out.sonde"))
    check(alive(target), "the target is gone")
    check("blocked MAIN > 2s: thread flight (%d)" % target.pid in meta(got, "trigger"),
          meta(got, "trigger"))
    check(got.count("phase_1") > 0, "what it did before is missing: %s" % got.stacks[:3])
    hangs = [(frames, ns) for frames, ns in got.stacks if "hang_here" in frames]
    check(hangs and sum(ns for _, ns in hangs) >= 1.9e9, "not where main hangs: %s" % got.stacks)
    check(any("[futex]" in frames and "main" in frames for frames, _ in hangs), "%s" % hangs)
    check(got.count("hold") > 0, "not where the other thread waits: %s" % got.stacks)
    check(not os.path.exists(work("out.2.sonde")), "it was written twice")


@test
def a_condition_that_stays_true_writes_once():
    target = start([program("flight"), "hang", "100"])
    child = record_in_background("--last", "1", "-p", target.pid, "--when", "blocked /^hold/ > 0.3")
    first = wait_for_window(work("out.sonde"))
    check("thread holder" in meta(first, "trigger"), meta(first, "trigger"))
    time.sleep(3)
    check(not os.path.exists(work("out.2.sonde")), "it was written again")
    child.send_signal(signal.SIGINT)
    finish(child)
    check("interrupted" in meta(Recording(work("out.2.sonde")), "trigger"), "not by Ctrl-C")


@test
def a_busy_thread_is_not_blocked():
    target = start([program("flight"), "hang", "100"])
    child = record_in_background("--last", "1", "-p", target.pid, "-d", "4",
                                 "--when", "blocked /^busy/ > 3s")
    err = finish(child)
    check("the time is over" in err and "blocked" not in err, err)


@test
def written_when_the_cpu_is_busy():
    target = start([program("flight"), "idle"], stdin=subprocess.PIPE)
    child = record_in_background("--last", "5", "-F", "499", "-p", target.pid, "--windows", "1",
                                 "--when", "cpu > 10% for 500ms")
    time.sleep(1.5)
    check(alive(child) and not os.path.exists(work("out.sonde")), "written while it slept")
    target.stdin.write(b"\n")
    target.stdin.flush()
    err = finish(child)
    got = Recording(work("out.sonde"))
    check("cpu > 10% for 500ms" in meta(got, "trigger"), err)
    check(got.share("phase_2") > 90, "%s" % got.stacks)


@test
def written_when_there_are_many_threads():
    target = start([program("flight"), "hang", "100"])
    child = record_in_background("--last", "5", "-p", target.pid, "--windows", "2",
                                 "--when", "threads > 2", "--when", "rss > 100K")
    wait_for_window(work("out.sonde"))
    check(alive(child), "it ended after one window")
    child.send_signal(signal.SIGUSR2)
    err = finish(child)
    check("threads > 2: 3 now" in err or "rss > 100K" in err, err)
    check("SIGUSR2" in err, err)


@test
def conditions_are_checked_at_once():
    for words in (["--when", "blocked main thread > 2s"], ["--when", "cpu > lots"]):
        expect(sonde("record", "--last", "1", "-p", os.getpid(), *words), 2, "--when")
    expect(sonde("record", "-p", os.getpid(), "--when", "cpu > 5"), 2, "--last")
    expect(sonde("record", "-a", "--last", "1", "--when", "cpu > 5"), 2, "--when")


@test
def a_window_of_wall_time():
    """The exact times are of the window too, and a wait that began before it is cut."""
    target = start([program("flight"), "hang", "100"])
    child = record_in_background("--wall", "--last", "2", "-p", target.pid)
    time.sleep(5)
    child.send_signal(signal.SIGUSR2)
    got = wait_for_window(work("out.sonde"))
    child.send_signal(signal.SIGINT)
    finish(child)
    for got in (got, Recording(work("out.2.sonde"))):
        duration = got.json["duration_ns"]
        check(1.9e9 < duration < 2.2e9, "it holds %d ns" % duration)
        for name in ("flight", "holder", "busy"):
            thread = next(t for t in got.threads if t["name"] == name)
            states = thread["states"]
            check(thread["measured"] and abs(sum(states.values()) - duration) < 0.02 * duration,
                  "%s was not watched for %d ns: %s" % (name, duration, thread))
            if name != "busy":
                check(states["on-cpu"] < 0.02 * duration, "%s ran" % thread)
        hangs = sum(ns for frames, ns in got.stacks if "hang_here" in frames)
        check(abs(hangs - duration) < 0.05 * duration, "main hangs for %d ns" % hangs)


@test
def nothing_is_lost_while_it_writes():
    """The window is written by another process; the one that samples reads on."""
    target = Phases(100)
    child = record_in_background("--last", "5", "-F", "997", "-p", target.child.pid)
    wait_for(lambda: len(target.lines) >= 10, "the program goes on")
    for i in range(5):
        child.send_signal(signal.SIGUSR2)
        wait_for_window(work("out.%d.sonde" % (i + 1) if i else "out.sonde"))
    child.send_signal(signal.SIGINT)
    finish(child)
    got = Recording(work("out.6.sonde"))
    check(got.quality["lost_samples"] == 0, "%s" % got.quality["losses"])


def memory(pid):
    """MiB of its own, without pages of files."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1)) / 1024


class Churn:
    """A recording of a program that never does the same thing twice."""

    def __init__(self, mode, *options):
        self.target = start([program("flight"), mode, "2"])
        self.child = record_in_background("-F", "1999", "-p", self.target.pid, *options)
        self.windows = 0

    def window(self):
        self.windows += 1
        self.child.send_signal(signal.SIGUSR2)
        return wait_for_window(work("out.%d.sonde" % self.windows if self.windows > 1 else "out.sonde"))

    def peak(self, seconds):
        end, most = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            most = max(most, memory(self.child.pid))
            time.sleep(0.1)
        return most

    def check_growth(self, seconds):
        """It goes up and down with each segment that is begun and closed."""
        early, late = self.peak(seconds), self.peak(seconds)
        check(late < 40, "it holds %.1f MiB" % late)
        check(late < early + 6, "its peak grew from %.1f to %.1f MiB" % (early, late))

    def end(self):
        self.child.send_signal(signal.SIGINT)
        finish(self.child)


@test
def new_code_for_ever_needs_no_more_memory():
    if platform.machine() != "x86_64":
        skip("the program that makes code makes x86-64 code")
    run = Churn("code", "--memory", "1M", "--last", "10m")
    deadline = time.monotonic() + 120
    got = run.window()
    while "limited" not in got.json["meta"]:
        if time.monotonic() > deadline:
            skip("only %d samples in two minutes" % got.samples)
        time.sleep(3)
        got = run.window()
    check("did not fit" in meta(got, "limited"), meta(got, "limited"))
    check(got.samples > 100, "%d samples" % got.samples)
    check(got.quality["rooted_pct"] > 80, "%s" % got.quality)
    run.check_growth(10)
    run.end()


@test
def new_processes_for_ever_need_no_more_memory():
    run = Churn("churn", "--last", "2")
    time.sleep(5)
    run.check_growth(10)
    got = run.window()
    names = {t["name"] for t in got.threads}
    check(any(n.startswith("child") for n in names), "%s" % names)
    check(all("tid" not in n for n in names), "some have no name: %s" % names)
    run.end()


@test
def new_programs_for_ever_are_let_go_again():
    directory = work("copies")
    os.mkdir(directory)
    target = start([program("flight"), "copies", directory], start_new_session=True)
    child = record_in_background("-F", "999", "-p", target.pid, "--last", "1s")

    def held():
        with open("/proc/%d/maps" % child.pid) as f:
            return len(set(re.findall(r"copy-\d+", f.read())))

    def made():
        return max([int(name.partition("-")[2]) for name in os.listdir(directory)] or [0])

    try:
        most = ran = 0
        wait_for(held, "the copies are opened")
        deadline = time.monotonic() + 90
        while ran < 500 and time.monotonic() < deadline:
            time.sleep(0.2)
            most = max(most, held())
            ran = max(ran, made())
        if ran < 300:
            skip("only %d programs ran in 90 s" % ran)
        check(most < 200, "at the most %d of %d files are in memory" % (most, ran))
    finally:
        os.killpg(target.pid, signal.SIGKILL)
    finish(child)
    got = Recording(work("out.sonde"))
    check(got.count("phase_3") > 0, "the last programs have no names: %s" % got.stacks[:5])


main()
