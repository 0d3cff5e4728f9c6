#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The ptrace sampler: known answers, and that being traced changes nothing."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

PTRACE = ["--sampler", "ptrace"]
WORKERS = {"worker-%02d" % i for i in range(12)}


def traced(arguments, **options):
    return recording(PTRACE + arguments, **options)


def check_weight(got, seconds, tolerance=0.1):
    """Samples stand for the CPU time that was used."""
    sampled = got.samples / float(got.json["meta"]["frequency_hz"])
    check(abs(sampled - seconds) <= tolerance * seconds + 0.02,
          "%.3f s are sampled of %.3f s" % (sampled, seconds))


@test
def seventy_to_thirty():
    got = traced(["-F", "499", "--", program("split"), "10000000", "2000"])
    check(abs(got.share("heavy") - 70) <= 4, "heavy has %.1f %%" % got.share("heavy"))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check_weight(got, 2)
    meta = got.json["meta"]
    check(meta["event"] == "ptrace" and int(meta["pause_count"]) >= 500, "%s" % meta)


@test
def more_threads_than_cpus():
    """All have used the same CPU time, and few at a time run."""
    got = traced(["-F", "199", "--", program("threads"), "12", "300"])
    counts = {t["name"]: t["samples"] for t in got.threads}
    check(WORKERS <= set(counts), "not seen: %s" % sorted(WORKERS - set(counts)))
    for name in WORKERS:
        check(45 <= counts[name] <= 75, "%s has %d samples, not 60" % (name, counts[name]))
    check_weight(got, 13 * 0.3)


@test
def a_running_process():
    child = start([program("threads"), "6", "700"])
    got = traced(["-F", "499", "-p", str(child.pid), "-d", "20"])
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check({"main"} | {"worker-%02d" % i for i in range(6)} <= {t["name"] for t in got.threads},
          "%s" % got.threads)
    check(child.wait() == 0, "exit status %d" % child.returncode)


@test
def some_threads_are_left_alone():
    child = start([program("threads"), "6", "700"])
    got = traced(["-F", "499", "-p", str(child.pid), "-t", "^worker-0[12]$", "-d", "20"])
    check({t["name"] for t in got.threads if t["samples"]} == {"worker-01", "worker-02"},
          "%s" % got.threads)


@test
def children_are_followed():
    got = traced(["-F", "499", "--", program("family"), "fork", "500"])
    for function in ("parent_work", "child_work"):
        check(abs(got.share(function) - 50) <= 6, "%s has %.1f %%" % (function, got.share(function)))
    got = traced(["-F", "499", "--", program("family"), "crowd", "20", "50"])
    check(400 <= got.count("crowd_work") <= 600, "crowd_work has %d" % got.count("crowd_work"))


@test
def short_processes_are_seen_in_proportion():
    """Two hundred of 2 ms each are shorter than a period, and still make 400 ms together."""
    got = traced(["-F", "199", "--", program("family"), "crowd", "200", "2"])
    expected = 0.4 * 199
    check(0.5 * expected <= got.count("crowd_work") <= 1.6 * expected,
          "crowd_work has %d of %d samples" % (got.count("crowd_work"), expected))


@test
def exec_and_libraries_loaded_later():
    got = traced(["-F", "499", "--", program("family"), "exec", "400"])
    for function in ("before_exec", "after_exec"):
        check(abs(got.share(function) - 50) <= 6, "%s has %.1f %%" % (function, got.share(function)))
    got = traced(["-F", "499", "--", program("family"), "plugin", program("plugin"), "400"])
    check(abs(got.share("plugin_work") - 50) <= 8, "plugin_work has %.1f %%" % got.share("plugin_work"))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def exec_by_another_thread():
    got = traced(["-F", "499", "--", program("tangle"), "thread-exec", "500"], timeout=30)
    check(got.count("after_exec") >= 200, "after_exec has %d samples of 250" % got.count("after_exec"))


@test
def vfork_and_exec():
    got = traced(["-F", "499", "--", program("tangle"), "vfork", "500"], timeout=30)
    check(got.count("after_exec") >= 200, "after_exec has %d samples of 250" % got.count("after_exec"))


@test
def signals_arrive_as_they_were_sent():
    done = sonde("record", *PTRACE, "-F", "1999", "-o", work("out.sonde"), "--", program("tangle"), "signals")
    expect(done, 0)
    check(done.stdout.endswith(b"lost 0 wrong 0\n"), "%r" % done.stdout)


