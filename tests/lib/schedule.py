#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds everything and runs every test program, side by side where that changes no result. Called by scripts/test.

There are three rows of work:

    tests    as many at a time as there are CPUs
    slow     what only needs CPU time and must be there for others, at a lower priority: builds, interpreters. One at a time
    alone    one at a time when nothing else runs: test programs that measure how CPU time is shared, and second tries

A test program says in one of its first lines where it belongs when it is not an ordinary one; the words in
parentheses are for readers:

    # schedule: alone (it counts how often a thread was preempted)
    # schedule: early (it takes minutes, the others fit beside it)
    # schedule: pythons (it wants those that tests/lib/pythons.py makes)

Results of one test program are printed together when it has ended.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
OUT = "build-test"
GROUPS = "style unit asan cli live interop fuzz arm64 kernels".split()
LIMITS = {"style": 300, "cli": 900, "live": 1800, "interop": 900, "arm64": 1200, "kernels": 2400}
UNIT_LIMIT = 600
# They look at threads of their own that run, sleep and are stopped, and have no second try.
UNITS_ALONE = {"look", "running", "ptrace", "off_cpu"}
SANITIZED = ["-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Doptimization=1"]
# What fails there gets one more try, alone: a scheduler with other things to do is part of what live tests look at, and
# emulated kernels panic now and then. What fails twice is a failure.
TRIED_AGAIN = ("live/", "interop/", "kernels/")
SLOWEST = 10
RESULT = re.compile(r"^(ok|FAIL|skip) ", re.M)


class Job:
    """One test program, or one build. row: "tests", "slow" or "alone". after: names of jobs that must have ended.
    early: larger numbers begin first."""

    def __init__(self, name, command, limit=None, row="tests", after=(), early=0, environment=None):
        self.name, self.command, self.limit, self.row = name, command, limit, row
        self.after, self.early, self.environment = set(after), early, environment or {}
        self.seconds, self.text, self.again = 0.0, "", []

    def begin(self):
        self.log = tempfile.TemporaryFile()
        command = list(self.command)
        if self.row == "slow" and self.name != "build/gcc":  # which everything waits for
            command = ["nice", "-n", "5"] + command
        if self.limit:
            command = ["timeout", "-k", "10", str(self.limit)] + command
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
                                        env=dict(os.environ, **self.environment))

    def ended(self):
        if self.process.poll() is None:
            return False
        self.seconds += time.monotonic() - self.began
        self.log.seek(0)
        self.last_text = self.log.read().decode(errors="replace")
        self.log.close()
        return True


class Build(Job):
    """Configures build-test/NAME once, and builds it. One result line."""

    def __init__(self, name, compiler=None, options=(), **more):
        folder = os.path.join(OUT, name)
        script = 'set -e; if [ ! -f "$0/build.ninja" ]; then rm -rf "$0"; meson setup "$0" --werror "$@"; fi; ' \
                 'ninja -j "$JOBS" -C "$0" all tests bench/cfi_verify'
        environment = {"JOBS": str(os.cpu_count())}
        if compiler:
            environment["CC"] = compiler
        super().__init__("build/" + name, ["sh", "-c", script, folder] + list(options), environment=environment, **more)

    def result(self):
        with open(os.path.join(OUT, self.name.partition("/")[2] + ".log"), "w") as f:
            f.write(self.last_text)
        if self.process.returncode == 0:
            return "ok %s\n" % self.name
        return "".join(self.last_text.splitlines(True)[-60:]) + "FAIL %s\n" % self.name


class Quiet(Job):
    """Prepares something; what it has to say is kept in a file."""

    def result(self):
        with open(os.path.join(OUT, self.name + ".log"), "w") as f:
            f.write(self.last_text)
        return ""


class Test(Job):
    """A test program. One that dies, hangs or has no result at all is a failure itself."""

    def result(self):
        """What to print, or None when a second try has to come first."""
        if self.row == "again":
            return self._with_second_tries()
        self.text, self.status = self.last_text, self.process.returncode
        failed = re.findall(r"^FAIL (\w+)$", self.text, re.M)
        if failed and self.name.startswith(TRIED_AGAIN):
            self.first = list(self.command)
            self._try_again(failed)
            return None
        return self._words()

    def _try_again(self, names):
        self.row, self.again = "again", names
        self.command = self.first + [names[0]]

    def _with_second_tries(self):
        name = self.again.pop(0)
        line = re.compile("^FAIL %s$\n?" % name, re.M)
        if self.process.returncode == 0:
            self.text = line.sub("again %s: it failed once\nok %s\n" % (name, name), self.text, 1)
        else:
            self.text = line.sub("", self.text, 1) + self.last_text
        if self.again:
            self._try_again(self.again)
            return None
        if self.status not in (124, 137) and not re.search("^FAIL ", self.text, re.M):
            self.status = 0
        return self._words()

    def _words(self):
        text = self.text if not self.text or self.text.endswith("\n") else self.text + "\n"
        prefixed = re.sub(r"^(ok|FAIL|skip|again) ", r"\1 %s/" % self.name, text, flags=re.M)
        if self.status in (124, 137):
            return prefixed + "FAIL %s: still running after %d seconds\n" % (self.name, self.limit)
        if self.status != 0 and not re.search("^FAIL ", text, re.M):
            return prefixed + "FAIL %s: exit status %d\n" % (self.name, self.status)
        if not RESULT.search(text):
            return prefixed + "FAIL %s: it has no result\n" % self.name
        return prefixed


def executables(folder):
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]


def directives(path):
    with open(path, errors="replace") as f:
        head = [f.readline() for _ in range(12)]
    return set(re.findall(r"^# schedule: (\w+)", "".join(head), re.M))


