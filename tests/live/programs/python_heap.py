# SPDX-License-Identifier: BSD-2-Clause
"""A program whose heap is known: what it has made of which class, and what keeps each.

python_heap.py OUT: writes to OUT what the collector says, as a dict, prints "ready" and sleeps. With "leak" it goes on making
100 objects of class Leaky at each line it reads, and prints "leaked" after it.
"""
import functools
import gc
import sys
import threading
import time
import types
import weakref

gc.disable()


class Few: pass
class InModule: pass
class InClosure: pass
class InChain: pass
class InFrame: pass
class InGenerator: pass
class InSlot: pass
class InCache: pass
class InClass: pass
class Nobody: pass
class Leaky: pass


class Many:
    def __init__(self, i):
        self.i = i
        self.text = "text %d" % i


class Slotted:
    __slots__ = ("thing", "other")


class Outer:
    class Inner:
        pass


class Chain:
    def __init__(self):
        self.items = types.SimpleNamespace()


def with_closure():
    kept = InClosure()

    def inner():
        return kept
    return inner


def generate():
    held = InGenerator()
    yield held
    print(held)


@functools.lru_cache(maxsize=10)
def cached(key):
    return InCache()


def thread_body(started):
    local = InFrame()
    started.set()
    time.sleep(1000)
    print(local)


CACHE = {"other": None, "key": [None, None, None, InModule()]}
# Most of the blocks of many pools are free again.
SPARSE = [[i] for i in range(80000)]
SPARSE = SPARSE[::40]
MANY = [Many(i) for i in range(5000)]
SLOTTED = {i: Slotted() for i in range(3000)}
INNER = [Outer.Inner() for i in range(700)]
FEW = set(Few() for i in range(7))
SETS = [set(range(i % 40)) for i in range(300)]
TUPLES = [([], i) for i in range(400)]
registry = Chain()
registry.items.child = InChain()
closure = with_closure()
slotted = Slotted()
slotted.thing = InSlot()
generator = generate()
next(generator)
cached("key")
LEAKED = []


class Class:
    attribute = InClass()


gone = Few()
weak = weakref.ref(gone)
del gone

event = threading.Event()
threading.Thread(target=thread_body, args=(event,), daemon=True).start()
event.wait()


def name_of(kind):
    return kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)


def own_count():
    objects = gc.get_objects()
    counts = {}
    for thing in objects:
        entry = counts.setdefault(name_of(type(thing)), [0, 0])
        entry[0] += 1
        if thing is not objects and thing is not counts:
            entry[1] += sys.getsizeof(thing)
    return counts


# What is left in circles now, and tuples that need no list, would be gone at any time.
gc.collect()
repr(own_count())
told = own_count()
with open(sys.argv[1], "w") as out:
    out.write(repr(told))
del out, told
one, two = Nobody(), Nobody()
one.other, two.other = two, one
del one, two
# What the allocator says, on stderr.
sys._debugmallocstats()
sys.stderr.flush()
print("ready", flush=True)
while len(sys.argv) > 2:
    line = sys.stdin.readline()
    if not line:
        break
    LEAKED.extend(Leaky() for i in range(100))
    print("leaked", flush=True)
time.sleep(1000)
