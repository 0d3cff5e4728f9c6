#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Who holds a lock that does not say so, and what locks are called: `sonde why` and programs with known answers."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *

BUILDS.update({
    "gxx-O0": ["g++", "-std=c++17", "-O0", "-g"],
    "gxx-O2": ["g++", "-std=c++17", "-O2", "-g"],
    "gxx-O2-split": ["g++", "-std=c++17", "-O2", "-g", "-gsplit-dwarf"],
    "gxx-O2-types": ["g++", "-std=c++17", "-O2", "-g", "-fdebug-types-section"],
    "gxx-stripped": ["g++", "-std=c++17", "-O2", "-g", "-Wl,-s"],
    "clangxx-O0": ["clang++", "-std=c++17", "-O0", "-g"],
    "clangxx-O2": ["clang++", "-std=c++17", "-O2", "-g"],
})


def source(name):
    return os.path.join(PROGRAMS, name)


def line_of(name, mark):
    """The line of the source that ends in: line "MARK"."""
    with open(source(name)) as f:
        for number, line in enumerate(f, 1):
            if line.rstrip().endswith('// line "%s"' % mark):
                return number
    raise Failure("%s has no line %s" % (name, mark))


def cxx(build):
    return program("guards", build, source("guards.cc"))


def rust(level):
    need("rustc")
    out = os.path.join(CACHE, "rust-O%d" % level, "guards")
    newest = max(os.path.getmtime(source("guards.rs")), os.path.getmtime(__file__))
    if not (os.path.exists(out) and os.path.getmtime(out) > newest):
        os.makedirs(os.path.dirname(out), exist_ok=True)
        fresh = "%s.%d" % (out, os.getpid())
        subprocess.run(["rustc", "-C", "debuginfo=2", "-C", "opt-level=%d" % level, "-o", fresh,
                        source("guards.rs")], check=True)
        os.rename(fresh, out)
    return out


class Why:
    """What `sonde why` says once the thread `waiter` waits for a lock."""

    def __init__(self, command, waiter, *arguments):
        target = start(command)
        for _ in range(100):
            done = sonde("why", "--json", "--all", *arguments, target.pid)
            expect(done, 0)
            self.json = json.loads(done.stdout)
            found = [t for t in self.json["threads"] if t["name"] == waiter]
            self.wait = found[0]["wait"] if found else None
            if self.wait and self.wait["nature"] == "lock":
                break
            time.sleep(0.1)
        else:
            raise Failure("%s never waited for a lock: %s" % (waiter, found))
        self.names = {t["tid"]: t["name"] for t in self.json["threads"]}
        self.edges = found[0]["blocked_by"]
        self.holders = ["%s %s" % (self.names.get(e["tid"], e["tid"]), e["grade"]) for e in self.edges]

    def check_holder(self, grade):
        check(self.holders == ["holder " + grade], "held by %s: %s" % (self.holders, self.edges))

    def check_taken(self, file, mark):
        wanted = "%s:%d" % (file, line_of(file, mark))
        check(self.edges[0].get("taken") == wanted, "taken at %s, not %s" % (self.edges, wanted))

    def check_name(self, name, file=None, mark=None):
        check(self.wait["name"] == name, "named %r, not %r" % (self.wait["name"], name))
        if file:
            wanted = "%s:%d" % (file, line_of(file, mark))
            check(self.wait.get("declared") == wanted, "declared %s, not %s" % (self.wait, wanted))


def need_registers(why):
    """Without optimisation guards are on the stack; else they may be in registers that /proc does not have."""
    if "bpf" not in why.json["method"] and not why.edges:
        skip("the guard is in a register, and BPF is not permitted here")


def check_shared(build):
    why = Why([cxx(build), "shared"], "writer")
    if not build.endswith("O0"):
        need_registers(why)
    why.check_holder("inferred")
    why.check_taken("guards.cc", "taken")
    why.check_name("std::shared_mutex app::Cache::rw", "guards.cc", "rw")
    verdict = why.json["verdict"]
    for word in ("held by holder", "taken at guards.cc:", "app::Cache::rw"):
        check(word in verdict["sentence"], "%r is not in: %s" % (word, verdict["sentence"]))
    check(verdict["grade"] == "inferred", "the verdict is %s" % verdict["grade"])


