#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Names from a server of debug files: of a stripped program, functions that it does not export."""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stripped():
    """The program without symbols; its debug file is in the folder of the server."""
    out = work("split")
    os.mkdir(work("served"))
    made = run(["gcc", "-O2", "-g", "-Wl,--build-id", "-D_GNU_SOURCE", "-o", out,
                os.path.join(PROGRAMS, "split.c"), "-pthread"])
    check(made.returncode == 0, made.stderr.decode())
    for command in (["objcopy", "--only-keep-debug", out, work("served/split.debug")], ["strip", out]):
        check(run(command).returncode == 0, "%s failed" % command[0])
    return out


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


@test
def names_come_from_a_server():
    need("debuginfod")
    command = [stripped(), "10000000", "500"]
    port = free_port()
    start(["debuginfod", "-F", work("served"), "-p", str(port), "-d", work("index.sqlite")], ready=False,
          stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not answers(port):
        check(time.monotonic() < deadline, "the server does not answer")
        time.sleep(0.1)
    env = dict(os.environ, DEBUGINFOD_URLS="http://127.0.0.1:%d" % port, DEBUGINFOD_CACHE_PATH=work("cache"))
    got = recording(["-F", "499", "--", *command], env=env)
    check(not got.count("heavy"), "a stripped program has names")
    while True:  # it may not have looked at the file yet
        got = recording(["-F", "499", "--debuginfod", "--", *command], env=env)
        if got.count("heavy") or time.monotonic() > deadline:
            break
        shutil.rmtree(work("cache"), ignore_errors=True)
        time.sleep(0.5)
    check(got.count("heavy") > got.count("light") > 0, "%s" % got.stacks[:3])


@test
def without_a_server_record_says_so():
    env = {k: v for k, v in os.environ.items() if k != "DEBUGINFOD_URLS"}
    done = sonde("record", "--debuginfod", "-o", work("out.sonde"), "--", "true", env=env)
    expect(done, 0, "debuginfod")


main()
