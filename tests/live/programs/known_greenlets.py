# SPDX-License-Identifier: BSD-2-Clause
"""known_greenlets.py [gevent]: greenlets that are switched out, in two threads, and their frames as each saw them itself
before. Asking a greenlet for its frame from outside would change what is to be looked at.

It prints one JSON object and then waits in a read of stdin.
"""
import functools
import json
import os
import sys
import threading
import time

import greenlet

TOLD, KEPT = [], []


def frames():
    """Of the caller and those it was called by."""
    found, frame = [], sys._getframe(1)
    while frame:
        code = frame.f_code
        found.append({"name": code.co_name, "qualname": getattr(code, "co_qualname", code.co_name),
                      "file": code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return found


def switch(to, what):
    told = {"what": what, "thread": threading.get_native_id(), "frames": frames()}
    TOLD.append(told)
    told["frames"][0]["line"] += 3
    to()


def plain(parent):
    switch(parent.switch, "plain")


def through_c(parent):
    """Each of these is a call of the interpreter by C code, which leaves something on the C stack from 3.12 on."""
    def compare(a, b):
        if a or b:
            switch(parent.switch, "through C")
        return 0
    sorted([1, 2], key=functools.cmp_to_key(compare))


def deep(parent, n):
    if n:
        return sum(deep(parent, n - 1) for _ in [1])
    switch(parent.switch, "deep")
    return 0


def generator(parent):
    def numbers():
        yield 1
        switch(parent.switch, "generator")
    list(numbers())


class Derived(greenlet.greenlet):
    def run(self):
        switch(self.parent.switch, "derived")


def some(count):
    here = greenlet.getcurrent()
    made = [greenlet.greenlet(functools.partial(f, here)) for f in (plain, through_c, generator)]
    made += [greenlet.greenlet(functools.partial(deep, here, 60)) for _ in range(count)]
    made.append(Derived())
    for one in made:
        one.switch()
    # One that is done, and one that has not begun.
    done = greenlet.greenlet(len)
    done.switch([])
    KEPT.extend(made + [done, greenlet.greenlet(plain)])


def in_a_thread(ready):
    some(2)
    ready.set()
    time.sleep(1000)


def finish():
    print(json.dumps({"pid": os.getpid(), "greenlets": TOLD, "version": greenlet.__version__}), flush=True)
    sys.stdin.read()
    os._exit(0)


def with_gevent():
    import gevent
    import gevent.event
    import gevent.queue

    def sleeps():
        TOLD.append({"what": "sleep", "outer": "sleeps"})
        gevent.sleep(1000)

    def waits(event):
        TOLD.append({"what": "event", "outer": "waits"})
        event.wait()

    def gets(queue):
        TOLD.append({"what": "queue", "outer": "gets"})
        queue.get()
    KEPT.extend([gevent.spawn(sleeps), gevent.spawn(waits, gevent.event.Event()),
                 gevent.spawn(gets, gevent.queue.Queue())])
    gevent.sleep(0.1)
    finish()


def main():
    if sys.argv[1:] == ["gevent"]:
        with_gevent()
    some(3)
    ready = threading.Event()
    threading.Thread(target=in_a_thread, args=(ready,), daemon=True).start()
    ready.wait()
    # The main greenlet is switched out as well while this one runs.
    inner = greenlet.greenlet(finish)
    switch(inner.switch, "main")


main()
