# SPDX-License-Identifier: BSD-2-Clause
"""A program that knows its own stacks. For CPython 3.8 and later.

    python known_stacks.py GROUP...    (blocked, running, deep, ...: see the decorators below; all: every one)

Each function marked @thread runs in a thread of its own and ends up waiting for ever in a place that is not
obvious. When all of them wait, one line of JSON is printed:

    {"version": "3.12.1", "threads": [{"id": 123, "group": "calls", "what": "by_lambda",
        "frames": [{"name": "hold", "qualname": "hold", "file": "...", "line": 12, "span": [12, 12, 5, 20]}, ...],
        "native": [["inner", "outer", "qsort"], ...]}],
     "missing": {"by_ctypes": "No module named '_ctypes'"}}

frames: innermost first. span: line, end line, column, end column from 1, the end behind the last one, where the
version keeps them. native: a C function must stand somewhere between these two Python functions. Threads that run
have "either" instead of frames: stacks of which each must be one; their frames have "lines". Then it
waits until standard input ends.
"""
import functools
import json
import os
import queue
import signal
import sys
import threading
import time

GATE, _ = os.pipe()
EVER = threading.Event()
arrived = 0
arrived_lock = threading.Lock()
wanted = []
missing = {}
facts = {}  # of a thread: what its truth has in addition


def arrive():
    global arrived
    with arrived_lock:
        arrived += 1


def hold():
    arrive()
    os.read(GATE, 1)


may_run = threading.Event()


def arrive_and_run():
    """Threads that run go on when all others wait: until then they would only take the interpreter from them."""
    arrive()
    may_run.wait()


def thread(group):
    """Marks what is to run in a thread of its own."""
    def mark(function):
        function.group = group
        wanted.append(function)
        return function
    return mark


def fact(key, value):
    facts.setdefault(threading.get_ident(), {})[key] = value


# ---- blocked: in the calls that programs wait in ----

@thread("blocked")
def in_read():
    arrive()
    os.read(GATE, 1)


@thread("blocked")
def in_event():
    arrive()
    EVER.wait()


@thread("blocked")
def in_sleep():
    arrive()
    time.sleep(1e6)


@thread("blocked")
def in_lock():
    lock = threading.Lock()
    lock.acquire()
    arrive()
    with lock:
        pass


@thread("blocked")
def in_condition():
    condition = threading.Condition()
    with condition:
        arrive()
        condition.wait_for(lambda: False)


@thread("blocked")
def in_queue():
    work = queue.Queue()
    arrive()
    work.get()


@thread("blocked")
def in_join():
    other = threading.Thread(target=EVER.wait, daemon=True)
    other.start()
    arrive()
    other.join()


@thread("blocked")
def in_select():
    import select
    arrive()
    select.select([GATE], [], [])


@thread("blocked")
def in_file_object():
    with open(GATE, "rb", closefd=False) as file:
        arrive()
        file.read(1)


# ---- running: another line each time one looks ----

def runs_in(*stacks):
    """What the caller is going to run in, with what is outside of it."""
    fact("either", either(stacks, frames_of(sys._getframe(2))))


