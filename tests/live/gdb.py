#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""contrib/gdb/sonde.py: the same samples as sonde's --on-signal, taken by gdb."""
import collections
import os
import pty
import re
import select
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

SCRIPT = os.path.join(ROOT, "contrib", "gdb", "sonde.py")
LINE = re.compile(r"^[^;\n]+(;[^;\n]+)* 1$")


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    check(lines[-1] == "", "the last line is not whole: %r" % lines[-1])
    for line in lines[:-1]:
        check(LINE.match(line), "not a folded stack: %r" % line)
    return lines[:-1]


def debugged(before=(), command=(), ready=True):
    need("gdb")
    if not b"3." in run(["gdb", "-batch", "-ex", "python print(__import__('sys').version)"]).stdout:
        skip("gdb has no Python here")
    arguments = ["gdb", "-q", "-nx", "-batch", "-ex", "source " + SCRIPT]
    for line in before:
        arguments += ["-ex", line]
    child = start(arguments + ["-ex", "run", "--args", *map(str, command)], ready=False, cwd=work(),
                  stderr=subprocess.STDOUT)
    while ready and child.stdout.readline() not in (b"ready\n", b""):
        continue
    check(alive(child), "gdb ended")
    return child, program_of(child)


def program_of(gdb):
    """The debugged program is gdb's child, behind a shell that has become it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid in run(["pgrep", "-P", str(gdb.pid)]).stdout.split():
            with open("/proc/%d/status" % int(pid)) as f:
                if "TracerPid:\t%d\n" % gdb.pid in f.read():
                    return int(pid)
        time.sleep(0.05)
    raise Failure("gdb runs nothing")


def sample(pid, number, path, lines_each, count):
    for i in range(count):
        os.kill(pid, number)
        deadline = time.monotonic() + 20
        while len(lines_of(path)) < lines_each * (i + 1):
            check(time.monotonic() < deadline, "%d lines after %d signals" % (
                len(lines_of(path)), i + 1))
            time.sleep(0.01)
    return lines_of(path)


def top_path(lines):
    """From main() to where it computes: what is below that is named by different symbols."""
    paths = collections.Counter()
    for line in lines:
        frames = line.rpartition(" ")[0].split(";")
        if "main" in frames and "spin_until" in frames:
            paths[tuple(frames[frames.index("main"):frames.index("spin_until") + 1])] += 1
    check(paths, "no path from main: %s" % lines[:3])
    return paths.most_common(1)[0][0]


@test
def the_same_top_path_as_sonde():
    command = [program("split"), "10000000", "60000"]
    gdb, pid = debugged(command=command)
    by_gdb = top_path(sample(pid, signal.SIGUSR2, work("sonde.folded"), 1, 40))
    os.kill(pid, signal.SIGKILL)
    said = gdb.communicate(timeout=20)[0].decode()
    check("sonde: 40 samples in sonde.folded" in said, said)
    check(os.stat(work("sonde.folded")).st_mode & 0o777 == 0o600, "others may read the file")

    child = start([SONDE, "record", "--on-signal", "USR2", "-o", work("ours.folded"), "--"] + command)
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout)
    by_sonde = top_path(sample(pid, signal.SIGUSR2, work("ours.folded"), 1, 40))
    os.kill(pid, signal.SIGKILL)
    check(by_gdb == by_sonde == ("main", "heavy", "spin_until"), "%s, %s" % (by_gdb, by_sonde))


@test
def all_threads_and_another_signal():
    gdb, pid = debugged(["set sonde-signal usr1", "set sonde-output other"],
                        [program("threads"), "3", "60000"])
    lines = sample(pid, signal.SIGUSR1, work("other"), 4, 3)
    check(len(lines) == 12, "%s" % lines)
    names = collections.Counter(line.split(";")[0] for line in lines)
    check(names == {n: 3 for n in ("main", "worker-00", "worker-01", "worker-02")}, "%s" % names)
    check(all(";worker_body;" in line for line in lines), "%s" % lines)
    os.kill(pid, signal.SIGKILL)
    gdb.communicate(timeout=20)


@test
def nameless_code():
    """Module and offset, as objdump counts."""
    command = work("bare")
    shutil.copy(program("split"), command)
    subprocess.run(["strip", command], check=True)
    gdb, pid = debugged(command=[command, "10000000", "60000"])
    lines = sample(pid, signal.SIGUSR2, work("sonde.folded"), 1, 3)
    offsets = [int(x, 16) for line in lines for x in re.findall(r";bare\+0x([0-9a-f]+)", line)]
    check(offsets, "%s" % lines)
    for line in run(["readelf", "-SW", command]).stdout.decode().splitlines():
        words = line.partition("]")[2].split()
        if words[:1] == [".text"]:
            start_, size = int(words[2], 16), int(words[4], 16)
            check(all(start_ <= o < start_ + size for o in offsets), "%s, .text is %x + %x" % (
                offsets, start_, size))
            break
    else:
        raise Failure("there is no .text")
    os.kill(pid, signal.SIGKILL)
    gdb.communicate(timeout=20)


class Terminal:
    """gdb as somebody at a terminal has it."""

    def __init__(self, command):
        self.master, slave = pty.openpty()
        self.child = start(command, ready=False, stdin=slave, stdout=slave, stderr=slave, cwd=work(),
                           start_new_session=True)
        os.close(slave)
        self.text = ""

    def wait_for(self, words, seconds=30):
        deadline = time.monotonic() + seconds
        while words not in self.text:
            check(time.monotonic() < deadline, "no %r in:\n%s" % (words, self.text))
            if select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")
        self.text = self.text.partition(words)[2]

    def type(self, line):
        os.write(self.master, line.encode() + b"\n")


@test
def typed_at_the_prompt():
    need("gdb")
    t = Terminal(["gdb", "-q", "-nx", "-ex", "set confirm off", "-ex", "source " + SCRIPT, "--args",
                  program("split"), "10000000", "60000"])
    t.wait_for("(gdb)")
    t.type("run")
    t.wait_for("ready")
    pid = program_of(t.child)
    sample(pid, signal.SIGUSR2, work("sonde.folded"), 1, 5)
    os.kill(pid, signal.SIGINT)  # as Ctrl-C does: the prompt is back
    t.wait_for("received signal SIGINT")
    t.wait_for("(gdb)")
    t.type("sonde-sample")
    deadline = time.monotonic() + 20
    while len(lines_of(work("sonde.folded"))) < 6:
        check(time.monotonic() < deadline, "no sample at the prompt")
        time.sleep(0.01)
    t.type("kill")
    t.type("quit")
    t.child.wait(20)


main()
