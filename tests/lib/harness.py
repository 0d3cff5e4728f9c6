# SPDX-License-Identifier: BSD-2-Clause
"""The test harness of everything that runs sonde as a program.

    from harness import *

    @test
    def reports_both_functions():
        got = recording(["--", program("split"), "100000000", "500"])
        check(got.share("heavy") > 60, "heavy has %s" % got.share("heavy"))

    main()

Prints "ok NAME", "FAIL NAME" or "skip NAME: reason" for every test; `FILE NAME...` runs only those.
Each test has an empty directory of its own, `work()`, that goes away afterwards. Nothing that a test
started survives it.
"""
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
SONDE = os.path.realpath(os.environ.get("SONDE", os.path.join(ROOT, "build", "sonde")))
PROGRAMS = os.path.join(ROOT, "tests", "live", "programs")
CACHE = os.path.join(os.environ.get("SONDE_BUILD", os.path.join(ROOT, "build")), "programs")

# Time limits are there for what hangs; a machine may be slow, and other tests run beside this one.
PATIENCE = 3

# How each program can be built: the same source, another way of finding its stacks and names.
# name -> compiler and flags. "stripped" and "debuglink" are done to the result.
BUILDS = {
    "gcc-O0": ["gcc", "-O0", "-g"],
    "gcc-O2": ["gcc", "-O2", "-g", "-fomit-frame-pointer"],
    "gcc-O2-fp": ["gcc", "-O2", "-fno-omit-frame-pointer"],
    "no-pie": ["gcc", "-O2", "-no-pie", "-fno-pie"],
    "stripped": ["gcc", "-O2", "-rdynamic", "-Wl,-s"],
    "debuglink": ["gcc", "-O2", "-g"],
    "compressed-debug": ["gcc", "-O2", "-g", "-gz"],
    "split-dwarf": ["gcc", "-O2", "-g", "-gsplit-dwarf"],
    "static": ["gcc", "-O2", "-static"],
    "static-pie": ["gcc", "-O2", "-static-pie"],
    "musl-static": ["musl-gcc", "-O2", "-static"],
    "musl-dynamic": ["musl-gcc", "-O2"],
    # Its own code has neither unwind tables nor frame pointers.
    "bare-static": ["gcc", "-O2", "-static", "-fomit-frame-pointer",
                    "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    "clang-O2": ["clang", "-O2", "-g", "-fomit-frame-pointer"],
    "no-cfi-fp": ["gcc", "-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables",
                  "-fno-unwind-tables"],
}


class Skip(Exception):
    pass


class Failure(Exception):
    pass


tests = []
_work = None
_children = []


def test(function):
    tests.append(function)
    return function


def skip(reason):
    raise Skip(reason)


def check(condition, words):
    if not condition:
        raise Failure(words)


def work(name=""):
    """A path in this test's own directory."""
    return os.path.join(_work, name)


def need_root():
    if os.geteuid() != 0:
        skip("needs root")


def need(command):
    if not shutil.which(command):
        skip("%s is not installed" % command)


def need_mount_namespace():
    need_root()
    need("unshare")
    if run(["unshare", "-m", "true"]).returncode:
        skip("mount namespaces cannot be made here (a chroot, or a container)")


def limited_cgroup(name):
    """A cgroup whose threads get a fifth of a CPU; its directory, for the caller to remove."""
    for root, limit, words in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"),
                               ("/sys/fs/cgroup", "cpu.max", "20000 100000")):
        path = os.path.join(root, name)
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        try:
            os.mkdir(path)
            with open(os.path.join(path, limit), "w") as f:
                f.write(words)
            return path
        except OSError:
            if os.path.isdir(path):
                os.rmdir(path)
    skip("no cgroup can be made here that limits CPU time")


def program(name, build="gcc-O2", source=None):
    """Compiles tests/live/programs/NAME.c once a build; returns its path."""
    source = source or os.path.join(PROGRAMS, name + ".c")
    compiler = BUILDS[build]
    need(compiler[0])
    out = os.path.join(CACHE, build, name)
    newest = max(os.path.getmtime(os.path.join(PROGRAMS, f)) for f in os.listdir(PROGRAMS))
    newest = max(newest, os.path.getmtime(source), os.path.getmtime(__file__))
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return out
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(out) or os.path.getmtime(out) <= newest:
            _compile(name, build, source, out)
    return out


