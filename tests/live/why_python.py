#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
# schedule: early (it takes minutes)
"""Python programs that hang in known ways: what `sonde why` says about each, on one CPython of each minor version, and
about some on every CPython that can be had."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from pythons import missing, pythons
from waits import *

SOURCE = os.path.join(PROGRAMS, "python_hangs.py")


def line(mark):
    """The line of the source that ends in: # line "MARK"."""
    with open(SOURCE) as f:
        for number, text in enumerate(f, 1):
            if text.rstrip().endswith('# line "%s"' % mark):
                return "python_hangs.py:%d" % number
    raise Failure("the program has no line %s" % mark)


def one_each():
    """An interpreter of each minor version, with all modules; and those that are built like no other."""
    taken, chosen = set(), []
    for python in pythons():
        if python.kinds & {"later", "bare"}:
            continue
        kind = (python.version[:2], "free-threaded" in python.kinds, "musl" in python.kinds)
        if kind not in taken:
            taken.add(kind)
            chosen.append(python)
    return chosen


def tests_of(chosen, function):
    def of(python):
        def body():
            function(python)
        body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
        test(body)
    for python in chosen:
        of(python)


def each_minor(function):
    tests_of(one_each(), function)


def few():
    """Of these, those between which the library has changed."""
    return [p for p in one_each() if p.version[:2] in ((3, 8), (3, 11), (3, 13)) or p.version >= (3, 14)]


def each_few(function):
    tests_of(few(), function)


def each_python(function):
    """Nothing marks the runtime of a program before 3.10 that is stripped of all names."""
    tests_of([p for p in pythons() if "later" not in p.kinds and ("bare" not in p.kinds or p.version >= (3, 10))],
             function)


def has_gil(python):
    if "free-threaded" in python.kinds:
        skip("there is no GIL")


class Hang:
    """The program in that state."""

    def __init__(self, python, name, lines=1):
        path = work("python_hangs.py")
        shutil.copy(SOURCE, path)
        self.child = start(python.command + [path, name], ready=False, env=python.environment())
        self.pid = self.child.pid
        self.said = [self.child.stdout.readline().decode().strip() for _ in range(lines)]
        if self.said[0].startswith("missing"):
            skip("%s: %s" % (python.label, self.said[0]))
        check(all(self.said), "it said %s" % self.said)

    def why(self, kind, *options, pid=None, **keywords):
        self.got = why_until(pid or self.pid, kind, *options, **keywords)
        return self.got

    def thread(self, tid):
        return self.got.threads[tid]

    def waits_at(self, tid, mark):
        """The innermost frame of the program's own."""
        own = [f for f in self.thread(tid)["frames"] if f.get("file", "").endswith("python_hangs.py")]
        check(own, "thread %d has no frame of the program: %s" % (tid, self.thread(tid)["frames"]))
        at = "python_hangs.py:%d" % own[0]["line"]
        check(at == line(mark), "thread %d waits at %s, not %s" % (tid, at, line(mark)))

    def says(self, *words):
        for word in words:
            check(word in self.got.sentence, "%r is not in: %s" % (word, self.got.sentence))

    def is_called(self, tid, name, kind="python_lock"):
        wait = self.thread(tid)["wait"]
        check(wait["name"] == name, "it waits for %r, not %r" % (wait["name"], name))
        check(wait["kind"] == kind, "it is a %s, not a %s" % (wait["kind"], kind))

    def taken_at(self, tid, mark):
        by = self.thread(tid)["blocked_by"]
        check(len(by) == 1 and by[0].get("taken") == line(mark), "%s, not taken at %s" % (by, line(mark)))


def one_holder(python, name, called, wanted, held, grade="inferred", holder="holder"):
    """The first thread waits at one line for what another has taken at another."""
    hang = Hang(python, name)
    hang.why("lock_holder").check("lock_holder", root=holder, grade=grade, focus=hang.pid)
    hang.is_called(hang.pid, called)
    hang.waits_at(hang.pid, wanted)
    hang.taken_at(hang.pid, held)
    return hang


@test
def interpreters():
    """Not a test: which there are."""
    for python in one_each():
        print(python)
    for label, reason in missing():
        print("missing: %s: %s" % (label, reason))


# ---- locks ----

