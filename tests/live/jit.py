#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Code that lies in no file: what JIT compilers tell of theirs, and what memory is known to be."""
import contextlib
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

JAVASCRIPT = """
function jsInner(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function jsMiddle(k) { let t = 0; for (let j = 0; j < 10; j++) t += jsInner(100000 + k); return t; }
function used() { return process.cpuUsage().user; }
function jsOuter() { let t = 0; const end = used() + 1200000; while (used() < end) t += jsMiddle(t & 1); }
jsOuter();
"""

JAVA = """
public class Spin {
    static volatile int sink;
    static int javaInner(int n) { int s = 0; for (int i = 0; i < n; i++) s = s * 31 + i; return s; }
    static int javaMiddle(int k) { int t = 0; for (int j = 0; j < 10; j++) t += javaInner(100000 + k); return t; }
    static long used() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() / 1000000;
    }
    static void javaOuter(long ms) {
        long end = used() + ms;
        while (used() < end) sink += javaMiddle(sink & 1);
    }
    public static void main(String[] a) {
        javaOuter(2500);
        System.out.println("ready");
        javaOuter(60000);
    }
}
"""


def need_x86():
    if os.uname().machine != "x86_64":
        skip("the machine code is x86-64")


def jitdump(mode, ms=1000):
    """A recording of the program that writes one, in this test's directory."""
    need_x86()
    path = program("jitdump")
    got = recording(["-F", "499", "--", path, mode, ms], cwd=work())
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    return got


def ending(got, *frames):
    """Share of the samples whose stack has these functions in this row, callers first."""
    rows = sum(n for stack, n in got.stacks
               if any(stack[i:i + len(frames)] == list(frames) for i in range(len(stack))))
    return 100.0 * rows / max(1, got.samples)


@test
def jitdump_stacks():
    """None of the functions keeps a frame pointer, and rbp holds a small number."""
    got = jitdump("stacks")
    share = ending(got, "main", "run_for", "jit_outer", "jit_middle", "jit_inner")
    check(share > 90, "%.1f %%: %s" % (share, got.stacks[:4]))
    check(got.quality.get("guessed_frames_pct", 0) < 1, "%s" % got.quality)


@test
def jitdump_lines():
    dump = jitdump("stacks", 300).dump()
    texts = dict(re.findall(r'string +id=(s\d+) text="([^"]*)"', dump))
    lines = {texts[name]: (texts[file], int(line))
             for name, file, line in re.findall(r"symbol .* name=(s\d+) at=(s\d+):(\d+)", dump)}
    for name, line in (("jit_outer", 10), ("jit_middle", 20), ("jit_inner", 30)):
        check(lines.get(name) == ("made/up.lang", line), "%s is at %s" % (name, lines.get(name)))


@test
def jitdump_code_that_replaces_code():
    got = jitdump("tenants", 1200)
    for name in ("first_tenant", "second_tenant"):
        check(35 < got.share(name) < 65, "%s has %.1f %%" % (name, got.share(name)))


@test
def jitdump_code_that_is_moved():
    got = jitdump("moved", 1200)
    check(got.share("mover") > 95, "mover has %.1f %%" % got.share("mover"))
    check(got.share("its_place") < 2, "its_place has %.1f %%" % got.share("its_place"))


@test
def jitdump_through_a_buffer():
    """The file is empty while the code runs."""
    got = jitdump("late", 1200)
    for name in ("early_bird", "late_riser"):
        check(35 < got.share(name) < 65, "%s has %.1f %%" % (name, got.share(name)))


@test
def jitdump_of_the_parent():
    got = jitdump("forked")
    share = ending(got, "run_for", "jit_outer", "jit_middle", "jit_inner")
    check(share > 90, "%.1f %%: %s" % (share, got.stacks[:4]))


@test
def jitdump_of_a_running_process():
    need_x86()
    child = start([program("jitdump"), "stacks", "20000"], cwd=work(), ready=False)
    time.sleep(0.3)
    got = recording(["-F", "499", "-p", str(child.pid), "-d", "1"])
    share = ending(got, "main", "run_for", "jit_outer", "jit_middle", "jit_inner")
    check(share > 90, "%.1f %%: %s" % (share, got.stacks[:4]))


@test
def jitdump_of_another_user():
    """A file that is not the process's user's own is not believed."""
    need_root()
    need_x86()
    need("setpriv")
    os.chmod(work(), 0o777)
    shutil.copy(program("jitdump"), work("jitdump"))
    child = start(["setpriv", "--reuid=65534", "--clear-groups", work("jitdump"), "stacks", "20000"],
                  cwd=work(), ready=False)
    time.sleep(0.3)
    record = ["-F", "499", "-p", str(child.pid), "-d", "0.7"]
    got = recording(record)
    check(got.share("jit_inner") > 90, "own file: %s" % got.stacks[:4])
    os.chown(work("jit-%d.dump" % child.pid), 65533, -1)
    got = recording(record)
    check(got.share("jit_inner") == 0, "another's file: %s" % got.stacks[:4])


def node(*options):
    need("node")
    with open(work("spin.js"), "w") as file:
        file.write(JAVASCRIPT)
    got = recording(["-F", "499", "--", "node", *options, "spin.js"], cwd=work())
    for pid in {thread["pid"] for thread in got.threads}:
        if os.path.exists("/tmp/perf-%d.map" % pid):
            os.unlink("/tmp/perf-%d.map" % pid)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    return got


def merged(got, *words):
    """Share of the samples with frames of node's own below, and these words in this order above."""
    def is_one(frames):
        at = [next((i for i, f in enumerate(frames) if re.search(r"JS:.?%s\b" % w, f)), -1) for w in words]
        return frames[0] == "_start" and -1 not in at and at == sorted(at) and \
            any("v8::internal" in f for f in frames[:at[0]])
    return 100.0 * sum(n for frames, n in got.stacks if is_one(frames)) / max(1, got.samples)


