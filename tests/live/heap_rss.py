#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: pythons
"""sonde heap --rss: an account of resident memory that adds up, of a program that knows what it has."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

MB = 1 << 20


def account(pid, *options):
    done = sonde("heap", "--rss", "--json", *options, str(pid))
    expect(done, 0)
    return json.loads(done.stdout)


def rollup(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return int(next(line for line in f if line.startswith("Rss:")).split()[1]) << 10


def adds_up(got, pid, slack=0):
    """Its rows are RSS to the byte; and that is what the kernel says, but for what has changed since."""
    rows = sum(row["bytes"] for row in got["rows"])
    check(rows == got["rss_bytes"], "rows add up to %d, RSS is %d" % (rows, got["rss_bytes"]))
    check(sum(got["kinds"].values()) == got["rss_bytes"], "kinds do not add up")
    now = rollup(pid)
    check(abs(now - got["rss_bytes"]) <= slack, "%d resident, the kernel says %d" % (got["rss_bytes"], now))


def wait_for(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise Failure("what was waited for did not come")


def row(got, kind, name=None):
    return sum(r["bytes"] for r in got["rows"] if r["kind"] == kind and (name is None or r["name"] == name))


def resident(build="gcc-O2"):
    child = start([program("resident", build)])
    return child.pid


@test
def each_kind_of_memory_has_its_size():
    got = account(resident())
    adds_up(got, got["pid"])
    check(got["shrunk_bytes"] == 0, "pages came while it stood still")
    # Where the kernel has no names for memory it is nobody's.
    named = row(got, "anonymous", "known cache") or row(got, "anonymous", "")
    check(5 * MB <= named <= 5 * MB + 64 * 1024, "named memory: %d" % named)
    check(row(got, "shared", "/memfd:known") == 2 * MB, "shared memory: %d" % row(got, "shared"))
    zeroes = sum(r["bytes"] for r in got["rows"] if r["kind"] == "file_bss" and r["name"].endswith("/resident"))
    # Its first page may begin with variables that are in the file.
    check(3 * MB - 4096 <= zeroes <= 3 * MB + 8192, "zeroed variables: %d" % zeroes)


@test
def stacks_are_divided_at_where_threads_are():
    got = account(resident())
    stacks = {s["name"]: s for s in got["stacks"]}
    check(set(stacks) == {"resident", "first", "second"}, "stacks of %s" % sorted(stacks))
    for name in ("first", "second"):
        s = stacks[name]
        check(MB <= s["deeper_bytes"] <= MB + 65536, "%s: %d below" % (name, s["deeper_bytes"]))
        check(4096 <= s["used_bytes"] <= 32768, "%s: %d in use" % (name, s["used_bytes"]))
        check(s["size_bytes"] == 4 * MB, "%s: of %d" % (name, s["size_bytes"]))
    check(got["stacks_not_found"] == 0, "stacks were not found")
    check(row(got, "stack_deeper") == sum(s["deeper_bytes"] for s in got["stacks"]), "rows and stacks differ")


@test
def the_text_says_the_same():
    pid = resident()
    done = sonde("heap", "--rss", str(pid))
    expect(done, 0)
    for words in ("/memfd:known", "stacks of 3 threads", "all of it", "page tables"):
        check(words.encode() in done.stdout, "no '%s' in\n%s" % (words, done.stdout.decode()))


def other_builds(build):
    def body():
        got = account(resident(build))
        adds_up(got, got["pid"])
        check(row(got, "shared") == 2 * MB, "shared memory: %d" % row(got, "shared"))
        check({s["name"] for s in got["stacks"]} == {"resident", "first", "second"}, "stacks: %s" % got["stacks"])
    body.__name__ = "adds_up_built_" + build.replace("-", "_")
    test(body)


for build in ("static", "static-pie", "stripped", "musl-static", "musl-dynamic"):
    other_builds(build)


def other_c_library(suite):
    """How to start a program with the C library of another Debian suite, where tests of Python have unpacked that."""
    root = os.path.expanduser("~/.cache/sonde-tests/pythons/%s/root/usr/lib/x86_64-linux-gnu" % suite)
    loader = os.path.join(root, "ld-linux-x86-64.so.2")
    if not os.path.exists(loader):
        skip("the C library of %s is not here (tests/lib/pythons.py gets it)" % suite)
    return [loader, "--library-path", root]


def as_mallinfo(build, threads, suite=None):
    """A program that stands still: to the byte what its own allocator says."""
    def body():
        command = (other_c_library(suite) if suite else []) + [program("heap_known", build), str(threads)]
        child = start(command, ready=False)
        info = json.loads(child.stdout.readline())
        check(child.stdout.readline() == b"ready\n", "it is not ready")
        got = account(child.pid)
        adds_up(got, got["pid"])
        heap = got["glibc"]
        check(heap["arenas"] == threads + 1, "%d arenas" % heap["arenas"])
        check(heap["unseen_bytes"] == 0 and heap["walks"] == threads + 1, "it lost its way")
        for what, ours, theirs in (
                ("system", sum(a["system_bytes"] for a in heap["list"]), info["arena"]),
                ("used", heap["used_bytes"] + heap["cached_bytes"] + heap["own_bytes"], info["used"]),
                ("free", heap["free_bytes"] + heap["fast_bytes"] + heap["top_bytes"], info["free"]),
                ("fast", heap["fast_bytes"], info["fast"]), ("fast blocks", heap["fast_count"], info["fast_count"]),
                ("free blocks", heap["free_count"] + heap["top_count"], info["free_count"]),
                ("mapped", heap["mapped_bytes"], info["mapped"]),
                ("mapped blocks", heap["mapped_count"], info["mapped_count"]),
                ("main top", heap["list"][0]["top_bytes"], info["top"])):
            check(ours == theirs, "%s: %d, mallinfo2 says %d" % (what, ours, theirs))
        check(heap["thread_caches"] == threads + 1, "%d caches of threads" % heap["thread_caches"])
        check(heap["cached_count"] > 100 * (threads + 1), "%d blocks in caches" % heap["cached_count"])
        # Of two blocks one was never written to: not all of the heap is in memory, and no more than there is.
        inside = sum(got["kinds"]["heap_" + kind] for kind in ("used", "cached", "free", "top", "bookkeeping", "unseen"))
        check(0 < inside <= info["arena"] + 4096 * (threads + 1), "%d bytes of %d" % (inside, info["arena"]))
        check(got["kinds"]["heap_mapped"] >= 3 * 100000, "large blocks: %d" % got["kinds"]["heap_mapped"])
    body.__name__ = "as_mallinfo_%s_%d" % ((suite or build).replace("-", "_"), threads)
    test(body)


for build in ("gcc-O2", "static", "static-pie", "stripped"):
    as_mallinfo(build, 4)
as_mallinfo("gcc-O2", 0)
as_mallinfo("gcc-O2", 12)
as_mallinfo("gcc-O2", 4, "trixie")
as_mallinfo("gcc-O2", 4, "sid")


# Ends up waiting, and says what CPython's allocator says of itself before.
PYTHON = """
import sys, time
keep = [str(i) * 3 for i in range(200000)]
gone = [(i, i) for i in range(100000)]
del gone[10::11]
print("ready", flush=True)
sys.stderr.flush()
sys._debugmallocstats()
sys.stderr.flush()
time.sleep(1000)
"""


@test
def pools_of_python_are_as_python_says():
    told = work("told")
    with open(told, "w") as out:
        child = start(["python3", "-c", PYTHON], stderr=out)
    wait_for(lambda: "bytes in allocated blocks" in open(told).read() and "Total" in open(told).read())
    said = int(re.search(r"# bytes in allocated blocks += +([0-9,]+)", open(told).read()).group(1).replace(",", ""))
    got = account(main_python(child.pid))
    adds_up(got, got["pid"], 64 * 1024)
    used = next(r for r in got["rows"] if r["name"] == "Python objects")
    check(abs(used["size_bytes"] - said) <= said / 100, "%d in use, Python says %d" % (used["size_bytes"], said))


def main_python(pid):
    """Shims of pyenv become the interpreter by exec, or start it."""
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        children = f.read().split()
    return int(children[0]) if children else pid


def adds_up_of(name, command, owner=None, heap=True, ready=False):
    """Of a program that idles; what it runs besides may allocate a little between two looks."""
    def body():
        need(command[0])
        child = start(command, ready=ready, cwd=work(), stdin=subprocess.PIPE)
        time.sleep(0.2 if ready else 2)
        check(child.poll() is None, "%s has ended" % name)
        got = account(child.pid)
        adds_up(got, child.pid, 512 * 1024)
        check((got["glibc"] is not None) == heap, "glibc's heap: %s" % got["glibc"])
        if heap:
            check(got["glibc"]["unseen_bytes"] == 0, "%d bytes not walked" % got["glibc"]["unseen_bytes"])
            check(got["glibc"]["mapped_bytes"] == got["glibc"]["mapped_said_bytes"], "large blocks: %d, it says %d" %
                  (got["glibc"]["mapped_bytes"], got["glibc"]["mapped_said_bytes"]))
        if owner:
            check(row(got, "allocator", owner) > 100000, "%s: %s" % (owner, got["rows"]))
    body.__name__ = "adds_up_of_" + name
    test(body)


adds_up_of("redis", ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""], "jemalloc", heap=False)
adds_up_of("node", ["node", "-e", "setTimeout(() => {}, 100000)"], "V8 (JavaScript)")
adds_up_of("sqlite3", ["sqlite3", ":memory:"])
adds_up_of("busybox", ["busybox", "sleep", "1000"])
adds_up_of("perl", ["perl", "-e", "$| = 1; my %h = map { $_ => \"x$_\" } 1 .. 100000; print \"ready\\n\"; sleep 1000"],
           ready=True)


@test
def malloc_trim_gives_back_what_was_said():
    child = start([program("heap_known"), "3"], ready=False)
    child.stdout.readline()
    check(child.stdout.readline() == b"ready\n", "it is not ready")
    before = account(child.pid)
    os.kill(child.pid, signal.SIGUSR1)
    check(child.stdout.readline() == b"trimmed\n", "it does not answer")
    after = account(child.pid)
    adds_up(after, child.pid)
    said, came = before["glibc"]["trim_bytes"], before["rss_bytes"] - after["rss_bytes"]
    # It also merges the blocks of fastbins with their neighbours first, and so has some more.
    check(said > MB and said - 65536 <= came <= 2 * said, "said %d, %d came back" % (said, came))
    check(after["glibc"]["trim_bytes"] <= 65536, "%d are left" % after["glibc"]["trim_bytes"])


@test
def adds_up_of_nginx():
    need("nginx")
    with open(work("nginx.conf"), "w") as f:
        f.write("daemon off; master_process off; pid %s; error_log stderr; events {} http { access_log off; server { listen "
                "unix:%s; } }" % (work("pid"), work("socket")))
    child = start(["nginx", "-p", work(), "-c", work("nginx.conf")], ready=False)
    wait_for(lambda: os.path.exists(work("socket")))
    got = account(child.pid)
    adds_up(got, child.pid, 64 * 1024)
    check(got["glibc"]["used_bytes"] > 100000 and got["glibc"]["unseen_bytes"] == 0, "%s" % got["glibc"])


@test
def adds_up_of_postgres():
    need_root()
    need("setpriv")
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found or run(["id", "postgres"]).returncode:
        skip("PostgreSQL is not installed")
    folder = tempfile.mkdtemp(prefix="pg", dir="/tmp")
    try:
        shutil.chown(folder, "postgres")
        be = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        expect(run(be + [found[-1] + "/initdb", "-D", folder + "/data", "-N"], cwd=folder), 0)
        child = start(be + [found[-1] + "/postgres", "-D", folder + "/data", "-c", "listen_addresses=", "-c",
                            "unix_socket_directories=" + folder], ready=False, cwd=folder,
                      stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(folder + "/.s.PGSQL.5432"))
        time.sleep(0.5)
        got = account(child.pid)
        adds_up(got, child.pid, 64 * 1024)
        check(row(got, "shared") > MB and got["glibc"]["unseen_bytes"] == 0, "%s" % got["rows"])
        child.terminate()
        child.wait()
    finally:
        shutil.rmtree(folder)


@test
def a_program_that_allocates_all_the_time():
    """It is walked while its heaps change: the account adds up, and nearly all of the heap is seen."""
    child = start([program("heap_busy")])
    for _ in range(5):
        got = account(child.pid)
        adds_up(got, child.pid, 16 * MB)
        heap = got["glibc"]
        system = sum(a["system_bytes"] for a in heap["list"])
        check(heap["unseen_bytes"] <= system / 4, "%d of %d not seen" % (heap["unseen_bytes"], system))
        check(child.poll() is None, "it has ended")


@test
def a_kernel_thread_has_no_memory():
    if not os.path.exists("/proc/2") or open("/proc/2/cmdline").read():
        skip("no threads of the kernel are seen here")
    done = sonde("heap", "--rss", "2")
    expect(done, 1)
    check(b"no memory of its own" in done.stderr, done.stderr)


@test
def not_with_what_counts_objects():
    expect(sonde("heap", "--rss", "--census", str(os.getpid())), 2)
    expect(sonde("heap", "--rss", "--core", "x"), 2)


main()
