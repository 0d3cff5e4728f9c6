#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`sonde why` of processes that wait for others: through pipes, sockets, files, children. Who is in the way is
known beforehand (programs/peers.c)."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from harness import *


def settled(pid):
    """Waits until the process sleeps, or stands still, and has done so for a while."""
    last = None
    for _ in range(200):
        with open("/proc/%d/status" % pid) as f:
            text = f.read()
        state = text.split("State:")[1].split()[0]
        switches = text.split("voluntary_ctxt_switches:")[1].split()[0]
        if state in "SDTt" and last == (state, switches):
            return
        last = (state, switches)
        time.sleep(0.1)


class Answer:
    def __init__(self, pid, *options):
        done = sonde("why", "--json", *options, pid)
        expect(done, 0)
        self.text = done.stdout.decode()
        self.json = json.loads(self.text)
        self.verdict = self.json["verdict"]
        self.thread = [t for t in self.json["threads"] if t["tid"] == pid][0]
        self.wait = self.thread.get("wait") or {}
        self.blockers = self.thread["blocked_by"]

    def is_verdict(self, kind, grade=None):
        check(self.verdict["kind"] == kind, "the verdict is %(kind)s: %(sentence)s" % self.verdict)
        if grade:
            check(self.verdict["grade"] == grade, "it is %(grade)s: %(sentence)s" % self.verdict)
        return self

    def waits_for(self, kind, pid=0, grade="proven"):
        check(self.wait.get("kind") == kind, "it waits for %s" % self.wait)
        check(self.wait["grade"] == grade or pid, "the wait is %s" % self.wait)
        got = [(b["pid"], b["grade"]) for b in self.blockers]
        check(got == ([(pid, grade)] if pid else []), "%s is in its way, not %s" % (got, pid))
        return self

    def says(self, words):
        check(words in self.text, "%r is not in %s" % (words, self.verdict["sentence"]))
        return self


def peers(mode, *arguments):
    """Starts it; (waiter, holder)."""
    child = start([program("peers"), mode, *arguments])
    waiter, holder = (int(n) for n in child.stdout.readline().split())
    settled(waiter)
    return waiter, holder


def plain(mode, kind, verdict="peer_process", grade="proven", arguments=()):
    waiter, holder = peers(mode, *arguments)
    return Answer(waiter).is_verdict(verdict, grade).waits_for(kind, holder, grade)


@test
def a_reader_of_a_pipe():
    plain("pipe_reader", "pipe")


@test
def a_pipe_whose_reader_is_stopped():
    plain("pipe_writer_of_stopped", "pipe", "stopped").says("is stopped (SIGSTOP)")


@test
def by_somebody_who_may_not_see_all():
    """What is right stays right, and is said less surely: another user may hold the pipe as well."""
    need_root()

    def drop():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    child = start([program("peers"), "pipe_reader"], preexec_fn=drop)
    waiter, holder = (int(n) for n in child.stdout.readline().split())
    settled(waiter)
    done = sonde("why", "--json", "--look", "proc", waiter, preexec_fn=drop)
    expect(done, 0)
    got = json.loads(done.stdout)
    check(got["verdict"]["kind"] == "peer_process", "%s" % got["verdict"])
    check(got["verdict"]["grade"] == "inferred", "%s" % got["verdict"])
    check("the descriptors of" in got["unseen"], "%s" % got["unseen"])
    blocked = [t for t in got["threads"] if t["tid"] == waiter][0]["blocked_by"]
    check([b["pid"] for b in blocked] == [holder], "%s" % blocked)


@test
def its_own_pipe():
    plain("own_pipe", "pipe", "own_pipe")


@test
def a_queue_between_threads_is_no_mistake():
    waiter, _ = peers("own_queue")
    Answer(waiter).is_verdict("idle")


@test
def a_shell_that_waits_for_the_writer_is_not_to_blame():
    plain("pipe_of_shell", "pipe")


@test
def one_of_two_writers():
    waiter, _ = peers("two_writers")
    got = Answer(waiter)
    check([b["grade"] for b in got.blockers] == ["candidate"] * 2, "%s" % got.blockers)
    got.says("2 processes have the other end")


@test
def a_fifo_that_nobody_opens():
    plain("fifo_open", "fifo_open", arguments=[work("fifo")]).says(work("fifo"))


@test
def a_fifo_by_a_relative_path():
    path = os.path.relpath(work("fifo"))
    plain("fifo_open", "fifo_open", arguments=[path]).says(path[:90])


@test
def a_fifo_with_a_writer():
    plain("fifo_read", "fifo", arguments=[work("fifo")])


@test
def a_unix_socket():
    plain("unix_socket", "unix_socket")


@test
def a_connection_that_was_not_accepted():
    plain("unix_not_accepted", "unix_socket", arguments=[work("s")]).says("not accepted")


@test
def a_full_queue_of_connections():
    plain("unix_connect", "connect", arguments=[work("s")]).says(work("s"))


