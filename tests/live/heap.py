#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap -- CMD: programs whose allocations are known, and programs that must not notice."""
import collections
import glob
import hashlib
import os
import random
import shutil
import signal
import stat
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

NUMBERS = ("total_count", "total_bytes", "live_count", "live_bytes", "temporary_count", "cross_thread_frees")


def truth(text):
    """What heap_truth says of its sites, by function; children add theirs."""
    sites = {}
    for line in text.decode().splitlines():
        words = line.split()
        if words and words[0] == "truth":
            sites[words[1]] = dict(zip(NUMBERS, map(int, words[2:])))
    return sites


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def by_name(heap):
    """The numbers of a report, added up by the name of the site."""
    sites = collections.defaultdict(collections.Counter)
    for site in heap["sites"]:
        name = site["name"].split(".")[0]
        for key, value in site.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                sites[name][key] += value
    return sites


def known(arguments, *options, **others):
    path = work("out.sonde")
    done = sonde("heap", *options, "-o", path, "--", program("heap_truth", **others), *arguments)
    expect(done, 0)
    return truth(done.stdout), heap_of(path), done


def compare(expected, heap):
    got = by_name(heap)
    for name, numbers in expected.items():
        check(name in got, "no site %s: %s" % (name, sorted(got)))
        for key, value in numbers.items():
            site = got[name]
            have = site["leaked_count"] if key == "live_count" else site[key]
            check(have == value, "%s of %s is %s, not %d: %s" % (key, name, have, value, dict(site)))


def exactly(what, times=1000, **others):
    expected, heap, done = known([what, str(times)], "--exact", **others)
    check(expected, "the program said nothing")
    compare(expected, heap)
    check("not written down" not in done.stderr.decode(), done.stderr.decode())
    return heap


@test
def leaks():
    heap = exactly("leaks")
    sites = by_name(heap)
    check(sites["leak_small"]["leaked_bytes"] == sites["leak_small"]["live_bytes"], str(dict(sites["leak_small"])))


@test
def temporaries():
    exactly("temporaries", 20000)


@test
def one_thread_allocates_and_another_frees():
    exactly("hand_over", 5000)


@test
def the_peak_is_that_of_the_moment():
    heap = exactly("peak", 2000)
    sites = by_name(heap)
    held = 2000 * (4096 + 8)
    check(sites["hold"]["peak_bytes"] == held, "hold had %s at the peak" % sites["hold"]["peak_bytes"])
    check(sites["after"]["peak_bytes"] == 0, "after had %s at the peak" % sites["after"]["peak_bytes"])
    check(held <= heap["peak_bytes"] < held + 100000, "the peak is %s" % heap["peak_bytes"])


@test
def realloc_chains():
    exactly("chains", 3000)


@test
def threads_that_come_and_go():
    exactly("threads", 2000)


@test
def children_of_fork():
    exactly("fork")


@test
def children_that_become_another_program():
    exactly("exec")


@test
def without_frame_pointers_and_with():
    for build in ("gcc-O0", "gcc-O2-fp", "no-pie", "clang-O2"):
        exactly("leaks", build=build)


