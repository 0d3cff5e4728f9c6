#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The command line of `sonde why`: what it accepts, where it prints, and how that fits. What it finds out is
tested in tests/live/why*.py."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403
from waits import why_until  # noqa: E402


def hanging(scenario="cycle-2", kind="deadlock", **options):
    """A process that hangs, and whose threads are where they stay."""
    child = start([program("hang", "gcc-O0"), scenario], **options)
    why_until(child.pid, kind)
    return child


def wide(**more):
    return dict(os.environ, LC_ALL="C.UTF-8", **more)


@test
def help_text():
    done = sonde("why", "--help", env=wide(COLUMNS="80"))
    expect(done, 0)
    text = done.stdout.decode()
    if text != HELP:
        print(text)
        raise Failure("the help is another one")


HELP = """\
Usage: sonde why [OPTIONS] PID|NAME|--core FILE

Says what a process waits for: the chain from the thread that hangs to who is in
its way, through locks, pipes, sockets and other processes, and what that one is
doing. Nothing is stopped.

Options:
  -a, --all               every thread and every edge
      --chain-of TID      explain this thread, instead of the most interesting
                          one
  -d, --duration TIME     slow, not hung: watch for that long, and tell what the
                          time of each thread went to
      --watch CONDITION   wait until it happens, then explain it: 'main blocked
                          > 5s', 'NAME blocked > 2s' (a regular expression),
                          'any blocked > 10s', 'main not run > 5s', deadlock;
                          who is idle is not blocked
      --json              for scripts (docs/JSON.md)
      --dot               the wait graph for Graphviz
  -o, --output FILE       write there instead of stdout
      --look HOW          proc (what anybody may read), bpf (all registers), or
                          auto
      --core FILE         look at a core file instead of a process
      --root DIR          with --core: where the files that were mapped are
                          found
  -h, --help              this text

Examples:
  # A program hangs: why?
  sonde why 1234
  # It is slow: what is its time lost to?
  sonde why -d 5 1234
  # It hangs now and then: tell why when it does
  sonde why --watch 'main blocked > 5s' -o why.txt 1234
  # The whole graph as a picture
  sonde why --dot --all 1234 | dot -Tsvg > waits.svg
  # What a core tells of it
  sonde why --core core.1234
"""


@test
def wrong_usage_is_status_2():
    for arguments, words in (
            (["why"], "which process?"),
            (["why", "1", "2"], "one process at a time"),
            (["why", "--json", "--dot", "1"], "not both"),
            (["why", "--look", "closely", "1"], "auto, proc or bpf"),
            (["why", "--chain-of", "0", "1"], "not between"),
            (["why", "--chain-of", "main", "1"], "--chain-of"),
            (["why", "--root", "/", "1"], "goes with --core"),
            (["why", "--core", "core", "1"], "not both"),
            (["why", "-d", "5", "--dot", "1"], "--dot"),
            (["why", "--nonsense", "1"], "--nonsense")):
        done = sonde(*arguments)
        expect(done, 2, words, "--help")
        check(not done.stdout, "usage errors say nothing on stdout")


@test
def what_is_not_there_is_status_1():
    gone = subprocess.Popen(["true"])
    gone.wait()
    own = str(os.getpid())
    for arguments, words in (
            (["why", "999999999"], "no process 999999999"),
            (["why", "0"], "no process 0"),
            (["why", gone.pid], "no process %d" % gone.pid),
            ([gone.pid], "no process %d" % gone.pid),
            (["why", "no-such-name"], "no process is named 'no-such-name'"),
            (["why", "--chain-of", "999999999", own], "no thread 999999999"),
            (["why", "--core", work("none")], "no such file"),
            (["why", "-o", work("no/such/directory"), own], "cannot write")):
        done = sonde(*arguments)
        expect(done, 1, words)
        check(not done.stdout, "failures say nothing on stdout")


@test
def a_name_that_several_have():
    name = "sonde-twin"
    shutil.copy(shutil.which("sleep"), work(name))
    twins = [start([work(name), "60"], ready=False) for _ in range(2)]
    done = sonde("why", name)
    expect(done, 1, "2 processes are named '%s'" % name, *("%d  " % t.pid for t in twins))
    check(not done.stdout, done.stdout)
    twins[0].kill()
    twins[0].wait()
    done = sonde("why", name)
    expect(done, 0)
    check(b"%s[%d]" % (name.encode(), twins[1].pid) in done.stdout, done.stdout)


