#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What cannot be recorded, and what is said about it: status 1, clear words, nobody harmed."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def open_sonde():
    """A copy that every user may run, in a directory that every user may write to."""
    os.chmod(work(), 0o777)
    copy = work("sonde")
    shutil.copy(SONDE, copy)
    os.chmod(copy, 0o755)
    return copy


def open_program(name):
    copy = work(name)
    shutil.copy(program(name), copy)
    os.chmod(copy, 0o755)
    return copy


@test
def a_pid_that_is_gone():
    child = start(["true"], ready=False)
    child.wait()
    path = work("out.sonde")
    expect(sonde("record", "-o", path, "-p", child.pid), 1, str(child.pid), "no process")
    check(not os.path.exists(path), "an empty recording stays behind")


@test
def a_name_nobody_has():
    expect(sonde("record", "-o", work("x"), "-n", "no-such-program-xyz"), 1, "no-such-program-xyz")


@test
def a_kernel_thread():
    with open("/proc/2/comm") as f:
        if f.read().strip() != "kthreadd":
            skip("pid 2 is not a kernel thread here (a container)")
    expect(sonde("record", "-o", work("x"), "-p", "2"), 1, "kernel thread")


def program_of_32_bit():
    """Made by hand, for compilers that make such programs are rarely installed: says "ready" and
    loops."""
    if os.uname().machine != "x86_64":
        skip("the machine code is x86")
    base, text = 0x08048000, 52 + 32
    said = b"ready\n"
    code = struct.pack("<BIBIBIBI", 0xb8, 4, 0xbb, 1, 0xb9, base + text + 24, 0xba, len(said))
    code += b"\xcd\x80\xeb\xfe" + said  # int $0x80; jmp to itself
    size = text + len(code)
    elf = b"\x7fELF\x01\x01\x01" + bytes(9)
    elf += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + text, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    elf += struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
    path = work("old")
    with open(path, "wb") as file:
        file.write(elf + code)
    os.chmod(path, 0o755)
    return path


@test
def a_program_of_32_bit():
    path = program_of_32_bit()
    try:
        child = start([path])
    except OSError:
        skip("this kernel runs no 32-bit programs")
    expect(sonde("record", "-o", work("x"), "-p", child.pid), 1, "32-bit", str(child.pid))
    expect(sonde("record", "-o", work("x"), "-n", "old"), 1, "32-bit", str(child.pid))
    done = sonde("record", "-o", work("x"), "--", path)
    expect(done, 1, "32-bit", path)
    check(done.stdout == b"", "the command was run: %r" % done.stdout)
    check(not os.path.exists(work("x")), "an empty recording stays behind")
    check(alive(child), "the target is gone")


@test
def a_program_of_32_bit_among_others():
    """What a script runs is sampled; of code that cannot be unwound it is said how much there was."""
    path = program_of_32_bit()
    done = sonde("record", "-F", "499", "-o", work("out.sonde"), "--", "sh", "-c",
                 "timeout 0.4 '%s'; '%s' 10000000 400" % (path, program("split")))
    expect(done, 0, "32-bit")
    got = Recording(work("out.sonde"))
    check(got.quality["losses"]["no_registers"] > 20, "%s" % got.quality)
    check(got.count("heavy") > 20, "%s" % got.stacks[:3])


@test
def a_zombie():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        expect(sonde("record", "-o", work("x"), "-p", pid), 1, "zombie", str(pid))
    finally:
        os.waitpid(pid, 0)


@test
def a_process_of_another_user():
    need_root()
    need("setpriv")
    target = start([program("split"), "10000000", "8000"])
    done = run(NOBODY + [open_sonde(), "record", "-o", work("x"), "-p", str(target.pid), "-d", "1"])
    expect(done, 1, str(target.pid), "uid 0", "sudo")
    check(alive(target), "the target is gone")


@test
def ones_own_process_without_privileges():
    """No root, no capability, no kernel frames: still whole stacks."""
    need_root()
    need("setpriv")
    with open("/proc/sys/kernel/perf_event_paranoid") as f:
        if int(f.read()) > 2:
            skip("kernel.perf_event_paranoid is above 2")
    done = run(NOBODY + [open_sonde(), "record", "-F", "499", "-o", work("x"), "--",
                         open_program("split"), "10000000", "1000"])
    expect(done, 0)
    got = Recording(work("x"))
    check(got.samples >= 400, "%d samples" % got.samples)
    check(got.quality["rooted_pct"] >= 99, "%s" % got.quality)
    check(abs(got.share("heavy") - 70) <= 6, "heavy has %.1f %%" % got.share("heavy"))


@test
def the_whole_machine_without_privileges():
    need_root()
    need("setpriv")
    done = run(NOBODY + [open_sonde(), "record", "-o", work("x"), "-a", "-d", "1"])
    expect(done, 1, "perf_event_paranoid", "CAP_PERFMON")