@test
def status_and_output_are_those_of_the_command():
    for script, status in (("exit 7", 7), ("kill -9 $$", 137), ("kill -SEGV $$", 139)):
        done = sonde("record", *PTRACE, "-o", work("x"), "--", "sh", "-c", script)
        check(done.returncode == status, "%s gives %d" % (script, done.returncode))
    done = sonde("record", *PTRACE, "-o", work("x"), "--", "cat", input=b"hello")
    check(done.stdout == b"hello", "%r" % done.stdout)
    done = sonde("record", *PTRACE, "-o", work("x"), "--", "/no/such/command")
    expect(done, 1, "/no/such/command")


def state_of(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rpartition(")")[2].split()[0]


def tracer_of(pid):
    with open("/proc/%d/status" % pid) as f:
        return int([line.split()[1] for line in f if line.startswith("TracerPid")][0])


@test
def stop_and_continue_work():
    target = start([program("split"), "10000000", "20000"])
    child = start([SONDE, "record", *PTRACE, "-q", "-p", str(target.pid), "-o", work("x.sonde")],
                  ready=False)
    while not tracer_of(target.pid):
        time.sleep(0.01)
    target.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(target.pid, os.WUNTRACED)  # the parent hears of it
    check(os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP, "status %d" % status)
    time.sleep(0.3)
    check(state_of(target.pid) in "Tt", "it did not stay stopped")
    target.send_signal(signal.SIGCONT)
    _, status = os.waitpid(target.pid, os.WCONTINUED)
    check(os.WIFCONTINUED(status), "status %d" % status)
    target.send_signal(signal.SIGSTOP)
    os.waitpid(target.pid, os.WUNTRACED)
    child.send_signal(signal.SIGINT)  # what stands stopped stays so when it is let go
    check(child.wait(20) == 0, "exit status %d" % child.returncode)
    check(state_of(target.pid) == "T" and not tracer_of(target.pid), "state %s, tracer %d" % (
        state_of(target.pid), tracer_of(target.pid)))
    target.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 10
    while state_of(target.pid) != "R":
        check(time.monotonic() < deadline, "it does not go on")
        time.sleep(0.01)


@test
def the_command_goes_on_when_the_recording_is_over():
    child = start([SONDE, "record", *PTRACE, "-q", "-d", "0.3", "-o", work("x.sonde"), "--",
                   program("split"), "10000000", "1500"])
    pid = int(run(["pgrep", "-P", str(child.pid)]).stdout)
    deadline = time.monotonic() + 10
    while tracer_of(pid):
        check(time.monotonic() < deadline, "it is still traced")
        time.sleep(0.01)
    check(child.wait(30) == 0, "exit status %d" % child.returncode)


@test
def a_process_that_a_debugger_has():
    need("gdb")
    target = start([program("split"), "10000000", "20000"])
    gdb = start(["gdb", "-q", "-nx", "-batch", "-p", str(target.pid), "-ex", "echo attached\\n", "-ex",
                 "shell sleep 20"], ready=False, stderr=subprocess.DEVNULL)
    while b"attached" not in gdb.stdout.readline():
        check(alive(gdb), "gdb could not attach")
    done = sonde("record", *PTRACE, "-o", work("x"), "-p", target.pid)
    gdb.kill()
    expect(done, 1, "gdb", "traces it already", "--sampler perf")


@test
def what_it_cannot_do():
    expect(sonde("record", *PTRACE, "-a", "-d", "1", "-o", work("x")), 1, "whole machine")


@test
def as_an_ordinary_user():
    need_root()
    need("setpriv")
    os.chmod(work(), 0o777)
    for name, path in (("sonde", SONDE), ("split", program("split"))):
        shutil.copy(path, work(name))
        os.chmod(work(name), 0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = run(nobody + [work("sonde"), "record", *PTRACE, "-o", work("out.sonde"), "--",
                         work("split"), "10000000", "1000"])
    expect(done, 0)
    got = Recording(work("out.sonde"))
    check_weight(got, 1)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    target = start([program("split"), "10000000", "20000"])
    done = run(nobody + [work("sonde"), "record", *PTRACE, "-o", work("x"), "-p", str(target.pid)])
    expect(done, 1, "uid 0")


main()
