#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every CPython that can be had on this machine, for tests that must hold on each.

    for python in pythons(): start(python.command + ["script.py"], env=python.environment())
    missing()    (label, reason) of those that cannot be had

Those of pyenv and of the distribution are taken as they are. Other suites of Debian are unpacked into a
directory each and run in a mount namespace with that as their root, so they also are what a container is:
/tmp is the same inside. Free-threaded and musl builds are compiled from Debian's source package, once, which
takes minutes: `tests/lib/pythons.py --make` does that and all else beforehand, and pythons() leaves out what was
not made.
All this is kept in ~/.cache/sonde-tests/pythons, or where $SONDE_PYTHONS says.

Run as a program it prints the list.
"""
import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import debian

STORE = os.environ.get("SONDE_PYTHONS") or os.path.expanduser("~/.cache/sonde-tests/pythons")
FIRST, LAST = (3, 8), (3, 15)
SUITES = {"trixie": ["3.13"], "sid": ["3.13", "3.14", "3.15"]}
SOURCE_SUITE, SOURCE_PACKAGE = "trixie", "python3.13"
# Bare builds have their code of libpython3.X.a in them, and no symbol of it. In those of 3.8 and 3.9 nothing says where
# the runtime is.
BARE = ("3.10", "3.11", "3.12", "3.13")
STRIPPED = ("3.9", "3.11", "3.12")
EMBEDDER = """
#define _GNU_SOURCE
typedef int size_type;
int Py_BytesMain(int, char **);
int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }
"""
ABOUT = """
import json, sys, sysconfig
print(json.dumps([list(sys.version_info[:3]), sysconfig.get_config_var("Py_GIL_DISABLED") or 0,
                  sysconfig.get_path("include")]))
"""


class Missing(Exception):
    pass


class Python:
    """command: how it is started, as a list. version: (3, 12, 1). kinds: of "shared", "static", "stripped",
    "free-threaded", "musl", "chroot", "bare" (no extension modules, so neither ctypes nor select) and "later" (what
    sonde does not know: after its last version, or before its first one). include: the directories of its headers,
    None without."""

    def __init__(self, label, command, kinds, variables=(), root="", built=False):
        self.label, self.command, self.kinds = label, command, set(kinds)
        self.variables, self.root = dict(variables), root
        about = self._ask()
        self.version = tuple(about[0])
        if about[1]:
            self.kinds.add("free-threaded")
        if not FIRST <= self.version[:2] <= LAST:
            self.kinds.add("later")
        self.include = self._headers(about[2])

    def environment(self, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        if "free-threaded" in self.kinds:
            clean["PYTHON_GIL"] = "0"
        return dict(clean, PYTHONDONTWRITEBYTECODE="1", **self.variables, **more)

    def _ask(self):
        done = subprocess.run(self.command + ["-S", "-c", ABOUT], env=self.environment(), capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=60)
        if done.returncode:
            raise Missing("it does not run: " + done.stderr.strip()[-200:])
        return json.loads(done.stdout)

    def _headers(self, path):
        folders = [self.root + path]
        if self.root:
            folders.append(self.root + "/usr/include")
        if "bare" in self.kinds or not os.path.exists(folders[0] + "/Python.h"):
            return None
        return folders

    def __str__(self):
        return "%-22s %-9s %-28s %s" % (self.label, ".".join(map(str, self.version)),
                                        " ".join(sorted(self.kinds)), " ".join(self.command))


def _store(*names):
    return os.path.join(STORE, *names)


@contextlib.contextmanager
def _once(*names):
    """Yields a fresh directory to fill, or None when it was filled before."""
    path = _store(*names)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path + "/.done"):
            yield None
            return
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        yield path
        open(path + "/.done", "w").close()


def _script(path, text):
    fresh = "%s.%d" % (path, os.getpid())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(fresh, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(fresh, 0o755)
    os.rename(fresh, path)
    return path


def _compile(out, arguments, source=EMBEDDER):
    with open(out + ".c", "w") as f:
        f.write(source)
    done = subprocess.run(["gcc", "-O2", "-o", out, out + ".c"] + arguments, capture_output=True, text=True)
    if done.returncode:
        raise Missing("it does not link: " + done.stderr.strip()[-300:])


# ---- of this machine ----

def _prefix(series):
    """pyenv's newest of this series."""
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/%s.*" % series))
    if not found:
        raise Missing("pyenv has no %s" % series)
    return max(found, key=lambda path: int(re.search(r"(\d+)$", path).group(1)))


