#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which threads and processes are seen, and what they may do meanwhile."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *


def names_of(got):
    return {t["name"] for t in got.threads if t["samples"]}


WORKERS = {"worker-%02d" % i for i in range(40)}


@test
def forty_threads_of_a_command():
    got = recording(["-F", "499", "--", program("threads"), "40", "100"])
    check(WORKERS <= names_of(got), "not seen: %s" % sorted(WORKERS - names_of(got)))
    check(got.share("worker_body") >= 97, "worker_body has %.1f %%" % got.share("worker_body"))
    per_thread = [t["samples"] for t in got.threads if t["name"] in WORKERS]
    check(min(per_thread) >= 25, "one thread has %d samples of 50" % min(per_thread))


@test
def forty_threads_that_run_already():
    child = start([program("threads"), "40", "400"])
    got = recording(["-F", "499", "-p", str(child.pid), "-d", "8"])
    check(WORKERS <= names_of(got), "not seen: %s" % sorted(WORKERS - names_of(got)))
    check("main" in names_of(got), "the first thread is not seen")
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def threads_by_name():
    child = start([program("threads"), "40", "300"])
    got = recording(["-F", "499", "-p", str(child.pid), "-t", "^worker-0[0-4]$", "-d", "10"])
    check(names_of(got) == {"worker-0%d" % i for i in range(5)}, "seen: %s" % sorted(names_of(got)))


@test
def threads_by_name_of_a_command():
    """The threads get their names only after they began."""
    got = recording(["-F", "499", "-t", "^worker-1", "--", program("threads"), "20", "200"])
    check(names_of(got) == {"worker-1%d" % i for i in range(10)}, "seen: %s" % sorted(names_of(got)))


@test
def main_thread_alone():
    child = start([program("threads"), "8", "500"])
    got = recording(["-F", "499", "-p", str(child.pid), "--main", "-d", "8"])
    check([t["tid"] for t in got.threads if t["samples"]] == [child.pid], "seen: %s" % got.threads)


@test
def short_processes_are_missed_aloud():
    """The kernel gives each new process a whole period before its first sample."""
    script = "i=0; while [ $i -lt 700 ]; do /bin/true; i=$((i+1)); done"
    got = recording(["-F", "49", "--", "sh", "-c", script])
    if got.json["meta"]["event"] != "cpu-clock":
        skip("the first period of %s is short" % got.json["meta"]["event"])
    check("raise -F" in got.json["meta"].get("unsampled", ""), "meta: %s" % got.json["meta"])
    got = recording(["-F", "499", "--", program("split"), "1000", "1000"])
    check("unsampled" not in got.json["meta"], "meta: %s" % got.json["meta"])


@test
def one_thread_alone():
    child = start([program("threads"), "8", "500"])
    tid = max(int(t) for t in os.listdir("/proc/%d/task" % child.pid))
    got = recording(["-F", "499", "-p", str(child.pid), "--tid", str(tid), "-d", "8"])
    check([t["tid"] for t in got.threads if t["samples"]] == [tid], "seen: %s" % got.threads)


@test
def two_processes():
    children = [start([program("split"), "10000000", "1500"]) for _ in range(2)]
    arguments = [x for c in children for x in ("-p", str(c.pid))]
    got = recording(["-F", "499"] + arguments)
    seen = {t["tid"] for t in got.threads if t["samples"] > 200}
    check(seen == {c.pid for c in children}, "seen: %s" % got.threads)


@test
def processes_by_name():
    fresh = work("unlikely-name")
    shutil.copy(program("split"), fresh)
    children = [start([fresh, "10000000", "1500"]) for _ in range(2)]
    got = recording(["-F", "499", "-n", "unlikely-name"])
    check({t["tid"] for t in got.threads} >= {c.pid for c in children}, "seen: %s" % got.threads)


@test
def the_whole_machine():
    need_root()
    child = start([program("split"), "10000000", "2500"])
    got = recording(["-F", "499", "-a", "-d", "1.5"])
    mine = [t for t in got.threads if t["tid"] == child.pid]
    check(mine and mine[0]["samples"] > 20, "split has %s" % mine)
    check(got.count("heavy") > got.count("light") > 0, "heavy %d, light %d"
          % (got.count("heavy"), got.count("light")))


@test
def a_process_that_forks():
    got = recording(["-F", "499", "--", program("family"), "fork", "500"])
    for function in ("parent_work", "child_work"):
        check(abs(got.share(function) - 50) <= 6, "%s has %.1f %%" % (function, got.share(function)))
    check(len([t for t in got.threads if t["samples"]]) == 2, "%s" % got.threads)


@test
def a_running_process_that_forks():
    """Children started after the attach are followed."""
    child = start([program("family"), "crowd", "20", "100"])
    got = recording(["-F", "499", "-p", str(child.pid)])
    check(got.count("crowd_work") > 400, "crowd_work has %d samples" % got.count("crowd_work"))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def a_process_that_execs():
    got = recording(["-F", "499", "--", program("family"), "exec", "400"])
    for function in ("before_exec", "after_exec"):
        check(abs(got.share(function) - 50) <= 6, "%s has %.1f %%" % (function, got.share(function)))


@test
def a_shell_and_its_children():
    got = recording(["-F", "499", "--", "sh", "-c", "%s 10000000 400; true" % program("split")])
    check(got.share("heavy") > 55, "heavy has %.1f %%" % got.share("heavy"))


@test
def a_library_loaded_while_recording():
    child = start([program("family"), "plugin", program("plugin"), "500"])
    got = recording(["-F", "499", "-p", str(child.pid)])
    check(got.count("plugin_work") >= 200, "plugin_work has %d" % got.count("plugin_work"))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def a_process_that_dies():
    child = start([program("family"), "die", "500"])
    got = recording(["-F", "499", "-p", str(child.pid)], timeout=20)
    check(child.wait() == -signal.SIGKILL, "it did not die of SIGKILL")
    check(got.count("last_words") >= 150, "last_words has %d" % got.count("last_words"))


@test
def a_command_that_kills_itself():
    got = recording(["-F", "499", "--", program("family"), "die", "300"], status=128 + signal.SIGKILL)
    check(got.count("last_words") >= 100, "last_words has %d" % got.count("last_words"))


@test
def a_program_of_50_ms():
    got = recording(["-F", "997", "--", program("split"), "10000000", "50"])
    check(35 <= got.samples <= 65, "%d samples, not 50" % got.samples)
    check(got.count("heavy") > got.count("light") > 0, "%s" % got.stacks[:5])


@test
def blocked_calls_are_not_interrupted():
    """Neither by attaching, nor by sampling, nor by leaving."""
    child = start([program("waits")], stdin=subprocess.PIPE)
    for _ in range(3):
        recording(["-F", "997", "-p", str(child.pid), "-d", "0.7"])
    child.stdin.close()
    said = child.stdout.read().decode()
    check(child.wait() == 0, "interrupted: %s" % said)


main()
