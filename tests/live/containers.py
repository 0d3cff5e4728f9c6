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


def only_descendant(outer):
    """The process at the end of a row of only children."""
    pid = outer.pid
    while True:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            children = f.read().split()
        if not children:
            return pid
        pid = int(children[0])


def contained(user):
    """A program in a user, mount and pid namespace of its own, on a file system that exists only
    there; recorded from outside by the same user, who need not be root."""
    need_root()
    need("unshare")
    need("setpriv")
    os.mkdir(work("mnt"))
    os.mkdir(work("out"))
    os.chmod(work("out"), 0o777)
    for file in (SONDE, program("split")):
        shutil.copy(file, work())
    become = ["setpriv", "--reuid=%d" % user, "--clear-groups"]
    unshare = become + ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    if run(unshare + ["true"]).returncode:
        skip("user namespaces cannot be made here")
    script = ("mount -t proc none /proc && mount -t tmpfs none '%s' && cp '%s' '%s/inside' && exec '%s/inside' "
              "10000000 20000" % (work("mnt"), work("split"), work("mnt"), work("mnt")))
    outer = start(unshare + ["sh", "-c", script])
    inner = only_descendant(outer)
    check(os.readlink("/proc/%d/exe" % inner).endswith("/inside"), "the program is not %d" % inner)
    done = run(become + [work("sonde"), "record", "-q", "-F", "499", "-o", work("out/out.sonde"),
                         "-p", str(inner), "-d", "1"])
    expect(done, 0)
    got = Recording(work("out/out.sonde"))
    check(got.share("heavy") > 60 and got.share("light") > 20, "%s" % got.stacks[:3])
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check(any(f["module"] == "inside" for f in got.json["functions"]), "%s" % got.json["functions"][:3])


@test
def in_namespaces_of_its_own():
    contained(0)


@test
def in_namespaces_of_an_ordinary_user():
    contained(65534)


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


# ---- files that cannot be opened, with the right to ask for what is mapped and without ----

def vanished(how, ordinary, launch):
    """A recording of a program whose library is gone; of an ordinary user's by that user."""
    os.mkdir(work("open"))
    os.chmod(work("open"), 0o777)
    for file in (SONDE, program("vanish"), program("plugin")):
        shutil.copy(file, work())
    user = ["setpriv", "--reuid=65534", "--clear-groups"] if ordinary else []
    command = [work("vanish"), how, work("plugin"), "700" if launch else "20000"]
    path = work("open/out.sonde")
    record = user + [work("sonde"), "record", "-q", "-F", "499", "-o", path]
    if launch:
        done = run(record + ["--"] + command, cwd=work("open"), timeout=30)
        expect(done, 0)
    else:
        child = start(user + command, cwd=work("open"))
        expect(run(record + ["-d", "0.7", "-p", str(child.pid)], cwd=work("open")), 0)
        child.kill()
    got = Recording(path)
    os.unlink(path)
    shutil.rmtree(work("open"))
    return got


def check_vanished(ordinary):
    need("setpriv")
    for how in ("memfd", "deleted", "replaced"):
        for launch in (False, True):
            got = vanished(how, ordinary, launch)
            words = "%s, %s: %s" % (how, "launched" if launch else "running", got.stacks[:3])
            check(got.share("plugin_work") > 90, words)
            check(got.quality["rooted_pct"] >= 98 and got.quality["guessed_frames_pct"] < 1,
                  "%s: %s" % (words, got.quality))
            modules = {f["module"] for f in got.json["functions"]}
            check(not any("deleted" in m for m in modules), "%s" % modules)


@test
def libraries_whose_files_are_gone():
    need_root()
    check_vanished(False)


@test
def libraries_whose_files_are_gone_for_an_ordinary_user():
    """Who may not open the file by its mapping reads what the process has of it."""
    need_root()
    check_vanished(True)


main()