def scripts_of(group):
    """Every executable file of the folder."""
    for path in executables(os.path.join("tests", group)):
        name = "%s/%s" % (group, os.path.splitext(os.path.basename(path))[0])
        words = directives(path)
        after = {"build/gcc"} if group != "style" else set()
        if "pythons" in words:
            after.add("pythons")
        early = 3 if "early" in words else 1 if group in ("live", "kernels") else 0
        yield Test(name, [path], LIMITS[group], row="alone" if "alone" in words else "tests", after=after, early=early)


def units_of(build, group):
    """The test programs of one build directory: an executable a module. Known when it is built."""
    for path in executables(os.path.join(OUT, build, "tests", "unit")):
        name = os.path.basename(path)
        if name.startswith("test_"):
            row = "alone" if name[len("test_"):] in UNITS_ALONE else "tests"
            yield Test("%s/%s" % (group, name[len("test_"):]), [path], UNIT_LIMIT, row=row, early=2)


def fuzz_targets():
    """Each over its corpus, for a few seconds; what it finds is kept in build-test/crashes."""
    crashes = os.path.join(OUT, "crashes")
    os.makedirs(crashes, exist_ok=True)
    seconds = os.environ.get("SONDE_FUZZ_SECONDS", "5")
    for path in executables(os.path.join(OUT, "asan", "tests", "fuzz")):
        if os.path.basename(path).startswith("fuzz_"):
            yield Test("fuzz", ["tests/fuzz/run", path, seconds, crashes], 120 + 4 * int(seconds))


class Schedule:
    def __init__(self, wanted):
        self.wanted, self.waiting, self.running, self.ended = wanted, [], [], set()
        self.times, self.counts, self.failed = {}, {"ok": 0, "FAIL": 0, "skip": 0}, []
        self.lanes = int(os.environ.get("SONDE_TEST_LANES", os.cpu_count() or 1))
        self.results = open(os.path.join(OUT, "results.txt"), "w")
        self._plan()

    def want(self, *groups):
        return any(group in self.wanted for group in groups)

    def _plan(self):
        self.waiting.append(Build("gcc", row="slow", early=9))
        if self.want("live", "kernels"):
            self.waiting.append(Quiet("pythons", ["python3", "tests/lib/pythons.py", "--make"], row="slow", early=5))
        if self.want("asan", "fuzz"):
            self.waiting.append(Build("asan", "clang", SANITIZED, row="slow", early=4))
        if self.want("style", "unit"):
            self.waiting.append(Build("clang", "clang", row="slow", early=3))
        for group in ("style", "arm64", "cli", "interop", "live", "kernels"):
            if self.want(group):
                self.waiting += scripts_of(group)

    def _built(self, name):
        """What can only be listed now."""
        if name == "build/gcc" and self.want("unit"):
            self.waiting += units_of("gcc", "unit")
        if name == "build/clang" and self.want("unit"):
            self.waiting += units_of("clang", "unit-clang")
        if name == "build/asan":
            self.waiting += units_of("asan", "asan") if self.want("asan") else []
            self.waiting += fuzz_targets() if self.want("fuzz") else []

    def _may_begin(self, job):
        known = {other.name for other in self.waiting + self.running}
        if job.after & known:
            return False
        rows = [other.row for other in self.running]
        if job.row in ("alone", "again"):
            others = [other for other in self.waiting if other.row in ("tests", "slow")]
            return not rows and not others
        if any(row in ("alone", "again") for row in rows):
            return False
        return rows.count(job.row) < (1 if job.row == "slow" else self.lanes)

    def run(self):
        while self.waiting or self.running:
            for job in sorted(self.waiting, key=lambda job: -job.early):
                if self._may_begin(job):
                    self.waiting.remove(job)
                    self.running.append(job)
                    job.begin()
            for job in [job for job in self.running if job.ended()]:
                self.running.remove(job)
                self._take(job)
            time.sleep(0.05)

    def _take(self, job):
        text = job.result()
        if text is None:
            self.waiting.append(job)
            return
        self.times[job.name] = self.times.get(job.name, 0) + job.seconds
        self.say(text)
        self._built(job.name)

    def say(self, text):
        for line in text.splitlines():
            word = line.partition(" ")[0]
            if word in self.counts:
                self.counts[word] += 1
            if word == "FAIL":
                self.failed.append(line)
        for out in (sys.stdout, self.results):
            out.write(text)
            out.flush()

    def summary(self, seconds):
        print("\n%d minutes and %d seconds; what took longest, in seconds:" % divmod(int(seconds), 60))
        for name in sorted(self.times, key=lambda name: -self.times[name])[:SLOWEST]:
            print("%7.0f %s" % (self.times[name], name))
        if self.failed:
            print("\n" + "\n".join(self.failed))
        print("%d passed, %d failed, %d skipped" % (self.counts["ok"], self.counts["FAIL"], self.counts["skip"]))

    def stop(self):
        for job in self.running:
            job.process.terminate()
        for job in self.running:
            job.process.wait()


def main():
    unknown = [group for group in sys.argv[1:] if group not in GROUPS]
    if unknown:
        sys.exit("there is no group %s; they are: %s" % (unknown[0], " ".join(GROUPS)))
    os.chdir(ROOT)
    began = time.monotonic()
    schedule = Schedule(sys.argv[1:] or GROUPS)
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
    try:
        if "SONDE_TEST_FAILED" in os.environ:
            schedule.say("FAIL %s\n" % os.environ["SONDE_TEST_FAILED"])
        schedule.run()
    finally:
        schedule.stop()
    schedule.summary(time.monotonic() - began)
    sys.exit(1 if schedule.counts["FAIL"] else 0)


if __name__ == "__main__":
    main()