@test
def a_bare_number_asks_why():
    child = hanging()
    time.sleep(0.1)  # a moment ago is not told
    for _ in range(50):
        texts = [sonde(*arguments).stdout.decode() for arguments in ([child.pid], ["why", child.pid])]
        check("deadlock of 2 threads" in " ".join(texts[0].split()), texts[0])
        shapes = [re.sub(r"\d+ ms|\d+\.\d+ m?s|\d+ s\b", "TIME", " ".join(t.split())) for t in texts]
        if shapes[0] == shapes[1]:  # since when is not told where the CPU is too busy to ask for its clock
            break
    check(shapes[0] == shapes[1], "%s\n%s" % tuple(shapes))


@test
def output_goes_to_a_file():
    child = hanging()
    for form in ([], ["--json"], ["--dot"]):
        done = sonde("why", *form, "-o", work("out"), child.pid)
        expect(done, 0)
        check(not done.stdout and not done.stderr, "%r %r" % (done.stdout, done.stderr))
        with open(work("out")) as f:
            text = f.read()
        if form == ["--json"]:
            check(json.loads(text)["verdict"]["kind"] == "deadlock", text)
        else:
            check(text.startswith("digraph" if form else "deadlock of 2 threads"), text)
    check(sonde("why", "-o", "-", child.pid).stdout, "- is not stdout")


@test
def recordings_are_not_overwritten():
    child = hanging()
    path = work("x.sonde")
    expect(sonde("record", "-o", path, "--", "true"), 0)
    with open(path, "rb") as f:
        before = f.read()
    expect(sonde("why", "-o", path, child.pid), 1, "is a recording")
    with open(path, "rb") as f:
        check(f.read() == before, "it was overwritten")


def lines_on(columns, *arguments):
    done = sonde(*arguments, env=wide(COLUMNS=str(columns)))
    expect(done, 0)
    return done.stdout.decode().splitlines()


@test
def lines_fit_the_terminal():
    pids = [hanging().pid, hanging("pool-and-mutex", "lock_holder").pid]
    for pid in pids:
        for columns in (40, 80, 200):
            for form in ([], ["--all"]):
                lines = lines_on(columns, "why", *form, pid)
                check(max(map(len, lines)) <= columns,
                      "%d columns: %s" % (columns, max(lines, key=len)))
        check(len(lines_on(200, "why", pid)) < len(lines_on(40, "why", pid)), "200 columns are not used")


@test
def long_command_lines_fit_as_well():
    need("bash")
    words = ["word%d" % i for i in range(60)]
    child = start(["bash", "-c", "sleep 60 & wait", *words], ready=False)
    why_until(child.pid, "peer_process")
    for columns in (40, 80):
        lines = lines_on(columns, "why", child.pid)
        check(max(map(len, lines)) <= columns, max(lines, key=len))


@test
def colours():
    need("script")
    child = hanging()
    for setting, wanted in (("TERM=xterm-256color", True), ("NO_COLOR=1 TERM=xterm-256color", False),
                            ("TERM=dumb", False)):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        done = run(["script", "-qec", "stty rows 24 cols 80; env %s %s why %d" % (setting, SONDE, child.pid),
                    "/dev/null"], env=env)
        if b"failed to create pseudo-terminal" in done.stderr + done.stdout:
            skip("there are no pseudo-terminals here")
        check((b"\x1b[" in done.stdout) == wanted, "%s: %r" % (setting, done.stdout))
        plain = re.sub(rb"\x1b\[[0-9;]*m", b"", done.stdout)
        check(b"\x1b" not in plain, "other escapes than colours")
        check(b"deadlock of 2 threads" in plain, plain)
    check(b"\x1b" not in sonde("why", child.pid).stdout, "colours in a pipe")


@test
def names_move_no_cursor():
    name = work("a\x1b[31m\x07b")
    shutil.copy(shutil.which("sleep"), name)
    child = start([name, "60"], ready=False)
    why_until(child.pid, "idle")
    for form in ([], ["--all"]):
        check(not re.search(rb"[\x00-\x09\x0b-\x1f]", sonde("why", *form, child.pid).stdout), form)
    json.loads(sonde("why", "--json", child.pid).stdout)