def crunch(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


def never_ends():
    while True:
        crunch(1000)


@thread("running")
def runs():
    runs_in(("crunch", "never_ends", "runs"), ("never_ends", "runs"))
    arrive_and_run()
    never_ends()


def counts_down():
    while True:
        yield crunch(300)


@thread("running")
def runs_generator():
    runs_in(("crunch", "counts_down", "runs_generator"), ("counts_down", "runs_generator"), ("runs_generator",))
    arrive_and_run()
    for _ in counts_down():
        pass


# ---- deep ----

def down(n):
    if n == 0:
        return hold()
    return down(n - 1) + 1


@thread("deep")
def recursion():
    down(3000)


def even(n):
    return hold() if n == 0 else \
        odd(n - 1)


def odd(n):
    return [even(n - 1)
            for _ in (1,)][0]


@thread("deep")
def mutual_recursion():
    even(400)


# ---- generators ----

def leaf_generator():
    yield 1
    hold()
    yield 2


def middle_generator():
    yield 0
    yield from leaf_generator()


@thread("generators")
def by_next():
    generator = leaf_generator()
    next(generator)
    next(generator)


@thread("generators")
def by_for():
    for x in middle_generator():
        x += 1


@thread("generators")
def by_list():
    list(middle_generator())


@thread("generators")
def by_sum_of_expression():
    sum(x
        for x in middle_generator()
        if x >= 0)


@thread("generators")
def by_send():
    def receiver():
        got = yield
        if got == 3:
            hold()
        yield
    generator = receiver()
    generator.send(None)
    generator.send(3)


@thread("generators")
def by_close():
    def closing():
        try:
            yield
        finally:
            hold()
    generator = closing()
    next(generator)
    generator.close()


@thread("generators")
def by_throw():
    def catching():
        try:
            yield
        except ValueError:
            hold()
    generator = catching()
    next(generator)
    generator.throw(ValueError())


# ---- comprehensions ----

@thread("comprehensions")
def in_list():
    [hold()
     for _ in range(3)]


@thread("comprehensions")
def in_dict():
    {n: hold() for n in range(3)}


@thread("comprehensions")
def in_set():
    {hold() for n in range(3)}


@thread("comprehensions")
def in_nested_lists():
    [[hold() for a in range(2)]
     for b in range(2)]


@thread("comprehensions")
def in_condition_of_list():
    [n
     for n in range(3)
     if hold()]


# ---- calls ----

@thread("calls")
def by_lambda():
    (lambda: hold())()


@thread("calls")
def by_sort_key():
    [3, 1, 2].sort(key=lambda n: hold())


@thread("calls")
def by_sort_comparison():
    class Thing:
        def __lt__(self, other):
            hold()
    sorted([Thing(), Thing()])


@thread("calls")
def by_map():
    list(map(lambda n:
             hold(), [1]))


@thread("calls")
def by_reduce():
    functools.reduce(lambda a, b: hold(), [1, 2])


@thread("calls")
def by_partial():
    functools.partial(down, 2)()


def decorated_by(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(
            *args, **kwargs)
    return wrapper


@decorated_by
@decorated_by
def decorated(n):
    hold()


@thread("calls")
def by_decorator():
    decorated(n=1)


@functools.lru_cache(maxsize=None)
def cached(n):
    return cached(n - 1) if n else hold()


@thread("calls")
def by_cache():
    cached(3)


class Outer:
    class Inner:
        def method(self):
            self.static()

        @staticmethod
        def static():
            Outer.Inner.of_class()

        @classmethod
        def of_class(cls):
            cls().attribute

        @property
        def attribute(self):
            return self + 1

        def __add__(self, other):
            return self[other]

        def __getitem__(self, key):
            return self(key)

        def __call__(self, key):
            with self:
                pass

        def __enter__(self):
            return self.not_there

        def __getattr__(self, name):
            def local():
                hold()
            return local()

        def __exit__(self, *args):
            pass


@thread("calls")
def by_methods():
    Outer.Inner().method()


@thread("calls")
def by_constructor():
    class Meta(type):
        def __call__(cls, *args):
            return super().__call__(*args)

    class Made(metaclass=Meta):
        def __new__(cls):
            return object.__new__(cls)

        def __init__(self):
            hold()
    Made()


@thread("calls")
def by_destructor():
    class Dies:
        def __del__(self):
            hold()
    dies = Dies()
    del dies


@thread("calls")
def by_weak_reference():
    import weakref

    class Dies:
        pass
    dies = Dies()
    fact("keep", weakref.ref(dies, lambda _: hold()))
    dies = None


@thread("calls")
def in_class_body():
    class Body:
        hold()


@thread("calls")
def by_exec():
    exec("def made():\n\n    hold()\nmade()\n", globals())


@thread("calls")
def by_eval():
    eval("1 +\\\n hold()")


@thread("calls")
def by_import():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "a_module_that_waits.py")
    with open(path, "w") as file:
        file.write("import __main__\n\n__main__.hold()\n")
    sys.path.append(folder)
    import a_module_that_waits  # noqa: F401


@thread("calls")
def many_arguments():
    "{}{}{}".format(
        1,
        hold(),
        3)


@thread("calls")
def chained():
    (Chain()
     .first()
     .second(
         1)
     .third())


class Chain:
    def first(self):
        return self

    def second(self, n):
        return self

    def third(self):
        hold()


@thread("calls")
def while_handling():
    try:
        try:
            raise ValueError
        finally:
            int("1")
    except ValueError:
        try:
            hold()
        finally:
            pass


@thread("calls")
def in_f_string():
    f"""{1}
    {hold()}
    """


@thread("calls")
def with_kept_frame():
    fact("keep", sys._getframe())
    hold()


@thread("calls")
def traced():
    def trace(frame, event, argument):
        return trace
    sys.settrace(trace)
    down(3)


@thread("calls")
def in_trace_function():
    def trace(frame, event, argument):
        if event == "line":
            hold()
        return trace
    sys.settrace(trace)
    crunch(3)


@thread("calls")
def in_profile_function():
    def profile(frame, event, argument):
        if event == "c_call":
            hold()
    sys.setprofile(profile)
    len("x")


@thread("calls")
def monitored():
    events = sys.monitoring
    events.use_tool_id(3, "known")
    events.register_callback(3, events.events.PY_START, lambda code, offset: None)
    events.register_callback(3, events.events.LINE, lambda code, line: None)
    events.set_local_events(3, looked_at.__code__, events.events.PY_START | events.events.LINE)
    looked_at(1)


def looked_at(n):
    for i in range(n):
        crunch(i)
        hold()


# ---- lines: tables with large steps ----

def _executed(source, file):
    space = {"hold": hold}
    exec(compile(source, file, "exec"), space)
    space["start"]()


@thread("lines")
def far_down():
    _executed("def start():\n    x = 1\n" + "\n" * 70000 + "    hold()\n", "far.py")


@thread("lines")
def far_up():
    _executed("def start():\n    f(\n" + "    1,\n" * 300 + "    2) if 0 else (1 +\n" + "\n" * 1000 +
              "    hold())\n", "up.py")


@thread("lines")
def much_code():
    _executed("def start():\n    x = 0\n" + "    x = (x + 1) ^ 3 if x < 5 else x - 2\n" * 1500 + "    hold()\n",
              "much.py")


@thread("lines")
def long_line():
    _executed("def start():\n    x = [" + "0, " * 400 + "hold()]\n", "long.py")


@thread("lines")
def backwards():
    _executed("def start():\n    for x in (\n            1, 2):\n        if x == 2:\n            y = (\n"
              "                x,\n                hold(),\n                x)\n", "backwards.py")


# ---- names ----

@thread("names")
def latin_1():
    _executed("def caf\u00e9():\n    hold()\ndef start():\n    caf\u00e9()\n", "/tmp/caf\u00e9.py")


@thread("names")
def ucs_2():
    _executed("def \u0434\u043e\u043c():\n    hold()\ndef start():\n\n    \u0434\u043e\u043c()\n",
              "/tmp/\u65e5\u672c.py")


@thread("names")
def ucs_4():
    _executed("def \U00010428\U00010429():\n    hold()\ndef start():\n    \U00010428\U00010429()\n",
              "/tmp/\U0001f40d.py")


@thread("names")
def not_unicode():
    _executed("def start():\n    hold()\n", "/tmp/\udcff\udcfe.py")


@thread("names")
def long_name():
    _executed("def %s():\n    hold()\ndef start():\n    %s()\n" % ("n" * 400, "n" * 400), "/tmp/" + "d" * 200 + "/f.py")


@thread("names")
def odd_file_names():
    _executed("def start():\n    hold()\n", 'a;b "quoted" \\ back\nnew line\t.py')


# ---- native: Python called back by C ----

@thread("native")
def by_qsort():
    import ctypes
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def compare(a, b):
        hold()
        return 0
    numbers = (ctypes.c_int * 4)(4, 3, 2, 1)
    libc = ctypes.CDLL(None)
    fact("native", [["compare", "by_qsort", "qsort"]])
    libc.qsort(numbers, 4, 4, kind(compare))


@thread("native")
def by_nested_qsort():
    import ctypes
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc = ctypes.CDLL(None)

    def sort(function):
        libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, kind(function))

    def innermost(a, b):
        hold()
        return 0

    def outermost(a, b):
        sort(innermost)
        return 0
    fact("native", [["innermost", "sort", "qsort"], ["outermost", "sort", "qsort"]])
    sort(outermost)


