# SPDX-License-Identifier: BSD-2-Clause
"""What bench/python.py looks at: python_targets.py MODE ARGUMENTS..."""
import os
import sys
import threading
import time


def compute(rounds):
    total = 0
    for i in range(rounds):
        total += i * i % 7
    return total


def deep(n, function, *arguments):
    return deep(n - 1, function, *arguments) if n else function(*arguments)


def ready():
    print("ready", flush=True)


# ---- slow-down: a fixed amount of work beside many threads ----

def waiting(threads, rounds):
    """All but one wait; that one works. Prints the seconds."""
    for _ in range(threads - 1):
        threading.Thread(target=deep, args=(10, threading.Event().wait), daemon=True).start()
    _timed(lambda: compute(rounds))


def switching(threads, rounds):
    """All of them work a little, wait a little, and work on."""
    def some():
        for _ in range(20):
            deep(10, compute, rounds // threads // 20)
            time.sleep(0.005)

    def all_of_them():
        several = [threading.Thread(target=some) for _ in range(threads)]
        for one in several:
            one.start()
        for one in several:
            one.join()
    _timed(all_of_them)


def _timed(work):
    ready()
    sys.stdin.readline()
    before = time.monotonic()
    work()
    print(time.monotonic() - before, flush=True)
    os._exit(0)


# ---- merging: Python calls C, and that calls Python ----

def callback(*unused):
    compute(20000)
    return 0


def by_qsort(threads):
    import ctypes
    # These keep the interpreter lock: threads wait for it in the callback alone, never on the way to it.
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc = ctypes.PyDLL(None)

    def caller():
        while True:
            libc.qsort((ctypes.c_int * 64)(*range(64)), 64, 4, kind(callback))
    for _ in range(threads):
        threading.Thread(target=deep, args=(5, caller), daemon=True).start()
    ready()
    time.sleep(1e6)


def by_numpy():
    import numpy

    def caller():
        function, values = numpy.frompyfunc(callback, 1, 1), numpy.arange(1000)
        while True:
            function(values)
    ready()
    deep(5, caller)


def by_extension(path):
    import importlib.util
    spec = importlib.util.spec_from_file_location("known_extension", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def caller():
        while True:
            module.call(callback, 3)
    ready()
    deep(5, caller)


def by_cython(folder):
    sys.path.append(folder)
    import known_cython

    def caller():
        while True:
            known_cython.through_cython(callback, 100)
    ready()
    deep(5, caller)


# ---- others ----

def busy(depth):
    """One thread, so many calls deep all the time."""
    def forever():
        while True:
            for i in range(1000):
                i * i
    ready()
    deep(depth - 4, forever)


def many(threads):
    event = threading.Event()
    for _ in range(threads):
        threading.Thread(target=deep, args=(12, event.wait), daemon=True).start()
    time.sleep(1)
    ready()
    event.wait()


if __name__ == "__main__":
    sys.setrecursionlimit(5000)
    globals()[sys.argv[1]](*[int(a) if a.isdigit() else a for a in sys.argv[2:]])