@test
def a_reader_that_leaves():
    child = hanging()
    for form in ([], ["--all"], ["--json"], ["--dot"]):
        asking = subprocess.Popen([SONDE, "why", *form, str(child.pid)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        asking.stdout.close()
        err = asking.stderr.read()
        asking.stderr.close()
        check(asking.wait() == 0 and not err, "%s: %d %r" % (form, asking.returncode, err))


@test
def a_full_disk():
    child = hanging()
    with open("/dev/full", "wb") as full:
        for form in ([], ["--json"], ["--dot"]):
            done = subprocess.run([SONDE, "why", *form, str(child.pid)], stdout=full,
                                  stderr=subprocess.PIPE, timeout=60)
            check(done.returncode == 1 and b"No space left" in done.stderr,
                  "%s: %d %r" % (form, done.returncode, done.stderr))
    expect(sonde("why", "-o", "/dev/full", child.pid), 1, "no space left")


@test
def json_has_what_is_promised():
    child = hanging()
    got = json.loads(sonde("why", "--json", child.pid).stdout)
    check(set(got) == {"verdict", "threads", "cycles", "pause_ns", "looks", "cut", "unseen", "method"}, set(got))
    verdict = got["verdict"]
    check(set(verdict) == {"kind", "sentence", "grade", "focus", "root", "chain"}, verdict)
    check(verdict["focus"] == child.pid and len(verdict["chain"]) == 2, verdict)
    check(sorted(got["cycles"][0]) == sorted(verdict["chain"]), got["cycles"])
    check(got["pause_ns"] == 0 and got["looks"] in (1, 2) and got["cut"] is False, got)
    check(len(got["threads"]) == 2, got["threads"])
    for thread in got["threads"]:
        check(set(thread) == {"pid", "tid", "name", "state", "wait", "blocked_by", "waiting_behind", "moved",
                              "stack", "frames", "whole"}, set(thread))
        check(thread["wait"]["kind"] == "mutex" and thread["wait"]["nature"] == "lock", thread["wait"])
        check(set(thread["wait"]) >= {"object", "name", "grade", "what"}, thread["wait"])
        check(set(thread["blocked_by"][0]) >= {"pid", "tid", "grade", "how"}, thread["blocked_by"])
        check(len(thread["stack"]) == len(thread["frames"]), "names and frames differ")
        check(thread["whole"] and "main" in thread["stack"] or thread["tid"] != child.pid, thread["stack"])


@test
def json_tells_what_is_wrong_with_a_wait():
    child = hanging("dead", "dead_owner")
    got = json.loads(sonde("why", "--json", child.pid).stdout)["threads"][0]["wait"]
    check(got["trouble"] == "dead_owner" and got["trouble_tid"] not in (0, child.pid), got)
    check(not os.path.exists("/proc/%d/task/%d" % (child.pid, got["trouble_tid"])), got)
    child = hanging()
    for thread in json.loads(sonde("why", "--json", child.pid).stdout)["threads"]:
        check("trouble" not in thread["wait"], thread["wait"])


@test
def a_picture_for_graphviz():
    child = hanging()
    text = sonde("why", "--dot", child.pid).stdout.decode()
    edges = re.findall(r"^  t(\d+) -> t(\d+) \[", text, re.M)
    check(len(edges) == 2 and edges[0] == edges[1][::-1], text)
    nodes = re.findall(r"^  t(\d+) \[label=", text, re.M)
    check({n for e in edges for n in e} <= set(nodes), text)


@test
def what_is_not_ours_to_read_is_not_judged():
    need_root()
    need("setpriv")
    child = hanging()
    shutil.copy(SONDE, work("sonde"))
    os.chmod(work("sonde"), 0o755)
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", work("sonde")]
    done = run(other + ["why", str(child.pid)])
    if b"libc.so" in done.stderr and done.returncode == 127:
        skip("sonde cannot be started by another user here")
    expect(done, 0, "not ours to read", "sonde doctor")
    text = " ".join(done.stdout.decode().split())
    check("is not ours to look into" in text, text)
    check("has run since" not in text and "runs" not in text.split(), "it does not run: %s" % text)


main()
