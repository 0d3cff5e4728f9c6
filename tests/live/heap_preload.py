#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The library in watched programs (src/heap/preload), with a collector of the test's own: what it writes down, and that
programs do not notice it."""
import collections
import os
import resource
import select
import signal
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from heap_shared import *

LIBRARY = os.path.join(os.path.dirname(SONDE), "src", "heap", "preload", "libsonde-heap.so")
PYTHON = "/usr/bin/python3"


def watched(collector, command, timeout=60, env=None, **options):
    """Runs it to its end, taking in whoever says hello; its output and status."""
    options.setdefault("stdin", subprocess.DEVNULL)
    child = start(command, ready=False, stderr=subprocess.PIPE, env=collector.environment(LIBRARY, env), **options)
    end = time.monotonic() + timeout
    out = {child.stdout: b"", child.stderr: b""}
    reading = set(out)
    while reading:
        check(time.monotonic() < end, "%s runs on after %d s" % (command, timeout))
        for f in select.select([collector] + list(reading), [], [], 1)[0]:
            if f is collector:
                collector.accept()
                continue
            data = os.read(f.fileno(), 65536)
            out[f] += data
            if not data:
                reading.remove(f)
    child.wait(timeout=10)
    collector.accept()
    return subprocess.CompletedProcess(command, child.returncode, out[child.stdout], out[child.stderr])


def said(done):
    """What the program says it did."""
    ret = []
    for line in done.stdout.decode().splitlines():
        words = line.split()
        ret.append((words[0],) + tuple(int(w, 0) for w in words[1:]))
    return ret


def seen(target, wanted):
    """What was written down, of the kinds in question and of nothing else: sizes that the program names."""
    sizes = {line[-1] for line in wanted if line[0] != "free"}
    blocks = set()
    ret = []
    old = None
    for event in target.events():
        if event.type == "alloc" and event.size in sizes:
            ret.append(("alloc", event.address, event.size))
            blocks.add(event.address)
        elif event.type in FREES and event.address in blocks:
            ret.append(("free", event.address))
            blocks.discard(event.address)
        elif event.type == "realloc":
            old = event.address
        elif event.type == "realloc_done" and event.address and old in blocks and event.size in sizes:
            ret.append(("realloc", old, event.address, event.size))
            blocks.discard(old)
            blocks.add(event.address)
    return ret


def same(target, wanted):
    got = seen(target, wanted)
    check(got == wanted, "said:\n%s\nseen:\n%s" % ("\n".join(map(str, wanted)), "\n".join(map(str, got))))
    check(not any(target.lost().values()), "lost: %s" % target.lost())


def only(collector):
    check(len(collector.targets()) == 1, "%d said hello" % len(collector.targets()))
    return collector.targets()[0]


@test
def every_entry_is_seen_exactly_once():
    for build in ("gcc-O2", "gcc-O0", "gcc-O2-fp", "no-pie"):
        for clock in (0, 1):
            with Collector("exact", clock=clock) as collector:
                done = watched(collector, [program("allocations", build), "entries"])
                expect(done, 0)
                same(only(collector), said(done))
                check(only(collector).events()[-1].type != "raw", "it ends with a stack")
                check([e.type for e in only(collector).events()].count("end") == 1, "its end is not there")


@test
def times_do_not_go_back():
    with Collector("exact", clock=1) as collector:
        expect(watched(collector, [program("allocations"), "threads", "50", "4"]), 0)
        for ring in only(collector).rings():
            times = [event.time for event in ring]
            check(times == sorted(times), "times of a ring go back")


@test
def allocations_are_sampled_by_size():
    with Collector("sampled", 1, clock=1) as collector:
        done = watched(collector, [program("allocations"), "entries"])
        expect(done, 0)
        same(only(collector), said(done))
    with Collector("sampled", 1 << 50, clock=1) as collector:
        expect(watched(collector, [program("allocations"), "entries"]), 0)
        kinds = {event.type for event in only(collector).events()}
        check(kinds <= {"thread", "end"}, "with a huge interval there is %s" % kinds)


@test
def calls_are_sampled():
    with Collector("every", 1, clock=1) as collector:
        done = watched(collector, [program("allocations"), "entries"])
        expect(done, 0)
        calls = [event for event in only(collector).events() if event.type == "call"]
        wanted = [line for line in said(done) if line[0] != "free"]
        sizes = collections.Counter(event.size for event in calls if event.address)
        for line in wanted:
            check(sizes[line[-1]] == 1, "%s is there %d times" % (line, sizes[line[-1]]))
        check(all(event.extra[1] == 1 for event in calls), "each stands for one call")
    with Collector("every", 10, options=2, clock=1) as collector:
        expect(watched(collector, [program("allocations"), "ticks", "300"]), 0)
        calls = [event for event in only(collector).events() if event.type == "call"]
        check(len(calls) > 100, "%d calls were sampled" % len(calls))
        mean = sum(event.extra[1] for event in calls) / len(calls)
        check(abs(mean - 10) < 5 * 10 / len(calls) ** 0.5, "one in %.2f calls" % mean)
        cpu = sum(event.extra[0] for event in calls) / 1e6
        check(0 < cpu < 400, "%.1f ms of CPU time between them" % cpu)


@test
def threads_that_come_and_go_share_rings():
    with Collector("exact", clock=1, chunks=30000) as collector:
        expect(watched(collector, [program("allocations"), "threads", "10000", "4"], timeout=120), 0)
        target = only(collector)
        check(target.get("ring_count") <= 8, "%d rings for 5 threads at a time" % target.get("ring_count"))
        sizes = collections.Counter(e.size for e in target.events() if e.type == "alloc" and 200000 <= e.size < 210000)
        check(len(sizes) == 10000 and set(sizes.values()) == {1}, "%d blocks of threads" % len(sizes))
        live = {}
        for event in sorted(target.events(), key=lambda e: e.time):
            if event.type == "alloc":
                live[event.address] = event.size
            elif event.type == "free":
                live.pop(event.address, None)
        left = [size for size in live.values() if 200000 <= size < 210000]
        check(not left, "%d blocks that destructors freed are live" % len(left))
        check(not any(target.lost().values()), "lost: %s" % target.lost())


@test
def a_forked_child_starts_anew():
    with Collector("exact", clock=1) as collector:
        done = watched(collector, [program("allocations"), "fork"])
        expect(done, 0)
        check(len(collector.targets()) == 2, "%d said hello" % len(collector.targets()))
        parent, child = collector.targets()
        same(parent, said(done))
        check(child.pid != parent.pid, "the child has the parent's number")
        own = [event.size for event in child.events() if event.type == "alloc"]
        check(300011 in own and 300001 not in own, "the child allocated %s" % own)
        check(300011 not in [event.size for event in parent.events()], "the parent has what the child did")


@test
def a_vforked_child_is_its_parent():
    with Collector("exact", clock=1) as collector:
        done = watched(collector, [program("allocations"), "vfork"])
        expect(done, 0)
        same(only(collector), said(done))


@test
def spawned_and_executed_programs_say_hello_themselves():
    with Collector("exact", clock=1) as collector:
        done = watched(collector, [program("allocations"), "spawn"])
        expect(done, 0)
        lines = said(done)
        parent, child = collector.targets()
        same(parent, [lines[0], lines[-1]])
        same(child, lines[1:-1])
    with Collector("exact", clock=1) as collector:
        done = watched(collector, [program("allocations"), "exec"])
        expect(done, 0)
        before, after = collector.targets()
        same(before, said(done)[:1])
        same(after, said(done)[1:])


@test
def signal_handlers_are_seen():
    with Collector("exact", clock=1) as collector:
        done = watched(collector, [program("allocations"), "signals"])
        expect(done, 0)
        same(only(collector), said(done))


@test
def stacks_have_the_caller_innermost():
    with Collector("exact", clock=1) as collector:
        path = program("allocations")
        done = watched(collector, [path, "entries"])
        expect(done, 0)
        raws = [event.extra for event in only(collector).events() if event.type == "raw"]
        check(raws, "without tables there are no stacks for the collector to walk")
        for regs, known, start, data in raws:
            check(known & 1 << 16 and known & 1 << 7 and regs[7] == start, "no registers")
            check(len(data) % 8 == 0 and 0 < len(data) <= 8192, "%d bytes of stack" % len(data))
            check(start % 16 == 0, "a stack pointer of 0x%x at a call" % start)
            # The slot below it holds where the hook returns to.
            check(regs[16] > 4096, "no return address")


@test
def it_gives_up_without_a_reader():
    with Collector("exact", clock=1, chunks=64) as collector:
        done = watched(collector, [program("allocations"), "ticks", "5000"])
        expect(done, 0)
        check(b"right 1" in done.stdout, "%r" % done.stdout)
        target = only(collector)
        check(target.get("gave_up") == 1, "it did not give up")
        check(target.get("chunk_count") <= 64, "%d chunks" % target.get("chunk_count"))
        lost = target.lost()["chunk"]
        check(lost > 0, "nothing was counted as lost")


@test
def the_end_of_the_collector_does_no_harm():
    script = ("import sys, time; sys.path.insert(0, %r)\n"
              "from heap_shared import *\n"
              "c = Collector(sys.argv[1], 4096, clock=1, chunks=64); print(c.value, flush=True)\n"
              "while True: c.accept(); time.sleep(0.001)\n" % os.path.join(ROOT, "tests", "lib"))
    for mode in ("exact", "sampled"):
        for delay in (0.0, 0.01, 0.1, 0.3):
            other = start([PYTHON, "-c", script, mode], ready=False)
            value = other.stdout.readline().decode().strip()
            env = dict(os.environ, SONDE_HEAP=value, LD_PRELOAD=LIBRARY)
            child = start([program("allocations"), "ticks", "600"], ready=False, env=env)
            time.sleep(delay)
            other.kill()
            out, _ = child.communicate(timeout=30)
            check(child.returncode == 0 and b"right 1" in out, "status %s, %r" % (child.returncode, out))


@test
def a_stop_is_obeyed():
    with Collector("exact", clock=1, chunks=30000) as collector:
        child = start([program("allocations"), "ticks", "1500"], ready=False,
                      env=collector.environment(LIBRARY))
        while not collector.targets():
            time.sleep(0.005)
        target = only(collector)
        time.sleep(0.2)
        target.set("stop", 1)
        time.sleep(0.1)
        before = target.get("chunk_count"), target.ring(0)[-1]
        out, _ = child.communicate(timeout=30)
        check(child.returncode == 0, "status %s" % child.returncode)
        check((target.get("chunk_count"), target.ring(0)[-1]) == before, "it wrote on")


def runs_bare(env, words, command=None, **options):
    done = run(command or [program("allocations"), "entries"], env=env, **options)
    check(done.returncode == 0 and (b"free" in done.stdout or command), "%s: status %s\n%r" % (words, done.returncode, done.stderr))


@test
def without_a_collector_it_does_nothing():
    base = dict(os.environ, LD_PRELOAD=LIBRARY)
    runs_bare(base, "no word of a collector")
    good = "1:1:0:0:0:%s:sonde-nobody-here" % ("0" * 32)
    for value in ("", "x", "1:1:0", "9" * 4000, good.replace("1:1", "2:1", 1), good.replace("1:1", "1:7", 1), good,
                  good[:-18], good + "x" * 200, good.replace("0" * 32, "0" * 31), "-1:1:0:0:0:" + good[10:],
                  "1:1:99999999999999999999999999:" + good[6:]):
        runs_bare(dict(base, SONDE_HEAP=value), "SONDE_HEAP=%r" % value)


@test
def a_collector_that_does_not_answer_is_not_waited_for_long():
    with Collector("exact", answer=False) as collector:
        done = watched(collector, [program("allocations"), "entries"], timeout=30)
        expect(done, 0)
        same(only(collector), said(done))


@test
def sandboxes_run_on_unwatched():
    for mode in ("memfd", "socket", "kill"):
        with Collector("exact") as collector:
            # The program that makes the sandbox is watched, the one inside is not.
            path = program("allocations")
            done = watched(collector, [path, "sandbox", mode, path, "entries"])
            if done.returncode == 9:
                skip("seccomp filters cannot be made here")
            expect(done, 0)
            check(len(collector.targets()) == 1, "%d said hello" % len(collector.targets()))
            check(said(done), "it did nothing")


@test
def programs_that_forbid_themselves_system_calls_live_on():
    for how in ("prctl", "syscall"):
        for mode, rate in (("exact", 0), ("sampled", 4096)):
            with Collector(mode, rate) as collector:
                done = watched(collector, [program("allocations"), "alone", how])
                if done.returncode == 9:
                    skip("seccomp filters cannot be made here")
                expect(done, 0)
                check(len(said(done)) == 2, "it said %r" % done.stdout)
                target = only(collector)
                check(target.get("gave_up") == 2, "it goes on")
                sizes = [e.size for e in target.events() if e.type == "alloc"]
                check(300001 in sizes and 400001 not in sizes, "seen: %s" % sizes[-10:])


@test
def limits_that_programs_set_themselves_are_theirs():
    for who in ("itself", "child", "vfork", "threads"):
        bare = run([program("allocations"), "limit", who])
        expect(bare, 0)
        check(bare.stdout == b"large 1 0\nlimit 256\n", "bare: %r" % bare.stdout)
        for mode, rate in (("exact", 0), ("sampled", 4096)):
            with Collector(mode, rate) as collector:
                done = watched(collector, [program("allocations"), "limit", who])
                expect(done, 0)
                # With threads it is more by what is mapped for the collector.
                same_words = done.stdout == bare.stdout if who != "threads" else done.stdout.startswith(b"large 1 0\n")
                check(same_words, "%s: %r" % (who, done.stdout))
                left = [t.get("gave_up") for t in collector.targets()]
                check(left == [3 if who == "itself" else 0], "%s, %s: %s" % (who, mode, left))


@test
def limits_are_respected():
    def limit(what, value):
        return lambda: resource.setrlimit(what, (value, value))

    # Too little room: not watched, and nothing else happens (SIGXFSZ would end it).
    for what, value in ((resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_AS, 1 << 30)):
        with Collector("exact") as collector:
            done = watched(collector, [program("allocations"), "entries"], preexec_fn=limit(what, value))
            expect(done, 0)
            check(not collector.targets(), "it was watched")
    # A soft limit on file sizes is no reason, and stays.
    with Collector("exact") as collector:
        done = watched(collector, ["/bin/bash", "-c", "ulimit -Sf"],
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY)))
        expect(done, 0)
        check(collector.targets(), "it was not watched")
        check(done.stdout.strip() == b"1024", "the limit is %r" % done.stdout)


@test
def nothing_stays_open():
    command = ["/bin/ls", "/proc/self/fd"]
    bare = run(command).stdout
    with Collector("exact") as collector:
        done = watched(collector, command)
        expect(done, 0)
        check(len(done.stdout.split()) == len(bare.split()), "descriptors: %r, bare %r" % (done.stdout, bare))
        check(len(collector.targets()) == 1, "it was not watched")


@test
def locking_all_memory_makes_none():
    need_root()
    with Collector("exact") as collector:
        done = watched(collector, [program("allocations"), "lock"])
        if done.returncode == 8:
            skip("mlockall is not allowed here")
        expect(done, 0)
        check(len(collector.targets()) == 1, "it was not watched")
        pages = int(done.stdout.split()[1])
        check(pages * 4096 < 100 << 20, "%d pages are resident" % pages)


MUSL = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *run(void *a)
{
	for (int i = 0; i < 100; i++)
		free(malloc(1000 + i));
	return a;
}

int main(void)
{
	void *p = malloc(100001), *q = calloc(3, 5001), *r = aligned_alloc(64, 6400);
	pthread_t thread;

	p = realloc(p, 200001);
	pthread_create(&thread, 0, run, 0);
	pthread_join(thread, 0);
	free(p);
	free(q);
	free(r);
	return puts("done") < 0;
}
"""


