#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde report`, `sonde diff` and `sonde convert` make of a recording of allocations, whose content is known
(tests/unit/small_heap.h)."""
import gzip
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403


def made(name="in.sonde", *arguments):
    path = work(name)
    done = run([os.path.join(os.path.dirname(SONDE), "tests", "unit", "make_heap"), path, *arguments])
    check(done.returncode == 0, "make_heap: %r" % done.stderr)
    return path


def out(*arguments, status=0, **options):
    options.setdefault("env", dict(os.environ, LC_ALL="C.UTF-8", COLUMNS="80"))
    done = sonde(*arguments, **options)
    expect(done, status)
    return done.stdout.decode()


def complaint(*arguments, status):
    done = sonde(*arguments)
    expect(done, status)
    return done.stderr.decode()


def heap(*arguments, made_as=()):
    return json.loads(out("report", made("in.sonde", *made_as), "--json", *arguments))["heap"]


def site(h, name):
    found = [s for s in h["sites"] if s["name"] == name]
    check(len(found) == 1, "%d sites are called %s" % (len(found), name))
    return found[0]


@test
def json_has_the_contract():
    h = heap()
    check(h["live_bytes"] == 21954760 and h["live_count"] == 5361, h["live_bytes"])
    check(h["peak_bytes"] == 55017672 and h["peak_ns"] == 30000000000, h["peak_bytes"])
    check(h["total_bytes"] == 60188992 and h["total_count"] == 67161, h["total_count"])
    check(h["temporary_count"] == 60000, h["temporary_count"])
    s = site(h, "remember")
    check((s["module"], s["line"]) == ("server", 70), s)
    check(s["leaked_bytes"] == 240 * 4096 and s["leaked_count"] == 240, s)
    check(s["ci95"] == [s["live_bytes"]] * 2, s["ci95"])
    check(site(h, "parse")["cross_thread_frees"] == 600, h["sites"])
    check(site(h, "burst")["peak_bytes"] == 32 << 20, h["sites"])
    check([x["name"] for x in h["sites"]][:2] == ["fill", "remember"], "not by what is live")
    check(h["flows"] == [{"from": {"pid": 100, "tid": 101, "name": "io"},
                          "freed_by": {"pid": 100, "tid": 100, "name": "server"},
                          "count": 600, "bytes": 600000}], h["flows"])


@test
def sampled_numbers_have_intervals():
    h = heap(made_as=("sampled",))
    check(h["sampled"] and h["processes"][0]["rate"] == 65536, h["processes"])
    for s in h["sites"]:
        low, high = s["ci95_total"]
        check(low < s["total_bytes"] < high or s["name"] == "burst", s["ci95_total"])
    check(site(h, "remember")["growth"]["trend"] == "grows", h)
    check(site(h, "fill")["growth"]["trend"] == "filled", h)


@test
def orders_and_limits():
    for order, first in (("live", "fill"), ("leaked", "fill"), ("growth", "remember"), ("peak", "burst"),
                         ("total", "burst"), ("temporary", "parse"), ("cross", "parse"), ("count", "fill")):
        h = heap("--sort", order, "-n", "1")
        check([s["name"] for s in h["sites"]] == [first], "%s: %r" % (order, h["sites"]))


@test
def ranges_of_time():
    h = heap("--from", "10", "--to", "25s")
    s = site(h, "remember")
    check(s["before_bytes"] == 163840 and s["grown_bytes"] == 15 * 16384, s)
    check(s["total_count"] == 60 and "leaked_bytes" not in s, s)
    check(h["from_ns"] == 10000000000 and h["to_ns"] == 25000000000, h["to_ns"])


@test
def threads_are_selected():
    h = heap("-t", "^io$")
    check([s["name"] for s in h["sites"]] == ["parse"] and h["total_count"] == 600, h["sites"])
    check(heap("--tid", "101")["total_count"] == 600, "--tid")
    check(heap("--main")["cross_thread_frees"] == 0, "--main")


@test
def one_site():
    text = out("report", made(), "--site", "1", "--sort", "growth")
    check("Site 1 by growth: remember (server.c:70)\n" in text, text)
    check("\n1 path\n" in text and "      operator new(unsigned long) in server\n" in text, text)


@test
def trees_are_of_bytes():
    path = made()
    check(out("report", path, "--folded", "--sort", "leaked") ==
          "_start;main;fill;std::vector<int>::_M_realloc_insert(int*);operator new(unsigned long) 20971520\n"
          "_start;main;answer;remember;operator new(unsigned long) 983040\n"
          "_start;main;grow 200\n", "folded")
    svg = out("report", path, "--svg", "--sort", "peak")
    check("52 MiB live at the peak, by who asked for it" in svg and "32 MiB" in svg, "svg")
    check(" 61.0%  ├ burst" in out("report", path, "--tree", "--sort", "peak"), "tree")
    other = work("h.speedscope.json")
    out("convert", path, other)
    with open(other) as f:
        scope = json.load(f)["profiles"][0]
    check(scope["unit"] == "bytes" and scope["endValue"] == 21954760, scope["unit"])


@test
def pprof_has_the_names_of_go():
    path = work("h.pb.gz")
    out("convert", made(), path)
    with gzip.open(path) as f:
        data = f.read()
    for name in (b"alloc_objects", b"alloc_space", b"inuse_objects", b"inuse_space", b"space"):
        check(b"\x32" + bytes([len(name)]) + name in data, name)
    check(b"nanoseconds" not in data, "time in a profile of memory")


@test
def differences():
    a, b = made(), made("b.sonde", "sampled")
    check("  nothing is different\n" in out("diff", a, a), "of one and the same")
    d = json.loads(out("diff", a, b, "--json", "--sort", "total"))
    check(d["total_bytes"] == [60188992, 60188992], d["total_bytes"])
    check(all(c["change"] == 0 and not c["sure"] and c["ci95"][0] <= 0 <= c["ci95"][1] for c in d["changes"]), d)
    check("two recordings are needed" in complaint("diff", a, status=2), "one")
    check("sonde report %s --from" % a in complaint("diff", a, status=2), "what to do instead")


@test
def what_makes_no_sense():
    path, wall = made(), work("wall.sonde")
    run([os.path.join(os.path.dirname(SONDE), "tests", "unit", "make_wall"), wall])
    check("--sort size: there are live" in complaint("report", path, "--sort", "size", status=2), "--sort")
    check("--to is not after --from" in complaint("report", path, "--from", "9", "--to", "3", status=2), "--to")
    check("has no allocations in it" in complaint("report", wall, "--sort", "live", status=1), "report")
    check("has no allocations in it" in complaint("report", wall, "--from", "1", status=1), "--from")
    check("has no allocations in it" in complaint("diff", wall, path, status=1), "diff")


@test
def dump_has_all_records():
    text = out("report", made(), "--dump")
    for kind in ("heap ", "heap-site", "heap-state", "heap-shape", "heap-flow", "heap-thread", "heap-total"):
        check("\n%s" % kind in text, kind)
    check("heap-flow time=60.000000000 site=h5 pid=100 tid=100 stack=none count=600 bytes=600000\n" in text, text[-900:])


main()
