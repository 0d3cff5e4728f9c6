# SPDX-License-Identifier: BSD-2-Clause
"""Memory that is taken at known lines: `# takes COUNT SIZE` says how many blocks of that size the function on whose line it
stands asks for in one turn. A turn for each line of input; "ready" before, "done" after it."""
import functools
import sys
import threading

try:
    import ctypes
except ImportError:
    ctypes = None

kept = []


def plain():
    return bytearray(20000)  # takes 10 20000


def deep(n):
    if n:
        return deep(n - 1)
    return bytearray(21000)  # takes 10 21000


def key(v):
    kept.append(
        bytearray(22000))  # takes 10 22000
    return v


def mapped(v):
    return bytearray(23000)  # takes 10 23000


def reduced(a, b):
    bytearray(24000)  # takes 10 24000
    return a


def generated():
    for _ in range(10):
        yield bytearray(25000)  # takes 10 25000


def inner_generator():
    for _ in range(10):
        block = bytearray(26000)  # takes 10 26000
        yield block


def outer_generator():
    yield from inner_generator()


class Made:
    def __init__(self):
        self.block = bytearray(27000)  # takes 10 27000

    def __del__(self):
        kept.append(bytearray(28000))  # takes 10 28000

    def __lt__(self, other):
        kept.append(bytearray(29000))  # takes 10 29000
        return False


def called_back(v):
    kept.append(bytearray(30000))  # takes 10 30000 ctypes
    return v


def in_thread():
    for _ in range(10):
        kept.append(bytearray(31000))  # takes 40 31000


async def awaited():
    return bytearray(32000)  # takes 10 32000


async def awaits():
    for _ in range(10):
        kept.append(await awaited())


def other():
    return bytearray(33000)  # takes 10 33000


def handles():
    try:
        raise ValueError
    except ValueError:
        return bytearray(34000)  # takes 10 34000


class Attribute:
    def __getattr__(self, name):
        return bytearray(35000)  # takes 10 35000


def by_ctypes():
    if not ctypes:
        return
    back = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(called_back)
    for i in range(10):
        back(i)


def by_threads():
    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def by_objects():
    for _ in range(10):
        made = Made()
        kept.append(made.block)
        made < None
        del made


def by_coroutine():
    try:
        awaits().send(None)
    except StopIteration:
        pass


def turn():
    kept.extend(plain() for _ in range(10))
    for _ in range(10):
        kept.append(deep(20))
    sorted(range(10), key=key)
    kept.extend(map(mapped, range(10)))
    functools.reduce(reduced, range(11))
    kept.extend(generated())
    kept.append(list(outer_generator()))
    by_objects()
    by_ctypes()
    by_threads()
    by_coroutine()
    for _ in range(10):
        kept.append(other())
        kept.append(handles())
        kept.append(Attribute().anything)


print("ready", flush=True)
for line in sys.stdin:
    turn()
    kept.clear()
    print("done", flush=True)
