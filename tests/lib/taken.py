# SPDX-License-Identifier: BSD-2-Clause
"""What tests of injecting and attaching ask of the program that it was done to (tests/live/programs/taken.c)."""
import contextlib
import os
import re
import signal
import time

from harness import *


def left_clean(pid):
    """Nothing of ours is left but the library: no descriptor, no memory, no tracer, no stop, no priority."""
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except OSError:
            continue
        check("memfd:sonde" not in target, "descriptor %s is left" % fd)
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            status = open("/proc/%d/task/%s/status" % (pid, tid)).read()
        except OSError:
            continue
        check("TracerPid:\t0" in status, "thread %s is traced" % tid)
        check(not re.search("State:\t[tT]", status), "thread %s is stopped" % tid)
        # Our code blocks all but those of crashes, which no C library does.
        blocked = {n for n in range(1, 65) if int(re.search("SigBlk:\t([0-9a-f]+)", status).group(1), 16) >> (n - 1) & 1}
        check(not blocked >= {signal.SIGTERM, signal.SIGUSR2} or signal.SIGSEGV in blocked, "it blocks %s" % blocked)
        with contextlib.suppress(ProcessLookupError):
            check(os.sched_getscheduler(int(tid)) == os.SCHED_OTHER, "thread %s goes before others" % tid)


def ends_well(child):
    """It was alive all the while, and found nothing wrong."""
    check(alive(child), "it has ended with %s: %s" % (child.returncode, child.stdout.read() if child.poll() else ""))
    child.send_signal(signal.SIGTERM)
    out = child.stdout.read().decode()
    check(child.wait() == 0, "status %d: %s" % (child.returncode, out))
    check(int(out.split()[0]) > 0, "it did nothing: %s" % out)


def mappings(pid):
    """Those that are there because of us: how many of each name, and their bytes that are in memory."""
    names, resident = {}, 0
    ours = False
    for line in open("/proc/%d/smaps" % pid):
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            ours = "memfd:sonde" in line
            if ours:
                name = " ".join(line.split()[1:2] + line.split()[5:])
                names[name] = names.get(name, 0) + 1
        elif ours and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    return names, resident


def address_space(pid):
    """Bytes that are mapped, whatever for."""
    return int(open("/proc/%d/statm" % pid).read().split()[0]) * 4096
