#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Damaged recordings: a clear message or what is left of it, never a crash, never a hang."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

VIEWS = (["--json"], ["--folded"], ["--text"], ["--dump"])


def good_recording():
    path = work("good.sonde")
    expect(sonde("record", "-F", "499", "-o", path, "--", program("threads"), "6", "150"), 0)
    with open(path, "rb") as f:
        return f.read()


def try_views(data, views=VIEWS):
    """Status 0 or 1 for every view; no signal, no sanitizer. Returns how many were readable."""
    path = work("bad.sonde")
    with open(path, "wb") as f:
        f.write(data)
    readable = 0
    for view in views:
        done = sonde("report", path, *view, timeout=20)
        check(done.returncode in (0, 1), "%s: status %d, %r" % (view, done.returncode, done.stderr))
        check(b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr,
              done.stderr.decode(errors="replace"))
        check(done.returncode == 0 or done.stderr, "%s fails without a word" % view)
        readable += done.returncode == 0
    return readable


@test
def no_such_file():
    expect(sonde("report", work("none.sonde")), 1, "none.sonde", "no such file")


@test
def an_empty_file():
    open(work("empty.sonde"), "w").close()
    expect(sonde("report", work("empty.sonde")), 1, "empty.sonde")


@test
def something_else():
    expect(sonde("report", SONDE), 1, "not a")
    expect(sonde("report", "/"), 1)


@test
def a_file_one_may_not_read():
    need_root()
    need("setpriv")
    data = good_recording()
    os.chmod(work(), 0o777)
    shutil.copy(SONDE, work("sonde"))
    done = run(["setpriv", "--reuid=65534", "--clear-groups", work("sonde"), "report",
                work("good.sonde")])
    expect(done, 1, "good.sonde", "permission denied")
    check(len(data) > 0, "the recording is empty")


@test
def cut_off_anywhere():
    data = good_recording()
    sizes = [0, 1, 7, 8, 63, 64, 65, 95, 96, 97, len(data) // 2, len(data) - 1]
    sizes += random.Random(1).sample(range(len(data)), 20)
    for size in sizes:
        try_views(data[:size], (["--json"], ["--dump"]))


@test
def a_cut_is_mentioned():
    data = good_recording()
    with open(work("bad.sonde"), "wb") as f:
        f.write(data[:len(data) - 16])
    done = sonde("report", work("bad.sonde"), "--text")
    said = (done.stdout + done.stderr).decode(errors="replace").lower()
    check(any(word in said for word in ("damaged", "cut", "incomplete", "truncated", "end")),
          "no word about it: %s" % said[:800])


@test
def bits_that_flipped():
    data = good_recording()
    dice = random.Random(2)
    for _ in range(60):
        bad = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 8))):
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        try_views(bytes(bad), (["--json"],))


@test
def a_flip_in_a_block_costs_that_block_only():
    """The checksum finds it; what stands in other blocks is still shown."""
    path = work("long.sonde")
    expect(sonde("record", "-F", "499", "-o", path, "--", program("split"), "10000000", "4000"), 0)
    with open(path, "rb") as f:
        data = bytearray(f.read())
    data[len(data) // 2] ^= 0x10
    check(try_views(bytes(data), (["--json"],)) == 1, "nothing can be read any more")


@test
def noise_after_a_good_header():
    data = good_recording()
    dice = random.Random(3)
    for _ in range(20):
        try_views(data[:64] + dice.randbytes(dice.randrange(1, 5000)), (["--json"], ["--dump"]))


main()
