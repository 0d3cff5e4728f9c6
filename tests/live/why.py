#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that hang in known ways, by locks of their own process and of memory that they share: what
`sonde why` says about each."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from waits import *


def hang(scenario, build="gcc-O2"):
    return start([program("hang", build), scenario, work("lock")])


def one_holder(scenario, kind="mutex", grade="proven", build="gcc-O2"):
    """The first thread waits for what the thread "holder" has."""
    child = hang(scenario, build)
    got = why_until(child.pid, "lock_holder")
    got.check("lock_holder", root="holder", grade=grade, focus=child.pid)
    wait = got.threads[child.pid]["wait"]
    check(wait["kind"] == kind, "it waits for a %s, not a %s" % (wait["kind"], kind))
    for _ in range(50):
        if "since_ns" in wait:  # not while its CPU is too busy to be asked for its clock
            break
        wait = why_until(child.pid, "lock_holder").threads[child.pid]["wait"]
    check(wait["since_ns"] > 0, "%s" % wait)
    holder = got.threads[child.pid]["blocked_by"][0]
    check(holder["tid"] == got.verdict["root"] and holder["grade"] == grade, "%s" % holder)
    return got


def hold(name, *arguments, **keywords):
    """A test of one_holder() by that name."""
    def body():
        one_holder(*arguments, **keywords)
    body.__name__ = name
    test(body)


for mutex in ("mutex", "recursive", "errorcheck", "pi", "robust", "timed"):
    hold("a_mutex_" + mutex, mutex)
for build in ("gcc-O0", "gcc-O2-fp", "static", "stripped", "clang-O2"):
    hold("a_mutex_built_" + build.replace("-", "_"), "mutex", build=build)
hold("a_mutex_of_musl_that_is_recursive", "recursive", build="musl-static")
hold("a_reader_behind_a_writer", "rwlock-read", "rwlock")
hold("a_writer_behind_a_writer", "rwlock-write", "rwlock")
hold("a_thread_that_is_joined", "join", "join")
hold("what_is_initialised_once", "once", "once", grade="inferred")
hold("a_file_of_stdio", "stdio", "stdio_lock")
hold("the_lock_of_the_loader", "loader")


@test
def a_holder_that_runs():
    got = one_holder("running")
    check("runs" in got.sentence, got.sentence)
    frames = got.thread("holder")["stack"]
    check("running_holder" in frames, "stack of the holder: %s" % frames)


@test
def the_lock_has_a_name_and_a_line():
    got = one_holder("mutex", build="gcc-O0")
    wait = got.threads[got.verdict["focus"]]["wait"]
    check("locks[0]" in wait["name"], "%s" % wait)
    check(wait["declared"].startswith("hang.c:"), "%s" % wait)
    check("want_lock" in got.threads[got.verdict["focus"]]["stack"], "%s" % got.threads)


@test
def three_hundred_threads_behind_one_lock():
    child = hang("many")
    got = why_until(child.pid, "lock_holder")
    got.check("lock_holder", root="holder")
    end = time.monotonic() + 10
    while got.threads[got.verdict["root"]]["waiting_behind"] != 300 and time.monotonic() < end:
        got = Why(child.pid)
    check(got.threads[got.verdict["root"]]["waiting_behind"] == 300, got.sentence)
    check(len(got.threads) == 302, "%d threads" % len(got.threads))


@test
def a_lock_taken_twice():
    child = hang("self")
    got = why_until(child.pid, "self_deadlock").check("self_deadlock", root=child.pid)
    check(got.json["cycles"] == [[child.pid]], "%s" % got.json["cycles"])


@test
def the_heap_locked_by_what_a_signal_came_upon():
    child = hang("heap")
    got = why_until(child.pid, "self_deadlock").check("self_deadlock", root=child.pid, grade="inferred")
    check("heap" in got.sentence, got.sentence)


@test
def a_holder_that_has_ended():
    child = hang("dead")
    why_until(child.pid, "dead_owner").check("dead_owner", root=child.pid)