@test
def where_perf_events_are_forbidden():
    """ptrace takes over and says so; who wants perf is refused."""
    record = [program("noperf"), SONDE, "record", "-o", work("x")]
    done = run(record + ["--", program("split"), "10000000", "1000"])
    expect(done, 0, "seccomp", "ptrace")
    got = Recording(work("x"))
    check(got.json["meta"]["event"] == "ptrace", "%s" % got.json["meta"])
    check(got.samples >= 150, "%d samples" % got.samples)
    expect(run(record + ["--sampler", "perf", "--", "true"]), 1, "seccomp", "docker run")
    done = run([program("noperf"), SONDE, "doctor"])
    expect(done, 0)  # it can record, in another way
    check(b"seccomp" in done.stdout and b"with ptrace instead" in done.stdout,
          "doctor does not say it: %r" % done.stdout)


@test
def a_command_that_does_not_exist():
    done = sonde("record", "-o", work("x"), "--", "/no/such/command")
    check(done.returncode in (1, 127), "exit status %d" % done.returncode)
    check(b"/no/such/command" in done.stderr, "%r" % done.stderr)
    check(not os.path.exists(work("x")), "an empty recording stays behind")


@test
def a_command_that_is_no_program():
    with open(work("text"), "w") as f:
        f.write("hello\n")
    done = sonde("record", "-o", work("x"), "--", work("text"))
    check(done.returncode in (1, 126), "exit status %d: %r" % (done.returncode, done.stderr))


@test
def a_directory_that_does_not_exist():
    expect(sonde("record", "-o", "/no/such/directory/x", "--", "true"), 1, "/no/such/directory/x")


@test
def a_disk_that_is_full():
    """What was written until then stays readable, and the command runs to its end."""
    need_mount_namespace()
    script = ("mount -t tmpfs -o size=100k none '%s' && cd '%s' && "
              "'%s' record -F 4999 -o full.sonde -- '%s' 1 1500; echo $?; "
              "cp full.sonde '%s'" % (work("mnt"), work("mnt"), SONDE, work("noisy"), work("copy")))
    os.mkdir(work("mnt"))
    write_noisy(work("noisy"))
    done = run(["unshare", "-m", "sh", "-c", script])
    err = done.stderr.decode()
    check("space" in err.lower(), "no word about the disk: %s" % err)
    check(done.stdout.split()[-1] == b"1", "exit status %r" % done.stdout)
    check(b"finished" in done.stdout, "the command did not end in peace: %r" % done.stdout)
    check(Recording(work("copy")).samples > 100, "what was written cannot be read")


def write_noisy(path):
    """A program with many different stacks, so that the recording grows: recursion in two ways."""
    source = path + ".c"
    with open(source, "w") as f:
        f.write('#include "spin.h"\n#include <stdio.h>\n'
                "static uint64_t seed = 1;\n"
                "NOINLINE void a(int n); NOINLINE void b(int n);\n"
                "static void next(int n) { if (!n) { spin_until(spin_cpu_ns() + 100000); return; }\n"
                "seed = seed * 6364136223846793005u + 1442695040888963407u;\n"
                "if (seed >> 63) a(n - 1); else b(n - 1); }\n"
                "void a(int n) { next(n); NOT_A_TAIL_CALL; }\n"
                "void b(int n) { next(n); NOT_A_TAIL_CALL; }\n"
                "int main(void) { uint64_t end = spin_cpu_ns() + 3000000000u;\n"
                'while (spin_cpu_ns() < end) next(40); puts("finished"); return 0; }\n')
    subprocess.run(["gcc", "-O1", "-D_GNU_SOURCE", "-I" + PROGRAMS, "-o", path, source], check=True)


@test
def a_device_that_is_full():
    done = sonde("record", "-o", "/dev/full", "--", "true")
    check(done.returncode == 1, "exit status %d: %r" % (done.returncode, done.stderr))
    check(b"/dev/full" in done.stderr, "%r" % done.stderr)


@test
def a_full_disk_under_the_report():
    recording(["--", program("split"), "10000000", "200"])
    with open("/dev/full", "w") as full:
        done = subprocess.run([SONDE, "report", work("out.sonde"), "--json"], stdout=full,
                              stderr=subprocess.PIPE)
    check(done.returncode == 1, "exit status %d" % done.returncode)
    check(done.stderr, "no word about it")


@test
def more_threads_than_open_files():
    """Threads beyond the limit are counted and named as a loss."""
    child = start([program("threads"), "60", "300"])
    done = run(["sh", "-c", "ulimit -n 40; exec '%s' record -o '%s' -p %d -d 1"
                % (SONDE, work("x"), child.pid)])
    err = done.stderr.decode()
    check("open files" in err, "no word about it (status %d): %s" % (done.returncode, err))
    check(done.returncode in (0, 1), "exit status %d" % done.returncode)
    check(alive(child) or child.returncode == 0, "the target was harmed")


main()
