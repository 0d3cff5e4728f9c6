#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The command line of `sonde stack`: what it accepts, where it prints, and how that fits. What stacks it finds
is tested in tests/live/."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403
from waits import why_until  # noqa: E402


def pool():
    """The first thread waits for a mutex, "holder" for a signal; eight called "pool" share a stack."""
    child = start([program("hang", "gcc-O0"), "pool-and-mutex"])
    why_until(child.pid, "lock_holder")
    return child


@test
def help_text():
    done = sonde("stack", "--help", env=dict(os.environ, COLUMNS="80"))
    expect(done, 0)
    text = done.stdout.decode()
    if text != HELP:
        print(text)
        raise Failure("the help is another one")


HELP = """\
Usage: sonde stack [OPTIONS] PID|NAME|--core FILE

Shows the stack of every thread, without stopping any of them. Threads with the
same stack are shown once.

Options:
  -t, --thread REGEX      only threads whose name matches this extended regular
                          expression
      --main              only the first thread of each process
      --tid N             only this thread
      --stop-running      stop threads that run for some microseconds, instead
                          of sampling them
      --show-interpreter  Python's own C functions as well, beside the Python
                          frames that they run
      --locals            arguments and variables of Python frames as well, cut
                          short where they are long
      --tasks             asyncio's tasks instead of threads: who awaits whom,
                          and what each waits for
      --json              for scripts (docs/JSON.md)
  -o, --output FILE       write there instead of stdout
      --look HOW          proc (what anybody may read), bpf (all registers), or
                          auto
      --core FILE         look at a core file instead of a process
      --root DIR          with --core: where the files that were mapped are
                          found
  -h, --help              this text

Examples:
  # All threads of a process
  sonde stack 1234
  # Those of a pool
  sonde stack -t '^worker' nginx
  # What the tasks of an asyncio program wait for
  sonde stack --tasks 1234
  # Of a program that has crashed
  sonde stack --core core.1234
"""


@test
def wrong_usage_is_status_2():
    for arguments, words in (
            ([], "which process?"),
            (["1", "2"], "one process at a time"),
            (["-t", "(", "1"], "pattern '('"),
            (["--tid", "main", "1"], "--tid"),
            (["--look", "closely", "1"], "auto, proc or bpf"),
            (["--root", "/", "1"], "goes with --core"),
            (["--core", "core", "1"], "not both"),
            (["--core", "core", "--stop-running"], "that live"),
            (["--nonsense", "1"], "--nonsense")):
        done = sonde("stack", *arguments)
        expect(done, 2, words, "--help")
        check(not done.stdout, "usage errors say nothing on stdout")


@test
def what_is_not_there_is_status_1():
    own = str(os.getpid())
    for arguments, words in (
            (["999999999"], "no process 999999999"),
            (["0"], "no process 0"),
            (["no-such-name"], "no process is named 'no-such-name'"),
            (["-t", "no such thread", own], "none is meant"),
            (["--tid", "999999999", own], "none is meant"),
            (["--core", work("none")], "no such file"),
            (["-o", work("no/such/directory"), own], "cannot write")):
        done = sonde("stack", *arguments)
        expect(done, 1, words)
        check(not done.stdout, "failures say nothing on stdout")


@test
def a_name_that_several_have():
    name = "sonde-twin"
    shutil.copy(shutil.which("sleep"), work(name))
    twins = [start([work(name), "60"], ready=False) for _ in range(2)]
    expect(sonde("stack", name), 1, "2 processes are named", *("%d  " % t.pid for t in twins))
    twins[0].kill()
    twins[0].wait()
    check(b"[%d]" % twins[1].pid in sonde("stack", name).stdout, "not the one that is left")


@test
def the_same_stack_is_shown_once():
    child = pool()
    for _ in range(50):
        text = sonde("stack", child.pid).stdout.decode()
        if "last ran" in text.partition("\n\n")[0]:  # a clock of a CPU that is busy is not waited for
            break
    check(len(re.findall(r"^8 threads: pool\[\d+\], ", text, re.M)) == 1, text)
    check(len(re.findall(r"^    pthread_cond_wait ", text, re.M)) == 1, text)
    check(text.startswith("hang[%d]\n  asleep in futex, last ran " % child.pid), text)
    check(len(text.split("\n\n")) == 3, "%d stacks: %s" % (len(text.split("\n\n")), text))


