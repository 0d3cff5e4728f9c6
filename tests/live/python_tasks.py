#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (it takes minutes)
"""sonde stack --tasks on every CPython that can be had: what it says of tasks, against what the program itself knows."""
import os
import select
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from pythons import missing, pythons

SHOWN = 8  # differences that a failure prints


def known_pythons():
    return [p for p in pythons() if p.version >= (3, 8) and "later" not in p.kinds]


def each_python(function):
    """The test with each interpreter that sonde should know."""
    def of(python):
        def body():
            if "bare" in python.kinds:
                skip("it has no extension modules, and so no asyncio")
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)
    for python in known_pythons():
        of(python)


def script(python, name):
    path = work(name)
    if "chroot" in python.kinds and not path.startswith("/tmp/"):
        skip("only /tmp is the same inside")
    shutil.copy(os.path.join(PROGRAMS, name), path)
    return path


def line_of(child):
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(child.stdout.fileno(), 1 << 20) if select.select([child.stdout], [], [], 60)[0] else b""
        check(more, "it has nothing to say: %s" % child.poll())
        data += more
    return data


def started(python, name, *arguments):
    child = start(python.command + [script(python, name)] + list(arguments), ready=False, stdin=subprocess.PIPE,
                  env=python.environment())
    return child, json.loads(line_of(child))


def tasks_of(*arguments):
    done = sonde("stack", "--tasks", "--json", *arguments)
    expect(done, 0)
    return json.loads(done.stdout.decode())


def differences(python, told, got):
    """What of a task's frames is not as the interpreter has it."""
    key = "qualname" if python.version >= (3, 11) else "name"
    want = [(f[key], f["file"], f["line"]) for f in told["frames"]]
    have = [(f["function"], f["file"], f["line"]) for f in got["frames"]]
    if told["running"]:
        have = [f[0] for f in have]
        return [] if have == ["read_to_the_end", "main"] else ["its frames are %s" % have]
    if want == have:
        return []
    for i, (a, b) in enumerate(zip(want, have)):
        if a != b:
            return ["frame %d is %s, not %s" % (i, b, a)]
    return ["%d frames, not %d: %s" % (len(have), len(want), have)]


def names_of(found, ids):
    return sorted(found[i]["name"] if i in found else "?" for i in ids)


def compare(told, got, found, known):
    """State, reason and neighbours."""
    wrong, wait = [], got["wait"] or {}
    state = "running" if told["running"] else "ready" if told.get("ready") else "waiting"
    if told["kind"] is None and state == "waiting":
        return []
    if got["state"] != state:
        wrong.append("it is %s, not %s" % (got["state"], state))
    if state == "waiting" and wait.get("kind") != told["kind"]:
        wrong.append("it waits for %s, not %s" % (wait, told["kind"]))
    awaits = sorted(n if n in known else "?" for n in names_of(found, got["awaits"]))
    if awaits != sorted(told["awaits"]):
        wrong.append("it awaits %s, not %s" % (awaits, told["awaits"]))
    if names_of(found, wait.get("held_by", [])) != told["held_by"]:
        wrong.append("held by %s, not %s" % (names_of(found, wait.get("held_by", [])), told["held_by"]))
    if "fd" in told and wait.get("fd") != told["fd"]:
        wrong.append("fd %s, not %d" % (wait.get("fd"), told["fd"]))
    if "left" in told and not told["left"] - 120 < wait.get("left_ns", 0) / 1e9 <= told["left"]:
        wrong.append("%s is left of %d s" % (wait.get("left_ns"), told["left"]))
    if "worker" in told and (told["worker"] not in wait["what"] or "tid" not in wait):
        wrong.append("no worker that runs %s: %s" % (told["worker"], wait))
    for i in got["awaits"]:
        if got["id"] not in found[i]["awaited_by"]:
            wrong.append("%s does not know that it is awaited" % found[i]["name"])
    return wrong


def check_tasks(python, truth, said, core=False):
    found = {t["id"]: t for t in said["tasks"]}
    by_name = {t["name"]: t for t in said["tasks"]}
    known = {t["name"] for t in truth["tasks"]}
    loops = {l.get("tid") for l in said["loops"]}
    wrong = []
    check(said["complete"] and not said["lost"] and not said["torn"], "losses: %s" % {k: said[k] for k in
                                                                                      ("complete", "lost", "torn")})
    for told in truth["tasks"]:
        got = by_name.get(told["name"])
        if not got:
            wrong.append("%s: it is not there" % told["name"])
            continue
        if core:
            told = dict(told)
            told.pop("left", None)
        both = differences(python, told, got) + compare(told, got, found, known)
        tid = said["loops"][got["loop"]].get("tid")
        if tid != told.get("thread", truth["thread"]):
            both.append("its thread is %s, not %s" % (tid, told.get("thread", truth["thread"])))
        wrong += ["%s: %s" % (told["name"], words) for words in both]
    here = sorted(t["name"] for t in said["tasks"] if said["loops"][t["loop"]].get("tid") == truth["thread"])
    if here != truth["names"]:
        wrong.append("tasks %s, not %s" % (set(here) ^ set(truth["names"]), "those of asyncio.all_tasks()"))
    check(len(loops) == 2, "loops of %s" % loops)
    check(not wrong, "%d differences in %d tasks of %s:\n%s"
          % (len(wrong), len(truth["tasks"]), python.label, "\n".join(wrong[:SHOWN])))


INTERPRETERS = """
import threading
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
INNER = '''
import asyncio
async def waits():
    await asyncio.sleep(1000)
async def main():
    tasks = [asyncio.ensure_future(waits()) for _ in range(3)]
    await asyncio.sleep(1000)
asyncio.run(main())
'''
one = interpreters.create()
threading.Thread(target=interpreters.run_string, args=(one, INNER), daemon=True).start()
import asyncio, time
time.sleep(1)
async def outer():
    await asyncio.sleep(900)
async def main():
    tasks = [asyncio.ensure_future(outer()) for _ in range(2)]
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.sleep(900)
asyncio.run(main())
"""


