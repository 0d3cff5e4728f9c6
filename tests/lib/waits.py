# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde why` says about a process.

    got = why_until(child.pid, "deadlock")
    got.check(kind="deadlock", root="member-1", grade="proven")
"""
import json
import time

from harness import *


class Why:
    def __init__(self, pid, *options, **run_options):
        done = sonde("why", pid, "--json", *options, **run_options)
        expect(done, 0)
        self.json = json.loads(done.stdout)
        self.verdict = self.json["verdict"]
        self.threads = {t["tid"]: t for t in self.json["threads"]}

    @property
    def kind(self):
        return self.verdict["kind"]

    @property
    def sentence(self):
        return self.verdict["sentence"]

    def thread(self, name):
        """The only thread of that name."""
        found = [t for t in self.json["threads"] if t["name"] == name]
        check(len(found) == 1, "%d threads are called %s: %s" % (len(found), name, self.sentence))
        return found[0]

    def chain(self):
        """Names along the chain, from who hangs to who is to blame."""
        return [self.threads[tid]["name"] for tid in self.verdict["chain"]]

    def check(self, kind, root=None, grade="proven", focus=None):
        words = "%s\n%s" % (self.sentence, json.dumps(self.verdict))
        check(self.kind == kind, "it is %s, not %s: %s" % (self.kind, kind, words))
        check(self.verdict["grade"] == grade, "%s instead of %s: %s"
              % (self.verdict["grade"], grade, words))
        for what, wanted in (("root", root), ("focus", focus)):
            got = self.verdict[what]
            if isinstance(wanted, int):
                check(got == wanted, "%s is %d, not %d: %s" % (what, got, wanted, words))
            elif wanted:
                name = self.threads[got]["name"]
                check(name == wanted, "%s is %s, not %s: %s" % (what, name, wanted, words))
        check(self.json["pause_ns"] == 0, "it was stopped for %d ns" % self.json["pause_ns"])
        return self


def why_until(pid, kind, *options, seconds=10, **run_options):
    """Threads may still be on their way to where they hang: asks until the verdict is of that kind and has
    held for two answers, or time is up; the last answer."""
    end, right = time.monotonic() + seconds, 0
    while True:
        got = Why(pid, *options, **run_options)
        right = right + 1 if got.kind == kind else 0
        if right == 2 or time.monotonic() > end:
            return got
        time.sleep(0.05)
