#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How a recording ends, and that whoever is recorded does not notice."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def record_in_background(*arguments):
    path = work("out.sonde")
    child = start([SONDE, "record", "-o", path, *map(str, arguments)], ready=False,
                  stderr=subprocess.PIPE)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and alive(child):
        if os.path.exists(path) and os.path.getsize(path) > 64:
            break
        time.sleep(0.05)
    return child, path


def finish(child, timeout=20):
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        raise Failure("sonde did not end")


@test
def a_duration_ends_it():
    child = start([program("split"), "10000000", "20000"])
    began = time.monotonic()
    got = recording(["-p", str(child.pid), "-d", "1"], timeout=20)
    took = time.monotonic() - began
    check(1 <= took <= 6, "it took %.1f s" % took)
    check(alive(child), "the target is gone")
    check(0.9e9 <= got.json["duration_ns"] <= 3e9, "duration %d" % got.json["duration_ns"])


def interrupt_with(sig):
    target = start([program("split"), "10000000", "20000"])
    child, path = record_in_background("-p", target.pid)
    time.sleep(0.7)
    child.send_signal(sig)
    check(finish(child) == 0, "exit status %d" % child.returncode)
    got = Recording(path)
    check(got.count("heavy") > 30, "heavy has %d" % got.count("heavy"))
    check(alive(target), "the target is gone")


@test
def ctrl_c_ends_it_with_a_whole_file():
    interrupt_with(signal.SIGINT)


@test
def sigterm_ends_it_with_a_whole_file():
    interrupt_with(signal.SIGTERM)


@test
def killed_it_leaves_a_readable_file():
    target = start([program("split"), "10000000", "6000"])
    child, path = record_in_background("-F", "499", "-p", target.pid)
    time.sleep(2.5)
    child.send_signal(signal.SIGKILL)
    finish(child)
    check(alive(target), "the target went with it")
    got = Recording(path)
    check(got.samples >= 300, "%d samples" % got.samples)
    check(got.share("heavy") > 60, "names do not come from the local files: %s" % got.stacks[:3])
    check(target.wait(30) == 0, "the target was harmed: %s" % target.returncode)


@test
def the_exit_status_is_the_commands():
    path = work("out.sonde")
    for status in (0, 1, 7, 127):
        done = sonde("record", "-o", path, "--", "sh", "-c", "exit %d" % status)
        check(done.returncode == status, "%d, not %d" % (done.returncode, status))
    done = sonde("record", "-o", path, "--", "sh", "-c", "kill -TERM $$")
    check(done.returncode == 128 + signal.SIGTERM, "%d" % done.returncode)


@test
def stdin_and_stdout_are_the_commands():
    data = os.urandom(300000) + b"\n\0end"
    done = sonde("record", "-o", work("out.sonde"), "--", "cat", input=data)
    expect(done, 0)
    check(done.stdout == data, "%d bytes came out of %d" % (len(done.stdout), len(data)))


@test
def arguments_reach_the_command_as_they_are():
    done = sonde("record", "-o", work("out.sonde"), "--", "printf", "[%s]", "-p", "1", "--", "a b", "")
    expect(done, 0)
    check(done.stdout == b"[-p][1][--][a b][]", "%r" % done.stdout)


@test
def no_descriptor_leaks_into_the_command():
    command = [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"]
    plain = run(command)
    recorded = sonde("record", "-o", work("out.sonde"), "--", *command)
    expect(recorded, 0)
    check(plain.stdout == recorded.stdout, "%s, not %s" % (recorded.stdout, plain.stdout))


@test
def signals_reach_the_command_as_they_are():
    """Neither blocked nor ignored signals are inherited from us."""
    command = ["sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status"]
    plain = run(command)
    recorded = sonde("record", "-o", work("out.sonde"), "--", *command)
    check(plain.stdout == recorded.stdout, "%s, not %s" % (recorded.stdout, plain.stdout))


@test
def the_file_is_private():
    path = work("out.sonde")
    expect(sonde("record", "-o", path, "--", "true"), 0)
    check(os.stat(path).st_mode & 0o777 == 0o600, "mode %o" % os.stat(path).st_mode)


@test
def the_default_file():
    expect(sonde("record", "--", "true", cwd=work()), 0)
    check(os.path.exists(work("profile.sonde")), "no profile.sonde: %s" % os.listdir(work()))
    expect(sonde("report", cwd=work()), 0)


@test
def the_target_keeps_its_descriptors():
    target = start([program("split"), "10000000", "20000"])
    before = sorted(os.listdir("/proc/%d/fd" % target.pid))
    recording(["-p", str(target.pid), "-d", "0.5"])
    after = sorted(os.listdir("/proc/%d/fd" % target.pid))
    check(before == after, "%s, then %s" % (before, after))


@test
def stopped_processes_stay_stopped():
    target = start([program("split"), "10000000", "20000"])
    os.kill(target.pid, signal.SIGSTOP)
    recording(["-p", str(target.pid), "-d", "0.5"])
    with open("/proc/%d/stat" % target.pid) as f:
        state = f.read().rpartition(")")[2].split()[0]
    check(state == "T", "its state is %s" % state)


@test
def recording_twice_at_once():
    target = start([program("split"), "10000000", "3000"])
    child, path = record_in_background("-F", "199", "-p", target.pid)
    other = sonde("record", "-o", work("other.sonde"), "-p", target.pid, "-d", "0.5")
    expect(other, 0)
    check(finish(child) == 0, "exit status %d" % child.returncode)
    check(Recording(path).share("heavy") > 60, "heavy is missing")
    check(Recording(work("other.sonde")).share("heavy") > 50, "heavy is missing")


main()
