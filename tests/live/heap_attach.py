#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap -p: the allocations of programs that run already."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


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


def shared_memory(pid):
    """Which one it has: that of a sonde that was killed may still be there."""
    found = re.search("rw-s [0-9a-f]+ [0-9a-f:]+ ([0-9]+) +/memfd:sonde-heap ", open("/proc/%d/maps" % pid).read())
    return found.group(1) if found else None


def wait_for_patches(pid, before):
    """Until the memory is shared and its descriptor is closed again."""
    for _ in range(400):
        fds = []
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                fds.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
            except OSError:
                pass
        if shared_memory(pid) not in (None, before) and not any("memfd:sonde" in fd for fd in fds):
            time.sleep(0.05)
            return
        time.sleep(0.02)
    check(False, "it was not attached to")


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


@test
def what_cannot_be_attached_to():
    static = start([program("taken", "static"), "nanosleep", "100"])
    expect(sonde("heap", "-p", static.pid, "-o", work("out.sonde"), "-d", "1"), 1, "static")
    check(not os.path.exists(work("out.sonde")), "an empty file is left")
    expect(sonde("heap", "-p", static.pid, "--", "true"), 2, "one of them")


main()