@each_python
def of_all_interpreters(python):
    """Each has asyncio of its own, and tasks with the same names."""
    if python.version < (3, 12):
        skip("asyncio is for one interpreter there")
    child = start(python.command + ["-c", INTERPRETERS], env=python.environment())
    said = tasks_of(child.pid)
    check(len(said["loops"]) == 2 and len({l["tid"] for l in said["loops"]}) == 2, "%s" % said["loops"])
    outermost = sorted(t["frames"][-1]["function"] for t in said["tasks"])
    check(outermost == ["main"] * 2 + ["outer"] * 2 + ["waits"] * 3, "%s" % outermost)


@each_python
def in_a_pid_namespace(python):
    """Threads are told by the ids that they have outside."""
    need_mount_namespace()
    if "chroot" in python.kinds:
        skip("a namespace is enough")
    child = start(["unshare", "-pf", "--mount-proc"] + python.command + [script(python, "known_tasks.py")],
                  ready=False, stdin=subprocess.PIPE, env=python.environment())
    truth = json.loads(line_of(child))
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout.split()[0])
    said = tasks_of(pid)
    check({t["name"] for t in truth["tasks"]} <= {t["name"] for t in said["tasks"]}, "tasks are missing")
    tids = {int(tid) for tid in os.listdir("/proc/%d/task" % pid)}
    loops = [l.get("tid") for l in said["loops"]]
    check(len(loops) == 2 and set(loops) <= tids and pid in loops, "loops of %s, threads %s" % (loops, tids))
    os.kill(pid, 9)


@each_python
def by_thread(python):
    """-t and --tid choose tasks by the thread that their loop runs in."""
    child, truth = started(python, "known_tasks.py")
    elsewhere = sorted(t["name"] for t in truth["tasks"] if t.get("thread", truth["thread"]) != truth["thread"])
    tid = next(t["thread"] for t in truth["tasks"] if t["name"] in elsewhere)
    check(sorted(t["name"] for t in tasks_of("--tid", tid, truth["pid"])["tasks"]) == elsewhere, "--tid %d" % tid)
    check(len(tasks_of("--main", truth["pid"])["tasks"]) == len(truth["names"]), "--main")


@test
def nothing_to_show():
    """A program without asyncio, one without Python, and options that make no sense together."""
    python = known_pythons()[0]
    child = start(python.command + ["-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE,
                  env=python.environment())
    expect(sonde("stack", "--tasks", child.pid), 1, "neither asyncio nor greenlet")
    other = start(["sleep", "60"], ready=False)
    time.sleep(0.2)
    expect(sonde("stack", "--tasks", other.pid), 1, "no CPython")
    expect(sonde("stack", "--tasks", "--locals", child.pid), 2, "--locals")


@test
def interpreters():
    """Not a test: which are missing."""
    for label, reason in missing():
        print("missing: %s: %s" % (label, reason))


@each_python
def known_tasks(python):
    child, truth = started(python, "known_tasks.py")
    if truth["missing"]:
        print("not on %s: %s" % (python.label, ", ".join("%s (%s)" % m for m in sorted(truth["missing"].items()))))
    check_tasks(python, truth, tasks_of(truth["pid"]))


BUSY = """
import asyncio, random
async def inner(thing):
    return await thing
async def outer(thing):
    return await inner(thing)
async def worker(lock):
    while True:
        async with lock:
            await asyncio.sleep(0)
        await asyncio.gather(outer(asyncio.sleep(0.001)), outer(asyncio.sleep(0)))
        await asyncio.wait_for(outer(asyncio.sleep(random.random() / 1000)), 1)
async def main():
    lock = asyncio.Lock()
    tasks = [asyncio.ensure_future(worker(lock)) for _ in range(40)]
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


def possible(names):
    """Whether the program can have this chain; innermost first."""
    rest = names[::-1]
    if rest[0] in ("main", "sleep"):
        return True
    if rest[0] == "worker":
        rest = rest[1:]
        if rest[:1] == ["wait_for"]:
            rest = rest[1:]
        if rest[:1] != ["outer"]:
            return all(name in ("__aenter__", "acquire", "sleep", "__sleep0", "__aexit__") for name in rest)
    return rest[:1] == ["outer"] and rest[1:2] in ([], ["inner"]) and \
        all(name in ("sleep", "__sleep0") for name in rest[2:])


@each_python
def busy_programs(python):
    """Tasks go on while they are read: what is told of each is one moment of it, or is marked."""
    child = start(python.command + ["-c", BUSY], env=python.environment())
    seen = whole = 0
    for _ in range(12):
        said = tasks_of(child.pid)
        seen += len(said["tasks"])
        for one in said["tasks"]:
            names = [f["function"].split(".")[-1] for f in one["frames"]]
            if one["state"] == "running" or not one["whole"]:
                continue
            whole += 1
            check(names and possible(names), "a chain that cannot be: %s" % names)
    check(seen >= 12 * 40 * 0.8 and whole >= seen * 0.7, "%d whole chains of %d tasks in 12 looks" % (whole, seen))


@each_python
def of_a_core(python):
    need("gcore")
    child, truth = started(python, "known_tasks.py")
    path = work("core")
    done = run(["gcore", "-o", path, str(truth["pid"])], timeout=120)
    check(done.returncode == 0, "gcore: %r" % done.stderr[-300:])
    check_tasks(python, truth, tasks_of("--core", "%s.%d" % (path, truth["pid"])), core=True)


main()