@test
def node_with_a_perf_map():
    got = node("--perf-basic-prof", "--interpreted-frames-native-stack")
    share = merged(got, "jsOuter", "jsMiddle")
    check(share > 60, "%.1f %%: %s" % (share, got.stacks[:3]))
    share = merged(got, "jsOuter", "jsMiddle", "jsInner")
    check(share > 40, "%.1f %%: %s" % (share, got.stacks[:3]))


@test
def node_with_a_jitdump():
    """V8 writes through a buffer of two megabytes, so most of it comes when node ends."""
    got = node("--perf-prof", "--interpreted-frames-native-stack")
    share = merged(got, "jsOuter", "jsMiddle")
    check(share > 60, "%.1f %%: %s" % (share, got.stacks[:3]))


@test
def java_with_a_perf_map():
    need("java")
    need("javac")
    need("jcmd")
    with open(work("Spin.java"), "w") as file:
        file.write(JAVA)
    if run(["javac", "Spin.java"], cwd=work()).returncode:
        skip("javac does not compile here")
    child = start(["java", "-XX:+PreserveFramePointer", "-XX:CompileCommand=quiet",
                   "-XX:CompileCommand=dontinline,Spin::*", "Spin"], cwd=work())
    perf_map = "/tmp/perf-%d.map" % child.pid
    try:
        done = run(["jcmd", str(child.pid), "Compiler.perfmap"])
        if done.returncode or not os.path.exists(perf_map):
            skip("this java writes no perf map")
        got = recording(["-F", "499", "-p", str(child.pid), "-d", "1.5"])
    finally:
        if os.path.exists(perf_map):
            os.unlink(perf_map)
    check(got.quality["rooted_pct"] >= 95, "%s" % got.quality)
    inner = sum(n for frames, n in got.stacks if any("Spin.javaInner" in f for f in frames)
                and "JavaMain" in frames)
    check(inner > 0.7 * got.samples, "%d of %d: %s" % (inner, got.samples, got.stacks[:3]))


# ---- text that its program has copied to anonymous memory ----

def check_copied(got):
    share = ending(got, "main", "outer_of_copy", "inner_of_copy")
    check(share > 90, "%.1f %%: %s" % (share, got.stacks[:4]))
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check(got.quality["guessed_frames_pct"] < 1, "%s" % got.quality)


@test
def copied_text_of_a_running_program():
    for build in ("gcc-O2", "no-pie", "static-pie"):
        for mode in ("whole", "part", "fixed"):
            child = start([program("copied", build), mode, "20000"])
            check_copied(recording(["-F", "499", "-p", str(child.pid), "-d", "0.6"]))
            child.kill()


@test
def text_that_is_copied_meanwhile():
    for mode in ("whole", "fixed", "first"):
        check_copied(recording(["-F", "499", "--", program("copied"), mode, "600"]))


# ---- return addresses that a uretprobe has taken away ----

def append(path, line):
    """Without looking for the end, which tracefs has none of."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@contextlib.contextmanager
def uretprobe(binary, function):
    """Set while the block runs."""
    need_root()
    need("nm")
    tracefs, group = work("tracing"), "sonde_test_%d" % os.getpid()
    symbols = run(["nm", binary]).stdout.decode()
    offset = re.search(r"^([0-9a-f]+) [tT] %s$" % function, symbols, re.M).group(1)
    os.makedirs(tracefs, exist_ok=True)
    if run(["mount", "-t", "tracefs", "none", tracefs]).returncode:
        skip("tracefs cannot be mounted here")
    try:
        try:
            append(tracefs + "/uprobe_events", "r:%s/%s %s:0x%s\n" % (group, function, binary, offset))
        except OSError as error:
            skip("no uretprobe can be set here: %s" % error)
        enable = "%s/events/%s/%s/enable" % (tracefs, group, function)
        append(enable, "1\n")
        try:
            yield
        finally:
            append(enable, "0\n")
            append(tracefs + "/uprobe_events", "-:%s/%s\n" % (group, function))
    finally:
        run(["umount", tracefs])


def probed(mode, function, build="gcc-O2"):
    path = program("probed", build)
    with uretprobe(path, function):
        child = start([path, mode, "60000"], stdin=subprocess.PIPE)
        child.stdin.write(b"go\n")
        child.stdin.flush()
        got = recording(["-F", "499", "-p", str(child.pid), "-d", "1"])
        child.kill()
        child.wait()
    return got


@test
def uretprobe_on_a_function():
    for build in ("gcc-O2", "gcc-O2-fp"):
        got = probed("direct", "probed", build)
        share = ending(got, "main", "outermost", "caller", "[uretprobe]", "probed")
        check(share > 95, "%s: %.1f %%: %s" % (build, share, got.stacks[:4]))
        check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)


@test
def uretprobe_on_a_recursive_function():
    got = probed("recursive", "probed_again")
    share = ending(got, "main", "outermost", "caller", *["[uretprobe]", "probed_again"] * 5)
    check(share > 95, "%.1f %%: %s" % (share, got.stacks[:4]))


@test
def uretprobe_that_cannot_be_seen_through():
    """A call through a pointer names nobody: the stack ends there, and says so."""
    got = probed("pointer", "probed")
    share = ending(got, "[uretprobe]", "probed")
    check(share > 95, "%.1f %%: %s" % (share, got.stacks[:4]))
    wrong = [frames for frames, _ in got.stacks if "[uretprobe]" in frames and "caller" in frames]
    check(not wrong, "%s" % wrong[:3])


main()
