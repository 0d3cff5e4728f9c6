# SPDX-License-Identifier: BSD-2-Clause
"""Runs tests/live/programs/known_stacks.py and compares what sonde says with what it says of itself."""
import os
import re
import select
import shutil
import subprocess

from harness import *
from pythons import pythons

SCRIPT = os.path.join(PROGRAMS, "known_stacks.py")
SHOWN = 6  # differences that a failure prints


def extension(python):
    """known_extension for this interpreter, or None."""
    if not python.include:
        return None
    need("gcc")
    compiler = "musl-gcc" if "musl" in python.kinds else "gcc"
    source = os.path.join(PROGRAMS, "known_extension.c")
    kept = os.path.join(CACHE, "known_extension-%s.so" % python.label)
    if not os.path.exists(kept) or os.path.getmtime(kept) < os.path.getmtime(source):
        os.makedirs(CACHE, exist_ok=True)
        fresh = "%s.%d" % (kept, os.getpid())
        done = subprocess.run([compiler, "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o", fresh, source] +
                              [flag for folder in python.include for flag in ("-I", folder)], capture_output=True)
        check(done.returncode == 0, "the extension does not compile: %r" % done.stderr[-500:])
        os.rename(fresh, kept)
    # Where a process in a root directory of its own sees it, too.
    return shutil.copy(kept, work("known_extension.so"))


def stacks_of(pid, *options):
    """tid -> thread object, as `sonde stack --json` has it. pid None: a core is among the options."""
    done = sonde("stack", "--json", *options, *([] if pid is None else [pid]))
    expect(done, 0)
    return {one["tid"]: one for one in json.loads(done.stdout.decode(errors="surrogateescape"))["threads"]}


def plain(text):
    """Without what cannot be written as UTF-8."""
    return re.sub("[\udc80-\udcff\ufffd]+", "?", text)


# Builds of a version that others of the same version stand for, where what is looked at is not how it was built.
BUILDS_OF_OTHERS = ("stripped", "bare", "embedded", "trixie", "distribution", "sid-3.13")


def _add(function, python):
    def body():
        function(python)
    body.__name__ = "%s_%s" % (function.__name__, python.label.replace("-", "_").replace(".", "_"))
    test(body)


def each_python(function):
    """The test with each interpreter that sonde should know."""
    for python in pythons():
        if "later" not in python.kinds:
            _add(function, python)


def each_version(function):
    """With one of each version, and of what is a version of its own: free-threaded, musl."""
    for python in pythons():
        if "later" not in python.kinds and not python.label.startswith(BUILDS_OF_OTHERS):
            _add(function, python)


def later_versions(function):
    """With those that came after sonde."""
    for python in pythons():
        if "later" in python.kinds:
            _add(function, python)


class Known:
    """The program, waiting in all of its places."""

    def __init__(self, python, *groups, processes=1, environment=None, within=()):
        self.python = python
        self.script = work("known_stacks.py")
        if "chroot" in python.kinds and not self.script.startswith("/tmp/"):
            skip("only /tmp is the same inside")
        shutil.copy(SCRIPT, self.script)
        more = dict(environment or {})
        library = extension(python)
        if library:
            more["KNOWN_EXTENSION"] = library
        self.child = start(list(within) + python.command + [self.script] + list(groups), ready=False, stdin=subprocess.PIPE,
                           env=python.environment(**more))
        self.unread = b""
        self.looks = [0, 0]  # at threads that run: without a stack, with one
        self.processes = [json.loads(self._line()) for _ in range(processes)]
        self.missing = self.processes[0]["missing"]
        self.threads = self.processes[0]["threads"]
        self.pid = self.processes[0]["pid"]

    def _line(self):
        pipe = self.child.stdout
        while b"\n" not in self.unread:
            more = os.read(pipe.fileno(), 1 << 20) if select.select([pipe], [], [], 120)[0] else b""
            check(more, "%s has nothing to say: %s" % (self.script, self.child.poll()))
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.child.stdin.close()
        self.child.kill()
        self.child.wait()

    def check_looks(self, least_pct):
        """So many of the looks at running threads came to a stack."""
        without, looked = self.looks
        check(100 * looked >= least_pct * (without + looked), "%d stacks of running threads, %d times none"
              % (looked, without))

    def name(self, frame):
        return frame["qualname" if self.python.version >= (3, 11) else "name"]

    def check_stacks(self, stacks, process=None):
        wrong = []
        threads = (process or self.processes[0])["threads"]
        for truth in threads:
            wrong += ["%s: %s" % (truth["what"] or truth["id"], words)
                      for words in self._compare(truth, stacks.get(truth["id"]))][:3]
        check(not wrong, "%d differences in %d threads of %s:\n%s"
              % (len(wrong), len(threads), self.python.label, "\n".join(wrong[:SHOWN])))

    def _compare(self, truth, got):
        if not got:
            return ["no such thread"]
        if "either" in truth:
            self.looks[not got.get("hole")] += 1
            if got.get("hole"):
                return []
        frames = [f for f in got["frames"] if f.get("kind") == "python"]
        if "either" in truth:
            tries = [self._differences(one, frames) for one in truth["either"]]
            return [] if [] in tries else ["none of the possible stacks: %s" % _words(frames[:4])]
        return self._differences(truth["frames"], frames) + self._between(truth, got["frames"])

    def _differences(self, want, frames):
        wrong = []
        for i, (a, b) in enumerate(zip(want, frames)):
            lines = a.get("lines") or [a["line"]]
            same = (plain(self.name(a)) == plain(b["function"]) and plain(a["file"]) == plain(b.get("file", ""))
                    and b.get("line") in lines)
            if not same:
                wrong.append("frame %d is %s, not %s:%s of %s" % (i, _words([b]), self.name(a), lines, a["file"]))
            elif "span" in a and "column" in b and b["column"] != a["span"][2]:
                wrong.append("frame %d %s: column %d, not %s" % (i, _words([b]), b["column"], a["span"]))
        if len(want) != len(frames):
            wrong.append("%d Python frames, not %d: %s" % (len(frames), len(want), _words(frames[:5])))
        return wrong

    def _between(self, truth, frames):
        """The C function between two Python ones, for each that is known; "" is the innermost end."""
        wrong = []
        for inner, outer, name in truth.get("native", []):
            above = [part for last, part, first in _parts(frames) if (last, first) == (inner, outer)]
            if not any(name in f["function"] for part in above for f in part):
                wrong.append("no %s between %s and %s: %s" % (name, inner, outer, _words(frames[:14])))
        return wrong


def _last(frame):
    return frame["function"].rpartition(".")[2]


def _parts(frames):
    """(Python function, C frames, Python function) of each row of C frames that a Python function called."""
    part, inner = [], ""
    for frame in frames:
        if frame.get("kind") == "python":
            yield inner, part, _last(frame)
            part, inner = [], _last(frame)
        else:
            part.append(frame)


def _words(frames):
    return " < ".join("%s%s:%s" % (f["function"], "" if f.get("kind") else "()", f.get("line", "?")) for f in frames)
