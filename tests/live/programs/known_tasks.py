# SPDX-License-Identifier: BSD-2-Clause
"""known_tasks.py: tasks of asyncio in every place that there is, and what the program knows of them.

It prints one JSON object: each task with its state, what it waits for, whom it awaits and its frames, as the
interpreter itself tells them. Then the main task waits in a read of stdin, which is the end of it.
"""
import asyncio
import functools
import gc
import json
import os
import socket
import sys
import threading
import types

# What each task is expected to do, by its name.
EXPECTED = {}
MISSING = {}
KEPT = []


def describe(frame, line=True):
    code = frame.f_code
    return {"name": code.co_name, "qualname": getattr(code, "co_qualname", code.co_name), "file": code.co_filename,
            "line": frame.f_lineno if line else None}


def inner(thing):
    """What is awaited by something that has no attribute for it: what it refers to."""
    for other in gc.get_referents(thing):
        if isinstance(other, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)) or \
                type(other).__name__.startswith("async_generator"):
            return other
    return None


def frames_of(coroutine):
    """From the outermost in, turned round."""
    frames, thing = [], coroutine
    while thing is not None:
        for prefix in ("cr", "gi", "ag"):
            if hasattr(thing, prefix + "_frame"):
                frame = getattr(thing, prefix + "_frame")
                if frame is None:
                    return frames[::-1]
                frames.append(describe(frame))
                thing = getattr(thing, {"gi": "gi_yieldfrom"}.get(prefix, prefix + "_await"))
                break
        else:
            thing = inner(thing)
    return frames[::-1]


def task(coroutine, name, kind, awaits=(), held_by=(), **more):
    made = asyncio.ensure_future(coroutine)
    made.set_name(name)
    EXPECTED[name] = dict(more, kind=kind, awaits=sorted(awaits), held_by=sorted(held_by))
    KEPT.append(made)
    return made


# ---- what they are in ----

async def leaf(awaitable):
    return await awaitable


async def middle(awaitable):
    for _ in [1]:
        return await leaf(awaitable)


async def outer(awaitable):
    try:
        return await middle(awaitable)
    finally:
        pass


async def deep(n):
    if n:
        await deep(n - 1)
    else:
        await asyncio.sleep(3600)


async def inside(lock):
    async with lock:
        await asyncio.sleep(3600)


async def wants(lock):
    for _ in iter([1, 2]):
        async with lock:
            pass


async def crossed(first, second):
    async with first:
        await asyncio.sleep(0.02)
        async with second:
            pass


async def numbers():
    for i in iter([1, 2, 3]):
        await asyncio.sleep(3600)
        yield i


async def yielding():
    yield 1
    await asyncio.sleep(3600)


async def over(generator):
    async for _ in generator:
        pass


async def next_with_default():
    await anext(numbers(), None)  # noqa: F821 (3.10 and later)


class Awaitable:
    def __await__(self):
        yield from leaf(asyncio.sleep(3600)).__await__()


@types.coroutine
def old_style():
    # The iterator of the loop is below what is awaited.
    for _ in iter([1, 2]):
        yield from asyncio.sleep(3600).__await__()


class Queue(asyncio.Queue):
    pass


async def decorated():
    return await functools.partial(leaf, asyncio.sleep(3600))()


async def read_socket(loop, sock):
    await loop.sock_recv(sock, 10)


def crunch(done):
    done.wait()


async def until_notified(condition):
    async with condition:
        await condition.wait()


async def run_over(semaphore):
    async with semaphore:
        async with semaphore:
            pass


async def waiting_for(*tasks):
    await asyncio.wait(tasks)


async def gathering(*tasks):
    await asyncio.gather(*tasks)


async def shielding(one):
    await asyncio.shield(one)


async def joining(queue):
    await queue.join()


async def reading(reader):
    await reader.readline()


async def executing(loop, done):
    await loop.run_in_executor(None, crunch, done)


async def limited(event):
    await asyncio.wait_for(event.wait(), 3600)


async def child():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import sys; sys.stdin.read()",
                                                   stdin=asyncio.subprocess.PIPE)
    KEPT.append(process)
    await process.wait()


async def group(future):
    async with asyncio.TaskGroup() as made:
        first, second = made.create_task(asyncio.sleep(3600)), made.create_task(leaf(future))
        first.set_name("grouped sleep")
        second.set_name("grouped future")
        KEPT.extend([first, second])
        EXPECTED["grouped sleep"] = {"kind": "sleep", "awaits": [], "held_by": []}
        EXPECTED["grouped future"] = {"kind": "future", "awaits": [], "held_by": []}


async def at_barrier():
    await asyncio.Barrier(2).wait()


# ---- all of them ----

def plain(loop):
    future = loop.create_future()
    task(outer(future), "nested", "future")
    for i in range(5):
        task(asyncio.sleep(3600), "sleep %d" % i, "sleep", left=3600)
    task(deep(300), "deep", "sleep")
    task(over(numbers()), "async for", "sleep")
    task(leaf(yielding().__anext__()), "done with it", None)
    task(leaf(Awaitable()), "__await__", "sleep")
    task(leaf(old_style()), "types.coroutine", "sleep")
    task(decorated(), "partial", "sleep")
    task(leaf(numbers().asend(None)), "asend", "sleep")
    if sys.version_info >= (3, 10):
        task(next_with_default(), "anext", "sleep")
    else:
        MISSING["anext"] = "3.10 and later"
    task(leaf(asyncio.sleep(3600)), "n\u00e4me \U0001f40d", "sleep")
    return future


