# SPDX-License-Identifier: BSD-2-Clause
"""Python programs whose profile is known. `python_sampled.py WHAT SECONDS`; says "ready" before it begins.

split     70 : 30 between two functions, and between two lines of a third
flutter   two chains of calls, and two of generators, in turns, each for some microseconds
threads   starts threads all the time, each of which calls only_here() for 50 ms
deep      a recursion of 900, with 70 : 30 at its end
fork      multiprocessing: two children by fork and two by spawn, each of which calls in_child()
exec      a shell that starts this program again, as split
waits     epoll_wait, called by hand; says how often it was interrupted
nested    an interpreter within an interpreter: outside() runs within() there
sleep     half of the time sleeps in nap(), half computes
"""
import os
import sys
import threading
import time


def spin(n):
    x = 0
    for i in range(n):
        x += i * i
    return x


def seventy():
    spin(70000)


def thirty():
    spin(30000)


def by_line():
    spin(70000)  # LINE 70
    spin(30000)  # LINE 30


def split(end):
    while time.monotonic() < end:
        for _ in range(5):
            seventy()
            thirty()
            by_line()


def leaf():
    return sum((1, 2, 3))


def left_inner():
    return leaf()


def left_outer():
    return left_inner()


def right_inner():
    return leaf()


def right_outer():
    return right_inner()


def left_values():
    yield leaf()
    yield leaf()


def left_generator():
    yield from left_values()


def right_values():
    yield leaf()
    yield leaf()


def right_generator():
    yield from right_values()


def use_left():
    for _ in left_generator():
        pass


def use_right():
    for _ in right_generator():
        pass


def flutter(end):
    while time.monotonic() < end:
        for _ in range(100):
            left_outer()
            right_outer()
            use_left()
            use_right()


def only_here(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        spin(1000)


def threads(end):
    while time.monotonic() < end:
        t = threading.Thread(target=only_here, args=(0.05,))
        t.start()
        t.join()


def deep(end, depth=900):
    if depth:
        return deep(end, depth - 1)
    return split(end)


def in_child(seconds):
    only_here(seconds)


def fork(end):
    import multiprocessing
    children = []
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        children += [context.Process(target=in_child, args=(1.0,)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def start_again(end):
    import subprocess
    subprocess.run(["sh", "-c", "%s %s split 1.5; true" % (sys.executable, os.path.abspath(__file__))],
                   stdout=subprocess.DEVNULL)


def waits(end):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    poll, events, interrupted = libc.epoll_create1(0), ctypes.create_string_buffer(12), 0
    while time.monotonic() < end:
        spin(3000)
        interrupted += libc.epoll_wait(poll, events, 1, 1) < 0 and ctypes.get_errno() == 4
    print("interrupted", interrupted, flush=True)


NESTED = """
import time
def within(end):
    x = 0
    while time.time() < end:
        for i in range(1000):
            x += i
within(time.time() + %f)
"""


def outside(end):
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    interpreters.run_string(interpreters.create(), NESTED % (end - time.monotonic()))


def nap():
    time.sleep(0.01)


def sleep(end):
    while time.monotonic() < end:
        nap()
        only_here(0.01)


if __name__ == "__main__":
    sys.setrecursionlimit(5000)
    print("ready", flush=True)
    {"split": split, "flutter": flutter, "threads": threads, "deep": deep, "fork": fork, "exec": start_again,
     "waits": waits, "sleep": sleep, "nested": outside}[sys.argv[1]](time.monotonic() + float(sys.argv[2]))
