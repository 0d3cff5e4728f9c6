#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Processes that see other files than we do: chroots, mount namespaces, files that are gone."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def check_names(child):
    got = recording(["-F", "499", "-p", str(child.pid), "-d", "1.2"])
    check(got.share("heavy") > 60 and got.share("light") > 20,
          "heavy %.1f %%, light %.1f %%: %s" % (got.share("heavy"), got.share("light"), got.stacks[:3]))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check(alive(child), "the target is gone")


def jail_with(build):
    os.mkdir(work("jail"))
    shutil.copy(program("split", build), work("jail/split"))
    os.chmod(work("jail/split"), 0o755)
    return work("jail/split")


@test
def in_a_chroot():
    need_root()
    jail_with("static")
    check_names(start(["chroot", work("jail"), "/split", "10000000", "20000"]))


@test
def a_decoy_outside_the_chroot():
    """Outside, the same path names another program."""
    need_root()
    inside = jail_with("static")
    decoy = "/tmp/sonde-decoy-%d" % os.getpid()
    os.mkdir(work("jail/tmp"))
    shutil.copy(inside, work("jail" + decoy))
    shutil.copy(program("recurse"), decoy)
    try:
        check_names(start(["chroot", work("jail"), decoy, "10000000", "20000"]))
    finally:
        os.unlink(decoy)


@test
def in_a_mount_namespace():
    """The program exists on a file system that only its own namespace has."""
    need_mount_namespace()
    os.mkdir(work("mnt"))
    script = ("mount -t tmpfs none '%s' && cp '%s' '%s/split' && exec '%s/split' 10000000 20000"
              % (work("mnt"), program("split"), work("mnt"), work("mnt")))
    check_names(start(["unshare", "-m", "sh", "-c", script]))


@test
def in_a_pid_namespace():
    """Inside it is process 1; outside sonde uses the outer number."""
    need_root()
    need("unshare")
    outer = start(["unshare", "-p", "-f", "--kill-child", program("split"), "10000000", "20000"])
    with open("/proc/%d/task/%d/children" % (outer.pid, outer.pid)) as f:
        inner = int(f.read().split()[0])
    got = recording(["-F", "499", "-p", str(inner), "-d", "1"])
    check(got.share("heavy") > 60, "heavy %.1f %%" % got.share("heavy"))


@test
def a_deleted_program():
    need_root()
    path = jail_with("gcc-O2")
    child = start([path, "10000000", "20000"])
    os.unlink(path)
    check_names(child)


@test
def a_replaced_program():
    """As after an upgrade: another file has its name now."""
    need_root()
    path = jail_with("gcc-O2")
    child = start([path, "10000000", "20000"])
    os.unlink(path)
    shutil.copy(program("recurse"), path)
    check_names(child)


@test
def a_deleted_program_in_a_chroot():
    need_root()
    path = jail_with("static-pie")
    child = start(["chroot", work("jail"), "/split", "10000000", "20000"])
    os.unlink(path)
    check_names(child)


main()
