# SPDX-License-Identifier: BSD-2-Clause
"""Programs that sonde heap attaches to: they wait for a line on their input, do what they do, say "done", and end after another line."""
import os
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


def wait_for_patches(pid):
    """Until the memory is shared and its descriptor is closed again."""
    for _ in range(400):
        fds = []
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                fds.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
            except OSError:
                pass
        if "/memfd:sonde-heap" in open("/proc/%d/maps" % pid).read() and not any("memfd:sonde" in fd for fd in fds):
            time.sleep(0.5)
            return
        time.sleep(0.02)
    check(False, "it was not attached to")