@test
def a_lock_that_was_held_at_a_fork():
    parent = subprocess.Popen([program("hang"), "fork"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        child = int(parent.stdout.readline().split()[1])
        got = why_until(child, "fork_inherited").check("fork_inherited", root=child)
        check("forked" in got.sentence, got.sentence)
        os.kill(child, 9)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def circle(members):
    def body():
        child = hang("cycle-%d" % members)
        got = why_until(child.pid, "deadlock").check("deadlock", focus=child.pid)
        check(len(got.json["cycles"]) == 1, "%s" % got.json["cycles"])
        cycle = got.json["cycles"][0]
        names = [got.threads[tid]["name"] for tid in cycle]
        wanted = ["hang"] + ["member-%d" % i for i in range(1, members)]
        at = names.index("hang")
        check(names[at:] + names[:at] == wanted, "%s" % names)
        for i, tid in enumerate(cycle):
            by = got.threads[tid]["blocked_by"]
            check([b["tid"] for b in by] == [cycle[(i + 1) % members]], "%s" % by)
    body.__name__ = "a_circle_of_%d" % members
    test(body)


for members in (2, 3, 5):
    circle(members)


@test
def a_circle_of_two_processes():
    child = hang("cycle-processes")
    got = why_until(child.pid, "deadlock").check("deadlock", focus=child.pid)
    check(len({got.threads[tid]["pid"] for tid in got.json["cycles"][0]}) == 2, got.sentence)


@test
def a_mutex_held_by_another_process():
    child = hang("shared")
    got = why_until(child.pid, "peer_process").check("peer_process", root="holder")
    check(got.threads[got.verdict["root"]]["pid"] != child.pid, got.sentence)


@test
def idle_workers_are_not_to_blame():
    child = hang("pool")
    got = why_until(child.pid, "idle").check("idle")
    check(all(not t["blocked_by"] for t in got.json["threads"]), got.sentence)


@test
def idle_workers_beside_a_real_wait():
    got = one_holder("pool-and-mutex")
    pool = [t for t in got.json["threads"] if t["name"] == "pool"]
    check(len(pool) == 8 and all(t["wait"]["nature"] == "event" for t in pool), "%s" % pool)
    check(not {t["tid"] for t in pool} & set(got.verdict["chain"]), got.sentence)


def waits_idly(scenario, kind, nature):
    def body():
        child = hang(scenario)
        got = why_until(child.pid, "idle").check("idle", focus=child.pid)
        wait = got.threads[child.pid]["wait"]
        check(wait["kind"] == kind and wait["nature"] == nature, "%s" % wait)
    body.__name__ = "nothing_but_a_" + scenario
    test(body)


waits_idly("semaphore", "condition", "event")
waits_idly("barrier", "condition", "event")
waits_idly("sleeping", "sleep", "time")


@test
def one_that_runs():
    child = hang("busy")
    got = why_until(child.pid, "running").check("running", root=child.pid)
    check("spin_until" in got.threads[child.pid]["stack"], "%s" % got.threads)


@test
def one_that_spins():
    child = hang("spinning")
    why_until(child.pid, "spinning").check("spinning", root=child.pid)


def end(child):
    child.kill()
    child.wait()


@test
def one_that_its_cgroup_holds_back():
    need_root()
    group = limited_cgroup("sonde-why-%d" % os.getpid())
    try:
        child = hang("running")
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(child.pid))
        got = why_until(child.pid, "throttled")
        end(child)
        got.check("throttled", root="holder", focus=child.pid)
    finally:
        os.rmdir(group)


@test
def one_that_gets_no_cpu():
    """A thread of the lowest class, beside one that never lets go of the same CPU."""
    need_root()
    need("chrt")
    need("taskset")
    cpu = str(min(os.sched_getaffinity(0)))
    hog = start(["taskset", "-c", cpu, "chrt", "-f", "10", program("hang"), "busy"], ready=False)
    child = start(["taskset", "-c", cpu, "chrt", "-i", "0", program("hang"), "busy"], ready=False)
    got = why_until(child.pid, "starved", seconds=20)
    end(hog)
    got.check("starved", root=child.pid)


@test
def the_first_thread_has_ended():
    child = hang("zombie-leader")
    got = why_until(child.pid, "lock_holder").check("lock_holder", root="holder")
    check(got.threads[child.pid]["state"] == "Z", "%s" % got.threads[child.pid])


@test
def a_chain_through_three_processes():
    """A mutex, a pipe, a lock on a file, and at the end of it somebody who is stopped."""
    child = hang("chain")
    got = why_until(child.pid, "stopped").check("stopped", root="backup", focus=child.pid)
    check(got.chain() == ["hang", "holder", "writer", "backup"], "%s" % got.chain())
    kinds = [got.threads[tid]["wait"]["kind"] for tid in got.verdict["chain"]]
    check(kinds == ["mutex", "pipe", "flock", "stopped"], "%s" % kinds)


@test
def a_lock_tried_for_again_and_again():
    child = hang("poll-lock")
    got = why_until(child.pid, "peer_process").check("peer_process", root="holder", grade="inferred")
    check(work("lock") in got.sentence, got.sentence)


@test
def a_backend_that_waits_for_another():
    """Titles as PostgreSQL's processes have them."""
    server = start([program("hang"), "postgres", work("x" * 100)], ready=False)
    pids = dict(server.stdout.readline().decode().split() for _ in range(2))
    got = why_until(int(pids["waiter"]), "peer_process")
    got.check("peer_process", root=int(pids["holder"]), grade="inferred")
    check("UPDATE waiting" in got.sentence, got.sentence)


@test
def a_shell_that_waits_for_a_full_pipe():
    """The shell waits for both, and both wait for the reader."""
    shell = start(["sh", "-c", "yes | sleep 1000; true"], ready=False)
    got = why_until(shell.pid, "peer_process").check("peer_process", root="sleep", grade="inferred")
    check(got.chain() == ["sh", "yes", "sleep"], "%s" % got.chain())


@test
def asked_about_one_thread():
    child = hang("cycle-3")
    why_until(child.pid, "deadlock")
    member = Why(child.pid).thread("member-2")["tid"]
    got = Why(child.pid, "--chain-of", member).check("deadlock", focus=member)
    check(len(got.verdict["chain"]) == 3, "%s" % got.verdict)


@test
def without_bpf_and_root():
    """Another user's own process, by /proc alone."""
    need_root()
    child = start([program("hang"), "cycle-3"], user=65534, group=65534, extra_groups=[])
    options = dict(user=65534, group=65534, extra_groups=[])
    got = why_until(child.pid, "deadlock", **options).check("deadlock")
    check(got.json["method"] == "proc", got.json["method"])


@test
def a_process_that_is_not_ours():
    need_root()
    child = hang("cycle-3")
    why_until(child.pid, "deadlock")
    got = Why(child.pid, user=65534, group=65534, extra_groups=[])
    check(len(got.threads) == 3, "%s" % got.threads)
    check(all(t["hole"] == "[not ours to read]" for t in got.json["threads"]), "%s" % got.threads)


@test
def nothing_is_interrupted():
    """The program counts how often its calls return EINTR."""
    child = start([program("waits")], stdin=subprocess.PIPE)
    for _ in range(20):
        Why(child.pid)
        expect(sonde("stack", child.pid), 0)
    out, _ = child.communicate(timeout=30)
    check(child.returncode == 0, "%s" % out)


@test
def no_such_process():
    expect(sonde("why", "999999999"), 1, "999999999")
    expect(sonde("why", "no-such-name"), 1, "no-such-name")
    expect(sonde("why"), 2, "which process")


@test
def a_process_that_has_ended():
    child = start(["true"], ready=False)
    time.sleep(0.3)
    expect(sonde("why", child.pid), 1, "has ended")


@test
def a_bare_number_is_a_question():
    child = hang("self")
    why_until(child.pid, "self_deadlock")
    done = sonde(child.pid)
    expect(done, 0)
    check(done.stdout.startswith(b"deadlock of a thread with itself"), "%r" % done.stdout)


main()