def _pyenv(series):
    prefix = _prefix(series)
    shared = glob.glob(prefix + "/lib/libpython%s*.so.1.0" % series)
    return Python("pyenv-" + series, [prefix + "/bin/python" + series], ["shared" if shared else "static"])


def _distribution():
    path = os.path.realpath("/usr/bin/python3")
    if not os.path.exists(path):
        raise Missing("there is no /usr/bin/python3")
    linked = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return Python("distribution", [path], ["shared" if "libpython" in linked else "static"])


# ---- made of those ----

def _stripped(series):
    """A copy of its library and executable without .symtab: what is exported is all there is to go by."""
    prefix = _prefix(series)
    with _once("stripped-" + series) as folder:
        if folder:
            for path in [prefix + "/bin/python" + series] + glob.glob(prefix + "/lib/libpython*.so.1.0"):
                subprocess.run(["strip", "--strip-all", "-o", os.path.join(folder, os.path.basename(path)), path],
                               check=True)
    folder = _store("stripped-" + series)
    return Python("stripped-" + series, ["%s/python%s" % (folder, series)], ["shared", "stripped"],
                  {"LD_LIBRARY_PATH": folder, "PYTHONHOME": prefix})


def _bare(series):
    prefix = _prefix(series)
    archives = glob.glob("%s/lib/python%s/config-*/libpython%s.a" % (prefix, series, series))
    if not archives:
        raise Missing("pyenv's %s has no libpython%s.a" % (series, series))
    with _once("bare-" + series) as folder:
        if folder:
            _compile(folder + "/app", archives + ["-s", "-lm", "-ldl", "-lpthread", "-lutil"])
    return Python("bare-" + series, [_store("bare-" + series, "app")], ["static", "stripped", "bare"],
                  {"PYTHONHOME": prefix})


# ---- of other suites ----

ENTER = """exec unshare -m --propagation private sh -c '
mount --rbind /tmp "$0/tmp" && mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"
' '%s' %s "$@"
"""