def queues():
    full, empty = Queue(1), asyncio.PriorityQueue()
    full.put_nowait(1)
    task(leaf(empty.get()), "queue get", "queue")
    task(leaf(full.put(2)), "queue put", "queue")
    task(joining(full), "queue join", "queue")


async def locks():
    first, second, third = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
    task(inside(first), "holder", "sleep")
    task(crossed(second, third), "cross 1", "lock", held_by=["cross 2"])
    task(crossed(third, second), "cross 2", "lock", held_by=["cross 1"])
    one = asyncio.Semaphore(1)
    task(run_over(one), "twice", "semaphore", held_by=["twice"])
    await asyncio.sleep(0.01)
    task(wants(first), "lock 1", "lock", held_by=["holder"])
    task(wants(first), "lock 2", "lock", held_by=["holder"])
    task(until_notified(asyncio.Condition()), "condition", "condition")
    held = asyncio.Condition()
    task(inside(held), "holder of a condition", "sleep")
    await asyncio.sleep(0.01)
    task(wants(held), "condition's lock", "lock", held_by=["holder of a condition"])
    task(leaf(asyncio.Event().wait()), "event", "event")
    task(limited(asyncio.Event()), "limited", "task" if sys.version_info < (3, 12) else "event",
         awaits=["?"] if sys.version_info < (3, 12) else [])
    if sys.version_info >= (3, 11):
        task(at_barrier(), "barrier", "barrier")
    else:
        MISSING["barrier"] = "3.11 and later"


def others(loop, future):
    first = task(asyncio.sleep(3600), "awaited", "sleep")
    second = task(leaf(future), "awaited as well", "future")
    task(leaf(first), "awaits", "task", awaits=["awaited"])
    task(gathering(first, second, leaf(first)), "gather", "task", awaits=["awaited", "awaited as well", "?"])
    task(waiting_for(first, second), "wait", "task", awaits=["awaited", "awaited as well"])
    task(shielding(first), "shield", "task", awaits=["awaited"])
    if sys.version_info >= (3, 11):
        task(group(future), "group", "task", awaits=["grouped future", "grouped sleep"])
    else:
        MISSING["group"] = "3.11 and later"


async def outside(loop):
    here, there = socket.socketpair()
    here.setblocking(False)
    task(read_socket(loop, here), "socket", "socket", fd=here.fileno())
    KEPT.append(there)
    here, there = socket.socketpair()
    KEPT.append(there)
    fd = here.fileno()
    reader, writer = await asyncio.open_connection(sock=here)
    KEPT.append(writer)
    task(reading(reader), "stream", "stream", fd=fd)
    done = threading.Event()
    task(executing(loop, done), "executor", "executor", worker="crunch")
    if sys.executable:
        task(child(), "process", "process")
    else:
        MISSING["process"] = "it does not know its own program"


def another_loop(ready):
    """A loop of its own, in which nothing runs."""
    async def run():
        task(asyncio.sleep(3600), "elsewhere", "sleep", thread=threading.get_native_id())
        asyncio.current_task().set_name("main elsewhere")
        EXPECTED["main elsewhere"] = {"kind": "event", "awaits": [], "held_by": [],
                                      "thread": threading.get_native_id()}
        KEPT.append(asyncio.current_task())
        asyncio.get_running_loop().call_later(0.1, ready.set)
        await asyncio.Event().wait()
    asyncio.run(run())


def truth():
    told = []
    for one in KEPT:
        if not isinstance(one, asyncio.Future) or one.done():
            continue
        running = one is asyncio.current_task()
        told.append(dict(EXPECTED[one.get_name()], name=one.get_name(), running=running,
                         frames=[] if running else frames_of(one.get_coro())))
    return {"pid": os.getpid(), "thread": threading.get_native_id(), "tasks": told, "missing": MISSING,
            "names": sorted(t.get_name() for t in asyncio.all_tasks()), "time": asyncio.get_running_loop().time()}


def read_to_the_end():
    print(json.dumps(truth()), flush=True)
    sys.stdin.read()


async def main():
    loop = asyncio.get_running_loop()
    ready = threading.Event()
    threading.Thread(target=another_loop, args=(ready,), daemon=True).start()
    asyncio.current_task().set_name("main")
    EXPECTED["main"] = {"kind": None, "awaits": [], "held_by": []}
    KEPT.append(asyncio.current_task())
    future = plain(loop)
    queues()
    await locks()
    others(loop, future)
    await outside(loop)
    await asyncio.sleep(0.4)
    ready.wait()
    task(leaf(future), "fresh", None, ready=True)
    resolved = loop.create_future()
    woken = task(leaf(resolved), "woken", None, ready=True)
    read_to_the_end()
    KEPT.append(woken)
    os._exit(0)


asyncio.run(main())