@test
def threads_are_selected():
    child = pool()
    tids = {}
    for thread in json.loads(sonde("stack", "--json", child.pid).stdout)["threads"]:
        tids.setdefault(thread["name"], []).append(thread["tid"])
    check(sorted(map(len, tids.values())) == [1, 1, 8], tids)
    for options, wanted in ((["--main"], [child.pid]), (["-t", "^pool$"], tids["pool"]),
                            (["--tid", tids["holder"][0]], tids["holder"]),
                            (["-t", "^(pool|holder)$"], tids["pool"] + tids["holder"])):
        got = json.loads(sonde("stack", "--json", *options, child.pid).stdout)
        check([t["tid"] for t in got["threads"]] == sorted(wanted), "%s: %s" % (options, got["threads"]))


@test
def output_goes_to_a_file():
    child = pool()
    for form in ([], ["--json"]):
        done = sonde("stack", *form, "-o", work("out"), child.pid)
        expect(done, 0)
        check(not done.stdout and not done.stderr, "%r %r" % (done.stdout, done.stderr))
        with open(work("out")) as f:
            text = f.read()
        check(len(json.loads(text)["threads"]) == 10 if form else text.startswith("hang["), text)


@test
def recordings_are_not_overwritten():
    child = pool()
    path = work("x.sonde")
    expect(sonde("record", "-o", path, "--", "true"), 0)
    with open(path, "rb") as f:
        before = f.read()
    expect(sonde("stack", "-o", path, child.pid), 1, "is a recording")
    with open(path, "rb") as f:
        check(f.read() == before, "it was overwritten")


@test
def lines_fit_the_terminal():
    child = pool()
    for columns in (40, 80, 200):
        done = sonde("stack", child.pid, env=dict(os.environ, LC_ALL="C.UTF-8", COLUMNS=str(columns)))
        expect(done, 0)
        lines = done.stdout.decode().splitlines()
        check(max(map(len, lines)) <= columns, "%d columns: %s" % (columns, max(lines, key=len)))


@test
def colours():
    need("script")
    child = pool()
    for setting, wanted in (("TERM=xterm-256color", True), ("NO_COLOR=1 TERM=xterm-256color", False),
                            ("TERM=dumb", False)):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        done = run(["script", "-qec", "env %s %s stack %d" % (setting, SONDE, child.pid), "/dev/null"], env=env)
        if b"failed to create pseudo-terminal" in done.stderr + done.stdout:
            skip("there are no pseudo-terminals here")
        check((b"\x1b[" in done.stdout) == wanted, "%s: %r" % (setting, done.stdout))
        check(b"\x1b" not in re.sub(rb"\x1b\[[0-9;]*m", b"", done.stdout), "other escapes than colours")
    check(b"\x1b" not in sonde("stack", child.pid).stdout, "colours in a pipe")


@test
def a_reader_that_leaves():
    child = pool()
    for form in ([], ["--json"]):
        asking = subprocess.Popen([SONDE, "stack", *form, str(child.pid)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        asking.stdout.close()
        err = asking.stderr.read()
        asking.stderr.close()
        check(asking.wait() == 0 and not err, "%s: %d %r" % (form, asking.returncode, err))


@test
def a_full_disk():
    child = pool()
    with open("/dev/full", "wb") as full:
        for form in ([], ["--json"]):
            done = subprocess.run([SONDE, "stack", *form, str(child.pid)], stdout=full,
                                  stderr=subprocess.PIPE, timeout=60)
            check(done.returncode == 1 and b"No space left" in done.stderr,
                  "%s: %d %r" % (form, done.returncode, done.stderr))
    expect(sonde("stack", "-o", "/dev/full", child.pid), 1, "no space left")


@test
def json_has_what_is_promised():
    child = pool()
    got = json.loads(sonde("stack", "--json", child.pid).stdout)
    check(set(got) == {"threads", "pause_ns", "method"}, set(got))
    check(got["pause_ns"] == 0, got["pause_ns"])
    for thread in got["threads"]:
        check(set(thread) >= {"pid", "tid", "name", "state", "doing", "stack", "frames", "whole"}, set(thread))
        check(thread["pid"] == child.pid and thread["state"] == "S" and thread["whole"], thread)
        check(len(thread["stack"]) == len(thread["frames"]), "names and frames differ")
        for frame in thread["frames"]:
            check(set(frame) <= {"function", "file", "line", "module", "inlined", "guessed"}, set(frame))


@test
def what_is_not_ours_to_read():
    need_root()
    need("setpriv")
    child = pool()
    shutil.copy(SONDE, work("sonde"))
    os.chmod(work("sonde"), 0o755)
    done = run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", work("sonde"), "stack",
                str(child.pid)])
    if b"libc.so" in done.stderr and done.returncode == 127:
        skip("sonde cannot be started by another user here")
    expect(done, 0, "not ours to read", "sonde doctor")
    check(b"[not ours to read]" in done.stdout and b"10 threads: hang[" in done.stdout, done.stdout)


main()