@each_python
def ab_ba(python):
    hang = Hang(python, "ab-ba")
    got = hang.why("deadlock").check("deadlock", grade="inferred")
    cycle = got.json["cycles"][0]
    check(sorted(got.threads[tid]["name"] for tid in cycle) == ["backward", "forward"], "%s" % got.json["cycles"])
    for tid in cycle:
        hang.waits_at(tid, "wanted")
        hang.taken_at(tid, "taken")
    hang.says("threading.Lock python_hangs.first_lock", "threading.Lock python_hangs.second_lock")


@each_minor
def global_lock(python):
    hang = one_holder(python, "global-lock", "threading.Lock python_hangs.first_lock", "global wanted", "held")
    hang.says("in for_ever (python_hangs.py:")


@each_minor
def attribute_lock(python):
    one_holder(python, "attribute-lock", "threading.Lock Cache.guard", "attribute wanted", "held")


@each_few
def acquired_lock(python):
    one_holder(python, "acquired-lock", "threading.Lock Cache.guard", "acquired", "held")


@each_minor
def recursive_lock(python):
    one_holder(python, "recursive-lock", "threading.RLock python_hangs.recursive", "recursive wanted", "held",
               grade="proven")


@each_few
def lock_of_a_condition(python):
    one_holder(python, "condition-lock", "threading.Condition condition in condition_lock()", "condition wanted",
               "held", grade="proven")


@each_few
def plain_lock_of_a_condition(python):
    one_holder(python, "plain-condition-lock", "threading.Condition condition in plain_condition_lock()",
               "plain condition wanted", "held")


@each_minor
def lock_taken_twice(python):
    hang = Hang(python, "lock-twice")
    hang.why("self_deadlock").check("self_deadlock", root=hang.pid, grade="inferred")
    hang.waits_at(hang.pid, "again")
    hang.taken_at(hang.pid, "once")


@each_few
def lock_taken_in_a_generator(python):
    hang = Hang(python, "contextmanager-lock")
    hang.why("lock_holder").check("lock_holder", root="holder", grade="inferred")
    hang.taken_at(hang.pid, "inside a generator")


def one_candidate(python, name):
    """Nobody is sure to have it; the one whose code works with it is named, others are not."""
    hang = Hang(python, name)
    hang.why("lock_holder").check("lock_holder", grade="candidate")
    by = hang.thread(hang.pid)["blocked_by"]
    names = [(hang.thread(b["tid"])["name"], b["grade"]) for b in by]
    check(names == [("holder", "candidate")], "%s" % names)


@each_minor
def acquired_without_with(python):
    one_candidate(python, "acquired-without-with")


@each_few
def acquired_by_a_class(python):
    one_candidate(python, "class-lock")


@each_minor
def who_waits_for_a_condition_has_let_go_of_its_lock(python):
    hang = Hang(python, "waiter-does-not-hold")
    hang.why("lock_holder").check("lock_holder", root="holder", grade="inferred")


@each_few
def chain_of_three(python):
    hang = Hang(python, "chain")
    got = hang.why("lock_holder").check("lock_holder", root="holder", grade="inferred")
    check(got.chain()[1:] == ["middle", "holder"], "%s" % got.chain())
    hang.waits_at(got.verdict["chain"][1], "middle")


# ---- waiting for others ----

def idle(python, name, kind, mark, what, detail=None):
    hang = Hang(python, name)
    hang.why("idle").check("idle", focus=hang.pid)
    wait = hang.thread(hang.pid)["wait"]
    check(wait["kind"] == kind, "it is a %s, not a %s" % (wait["kind"], kind))
    check(wait["what"] == what, "%r, not %r" % (wait["what"], what))
    if detail:
        check(wait.get("detail") == detail, "%s, not %s" % (wait.get("detail"), detail))
    hang.waits_at(hang.pid, mark)
    hang.says(line(mark))
    return hang


@each_few
def condition_that_nobody_notifies(python):
    idle(python, "condition", "python_condition", "never notified",
         "for threading.Condition ours in condition() to be notified")


@each_few
def event_that_nobody_sets(python):
    idle(python, "event", "python_event", "never set", "for threading.Event to be set")


@each_few
def semaphore_that_nobody_releases(python):
    idle(python, "semaphore", "python_semaphore", "never released", "for threading.Semaphore")


@each_few
def barrier_that_does_not_fill(python):
    idle(python, "barrier", "python_barrier", "never full", "at threading.Barrier", "1 of 3 have come")


@each_few
def queue_join(python):
    idle(python, "queue-join", "python_queue", "never done",
         "in queue.Queue.join() for all tasks of tasks in queue_join() to be done", "3 are not done")


