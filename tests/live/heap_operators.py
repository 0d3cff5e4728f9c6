#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""operator new and delete of allocators that define them: every block once, whoever allocates it."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
from attached import watched_from_now_on

NUMBERS = ("total_count", "total_bytes", "live_count", "live_bytes")
LIBRARIES = "/usr/lib/x86_64-linux-gnu/"
ALLOCATORS = (None, "libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2")


def built(*more):
    out = work("operators" + str(len(more)))
    done = run(["g++", "-O1", "-g", "-std=c++17", "-fsized-deallocation", "-Wall", "-Werror", "-o", out,
                os.path.join(ROOT, "tests/live/programs/heap_operators.cpp"), *more])
    if done.returncode and b"cannot find -l" not in done.stderr:
        check(False, done.stderr)
    return None if done.returncode else out


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def compare(text, heap, rounds, words):
    """libstdc++ makes the sizes of aligned blocks multiples of their alignment before it asks."""
    wanted = {}
    for line in text.decode().splitlines():
        said = line.split()
        if said and said[0] == "truth":
            wanted[said[1]] = dict(zip(NUMBERS, map(int, said[2:])))
    check(len(wanted) == 9, "it said: %s" % text)
    got = collections.defaultdict(collections.Counter)
    for site in heap["sites"]:
        for key in NUMBERS:
            # Of a program that has ended, what it had then.
            got[site["name"].split("(")[0]][key] += site[key]
    for name, numbers in wanted.items():
        for key, value in numbers.items():
            have = got[name][key]
            if rounds and name.startswith("aligned") and key.endswith("bytes"):
                check(value <= have < value + 256 * numbers[key.replace("bytes", "count")], "%s of %s: %d" % (key, name, have))
            else:
                check(have == value, "%s of %s is %d, not %d: %s" % (key, name, have, value, dict(got)))
    check("not written down" not in words, words)


@test
def every_form_once():
    program = built()
    found = False
    for name in ALLOCATORS:
        if name and not os.path.exists(LIBRARIES + name):
            print("not installed: %s" % name)
            continue
        for how in (["--exact"], ["--sample", "1"], ["--exact", "--maps", "--free-stacks"]):
            env = dict(os.environ, LD_PRELOAD=LIBRARIES + name) if name else None
            bare = run([program], env=env)
            if bare.returncode:  # mimalloc's operators, built as C, end the program where others throw
                print("%s alone ends with %d" % (name, bare.returncode))
                break
            done = sonde("heap", *how, "-o", work("o.sonde"), "--", program, env=env)
            expect(done, 0)
            compare(done.stdout, heap_of(work("o.sonde")), not name, "%s: %s" % (name, done.stderr.decode()))
            found = found or bool(name)
    if not found:
        skip("no other allocator is installed")


@test
def linked_with_the_program():
    linked = 0
    for name in ("libjemalloc.so.2", "libtcmalloc.so.4"):
        program = built(LIBRARIES + name) if os.path.exists(LIBRARIES + name) else None
        if not program:
            print("not installed: %s" % name)
            continue
        linked += 1
        done = sonde("heap", "--exact", "-o", work("o.sonde"), "--", program)
        expect(done, 0)
        compare(done.stdout, heap_of(work("o.sonde")), False, done.stderr.decode())
    if not linked:
        skip("no other allocator is installed")


@test
def of_a_program_that_runs():
    program = built()
    for name in ALLOCATORS[:3]:
        if name and not os.path.exists(LIBRARIES + name):
            continue
        env = dict(os.environ, LD_PRELOAD=LIBRARIES + name) if name else None
        text, words = watched_from_now_on([program, "attached"], work("o.sonde"), "--exact", env=env)
        compare(text, heap_of(work("o.sonde")), not name, words)


@test
def plugins_bring_their_own_library():
    """libstdc++ that comes with a plugin alone, beside an allocator and without one."""
    plugin, host = work("plugin.so"), work("host")
    with open(work("plugin.cpp"), "w") as f:
        f.write("#include <cstdlib>\nextern \"C\" int plugin() { int *volatile p = new int[1000]; p[0] = 7; int r = p[0]; delete[] p;\n"
                "try { char *volatile q = new char[(size_t)1 << 62 >> (p == nullptr)]; delete[] q; } catch (...) { return r; }\n"
                "return 1; }\n")
    with open(work("host.c"), "w") as f:
        f.write("#include <dlfcn.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n"
                "void *h = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL); int (*f)(void) = h ? (int (*)(void))dlsym(h, \"plugin\") : 0;\n"
                "printf(\"%d\\n\", f ? f() : 0); return 0; }\n")
    for command in (["g++", "-O1", "-g", "-w", "-shared", "-fPIC", "-o", plugin, work("plugin.cpp")],
                    ["gcc", "-O1", "-g", "-o", host, work("host.c"), "-ldl"]):
        done = run(command)
        check(done.returncode == 0, done.stderr)
    for name in ALLOCATORS[:3]:
        if name and not os.path.exists(LIBRARIES + name):
            continue
        env = dict(os.environ, LD_PRELOAD=LIBRARIES + name) if name else None
        done = sonde("heap", "--exact", "-o", work("o.sonde"), "--", host, plugin, env=env)
        expect(done, 0)
        check(done.stdout == b"7\n", "%s: %s" % (name, done))
        sites = [(s["name"], s["total_count"], s["total_bytes"]) for s in heap_of(work("o.sonde"))["sites"]]
        # By its size: on a busy machine the plugin may have ended before its code was looked at.
        check([s[1] for s in sites if s[2] == 4000] == [1], "%s: the plugin's block: %s" % (name, sites))


main()
