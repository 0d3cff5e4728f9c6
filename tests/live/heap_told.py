#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde heap -p of programs that sample their allocations themselves, and tell of it by otel_memory probes."""
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

# An allocator that is none: its blocks are numbers. Each 100th call is told, and stands for a hundred; "." is one step. The arguments of
# alloc are a register, one of 4 bytes and memory or a constant.
LIBRARY = r"""
#include <stdint.h>
__attribute__((section(".probes"), used)) volatile uint16_t otel_memory_alloc_semaphore, otel_memory_free_semaphore;
#define NOTE(name, arguments, ...) __asm__ volatile("990: nop\n .pushsection .note.stapsdt,\"\",\"note\"\n .balign 4\n" \
	".4byte 992f-991f, 994f-993f, 3\n 991: .asciz \"stapsdt\"\n 992: .balign 4\n 993: .8byte 990b\n .8byte _.stapsdt.base\n" \
	".8byte otel_memory_" #name "_semaphore\n .asciz \"otel_memory\"\n .asciz \"" #name "\"\n .asciz \"" arguments "\"\n" \
	"994: .balign 4\n .popsection\n .ifndef _.stapsdt.base\n" \
	".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n .weak _.stapsdt.base\n .hidden _.stapsdt.base\n" \
	"_.stapsdt.base: .space 1\n .size _.stapsdt.base,1\n .popsection\n .endif\n" :: __VA_ARGS__ : "memory")
uint64_t told;
unsigned semaphores(void) { return otel_memory_alloc_semaphore | (unsigned)otel_memory_free_semaphore << 16; }
static uint64_t next = 0x1000000, calls;
__attribute__((noinline)) uint64_t take(uint32_t size)
{
	uint64_t block = next += 4096;
	if (calls++ % 100 || !otel_memory_alloc_semaphore)
		return block;
	told++;
	if (size == 1000)
		NOTE(alloc, "8@%0 4@%1 8@$100000", "r"(block), "r"(size | 0xabcd00000000ull));
	else {
		volatile uint64_t weight = size * 100ull;
		NOTE(alloc, ALLOC_AT, "r"(block), "r"((uint64_t)size), "m"(weight));
	}
	return block;
}
__attribute__((noinline)) void give(uint64_t block)
{
	if (otel_memory_free_semaphore)
		NOTE(free, "8@%0", "r"(block));
}
"""
PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
extern uint64_t told, take(uint32_t size);
extern unsigned semaphores(void);
extern void give(uint64_t block);
static volatile unsigned done;
__attribute__((noinline)) static void keeps(void) { take(1000); done++; }
__attribute__((noinline)) static void drops(void) { give(take(3000)); done++; }
int main(void)
{
	char c;
	while (read(0, &c, 1) == 1) {
		for (int i = 0; i < 1000; i++) keeps();
		for (int i = 0; i < 2000; i++) drops();
		printf("%u %lu\n", semaphores(), (unsigned long)told);
		fflush(stdout);
	}
	return 0;
}
"""


def build(shared, arguments="8@%0 8@%1 8@%2"):
    with open(work("library.c"), "w") as f:
        f.write(LIBRARY.replace("ALLOC_AT", '"%s"' % arguments))
    with open(work("program.c"), "w") as f:
        f.write(PROGRAM)
    flags = ["gcc", "-O1", "-g", "-fno-optimize-sibling-calls"]
    if shared:
        commands = [flags + ["-fPIC", "-shared", "-Wl,-z,now", work("library.c"), "-o", work("libown.so")],
                    flags + [work("program.c"), work("libown.so"), "-Wl,-rpath," + work(), "-o", work("own")]]
    else:
        commands = [flags + [work("program.c"), work("library.c"), "-o", work("own")]]
    for command in commands:
        done = run(command)
        check(done.returncode == 0, done.stderr.decode())
    return work("own")


def step(child):
    """The two semaphores, and how many allocations the program has told so far."""
    child.stdin.write(b".")
    child.stdin.flush()
    semaphores, told = child.stdout.readline().split()
    return int(semaphores), int(told)


def attached(child, *arguments):
    watcher = start([SONDE, "heap", "-p", str(child.pid), "-o", work("out.sonde")] + list(arguments), ready=False,
                    stderr=subprocess.PIPE)
    for _ in range(500):
        if watcher.poll() is not None:
            break
        if step(child)[0] == 0x10002:  # alloc stands twice
            return watcher
        time.sleep(0.02)
    watcher.send_signal(signal.SIGINT)
    words = watcher.communicate(timeout=30)[1].decode()
    if "which are not used" in words:
        skip("no probes here: " + words)
    check(False, "nobody listens: " + words)


def ended(watcher):
    watcher.send_signal(signal.SIGINT)
    words = watcher.communicate(timeout=30)[1].decode()
    check(watcher.returncode == 0, words)
    return words


def nobody_listens(child):
    for _ in range(200):
        if step(child)[0] == 0:
            return
        time.sleep(0.02)
    check(False, "the semaphores stay: %s" % hex(step(child)[0]))


def heap_of(path):
    done = sonde("report", path, "--json")
    expect(done, 0)
    return json.loads(done.stdout)["heap"]


def watched(shared):
    need_root()
    child = start([build(shared)], stdin=subprocess.PIPE, ready=False)
    check(step(child) == (0, 0), "it tells before anybody listens")
    for _ in range(2):
        before = step(child)[1]
        watcher = attached(child)
        for _ in range(20):
            told = step(child)[1]
        words = ended(watcher)
        nobody_listens(child)
        found = re.search(r"own otel_memory probes in (\S+) are used: ([0-9]+) samples", words)
        check(found and found.group(1) == ("libown.so" if shared else "own"), words)
        # All that it has told, and nothing else; it may have told some when only one of the probes was placed.
        samples = int(found.group(2))
        check(abs(samples - (told - before)) <= 30 and samples >= 600, "%d of %d: %s" % (samples, told - before, words))
        heap = heap_of(work("out.sonde"))
        check(len(heap["processes"]) == 1 and heap["processes"][0]["how"] == "told", "%s" % heap["processes"])
        callers = {"keeps": [0, 0, 0], "drops": [0, 0, 0]}
        for s in heap["sites"]:
            for stack in s["stacks"]:
                name = [n for n in stack["stack"] if n in callers]
                check(name and "main" in stack["stack"], "%s" % stack)
            for i, key in enumerate(("total_count", "total_bytes", "live_bytes")):
                callers[name[0]][i] += s[key]
        # A sample of keeps stands for a hundred blocks of 1000 bytes, one of drops for as many of 3000; a third of them are of keeps.
        keeps, drops = callers["keeps"], callers["drops"]
        check(abs(keeps[0] + drops[0] - 100 * samples) <= 0.001 * 100 * samples, "%s of %d" % (callers, samples))
        check(abs(keeps[0] - 100 * samples / 3) <= 3000, "%s of %d" % (callers, samples))
        check(abs(keeps[1] - 1000 * keeps[0]) <= 1e-4 * keeps[1] and abs(keeps[2] - keeps[1]) <= 1, "%s" % callers)
        check(abs(drops[1] - 3000 * drops[0]) <= 1e-4 * drops[1] and drops[2] == 0, "%s" % callers)
        os.remove(work("out.sonde"))
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def a_program_with_probes_of_its_own():
    watched(False)


@test
def a_library_with_probes():
    watched(True)


@test
def a_recorder_that_is_killed_leaves_no_listener():
    need_root()
    child = start([build(True)], stdin=subprocess.PIPE, ready=False)
    watcher = attached(child)
    watcher.kill()
    watcher.wait()
    nobody_listens(child)
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def probes_that_cannot_be_used_are_said():
    """Its weight stands somewhere that no note can say in words that are known; or samples of ours were asked for."""
    need_root()
    child = start([build(False, "8@%0 8@%1 8@nowhere%2")], stdin=subprocess.PIPE, ready=False)
    step(child)
    done = sonde("heap", "-p", child.pid, "-d", "300ms", "-o", work("x"))
    check("probes of its own" in done.stderr.decode() and "nowhere" in done.stderr.decode(), done.stderr.decode())
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)
    child = start([build(False)], stdin=subprocess.PIPE, ready=False)
    step(child)
    done = sonde("heap", "-p", child.pid, "--sample", "64K", "-d", "300ms", "-o", work("x"))
    check("otel_memory" not in done.stderr.decode(), done.stderr.decode())
    check(step(child)[0] == 0, "somebody listens")
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def our_own_library_is_not_listened_to():
    """It has such probes as well, preloaded or put in."""
    need_root()
    with open(work("a.c"), "w") as f:
        f.write("#include <stdio.h>\n#include <stdlib.h>\nint main(void) { char c; while (fread(&c, 1, 1, stdin)) { free(malloc(9)); puts(\"0 0\");"
                "fflush(stdout); } return 0; }\n")
    check(run(["gcc", "-O1", "-fno-builtin", work("a.c"), "-o", work("a")]).returncode == 0, "gcc")
    child = start([work("a")], stdin=subprocess.PIPE, ready=False)
    step(child)
    watcher = start([SONDE, "heap", "-p", str(child.pid), "-o", work("first.sonde")], ready=False, stderr=subprocess.PIPE)
    for _ in range(500):
        if "sonde-heap" in open("/proc/%d/maps" % child.pid).read():
            break
        time.sleep(0.02)
    time.sleep(0.2)
    for _ in range(2):  # while it is watched, and when it is not any more
        done = sonde("heap", "-p", child.pid, "-d", "300ms", "-o", work("second.sonde"))
        check("otel_memory" not in done.stderr.decode(), done.stderr.decode())
        if alive(watcher):
            ended(watcher)
    step(child)
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


@test
def without_rights_it_is_said_what_is_needed():
    need_root()
    need("setpriv")
    os.chmod(work(), 0o777)
    program = build(False)
    child = start(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program], stdin=subprocess.PIPE, ready=False)
    step(child)
    done = run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", SONDE, "heap", "-p", str(child.pid), "-d", "300ms",
                "-o", work("x")])
    words = done.stderr.decode()
    check("probes of its own" in words and "cap_bpf" in words, words)
    child.stdin.close()
    check(child.wait() == 0, "it ended with %s" % child.returncode)


main()