@each_few
def queue_get(python):
    idle(python, "queue-get", "python_queue", "never put", "in queue.Queue.get() for an item of a queue")


@each_few
def queue_put(python):
    idle(python, "queue-put", "python_queue", "never taken",
         "in queue.Queue.put() for room in tasks in queue_put()", "it has all 1 that it may have")


@each_few
def simple_queue(python):
    idle(python, "simple-queue", "python_queue", "simply never put", "in queue.SimpleQueue.get() for an item")


@each_minor
def thread_that_is_joined(python):
    hang = Hang(python, "join")
    hang.why("lock_holder").check("lock_holder", root="worker", focus=hang.pid)
    hang.waits_at(hang.pid, "joined")
    hang.says("for the thread worker to end")


@each_few
def end_of_the_program(python):
    hang = Hang(python, "shutdown")
    hang.why("lock_holder").check("lock_holder", root="worker", focus=hang.pid)
    hang.says("for the thread worker to end", "the program is at its end")


@each_few
def future(python):
    hang = Hang(python, "future")
    hang.why("lock_holder").check("lock_holder", grade="inferred", focus=hang.pid)
    check(hang.thread(hang.pid)["wait"]["kind"] == "python_future", "%s" % hang.thread(hang.pid))
    hang.waits_at(hang.pid, "result")
    hang.says("concurrent.futures.Future result in future()", "ThreadPoolExecutor", "in for_ever")


@each_few
def pool_that_waits_for_itself(python):
    hang = Hang(python, "pool-of-itself")
    hang.why("self_deadlock").check("self_deadlock", grade="inferred", focus=hang.pid)
    hang.waits_at(hang.got.verdict["root"], "inner result")
    hang.says("no worker has begun with it")


@each_minor
def import_lock(python):
    hang = Hang(python, "import-lock")
    hang.why("lock_holder").check("lock_holder", root="importer", focus=hang.pid)
    hang.is_called(hang.pid, "the import of module slow_module", "python_import")
    hang.waits_at(hang.pid, "import")
    hang.taken_at(hang.pid, "other import")
    hang.says("in <module> (slow_module.py:2)")


# ---- the GIL ----

@each_minor
def gil_hog(python):
    has_gil(python)
    hang = Hang(python, "gil-hog")
    hang.why("lock_holder").check("lock_holder", root="hog", focus=hang.pid)
    hang.is_called(hang.pid, "the GIL", "python_gil")
    hang.waits_at(hang.got.verdict["root"], "in C")
    hang.says(line("in C"))


@each_minor
def gil_and_mutex(python):
    """Two kinds of locks, one of them not Python's, in one circle."""
    has_gil(python)
    hang = Hang(python, "gil-and-mutex")
    got = hang.why("deadlock").check("deadlock")
    kinds = sorted((got.threads[tid]["name"], got.threads[tid]["wait"]["kind"]) for tid in got.json["cycles"][0])
    check(kinds == [("keeper", "mutex"), ("locker", "python_gil")], "%s" % kinds)
    keeper = [tid for tid in got.json["cycles"][0] if got.threads[tid]["name"] == "keeper"][0]
    hang.waits_at(keeper, "wants the mutex")


@each_few
def gil_that_goes_round(python):
    """All get it now and then: nothing hangs. On a busy machine one may not have got it between two looks, and is
    told how often it goes round."""
    has_gil(python)
    hang = Hang(python, "gil-contention")
    got = hang.why("running", seconds=3)
    check(got.kind in ("running", "starved") or "times a second" in got.sentence, got.sentence)


@each_minor
def gil_of_another_interpreter(python):
    has_gil(python)
    if python.version < (3, 12):
        skip("interpreters share the GIL before 3.12")
    hang = Hang(python, "other-interpreter")
    runner = int(hang.said[0].split()[1])
    end = time.monotonic() + 10
    while True:
        got = hang.why("idle")
        starving = [t for t in got.json["threads"] if (t["wait"] or {}).get("name") == "the GIL of interpreter 1"]
        if starving or time.monotonic() > end:
            break
    check(len(starving) == 1, "%s" % [t["wait"] for t in got.json["threads"]])
    check([b["tid"] for b in starving[0]["blocked_by"]] == [runner], "%s" % starving[0]["blocked_by"])
    main = got.threads[hang.pid]
    check(main["wait"]["kind"] == "sleep" and not main["blocked_by"], "%s" % main["wait"])


