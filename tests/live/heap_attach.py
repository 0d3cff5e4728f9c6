#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap -p: the allocations of programs that run already."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from attached import shared_memory, wait_for_patches
from taken import *


def leaker():
    """1000 blocks of 1000 bytes a step, of which every second one is kept; and nothing else is asked of the allocator."""
    path = work("leaker.c")
    with open(path, "w") as f:
        f.write("""#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) char *keeps(void) { return malloc(1000); }
__attribute__((noinline)) char *drops(void) { return malloc(500); }
int main(void)
{
	char word[16];
	write(1, "ready\\n", 6);
	while (read(0, word, 1) == 1) {
		for (int i = 0; i < 1000; i++) {
			char *kept = keeps(), *dropped = drops();
			kept[0] = dropped[0] = 1;
			free(dropped);
		}
		write(1, "done\\n", 5);
	}
	return 0;
}
""")
    out = work("leaker")
    subprocess.run(["gcc", "-O1", "-g", "-fno-optimize-sibling-calls", "-o", out, path], check=True)
    return start([out], stdin=subprocess.PIPE)


def step(child):
    child.stdin.write(b".")
    child.stdin.flush()
    check(child.stdout.readline() == b"done\n", "it does not go on")


def attached(child, *arguments):
    """A sonde that is attached; its recording is out.sonde."""
    before = shared_memory(child.pid)
    watcher = start([SONDE, "heap", "-p", str(child.pid), "-o", work("out.sonde")] + list(arguments), ready=False,
                    stderr=subprocess.PIPE)
    wait_for_patches(child.pid, before)
    return watcher


def end(watcher, how=signal.SIGINT):
    watcher.send_signal(how)
    words = watcher.communicate(timeout=30)[1].decode()
    check(watcher.returncode == 0, "status %s: %s" % (watcher.returncode, words))
    return words


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def site(heap, name):
    found = [s for s in heap["sites"] if s["name"] == name]
    check(found, "no site is called %s: %s" % (name, [s["name"] for s in heap["sites"]]))
    return {key: sum(s[key] for s in found) for key in ("live_bytes", "total_bytes", "total_count", "temporary_count")}


@test
def every_allocation_since_the_attach():
    child = leaker()
    step(child)
    for steps in (3, 2):
        watcher = attached(child, "--exact")
        for _ in range(steps):
            step(child)
        words = end(watcher)
        check("attached to" in words, words)
        step(child)
        heap = heap_of(work("out.sonde"))
        keeps, drops = site(heap, "keeps"), site(heap, "drops")
        check(keeps["live_bytes"] == keeps["total_bytes"] == steps * 1000 * 1000, "keeps: %s" % keeps)
        check(drops["live_bytes"] == 0 and drops["total_count"] == steps * 1000, "drops: %s" % drops)
    check(not shared_memory(child.pid), "its memory is shared still")
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def a_collector_that_is_killed():
    """The program goes on, and the next one takes its place."""
    child = leaker()
    for n in range(3):
        watcher = attached(child, "--exact")
        step(child)
        watcher.kill()
        watcher.wait()
        step(child)
    watcher = attached(child, "--exact")
    step(child)
    end(watcher)
    check(site(heap_of(work("out.sonde")), "keeps")["total_count"] == 1000, "not 1000")
    step(child)


def once(pid):
    """Attached to and left again, in order; what is mapped then."""
    done = sonde("heap", "--exact", "-p", pid, "-d", "0.05", "-o", work("out.sonde"))
    expect(done, 0, "attached to")
    left_clean(pid)
    return mappings(pid)[0], address_space(pid)


@test
def again_and_again():
    """The whole of it: each time everything is put back, and nothing adds up."""
    for arguments in (["malloc", 3], ["threads", 200], ["forks"], ["compute"]):
        child = start([program("taken")] + [str(a) for a in arguments])
        first = once(child.pid)
        check(not any("sonde-heap " in name for name in first[0]), "%s" % first[0])
        for _ in range(int(os.environ.get("SONDE_ATTACH_CYCLES", "5"))):
            last = once(child.pid)
            check(last[0] == first[0], "mapped first: %s, then: %s" % (first[0], last[0]))
        # A thread that had never allocated gets an arena of glibc's when it is the one that is diverted: 64 MB of addresses.
        lost = max(last[1] - first[1], 0) % (64 << 20)
        check(lost < 16 << 20, "%d MB of addresses are lost" % (lost >> 20))
        ends_well(child)