def _suite(suite):
    """The root directory with the suite's interpreters in it."""
    if os.geteuid():
        raise Missing("needs root, to give it a root directory of its own")
    with _once(suite) as folder:
        if folder:
            root = folder + "/root"
            for name in ("usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "tmp", "proc", "dev"):
                os.makedirs(os.path.join(root, name))
            for name in ("bin", "lib", "lib64", "sbin"):
                os.symlink("usr/" + name, os.path.join(root, name))
            apt = debian.Apt(folder, suite)
            names = ["python" + series for series in SUITES[suite]]
            shared = ["lib%s" % name for name in names]
            apt.unpack(apt.closure(names + shared) + ["lib%s-dev" % name for name in names], root)
    return _store(suite, "root")


def _of_suite(suite, series):
    root = _suite(suite)
    if not os.path.exists(root + "/usr/bin/python" + series):
        raise Missing("%s has no %s" % (suite, series))
    script = _script(_store("bin", "python%s-%s" % (series, suite)), ENTER % (root, "/usr/bin/python" + series))
    return Python("%s-%s" % (suite, series), [script], ["static", "chroot"], root=root)


def _embedded(suite, series):
    """The distribution's shared library, in a program of someone else's."""
    root = _suite(suite)
    library = "%s/usr/lib/x86_64-linux-gnu/libpython%s.so.1.0" % (root, series)
    if not os.path.exists(library):
        raise Missing("%s has no libpython%s" % (suite, series))
    app = "/usr/bin/app-" + series
    if not os.path.exists(root + app):
        fresh = "%s.%d" % (root + app, os.getpid())
        _compile(fresh, [library, "-Wl,--allow-shlib-undefined", "-s"])
        os.rename(fresh, root + app)
    script = _script(_store("bin", "app%s-%s" % (series, suite)), ENTER % (root, app))
    return Python("embedded-%s-%s" % (suite, series), [script], ["shared", "chroot"], root=root)


# ---- made from source ----

CONFIGURE = ["--without-ensurepip", "--disable-test-modules", "CFLAGS=-O1"]
FROM_SOURCE = {
    "source-3.13t": ["--disable-gil"],
    "source-3.13-musl": [],
}
# musl-gcc looks for no header of the kernel, and says that it is the compiler of another C library.
MUSL_CC = """case "$*" in *--print-multiarch*) exit 0;; esac
exec musl-gcc -idirafter '%s' "$@"
"""


def _source():
    with _once("source") as folder:
        if folder:
            apt = debian.Apt(folder + "/apt", SOURCE_SUITE, sources=True)
            apt.source(SOURCE_PACKAGE, folder + "/tree")
    return _store("source", "tree")


def _musl_compiler():
    if not shutil.which("musl-gcc"):
        raise Missing("musl-gcc is not installed")
    folder = _store("kernel-headers")
    os.makedirs(folder, exist_ok=True)
    for name, path in (("linux", "/usr/include/linux"), ("asm-generic", "/usr/include/asm-generic"),
                       ("asm", "/usr/include/%s-linux-gnu/asm" % os.uname().machine)):
        if not os.path.islink(os.path.join(folder, name)):
            os.symlink(path, os.path.join(folder, name))
    return _script(_store("bin", "musl-cc"), MUSL_CC % folder)


def _make(label):
    """Configures, compiles and installs it; minutes."""
    with _once(label) as folder:
        if not folder:
            return
        build = folder + "/build"
        os.makedirs(build)
        prefix = folder + "/python"
        options = FROM_SOURCE[label] + CONFIGURE
        if "musl" in label:
            options += ["CC=" + _musl_compiler(), "PKG_CONFIG_LIBDIR=" + folder]
        with open(folder + "/log", "w") as log:
            for step in ([_source() + "/configure", "-q", "--prefix=" + prefix] + options,
                         ["make", "-s", "-j%d" % os.cpu_count()], ["make", "-s", "install"]):
                if subprocess.run(["nice", "-n", "19"] + step, cwd=build, stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL).returncode:
                    raise Missing("it does not compile: see %s/log" % folder)
        shutil.rmtree(build)


def _from_source(label):
    folder = _store(label)
    if not os.path.exists(folder + "/.done"):
        raise Missing("not made yet: tests/lib/pythons.py --make")
    kinds = ["shared" if "shared" in label else "static"] + (["musl"] if "musl" in label else [])
    return Python(label, [glob.glob(folder + "/python/bin/python3.[0-9]*[0-9t]")[0]], kinds)


# ---- all of them ----

_found, _missing = [], []


def _collect():
    series = ["3.%d" % minor for minor in range(FIRST[1], LAST[1] + 1)]
    wanted = [("pyenv-" + s, lambda s=s: _pyenv(s)) for s in ["3.7"] + series]
    wanted.append(("distribution", _distribution))
    wanted += [("stripped-" + s, lambda s=s: _stripped(s)) for s in STRIPPED]
    wanted += [("bare-" + s, lambda s=s: _bare(s)) for s in BARE]
    for suite, those in SUITES.items():
        for s in those:
            wanted.append(("%s-%s" % (suite, s), lambda a=suite, s=s: _of_suite(a, s)))
            wanted.append(("embedded-%s-%s" % (suite, s), lambda a=suite, s=s: _embedded(a, s)))
    wanted += [(label, lambda label=label: _from_source(label)) for label in FROM_SOURCE]
    for label, find in wanted:
        try:
            _found.append(find())
        except (Missing, debian.Refused) as reason:
            _missing.append((label, str(reason)))
        except (OSError, subprocess.SubprocessError, ValueError) as reason:
            _missing.append((label, "%s: %s" % (type(reason).__name__, reason)))


def pythons():
    if not _found:
        _collect()
    return _found


def missing():
    pythons()
    return _missing


def main():
    if sys.argv[1:] == ["--make"]:
        for label in FROM_SOURCE:
            try:
                _make(label)
                print("made %s" % label)
            except (Missing, debian.Refused) as reason:
                print("%s cannot be made: %s" % (label, reason))
            sys.stdout.flush()
    for python in pythons():
        print(python)
    for label, reason in missing():
        print("%-22s is missing: %s" % (label, reason))


if __name__ == "__main__":
    main()