@test
def a_tcp_connection():
    plain("tcp", "tcp")


@test
def a_tcp_connection_that_was_not_accepted():
    plain("tcp_not_accepted", "tcp").says("not accepted")


@test
def another_machine():
    need_root()
    need("ip")
    need("unshare")
    # A network of its own, in which packets for that address are sent and lost.
    script = ("ip link set lo up && ip route add 192.0.2.0/24 dev lo src 127.0.0.1 && "
              "exec \"$@\"")
    child = start(["unshare", "-n", "sh", "-c", script, "sh", program("peers"), "tcp_remote",
                   "192.0.2.7"], ready=False, stderr=subprocess.PIPE)
    if child.stdout.readline() != b"ready\n":
        skip("networks cannot be made here: %r" % child.stderr.read())
    waiter = int(child.stdout.readline().split()[0])
    settled(waiter)
    Answer(waiter).is_verdict("remote_peer", "proven").says("192.0.2.7:4711")


@test
def in_a_network_and_a_pid_namespace_of_its_own():
    need_root()
    need("unshare")
    if run(["unshare", "-npf", "--mount-proc", "true"]).returncode:
        skip("namespaces cannot be made here")
    child = start(["unshare", "-npf", "--kill-child", "sh", "-c", "ip link set lo up && exec \"$@\"",
                   "sh", program("peers"), "tcp"])
    child.stdout.readline()  # ids of its own namespace
    inner = int(open("/proc/%d/task/%d/children" % (child.pid, child.pid)).read().split()[0])
    server = int(open("/proc/%d/task/%d/children" % (inner, inner)).read().split()[0])
    settled(inner)
    Answer(inner).is_verdict("peer_process", "proven").waits_for("tcp", server)


@test
def a_child_in_another_pid_namespace():
    need_root()
    need("unshare")
    if run(["unshare", "-pf", "true"]).returncode:
        skip("namespaces cannot be made here")
    child = start(["unshare", "-pf", "--kill-child", program("peers"), "wait_for_stopped"])
    child.stdout.readline()
    inner = int(open("/proc/%d/task/%d/children" % (child.pid, child.pid)).read().split()[0])
    stopped = int(open("/proc/%d/task/%d/children" % (inner, inner)).read().split()[0])
    settled(inner)
    Answer(inner).is_verdict("stopped", "proven").waits_for("child", stopped)
    Answer(child.pid).is_verdict("stopped", "proven").waits_for("child", inner)


@test
def a_server_that_accepts():
    plain("accept", "accept", "idle")


@test
def an_eventfd_shared_with_another():
    plain("eventfd", "eventfd")


@test
def an_event_loop_is_idle():
    waiter, _ = peers("epoll_loop")
    Answer(waiter).is_verdict("idle").waits_for("epoll")


@test
def an_epoll_of_one_socket():
    plain("epoll_one", "epoll")


@test
def a_poll_of_one_socket():
    plain("poll_one", "poll")


@test
def a_select_of_one_socket():
    plain("select_one", "select")


@test
def a_process_by_its_descriptor():
    plain("pidfd", "poll")


@test
def a_timer():
    plain("timer", "timer", "idle").says("16 min")


@test
def a_sleep():
    plain("sleep", "sleep", "idle").says("16 min")


@test
def a_sleep_until_a_time():
    plain("sleep_until", "sleep", "idle").says("16 min")


@test
def news_of_files():
    plain("inotify", "inotify", "idle")


@test
def a_signal():
    plain("signalfd", "signal", "idle")


@test
def a_stopped_child():
    plain("wait_for_stopped", "child", "stopped")


@test
def any_of_two_children():
    waiter, _ = peers("wait_for_any")
    got = Answer(waiter)
    check([b["grade"] for b in got.blockers] == ["candidate"] * 2, "%s" % got.blockers)


@test
def a_child_of_vfork():
    plain("vfork", "vfork")


@test
def a_lock_of_flock():
    plain("flock", "flock", arguments=[work("lock")]).says(work("lock"))


@test
def a_lock_of_fcntl():
    plain("fcntl", "fcntl_lock", arguments=[work("lock")]).says(work("lock"))


@test
def a_lock_of_an_open_file():
    plain("ofd", "ofd_lock", arguments=[work("lock")])


@test
def a_lock_left_to_a_child():
    waiter, holder = peers("lock_left_behind", work("lock"))
    try:
        Answer(waiter).is_verdict("peer_process", "proven").waits_for("flock", holder).says(
            "which has ended")
    finally:
        os.kill(holder, signal.SIGKILL)


@test
def a_lock_it_has_itself():
    waiter, holder = peers("self_flock", work("lock"))
    Answer(waiter).is_verdict("self_deadlock", "proven")


@test
def a_semaphore_of_system_v():
    plain("semaphore", "sysv_semaphore", grade="inferred").says("changed the semaphore last")