@test
def a_collector_that_is_killed_at_any_moment():
    """Before it does something, while it puts us in, while it records, while it takes us back."""
    kills, phases = int(os.environ.get("SONDE_ATTACH_KILLS", "12")), {}
    for arguments in (["malloc", 3], ["forks"], ["threads", 100], ["signals"]):
        child = start([program("taken")] + [str(a) for a in arguments])
        first = once(child.pid)
        for _ in range(kills):
            watcher = start([SONDE, "heap", "--exact", "-p", str(child.pid), "-d", "0.1", "-o", work("killed.sonde")],
                            ready=False, stderr=subprocess.DEVNULL)
            time.sleep(random.random() * 0.5)
            watcher.kill()
            phase = {0: "done", -9: "killed"}.get(watcher.wait(), "refused")
            phases[phase] = phases.get(phase, 0) + 1
            check(alive(child), "%s: it has ended with %s" % (arguments, child.returncode))
        time.sleep(0.3)
        last = once(child.pid)
        check(last[0] == first[0], "mapped first: %s, then: %s" % (first[0], last[0]))
        ends_well(child)
    print("   %s" % phases)
    check(phases.get("killed"), "none was killed before it was done")


@test
def two_at_once():
    child = leaker()
    watcher = attached(child)
    expect(sonde("heap", "-p", child.pid, "-o", work("other"), "-d", "1"), 1, "watched already")
    check(not os.path.exists(work("other")), "an empty file is left")
    end(watcher)


@test
def a_program_that_ends_meanwhile():
    child = leaker()
    watcher = attached(child, "--exact")
    step(child)
    child.stdin.close()
    child.wait()
    check(watcher.wait(timeout=30) == 0, "status %d" % watcher.returncode)
    check(site(heap_of(work("out.sonde")), "keeps")["total_count"] == 1000, "not 1000")


@test
def children_are_watched_as_well():
    """Each allocates one block of 10 000 bytes; the parent nothing."""
    child = start([program("taken"), "forks"])
    done = sonde("heap", "--exact", "-p", child.pid, "-d", "2", "-o", work("out.sonde"))
    expect(done, 0)
    heap = heap_of(work("out.sonde"))
    check(heap["total_count"] >= 3 and heap["total_bytes"] == 10000 * heap["total_count"] and not heap["live_bytes"],
          "%s" % {k: heap[k] for k in ("total_count", "total_bytes", "live_bytes")})
    child.send_signal(signal.SIGTERM)
    check(child.wait() == 0, "status %d: %s" % (child.returncode, child.stdout.read()))


@test
def another_user_in_other_namespaces():
    need_mount_namespace()
    need("setpriv")
    shutil.copy(program("taken"), "/dev/shm/taken-%d" % os.getpid())
    child = start(["unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c",
                   "mount -t tmpfs none /tmp && cd / && exec setpriv --reuid 65534 --regid 65534 --clear-groups "
                   "/dev/shm/taken-%d malloc 2" % os.getpid()])
    os.remove("/dev/shm/taken-%d" % os.getpid())
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout.split()[0])
    expect(sonde("heap", "--exact", "-p", pid, "-d", "0.5", "-o", work("out.sonde")), 0)
    heap = heap_of(work("out.sonde"))
    # Two threads keep up to 64 blocks each.
    check(heap["total_count"] > 1000 and 60 <= heap["live_count"] <= 128, "%d, %d live" % (heap["total_count"],
                                                                                      heap["live_count"]))
    os.kill(pid, signal.SIGTERM)
    out = child.stdout.read().decode()
    check(" 0 wrong" in out, out)


