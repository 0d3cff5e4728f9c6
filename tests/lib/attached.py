# SPDX-License-Identifier: BSD-2-Clause
"""Programs that sonde heap attaches to: they wait for a line on their input, do what they do, say "done", and end after another line."""
import os
import re
import signal
import subprocess
import time

from harness import *


def watched_from_now_on(command, recording, *options, env=None):
    """Runs one of them to its end with sonde in between; what it printed and what sonde said."""
    child = start(command, stdin=subprocess.PIPE, env=env)
    watcher = start([SONDE, "heap", "-p", str(child.pid), *options, "-o", recording], ready=False, stderr=subprocess.PIPE)
    wait_for_patches(child.pid)
    child.stdin.write(b"\n")
    child.stdin.flush()
    text = b""
    while not text.endswith(b"done\n"):
        line = child.stdout.readline()
        check(line, "it ended: %s" % text)
        text += line
    watcher.send_signal(signal.SIGINT)
    words = watcher.communicate(timeout=30)[1].decode()
    check(watcher.returncode == 0, words)
    child.stdin.write(b"\n")
    child.stdin.close()
    check(child.wait(timeout=10) == 0, "it ended with %s" % child.returncode)
    return text, words


def shared_memory(pid):
    """Which one it has: that of a sonde that was killed may still be there."""
    found = re.search("rw-s [0-9a-f]+ [0-9a-f:]+ ([0-9]+) +/memfd:sonde-heap ", open("/proc/%d/maps" % pid).read())
    return found.group(1) if found else None


def wait_for_patches(pid, before=None):
    """Until memory is shared, other than `before`, and its descriptor is closed again."""
    for _ in range(400):
        fds = []
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                fds.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
            except OSError:
                pass
        if shared_memory(pid) not in (None, before) and not any("memfd:sonde" in fd for fd in fds):
            time.sleep(0.05)
            return
        time.sleep(0.02)
    check(False, "it was not attached to")