@test
def a_full_queue_of_system_v():
    child = start([program("peers"), "sysv_queue"], stderr=subprocess.PIPE)
    waiter, holder = (int(n) for n in child.stdout.readline().split())
    queue = int(child.stderr.readline())
    try:
        settled(waiter)
        Answer(waiter).is_verdict("stopped", "inferred").waits_for("sysv_queue", holder, "inferred")
    finally:
        run(["ipcrm", "-q", str(queue)])


@test
def arguments_that_are_gone():
    waiter, _ = peers("poll_of_nothing")
    got = Answer(waiter, "--all").is_verdict("idle")
    other = [t for t in got.json["threads"] if t["tid"] != waiter][0]
    check(other["wait"]["kind"] == "poll" and other["wait"]["grade"] == "inferred", "%s" % other)


@test
def a_message_queue():
    if not os.path.exists("/proc/sys/fs/mqueue"):
        skip("this kernel has no message queues")
    plain("posix_queue", "posix_queue", "stopped", arguments=["/sonde-test-%d" % os.getpid()])


@test
def a_terminal():
    plain("terminal", "terminal")


@test
def a_page_of_its_own_that_nobody_supplies():
    need_root()
    plain("own_page", "userfaultfd", "own_pipe")


@test
def a_lock_of_the_kernel():
    need_root()
    waiter, holder = peers("kernel_lock")
    try:
        Answer(waiter, "--look", "proc").waits_for("device").says("kernel: ")
        done = sonde("why", "--json", "--look", "bpf", waiter)
        if done.returncode or b'"kernel_lock"' not in done.stdout:
            skip("only BPF tells who holds a lock of the kernel, and on new kernels")
        Answer(waiter, "--look", "bpf").waits_for("kernel_lock", holder).is_verdict("own_pipe")
    finally:
        os.kill(holder, signal.SIGKILL)  # first: nothing else lets go of the waiter


@test
def stopped_by_a_debugger():
    need("gdb")
    waiter, _ = peers("own_pipe")
    gdb = start(["gdb", "-q", "-nx", "-p", str(waiter)], ready=False, stdin=subprocess.PIPE,
                stderr=subprocess.STDOUT)
    try:
        for _ in range(300):
            with open("/proc/%d/stat" % waiter) as f:
                if f.read().split(") ")[1][0] == "t":
                    break
            time.sleep(0.1)
        settled(waiter)
        got = Answer(waiter).is_verdict("stopped", "proven").says("gdb[%d]" % gdb.pid)
        check([b["pid"] for b in got.blockers] == [gdb.pid], "%s" % got.blockers)
    finally:
        gdb.kill()  # first: as long as it traces, nobody else learns of the end of the other
        gdb.wait()


@test
def watched_by_strace():
    """It is traced, and not stopped: that changes nothing."""
    need("strace")
    waiter, holder = peers("pipe_reader")
    tracer = start(["strace", "-o", "/dev/null", "-p", str(waiter)], ready=False,
                   stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with open("/proc/%d/status" % waiter) as f:
                if "TracerPid:\t%d\n" % tracer.pid in f.read():
                    break
            time.sleep(0.1)
        settled(waiter)
        Answer(waiter).is_verdict("peer_process", "proven").waits_for("pipe", holder)
        Answer(tracer.pid).says("it traces")
    finally:
        tracer.kill()
        tracer.wait()


def freezer_v2():
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(mount + "/cgroup.controllers"):
            return mount
    return None


def freeze(directory, file, on, off):
    waiter, holder = peers("pipe_reader")
    os.mkdir(directory)
    try:
        with open(directory + "/cgroup.procs", "w") as f:
            f.write(str(holder))
        with open(directory + "/" + file, "w") as f:
            f.write(on)
        time.sleep(0.2)
        try:
            Answer(waiter).is_verdict("frozen", "proven").waits_for("pipe", holder)
            Answer(holder).is_verdict("frozen", "proven")
        finally:
            with open(directory + "/" + file, "w") as f:
                f.write(off)
    finally:
        os.kill(holder, signal.SIGKILL)
        for _ in range(50):
            try:
                os.rmdir(directory)
                break
            except OSError:
                time.sleep(0.1)


@test
def a_frozen_process():
    need_root()
    mount = freezer_v2()
    if not mount or not os.path.exists(mount + "/cgroup.procs"):
        skip("cgroup v2 is not mounted")
    freeze("%s/sonde-test-%d" % (mount, os.getpid()), "cgroup.freeze", "1", "0")


@test
def a_process_frozen_by_the_old_freezer():
    need_root()
    if not os.path.exists("/sys/fs/cgroup/freezer/cgroup.procs"):
        skip("the freezer of cgroup v1 is not mounted")
    freeze("/sys/fs/cgroup/freezer/sonde-test-%d" % os.getpid(), "freezer.state", "FROZEN", "THAWED")


main()
