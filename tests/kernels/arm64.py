#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# schedule: early (it compiles everything, and boots machines)
"""sonde on aarch64, on a whole machine: emulated processor, Debian's arm64 kernel, real sampling."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *
import guest

COMPILER = "aarch64-linux-gnu-gcc"
LIBRARIES = ["libelf1", "libdw1", "libzstd1", "zlib1g", "liblzma5", "libbz2-1.0"]
HEADERS = ["libelf-dev", "libdw-dev", "libzstd-dev", "zlib1g-dev", "liblzma-dev", "libiberty-dev"]
PACKAGES = ["linux", "busybox-static", "libc6", "libgcc-s1"] + LIBRARIES + HEADERS
NEEDED = ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libelf.so.1",
          "libdw.so.1", "libzstd.so.1", "libz.so.1", "liblzma.so.5", "libbz2.so.1.0"]

CROSS = """[binaries]
c = '{compiler}'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkg-config = 'pkg-config'
pkgconfig = 'pkg-config'
[properties]
sys_root = '{root}'
pkg_config_libdir = '{lib}/pkgconfig'
[built-in options]
c_args = ['-isystem', '{root}/usr/include']
c_link_args = ['-L{lib}', '-L{root}/lib/aarch64-linux-gnu',
	'-Wl,-rpath-link,{lib}:{root}/lib/aarch64-linux-gnu']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
"""


def sysroot():
    need(COMPILER)
    need("meson")
    return guest.packages("arm64", "bookworm", PACKAGES)


def build():
    """sonde and its unit tests for aarch64; the build directory."""
    root = sysroot()
    out = os.path.join(guest.STORE, "build-arm64")
    cross = os.path.join(guest.STORE, "arm64.ini")
    if not os.path.exists(out + "/build.ninja"):
        with open(cross, "w") as f:
            f.write(CROSS.format(compiler=COMPILER, root=root,
                                 lib=root + "/usr/lib/aarch64-linux-gnu"))
        made = run(["meson", "setup", out, ROOT, "--werror", "--cross-file", cross])
        check(made.returncode == 0, "meson: %r" % (made.stdout + made.stderr)[-2000:])
    made = run(["ninja", "-C", out, "sonde", "tests"], timeout=600)
    check(made.returncode == 0, "it does not compile: %s" % made.stdout.decode()[-3000:])
    return out


def arm_program(name, flags, out):
    out = work(out)
    made = run([COMPILER, "-O2", "-g", "-D_GNU_SOURCE"] + flags +
               ["-o", out, os.path.join(PROGRAMS, name + ".c"), "-pthread"])
    check(made.returncode == 0, made.stderr.decode())
    return out


def in_guest(programs, commands):
    """What the commands print on an aarch64 machine; programs: name in the guest -> local file."""
    out, root = build(), sysroot()
    files = dict(guest.libraries(root, NEEDED))
    files["/lib/ld-linux-aarch64.so.1"] = root + "/lib/ld-linux-aarch64.so.1"
    files["/bin/sonde"] = out + "/sonde"
    for name, path in programs.items():
        files["/bin/" + name] = path
    return guest.boot("arm64", guest.kernel(root), root + "/bin/busybox", files, commands, work())


# How the same program's frames can be found: frame pointers or none, return addresses signed or not.
BUILT = {
    "fp": ["-fno-omit-frame-pointer"],
    "nofp": ["-fomit-frame-pointer"],
    "signed": ["-fomit-frame-pointer", "-mbranch-protection=pac-ret"],
    "static": ["-fomit-frame-pointer", "-static"],
}


@test
def known_programs_are_sampled_and_unwound():
    programs, commands = {}, []
    for row, flags in BUILT.items():
        for program, arguments in (("split", "10000000 1500"), ("recurse", "300 1000")):
            name = "%s-%s" % (program, row)
            programs[name] = arm_program(program, flags, name)
            commands.append("sonde record -q -F 199 -o %s.sonde -- %s %s >/dev/null" %
                            (name, name, arguments))
            commands.append(guest.send(name + ".sonde"))
    lines = in_guest(programs, commands)
    files = guest.received(lines, work())
    for row in BUILT:
        for program in ("split", "recurse"):
            check("%s-%s.sonde" % (program, row) in files, "\n".join(lines)[-3000:])
        split = Recording(files["split-%s.sonde" % row])
        recurse = Recording(files["recurse-%s.sonde" % row])
        for got in (split, recurse):
            quality = got.json["quality"]
            check(got.json["samples"] >= 100, "%s: %d samples" % (row, got.json["samples"]))
            check(quality["rooted_pct"] >= 97, "%s: %s" % (row, quality))
        # Starting takes long on an emulated processor; what follows is known.
        heavy, light = split.count("heavy"), split.count("light")
        check(heavy + light > 0.6 * split.json["samples"], "%s: %d and %d" % (row, heavy, light))
        check(abs(100 * heavy / (heavy + light) - 70) <= 8, "%s: %d and %d" % (row, heavy, light))
        check(recurse.deepest("descend") == 300,
              "%s: %d levels" % (row, recurse.deepest("descend")))


# These look at files of the machine they were compiled on. Those for a sanitizer need its library, too.
ELSEWHERE = {"test_elf", "test_guards", "test_os", "test_symbol", "test_tasks", "test_variables"}


@test
def unit_tests_pass():
    out = build()
    names = sorted(n for n in os.listdir(out + "/tests/unit") if n.startswith("test_") and
                   os.access(os.path.join(out, "tests/unit", n), os.X_OK) and "." not in n)
    names = [n for n in names if n not in ELSEWHERE and not n.endswith("_asan")]
    check(len(names) > 10, "unit tests: %s" % names)
    lines = in_guest({n: os.path.join(out, "tests/unit", n) for n in names},
                     ["%s 2>&1; echo status %s $?" % (n, n) for n in names])
    bad = [line for line in lines if line.startswith("FAIL") or re.search(r"\.c:\d+: ", line)]
    ended = [line for line in lines if line.startswith("status ")]
    check(not bad and ended == ["status %s 0" % n for n in names], "\n".join(bad + ended))


main()