@each_few
def share_of_the_gil(python):
    """How much of the time goes to it, and who has it, is told by looks over time."""
    has_gil(python)
    hang = Hang(python, "gil-hog")
    hang.why("lock_holder")
    done = sonde("why", "-d", "1", "--json", hang.pid)
    expect(done, 0)
    got = json.loads(done.stdout)
    gil = [lock for lock in got["locks"] if lock["kind"] == "python_gil"]
    check(len(gil) == 1 and gil[0]["name"] == "the GIL", "%s" % got["locks"])


@each_few
def hand_overs_of_the_gil(python):
    has_gil(python)
    hang = Hang(python, "gil-contention")
    done = sonde("why", "-d", "2", "--json", hang.pid)
    expect(done, 0)
    gil = [lock for lock in json.loads(done.stdout)["locks"] if lock["kind"] == "python_gil"]
    check(len(gil) == 1 and 5 < gil[0].get("handed_on", 0) < 2000, "%s" % gil)


# ---- cores ----

@each_few
def core_file(python):
    """Locks are in memory, so a core has them."""
    need("gcore")
    if "chroot" in python.kinds:
        skip("its files are in another root")
    hang = Hang(python, "ab-ba")
    hang.why("deadlock")
    done = run(["gcore", "-o", work("core"), str(hang.pid)])
    check(not done.returncode, done.stderr.decode(errors="replace"))
    done = sonde("why", "--json", "--core", work("core.%d" % hang.pid))
    expect(done, 0)
    got = json.loads(done.stdout)["verdict"]
    check(got["kind"] == "deadlock" and got["grade"] == "inferred", "%s" % got)
    check(line("taken") in got["sentence"], got["sentence"])


# ---- processes ----

@each_few
def full_pipe_of_multiprocessing(python):
    hang = Hang(python, "pipe-full")
    got = hang.why("peer_process").check("peer_process", focus=hang.pid)
    hang.waits_at(hang.pid, "full")
    check(got.threads[got.verdict["root"]]["pid"] != hang.pid, got.sentence)
    hang.says("write to a", "full", "in for_ever")


@each_minor
def lock_that_was_held_at_a_fork(python):
    hang = Hang(python, "fork-with-lock", lines=2)
    child = int([word for word in hang.said if word != "ready"][0])
    hang.why("fork_inherited", pid=child).check("fork_inherited", root=child, grade="inferred")
    hang.is_called(child, "threading.Lock python_hangs.first_lock")
    hang.waits_at(child, "in the child")
    hang.says("forked", line("held"))


@each_few
def owner_that_was_left_behind_at_a_fork(python):
    """The lock names a thread that only the parent has."""
    hang = Hang(python, "fork-with-recursive-lock", lines=2)
    child = int([word for word in hang.said if word != "ready"][0])
    hang.why("fork_inherited", pid=child).check("fork_inherited", root=child)
    hang.is_called(child, "threading.RLock python_hangs.recursive")
    hang.waits_at(child, "in the other child")
    hang.says("of process %d held it when it forked this one" % hang.pid)


@each_few
def owner_that_has_ended(python):
    hang = Hang(python, "owner-that-ended")
    hang.why("dead_owner").check("dead_owner", root=hang.pid)
    hang.waits_at(hang.pid, "never let go")
    hang.says("held by a thread that ended without unlocking it")


@each_few
def lock_of_multiprocessing(python):
    hang = Hang(python, "process-lock")
    got = hang.why("peer_process").check("peer_process", grade="inferred", focus=hang.pid)
    hang.is_called(hang.pid, "multiprocessing.Lock lock in process_lock()")
    hang.waits_at(hang.pid, "process lock wanted")
    hang.waits_at(got.verdict["root"], "asleep")


# ---- asyncio ----

def tasks(python, name, mark, *words):
    if python.version >= (3, 15):
        skip("tasks of 3.15 are not read")
    hang = Hang(python, name)
    hang.why("task_deadlock").check("task_deadlock", root=hang.pid, focus=hang.pid, grade="inferred")
    detail = hang.thread(hang.pid)["wait"]["detail"]
    for word in words + ("(%s)" % line(mark), "Task-2", "Task-3"):
        check(word in detail, "%r is not in: %s" % (word, detail))


@each_few
def tasks_with_each_others_lock(python):
    tasks(python, "asyncio-locks", "task wants", "for asyncio.Lock other in take()",
          "taken at line %s" % line("task took").split(":")[1])


@each_few
def tasks_that_await_each_other(python):
    tasks(python, "asyncio-waits", "awaits", "awaits", "which awaits")


main()
