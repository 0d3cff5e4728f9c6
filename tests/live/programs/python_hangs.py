# SPDX-License-Identifier: BSD-2-Clause
"""Programs that hang in ways that are Python's. For CPython 3.8 and later.

    python python_hangs.py NAME     (the names are those of the functions marked @hang)

Prints "ready", or "missing: WHY" where this interpreter cannot do it, when all threads are where they hang or
are about to get there. Lines that a test asks for end in a comment: line "MARK". Whoever starts it ends it.
"""
import os
import signal
import sys
import threading
import time

# Nobody ends children of these programs: they end themselves, as the programs do.
SECONDS = 120

hangs = {}


def hang(function):
    hangs[function.__name__.replace("_", "-")] = function
    return function


def ready():
    print("ready", flush=True)


def for_ever():
    time.sleep(3600)  # line "asleep"


def thread(name, body, *arguments):
    started = threading.Thread(target=body, args=arguments, name=name, daemon=True)
    started.start()
    return started


def when_blocked(*threads):
    """Waits until these threads sleep for good: what they do next is to hang."""
    for t in threads:
        path = "/proc/self/task/%d/stat" % t.native_id
        still = 0
        while still < 5:
            with open(path) as f:
                still = still + 1 if f.read().rpartition(")")[2].split()[0] == "S" else 0
            time.sleep(0.01)


# ---- locks ----

first_lock = threading.Lock()
second_lock = threading.Lock()
recursive = threading.RLock()


def take_both(one, other, both):
    with one:  # line "taken"
        both.wait()
        with other:  # line "wanted"
            pass


@hang
def ab_ba():
    both = threading.Barrier(2)
    thread("forward", take_both, first_lock, second_lock, both)
    backward = thread("backward", take_both, second_lock, first_lock, both)
    when_blocked(backward)
    ready()
    for_ever()


def hold_lock(lock, holding):
    with lock:  # line "held"
        holding.set()
        for_ever()  # line "holding"


def hold(lock, name="holder"):
    holding = threading.Event()
    thread(name, hold_lock, lock, holding)
    holding.wait()


@hang
def global_lock():
    hold(first_lock)
    ready()
    with first_lock:  # line "global wanted"
        pass


class Cache:
    def __init__(self, lock):
        self.guard = lock
        self.entries = {}

    def get(self, key):
        with self.guard:  # line "attribute wanted"
            return self.entries[key]

    def get_slowly(self, key):
        self.guard.acquire()  # line "acquired"
        return self.entries[key]


@hang
def attribute_lock():
    cache = Cache(threading.Lock())
    hold(cache.guard)
    ready()
    cache.get("key")


@hang
def acquired_lock():
    cache = Cache(threading.Lock())
    hold(cache.guard)
    ready()
    cache.get_slowly("key")


@hang
def recursive_lock():
    hold(recursive)
    ready()
    with recursive:  # line "recursive wanted"
        pass


@hang
def condition_lock():
    """A Condition's own lock, that somebody is inside of."""
    condition = threading.Condition()
    hold(condition)
    ready()
    with condition:  # line "condition wanted"
        pass


@hang
def plain_condition_lock():
    """The same with a lock that has no owner."""
    condition = threading.Condition(threading.Lock())
    hold(condition)
    ready()
    with condition:  # line "plain condition wanted"
        pass


@hang
def lock_twice():
    def inner():
        with first_lock:  # line "again"
            pass

    with first_lock:  # line "once"
        ready()
        inner()


def acquire_and_sleep(cache, holding):
    cache.guard.acquire()
    holding.set()
    for_ever()  # line "acquired and asleep"


@hang
def acquired_without_with():
    """Nothing but the function's code tells who has it."""
    cache = Cache(threading.Lock())
    holding = threading.Event()
    thread("holder", acquire_and_sleep, cache, holding)
    thread("bystander", for_ever)
    holding.wait()
    ready()
    cache.get("key")


class locked:
    """A context manager of one's own around a lock."""

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *exception):
        self.lock.release()


def class_holds(holding):
    with locked(first_lock):
        holding.set()
        for_ever()


@hang
def class_lock():
    holding = threading.Event()
    thread("holder", class_holds, holding)
    thread("bystander", for_ever)
    holding.wait()
    ready()
    with first_lock:
        pass


def generator_holds(holding):
    import contextlib

    @contextlib.contextmanager
    def lock_held():
        with first_lock:  # line "inside a generator"
            yield

    with lock_held():
        holding.set()
        for_ever()


