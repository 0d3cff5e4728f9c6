#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What leaks is told from what fills up, with its rate; and what came between two moments."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

SECONDS = 24
RATE = 10 * 1747  # bytes a second that lose() loses: 1 MiB a minute


def recorded(name, *options):
    path = work(name)
    expect(sonde("heap", *options, "-o", path, "--", program("leaky"), str(SECONDS)), 0)
    return path


def heap(path, *options):
    done = sonde("report", path, "--json", *options)
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def site(h, name):
    found = [s for s in h["sites"] if s["name"] == name]
    check(len(found) == 1, "%d sites are called %s" % (len(found), name))
    return found[0]


@test
def a_leak_is_named_first_and_a_full_cache_is_none():
    path = recorded("exact.sonde", "--exact")
    h = heap(path, "--sort", "growth")
    check(h["sites"][0]["name"] == "lose", "first is %s" % h["sites"][0]["name"])
    growth = h["sites"][0]["growth"]
    check(growth["trend"] == "grows", growth)
    low, high = growth["ci95"]
    check(low <= RATE <= high and high < 1.2 * low, growth)
    for name in ("put", "buffer"):
        check(site(h, name)["growth"]["trend"] in ("filled", "steady"), (name, site(h, name)["growth"]))
    text = sonde("report", path).stdout.decode()
    check(text.count("grows all the time") == 1 and "lose (leaky.c:" in text.split("grows all the time")[0], text)

    middle = heap(path, "--from", "14", "--to", "20", "--sort", "growth")
    seconds = (middle["to_ns"] - middle["from_ns"]) / 1e9
    grown = site(middle, "lose")["grown_bytes"]
    check(abs(grown - seconds * RATE) <= 3 * 1747, "%d in %.1f s" % (grown, seconds))
    check(abs(site(middle, "put")["grown_bytes"]) < 65536, site(middle, "put"))
    check(site(middle, "put")["total_count"] > 1000, site(middle, "put"))


@test
def a_sampled_leak_is_in_its_interval():
    path = recorded("sampled.sonde", "--sample", "4096")
    h = heap(path, "--sort", "growth")
    growth = site(h, "lose")["growth"]
    low, high = growth["ci95"]
    # By 95 %: twice the interval is as good as always.
    rate, half = growth["bytes_per_s"], (high - low) / 2
    check(rate - 2 * half <= RATE <= rate + 2 * half, growth)
    check(site(h, "put")["growth"]["trend"] != "grows", site(h, "put")["growth"])
    low, high = site(h, "lose")["ci95"]
    truth, half = SECONDS * 10 * 1747, high - low
    check(low - half <= truth <= high + half, (low, truth, high))


main()
