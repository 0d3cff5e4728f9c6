#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs written by others, in languages of their own: whole stacks, and names that make sense."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

PYTHON_LOOP = """
def inner(n):
    return sum(i * i for i in range(n))
def outer():
    for _ in range(300):
        inner(40000)
outer()
"""


def check_rooted(got, least_pct, least_samples):
    check(got.samples >= least_samples, "%d samples" % got.samples)
    check(got.quality["rooted_pct"] >= least_pct, "%s" % got.quality)


@test
def python():
    got = recording(["-F", "499", "--", sys.executable, "-c", PYTHON_LOOP])
    check_rooted(got, 99, 40)


@test
def a_compiler():
    with open(work("a.c"), "w") as f:
        for i in range(3000):
            f.write("int f%d(int a, int b) { int s = 0; for (int i = a; i < b; i++) "
                    "s += i %% (a + %d); return s; }\n" % (i, i + 1))
    got = recording(["-F", "499", "--", "gcc", "-O2", "-c", "-o", work("a.o"), work("a.c")])
    check_rooted(got, 97, 100)
    check(any("cc1" in t["name"] for t in got.threads), "cc1 is not among %s" % got.threads)


@test
def go():
    need("go")
    source = work("spin.go")
    with open(source, "w") as f:
        f.write('package main\nimport "fmt"\n//go:noinline\nfunc Heavy(n int) (s int) {\n'
                "for i := 0; i < n; i++ { s += i * s ^ i }\nreturn }\n"
                "func main() { fmt.Println(Heavy(700000000)) }\n")
    env = dict(os.environ, GOCACHE=work("cache"), GO111MODULE="off", CGO_ENABLED="0")
    built = run(["go", "build", "-o", work("spin"), source], env=env, timeout=120)
    if built.returncode:
        skip("go cannot build here: %r" % built.stderr[:200])
    got = recording(["-F", "499", "--", work("spin")])
    check_rooted(got, 99, 50)
    check(got.share("main.Heavy") > 80, "main.Heavy has %.1f %%" % got.share("main.Heavy"))


@test
def inlined_functions_are_frames():
    source = work("inlined.c")
    with open(source, "w") as f:
        f.write('#include "spin.h"\n'
                "static volatile uint64_t sink;\n"
                "static inline __attribute__((always_inline)) void innermost(uint64_t n)\n"
                "{ for (uint64_t i = 0; i < n; i++) sink += i * i; }\n"
                "static inline __attribute__((always_inline)) void middle(uint64_t n)\n"
                "{ innermost(n); }\n"
                "NOINLINE void real(uint64_t n) { middle(n); }\n"
                "int main(void) { real(400000000u); NOT_A_TAIL_CALL; return 0; }\n")
    subprocess.run(["gcc", "-O2", "-g", "-D_GNU_SOURCE", "-I" + PROGRAMS, "-o", work("inlined"),
                    source], check=True)
    got = recording(["-F", "499", "--", work("inlined")])
    chain = [frames for frames, n in got.stacks if frames[-3:] == ["real", "middle", "innermost"]]
    check(chain, "no stack ends in real;middle;innermost: %s" % got.stacks[:4])
    plain = sonde("report", work("out.sonde"), "--folded", "--no-inline").stdout.decode()
    check("innermost" not in plain and "real" in plain, "--no-inline shows %s" % plain[:300])


@test
def demangled_names():
    source = work("names.cc")
    with open(source, "w") as f:
        f.write('#include "spin.h"\n#include <vector>\nnamespace bees {\n'
                "template <typename T> struct Hive { NOINLINE void buzz(const std::vector<T> &v) {\n"
                "spin_ms(300 + v.size()); NOT_A_TAIL_CALL; } };\n}\n"
                "int main() { bees::Hive<int> h; h.buzz({}); return 0; }\n")
    need("g++")
    subprocess.run(["g++", "-O2", "-g", "-I" + PROGRAMS, "-o", work("names"), source], check=True)
    got = recording(["-F", "499", "--", work("names")])
    check(any("bees::Hive<int>::buzz(" in f for frames, _ in got.stacks for f in frames),
          "%s" % got.stacks[:3])


@test
def a_perf_map_names_generated_code():
    """Machine code in anonymous memory, with a map beside it as JIT compilers write it."""
    source = work("jit.c")
    with open(source, "w") as f:
        f.write("#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
                "int main(void) {\n"
                "static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xc7, 0xc0, 0, 0, 0,\n"
                "0x20, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0x5d, 0xc3}; /* a loop with a frame pointer */\n"
                "char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
                "memcpy(p, code, sizeof(code)); mprotect(p, 4096, PROT_READ | PROT_EXEC);\n"
                'char name[64]; snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());\n'
                'FILE *f = fopen(name, "w"); fprintf(f, "%lx %zx made_up_function\\n",\n'
                "(unsigned long)p, sizeof(code)); fclose(f);\n"
                "for (int i = 0; i < 6; i++) ((void (*)(void))p)();\n"
                "unlink(name); return 0; }\n")
    if os.uname().machine != "x86_64":
        skip("the machine code is x86-64")
    subprocess.run(["gcc", "-O2", "-fno-omit-frame-pointer", "-o", work("jit"), source], check=True)
    got = recording(["-F", "499", "--", work("jit")])
    check(got.share("made_up_function") > 80, "%s" % got.stacks[:4])
    check(got.quality["rooted_pct"] >= 95, "%s" % got.quality)


main()