@hang
def contextmanager_lock():
    holding = threading.Event()
    thread("holder", generator_holds, holding)
    holding.wait()
    ready()
    with first_lock:
        pass


def waits_inside(condition, waiting):
    with condition:
        waiting.set()
        condition.wait()  # line "let go"


@hang
def waiter_does_not_hold():
    """Who waits for a condition has let go of its lock; another has it."""
    lock = threading.Lock()
    condition = threading.Condition(lock)
    waiting = threading.Event()
    sleeper = thread("sleeper", waits_inside, condition, waiting)
    waiting.wait()
    when_blocked(sleeper)
    hold(lock)
    ready()
    with lock:
        pass


@hang
def chain():
    """main waits for what middle has, middle for what holder has."""
    hold(second_lock)
    holding = threading.Event()

    def both():
        with first_lock:
            holding.set()
            with second_lock:  # line "middle"
                pass

    when_blocked(thread("middle", both))
    ready()
    with first_lock:
        pass


# ---- waiting for others ----

@hang
def condition():
    ours = threading.Condition()
    with ours:
        ready()
        ours.wait()  # line "never notified"


@hang
def event():
    ready()
    threading.Event().wait()  # line "never set"


@hang
def semaphore():
    ready()
    threading.Semaphore(0).acquire()  # line "never released"


@hang
def barrier():
    ready()
    threading.Barrier(3).wait()  # line "never full"


@hang
def queue_join():
    import queue
    tasks = queue.Queue()
    for number in range(3):
        tasks.put(number)
    tasks.get()
    ready()
    tasks.join()  # line "never done"


@hang
def queue_get():
    import queue
    ready()
    queue.Queue().get()  # line "never put"


@hang
def queue_put():
    import queue
    tasks = queue.Queue(maxsize=1)
    tasks.put(1)
    ready()
    tasks.put(2)  # line "never taken"


@hang
def simple_queue():
    import queue
    ready()
    queue.SimpleQueue().get()  # line "simply never put"


@hang
def join():
    worker = thread("worker", for_ever)
    when_blocked(worker)
    ready()
    worker.join()  # line "joined"


@hang
def shutdown():
    """The program has ended, but for a thread that is no daemon."""
    threading.Thread(target=for_ever, name="worker").start()
    ready()


@hang
def future():
    import concurrent.futures
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    result = pool.submit(for_ever)
    ready()
    result.result()  # line "result"


@hang
def pool_of_itself():
    """The only worker of a pool waits for what the same pool is to do."""
    import concurrent.futures
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)

    def outer():
        return pool.submit(for_ever).result()  # line "inner result"

    result = pool.submit(outer)
    ready()
    result.result()


@hang
def import_lock():
    """A module whose import does not end, imported by two threads."""
    import tempfile
    folder = tempfile.mkdtemp(prefix="sonde-test-import-")
    with open(os.path.join(folder, "slow_module.py"), "w") as f:
        f.write("import time\ntime.sleep(3600)\n")
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True

    def importer():
        import slow_module  # line "other import"

    importing = thread("importer", importer)
    while "slow_module" not in sys.modules:
        time.sleep(0.01)
    when_blocked(importing)
    os.unlink(os.path.join(folder, "slow_module.py"))
    os.rmdir(folder)
    ready()
    import slow_module  # line "import"


# ---- the GIL ----

def ctypes_or_say():
    try:
        import ctypes
        return ctypes
    except ImportError as why:
        print("missing: %s" % why, flush=True)
        sys.exit(0)


@hang
def gil_hog():
    """C code that sleeps without letting go."""
    ctypes = ctypes_or_say()
    keeping = ctypes.PyDLL(None)

    def sleep_in_c():
        keeping.sleep(3600)  # line "in C"

    ready()
    thread("hog", sleep_in_c)
    while True:  # line "starving"
        sum(range(1000))


@hang
def gil_and_mutex():
    """One has the GIL and wants a mutex; the other has the mutex and wants the GIL."""
    ctypes = ctypes_or_say()
    keeping, letting_go = ctypes.PyDLL(None), ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    locked_it = threading.Event()

    def lock_then_run():
        letting_go.pthread_mutex_lock(mutex)
        locked_it.set()
        while True:  # line "wants the GIL"
            sum(range(1000))

    def want_mutex():
        locked_it.wait()
        keeping.pthread_mutex_lock(mutex)  # line "wants the mutex"

    ready()
    thread("locker", lock_then_run)
    thread("keeper", want_mutex)
    for_ever()


