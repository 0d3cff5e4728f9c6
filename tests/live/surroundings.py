#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde record` was started with (signals, limits, descriptors), and what stands at its path."""
import os
import resource
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def record_in_background(*arguments, **options):
    return start([SONDE, "record", "-o", work("out.sonde"), *map(str, arguments)], ready=False,
                 stderr=subprocess.PIPE, **options)


def until(condition, words, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, words)
        time.sleep(0.02)


def ended(child, seconds=20):
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        raise Failure("sonde did not end")


def ignore_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@test
def nohup_is_obeyed():
    target = start([program("split"), "10000000", "20000"])
    child = record_in_background("-p", target.pid, "-d", "2", preexec_fn=ignore_hangups)
    time.sleep(0.7)
    child.send_signal(signal.SIGHUP)
    began = time.monotonic()
    check(ended(child) == 0, "exit status %d" % child.returncode)
    check(time.monotonic() - began > 0.7, "it ended by the signal")


@test
def signals_are_passed_on_when_the_recording_is_over():
    """-d is over, the command goes on, and whoever stops sonde means the command."""
    child = record_in_background("-d", "0.3", "--", "sh", "-c",
                                 "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    check(child.stdout.readline() == b"ready\n", "the command did not start")
    time.sleep(2)
    check(alive(child), "sonde left the command alone")
    child.send_signal(signal.SIGTERM)
    check(ended(child) == 9, "exit status %d" % child.returncode)


@test
def a_second_signal_is_passed_on_too():
    child = record_in_background("--", "sh", "-c", "trap 'echo one' INT; trap 'exit 8' TERM;"
                                 "echo ready; while :; do sleep 0.05; done")
    check(child.stdout.readline() == b"ready\n", "the command did not start")
    child.send_signal(signal.SIGINT)
    check(child.stdout.readline() == b"one\n", "the first signal did not arrive")
    child.send_signal(signal.SIGTERM)
    check(ended(child) == 8, "exit status %d" % child.returncode)


@test
def waiting_for_a_reader_can_be_interrupted():
    os.mkfifo(work("out.sonde"))
    target = start([program("split"), "10000000", "20000"])
    child = record_in_background("-p", target.pid)
    time.sleep(0.7)
    check(alive(child), "it did not wait for the reader")
    child.send_signal(signal.SIGINT)
    check(ended(child, 5) == -signal.SIGINT, "exit status %d" % child.returncode)


@test
def the_command_keeps_its_limit_of_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 128:
        skip("the limit cannot be raised")
    lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    done = sonde("record", "-o", work("out.sonde"), "--", "sh", "-c", "ulimit -Sn", preexec_fn=lower)
    expect(done, 0)
    check(done.stdout == b"100\n", "the limit became %r" % done.stdout)


@test
def threads_beyond_the_limit_of_open_files_are_told():
    """Those that can be attached are, and what else needs descriptors gets them."""
    child = start([program("threads"), "40", "400"])
    lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    path = work("out.sonde")
    done = sonde("record", "-F", "499", "-o", path, "-p", child.pid, "-d", "3", preexec_fn=lower)
    expect(done, 0, "threads not attached")
    got = Recording(path)
    check(got.count("worker_body") > 100, "worker_body has %d" % got.count("worker_body"))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


def close_output():
    os.close(1)
    os.close(2)


@test
def closed_descriptors_do_not_become_the_recording():
    """Else what goes to stderr ends up in the file."""
    path = work("out.sonde")
    command = [SONDE, "record", "-o", path, "--", "sh", "-c",
               "[ -e /proc/self/fd/1 ] && exit 5; [ -e /proc/self/fd/2 ] && exit 6; exit 7"]
    done = subprocess.run(command, preexec_fn=close_output, stdin=subprocess.DEVNULL, timeout=30)
    check(done.returncode == 7, "exit status %d" % done.returncode)
    expect(sonde("report", path, "--dump"), 0)
    with open(path, "rb") as file:
        check(b"sonde report" not in file.read(), "words for stderr are in the recording")


@test
def a_command_that_is_not_there_costs_no_older_recording():
    path = work("out.sonde")
    expect(sonde("record", "-o", path, "--", "true"), 0)
    before = os.stat(path)
    for command in ("no-such-command", "/nowhere/at/all", "/etc/passwd"):
        expect(sonde("record", "-o", path, "--", command), 1, "cannot run", command)
    check(os.stat(path).st_ino == before.st_ino, "the older recording is gone")


@test
def a_limit_of_the_file_size_is_an_error():
    target = start([program("split"), "10000000", "20000"])
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    done = sonde("record", "-o", work("out.sonde"), "-p", target.pid, "-d", "5", preexec_fn=limit)
    expect(done, 1, "limit on file sizes")
    check(alive(target), "the target is gone")


@test
def what_stands_at_the_path():
    """Neither followed nor written into, and a FIFO is a stream."""
    target = start([program("split"), "10000000", "20000"])
    record = lambda path: sonde("record", "-o", path, "-p", target.pid, "-d", "0.3")
    with open(work("precious"), "w") as file:
        file.write("precious")
    os.symlink(work("precious"), work("link"))
    expect(record(work("link")), 1, "symbolic link")
    os.mkdir(work("directory"))
    expect(record(work("directory")), 1, "directory")
    check(open(work("precious")).read() == "precious", "the link was followed")
    expect(record("/dev/null"), 0)
    check(os.path.exists("/dev/null"), "/dev/null is gone")
    os.mkfifo(work("fifo"))
    child = record_in_background_to(work("fifo"), target.pid)
    with open(work("fifo"), "rb") as fifo, open(work("copy"), "wb") as copy:
        shutil.copyfileobj(fifo, copy)
    check(ended(child) == 0, "exit status %d" % child.returncode)
    check(Recording(work("copy")).count("heavy") > 10, "nothing came through the FIFO")


def record_in_background_to(path, pid):
    return start([SONDE, "record", "-o", path, "-p", str(pid), "-d", "0.5"], ready=False,
                 stderr=subprocess.DEVNULL)


main()
