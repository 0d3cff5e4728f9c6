#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A library is put into running programs, and they notice nothing."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from taken import *

INJECTOR = os.path.join(os.path.dirname(SONDE), "tests", "unit", "inject_into")
# An hour of it: SONDE_INJECT_CYCLES=1000
CYCLES = int(os.environ.get("SONDE_INJECT_CYCLES", "300"))


def library(build="gcc-O2"):
    return program("injected", build)


def command(pid, rounds, *symbols, **options):
    if not os.path.exists(INJECTOR):
        skip("inject_into is not built")
    lib = options.pop("lib", None) or library()
    return [INJECTOR, str(pid), lib, str(rounds)] + list(symbols or ("count_call", "allocate"))


def inject(pid, rounds, *symbols, **options):
    """Its rounds, each as a dict."""
    done = run(command(pid, rounds, *symbols, **options), timeout=240)
    check(done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr.decode()))
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def check_counts(rounds, first=1):
    for n, got in enumerate(rounds):
        check(got["results"][:1] == [first + n], "round %d counted %s" % (n + 1, got["results"]))


def refused(pid, *words):
    done = run(command(pid, 1))
    check(done.returncode == 1, "status %d" % done.returncode)
    for word in words:
        check(word in done.stderr.decode(), "%r is not said: %s" % (word, done.stderr.decode()))


def goes_well(arguments, rounds=None, build="gcc-O2", **options):
    """The rounds of as many injections, into a program that checks itself."""
    child = start([program("taken", build)] + [str(a) for a in arguments], **options)
    got = inject(child.pid, rounds or CYCLES)
    check_counts(got)
    left_clean(child.pid)
    time.sleep(0.5)
    ends_well(child)
    print("   %s: %s" % (" ".join(map(str, arguments)), times(got)))
    return got