@hang
def gil_contention():
    """All run, and hand the GIL round."""
    for number in range(3):
        thread("spinner-%d" % number, spin)
    ready()
    spin()


def spin():
    while True:
        sum(range(1000))


@hang
def other_interpreter():
    """An interpreter with a GIL of its own: its second thread starves, ours do not."""
    try:
        import _interpreters as interpreters
        run = interpreters.exec
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
            run = interpreters.run_string
        except ImportError as why:
            print("missing: %s" % why, flush=True)
            return
    if sys.version_info < (3, 12):
        print("missing: interpreters share the GIL before 3.12", flush=True)
        return
    inside = """
import threading, time
def starve():
    while True:
        sum(range(1000))
threading.Thread(target=starve, name="starving").start()
time.sleep(0.2)
sum(range(10 ** 15))
"""
    hog = thread("runner", run, interpreters.create(), inside)
    time.sleep(0.5)
    print("other %d" % hog.native_id, flush=True)
    for_ever()


# ---- processes ----

def sleep_with(end, other):
    signal.alarm(SECONDS)
    other.close()
    ready()
    for_ever()  # line "does not read"


@hang
def pipe_full():
    import multiprocessing
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(False)
    child = context.Process(target=sleep_with, args=(reader, writer), daemon=True)
    child.start()
    reader.close()
    writer.send_bytes(bytes(1 << 20))  # line "full"


def want_first_lock():
    signal.alarm(SECONDS)
    ready()
    with first_lock:  # line "in the child"
        pass


@hang
def fork_with_lock():
    """Another thread has the lock when the process is forked."""
    import multiprocessing
    context = multiprocessing.get_context("fork")
    hold(first_lock)
    child = context.Process(target=want_first_lock)
    child.start()
    print(child.pid, flush=True)
    for_ever()


def want_recursive():
    signal.alarm(SECONDS)
    ready()
    with recursive:  # line "in the other child"
        pass


@hang
def fork_with_recursive_lock():
    import multiprocessing
    context = multiprocessing.get_context("fork")
    hold(recursive)
    child = context.Process(target=want_recursive)
    child.start()
    print(child.pid, flush=True)
    for_ever()


@hang
def owner_that_ended():
    ended = thread("ended", recursive.acquire)
    ended.join()
    ready()
    with recursive:  # line "never let go"
        pass


def take_shared(lock, holding):
    signal.alarm(SECONDS)
    with lock:
        holding.set()
        for_ever()


@hang
def process_lock():
    """multiprocessing.Lock: a semaphore in memory that is shared."""
    import multiprocessing
    context = multiprocessing.get_context("fork")
    try:
        lock, holding = context.Lock(), context.Event()
    except (ImportError, OSError) as why:
        print("missing: %s" % why, flush=True)
        return
    child = context.Process(target=take_shared, args=(lock, holding), daemon=True)
    child.start()
    holding.wait()
    ready()
    with lock:  # line "process lock wanted"
        pass


# ---- asyncio ----

def run_tasks(main):
    import asyncio
    if hasattr(asyncio, "run"):
        asyncio.run(main())


@hang
def asyncio_locks():
    """Two tasks, each with the lock that the other wants."""
    import asyncio

    async def take(one, other, both):
        async with one:  # line "task took"
            both.append(1)
            while len(both) < 2:
                await asyncio.sleep(0)
            async with other:  # line "task wants"
                pass

    async def main():
        a, b, both = asyncio.Lock(), asyncio.Lock(), []
        tasks = [asyncio.ensure_future(take(a, b, both)), asyncio.ensure_future(take(b, a, both))]
        await asyncio.sleep(0.1)
        ready()
        await asyncio.gather(*tasks)  # line "gathers"

    run_tasks(main)


@hang
def asyncio_waits():
    """Tasks that await each other."""
    import asyncio

    async def main():
        tasks = {}

        async def await_other(name):
            await asyncio.sleep(0)
            await tasks[name]  # line "awaits"

        tasks["a"] = asyncio.ensure_future(await_other("b"))
        tasks["b"] = asyncio.ensure_future(await_other("a"))
        await asyncio.sleep(0.1)
        ready()
        await asyncio.Event().wait()

    run_tasks(main)


def main():
    signal.alarm(SECONDS)
    try:
        hangs[sys.argv[1]]()
    except (ImportError, OSError, AttributeError) as why:
        print("missing: %s: %s" % (type(why).__name__, why), flush=True)


if __name__ == "__main__":
    main()
