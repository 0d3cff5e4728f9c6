#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""libsonde-capture, installed and used as programs do: what they say is in the recording, and they notice nothing."""
import functools
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

BUILD = os.path.dirname(SONDE)


@functools.lru_cache(None)
def installed():
    """The library in a prefix of its own; where that is."""
    prefix = os.path.join(CACHE, "capture-prefix.%d" % os.getpid())
    shutil.rmtree(prefix, ignore_errors=True)
    done = run(["meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "runtime,devel", "--destdir", prefix],
               timeout=120)
    check(done.returncode == 0, done.stdout.decode() + done.stderr.decode())
    return prefix


def remove_installed():
    shutil.rmtree(os.path.join(CACHE, "capture-prefix.%d" % os.getpid()), ignore_errors=True)


def find(name):
    for where, _, files in os.walk(installed()):
        if name in files:
            return os.path.join(where, name)
    raise Failure("%s is not installed" % name)


def flags(*what):
    need("pkg-config")
    env = dict(os.environ, PKG_CONFIG_LIBDIR=os.path.dirname(find("sonde-capture.pc")),
               PKG_CONFIG_SYSROOT_DIR=installed())
    done = run(["pkg-config", *what, "sonde-capture"], env=env)
    expect(done, 0)
    return done.stdout.decode().split()


def compiled(source, compiler, static=False):
    """One of the sample programs, with what pkg-config says."""
    need(compiler[0])
    out = work(os.path.basename(source) + (".static" if static else ""))
    libraries = [find("libsonde-capture.a")] if static else flags("--libs")
    done = run(compiler + ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-D_GNU_SOURCE"] + flags("--cflags") +
               ["-o", out, os.path.join(PROGRAMS, source), "-pthread", "-ldl"] + libraries)
    expect(done, 0)
    return out


def environment():
    return dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(find("libsonde-capture.so.0")))


def recorded(command, *options):
    """What it prints, word by word, and what is in the recording of it."""
    path = work("out.sonde")
    done = sonde("heap", "--exact", *options, "-o", path, "--", *command, env=environment())
    expect(done, 0)
    report = sonde("report", path, "--json")
    expect(report, 0)
    return said(done), json.loads(report.stdout)


def said(done):
    return {line.split()[0]: line.split()[1:] for line in done.stdout.decode().splitlines()}


def counter(got, name):
    found = [c for c in got["counters"] if c["name"] == name]
    check(len(found) == 1, "counters %s: %s" % (name, found))
    return found[0]


def values(got, name):
    return [v for _, v in counter(got, name)["values"]]


def lost(got):
    return {name: count for name, count in got["quality"]["losses"].items() if count}


def marks(got, *keys):
    return [tuple(m[k] for k in keys) for m in got["marks"]]


@test
def a_c_program_says_all_there_is():
    for static in (False, True):
        out, got = recorded([compiled("capture_known.c", ["gcc", "-std=c99"], static), "all"])
        base = int(out["base"][0])
        check(out["recording"] == ["1"], out)
        keys = ("time_ns", "duration_ns", "group", "name", "message")
        found = {m[3]: m for m in marks(got, *keys)}
        long_text = "x" * 4095
        for wanted in ((base, 5, "early", "constructor", "before main"), (base + 1000, 2000, "group", "one", "möglich"),
                       (base + 500, 0, "", "moment", ""), (0, (1 << 56) - 1, "group", "endless", ""),
                       (base, 1, "group", "long", long_text)):
            check(found.get(wanted[3]) == wanted, "%s is %s" % (wanted, found.get(wanted[3])))
        slept = found["slept"]
        check(slept[0] > base and slept[1] >= 20000000 and slept[4] == "20 ms", slept)
        check(len(found) == 6 and len(got["marks"]) == 6, sorted(found))
        check(values(got, "integers") == [i * 1000000007 for i in range(-3, 4)] + [(1 << 63) - 1, -2],
              values(got, "integers"))
        check(values(got, "reals") == [0.1, -5], values(got, "reals"))
        check(values(got, "constructed") == [7], values(got, "constructed"))
        check(counter(got, "integers")["description"] == 'some "integers"?', counter(got, "integers"))
        check([(m["domain"], m["severity"], m["message"]) for m in got["messages"]] ==
              [("disk", "warning", "nearly full"), ("", "message", "odd"), ("net", "error", "gone")], got["messages"])
        check(not lost(got), lost(got))


@test
def a_cpp_program_has_scopes():
    for compiler in (["g++", "-std=c++98"], ["g++", "-std=c++17"], ["clang++", "-std=c++98"]):
        if not shutil.which(compiler[0]):
            continue
        _, got = recorded([compiled("capture_scopes.cc", compiler)])
        check([m["name"] for m in got["marks"]] == ["inner", "inner-fails", "outer", "destroyed"], got["marks"])
        inner, failing, outer = got["marks"][:3]
        check(outer["time_ns"] <= inner["time_ns"] and inner["time_ns"] + inner["duration_ns"] <= failing["time_ns"] and
              failing["time_ns"] + failing["duration_ns"] <= outer["time_ns"] + outer["duration_ns"], got["marks"])
        check(values(got, "living") == [1, 0], values(got, "living"))
        check([m["message"] for m in got["messages"]] == ["caught"], got["messages"])


@test
def a_program_loads_it_while_it_runs():
    program = compiled("capture_loaded.c", ["gcc", "-std=c99"])
    out, got = recorded([program, find("libsonde-capture.so.0")])
    check("done" in out, out)
    check(sorted(m["name"] for m in got["marks"]) == ["again", "first", "thread"], got["marks"])