def times(rounds):
    longest = sorted(r["longest_ns"] / 1000 for r in rounds)
    last = sorted(r["last_ns"] / 1000 for r in rounds)
    return "stops of %d us in the middle, %d us at most; %d of %d taken while computing; %.1f stops a round" % (
        last[len(last) // 2], longest[-1], sum(r["ran"] for r in rounds), len(rounds),
        sum(r["stops"] for r in rounds) / float(len(rounds)))


@test
def a_program_that_allocates_all_the_time():
    goes_well(["malloc", 4])


@test
def a_thread_that_only_computes():
    got = goes_well(["compute"])
    check(all(r["ran"] for r in got), "it was taken out of a call")


@test
def two_hundred_threads():
    goes_well(["threads", 200])


@test
def a_program_that_forks_all_the_time():
    goes_well(["forks"])


@test
def time_limits_end_when_they_should():
    for call in ("epoll", "nanosleep", "clock_nanosleep", "futex", "poll", "select", "ppoll"):
        # A stop lasts a little longer than the stopper sees: select() has that many times too much.
        goes_well([call, 300], min(CYCLES, 30))


@test
def reading_a_pipe():
    goes_well(["pipe", 20], min(CYCLES, 100))


@test
def every_signal_arrives():
    goes_well(["signals"])


@test
def musl():
    goes_well(["malloc", 3], min(CYCLES, 50), build="musl-dynamic")


@contextlib.contextmanager
def redis():
    need("redis-server")
    need("redis-benchmark")
    socket = work("redis.sock")
    server = start(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", work()],
                   ready=False, stdout=subprocess.DEVNULL)
    for _ in range(100):
        if os.path.exists(socket):
            break
        time.sleep(0.05)
    yield server, socket


@test
def redis_under_load():
    with redis() as (server, socket):
        load = start(["redis-benchmark", "-s", socket, "-n", "100000000", "-c", "20", "-t", "set,get,lpush", "-r", "1000",
                      "-q"], ready=False, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        got = inject(server.pid, CYCLES)
        check_counts(got)
        left_clean(server.pid)
        check(alive(server) and alive(load), "it has ended")
        load.kill()
        said = run(["redis-cli", "-s", socket, "ping"]).stdout
        check(said == b"PONG\n", "%r" % said)
        print("   redis: %s" % times(got))


@test
def an_interpreter():
    code = ("import sys, time, json, threading\n"
            "def work():\n"
            "  n = 0\n"
            "  while True:\n"
            "    d = {str(i): [i] * 10 for i in range(200)}\n"
            "    assert json.loads(json.dumps(d)) == d\n"
            "    n += 1\n"
            "    if n % 10 == 0: time.sleep(0.005)\n"
            "for i in range(3): threading.Thread(target=work, daemon=True).start()\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
            "assert all(t.is_alive() for t in threading.enumerate())\n"
            "print('good', flush=True)\n")
    child = start([sys.executable, "-c", code], stdin=subprocess.PIPE)
    got = inject(child.pid, CYCLES)
    check_counts(got)
    left_clean(child.pid)
    child.stdin.close()
    check(child.stdout.read() == b"good\n", "it is not what it was")
    print("   python: %s" % times(got))


@test
def another_user_and_other_mounts():
    """The program sees neither the library's file nor our /tmp, and may not read what is ours."""
    need_mount_namespace()
    need("setpriv")
    inside = work("root")
    os.mkdir(inside)
    shutil.copy(program("taken"), work("taken"))
    os.chmod(work("taken"), 0o755)
    os.chmod(work(), 0o755)
    child = start(["unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c",
                   "cp %s /dev/shm/taken-%d && mount -t tmpfs none /tmp && cd / && "
                   "exec setpriv --reuid 65534 --regid 65534 --clear-groups /dev/shm/taken-%d malloc 2"
                   % (work("taken"), os.getpid(), os.getpid())])
    os.remove("/dev/shm/taken-%d" % os.getpid())
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout.split()[0])
    check(os.stat("/proc/%d" % pid).st_uid == 65534, "it is not another user's")
    got = inject(pid, min(CYCLES, 50), lib=library())
    check_counts(got)
    left_clean(pid)
    os.kill(pid, signal.SIGTERM)
    out = child.stdout.read().decode()
    check(" 0 wrong" in out, out)


def kill_at_random(pid, times_to, spread):
    """Injectors that are killed; how many died while they had a thread diverted, as far as one can tell."""
    finished = 0
    for n in range(times_to):
        child = subprocess.Popen(command(pid, 3), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        child.stdout.readline()
        time.sleep(random.random() * spread)
        child.kill()
        finished += child.wait() == 0
        child.stdout.close()
    return finished


@test
def an_injector_that_is_killed():
    """At any instruction: the program goes on, right, and the next one finds it as it was."""
    for arguments in (["malloc", 3], ["nanosleep", 50], ["compute"], ["signals"]):
        child = start([program("taken")] + [str(a) for a in arguments])
        inject(child.pid, 1)
        # A round is opened, and has two diversions within a few ms.
        finished = kill_at_random(child.pid, int(os.environ.get("SONDE_INJECT_KILLS", "50")), 0.03)
        check(alive(child), "%s: it has ended with %s" % (arguments, child.returncode))
        time.sleep(0.2)
        left_clean(child.pid)
        inject(child.pid, 2)
        leaked = [line for line in open("/proc/%d/maps" % child.pid) if "sonde" in line]
        check(len(leaked) == 5, "mapped: %s" % leaked)
        ends_well(child)
        print("   %s: %d were done before they were killed" % (" ".join(map(str, arguments)), finished))


@test
def what_is_refused():
    static = start([program("taken", "static"), "nanosleep", "100"])
    refused(static.pid, "static")
    check(alive(static), "it has ended")
    stopped = start([program("taken"), "nanosleep", "100"])
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    refused(stopped.pid, "kill -CONT")
    stopped.send_signal(signal.SIGCONT)
    refused(2 ** 22 - 1, "no process")


@test
def what_crashes_is_taken_back():
    child = start([program("taken"), "compute"])
    done = run(command(child.pid, 1, "crash"))
    check(done.returncode == 1 and "SEGV" in done.stderr.decode(), "%s" % done)
    check_counts(inject(child.pid, 3))
    time.sleep(0.3)
    ends_well(child)


# ---- the library that watches allocations ----

HEAP = os.path.join(os.path.dirname(SONDE), "src", "heap", "preload", "libsonde-heap.so")
WISH = "sonde_heap_share=1:%s:0:0123456789abcdef0123456789abcdef:sonde-nobody"
EXACT, SAMPLED = WISH % "1:0:0", WISH % "2:0:4096"


def heap(pid, *symbols):
    if not os.path.exists(HEAP):
        skip("libsonde-heap.so is not built")
    return inject(pid, 1, *symbols, lib=HEAP)[0]["results"]


def attach(pid, wish=EXACT):
    """The shared memory, and the words and objects that were patched."""
    fd = heap(pid, wish)[0]
    check(fd > 0, "no memory is shared: %d" % fd)
    shared = open("/proc/%d/fd/%d" % (pid, fd), "rb", 0)
    counts = heap(pid, "sonde_heap_attach")[0]
    check(counts > 0, "nothing is patched: %d" % counts)
    return shared, counts & 0xffffffff, counts >> 32


def rings_and_chunks(shared):
    header = os.pread(shared.fileno(), 256, 0)
    check(header[:8] == b"SONDSHM\n", "%r" % header[:8])
    return struct.unpack_from("<II", header, 64)


@test
def calls_of_running_programs_are_written_down():
    child = start([program("taken"), "malloc", "3"])
    shared, slots, objects = attach(child.pid)
    check(slots >= 5 and objects == 2, "%d words of %d objects" % (slots, objects))
    time.sleep(0.5)
    check(heap(child.pid, "sonde_heap_detach") == [0], "it is not put back")
    rings, chunks = rings_and_chunks(shared)
    check(rings == 3 and chunks >= 30, "%d rings, %d chunks" % (rings, chunks))
    time.sleep(0.3)
    check(rings_and_chunks(shared) == (rings, chunks), "it still writes")
    shared.close()
    left_clean(child.pid)
    ends_well(child)


@test
def what_is_loaded_later_is_patched_as_well():
    """By a path, and by a name, which is seen when the library is used."""
    shutil.copy(program("plugin"), work("libplugin-by-name.so"))
    shutil.copy(program("injected"), work("by-path.so"))
    code = ("import ctypes, sys\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "lib = ctypes.CDLL(%r)\n"
            "print('loaded', flush=True)\n"
            "sys.stdin.readline()\n"
            "for i in range(1000): lib.allocate(b'', 0)\n"
            "print('done', flush=True)\n"
            "sys.stdin.readline()\n" % work("by-path.so"))
    child = start([sys.executable, "-c", code], stdin=subprocess.PIPE)

    def step(word):
        child.stdin.write(b"\n")
        child.stdin.flush()
        check(child.stdout.readline() == word, "it is not %r" % word)

    shared, _, _ = attach(child.pid)
    step(b"loaded\n")
    before = rings_and_chunks(shared)[1]
    step(b"done\n")
    # 64 blocks a call: 40 bytes an event with its free, 64 000 of them are more than 2 MB.
    after = rings_and_chunks(shared)[1]
    check(after - before >= 80, "%d chunks, and then %d" % (before, after))
    check(heap(child.pid, "sonde_heap_detach") == [0], "it is not put back")
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


def comes_and_goes(pid, rounds):
    got = inject(pid, rounds, EXACT, "sonde_heap_attach", "sonde_heap_detach", SAMPLED, "sonde_heap_attach",
                 "sonde_heap_detach", lib=HEAP)
    for n, r in enumerate(got):
        check(r["results"][0] > 0 and r["results"][1] > 0 and r["results"][2] == 0 and r["results"][3] > 0,
              "round %d: %s" % (n + 1, r["results"]))
    left_clean(pid)
    return got


@test
def attaching_and_detaching_again_and_again():
    for arguments in (["malloc", 4], ["threads", 200], ["forks"]):
        child = start([program("taken")] + [str(a) for a in arguments])
        got = comes_and_goes(child.pid, CYCLES)
        time.sleep(0.3)
        ends_well(child)
        print("   %s: %s" % (" ".join(map(str, arguments)), times(got)))


@test
def attaching_to_redis_under_load():
    with redis() as (server, socket):
        load = start(["redis-benchmark", "-s", socket, "-n", "100000000", "-c", "20", "-t", "set,get,lpush", "-r", "1000",
                      "-q"], ready=False, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        got = comes_and_goes(server.pid, CYCLES)
        check(alive(server) and alive(load), "it has ended")
        load.kill()
        check(run(["redis-cli", "-s", socket, "ping"]).stdout == b"PONG\n", "it does not answer")
        print("   redis: %s" % times(got))


@test
def one_that_was_started_with_the_preload_is_not_attached_to():
    child = start([program("taken"), "malloc", "2"], env=dict(os.environ, LD_PRELOAD=HEAP))
    check(heap(child.pid, EXACT) == [-16], "it was attached to")
    ends_well(child)


@test
def a_sleeping_program():
    """Every call that a program can wait in, over and over: none returns EINTR."""
    child = start([program("eintr")], stdin=subprocess.PIPE)
    rounds = inject(child.pid, 50)
    check_counts(rounds)
    left_clean(child.pid)
    child.stdin.close()
    out = child.stdout.read().decode()
    check(child.wait() == 0, out)


main()