@test
def reader_of_a_shared_mutex():
    check_shared("gxx-O0")


@test
def reader_of_a_shared_mutex_optimised():
    check_shared("gxx-O2")


@test
def reader_of_a_shared_mutex_split_dwarf():
    check_shared("gxx-O2-split")


@test
def reader_of_a_shared_mutex_type_units():
    check_shared("gxx-O2-types")


@test
def reader_of_a_shared_mutex_clang():
    check_shared("clangxx-O0")


@test
def reader_of_a_shared_mutex_clang_optimised():
    check_shared("clangxx-O2")


@test
def without_bpf_never_the_wrong_one():
    """What is in a register is not seen then: nobody, or the holder."""
    why = Why([cxx("gxx-O2"), "shared"], "writer", "--look", "proc")
    proved = [h for h in why.holders if not h.endswith("candidate")]
    check(proved in ([], ["holder inferred"]), "held by %s" % why.holders)
    why = Why([cxx("gxx-O0"), "shared"], "writer", "--look", "proc")
    why.check_holder("inferred")


@test
def lock_on_the_stack_of_main():
    for build in ("gxx-O0", "gxx-O2"):
        why = Why([cxx(build), "local"], "writer")
        need_registers(why)
        why.check_holder("inferred")
        why.check_name("std::shared_mutex local in main()", "guards.cc", "local")


@test
def where_a_known_holder_took_two_locks():
    why = Why([cxx("gxx-O0"), "two"], "waiter")
    why.check_holder("proven")
    why.check_taken("guards.cc", "both")
    why.check_name("std::mutex app::Cache::second")


@test
def stripped_says_nothing():
    why = Why([cxx("gxx-stripped"), "shared"], "writer")
    check(not why.edges, "held by %s" % why.holders)
    check(not why.wait["name"], "named %s" % why.wait)
    check("taken" not in why.json["verdict"]["sentence"], why.json["verdict"])


def check_rust(level):
    why = Why([rust(level), "mutex"], "waiter")
    need_registers(why)
    why.check_holder("inferred")
    why.check_taken("guards.rs", "taken")
    why.check_name("Mutex<guards::Inner> guards::Cache::table")


@test
def rust_mutex():
    check_rust(0)


@test
def rust_mutex_release():
    check_rust(3)


@test
def rust_mutex_inside_a_mutex():
    """Who has the outer one is not in the way of who waits for the inner one."""
    for level in (0, 3):
        why = Why([rust(level), "outer"], "outside")
        need_registers(why)
        why.check_holder("inferred")
        why.check_taken("guards.rs", "inner")
        why.check_name("Mutex<u64> guards::Inner::part")


@test
def rust_reader_of_a_static():
    why = Why([rust(0), "rwlock"], "waiter")
    # There may be other readers, and whether it was this thread's guard that was dropped nobody knows.
    check(sorted(why.holders) in (["holder inferred"], ["dropped candidate", "holder inferred"]), why.holders)
    why.edges = [e for e in why.edges if e["grade"] == "inferred"]
    why.check_taken("guards.rs", "config")
    check(why.wait["name"].startswith("RwLock<[u64; 3]> guards::CONFIG"), why.wait)


@test
def rust_reader_of_a_static_release():
    """The compiler has left no more of the guard than that it is in scope."""
    why = Why([rust(3), "rwlock"], "waiter")
    check(why.holders in (["holder inferred"], ["holder candidate"]), "held by %s" % why.holders)


def check_name(build, kind, name, declared=True):
    why = Why([program("lock_names", build), kind], "waiter")
    why.check_holder("proven")
    why.check_name(name)
    check(bool(why.wait.get("declared")) == declared, why.wait)


@test
def names_of_locks():
    for build in ("gcc-O0", "gcc-O2", "split-dwarf", "debuglink"):
        check_name(build, "global", "pthread_mutex_t big_lock")
        check_name(build, "array", "pthread_mutex_t accounts[2].guard")
        check_name(build, "heap", "pthread_mutex_t account.guard")
        check_name(build, "alone", "pthread_mutex_t it in lock_it()")


@test
def names_by_symbols_alone():
    check_name("gcc-O2-fp", "global", "big_lock", declared=False)
    check_name("gcc-O2-fp", "heap", "", declared=False)
    check_name("stripped", "global", "", declared=False)


main()
