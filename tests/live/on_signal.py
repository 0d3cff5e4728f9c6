#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde record --on-signal: a sample of all threads each time a signal comes, readable at every moment."""
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

LINE = re.compile(r"^[^;\n]+(;[^;\n]+)* 1$")
WORKERS = ["worker-%02d" % i for i in range(4)]


def lines_of(path):
    with open(path, "rb") as f:
        text = f.read()
    # Filesystems show a write page by page.
    check(not text or text.endswith(b"\n") or len(text) % 4096 == 0, "the last line is not whole: %r" % text[-80:])
    lines = text[:text.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    for line in lines:
        check(LINE.match(line), "not a folded stack: %r" % line)
    return lines


class Reader(threading.Thread):
    """Reads the file all the time, as whoever draws it may."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.times, self.wrong, self.end = path, 0, None, False
        self.start()

    def run(self):
        while not self.end:
            try:
                if os.path.exists(self.path):
                    lines_of(self.path)
                    self.times += 1
            except Failure as words:
                self.wrong = str(words)
            time.sleep(0.002)

    def stop(self):
        self.end = True
        self.join()
        check(not self.wrong, self.wrong)
        check(self.times > 50, "read %d times only" % self.times)


def record_at(signal_name, *arguments, path=None, **options):
    return start([SONDE, "record", "--on-signal", signal_name, "-o", path or work("s.folded"),
                  *map(str, arguments)], stderr=subprocess.PIPE, **options)


def child_of(pid):
    return int(run(["pgrep", "-P", str(pid)]).stdout.split()[0])


def wait_for_lines(path, count, seconds=20):
    deadline = time.monotonic() + seconds
    while not os.path.exists(path) or len(lines_of(path)) < count:
        check(time.monotonic() < deadline, "there are %d lines, not %d" % (
            len(lines_of(path)) if os.path.exists(path) else 0, count))
        time.sleep(0.01)
    return lines_of(path)


def end(child, pid):
    """Ends the command; what sonde said."""
    os.kill(pid, signal.SIGKILL)
    said = child.communicate(timeout=20)[1].decode()
    check(child.returncode == 128 + signal.SIGKILL, "exit status %d: %s" % (child.returncode, said))
    return said


@test
def ten_a_second_for_ten_seconds():
    path = work("s.folded")
    child = record_at("SIGUSR2", "--", program("beats"), work("beats"))
    pid = child_of(child.pid)
    reader = Reader(path)
    for i in range(100):
        os.kill(pid, signal.SIGUSR2)
        time.sleep(0.1) # two that come at once are one: that would not be ten a second
    time.sleep(0.5)
    reader.stop()
    said = end(child, pid)
    print(said.strip())
    lines = lines_of(path)
    samples = int(re.search(r": (\d+) samples?,", said).group(1))
    check(95 <= samples <= 105, "%d samples" % samples)
    check(len(lines) == 6 * samples, "%d lines of %d samples" % (len(lines), samples))
    main = [line for line in lines if ";main;beat;" in line]
    check(len(main) == samples, "main stands on %d stacks" % len(main))
    late = sum("not stopped in time" in line for line in lines)
    check(late <= len(lines) / 20, "%d threads did not stop in time" % late)


@test
def all_threads_by_name():
    path = work("s.folded")
    target = start([program("threads"), "4", "6000"])
    child = record_at("USR1", "-p", target.pid, path=path, ready=False)
    time.sleep(0.5)
    for i in range(5):
        os.kill(target.pid, signal.SIGUSR1)
        wait_for_lines(path, 5 * (i + 1))
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=20)[1].decode()
    check(child.returncode == 0, said)
    lines = lines_of(path)
    check(len(lines) == 25, "%d lines: %s" % (len(lines), lines))
    for name in WORKERS:
        mine = [line for line in lines if line.startswith(name + ";")]
        check(len(mine) == 5, "%s has %d" % (name, len(mine)))
        check(any(";worker;worker_body;spin_ms;" in line for line in mine), "%s" % mine)
    check(alive(target), "the target was killed by a signal that sonde was to swallow")


@test
def some_threads_only():
    path = work("s.folded")
    target = start([program("threads"), "4", "4000"])
    child = record_at("USR1", "-p", target.pid, "-t", "^worker-0[12]$", path=path, ready=False)
    time.sleep(0.5)
    os.kill(target.pid, signal.SIGUSR1)
    wait_for_lines(path, 2)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    names = sorted(line.split(";")[0] for line in lines_of(path))
    check(names == ["worker-01", "worker-02"], "%s" % names)


@test
def a_signal_to_sonde_counts_as_well():
    """The pid that a shell has in $! is that of sonde."""
    path = work("s.folded")
    child = record_at("USR2", "--", program("beats"), work("beats"), path=path)
    pid = child_of(child.pid)
    for i in range(3):
        child.send_signal(signal.SIGUSR2)
        wait_for_lines(path, 6 * (i + 1))
    end(child, pid)


@test
def other_signals_pass():
    """They reach the command, which dies of them or not as ever."""
    child = record_at("USR2", "--", "sh", "-c", "trap 'echo got it' USR1; echo ready; "
                      "while :; do sleep 0.05; done")
    pid = child_of(child.pid)
    os.kill(pid, signal.SIGUSR1)
    check(child.stdout.readline() == b"got it\n", "the trap did not run")
    os.kill(pid, signal.SIGUSR2)
    wait_for_lines(work("s.folded"), 1)
    end(child, pid)


@test
def a_handler_does_not_run():
    child = record_at("USR1", "--", "sh", "-c", "trap 'echo handled' USR1; echo ready; "
                      "while :; do sleep 0.05; done")
    pid = child_of(child.pid)
    os.kill(pid, signal.SIGUSR1)
    wait_for_lines(work("s.folded"), 1)
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    said = child.communicate(timeout=20)[0]
    check(said == b"", "the handler ran: %r" % said)


@test
def job_control_works():
    """A stopped process is sampled as it stands, and goes on at SIGCONT."""
    path = work("s.folded")
    child = record_at("USR2", "--", program("beats"), work("beats"), path=path)
    pid = child_of(child.pid)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.2)
    with open("/proc/%d/stat" % pid) as f:
        check(f.read().rpartition(")")[2].split()[0] in "Tt", "it did not stop")
    child.send_signal(signal.SIGUSR2)
    lines = wait_for_lines(path, 6)
    check(any(";main;beat;" in line for line in lines), "%s" % lines)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.2)
    with open(work("beats"), "rb") as f:
        before = f.read()
    time.sleep(0.3)
    with open(work("beats"), "rb") as f:
        check(f.read() != before, "it does not go on")
    end(child, pid)


@test
def nobody_else_can_read_it():
    os.symlink(work("elsewhere"), work("link"))
    expect(sonde("record", "--on-signal", "USR2", "-o", work("link"), "--", "true"), 1, "symbolic link")
    check(not os.path.exists(work("elsewhere")), "the link was followed")
    expect(sonde("record", "--on-signal", "USR2", "-o", work("s.folded"), "--", "true"), 0,
           "did not come")
    check(os.stat(work("s.folded")).st_mode & 0o777 == 0o600, "others may read it")


@test
def a_full_disk_ends_it():
    child = record_at("USR2", "--", program("beats"), work("beats"), path="/dev/full")
    pid = child_of(child.pid)
    os.kill(pid, signal.SIGUSR2)
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    said = child.communicate(timeout=20)[1].decode()
    check("/dev/full" in said, said)


@test
def a_process_that_is_traced_already():
    need("gdb")
    target = start([program("split"), "10000000", "20000"])
    gdb = start(["gdb", "-q", "-batch", "-p", str(target.pid), "-ex", "echo attached\\n", "-ex",
                 "shell sleep 20"], ready=False, stderr=subprocess.DEVNULL)
    while b"attached" not in gdb.stdout.readline():
        check(alive(gdb), "gdb could not attach")
    expect(sonde("record", "--on-signal", "USR2", "-o", work("x"), "-p", target.pid), 1, "gdb",
           "traces it already")
    gdb.kill()


main()