def extension():
    import importlib.util
    path = os.environ.get("KNOWN_EXTENSION")
    if not path:
        raise ImportError("no extension was compiled for this version")
    spec = importlib.util.spec_from_file_location("known_extension", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@thread("native")
def by_extension():
    module = extension()
    fact("native", [["hold", "by_extension", "known_middle"]])
    module.call(hold, 5)


@thread("native")
def by_extension_waiting():
    module = extension()
    fact("native", [["", "by_extension_waiting", "known_wait"]])
    arrive()
    module.wait(GATE)


@thread("native")
def by_extension_and_back():
    module = extension()

    def twice():
        module.call(lambda: down(2), 1)
    fact("native", [["<lambda>", "twice", "known_middle"], ["twice", "by_extension_and_back", "known_middle"]])
    module.call(twice, 2)


# ---- async ----

class Awaited:
    def __await__(self):
        hold()
        yield


async def innermost():
    await Awaited()


async def numbers():
    yield 1
    await innermost()


async def middle():
    async for _ in numbers():
        pass


async def within():
    async with Manager():
        pass


class Manager:
    async def __aenter__(self):
        await middle()

    async def __aexit__(self, *args):
        pass


@thread("async")
def awaiting():
    import asyncio
    asyncio.run(within())


@thread("async")
def called_back():
    import asyncio

    async def schedules():
        asyncio.get_running_loop().call_soon(hold)
        await asyncio.sleep(1000)
    asyncio.run(schedules())


@thread("async")
def in_loop():
    import asyncio

    async def sleeps():
        arrive()
        await asyncio.sleep(1e6)
    asyncio.run(sleeps())


@thread("async")
def in_task():
    import asyncio

    async def waits():
        await innermost()

    async def gathers():
        await asyncio.gather(waits(), asyncio.sleep(1000))
    asyncio.run(gathers())


# ---- interpreters ----

SUB = """if True:
    import json, os, sys
    def frames():
        frame, found = sys._getframe(2), []
        while frame:
            code = frame.f_code
            found.append({"name": code.co_name, "qualname": getattr(code, "co_qualname", code.co_name),
                          "file": code.co_filename, "line": frame.f_lineno})
            frame = frame.f_back
        return found
    def say():
        os.write(%d, json.dumps(frames()).encode())
        return %d
    def inner(n):
        return inner(n - 1) if n else os.read(say(), 1)
    inner(3)
"""


@thread("interpreters")
def sub_interpreter():
    try:
        import _interpreters as interpreters
        run = interpreters.exec
    except ImportError:
        import _xxsubinterpreters as interpreters
        run = interpreters.run_string
    reading, writing = os.pipe()
    # 3.12.1 and 3.13.5 were seen to abort when one has a lock of its own.
    config = {(3, 12): {"isolated": False}, (3, 13): {"config": "legacy"}}
    inside = interpreters.create(**config.get(sys.version_info[:2], {}))
    me = threading.get_ident()

    def listen():
        facts.setdefault(me, {})["above"] = json.loads(os.read(reading, 65536).decode())
        arrive()
    threading.Thread(target=listen, daemon=True).start()
    run(inside, SUB % (writing, GATE))


# ---- the truth ----

spans = {}  # (id of code, offset) -> span: there are stacks with the same frame three thousand times


def span_of(code, offset):
    key = (id(code), offset)
    if key not in spans:
        span = list(code.co_positions())[offset // 2]
        spans[key] = None if None in span else [span[0], span[1], span[2] + 1, span[3] + 1]
    return spans[key]


def frames_of(frame):
    found = []
    while frame:
        code = frame.f_code
        one = {"name": code.co_name, "qualname": getattr(code, "co_qualname", code.co_name),
               "file": code.co_filename, "line": frame.f_lineno}
        if hasattr(code, "co_positions") and frame.f_lasti >= 0:
            span = span_of(code, frame.f_lasti)
            if span:
                one["span"] = span
        found.append(one)
        frame = frame.f_back
    return found


def lines_of(function):
    code = function.__code__
    if hasattr(code, "co_lines"):
        return sorted({line for _, _, line in code.co_lines() if line})
    import dis
    return sorted({line for _, line in dis.findlinestarts(code)})


def either(names, outer):
    """Stacks of these functions, of which the last one is the thread's."""
    return [[{"name": name, "qualname": name, "file": globals()[name].__code__.co_filename,
              "lines": lines_of(globals()[name])} for name in stack] + outer for stack in names]


def truth_of(ident, frame, native, what):
    found = dict(facts.get(ident, {}), id=native, group=getattr(what, "group", ""),
                 what=getattr(what, "__name__", ""))
    found.pop("keep", None)
    above = found.pop("above", [])
    # A thread that runs may be between two frames; without the lock, even the interpreter itself is wrong then.
    if "either" not in found:
        found["frames"] = above + frames_of(frame)
    return found


def native_id(one):
    """In a forked child, 3.8 and 3.9 still tell the parent's of the main thread."""
    return os.getpid() if one is threading.main_thread() else one.native_id


def truth(targets):
    current, me = sys._current_frames(), threading.get_ident()
    return [truth_of(one.ident, current[one.ident], native_id(one), targets.get(one))
            for one in threading.enumerate() if one.ident != me and one.ident in current]


def asleep(native):
    try:
        with open("/proc/self/task/%d/stat" % native) as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def everyone(targets):
    with arrived_lock:
        return arrived >= len(targets)


def settled(targets):
    """The truth, when it has been the same three times in a row."""
    same, last = 0, None
    while same < 3:
        time.sleep(0.03)
        now = truth(targets)
        quiet = all("either" in one or asleep(one["id"]) for one in now)
        same = same + 1 if now == last and quiet and everyone(targets) else 0
        last = now
    return last


def under_way(targets):
    """Threads that run are where they do so for ever."""
    current = sys._current_frames()
    return all(current[one.ident].f_code.co_name in ("crunch", "never_ends", "counts_down")
               for one, function in list(targets.items()) if function.group == "running")


def report(targets):
    known = settled(targets)
    may_run.set()
    while not under_way(targets):
        time.sleep(0.01)
    # What cannot be written as UTF-8 stands there as escaped surrogates.
    sys.stdout.write(json.dumps({"version": sys.version.split()[0], "pid": os.getpid(), "threads": known,
                                 "missing": missing}) + "\n")
    sys.stdout.flush()


def guarded(function, targets):
    """A thread that cannot do what it should is missing, and does not count."""
    def start():
        try:
            function()
        except (ImportError, AttributeError) as reason:
            missing[function.__name__] = str(reason)
            targets.pop(threading.current_thread())
    start.__name__ = function.__name__
    return start


def wait_for_the_end():
    while os.read(0, 4096):
        pass
    os._exit(0)


def handler(number, frame):
    hold()


def main(groups):
    sys.setrecursionlimit(20000)
    threading.stack_size((256 if "deep" in groups or "all" in groups else 8) << 20)
    targets = {}
    try:
        import asyncio  # noqa: F401, once, since threads that import it all at once wait for each other for long
    except ImportError:
        pass
    chosen = [f for f in wanted if f.group in groups or "all" in groups]
    for function in chosen:
        one = threading.Thread(target=guarded(function, targets), daemon=True, name=function.__name__[:15])
        targets[one] = function
        one.start()
    threading.stack_size(0)
    if "fork" in groups:
        while not everyone(targets):
            time.sleep(0.01)
        if os.fork() == 0:
            targets.clear()
    threading.Thread(target=report, args=(targets,), daemon=True).start()
    if "signal" in groups:
        signal.signal(signal.SIGUSR1, handler)
        os.kill(os.getpid(), signal.SIGUSR1)
    wait_for_the_end()


if __name__ == "__main__":
    if sys.argv[1] == "exec":
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__)] + sys.argv[2:])
    main(sys.argv[1:])
