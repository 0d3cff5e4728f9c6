# SPDX-License-Identifier: BSD-2-Clause
"""Changes between call chains as fast as it can, so that a stack put together from two moments is seen to be one.

Functions are named after their family and their level: a1 calls a2 calls a3, b1 calls b2..., in the families x and y
generators do. A stack is possible when its functions are of one family and its levels are 1, 2, 3... without a gap,
or from any level on where it says that outer frames are missing: possible() below. The argument is how long it runs, in seconds of CPU time; without one, for ever.
"""
import re
import sys
import time

MISSING = "[missing Python frames]"
NAMED = re.compile(r"(?:.*\.)?([abxy])([1-9])$")


def possible(names):
    """Of the names of a stack, outermost first; others are passed over."""
    found = [NAMED.match(name) for name in names]
    found = [(m.group(1), int(m.group(2))) for m in found if m]
    first = found[0][1] if found and MISSING in names else 1
    return len({family for family, _ in found}) <= 1 and \
        [level for _, level in found] == list(range(first, first + len(found)))


def a1(n):
    return a2(n) + 1


def a2(n):
    return a3(n) + a3(n)


def a3(n):
    return a4(n) + 1


def a4(n):
    return n


def b1(n):
    return b2(n) - 1


def b2(n):
    return b3(n) - b3(n)


def b3(n):
    return b4(n) - 1


def b4(n):
    m = n
    return m


def x1(n):
    total = 0
    for value in x2(n):
        total += value
    return total


def x2(n):
    yield n
    yield from x3(n)
    yield n


def x3(n):
    yield x4(n)
    yield x4(n)


def x4(n):
    return n


def y1(n):
    return sum(y2(n))


def y2(n):
    for value in y3(n):
        yield value


def y3(n):
    yield from y4(n)
    yield n


def y4(n):
    yield n
    yield n


def main(seconds):
    while time.thread_time() < seconds:
        for n in range(300):
            a1(n)
            b1(n)
            x1(n)
            y1(n)


if __name__ == "__main__":
    print("ready", flush=True)
    main(float(sys.argv[1]) if sys.argv[1:] else 1e9)
