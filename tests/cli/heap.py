#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The command line of `sonde heap`: what it accepts, where it prints, and how that fits. What it counts is tested in
tests/live/python_census.py."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403

PROGRAM = """
import gc, time
class Leaky: pass
class Loop: pass
kept = [Leaky() for i in range(4321)]
gc.collect()
gc.disable()
loop = Loop()
loop.own = loop
del loop
print("ready", flush=True)
time.sleep(1000)
"""


def target():
    return start([sys.executable, "-S", "-c", PROGRAM])


@test
def help_text():
    done = sonde("heap", "--help", env=dict(os.environ, COLUMNS="80"))
    expect(done, 0)
    text = done.stdout.decode()
    for words in ("Usage: sonde heap [OPTIONS] PID|NAME|--core FILE", "--why-alive TYPE", "--every TIME",
                  "sonde heap --census --every 60s 1234"):
        check(words in text, "%r is not in %s" % (words, text))


@test
def wrong_usage():
    for arguments, words in (
            ([], "which process?"),
            (["1", "2"], "one process at a time"),
            (["-p", "1", "2"], "one process at a time"),
            (["--times", "2", "1"], "--times goes with --every"),
            (["--every", "1s", "--core", "core"], "a core file does not change"),
            (["--root", "/", "1"], "--root goes with --core"),
            (["--why-alive", "T", "--census", "1"], "one of them"),
            (["-n", "0", "1"], "--top")):
        expect(sonde("heap", *arguments), 2, words)


@test
def no_such_process():
    expect(sonde("heap", "999999999"), 1, "there is no process")
    expect(sonde("heap", "no-such-program-anywhere"), 1, "no-such-program-anywhere")


@test
def not_ours_to_read():
    need_root()
    need("setpriv")
    child = target()
    copy = work("sonde")
    shutil.copy(SONDE, copy)
    done = run(["setpriv", "--reuid", "65534", "--clear-groups", copy, "heap", str(child.pid)])
    expect(done, 1, "not ours to read", "sonde doctor %d" % child.pid)


@test
def the_table():
    child = target()
    done = sonde("heap", "--census", "-n", "3", "-p", child.pid)
    expect(done, 0)
    lines = done.stdout.decode().splitlines()
    check(re.match(r"\S+ \(%d\), CPython 3\.[\d.]+: [\d,]+ objects of \d+ types, [\d.]+ [KM]iB, counted in " % child.pid,
                   lines[0]), lines[0])
    check(lines[1] == "" and lines[2].split() == ["objects", "bytes", "type"], "%r" % lines[1:3])
    check(len(lines) == 11 and re.search(r"of \d+ more types$", lines[6]) and not lines[7], "%r" % lines)
    check(re.match(r"Small blocks \(up to 512 bytes\): \S+ [KM]iB in use of \S+ [KM]iB in \d+ arena", lines[8]), lines[8])
    check(lines[9].startswith("Not counted: str, bytes, int") and lines[10].startswith("Not seen: "), "%r" % lines[8:])
    check(any(re.search(r"^ +4,321 .* __main__\.Leaky$", line) for line in lines), "%r" % lines)
    full = sonde("heap", "--all", child.pid).stdout.decode()
    check("Not counted" not in full and re.search(r"  str$", full, re.M), full)


@test
def to_a_file():
    child = target()
    done = sonde("heap", "-o", work("out"), child.pid)
    expect(done, 0)
    check(not done.stdout and "Leaky" in open(work("out")).read(), "%r" % done.stdout)


@test
def a_full_disk():
    child = target()
    with open("/dev/full", "w") as full:
        done = subprocess.run([SONDE, "heap", str(child.pid)], stdout=full, stderr=subprocess.PIPE, timeout=60)
    check(done.returncode == 1 and done.stderr, "%d %r" % (done.returncode, done.stderr))


@test
def again_and_again():
    child = target()
    done = sonde("heap", "--every", "200ms", "--times", "3", child.pid)
    expect(done, 0)
    text = done.stdout.decode()
    check(text.count("After ") == 2 and "no type has changed" in text, text)
    done = sonde("heap", "--json", "--every", "100ms", "--times", "2", child.pid)
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    check("growth" not in first and second["growth"] == [] and second["since_ns"] >= 100000000, "%r" % second)


@test
def until_the_end_of_the_process():
    child = target()
    asked = start([SONDE, "heap", "--every", "50ms", str(child.pid)], ready=False)
    asked.stdout.readline()
    child.kill()
    check(asked.wait(30) == 0, "status %d" % asked.returncode)


@test
def why_alive():
    child = target()
    done = sonde("heap", "--why-alive", "Leaky", child.pid)
    expect(done, 0)
    text = done.stdout.decode()
    check("4,321 objects of type __main__.Leaky, " in text, text)
    check("4,321 are kept by\n    module __main__ -> kept (list of 4,321)" in text, text)
    check(re.search(r"-> \[0\] \(__main__\.Leaky at 0x[0-9a-f]+\)\n", text), text)
    text = sonde("heap", "--why-alive", "Loop", child.pid).stdout.decode()
    check("1 is garbage: nothing leads to it" in text, text)
    expect(sonde("heap", "--why-alive", "leaky", child.pid), 1, "no object of type leaky; there are __main__.Leaky")


main()