@test
def redis_under_load():
    need("redis-server")
    need("redis-benchmark")
    path = work("redis.sock")
    server = start(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", work()], ready=False,
                   stdout=subprocess.DEVNULL)
    while not os.path.exists(path):
        time.sleep(0.05)
    load = start(["redis-benchmark", "-s", path, "-n", "100000000", "-c", "20", "-t", "set", "-r", "100000", "-q"],
                 ready=False, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    done = sonde("heap", "-p", server.pid, "-d", "2", "-o", work("out.sonde"))
    expect(done, 0)
    print("   " + [l.strip() for l in done.stderr.decode().splitlines() if "attached" in l][0])
    check(alive(server) and alive(load), "it has ended")
    load.kill()
    check(run(["redis-cli", "-s", path, "ping"]).stdout == b"PONG\n", "it does not answer")


# Puts itself under a filter, which answers the system calls of a list, and becomes another program.
FILTERED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
action, numbers = int(sys.argv[1], 16), sys.argv[2].split(",")
line = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
# Of another architecture: killed, as Docker's does.
text = line(0x20, 0, 0, 4) + line(0x15, 1, 0, 0xc000003e) + line(0x06, 0, 0, 0x80000000) + line(0x20, 0, 0, 0)
others = 0x80000000 if action == 0x7fff0000 else 0x7fff0000
for n in numbers:
    text += line(0x15, 0, 1, int(n)) + line(0x06, 0, 0, action)
text += line(0x06, 0, 0, others)
buffer = ctypes.create_string_buffer(text, len(text))
program = struct.pack("Hxxxxxx" "Q", len(text) // 8, ctypes.addressof(buffer))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):
    print("none", flush=True)
    sys.exit(3)
os.execv(sys.argv[3], sys.argv[3:])
"""
REFUSES, KILLS, ALLOWS = 0x00050001, 0x80000000, 0x7fff0000
MEMFD_CREATE, RESTART_SYSCALL = 319, 219
UNUSED = [165, 166, 169, 175, 246, 321, 323]  # mount, umount2, reboot, init_module, kexec_load, bpf, userfaultfd
# What is judged: all that sonde may make the program do. Then what the program does itself: to start, write, sleep, begin and end
# threads and processes, handle signals.
OURS = [9, 10, 11, 12, 319, 77, 72, 302, 257, 0, 17, 5, 262, 3, 39, 186, 234, 14, 202, 228, 35, 219, 28, 157, 318, 144, 41, 42, 46]
ITS_OWN = [291, 59, 21, 158, 218, 273, 334, 1, 231, 60, 230, 56, 435, 61, 13, 15, 7, 8, 99, 204]


def filtered(action, numbers, *arguments):
    child = start([sys.executable, "-c", FILTERED, "%x" % action, ",".join(map(str, numbers)), program("taken")] +
                  list(arguments), ready=False)
    line = child.stdout.readline()
    if line == b"none\n":
        skip("seccomp filters cannot be made here")
    check(line == b"ready\n", "%r" % line)
    return child


@test
def programs_under_seccomp_filters():
    """What a filter allows is done; where it would be the end of the program, nothing is."""
    need_root()
    for arguments in (["malloc", "3"], ["threads", "50"], ["nanosleep", "100"], ["forks"]):
        child = filtered(REFUSES, UNUSED, *arguments)
        once(child.pid)
        once(child.pid)
        ends_well(child)
        # Only what is on the list is allowed: it is complete.
        child = filtered(ALLOWS, OURS + ITS_OWN, *arguments)
        once(child.pid)
        once(child.pid)
        ends_well(child)
        for action, number, words in ((KILLS, MEMFD_CREATE, "would end the process for memfd_create"),
                                      (REFUSES, MEMFD_CREATE, "refuses memfd_create"),
                                      (KILLS, RESTART_SYSCALL, "would end the process for restart_syscall")):
            child = filtered(action, [number], *arguments)
            expect(sonde("heap", "--exact", "-p", child.pid, "-o", work("refused.sonde"), "-d", "1"), 1, words, "nothing was changed")
            check(not mappings(child.pid)[0], "%s" % mappings(child.pid)[0])
            time.sleep(0.4)
            left_clean(child.pid)
            ends_well(child)


@test
def what_is_under_strict_seccomp():
    need_root()
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None)\n"
            "print('ready', flush=True)\nlibc.prctl(22, 1)\nwhile True: pass\n")
    child = start([sys.executable, "-c", code])
    time.sleep(0.3)
    expect(sonde("heap", "--exact", "-p", child.pid, "-o", work("refused.sonde"), "-d", "1"), 1, "strict seccomp")
    check(alive(child), "it has ended with %s" % child.returncode)


@test
def what_cannot_be_attached_to():
    static = start([program("taken", "static"), "nanosleep", "100"])
    expect(sonde("heap", "--exact", "-p", static.pid, "-o", work("out.sonde"), "-d", "1"), 1, "static")
    check(not os.path.exists(work("out.sonde")), "an empty file is left")
    expect(sonde("heap", "-p", static.pid, "--", "true"), 2, "one of them")


main()