@test
def musl_programs_are_seen():
    need("musl-gcc")
    with open(work("musl.c"), "w") as f:
        f.write(MUSL)
    built = run(["musl-gcc", "-O0", "-o", work("musl"), work("musl.c")])
    check(built.returncode == 0, built.stderr)
    with Collector("exact") as collector:
        done = watched(collector, [work("musl")])
        expect(done, 0)
        target = only(collector)
        sizes = collections.Counter(e.size for e in target.events() if e.type in ("alloc", "realloc_done"))
        for size in [100001, 15003, 6400, 200001] + list(range(1000, 1100)):
            check(sizes[size] == 1, "%d bytes were seen %d times" % (size, sizes[size]))
        check(not any(target.lost().values()), "lost: %s" % target.lost())


@test
def other_allocators_come_after_it():
    found = False
    for name in ("libjemalloc.so.2", "libtcmalloc.so.4", "libmimalloc.so.2"):
        path = "/usr/lib/x86_64-linux-gnu/" + name
        if not os.path.exists(path):
            print("not installed: %s" % name)
            continue
        found = True
        env = dict(os.environ, LD_PRELOAD=path)
        command = [PYTHON, "-c", "import json; print(len([bytes(i) for i in range(3000)]))"]
        bare = run(command, env=env)
        with Collector("exact", clock=1, chunks=30000) as collector:
            done = watched(collector, command, env=env)
            check((done.returncode, done.stdout) == (bare.returncode, bare.stdout), "%s: %s" % (name, done))
            target = only(collector)
            check(not any(target.lost().values()), "lost: %s" % target.lost())
            live = {}
            for event in target.ring(0):
                if event.type == "alloc":
                    check(event.address not in live, "%s: 0x%x is given out twice" % (name, event.address))
                    live[event.address] = event.size
                elif event.type in FREES + ("realloc",):
                    live.pop(event.address, None)
                elif event.type == "realloc_done" and event.address:
                    live[event.address] = event.size
    if not found:
        skip("no other allocator is installed")