@test
def programs_with_address_sanitizer_run():
    with open(work("x.c"), "w") as f:
        f.write("#include <stdlib.h>\n#include <stdio.h>\nint main(void) { char *volatile p = malloc(12345); "
                "puts(getenv(\"ASAN_OPTIONS\")); free(p); return 0; }\n")
    if run(["gcc", "-fsanitize=address", "-o", work("x"), work("x.c")]).returncode:
        skip("gcc has no AddressSanitizer here")
    done = sonde("heap", "--exact", "-o", work("x.sonde"), "--", work("x"), env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
    check(done.returncode == 0 and done.stdout == b"verify_asan_link_order=0:detect_leaks=0\n", "%s" % done)


@test
def the_process_of_the_command_alone():
    expected, heap, _ = known(["fork", "500"], "--exact", "--no-children")
    sites = by_name(heap)
    check("in_child" not in sites, "the child was watched")
    check(sites["before_fork"]["total_count"] == 500, str(dict(sites["before_fork"])))


@test
def samples_tell_what_they_can():
    """Of 20 MB one byte in 16 K: the relative standard deviation is 3 %, and 12 % are four of them."""
    expected, heap, _ = known(["temporaries", "100000"], "--sample", "16K")
    sites = by_name(heap)
    for name in ("churn", "overlap"):
        got, want = sites[name]["total_bytes"], expected[name]["total_bytes"]
        check(abs(got - want) < 0.12 * want, "%s allocated %d, not about %d" % (name, got, want))
    check(abs(sites["churn"]["temporary_count"] - 100000) < 12000, str(dict(sites["churn"])))


@test
def intervals_cover_the_truth():
    """19 of 20 times; fewer than 15 of 20 come about once in 3000 times."""
    covered = collections.Counter()
    for _ in range(20):
        expected, heap, _ = known(["leaks", "4000"], "--sample", "32K")
        sites = {site["name"].split(".")[0]: site for site in heap["sites"]}
        for name, numbers in expected.items():
            low, high = sites[name]["ci95"] if name in sites else (0, 0)
            covered[name] += low <= numbers["live_bytes"] <= high
    for name, count in covered.items():
        check(count >= 15, "%s: %d of 20 intervals have the truth" % (name, count))


@test
def the_rate_follows_the_wish():
    done = sonde("heap", "--overhead", "1", "-o", work("x"), "--", program("heap_truth"), "temporaries", "20000000")
    expect(done, 0, "at first", "at the end")
    expected = truth(done.stdout)
    sites = by_name(heap_of(work("x")))
    for name in ("churn", "overlap"):
        got, want = sites[name]["total_bytes"], expected[name]["total_bytes"]
        check(abs(got - want) < 0.25 * want, "%s allocated %d, not about %d" % (name, got, want))
    for wrong in (["--overhead", "0"], ["--error", "x"], ["--overhead", "1", "--exact"], ["--sample", "0"],
                  ["--sample", "1K", "--error", "1"]):
        expect(sonde("heap", *wrong, "--", "true"), 2)


@test
def cpu_time_between_calls():
    """Two loops of malloc and free, and next to nothing else: all of the CPU time is in the samples."""
    path = work("out.sonde")
    script = ("import os, sys; os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:]);"
              "import resource; r = resource.getrusage(resource.RUSAGE_CHILDREN); print(r.ru_utime + r.ru_stime)")
    done = sonde("heap", "--every", "1000", "--time", "-o", path, "--", sys.executable, "-c", script,
                 program("heap_truth"), "temporaries", "10000000", timeout=120)
    expect(done, 0, "of CPU time in")
    used = float(done.stdout.decode().split()[-1])
    got = Recording(path)
    seconds = got.json["cpu_ns"] / 1e9
    check(0.75 * used < seconds < 1.1 * used, "%.2f s of CPU time, and %.2f s in samples" % (used, seconds))
    both = got.share("churn") + got.share("overlap")
    check(both > 95, "churn and overlap have %.1f %%" % both)
    expect(sonde("heap", "--time", "--exact", "--", "true"), 2, "--time goes with --every")


@test
def output_and_status_are_those_of_the_command():
    path = work("out.sonde")
    done = sonde("heap", "-o", path, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    expect(done, 7, "err\n")
    check(done.stdout == b"out\n", repr(done.stdout))
    done = sonde("heap", "-q", "-o", path, "--", "sh", "-c", "kill -SEGV $$")
    check(done.returncode == 128 + signal.SIGSEGV, "status %d" % done.returncode)
    check(not done.stderr, "-q says %r" % done.stderr)


@test
def what_cannot_be_seen_is_said_before_it_starts():
    done = sonde("heap", "--exact", "-o", work("x"), "--", program("heap_truth", "static"), "leaks")
    expect(done, 1, "statically linked")
    check(not done.stdout and not os.path.exists(work("x")), "it was started")
    setuid = work("setuid")
    shutil.copy("/bin/true", setuid)
    need_root()
    os.chown(setuid, 65534, 65534)
    os.chmod(setuid, stat.S_ISUID | 0o755)
    expect(sonde("heap", "-o", work("x"), "--", setuid), 1, "setuid")


@test
def children_that_cannot_be_seen_are_told():
    path = work("out.sonde")
    done = sonde("heap", "-o", path, "--", "sh", "-c",
                 program("heap_truth", "static") + " loop 1000000 & sleep 2.5; kill $!; wait", timeout=60)
    check("1 process could not be seen" in done.stderr.decode(), done.stderr.decode())
    words = [p.get("uncovered", "") for p in heap_of(path)["processes"]]
    check(any("statically linked" in w for w in words), str(words))


@test
def an_allocator_in_the_program_is_told():
    source = work("own.c")
    with open(source, "w") as f:
        f.write("#include <stdlib.h>\nstatic char pool[1 << 20]; static size_t at;\n"
                "void *malloc(size_t n) { void *p = pool + at; at += (n + 15) & ~15ul; return p; }\n"
                "void free(void *p) { (void)p; }\n"
                "int main(void) { volatile char *p = malloc(100); p[0] = 3; return p[0]; }\n")
    check(run(["gcc", "-fno-builtin", "-o", work("own"), source]).returncode == 0, "no compiler")
    path = work("out.sonde")
    expect(sonde("heap", "--exact", "-o", path, "--", work("own")), 3, "an allocator of its own")
    check("allocator of its own" in heap_of(path)["processes"][0].get("uncovered", ""), "the recording does not say so")


@test
def what_is_started_later_finds_the_library():
    """A program of the background that starts another one when we have ended."""
    out = open(work("words"), "w+b")
    done = run([SONDE, "heap", "-o", work("out.sonde"), "--", "sh", "-c",
                '(sleep 1; echo "$LD_PRELOAD"; /bin/true; echo done) >%s 2>&1 &' % work("words")])
    expect(done, 0, "stays")
    end = time.monotonic() + 20
    words = b""
    while b"done" not in words and time.monotonic() < end:
        time.sleep(0.1)
        out.seek(0)
        words = out.read()
    lines = words.decode().splitlines()
    check(len(lines) == 2 and lines[1] == "done", repr(words))
    out.close()
    shutil.rmtree(os.path.dirname(lines[0]))


@test
def preloads_of_the_user_stay():
    done = sonde("heap", "-q", "-o", work("x"), "--", "sh", "-c", 'echo "$LD_PRELOAD"',
                 env=dict(os.environ, LD_PRELOAD="libm.so.6"))
    expect(done, 0)
    first, _, rest = done.stdout.decode().strip().partition(":")
    check(rest == "libm.so.6", repr(done.stdout))
    check(not os.path.exists(first) and not os.path.exists(os.path.dirname(first)), "%s was left behind" % first)


@test
def signals_end_the_recording_and_not_the_command():
    path = work("out.sonde")
    for number in (signal.SIGINT, signal.SIGTERM):
        child = start([SONDE, "heap", "--exact", "-o", path, "--", program("heap_truth"), "loop", "1000000"],
                      stderr=subprocess.PIPE)
        time.sleep(0.3)
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        # Sent to us alone it is passed on, and ends the command.
        check(child.returncode == 128 + number, "status %d: %s" % (child.returncode, err))
        check(heap_of(path)["total_count"] > 1000, "nothing was recorded")


@test
def a_command_that_goes_on_after_the_recording():
    path = work("out.sonde")
    done = sonde("heap", "--exact", "-d", "300ms", "-o", path, "--", program("heap_truth"), "loop", "2000",
                 timeout=120)
    expect(done, 0)
    check(done.stdout == b"ready\ndone\n", repr(done.stdout))
    check(heap_of(path)["total_count"] > 1000, "nothing was recorded")


@test
def programs_outlive_the_collector():
    """kill -9 at any moment: the command ends with the right words."""
    chance = random.Random(5)
    for _ in range(20):
        out = open(work("words"), "w+b")
        child = start([SONDE, "heap", "--exact", "-q", "-o", work("out.sonde"), "--", program("heap_truth"), "loop",
                       "40"], ready=False, stdout=out)
        time.sleep(chance.random() * 0.4)
        child.kill()
        child.wait()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            out.seek(0)
            words = out.read()
            if words == b"ready\ndone\n" or not words and not processes_of("heap_truth"):
                break
            time.sleep(0.02)
        check(words in (b"ready\ndone\n", b""), "after kill -9: %r" % words)
        out.close()
    for left in glob.glob("/tmp/sonde-heap-*"):
        shutil.rmtree(left, ignore_errors=True)


def processes_of(name):
    found = []
    for comm in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(comm) as f:
                found += [comm] if f.read().strip() == name else []
        except OSError:
            pass
    return found


GONE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void *node_alloc(size_t size) { return malloc(size + 1); }
__attribute__((noinline)) static void leave_something(void) { void *volatile p = node_alloc(999); (void)p; }

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "daemon")) {
		if (fork())
			_exit(0);
		setsid();
		if (fork())
			_exit(0);
		sleep(2); /* longer than sonde takes to end */
		for (int i = 0; i < 100; i++)
			leave_something();
		return 0;
	}
	for (int i = 0; i < 300; i++) {
		if (!fork()) {
			leave_something();
			_exit(0);
		}
		if (i % 8 == 7)
			while (wait(NULL) > 0)
				;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
"""


def gone():
    path = work("gone")
    with open(path + ".c", "w") as f:
        f.write(GONE)
    expect(run(["gcc", "-O1", "-g", "-o", path, path + ".c"]), 0)
    return path


def left_by(command, *options):
    done = sonde("heap", "--exact", *options, "-o", work("out.sonde"), "--", *command)
    expect(done, 0)
    heap = heap_of(work("out.sonde"))
    # node_alloc hands on what it allocates: it is leave_something that wants it.
    return heap, done.stderr.decode(), by_name(heap)["leave_something"]


@test
def children_that_are_gone_at_once():
    need("gcc")
    heap, words, site = left_by([gone()])
    check(site["total_count"] == 300 and site["leaked_bytes"] == 300000, "%s\n%s" % (dict(site), words))
    check("not written down" not in words, words)


@test
def daemons_are_told_and_waited_for():
    need("gcc")
    path = gone()
    _, words, site = left_by([path, "daemon"])
    check(not site["total_count"] and "--daemons" in words, words)
    _, words, site = left_by([path, "daemon"], "--daemons")
    check(site["total_count"] == 100 and "--daemons" not in words, "%s\n%s" % (dict(site), words))
    time.sleep(0.5)


# ---- programs that must not notice ----

def same(command, words=None, **options):
    """The same output and status as without us."""
    need(command[0])
    bare = run(command, **options)
    path = work("out.sonde")
    for precision in (["--exact"], ["--sample", "64K"]):
        done = run([SONDE, "heap", "-q"] + precision + ["-o", path, "--"] + command, **options)
        check(done.returncode == bare.returncode, "status %d, not %d: %s" % (done.returncode, bare.returncode,
                                                                         done.stderr.decode(errors="replace")))
        check(done.stdout == bare.stdout, "%s says something else:\n%r\n%r" % (command[0], done.stdout[:400],
                                                                           bare.stdout[:400]))
        check(done.stderr == bare.stderr, "stderr of %s: %r" % (command[0], done.stderr))
        check(heap_of(path)["total_count"] > 0, "nothing was seen of %s" % command[0])


@test
def python_runs_as_before():
    same([sys.executable, "-c", "import json, threading, subprocess, decimal\n"
          "print(len(json.dumps(list(range(100000)))))\n"
          "print(subprocess.run(['sh', '-c', 'echo child'], capture_output=True).stdout)\n"
          "t = [threading.Thread(target=lambda: [bytearray(i) for i in range(2000)]) for _ in range(4)]\n"
          "[x.start() for x in t]; [x.join() for x in t]; print(decimal.Decimal(2).sqrt())"])


@test
def git_runs_as_before():
    need("git")
    tree = work("tree")
    env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME=work(), GIT_AUTHOR_DATE="1700000000 +0000",
               GIT_COMMITTER_DATE="1700000000 +0000", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b",
               GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b")
    run(["git", "init", "-q", tree], env=env)
    for i in range(30):
        with open(os.path.join(tree, "file%d" % (i % 5)), "w") as f:
            f.write("line %d\n" * 50 % tuple(range(i, i + 50)))
        run(["git", "-C", tree, "add", "."], env=env)
        run(["git", "-C", tree, "commit", "-qm", "change %d" % i], env=env)
    same(["git", "-C", tree, "log", "-p", "--stat"], env=env)
    same(["git", "-C", tree, "blame", "file0"], env=env)
    same(["git", "-C", tree, "fsck", "--no-progress"], env=env)


@test
def sqlite_runs_as_before():
    same(["sqlite3", ":memory:", "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n "
          "where i < 20000) insert into t select i, hex(i * 7919) from n; create index x on t(b); "
          "select count(*), min(b), max(b), sum(length(b)) from t where b > '4'; select b from t order by b limit 50;"])


@test
def node_runs_as_before():
    same(["node", "-e", "let a = []; for (let i = 0; i < 1e5; i++) a.push({i: i, s: 'x' + i});"
          "console.log(a.filter(o => o.i % 7 == 0).map(o => o.s.length).reduce((x, y) => x + y));"
          "require('zlib').gzip(Buffer.alloc(1e6), (e, b) => console.log(b.length))"], timeout=120)


@test
def clang_runs_as_before():
    need("clang")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "heap_truth.c")
    out = []
    for path, prefix in ((work("bare.o"), []), (work("seen.o"), [SONDE, "heap", "-q", "-o", work("out.sonde"), "--"])):
        done = run(prefix + ["clang", "-O2", "-D_GNU_SOURCE", "-c", "-o", path, source], timeout=120)
        expect(done, 0)
        with open(path, "rb") as f:
            out.append(hashlib.sha256(f.read()).hexdigest())
    check(out[0] == out[1], "clang makes something else")
    check(heap_of(work("out.sonde"))["total_count"] > 1000, "nothing was seen of clang")


@test
def redis_serves_as_before():
    for name in ("redis-server", "redis-benchmark", "redis-cli"):
        need(name)
    path, port = work("out.sonde"), str(20000 + os.getpid() % 20000)
    child = start([SONDE, "heap", "-o", path, "--", "redis-server", "--port", port, "--save", "", "--dir", work()],
                  ready=False, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    ask = ["redis-cli", "-p", port]
    end = time.monotonic() + 20
    while run(ask + ["ping"]).stdout != b"PONG\n" and time.monotonic() < end:
        time.sleep(0.1)
    done = run(["redis-benchmark", "-p", port, "-q", "-n", "20000", "-d", "100", "-r", "10000", "-t", "set,get,lpush"],
               timeout=120)
    expect(done, 0)
    keys = int(run(ask + ["dbsize"]).stdout)
    check(keys > 1000, "%d keys" % keys)
    run(ask + ["shutdown", "nosave"])
    _, err = child.communicate(timeout=60)
    check(child.returncode == 0, "status %d: %s" % (child.returncode, err))
    heap = heap_of(path)
    check(heap["peak_bytes"] > 200000, "the peak of redis is %s" % heap["peak_bytes"])


@test
def nginx_serves_as_before():
    need("nginx")
    port = 20000 + os.getpid() % 20000
    conf = work("nginx.conf")
    with open(work("page.txt"), "w") as f:
        f.write("hello " * 1000)
    with open(conf, "w") as f:
        f.write("daemon off; pid %s; error_log stderr; worker_processes 2; events {} http { access_log off;"
                " client_body_temp_path %s; proxy_temp_path %s; fastcgi_temp_path %s; uwsgi_temp_path %s;"
                " scgi_temp_path %s; server { listen 127.0.0.1:%d; root %s; } }"
                % ((work("pid"),) + tuple(work("t%d" % i) for i in range(5)) + (port, work())))
    path = work("out.sonde")
    child = start([SONDE, "heap", "--exact", "-o", path, "--", "nginx", "-p", work(), "-c", conf], ready=False,
                  stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    import urllib.error
    import urllib.request
    pages, end = 0, time.monotonic() + 30
    while pages < 50 and time.monotonic() < end:
        try:
            got = urllib.request.urlopen("http://127.0.0.1:%d/page.txt" % port, timeout=10).read()
            check(got == b"hello " * 1000, "another page")
            pages += 1
        except urllib.error.URLError:
            check(alive(child), "nginx has ended")
            time.sleep(0.1)
    check(pages == 50, "%d pages" % pages)
    with open(work("pid")) as f:
        os.kill(int(f.read()), signal.SIGQUIT)
    _, err = child.communicate(timeout=60)
    check(child.returncode == 0, "status %d: %s" % (child.returncode, err))
    check(heap_of(path)["total_count"] > 100, "nothing was seen of nginx")


main()