@test
def the_header_is_plain_c99_and_cpp98():
    header = find("capture.h")
    for compiler, language in ((["gcc", "-std=c99"], "c"), (["clang", "-std=c99"], "c"), (["gcc", "-std=c++98"], "c++"),
                               (["clang", "-std=c++98"], "c++")):
        if shutil.which(compiler[0]):
            expect(run(compiler + ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language, header]), 0)


@test
def it_needs_libc_alone_and_gives_its_names_alone():
    library = find("libsonde-capture.so.0")
    dynamic = run(["readelf", "-dW", library]).stdout.decode()
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    check(needed in (["libc.so.6"], []), needed)
    check("Library soname: [libsonde-capture.so.0]" in dynamic, dynamic)
    names = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", library]).stdout.decode().splitlines()]
    header = open(find("capture.h"), encoding="utf-8").read()
    check(names and all("%s(" % n in header for n in names), names)
    foreign = [line for line in run(["nm", "-g", "--defined-only", find("libsonde-capture.a")]).stdout.decode().splitlines()
               if len(line.split()) == 3 and not line.split()[2].startswith("sonde_")]
    check(not foreign, foreign)


@test
def two_threads_lose_nothing_and_keep_their_order():
    _, got = recorded([compiled("capture_known.c", ["gcc", "-std=c99"]), "threads", "300000"])
    for name in ("first", "second"):
        check(values(got, name) == list(range(300000)), "%s: %d values" % (name, len(values(got, name))))
        times = [t for t, _ in counter(got, name)["values"]]
        check(times == sorted(times), name)
    by_thread = {}
    for m in got["marks"]:
        if m["group"] == "hammer":
            by_thread.setdefault(m["tid"], []).append((m["time_ns"], m["duration_ns"]))
    check(len(by_thread) == 2, len(by_thread))
    for found in by_thread.values():
        check(found == [(i, 3 * i) for i in range(0, 300000, 10)], len(found))
    check(not lost(got), lost(got))


@test
def handlers_say_something_or_are_counted():
    out, got = recorded([compiled("capture_known.c", ["gcc", "-std=c99"]), "signals", "300000"])
    handled = int(out["handled"][0])
    check(values(got, "main") == list(range(300000)), len(values(got, "main")))
    heard = len(values(got, "handler")) + len(got["messages"])
    check(heard + lost(got).get("notes", 0) == 2 * handled, "%d handled, %d heard, %s" % (handled, heard, lost(got)))


@test
def a_child_is_a_process_of_its_own():
    out, got = recorded([compiled("capture_known.c", ["gcc", "-std=c99"]), "fork"])
    child = int(out["child"][0])
    inherited = {c["pid"] == child: [v for _, v in c["values"]] for c in got["counters"] if c["name"] == "inherited"}
    check(inherited == {True: [2], False: [1, 3]}, inherited)
    check([m["pid"] for m in got["marks"] if m["group"] == "fork"] == [child], got["marks"])


@test
def pools_are_sites_beside_the_totals():
    _, got = recorded([compiled("capture_known.c", ["gcc", "-std=c99"]), "pools"])
    sites = {s["allocator"]: s for s in got["heap"]["sites"] if "allocator" in s}
    check(sorted(sites) == ["[pool nodes]", "[pool strings]"], sites)
    nodes, strings = sites["[pool nodes]"], sites["[pool strings]"]
    check(nodes["name"].startswith("take_three") and strings["name"].startswith("take_other"), sites)
    check((nodes["live_bytes"], nodes["live_count"], nodes["total_bytes"], nodes["total_count"]) == (400, 2, 600, 3), nodes)
    check((strings["live_bytes"], strings["total_count"]) == (4000, 1), strings)
    rest = sum(s["live_bytes"] for s in got["heap"]["sites"] if "allocator" not in s)
    check(got["heap"]["live_bytes"] == rest, "%d live, %d in sites" % (got["heap"]["live_bytes"], rest))


@test
def generated_code_has_its_name():
    if os.uname().machine != "x86_64":
        skip("the program generates code of x86-64")
    recorded([compiled("capture_known.c", ["gcc", "-std=c99"]), "jit"])
    folded = sonde("report", work("out.sonde"), "--folded").stdout.decode()
    for name, size in (("first_generated", 70001), ("second_generated", 70002)):
        check("main;%s;called_back %d" % (name, size) in folded, folded)


@test
def without_a_recorder_nothing_happens():
    program = compiled("capture_known.c", ["gcc", "-std=c99"])
    for value in (None, "1:4:0:0:0:%s:nobody" % ("0" * 32), "nonsense"):
        env = environment()
        if value:
            env["SONDE_HEAP"] = value
        done = run([program, "all"], env=env)
        check(done.returncode == 0 and said(done)["recording"] == ["0"], done)


@test
def the_recorder_may_die():
    program = compiled("capture_known.c", ["gcc", "-std=c99"])
    recorder = start([SONDE, "heap", "--exact", "-o", work("out.sonde"), "--", program, "slow", "3000"],
                     env=environment(), stderr=subprocess.DEVNULL, ready=False)
    while recorder.stdout.readline() != b"ready\n":
        pass
    time.sleep(0.3)
    recorder.send_signal(signal.SIGKILL)
    recorder.wait(timeout=10)
    # The program has the pipe, and writes to it when it is done.
    rest = recorder.stdout.read().decode().split()
    check(rest[:1] == ["calls"] and int(rest[1]) > 1000, rest)
    report = sonde("report", work("out.sonde"), "--json")
    expect(report, 0)


try:
    main()
finally:
    remove_installed()