@test
def the_environment_is_passed_on():
    with Collector("exact") as collector:
        done = watched(collector, [PYTHON, "-c", "import os; print(os.environ['LD_PRELOAD']); print(os.environ['SONDE_HEAP'])"],
                       env=dict(os.environ, LD_PRELOAD="libm.so.6"))
        expect(done, 0)
        check(done.stdout.decode().split() == [LIBRARY + ":libm.so.6", collector.value], "%r" % done.stdout)


@test
def programs_run_as_without_it():
    commands = [[PYTHON, "-c", "import json, re, ssl, threading, ctypes; print(sum(range(1000)))"],
                ["git", "--version"], ["git", "-C", ROOT, "log", "--oneline", "-20"],
                ["sqlite3", ":memory:", "create table t(a); insert into t values(1),(2); select sum(a) from t;"],
                ["nginx", "-v"], ["redis-server", "--version"],
                ["node", "-e", "console.log([...Array(1000).keys()].map(x => ({x})).length)"],
                ["clang", "-x", "c", "-", "-fsyntax-only"], ["bash", "-c", "for i in 1 2 3; do echo $(ls / | wc -l); done"],
                ["gdb", "--version"]]
    missing = []
    for command in commands:
        if not shutil.which(command[0]):
            missing.append(command[0])
            continue
        bare = run(command)
        idle = run(command, env=dict(os.environ, LD_PRELOAD=LIBRARY))
        check((idle.returncode, idle.stdout, idle.stderr) == (bare.returncode, bare.stdout, bare.stderr),
              "%s without a collector: %s\nbare: %s" % (command, idle, bare))
        for mode, rate in (("exact", 0), ("sampled", 65536)):
            with Collector(mode, rate, clock=1, chunks=30000) as collector:
                done = watched(collector, command)
                check((done.returncode, done.stdout, done.stderr) == (bare.returncode, bare.stdout, bare.stderr),
                      "%s, %s: %s\nbare: %s" % (command, mode, done, bare))
                check(collector.targets(), "%s was not watched" % command)
    if missing:
        print("not installed: %s" % ", ".join(missing))


main()