def _compile(name, build, source, out):
    flags = ["-shared", "-fPIC"] if name in ("plugin", "injected") else []
    fresh = "%s.%d" % (out, os.getpid())
    subprocess.run(BUILDS[build] + ["-D_GNU_SOURCE"] + flags + ["-o", fresh, source, "-pthread", "-ldl"],
                   check=True, cwd=os.path.dirname(out))
    if build == "debuglink":
        for step in (["objcopy", "--only-keep-debug", fresh, out + ".debug"],
                     ["objcopy", "--strip-all", "--remove-section=.gnu_debuglink",
                      "--add-gnu-debuglink=" + out + ".debug", fresh]):
            subprocess.run(step, check=True)
    os.rename(fresh, out)


def start(command, **options):
    """Starts a process that does not survive the test; waits for its "ready" line unless told
    ready=False."""
    ready = options.pop("ready", True)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    child = subprocess.Popen(command, **options)
    _children.append(child)
    if ready:
        line = child.stdout.readline()
        check(line == b"ready\n", "%s said %r instead of ready" % (command[0], line))
    return child


def run(command, timeout=60, **options):
    """Runs to the end with output captured as bytes."""
    options.setdefault("stdin", subprocess.DEVNULL)
    if "input" in options:
        del options["stdin"]
    timeout *= PATIENCE
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=timeout, **options)
    except subprocess.TimeoutExpired as gone:
        raise Failure("still running after %d s: %s\nstderr: %r"
                      % (timeout, " ".join(map(str, command)), gone.stderr))


def sonde(*arguments, **options):
    return run([SONDE] + [str(a) for a in arguments], **options)


def expect(done, status, *words):
    """The exit status, and words that stand on stderr (in any case of letters)."""
    err = done.stderr.decode(errors="replace")
    check(done.returncode == status, "exit status %s, not %s\nstderr: %s"
          % (done.returncode, status, err))
    for word in words:
        check(word.lower() in err.lower(), "stderr lacks %r:\n%s" % (word, err))
    for bad in ("Sanitizer", "runtime error"):
        check(bad not in err, err)


class Recording:
    """What `sonde report` says about a file."""

    def __init__(self, path):
        self.path = path
        done = sonde("report", path, "--json")
        expect(done, 0)
        self.json = json.loads(done.stdout)
        done = sonde("report", path, "--folded")
        expect(done, 0)
        self.stacks = []
        for line in done.stdout.decode(errors="replace").splitlines():
            frames, _, count = line.rpartition(" ")
            self.stacks.append((frames.split(";"), int(count)))

    @property
    def samples(self):
        return self.json["samples"]

    @property
    def quality(self):
        return self.json["quality"]

    @property
    def threads(self):
        return self.json["threads"]

    def count(self, function):
        """Samples with the function anywhere on the stack."""
        return sum(n for frames, n in self.stacks if function in frames)

    def share(self, function):
        return 100.0 * self.count(function) / max(1, sum(n for _, n in self.stacks))

    def deepest(self, function):
        """How often the function stands on the stack that has it most often."""
        return max([frames.count(function) for frames, _ in self.stacks] or [0])

    def dump(self):
        done = sonde("report", self.path, "--dump")
        expect(done, 0)
        return done.stdout.decode(errors="replace")


def recording(arguments, status=0, timeout=90, **options):
    """Runs `sonde record` to its end and reads what it wrote."""
    path = work("out.sonde")
    done = sonde("record", "-o", path, *arguments, timeout=timeout, **options)
    expect(done, status)
    return Recording(path)


def alive(child):
    return child.poll() is None


@contextlib.contextmanager
def _own_directory():
    global _work
    _work = tempfile.mkdtemp(prefix="sonde-test-")
    os.chmod(_work, 0o755)
    try:
        yield
    finally:
        for child in _children:
            if alive(child):
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe:
                    pipe.close()
        _children.clear()
        shutil.rmtree(_work, ignore_errors=True)


def _run_one(function):
    name = function.__name__
    began = time.monotonic()
    try:
        with _own_directory():
            function()
    except Skip as reason:
        print("skip %s: %s" % (name, reason))
        return True
    except Failure as words:
        print("%s" % words)
        print("FAIL %s" % name)
        return False
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print("FAIL %s" % name)
        return False
    print("ok %s" % name)
    if os.environ.get("SONDE_TEST_TIMES"):
        print("   %.1f s" % (time.monotonic() - began))
    return True


def main():
    wanted = sys.argv[1:]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    good = True
    for function in tests:
        if not wanted or function.__name__ in wanted:
            good = _run_one(function) and good
            sys.stdout.flush()
    sys.exit(0 if good else 1)
